/* What makes a certificate worth its refusals: controls that must fire, limits shown by code, checks
 * over all rows. Everything here is the same on every machine: it stands in the body. */
#ifndef KV_ASSURANCE_H
#define KV_ASSURANCE_H

#include <jansson.h>

#include "grid/row/kv_row.h"

/* ---- collecting entries ----------------------------------------------------------------- */

/* {name, expected_guard, actual_guard, passed, detail}; passed = both guards equal and `holds`. */
kv_rc kv_control_add(json_t *list, const char *name, const char *expected, const char *actual, bool holds,
                     const char *detail, kv_err *err) KV_MUST_USE;
/* {name, text, demonstrated} */
kv_rc kv_limit_add(json_t *list, const char *name, const char *text, bool demonstrated, kv_err *err) KV_MUST_USE;
/* True if every entry has passed (or demonstrated) true; else *first is the first name that has not (may be NULL). */
bool kv_entries_hold(const json_t *list, const char *flag, const char **first);

/* ---- the parts -------------------------------------------------------------------------- */

/* Bad translators, edited declarations, frontiers: really run on dev (kv_controls.c, kv_controls_edit.c). */
kv_rc kv_controls_run(kv_device *dev, json_t *list, kv_err *err) KV_MUST_USE;
kv_rc kv_controls_edits(json_t *list, kv_err *err) KV_MUST_USE;
/* Mutations of a provisional document of the built-in published campaign, really verified (kv_mutations.c):
 * part `part` (from 0) of `parts`. */
kv_rc kv_mutations_run(kv_device *dev, size_t part, size_t parts, json_t *list, kv_err *err) KV_MUST_USE;
/* The known limits, each demonstrated (kv_limits.c). */
kv_rc kv_limits_run(kv_device *dev, json_t *list, kv_err *err) KV_MUST_USE;
/* Checks over the rows of a campaign (kv_checks.c). `controls` are those of the same run. */
kv_rc kv_checks_run(const kv_campaign *c, kv_row_set rows, const json_t *controls, json_t *list, kv_err *err)
    KV_MUST_USE;
/* What holds and what does not, with this run's numbers (kv_boundary.c). A new object in *out. */
kv_rc kv_boundary_new(const kv_campaign *c, kv_row_set rows, json_t **out, kv_err *err) KV_MUST_USE;

/* ---- as one item of work ---------------------------------------------------------------- */

/* They are made as items of work of the run, by whatever rank gets them, always on the CPU backend, so that the
 * body is the same whatever device the cells ran on. Each item gives a JSON text {"controls": [...], "known_limits": [...]}. */
#define KV_ASSURANCE_ITEMS 3
/* Estimated nanoseconds of one: the first is short, and dealing it out last keeps two ranks equally busy. */
#define KV_ASSURANCE_COST(item_) ((item_) == 0 ? 40000000U : 120000000U)
kv_rc kv_assurance_make(int item, kv_buf *out, kv_err *err) KV_MUST_USE;
/* Joins the parsed texts of all items, in order. New lists in *controls and *limits. */
kv_rc kv_assurance_join(json_t *const parts[KV_ASSURANCE_ITEMS], json_t **controls, json_t **limits, kv_err *err)
    KV_MUST_USE;

/* ---- small campaigns for controls ------------------------------------------------------- */

/* Runs one pair of `all` (borrowed; built-in and made-up layouts) at a geometry "L=..,T=.."; tail by name. */
kv_rc kv_control_pair(kv_device *dev, kv_catalogue *all, const char *src, const char *dst, const char *geometry,
                      const char *tail, const char *values, uint64_t seed, kv_row *row, kv_err *err) KV_MUST_USE;

/* ---- bad devices ------------------------------------------------------------------------ */

typedef enum {
    KV_MUTANT_NONE,
    KV_MUTANT_REINTERPRET,  /* copies bytes as they lie */
    KV_MUTANT_TAIL_DROPPED, /* the tokens of the last, partial block are not moved */
    KV_MUTANT_KV_SWAPPED,
    KV_MUTANT_HEADS_SHIFTED, /* each head gets its neighbour */
    KV_MUTANT_ONLY_BLOCK_0,
    KV_MUTANT_NOTHING_COPIED, /* d8 */
    KV_MUTANT_ONE_VALUE,      /* one bit pattern arrives changed */
    KV_MUTANT_TAIL_DECODED,   /* right translator; the decode reads the tail as tokens */
    KV_MUTANT_CORRUPT_ELEMENT /* right translator; the decode sees one element with its lowest bit changed */
} kv_mutant;

/* A device like base (borrowed) with one fault. `value`: the pattern of KV_MUTANT_ONE_VALUE. */
kv_rc kv_mutant_new(kv_device *base, kv_mutant kind, uint32_t value, kv_device **out, kv_err *err) KV_MUST_USE;
void kv_mutant_free(kv_device *d);
#endif
