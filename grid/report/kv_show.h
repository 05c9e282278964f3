/* Parts of `kvgrid show`: which rows, and the matrix of grades. */
#ifndef KV_SHOW_H
#define KV_SHOW_H

#include "grid/campaign/kv_names.h"
#include "grid/cli/kv_opts.h"
#include "grid/report/kv_view.h"

/* ---- which rows (kv_show_filter.c) ------------------------------------------------------ */

typedef struct {
    char *text;              /* the patterns' bytes */
    const char **src, **dst; /* patterns; dst NULL where it stands alone */
    size_t n;
    bool *geometry;    /* by index: taken, or NULL for all */
    unsigned verdicts; /* bits kv_verdict, 0 for all */
    const char *pair;  /* SRC->DST, or NULL */
    bool any;          /* something is left out */
} kv_filter;

/* From --select, --geometry, --verdict and PAIR. KV_EINVAL where a pattern fits no layout, or a geometry none of r's.
 * *out is zeroed by the caller and freed with kv_filter_free whatever happened; it borrows o. */
kv_rc kv_filter_new(const kv_opts *o, const kv_reader *r, kv_filter *out, kv_err *err) KV_MUST_USE;
bool kv_filter_takes(const kv_filter *f, const kv_view *v);
void kv_filter_free(kv_filter *f);

/* ---- the matrices (kv_show_matrix.c) ---------------------------------------------------- */

typedef struct kv_matrices kv_matrices;

/* Collects the grades of rows, in their order; geometries with the same grades share a matrix. */
kv_rc kv_matrices_new(const kv_reader *r, kv_matrices **out, kv_err *err) KV_MUST_USE;
kv_rc kv_matrices_add(kv_matrices *m, const json_t *row, const kv_view *v, kv_err *err) KV_MUST_USE;
/* On stdout; with `all` every layout of the catalogue stands there, else those that occur. */
kv_rc kv_matrices_print(kv_matrices *m, bool all, bool colour, kv_err *err) KV_MUST_USE;
void kv_matrices_free(kv_matrices *m);

#endif
