#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "grid/campaign/kv_cells.h"
#include "grid/report/kv_show.h"

/* ---- layouts ---------------------------------------------------------------------------- */

static const char *layout_name(const kv_reader *r, size_t i)
{
    const char *s = json_string_value(json_object_get(json_array_get(json_object_get(r->doc, "catalogue"), i), "name"));
    return s != NULL ? s : "";
}

/* How many layouts of the certificate a pattern fits. */
static size_t fits(const kv_reader *r, const char *pattern)
{
    size_t found = 0;
    for (size_t i = 0; i < json_array_size(json_object_get(r->doc, "catalogue")); i++)
        if (kv_pattern_match(pattern, layout_name(r, i))) found++;
    return found;
}

static kv_rc add_pattern(kv_filter *f, const kv_reader *r, char *part, kv_err *err)
{
    char *arrow = strstr(part, "->");
    if (arrow != NULL) *arrow = '\0';
    f->src[f->n] = part;
    f->dst[f->n++] = arrow != NULL ? arrow + 2 : NULL;
    const char *bad = fits(r, part) == 0 ? part : arrow != NULL && fits(r, arrow + 2) == 0 ? arrow + 2 : NULL;
    return bad == NULL ? KV_OK : KV_FAIL(err, KV_EINVAL, "--select: the certificate has no layout \"%s\"", bad);
}

/* A row has two layouts: patterns without -> that fit only one leave nothing. */
static kv_rc check_two(const kv_filter *f, const kv_reader *r, const char *given, kv_err *err)
{
    size_t found = 0;
    for (size_t i = 0; i < f->n; i++) {
        if (f->dst[i] != NULL) return KV_OK;
        found += fits(r, f->src[i]);
    }
    if (found != 1) return KV_OK;
    return KV_FAIL(err, KV_EINVAL,
                   "--select \"%s\": fits one layout, and a row has two; \"%s->*,*->%s\" takes all its rows", given,
                   given, given);
}

static kv_rc read_select(const kv_opts *o, const kv_reader *r, kv_filter *f, kv_err *err)
{
    size_t n = 1;
    kv_rc rc = KV_OK;
    if (o->select == NULL) return KV_OK;
    for (const char *c = o->select; *c != '\0'; c++) n += *c == ',';
    f->text = kv_strdup(o->select);
    f->src = kv_alloc(n, sizeof *f->src);
    f->dst = kv_alloc(n, sizeof *f->dst);
    if (f->text == NULL || f->src == NULL || f->dst == NULL)
        return KV_FAIL(err, KV_ENOMEM, "no memory for %zu patterns", n);
    for (char *part = f->text, *next; part != NULL; part = next) {
        next = strchr(part, ',');
        if (next != NULL) *next++ = '\0';
        KV_TRY(rc, out, add_pattern(f, r, part, err));
    }
    rc = check_two(f, r, o->select, err);
out:
    return rc;
}

static bool select_takes(const kv_filter *f, const char *src, const char *dst)
{
    bool alone_src = false, alone_dst = false;
    for (size_t i = 0; i < f->n; i++) {
        if (f->dst[i] != NULL && kv_pattern_match(f->src[i], src) && kv_pattern_match(f->dst[i], dst)) return true;
        if (f->dst[i] != NULL) continue;
        alone_src = alone_src || kv_pattern_match(f->src[i], src);
        alone_dst = alone_dst || kv_pattern_match(f->src[i], dst);
    }
    return alone_src && alone_dst;
}

/* ---- geometries ------------------------------------------------------------------------- */

enum { F_L, F_T, F_H, F_D, F_DV, F_E, F_COUNT };

/* Some fields of a geometry. */
typedef struct {
    unsigned given; /* bits F_* */
    int64_t value[F_E];
    kv_elem element;
} some_fields;

static kv_rc read_field(const char *part, size_t n, const char *given, some_fields *out, kv_err *err)
{
    static const char *const keys[F_COUNT] = {"L", "T", "H", "D", "Dv", "e"};
    char text[64];
    const char *eq = memchr(part, '=', n);
    if (eq != NULL && n < sizeof text) {
        memcpy(text, part, n);
        text[n] = '\0';
        for (unsigned k = 0; k < F_COUNT; k++) {
            const size_t len = (size_t)(eq - part);
            if (strlen(keys[k]) != len || memcmp(keys[k], part, len) != 0 || (out->given >> k & 1U) != 0) continue;
            out->given |= 1U << k;
            if (k == F_E ? kv_elem_parse(text + len + 1, &out->element)
                         : kv_parse_i64(text + len + 1, 0, INT64_MAX, &out->value[k]))
                return KV_OK;
        }
    }
    return KV_FAIL(err, KV_EINVAL,
                   "--geometry \"%s\": \"%.*s\" is none of L=, T=, H=, D=, Dv= (numbers) and e= (a type), each once",
                   given, (int)n, part);
}

static kv_rc read_fields(const char *given, some_fields *out, kv_err *err)
{
    memset(out, 0, sizeof *out);
    for (const char *part = given;;) {
        const size_t n = strcspn(part, ",");
        const kv_rc rc = read_field(part, n, given, out, err);
        if (rc != KV_OK || part[n] == '\0') return rc;
        part += n + 1;
    }
}

static bool fields_fit(const some_fields *s, const kv_geometry *g)
{
    const int64_t value[F_E] = {g->layers, g->tokens, g->kv_heads, g->head_dim, g->head_dim_v};
    for (unsigned k = 0; k < F_E; k++)
        if ((s->given >> k & 1U) != 0 && s->value[k] != value[k]) return false;
    return (s->given >> F_E & 1U) == 0 || s->element == g->element;
}

static kv_rc read_geometries(const kv_opts *o, const kv_reader *r, kv_filter *f, kv_err *err)
{
    if (o->n_geometry == 0) return KV_OK;
    f->geometry = kv_alloc(r->n_geometries, sizeof *f->geometry);
    if (f->geometry == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for %zu geometries", r->n_geometries);
    for (int i = 0; i < o->n_geometry; i++) {
        some_fields some;
        bool found = false;
        const kv_rc rc = read_fields(o->geometry[i], &some, err);
        if (rc != KV_OK) return rc;
        for (size_t g = 0; g < r->n_geometries; g++)
            if (fields_fit(&some, &r->geometries[g])) found = f->geometry[g] = true;
        if (!found)
            return KV_FAIL(err, KV_EINVAL, "--geometry \"%s\": the certificate has no such geometry", o->geometry[i]);
    }
    return KV_OK;
}

/* ---- verdicts --------------------------------------------------------------------------- */

static kv_rc read_verdicts(const kv_opts *o, kv_filter *f, kv_err *err)
{
    for (const char *part = o->verdict; part != NULL;) {
        char name[32];
        kv_verdict v;
        const size_t n = strcspn(part, ",");
        snprintf(name, sizeof name, "%.*s", (int)(n < sizeof name ? n : sizeof name - 1), part);
        if (!kv_verdict_parse(name, &v))
            return KV_FAIL(err, KV_EINVAL,
                           "--verdict \"%s\": must be EXACT_BYTE, EXACT_TOKEN, NOT_EXACT, REFUSED, UNPROVEN, FAILED, "
                           "separated by commas",
                           name);
        f->verdicts |= 1U << v;
        part = part[n] == ',' ? part + n + 1 : NULL;
    }
    return KV_OK;
}

/* ---- all -------------------------------------------------------------------------------- */

kv_rc kv_filter_new(const kv_opts *o, const kv_reader *r, kv_filter *out, kv_err *err)
{
    kv_rc rc;
    out->pair = o->n_positional > 1 ? o->positional[1] : NULL;
    KV_TRY(rc, out, read_select(o, r, out, err));
    KV_TRY(rc, out, read_geometries(o, r, out, err));
    KV_TRY(rc, out, read_verdicts(o, out, err));
    out->any = out->pair != NULL || out->n > 0 || out->geometry != NULL || out->verdicts != 0;
out:
    return rc;
}

static bool is_pair(const char *pair, const char *src, const char *dst)
{
    const size_t n = strlen(src);
    return strncmp(pair, src, n) == 0 && strncmp(pair + n, "->", 2) == 0 && strcmp(pair + n + 2, dst) == 0;
}

bool kv_filter_takes(const kv_filter *f, const kv_view *v)
{
    return (f->pair == NULL || is_pair(f->pair, v->src, v->dst)) && (f->geometry == NULL || f->geometry[v->geometry]) &&
           (f->verdicts == 0 || (f->verdicts >> v->verdict & 1U) != 0) &&
           (f->n == 0 || select_takes(f, v->src, v->dst));
}

void kv_filter_free(kv_filter *f)
{
    kv_free(f->text);
    kv_free(f->src);
    kv_free(f->dst);
    kv_free(f->geometry);
    memset(f, 0, sizeof *f);
}
