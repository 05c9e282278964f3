/* Formats of `kvgrid export` that are written row by row. */
#ifndef KV_EXPORT_H
#define KV_EXPORT_H

#include "base/kv_out.h"
#include "grid/report/kv_view.h"

/* JUnit XML that GitLab and Jenkins read: a suite for each geometry, a case for each row, and a suite `expect` with a case
 * for each rule of the campaign. A case fails where its row is FAILED or UNPROVEN, is not what the rule that decides about
 * it expects (as of `today`), or, where no rule does, is NOT_EXACT for another reason than a change of the element type; where a waiver
 * excuses it, it is skipped. */
kv_rc kv_export_junit(kv_reader *r, const char *today, kv_out *out, kv_err *err) KV_MUST_USE;

/* A line of names, then a line for each row (RFC 4180 with \n); null is empty. */
kv_rc kv_export_csv(kv_reader *r, kv_out *out, kv_err *err) KV_MUST_USE;

/* ---- XML -------------------------------------------------------------------------------- */

/* Text as it may stand between tags and in attributes: & < > " escaped, line ends and tabs as references, and what no XML
 * document may hold (other controls, U+FFFE, U+FFFF, bytes that are not UTF-8) as U+FFFD. */
void kv_xml_text(kv_out *out, const char *text);

#endif
