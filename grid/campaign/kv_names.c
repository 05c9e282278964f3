#include "grid/campaign/kv_names.h"

#include <string.h>

/* FNV-1a. */
static uint64_t hash_of(const char *text)
{
    uint64_t h = 0xCBF29CE484222325U;
    for (; *text != '\0'; text++) h = (h ^ (unsigned char)*text) * 0x100000001B3U;
    return h;
}

/* The slot that holds text, or the free one where it would stand. */
static size_t slot_of(const kv_names *names, const char *text)
{
    size_t i = (size_t)hash_of(text) & (names->slots - 1);
    while (names->slot[i] != 0 && strcmp(names->text[names->slot[i] - 1], text) != 0) i = (i + 1) & (names->slots - 1);
    return i;
}

/* Twice the room; slots stay at most half full. */
static kv_rc grow(kv_names *names, kv_err *err)
{
    const size_t cap = names->cap > 0 ? 2 * names->cap : 64, slots = 2 * cap;
    char **text = cap < KV_NAMES_NONE ? kv_realloc(names->text, cap, sizeof *text) : NULL;
    if (text != NULL) names->text = text;
    uint32_t *slot = text != NULL ? kv_alloc(slots, sizeof *slot) : NULL;
    if (slot == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for %zu names", cap);
    kv_free(names->slot);
    names->slot = slot;
    names->slots = slots;
    names->cap = cap;
    for (size_t i = 0; i < names->n; i++) names->slot[slot_of(names, names->text[i])] = (uint32_t)(i + 1);
    return KV_OK;
}

uint32_t kv_names_find(const kv_names *names, const char *text)
{
    const uint32_t found = names->slots > 0 ? names->slot[slot_of(names, text)] : 0;
    return found > 0 ? found - 1 : KV_NAMES_NONE;
}

kv_rc kv_names_add(kv_names *names, const char *text, uint32_t *out, kv_err *err)
{
    *out = kv_names_find(names, text);
    if (*out != KV_NAMES_NONE) return KV_OK;
    const kv_rc rc = names->n == names->cap ? grow(names, err) : KV_OK;
    if (rc != KV_OK) return rc;
    names->text[names->n] = kv_strdup(text);
    if (names->text[names->n] == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for a name");
    names->slot[slot_of(names, text)] = (uint32_t)(names->n + 1);
    *out = (uint32_t)names->n++;
    return KV_OK;
}

void kv_names_free(kv_names *names)
{
    for (size_t i = 0; i < names->n; i++) kv_free(names->text[i]);
    kv_free(names->text);
    kv_free(names->slot);
    memset(names, 0, sizeof *names);
}
