/* The wire image, checksums, headers, the choice of transport, the local transport's own laws. */
#include "tests/kv_test_images.h"
#include "tests/tp/kv_tp_test.h"

/* Every element of the wire image stands in exactly one piece of each way to cut it, and heads come first. */
static void wire__pieces_cover_once(void **state)
{
    (void)state;
    kv_layout *l = kvt_layout("a sep k=Tb.H.Ti.D v=H.D.T block=4");
    kv_layout *lat = kvt_layout("b lat k=T.C");
    const kv_geometry g = kvt_geometry("L=3,T=10,H=5,D=4,Dv=6,e=f16"), one = kvt_geometry("L=3,T=10,H=1,D=4,e=f16");
    for (int latent = 0; latent < 2; latent++) {
        const kv_index ix = kvt_bind(latent ? lat : l, latent ? &one : &g, 3);
        kv_index w;
        kv_tp_wire_index(&ix, ix.element, &w);
        assert_int_equal(w.elements, ix.elements);
        const kv_coord at = {2, latent ? 0 : 1, 7, latent ? 0 : 3, 2}; /* by hand: [KV][H][L][T][D] */
        assert_int_equal(kv_index_forward(&w, &at),
                         latent ? (2 * 10 + 7) * 4 + 2 : 5 * 3 * 10 * 4 + ((3 * 3 + 2) * 10 + 7) * 6 + 2);
        kv_device *dev = kvt_cpu();
        kv_probe_result probe;
        kv_err err = {0};
        kvt_ok(dev->ops->probe(dev, &w, &probe, &err), &err);
        assert_true(probe.bad == 0 && probe.elements_hit == w.elements && probe.padding == 0);
        dev->ops->close(dev);
        const int64_t bytes = kv_index_bytes(&w), chunk[] = {4, 3, 3};
        for (int send = 0; send < 3; send++) {
            kv_tp_round *r = NULL;
            size_t n = 0;
            unsigned char *base = kvt_take(bytes, 1), *seen = base;
            kvt_ok(kv_tp_rounds_new((kv_tp_send)send, 3, 10, 1, chunk, 3, &r, &n, &err), &err);
            for (size_t i = 0; i < n; i++)
                for (int64_t h = 0; h < w.heads; h += 2) {
                    const int64_t heads = h + 2 < w.heads ? 2 : w.heads - h;
                    kv_tp_piece piece[64];
                    const int32_t k = kv_tp_wire_pieces(&w, base, h, heads, &r[i], piece);
                    int64_t sum = 0;
                    for (int32_t p = 0; p < k; p++)
                        for (int64_t b = 0; b < piece[p].bytes; b++, sum++) {
                            unsigned char *byte = (unsigned char *)piece[p].at + b;
                            assert_true(byte >= seen && byte < seen + bytes);
                            (*byte)++;
                        }
                    assert_int_equal(sum, kv_tp_wire_bytes(&w, heads, &r[i]));
                }
            for (int64_t b = 0; b < bytes; b++) assert_int_equal(seen[b], 1);
            free(seen);
            kv_free(r);
        }
    }
    kv_layout_free(l);
    kv_layout_free(lat);
}

static uint64_t sum_of(kv_tp_piece *piece, int32_t n)
{
    uint64_t sum = 0;
    kv_err err = {0};
    kvt_ok(kv_tp_sum(piece, n, false, &sum, &err), &err);
    return sum;
}

/* Every single changed bit, every swap of two different words and every other length has another sum. */
static void wire__checksum_sees_changes(void **state)
{
    (void)state;
    unsigned char data[200];
    for (size_t i = 0; i < sizeof data; i++) data[i] = (unsigned char)(i * 37 + 1);
    for (int64_t n = 0; n <= 200; n += 1 + n / 3) {
        kv_tp_piece one = {data, n};
        const uint64_t whole = sum_of(&one, 1);
        for (int64_t bit = 0; bit < 8 * n; bit++) {
            data[bit / 8] ^= (unsigned char)(1 << bit % 8);
            assert_true(sum_of(&one, 1) != whole);
            data[bit / 8] ^= (unsigned char)(1 << bit % 8);
        }
        if (n > 0) {
            kv_tp_piece shorter = {data, n - 1};
            assert_true(sum_of(&shorter, 1) != whole);
        }
        for (int64_t at = 8; at + 8 <= n; at += 8) {
            unsigned char swapped[200];
            memcpy(swapped, data, sizeof data);
            memcpy(swapped, data + at, 8);
            memcpy(swapped + at, data, 8);
            kv_tp_piece other = {swapped, n};
            assert_true(sum_of(&other, 1) != whole);
        }
    }
    kv_tp_piece two[2] = {{data, 64}, {data + 64, 64}}, turned[2] = {{data + 64, 64}, {data, 64}};
    assert_true(sum_of(two, 2) != sum_of(turned, 2));
}

static void hash__tells_apart(void **state)
{
    (void)state;
    uint8_t a[32], b[32];
    kv_tp_hash_state s;
    kv_tp_hash_fnv.begin(&s);
    kv_tp_hash_fnv.update(&s, "abcdefgh", 8);
    kv_tp_hash_fnv.end(&s, a);
    kv_tp_hash_fnv.begin(&s);
    kv_tp_hash_fnv.update(&s, "abc", 3);
    kv_tp_hash_fnv.update(&s, "defgh", 5);
    kv_tp_hash_fnv.end(&s, b);
    assert_memory_equal(a, b, 32); /* however it is cut */
    kv_tp_hash_fnv.begin(&s);
    kv_tp_hash_fnv.update(&s, "abcdefgi", 8);
    kv_tp_hash_fnv.end(&s, b);
    for (int lane = 0; lane < 4; lane++) assert_memory_not_equal(a + 8 * lane, b + 8 * lane, 8);
}

static void choose__says_why(void **state)
{
    (void)state;
    kv_tp_place place[4] = {{"n1", "GPU-a"}, {"n1", "GPU-b"}, {"n2", "GPU-a"}, {"n2", "GPU-b"}};
    const int32_t name[4] = {4, 5, 6, 7};
    char why[KV_TP_WHY_TEXT];
    assert_true(kv_tp_choose(place, name, 4, "nccl", why));
    assert_string_equal(why, "nccl: each of the 4 ranks has a GPU of its own");
    assert_false(kv_tp_choose(place, name, 4, "none", why));
    assert_string_equal(why, "mpi: this build has no NCCL");
    memcpy(place[3].gpu, "GPU-a", 6);
    assert_false(kv_tp_choose(place, name, 4, "nccl", why));
    assert_string_equal(why, "mpi: ranks 6 and 7 share GPU GPU-a of n2");
    place[2].gpu[0] = '\0';
    assert_false(kv_tp_choose(place, name, 4, "nccl", why));
    assert_string_equal(why, "mpi: rank 6 has no GPU of its own");
}

static void mismatch(void *ctx, int32_t rank, kv_tp_transport *t, kv_device *dev, kv_rc *rc, kv_err *err)
{
    (void)ctx;
    (void)dev;
    char data[8] = {0};
    kv_tp_piece piece = {data, rank == 0 ? 4 : 8};
    kv_tp_message m = {1 - rank, 1, &piece};
    const kv_tp_batch b = {&m, &m, rank == 0, rank == 1};
    *rc = kv_tp_exchange(t, &b, err);
    if (rank == 1 && kv_tp_exchange(t, &b, NULL) != KV_EPEER) *rc = KV_EBUG; /* broken stays broken */
}

static void outcomes(void *ctx, int32_t rank, kv_tp_transport *t, kv_device *dev, kv_rc *rc, kv_err *err)
{
    (void)ctx;
    (void)dev;
    kv_rc mine = rank == 1 ? KV_FAIL(err, KV_ENOMEM, "planted") : KV_OK;
    *rc = kv_tp_agree(t, mine, err);
    if (kv_tp_agree(t, KV_OK, NULL) != KV_OK) *rc = KV_EBUG; /* and the group goes on */
}

static void local__ends_and_agrees(void **state)
{
    (void)state;
    kvt_tp_rank rank[3];
    kvt_tp_group(2, 60, rank, mismatch, NULL);
    kvt_refused(rank[1].rc, KV_EPEER, &rank[1].err, "size", KVT_SAYS("rank 0 sent 4 bytes where 8"));
    kvt_tp_group(3, 60, rank, outcomes, NULL);
    assert_int_equal(rank[1].rc, KV_ENOMEM);
    for (int r = 0; r < 3; r += 2)
        kvt_refused(rank[r].rc, KV_EPEER, &rank[r].err, "agree", KVT_SAYS("rank 1: planted"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wire__pieces_cover_once), cmocka_unit_test(wire__checksum_sees_changes),
        cmocka_unit_test(hash__tells_apart),       cmocka_unit_test(choose__says_why),
        cmocka_unit_test(local__ends_and_agrees),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
