/* Slots: sizes, bytes worked out by hand, hostile bytes; published images: test_kv_codec_slot_vectors.c. */
#include "tests/kv_test.h"

#include "kernels/codec/kv_codec_recipe.h"

static kv_codec_half_config half_of(int32_t recipe, int32_t half, int32_t dim)
{
    kv_codec_half_config h;
    kv_err err = {0};
    kvt_ok(kv_codec_recipe_half(recipe, half, dim, false, &h, &err), &err);
    return h;
}

static kv_codec_slot_layout sizes_of(const kv_codec_slot_config *c)
{
    kv_codec_slot_layout l;
    kv_err err = {0};
    kvt_ok(kv_codec_slot_sizes(c, &l, &err), &err);
    return l;
}

/* ---- sizes ------------------------------------------------------------------------------ */

static void test_production_offsets(void **state)
{
    (void)state;
    for (int32_t recipe = KV_CODEC_PUBLISHED_SERVING; recipe <= KV_CODEC_KV1; recipe += 2) {
        const kv_codec_half_config k = half_of(recipe, KV_CODEC_K, 128), v = half_of(recipe, KV_CODEC_V, 128);
        const kv_codec_slot_layout l = sizes_of(&k.slot), m = sizes_of(&v.slot);
        assert_int_equal(l.basis, 48);
        assert_int_equal(l.mean, 16432);
        assert_int_equal(l.centers, 16688);
        assert_int_equal(l.seg_id, 18736);
        assert_int_equal(l.t, 18992);
        assert_int_equal(l.norm, 20016);
        assert_int_equal(l.residual, 21040);
        assert_int_equal(l.counts, 33328);
        assert_int_equal(l.entries, 34352);
        assert_int_equal(l.max_entries, 2622);
        assert_int_equal(l.total, 44840);
        assert_int_equal(m.residual, 21040);
        assert_int_equal(m.counts, -1);
        assert_int_equal(m.entries, -1);
        assert_int_equal(m.total, 29232);
    }
}

static void test_other_head_dims(void **state)
{
    static const int32_t dims[] = {64, 96, 128, 256}, k[] = {20012, 40680, 44840, 119068},
                         v[] = {11696, 25072, 29232, 88880};
    (void)state;
    for (size_t i = 0; i < KVT_COUNT(dims); i++) {
        const kv_codec_half_config hk = half_of(KV_CODEC_KV1, KV_CODEC_K, dims[i]);
        const kv_codec_half_config hv = half_of(KV_CODEC_KV1, KV_CODEC_V, dims[i]);
        assert_int_equal(sizes_of(&hk.slot).total, k[i]);
        assert_int_equal(sizes_of(&hv.slot).total, v[i]);
    }
}

static void test_configurations_refused(void **state)
{
    kv_codec_slot_layout l;
    kv_err err = {0};
    (void)state;
    kv_codec_slot_config c = half_of(KV_CODEC_PUBLISHED_SERVING, KV_CODEC_K, 128).slot;
#define REFUSED(set_, ...)                                                                                             \
    do {                                                                                                               \
        kv_codec_slot_config was = c;                                                                                  \
        set_;                                                                                                          \
        kvt_refused(kv_codec_slot_sizes(&c, &l, &err), KV_EINVAL, &err, #set_, KVT_SAYS(__VA_ARGS__));                 \
        c = was;                                                                                                       \
    } while (0)
    REFUSED(c.n = 500, "500", "powers of two");
    REFUSED(c.n = 0, "0 rows");
    REFUSED(c.n = KV_CODEC_SLOT_ROWS_MAX + 1, "rows");
    REFUSED(c.params.k = 12, "12 centres");
    REFUSED(c.budget_ppm = -1, "-1");
    REFUSED(c.budget_ppm = 1000001, "1000001");
    REFUSED(c.version = 2, "version 2");
    REFUSED(c.recipe = 256, "recipe 256");
    REFUSED(c.shared = true, "kv1-shared");
    REFUSED(c.params.dim = 0, "head dimension");
    REFUSED((c.params.dim = 8, c.params.d_eff = 4), "whole bytes", "kv1"); /* 4 x 3 bits */
#undef REFUSED
    c.version = KV_CODEC_SLOT_KV1; /* ours takes all these */
    c.n = 500;
    c.params.k = 12;
    c.params.dim = 8;
    c.params.d_eff = 4;
    kvt_ok(kv_codec_slot_sizes(&c, &l, &err), &err);
    assert_int_equal(l.counts - l.residual, 500 * 2);
}

/* ---- made-up blocks --------------------------------------------------------------------- */

typedef struct {
    kv_codec_slot_config c;
    kv_codec_slot_layout l;
    kv_codec_skeleton s;
    kv_codec_codes codes;
    uint8_t *slot;
} block;

static void fill16(uint16_t *v, int64_t n, uint64_t *rnd)
{
    for (int64_t i = 0; i < n; i++) v[i] = (uint16_t)kvt_next(rnd);
}

/* Any bits in every field that takes any; outliers only as many as fit. */
static block make_block(const kv_codec_slot_config *c, uint64_t *rnd)
{
    block b = {.c = *c, .l = sizes_of(c)};
    kv_err err = {0};
    const kv_codec_params *p = &b.c.params;
    const int32_t w = kv_codec_wht_len(p->d_eff);
    kvt_ok(kv_codec_skeleton_new(p, &b.s, &err), &err);
    kvt_ok(kv_codec_codes_new(p, c->n, false, &b.codes, &err), &err);
    fill16(b.s.basis, (int64_t)p->d_eff * p->dim, rnd);
    fill16(b.s.mean, p->dim, rnd);
    fill16(b.s.centers, (int64_t)p->k * p->d_eff, rnd);
    fill16(b.codes.t, c->n, rnd);
    fill16(b.codes.norm, c->n, rnd);
    const int64_t row = kv_codec_row_bytes(p);
    const int spare = w * p->bits % 8;
    for (int64_t i = 0; i < c->n; i++) {
        b.codes.seg_id[i] = (uint32_t)kvt_below(rnd, p->k);
        for (int64_t j = 0; j < row; j++) b.codes.residual[i * row + j] = (uint8_t)kvt_next(rnd);
        if (spare != 0) b.codes.residual[i * row + row - 1] &= (uint8_t)((1 << spare) - 1);
        for (int32_t j = 0; p->outliers && j < w && b.codes.outliers < b.l.max_entries; j++) {
            if (!kvt_one_in(rnd, 12)) continue;
            b.codes.outlier_count[i]++;
            b.codes.outlier_idx[b.codes.outliers] = (uint16_t)j;
            b.codes.outlier_val[b.codes.outliers++] = (uint16_t)kvt_next(rnd);
        }
    }
    b.slot = kvt_take(b.l.total, 1);
    return b;
}

static void free_block(block *b)
{
    kv_codec_skeleton_free(&b->s);
    kv_codec_codes_free(&b->codes);
    free(b->slot);
}

static void check_same(const block *a, const block *b)
{
    const kv_codec_params *p = &a->c.params;
    const size_t n = (size_t)a->c.n;
    if (!a->c.shared) {
        assert_memory_equal(a->s.basis, b->s.basis, 2 * (size_t)(p->d_eff * p->dim));
        assert_memory_equal(a->s.mean, b->s.mean, 2 * (size_t)p->dim);
    }
    assert_memory_equal(a->s.centers, b->s.centers, 2 * (size_t)(p->k * p->d_eff));
    assert_memory_equal(a->codes.seg_id, b->codes.seg_id, 4 * n);
    assert_memory_equal(a->codes.t, b->codes.t, 2 * n);
    assert_memory_equal(a->codes.norm, b->codes.norm, 2 * n);
    assert_memory_equal(a->codes.residual, b->codes.residual, n * (size_t)kv_codec_row_bytes(p));
    assert_memory_equal(a->codes.outlier_count, b->codes.outlier_count, 4 * n);
    assert_int_equal(a->codes.outliers, b->codes.outliers);
    assert_memory_equal(a->codes.outlier_idx, b->codes.outlier_idx, 2 * (size_t)a->codes.outliers);
    assert_memory_equal(a->codes.outlier_val, b->codes.outlier_val, 2 * (size_t)a->codes.outliers);
}

static kv_codec_slot_config random_config(uint64_t *rnd)
{
    static const int32_t dims[] = {1, 2, 5, 8, 32, 80, 128};
    kv_codec_half_config h = half_of(kvt_one_in(rnd, 2) ? KV_CODEC_KV1 : KV_CODEC_KV1_SHARED,
                                     (int32_t)kvt_below(rnd, 2), dims[kvt_below(rnd, KVT_COUNT(dims))]);
    kv_codec_slot_config c = h.slot;
    c.n = 1 + kvt_below(rnd, 70);
    c.params.k = (int32_t)(1 + kvt_below(rnd, 40));
    c.params.d_eff = (int32_t)(1 + kvt_below(rnd, c.params.dim));
    kv_codec_half_levels(&h, (int32_t)(1 + kvt_below(rnd, 4)), NULL);
    c.params.bits = h.slot.params.bits;
    memcpy(c.params.level, h.slot.params.level, sizeof c.params.level);
    c.table_tag = h.slot.table_tag;
    return c;
}

static void test_there_and_back(void **state)
{
    uint64_t rnd = 5;
    kv_err err = {0};
    (void)state;
    for (int i = 0; i < 300; i++) {
        const kv_codec_slot_config c = random_config(&rnd);
        block a = make_block(&c, &rnd), b = make_block(&c, &rnd);
        kvt_ok(kv_codec_slot_pack(&c, &a.s, &a.codes, a.slot, &err), &err);
        kvt_ok(kv_codec_slot_unpack(&c, a.slot, a.l.total, &b.s, &b.codes, &err), &err);
        check_same(&a, &b);
        kvt_ok(kv_codec_slot_pack(&c, &b.s, &b.codes, b.slot, &err), &err);
        if (!c.shared) assert_memory_equal(a.slot, b.slot, (size_t)a.l.total);
        free_block(&a);
        free_block(&b);
    }
}

static void test_basis_pages(void **state)
{
    uint64_t rnd = 6;
    kv_err err = {0};
    (void)state;
    kv_codec_slot_config c = half_of(KV_CODEC_KV1_SHARED, KV_CODEC_K, 80).slot;
    block a = make_block(&c, &rnd), b = make_block(&c, &rnd);
    const int64_t bytes = kv_codec_page_bytes(&c);
    assert_int_equal(bytes, 48 + 2 * 80 * 64 + 2 * 80);
    uint8_t *page = kvt_take(bytes, 1);
    kv_codec_page_pack(&c, &a.s, page);
    kvt_ok(kv_codec_page_unpack(&c, page, bytes, &b.s, &err), &err);
    assert_memory_equal(a.s.basis, b.s.basis, 2 * 80 * 64);
    assert_memory_equal(a.s.mean, b.s.mean, 2 * 80);
    kv_codec_slot_config told;
    kvt_ok(kv_codec_slot_peek(page, bytes, NULL, &told, &err), &err);
    assert_true(told.shared);
    kvt_refused(kv_codec_page_unpack(&c, page, bytes - 1, &b.s, &err), KV_EFORMAT, &err, "size", KVT_SAYS("page"));
    page[16] = 1;
    kvt_refused(kv_codec_page_unpack(&c, page, bytes, &b.s, &err), KV_EFORMAT, &err, "total", KVT_SAYS("outliers"));
    page[0] = 'X';
    kvt_refused(kv_codec_page_unpack(&c, page, bytes, &b.s, &err), KV_EFORMAT, &err, "magic", KVT_SAYS("magic"));
    free(page);
    free_block(&a);
    free_block(&b);
}

static void test_overflow_leaves_no_slot(void **state)
{
    uint64_t rnd = 7;
    kv_err err = {0};
    (void)state;
    kv_codec_slot_config c = half_of(KV_CODEC_KV1, KV_CODEC_K, 32).slot;
    c.n = 64;
    block a = make_block(&c, &rnd);
    while (a.codes.outliers <= a.l.max_entries) { /* one more than fits */
        a.codes.outlier_count[63]++;
        a.codes.outlier_idx[a.codes.outliers++] = (uint16_t)a.codes.outlier_count[63];
        if (a.codes.outlier_count[63] == 16) break;
    }
    memset(a.slot, 0xA5, (size_t)a.l.total);
    kvt_refused(kv_codec_slot_pack(&c, &a.s, &a.codes, a.slot, &err), KV_EFORMAT, &err, "overflow",
                KVT_SAYS("83 outliers", "holds 82", "80000"));
    for (int64_t i = 0; i < a.l.total; i++) assert_int_equal(a.slot[i], 0xA5);
    free_block(&a);
}

static void test_no_outlier_part(void **state)
{
    uint64_t rnd = 8;
    kv_err err = {0};
    (void)state;
    for (int32_t recipe = KV_CODEC_PUBLISHED_SERVING; recipe <= KV_CODEC_KV1; recipe += 2) {
        kv_codec_slot_config c = half_of(recipe, KV_CODEC_K, 32).slot;
        c.n = 64;
        block a = make_block(&c, &rnd), b = make_block(&c, &rnd);
        c.budget_ppm = 0;
        const kv_rc rc = kv_codec_slot_pack(&c, &a.s, &a.codes, a.slot, &err);
        if (recipe == KV_CODEC_KV1) {
            kvt_refused(rc, KV_EFORMAT, &err, "kv1", KVT_SAYS("do not fit", "holds 0"));
        } else { /* dropped, though the header counts them */
            kvt_ok(rc, &err);
            assert_int_equal(a.slot[16], a.codes.outliers & 0xFF);
            kvt_ok(kv_codec_slot_unpack(&c, a.slot, sizes_of(&c).total, &b.s, &b.codes, &err), &err);
            assert_int_equal(b.codes.outliers, 0);
        }
        free_block(&a);
        free_block(&b);
    }
}

/* ---- hostile bytes ---------------------------------------------------------------------- */

static void test_every_header_byte_counts(void **state)
{
    uint64_t rnd = 9;
    kv_err err = {0};
    (void)state;
    for (int32_t recipe = KV_CODEC_PUBLISHED_SERVING; recipe <= KV_CODEC_KV1; recipe += 2) {
        kv_codec_slot_config c = half_of(recipe, KV_CODEC_K, 32).slot;
        c.n = 64;
        block a = make_block(&c, &rnd), b = make_block(&c, &rnd);
        kvt_ok(kv_codec_slot_pack(&c, &a.s, &a.codes, a.slot, &err), &err);
        for (int i = 0; i < 48 * 8; i++) {
            a.slot[i / 8] ^= (uint8_t)(1 << i % 8);
            assert_int_equal(kv_codec_slot_unpack(&c, a.slot, a.l.total, &b.s, &b.codes, &err), KV_EFORMAT);
            assert_true(err.text[0] != '\0');
            kv_err_clear(&err);
            a.slot[i / 8] ^= (uint8_t)(1 << i % 8);
        }
        kvt_refused(kv_codec_slot_unpack(&c, a.slot, a.l.total - 1, &b.s, &b.codes, &err), KV_EFORMAT, &err, "short",
                    KVT_SAYS("bytes"));
        kvt_refused(kv_codec_slot_unpack(&c, a.slot, a.l.total + 1, &b.s, &b.codes, &err), KV_EFORMAT, &err, "long",
                    KVT_SAYS("bytes"));
        free_block(&a);
        free_block(&b);
    }
}

static void test_bad_parts(void **state)
{
    uint64_t rnd = 10;
    kv_err err = {0};
    (void)state;
    kv_codec_slot_config c = half_of(KV_CODEC_KV1, KV_CODEC_K, 5).slot; /* d_eff 4: rows of 12 bits */
    c.n = 20;
    c.params.k = 5; /* ids of 3 bits: 60 bits, 4 spare */
    c.params.d_eff = 4;
    c.budget_ppm = 500000; /* 40 entries */
    block a = make_block(&c, &rnd), b = make_block(&c, &rnd);
    while (a.codes.outlier_count[0] != 2) { /* two in row 0, so that their order can be wrong */
        free_block(&a);
        a = make_block(&c, &rnd);
    }
    kvt_ok(kv_codec_slot_pack(&c, &a.s, &a.codes, a.slot, &err), &err);
    kvt_ok(kv_codec_slot_unpack(&c, a.slot, a.l.total, &b.s, &b.codes, &err), &err);
#define BAD(at_, value_, ...)                                                                                          \
    do {                                                                                                               \
        const uint8_t was = a.slot[at_];                                                                               \
        a.slot[at_] = (uint8_t)(value_);                                                                               \
        kvt_refused(kv_codec_slot_unpack(&c, a.slot, a.l.total, &b.s, &b.codes, &err), KV_EFORMAT, &err, #at_,         \
                    KVT_SAYS(__VA_ARGS__));                                                                            \
        a.slot[at_] = was;                                                                                             \
    } while (0)
    BAD(a.l.seg_id, a.slot[a.l.seg_id] | 7, "row 0", "centre 7", "there are 5");
    BAD(a.l.seg_id, (a.slot[a.l.seg_id] & ~7) | 5, "row 0", "centre 5", "there are 5");
    BAD(a.l.t - 1, a.slot[a.l.t - 1] | 0x80, "spare bits behind the seg ids");
    BAD(a.l.residual + 1, a.slot[a.l.residual + 1] | 0x10, "row 0", "spare residual bits");
    BAD(a.l.counts, 5, "row 0", "5 outliers");
    BAD(a.l.counts + 1, 1, "row 0", "outliers");
    BAD(a.l.counts + 2, a.codes.outlier_count[1] ^ 1u, "the rows count");
    BAD(a.l.entries, 4, "outlier index");
    BAD(a.l.entries + 4, a.slot[a.l.entries], "row 0", "outlier index"); /* not ascending */
    BAD(a.l.total - 1, 1, "unused outlier entry");
#undef BAD
    free_block(&a);
    free_block(&b);
}

static void test_random_bytes_never_harm(void **state)
{
    uint64_t rnd = 11;
    kv_err err = {0};
    int taken = 0;
    (void)state;
    kv_codec_slot_config c = half_of(KV_CODEC_KV1, KV_CODEC_K, 8).slot;
    c.n = 16;
    block a = make_block(&c, &rnd), b = make_block(&c, &rnd);
    kvt_ok(kv_codec_slot_pack(&c, &a.s, &a.codes, a.slot, &err), &err);
    kv_codec_work *w = NULL;
    float x[16 * 8];
    kvt_ok(kv_codec_work_new(&c.params, &b.s, &w, &err), &err);
    for (int i = 0; i < 4000; i++) {
        const int64_t at = kvt_below(&rnd, a.l.total);
        const uint8_t was = a.slot[at];
        a.slot[at] = (uint8_t)kvt_next(&rnd);
        if (kv_codec_slot_unpack(&c, a.slot, a.l.total, &b.s, &b.codes, &err) == KV_OK) {
            taken++;
            kv_codec_work_set(w, &b.s);
            kv_codec_best()->decode(w, &b.codes, x);
            kvt_ok(kv_codec_slot_pack(&c, &b.s, &b.codes, b.slot, &err), &err);
            assert_memory_equal(a.slot, b.slot, (size_t)a.l.total);
        }
        kv_err_clear(&err);
        if (i % 8 != 0) a.slot[at] = was;
        if (i % 8 == 0) kvt_ok(kv_codec_slot_pack(&c, &a.s, &a.codes, a.slot, &err), &err);
    }
    assert_in_range(taken, 1000, 3999);
    kv_codec_work_free(w);
    free_block(&a);
    free_block(&b);
}

/* ---- what a slot says of itself --------------------------------------------------------- */

static void test_a_slot_describes_itself(void **state)
{
    uint64_t rnd = 12;
    kv_err err = {0};
    (void)state;
    for (int i = 0; i < 100; i++) {
        kv_codec_slot_config c = random_config(&rnd), told;
        block a = make_block(&c, &rnd);
        kvt_ok(kv_codec_slot_pack(&c, &a.s, &a.codes, a.slot, &err), &err);
        kvt_ok(kv_codec_slot_peek(a.slot, a.l.total, NULL, &told, &err), &err);
        assert_int_equal(told.n, c.n);
        assert_int_equal(told.recipe, c.recipe);
        assert_int_equal(told.shared, c.shared);
        assert_int_equal(told.budget_ppm, c.budget_ppm);
        assert_int_equal(told.table_tag, c.table_tag);
        told.params.outliers = c.params.outliers; /* the threshold is not kept */
        told.params.threshold = c.params.threshold;
        assert_int_equal(told.params.dim, c.params.dim);
        assert_int_equal(told.params.d_eff, c.params.d_eff);
        assert_int_equal(told.params.k, c.params.k);
        assert_int_equal(told.params.bits, c.params.bits);
        assert_int_equal(told.params.metric, c.params.metric);
        assert_int_equal(told.params.rule, c.params.rule);
        assert_int_equal(told.params.seed, c.params.seed);
        assert_memory_equal(told.params.level, c.params.level, sizeof c.params.level);
        free_block(&a);
    }
}

static void test_peek_refuses(void **state)
{
    static const float other[8] = {-2, -1, -0.5F, -0.1F, 0.1F, 0.5F, 1, 2};
    uint64_t rnd = 13;
    kv_codec_slot_config told;
    kv_err err = {0};
    (void)state;
    kv_codec_slot_config c = half_of(KV_CODEC_KV1, KV_CODEC_K, 16).slot;
    block a = make_block(&c, &rnd);
    kvt_ok(kv_codec_slot_pack(&c, &a.s, &a.codes, a.slot, &err), &err);
    kvt_refused(kv_codec_slot_peek(a.slot, 47, NULL, &told, &err), KV_EFORMAT, &err, "short", KVT_SAYS("47", "48"));
    kvt_refused(kv_codec_slot_peek(a.slot, a.l.total - 1, NULL, &told, &err), KV_EFORMAT, &err, "size",
                KVT_SAYS("were expected"));
    kvt_refused(kv_codec_slot_peek(a.slot, a.l.total, other, &told, &err), KV_EFORMAT, &err, "table",
                KVT_SAYS("table tag"));
    a.slot[12] = 5;
    kvt_refused(kv_codec_slot_peek(a.slot, a.l.total, NULL, &told, &err), KV_EFORMAT, &err, "bits", KVT_SAYS("bits"));
    a.slot[12] = 3;
    a.slot[4] = 0;
    kvt_refused(kv_codec_slot_peek(a.slot, a.l.total, NULL, &told, &err), KV_EFORMAT, &err, "d_eff", KVT_SAYS("d_eff"));
    a.slot[32] = 0;
    kvt_refused(kv_codec_slot_peek(a.slot, a.l.total, NULL, &told, &err), KV_EFORMAT, &err, "version",
                KVT_SAYS("version 0"));
    free_block(&a);
}

/* ---- bytes worked out by hand ----------------------------------------------------------- */

static void test_known_bytes(void **state)
{
    /* ids 1 2 4 3 of 3 bits: 1 | 2 << 3 | 4 << 6 | 3 << 9 = 0x0711 */
    static const uint8_t ids[2] = {0x11, 0x07}, t[4] = {0x34, 0x12, 0x01, 0x80},
                         entries[8] = {0x01, 0x00, 0x00, 0x3C, 0x03, 0x00, 0xFF, 0x7B};
    static const uint8_t header[48] = {'K', 'K', '1', '3', 4,    0,    0,    0,    5, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0,
                                       0,   0,   0,   0,   0xBE, 0xBA, 0xFE, 0xCA, 0, 0, 0, 0, 1, 2, 5, 0, 4, 0, 0, 0};
    uint64_t rnd = 14;
    kv_err err = {0};
    (void)state;
    kv_codec_slot_config c = half_of(KV_CODEC_KV1, KV_CODEC_K, 5).slot;
    c.n = 4;
    c.params.k = 5;
    c.budget_ppm = 250000;
    block a = make_block(&c, &rnd);
    memcpy(a.codes.seg_id, (const uint32_t[4]){1, 2, 4, 3}, 16);
    memcpy(a.codes.t, (const uint16_t[2]){0x1234, 0x8001}, 4);
    memcpy(a.codes.outlier_count, (const uint32_t[4]){0, 2, 0, 0}, 16);
    memcpy(a.codes.outlier_idx, (const uint16_t[2]){1, 3}, 4);
    memcpy(a.codes.outlier_val, (const uint16_t[2]){0x3C00, 0x7BFF}, 4);
    a.codes.outliers = 2;
    kvt_ok(kv_codec_slot_pack(&c, &a.s, &a.codes, a.slot, &err), &err);
    assert_memory_equal(a.slot, header, 40);
    const uint32_t tag = kv_codec_table_tag(c.params.level, 3), flags = 250000u | 1u << 30;
    for (int i = 0; i < 4; i++) {
        assert_int_equal(a.slot[40 + i], tag >> (8 * i) & 0xFF);
        assert_int_equal(a.slot[44 + i], flags >> (8 * i) & 0xFF);
    }
    assert_memory_equal(a.slot + a.l.seg_id, ids, sizeof ids);
    assert_memory_equal(a.slot + a.l.t, t, sizeof t);
    assert_int_equal(a.slot[a.l.counts + 2], 2);
    assert_memory_equal(a.slot + a.l.entries, entries, sizeof entries);
    for (int64_t i = a.l.entries + 8; i < a.l.total; i++) assert_int_equal(a.slot[i], 0);
    free_block(&a);
}

static void test_table_tag(void **state)
{
    static const float levels[2] = {0.0F, 1.0F};
    static const uint8_t bytes[8] = {0, 0, 0, 0, 0, 0, 0x80, 0x3F};
    uint32_t tag = 0x811C9DC5u;
    (void)state;
    for (size_t i = 0; i < sizeof bytes; i++) tag = (tag ^ bytes[i]) * 0x01000193u;
    assert_int_equal(kv_codec_table_tag(levels, 1), tag);
    assert_int_not_equal(kv_codec_table_tag(kv_codec_levels(3), 3), kv_codec_table_tag(kv_codec_levels(2), 2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_production_offsets),
        cmocka_unit_test(test_other_head_dims),
        cmocka_unit_test(test_configurations_refused),
        cmocka_unit_test(test_there_and_back),
        cmocka_unit_test(test_basis_pages),
        cmocka_unit_test(test_overflow_leaves_no_slot),
        cmocka_unit_test(test_no_outlier_part),
        cmocka_unit_test(test_every_header_byte_counts),
        cmocka_unit_test(test_bad_parts),
        cmocka_unit_test(test_random_bytes_never_harm),
        cmocka_unit_test(test_a_slot_describes_itself),
        cmocka_unit_test(test_peek_refuses),
        cmocka_unit_test(test_known_bytes),
        cmocka_unit_test(test_table_tag),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
