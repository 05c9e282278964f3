/* The shard map against the design's words, the re-shard plan against its law, rounds and pipeline stages. */
#include "tests/kv_test.h"
#include "tp/kv_tp.h"
#include "tp/kv_tp_plan.h"
#include "tp/kv_tp_shard_index.h"

static const int64_t all_heads[] = {1, 2, 3, 4, 8, 12};
static const int64_t all_sizes[] = {1, 2, 3, 4, 8};

static void shard_map__by_hand(void **state)
{
    (void)state;
    /* H 4: TP 2 are slices, TP 8 copies (case d1: ranks 2k and 2k+1 both hold head k) */
    assert_int_equal(kv_tp_shard_first(4, 2, 1), 2);
    assert_int_equal(kv_tp_shard_heads(4, 2), 2);
    for (int64_t k = 0; k < 4; k++)
        for (int64_t r = 0; r < 8; r++) assert_int_equal(kv_tp_shard_holds(4, 8, r, k), r == 2 * k || r == 2 * k + 1);
    assert_int_equal(kv_tp_shard_copies(4, 8), 2);
    assert_false(kv_tp_shard_exists(3, 2));
    assert_false(kv_tp_shard_exists(3, 4));
    assert_false(kv_tp_shard_exists(4, 6));
    assert_true(kv_tp_shard_exists(12, 3));
    assert_true(kv_tp_shard_exists(1, 8)); /* a latent row: every rank holds it */
    for (int64_t r = 0; r < 8; r++) assert_true(kv_tp_shard_holds(1, 8, r, 0));
    assert_false(kv_tp_shard_holds(4, 2, 2, 3));
    assert_false(kv_tp_shard_holds(4, 2, -1, 0));
    assert_int_equal(kv_tp_shard_first(1048576, INT64_MAX / 1048576 * 1048576, INT64_MAX / 1048576 * 1048576 - 1),
                     1048575);
}

/* The same heads as a layout that is declared as that shard; holders are the inverse. */
static void shard_map__agrees_with_layouts(void **state)
{
    (void)state;
    for (size_t i = 0; i < KVT_COUNT(all_heads); i++)
        for (int64_t size = 1; size <= 24; size++) {
            const int64_t H = all_heads[i];
            char text[64], reason[KV_REASON_TEXT];
            snprintf(text, sizeof text, "L=1,T=4,H=%d,D=2,e=f16", (int)H);
            const kv_geometry g = kvt_geometry(text);
            for (int64_t r = 0; r < size; r++) {
                int64_t first, count, seen = 0;
                snprintf(text, sizeof text, "a sep k=T.H.D v=T.H.D tp=%d/%d", (int)r, (int)size);
                kv_layout *l = kvt_layout(text);
                const bool exists = kv_layout_heads(l, &g, &first, &count, reason);
                kv_layout_free(l);
                assert_int_equal(exists, kv_tp_shard_exists(H, size));
                if (!exists) continue;
                assert_int_equal(first, kv_tp_shard_first(H, size, r));
                assert_int_equal(count, kv_tp_shard_heads(H, size));
                for (int64_t h = 0; h < H; h++) {
                    const int64_t holder = kv_tp_shard_holder(H, size, h);
                    const bool holds = r >= holder && r < holder + kv_tp_shard_copies(H, size);
                    assert_int_equal(holds, kv_tp_shard_holds(H, size, r, h));
                    seen += holds;
                }
                assert_int_equal(seen, count);
            }
        }
}

/* Every needed head arrives once, nothing held arrives, nobody sends what it does not hold, senders are balanced. */
static void check_plan(const kv_tp_plan *plan)
{
    const int64_t H = plan->heads, p = plan->p, q = plan->q;
    int64_t sends[12][8] = {{0}}; /* head, sender */
    int64_t least = 0, sent = 0;
    for (int64_t to = 0; to < q; to++) {
        int64_t got[12] = {0}, lacks = 0;
        for (size_t i = 0; i < plan->n; i++) {
            const kv_tp_parcel *c = &plan->parcel[i];
            if (c->to != to) continue;
            assert_true(c->from != c->to && c->from >= 0 && c->from < p && c->heads > 0);
            for (int64_t h = c->first; h < c->first + c->heads; h++) {
                assert_true(kv_tp_shard_holds(H, p, c->from, h));
                sends[h][c->from]++;
                got[h]++;
                sent++;
            }
        }
        for (int64_t h = 0; h < H; h++) {
            const int64_t want = kv_tp_shard_holds(H, q, to, h) && !kv_tp_shard_holds(H, p, to, h);
            assert_int_equal(got[h], want);
            lacks += want;
        }
        assert_int_equal(kv_tp_shard_lacks(H, p, q, to), lacks);
        least += lacks;
    }
    assert_int_equal(sent, least);
    for (int64_t h = 0; h < H; h++) {
        int64_t most = 0, fewest = INT64_MAX;
        for (int64_t r = 0; r < p; r++) {
            if (!kv_tp_shard_holds(H, p, r, h)) continue;
            if (sends[h][r] > most) most = sends[h][r];
            if (sends[h][r] < fewest) fewest = sends[h][r];
        }
        assert_true(most - fewest <= 1);
    }
}

static void plan__sends_the_minimum(void **state)
{
    (void)state;
    int plans = 0;
    for (size_t i = 0; i < KVT_COUNT(all_heads); i++)
        for (size_t a = 0; a < KVT_COUNT(all_sizes); a++)
            for (size_t b = 0; b < KVT_COUNT(all_sizes); b++) {
                const int64_t H = all_heads[i], p = all_sizes[a], q = all_sizes[b];
                kv_tp_plan plan = {0};
                kv_err err = {0};
                const kv_rc rc = kv_tp_plan_new(H, p, q, &plan, &err);
                if (!kv_tp_shard_exists(H, p) || !kv_tp_shard_exists(H, q)) {
                    kvt_refused(rc, KV_EINVAL, &err, "plan", KVT_SAYS("do not exist", "kv heads"));
                    assert_null(plan.parcel);
                    continue;
                }
                kvt_ok(rc, &err);
                check_plan(&plan);
                if (p == q) assert_int_equal(plan.n, 0);
                kv_tp_plan_free(&plan);
                plans++;
            }
    assert_int_equal(plans, 25 + 16 + 4 + 16 + 16 + 16);
}

static void plan__by_hand(void **state)
{
    (void)state;
    kv_err err = {0};
    kv_tp_plan plan = {0};
    kvt_ok(kv_tp_plan_new(8, 4, 1, &plan, &err), &err); /* gather: three parcels of two heads */
    assert_int_equal(plan.n, 3);
    for (int r = 1; r < 4; r++)
        assert_memory_equal(&plan.parcel[r - 1], (&(kv_tp_parcel){r, 0, 2 * r, 2}), sizeof(kv_tp_parcel));
    kv_tp_plan_free(&plan);
    kvt_ok(kv_tp_plan_new(2, 4, 8, &plan, &err), &err); /* copies on both sides: holders take turns */
    const kv_tp_parcel want[] = {{0, 2, 0, 1}, {1, 3, 0, 1}, {2, 4, 1, 1}, {3, 5, 1, 1}, {2, 6, 1, 1}, {3, 7, 1, 1}};
    assert_int_equal(plan.n, KVT_COUNT(want));
    assert_memory_equal(plan.parcel, want, sizeof want);
    kv_tp_plan_free(&plan);
    assert_int_equal(kv_tp_plan_new(0, 1, 1, &plan, &err), KV_EINVAL);
    kv_err_clear(&err);
    assert_int_equal(kv_tp_plan_new(4, 0, 1, &plan, &err), KV_EINVAL);
    kv_err_clear(&err);
    assert_int_equal(kv_tp_plan_new(4, 1, -2, &plan, &err), KV_EINVAL);
    assert_int_equal(kv_tp_group_ranks(2, 8), 8);
}

static void plan__survives_every_allocation_failure(void **state)
{
    (void)state;
    for (long n = 0;; n++) {
        kv_tp_plan plan = {0};
        kv_err err = {0};
        kv_alloc_fail_after(n);
        const kv_rc rc = kv_tp_plan_new(12, 4, 3, &plan, &err);
        kv_alloc_fail_after(-1);
        if (rc == KV_OK) {
            kv_tp_plan_free(&plan);
            assert_true(n >= 2);
            return;
        }
        assert_int_equal(rc, KV_ENOMEM);
    }
}

/* Case d4: pages [0] then [1,2], each once; the boundary page waits for its tokens. */
static void rounds__d4(void **state)
{
    (void)state;
    const int64_t chunk[] = {6, 5};
    kv_tp_round *r = NULL;
    size_t n = 0;
    kv_err err = {0};
    kvt_ok(kv_tp_rounds_new(KV_TP_SEND_CHUNKS, 1, 11, 4, chunk, 2, &r, &n, &err), &err);
    assert_int_equal(n, 2);
    assert_memory_equal(&r[0], (&(kv_tp_round){0, 1, 0, 4, 0, 1}), sizeof *r);
    assert_memory_equal(&r[1], (&(kv_tp_round){0, 1, 4, 7, 1, 2}), sizeof *r);
    kv_free(r);
    const int64_t wrong[] = {6, 6}, none[] = {11, 0};
    kvt_refused(kv_tp_rounds_new(KV_TP_SEND_CHUNKS, 1, 11, 4, wrong, 2, &r, &n, &err), KV_EINVAL, &err, "chunks",
                KVT_SAYS("12 tokens", "11"));
    kvt_refused(kv_tp_rounds_new(KV_TP_SEND_CHUNKS, 1, 11, 4, none, 2, &r, &n, &err), KV_EINVAL, &err, "chunks",
                KVT_SAYS("chunk 1 holds 0"));
}

/* Law: rounds cover each (layer, token) once, in order, on page boundaries, never before the token is there. */
static void rounds__cover_each_token_once(void **state)
{
    (void)state;
    uint64_t seed = 4;
    for (int trial = 0; trial < 400; trial++) {
        const int64_t block = kvt_below(&seed, 6), layers = 1 + kvt_below(&seed, 3);
        const kv_tp_send send = (kv_tp_send)kvt_below(&seed, 3);
        int64_t chunk[8], tokens = 0, sent[3] = {0};
        const size_t n_chunks = (size_t)kvt_below(&seed, 8);
        for (size_t i = 0; i < n_chunks; i++) tokens += chunk[i] = 1 + kvt_below(&seed, 9);
        kv_tp_round *r = NULL;
        size_t n = 0;
        kv_err err = {0};
        kvt_ok(kv_tp_rounds_new(send, layers, tokens, block, chunk, n_chunks, &r, &n, &err), &err);
        for (size_t i = 0; i < n; i++)
            for (int64_t l = r[i].layer; l < r[i].layer + r[i].layers; l++) {
                assert_int_equal(r[i].token, sent[l]);
                assert_int_equal(r[i].token % (block > 0 ? block : 1), 0);
                sent[l] += r[i].tokens;
            }
        for (int64_t l = 0; l < layers; l++) assert_int_equal(sent[l], tokens);
        assert_true(send != KV_TP_SEND_LAYERS || n == (size_t)layers);
        assert_true(send != KV_TP_SEND_CHUNKS || n <= n_chunks);
        kv_free(r);
    }
}

static void hops__pair_by_id(void **state)
{
    (void)state;
    const int64_t a0[] = {0, 1, 2}, a1[] = {5, 3, 4}, b0[] = {1, 0}, b1[] = {3, 2}, b2[] = {4, 5};
    const kv_tp_stage src[] = {{a0, 3}, {a1, 3}}, dst[] = {{b0, 2}, {b1, 2}, {b2, 2}};
    const kv_tp_hop want[] = {{0, 0, 0, 0, 1}, {1, 0, 0, 1, 0}, {2, 0, 1, 2, 1},
                              {3, 1, 1, 1, 0}, {4, 1, 2, 2, 0}, {5, 1, 2, 0, 1}};
    kv_tp_hop *hop = NULL;
    kv_err err = {0};
    kvt_ok(kv_tp_hops_new(6, src, 2, dst, 3, &hop, &err), &err);
    assert_memory_equal(hop, want, sizeof want);
    kv_free(hop);
    const int64_t twice[] = {1, 1}, far[] = {0, 6}, few[] = {5, 3};
    const struct {
        kv_tp_stage src[2], dst[2];
        const char *says;
    } bad[] = {
        {{{a0, 3}, {few, 2}}, {{a0, 3}, {a1, 3}}, "layer 4 is missing: destination stage 1 wants it"},
        {{{a0, 3}, {a1, 3}}, {{a0, 3}, {few, 2}}, "layer 4 would be lost: source stage 1"},
        {{{twice, 2}, {a1, 3}}, {{a0, 3}, {a1, 3}}, "layer 1 stands twice: in source stages 0 and 0"},
        {{{a0, 3}, {a1, 3}}, {{a0, 3}, {far, 2}}, "layer 0 stands twice: in destination stages 0 and 1"},
        {{{a0, 3}, {far + 1, 1}}, {{a0, 3}, {a1, 3}}, "source stage 1 holds layer 6 of a model of 6"},
        {{{a0, 3}, {few, 2}}, {{a0, 3}, {few, 2}}, "layer 4 is missing: no stage"},
    };
    for (size_t i = 0; i < KVT_COUNT(bad); i++)
        kvt_refused(kv_tp_hops_new(6, bad[i].src, 2, bad[i].dst, 2, &hop, &err), KV_EINVAL, &err, "stages",
                    KVT_SAYS(bad[i].says));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shard_map__by_hand),
        cmocka_unit_test(shard_map__agrees_with_layouts),
        cmocka_unit_test(plan__sends_the_minimum),
        cmocka_unit_test(plan__by_hand),
        cmocka_unit_test(plan__survives_every_allocation_failure),
        cmocka_unit_test(rounds__d4),
        cmocka_unit_test(rounds__cover_each_token_once),
        cmocka_unit_test(hops__pair_by_id),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
