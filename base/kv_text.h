/* Characters that a reader of a text does not see, or that change how the text around them is shown: a name or a citation
 * that holds one can pass for another. No text of a certificate, a campaign or a layout may hold them. */
#ifndef KV_TEXT_H
#define KV_TEXT_H

#include "base/kv_base.h"

/* Control characters (C0, DEL, C1), soft hyphen, zero-width and direction characters, line and paragraph separators,
 * byte order mark, annotation marks, tags. */
bool kv_text_hides(uint32_t code_point);

/* The first byte of s[0..n) at which such a character begins, n where there is none. s is UTF-8; of malformed bytes
 * nothing is said. *code_point (may be NULL) is the character. */
size_t kv_text_find_hidden(const char *s, size_t n, uint32_t *code_point);

/* Puts '?' in the place of every byte of such a character, and of every byte that is no whole UTF-8 character: what is
 * told to people or written as JSON may quote hostile bytes. */
void kv_text_tame(char *s);

/* s as it may be shown on a terminal: a tamed copy in out, cut where it does not fit. Gives out. */
#define KV_TEXT_SHOWN 1024
const char *kv_text_show(const char *s, char out[KV_TEXT_SHOWN]);

#endif
