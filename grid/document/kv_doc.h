/* The certificate document: built from a campaign and its rows (docs/certificate.md). */
#ifndef KV_DOC_H
#define KV_DOC_H

#include <jansson.h>

#include "grid/row/kv_row.h"

/* Counts over all rows: `observed` of the certificate. */
typedef struct {
    int64_t rows, verdicts[KV_VERDICT_COUNT];
    int64_t positions, source_positions;
    int64_t view_rows, same_image_rows, empty_rows;
    uint32_t words;     /* words that occur */
    uint32_t frontiers; /* bit kv_layout_frontier */
    int64_t measured;   /* rows that stored a row of a head, or ran a study */
} kv_observed;
void kv_observe(const kv_campaign *c, kv_row_set rows, kv_observed *out);

/* campaign.digest: over the spec and the digests of all layouts. */
kv_rc kv_doc_campaign_digest(const kv_campaign *c, char out[KV_HASH_HEX], kv_err *err) KV_MUST_USE;

/* What depends on the machine and the moment; borrowed. */
typedef struct {
    int ranks;
    json_t *devices;                     /* list, one entry a rank */
    json_t *versions;                    /* object of texts */
    json_t *differences;                 /* list of what the ranks have otherwise, or NULL where none were compared */
    json_t *failures;                    /* list */
    json_t *transports, *transports_why; /* lists of texts, NULL where no shards were moved */
    json_t *wire;                        /* list, one entry a rank, or NULL as before */
    char started[32];                    /* "2026-11-29T18:00:00Z" */
    int64_t elapsed_ms;
} kv_run_facts;

/* Controls and checks of the run; borrowed lists (docs/certificate.md), NULL means none were made. */
typedef struct {
    json_t *controls, *checks, *boundary, *known_limits;
    json_t *subject; /* what the user says was tested, or NULL */
} kv_assurance;

/* A new document with body and `run`, ready for kv_cert_seal; rows in cell order, or in a row file that rows_file (else
 * NULL) declares. Where there is a row file, `bindings` are left out too: they are many, and kv_doc_bindings gives their
 * text, for kv_cert_seal_with. The caller owns *out. */
kv_rc kv_doc_new(const kv_campaign *c, kv_row_set rows, json_t *rows_file, const kv_assurance *a,
                 const kv_run_facts *facts, json_t **out, kv_err *err) KV_MUST_USE;

/* Appends the canonical text of `bindings`: a list, one entry after another, so that no tree of them ever stands in memory. */
kv_rc kv_doc_bindings(const kv_campaign *c, kv_buf *out, kv_err *err) KV_MUST_USE;

/* True if every floor that the campaign gives equals what was observed; else err says which does not. */
bool kv_floors_met(const json_t *doc, kv_err *err);

#endif
