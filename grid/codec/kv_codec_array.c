/* Raw arrays, error sums and progress of the codec commands. */
#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/kv_file.h"
#include "grid/codec/kv_codec_setup.h"
#include "kernels/kv_kern_num.h"

/* ---- arrays ----------------------------------------------------------------------------- */

static int64_t dim_of(const kv_codec_facts *f, int32_t half)
{
    return half == KV_CODEC_K ? f->geometry.head_dim : f->geometry.head_dim_v;
}

int64_t kv_codec_token_bytes(const kv_codec_facts *f, int32_t half)
{
    return f->geometry.kv_heads * dim_of(f, half) * kv_elem_bytes(f->geometry.element);
}

static int64_t layer_bytes(const kv_codec_facts *f, int32_t halves)
{
    int64_t sum = 0;
    for (int32_t h = 0; h < halves; h++)
        if (f->config.has[h]) sum += kv_codec_token_bytes(f, h) * f->geometry.tokens;
    return sum;
}

int64_t kv_codec_array_bytes(const kv_codec_facts *f)
{
    return f->geometry.layers * layer_bytes(f, KV_CODEC_HALVES);
}

int64_t kv_codec_plane_at(const kv_codec_facts *f, int32_t layer, int32_t half)
{
    return layer * layer_bytes(f, KV_CODEC_HALVES) + layer_bytes(f, half);
}

kv_rc kv_codec_array_check(const kv_codec_facts *f, kv_err *err)
{
    const kv_geometry *g = &f->geometry;
    int64_t n = 8; /* both halves, four bytes */
    if (kv_mul_i64(n, g->layers, &n) && kv_mul_i64(n, g->tokens, &n) && kv_mul_i64(n, g->kv_heads, &n) &&
        kv_mul_i64(n, KV_CODEC_DIM_MAX, &n))
        return KV_OK;
    return KV_FAIL(err, KV_EINVAL,
                   "--geometry: an array of %" PRId64 " layers x %" PRId64 " tokens does not fit 64 bits", g->layers,
                   g->tokens);
}

kv_rc kv_codec_array_open(const char *path, int64_t bytes, kv_codec_array *out, kv_err *err)
{
    struct stat st;
    FILE *f = NULL;
    kv_rc rc = kv_file_open_regular(path, &f, err);
    if (rc != KV_OK) return rc;
    if (fstat(fileno(f), &st) != 0)
        rc = KV_FAIL(err, KV_EREAD, "%s: cannot be read: %s", path, strerror(errno));
    else if ((int64_t)st.st_size != bytes)
        rc = KV_FAIL(err, KV_EFORMAT,
                     "%s: %" PRId64 " bytes, but --geometry (and --stream) ask for %" PRId64
                     "; correct them or the file",
                     path, (int64_t)st.st_size, bytes);
    if (rc == KV_OK)
        *out = (kv_codec_array){f, path};
    else
        fclose(f);
    return rc;
}

kv_rc kv_codec_array_read(kv_codec_array *a, int64_t at, void *out, int64_t bytes, kv_err *err)
{
    errno = 0;
    if (fseeko(a->f, (off_t)at, SEEK_SET) == 0 && fread(out, 1, (size_t)bytes, a->f) == (size_t)bytes) return KV_OK;
    return KV_FAIL(err, KV_EREAD, "%s: cannot be read at byte %" PRId64 ": %s", a->path, at,
                   errno != 0 ? strerror(errno) : "it ends there");
}

void kv_codec_array_close(kv_codec_array *a)
{
    if (a->f != NULL) fclose(a->f);
    a->f = NULL;
}

void kv_codec_array_values(kv_elem element, float *x, int64_t n, void *out, kv_codec_unfit *u)
{
    const float most = element == KV_ELEM_F16 ? 65504.0f : element == KV_ELEM_BF16 ? 0x1.FEp127f : FLT_MAX;
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(x[i])) {
            u->not_finite++;
        } else if (fabsf(x[i]) > most) {
            x[i] = copysignf(most, x[i]);
            u->held++;
        }
    }
    kv_num_convert_row(KV_ELEM_F32, element, x, out, (size_t)n);
}

/* ---- errors ----------------------------------------------------------------------------- */

void kv_codec_error_add(kv_codec_error *e, const float *want, const float *got, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const double x = (double)want[i], y = (double)got[i], d = y - x;
        e->off += d * d;
        e->all += x * x;
        e->back += y * y;
        e->dot += x * y;
        if (fabs(d) > e->worst) {
            e->worst = fabs(d);
            e->worst_at = e->count + i;
        }
        if (!isfinite(d)) e->not_finite = true;
    }
    e->count += n;
}

void kv_codec_error_merge(kv_codec_error *e, const kv_codec_error *more)
{
    if (more->worst > e->worst) {
        e->worst = more->worst;
        e->worst_at = e->count + more->worst_at;
    }
    e->off += more->off;
    e->all += more->all;
    e->back += more->back;
    e->dot += more->dot;
    e->count += more->count;
    e->not_finite = e->not_finite || more->not_finite;
}

double kv_codec_error_relative(const kv_codec_error *e)
{
    return !e->not_finite && e->all > 0 ? sqrt(e->off / e->all) : NAN;
}

double kv_codec_error_cosine(const kv_codec_error *e)
{
    return !e->not_finite && e->all > 0 && e->back > 0 ? e->dot / (sqrt(e->all) * sqrt(e->back)) : NAN;
}

/* ---- progress --------------------------------------------------------------------------- */

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void kv_codec_progress_start(kv_codec_progress *p, const kv_opts *o, const char *what, int64_t total)
{
    *p = (kv_codec_progress){.what = what, .total = total};
    p->off = o->progress != NULL && strcmp(o->progress, "none") == 0;
    p->terminal = isatty(STDERR_FILENO) == 1;
    p->begun = p->last = now_s();
}

void kv_codec_progress_step(kv_codec_progress *p, int64_t done)
{
    const double now = now_s(), gone = now - p->begun;
    if (p->off || done <= 0 || p->total <= 0 || now - p->last < (p->terminal ? 0.1 : 5.0)) return;
    p->last = now;
    const double share = (double)done / (double)p->total, left = gone * (1 - share) / share;
    fprintf(stderr,
            p->terminal ? "\r%s %3.0f %%  %" PRId64 "/%" PRId64 " tokens  %.0f s left\033[K"
                        : "kvgrid: %s %.0f %%, %" PRId64 " of %" PRId64 " tokens, %.0f s left\n",
            p->what, share * 100, done, p->total, left);
    if (p->terminal) fflush(stderr);
    p->drawn = p->terminal;
}

void kv_codec_progress_end(kv_codec_progress *p)
{
    if (p->drawn) fprintf(stderr, "\r\033[K");
    p->drawn = false;
}
