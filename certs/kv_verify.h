/* certs: the verifier. It re-derives everything that a certificate claims from the declared layouts
 * and the campaign, and shares no index code with the producer. Rules: docs/certificate.md. */
#ifndef KV_VERIFY_H
#define KV_VERIFY_H

#include "base/kv_base.h"
#include "certs/kv_cert_names.h"
#include "certs/kv_key.h"

#define KV_VERIFY_BYTES_MAX ((size_t)256 << 20) /* of one document */
#define KV_VERIFY_FAULTS_MAX 100000             /* listed; more are counted */

typedef struct {
    bool allow_unproven;              /* UNPROVEN rows alone do not make the exit code 4 */
    const kv_cert_required *required; /* NULL: kv_cert_required_built_in */
    const char *path;                 /* of the document: its row file stands beside it; NULL: there is none */
} kv_verify_opts;

/* One fault. All texts are one line of valid UTF-8, cut where they are long. */
typedef struct {
    kv_hcode code;
    char *path; /* "$.rows[3].proof.kind" */
    char *expected;
    char *actual;
} kv_fault;

/* What was found. Initialise with {0}; release with kv_verify_report_free. */
typedef struct {
    kv_fault *faults; /* in order of discovery */
    size_t n_faults;
    size_t unlisted; /* faults beyond KV_VERIFY_FAULTS_MAX */
    bool has[KV_HCODE_COUNT];
    int exit_code; /* 0 sound; 1 an H0; 3 any other fault; 4 sound, but not a pass */

    /* facts, as far as the document could be read */
    char *campaign;             /* name, or NULL */
    char key_id[KV_KEY_ID_HEX]; /* of the public key in the document, "" where there is none */
    bool signature_good;        /* the bytes are the signer's */
    bool signer_trusted;        /* and the caller trusts the signer */
    int64_t rows;
    int64_t part, parts;                /* this is part `part` of `parts` of the campaign; 1 of 1 for the whole */
    int64_t verdicts[KV_VERDICT_COUNT]; /* as the rows claim them, view rows included */
    int64_t positions;                  /* destination positions checked, view rows included */
    bool nothing_checked;               /* no position was checked at all */
} kv_verify_report;

/* Verifies n bytes. trust may be NULL: no trust was given, which is an H1. opts may be NULL.
 * KV_OK when the report is complete, whatever it says; an error (KV_ENOMEM) when nothing can be said. */
kv_rc kv_verify_bytes(const void *bytes, size_t n, const kv_trust *trust, const kv_verify_opts *opts,
                      kv_verify_report *out, kv_err *err) KV_MUST_USE;

/* Reads path once and verifies those bytes. trust_path: a public keys file, or NULL for the usual places
 * (kv_trust_find_path). *bytes, {0} or NULL if not wanted, are those bytes: who acts on what was verified must not read the
 * file again. KV_EREAD or KV_EFORMAT where the certificate or the trust file cannot be used. */
kv_rc kv_verify_file(const char *path, const char *trust_path, const kv_verify_opts *opts, kv_verify_report *out,
                     kv_buf *bytes, kv_err *err) KV_MUST_USE;

void kv_verify_report_free(kv_verify_report *r); /* also resets to {0} */

/* The report for people (several lines, with a summary last), or as one JSON object and a newline. */
kv_rc kv_verify_text(const kv_verify_report *r, kv_buf *out, kv_err *err) KV_MUST_USE;
kv_rc kv_verify_json(const kv_verify_report *r, kv_buf *out, kv_err *err) KV_MUST_USE;

#endif
