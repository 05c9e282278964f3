/* Cells on devices with a fault: NOT_EXACT for every wrong translator, decode or probe, FAILED of the right class
 * where the device fails. */
#include "grid/cell/kv_cell_run.h"
#include "tests/kv_test_grid.h"

/* ---- wrong translators -------------------------------------------------------------------------------- */

typedef enum {
    RIGHT,         /* none: the control */
    TAIL_DROPPED,  /* tokens of the last, partial block of 16 stay away */
    TAIL_UNFILLED, /* the padding keeps what was there */
    KV_SWAPPED,
    HEADS_SHIFTED,
    ONLY_BLOCK_0,
    NOTHING,       /* d8 */
    REINTERPRETED, /* bytes as they lie */
    ONE_BIT,       /* of one element of one payload */
    PAST_THE_END,  /* right, and one byte too many */
    BEFORE_THE_START,
    BACK_ONLY,    /* the way there is right, the way back does nothing */
    LATE_OVERRUN, /* right for the payloads, writes too much in the token leg */
    FAULTS
} fault;

static const char *const fault_names[FAULTS] = {
    "right",         "tail dropped", "tail unfilled", "K/V swapped",      "heads shifted", "only block 0", "nothing",
    "reinterpreted", "one bit",      "past the end",  "before the start", "back only",     "late overrun"};

typedef struct {
    kv_device dev; /* first: the device that cells see */
    kv_device_ops ops;
    kv_device *base;
    fault kind;
    int calls, unpoisoned;
    kv_rc fail_with; /* for failing devices */
    uint32_t number; /* for other faults: which pattern, which call */
} wrong;

/* Every byte of the destination is the same, so nothing of an answer is there; guards stand. */
static bool is_poisoned(const wrong *w, const kv_index *t, kv_image *dst)
{
    const unsigned char *b = kv_image_host_view(dst);
    for (int64_t i = 1; i < kv_index_bytes(t); i++)
        if (b[i] != b[0]) return false;
    return kv_check_guards(w->base, dst, NULL) == KV_OK;
}

/* Whether the fault keeps element c from being written, and where it goes instead. */
static bool misplaced(const wrong *w, const kv_index *t, kv_coord *c)
{
    switch (w->kind) {
    case TAIL_DROPPED: return c->token < t->tokens / 16 * 16;
    case ONLY_BLOCK_0: return c->token < 16;
    case KV_SWAPPED: c->kv ^= 1; return true;
    case HEADS_SHIFTED: c->head = (c->head + 1) % t->heads; return true;
    case RIGHT:
    case TAIL_UNFILLED:
    case NOTHING:
    case REINTERPRETED:
    case ONE_BIT:
    case PAST_THE_END:
    case BEFORE_THE_START:
    case BACK_ONLY:
    case LATE_OVERRUN:
    case FAULTS: break;
    }
    return true;
}

static void by_elements(const wrong *w, const kv_index *s, const void *src, const kv_index *t, void *dst, uint32_t fill)
{
    for (int64_t p = 0; w->kind != TAIL_UNFILLED && p < t->native; p++) {
        kv_coord c;
        if (!kv_index_inverse(t, p, &c)) kv_num_store((kv_elem)t->element, dst, p, fill);
    }
    for (int64_t n = 0; n < s->elements; n++) {
        const kv_coord from = kvt_place(s, n);
        kv_coord to = from;
        if (!misplaced(w, t, &to)) continue;
        const uint32_t bits = kv_num_load((kv_elem)s->element, src, kv_index_forward(s, &from));
        kv_num_store((kv_elem)t->element, dst, kv_index_forward(t, &to),
                     kv_num_convert((kv_elem)s->element, (kv_elem)t->element, bits));
    }
}

static kv_rc wrong_translate(kv_device *d, const kv_index *s, const kv_image *src, const kv_index *t, kv_image *dst,
                             uint32_t fill, kv_err *err)
{
    wrong *w = (wrong *)(void *)d;
    const void *in = kv_image_host_view((kv_image *)(uintptr_t)src);
    unsigned char *out = kv_image_host_view(dst);
    const int64_t bytes = kv_index_bytes(t);
    if (!is_poisoned(w, t, dst)) w->unpoisoned++;
    const int call = w->calls++;
    switch (w->kind) {
    case NOTHING: return KV_OK;
    case BACK_ONLY:
        if (call % 2 == 1) return KV_OK;
        break;
    case REINTERPRETED: memcpy(out, in, (size_t)(bytes < kv_index_bytes(s) ? bytes : kv_index_bytes(s))); return KV_OK;
    case TAIL_DROPPED:
    case TAIL_UNFILLED:
    case KV_SWAPPED:
    case HEADS_SHIFTED:
    case ONLY_BLOCK_0: by_elements(w, s, in, t, out, fill); return KV_OK;
    case RIGHT:
    case ONE_BIT:
    case PAST_THE_END:
    case BEFORE_THE_START:
    case LATE_OVERRUN:
    case FAULTS: break;
    }
    const kv_rc rc = w->base->ops->translate(w->base, s, src, t, dst, fill, err);
    if (w->kind == ONE_BIT && call == 4) {
        const kv_coord c = kvt_place(t, t->elements / 2);
        const int64_t at = kv_index_forward(t, &c);
        kv_num_store((kv_elem)t->element, out, at, kv_num_load((kv_elem)t->element, out, at) ^ 1U);
    }
    if (w->kind == PAST_THE_END) out[bytes] = 0;
    if (w->kind == BEFORE_THE_START) out[-1] = 0;
    if (w->kind == LATE_OVERRUN && call >= 2 * KV_PAYLOADS) out[bytes] = 0;
    return rc;
}

static wrong wrong_device(kv_device *base, fault kind)
{
    wrong w = {.base = base, .kind = kind};
    w.ops = *base->ops;
    w.ops.translate = wrong_translate;
    return w;
}

/* The ops stand in the same object, which has reached its place only here. */
static kv_row run_wrong(wrong *w, const kv_campaign *c, const char *pair)
{
    w->dev.ops = &w->ops;
    w->calls = w->unpoisoned = 0;
    return kvt_run_pair(&w->dev, c, pair);
}

static void cell_run__calls_every_wrong_translator_not_exact(void **state)
{
    (void)state;
    static const char *const pairs[] = {"vllm-fa->trtllm",          "sglang->hf-dynamic-cache",
                                        "vllm-paged-x->llamacpp",   "lmdeploy-turbomind->flashinfer-nhd",
                                        "llamacpp->vllm-paged-x",   "trtllm->sglang",
                                        "hf-dynamic-cache->vllm-fa"};
    kv_device *d = kvt_cpu();
    kv_campaign c = kvt_published_campaign();
    c.geometries[0].layers = 1; /* the token leg then starts after 2 x 6 translations */
    for (size_t i = 0; i < KVT_COUNT(pairs); i++)
        for (int k = RIGHT; k < FAULTS; k++) {
            char what[128];
            wrong w = wrong_device(d, (fault)k);
            const kv_row row = run_wrong(&w, &c, pairs[i]), good = kvt_run_pair(d, &c, pairs[i]);
            const kv_index t = kvt_bind(c.catalogue.item[c.cells[row.cell].dst], &c.geometries[0], 1);
            const bool pads = t.native > t.elements;
            snprintf(what, sizeof what, "%s: %s", pairs[i], fault_names[k]);
            assert_int_equal(w.unpoisoned, 0);
            assert_int_equal(w.calls, 2 * KV_PAYLOADS + 1);
            assert_int_equal(row.error_class, -1);
            if (k == RIGHT)
                kvt_assert_same_row(&row, &good);
            else if (k == TAIL_UNFILLED && !pads)
                kvt_assert_verdict(&row, (kv_verdict)good.verdict,
                                   what); /* the destination has none; the way back is the other cell's */
            else
                kvt_assert_verdict(&row, KV_VERDICT_NOT_EXACT, what);
            if (k != RIGHT && k != TAIL_UNFILLED && k != BACK_ONLY && k != LATE_OVERRUN) {
                assert_int_equal(row.gather_agrees, false);
                assert_int_equal(row.observed[KV_OBS_FORWARD], KV_FALSE);
            }
        }
    kv_campaign_free(&c);
    d->ops->close(d);
}

/* d8 to the letter: the destination already holds the answer when the translator that does nothing is called. */
typedef struct {
    wrong w;
    const kv_index *s, *t; /* of the last translation */
    kv_image *dst;
} cheat;

static kv_rc cheat_translate(kv_device *d, const kv_index *s, const kv_image *src, const kv_index *t, kv_image *dst,
                             uint32_t fill, kv_err *err)
{
    cheat *x = (cheat *)(void *)d;
    (void)src;
    (void)fill;
    (void)err;
    if (x->w.calls++ % 2 == 0) {
        x->s = s;
        x->t = t;
        x->dst = dst;
    }
    return KV_OK;
}

static kv_rc cheat_build(kv_device *d, kv_image *im, const kv_index *ix, const kv_payload *p, int32_t via, uint32_t pad,
                         kv_err *err)
{
    cheat *x = (cheat *)(void *)d;
    const kv_rc rc = x->w.base->ops->build(x->w.base, im, ix, p, via, pad, err);
    if (rc == KV_OK && x->dst != NULL && ix == x->s)
        return x->w.base->ops->translate(x->w.base, ix, im, x->t, x->dst, 0x3555, err);
    return rc;
}

static void cell_run__poisons_an_answer_that_is_already_there(void **state)
{
    (void)state;
    kv_device *d = kvt_cpu();
    kv_campaign c = kvt_published_campaign();
    cheat x = {.w = wrong_device(d, NOTHING)};
    x.w.ops.translate = cheat_translate;
    x.w.ops.build = cheat_build;
    x.w.dev.ops = &x.w.ops;
    const kv_row row = kvt_run_pair(&x.w.dev, &c, "sglang->vllm-fa");
    kvt_assert_verdict(&row, KV_VERDICT_NOT_EXACT, "d8");
    assert_int_equal(row.observed[KV_OBS_FORWARD], KV_FALSE);
    assert_int_equal(row.observed[KV_OBS_TOKENS], KV_FALSE);
    kv_campaign_free(&c);
    d->ops->close(d);
}

/* A cache element that changes between translation and decode changes the tokens or the logits. */
static kv_rc corrupt_decode(kv_device *d, const kv_index *ix, const kv_image *im, int64_t layer, uint64_t seed,
                            int64_t model_layer, kv_image *scratch, kv_decode_result *out, kv_err *err)
{
    wrong *w = (wrong *)(void *)d;
    const kv_coord c = {layer, 1, ix->tokens - 1, ix->heads - 1, ix->lanes[1] - 1};
    const int64_t at = kv_index_forward(ix, &c);
    void *bytes = kv_image_host_view((kv_image *)(uintptr_t)im);
    if (model_layer == 2)
        kv_num_store((kv_elem)ix->element, bytes, at, kv_num_load((kv_elem)ix->element, bytes, at) ^ 1U);
    return w->base->ops->decode(w->base, ix, im, layer, seed, model_layer, scratch, out, err);
}

static void cell_run__sees_one_corrupt_element_in_the_last_layer(void **state)
{
    (void)state;
    kv_device *d = kvt_cpu();
    kv_campaign c = kvt_published_campaign();
    wrong w = wrong_device(d, RIGHT);
    w.ops.decode = corrupt_decode;
    const kv_row row = run_wrong(&w, &c, "sglang->vllm-fa");
    kvt_assert_verdict(&row, KV_VERDICT_NOT_EXACT, "corrupt element");
    assert_int_equal(row.observed[KV_OBS_FORWARD], KV_TRUE);
    assert_int_equal(row.observed[KV_OBS_TOKENS], KV_FALSE);
    assert_memory_equal(row.decoded, row.reference, sizeof row.decoded); /* layer 0 is whole: the digest tells */
    assert_string_not_equal(row.logits_digest, row.reference_digest);
    kv_campaign_free(&c);
    d->ops->close(d);
}

/* A probe that finds a fault takes the forward observation away. */
static kv_rc bad_probe(kv_device *d, const kv_index *ix, kv_probe_result *out, kv_err *err)
{
    wrong *w = (wrong *)(void *)d;
    const kv_rc rc = w->base->ops->probe(w->base, ix, out, err);
    if (w->calls++ == (int)w->number) out->bad = 1;
    return rc;
}

static void cell_run__needs_both_bijections(void **state)
{
    (void)state;
    kv_device *d = kvt_cpu();
    kv_campaign c = kvt_published_campaign();
    for (int side = 0; side < 2; side++) {
        wrong w = wrong_device(d, RIGHT);
        w.ops = *d->ops;
        w.ops.probe = bad_probe;
        w.number = (uint32_t)side;
        const kv_row row = run_wrong(&w, &c, "sglang->vllm-fa");
        kvt_assert_verdict(&row, KV_VERDICT_NOT_EXACT, "bad probe");
        assert_int_equal(row.source_bijective, side != 0);
        assert_int_equal(row.dest_bijective, side != 1);
        assert_true(row.gather_agrees);
    }
    kv_campaign_free(&c);
    d->ops->close(d);
}

/* d3: reading one layout's bytes as the other's is no translation. */
static void cell_run__tells_the_two_readings_of_d3_apart(void **state)
{
    (void)state;
    kv_device *d = kvt_cpu();
    kv_campaign c = kvt_campaign("packed int k=Tb.Ti.H.KV.D block=4; planes int k=Tb.Ti.KV.H.D block=4",
                                 "L=1,T=12,H=2,D=4,e=f16", "");
    wrong w = wrong_device(d, REINTERPRETED);
    const kv_row row = run_wrong(&w, &c, "packed->planes");
    kvt_assert_verdict(&row, KV_VERDICT_NOT_EXACT, "d3");
    assert_int_equal(row.observed[KV_OBS_IDENTICAL], KV_TRUE); /* it round-trips perfectly, and is wrong */
    kv_campaign_free(&c);
    d->ops->close(d);
}

/* The way back differs at as many positions as there is padding, but one of them is an element (and one tail holds
 * the stale value after all): as many is not the same. */
static kv_rc elsewhere(kv_device *d, const kv_index *s, const kv_image *src, const kv_index *t, kv_image *dst,
                       uint32_t fill, kv_err *err)
{
    wrong *w = (wrong *)(void *)d;
    const kv_rc rc = w->base->ops->translate(w->base, s, src, t, dst, fill, err);
    if (w->calls++ % 2 == 0) return rc; /* the way there is right */
    const kv_coord element = {0, 0, 3, 1, 2}, tail = {0, 0, t->tokens, 1, 2};
    void *out = kv_image_host_view(dst);
    const int64_t at = kv_index_forward(t, &element);
    kv_num_store((kv_elem)t->element, out, at, kv_num_load((kv_elem)t->element, out, at) ^ 1U);
    kv_num_store((kv_elem)t->element, out, kv_index_forward(t, &tail),
                 kv_tail_stale_bits(KV_TAIL_STALE, (kv_elem)t->element));
    return rc;
}

static void cell_run__looks_where_the_differences_are(void **state)
{
    (void)state;
    kv_device *d = kvt_cpu();
    kv_campaign c = kvt_campaign("a int k=KV.Tb.Ti.H.D block=16; b sep k=T.H.D", "L=1,T=20,H=2,D=8,e=f16", "");
    wrong w = wrong_device(d, RIGHT);
    w.ops.translate = elsewhere;
    const kv_row row = run_wrong(&w, &c, "a->b");
    assert_int_equal(row.diff_positions, row.unread_padding);
    assert_int_equal(row.observed[KV_OBS_FORWARD], KV_TRUE);
    assert_int_equal(row.observed[KV_OBS_DIFF_IS_PADDING], KV_FALSE);
    kvt_assert_verdict(&row, KV_VERDICT_NOT_EXACT, "elsewhere");
    kv_campaign_free(&c);
    d->ops->close(d);
}

/* One bit pattern that arrives changed: values "exhaustive" finds it whatever the pattern is. */
static kv_rc one_value(kv_device *d, const kv_index *s, const kv_image *src, const kv_index *t, kv_image *dst,
                       uint32_t fill, kv_err *err)
{
    const wrong *w = (const wrong *)(const void *)d;
    const kv_rc rc = w->base->ops->translate(w->base, s, src, t, dst, fill, err);
    const kv_coord c = {0, 1, t->tokens - 1, t->heads - 1, t->lanes[1] - 1};
    const int64_t at = kv_index_forward(t, &c);
    void *out = kv_image_host_view(dst);
    if (kv_num_load((kv_elem)t->element, out, at) == w->number)
        kv_num_store((kv_elem)t->element, out, at, w->number ^ 1U);
    return rc;
}

static void cell_run__exhaustive_values_find_any_pattern(void **state)
{
    (void)state;
    kv_device *d = kvt_cpu();
    kv_campaign c = kvt_campaign("a sep k=T.H.D; b int k=KV.Tb.Ti.H.D block=4", "L=1,T=5,H=2,D=4,e=fp8_e4m3",
                                 "'values':'exhaustive'");
    const kv_row good = kvt_run_pair(d, &c, "a->b");
    kvt_assert_verdict(&good, KV_VERDICT_EXACT_BYTE, "exhaustive");
    assert_int_equal(good.gather_payloads, 256);
    for (int v = 0; v < 256; v++) {
        wrong w = wrong_device(d, RIGHT);
        w.ops.translate = one_value;
        w.number = (uint32_t)v;
        const kv_row row = run_wrong(&w, &c, "a->b");
        kvt_assert_verdict(&row, KV_VERDICT_NOT_EXACT, "one value");
    }
    kv_campaign_free(&c);
    d->ops->close(d);
}

/* ---- failing devices -------------------------------------------------------------------------------- */

static kv_rc failing_compare(kv_device *d, const kv_index *ix, const kv_image *got, const kv_image *want,
                             kv_compare_result *out, kv_err *err)
{
    const wrong *w = (const wrong *)(const void *)d;
    (void)ix;
    (void)got;
    (void)want;
    (void)out;
    return KV_FAIL(err, w->fail_with, "the device says no");
}

static void cell_run__maps_errors_to_classes(void **state)
{
    (void)state;
    static const struct {
        kv_rc rc;
        kv_errclass want;
    } cases[] = {{KV_EDEVICE, KV_ERRCLASS_DEVICE}, {KV_ENOMEM, KV_ERRCLASS_MEMORY}, {KV_EREAD, KV_ERRCLASS_IO},
                 {KV_EWRITE, KV_ERRCLASS_IO},      {KV_EBUG, KV_ERRCLASS_INTERNAL}, {KV_EINVAL, KV_ERRCLASS_INTERNAL}};
    kv_device *d = kvt_cpu();
    kv_campaign c = kvt_published_campaign();
    for (size_t i = 0; i < KVT_COUNT(cases); i++) {
        wrong w = wrong_device(d, RIGHT);
        w.ops.compare = failing_compare;
        w.fail_with = cases[i].rc;
        const kv_row row = run_wrong(&w, &c, "sglang->vllm-fa");
        kvt_assert_verdict(&row, KV_VERDICT_FAILED, "device");
        assert_int_equal(row.error_class, cases[i].want);
        assert_string_equal(row.reason, "the device says no");
    }
    kv_runner r = {.dev = d};
    kv_row row;
    assert_int_equal(kv_cell_run(&r, &c, -1, &row, NULL), KV_EBUG);
    assert_int_equal(kv_cell_run(&r, &c, (int64_t)c.n_cells, &row, NULL), KV_EBUG);
    kv_campaign_free(&c);
    d->ops->close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cell_run__calls_every_wrong_translator_not_exact),
        cmocka_unit_test(cell_run__poisons_an_answer_that_is_already_there),
        cmocka_unit_test(cell_run__sees_one_corrupt_element_in_the_last_layer),
        cmocka_unit_test(cell_run__needs_both_bijections),
        cmocka_unit_test(cell_run__tells_the_two_readings_of_d3_apart),
        cmocka_unit_test(cell_run__looks_where_the_differences_are),
        cmocka_unit_test(cell_run__exhaustive_values_find_any_pattern),
        cmocka_unit_test(cell_run__maps_errors_to_classes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
