/* codec work: a skeleton as float32, in rows and in tiles, with the sign pattern and scratch. */
#include <string.h>

#include "kernels/codec/kv_codec_rng.h"
#include "kernels/codec/kv_codec_step.h"
#include "kernels/codec/kv_codec_work.h"

static int64_t up_to(int64_t n, int64_t step)
{
    return (n + step - 1) / step * step;
}

/* Gives *part `floats` floats from *at on. With block NULL it only counts. */
static void take(float *block, int64_t *at, int64_t floats, float **part)
{
    if (block != NULL) *part = block + *at;
    *at += up_to(floats, 16);
}

static int64_t lay_out(kv_codec_work *w)
{
    const kv_codec_params *p = &w->p;
    const int64_t e = p->d_eff, e_pad = up_to(e, KV_CODEC_TILE), k_pad = up_to(p->k, KV_CODEC_TILE);
    int64_t at = 0, wide = p->dim > w->wht ? p->dim : w->wht;
    if (k_pad > wide) wide = k_pad;
    take(w->block, &at, w->dim_pad, &w->mean);
    take(w->block, &at, e * w->dim_pad, &w->basis);
    take(w->block, &at, p->k * e, &w->centers);
    take(w->block, &at, w->wht, &w->sign);
    take(w->block, &at, e_pad * p->dim, &w->basis_tiles);
    take(w->block, &at, k_pad * e, &w->centers_tiles);
    take(w->block, &at, p->k <= KV_CODEC_PICK ? e * KV_CODEC_PICK : 0, &w->centers_columns);
    take(w->block, &at, wide * KV_CODEC_GROUP, &w->x);
    take(w->block, &at, e_pad * KV_CODEC_GROUP, &w->c);
    take(w->block, &at, w->wht * KV_CODEC_GROUP, &w->y);
    take(w->block, &at, w->dim_pad, &w->row);
    return at;
}

/* n rows of d floats (row stride given) into tiles of 8 rows side by side. */
static void tile(const float *rows, int32_t n, int32_t d, int32_t stride, float *out)
{
    for (int32_t first = 0; first < n; first += KV_CODEC_TILE, out += (int64_t)d * KV_CODEC_TILE) {
        const int32_t here = n - first < KV_CODEC_TILE ? n - first : KV_CODEC_TILE;
        for (int32_t i = 0; i < here; i++) {
            const float *row = rows + (int64_t)(first + i) * stride;
            for (int32_t j = 0; j < d; j++) out[(int64_t)j * KV_CODEC_TILE + i] = row[j];
        }
    }
}

kv_rc kv_codec_work_new(const kv_codec_params *p, const kv_codec_skeleton *s, kv_codec_work **out, kv_err *err)
{
    kv_codec_work *w;
    kv_rc rc = kv_codec_params_check_sizes(p, err);
    if (rc != KV_OK) return rc;
    w = kv_alloc(1, sizeof *w);
    if (w == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for codec work");
    w->p = *p;
    w->wht = kv_codec_wht_len(p->d_eff);
    w->dim_pad = (int32_t)up_to(p->dim, 16);
    const size_t bytes = (size_t)lay_out(w) * sizeof(float);
    w->block = kv_alloc_image(bytes);
    if (w->block == NULL) {
        kv_free(w);
        return KV_FAIL(err, KV_ENOMEM, "no memory for codec work of %zu bytes", bytes);
    }
    memset(w->block, 0, bytes); /* the pads stay zero */
    (void)lay_out(w);
    kv_codec_signs(p->seed, w->sign, w->wht);
    kv_codec_work_set(w, s);
    *out = w;
    return KV_OK;
}

void kv_codec_work_set(kv_codec_work *w, const kv_codec_skeleton *s)
{
    const kv_codec_params *p = &w->p;
    kv_num_to_f32_row(KV_ELEM_F16, s->mean, w->mean, (size_t)p->dim);
    for (int32_t a = 0; a < p->d_eff; a++)
        kv_num_to_f32_row(KV_ELEM_F16, s->basis + (int64_t)a * p->dim, w->basis + (int64_t)a * w->dim_pad,
                          (size_t)p->dim);
    kv_num_to_f32_row(KV_ELEM_F16, s->centers, w->centers, (size_t)p->k * (size_t)p->d_eff);
    w->tiled = w->columned = false;
}

void kv_codec_work_tiles(kv_codec_work *w)
{
    if (w->tiled) return;
    tile(w->basis, w->p.d_eff, w->p.dim, w->dim_pad, w->basis_tiles);
    tile(w->centers, w->p.k, w->p.d_eff, w->p.d_eff, w->centers_tiles);
    w->tiled = true;
}

void kv_codec_work_columns(kv_codec_work *w)
{
    if (w->columned || w->p.k > KV_CODEC_PICK) return;
    for (int32_t g = 0; g < w->p.k; g++)
        for (int32_t a = 0; a < w->p.d_eff; a++)
            w->centers_columns[(int64_t)a * KV_CODEC_PICK + g] = w->centers[(int64_t)g * w->p.d_eff + a];
    w->columned = true;
}

void kv_codec_work_free(kv_codec_work *w)
{
    if (w == NULL) return;
    kv_free(w->block);
    kv_free(w);
}
