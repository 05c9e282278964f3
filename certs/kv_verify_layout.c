/* One catalogue entry, as docs/layouts.md declares it. */
#include "certs/kv_verify_int.h"

#include <string.h>

static const char *const axis_names[KV_VF_AXIS_COUNT] = {"L",  "KV", "T", "Tb", "Ti", "Tg",
                                                         "Tx", "H",  "D", "Dg", "Dx", "C"};
static const char *const element_names[KV_VF_ELEMENT_COUNT] = {"f16", "bf16", "f32", "fp8_e4m3"};

bool kv_vf_element_parse(const char *name, kv_vf_element *out)
{
    for (int i = 0; i < KV_VF_ELEMENT_COUNT; i++)
        if (strcmp(name, element_names[i]) == 0) {
            *out = (kv_vf_element)i;
            return true;
        }
    return false;
}

const char *kv_vf_element_name(kv_vf_element e)
{
    return element_names[e];
}

int64_t kv_vf_element_bytes(kv_vf_element e)
{
    return e == KV_VF_FP8 ? 1 : e == KV_VF_F32 ? 4 : 2;
}

bool kv_vf_element_widens(kv_vf_element from, kv_vf_element to)
{
    return from == to || from == KV_VF_FP8 || to == KV_VF_F32;
}

bool kv_vf_has(const kv_vf_axes *axes, kv_vf_axis a)
{
    for (int i = 0; i < axes->n; i++)
        if (axes->a[i] == a) return true;
    return false;
}

bool kv_vf_layout_has(const kv_vf_layout *l, kv_vf_axis a)
{
    return kv_vf_has(&l->half[0], a) || kv_vf_has(&l->half[1], a);
}

/* What parsing one entry works on; `fault` is false once something was wrong. */
typedef struct {
    kv_vf *v;
    const json_t *o;
    size_t entry;
    bool good;
} entry;

static void wrong(entry *e, const char *key, const char *expected)
{
    char actual[KV_VF_TEXT];
    const char *path = kv_vf_at(e->v, "$.catalogue[%zu].%s", e->entry, key);
    kv_vf_fault(e->v, KV_H0_DOCUMENT_UNREADABLE, path, expected, kv_vf_show(json_object_get(e->o, key), actual));
    e->good = false;
}

/* An absent key and null are the same. */
static const json_t *get(const entry *e, const char *key)
{
    const json_t *value = json_object_get(e->o, key);
    return json_is_null(value) ? NULL : value;
}

static const char *get_text(entry *e, const char *key, bool required)
{
    const json_t *value = get(e, key);
    if (value == NULL && !required) return NULL;
    if (json_is_string(value) && json_string_length(value) > 0) return json_string_value(value);
    wrong(e, key, "a text");
    return NULL;
}

static int64_t get_size(entry *e, const char *key, int64_t most)
{
    const json_t *value = get(e, key);
    if (value == NULL) return 0;
    if (json_is_integer(value) && json_integer_value(value) >= 1 && json_integer_value(value) <= most)
        return json_integer_value(value);
    wrong(e, key, "a number in its range");
    return 0;
}

/* Index of the text at key among choices, or `absent`. */
static int get_choice(entry *e, const char *key, bool required, int absent, const char *const *choices, int n)
{
    const char *text = get_text(e, key, required);
    for (int i = 0; i < n && text != NULL; i++)
        if (strcmp(text, choices[i]) == 0) return i;
    if (text != NULL) wrong(e, key, "one of the words of docs/layouts.md");
    return absent;
}

static void get_axes(entry *e, const char *key, kv_vf_axes *out)
{
    const json_t *list = json_object_get(e->o, key);
    out->n = 0;
    if (!json_is_array(list) || json_array_size(list) < 1 || json_array_size(list) > KV_VF_AXES_MAX) {
        wrong(e, key, "a list of 1 to 10 axes");
        return;
    }
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        int a = 0;
        while (name != NULL && a < KV_VF_AXIS_COUNT && strcmp(name, axis_names[a]) != 0) a++;
        if (name == NULL || a == KV_VF_AXIS_COUNT || kv_vf_has(out, (kv_vf_axis)a)) {
            wrong(e, key, "known axes, each once");
            return;
        }
        out->a[out->n++] = (kv_vf_axis)a;
    }
}

#define BIT(axis_) (1u << (axis_))

/* Each canonical axis stands exactly once, whole or split. */
static bool axes_cover(const kv_vf_axes *axes, kv_vf_store store)
{
    unsigned set = 0;
    for (int i = 0; i < axes->n; i++) set |= BIT(axes->a[i]);
    const unsigned tokens = set & (BIT(KV_VF_T) | BIT(KV_VF_TB) | BIT(KV_VF_TI) | BIT(KV_VF_TG) | BIT(KV_VF_TX));
    const unsigned lanes = set & (BIT(KV_VF_D) | BIT(KV_VF_DG) | BIT(KV_VF_DX) | BIT(KV_VF_C));
    if (tokens != BIT(KV_VF_T) && tokens != (BIT(KV_VF_TB) | BIT(KV_VF_TI)) &&
        tokens != (BIT(KV_VF_TB) | BIT(KV_VF_TG) | BIT(KV_VF_TX)))
        return false;
    if (((set & BIT(KV_VF_KV)) != 0) != (store == KV_VF_INTERLEAVED)) return false;
    if (store == KV_VF_LATENT) return lanes == BIT(KV_VF_C) && (set & BIT(KV_VF_H)) == 0;
    return (set & BIT(KV_VF_H)) != 0 && (lanes == BIT(KV_VF_D) || lanes == (BIT(KV_VF_DG) | BIT(KV_VF_DX)));
}

/* In one array K and V agree up to and including KV and have the same factors behind it. */
static bool halves_agree(const kv_vf_layout *l)
{
    const kv_vf_axes *k = &l->half[0], *w = &l->half[1];
    if (kv_vf_has(k, KV_VF_L) != kv_vf_has(w, KV_VF_L)) return false;
    if (l->store != KV_VF_INTERLEAVED) return true;
    if (k->n != w->n) return false;
    bool behind = false;
    for (int i = 0; i < k->n; i++) {
        if (!behind && k->a[i] != w->a[i]) return false;
        if (!kv_vf_has(w, k->a[i])) return false;
        if (k->a[i] == KV_VF_KV) behind = true;
    }
    return true;
}

static void parse_axes(entry *e, kv_vf_layout *out)
{
    get_axes(e, "k_axes", &out->half[0]);
    if (out->store == KV_VF_LATENT) {
        if (get(e, "v_axes") != NULL) wrong(e, "v_axes", "none in a latent layout");
    } else if (get(e, "v_axes") == NULL) {
        out->half[1] = out->half[0];
    } else {
        get_axes(e, "v_axes", &out->half[1]);
    }
    if (!e->good) return;
    if (!axes_cover(&out->half[0], out->store)) wrong(e, "k_axes", "each axis once, whole or split");
    if (out->store == KV_VF_LATENT) return;
    if (!axes_cover(&out->half[1], out->store))
        wrong(e, "v_axes", "each axis once, whole or split");
    else if (!halves_agree(out))
        wrong(e, "v_axes", "axes that agree with k_axes");
}

/* In one array the pages of K and V have one size: the same factors before Tb. */
static bool pages_agree(const kv_vf_layout *l)
{
    unsigned before[2] = {0, 0};
    for (int h = 0; h < 2; h++)
        for (int i = 0; i < l->half[h].n && l->half[h].a[i] != KV_VF_TB; i++) before[h] |= BIT(l->half[h].a[i]);
    return l->store != KV_VF_INTERLEAVED || before[0] == before[1];
}

static void parse_sizes(entry *e, kv_vf_layout *out)
{
    const int64_t most = INT32_MAX;
    out->block = get_size(e, "block", most);
    out->x = get_size(e, "x", most);
    out->x_bytes = get_size(e, "x_bytes", most);
    out->tx = get_size(e, "tx", most);
    out->row_lanes = get_size(e, "row_lanes", most);
    out->page_stride_bytes = get_size(e, "page_stride_bytes", INT64_C(1) << 50);
    if (!e->good) return;
    const bool has_dx = kv_vf_layout_has(out, KV_VF_DX);
    if (kv_vf_layout_has(out, KV_VF_TB) != (out->block > 0)) wrong(e, "block", "a number exactly with Tb");
    if (has_dx != (out->x > 0 || out->x_bytes > 0) || (out->x > 0 && out->x_bytes > 0))
        wrong(e, "x", "x or x_bytes, one of them exactly with Dx");
    if (kv_vf_layout_has(out, KV_VF_TX) != (out->tx > 0))
        wrong(e, "tx", "a number exactly with Tx");
    else if (out->tx > 0 && out->block % out->tx != 0)
        wrong(e, "tx", "a divisor of block");
    if (out->page_stride_bytes > 0 && out->block == 0) wrong(e, "page_stride_bytes", "none without Tb");
    if (out->page_stride_bytes > 0 && !pages_agree(out))
        wrong(e, "page_stride_bytes", "none where K and V of one array differ before Tb");
    for (int h = 0; h < 2; h++)
        if (out->row_lanes > 0 && out->half[h].n > 0 && !kv_vf_has(&out->half[h], KV_VF_D) &&
            !kv_vf_has(&out->half[h], KV_VF_C))
            wrong(e, "row_lanes", "none without a D or C axis");
}

static void parse_tp(entry *e, kv_vf_layout *out)
{
    const json_t *tp = get(e, "tp");
    out->tp_size = 1;
    out->tp_rank = 0;
    if (tp == NULL) return;
    const json_t *size = json_object_get(tp, "size"), *rank = json_object_get(tp, "rank");
    if (json_object_size(tp) != 2 || !json_is_integer(size) || !json_is_integer(rank) || json_integer_value(size) < 1 ||
        json_integer_value(size) > 1 << 20 || json_integer_value(rank) < 0 ||
        json_integer_value(rank) >= json_integer_value(size)) {
        wrong(e, "tp", "{\"rank\":0..size-1,\"size\":1..1048576}");
        return;
    }
    out->tp_size = json_integer_value(size);
    out->tp_rank = json_integer_value(rank);
}

static void parse_keys(entry *e)
{
    static const char *const known[] = {"name",     "engine", "version", "attention",         "kv",        "k_axes",
                                        "v_axes",   "block",  "x",       "x_bytes",           "tx",        "element",
                                        "tp",       "role",   "pages",   "page_stride_bytes", "row_lanes", "cite",
                                        "evidence", "notes",  "digest"};
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)e->o, key, value)
    {
        size_t i = 0;
        while (i < sizeof known / sizeof *known && strcmp(key, known[i]) != 0) i++;
        if (i == sizeof known / sizeof *known) wrong(e, key, "no such key");
    }
    (void)value;
    (void)get_text(e, "engine", true);
    (void)get_text(e, "cite", true);
    (void)get_text(e, "version", false);
    (void)get_text(e, "evidence", false);
    (void)get_text(e, "notes", false);
}

static void parse_name(entry *e, kv_vf_layout *out)
{
    static const char letters[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    const char *name = get_text(e, "name", true);
    if (name == NULL) return;
    if (strlen(name) > 64 || strchr(letters, name[0]) == NULL ||
        name[strspn(name, "._-0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")] != '\0')
        wrong(e, "name", "1 to 64 of a-z A-Z 0-9 . _ -");
    out->name = name;
}

bool kv_vf_layout_parse(kv_vf *v, const json_t *object, size_t index, kv_vf_layout *out)
{
    static const char *const attentions[] = {"gqa", "mla"};
    static const char *const stores[] = {"separate", "interleaved", "latent"};
    static const char *const roles[] = {"lossless", "frontier", "lossy"};
    static const char *const pages[] = {"contiguous"};
    static const char *const elements[] = {"f16", "bf16", "f32", "fp8_e4m3", "same"};
    entry e = {v, object, index, true};
    memset(out, 0, sizeof *out);
    out->entry = index;
    parse_name(&e, out);
    parse_keys(&e);
    out->mla = get_choice(&e, "attention", true, 0, attentions, 2) == 1;
    out->store = (kv_vf_store)get_choice(&e, "kv", true, 0, stores, 3);
    out->lossless = get_choice(&e, "role", false, 0, roles, 3) == 0;
    (void)get_choice(&e, "pages", false, 0, pages, 1);
    int element = get_choice(&e, "element", false, KV_VF_ELEMENT_COUNT, elements, 5);
    out->element_same = element == KV_VF_ELEMENT_COUNT;
    if (!out->element_same) out->element = (kv_vf_element)element;
    if (out->store == KV_VF_LATENT && !out->mla) wrong(&e, "attention", "mla for a latent layout");
    if (e.good) parse_axes(&e, out);
    if (e.good) parse_sizes(&e, out);
    parse_tp(&e, out);
    return e.good;
}
