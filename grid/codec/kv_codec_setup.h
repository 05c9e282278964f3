/* What the codec commands share: options into a configuration, raw arrays, errors, progress. */
#ifndef KV_CODEC_SETUP_H
#define KV_CODEC_SETUP_H

#include <stdio.h>

#include "grid/cli/kv_opts.h"
#include "grid/codec/kv_codec_file.h"

/* Parses a sub-command's arguments (argv[0] is its name). *help: --help was asked for and printed. */
kv_rc kv_codec_parse(const kv_command *cmd, int argc, char **argv, kv_opts *out, bool *help, kv_err *err) KV_MUST_USE;

/* ---- configuration ---------------------------------------------------------------------- */

typedef struct {
    kv_codec_facts facts; /* config.whiten points to the factors where there are some */
    kv_codec_whiten factors;
} kv_codec_setup;
/* From --recipe, --geometry, --stream, --metric, --bits, --outlier, --outlier-budget, --pca, --share-basis,
 * --skip-layers, --table, --whiten. Do not move *out: it points into itself. Free it whatever happened. */
kv_rc kv_codec_setup_make(const kv_opts *o, kv_codec_setup *out, kv_err *err) KV_MUST_USE;
void kv_codec_setup_free(kv_codec_setup *s);
/* The files of --table "FILE[,FILE]": the whole text where a file of that name exists, else split at its first comma;
 * file[1] is NULL for one. They borrow *text, which the caller frees. KV_ENOMEM. */
#define KV_CODEC_TABLES_MAX 2
kv_rc kv_codec_table_files(const char *list, char **text, const char *file[KV_CODEC_TABLES_MAX], kv_err *err)
    KV_MUST_USE;
/* Reads 2^bits ascending levels (any bits from 1 to 4, by the file's size). KV_EFORMAT, KV_EREAD. */
kv_rc kv_codec_read_levels(const char *path, float levels[KV_CODEC_LEVELS_MAX], int32_t *bits, kv_err *err) KV_MUST_USE;

/* ---- raw arrays ------------------------------------------------------------------------- */

typedef struct {
    FILE *f;
    const char *path;
} kv_codec_array;
/* Opens a raw array that must have exactly `bytes` bytes. KV_EREAD, KV_EFORMAT (found and expected). */
kv_rc kv_codec_array_open(const char *path, int64_t bytes, kv_codec_array *out, kv_err *err) KV_MUST_USE;
kv_rc kv_codec_array_read(kv_codec_array *a, int64_t at, void *out, int64_t bytes, kv_err *err) KV_MUST_USE;
void kv_codec_array_close(kv_codec_array *a);
/* Bytes of one token of a plane, of a whole plane, and of the array; where a plane begins. */
int64_t kv_codec_token_bytes(const kv_codec_facts *f, int32_t half);
int64_t kv_codec_array_bytes(const kv_codec_facts *f);
int64_t kv_codec_plane_at(const kv_codec_facts *f, int32_t layer, int32_t half);
/* KV_ENOMEM where the array's size does not fit 64 bits. */
kv_rc kv_codec_array_check(const kv_codec_facts *f, kv_err *err) KV_MUST_USE;
#define KV_CODEC_CHUNK 512 /* tokens moved at once */

/* Decoded values that the array's type cannot hold. */
typedef struct {
    int64_t held;       /* finite, too large: written as the largest finite value */
    int64_t not_finite; /* written as they are */
} kv_codec_unfit;
/* n decoded values as decode writes them to an array: rounded to its type, held at its largest value (also in x). Adds to u. */
void kv_codec_array_values(kv_elem element, float *x, int64_t n, void *out, kv_codec_unfit *u);

/* ---- errors ----------------------------------------------------------------------------- */

typedef struct {
    double off, all, back, dot; /* sums of squares: error, original, decoded; their product */
    double worst;               /* largest error, */
    int64_t worst_at, count;    /* which element */
    bool not_finite;            /* a value or its error is NaN or Inf: no figure means anything */
} kv_codec_error;
void kv_codec_error_add(kv_codec_error *e, const float *want, const float *got, int64_t n);
void kv_codec_error_merge(kv_codec_error *e, const kv_codec_error *more);
/* NaN where it has no meaning: nothing to compare with, or something is not finite. */
double kv_codec_error_relative(const kv_codec_error *e);
double kv_codec_error_cosine(const kv_codec_error *e);

/* ---- progress on stderr ----------------------------------------------------------------- */

typedef struct {
    const char *what;
    bool off, terminal, drawn;
    double begun, last;
    int64_t total;
} kv_codec_progress;
void kv_codec_progress_start(kv_codec_progress *p, const kv_opts *o, const char *what, int64_t total);
void kv_codec_progress_step(kv_codec_progress *p, int64_t done);
void kv_codec_progress_end(kv_codec_progress *p);

#endif
