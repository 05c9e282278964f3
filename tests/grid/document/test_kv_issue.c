/* What is issued: a certificate that verifies, or no file at all. */
#include "certs/kv_verify.h"
#include "grid/document/kv_assurance.h"
#include "grid/document/kv_issue.h"
#include "tests/kv_test_grid.h"

typedef struct {
    char dir[128], *path;
    kv_device *dev;
    kv_campaign c;
    kv_row *rows;
    kv_key *key;
    kv_assurance assurance;
    kv_run_facts facts;
} issue;

static issue start(const char *more)
{
    issue x = {.dev = kvt_cpu(), .assurance = {.controls = json_array(), .known_limits = json_array()}};
    kv_err err = {0};
    kvt_folder(x.dir);
    x.path = kvt_path(x.dir, "cert");
    x.c = kvt_campaign("a sep k=T.H.D; b int k=KV.Tb.Ti.H.D block=4", "L=1,T=5,H=2,D=4,e=f16", more);
    x.rows = kvt_take((int64_t)x.c.n_cells, sizeof *x.rows);
    for (size_t i = 0; i < x.c.n_cells; i++) x.rows[i] = kvt_run(x.dev, &x.c, (int64_t)i);
    kvt_ok(kv_key_new(NULL, &x.key, &err), &err);
    x.facts = (kv_run_facts){.ranks = 1,
                             .devices = kvt_json("[{'rank':0,'host':'h','device':'cpu','name':'n'}]"),
                             .versions = kvt_json("{}"),
                             .failures = kvt_json("[]"),
                             .started = "2026-11-29T18:00:00Z"};
    return x;
}

static kv_rc run(issue *x, kv_err *err)
{
    json_t *doc = NULL;
    x->assurance.checks = json_array();
    const kv_issue_facts f = {.c = &x->c,
                              .rows = kv_row_set_of(x->rows),
                              .assurance = &x->assurance,
                              .facts = &x->facts,
                              .key = x->key,
                              .path = x->path};
    kvt_ok(kv_checks_run(&x->c, f.rows, x->assurance.controls, x->assurance.checks, err), err);
    kvt_ok(kv_boundary_new(&x->c, f.rows, &x->assurance.boundary, err), err);
    const kv_rc rc = kv_issue(&f, &doc, err);
    json_decref(doc);
    json_decref(x->assurance.checks);
    json_decref(x->assurance.boundary);
    return rc;
}

static void end(issue *x)
{
    json_decref(x->assurance.controls);
    json_decref(x->assurance.known_limits);
    json_decref(x->facts.devices);
    json_decref(x->facts.versions);
    json_decref(x->facts.failures);
    kv_key_free(x->key);
    free(x->rows);
    kv_campaign_free(&x->c);
    x->dev->ops->close(x->dev);
    (void)unlink(x->path);
    assert_int_equal(rmdir(x->dir), 0); /* nothing else was left there */
    free(x->path);
}

static bool is_there(const issue *x)
{
    return access(x->path, F_OK) == 0;
}

/* No controls were made, so checks fail and names are missing: that stands in the certificate (H8, H9), and is no bug. */
static void issue__writes_what_an_honest_run_can_come_to(void **state)
{
    (void)state;
    static const char *const more[] = {"", "'floors':{'exact_byte':7}", "'claims':{'words':['layer_merge']}"};
    for (size_t i = 0; i < KVT_COUNT(more); i++) {
        issue x = start(more[i]);
        kv_err err = {0};
        kvt_ok(run(&x, &err), &err);
        assert_true(is_there(&x));
        end(&x);
    }
}

static void issue__writes_nothing_that_does_not_verify(void **state)
{
    (void)state;
    for (int what = 0; what < 5; what++) {
        issue x = start("");
        kv_err err = {0};
        const char *code = "";
        switch (what) {
        case 0: x.rows[0].diff_positions++, code = "H2_VERDICT_NOT_DERIVED"; break;
        case 1: x.rows[1].checked--, code = "H4_PROOF_NOT_EXHAUSTIVE"; break;
        case 2: x.rows[0].words = 0, code = "H5_TRIVIAL_TRANSFORMATION"; break;
        case 3: x.facts.ranks = 2, code = "H10_COUNTS_DO_NOT_RECOMPUTE"; break;
        default: snprintf(x.facts.started, sizeof x.facts.started, "yesterday"), code = "H0_DOCUMENT_UNREADABLE";
        }
        kvt_refused(run(&x, &err), KV_EBUG, &err, code,
                    KVT_SAYS("internal error: the certificate that was made does not verify", code, x.path));
        assert_false(is_there(&x));
        end(&x);
    }
}

/* What stood there before is not touched. */
static void issue__leaves_the_old_file_where_the_new_one_does_not_verify(void **state)
{
    (void)state;
    issue x = start("");
    kv_err err = {0};
    kv_buf before = {0}, after = {0};
    kvt_ok(run(&x, &err), &err);
    kvt_ok(kv_file_read(x.path, 1 << 20, &before, &err), &err);
    x.rows[0].diff_positions++;
    assert_int_equal(run(&x, &err), KV_EBUG);
    kvt_ok(kv_file_read(x.path, 1 << 20, &after, &err), &err);
    assert_int_equal(after.len, before.len);
    assert_memory_equal(after.data, before.data, before.len);
    kv_buf_free(&before);
    kv_buf_free(&after);
    end(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(issue__writes_what_an_honest_run_can_come_to),
        cmocka_unit_test(issue__writes_nothing_that_does_not_verify),
        cmocka_unit_test(issue__leaves_the_old_file_where_the_new_one_does_not_verify),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
