#include "grid/codec/kv_codec_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/kv_file.h"
#include "base/kv_out.h"
#include "certs/kv_json.h"

#define HEADER_MAX ((size_t)64 << 20)
#define FRONT 16 /* magic and length */

static void put_length(uint8_t out[FRONT], uint64_t n)
{
    memcpy(out, KV_CODEC_FILE_MAGIC, 8);
    for (int i = 0; i < 8; i++) out[8 + i] = (uint8_t)(n >> (8 * i));
}

/* ---- writing ---------------------------------------------------------------------------- */

struct kv_codec_writer {
    const kv_codec_facts *f;
    kv_out *out;
    kv_hash hash;
    int64_t planes; /* written */
};

static void write_bytes(kv_codec_writer *w, const void *bytes, size_t n)
{
    kv_hash_update(&w->hash, bytes, n);
    kv_out_bytes(w->out, bytes, n);
}

kv_rc kv_codec_writer_open(const char *path, const kv_codec_facts *f, kv_codec_writer **out, kv_err *err)
{
    kv_buf text = {0};
    uint8_t front[FRONT];
    json_t *header = kv_codec_facts_json_new(f);
    kv_codec_writer *w = kv_alloc_image(sizeof *w);
    kv_rc rc;
    if (header == NULL || w == NULL) {
        rc = KV_FAIL(err, KV_ENOMEM, "no memory to write %s", path);
        goto out;
    }
    memset(w, 0, sizeof *w);
    KV_TRY(rc, out, kv_json_write(header, &text, err));
    KV_TRY(rc, out, kv_out_open(path, &w->out, err));
    w->f = f;
    kv_hash_init(&w->hash);
    put_length(front, text.len);
    write_bytes(w, front, sizeof front);
    write_bytes(w, text.data, text.len);
    *out = w;
    w = NULL;
out:
    kv_free(w);
    kv_buf_free(&text);
    json_decref(header);
    return rc;
}

/* Number of a plane in the file. */
static int64_t number_of(const kv_codec_facts *f, int32_t layer, int32_t half)
{
    const int64_t halves = f->config.has[0] + f->config.has[1];
    return layer * halves + (half == KV_CODEC_V && f->config.has[KV_CODEC_K]);
}

kv_rc kv_codec_writer_plane(kv_codec_writer *w, const kv_codec_stream *s, uint64_t sequence, int32_t layer,
                            int32_t half, kv_err *err)
{
    const kv_codec_half_config *h = &w->f->config.half[half];
    const int64_t row = h->slot.params.dim * kv_elem_bytes(w->f->geometry.element);
    const int64_t lanes = w->f->geometry.tokens > 0 ? kv_codec_lanes(h, w->f->config.heads) : 0;
    int64_t want, wrote = 0;
    kv_codec_lane_view v;
    kv_rc rc = kv_codec_facts_plane(w->f, layer, half, &want, err);
    for (int tails = 0; rc == KV_OK && tails < 2; tails++)
        for (int64_t i = 0; rc == KV_OK && i < lanes; i++) {
            rc = kv_codec_stream_lane(s, sequence, layer, half, i, &v, err);
            if (rc != KV_OK) break;
            const int64_t n = tails ? v.tail_rows * row : v.sealed_bytes;
            write_bytes(w, tails ? v.tail : v.sealed, (size_t)n);
            wrote += n;
        }
    if (rc == KV_OK && (wrote != want || number_of(w->f, layer, half) != w->planes))
        rc = KV_FAIL(err, KV_EBUG, "layer %d, %s: %" PRId64 " bytes as plane %" PRId64 ", %" PRId64 " were expected",
                     layer, kv_codec_half_name(half), wrote, w->planes, want);
    w->planes++;
    return rc;
}

kv_rc kv_codec_writer_close(kv_codec_writer *w, kv_rc rc, kv_err *err)
{
    if (w == NULL) return rc;
    uint8_t digest[KV_HASH_BYTES];
    if (rc == KV_OK && w->planes != number_of(w->f, w->f->config.layers, w->f->config.has[0] ? 0 : 1))
        rc = KV_FAIL(err, KV_EBUG, "only %" PRId64 " planes were written", w->planes);
    kv_hash_final(&w->hash, digest);
    kv_out_bytes(w->out, digest, sizeof digest);
    rc = kv_out_close(w->out, rc, err);
    kv_free(w);
    return rc;
}

/* ---- reading ---------------------------------------------------------------------------- */

struct kv_codec_reader {
    FILE *f;
    char *path;
    int64_t bytes, payload; /* of the file; where the planes begin */
    kv_codec_facts facts;
    int64_t *at;    /* [2 * layers + 1] where each plane begins; the last: where they end */
    uint8_t *plane; /* the one at hand */
    int64_t plane_cap;
};

static kv_rc read_at(kv_codec_reader *r, int64_t at, void *out, size_t n, kv_err *err)
{
    errno = 0;
    if (fseeko(r->f, (off_t)at, SEEK_SET) == 0 && fread(out, 1, n, r->f) == n) return KV_OK;
    return KV_FAIL(err, KV_EREAD, "cannot be read at byte %" PRId64 ": %s", at,
                   errno != 0 ? strerror(errno) : "it ends there");
}

static kv_rc open_file(kv_codec_reader *r, const char *path, kv_err *err)
{
    struct stat st;
    r->path = kv_strdup(path);
    if (r->path == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for a name");
    const kv_rc rc = kv_file_open_regular(path, &r->f, err);
    if (rc != KV_OK) return rc;
    if (fstat(fileno(r->f), &st) != 0) return KV_FAIL(err, KV_EREAD, "%s: cannot be read: %s", path, strerror(errno));
    r->bytes = (int64_t)st.st_size;
    return KV_OK;
}

static kv_rc read_header(kv_codec_reader *r, kv_err *err)
{
    uint8_t front[FRONT];
    uint64_t length = 0;
    kv_buf text = {0};
    json_t *header = NULL;
    kv_rc rc;
    if (r->bytes < FRONT + KV_HASH_BYTES)
        return KV_FAIL(err, KV_EFORMAT, "%" PRId64 " bytes are no stored cache", r->bytes);
    KV_TRY(rc, out, read_at(r, 0, front, FRONT, err));
    if (memcmp(front, KV_CODEC_FILE_MAGIC, 8) != 0)
        return KV_FAIL(err, KV_EFORMAT, "is no stored cache: it does not begin with " KV_CODEC_FILE_MAGIC);
    for (int i = 7; i >= 0; i--) length = length << 8 | front[8 + i];
    if (length > HEADER_MAX || (int64_t)length > r->bytes - FRONT - KV_HASH_BYTES)
        return KV_FAIL(err, KV_EFORMAT, "a header of %" PRIu64 " bytes does not fit the file", length);
    r->payload = FRONT + (int64_t)length;
    text.data = kv_alloc((size_t)length + 1, 1);
    if (text.data == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for a header of %" PRIu64 " bytes", length);
    KV_TRY(rc, out, read_at(r, FRONT, text.data, (size_t)length, err));
    KV_TRY(rc, out, kv_json_parse(text.data, (size_t)length, HEADER_MAX, &header, err));
    KV_TRY(rc, out, kv_json_check_canonical(header, text.data, (size_t)length, err));
    rc = kv_codec_facts_read(header, &r->facts, err);
out:
    kv_buf_free(&text);
    json_decref(header);
    return rc;
}

/* Where each plane begins, and that they and the digest are the whole file. */
static kv_rc check_size(kv_codec_reader *r, kv_err *err)
{
    const int64_t planes = (int64_t)r->facts.config.layers * KV_CODEC_HALVES;
    int64_t at = r->payload, bytes;
    r->at = kv_alloc((size_t)planes + 1, sizeof *r->at);
    if (r->at == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for %" PRId64 " planes", planes);
    for (int64_t p = 0; p < planes; p++) {
        const int32_t half = (int32_t)(p % KV_CODEC_HALVES);
        r->at[p] = at;
        if (!r->facts.config.has[half]) continue;
        const kv_rc rc = kv_codec_facts_plane(&r->facts, (int32_t)(p / KV_CODEC_HALVES), half, &bytes, err);
        if (rc != KV_OK) return rc;
        if (!kv_add_i64(at, bytes, &at)) return KV_FAIL(err, KV_EFORMAT, "more bytes than fit 64 bits");
    }
    r->at[planes] = at;
    if (at == r->bytes - KV_HASH_BYTES) return KV_OK;
    return KV_FAIL(err, KV_EFORMAT, "%" PRId64 " bytes, its header asks for %" PRId64 ": cut off, or not its own",
                   r->bytes, at + KV_HASH_BYTES);
}

static kv_rc check_digest(kv_codec_reader *r, kv_err *err)
{
    uint8_t chunk[65536], want[KV_HASH_BYTES], got[KV_HASH_BYTES];
    kv_hash h;
    kv_rc rc = KV_OK;
    kv_hash_init(&h);
    for (int64_t at = 0, n; at < r->bytes - KV_HASH_BYTES; at += n) {
        n = r->bytes - KV_HASH_BYTES - at < (int64_t)sizeof chunk ? r->bytes - KV_HASH_BYTES - at
                                                                  : (int64_t)sizeof chunk;
        KV_TRY(rc, out, read_at(r, at, chunk, (size_t)n, err));
        kv_hash_update(&h, chunk, (size_t)n);
    }
    kv_hash_final(&h, got);
    KV_TRY(rc, out, read_at(r, r->bytes - KV_HASH_BYTES, want, sizeof want, err));
    if (memcmp(got, want, sizeof got) != 0)
        rc = KV_FAIL(err, KV_EFORMAT, "its digest is not that of its bytes: it was changed or damaged");
out:
    return rc;
}

kv_rc kv_codec_reader_open(const char *path, kv_codec_reader **out, kv_err *err)
{
    kv_codec_reader *r = kv_alloc(1, sizeof *r);
    if (r == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory to read %s", path);
    kv_rc rc = open_file(r, path, err);
    if (rc != KV_OK) {
        kv_codec_reader_close(r);
        return rc;
    }
    rc = read_header(r, err);
    if (rc == KV_OK) rc = check_size(r, err);
    if (rc == KV_OK) rc = check_digest(r, err);
    if (rc == KV_OK) {
        *out = r;
    } else {
        kv_err_prefix(err, "%s", path);
        kv_codec_reader_close(r);
    }
    return rc;
}

const kv_codec_facts *kv_codec_reader_facts(const kv_codec_reader *r)
{
    return &r->facts;
}

int64_t kv_codec_reader_bytes(const kv_codec_reader *r)
{
    return r->bytes;
}

static kv_rc load_lanes(const kv_codec_reader *r, kv_codec_stream *s, uint64_t sequence, int32_t layer, int32_t half,
                        kv_err *err)
{
    const kv_codec_half_config *h = &r->facts.config.half[half];
    const kv_geometry *g = &r->facts.geometry;
    const int64_t lanes = kv_codec_lanes(h, g->kv_heads), rows = g->tokens * g->kv_heads / lanes;
    int64_t sealed, blocks;
    kv_rc rc = KV_OK;
    kv_codec_stream_sealed(s, layer, half, rows, &sealed, &blocks);
    const int64_t tail = (rows - blocks * h->slot.n) * h->slot.params.dim * kv_elem_bytes(g->element);
    for (int64_t i = 0; rc == KV_OK && i < lanes; i++)
        rc = kv_codec_stream_load(s, sequence, layer, half, i, rows, r->plane + i * sealed, sealed,
                                  r->plane + lanes * sealed + i * tail, err);
    return rc;
}

kv_rc kv_codec_reader_plane(kv_codec_reader *r, kv_codec_stream *s, uint64_t sequence, int32_t layer, int32_t half,
                            kv_err *err)
{
    const int64_t at = r->at[(int64_t)layer * KV_CODEC_HALVES + half];
    const int64_t bytes = r->at[(int64_t)layer * KV_CODEC_HALVES + half + 1] - at;
    kv_rc rc = KV_OK;
    if (r->plane == NULL || bytes > r->plane_cap) { /* also where there are no bytes at all */
        kv_free(r->plane);
        r->plane = kv_alloc((size_t)bytes, 1);
        r->plane_cap = r->plane != NULL ? bytes : 0;
        if (r->plane == NULL) rc = KV_FAIL(err, KV_ENOMEM, "no memory for a plane of %" PRId64 " bytes", bytes);
    }
    if (rc == KV_OK) rc = read_at(r, at, r->plane, (size_t)bytes, err);
    if (rc == KV_OK) rc = load_lanes(r, s, sequence, layer, half, err);
    if (rc != KV_OK) kv_err_prefix(err, "%s", r->path);
    return rc;
}

void kv_codec_reader_close(kv_codec_reader *r)
{
    if (r == NULL) return;
    if (r->f != NULL) fclose(r->f);
    kv_codec_facts_free(&r->facts);
    kv_free(r->at);
    kv_free(r->plane);
    kv_free(r->path);
    kv_free(r);
}
