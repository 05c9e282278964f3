#include "grid/codec/kv_codec_report.h"

#include <inttypes.h>
#include <math.h>

#include "base/kv_text.h"
#include "grid/cli/kv_ask.h"

kv_rc kv_codec_facts_account(const kv_codec_facts *f, int32_t half, kv_codec_account *out, kv_err *err)
{
    return kv_codec_account_of(&f->config.half[half], f->config.layers, f->skip, f->config.heads, f->geometry.tokens,
                               (int32_t)kv_elem_bytes(f->geometry.element), true, out, err);
}

/* ---- text ------------------------------------------------------------------------------- */

static void print_bytes(const char *name, const kv_codec_account *a, int64_t tokens)
{
    printf("%s: %" PRId64 " bytes", name, a->bytes);
    if (tokens > 0)
        printf(", %.1f a token, %.2f to 1 against bf16", (double)a->bytes / (double)tokens, kv_codec_account_ratio(a));
    printf("\n");
}

static void print_half(const kv_codec_report *r, int32_t half, const kv_codec_account *a)
{
    const kv_codec_half_config *h = &r->facts->config.half[half];
    const kv_codec_params *p = &h->slot.params;
    const kv_codec_stream_stats *s = r->stats[half];
    char name[16];
    snprintf(name, sizeof name, "%s", kv_codec_half_name(half));
    print_bytes(name, a, r->facts->geometry.tokens);
    printf("   %s, %d bits, %d of %d directions, %d centres", kv_codec_metric_name(p->metric), p->bits, p->d_eff,
           p->dim, p->k);
    if (p->outliers) printf(", outliers above %g", (double)p->threshold);
    printf("\n   %" PRId64 " slots", a->slots);
    if (a->pages > 0) printf(", %" PRId64 " shared bases", a->pages);
    printf(", %" PRId64 " rows of a head in tails\n", a->tail_rows);
    if (s == NULL || s->blocks == 0) return;
    printf("   outliers %.2f %%, variance kept %.2f %%", 100.0 * (double)s->outliers / (double)s->values,
           s->kept_ppm / (double)s->blocks / 1e4);
    if (s->padded > 0) printf(", %" PRId64 " blocks with less variance or fewer centres than a slot holds", s->padded);
    if (s->saturated + s->means_saturated > 0)
        printf(", %" PRId64 " fields and %" PRId64 " means held at +-65504", s->saturated, s->means_saturated);
    printf("\n");
}

/* "1, 3-5" of the layers for which `which` holds. */
static void print_layers(const char *what, const bool *which, int32_t layers)
{
    const char *sep = "";
    printf("%s", what);
    for (int32_t i = 0; i < layers; i++) {
        int32_t last = i;
        if (!which[i]) continue;
        while (last + 1 < layers && which[last + 1]) last++;
        printf(last > i ? "%s%d-%d" : "%s%d", sep, i, last);
        sep = ", ";
        i = last;
    }
    printf("%s\n", sep[0] != '\0' ? "" : "none");
}

static kv_rc print_layer_lists(const kv_codec_report *r, kv_err *err)
{
    const int32_t layers = r->facts->config.layers;
    bool *identity = kv_alloc((size_t)layers, sizeof *identity);
    if (identity == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for a list of layers");
    print_layers("layers left as they are: ", r->facts->skip, layers);
    for (int32_t i = 0; i < layers; i++) identity[i] = r->factors == NULL || r->factors->l[i] == NULL;
    if (r->facts->config.has[KV_CODEC_K] && r->factors != NULL)
        print_layers("layers whose K runs with the identity: ", identity, layers);
    else if (r->facts->config.has[KV_CODEC_K])
        printf(r->facts->whiten[0] != '\0' ? "K is whitened with factors %.16s...\n"
                                           : "all layers' K run with the identity (no factors)%.0s\n",
               r->facts->whiten);
    kv_free(identity);
    return KV_OK;
}

void kv_codec_error_print(const char *what, const kv_codec_error *e, const kv_codec_facts *f, int32_t half)
{
    const int64_t dim = half == KV_CODEC_K ? f->geometry.head_dim : f->geometry.head_dim_v;
    const int64_t row = e->worst_at / dim, token = row / f->geometry.kv_heads;
    if (e->not_finite) {
        printf("%s: values are not finite, the error has no figure\n", what);
        return;
    }
    if (isnan(kv_codec_error_relative(e)))
        printf("%s: relative L2 has no figure (all zero)", what);
    else
        printf("%s: relative L2 %.6f", what, kv_codec_error_relative(e));
    printf(", largest error %.6g", e->worst);
    if (e->worst > 0)
        printf(" (layer %" PRId64 ", token %" PRId64 ", head %" PRId64 ", element %" PRId64 ")",
               token / f->geometry.tokens, token % f->geometry.tokens, row % f->geometry.kv_heads, e->worst_at % dim);
    if (!isnan(kv_codec_error_cosine(e))) printf(", cosine %.6f", kv_codec_error_cosine(e));
    printf("\n");
}

static kv_rc print_text(const kv_codec_report *r, const kv_codec_account each[], const kv_codec_account *sum,
                        kv_err *err)
{
    const kv_codec_facts *f = r->facts;
    char geometry[KV_GEOMETRY_TEXT], name[KV_TEXT_SHOWN];
    kv_geometry_print(&f->geometry, geometry);
    printf("%s: %s, %s, solver %s\n", kv_text_show(r->path, name), kv_codec_recipe_name(f->recipe), geometry,
           f->solver);
    const kv_rc rc = print_layer_lists(r, err);
    for (int h = 0; h < KV_CODEC_HALVES; h++)
        if (f->config.has[h]) print_half(r, h, &each[h]);
    if (f->config.has[0] && f->config.has[1]) print_bytes("k and v", sum, f->geometry.tokens);
    for (int h = 0; h < KV_CODEC_HALVES; h++)
        if (r->error[h] != NULL) kv_codec_error_print(h == 0 ? "verify k" : "verify v", r->error[h], f, h);
    return rc;
}

/* ---- JSON ------------------------------------------------------------------------------- */

static json_t *ppm(double v)
{
    return isfinite(v) ? json_integer((json_int_t)floor(v * 1e6 + 0.5)) : json_null();
}

static json_t *half_json(const kv_codec_report *r, int32_t half, const kv_codec_account *a)
{
    const kv_codec_stream_stats *s = r->stats[half];
    const kv_codec_error *e = r->error[half];
    json_t *v = json_pack("{s:I,s:I,s:I,s:I,s:I,s:o}", "bytes", (json_int_t)a->bytes, "raw_bytes",
                          (json_int_t)a->raw_bytes, "slots", (json_int_t)a->slots, "pages", (json_int_t)a->pages,
                          "tail_rows", (json_int_t)a->tail_rows, "ratio_ppm", ppm(kv_codec_account_ratio(a)));
    if (s != NULL)
        json_object_set_new(v, "stats",
                            json_pack("{s:I,s:I,s:I,s:I,s:I,s:I}", "blocks", (json_int_t)s->blocks, "values",
                                      (json_int_t)s->values, "outliers", (json_int_t)s->outliers, "saturated",
                                      (json_int_t)s->saturated, "means_saturated", (json_int_t)s->means_saturated,
                                      "padded", (json_int_t)s->padded));
    if (e != NULL)
        json_object_set_new(v, "error",
                            json_pack("{s:o,s:o,s:o}", "relative_l2_ppm", ppm(kv_codec_error_relative(e)),
                                      "largest_ppm", ppm(e->not_finite ? NAN : e->worst), "cosine_ppm",
                                      ppm(kv_codec_error_cosine(e))));
    return v;
}

static kv_rc print_json(const kv_codec_report *r, const kv_codec_account each[], const kv_codec_account *sum,
                        kv_err *err)
{
    json_t *v = json_object();
    json_object_set_new(v, "file", kv_codec_facts_json_new(r->facts));
    for (int h = 0; h < KV_CODEC_HALVES; h++)
        if (r->facts->config.has[h]) json_object_set_new(v, kv_codec_half_name(h), half_json(r, h, &each[h]));
    json_object_set_new(v, "bytes", json_integer((json_int_t)sum->bytes));
    json_object_set_new(v, "raw_bytes", json_integer((json_int_t)sum->raw_bytes));
    json_object_set_new(v, "ratio_ppm", ppm(kv_codec_account_ratio(sum)));
    const kv_rc rc = kv_ask_print_json(v, err);
    json_decref(v);
    return rc;
}

kv_rc kv_codec_report_print(const kv_codec_report *r, bool json, kv_err *err)
{
    kv_codec_account each[KV_CODEC_HALVES] = {{0}}, sum = {0};
    for (int h = 0; h < KV_CODEC_HALVES; h++) {
        if (!r->facts->config.has[h]) continue;
        const kv_rc rc = kv_codec_facts_account(r->facts, h, &each[h], err);
        if (rc != KV_OK) return rc;
        kv_codec_account_add(&sum, &each[h]);
    }
    return json ? print_json(r, each, &sum, err) : print_text(r, each, &sum, err);
}
