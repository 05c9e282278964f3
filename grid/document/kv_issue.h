/* Issues a certificate: document, row file where there are many rows, signature, both files. */
#ifndef KV_ISSUE_H
#define KV_ISSUE_H

#include "certs/kv_key.h"
#include "grid/document/kv_doc.h"

/* All borrowed. */
typedef struct {
    const kv_campaign *c;
    kv_row_set rows;
    const kv_assurance *assurance;
    const kv_run_facts *facts;
    json_t *parts; /* `run.parts` of a merged certificate, or NULL */
    const kv_key *key;
    const char *path; /* of the document; the row file stands beside it */
} kv_issue_facts;

/* Writes the certificate: the row file first, the document last. Where the document holds its rows it is verified before; if
 * it does not hold (KV_EBUG) there is no file. *doc is a new one without `rows` and `bindings`, which
 * may be large and which nobody who tells of the run needs. */
kv_rc kv_issue(const kv_issue_facts *f, json_t **doc, kv_err *err) KV_MUST_USE;

#endif
