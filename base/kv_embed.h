/* Files that are part of the program itself (written at build time by kv_embed.cmake). */
#ifndef KV_EMBED_H
#define KV_EMBED_H

#include <stddef.h>

typedef struct {
    const char *stem; /* file name without folder and ending; NULL ends a list */
    const unsigned char *bytes;
    size_t n;
} kv_embedded;

#endif
