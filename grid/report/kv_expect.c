#include "grid/report/kv_expect.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "grid/campaign/kv_cells.h"
#include "grid/campaign/kv_expect_int.h"
#include "grid/campaign/kv_params.h"

/* ---- which rule ------------------------------------------------------------------------- */

/* Whether v is the wanted value or one of a list of them. */
static bool is_one_of(const json_t *wanted, const json_t *v)
{
    if (!json_is_array(wanted)) return json_equal(wanted, v);
    for (size_t i = 0; i < json_array_size(wanted); i++)
        if (json_equal(json_array_get(wanted, i), v)) return true;
    return false;
}

static bool number_fits(const json_t *wanted, int64_t v)
{
    if (!json_is_array(wanted)) return json_integer_value(wanted) == v;
    for (size_t i = 0; i < json_array_size(wanted); i++)
        if (json_integer_value(json_array_get(wanted, i)) == v) return true;
    return false;
}

static bool text_fits(const json_t *wanted, const char *v)
{
    if (!json_is_array(wanted)) return strcmp(json_string_value(wanted), v) == 0;
    for (size_t i = 0; i < json_array_size(wanted); i++)
        if (strcmp(json_string_value(json_array_get(wanted, i)), v) == 0) return true;
    return false;
}

static bool geometry_fits(const json_t *filter, const kv_geometry *g)
{
    static const char *const keys[] = {"layers", "tokens", "kv_heads", "head_dim", "head_dim_v"};
    const int64_t value[] = {g->layers, g->tokens, g->kv_heads, g->head_dim, g->head_dim_v};
    const json_t *element = json_object_get(filter, "element");
    for (size_t i = 0; i < 5; i++) {
        const json_t *wanted = json_object_get(filter, keys[i]);
        if (wanted != NULL && !number_fits(wanted, value[i])) return false;
    }
    return element == NULL || text_fits(element, kv_elem_name(g->element));
}

static bool params_fit(const json_t *filter, const json_t *params)
{
    const char *key;
    json_t *wanted;
    json_object_foreach((json_t *)(uintptr_t)filter, key, wanted)
    {
        if (!is_one_of(wanted, json_object_get(params, key))) return false;
    }
    return true;
}

size_t kv_expect_find(const kv_expect *e, const kv_view *v, const kv_geometry *g)
{
    for (size_t i = 0; e != NULL && i < e->n; i++) {
        const kv_expect_rule *r = &e->rule[i];
        if (kv_pattern_match(r->src, v->src) && kv_pattern_match(r->dst, v->dst) &&
            (r->geometry == NULL || geometry_fits(r->geometry, g)) &&
            (r->params == NULL || params_fit(r->params, v->params)))
            return i;
    }
    return KV_EXPECT_NOBODY;
}

bool kv_expect_allows(const kv_expect *e, size_t i, kv_verdict v)
{
    return (e->rule[i].allowed >> v & 1U) != 0;
}

bool kv_expect_waived(const kv_expect *e, size_t i)
{
    return e->rule[i].until != NULL && strcmp(e->today, e->rule[i].until) <= 0;
}

void kv_expect_row(kv_expect *e, const kv_view *v, const kv_geometry *g)
{
    const size_t i = kv_expect_find(e, v, g);
    char text[KV_GEOMETRY_TEXT], params[KV_PARAMS_TEXT];
    if (i == KV_EXPECT_NOBODY) return;
    kv_expect_rule *r = &e->rule[i];
    r->rows++;
    if (kv_expect_allows(e, i, v->verdict)) return;
    if (r->unmet++ > 0) return;
    kv_geometry_print(g, text);
    kv_params_print(v->params, params);
    snprintf(r->first, sizeof r->first, "%s->%s at %s%s: %s", v->src, v->dst, text, params,
             kv_verdict_name(v->verdict));
}

/* ---- after all rows --------------------------------------------------------------------- */

size_t kv_expect_rules(const kv_expect *e)
{
    return e != NULL ? e->n : 0;
}

bool kv_expect_absent(const kv_expect *e, size_t i)
{
    return e->rule[i].rows == 0;
}

kv_expect_counts kv_expect_count(const kv_expect *e)
{
    kv_expect_counts c = {.rules = kv_expect_rules(e)};
    for (size_t i = 0; i < c.rules; i++) {
        const kv_expect_rule *r = &e->rule[i];
        if (r->rows > 0 && r->unmet == 0) {
            c.met++;
        } else if (r->rows > 0 && kv_expect_waived(e, i)) {
            c.waived++;
        } else {
            c.unmet++;
            if (r->rows == 0)
                c.absent++;
            else if (r->until != NULL)
                c.expired++;
        }
    }
    return c;
}

/* "EXACT_BYTE or REFUSED", or "at least EXACT_TOKEN". */
static kv_rc put_demand(const kv_expect_rule *r, kv_buf *out, kv_err *err)
{
    kv_rc rc = KV_OK;
    const char *before = r->bound ? "at least " : "";
    for (int v = r->bound ? 31 - __builtin_clz(r->allowed) : 0; rc == KV_OK && v < KV_VERDICT_COUNT; v++) {
        if (!(r->allowed >> v & 1U)) continue;
        rc = kv_buf_printf(out, err, "%s%s", before, kv_verdict_name((kv_verdict)v));
        before = " or ";
    }
    return rc;
}

kv_rc kv_expect_name(const kv_expect *e, size_t i, kv_buf *out, kv_err *err)
{
    kv_rc rc = kv_buf_printf(out, err, "expect[%zu] \"%s\" (", i, e->rule[i].pairs);
    if (rc == KV_OK) rc = put_demand(&e->rule[i], out, err);
    return rc == KV_OK ? kv_buf_puts(out, ")", err) : rc;
}

kv_rc kv_expect_excuse(const kv_expect *e, size_t i, kv_buf *out, kv_err *err)
{
    const kv_expect_rule *r = &e->rule[i];
    if (r->until == NULL) return KV_OK;
    return kv_buf_printf(out, err, "%s %s: %s", kv_expect_waived(e, i) ? "waived until" : "its waiver ran out after",
                         r->until, r->reason);
}

kv_rc kv_expect_line(const kv_expect *e, size_t i, kv_buf *out, kv_err *err)
{
    const kv_expect_rule *r = &e->rule[i];
    kv_rc rc;
    if (r->rows > 0 && r->unmet == 0) return KV_OK;
    KV_TRY(rc, out, kv_expect_name(e, i, out, err));
    if (r->rows == 0) return kv_buf_puts(out, ": no row fits it, or an earlier rule has them all", err);
    KV_TRY(rc, out,
           kv_buf_printf(out, err, ": %" PRId64 " of %" PRId64 " rows %s not so; the first is %s", r->unmet, r->rows,
                         r->unmet == 1 ? "is" : "are", r->first));
    if (r->until != NULL) KV_TRY(rc, out, kv_buf_puts(out, "; ", err));
    rc = kv_expect_excuse(e, i, out, err);
out:
    return rc;
}

kv_rc kv_expect_json(const kv_expect *e, json_t **out, kv_err *err)
{
    const kv_expect_counts c = kv_expect_count(e);
    json_t *lines = json_array();
    kv_rc rc = lines != NULL ? KV_OK : KV_FAIL(err, KV_ENOMEM, "no memory for the rules' answer");
    for (size_t i = 0; rc == KV_OK && i < c.rules; i++) {
        kv_buf line = {0};
        rc = kv_expect_line(e, i, &line, err);
        if (rc == KV_OK && line.len > 0 && json_array_append_new(lines, json_string(line.data)) != 0)
            rc = KV_FAIL(err, KV_ENOMEM, "no memory for the rules' answer");
        kv_buf_free(&line);
    }
    if (rc == KV_OK) {
        *out = json_pack("{s:I,s:I,s:I,s:I,s:I,s:I,s:O}", "rules", (json_int_t)c.rules, "met", (json_int_t)c.met,
                         "waived", (json_int_t)c.waived, "unmet", (json_int_t)c.unmet, "absent", (json_int_t)c.absent,
                         "expired", (json_int_t)c.expired, "lines", lines);
        if (*out == NULL) rc = KV_FAIL(err, KV_ENOMEM, "no memory for the rules' answer");
    }
    json_decref(lines);
    return rc;
}

kv_rc kv_expect_say(const kv_expect *e, kv_err *err)
{
    kv_rc rc = KV_OK;
    for (size_t i = 0; rc == KV_OK && i < kv_expect_rules(e); i++) {
        kv_buf line = {0};
        rc = kv_expect_line(e, i, &line, err);
        if (rc == KV_OK && line.len > 0) fprintf(stderr, "kvgrid: %s\n", line.data);
        kv_buf_free(&line);
    }
    return rc;
}
