/* Every planted fault: claims, headers, bytes, copies, ranks that are missing. Each is refused with its reason, on
 * every rank, in time. */
#include <stdatomic.h>
#include <time.h>

#include "tests/tp/kv_tp_test.h"

#define LIMIT_S 60 /* of a group that ends without it */

/* Every rank must end with `rc`, or with KV_EPEER where only one rank can know; the texts hold the needle. */
static void refused(kvt_tp_move *m, kv_rc want, const char *needle)
{
    static kvt_tp_rank rank[KV_TP_RANKS_MAX];
    const int32_t n = (int32_t)kv_tp_group_ranks(m->spec.tp[0], m->spec.tp[1]);
    const double begun = kv_tp_now();
    kvt_tp_group(n, LIMIT_S, rank, kvt_tp_move_rank, m);
    assert_true(kv_tp_now() - begun < LIMIT_S); /* nobody waited for it */
    for (int32_t r = 0; r < n; r++) {
        if (rank[r].rc != want) fail_msg("rank %d: %s: %s", r, kv_rc_name(rank[r].rc), rank[r].err.text);
        if (strstr(rank[r].err.text, needle) == NULL) fail_msg("rank %d: %s", r, rank[r].err.text);
    }
}

static void claims(void *ctx, kv_tp_point point, void *data)
{
    const kvt_tp_at *at = ctx;
    kv_tp_claim *c = data;
    if (point != KV_TP_AT_CLAIM) return;
    switch (at->move->spec.seed) {
    case 1:
        if (at->rank == 2) c->rank = 3;
        break;
    case 2:
        if (at->rank == 2) c->shard[0] = 1;
        break;
    case 3:
        if (at->rank == 2) c->shard[0] = -1;
        break;
    case 4:
        if (at->rank == 2) c->total_heads = 8;
        break;
    case 5:
        if (at->rank == 1 || at->rank == 2) c->shard[0] = 3 - at->rank;
        break;
    case 6:
        if (at->rank == 3) c->size[1] = 4;
        break;
    case 7:
        if (at->rank == 3) c->what ^= 1;
        break;
    case 8:
        if (at->rank == 0) c->shard[1] = 5;
        break;
    default: break;
    }
}

static void faults__claims(void **state)
{
    (void)state;
    static kvt_tp_move m;
    static const char *const says[] = {
        "rank 2 says that it is rank 3 of the group, not 2",
        "ranks 1 and 2 both hold source shard 1 of 4",
        "source shard 2 of 4 is missing: no rank holds it",
        "rank 2 has shards of 8 kv heads in all, the others of 4",
        "rank 2 holds source shard 1, which belongs on rank 1",
        "rank 3 has destination tensor-parallel size 4, the others 2",
        "rank 3 works on another cell",
        "destination shard 0 of 2 is missing",
    };
    kv_layout *l = kvt_layout("a sep k=T.H.D v=T.H.D");
    const kv_geometry g = kvt_geometry("L=1,T=5,H=4,D=6,e=f16");
    m.hook = claims;
    for (size_t i = 0; i < KVT_COUNT(says); i++) {
        m.spec = kvt_tp_spec(l, 4, l, 2, &g);
        m.spec.seed = i + 1;
        refused(&m, KV_EFORMAT, says[i]);
    }
    kv_layout_free(l);
}

static void headers(void *ctx, kv_tp_point point, void *data)
{
    const kvt_tp_at *at = ctx;
    kv_tp_header *h = data; /* rank 1 sends to rank 0 in 4 -> 2, ranks 2 and 3 to rank 1 */
    if (point != KV_TP_AT_HEADERS || at->rank != 2 || h[1].magic == 0) return;
    switch (at->move->spec.seed) {
    case 1:
        h[1].shard = 3;
        kv_tp_header_seal(&h[1]);
        break;
    case 2:
        h[1].total_heads = 8;
        kv_tp_header_seal(&h[1]);
        break;
    case 3:
        h[1].from = 0;
        kv_tp_header_seal(&h[1]);
        break;
    case 4:
        h[1].bytes /= 2;
        kv_tp_header_seal(&h[1]);
        break;
    case 5: h[1].bytes ^= 1; break;
    case 6: h[1].magic = 0; break;
    case 7: h[1].magic = 0x12345678; break;
    case 8: h[0] = h[1]; break;
    case 9:
        h[1].layer = 1;
        kv_tp_header_seal(&h[1]);
        break;
    case 10:
        h[1].size = 8;
        kv_tp_header_seal(&h[1]);
        break;
    case 11:
        h[1].first_head = 0;
        kv_tp_header_seal(&h[1]);
        break;
    case 12:
        h[1].sum ^= 1;
        kv_tp_header_seal(&h[1]);
        break;
    default: break;
    }
}

static void faults__headers(void **state)
{
    (void)state;
    static kvt_tp_move m;
    static const char *const says[] = {
        "from rank 2 to rank 1 has shard id 3, not 2",     "from rank 2 to rank 1 has total of kv heads 8, not 4",
        "from rank 2 to rank 1 has sending rank 0, not 2", "from rank 2 to rank 1 has number of bytes 60, not 120",
        "from rank 2 to rank 1 has a torn header",         "rank 2 has no message for rank 1, which needs heads 2 to 2",
        "from rank 2 to rank 1 has a torn header",         "4 messages are announced where 3 are needed",
        "from rank 2 to rank 1 has first layer 1, not 0",  "from rank 2 to rank 1 has tensor-parallel size 8, not 4",
        "from rank 2 to rank 1 has first head 0, not 2",   "bytes from rank 2 arrived changed",
    };
    kv_layout *l = kvt_layout("a sep k=T.H.D v=T.H.D");
    const kv_geometry g = kvt_geometry("L=1,T=5,H=4,D=6,e=f16");
    m.hook = headers;
    for (size_t i = 0; i < KVT_COUNT(says); i++) {
        m.spec = kvt_tp_spec(l, 4, l, 2, &g);
        m.spec.seed = i + 1;
        refused(&m, KV_EFORMAT, says[i]);
    }
    kv_layout_free(l);
}

/* One bit changes between checksum and arrival; one copy of a replicated head differs, on either side. */
static void bits(void *ctx, kv_tp_point point, void *data)
{
    const kvt_tp_at *at = ctx;
    const uint64_t which = at->move->spec.seed;
    if (which == 1 && point == KV_TP_AT_PAYLOAD && at->rank == 3) ((unsigned char *)kv_image_host_view(data))[17] ^= 4;
    if (which == 2 && point == KV_TP_AT_SOURCE && at->rank == 5) ((unsigned char *)kv_image_host_view(data))[3] ^= 64;
    if (which == 3 && point == KV_TP_AT_ARRIVED && at->rank == 6 && at->t->size == 8)
        ((unsigned char *)kv_image_host_view(data))[2] ^= 1;
}

static void faults__bytes_and_copies(void **state)
{
    (void)state;
    static kvt_tp_move m;
    kv_layout *l = kvt_layout("a sep k=T.H.D v=T.H.D");
    const kv_geometry g = kvt_geometry("L=2,T=5,H=4,D=6,e=f16");
    m.hook = bits;
    m.spec = kvt_tp_spec(l, 4, l, 2, &g);
    m.spec.seed = 1;
    refused(&m, KV_EFORMAT, "bytes from rank 3 arrived changed");
    m.spec = kvt_tp_spec(l, 8, l, 2, &g);
    m.spec.seed = 2;
    refused(&m, KV_EFORMAT, "ranks 4 and 5 hold different copies of kv head 2 (source shards, before they are sent)");
    m.spec = kvt_tp_spec(l, 2, l, 8, &g);
    m.spec.seed = 3;
    refused(&m, KV_EFORMAT, "ranks 6 and 7 hold different copies of kv head 3 (destination shards");
    kv_layout_free(l);
}

/* A rank that dies, or only sleeps, in the middle of a gather: all others end and name it, and only then does it wake. */
static atomic_int ended;

static void ends(void *ctx, int32_t rank, kv_tp_transport *t, kv_device *dev, kv_rc *rc, kv_err *err)
{
    kvt_tp_move_rank(ctx, rank, t, dev, rc, err);
    atomic_fetch_add(&ended, 1);
}

static void gone(void *ctx, kv_tp_point point, void *data)
{
    const struct timespec look = {0, 1000000};
    const kvt_tp_at *at = ctx;
    (void)data;
    if (at->rank != 2 || point != (at->move->spec.seed == 1 ? KV_TP_AT_PAYLOAD : KV_TP_AT_HEADERS)) return;
    if (at->move->spec.seed == 3) {
        kv_tp_abort(at->t, KV_EBUG, "planted");
        return;
    }
    for (int i = 0; i < 120000 && atomic_load(&ended) < 3; i++) nanosleep(&look, NULL); /* two minutes: against hangs */
}

static void faults__missing_rank(void **state)
{
    (void)state;
    static kvt_tp_move m;
    static kvt_tp_rank rank[KV_TP_RANKS_MAX];
    kv_layout *l = kvt_layout("a sep k=T.H.D v=T.H.D");
    const kv_geometry g = kvt_geometry("L=1,T=5,H=4,D=6,e=f16");
    m.hook = gone;
    for (uint64_t seed = 1; seed <= 3; seed++) {
        m.spec = kvt_tp_spec(l, 4, l, 1, &g);
        m.spec.seed = seed;
        atomic_store(&ended, 0);
        kvt_tp_group(4, seed == 3 ? LIMIT_S : 3, rank, ends, &m);
        assert_true(rank[0].rc == KV_ETIME || rank[0].rc == KV_EPEER);
        for (int r = 0; r < 4; r++) {
            assert_int_not_equal(rank[r].rc, KV_OK);
            if (r != 2 && strstr(rank[r].err.text, "rank 2") == NULL) fail_msg("rank %d: %s", r, rank[r].err.text);
        }
        if (seed == 3) assert_non_null(strstr(rank[0].err.text, "rank 2 gave up: planted"));
    }
    kv_layout_free(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(faults__claims),
        cmocka_unit_test(faults__headers),
        cmocka_unit_test(faults__bytes_and_copies),
        cmocka_unit_test(faults__missing_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
