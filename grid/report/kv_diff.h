/* Two sets of rows compared, old against new. Rows match by check, geometry values, pair and params; a geometry that
 * only one side has at a place where the other has one that it alone has counts as the same geometry redeclared.
 * A row costs 16 bytes, a pair of them 12 more, so that a million of them fit. */
#ifndef KV_DIFF_H
#define KV_DIFF_H

#include "grid/campaign/kv_names.h"
#include "grid/report/kv_view.h"

enum { KV_OLD, KV_NEW, KV_SIDES };

/* What rows have in common but for the geometry, as numbers in names: there are few of these. */
typedef struct {
    uint32_t check, src, dst, params;
} kv_diff_kind;

typedef struct {
    uint32_t kind;     /* in kind[] */
    uint32_t geometry; /* in geometries of both sides; of NEW, of the old one where it is redeclared */
    uint8_t verdict, seen[KV_SEEN_COUNT];
} kv_diff_row;

typedef struct {
    kv_names geometry_names;     /* texts of this side's geometries, in order */
    kv_names layouts;            /* those of its catalogue */
    char (*digest)[KV_HASH_HEX]; /* of each of them */
    json_t *spec;                /* of its campaign */
    size_t n_layouts;
    kv_diff_row *row; /* in the order of the certificate */
    size_t n, cap;
} kv_diff_side;

/* How a row fared. */
typedef enum {
    KV_DIFF_SAME,
    KV_DIFF_WORSE,
    KV_DIFF_BETTER,
    KV_DIFF_ADDED,
    KV_DIFF_GONE,
    KV_DIFF_CHANGES
} kv_diff_change;
const char *kv_diff_change_name(kv_diff_change c);

typedef struct {
    uint32_t row[KV_SIDES]; /* places in row[] of each side; UINT32_MAX where there is none */
    uint8_t change;         /* kv_diff_change */
    uint8_t redeclared;     /* why: bits KV_DIFF_BY_* */
} kv_diff_pair;
enum { KV_DIFF_BY_SRC = 1, KV_DIFF_BY_DST = 2, KV_DIFF_BY_GEOMETRY = 4, KV_DIFF_BY_SECTION = 8 };

typedef struct {
    kv_names names;
    kv_names geometries; /* of both sides */
    kv_names kind_names; /* "check src dst params" as numbers, for each of kind[] */
    kv_diff_kind *kind;
    size_t kind_cap;
    kv_diff_side side[KV_SIDES];
    kv_diff_pair *pair; /* in the order of NEW, then what is gone in the order of OLD */
    size_t n;
    int64_t counts[KV_DIFF_CHANGES], redeclared, matched;
} kv_diff;

/* Adds the rows of a certificate, or of a run, as one side; OLD first. *d is zeroed by the caller and freed with
 * kv_diff_free whatever happened. */
kv_rc kv_diff_add_reader(kv_diff *d, int side, kv_reader *r, kv_err *err) KV_MUST_USE;
kv_rc kv_diff_add_run(kv_diff *d, const kv_campaign *c, kv_row_set rows, kv_err *err) KV_MUST_USE;
/* Compares. A row that stands twice on one side is KV_EFORMAT. */
kv_rc kv_diff_compare(kv_diff *d, kv_err *err) KV_MUST_USE;
void kv_diff_free(kv_diff *d);

/* How a grade moved: lower on the scale, or with the same verdict an observation lost (true to false or to not made) or
 * values no longer preserved, is worse; the other way, with nothing lost, better. */
kv_diff_change kv_diff_grade(const kv_diff_row *o, const kv_diff_row *n);

/* Whether the campaigns' sections declare rows of this kind otherwise; `what` is then "codec.block", "codec.files.NAME" ...
 * (kv_diff_section.c). */
#define KV_DIFF_SECTION_TEXT 96
bool kv_diff_section_changed(const kv_diff *d, const kv_diff_kind *k, char what[KV_DIFF_SECTION_TEXT]);

/* True where nothing could be compared though both sides have rows. */
bool kv_diff_is_void(const kv_diff *d);
/* True where the gate opens: nothing worse, not void, nothing redeclared unless accepted. */
bool kv_diff_passes(const kv_diff *d, bool accept_redeclared);

/* ---- telling (kv_diff_tell.c) ----------------------------------------------------------- */

/* "SRC->DST at L=..,T=..: OLD -> NEW (what else)" */
kv_rc kv_diff_line(const kv_diff *d, const kv_diff_pair *p, kv_buf *out, kv_err *err) KV_MUST_USE;
/* On stdout: what is redeclared first, then worse, better, new, gone, at most `most` rows of each, and the counts last. */
kv_rc kv_diff_text(const kv_diff *d, const char *old_name, const char *new_name, int64_t most, kv_err *err) KV_MUST_USE;
/* On stdout: one JSON object with the counts and all rows. */
kv_rc kv_diff_print_json(const kv_diff *d, bool passes, kv_err *err) KV_MUST_USE;
/* A new object with the counts, and of the redeclared and worse rows the first `most`. */
kv_rc kv_diff_json(const kv_diff *d, bool passes, size_t most, json_t **out, kv_err *err) KV_MUST_USE;
/* One line each on stderr for what closes the gate. */
kv_rc kv_diff_say(const kv_diff *d, const char *old_name, bool accept_redeclared, kv_err *err) KV_MUST_USE;

#endif
