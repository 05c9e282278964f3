/* What a pair means: frontier codes and transformation words (docs/words.md), from descriptors alone. */
#include "layouts/kv_layout.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const char *kv_layout_frontier_name(kv_layout_frontier f)
{
    switch (f) {
    case KV_X_NONE: return NULL;
    case KV_X1_LATENT_KV: return "X1_LATENT_KV";
    case KV_X2_HEAD_GATHER: return "X2_HEAD_GATHER";
    case KV_X4_GEOMETRY_UNREPRESENTABLE: return "X4_GEOMETRY_UNREPRESENTABLE";
    }
    return NULL;
}

const char *kv_layout_word_name(kv_layout_word w)
{
    static const char *const names[KV_W_COUNT] = {"axis_permute",
                                                  "head_dedupe",
                                                  "head_dim_devectorize",
                                                  "head_dim_revectorize",
                                                  "head_dim_vectorize",
                                                  "head_order_transpose",
                                                  "head_replicate",
                                                  "kv_merge",
                                                  "kv_move",
                                                  "kv_split",
                                                  "layer_merge",
                                                  "layer_move",
                                                  "layer_split",
                                                  "page_pad",
                                                  "page_remap",
                                                  "pp_reshard",
                                                  "reblock",
                                                  "requantize",
                                                  "token_devectorize",
                                                  "token_revectorize",
                                                  "token_vectorize",
                                                  "tp_reshard",
                                                  "v_axis_permute",
                                                  "v_dim_transpose",
                                                  "view_reinterpret"};
    return w < KV_W_COUNT ? names[w] : "?";
}

/* ---- notions of docs/words.md ----------------------------------------------------------- */

static kv_axes without(const kv_axes *a, kv_factor drop)
{
    kv_axes r = {0};
    for (int i = 0; i < a->n; i++)
        if (a->f[i] != drop) r.f[r.n++] = a->f[i];
    return r;
}

/* Each adjacent Tb Ti becomes T. */
static kv_axes join_tokens(const kv_axes *a)
{
    kv_axes r = {0};
    for (int i = 0; i < a->n; i++) {
        if (a->f[i] == KV_F_TB && i + 1 < a->n && a->f[i + 1] == KV_F_TI) {
            r.f[r.n++] = KV_F_T;
            i++;
        } else {
            r.f[r.n++] = a->f[i];
        }
    }
    return r;
}

static kv_axes normal(const kv_axes *declared)
{
    kv_axes a = without(declared, KV_F_L);
    if (a.n > 0 && a.f[0] == KV_F_KV) a = without(&a, KV_F_KV);
    a = join_tokens(&a);
    return without(&a, KV_F_KV);
}

static bool axes_equal(const kv_axes *a, const kv_axes *b)
{
    if (a->n != b->n) return false;
    for (int i = 0; i < a->n; i++)
        if (a->f[i] != b->f[i]) return false;
    return true;
}

static bool head_first(const kv_axes *a)
{
    for (int i = 0; i < a->n; i++) {
        if (a->f[i] == KV_F_H) return true;
        if (a->f[i] == KV_F_T || a->f[i] == KV_F_TB) return false;
    }
    return false;
}

static kv_axes before(const kv_axes *a, kv_factor stop)
{
    kv_axes r = {0};
    for (int i = 0; i < a->n && a->f[i] != stop; i++) r.f[r.n++] = a->f[i];
    return join_tokens(&r);
}

static bool has(const kv_layout *l, kv_factor f)
{
    return kv_axes_has(&l->axes[0], f) || kv_axes_has(&l->axes[1], f);
}

/* Tokens in a block of the K or V list; 0 where that list does not split them. */
static int64_t block_of(const kv_layout *l, int half)
{
    return kv_axes_has(&l->axes[half], KV_F_TB) ? l->block : 0;
}

/* V is stored with its lanes before whole tokens. */
static bool v_transposed(const kv_layout *l)
{
    const kv_axes *v = &l->axes[1];
    bool lane_seen = false;
    for (int i = 0; i < v->n; i++) {
        if (v->f[i] == KV_F_D) lane_seen = true;
        if (v->f[i] == KV_F_T) return lane_seen;
    }
    return false;
}

static int64_t lanes_in_x(const kv_layout *l, const kv_geometry *g)
{
    if (!has(l, KV_F_DX)) return 0;
    return l->x > 0 ? l->x : l->x_bytes / (int64_t)kv_elem_bytes(kv_layout_element(l, g));
}

static bool descriptors_equal(const kv_layout *a, const kv_layout *b, const kv_geometry *g)
{
    return a->attention == b->attention && a->store == b->store && axes_equal(&a->axes[0], &b->axes[0]) &&
           axes_equal(&a->axes[1], &b->axes[1]) && a->block == b->block && lanes_in_x(a, g) == lanes_in_x(b, g) &&
           a->tx == b->tx && a->page_stride_bytes == b->page_stride_bytes && a->row_lanes == b->row_lanes &&
           kv_layout_element(a, g) == kv_layout_element(b, g) && a->tp_size == b->tp_size && a->tp_rank == b->tp_rank;
}

/* ---- words ------------------------------------------------------------------------------ */

#define BIT(w_) ((uint32_t)1 << (w_))

/* One of three words: only the destination has it, only the source has it, both have it and it differs. */
static uint32_t gain_loss(bool src, bool dst, bool differs, kv_layout_word gain, kv_layout_word loss,
                          kv_layout_word change)
{
    if (dst && !src) return BIT(gain);
    if (src && !dst) return BIT(loss);
    return src && dst && differs ? BIT(change) : 0;
}

static uint32_t order_words(const kv_layout *s, const kv_layout *d)
{
    uint32_t w = 0;
    const bool k_same_first = head_first(&s->axes[0]) == head_first(&d->axes[0]);
    const bool v_same_first = head_first(&s->axes[1]) == head_first(&d->axes[1]);
    const kv_axes sk = normal(&s->axes[0]), dk = normal(&d->axes[0]), sv = normal(&s->axes[1]),
                  dv = normal(&d->axes[1]);
    const bool k_equal = axes_equal(&sk, &dk);
    if (v_transposed(s) != v_transposed(d)) w |= BIT(KV_W_V_DIM_TRANSPOSE);
    if (!k_same_first || !v_same_first) w |= BIT(KV_W_HEAD_ORDER_TRANSPOSE);
    if (k_same_first && !k_equal) w |= BIT(KV_W_AXIS_PERMUTE);
    if (k_equal && v_same_first && !(w & BIT(KV_W_V_DIM_TRANSPOSE)) && !axes_equal(&sv, &dv))
        w |= BIT(KV_W_V_AXIS_PERMUTE);
    if (k_equal && s->store == KV_STORE_INTERLEAVED && d->store == KV_STORE_INTERLEAVED) {
        kv_axes a = without(&s->axes[0], KV_F_L), b = without(&d->axes[0], KV_F_L);
        a = before(&a, KV_F_KV);
        b = before(&b, KV_F_KV);
        if (!axes_equal(&a, &b)) w |= BIT(KV_W_KV_MOVE);
    }
    return w;
}

static bool layer_moves(const kv_layout *s, const kv_layout *d)
{
    for (int half = 0; half < 2; half++) {
        const kv_axes a = before(&s->axes[half], KV_F_L), b = before(&d->axes[half], KV_F_L);
        if (!axes_equal(&a, &b)) return true;
    }
    return false;
}

uint32_t kv_pair_words(const kv_layout *s, const kv_layout *d, const kv_geometry *g)
{
    int64_t sf, sc, df, dc;
    char reason[KV_REASON_TEXT];
    if (s->attention != d->attention || (s->store == KV_STORE_LATENT) != (d->store == KV_STORE_LATENT)) return 0;
    if (!kv_layout_heads(s, g, &sf, &sc, reason) || !kv_layout_heads(d, g, &df, &dc, reason)) return 0;
    if (sf != df || sc != dc) return 0;
    if (descriptors_equal(s, d, g)) return BIT(KV_W_VIEW_REINTERPRET);

    uint32_t w = order_words(s, d);
    if (kv_layout_element(s, g) != kv_layout_element(d, g)) w |= BIT(KV_W_REQUANTIZE);
    if (block_of(s, 0) != block_of(d, 0) || block_of(s, 1) != block_of(d, 1)) w |= BIT(KV_W_REBLOCK);
    if (s->store == KV_STORE_INTERLEAVED && d->store == KV_STORE_SEPARATE) w |= BIT(KV_W_KV_SPLIT);
    if (s->store == KV_STORE_SEPARATE && d->store == KV_STORE_INTERLEAVED) w |= BIT(KV_W_KV_MERGE);
    w |= gain_loss(has(s, KV_F_DX), has(d, KV_F_DX), lanes_in_x(s, g) != lanes_in_x(d, g), KV_W_HEAD_DIM_VECTORIZE,
                   KV_W_HEAD_DIM_DEVECTORIZE, KV_W_HEAD_DIM_REVECTORIZE);
    w |= gain_loss(has(s, KV_F_TX), has(d, KV_F_TX), s->tx != d->tx, KV_W_TOKEN_VECTORIZE, KV_W_TOKEN_DEVECTORIZE,
                   KV_W_TOKEN_REVECTORIZE);
    w |= gain_loss(has(s, KV_F_L), has(d, KV_F_L), layer_moves(s, d), KV_W_LAYER_MERGE, KV_W_LAYER_SPLIT,
                   KV_W_LAYER_MOVE);
    if (s->page_stride_bytes != d->page_stride_bytes || s->row_lanes != d->row_lanes) w |= BIT(KV_W_PAGE_PAD);
    if (d->tp_size > g->kv_heads) w |= BIT(KV_W_HEAD_REPLICATE);
    if (s->tp_size > g->kv_heads) w |= BIT(KV_W_HEAD_DEDUPE);
    return w;
}

/* ---- frontier --------------------------------------------------------------------------- */

static void latent_reason(const kv_layout *s, const kv_layout *d, const kv_geometry *g, char reason[KV_REASON_TEXT])
{
    const bool s_latent = s->attention == KV_ATTENTION_MLA;
    snprintf(reason, KV_REASON_TEXT,
             "%s caches a latent row, %s caches keys and values of %" PRId64 " kv heads x head_dim %" PRId64
             "; without the model's weights neither gives the other",
             s_latent ? s->name : d->name, s_latent ? d->name : s->name, g->kv_heads, g->head_dim);
}

static void heads_reason(const kv_layout *s, int64_t sf, int64_t sc, const kv_layout *d, int64_t df, int64_t dc,
                         const kv_geometry *g, char reason[KV_REASON_TEXT])
{
    snprintf(reason, KV_REASON_TEXT,
             "%s (tp rank %" PRId64 " of %" PRId64 ") holds %" PRId64 " of %" PRId64 " kv heads from head %" PRId64
             ", %s (tp rank %" PRId64 " of %" PRId64 ") holds %" PRId64 " from head %" PRId64
             "; one rank cannot make heads that it does not hold",
             s->name, s->tp_rank, s->tp_size, sc, g->kv_heads, sf, d->name, d->tp_rank, d->tp_size, dc, df);
}

kv_rc kv_pair_frontier(const kv_layout *s, const kv_layout *d, const kv_geometry *g, kv_layout_frontier *out,
                       char reason[KV_REASON_TEXT], kv_err *err)
{
    int64_t sf, sc, df, dc;
    const int64_t unit = kv_pair_unit_layers(s, d, g);
    const kv_layout *const side[2] = {s, d};
    *out = KV_X_NONE;
    reason[0] = '\0';
    if (s->attention != d->attention || (s->store == KV_STORE_LATENT) != (d->store == KV_STORE_LATENT)) {
        latent_reason(s, d, g, reason);
        *out = KV_X1_LATENT_KV;
        return KV_OK;
    }
    if (!kv_layout_heads(s, g, &sf, &sc, reason) || !kv_layout_heads(d, g, &df, &dc, reason)) {
        *out = KV_X4_GEOMETRY_UNREPRESENTABLE;
        return KV_OK;
    }
    if (sf != df || sc != dc) {
        heads_reason(s, sf, sc, d, df, dc, g, reason);
        *out = KV_X2_HEAD_GATHER;
        return KV_OK;
    }
    for (int i = 0; i < 2; i++) {
        kv_index ix;
        kv_bind_state state;
        kv_rc rc = kv_layout_bind(side[i], g, unit, &ix, &state, reason, err);
        if (rc != KV_OK) return rc;
        if (state == KV_BIND_OK) continue;
        *out = KV_X4_GEOMETRY_UNREPRESENTABLE;
        return KV_OK;
    }
    reason[0] = '\0';
    return KV_OK;
}
