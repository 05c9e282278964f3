/* The verifier. Input starting with '{' is a document as it stands; any other input is a list of edits,
 * four bytes each, to the sound document KV_FUZZ_BASE (with one byte left over: to codec.json beside it, which holds rows of
 * the codec), so that what lies behind the parser is reached too. */
#include "base/kv_file.h"
#include "certs/kv_json.h"
#include "certs/kv_verify.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef KV_FUZZ_BASE
#define KV_FUZZ_BASE "tests/fuzz/corpus/certificate/small.json"
#endif

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds)
{
    if (!holds) abort();
}

/* Verifies, and tells the report both ways where asked. Few names are required: all of them would only add one long
 * list of faults to every small document. */
static void verify(const void *bytes, size_t n, bool tell)
{
    static const char *const checks[] = {"reference_sequence_not_degenerate", "token_class_is_unread_padding", NULL};
    static const kv_cert_control controls[] = {{"reinterpreting_translator", "NOT_EXACT"}, {NULL, NULL}};
    static const char *const limits[] = {"made_up_engine_is_graded_like_a_real_one", NULL};
    static const kv_cert_required few = {checks, controls, limits};
    static const kv_verify_opts opts = {.required = &few};
    kv_verify_report r = {0};
    kv_buf out = {0};
    json_t *o = NULL;
    must(kv_verify_bytes(bytes, n, NULL, &opts, &r, NULL) == KV_OK);
    must(r.exit_code == 1 || r.exit_code == 3); /* no trust is given, so never 0 */
    must(r.n_faults > 0);
    if (tell) {
        must(kv_verify_text(&r, &out, NULL) == KV_OK);
        kv_buf_free(&out);
        must(kv_verify_json(&r, &out, NULL) == KV_OK);
        must(kv_json_parse(out.data, out.len, out.len, &o, NULL) == KV_OK);
        json_decref(o);
        kv_buf_free(&out);
    }
    kv_verify_report_free(&r);
}

/* ---- edits ---------------------------------------------------------------------------------- */

/* A place in the document: the n-th of all members and items, counted depth first. */
typedef struct {
    long left;
    json_t *parent;
    const char *key;
    size_t index;
} place;

static bool find(place *p, json_t *v)
{
    const char *key;
    json_t *inner;
    size_t i;
    json_object_foreach(v, key, inner)
    {
        p->parent = v;
        p->key = key;
        if (p->left-- == 0 || find(p, inner)) return true;
    }
    json_array_foreach(v, i, inner)
    {
        p->parent = v;
        p->key = NULL;
        p->index = i;
        if (p->left-- == 0 || find(p, inner)) return true;
    }
    return false;
}

static json_t *at(const place *p)
{
    return p->key != NULL ? json_object_get(p->parent, p->key) : json_array_get(p->parent, p->index);
}

static void put(const place *p, json_t *value)
{
    if (p->key != NULL)
        json_object_set_new(p->parent, p->key, value);
    else
        json_array_set_new(p->parent, p->index, value);
}

static json_t *number_near(const json_t *old, uint8_t how)
{
    static const json_int_t numbers[] = {
        0, 1, 2, 3, 16, 64, 65536, 1 << 20, 1 << 30, (json_int_t)1 << 40, KV_JSON_INT_MAX, -1};
    if (json_is_integer(old) && how < 64) return json_integer(json_integer_value(old) + how % 5 - 2);
    return json_integer(numbers[how % (sizeof numbers / sizeof *numbers)]);
}

static json_t *text_near(const json_t *old, uint8_t how)
{
    static const char *const texts[] = {
        "",          "T",           "Tb",         "Ti",     "Tg",       "Tx",      "H",         "D",
        "Dg",        "Dx",          "C",          "L",      "KV",       "mla",     "gqa",       "separate",
        "latent",    "interleaved", "f32",        "bf16",   "zero",     "nan",     "*",         "a*?",
        "published", "all-ordered", "exhaustive", "FAILED", "UNPROVEN", "REFUSED", "NOT_EXACT", "vllm-fa"};
    if (json_is_string(old) && json_string_length(old) > 1 && how < 64) {
        char *copy = strdup(json_string_value(old));
        copy[how % strlen(copy)] = 'x';
        json_t *v = json_string(copy);
        free(copy);
        return v != NULL ? v : json_string("x");
    }
    return json_string(texts[how % (sizeof texts / sizeof *texts)]);
}

static void edit(json_t *doc, const uint8_t e[4])
{
    place p = {.left = (long)e[0] * 256 + e[1]}, q = {.left = (long)e[3] * 37};
    if (!find(&p, doc)) return;
    switch (e[2] % 9) {
    case 0: put(&p, number_near(at(&p), e[3])); break;
    case 1: put(&p, text_near(at(&p), e[3])); break;
    case 2: put(&p, json_boolean(e[3] & 1)); break;
    case 3: put(&p, json_null()); break;
    case 4:
        if (p.key != NULL)
            json_object_del(p.parent, p.key);
        else
            json_array_remove(p.parent, p.index);
        break;
    case 5:
        if (p.key == NULL) json_array_append_new(p.parent, json_deep_copy(at(&p)));
        break;
    case 6:
        if (find(&q, doc)) put(&p, json_deep_copy(at(&q)));
        break;
    case 7: put(&p, e[3] & 1 ? json_array() : json_object()); break;
    case 8:
        if (json_is_array(at(&p))) json_array_append_new(at(&p), text_near(NULL, e[3]));
        break;
    }
}

static json_t *base_document(bool codec)
{
    static json_t *base[2];
    kv_err err = {0};
    char path[512];
    const char *slash = strrchr(KV_FUZZ_BASE, '/');
    snprintf(path, sizeof path, "%.*s%s", codec && slash != NULL ? (int)(slash - KV_FUZZ_BASE) : 500, KV_FUZZ_BASE,
             codec ? "/codec.json" : "");
    if (base[codec] == NULL) must(kv_json_parse_file(path, 1 << 20, &base[codec], &err) == KV_OK);
    return base[codec];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 0 && data[0] == '{') {
        verify(data, size, true);
        return 0;
    }
    json_t *doc = json_deep_copy(base_document(size % 4 == 1));
    const bool whole = size % 8 == 0; /* now and then: the curve and the report take most of the time */
    if (!whole) json_object_set_new(json_object_get(doc, "signature"), "sig", json_string(""));
    kv_buf text = {0};
    for (size_t i = 0; i + 4 <= size && i < 4 * 8; i += 4) edit(doc, data + i);
    if (kv_json_write(doc, &text, NULL) == KV_OK) verify(text.data, text.len, whole);
    kv_buf_free(&text);
    json_decref(doc);
    return 0;
}
