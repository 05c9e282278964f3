/* kvgrid merge: the certificates of all parts of a campaign into one, as one run would have made it. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/kv_file.h"
#include "base/kv_text.h"
#include "certs/kv_json.h"
#include "certs/kv_rows.h"
#include "certs/kv_verify.h"
#include "grid/campaign/kv_params.h"
#include "grid/cli/kv_ask.h"
#include "grid/cli/kv_exit.h"
#include "grid/document/kv_assurance.h"
#include "grid/document/kv_issue.h"
#include "grid/report/kv_gate.h"
#include "grid/row/kv_pack.h"
#include "grid/run/kv_differences.h"

typedef struct {
    const kv_opts *o;
    kv_trust *trust;
    char (*verified)[KV_HASH_HEX]; /* digest of the bytes of each part */
    json_t *first;                 /* the first part without its rows, which all others must fit */
    size_t n;
    kv_campaign whole;
    kv_pack *rows;
    int64_t ranks, elapsed_ms;
    json_t *transports, *transports_why; /* of all parts, each once */
    json_t *failures, *devices, *parts_list, *differences;
    json_t *part_versions; /* a list, by part */
    kv_err *err;
} merge;

/* ---- reading the parts ------------------------------------------------------------------- */

/* All parts are verified before the first row is kept, so that the verifier and the rows do not need memory at once. */
static kv_rc verify_part(merge *m, size_t i)
{
    const char *path = m->o->positional[i];
    kv_buf bytes = {0};
    kv_verify_report report = {0};
    const kv_verify_opts opts = {.allow_unproven = true, .path = path};
    kv_rc rc;
    KV_TRY(rc, out, kv_file_read(path, KV_VERIFY_BYTES_MAX, &bytes, m->err));
    kv_hash_hex(bytes.data, bytes.len, m->verified[i]);
    KV_TRY(rc, out, kv_verify_bytes(bytes.data, bytes.len, m->trust, &opts, &report, m->err));
    if (report.exit_code == KV_EXIT_INPUT || report.exit_code == KV_EXIT_REFUSED) {
        const kv_fault *f = &report.faults[0];
        rc = KV_FAIL(m->err, report.exit_code == KV_EXIT_INPUT ? KV_EFORMAT : KV_ESIG, "%s: refused: %s at %s: %s",
                     path, kv_hcode_name(f->code), f->path, f->actual);
    }
out:
    kv_verify_report_free(&report);
    kv_buf_free(&bytes);
    return rc;
}

/* Where the value ends that begins at text[at], in a sound document. */
static size_t end_of_value(const char *text, size_t n, size_t at)
{
    int depth = 0;
    bool quoted = false;
    for (; at < n; at++) {
        const char c = text[at];
        if (quoted && c == '\\')
            at++;
        else if (c == '"')
            quoted = !quoted;
        else if (!quoted && (c == '[' || c == '{'))
            depth++;
        else if (!quoted && (c == ']' || c == '}') && --depth == 0)
            return at + 1;
    }
    return n;
}

/* The verified bytes, parsed. `bindings`, the first key, are the largest part, follow from the rest and are left out. */
static kv_rc read_part(merge *m, size_t i, json_t **doc)
{
    static const char begin[] = "{\"bindings\":";
    const char *path = m->o->positional[i];
    char digest[KV_HASH_HEX];
    kv_buf bytes = {0};
    size_t from = 0;
    kv_rc rc;
    KV_TRY(rc, out, kv_file_read(path, KV_VERIFY_BYTES_MAX, &bytes, m->err));
    kv_hash_hex(bytes.data, bytes.len, digest);
    if (strcmp(digest, m->verified[i]) != 0) {
        rc = KV_FAIL(m->err, KV_ESIG, "%s: was changed while it was merged", path);
        goto out;
    }
    if (bytes.len > sizeof begin && strncmp(bytes.data, begin, sizeof begin - 1) == 0) {
        from = end_of_value(bytes.data, bytes.len, sizeof begin - 1);
        if (from < bytes.len) bytes.data[from] = '{'; /* the comma behind it */
    }
    rc = kv_json_parse(bytes.data + from, bytes.len - from, KV_VERIFY_BYTES_MAX, doc, m->err);
out:
    kv_buf_free(&bytes);
    return rc;
}

static const json_t *spec_of(const json_t *doc)
{
    return json_object_get(json_object_get(doc, "campaign"), "spec");
}

static const char *part_text(const json_t *doc)
{
    const char *s = json_string_value(json_object_get(spec_of(doc), "part"));
    return s != NULL ? s : "the whole campaign";
}

/* All parts must be of one campaign: equal spec but for `part`, equal catalogue, equal controls and limits. */
static kv_rc same_campaign(const merge *m, size_t i, const json_t *doc)
{
    static const char *const keys[] = {"catalogue", "controls", "known_limits", "subject", NULL};
    const char *a = m->o->positional[0], *b = m->o->positional[i];
    json_t *first = json_copy((json_t *)(uintptr_t)spec_of(m->first)),
           *other = json_copy((json_t *)(uintptr_t)spec_of(doc));
    json_object_del(first, "part");
    json_object_del(other, "part");
    const bool equal = json_equal(first, other);
    json_decref(first);
    json_decref(other);
    if (!equal) return KV_FAIL(m->err, KV_EFORMAT, "%s and %s are of different campaigns", a, b);
    for (const char *const *k = keys; *k != NULL; k++) {
        const json_t *x = json_object_get(m->first, *k), *y = json_object_get(doc, *k);
        if (x != y && !json_equal(x, y)) return KV_FAIL(m->err, KV_EFORMAT, "%s and %s differ in \"%s\"", a, b, *k);
    }
    return KV_OK;
}

/* The campaign without `part`, from the first document itself. */
static kv_rc build_whole(merge *m)
{
    kv_catalogue all = {0};
    json_t *spec = json_copy((json_t *)(uintptr_t)spec_of(m->first));
    const json_t *catalogue = json_object_get(m->first, "catalogue");
    kv_rc rc = spec != NULL ? KV_OK : KV_FAIL(m->err, KV_ENOMEM, "no memory to merge");
    json_object_del(spec, "part");
    for (size_t i = 0; rc == KV_OK && i < json_array_size(catalogue); i++) {
        kv_layout *l = NULL;
        json_t *obj = json_copy(json_array_get(catalogue, i));
        json_object_del(obj, "digest");
        rc = kv_layout_new(obj, m->o->positional[0], &l, m->err);
        if (rc == KV_OK) rc = kv_catalogue_take(&all, l, m->o->positional[0], m->err);
        json_decref(obj);
    }
    if (rc == KV_OK) rc = kv_campaign_build(spec, &all, m->o->positional[0], &m->whole, m->err);
    kv_catalogue_free(&all);
    json_decref(spec);
    return rc;
}

/* ---- joining ----------------------------------------------------------------------------- */

/* Which cell of the whole a row is, searching on from cell `from` (rows and cells have one order). */
static size_t cell_of(const merge *m, const json_t *row, size_t from)
{
    const char *pair = json_string_value(json_object_get(row, "pair_id")),
               *check = json_string_value(json_object_get(row, "check"));
    const json_t *params = json_object_get(row, "params");
    for (size_t i = from; pair != NULL && check != NULL && i < m->whole.n_cells; i++) {
        const kv_cell *c = &m->whole.cells[i];
        char id[KV_PAIR_ID_TEXT];
        if (c->geometry != json_integer_value(json_object_get(row, "geometry")) ||
            strcmp(check, kv_check_name((kv_check)c->check)) != 0)
            continue;
        kv_cell_pair_id(&m->whole, c, id);
        if (strcmp(id, pair) != 0) continue;
        json_t *own = kv_row_params_new(&m->whole, c);
        const bool same = own != NULL && json_equal(own, params);
        json_decref(own);
        if (same) return i;
    }
    return m->whole.n_cells;
}

static kv_rc take_row(merge *m, size_t i, const json_t *doc, const json_t *row, size_t *at)
{
    kv_row r;
    *at = cell_of(m, row, *at);
    if (*at == m->whole.n_cells)
        return KV_FAIL(m->err, KV_EBUG, "%s: the row %s is no cell of the campaign", m->o->positional[i],
                       json_string_value(json_object_get(row, "pair_id")));
    if (kv_pack_has(m->rows, (int64_t)*at))
        return KV_FAIL(m->err, KV_EFORMAT, "%s (%s) holds the cell %s again: two parts overlap", m->o->positional[i],
                       part_text(doc), json_string_value(json_object_get(row, "pair_id")));
    const kv_check check = (kv_check)m->whole.cells[*at].check;
    const kv_rc rc = kv_row_of_json(row, check, (int64_t)(*at)++, &r, m->err);
    return rc == KV_OK ? kv_pack_put(m->rows, &r, m->err) : rc;
}

static kv_rc take_rows(merge *m, size_t i, const json_t *doc)
{
    size_t at = 0;
    const json_t *row;
    kv_rows *rows = NULL;
    kv_rc rc = kv_rows_open(doc, m->o->positional[i], &rows, m->err);
    while (rc == KV_OK) {
        rc = kv_rows_next(rows, &row, m->err);
        if (rc == KV_OK && row == NULL) break;
        if (rc == KV_OK) rc = take_row(m, i, doc, row, &at);
    }
    kv_rows_close(rows);
    return rc;
}

static kv_rc check_complete(const merge *m)
{
    int64_t missing = 0;
    size_t first = 0;
    for (size_t i = 0; i < m->whole.n_cells; i++)
        if (!kv_pack_has(m->rows, (int64_t)i) && missing++ == 0) first = i;
    if (missing == 0) return KV_OK;
    const kv_cell *cell = &m->whole.cells[first];
    char id[KV_PAIR_ID_TEXT], g[KV_GEOMETRY_TEXT], params[KV_PARAMS_TEXT] = "";
    json_t *given = kv_row_params_new(&m->whole, cell);
    kv_cell_pair_id(&m->whole, cell, id);
    kv_geometry_print(&m->whole.geometries[cell->geometry], g);
    if (given != NULL) kv_params_print(given, params);
    json_decref(given);
    return KV_FAIL(m->err, KV_EFORMAT,
                   "%" PRId64
                   " of %zu cells are in no part, the first is %s %s at %s%s; give the certificates of all parts",
                   missing, m->whole.n_cells, kv_check_name((kv_check)cell->check), id, g, params);
}

/* Adds the texts of `from` that are not in `list`. */
static bool add_texts(json_t *list, const json_t *from)
{
    for (size_t i = 0; i < json_array_size(from); i++) {
        bool there = false;
        for (size_t k = 0; !there && k < json_array_size(list); k++)
            there = json_equal(json_array_get(list, k), json_array_get(from, i));
        if (!there && json_array_append(list, json_array_get(from, i)) != 0) return false;
    }
    return true;
}

static kv_rc take_facts(merge *m, const json_t *doc)
{
    const json_t *run = json_object_get(doc, "run");
    m->ranks += json_integer_value(json_object_get(run, "ranks"));
    m->elapsed_ms += json_integer_value(json_object_get(run, "elapsed_ms"));
    json_t *differences = json_object_get(run, "differences");
    if (!add_texts(m->transports, json_object_get(run, "transports")) ||
        !add_texts(m->transports_why, json_object_get(run, "transports_why")) ||
        json_array_extend(m->failures, json_object_get(run, "failures")) != 0 ||
        (differences != NULL && json_array_extend(m->differences, differences) != 0) ||
        json_array_append(m->part_versions, json_object_get(run, "versions")) != 0 ||
        json_array_extend(m->devices, json_object_get(run, "devices")) != 0 ||
        json_array_append_new(m->parts_list, json_pack("{s:s,s:O,s:O}", "part", part_text(doc), "body_digest",
                                                       json_object_get(doc, "body_digest"), "key_id",
                                                       json_object_get(json_object_get(doc, "signature"), "key_id"))) !=
            0)
        return KV_FAIL(m->err, KV_ENOMEM, "no memory to merge");
    return KV_OK;
}

/* Reads part i and takes all that is needed of it; of the first, what the others must fit stays. */
static kv_rc take_part(merge *m, size_t i)
{
    json_t *doc = NULL;
    kv_rc rc;
    KV_TRY(rc, out, read_part(m, i, &doc));
    if (i == 0) {
        m->first = json_copy(doc);
        if (m->first == NULL) {
            rc = KV_FAIL(m->err, KV_ENOMEM, "no memory to merge");
            goto out;
        }
        json_object_del(m->first, "rows");
        KV_TRY(rc, out, build_whole(m));
        KV_TRY(rc, out, kv_pack_new(&m->whole, &m->rows, m->err));
    }
    KV_TRY(rc, out, same_campaign(m, i, doc));
    KV_TRY(rc, out, take_rows(m, i, doc));
    rc = take_facts(m, doc);
out:
    json_decref(doc);
    return rc;
}

/* What the parts stand on, compared as ranks are within one run; differences within a part were said by its run. */
static kv_rc compare_versions(merge *m)
{
    const size_t from = json_array_size(m->differences);
    kv_stands_on *who = kv_alloc(m->n, sizeof *who);
    if (who == NULL) return KV_FAIL(m->err, KV_ENOMEM, "no memory to merge");
    for (size_t i = 0; i < m->n; i++)
        who[i] = (kv_stands_on){.versions = json_array_get(m->part_versions, i),
                                .part = json_string_value(json_object_get(json_array_get(m->parts_list, i), "part"))};
    const kv_rc rc = kv_differences_find(who, m->n, m->differences, m->err);
    if (rc == KV_OK) kv_differences_say(m->differences, from);
    kv_free(who);
    return rc;
}

static kv_rc read_all(merge *m)
{
    char *trust_path = NULL;
    kv_rc rc;
    KV_TRY(rc, out, kv_trust_find_path(m->o->trust, &trust_path, m->err));
    if (trust_path != NULL) KV_TRY(rc, out, kv_trust_load(trust_path, &m->trust, m->err));
    m->verified = kv_alloc(m->n, sizeof *m->verified);
    if (m->verified == NULL) {
        rc = KV_FAIL(m->err, KV_ENOMEM, "no memory to merge");
        goto out;
    }
    for (size_t i = 0; i < m->n; i++) KV_TRY(rc, out, verify_part(m, i));
    for (size_t i = 0; i < m->n; i++) KV_TRY(rc, out, take_part(m, i));
    KV_TRY(rc, out, check_complete(m));
    rc = compare_versions(m);
out:
    kv_free(trust_path);
    return rc;
}

/* ---- the merged certificate -------------------------------------------------------------- */

static kv_rc join(merge *m, const kv_key *key, json_t **doc)
{
    kv_assurance a = {.controls = json_object_get(m->first, "controls"),
                      .known_limits = json_object_get(m->first, "known_limits"),
                      .subject = json_object_get(m->first, "subject")};
    kv_run_facts facts = {.ranks = (int)m->ranks,
                          .devices = m->devices,
                          .failures = m->failures,
                          .differences = m->differences,
                          .transports = m->transports,
                          .transports_why = json_array_size(m->transports_why) > 0 ? m->transports_why : NULL,
                          .elapsed_ms = m->elapsed_ms,
                          .versions = json_object_get(json_object_get(m->first, "run"), "versions")};
    const kv_issue_facts issue = {.c = &m->whole,
                                  .rows = kv_pack_rows(m->rows),
                                  .assurance = &a,
                                  .facts = &facts,
                                  .parts = m->parts_list,
                                  .key = key,
                                  .path = m->o->out};
    const time_t now = time(NULL);
    struct tm utc;
    strftime(facts.started, sizeof facts.started, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    a.checks = json_array();
    kv_rc rc = kv_checks_run(&m->whole, issue.rows, a.controls, a.checks, m->err);
    if (rc == KV_OK) rc = kv_boundary_new(&m->whole, issue.rows, &a.boundary, m->err);
    if (rc == KV_OK) rc = kv_issue(&issue, doc, m->err);
    json_decref(a.checks);
    json_decref(a.boundary);
    return rc;
}

static kv_rc write_out(merge *m, json_t **doc)
{
    kv_key *key = NULL;
    kv_pass *pass = NULL;
    char *key_path = NULL;
    kv_rc rc;
    KV_TRY(rc, out, kv_key_find_path(m->o->key, &key_path, m->err));
    KV_TRY(rc, out, kv_pass_find((int)m->o->pass_fd, &pass, m->err));
    KV_TRY(rc, out, kv_key_load(key_path, pass, &key, m->err));
    rc = join(m, key, doc);
out:
    kv_key_free(key);
    kv_pass_free(pass);
    kv_free(key_path);
    return rc;
}

/* ---- the command ------------------------------------------------------------------------- */

static int tell(const merge *m, const json_t *doc)
{
    kv_observed n;
    kv_gate gate = {0};
    kv_observe(&m->whole, kv_pack_rows(m->rows), &n);
    printf("%" PRId64 " rows of %zu parts: %" PRId64 " EXACT_BYTE, %" PRId64 " EXACT_TOKEN, %" PRId64
           " NOT_EXACT, %" PRId64 " REFUSED\n",
           n.rows, m->n, n.verdicts[KV_VERDICT_EXACT_BYTE], n.verdicts[KV_VERDICT_EXACT_TOKEN],
           n.verdicts[KV_VERDICT_NOT_EXACT], n.verdicts[KV_VERDICT_REFUSED]);
    char name[KV_TEXT_SHOWN];
    printf("certificate %s\nbody digest %s\n", kv_text_show(m->o->out, name),
           json_string_value(json_object_get(doc, "body_digest")));
    const kv_gate_facts facts = {
        .c = &m->whole, .rows = kv_pack_rows(m->rows), .doc = doc, .allow_unproven = m->o->allow_unproven != 0};
    const kv_rc rc = kv_gate_judge(&facts, &gate, m->err);
    const int code = rc == KV_OK ? gate.code : kv_ask_fail(m->err);
    kv_gate_free(&gate);
    return code;
}

int kv_cmd_merge(const kv_opts *o, int argc, char **argv)
{
    (void)argc;
    (void)argv;
    kv_err err = {0};
    merge m = {.o = o, .n = (size_t)o->n_positional, .err = &err};
    json_t *doc = NULL;
    int code = KV_EXIT_OK;
    kv_rc rc = KV_OK;
    if (o->out == NULL) {
        rc = KV_FAIL(&err, KV_EINVAL, "name the file for the merged certificate with -o FILE");
        goto out;
    }
    m.failures = json_array();
    m.devices = json_array();
    m.parts_list = json_array();
    m.differences = json_array();
    m.transports = json_array();
    m.transports_why = json_array();
    m.part_versions = json_array();
    if (m.failures == NULL || m.devices == NULL || m.parts_list == NULL || m.differences == NULL ||
        m.transports == NULL || m.transports_why == NULL || m.part_versions == NULL) {
        rc = KV_FAIL(&err, KV_ENOMEM, "no memory to merge");
        goto out;
    }
    KV_TRY(rc, out, kv_ask_check_output("-o", o->out, o->positional, (size_t)o->n_positional, &err));
    KV_TRY(rc, out, kv_ask_spare_keys("-o", o->out, o, &err));
    KV_TRY(rc, out, kv_file_can_write(o->out, &err));
    KV_TRY(rc, out, read_all(&m));
    KV_TRY(rc, out, write_out(&m, &doc));
    code = tell(&m, doc);
out:
    json_decref(m.first);
    json_decref(doc);
    json_decref(m.failures);
    json_decref(m.devices);
    json_decref(m.parts_list);
    json_decref(m.differences);
    json_decref(m.transports);
    json_decref(m.transports_why);
    json_decref(m.part_versions);
    kv_pack_free(m.rows);
    kv_campaign_free(&m.whole);
    kv_trust_free(m.trust);
    kv_free(m.verified);
    if (rc == KV_OK) return kv_ask_finish(code);
    const int failed = kv_ask_fail(&err);
    return rc == KV_ESIG ? KV_EXIT_REFUSED : failed;
}
