/* Certificates as the reading commands see them: a document, and its rows one after another. Nothing here verifies;
 * what is not shaped as docs/certificate.md says is an error that names its place. */
#ifndef KV_VIEW_H
#define KV_VIEW_H

#include <jansson.h>

#include "certs/kv_rows.h"
#include "grid/row/kv_row.h"

/* What a row says it has seen: its observations and, since a conversion never reproduces the target, what its proof adds. */
enum { KV_SEEN_GATHER = KV_OBS_COUNT, KV_SEEN_VALUES, KV_SEEN_COUNT };
/* "tokens_identical", "gather_agrees", "values_preserved" and so on. */
const char *kv_seen_name(const char *check, int i); /* of a row of that check */

/* What is compared and expected of a row. Texts are borrowed from the row or the campaign. */
typedef struct {
    const char *check, *src, *dst;
    size_t geometry;      /* index in the certificate's list */
    const json_t *params; /* an object of texts */
    kv_verdict verdict;
    int32_t seen[KV_SEEN_COUNT]; /* kv_tri, by kv_obs, then the two below */
    bool converts;               /* between element types */
} kv_view;

/* Row number `at` of a certificate with n_geometries geometries. KV_EFORMAT names its place. */
kv_rc kv_view_of_json(const json_t *row, size_t at, size_t n_geometries, kv_view *out, kv_err *err) KV_MUST_USE;
/* A row of a run; params are in *params, a new object that the caller releases after the view. */
kv_rc kv_view_of_row(const kv_campaign *c, const kv_row *row, kv_view *out, json_t **params, kv_err *err) KV_MUST_USE;

/* ---- the certificate -------------------------------------------------------------------- */

typedef struct {
    char *path;
    json_t *doc;
    kv_geometry *geometries;
    size_t n_geometries;
    kv_rows *rows; /* in the document, or in the file beside it */
    size_t at;     /* the row that comes next */
} kv_reader;

/* Reads a certificate; *out is zeroed by the caller and closed with kv_reader_close whatever happened. KV_EREAD, KV_EFORMAT. */
kv_rc kv_reader_open(const char *path, kv_reader *out, kv_err *err) KV_MUST_USE;
/* The same for a document that is parsed already (a reference is kept), which was read from path. */
kv_rc kv_reader_of_doc(json_t *doc, const char *path, kv_reader *out, kv_err *err) KV_MUST_USE;
/* The next row and its view (may be NULL); *row is NULL after the last. Borrowed until the next call. KV_ESIG at the end of
 * a row file that is not this certificate's. */
kv_rc kv_reader_next(kv_reader *r, const json_t **row, kv_view *view, kv_err *err) KV_MUST_USE;
void kv_reader_rewind(kv_reader *r);
void kv_reader_close(kv_reader *r);

#endif
