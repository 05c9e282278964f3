/* Options of the codec commands into a configuration. */
#include "grid/codec/kv_codec_setup.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/kv_file.h"
#include "grid/codec/kv_whiten_file.h"

kv_rc kv_codec_parse(const kv_command *cmd, int argc, char **argv, kv_opts *out, bool *help, kv_err *err)
{
    /* The parser begins behind program and command: one before argv[0] stands "codec". */
    const kv_rc rc = kv_opts_parse(cmd, argc + 1, argv - 1, out, err);
    *help = rc == KV_OK && out->help;
    if (*help) kv_opts_help(cmd);
    return rc;
}

/* ---- tables ----------------------------------------------------------------------------- */

kv_rc kv_codec_read_levels(const char *path, float levels[KV_CODEC_LEVELS_MAX], int32_t *bits, kv_err *err)
{
    kv_buf file = {0};
    kv_rc rc = kv_file_read(path, 4 * KV_CODEC_LEVELS_MAX, &file, err);
    if (rc != KV_OK) return rc;
    for (*bits = 1; *bits <= KV_CODEC_BITS_MAX && file.len != (size_t)4 << *bits; ++*bits) continue;
    if (*bits > KV_CODEC_BITS_MAX) {
        rc = KV_FAIL(err, KV_EFORMAT, "%s: %zu bytes; a table has 8, 16, 32 or 64 (2^bits float32 levels)", path,
                     file.len);
    } else {
        memcpy(levels, file.data, file.len);
        rc = kv_codec_levels_check(levels, *bits, KV_EFORMAT, err);
        if (rc != KV_OK) kv_err_prefix(err, "%s", path);
    }
    kv_buf_free(&file);
    return rc;
}

/* One file of --table to every stream of its bits. */
static kv_rc apply_table(const char *path, kv_codec_stream_config *c, bool used[KV_CODEC_HALVES], kv_err *err)
{
    float levels[KV_CODEC_LEVELS_MAX];
    int32_t bits = 0;
    bool any = false;
    const kv_rc rc = kv_codec_read_levels(path, levels, &bits, err);
    if (rc != KV_OK) return rc;
    for (int h = 0; h < KV_CODEC_HALVES; h++) {
        if (!c->has[h] || c->half[h].slot.params.bits != bits || used[h]) continue;
        kv_codec_half_levels(&c->half[h], bits, levels);
        any = used[h] = true;
    }
    if (any) return KV_OK;
    return KV_FAIL(err, KV_EINVAL, "--table %s holds %d levels; no stream here has %d bits and no table yet", path,
                   1 << bits, bits);
}

kv_rc kv_codec_table_files(const char *list, char **text, const char *file[KV_CODEC_TABLES_MAX], kv_err *err)
{
    *text = kv_strdup(list);
    if (*text == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for a file name");
    char *comma = kv_path_exists(list) ? NULL : strchr(*text, ',');
    if (comma != NULL) *comma++ = '\0';
    file[0] = *text;
    file[1] = comma;
    return KV_OK;
}

static kv_rc apply_tables(const char *list, kv_codec_stream_config *c, kv_err *err)
{
    bool used[KV_CODEC_HALVES] = {false};
    const char *file[KV_CODEC_TABLES_MAX];
    char *text = NULL;
    kv_rc rc = kv_codec_table_files(list, &text, file, err);
    for (int i = 0; rc == KV_OK && i < KV_CODEC_TABLES_MAX; i++)
        if (file[i] != NULL) rc = apply_table(file[i], c, used, err);
    kv_free(text);
    return rc;
}

/* ---- single options --------------------------------------------------------------------- */

static kv_rc apply_outlier(const kv_opts *o, kv_codec_half_config *h, kv_err *err)
{
    kv_codec_params *p = &h->slot.params;
    if (o->outlier != NULL && strcmp(o->outlier, "none") == 0) {
        p->outliers = false;
        p->threshold = 0;
        h->slot.budget_ppm = 0;
    } else if (o->outlier != NULL) {
        char *end = NULL;
        const float t = strtof(o->outlier, &end);
        if (strchr("0123456789.", o->outlier[0]) == NULL || strpbrk(o->outlier, "xX") != NULL || *end != '\0' ||
            !isfinite(t) || t < 0)
            return KV_FAIL(err, KV_EINVAL, "--outlier \"%s\": must be a number of at least 0, or none", o->outlier);
        p->outliers = true;
        p->threshold = t;
        if (h->slot.budget_ppm == 0) h->slot.budget_ppm = 80000;
    }
    if (o->outlier_budget >= 0 && !p->outliers)
        return o->outlier_budget == 0 || o->stream == NULL
                   ? KV_OK
                   : KV_FAIL(err, KV_EINVAL, "--outlier-budget needs --outlier: this stream keeps none");
    if (o->outlier_budget == 0)
        return KV_FAIL(err, KV_EINVAL, "--outlier-budget 0 leaves no room for outliers; use --outlier none");
    if (o->outlier_budget > 0) h->slot.budget_ppm = (int32_t)o->outlier_budget;
    return KV_OK;
}

static kv_rc apply_options(const kv_opts *o, kv_codec_half_config *h, kv_err *err)
{
    kv_codec_slot_layout l;
    kv_rc rc;
    if (o->bits > 0) kv_codec_half_levels(h, (int32_t)o->bits, NULL);
    for (int32_t m = 0; o->metric != NULL && m < KV_CODEC_METRIC_COUNT; m++)
        if (strcmp(o->metric, kv_codec_metric_name(m)) == 0) h->slot.params.metric = m;
    KV_TRY(rc, out, apply_outlier(o, h, err));
    if (o->share_basis) {
        h->group = KV_CODEC_GROUP_ALL;
        h->slot.shared = true;
    }
    if (o->pca != NULL && strcmp(o->pca, "exact") == 0) h->fit.solver = KV_CODEC_SOLVER_LAPACK;
    if (o->pca != NULL && strcmp(o->pca, "randomized") == 0) h->fit.solver = KV_CODEC_SOLVER_RANDOMIZED;
    rc = kv_codec_slot_sizes(&h->slot, &l, err);
out:
    return rc;
}

static kv_rc apply_skip(const kv_opts *o, kv_codec_facts *f, kv_err *err)
{
    f->skip = kv_alloc((size_t)f->config.layers, sizeof *f->skip);
    if (f->skip == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for %d layers", f->config.layers);
    f->config.skip = f->skip;
    if (o->skip_layers == NULL) kv_codec_recipe_skip(f->recipe, f->config.layers, f->skip);
    if (o->skip_layers == NULL || strcmp(o->skip_layers, "none") == 0) return KV_OK;
    char *copy = kv_strdup(o->skip_layers);
    if (copy == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for a list");
    kv_rc rc = KV_OK;
    for (char *part = copy, *next; rc == KV_OK && part != NULL; part = next) {
        int64_t layer;
        next = strchr(part, ',');
        if (next != NULL) *next++ = '\0';
        if (!kv_parse_i64(part, 0, f->config.layers - 1, &layer))
            rc = KV_FAIL(err, KV_EINVAL, "--skip-layers \"%s\": must be layers from 0 to %d, as 0,1,27, or none", part,
                         f->config.layers - 1);
        else if (f->skip[layer])
            rc = KV_FAIL(err, KV_EINVAL, "--skip-layers \"%s\": layer %" PRId64 " is named twice", o->skip_layers,
                         layer);
        else
            f->skip[layer] = true;
    }
    kv_free(copy);
    return rc;
}

static kv_rc apply_geometry(const kv_opts *o, kv_codec_facts *f, kv_err *err)
{
    kv_rc rc;
    if (o->n_geometry != 1)
        return KV_FAIL(err, KV_EINVAL, "name one --geometry, as in --geometry L=1,T=1024,H=8,D=128,e=bf16");
    KV_TRY(rc, out, kv_geometry_parse(o->geometry[0], &f->geometry, err));
    const kv_geometry *g = &f->geometry;
    if (g->element == KV_ELEM_FP8_E4M3)
        return KV_FAIL(err, KV_EINVAL, "--geometry e=fp8_e4m3: the codec takes arrays of f16, bf16 and f32");
    if (g->layers > KV_CODEC_LAYERS_MAX || g->head_dim > KV_CODEC_DIM_MAX || g->head_dim_v > KV_CODEC_DIM_MAX)
        return KV_FAIL(err, KV_EINVAL, "--geometry: the codec takes at most L=%d and D=%d", KV_CODEC_LAYERS_MAX,
                       KV_CODEC_DIM_MAX);
    f->config.layers = (int32_t)g->layers;
    f->config.heads = (int32_t)g->kv_heads;
    f->config.element = g->element;
    f->config.has[KV_CODEC_K] = o->stream == NULL || strcmp(o->stream, "k") == 0;
    f->config.has[KV_CODEC_V] = o->stream == NULL || strcmp(o->stream, "v") == 0;
    rc = kv_codec_array_check(f, err);
out:
    return rc;
}

static kv_rc read_factors(const kv_opts *o, kv_codec_setup *s, kv_err *err)
{
    const kv_geometry *g = &s->facts.geometry;
    if (o->whiten == NULL) return KV_OK;
    if (!s->facts.config.has[KV_CODEC_K])
        return KV_FAIL(err, KV_EINVAL, "--whiten is for K, and --stream v stores only V");
    const kv_rc rc = kv_whiten_file_read(o->whiten, (int32_t)g->layers, (int32_t)g->kv_heads, (int32_t)g->head_dim,
                                         &s->factors, s->facts.whiten, err);
    if (rc == KV_OK) s->facts.config.whiten = &s->factors;
    return rc;
}

kv_rc kv_codec_setup_make(const kv_opts *o, kv_codec_setup *out, kv_err *err)
{
    kv_codec_facts *f = &out->facts;
    kv_rc rc;
    f->recipe = KV_CODEC_KV1;
    if (o->recipe != NULL) KV_TRY(rc, out, kv_codec_recipe_find(o->recipe, &f->recipe, err));
    KV_TRY(rc, out, apply_geometry(o, f, err));
    KV_TRY(rc, out, apply_skip(o, f, err));
    KV_TRY(rc, out, read_factors(o, out, err));
    for (int h = 0; h < KV_CODEC_HALVES; h++) {
        const int64_t dim = h == KV_CODEC_K ? f->geometry.head_dim : f->geometry.head_dim_v;
        if (!f->config.has[h]) continue;
        KV_TRY(rc, out, kv_codec_recipe_half(f->recipe, h, (int32_t)dim, o->whiten != NULL, &f->config.half[h], err));
        KV_TRY(rc, out, apply_options(o, &f->config.half[h], err));
    }
    memcpy(f->solver, "own", 4);
    if (o->pca != NULL) snprintf(f->solver, sizeof f->solver, "%s", o->pca);
    if (o->table != NULL) rc = apply_tables(o->table, &f->config, err);
out:
    return rc;
}

void kv_codec_setup_free(kv_codec_setup *s)
{
    kv_codec_facts_free(&s->facts);
    kv_codec_whiten_free(&s->factors);
}
