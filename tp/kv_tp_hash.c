/* The hash for callers that bring none, and digests of images wherever they lie. */
#include <string.h>

#include "tp/kv_tp_int.h"

uint64_t kv_tp_fnv(uint64_t h, const void *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) h = (h ^ ((const unsigned char *)bytes)[i]) * 0x100000001B3ULL;
    return h;
}

typedef struct {
    uint64_t lane[4], n;
} fnv;

_Static_assert(sizeof(fnv) <= sizeof(kv_tp_hash_state), "the state fits");

static void fnv_begin(void *state)
{
    fnv *f = state;
    for (uint64_t i = 0; i < 4; i++) f->lane[i] = 0xCBF29CE484222325ULL + i * 0x9E3779B97F4A7C15ULL;
    f->n = 0;
}

static void fnv_update(void *state, const void *bytes, size_t n)
{
    fnv *f = state;
    for (size_t i = 0; i < n; i++, f->n++) {
        uint64_t *lane = &f->lane[f->n % 4];
        *lane = (*lane ^ ((const unsigned char *)bytes)[i]) * 0x100000001B3ULL;
    }
}

static void fnv_end(void *state, uint8_t digest[KV_TP_DIGEST_BYTES])
{
    fnv *f = state;
    for (int i = 0; i < 4; i++) f->lane[i] = kv_tp_fnv(f->lane[i] ^ f->n, f->lane, sizeof f->lane);
    for (int i = 0; i < KV_TP_DIGEST_BYTES; i++) digest[i] = (uint8_t)(f->lane[i / 8] >> 8 * (i % 8));
}

const kv_tp_hash kv_tp_hash_fnv = {fnv_begin, fnv_update, fnv_end};

#define BOUNCE ((int64_t)1 << 16)

kv_rc kv_tp_image_digest(const kv_tp_hash *h, const kv_image *im, const uint8_t *before,
                         uint8_t digest[KV_TP_DIGEST_BYTES], kv_err *err)
{
    kv_tp_hash_state state;
    kv_rc rc = KV_OK;
    unsigned char *bounce = im->host ? NULL : kv_alloc((size_t)BOUNCE, 1);
    if (!im->host && bounce == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for a digest");
    h->begin(&state);
    if (before != NULL) h->update(&state, before, KV_TP_DIGEST_BYTES);
    for (int64_t at = 0; at < im->bytes; at += BOUNCE) {
        const int64_t n = im->bytes - at < BOUNCE ? im->bytes - at : BOUNCE;
        if (!im->host) KV_TRY(rc, out, kv_tp_copy(bounce, false, im->data + at, true, n, err));
        h->update(&state, im->host ? im->data + at : bounce, (size_t)n);
    }
    h->end(&state, digest);
out:
    kv_free(bounce);
    return rc;
}
