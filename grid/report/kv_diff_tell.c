/* What a comparison says: for people, as JSON, and on stderr where the gate closes. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/kv_text.h"
#include "certs/kv_json.h"
#include "grid/report/kv_diff.h"

static const kv_diff_row *row_of(const kv_diff *d, const kv_diff_pair *p, int side)
{
    return p->row[side] != UINT32_MAX ? &d->side[side].row[p->row[side]] : NULL;
}

/* Any of its rows: they share check, names, params and geometry. */
static const kv_diff_row *key_of(const kv_diff *d, const kv_diff_pair *p)
{
    const kv_diff_row *o = row_of(d, p, KV_OLD);
    return o != NULL ? o : row_of(d, p, KV_NEW);
}

static const char *name_of(const kv_diff *d, uint32_t number)
{
    return d->names.text[number];
}

static const kv_diff_kind *kind_of(const kv_diff *d, const kv_diff_pair *p)
{
    return &d->kind[key_of(d, p)->kind];
}

/* The text of the geometry that stands for the old one with this number in NEW; the same where it is not redeclared. */
static const char *new_geometry(const kv_diff *d, const kv_diff_pair *p)
{
    const char *text = d->geometries.text[key_of(d, p)->geometry];
    if (!(p->redeclared & KV_DIFF_BY_GEOMETRY)) return text;
    return d->side[KV_NEW].geometry_names.text[kv_names_find(&d->side[KV_OLD].geometry_names, text)];
}

static const char *verdict_of(const kv_diff_row *r)
{
    return kv_verdict_name((kv_verdict)r->verdict);
}

static const char *tri_text(uint8_t t)
{
    return t == KV_TRUE ? "true" : t == KV_FALSE ? "false" : "not made";
}

/* The first observation that differs, " (tokens_identical true -> false)"; nothing where the verdicts say it. */
static kv_rc put_observation(const char *check, const kv_diff_row *o, const kv_diff_row *n, kv_buf *out, kv_err *err)
{
    for (int i = 0; i < KV_SEEN_COUNT; i++)
        if (o->seen[i] != n->seen[i])
            return kv_buf_printf(out, err, " (%s %s -> %s)", kv_seen_name(check, i), tri_text(o->seen[i]),
                                 tri_text(n->seen[i]));
    return KV_OK;
}

/* " [redeclared: vllm-fa, geometry]" */
static kv_rc put_redeclared(const kv_diff *d, const kv_diff_pair *p, kv_buf *out, kv_err *err)
{
    const kv_diff_kind *k = kind_of(d, p);
    const char *what[4];
    char section[KV_DIFF_SECTION_TEXT];
    int n = 0;
    kv_rc rc;
    if (p->redeclared == 0) return KV_OK;
    if (p->redeclared & KV_DIFF_BY_SRC) what[n++] = name_of(d, k->src);
    if (p->redeclared & KV_DIFF_BY_DST) what[n++] = name_of(d, k->dst);
    if (p->redeclared & KV_DIFF_BY_GEOMETRY) what[n++] = new_geometry(d, p);
    if (kv_diff_section_changed(d, k, section)) what[n++] = section;
    rc = kv_buf_puts(out, " [redeclared: ", err);
    for (int i = 0; rc == KV_OK && i < n; i++) rc = kv_buf_printf(out, err, "%s%s", i > 0 ? " and " : "", what[i]);
    return rc == KV_OK ? kv_buf_puts(out, "]", err) : rc;
}

kv_rc kv_diff_line(const kv_diff *d, const kv_diff_pair *p, kv_buf *out, kv_err *err)
{
    const kv_diff_row *o = row_of(d, p, KV_OLD), *n = row_of(d, p, KV_NEW), *any = key_of(d, p);
    const kv_diff_kind *k = kind_of(d, p);
    const char *check = name_of(d, k->check);
    kv_rc rc;
    if (strcmp(check, "pair") != 0) KV_TRY(rc, out, kv_buf_printf(out, err, "%s ", check));
    KV_TRY(rc, out,
           kv_buf_printf(out, err, "%s->%s at %s%s: ", name_of(d, k->src), name_of(d, k->dst),
                         d->geometries.text[any->geometry], name_of(d, k->params)));
    if (o == NULL || n == NULL) return kv_buf_puts(out, verdict_of(any), err);
    KV_TRY(rc, out, kv_buf_printf(out, err, "%s -> %s", verdict_of(o), verdict_of(n)));
    if (o->verdict == n->verdict) KV_TRY(rc, out, put_observation(name_of(d, k->check), o, n, out, err));
    rc = put_redeclared(d, p, out, err);
out:
    return rc;
}

/* ---- lists ------------------------------------------------------------------------------ */

/* The lists in the order in which they are told. */
typedef struct {
    const char *name, *what;
    bool redeclared; /* all rows redeclared, however they fared */
    kv_diff_change change;
} list;
static const list lists[] = {
    {"redeclared", "the declaration of a layout, the geometry, a section, tail or values changed", true, KV_DIFF_SAME},
    {"worse", "lower on the scale, or an observation lost", false, KV_DIFF_WORSE},
    {"better", "higher on the scale, or an observation gained", false, KV_DIFF_BETTER},
    {"new", "only in the new certificate", false, KV_DIFF_ADDED},
    {"gone", "only in the old certificate", false, KV_DIFF_GONE}};
#define N_LISTS (sizeof lists / sizeof lists[0])

static bool is_in(const list *l, const kv_diff_pair *p)
{
    return l->redeclared ? p->redeclared != 0 : p->change == l->change;
}

static int64_t length_of(const kv_diff *d, const list *l)
{
    return l->redeclared ? d->redeclared : d->counts[l->change];
}

static kv_rc print_list(const kv_diff *d, const list *l, int64_t most, kv_err *err)
{
    const int64_t n = length_of(d, l);
    int64_t shown = 0;
    kv_rc rc = KV_OK;
    if (n == 0) return KV_OK;
    printf("%s (%" PRId64 "): %s\n", l->name, n, l->what);
    for (size_t i = 0; i < d->n && shown < n && shown < most; i++) {
        kv_buf line = {0};
        if (!is_in(l, &d->pair[i])) continue;
        rc = kv_diff_line(d, &d->pair[i], &line, err);
        if (rc == KV_OK) printf("  %s\n", line.data);
        kv_buf_free(&line);
        if (rc != KV_OK) return rc;
        shown++;
    }
    if (shown < n) printf("  ... and %" PRId64 " more; --format json lists all\n", n - shown);
    return KV_OK;
}

/* One line for each layout that both sides declare, but not alike. */
static void print_layouts(const kv_diff *d)
{
    const kv_diff_side *a = &d->side[KV_OLD], *b = &d->side[KV_NEW];
    for (uint32_t i = 0; i < a->layouts.n; i++) {
        const uint32_t k = kv_names_find(&b->layouts, a->layouts.text[i]);
        if (k != KV_NAMES_NONE && strcmp(a->digest[i], b->digest[k]) != 0)
            printf("layout %s is declared otherwise: digest %.16s... was, %.16s... is\n", a->layouts.text[i],
                   a->digest[i], b->digest[k]);
    }
}

kv_rc kv_diff_text(const kv_diff *d, const char *old_name, const char *new_name, int64_t most, kv_err *err)
{
    kv_rc rc = KV_OK;
    char name[KV_TEXT_SHOWN];
    print_layouts(d);
    for (size_t i = 0; i < N_LISTS; i++) KV_TRY(rc, out, print_list(d, &lists[i], most, err));
    printf("%s: %zu rows, ", kv_text_show(old_name, name), d->side[KV_OLD].n);
    printf("%s: %zu rows; %" PRId64 " the same", kv_text_show(new_name, name), d->side[KV_NEW].n,
           d->counts[KV_DIFF_SAME]);
    for (size_t i = 1; i < N_LISTS; i++) printf(", %" PRId64 " %s", length_of(d, &lists[i]), lists[i].name);
    printf("; %" PRId64 " redeclared\n", d->redeclared);
out:
    return rc;
}

/* ---- JSON ------------------------------------------------------------------------------- */

static kv_rc no_memory(kv_err *err)
{
    return KV_FAIL(err, KV_ENOMEM, "no memory for the comparison's answer");
}

static json_t *verdict_json(const kv_diff_row *r)
{
    return r != NULL ? json_string(verdict_of(r)) : json_null();
}

/* {check, pair_id, geometry, params, old, new, change, redeclared[], text} */
static kv_rc pair_json(const kv_diff *d, const kv_diff_pair *p, json_t **out, kv_err *err)
{
    const kv_diff_kind *k = kind_of(d, p);
    char section[KV_DIFF_SECTION_TEXT];
    kv_buf line = {0}, id = {0};
    json_t *why = json_array();
    kv_rc rc = why != NULL ? kv_diff_line(d, p, &line, err) : no_memory(err);
    if (rc == KV_OK) rc = kv_buf_printf(&id, err, "%s->%s", name_of(d, k->src), name_of(d, k->dst));
    if (rc == KV_OK && (p->redeclared & KV_DIFF_BY_SRC)) json_array_append_new(why, json_string(name_of(d, k->src)));
    if (rc == KV_OK && (p->redeclared & KV_DIFF_BY_DST)) json_array_append_new(why, json_string(name_of(d, k->dst)));
    if (rc == KV_OK && (p->redeclared & KV_DIFF_BY_GEOMETRY))
        json_array_append_new(why, json_string(new_geometry(d, p)));
    if (rc == KV_OK && (p->redeclared & KV_DIFF_BY_SECTION) && kv_diff_section_changed(d, k, section))
        json_array_append_new(why, json_string(section));
    if (rc == KV_OK) {
        const char *params = name_of(d, k->params);
        *out = json_pack("{s:s,s:s,s:s,s:s,s:o,s:o,s:s,s:O,s:s}", "check", name_of(d, k->check), "pair_id", id.data,
                         "geometry", d->geometries.text[key_of(d, p)->geometry], "params",
                         *params == ',' ? params + 1 : params, "old", verdict_json(row_of(d, p, KV_OLD)), "new",
                         verdict_json(row_of(d, p, KV_NEW)), "change", kv_diff_change_name((kv_diff_change)p->change),
                         "redeclared", why, "text", line.data);
        if (*out == NULL) rc = no_memory(err);
    }
    json_decref(why);
    kv_buf_free(&line);
    kv_buf_free(&id);
    return rc;
}

static json_t *counts_new(const kv_diff *d, bool passes)
{
    return json_pack("{s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:b}", "better", (json_int_t)d->counts[KV_DIFF_BETTER], "gone",
                     (json_int_t)d->counts[KV_DIFF_GONE], "new", (json_int_t)d->counts[KV_DIFF_ADDED], "new_rows",
                     (json_int_t)d->side[KV_NEW].n, "old_rows", (json_int_t)d->side[KV_OLD].n, "redeclared",
                     (json_int_t)d->redeclared, "same", (json_int_t)d->counts[KV_DIFF_SAME], "worse",
                     (json_int_t)d->counts[KV_DIFF_WORSE], "passes", passes);
}

kv_rc kv_diff_print_json(const kv_diff *d, bool passes, kv_err *err)
{
    kv_buf text = {0};
    json_t *counts = counts_new(d, passes);
    kv_rc rc = counts != NULL ? kv_json_write(counts, &text, err) : no_memory(err);
    if (rc == KV_OK) printf("{\"counts\":%s", text.data);
    for (size_t l = 0; rc == KV_OK && l < N_LISTS; l++) {
        const char *before = "";
        printf(",\"%s\":[", lists[l].name);
        for (size_t i = 0; rc == KV_OK && i < d->n; i++) {
            json_t *one = NULL;
            if (!is_in(&lists[l], &d->pair[i])) continue;
            kv_buf_free(&text);
            rc = pair_json(d, &d->pair[i], &one, err);
            if (rc == KV_OK) rc = kv_json_write(one, &text, err);
            if (rc == KV_OK) printf("%s\n%s", before, text.data);
            before = ",";
            json_decref(one);
        }
        printf("]");
    }
    printf("}\n");
    json_decref(counts);
    kv_buf_free(&text);
    return rc;
}

static kv_rc list_json(const kv_diff *d, const list *l, size_t most, json_t *into, kv_err *err)
{
    json_t *found = json_array();
    kv_rc rc = found != NULL ? KV_OK : no_memory(err);
    for (size_t i = 0; rc == KV_OK && i < d->n && json_array_size(found) < most; i++) {
        json_t *one = NULL;
        if (!is_in(l, &d->pair[i])) continue;
        rc = pair_json(d, &d->pair[i], &one, err);
        if (rc == KV_OK && json_array_append_new(found, one) != 0) rc = no_memory(err);
    }
    if (rc == KV_OK && json_object_set(into, l->name, found) != 0) rc = no_memory(err);
    json_decref(found);
    return rc;
}

kv_rc kv_diff_json(const kv_diff *d, bool passes, size_t most, json_t **out, kv_err *err)
{
    json_t *v = json_pack("{s:o?}", "counts", counts_new(d, passes));
    kv_rc rc = v != NULL && json_object_get(v, "counts") != NULL ? KV_OK : no_memory(err);
    for (size_t i = 0; rc == KV_OK && i < 2; i++) rc = list_json(d, &lists[i], most, v, err);
    if (rc == KV_OK)
        *out = v;
    else
        json_decref(v);
    return rc;
}

/* ---- why the gate closes ---------------------------------------------------------------- */

static kv_rc say_list(const kv_diff *d, const list *l, const char *what, kv_err *err)
{
    size_t i = 0;
    kv_buf line = {0};
    while (i < d->n && !is_in(l, &d->pair[i])) i++;
    const kv_rc rc = kv_diff_line(d, &d->pair[i], &line, err);
    if (rc == KV_OK)
        fprintf(stderr, "kvgrid: %" PRId64 " row%s %s; the first is %s\n", length_of(d, l),
                length_of(d, l) == 1 ? "" : "s", what, line.data);
    kv_buf_free(&line);
    return rc;
}

kv_rc kv_diff_say(const kv_diff *d, const char *old_name, bool accept_redeclared, kv_err *err)
{
    kv_rc rc = KV_OK;
    char what[KV_ERR_TEXT], name[KV_TEXT_SHOWN];
    if (d->redeclared > 0 && !accept_redeclared)
        KV_TRY(rc, out, say_list(d, &lists[0], "redeclared, which --accept-redeclared accepts", err));
    snprintf(what, sizeof what, "worse than in %.600s", kv_text_show(old_name, name));
    if (d->counts[KV_DIFF_WORSE] > 0) KV_TRY(rc, out, say_list(d, &lists[1], what, err));
    if (kv_diff_is_void(d))
        fprintf(stderr, "kvgrid: no row of %s is there again, so nothing was compared; that is not a pass\n",
                kv_text_show(old_name, name));
out:
    return rc;
}
