#include "base/kv_text.h"

#include <stdio.h>
#include <string.h>

bool kv_text_hides(uint32_t c)
{
    static const uint32_t ranges[][2] = {{0x00, 0x1F},     {0x7F, 0x9F},     {0xAD, 0xAD},      {0x61C, 0x61C},
                                         {0x180E, 0x180E}, {0x200B, 0x200F}, {0x2028, 0x202E},  {0x2060, 0x206F},
                                         {0xFEFF, 0xFEFF}, {0xFFF9, 0xFFFB}, {0xE0000, 0xE0FFF}};
    if (c >= 0x20 && c < 0x7F) return false; /* nearly all */
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (c >= ranges[i][0] && c <= ranges[i][1]) return true;
    return false;
}

/* The character at s, of *len bytes; a byte that begins none is one by itself, which hides nothing. */
static uint32_t character(const unsigned char *s, size_t n, size_t *len)
{
    const size_t more = s[0] >= 0xF0 ? 3 : s[0] >= 0xE0 ? 2 : s[0] >= 0xC0 ? 1 : 0;
    *len = 1;
    if (s[0] < 0x80) return s[0];
    if (more == 0 || more >= n) return 0xFFFD;
    uint32_t c = s[0] & (0x3FU >> more);
    for (size_t i = 1; i <= more; i++) {
        if ((s[i] & 0xC0) != 0x80) return 0xFFFD;
        c = c << 6 | (s[i] & 0x3FU);
    }
    *len = more + 1;
    return c;
}

size_t kv_text_find_hidden(const char *s, size_t n, uint32_t *code_point)
{
    size_t len;
    for (size_t i = 0; i < n; i += len) {
        const uint32_t c = character((const unsigned char *)s + i, n - i, &len);
        if (!kv_text_hides(c)) continue;
        if (code_point != NULL) *code_point = c;
        return i;
    }
    return n;
}

/* Whether the character of len bytes is one that UTF-8 may hold, in its shortest form. */
static bool is_proper(uint32_t c, size_t len)
{
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    return len == 1 ? c < 0x80 : c >= least[len] && c <= 0x10FFFF && (c < 0xD800 || c > 0xDFFF);
}

void kv_text_tame(char *s)
{
    const size_t n = strlen(s);
    size_t len;
    for (size_t i = 0; i < n; i += len) {
        const uint32_t c = character((const unsigned char *)s + i, n - i, &len);
        if (is_proper(c, len) && !kv_text_hides(c)) continue;
        memset(s + i, '?', len);
    }
}

const char *kv_text_show(const char *s, char out[KV_TEXT_SHOWN])
{
    snprintf(out, KV_TEXT_SHOWN, "%s", s);
    kv_text_tame(out);
    return out;
}
