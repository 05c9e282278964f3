#include <string.h>

#include "grid/report/kv_export.h"

/* Bytes of the character at s and its number; 0 where the bytes are not UTF-8. */
static size_t character(const unsigned char *s, uint32_t *out)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const size_t n = s[0] < 0x80 ? 1 : s[0] >> 5 == 6 ? 2 : s[0] >> 4 == 14 ? 3 : s[0] >> 3 == 30 ? 4 : 0;
    uint32_t c = n > 1 ? s[0] & (0x7Fu >> n) : s[0];
    for (size_t i = 1; i < n; i++) {
        if (s[i] >> 6 != 2) return 0;
        c = c << 6 | (s[i] & 0x3Fu);
    }
    *out = c;
    return n == 0 || c < least[n] || (c >= 0xD800 && c <= 0xDFFF) || c > 0x10FFFF ? 0 : n;
}

/* Whether an XML 1.0 document may hold the character. */
static bool allowed(uint32_t c)
{
    return (c >= 0x20 || c == '\t' || c == '\n' || c == '\r') && c != 0xFFFE && c != 0xFFFF;
}

/* What stands for a character, or NULL where it stands for itself. */
static const char *reference(unsigned char c)
{
    switch (c) {
    case '&': return "&amp;";
    case '<': return "&lt;";
    case '>': return "&gt;";
    case '"': return "&quot;";
    case '\t': return "&#9;";
    case '\n': return "&#10;";
    case '\r': return "&#13;";
    default: return NULL;
    }
}

void kv_xml_text(kv_out *out, const char *text)
{
    const unsigned char *s = (const unsigned char *)text;
    while (*s != '\0') {
        uint32_t c = 0;
        const size_t n = character(s, &c);
        const char *ref = n == 1 ? reference(*s) : NULL;
        if (n == 0 || !allowed(c))
            kv_out_puts(out, "\xEF\xBF\xBD");
        else if (ref != NULL)
            kv_out_puts(out, ref);
        else
            kv_out_bytes(out, s, n);
        s += n > 0 ? n : 1;
    }
}
