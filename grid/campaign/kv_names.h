/* Texts as small numbers: each text once, numbered from 0 as they come. */
#ifndef KV_NAMES_H
#define KV_NAMES_H

#include "base/kv_base.h"

/* Initialise with {0}; release with kv_names_free. */
typedef struct {
    char **text;
    size_t n, cap;
    uint32_t *slot; /* number + 1, 0 where free */
    size_t slots;
} kv_names;

#define KV_NAMES_NONE UINT32_MAX

/* The number of a text, which is added if it is new. */
kv_rc kv_names_add(kv_names *names, const char *text, uint32_t *out, kv_err *err) KV_MUST_USE;
/* The number of a text, or KV_NAMES_NONE. */
uint32_t kv_names_find(const kv_names *names, const char *text);
void kv_names_free(kv_names *names);

#endif
