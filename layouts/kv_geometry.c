#include "layouts/kv_geometry.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static kv_rc check_range(const char *field, int64_t v, int64_t least, int64_t most, kv_err *err)
{
    if (v >= least && v <= most) return KV_OK;
    return KV_FAIL(err, KV_EINVAL, "geometry: %s is %" PRId64 ", must be %" PRId64 " to %" PRId64, field, v, least,
                   most);
}

kv_rc kv_geometry_check(const kv_geometry *g, kv_err *err)
{
    kv_rc rc;
    KV_TRY(rc, out, check_range("layers", g->layers, 1, KV_LAYERS_MAX, err));
    KV_TRY(rc, out, check_range("tokens", g->tokens, 0, KV_TOKENS_MAX, err));
    KV_TRY(rc, out, check_range("kv_heads", g->kv_heads, 1, KV_HEADS_MAX, err));
    KV_TRY(rc, out, check_range("head_dim", g->head_dim, 1, KV_HEAD_DIM_MAX, err));
    KV_TRY(rc, out, check_range("head_dim_v", g->head_dim_v, 1, KV_HEAD_DIM_MAX, err));
out:
    return rc;
}

/* One "key=value" part; seen holds a bit for each key that has stood already. */
static kv_rc parse_part(const char *part, kv_geometry *g, unsigned *seen, kv_err *err)
{
    static const char *const keys[] = {"L", "T", "H", "D", "Dv", "e"};
    int64_t *const fields[] = {&g->layers, &g->tokens, &g->kv_heads, &g->head_dim, &g->head_dim_v};
    const char *eq = strchr(part, '=');
    if (eq == NULL)
        return KV_FAIL(err, KV_EINVAL, "geometry: \"%s\" is not KEY=VALUE (as in L=3,T=40,H=2,D=8,e=f16)", part);
    for (unsigned k = 0; k < sizeof keys / sizeof keys[0]; k++) {
        if (strlen(keys[k]) != (size_t)(eq - part) || strncmp(part, keys[k], strlen(keys[k])) != 0) continue;
        if (*seen >> k & 1U) return KV_FAIL(err, KV_EINVAL, "geometry: %s is given twice", keys[k]);
        *seen |= 1U << k;
        if (k == 5) {
            if (!kv_elem_parse(eq + 1, &g->element))
                return KV_FAIL(err, KV_EINVAL, "geometry: element \"%s\" is unknown (f16, bf16, f32, fp8_e4m3)",
                               eq + 1);
        } else if (!kv_parse_i64(eq + 1, INT64_MIN, INT64_MAX, fields[k])) {
            return KV_FAIL(err, KV_EINVAL, "geometry: %s=\"%s\" is not an integer of 64 bits", keys[k], eq + 1);
        }
        return KV_OK;
    }
    return KV_FAIL(err, KV_EINVAL, "geometry: unknown key in \"%s\" (known: L, T, H, D, Dv, e)", part);
}

kv_rc kv_geometry_parse(const char *text, kv_geometry *out, kv_err *err)
{
    kv_rc rc = KV_OK;
    kv_geometry g = {1, 0, 0, 0, 0, KV_ELEM_F16};
    unsigned seen = 0;
    char *copy = kv_strdup(text);
    if (copy == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for a geometry");
    for (char *part = copy, *next; part != NULL; part = next) {
        next = strchr(part, ',');
        if (next != NULL) *next++ = '\0';
        KV_TRY(rc, out, parse_part(part, &g, &seen, err));
    }
    static const char *const needed[] = {"L", "T", "H", "D", NULL, "e"};
    for (unsigned k = 0; k < 6; k++)
        if (needed[k] != NULL && !(seen >> k & 1U)) {
            rc = KV_FAIL(err, KV_EINVAL, "geometry \"%s\": %s= is missing (as in L=3,T=40,H=2,D=8,e=f16)", text,
                         needed[k]);
            goto out;
        }
    if (!(seen >> 4 & 1U)) g.head_dim_v = g.head_dim;
    KV_TRY(rc, out, kv_geometry_check(&g, err));
    *out = g;
out:
    kv_free(copy);
    return rc;
}

void kv_geometry_print(const kv_geometry *g, char text[KV_GEOMETRY_TEXT])
{
    char dv[32] = "";
    if (g->head_dim_v != g->head_dim) snprintf(dv, sizeof dv, ",Dv=%" PRId64, g->head_dim_v);
    snprintf(text, KV_GEOMETRY_TEXT, "L=%" PRId64 ",T=%" PRId64 ",H=%" PRId64 ",D=%" PRId64 "%s,e=%s", g->layers,
             g->tokens, g->kv_heads, g->head_dim, dv, kv_elem_name(g->element));
}

bool kv_geometry_equal(const kv_geometry *a, const kv_geometry *b)
{
    return a->layers == b->layers && a->tokens == b->tokens && a->kv_heads == b->kv_heads &&
           a->head_dim == b->head_dim && a->head_dim_v == b->head_dim_v && a->element == b->element;
}
