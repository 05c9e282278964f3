/* Real ranks under mpirun, for tp_ranks.sh:  tp_ranks STORY TRANSPORT DEVICE [TIMEOUT_S]
 *   TRANSPORT mpi, nccl (emulated); DEVICE cpu, gpu (emulated memory)
 * Each rank prints what it met; every cell of `matrix` is a line that must be the same for any transport, device and
 * number of ranks. Exit 0 if all went well, else 5 after the other ranks have spoken too. */
#include <inttypes.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "layouts/kv_layout.h"
#include "tests/kv_test_marks.h"
#include "tests/tp/kv_tp_gpu.h"
#include "tp/kv_tp.h"
#include "tp/kv_tp_move.h"
#include "tp/kv_tp_shard_index.h"

typedef struct {
    const char *story;
    bool nccl;
    double timeout_s;
    kv_tp_world *world;
    kv_tp_transport *control[9], *t[9]; /* by size of the group */
    kv_device *dev;
    kvt_gpu gpu;
    kv_catalogue layouts;
    int rank, size, at; /* at: hooks met */
    kv_err err;
} program;

static const char *const lossless[] = {"vllm-fa",          "vllm-paged-x", "trtllm",         "sglang",
                                       "hf-dynamic-cache", "llamacpp",     "flashinfer-nhd", "lmdeploy-turbomind"};

/* The group of the first n ranks; NULL in *t for others. */
static kv_rc group(program *p, int n, kv_tp_transport **t)
{
    const int32_t ranks[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    kv_rc rc = KV_OK;
    *t = NULL;
    if (p->rank >= n) return KV_OK;
    if (p->t[n] == NULL) {
        KV_TRY(rc, out, kv_tp_mpi_new(p->world, ranks, n, p->timeout_s, &p->control[n], &p->err));
        p->t[n] = p->control[n];
        if (p->nccl) {
            p->t[n] = NULL;
            KV_TRY(rc, out, kv_tp_nccl_new(p->control[n], p->rank, p->timeout_s, &p->t[n], &p->err));
        }
    }
    *t = p->t[n];
out:
    return rc;
}

/* ---- matrix ------------------------------------------------------------------------------ */

static uint64_t digest_of(const void *bytes, size_t n)
{
    uint64_t h = 0xCBF29CE484222325ULL;
    for (size_t i = 0; i < n; i++) h = (h ^ ((const unsigned char *)bytes)[i]) * 0x100000001B3ULL;
    return h;
}

/* Until every other rank has ended and said why. */
static void oversleep(const program *p)
{
    for (int r = 0; r < p->size; r++)
        if (r != p->rank && !kvt_await_mark("said", r)) printf("rank=%d never ended\n", r);
}

static void spoil(void *ctx, kv_tp_point point, void *data)
{
    program *p = ctx;
    (void)data;
    if (p->rank != 2 || point != KV_TP_AT_PAYLOAD || p->at++ != 1) return;
    if (strcmp(p->story, "kill") == 0) raise(SIGKILL);
    if (strcmp(p->story, "sleep") == 0) oversleep(p);
}

static kv_rc cell(program *p, int64_t heads, int64_t a, int64_t b, int number)
{
    const kv_geometry g = {2, 37, heads, 8, 8, number % 3 == 1 ? KV_ELEM_BF16 : KV_ELEM_F16};
    const int pair = number % 64;
    kv_tp_result r;
    kv_tp_transport *t = NULL;
    kv_rc rc = group(p, (int)kv_tp_group_ranks(a, b), &t);
    if (rc != KV_OK || t == NULL) return rc;
    const kv_tp_spec s = {.transport = t,
                          .device = p->dev,
                          .layout = {kv_catalogue_find(&p->layouts, lossless[pair / 8]),
                                     kv_catalogue_find(&p->layouts, lossless[(pair + pair / 8) % 8])},
                          .tp = {a, b},
                          .g = &g,
                          .seed = 7,
                          .stale = 0x5640,
                          .fill = {0x3555, 0x3555},
                          .payloads = 2,
                          .hook = spoil,
                          .hook_ctx = p};
    KV_TRY(rc, out, kv_tp_move(&s, &r, &p->err));
    const bool well = r.observed[0] == 1 && r.observed[2] == 1 && r.observed[3] == 1 && r.minimal && r.gather_agrees;
    if (p->rank == 0)
        printf("cell H=%d %s/%d->%s/%d %s sent=%" PRId64 ",%" PRId64 " %016" PRIx64 "\n", (int)heads, s.layout[0]->name,
               (int)a, s.layout[1]->name, (int)b, well ? "exact" : "WRONG", r.sent_total[0], r.sent_total[1],
               digest_of(&r, sizeof r));
    if (!well) rc = KV_FAIL(&p->err, KV_EBUG, "a cell is not exact");
out:
    return rc;
}

static kv_rc matrix(program *p)
{
    static const int64_t all_heads[] = {1, 2, 3, 4, 8, 12}, sizes[] = {1, 2, 3, 4, 8};
    int number = 0;
    for (int i = 0; i < 6; i++)
        for (int a = 0; a < 5; a++)
            for (int b = 0; b < 5; b++) {
                if (!kv_tp_shard_exists(all_heads[i], sizes[a]) || !kv_tp_shard_exists(all_heads[i], sizes[b]))
                    continue;
                const int mine = number++;
                if (kv_tp_group_ranks(sizes[a], sizes[b]) > p->size) continue;
                const kv_rc rc = cell(p, all_heads[i], sizes[a], sizes[b], mine);
                if (rc != KV_OK) return rc;
            }
    return KV_OK;
}

/* A gather of all ranks, for stories in which something goes wrong. */
static kv_rc gather(program *p)
{
    kv_rc rc = KV_OK;
    for (int i = 0; i < 3 && rc == KV_OK; i++) rc = cell(p, 8, p->size, 1, i);
    return rc;
}

/* ---- other stories ----------------------------------------------------------------------- */

/* One large message in many parts, both ways at once. */
static kv_rc parts(program *p)
{
    const int64_t bytes = 1000003;
    kv_tp_transport *t = NULL;
    unsigned char *out = malloc((size_t)bytes), *in = malloc((size_t)bytes);
    kv_rc rc = group(p, 2, &t);
    if (rc != KV_OK || t == NULL) goto done;
    kv_tp_mpi_part_bytes(t, 4099);
    for (int64_t i = 0; i < bytes; i++) out[i] = (unsigned char)(i * 31 + i / 251 + p->rank);
    kv_tp_piece send[3] = {{out, 7}, {out + 7, 0}, {out + 7, bytes - 7}},
                recv[3] = {{in, 7}, {in, 0}, {in + 7, bytes - 7}};
    kv_tp_message s = {1 - p->rank, 3, send}, r = {1 - p->rank, 3, recv};
    const kv_tp_batch b = {&s, &r, 1, 1};
    rc = kv_tp_exchange(t, &b, &p->err);
    for (int64_t i = 0; rc == KV_OK && i < bytes; i++)
        if (in[i] != (unsigned char)(i * 31 + i / 251 + 1 - p->rank)) rc = KV_FAIL(&p->err, KV_EBUG, "byte %d", (int)i);
    /* again, in two flights that are open at the same time */
    memset(in, 0, (size_t)bytes);
    kv_tp_message half_out[2] = {{1 - p->rank, 1, &send[0]}, {1 - p->rank, 1, &send[2]}},
                  half_in[2] = {{1 - p->rank, 1, &recv[0]}, {1 - p->rank, 1, &recv[2]}};
    kv_tp_flight flight[2] = {{.open = false}};
    for (int i = 0; rc == KV_OK && i < 2; i++) {
        const kv_tp_batch half = {&half_out[i], &half_in[i], 1, 1};
        rc = kv_tp_begin(t, &half, &flight[i], &p->err);
    }
    for (int i = 0; rc == KV_OK && i < 2; i++) rc = kv_tp_end(t, &flight[i], &p->err);
    for (int64_t i = 0; rc == KV_OK && i < bytes; i++)
        if (in[i] != (unsigned char)(i * 31 + i / 251 + 1 - p->rank)) rc = KV_FAIL(&p->err, KV_EBUG, "byte %d", (int)i);
    if (rc == KV_OK && t->sent_bytes != 2 * bytes) rc = KV_FAIL(&p->err, KV_EBUG, "bytes are not counted");
    if (rc == KV_OK) printf("parts rank=%d well\n", p->rank);
done:
    free(out);
    free(in);
    return rc;
}

static kv_rc choose(program *p)
{
    kv_tp_transport *t = NULL;
    kv_tp_place place = {"node", ""};
    char why[KV_TP_WHY_TEXT];
    bool nccl = false;
    kv_rc rc = group(p, p->size, &t);
    for (int i = 0; rc == KV_OK && i < 2; i++) {
        snprintf(place.gpu, sizeof place.gpu, "GPU-%d", p->rank);
        if (i == 0 && p->rank == 2) place.gpu[0] = '\0';
        rc = kv_tp_choose_shared(t, &place, &nccl, why, &p->err);
        if (rc == KV_OK) printf("choose rank=%d %d %s\n", p->rank, nccl, why);
    }
    return rc;
}

static kv_rc pipeline(program *p)
{
    const int64_t a0[] = {0, 1, 2}, a1[] = {5, 3, 4}, b0[] = {1, 0}, b1[] = {3, 2}, b2[] = {4, 5};
    const kv_tp_stage src[] = {{a0, 3}, {a1, 3}}, dst[] = {{b0, 2}, {b1, 2}, {b2, 2}};
    const kv_geometry g = {6, 9, 2, 8, 8, KV_ELEM_F16};
    kv_tp_result r;
    kv_tp_transport *t = NULL;
    kv_rc rc = group(p, 3, &t);
    if (rc != KV_OK || t == NULL) return rc;
    const kv_tp_spec s = {
        .transport = t,
        .device = p->dev,
        .layout = {kv_catalogue_find(&p->layouts, "vllm-fa"), kv_catalogue_find(&p->layouts, "llamacpp")},
        .g = &g,
        .seed = 3,
        .tp = {1, 1},
        .payloads = 2,
        .stale = 0x5640,
        .fill = {0x3555, 0x3555},
        .stage = {src, dst},
        .n_stages = {2, 3}};
    rc = kv_tp_move(&s, &r, &p->err);
    if (rc == KV_OK)
        printf("pipe rank=%d forward=%d moved=%d sent=%d\n", p->rank,
               r.observed[KV_TP_FORWARD] && r.observed[KV_TP_TOKENS] && r.minimal, (int)r.moved, (int)r.sent_total[0]);
    return rc;
}

static kv_rc speed(program *p)
{
    const kv_geometry g = {16, 2048, 8, 128, 128, KV_ELEM_F16};
    kv_tp_transport *t = NULL;
    kv_rc rc = group(p, 2, &t);
    for (int i = 0; rc == KV_OK && t != NULL && i < 8; i++) {
        kv_tp_speed v;
        const kv_tp_spec s = {.transport = t,
                              .device = p->dev,
                              .layout = {kv_catalogue_find(&p->layouts, lossless[i]),
                                         kv_catalogue_find(&p->layouts, lossless[(i + 3) % 8])},
                              .tp = {1, 1},
                              .g = &g};
        rc = kv_tp_bench(&s, 7, &v, &p->err);
        if (rc == KV_OK && p->rank == 0)
            printf("bench %s->%s units=%d of %.1f MB pack/copy=%.2f unpack/copy=%.2f sum/copy=%.2f move/plain=%.2f "
                   "copy=%.1fGB/s plain=%.1fGB/s\n",
                   s.layout[0]->name, s.layout[1]->name, (int)v.units, 1e-6 * (double)v.bytes, v.copy_s / v.pack_s,
                   v.copy_s / v.unpack_s, v.copy_s / v.sum_s, v.plain_s / v.move_s, 1e-9 * (double)v.bytes / v.copy_s,
                   1e-9 * (double)(v.bytes * v.units) / v.plain_s);
    }
    return rc;
}

/* A rank that never comes: the others stop waiting. */
static kv_rc absent(program *p)
{
    if (p->rank == 2) oversleep(p);
    return gather(p);
}

/* ---- the program ------------------------------------------------------------------------- */

static kv_rc open_program(program *p, const char *device)
{
    kv_rc rc;
    MPI_Comm_rank(MPI_COMM_WORLD, &p->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &p->size);
    KV_TRY(rc, out, kv_tp_world_new(20, &p->world, &p->err));
    KV_TRY(rc, out,
           strcmp(device, "gpu") == 0 ? kvt_gpu_new(&p->gpu, &p->dev, &p->err) : kv_device_cpu_new(&p->dev, &p->err));
    KV_TRY(rc, out, kv_catalogue_load(&p->layouts, KV_SOURCE_DIR "/layouts/published", &p->err));
out:
    return rc;
}

static void close_program(program *p)
{
    for (int n = 1; n <= 8; n++) {
        if (p->t[n] != p->control[n]) kv_tp_close(p->t[n]);
        kv_tp_close(p->control[n]);
    }
    kv_catalogue_free(&p->layouts);
    if (p->dev != NULL) p->dev->ops->close(p->dev);
    kv_tp_world_free(p->world);
}

static kv_rc run(program *p)
{
    static const struct {
        const char *story;
        kv_rc (*run)(program *);
    } all[] = {{"matrix", matrix}, {"gather", gather}, {"kill", gather},   {"sleep", gather}, {"absent", absent},
               {"parts", parts},   {"choose", choose}, {"pipe", pipeline}, {"bench", speed}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (strcmp(p->story, all[i].story) == 0) return all[i].run(p);
    return KV_FAIL(&p->err, KV_EINVAL, "there is no story %s", p->story);
}

int main(int argc, char **argv)
{
    static program p;
    if (argc < 4) return 2;
    p.story = argv[1];
    p.nccl = strcmp(argv[2], "nccl") == 0;
    p.timeout_s = argc > 4 ? strtod(argv[4], NULL) : 20;
    MPI_Init(NULL, NULL);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    const double begun = kv_tp_now();
    kv_rc rc = open_program(&p, argv[3]);
    if (rc == KV_OK) rc = run(&p);
    if (rc != KV_OK) {
        printf("rank=%d rc=%s after %.0f s: %s\n", p.rank, kv_rc_name(rc), kv_tp_now() - begun, p.err.text);
        fflush(stdout);
        kvt_mark("said", p.rank);
        for (int r = 0; r < p.size; r++) /* the launcher ends the others when the first one goes */
            (void)kvt_await_mark("said", r);
        MPI_Abort(MPI_COMM_WORLD, 5);
    }
    close_program(&p);
    MPI_Finalize();
    return 0;
}
