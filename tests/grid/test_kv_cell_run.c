/* A cell: right grades for right translators, NOT_EXACT for every wrong one, FAILED where the machine fails. */
#include "grid/kv_cell_run.h"
#include "tests/kv_test_grid.h"

static const char *verdict(const kv_row *r)
{
    return kv_verdict_name((kv_verdict)r->verdict);
}

static void assert_verdict(const kv_row *r, kv_verdict want, const char *what)
{
    if (r->verdict != (int32_t)want)
        fail_msg("%s: %s instead of %s (%s)", what, verdict(r), kv_verdict_name(want), r->reason);
}

/* Everything of two rows that does not depend on when they ran. */
static void assert_same_row(const kv_row *a, const kv_row *b)
{
    assert_memory_equal(a, b, sizeof *a);
}

/* ---- the published campaign ------------------------------------------------------------------------- */

static void cell_run__gives_the_published_totals(void **state)
{
    (void)state;
    kv_device *d = kvt_cpu();
    kv_campaign c = kvt_published_campaign();
    kv_runner r = {.dev = d};
    int64_t count[KV_VERDICT_COUNT] = {0}, positions = 0, source = 0;
    for (size_t i = 0; i < c.n_cells; i++) {
        kv_row row;
        kv_err err = {0};
        kvt_ok(kv_cell_run(&r, &c, (int64_t)i, &row, &err), &err);
        count[row.verdict]++;
        positions += row.checked;
        source += row.source_checked;
        const kv_row alone = kvt_run(d, &c, (int64_t)i); /* a fresh runner finds the same */
        assert_same_row(&row, &alone);
    }
    assert_int_equal(c.n_cells, 64);
    assert_int_equal(count[KV_VERDICT_EXACT_BYTE], 21);
    assert_int_equal(count[KV_VERDICT_EXACT_TOKEN], 35);
    assert_int_equal(count[KV_VERDICT_NOT_EXACT], 2);
    assert_int_equal(count[KV_VERDICT_REFUSED], 6);
    assert_int_equal(positions, 90880);
    assert_int_equal(source, 90880);
    kv_runner_free(&r);
    kv_campaign_free(&c);
    d->ops->close(d);
}

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
} wrong;

/* Every byte of the destination is the same, so nothing of an answer is there; guards stand. */
static bool is_poisoned(const wrong *w, const kv_index *t, kv_image *dst)
{
    const unsigned char *b = kv_image_host_view(dst);
    for (int64_t i = 1; i < kv_index_bytes(t); i++)
        if (b[i] != b[0]) return false;
    return w->base->ops->check_guards(w->base, dst, NULL) == KV_OK;
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
                assert_same_row(&row, &good);
            else if (k == TAIL_UNFILLED && !pads)
                assert_verdict(&row, (kv_verdict)good.verdict,
                               what); /* the destination has none; the way back is the other cell's */
            else
                assert_verdict(&row, KV_VERDICT_NOT_EXACT, what);
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
    assert_verdict(&row, KV_VERDICT_NOT_EXACT, "d8");
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
    assert_verdict(&row, KV_VERDICT_NOT_EXACT, "corrupt element");
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
    if (w->calls++ == (int)w->fail_with) out->bad = 1;
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
        w.fail_with = (kv_rc)side;
        const kv_row row = run_wrong(&w, &c, "sglang->vllm-fa");
        assert_verdict(&row, KV_VERDICT_NOT_EXACT, "bad probe");
        assert_int_equal(row.source_bijective, side != 0);
        assert_int_equal(row.dest_bijective, side != 1);
        assert_true(row.gather_agrees);
    }
    kv_campaign_free(&c);
    d->ops->close(d);
}

/* ---- special cells -------------------------------------------------------------------------------------- */

static void cell_run__grades_by_the_tail_model(void **state)
{
    (void)state;
    static const struct {
        const char *pair;
        const char *tail;
        kv_verdict want;
        int64_t diff;
    } cases[] = {{"fa->th", "stale", KV_VERDICT_EXACT_TOKEN, 768}, {"fa->th", "zero", KV_VERDICT_EXACT_BYTE, 0},
                 {"fa->th", "nan", KV_VERDICT_EXACT_TOKEN, 768},   {"th->fa", "stale", KV_VERDICT_EXACT_BYTE, 0},
                 {"th->fa", "zero", KV_VERDICT_EXACT_BYTE, 0},     {"th->fa", "nan", KV_VERDICT_EXACT_BYTE, 0}};
    static const char *const elements[] = {"f16", "bf16", "f32", "fp8_e4m3"};
    kv_device *d = kvt_cpu();
    for (size_t i = 0; i < KVT_COUNT(cases); i++)
        for (size_t e = 0; e < KVT_COUNT(elements); e++) {
            char geometry[64], more[64];
            snprintf(geometry, sizeof geometry, "L=3,T=40,H=2,D=8,e=%s", elements[e]);
            snprintf(more, sizeof more, "'tail':'%s'", cases[i].tail);
            kv_campaign c = kvt_campaign("fa int k=KV.Tb.Ti.H.D block=16; th sep k=T.H.D", geometry, more);
            const kv_row row = kvt_run_pair(d, &c, cases[i].pair);
            assert_verdict(&row, cases[i].want, more);
            assert_int_equal(row.diff_positions, cases[i].diff);
            assert_int_equal(row.unread_padding, cases[i].pair[0] == 'f' ? 768 : 0);
            assert_int_equal(row.observed[KV_OBS_DIFF_IS_PADDING], KV_TRUE);
            kv_campaign_free(&c);
        }
    d->ops->close(d);
}

static void cell_run__of_an_empty_geometry_is_exact_and_empty(void **state)
{
    (void)state;
    kv_device *d = kvt_cpu();
    kv_campaign c = kvt_campaign("a int k=KV.Tb.Ti.H.D block=16; b sep k=T.H.D e=fp8_e4m3; e sep k=L.H.T.D; f sep "
                                 "k=Tb.H.D.Ti block=4 page_stride_bytes=640",
                                 "L=2,T=0,H=2,D=8,e=f16", "");
    for (size_t i = 0; i < c.n_cells; i++) {
        const kv_row row = kvt_run(d, &c, (int64_t)i);
        assert_verdict(&row, KV_VERDICT_EXACT_BYTE, "T = 0");
        assert_int_equal(row.checked + row.source_checked + row.total + row.native_bytes[0] + row.native_bytes[1], 0);
        assert_int_equal(row.same_image, !row.converts);
        assert_int_equal(row.source_bijective && row.dest_bijective, true);
    }
    kv_campaign_free(&c);
    d->ops->close(d);
}

static void cell_run__takes_all_layers_where_a_side_keeps_them(void **state)
{
    (void)state;
    kv_device *d = kvt_cpu();
    kv_campaign c =
        kvt_campaign("flat sep k=T.H.D; layered int k=Tb.L.KV.Ti.H.D block=16; paged int k=KV.Tb.Ti.H.D block=16",
                     "L=3,T=40,H=2,D=8,e=f16", "");
    const kv_row a = kvt_run_pair(d, &c, "flat->layered"), b = kvt_run_pair(d, &c, "layered->flat"),
                 p = kvt_run_pair(d, &c, "paged->layered");
    assert_verdict(&a, KV_VERDICT_EXACT_BYTE, "flat->layered");
    assert_verdict(&b, KV_VERDICT_EXACT_TOKEN, "layered->flat");
    assert_verdict(&p, KV_VERDICT_EXACT_TOKEN, "paged->layered");
    assert_int_equal(a.unit_layers, 3);
    assert_int_equal(a.checked, 3 * 1536);
    assert_int_equal(a.source_checked, 3 * 1280);
    assert_int_equal(a.native_bytes[0], 3 * 2560);
    assert_int_equal(b.unread_padding, 768);
    assert_int_equal(b.diff_positions, 768);
    const kv_row one = kvt_run_pair(d, &c, "flat->paged"); /* per layer: the same tokens and digest */
    assert_int_equal(one.unit_layers, 1);
    assert_string_equal(one.logits_digest, a.logits_digest);
    assert_memory_equal(one.decoded, a.decoded, sizeof a.decoded);
    kv_campaign_free(&c);
    d->ops->close(d);
}

/* At H = 1 a latent row and a head have the same numbers, but not the same decode: a runner that goes from one to
 * the other must not take one for the other. */
static void cell_run__keeps_the_references_of_latent_rows_apart(void **state)
{
    (void)state;
    kv_device *d = kvt_cpu();
    kv_campaign c = kvt_campaign("a lat k=T.C; b lat k=Tb.Ti.C block=16; c sep k=T.H.D; d sep k=H.T.D",
                                 "L=2,T=20,H=1,D=8,e=f16", "'pairs':[['a','b'],['b','a'],['c','d'],['d','c']]");
    kv_runner r = {.dev = d};
    for (int turn = 0; turn < 2; turn++)
        for (size_t i = 0; i < c.n_cells; i++) {
            kv_row row;
            char id[KV_PAIR_ID_TEXT];
            kv_err err = {0};
            const size_t cell = turn == 0 ? i : c.n_cells - 1 - i;
            kvt_ok(kv_cell_run(&r, &c, (int64_t)cell, &row, &err), &err);
            kv_cell_pair_id(&c, &c.cells[cell], id);
            assert_verdict(&row, strcmp(id, "b->a") == 0 ? KV_VERDICT_EXACT_TOKEN : KV_VERDICT_EXACT_BYTE, id);
        }
    kv_runner_free(&r);
    kv_campaign_free(&c);
    d->ops->close(d);
}

/* d1, d3, d5, d6 and a view. */
static void cell_run__grades_the_reported_cases(void **state)
{
    (void)state;
    static const struct {
        const char *what, *layouts, *geometry, *pair;
        kv_verdict want;
        int same_image;
    } cases[] = {
        {"d1", "a int k=Tb.KV.H.Ti.D block=4 tp=1/4; b int k=Tb.KV.H.Ti.D block=4 tp=2/8", "L=1,T=8,H=4,D=8,e=bf16",
         "a->b", KV_VERDICT_EXACT_BYTE, 1},
        {"d1", "a int k=Tb.KV.H.Ti.D block=4 tp=1/4; b int k=Tb.KV.H.Ti.D block=4 tp=3/8", "L=1,T=8,H=4,D=8,e=bf16",
         "b->a", KV_VERDICT_EXACT_BYTE, 1},
        {"d1", "a int k=Tb.KV.H.Ti.D block=4 tp=0/2; b int k=Tb.KV.H.Ti.D block=4 tp=0/8", "L=1,T=8,H=8,D=8,e=bf16",
         "a->b", KV_VERDICT_REFUSED, 0},
        {"d3", "a int k=Tb.Ti.H.KV.D block=4; b int k=Tb.Ti.KV.H.D block=4", "L=1,T=12,H=2,D=4,e=f16", "a->b",
         KV_VERDICT_EXACT_BYTE, 0},
        {"d5", "a sep k=T.H.D; b sep k=H.T.D", "L=1,T=9,H=2,D=6,Dv=4,e=f16", "a->b", KV_VERDICT_EXACT_BYTE, 0},
        {"d5", "a sep k=T.H.D; b int k=KV.Tb.Ti.H.D block=4", "L=1,T=9,H=2,D=6,Dv=4,e=f16", "a->b", KV_VERDICT_REFUSED,
         0},
        {"d6", "a sep k=T.H.D; b sep k=T.H.D e=f16", "L=1,T=9,H=2,D=8,e=bf16", "a->b", KV_VERDICT_NOT_EXACT, 0},
        {"d6 back", "a sep k=T.H.D; b sep k=T.H.D e=f16", "L=1,T=9,H=2,D=8,e=bf16", "b->a", KV_VERDICT_NOT_EXACT, 0},
        {"d6 empty", "a sep k=T.H.D; b sep k=T.H.D e=f16", "L=1,T=0,H=2,D=8,e=bf16", "a->b", KV_VERDICT_EXACT_BYTE, 0},
        {"view", "a sep k=T.H.D; b sep k=T.H.D", "L=1,T=9,H=2,D=8,e=bf16", "a->b", KV_VERDICT_EXACT_BYTE, 1},
        {"H=1 shard", "a int k=KV.Tb.Ti.H.D block=16; b int k=KV.Tb.Ti.H.D block=16 tp=0/2", "L=1,T=16,H=1,D=8,e=f16",
         "a->b", KV_VERDICT_EXACT_BYTE, 1},
    };
    kv_device *d = kvt_cpu();
    for (size_t i = 0; i < KVT_COUNT(cases); i++) {
        kv_campaign c = kvt_campaign(cases[i].layouts, cases[i].geometry, "");
        const kv_row row = kvt_run_pair(d, &c, cases[i].pair);
        assert_verdict(&row, cases[i].want, cases[i].what);
        if (row.same_image != cases[i].same_image) fail_msg("%s: same_image %d", cases[i].what, row.same_image);
        if (cases[i].what[1] == '6' && row.total > 0) {
            assert_true(row.converts && row.values_preserved && row.finite &&
                        row.worst_ppm == 0); /* by value, in [0.5, 2) */
        }
        if (row.verdict == KV_VERDICT_REFUSED && cases[i].what[1] == '5')
            assert_true(strstr(row.reason, "6") != NULL && strstr(row.reason, "4") != NULL);
        kv_campaign_free(&c);
    }
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
    assert_verdict(&row, KV_VERDICT_NOT_EXACT, "d3");
    assert_int_equal(row.observed[KV_OBS_IDENTICAL], KV_TRUE); /* it round-trips perfectly, and is wrong */
    kv_campaign_free(&c);
    d->ops->close(d);
}

/* Random pairs of the general form: all exact, with counts that the enumeration gives. */
static void cell_run__finds_random_pairs_exact(void **state)
{
    (void)state;
    kv_device *d = kvt_cpu();
    uint64_t r = 71;
    int padded = 0;
    for (int i = 0; i < 600; i++) {
        const kv_store store = (kv_store)(i % 3), other = store == KV_STORE_LATENT ? store : (kv_store)kvt_below(&r, 2);
        kv_geometry g =
            kvt_random_geometry(&r, store == KV_STORE_LATENT, store != KV_STORE_SEPARATE || other != KV_STORE_SEPARATE);
        kvt_desc a = kvt_random_desc_same(&r, &g, store), b = kvt_random_desc_same(&r, &g, other);
        if (store != KV_STORE_LATENT && kvt_one_in(&r, 3)) kvt_shard(&r, &g, &a, &b);
        char texts[2 * KVT_TEXT], one[KVT_TEXT], geometry[KV_GEOMETRY_TEXT];
        kvt_desc_text(&a, "a", one);
        int n = snprintf(texts, sizeof texts, "%s; ", one);
        kvt_desc_text(&b, "b", one);
        snprintf(texts + n, sizeof texts - (size_t)n, "%s", one);
        kv_geometry_print(&g, geometry);
        kv_campaign c = kvt_campaign(texts, geometry, kvt_one_in(&r, 2) ? "'tail':'nan','seed':77" : "");
        const kv_row row = kvt_run_pair(d, &c, "a->b");
        const int64_t unit = kv_pair_unit_layers(c.catalogue.item[0], c.catalogue.item[1], &g);
        kvt_map ma = kvt_map_new(c.catalogue.item[0], &g, unit), mb = kvt_map_new(c.catalogue.item[1], &g, unit);
        const int64_t unread = (ma.n - ma.elements) * (g.layers / unit);
        if (row.verdict != (int32_t)(unread > 0 ? KV_VERDICT_EXACT_TOKEN : KV_VERDICT_EXACT_BYTE))
            fail_msg("%s at %s: %s", texts, geometry, verdict(&row));
        assert_int_equal(row.source_total, ma.n);
        assert_int_equal(row.total, mb.n);
        assert_int_equal(row.source_padding, ma.n - ma.elements);
        assert_int_equal(row.dest_padding, mb.n - mb.elements);
        assert_int_equal(row.unread_padding, unread);
        assert_int_equal(row.diff_positions, unread);
        padded += unread > 0;
        kvt_map_free(&ma);
        kvt_map_free(&mb);
        kv_campaign_free(&c);
    }
    assert_true(padded > 200);
    d->ops->close(d);
}

/* ---- failures -------------------------------------------------------------------------------------------- */

static void cell_run__is_failed_of_class_memory_at_every_allocation(void **state)
{
    (void)state;
    static const char *const pairs[] = {"vllm-fa->sglang", "llamacpp->vllm-paged-x", "vllm-fa->vllm-fp8"};
    kv_device *d = kvt_cpu();
    kv_campaign c = kvt_published_campaign();
    for (size_t i = 0; i < KVT_COUNT(pairs); i++) {
        const int64_t cell = kvt_cell(&c, pairs[i]);
        const kv_row want = kvt_run(d, &c, cell);
        kv_runner r = {.dev = d}; /* goes on after each failure */
        for (long n = 0;; n++) {
            kv_row row;
            kv_err err = {0};
            kv_alloc_fail_after(n);
            const kv_rc rc = kv_cell_run(&r, &c, cell, &row, &err);
            kv_alloc_fail_after(-1);
            kvt_ok(rc, &err);
            if (row.verdict != KV_VERDICT_FAILED) {
                assert_same_row(&row, &want);
                assert_true(n > 8);
                break;
            }
            assert_int_equal(row.error_class, KV_ERRCLASS_MEMORY);
            assert_int_equal(row.words, want.words);
            assert_int_equal(row.ran, false);
            if (strstr(row.reason, "memory") == NULL) fail_msg("allocation %ld: %s", n, row.reason);
            for (int o = 0; o < KV_OBS_COUNT; o++) assert_int_equal(row.observed[o], KV_NULL);
            assert_true(n < 2000);
        }
        kv_runner_free(&r);
    }
    kv_campaign_free(&c);
    d->ops->close(d);
}

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
        assert_verdict(&row, KV_VERDICT_FAILED, "device");
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

/* Both sides in a type that is not the geometry's: the move itself is a plain copy of values. */
static void cell_run__moves_between_two_sides_of_another_type(void **state)
{
    (void)state;
    kv_device *d = kvt_cpu();
    kv_campaign c = kvt_campaign("a sep k=T.H.D e=fp8_e4m3; b sep k=H.T.D e=fp8_e4m3", "L=2,T=20,H=2,D=8,e=f16", "");
    const kv_row row = kvt_run_pair(d, &c, "a->b");
    assert_int_equal(row.converts, false);
    assert_int_equal(row.gather_agrees, true);
    assert_int_equal(row.observed[KV_OBS_FORWARD], KV_TRUE);
    assert_int_equal(row.observed[KV_OBS_IDENTICAL], KV_TRUE);
    kv_campaign_free(&c);
    d->ops->close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cell_run__gives_the_published_totals),
        cmocka_unit_test(cell_run__calls_every_wrong_translator_not_exact),
        cmocka_unit_test(cell_run__poisons_an_answer_that_is_already_there),
        cmocka_unit_test(cell_run__sees_one_corrupt_element_in_the_last_layer),
        cmocka_unit_test(cell_run__needs_both_bijections),
        cmocka_unit_test(cell_run__grades_by_the_tail_model),
        cmocka_unit_test(cell_run__of_an_empty_geometry_is_exact_and_empty),
        cmocka_unit_test(cell_run__takes_all_layers_where_a_side_keeps_them),
        cmocka_unit_test(cell_run__keeps_the_references_of_latent_rows_apart),
        cmocka_unit_test(cell_run__grades_the_reported_cases),
        cmocka_unit_test(cell_run__tells_the_two_readings_of_d3_apart),
        cmocka_unit_test(cell_run__finds_random_pairs_exact),
        cmocka_unit_test(cell_run__is_failed_of_class_memory_at_every_allocation),
        cmocka_unit_test(cell_run__maps_errors_to_classes),
        cmocka_unit_test(cell_run__moves_between_two_sides_of_another_type),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
