/* Codec slots: any bytes against a configuration that the first bytes choose, and as a slot that describes itself. What is
 * taken packs to the same bytes again, and decodes. */
#include "kernels/codec/kv_codec_recipe.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds)
{
    if (!holds) abort();
}

/* Unpacks, packs again, decodes. */
static void unpack(const kv_codec_slot_config *c, const uint8_t *slot, size_t size)
{
    kv_codec_skeleton s = {0};
    kv_codec_codes codes = {0};
    kv_codec_work *w = NULL;
    kv_err err = {0};
    kv_codec_params room = c->params;
    room.outliers = true;
    must(kv_codec_skeleton_new(&room, &s, NULL) == KV_OK);
    must(kv_codec_codes_new(&room, c->n, false, &codes, NULL) == KV_OK);
    if (kv_codec_slot_unpack(c, slot, (int64_t)size, &s, &codes, &err) == KV_OK) {
        uint8_t *again = malloc(size);
        float *x = malloc((size_t)(c->n * c->params.dim) * sizeof *x);
        must(again != NULL && x != NULL && kv_codec_work_new(&c->params, &s, &w, NULL) == KV_OK);
        kv_codec_best()->decode(w, &codes, x);
        must(kv_codec_slot_pack(c, &s, &codes, again, NULL) == KV_OK);
        const bool dropped = c->budget_ppm == 0 && c->version == KV_CODEC_SLOT_PUBLISHED;
        if (dropped) memcpy(again + 16, slot + 16, 4); /* the total of outliers that were not kept */
        if (!c->shared) must(memcmp(again, slot, size) == 0);
        free(again);
        free(x);
    } else {
        must(err.rc == KV_EFORMAT && err.text[0] != '\0' && strchr(err.text, '\n') == NULL);
    }
    kv_codec_work_free(w);
    kv_codec_skeleton_free(&s);
    kv_codec_codes_free(&codes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const int32_t dims[] = {1, 4, 8, 16};
    kv_codec_half_config h;
    kv_codec_slot_config told;
    kv_codec_slot_layout l;
    kv_err err = {0};
    if (size < 4) return 0;
    must(kv_codec_recipe_half(data[0] % KV_CODEC_RECIPE_COUNT, data[0] / 4 % 2, dims[data[0] / 8 % 4], false, &h,
                              NULL) == KV_OK);
    h.slot.n = 1 << data[1] % 6;
    h.slot.params.k = 1 + data[1] / 8;
    kv_codec_half_levels(&h, 1 + data[2] % 4, NULL);
    if (kv_codec_slot_sizes(&h.slot, &l, &err) == KV_OK) {
        /* Cut or filled up to the size, so that more than the size is tried. */
        uint8_t *slot = calloc(1, (size_t)l.total);
        must(slot != NULL);
        memcpy(slot, data + 4, size - 4 < (size_t)l.total ? size - 4 : (size_t)l.total);
        unpack(&h.slot, slot, data[3] % 16 == 0 ? (size_t)l.total - 1 : (size_t)l.total);
        free(slot);
    }
    kv_err_clear(&err);
    if (kv_codec_slot_peek(data + 4, (int64_t)size - 4, NULL, &told, &err) != KV_OK)
        must(err.rc == KV_EFORMAT && err.text[0] != '\0');
    else if (memcmp(data + 4, "KK13", 4) == 0)
        unpack(&told, data + 4, size - 4);
    return 0;
}
