#include "grid/run/kv_gpu.h"

#include <stdio.h>
#include <string.h>

static bool is(const char *kind, const char *what)
{
    return kind != NULL && strcmp(kind, what) == 0;
}

/* The GPU that this rank would take; *ordinal is -1 where it is the CPU. */
static kv_rc pick(const kv_mpi *m, const char *kind, int *ordinal, kv_cuda_gpu *gpu, kv_err *err)
{
    kv_err why = {0};
    int count = 0;
    *ordinal = -1;
    if (is(kind, "cpu")) return KV_OK;
    const kv_rc rc = kv_cuda_count(&count, &why);
    if (rc != KV_OK && is(kind, "cuda")) return KV_FAIL(err, KV_EDEVICE, "--device cuda: %s", why.text);
    if (rc != KV_OK) {
        if (rc != KV_EUNSUP && kv_mpi_host_rank(m) == 0) /* there is one, and it cannot be used */
            fprintf(stderr, "kvgrid: %s: computing on the CPU: %s\n", kv_mpi_host_view(m, kv_mpi_rank(m)), why.text);
        return KV_OK;
    }
    *ordinal = kv_mpi_host_rank(m) % count;
    return kv_cuda_describe(*ordinal, gpu, err);
}

/* Rank 0: uuids[r] is what rank r would take, empty on a CPU. */
static kv_rc nobody_shares(const kv_mpi *m, const kv_buf *uuids, kv_err *err)
{
    for (int b = 1; b < kv_mpi_size(m); b++)
        for (int a = 0; a < b && uuids[b].len > 0; a++)
            if (uuids[a].len == uuids[b].len && memcmp(uuids[a].data, uuids[b].data, uuids[a].len) == 0 &&
                strcmp(kv_mpi_host_view(m, a), kv_mpi_host_view(m, b)) == 0)
                return KV_FAIL(err, KV_EDEVICE,
                               "ranks %d and %d on %s would share %.*s: start one rank for each GPU there, or allow it "
                               "with --share-gpu, or use --device cpu",
                               a, b, kv_mpi_host_view(m, a), (int)uuids[a].len, uuids[a].data);
    return KV_OK;
}

/* Rank 0: how many ranks take the GPU of rank r, itself too. */
static int32_t sharers(const kv_mpi *m, const kv_buf *uuids, int r)
{
    int32_t n = 1;
    for (int a = 0; uuids[r].len > 0 && a < kv_mpi_size(m); a++)
        n += a != r && uuids[a].len == uuids[r].len && memcmp(uuids[a].data, uuids[r].data, uuids[r].len) == 0 &&
             strcmp(kv_mpi_host_view(m, a), kv_mpi_host_view(m, r)) == 0;
    return n;
}

static kv_rc count_sharers(const kv_mpi *m, const kv_buf *uuids, kv_buf *counts, kv_err *err)
{
    kv_rc rc = KV_OK;
    for (int r = 0; rc == KV_OK && r < kv_mpi_size(m); r++) {
        const int32_t n = sharers(m, uuids, r);
        rc = kv_buf_append(counts, &n, sizeof n, err);
    }
    return rc;
}

/* Whether ranks share a GPU, and with how many others this one does. */
static kv_rc check_shares(kv_mpi *m, const kv_cuda_gpu *gpu, bool share, int *ranks, kv_err *err)
{
    const int size = kv_mpi_size(m);
    const bool root = kv_mpi_rank(m) == 0;
    kv_buf counts = {0};
    kv_buf *uuids = root ? kv_alloc((size_t)size, sizeof *uuids) : NULL;
    kv_rc rc = root && uuids == NULL ? KV_FAIL(err, KV_ENOMEM, "no memory for the GPUs of %d ranks", size) : KV_OK;
    KV_TRY(rc, out, kv_mpi_agree(m, rc, err));
    KV_TRY(rc, out, kv_mpi_gather_texts(m, gpu->uuid, strlen(gpu->uuid), uuids, err));
    if (root && !share) rc = nobody_shares(m, uuids, err);
    if (root && rc == KV_OK) rc = count_sharers(m, uuids, &counts, err);
    KV_TRY(rc, out, kv_mpi_agree(m, rc, err));
    KV_TRY(rc, out, kv_mpi_bcast_bytes(m, &counts, err));
    int32_t n = 1;
    memcpy(&n, counts.data + (size_t)kv_mpi_rank(m) * sizeof n, sizeof n);
    *ranks = n;
out:
    kv_buf_free(&counts);
    for (int r = 0; uuids != NULL && r < size; r++) kv_buf_free(&uuids[r]);
    kv_free(uuids);
    return rc;
}

/* Once all ranks have opened theirs: what is free then is for all that share it. */
static kv_rc find_memory(const kv_mpi *m, kv_chosen *on, kv_err *err)
{
    kv_memory *y = &on->memory;
    kv_rc rc = KV_OK;
    y->host = kv_memory_of_host("");
    y->host_ranks = kv_mpi_host_size(m);
    if (on->ordinal < 0) return KV_OK;
    y->gpu = on->gpu;
    KV_TRY(rc, out, kv_cuda_free_memory(on->dev, &y->gpu_bytes, err));
    y->gpu_bytes = y->gpu_bytes / y->gpu_ranks > 0 ? y->gpu_bytes / y->gpu_ranks : 1;
    kv_cuda_keep_at_most(on->dev, y->gpu_bytes / KV_MEMORY_KEPT_PART);
out:
    return rc;
}

kv_rc kv_gpu_choose(kv_mpi *m, const char *kind, bool share, kv_chosen *out, kv_err *err)
{
    int ordinal = -1;
    kv_rc rc;
    memset(out, 0, sizeof *out);
    rc = pick(m, kind, &ordinal, &out->gpu, err);
    KV_TRY(rc, out, kv_mpi_agree(m, rc, err));
    KV_TRY(rc, out, check_shares(m, &out->gpu, share, &out->memory.gpu_ranks, err));
    out->ordinal = ordinal;
    rc = ordinal < 0 ? kv_device_cpu_new(&out->dev, err) : kv_device_cuda_new(ordinal, &out->dev, err);
    KV_TRY(rc, out, kv_mpi_agree(m, rc, err));
    rc = kv_mpi_agree(m, find_memory(m, out, err), err);
out:
    if (rc != KV_OK && out->dev != NULL) {
        out->dev->ops->close(out->dev);
        out->dev = NULL;
    }
    return rc;
}
