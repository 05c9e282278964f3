/* Words and frontier codes, as docs/words.md has them. */
#include "certs/kv_verify_int.h"

#include <string.h>

/* axes[from..] with L removed, adjacent Tb Ti read as T, and KV removed as `normal` wants it. */
static kv_vf_axes normal(const kv_vf_axes *axes)
{
    kv_vf_axes no_layer = {0}, read = {0}, out = {0};
    for (int i = 0; i < axes->n; i++)
        if (axes->a[i] != KV_VF_L && !(axes->a[i] == KV_VF_KV && no_layer.n == 0))
            no_layer.a[no_layer.n++] = axes->a[i];
    for (int i = 0; i < no_layer.n; i++) {
        const bool pair = no_layer.a[i] == KV_VF_TB && i + 1 < no_layer.n && no_layer.a[i + 1] == KV_VF_TI;
        read.a[read.n++] = pair ? KV_VF_T : no_layer.a[i];
        if (pair) i++;
    }
    for (int i = 0; i < read.n; i++)
        if (read.a[i] != KV_VF_KV) out.a[out.n++] = read.a[i];
    return out;
}

/* The factors before `stop`, adjacent Tb Ti read as T, L left out if asked. */
static kv_vf_axes before(const kv_vf_axes *axes, kv_vf_axis stop, bool without_l)
{
    kv_vf_axes out = {0};
    for (int i = 0; i < axes->n && axes->a[i] != stop; i++) {
        if (without_l && axes->a[i] == KV_VF_L) continue;
        if (axes->a[i] == KV_VF_TI && out.n > 0 && out.a[out.n - 1] == KV_VF_TB)
            out.a[out.n - 1] = KV_VF_T;
        else
            out.a[out.n++] = axes->a[i];
    }
    return out;
}

static bool same_axes(const kv_vf_axes *a, const kv_vf_axes *b)
{
    if (a->n != b->n) return false;
    for (int i = 0; i < a->n; i++)
        if (a->a[i] != b->a[i]) return false;
    return true;
}

/* Index of the axis, or n. */
static int place(const kv_vf_axes *axes, kv_vf_axis a)
{
    int i = 0;
    while (i < axes->n && axes->a[i] != a) i++;
    return i;
}

static bool head_first(const kv_vf_axes *axes)
{
    const int h = place(axes, KV_VF_H), t = place(axes, KV_VF_T), tb = place(axes, KV_VF_TB);
    return h < axes->n && h < (t < tb ? t : tb);
}

static bool v_transposed(const kv_vf_axes *axes)
{
    return kv_vf_has(axes, KV_VF_T) && place(axes, KV_VF_D) < place(axes, KV_VF_T);
}

/* Tokens in a block of K or V: 0 where that half's tokens are not split. */
static int64_t half_block(const kv_vf_layout *l, int half)
{
    return kv_vf_has(&l->half[half], KV_VF_TB) ? l->block : 0;
}

kv_frontier kv_vf_frontier(const kv_vf_layout *a, const kv_vf_layout *b, const kv_vf_bound *ba, const kv_vf_bound *bb)
{
    if (a->mla != b->mla || (a->store == KV_VF_LATENT) != (b->store == KV_VF_LATENT)) return KV_FRONTIER_X1;
    if (!ba->shard || !bb->shard) return KV_FRONTIER_X4;
    if (ba->first_head != bb->first_head || ba->heads != bb->heads) return KV_FRONTIER_X2;
    return ba->exists && bb->exists ? KV_FRONTIER_NONE : KV_FRONTIER_X4;
}

bool kv_vf_same_descriptor(const kv_vf_layout *a, const kv_vf_layout *b, const kv_vf_geometry *g)
{
    return a->mla == b->mla && a->store == b->store && same_axes(&a->half[0], &b->half[0]) &&
           same_axes(&a->half[1], &b->half[1]) && a->block == b->block && kv_vf_bound_x(a, g) == kv_vf_bound_x(b, g) &&
           a->tx == b->tx && a->page_stride_bytes == b->page_stride_bytes && a->row_lanes == b->row_lanes &&
           kv_vf_bound_element(a, g) == kv_vf_bound_element(b, g) && a->tp_size == b->tp_size &&
           a->tp_rank == b->tp_rank;
}

static kv_word_set when(bool condition, kv_word w)
{
    return condition ? KV_WORD_BIT(w) : 0;
}

/* Words that compare sizes and which factors there are. */
static kv_word_set size_words(const kv_vf_layout *a, const kv_vf_layout *b, const kv_vf_geometry *g)
{
    const bool dx_a = kv_vf_layout_has(a, KV_VF_DX), dx_b = kv_vf_layout_has(b, KV_VF_DX);
    const bool tx_a = kv_vf_layout_has(a, KV_VF_TX), tx_b = kv_vf_layout_has(b, KV_VF_TX);
    const bool l_a = kv_vf_layout_has(a, KV_VF_L), l_b = kv_vf_layout_has(b, KV_VF_L);
    return when(kv_vf_bound_element(a, g) != kv_vf_bound_element(b, g), KV_WORD_REQUANTIZE) |
           when(half_block(a, 0) != half_block(b, 0) || half_block(a, 1) != half_block(b, 1), KV_WORD_REBLOCK) |
           when(a->store == KV_VF_INTERLEAVED && b->store == KV_VF_SEPARATE, KV_WORD_KV_SPLIT) |
           when(a->store == KV_VF_SEPARATE && b->store == KV_VF_INTERLEAVED, KV_WORD_KV_MERGE) |
           when(!dx_a && dx_b, KV_WORD_HEAD_DIM_VECTORIZE) | when(dx_a && !dx_b, KV_WORD_HEAD_DIM_DEVECTORIZE) |
           when(dx_a && dx_b && kv_vf_bound_x(a, g) != kv_vf_bound_x(b, g), KV_WORD_HEAD_DIM_REVECTORIZE) |
           when(!tx_a && tx_b, KV_WORD_TOKEN_VECTORIZE) | when(tx_a && !tx_b, KV_WORD_TOKEN_DEVECTORIZE) |
           when(tx_a && tx_b && a->tx != b->tx, KV_WORD_TOKEN_REVECTORIZE) | when(!l_a && l_b, KV_WORD_LAYER_MERGE) |
           when(l_a && !l_b, KV_WORD_LAYER_SPLIT) |
           when(a->page_stride_bytes != b->page_stride_bytes || a->row_lanes != b->row_lanes, KV_WORD_PAGE_PAD) |
           when(b->tp_size > g->heads, KV_WORD_HEAD_REPLICATE) | when(a->tp_size > g->heads, KV_WORD_HEAD_DEDUPE);
}

static bool before_differs(const kv_vf_layout *a, const kv_vf_layout *b, int half, kv_vf_axis stop, bool without_l)
{
    const kv_vf_axes fa = before(&a->half[half], stop, without_l), fb = before(&b->half[half], stop, without_l);
    return !same_axes(&fa, &fb);
}

/* Words that compare the order of factors. */
static kv_word_set order_words(const kv_vf_layout *a, const kv_vf_layout *b)
{
    const kv_vf_axes ka = normal(&a->half[0]), kb = normal(&b->half[0]);
    const kv_vf_axes va = normal(&a->half[1]), vb = normal(&b->half[1]);
    const bool k_turns = head_first(&a->half[0]) != head_first(&b->half[0]);
    const bool v_turns = head_first(&a->half[1]) != head_first(&b->half[1]);
    const bool v_dim = v_transposed(&a->half[1]) != v_transposed(&b->half[1]);
    const bool k_same = same_axes(&ka, &kb);
    const bool both_l = kv_vf_layout_has(a, KV_VF_L) && kv_vf_layout_has(b, KV_VF_L);
    const bool both_one_array = a->store == KV_VF_INTERLEAVED && b->store == KV_VF_INTERLEAVED;
    return when(v_dim, KV_WORD_V_DIM_TRANSPOSE) | when(k_turns || v_turns, KV_WORD_HEAD_ORDER_TRANSPOSE) |
           when(!k_turns && !k_same, KV_WORD_AXIS_PERMUTE) |
           when(k_same && !v_turns && !v_dim && !same_axes(&va, &vb), KV_WORD_V_AXIS_PERMUTE) |
           when(both_one_array && k_same && before_differs(a, b, 0, KV_VF_KV, true), KV_WORD_KV_MOVE) |
           when(both_l && (before_differs(a, b, 0, KV_VF_L, false) || before_differs(a, b, 1, KV_VF_L, false)),
                KV_WORD_LAYER_MOVE);
}

kv_word_set kv_vf_words(const kv_vf_layout *a, const kv_vf_layout *b, const kv_vf_geometry *g, const kv_vf_bound *ba,
                        const kv_vf_bound *bb)
{
    if (!ba->shard || !bb->shard) return 0;
    const kv_frontier f = kv_vf_frontier(a, b, ba, bb);
    if (f == KV_FRONTIER_X1 || f == KV_FRONTIER_X2) return 0;
    if (kv_vf_same_descriptor(a, b, g)) return KV_WORD_BIT(KV_WORD_VIEW_REINTERPRET);
    return size_words(a, b, g) | order_words(a, b);
}
