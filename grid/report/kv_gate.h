/* The judgement over rows whose certificate stands: the exit code, and why it is not 0. */
#ifndef KV_GATE_H
#define KV_GATE_H

#include "grid/document/kv_doc.h"
#include "grid/report/kv_diff.h"

typedef struct {
    const kv_campaign *c;
    kv_row_set rows;
    const json_t *doc;
    kv_diff *baseline;         /* with its OLD side, or NULL */
    const char *baseline_name; /* for messages */
    bool accept_redeclared, allow_unproven;
} kv_gate_facts;

/* Initialise with {0}; release with kv_gate_free. */
typedef struct {
    int code;
    json_t *
        reasons; /* names, in order: failed, controls, checks, known_limits, floors, unproven, nothing_checked, expect, baseline */
    json_t *expect;   /* as kv_expect_json, or NULL where nothing is expected */
    json_t *baseline; /* as kv_diff_json, or NULL */
} kv_gate;

/* Judges; each reason is a line on stderr. `expect` holds for a whole campaign: it is left out for a part. */
kv_rc kv_gate_judge(const kv_gate_facts *f, kv_gate *out, kv_err *err) KV_MUST_USE;
void kv_gate_free(kv_gate *g);

/* Reads the certificate to compare with, before anything runs. A new diff in *out. */
kv_rc kv_gate_open_baseline(const char *path, kv_diff **out, kv_err *err) KV_MUST_USE;
void kv_gate_close_baseline(kv_diff *d); /* NULL is fine */

/* On stdout: counts, certificate, comparison; or all of it as one JSON object. */
kv_rc kv_gate_print_text(const kv_gate_facts *f, const char *cert, kv_err *err) KV_MUST_USE;
kv_rc kv_gate_print_json(const kv_gate_facts *f, const kv_gate *g, const char *cert, kv_err *err) KV_MUST_USE;

/* Holds a certificate's rows against its campaign's `expect`; says the lines. *unmet is the number of unmet rules. */
kv_rc kv_gate_expect_doc(json_t *doc, const char *path, size_t *unmet, kv_err *err) KV_MUST_USE;

#endif
