#include "kernels/codec/kv_codec_recipe.h"

#include <inttypes.h>
#include <string.h>

#define PUBLISHED_BUDGET_PPM 80000 /* 8 % */

typedef struct {
    const char *name, *text;
    int32_t rule, version;
    int32_t metric[KV_CODEC_HALVES];
    int32_t metric_plain_k; /* K where no whitening factors are given */
    int32_t group[KV_CODEC_HALVES];
    bool mixed_heads, before_rope, skips;
} recipe;

static const recipe recipes[KV_CODEC_RECIPE_COUNT] = {
    [KV_CODEC_PUBLISHED_SERVING] =
        {"published-serving",
         "as the published serving backend: K inner_product after RoPE, no layer skipped; its "
         "decoder gives K residuals of length 1",
         KV_CODEC_RULE_PUBLISHED,
         KV_CODEC_SLOT_PUBLISHED,
         {KV_CODEC_INNER_PRODUCT, KV_CODEC_MSE},
         KV_CODEC_INNER_PRODUCT,
         {1, 1},
         false,
         false,
         false},
    [KV_CODEC_PUBLISHED_HARNESS] =
        {"published-harness",
         "as the published quality numbers: K whitened before RoPE with mse, boundary layers "
         "left alone, one V basis for a layer, heads mixed in a block",
         KV_CODEC_RULE_PUBLISHED,
         KV_CODEC_SLOT_KV1,
         {KV_CODEC_MSE, KV_CODEC_MSE},
         KV_CODEC_INNER_PRODUCT,
         {1, KV_CODEC_GROUP_ALL},
         true,
         true,
         true},
    [KV_CODEC_KV1] = {"kv1",
                      "residual lengths are kept and applied for every metric; slots say what they are",
                      KV_CODEC_RULE_KV1,
                      KV_CODEC_SLOT_KV1,
                      {KV_CODEC_MSE, KV_CODEC_MSE},
                      KV_CODEC_MSE,
                      {1, 1},
                      false,
                      true,
                      false},
    [KV_CODEC_KV1_SHARED] = {"kv1-shared",
                             "kv1 with one basis for four blocks of a head",
                             KV_CODEC_RULE_KV1,
                             KV_CODEC_SLOT_KV1,
                             {KV_CODEC_MSE, KV_CODEC_MSE},
                             KV_CODEC_MSE,
                             {KV_CODEC_SHARED_BLOCKS, KV_CODEC_SHARED_BLOCKS},
                             false,
                             true,
                             false},
};

static bool known(int32_t id)
{
    return id >= 0 && id < KV_CODEC_RECIPE_COUNT;
}

const char *kv_codec_recipe_name(int32_t id)
{
    return known(id) ? recipes[id].name : NULL;
}

const char *kv_codec_recipe_text(int32_t id)
{
    return known(id) ? recipes[id].text : NULL;
}

const char *kv_codec_half_name(int32_t half)
{
    return half == KV_CODEC_K ? "k" : "v";
}

const char *kv_codec_metric_name(int32_t metric)
{
    static const char *const names[] = {"mse", "inner_product", "linf"};
    return metric >= 0 && metric < KV_CODEC_METRIC_COUNT ? names[metric] : NULL;
}

bool kv_codec_recipe_before_rope(int32_t id)
{
    return known(id) && recipes[id].before_rope;
}

kv_rc kv_codec_recipe_find(const char *name, int32_t *out, kv_err *err)
{
    for (int32_t i = 0; i < KV_CODEC_RECIPE_COUNT; i++)
        if (strcmp(recipes[i].name, name) == 0) {
            *out = i;
            return KV_OK;
        }
    return KV_FAIL(err, KV_EINVAL,
                   "no recipe is called \"%s\"; there are published-serving, published-harness, kv1 and kv1-shared",
                   name);
}

int32_t kv_codec_default_d_eff(int32_t head_dim)
{
    const int32_t e = kv_codec_wht_len((head_dim + 1) / 2);
    return e < head_dim ? e : head_dim;
}

void kv_codec_half_levels(kv_codec_half_config *h, int32_t bits, const float *levels)
{
    const float *from = levels != NULL ? levels : kv_codec_levels(bits);
    h->slot.params.bits = bits;
    memset(h->slot.params.level, 0, sizeof h->slot.params.level);
    memcpy(h->slot.params.level, from, sizeof *from * ((size_t)1 << bits));
    h->slot.table_tag = kv_codec_table_tag(from, bits);
}

kv_rc kv_codec_recipe_half(int32_t id, int32_t half, int32_t head_dim, bool whitened, kv_codec_half_config *out,
                           kv_err *err)
{
    if (!known(id) || half < 0 || half >= KV_CODEC_HALVES)
        return KV_FAIL(err, KV_EINVAL, "recipe %d has no stream %d", id, half);
    if (head_dim < 1 || head_dim > KV_CODEC_DIM_MAX)
        return KV_FAIL(err, KV_EINVAL, "the codec takes a head_dim of 1 to %d, not %d", KV_CODEC_DIM_MAX, head_dim);
    const recipe *r = &recipes[id];
    const bool k = half == KV_CODEC_K;
    kv_codec_half_config h = {.group = r->group[half], .mixed_heads = r->mixed_heads, .whitened = k && whitened};
    h.slot = (kv_codec_slot_config){.version = r->version,
                                    .recipe = id,
                                    .n = KV_CODEC_BLOCK_ROWS,
                                    .budget_ppm = k ? PUBLISHED_BUDGET_PPM : 0,
                                    .shared = r->group[half] != 1};
    h.slot.params = (kv_codec_params){.dim = head_dim,
                                      .d_eff = kv_codec_default_d_eff(head_dim),
                                      .k = 16,
                                      .metric = k && !whitened ? r->metric_plain_k : r->metric[half],
                                      .rule = r->rule,
                                      .seed = KV_CODEC_SEED,
                                      .outliers = k,
                                      .threshold = k ? 2.0f : 0.0f};
    h.fit = (kv_codec_fit_opts){.solver = KV_CODEC_SOLVER_OWN,
                                .published = r->rule == KV_CODEC_RULE_PUBLISHED,
                                .variance_ratio = 1,
                                .rank_cap = h.slot.params.d_eff,
                                .k = h.slot.params.k,
                                .kmeans_rounds = 32,
                                .oversample = 8,
                                .power_iters = 2};
    kv_codec_half_levels(&h, k ? 3 : 2, NULL);
    *out = h;
    return KV_OK;
}

void kv_codec_recipe_skip(int32_t id, int32_t layers, bool *skip)
{
    static const int32_t of_28[] = {7, 14};
    for (int32_t i = 0; i < layers; i++)
        skip[i] = known(id) && recipes[id].skips && layers > 4 && (i < 2 || i >= layers - 2);
    for (size_t i = 0; known(id) && recipes[id].skips && layers == 28 && i < 2; i++) skip[of_28[i]] = true;
}

/* ---- bytes ------------------------------------------------------------------------------ */

/* Rows of one lane into sealed blocks, basis pages and what is left. */
static void split_lane(const kv_codec_half_config *h, int64_t rows, bool finished, int64_t *blocks, int64_t *pages)
{
    *blocks = rows / h->slot.n;
    if (h->group == KV_CODEC_GROUP_ALL) {
        if (!finished) *blocks = 0;
        *pages = *blocks > 0 ? 1 : 0;
    } else {
        if (!finished) *blocks -= *blocks % h->group;
        *pages = (*blocks + h->group - 1) / h->group;
    }
    if (!h->slot.shared) *pages = 0;
}

kv_rc kv_codec_account_of(const kv_codec_half_config *h, int32_t layers, const bool *skip, int64_t heads,
                          int64_t tokens, int32_t value_bytes, bool finished, kv_codec_account *out, kv_err *err)
{
    kv_codec_slot_layout l;
    kv_codec_account a = {0};
    int64_t blocks, pages, all_rows, raw, kept = 0;
    const kv_rc rc = kv_codec_slot_sizes(&h->slot, &l, err);
    if (rc != KV_OK) return rc;
    if (layers < 1 || heads < 1 || tokens < 0 || h->group < 0)
        return KV_FAIL(err, KV_EINVAL, "no bytes of %d layers, %" PRId64 " heads, %" PRId64 " tokens", layers, heads,
                       tokens);
    for (int32_t i = 0; i < layers; i++) kept += skip == NULL || !skip[i];
    /* No slot row takes more than 64 Ki bytes: the largest sum is below this product. */
    if (!kv_mul_i64(tokens, heads, &all_rows) || !kv_mul_i64(all_rows, h->slot.params.dim, &raw) ||
        !kv_mul_i64(raw, layers, &raw) || raw > INT64_MAX >> 20)
        return KV_FAIL(err, KV_ENOMEM, "%" PRId64 " tokens of %d layers do not fit 64 bits", tokens, layers);
    const int64_t lanes = kv_codec_lanes(h, heads), rows = all_rows / lanes;
    split_lane(h, rows, finished, &blocks, &pages);
    a.slots = kept * lanes * blocks;
    a.pages = kept * lanes * pages;
    a.tail_rows = kept * lanes * (rows - blocks * h->slot.n);
    a.raw_bytes = 2 * raw;
    a.bytes = a.slots * l.total + a.pages * kv_codec_page_bytes(&h->slot) +
              (a.tail_rows + (layers - kept) * all_rows) * h->slot.params.dim * value_bytes;
    *out = a;
    return KV_OK;
}

void kv_codec_account_add(kv_codec_account *sum, const kv_codec_account *more)
{
    sum->bytes += more->bytes;
    sum->raw_bytes += more->raw_bytes;
    sum->slots += more->slots;
    sum->pages += more->pages;
    sum->tail_rows += more->tail_rows;
}

double kv_codec_account_ratio(const kv_codec_account *a)
{
    return a->bytes > 0 ? (double)a->raw_bytes / (double)a->bytes : 1.0;
}
