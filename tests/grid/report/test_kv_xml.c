/* Text in XML: what is escaped, and what no document may hold. */
#include "grid/report/kv_export.h"
#include "tests/kv_test.h"

static void xml_text__escapes_and_replaces(void **state)
{
    (void)state;
#define BAD "\xEF\xBF\xBD"
    static const char *const cases[][2] = {
        {"plain", "plain"},
        {"a->b & <c> \"d\" ]]>", "a-&gt;b &amp; &lt;c&gt; &quot;d&quot; ]]&gt;"},
        {"tab\there\nline\r", "tab&#9;here&#10;line&#13;"},
        {"\x01\x1B[31m\x0B\x7F", BAD BAD "[31m" BAD "\x7F"}, /* DEL is allowed */
        {"gr\xC3\xBC\xC3\x9F \xE2\x82\xAC \xF0\x9F\x98\x80", "gr\xC3\xBC\xC3\x9F \xE2\x82\xAC \xF0\x9F\x98\x80"},
        {"\xEF\xBF\xBE\xEF\xBF\xBF", BAD BAD}, /* U+FFFE, U+FFFF */
        {"\xEF\xBF\xBD", BAD},
        {"\xED\xA0\x80", BAD BAD BAD},         /* a surrogate */
        {"\xC0\xAF", BAD BAD},                 /* overlong */
        {"\xE0\x80\xAF", BAD BAD BAD},         /* overlong */
        {"\xF4\x90\x80\x80", BAD BAD BAD BAD}, /* past U+10FFFF */
        {"\xF4\x8F\xBF\xBD", "\xF4\x8F\xBF\xBD"},
        {"a\xC3", "a" BAD}, /* cut */
        {"\xE2\x82"
         "a",
         BAD BAD "a"},
        {"\xC2\x85", "\xC2\x85"},
        {"", ""},
    };
    char folder[128];
    kvt_folder(folder);
    char *path = kvt_path(folder, "x");
    for (size_t i = 0; i < KVT_COUNT(cases); i++) {
        kv_err err = {0};
        kv_out *o = NULL;
        kv_buf got = {0};
        kvt_ok(kv_out_open(path, &o, &err), &err);
        kv_xml_text(o, cases[i][0]);
        kvt_ok(kv_out_close(o, KV_OK, &err), &err);
        kvt_ok(kv_file_read(path, 1000, &got, &err), &err);
        if (strcmp(got.data, cases[i][1]) != 0) fail_msg("case %zu: %s", i, got.data);
        kv_buf_free(&got);
    }
    kvt_remove(folder, "x");
    assert_int_equal(rmdir(folder), 0);
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(xml_text__escapes_and_replaces)};
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
