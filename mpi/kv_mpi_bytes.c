/* Bytes of rank 0 to all; small texts of all to rank 0. */
#include <string.h>

#include "mpi/kv_mpi_impl.h"

#define BCAST_CHUNK_BYTES ((size_t)1 << 28) /* well under INT_MAX */

static kv_rc bcast_size(kv_mpi *m, size_t n, size_t *out, kv_err *err)
{
    MPI_Request req;
    m->scratch.size = n;
    KV_MPI_MUST(m, MPI_Ibcast(&m->scratch.size, 1, MPI_UINT64_T, 0, m->comm, &req));
    const kv_rc rc = kv_mpi_wait(m, &req, "a size", err);
    *out = (size_t)m->scratch.size;
    return rc;
}

static kv_rc bcast_data(kv_mpi *m, char *data, size_t n, kv_err *err)
{
    for (size_t at = 0; at < n;) {
        const size_t k = n - at < BCAST_CHUNK_BYTES ? n - at : BCAST_CHUNK_BYTES;
        MPI_Request req;
        KV_MPI_MUST(m, MPI_Ibcast(data + at, (int)k, MPI_BYTE, 0, m->comm, &req));
        const kv_rc rc = kv_mpi_wait(m, &req, "bytes of rank 0", err);
        if (rc != KV_OK) return rc;
        at += k;
    }
    return KV_OK;
}

kv_rc kv_mpi_bcast_bytes(kv_mpi *m, kv_buf *b, kv_err *err)
{
    if (m->size == 1) return KV_OK;
    size_t n = 0;
    char *data = b->data;
    kv_rc rc = kv_mpi_usable(m, err);
    if (rc == KV_OK) rc = bcast_size(m, b->len, &n, err);
    if (rc != KV_OK) return rc;
    if (m->rank != 0) {
        data = kv_alloc(n + 1, 1);
        if (data == NULL) rc = KV_FAIL(err, KV_ENOMEM, "no memory for %zu bytes from rank 0", n);
    }
    rc = kv_mpi_agree(m, rc, err);
    if (rc == KV_OK) rc = bcast_data(m, data, n, err);
    if (m->rank == 0) return rc;
    if (rc == KV_OK)
        *b = (kv_buf){.data = data, .len = n, .cap = n + 1};
    else if (!kv_mpi_broken(m)) /* else MPI may still write there */
        kv_free(data);
    return rc;
}

/* What a gather needs; left behind when the handle breaks under it. */
typedef struct {
    int *sizes, *offsets; /* rank 0 */
    char *all, *mine;
    int n;
} gather;

static void gather_free(gather *g)
{
    if (g == NULL) return;
    kv_free(g->sizes);
    kv_free(g->offsets);
    kv_free(g->all);
    kv_free(g->mine);
    kv_free(g);
}

static kv_rc gather_new(const kv_mpi *m, const void *text, size_t n, gather **out, kv_err *err)
{
    if (n > KV_MPI_TEXT_BYTES_MAX)
        return KV_FAIL(err, KV_EINVAL, "a text of %zu bytes for rank 0, and %d is the limit", n, KV_MPI_TEXT_BYTES_MAX);
    const size_t ranks = m->rank == 0 ? (size_t)m->size : 0;
    gather *g = kv_alloc(1, sizeof *g);
    if (g == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for a gather");
    g->sizes = kv_alloc(ranks, sizeof *g->sizes);
    g->offsets = kv_alloc(ranks, sizeof *g->offsets);
    g->mine = kv_alloc(n, 1);
    g->n = (int)n;
    if (g->sizes == NULL || g->offsets == NULL || g->mine == NULL) {
        gather_free(g);
        return KV_FAIL(err, KV_ENOMEM, "no memory for a gather");
    }
    if (n > 0) memcpy(g->mine, text, n);
    *out = g;
    return KV_OK;
}

static kv_rc gather_sizes(kv_mpi *m, gather *g, kv_err *err)
{
    MPI_Request req;
    KV_MPI_MUST(m, MPI_Igather(&g->n, 1, MPI_INT, g->sizes, 1, MPI_INT, 0, m->comm, &req));
    kv_rc rc = kv_mpi_wait(m, &req, "sizes of texts", err);
    if (rc != KV_OK) return rc;
    int64_t total = 0;
    for (int r = 0; m->rank == 0 && r < m->size; r++) {
        g->offsets[r] = (int)total;
        total += g->sizes[r];
        if (total > INT32_MAX) {
            rc = KV_FAIL(err, KV_ENOMEM, "the texts of %d ranks are too large together", m->size);
            break;
        }
    }
    if (rc == KV_OK && (g->all = kv_alloc((size_t)total, 1)) == NULL)
        rc = KV_FAIL(err, KV_ENOMEM, "no memory for %lld bytes of texts", (long long)total);
    return kv_mpi_agree(m, rc, err);
}

static kv_rc gather_data(kv_mpi *m, gather *g, kv_buf *texts, kv_err *err)
{
    MPI_Request req;
    KV_MPI_MUST(m, MPI_Igatherv(g->mine, g->n, MPI_BYTE, g->all, g->sizes, g->offsets, MPI_BYTE, 0, m->comm, &req));
    kv_rc rc = kv_mpi_wait(m, &req, "texts", err);
    if (rc != KV_OK) return rc;
    for (int r = 0; m->rank == 0 && r < m->size && rc == KV_OK; r++)
        rc = kv_buf_append(&texts[r], g->all + g->offsets[r], (size_t)g->sizes[r], err);
    rc = kv_mpi_agree(m, rc, err);
    for (int r = 0; m->rank == 0 && r < m->size && rc != KV_OK; r++) kv_buf_free(&texts[r]);
    return rc;
}

kv_rc kv_mpi_gather_texts(kv_mpi *m, const void *text, size_t n, kv_buf *texts, kv_err *err)
{
    gather *g = NULL;
    kv_rc rc = kv_mpi_usable(m, err);
    if (rc != KV_OK) return rc;
    rc = kv_mpi_agree(m, gather_new(m, text, n, &g, err), err);
    if (rc == KV_OK && m->size == 1)
        rc = kv_buf_append(&texts[0], text, n, err);
    else if (rc == KV_OK) {
        rc = gather_sizes(m, g, err);
        if (rc == KV_OK) rc = gather_data(m, g, texts, err);
    }
    if (!kv_mpi_broken(m)) gather_free(g);
    return rc;
}
