/* Rows of the checks codec and move: sizes that follow from the geometry, frontiers, and the proof of a codec row. */
#include "certs/kv_verify_int.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef __int128 wide; /* products of sizes, before they are known to be small */

#define PPM 1000000
#define DIM_MAX 1024
#define HEADER 48
#define CENTERS 16
#define BUDGET_PPM 80000 /* outliers of K */
#define SHARED_BLOCKS 4

/* ---- sizes ------------------------------------------------------------------------------------ */

static wide up(wide a, wide b)
{
    return (a + b - 1) / b;
}

static int64_t power_of_two(int64_t least)
{
    int64_t n = 1;
    while (n < least) n *= 2;
    return n;
}

/* A slot of one block, in bytes. */
typedef struct {
    int64_t bytes, width; /* width: lanes of a residual row */
    int64_t entries;      /* outliers that fit; -1 without that part */
    bool exists;
} slot;

static slot slot_of(kv_vf_recipe r, bool k, int64_t dim, int64_t bits, int64_t block)
{
    const int64_t half = power_of_two((dim + 1) / 2), e = dim < half ? dim : half, w = power_of_two(e);
    const bool shared = r == KV_VF_KV1_SHARED || (r == KV_VF_HARNESS && !k);
    const int64_t row = (w * bits + 7) / 8, whole = (block * w * bits + 7) / 8;
    slot s = {.width = w, .entries = -1, .exists = dim <= DIM_MAX && (r != KV_VF_SERVING || block * row == whole)};
    s.bytes =
        HEADER + (shared ? 0 : 2 * e * dim + 2 * dim) + 2 * CENTERS * e + (4 * block + 7) / 8 + 4 * block + block * row;
    if (k) {
        s.entries = (int64_t)up((wide)block * w * BUDGET_PPM, PPM);
        s.bytes += 2 * block + 4 * s.entries;
    }
    return s;
}

static int64_t kept_layers(kv_vf_recipe r, int64_t layers)
{
    if (r != KV_VF_HARNESS || layers <= 4) return layers;
    return layers == 28 ? 22 : layers - 4;
}

/* What a recipe of the codec stores, in bytes without overflow. */
static wide encode(const kv_vf_codec_section *s, const kv_vf_point *p, const kv_vf_geometry *g, kv_vf_codec_size *z)
{
    const bool k = p->stream == 0, mixed = p->recipe == KV_VF_HARNESS, group_all = mixed && !k;
    const bool shared = p->recipe == KV_VF_KV1_SHARED || group_all;
    const int64_t bits = p->bits > 0 ? p->bits : k ? 3 : 2, b = s->block, half = power_of_two((z->dim + 1) / 2);
    const slot one = slot_of(p->recipe, k, z->dim, bits, b);
    const wide kept = kept_layers(p->recipe, g->layers), lanes = kept * (mixed ? 1 : g->heads);
    const int64_t rows = mixed ? g->tokens * g->heads : g->tokens, blocks = rows / b;
    const int64_t groups = !shared ? 0 : group_all ? blocks > 0 : (blocks + SHARED_BLOCKS - 1) / SHARED_BLOCKS;
    const wide page = HEADER + 2 * (z->dim < half ? z->dim : half) * z->dim + 2 * z->dim;
    z->blocks = (int64_t)(lanes * blocks); /* no more than there are rows */
    z->encoded = z->blocks * b;
    z->entries = one.entries;
    z->lanes = b * one.width;
    z->slot = one.bytes;
    z->swap = 2 * b * z->dim - one.bytes;
    return lanes * (blocks * (wide)one.bytes + groups * page + (wide)(rows % b) * 2 * z->dim) +
           (g->layers - kept) * g->tokens * g->heads * 2 * z->dim;
}

/* Below 2^53, as everything that a document says. */
static bool fits(wide n)
{
    return n < KV_VF_TOO_LARGE;
}

/* Rows of one head in all, and their bytes in bf16; false where they are too many. */
static bool plain_size(const kv_vf_geometry *g, kv_vf_codec_size *z)
{
    return g->tokens == 0 ||
           (kv_mul_i64(g->layers, g->tokens, &z->rows) && kv_mul_i64(z->rows, g->heads, &z->rows) &&
            kv_mul_i64(z->rows, z->dim, &z->plain) && kv_mul_i64(z->plain, 2, &z->plain) && fits(z->plain));
}

/* A file is the canonical tensor in the geometry's element type. */
static bool file_fits(const kv_vf_value *value, const kv_vf_geometry *g, const kv_vf_codec_size *z)
{
    const wide want = (wide)z->rows * (g->dim + g->dim_v) * kv_vf_element_bytes(g->element);
    return value->bytes < 0 || value->bytes == want;
}

static bool derive_codec(const kv_vf *v, kv_vf_derived *d)
{
    const kv_vf_point *p = &d->cell->point;
    const int64_t block = v->campaign.codec.block, bits = p->bits > 0 ? p->bits : p->stream == 0 ? 3 : 2;
    kv_vf_codec_size *z = &d->size;
    wide stored = 0;
    z->dim = p->stream == 0 ? d->g->dim : d->g->dim_v;
    z->entries = -1;
    if (!plain_size(d->g, z)) return false;
    z->encoded = z->rows;
    if (!file_fits(&v->campaign.codec.value[p->value], d->g, z)) {
        d->frontier = KV_FRONTIER_X4;
        return true;
    }
    if (kv_vf_recipe_has_bits(p->recipe) && z->dim > DIM_MAX) {
        d->frontier = KV_FRONTIER_X4;
    } else if (p->recipe == KV_VF_FP8_ROWS) {
        stored = (wide)z->rows * z->dim;
    } else if (p->recipe == KV_VF_INT4_TOKEN) {
        stored = (wide)z->rows * (2 + (z->dim + 1) / 2);
    } else if (p->recipe == KV_VF_ROTATION) {
        stored = (wide)z->rows * (2 + (power_of_two(z->dim) * bits + 7) / 8);
    } else {
        if (!slot_of(p->recipe, p->stream == 0, z->dim, bits, block).exists) d->frontier = KV_FRONTIER_X4;
        stored = encode(&v->campaign.codec, p, d->g, z);
    }
    z->stored = fits(stored) ? (int64_t)stored : 0;
    return fits(stored) || d->frontier != KV_FRONTIER_NONE;
}

/* ---- moves ------------------------------------------------------------------------------------ */

static kv_word_set move_words(int src, int dst)
{
    kv_word_set w = 0;
    if ((src == KV_VF_HEAD_MAJOR) != (dst == KV_VF_HEAD_MAJOR)) w |= KV_WORD_BIT(KV_WORD_HEAD_ORDER_TRANSPOSE);
    if (src == KV_VF_KV_POOLS) w |= KV_WORD_BIT(KV_WORD_KV_MERGE);
    if (dst == KV_VF_KV_POOLS) w |= KV_WORD_BIT(KV_WORD_KV_SPLIT);
    if ((src == KV_VF_TABLE) != (dst == KV_VF_TABLE)) w |= KV_WORD_BIT(KV_WORD_PAGE_REMAP);
    return w;
}

bool kv_vf_sealed_page(kv_vf_recipe recipe, const kv_vf_geometry *g, int64_t block, int64_t *blocks, int64_t *bytes)
{
    const slot k = slot_of(recipe, true, g->dim <= DIM_MAX ? g->dim : 1, 3, block);
    const slot v = slot_of(recipe, false, g->dim_v <= DIM_MAX ? g->dim_v : 1, 2, block);
    *blocks = g->tokens / block;
    *bytes = k.bytes + v.bytes;
    return g->dim <= DIM_MAX && g->dim_v <= DIM_MAX && k.exists && v.exists && *blocks > 0;
}

/* Sealed pages are moved as bytes: images of one byte a position, without padding, a layer at a time. */
static bool derive_move(const kv_vf *v, kv_vf_derived *d)
{
    const kv_vf_point *p = &d->cell->point;
    const kv_vf_geometry *g = d->g;
    int64_t blocks, page;
    d->words = move_words(p->src, p->dst);
    d->payloads = KV_CERT_PAYLOADS;
    if (!kv_vf_sealed_page(p->recipe, g, v->campaign.codec.block, &blocks, &page)) {
        d->frontier = KV_FRONTIER_X4;
        return true;
    }
    int64_t n;
    if (!kv_mul_i64(blocks, g->heads, &n) || !kv_mul_i64(n, page, &n) || !fits((wide)n * g->layers)) return false;
    d->bound[0] = (kv_vf_bound){.shard = true,
                                .exists = true,
                                .heads = g->heads,
                                .element = KV_VF_FP8,
                                .unit_layers = 1,
                                .native = n,
                                .elements = n};
    d->bound[1] = d->bound[0];
    return true;
}

/* ---- attribution ------------------------------------------------------------------------------- */

static kv_frontier study_frontier(const kv_vf *v, const kv_vf_derived *d)
{
    const kv_vf_geometry *g = d->g;
    const kv_vf_recipe r = d->cell->point.recipe;
    const int64_t block = v->campaign.study.block;
    const bool runs = g->layers <= KV_VF_LAYER_CELLS && g->heads <= 64 && g->dim == g->dim_v && g->dim % 2 == 0 &&
                      g->dim <= DIM_MAX && g->tokens >= 1 && g->tokens <= 32768;
    return runs && slot_of(r, true, g->dim, 3, block).exists && slot_of(r, false, g->dim, 2, block).exists
               ? KV_FRONTIER_NONE
               : KV_FRONTIER_X4;
}

bool kv_vf_point_derive(kv_vf *v, kv_vf_derived *d)
{
    if (d->cell->check == KV_VF_TP) return kv_vf_tp_derive(v, d);
    if (d->cell->check == KV_VF_MOVE) return derive_move(v, d);
    if (d->cell->check == KV_VF_CODEC) return derive_codec(v, d);
    d->frontier = study_frontier(v, d);
    return true;
}

/* ---- the proof of a codec row ------------------------------------------------------------------- */

typedef struct {
    kv_vf *v;
    const kv_vf_derived *d;
    const json_t *proof;
    bool unproven;
} check;

static const char *at(const check *c, const char *key)
{
    return kv_vf_at(c->v, "$.rows[%zu].proof.%s", c->d->i, key);
}

static bool present(const check *c, const char *key)
{
    return kv_vf_present(c->v, c->d, key, c->unproven);
}

static void want(const check *c, const char *key, int64_t number)
{
    if (present(c, key))
        (void)kv_vf_want_int(c->v, KV_H4_PROOF_NOT_EXHAUSTIVE, at(c, key), number, json_object_get(c->proof, key));
}

/* The number, where it is from least to most; a fault and -1 where it is another; -1 where there is none. */
static int64_t within(const check *c, const char *key, wide least, wide most)
{
    char expected[96], actual[KV_VF_TEXT];
    if (!present(c, key)) return -1;
    const json_t *value = json_object_get(c->proof, key);
    const int64_t n = json_integer_value(value);
    if (n >= least && n <= most) return n;
    snprintf(expected, sizeof expected, "%" PRId64 " to %" PRId64, (int64_t)least, (int64_t)most);
    kv_vf_fault(c->v, KV_H4_PROOF_NOT_EXHAUSTIVE, at(c, key), expected, kv_vf_show(value, actual));
    return -1;
}

static void check_bytes(const check *c, int64_t overflow)
{
    const kv_vf_codec_size *z = &c->d->size;
    const json_t *bytes = json_object_get(c->d->row, "native_bytes");
    const json_t *src = json_object_get(bytes, "src"), *dst = json_object_get(bytes, "dst");
    const json_t *ratio = json_object_get(c->proof, "ratio_ppm");
    const kv_hcode h4 = KV_H4_PROOF_NOT_EXHAUSTIVE;
    if (!(c->unproven && json_is_null(src)))
        (void)kv_vf_want_int(c->v, h4, kv_vf_at(c->v, "$.rows[%zu].native_bytes.src", c->d->i), z->plain, src);
    if (overflow >= 0 && !(c->unproven && json_is_null(dst)))
        (void)kv_vf_want_int(c->v, h4, kv_vf_at(c->v, "$.rows[%zu].native_bytes.dst", c->d->i),
                             z->stored + overflow * z->swap, dst);
    const int64_t stored = json_integer_value(dst);
    if (ratio == NULL)
        (void)present(c, "ratio_ppm");
    else if (json_is_integer(dst) && stored == 0)
        (void)kv_vf_want_null(c->v, KV_H2_VERDICT_NOT_DERIVED, at(c, "ratio_ppm"), ratio);
    else if (json_is_integer(dst) && present(c, "ratio_ppm"))
        (void)kv_vf_want_int(c->v, KV_H2_VERDICT_NOT_DERIVED, at(c, "ratio_ppm"),
                             (int64_t)((wide)z->plain * PPM / stored), ratio);
}

/* What was measured: null where nothing was stored, else a number, or null where it is not finite. */
static void check_measured(const check *c)
{
    static const char *const keys[] = {"relative_l2_ppm", "worst_element_ppm", "cosine_ppm"};
    char actual[KV_VF_TEXT];
    const kv_vf_value *value_of = &c->v->campaign.codec.value[c->d->cell->point.value];
    const bool nothing = c->d->size.rows == 0 || strcmp(value_of->name, "zeros") == 0;
    for (int k = 0; k < 3; k++) {
        const json_t *value = json_object_get(c->proof, keys[k]);
        if (value == NULL) {
            (void)present(c, keys[k]);
        } else if (nothing) {
            (void)kv_vf_want_null(c->v, KV_H2_VERDICT_NOT_DERIVED, at(c, keys[k]), value);
        } else if (k == 2 && json_is_integer(value) &&
                   (json_integer_value(value) > PPM || json_integer_value(value) < -PPM)) {
            kv_vf_fault(c->v, KV_H2_VERDICT_NOT_DERIVED, at(c, keys[k]), "at most 1000000 in magnitude",
                        kv_vf_show(value, actual));
        }
    }
}

/* A digest that is one; *known says that it is there. */
static const char *digest(const check *c, const char *key, bool *known)
{
    char actual[KV_VF_TEXT];
    const json_t *value = json_object_get(c->proof, key);
    if (!present(c, key)) {
        *known = false;
        return NULL;
    }
    if (!kv_vf_digest_good(value))
        kv_vf_fault(c->v, KV_H13_TOKEN_CLAIM_WITHOUT_A_DECODE, at(c, key), "64 hex digits", kv_vf_show(value, actual));
    return json_string_value(value);
}

static void check_digests(const check *c)
{
    static const char *const keys[KV_CODEC_OBS_TOKENS][2] = {{"codes_digest", "reference_codes_digest"},
                                                             {"slots_digest", "repacked_slots_digest"},
                                                             {"values_digest", "reference_values_digest"}};
    char actual[KV_VF_TEXT];
    for (int o = 0; o < KV_CODEC_OBS_TOKENS; o++) {
        const char *name = kv_codec_obs_name((kv_codec_obs)o);
        const json_t *claim = json_object_get(json_object_get(c->d->row, "observations"), name);
        bool known = true;
        const char *made = digest(c, keys[o][0], &known), *reference = digest(c, keys[o][1], &known);
        const char *path = kv_vf_at(c->v, "$.rows[%zu].observations.%s", c->d->i, name);
        if (!json_is_boolean(claim)) continue;
        if (known)
            (void)kv_vf_want_bool(c->v, KV_H2_VERDICT_NOT_DERIVED, path, strcmp(made, reference) == 0, claim);
        else if (c->unproven)
            kv_vf_fault(c->v, KV_H2_VERDICT_NOT_DERIVED, path, "null, as its digests are null",
                        kv_vf_show(claim, actual));
    }
}

void kv_vf_codec_proof(kv_vf *v, const kv_vf_derived *d, bool unproven)
{
    const check c = {v, d, json_object_get(d->row, "proof"), unproven};
    const kv_vf_codec_size *z = &d->size;
    const json_t *preserving = json_object_get(c.proof, "value_preserving");
    const bool part = z->entries >= 0; /* an outlier part */
    (void)kv_vf_want_text(v, KV_H3_PROOF_MISSING, at(&c, "kind"), KV_PROOF_CODEC, json_object_get(c.proof, "kind"));
    want(&c, "rows", z->rows);
    want(&c, "encoded_rows", z->encoded);
    want(&c, "blocks", z->blocks);
    const int64_t o = within(&c, "overflow_blocks", 0, part ? z->blocks : 0);
    const wide fit = part ? z->entries : 0, lanes = part ? z->lanes : 0;
    if (o >= 0)
        (void)within(&c, "outliers", o * (fit + 1), (z->blocks - o) * (fit < lanes ? fit : lanes) + o * lanes);
    else
        (void)present(&c, "outliers");
    (void)within(&c, "saturated", 0, 2 * (wide)z->encoded);
    check_bytes(&c, o);
    check_measured(&c);
    if (preserving == NULL)
        (void)present(&c, "value_preserving");
    else
        (void)kv_vf_want_bool(v, KV_H2_VERDICT_NOT_DERIVED, at(&c, "value_preserving"), false, preserving);
    check_digests(&c);
    kv_vf_token_leg(v, d, unproven);
}
