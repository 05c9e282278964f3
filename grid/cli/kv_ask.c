#include "grid/cli/kv_ask.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/kv_file.h"
#include "certs/kv_cert_names.h"
#include "certs/kv_json.h"
#include "certs/kv_key.h"
#include "grid/cli/kv_exit.h"

int kv_ask_fail(const kv_err *err)
{
    fprintf(stderr, "kvgrid: %s\n", err->text);
    return kv_exit_of(err->rc);
}

/* The first rank, as far as the launcher tells. */
static bool speaks(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *v = getenv(names[i]);
        if (v != NULL) return strcmp(v, "0") == 0;
    }
    return true;
}

int kv_ask_fail_once(const kv_err *err)
{
    return speaks() ? kv_ask_fail(err) : kv_exit_of(err->rc);
}

int kv_ask_finish(int code)
{
    if (fflush(stdout) == 0 && !ferror(stdout)) return code;
    fprintf(stderr, "kvgrid: standard output cannot be written: %s\n", strerror(errno));
    return KV_EXIT_FAILED;
}

kv_rc kv_ask_check_output(const char *what, const char *out, const char *const *inputs, size_t n, kv_err *err)
{
    if (strcmp(out, "-") == 0)
        return KV_FAIL(err, KV_EINVAL,
                       "\"-\": this goes to a file, not to standard output; name one (./- for a file of that name)");
    for (size_t i = 0; i < n; i++)
        if (inputs[i] != NULL && kv_path_same_file(out, inputs[i]))
            return KV_FAIL(err, KV_EINVAL, "%s %s is the input %s and would destroy it; name another file", what, out,
                           inputs[i]);
    return KV_OK;
}

kv_rc kv_ask_spare_keys(const char *what, const char *out, const kv_opts *o, kv_err *err)
{
    char *keys[2] = {NULL, NULL};
    kv_buf pub = {0};
    /* where there is none, whoever needs it says so */
    (void)!kv_key_find_path(o->key, &keys[0], NULL);
    (void)!kv_trust_find_path(o->trust, &keys[1], NULL);
    kv_rc rc = keys[0] != NULL ? kv_buf_printf(&pub, err, "%s.pub", keys[0]) : KV_OK;
    const char *const inputs[] = {keys[0], pub.data, keys[1]};
    if (rc == KV_OK) rc = kv_ask_check_output(what, out, inputs, sizeof inputs / sizeof *inputs, err);
    kv_buf_free(&pub);
    kv_free(keys[0]);
    kv_free(keys[1]);
    return rc;
}

void kv_ask_size(int64_t bytes, char out[KV_SIZE_TEXT])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double v = (double)bytes;
    int u = 0;
    while (v >= 1024 && u < 6) {
        v /= 1024;
        u++;
    }
    snprintf(out, KV_SIZE_TEXT, u == 0 ? "%.0f %s" : "%.2f %s", v, units[u]);
}

kv_rc kv_ask_print_json(const json_t *v, kv_err *err)
{
    kv_buf text = {0};
    kv_rc rc = kv_json_write(v, &text, err);
    if (rc == KV_OK) printf("%s\n", text.data);
    kv_buf_free(&text);
    return rc;
}

/* "a,b,c" as a list of texts; "SRC->DST" parts as pairs where `pairs`. */
static kv_rc split_list(const char *text, bool pairs, json_t **out, kv_err *err)
{
    json_t *list = json_array();
    char *copy = kv_strdup(text);
    kv_rc rc = KV_OK;
    if (list == NULL || copy == NULL) rc = KV_FAIL(err, KV_ENOMEM, "no memory for a list");
    for (char *part = copy, *next; rc == KV_OK && part != NULL; part = next) {
        next = strchr(part, ',');
        if (next != NULL) *next++ = '\0';
        char *arrow = strstr(part, "->");
        if (pairs && arrow == NULL) {
            rc = KV_FAIL(err, KV_EINVAL, "--pairs \"%s\": must be all-ordered, published or SRC->DST pairs", part);
        } else if (pairs) {
            *arrow = '\0';
            json_array_append_new(list, json_pack("[s,s]", part, arrow + 2));
        } else {
            json_array_append_new(list, json_string(part));
        }
    }
    kv_free(copy);
    if (rc == KV_OK)
        *out = list;
    else
        json_decref(list);
    return rc;
}

static kv_rc spec_of_options(const kv_opts *o, json_t **out, kv_err *err)
{
    kv_rc rc = KV_OK;
    json_t *pairs = NULL, *geometries = NULL, *select = NULL;
    if (o->n_geometry == 0)
        return KV_FAIL(err, KV_EINVAL,
                       "name a campaign file, or --geometry (and --pairs), as in --geometry L=1,T=40,H=2,D=8,e=f16");
    geometries = json_array();
    for (int i = 0; i < o->n_geometry; i++) {
        kv_geometry g;
        KV_TRY(rc, out, kv_geometry_parse(o->geometry[i], &g, err));
        json_array_append_new(geometries, kv_geometry_json_new(&g));
    }
    if (o->pairs == NULL || strcmp(o->pairs, "all-ordered") == 0 || strcmp(o->pairs, "published") == 0)
        pairs = json_string(o->pairs != NULL ? o->pairs : "all-ordered");
    else
        KV_TRY(rc, out, split_list(o->pairs, true, &pairs, err));
    if (o->select != NULL) KV_TRY(rc, out, split_list(o->select, false, &select, err));
    *out = json_pack("{s:s,s:s,s:O,s:O,s:s,s:s,s:I}", "schema", KV_CAMPAIGN_SCHEMA, "name", "command-line", "pairs",
                     pairs, "geometries", geometries, "tail", o->tail != NULL ? o->tail : "stale", "values", "payloads",
                     "seed", (json_int_t)o->seed);
    if (*out == NULL) rc = KV_FAIL(err, KV_ENOMEM, "no memory for a campaign");
    if (rc == KV_OK && select != NULL) json_object_set(*out, "select", select);
    if (rc == KV_OK && o->part != NULL) json_object_set_new(*out, "part", json_string(o->part));
out:
    json_decref(pairs);
    json_decref(geometries);
    json_decref(select);
    return rc;
}

kv_rc kv_ask_campaign(const kv_opts *o, kv_campaign *out, kv_err *err)
{
    int64_t part, parts;
    if (o->part != NULL && !kv_part_parse(o->part, &part, &parts))
        return KV_FAIL(err, KV_EINVAL, "--part \"%s\": must be I/N with 1 <= I <= N <= %d", o->part, KV_PARTS_MAX);
    if (o->n_positional > 0) {
        if (o->n_geometry > 0 || o->pairs != NULL || o->select != NULL || o->tail != NULL || o->layouts != NULL ||
            o->seed != 1)
            return KV_FAIL(
                err, KV_EINVAL,
                "a campaign file says its own layouts, pairs, geometries, tail and seed; leave these options out");
        return kv_campaign_load(o->positional[0], o->part, out, err);
    }
    json_t *spec = NULL;
    kv_catalogue all = {0};
    kv_rc rc;
    KV_TRY(rc, out, spec_of_options(o, &spec, err));
    KV_TRY(rc, out, kv_layouts_find(o->layouts, &all, NULL, err));
    KV_TRY(rc, out, kv_campaign_build(spec, &all, "command line", out, err));
out:
    kv_catalogue_free(&all);
    json_decref(spec);
    return rc;
}
