/* One layout object: strict parsing, every impossible declaration named by layout and key. */
#include "layouts/kv_layout.h"

#include <stdio.h>
#include <string.h>

#include "layouts/kv_layout_json.h"

static const char *const factor_names[KV_F_COUNT] = {"L", "KV", "T", "Tb", "Ti", "Tg", "Tx", "H", "D", "Dg", "Dx", "C"};

const char *kv_factor_name(kv_factor f)
{
    return f < KV_F_COUNT ? factor_names[f] : "?";
}

static kv_rc parse_axes(const json_t *list, const char *key, const char *where, kv_axes *out, kv_err *err)
{
    if (!json_is_array(list) || json_array_size(list) == 0)
        return KV_FAIL(err, KV_EFORMAT, "%s: \"%s\" must be a list of axes, slowest first", where, key);
    if (json_array_size(list) > KV_FACTORS_MAX)
        return KV_FAIL(err, KV_EFORMAT, "%s: \"%s\" has %zu axes, at most %d are allowed", where, key,
                       json_array_size(list), KV_FACTORS_MAX);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        int f = 0;
        while (name != NULL && f < KV_F_COUNT && strcmp(name, factor_names[f]) != 0) f++;
        if (name == NULL || f == KV_F_COUNT)
            return KV_FAIL(err, KV_EFORMAT, "%s: \"%s\": \"%s\" is no axis (L KV T Tb Ti Tg Tx H D Dg Dx C)", where,
                           key, name != NULL ? name : "(not a text)");
        if (kv_axes_has(out, (kv_factor)f))
            return KV_FAIL(err, KV_EFORMAT, "%s: \"%s\": axis %s stands twice", where, key, name);
        out->f[out->n++] = (kv_factor)f;
    }
    return KV_OK;
}

static bool has(const kv_axes *a, kv_factor f)
{
    return kv_axes_has(a, f);
}

/* Tokens: T, or Tb Ti, or Tb Tg Tx. Lanes: D, or Dg Dx; latent rows: C. */
static kv_rc check_axes(const kv_layout *l, int half, const char *where, kv_err *err)
{
    const kv_axes *a = &l->axes[half];
    const char *key = half == 0 ? "k_axes" : "v_axes";
    const bool whole = has(a, KV_F_T) && !has(a, KV_F_TB) && !has(a, KV_F_TI) && !has(a, KV_F_TG) && !has(a, KV_F_TX);
    const bool blocks = !has(a, KV_F_T) && has(a, KV_F_TB) && has(a, KV_F_TI) && !has(a, KV_F_TG) && !has(a, KV_F_TX);
    const bool groups = !has(a, KV_F_T) && has(a, KV_F_TB) && !has(a, KV_F_TI) && has(a, KV_F_TG) && has(a, KV_F_TX);
    if (!whole && !blocks && !groups)
        return KV_FAIL(err, KV_EFORMAT, "%s: \"%s\" must hold the tokens once: T, or Tb and Ti, or Tb, Tg and Tx",
                       where, key);
    if (l->store == KV_STORE_LATENT) {
        if (!has(a, KV_F_C) || has(a, KV_F_H) || has(a, KV_F_D) || has(a, KV_F_DG) || has(a, KV_F_DX) ||
            has(a, KV_F_KV))
            return KV_FAIL(err, KV_EFORMAT, "%s: \"%s\" of a latent layout holds C and no H, D, Dg, Dx, KV", where,
                           key);
        return KV_OK;
    }
    const bool row = has(a, KV_F_D) && !has(a, KV_F_DG) && !has(a, KV_F_DX);
    const bool split = !has(a, KV_F_D) && has(a, KV_F_DG) && has(a, KV_F_DX);
    if (has(a, KV_F_C)) return KV_FAIL(err, KV_EFORMAT, "%s: \"%s\": C is for kv \"latent\" only", where, key);
    if (!has(a, KV_F_H)) return KV_FAIL(err, KV_EFORMAT, "%s: \"%s\": axis H is missing", where, key);
    if (!row && !split)
        return KV_FAIL(err, KV_EFORMAT, "%s: \"%s\" must hold the head dimension once: D, or Dg and Dx", where, key);
    if (has(a, KV_F_KV) != (l->store == KV_STORE_INTERLEAVED))
        return KV_FAIL(err, KV_EFORMAT, "%s: \"%s\": axis KV must stand exactly when \"kv\" is \"interleaved\"", where,
                       key);
    return KV_OK;
}

/* K and V together: the same L, and in one array the same factors up to KV and the same set behind it. */
static kv_rc check_halves(const kv_layout *l, const char *where, kv_err *err)
{
    const kv_axes *k = &l->axes[0], *v = &l->axes[1];
    if (l->store == KV_STORE_LATENT) return KV_OK;
    if (has(k, KV_F_L) != has(v, KV_F_L))
        return KV_FAIL(err, KV_EFORMAT, "%s: axis L must stand in both k_axes and v_axes, or in none", where);
    if (l->store == KV_STORE_SEPARATE) return KV_OK;
    bool common = true;
    for (int i = 0; i < k->n; i++) {
        if (common && (i >= v->n || k->f[i] != v->f[i]))
            return KV_FAIL(err, KV_EFORMAT, "%s: k_axes and v_axes of one array must agree up to and including KV",
                           where);
        if (k->f[i] == KV_F_KV) common = false;
        if (!has(v, k->f[i]))
            return KV_FAIL(err, KV_EFORMAT,
                           "%s: k_axes and v_axes of one array must have the same factors; %s is missing in v_axes",
                           where, kv_factor_name(k->f[i]));
    }
    if (k->n != v->n)
        return KV_FAIL(err, KV_EFORMAT, "%s: k_axes and v_axes of one array must have the same factors", where);
    return KV_OK;
}

static kv_rc parse_choice(const json_t *obj, const char *key, bool required, const char *const *words, int fallback,
                          const char *where, int *out, kv_err *err)
{
    const char *text = NULL;
    kv_rc rc = kv_json_get_text(obj, key, required, where, &text, err);
    if (rc != KV_OK) return rc;
    *out = fallback;
    if (text == NULL) return KV_OK;
    for (int i = 0; words[i] != NULL; i++)
        if (strcmp(text, words[i]) == 0) {
            *out = i;
            return KV_OK;
        }
    return KV_FAIL(err, KV_EFORMAT, "%s: \"%s\": \"%s\" is not known (%s, %s%s%s)", where, key, text, words[0],
                   words[1], words[2] != NULL ? ", " : "", words[2] != NULL ? words[2] : "");
}

static kv_rc parse_element(kv_layout *l, const json_t *obj, const char *where, kv_err *err)
{
    const char *text = NULL;
    kv_rc rc = kv_json_get_text(obj, "element", false, where, &text, err);
    if (rc != KV_OK) return rc;
    l->element_same = text == NULL || strcmp(text, "same") == 0;
    if (!l->element_same && !kv_elem_parse(text, &l->element))
        return KV_FAIL(err, KV_EFORMAT, "%s: \"element\": \"%s\" is unknown (same, f16, bf16, f32, fp8_e4m3)", where,
                       text);
    return KV_OK;
}

static kv_rc parse_tp(kv_layout *l, const json_t *obj, const char *where, kv_err *err)
{
    static const char *const keys[] = {"size", "rank", NULL};
    kv_rc rc = KV_OK;
    const json_t *tp = json_object_get(obj, "tp");
    l->tp_size = 1;
    l->tp_rank = 0;
    if (tp == NULL || json_is_null(tp)) return KV_OK;
    char place[640];
    snprintf(place, sizeof place, "%s: \"tp\"", where);
    KV_TRY(rc, out, kv_json_only_keys(tp, keys, place, err));
    if (json_object_get(tp, "size") == NULL || json_object_get(tp, "rank") == NULL)
        return KV_FAIL(err, KV_EFORMAT, "%s: needs \"size\" and \"rank\"", place);
    KV_TRY(rc, out, kv_json_get_int(tp, "size", 1, 1 << 20, place, &l->tp_size, err));
    KV_TRY(rc, out, kv_json_get_int(tp, "rank", 0, l->tp_size - 1, place, &l->tp_rank, err));
out:
    return rc;
}

/* A size key must stand exactly when the axis it belongs to does. */
static kv_rc match_size(bool axis, int64_t v, const char *key, const char *axis_name, const char *where, kv_err *err)
{
    if (axis && v == 0) return KV_FAIL(err, KV_EFORMAT, "%s: axis %s needs \"%s\"", where, axis_name, key);
    if (!axis && v != 0) return KV_FAIL(err, KV_EFORMAT, "%s: \"%s\" needs an axis %s", where, key, axis_name);
    return KV_OK;
}

/* In one array K and V must have pages of one size: the same factors before Tb. */
static bool same_pages(const kv_layout *l)
{
    const kv_axes *k = &l->axes[0], *v = &l->axes[1];
    int at = 0;
    while (k->f[at] != KV_F_TB) at++;
    if (v->f[at] != KV_F_TB) return false;
    for (int i = at + 1; i < v->n; i++)
        for (int j = 0; j < at; j++)
            if (v->f[i] == k->f[j]) return false;
    return true;
}

static kv_rc parse_sizes(kv_layout *l, const json_t *obj, const char *where, kv_err *err)
{
    kv_rc rc;
    const int64_t most = INT32_MAX;
    const bool tb = has(&l->axes[0], KV_F_TB) || has(&l->axes[1], KV_F_TB);
    const bool dx = has(&l->axes[0], KV_F_DX) || has(&l->axes[1], KV_F_DX);
    const bool tx = has(&l->axes[0], KV_F_TX) || has(&l->axes[1], KV_F_TX);
    KV_TRY(rc, out, kv_json_get_int(obj, "block", 1, most, where, &l->block, err));
    KV_TRY(rc, out, kv_json_get_int(obj, "x", 1, most, where, &l->x, err));
    KV_TRY(rc, out, kv_json_get_int(obj, "x_bytes", 1, most, where, &l->x_bytes, err));
    KV_TRY(rc, out, kv_json_get_int(obj, "tx", 1, most, where, &l->tx, err));
    KV_TRY(rc, out, kv_json_get_int(obj, "page_stride_bytes", 1, (int64_t)1 << 50, where, &l->page_stride_bytes, err));
    KV_TRY(rc, out, kv_json_get_int(obj, "row_lanes", 1, most, where, &l->row_lanes, err));
    KV_TRY(rc, out, match_size(tb, l->block, "block", "Tb", where, err));
    KV_TRY(rc, out, match_size(tx, l->tx, "tx", "Tx", where, err));
    KV_TRY(rc, out, match_size(dx, l->x > 0 ? l->x : l->x_bytes, "x", "Dx", where, err));
    if (l->x > 0 && l->x_bytes > 0) return KV_FAIL(err, KV_EFORMAT, "%s: give \"x\" or \"x_bytes\", not both", where);
    if (l->tx > 0 && l->block % l->tx != 0)
        return KV_FAIL(err, KV_EFORMAT, "%s: \"tx\" %lld does not divide \"block\" %lld", where, (long long)l->tx,
                       (long long)l->block);
    if (l->page_stride_bytes > 0 && !tb)
        return KV_FAIL(err, KV_EFORMAT, "%s: \"page_stride_bytes\" needs an axis Tb", where);
    if (l->page_stride_bytes > 0 && l->store == KV_STORE_INTERLEAVED && !same_pages(l))
        return KV_FAIL(err, KV_EFORMAT,
                       "%s: \"page_stride_bytes\" of one array needs the same axes before Tb in k_axes and v_axes",
                       where);
    for (int half = 0; half < 2; half++)
        if (l->row_lanes > 0 && l->axes[half].n > 0 && !has(&l->axes[half], KV_F_D) && !has(&l->axes[half], KV_F_C))
            return KV_FAIL(err, KV_EFORMAT, "%s: \"row_lanes\" needs an axis D", where);
out:
    return rc;
}

static kv_rc parse_name(kv_layout *l, const json_t *obj, const char *where, kv_err *err)
{
    const char *name = NULL;
    kv_rc rc = kv_json_get_text(obj, "name", true, where, &name, err);
    if (rc != KV_OK) return rc;
    size_t good = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");
    if (name[good] != '\0' || strlen(name) > KV_NAME_MAX || strchr("._-", name[0]) != NULL)
        return KV_FAIL(err, KV_EFORMAT,
                       "%s: \"name\": \"%s\" must be 1 to %d of a-z A-Z 0-9 . _ -, starting with a letter or digit",
                       where, name, KV_NAME_MAX);
    snprintf(l->name, sizeof l->name, "%s", name);
    return KV_OK;
}

static kv_rc parse_words(kv_layout *l, const json_t *obj, const char *where, kv_err *err)
{
    static const char *const attention[] = {"gqa", "mla", NULL};
    static const char *const store[] = {"separate", "interleaved", "latent", NULL};
    static const char *const role[] = {"lossless", "frontier", "lossy", NULL};
    static const char *const pages[] = {"contiguous", "table", NULL};
    kv_rc rc;
    int choice = 0;
    const char *text = NULL;
    KV_TRY(rc, out, kv_json_get_text(obj, "engine", true, where, &text, err));
    KV_TRY(rc, out, kv_json_get_text(obj, "cite", true, where, &text, err));
    KV_TRY(rc, out, kv_json_get_text(obj, "version", false, where, &text, err));
    KV_TRY(rc, out, kv_json_get_text(obj, "evidence", false, where, &text, err));
    KV_TRY(rc, out, kv_json_get_text(obj, "notes", false, where, &text, err));
    KV_TRY(rc, out, parse_choice(obj, "attention", true, attention, 0, where, &choice, err));
    l->attention = (kv_attention)choice;
    KV_TRY(rc, out, parse_choice(obj, "kv", true, store, 0, where, &choice, err));
    l->store = (kv_store)choice;
    KV_TRY(rc, out, parse_choice(obj, "role", false, role, 0, where, &choice, err));
    l->role = (kv_role)choice;
    KV_TRY(rc, out, parse_choice(obj, "pages", false, pages, 0, where, &choice, err));
    if (choice == 1)
        return KV_FAIL(err, KV_EFORMAT,
                       "%s: \"pages\": \"table\" (pages through a block table) is not supported by this version; "
                       "only \"contiguous\" is",
                       where);
    if (l->store == KV_STORE_LATENT && l->attention != KV_ATTENTION_MLA)
        return KV_FAIL(err, KV_EFORMAT, "%s: \"kv\": \"latent\" needs \"attention\": \"mla\"", where);
out:
    return rc;
}

static kv_rc parse_layout(kv_layout *l, const json_t *obj, const char *where, kv_err *err)
{
    static const char *const keys[] = {"name",     "engine", "version", "attention",         "kv",        "k_axes",
                                       "v_axes",   "block",  "x",       "x_bytes",           "tx",        "element",
                                       "tp",       "role",   "pages",   "page_stride_bytes", "row_lanes", "cite",
                                       "evidence", "notes",  NULL};
    kv_rc rc;
    char place[512];
    if (!json_is_object(obj)) return KV_FAIL(err, KV_EFORMAT, "%s: a layout must be a JSON object", where);
    KV_TRY(rc, out, parse_name(l, obj, where, err));
    snprintf(place, sizeof place, "%s: layout %s", where, l->name);
    KV_TRY(rc, out, kv_json_only_keys(obj, keys, place, err));
    KV_TRY(rc, out, parse_words(l, obj, place, err));
    KV_TRY(rc, out, parse_axes(json_object_get(obj, "k_axes"), "k_axes", place, &l->axes[0], err));
    const json_t *v = json_object_get(obj, "v_axes");
    if (l->store == KV_STORE_LATENT) {
        if (v != NULL && !json_is_null(v))
            return KV_FAIL(err, KV_EFORMAT, "%s: a latent layout has no \"v_axes\"", place);
    } else if (v == NULL || json_is_null(v)) {
        l->axes[1] = l->axes[0];
    } else {
        KV_TRY(rc, out, parse_axes(v, "v_axes", place, &l->axes[1], err));
    }
    for (int half = 0; half < (l->store == KV_STORE_LATENT ? 1 : 2); half++)
        KV_TRY(rc, out, check_axes(l, half, place, err));
    KV_TRY(rc, out, check_halves(l, place, err));
    KV_TRY(rc, out, parse_sizes(l, obj, place, err));
    KV_TRY(rc, out, parse_element(l, obj, place, err));
    KV_TRY(rc, out, parse_tp(l, obj, place, err));
out:
    return rc;
}

kv_rc kv_layout_new(json_t *obj, const char *where, kv_layout **out, kv_err *err)
{
    kv_layout *l = kv_alloc(1, sizeof *l);
    if (l == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for a layout");
    l->json = json_incref(obj);
    kv_rc rc = parse_layout(l, obj, where, err);
    if (rc != KV_OK) {
        kv_layout_free(l);
        return rc;
    }
    *out = l;
    return KV_OK;
}

void kv_layout_free(kv_layout *l)
{
    if (l == NULL) return;
    json_decref(l->json);
    kv_free(l);
}
