/* Characters that are not seen, against ranges written out here one by one. */
#include "base/kv_text.h"
#include "tests/kv_test.h"

static bool on_the_list(uint32_t c)
{
    return c < 0x20 || (c >= 0x7F && c <= 0x9F) || c == 0xAD || c == 0x61C || c == 0x180E ||
           (c >= 0x200B && c <= 0x200F) || (c >= 0x2028 && c <= 0x202E) || (c >= 0x2060 && c <= 0x206F) ||
           c == 0xFEFF || (c >= 0xFFF9 && c <= 0xFFFB) || (c >= 0xE0000 && c <= 0xE0FFF);
}

static size_t put(uint32_t c, char out[4])
{
    if (c < 0x80) return (size_t)(out[0] = (char)c, 1);
    const size_t more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    static const unsigned char lead[] = {0, 0xC0, 0xE0, 0xF0};
    for (size_t i = 0; i <= more; i++)
        out[i] = (char)(i == 0 ? lead[more] | c >> (6 * more) : 0x80U | (c >> (6 * (more - i)) & 0x3F));
    return more + 1;
}

static void text__finds_every_hidden_character_and_no_other(void **state)
{
    (void)state;
    for (uint32_t c = 0; c < 0x110000; c++) {
        if (c >= 0xD800 && c < 0xE000) continue; /* no characters */
        char text[8] = "ab";
        uint32_t found = 0;
        const size_t n = 2 + put(c, text + 2);
        text[n] = 'z';
        const size_t at = kv_text_find_hidden(text, n + 1, &found);
        if (at != (on_the_list(c) ? 2 : n + 1) || (on_the_list(c) && found != c))
            fail_msg("U+%04X: %zu", (unsigned)c, at);
        assert_int_equal(kv_text_hides(c), on_the_list(c));
    }
}

static void text__says_nothing_of_malformed_bytes(void **state)
{
    (void)state;
    static const char *const texts[] = {"\xE2\x80", "\x80\x8B", "\xC2", "\xF3\xA0\x81", "\xE2\x41\x8B", "\xFF", ""};
    for (size_t i = 0; i < KVT_COUNT(texts); i++)
        assert_int_equal(kv_text_find_hidden(texts[i], strlen(texts[i]), NULL), strlen(texts[i]));
    assert_int_equal(kv_text_find_hidden("\xFF\xE2\x80\x8B", 4, NULL), 1);
}

static void text__tamed_is_one_line_of_proper_utf8(void **state)
{
    (void)state;
    static const char *const cases[][2] = {{"plain", "plain"},
                                           {"two\nlines\t", "two?lines?"},
                                           {"C1 \xC2\x8B here", "C1 ?? here"},
                                           {"cut \xE2\x82", "cut ??"},
                                           {"\xE2\x82\xAC and \xC3\xA9", "\xE2\x82\xAC and \xC3\xA9"},
                                           {"long \xC0\xAF \xE0\x80\x80", "long ?? ???"},
                                           {"half \xED\xA0\x80", "half ???"},
                                           {"far \xF7\xBF\xBF\xBF", "far ????"},
                                           {"\x80\x8B\xFF", "???"},
                                           {"turn \xE2\x80\xAE", "turn ???"},
                                           {"", ""}};
    for (size_t i = 0; i < KVT_COUNT(cases); i++) {
        char text[64];
        snprintf(text, sizeof text, "%s", cases[i][0]);
        kv_text_tame(text);
        assert_string_equal(text, cases[i][1]);
    }
    kv_err err = {0};
    (void)KV_FAIL(&err, KV_EFORMAT, "near \xC2\x8B");
    assert_string_equal(err.text, "near ??");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text__finds_every_hidden_character_and_no_other),
        cmocka_unit_test(text__says_nothing_of_malformed_bytes),
        cmocka_unit_test(text__tamed_is_one_line_of_proper_utf8),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
