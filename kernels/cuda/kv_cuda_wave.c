#include "kernels/cuda/kv_cuda_wave.h"

#include <inttypes.h>
#include <string.h>

#include "kernels/cuda/kv_cuda_check.h"
#include "kernels/cuda/kv_cuda_device.h"
#include "kernels/cuda/kv_cuda_list.h"
#include "kernels/kv_kern_drift.h"

/* Bytes of results that one wave holds before it must wait for them: some 500 layers, the launches of which have 25 MB of
 * arguments. */
#define RESULTS ((int64_t)2 << 20)
#define ALIGN 16

typedef struct {
    void *p;
    int64_t bytes;
} block;

typedef struct {
    kv_cuda_list list;
    block scratch; /* of the token leg */
} cell;

struct kv_cuda_wave {
    cudaStream_t stream;
    unsigned char *result; /* device, RESULTS bytes, zero from `used` on */
    unsigned char *back;   /* pinned, as many */
    int64_t used;
    kv_cuda_late *late;
    size_t n_late, late_room;
    cell *cells;
    int32_t n_cells, cells_room, at;
    block *left; /* scratch that grew: not to be used again before the wave is over */
    size_t n_left;
    kv_buf launches, arguments;
    unsigned char *arguments_pinned, *arguments_device; /* arguments_room bytes each */
    size_t arguments_room;
    bool open, failed;
    bool sent; /* launches that read their arguments may be under way */
};

/* ---- results ---------------------------------------------------------------------------- */

static int64_t first_of(const kv_cuda_result *r, int64_t native)
{
    return r->first == 0 ? -1 : native - (int64_t)r->first;
}

static kv_drift_result drift_of(const kv_cuda_result *r)
{
    kv_drift found = {1, 1, 0};
    found.preserved = !r->not_preserved;
    found.finite = !r->not_finite;
    memcpy(&found.worst, &r->worst, sizeof found.worst);
    return kv_drift_told(&found);
}

void kv_cuda_late_set(const kv_cuda_late *late, const void *back)
{
    const kv_cuda_result *r = back;
    switch (late->kind) {
    case KV_CUDA_LATE_PROBE:
        *(kv_probe_result *)late->out = (kv_probe_result){.checked = (int64_t)r->checked,
                                                          .padding = (int64_t)r->padding,
                                                          .bad = (int64_t)r->bad,
                                                          .first_bad = first_of(r, late->native),
                                                          .elements_hit = (int64_t)r->hit};
        break;
    case KV_CUDA_LATE_GUARDS:
        *(kv_guards_result *)late->out = (kv_guards_result){
            .before = (int32_t)r->checked, .after = r->hit == 0 ? -1 : KV_GUARD_BYTES - (int32_t)r->hit};
        break;
    case KV_CUDA_LATE_COMPARE:
        *(kv_compare_result *)late->out = (kv_compare_result){
            .differing = (int64_t)r->bad, .first = first_of(r, late->native), .got = r->got, .want = r->want};
        break;
    case KV_CUDA_LATE_DIFFSET:
        *(kv_diffset_result *)late->out = (kv_diffset_result){.differing = (int64_t)r->bad,
                                                              .outside_padding = (int64_t)r->hit,
                                                              .first_outside = first_of(r, late->native)};
        break;
    case KV_CUDA_LATE_DRIFT: *(kv_drift_result *)late->out = drift_of(r); break;
    case KV_CUDA_LATE_DECODE: memcpy(late->out, back, sizeof(kv_decode_result)); break;
    }
}

static int64_t bytes_of(kv_cuda_late_kind kind)
{
    const int64_t n = kind == KV_CUDA_LATE_DECODE ? (int64_t)sizeof(kv_decode_result) : (int64_t)sizeof(kv_cuda_result);
    return (n + ALIGN - 1) / ALIGN * ALIGN;
}

/* ---- sending ---------------------------------------------------------------------------- */

static void release_arguments(const kv_cuda *c, kv_cuda_wave *w)
{
    kv_cuda_give(c, w->arguments_device, (int64_t)w->arguments_room);
    if (cudaFreeHost(w->arguments_pinned) != cudaSuccess) (void)cudaGetLastError();
    w->arguments_device = w->arguments_pinned = NULL;
    w->arguments_room = 0;
}

bool kv_cuda_waves_release(const kv_cuda *c)
{
    bool any = false;
    for (int i = 0; i < KV_WAVES; i++) {
        kv_cuda_wave *w = c->wave[i];
        if (w == NULL || w->open || w->arguments_room == 0) continue;
        release_arguments(c, w);
        any = true;
    }
    return any;
}

static kv_rc arguments_room(const kv_cuda *c, kv_cuda_wave *w, size_t bytes, kv_err *err)
{
    const size_t room = bytes + bytes / 4;
    void *p = NULL;
    kv_rc rc = KV_OK;
    if (bytes <= w->arguments_room) return KV_OK;
    release_arguments(c, w);
    KV_TRY(rc, out, kv_cuda_take(c, (int64_t)room, "the arguments of a wave", &p, err));
    w->arguments_device = p;
    w->arguments_room = room;
    KV_CUDA_TRY(rc, err, out_release, cudaMallocHost(&p, room));
    w->arguments_pinned = p;
    goto out;
out_release:
    release_arguments(c, w);
out:
    return rc;
}

static kv_cuda_many *const many[KV_CUDA_KERNELS] = {
    [KV_CUDA_PROBE] = kv_cuda_many_probe,       [KV_CUDA_POISON] = kv_cuda_many_poison,
    [KV_CUDA_BUILD] = kv_cuda_many_build,       [KV_CUDA_FILL] = kv_cuda_many_fill,
    [KV_CUDA_CONVERT] = kv_cuda_many_convert,   [KV_CUDA_DIRECT] = kv_cuda_many_direct,
    [KV_CUDA_TILES] = kv_cuda_many_tiles,       [KV_CUDA_GUARDS] = kv_cuda_many_guards,
    [KV_CUDA_COMPARE] = kv_cuda_many_compare,   [KV_CUDA_FIRST] = kv_cuda_many_first,
    [KV_CUDA_DIFF_ADD] = kv_cuda_many_diff_add, [KV_CUDA_DIFF_TAKE] = kv_cuda_many_diff_take,
    [KV_CUDA_DRIFT] = kv_cuda_many_drift,       [KV_CUDA_GATHER] = kv_cuda_many_gather,
    [KV_CUDA_PROJECT] = kv_cuda_many_project,   [KV_CUDA_SCORE] = kv_cuda_many_score,
    [KV_CUDA_LARGEST] = kv_cuda_many_largest,   [KV_CUDA_WEIGH] = kv_cuda_many_weigh,
    [KV_CUDA_TOTAL] = kv_cuda_many_total,       [KV_CUDA_STEP] = kv_cuda_many_step,
};

/* Launches what is written down, if anything is. */
static kv_rc send(const kv_cuda *c, kv_cuda_wave *w, kv_err *err)
{
    const kv_cuda_on on = {.stream = w->stream, .multiprocessors = c->on.multiprocessors};
    kv_cuda_list *lists = kv_alloc((size_t)w->n_cells, sizeof *lists);
    kv_rc rc = lists != NULL ? KV_OK : KV_FAIL(err, KV_ENOMEM, "no memory for the lists of a wave");
    for (int32_t i = 0; rc == KV_OK && i < w->n_cells; i++) lists[i] = w->cells[i].list;
    if (rc == KV_OK) rc = kv_cuda_list_merge(lists, w->n_cells, &w->launches, &w->arguments, err);
    kv_free(lists);
    if (rc != KV_OK || w->launches.len == 0) return rc;
    if (w->sent) KV_CUDA_TRY(rc, err, out, cudaStreamSynchronize(w->stream));
    KV_TRY(rc, out, arguments_room(c, w, w->arguments.len, err));
    memcpy(w->arguments_pinned, w->arguments.data, w->arguments.len);
    w->sent = true;
    KV_CUDA_TRY(
        rc, err, out,
        cudaMemcpyAsync(w->arguments_device, w->arguments_pinned, w->arguments.len, cudaMemcpyHostToDevice, w->stream));
    for (size_t i = 0; i < w->launches.len / sizeof(kv_cuda_launch); i++) {
        kv_cuda_launch x;
        memcpy(&x, w->launches.data + i * sizeof x, sizeof x);
        KV_TRY(rc, out, many[x.kernel](&on, w->arguments_device + x.at, x.n, x.blocks, err));
    }
    for (int32_t i = 0; i < w->n_cells; i++) kv_cuda_list_empty(&w->cells[i].list);
out:
    return rc;
}

/* Sends, waits, and sets every result that is due. */
static kv_rc settle(const kv_cuda *c, kv_cuda_wave *w, kv_err *err)
{
    kv_rc rc;
    KV_TRY(rc, out, send(c, w, err));
    if (w->used > 0) {
        KV_CUDA_TRY(rc, err, out,
                    cudaMemcpyAsync(w->back, w->result, (size_t)w->used, cudaMemcpyDeviceToHost, w->stream));
        KV_CUDA_TRY(rc, err, out, cudaMemsetAsync(w->result, 0, (size_t)w->used, w->stream));
    }
    KV_CUDA_TRY(rc, err, out, cudaStreamSynchronize(w->stream));
    w->sent = false;
    for (size_t i = 0; i < w->n_late; i++) kv_cuda_late_set(&w->late[i], w->back + (w->late[i].at - w->result));
    w->n_late = 0;
    w->used = 0;
out:
    if (rc != KV_OK) w->failed = true;
    return rc;
}

kv_rc kv_cuda_wave_settle(kv_cuda *c, kv_err *err)
{
    return settle(c, c->at, err);
}

/* ---- what operations ask for ------------------------------------------------------------ */

kv_rc kv_cuda_result_room(kv_cuda *c, kv_cuda_late_kind kind, unsigned char **at, kv_err *err)
{
    kv_cuda_wave *w = c->at;
    kv_rc rc = KV_OK;
    if (w == NULL) {
        *at = (unsigned char *)(kind == KV_CUDA_LATE_DECODE ? (void *)&c->result->decode : (void *)&c->result->checks);
        if (kind != KV_CUDA_LATE_DECODE)
            KV_CUDA_TRY(rc, err, out, cudaMemsetAsync(*at, 0, sizeof c->result->checks, c->on.stream));
        goto out;
    }
    if (w->used > RESULTS - bytes_of(kind)) KV_TRY(rc, out, settle(c, w, err));
    *at = w->result + w->used;
    w->used += bytes_of(kind);
out:
    return rc;
}

kv_rc kv_cuda_result_queued(kv_cuda *c, const kv_cuda_late *late, kv_err *err)
{
    kv_cuda_wave *w = c->at;
    kv_rc rc = KV_OK;
    if (w == NULL) {
        void *back = late->kind == KV_CUDA_LATE_DECODE ? (void *)&c->back->decode : (void *)&c->back->checks;
        const size_t bytes = late->kind == KV_CUDA_LATE_DECODE ? sizeof c->back->decode : sizeof c->back->checks;
        KV_CUDA_TRY(rc, err, out, cudaMemcpyAsync(back, late->at, bytes, cudaMemcpyDeviceToHost, c->on.stream));
        KV_TRY(rc, out, kv_cuda_wait(c, err));
        kv_cuda_late_set(late, back);
        goto out;
    }
    if (w->n_late == w->late_room) {
        const size_t room = w->late_room > 0 ? 2 * w->late_room : 256;
        kv_cuda_late *grown = kv_realloc(w->late, room, sizeof *grown);
        if (grown == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for the results of a wave");
        w->late = grown;
        w->late_room = room;
    }
    w->late[w->n_late++] = *late;
out:
    return rc;
}

/* Keeps the cell's scratch until the wave is over. */
static kv_rc put_aside(kv_cuda_wave *w, block *scratch, kv_err *err)
{
    if (scratch->p == NULL) return KV_OK;
    block *grown = kv_realloc(w->left, w->n_left + 1, sizeof *grown);
    if (grown == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for the scratch of a wave");
    w->left = grown;
    w->left[w->n_left++] = *scratch;
    *scratch = (block){NULL, 0};
    return KV_OK;
}

kv_rc kv_cuda_scratch(kv_cuda *c, int64_t floats, float **out, kv_err *err)
{
    block *scratch = c->at != NULL ? &c->at->cells[c->at->at].scratch : NULL;
    int64_t bytes = 0;
    void *p = NULL;
    kv_rc rc = KV_OK;
    if (!kv_mul_i64(floats, (int64_t)sizeof(float), &bytes))
        return KV_FAIL(err, KV_ENOMEM, "token leg: %" PRId64 " floats of scratch", floats);
    if (scratch == NULL) {
        kv_cuda_scratch_done(c);
        KV_TRY(rc, out, kv_cuda_take(c, bytes, "the token leg's scratch", &p, err));
        c->work = p;
        c->work_bytes = bytes;
        *out = c->work;
    } else {
        if (scratch->bytes < bytes) {
            KV_TRY(rc, out, put_aside(c->at, scratch, err));
            KV_TRY(rc, out, kv_cuda_take(c, bytes, "the token leg's scratch", &p, err));
            *scratch = (block){p, bytes};
        }
        *out = scratch->p;
    }
out:
    return rc;
}

void kv_cuda_scratch_done(kv_cuda *c)
{
    kv_cuda_give(c, c->work, c->work_bytes); /* what is queued stands before whatever takes it */
    c->work = NULL;
    c->work_bytes = 0;
}

/* ---- the table's ------------------------------------------------------------------------ */

static kv_rc make(kv_cuda *c, kv_cuda_wave **out, kv_err *err)
{
    kv_cuda_wave *w = kv_alloc(1, sizeof *w);
    void *p = NULL;
    kv_rc rc = KV_OK;
    if (w == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for a wave");
    *out = w; /* what there is of it is freed with the device */
    KV_CUDA_TRY(rc, err, out, cudaStreamCreateWithFlags(&w->stream, cudaStreamNonBlocking));
    KV_TRY(rc, out, kv_cuda_take(c, RESULTS, "the results of a wave", &p, err));
    w->result = p;
    KV_CUDA_TRY(rc, err, out, cudaMallocHost(&p, (size_t)RESULTS));
    w->back = p;
    w->failed = true; /* so that its results are emptied */
out:
    return rc;
}

static void destroy(const kv_cuda *c, kv_cuda_wave *w)
{
    if (w == NULL) return;
    for (int32_t i = 0; i < w->cells_room; i++) kv_cuda_list_free(&w->cells[i].list);
    release_arguments(c, w);
    (void)cudaFreeHost(w->back);
    kv_cuda_give(c, w->result, RESULTS);
    if (w->stream != NULL) (void)cudaStreamDestroy(w->stream);
    (void)cudaGetLastError();
    kv_buf_free(&w->launches);
    kv_buf_free(&w->arguments);
    kv_free(w->left);
    kv_free(w->late);
    kv_free(w->cells);
    kv_free(w);
}

static kv_rc room_for_cells(kv_cuda_wave *w, int32_t cells, kv_err *err)
{
    if (cells > w->cells_room) {
        cell *grown = kv_realloc(w->cells, (size_t)cells, sizeof *grown);
        if (grown == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for a wave of %d cells", cells);
        memset(&grown[w->cells_room], 0, (size_t)(cells - w->cells_room) * sizeof *grown);
        w->cells = grown;
        w->cells_room = cells;
    }
    w->n_cells = cells;
    return KV_OK;
}

kv_rc kv_cuda_wave_open(kv_device *d, int32_t wave, int32_t cells, kv_err *err)
{
    kv_cuda *c = (kv_cuda *)(void *)d;
    kv_rc rc;
    if (wave < 0 || wave >= KV_WAVES || cells < 1 || cells > KV_WAVE_CELLS ||
        (c->wave[wave] != NULL && c->wave[wave]->open))
        return KV_FAIL(err, KV_EBUG, "wave %d of %d cells", wave, cells);
    KV_TRY(rc, out, kv_cuda_enter(c, err));
    KV_TRY(rc, out, kv_cuda_wait(c, err)); /* memory that plain operations gave back may still be worked on */
    if (c->wave[wave] == NULL || c->wave[wave]->back == NULL) {
        destroy(c, c->wave[wave]);
        c->wave[wave] = NULL;
        KV_TRY(rc, out, make(c, &c->wave[wave], err));
    }
    kv_cuda_wave *w = c->wave[wave];
    KV_TRY(rc, out, room_for_cells(w, cells, err));
    if (w->failed) KV_CUDA_TRY(rc, err, out, cudaMemsetAsync(w->result, 0, (size_t)RESULTS, w->stream));
    w->failed = w->sent = false;
    w->open = true;
out:
    return rc;
}

void kv_cuda_wave_cell(kv_device *d, int32_t wave, int32_t at)
{
    kv_cuda *c = (kv_cuda *)(void *)d;
    c->at = wave >= 0 ? c->wave[wave] : NULL;
    c->on.stream = c->stream;
    c->on.list = NULL;
    if (c->at == NULL) return;
    c->at->at = at;
    c->on.stream = c->at->stream;
    if (c->at->n_cells > 1) c->on.list = &c->at->cells[at].list;
}

kv_rc kv_cuda_wave_send(kv_device *d, int32_t wave, kv_err *err)
{
    kv_cuda *c = (kv_cuda *)(void *)d;
    kv_cuda_wave *w = c->wave[wave];
    kv_rc rc;
    kv_cuda_wave_cell(d, -1, 0);
    if (w->failed) return KV_FAIL(err, KV_EDEVICE, "GPU: a part of the wave could not be queued");
    KV_TRY(rc, out, kv_cuda_enter(c, err));
    rc = send(c, w, err);
out:
    if (rc != KV_OK) w->failed = true;
    return rc;
}

kv_rc kv_cuda_wave_wait(kv_device *d, int32_t wave, kv_err *err)
{
    kv_cuda *c = (kv_cuda *)(void *)d;
    kv_cuda_wave *w = wave >= 0 && wave < KV_WAVES ? c->wave[wave] : NULL;
    kv_rc rc;
    if (w == NULL || !w->open) return KV_FAIL(err, KV_EBUG, "wave %d is not open", wave);
    kv_cuda_wave_cell(d, -1, 0);
    rc = kv_cuda_enter(c, err);
    if (rc == KV_OK && w->failed) rc = KV_FAIL(err, KV_EDEVICE, "GPU: a part of the wave could not be queued");
    if (rc == KV_OK) rc = settle(c, w, err);
    if (rc != KV_OK) {
        w->failed = true;
        if (cudaStreamSynchronize(w->stream) != cudaSuccess) (void)cudaGetLastError();
        w->n_late = 0;
        w->used = 0;
    }
    for (int32_t i = 0; i < w->n_cells; i++) {
        kv_cuda_list_empty(&w->cells[i].list);
        kv_cuda_give(c, w->cells[i].scratch.p, w->cells[i].scratch.bytes);
        w->cells[i].scratch = (block){NULL, 0};
    }
    for (size_t i = 0; i < w->n_left; i++) kv_cuda_give(c, w->left[i].p, w->left[i].bytes);
    w->n_left = 0;
    w->open = false;
    return rc;
}

void kv_cuda_waves_close(kv_cuda *c)
{
    for (int i = 0; i < KV_WAVES; i++) {
        destroy(c, c->wave[i]);
        c->wave[i] = NULL;
    }
}
