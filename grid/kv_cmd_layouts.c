/* kvgrid layouts: what is declared. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "grid/campaign/kv_write_out.h"
#include "grid/cli/kv_ask.h"
#include "grid/cli/kv_exit.h"

static const char *const store_names[] = {"separate", "interleaved", "latent"};

static void axes_text(const kv_axes *a, char *out, size_t n)
{
    size_t used = 0;
    out[0] = '\0';
    for (int i = 0; i < a->n && used < n; i++)
        used += (size_t)snprintf(out + used, n - used, "%s%s", i > 0 ? " " : "", kv_factor_name(a->f[i]));
}

static void print_line(const kv_layout *l)
{
    char k[64], v[64], more[128] = "";
    axes_text(&l->axes[0], k, sizeof k);
    axes_text(&l->axes[1], v, sizeof v);
    size_t used = 0;
    if (l->block > 0) used += (size_t)snprintf(more, sizeof more, " block %" PRId64, l->block);
    if (l->x > 0) used += (size_t)snprintf(more + used, sizeof more - used, " x %" PRId64, l->x);
    if (l->x_bytes > 0) used += (size_t)snprintf(more + used, sizeof more - used, " x_bytes %" PRId64, l->x_bytes);
    if (l->tx > 0) used += (size_t)snprintf(more + used, sizeof more - used, " tx %" PRId64, l->tx);
    if (!l->element_same) used += (size_t)snprintf(more + used, sizeof more - used, " %s", kv_elem_name(l->element));
    if (l->tp_size > 1)
        snprintf(more + used, sizeof more - used, " tp rank %" PRId64 " of %" PRId64, l->tp_rank, l->tp_size);
    printf("%-20s %-11s %-16s %-16s %s%s\n", l->name, store_names[l->store], k, strcmp(k, v) == 0 ? "=" : v,
           l->attention == KV_ATTENTION_MLA ? "mla" : "gqa", more);
}

static kv_rc print_one(const kv_layout *l, bool as_json, kv_err *err)
{
    if (as_json) return kv_ask_print_json(l->json, err);
    print_line(l);
    static const char *const keys[] = {"engine", "version", "cite", "evidence", "notes", NULL};
    for (const char *const *k = keys; *k != NULL; k++) {
        const char *text = json_string_value(json_object_get(l->json, *k));
        if (text != NULL) printf("  %-9s %s\n", *k, text);
    }
    return KV_OK;
}

static kv_rc print_all(const kv_catalogue *c, bool as_json, kv_err *err)
{
    if (!as_json) {
        printf("%-20s %-11s %-16s %-16s\n", "name", "kv", "K axes", "V axes");
        for (size_t i = 0; i < c->n; i++) print_line(c->item[i]);
        return KV_OK;
    }
    json_t *list = json_array();
    for (size_t i = 0; list != NULL && i < c->n; i++) json_array_append(list, c->item[i]->json);
    kv_rc rc = list != NULL ? kv_ask_print_json(list, err) : KV_FAIL(err, KV_ENOMEM, "no memory for the answer");
    json_decref(list);
    return rc;
}

static kv_rc print_models(bool as_json, kv_err *err)
{
    json_t *models = NULL;
    kv_rc rc = kv_models_new(&models, err);
    if (rc == KV_OK && as_json) rc = kv_ask_print_json(models, err);
    for (size_t i = 0; rc == KV_OK && !as_json && i < json_array_size(models); i++) {
        const json_t *m = json_array_get(models, i);
        printf("%-16s L=%-4lld H=%-3lld D=%-4lld %s\n", json_string_value(json_object_get(m, "name")),
               (long long)json_integer_value(json_object_get(m, "layers")),
               (long long)json_integer_value(json_object_get(m, "kv_heads")),
               (long long)json_integer_value(json_object_get(m, "head_dim")),
               json_string_value(json_object_get(m, "source")));
    }
    json_decref(models);
    return rc;
}

int kv_cmd_layouts(const kv_opts *o, int argc, char **argv)
{
    (void)argc;
    (void)argv;
    kv_err err = {0};
    kv_catalogue c = {0};
    char *used = NULL;
    kv_rc rc;
    if (o->models) {
        rc = print_models(o->json, &err);
        goto out;
    }
    KV_TRY(rc, out, kv_layouts_find(o->layouts, &c, &used, &err));
    if (o->n_positional == 0) {
        rc = print_all(&c, o->json, &err);
        goto out;
    }
    const kv_layout *l = kv_catalogue_find(&c, o->positional[0]);
    if (l == NULL)
        rc = KV_FAIL(&err, KV_EINVAL, "no layout is called \"%s\" in %s; kvgrid layouts lists them", o->positional[0],
                     used);
    else
        rc = print_one(l, o->json, &err);
out:
    kv_free(used);
    kv_catalogue_free(&c);
    return rc == KV_OK ? kv_ask_finish(KV_EXIT_OK) : kv_ask_fail(&err);
}
