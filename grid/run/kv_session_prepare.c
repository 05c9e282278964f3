/* Before anything runs: what cannot work is refused here. */
#include <stdio.h>
#include <string.h>

#include "base/kv_file.h"
#include "grid/cli/kv_ask.h"
#include "grid/document/kv_doc.h"
#include "grid/report/kv_gate.h"
#include "grid/run/kv_merge.h"
#include "grid/run/kv_session.h"

/* Rank 0: campaign, key, and whether the certificate can be written, before any work is done. */
static kv_rc prepare_root(kv_session *s, kv_err *err)
{
    kv_pass *pass = NULL;
    char *key_path = NULL;
    kv_rc rc;
    KV_TRY(rc, out, kv_subject_parse(s->o->subject, &s->subject, err));
    KV_TRY(rc, out, kv_ask_campaign(s->o, &s->c, err));
    if (s->o->baseline != NULL) KV_TRY(rc, out, kv_gate_open_baseline(s->o->baseline, &s->baseline, err));
    KV_TRY(rc, out, kv_key_find_path(s->o->key, &key_path, err));
    KV_TRY(rc, out, kv_pass_find((int)s->o->pass_fd, &pass, err));
    KV_TRY(rc, out, kv_key_load(key_path, pass, &s->key, err));
    char name[KV_NAME_MAX + 64];
    if (s->c.parts > 1)
        snprintf(name, sizeof name, "%s.part-%lld-of-%lld.cert.json", s->c.name, (long long)s->c.part,
                 (long long)s->c.parts);
    else
        snprintf(name, sizeof name, "%s.cert.json", s->c.name);
    s->out_path = kv_strdup(s->o->out != NULL ? s->o->out : name);
    if (s->out_path == NULL) {
        rc = KV_FAIL(err, KV_ENOMEM, "no memory for a path");
        goto out;
    }
    const char *const inputs[] = {s->o->n_positional > 0 ? s->o->positional[0] : NULL, s->o->baseline};
    KV_TRY(rc, out, kv_ask_check_output("-o", s->out_path, inputs, sizeof inputs / sizeof inputs[0], err));
    KV_TRY(rc, out, kv_ask_spare_keys("-o", s->out_path, s->o, err));
    KV_TRY(rc, out, kv_file_can_write(s->out_path, err));
    KV_TRY(rc, out, kv_pack_new(&s->c, &s->rows, err));
    s->ranks = kv_alloc(s->c.n_cells, sizeof *s->ranks);
    if (s->ranks == NULL) rc = KV_FAIL(err, KV_ENOMEM, "no memory for %zu rows", s->c.n_cells);
out:
    kv_pass_free(pass);
    kv_free(key_path);
    return rc;
}

/* All ranks get rank 0's campaign; nobody else touches a shared file. */
static kv_rc share_campaign(kv_session *s, kv_err *err)
{
    kv_buf text = {0};
    kv_rc rc = KV_OK;
    if (kv_session_is_root(s)) rc = kv_campaign_pack(&s->c, &text, err);
    KV_TRY(rc, out, kv_mpi_agree(s->m, rc, err));
    if (kv_mpi_size(s->m) == 1) goto out;
    KV_TRY(rc, out, kv_mpi_bcast_bytes(s->m, &text, err));
    if (!kv_session_is_root(s)) rc = kv_campaign_unpack(text.data, text.len, &s->c, err);
    rc = kv_mpi_agree(s->m, rc, err);
out:
    kv_buf_free(&text);
    return rc;
}

/* With --state, rank 0 reads what is done; all ranks then make the same list of what is to do. */
static kv_rc read_state(kv_session *s, kv_err *err)
{
    char digest[KV_HASH_HEX];
    if (s->o->state == NULL) return KV_OK;
    kv_rc rc = kv_doc_campaign_digest(&s->c, digest, err);
    if (rc == KV_OK)
        rc = kv_journal_open(s->o->state, &s->c, digest, s->rows, s->done, &s->n_resumed, &s->journal, err);
    return rc;
}

static kv_rc share_state(kv_session *s, kv_err *err)
{
    kv_buf bits = {0};
    kv_rc rc = KV_OK;
    s->done = kv_alloc(s->c.n_cells, sizeof *s->done);
    s->todo = kv_alloc(s->c.n_cells, sizeof *s->todo);
    if (s->done == NULL || s->todo == NULL) rc = KV_FAIL(err, KV_ENOMEM, "no memory for %zu cells", s->c.n_cells);
    if (rc == KV_OK && kv_session_is_root(s)) rc = read_state(s, err);
    if (rc == KV_OK && kv_session_is_root(s)) rc = kv_buf_append(&bits, s->done, s->c.n_cells * sizeof *s->done, err);
    KV_TRY(rc, out, kv_mpi_agree(s->m, rc, err));
    if (s->o->state != NULL) {
        KV_TRY(rc, out, kv_mpi_bcast_bytes(s->m, &bits, err));
        memcpy(s->done, bits.data, s->c.n_cells * sizeof *s->done);
    }
    s->n_todo = kv_merge_todo(s->done, s->c.n_cells, s->todo);
out:
    kv_buf_free(&bits);
    return rc;
}

static kv_rc plan_all(kv_session *s, kv_err *err)
{
    kv_rc rc = kv_plan_new(&s->c, &s->plan, err);
    if (rc == KV_EINVAL && s->o->n_positional > 0 && err->rc == KV_EINVAL) err->rc = rc = KV_EFORMAT;
    if (rc == KV_OK) rc = kv_plan_check_memory(&s->c, &s->plan, &s->on.memory, err);
    if (rc == KV_OK) s->runner.memory_bytes = kv_plan_cell_memory(&s->plan, &s->on.memory);
    return rc;
}

/* A run weaker than --require is an error before it begins. */
static kv_rc check_demand(const kv_session *s, kv_err *err)
{
    json_t *run = json_pack("{s:i,s:O,s:O}", "ranks", kv_mpi_size(s->m), "devices", s->machines.devices, "transports",
                            s->transports);
    kv_rc rc = run != NULL ? KV_OK : KV_FAIL(err, KV_ENOMEM, "no memory to check --require");
    if (run != NULL && !kv_demand_met(&s->demand, run, err)) rc = KV_EUNSUP;
    json_decref(run);
    return rc;
}

kv_rc kv_session_prepare(kv_session *s, kv_err *err)
{
    kv_rc rc = KV_OK;
    if (kv_session_is_root(s)) rc = prepare_root(s, err);
    KV_TRY(rc, out, kv_mpi_agree(s->m, rc, err));
    KV_TRY(rc, out, share_campaign(s, err));
    KV_TRY(rc, out, kv_gpu_choose(s->m, s->o->device, s->o->share_gpu != 0, &s->on, err));
    s->runner.dev = s->on.dev;
    s->c.tp.emulate = s->o->tp_emulate != 0;
    rc = plan_all(s, err);
    KV_TRY(rc, out, kv_mpi_agree(s->m, rc, err));
    KV_TRY(rc, out, kv_session_shards_open(s, err));
    rc = kv_machine_gather(s->m, &s->on, &s->machines, err);
    if (rc == KV_OK && kv_session_is_root(s)) rc = check_demand(s, err);
    KV_TRY(rc, out, kv_mpi_agree(s->m, rc, err));
    KV_TRY(rc, out, share_state(s, err));
    rc = kv_mpi_agree(s->m, kv_session_shards_split(s, err), err);
out:
    return rc;
}
