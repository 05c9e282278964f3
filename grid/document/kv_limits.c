/* Known limits: what a certificate cannot tell, each demonstrated by running it. */
#include <stdio.h>
#include <string.h>

#include "grid/campaign/kv_builtin.h"
#include "grid/document/kv_assurance.h"

#define GEOMETRY "L=1,T=40,H=2,D=8,e=f16"

typedef struct {
    kv_device *dev;
    kv_catalogue all;
    kv_err *err;
} limits;

static kv_rc pair(limits *k, kv_device *dev, const char *src, const char *dst, const char *geometry, const char *tail,
                  uint64_t seed, kv_row *row)
{
    return kv_control_pair(dev, &k->all, src, dst, geometry, tail, "payloads", seed, row, k->err);
}

static bool exact(const kv_row *r)
{
    return r->verdict == KV_VERDICT_EXACT_BYTE || r->verdict == KV_VERDICT_EXACT_TOKEN;
}

/* Adds a copy of a built-in layout under another name, with other axes. */
static kv_rc declare(limits *k, const char *like, const char *name, const char *axes)
{
    json_t *obj = json_copy(kv_catalogue_find(&k->all, like)->json), *list = json_array();
    kv_layout *l = NULL;
    char copy[64];
    snprintf(copy, sizeof copy, "%s", axes);
    for (char *word = copy, *next; list != NULL && word != NULL; word = next) {
        next = strchr(word, ' ');
        if (next != NULL) *next++ = '\0';
        json_array_append_new(list, json_string(word));
    }
    kv_rc rc = KV_OK;
    if (obj == NULL || list == NULL || json_object_set_new(obj, "name", json_string(name)) != 0 ||
        json_object_set(obj, "k_axes", list) != 0 || json_object_set(obj, "v_axes", list) != 0)
        rc = KV_FAIL(k->err, KV_ENOMEM, "no memory for a known limit");
    if (rc == KV_OK) rc = kv_layout_new(obj, "known limit", &l, k->err);
    if (rc == KV_OK) rc = kv_catalogue_take(&k->all, l, "known limit", k->err);
    json_decref(list);
    json_decref(obj);
    return rc;
}

static kv_rc declarations(limits *k, json_t *list)
{
    kv_row made_up, right, wrong, between;
    kv_rc rc;
    KV_TRY(rc, out, declare(k, "sglang", "made-up-engine", "D H T"));
    KV_TRY(rc, out, declare(k, "trtllm", "trtllm-token-major", "Tb KV Ti H D"));
    KV_TRY(rc, out, pair(k, k->dev, "sglang", "made-up-engine", GEOMETRY, "stale", 1, &made_up));
    KV_TRY(rc, out, pair(k, k->dev, "vllm-fa", "trtllm", GEOMETRY, "stale", 1, &right));
    KV_TRY(rc, out, pair(k, k->dev, "vllm-fa", "trtllm-token-major", GEOMETRY, "stale", 1, &wrong));
    KV_TRY(rc, out, pair(k, k->dev, "trtllm", "trtllm-token-major", GEOMETRY, "stale", 1, &between));
    KV_TRY(rc, out,
           kv_limit_add(
               list, "made_up_engine_is_graded_like_a_real_one",
               "A made-up engine with a declared shape (D H T) is graded EXACT_BYTE like a real one: whether an engine "
               "keeps this shape is the citation's claim, not the certificate's.",
               made_up.verdict == KV_VERDICT_EXACT_BYTE, k->err));
    rc = kv_limit_add(list, "wrong_bijection_proves_as_well",
                      "A wrong but bijective declaration proves just as well: trtllm declared token-major inside the "
                      "page gets the same "
                      "grade as the right one at equal tensor-parallel sizes.",
                      exact(&right) && wrong.verdict == right.verdict && !between.same_image, k->err);
out:
    return rc;
}

static kv_rc changed_value(limits *k, json_t *list)
{
    kv_device *bad = NULL;
    kv_row row;
    /* 0x7C00 is +Inf: even, so no value of V, and not among the position digits or random patterns of this cell */
    kv_rc rc = kv_mutant_new(k->dev, KV_MUTANT_ONE_VALUE, 0x7C00, &bad, k->err);
    if (rc != KV_OK) return rc;
    rc = pair(k, bad, "sglang", "hf-dynamic-cache", "L=1,T=2,H=2,D=2,e=f16", "stale", 1, &row);
    kv_mutant_free(bad);
    if (rc != KV_OK) return rc;
    return kv_limit_add(
        list, "payload_mode_misses_one_changed_value",
        "In payload mode a translator that changes one element value that no payload holds is graded exact; values "
        "\"exhaustive\" moves every value through every place and catches it.",
        exact(&row), k->err);
}

static kv_rc settings(limits *k, json_t *list)
{
    kv_row at8, at6, seed1, seed2, stale, zero;
    kv_rc rc;
    KV_TRY(rc, out, pair(k, k->dev, "sglang", "vllm-paged-x", GEOMETRY, "stale", 1, &at8));
    KV_TRY(rc, out, pair(k, k->dev, "sglang", "vllm-paged-x", "L=1,T=40,H=2,D=6,e=f16", "stale", 1, &at6));
    KV_TRY(rc, out, pair(k, k->dev, "sglang", "hf-dynamic-cache", GEOMETRY, "stale", 1, &seed1));
    KV_TRY(rc, out, pair(k, k->dev, "sglang", "hf-dynamic-cache", GEOMETRY, "stale", 2, &seed2));
    KV_TRY(rc, out, pair(k, k->dev, "vllm-fa", "sglang", GEOMETRY, "stale", 1, &stale));
    KV_TRY(rc, out, pair(k, k->dev, "vllm-fa", "sglang", GEOMETRY, "zero", 1, &zero));
    KV_TRY(
        rc, out,
        kv_limit_add(
            list, "exactness_depends_on_the_geometry",
            "Exactness depends on the geometry: sglang to vllm-paged-x is exact at head_dim 8 and does not exist at 6.",
            exact(&at8) && at6.verdict == KV_VERDICT_REFUSED, k->err));
    KV_TRY(rc, out,
           kv_limit_add(
               list, "tokens_depend_on_the_weight_seed",
               "The decoded tokens depend on the seed of the weights: another seed, another sequence, the same grade.",
               memcmp(seed1.reference, seed2.reference, sizeof seed1.reference) != 0 && seed1.verdict == seed2.verdict,
               k->err));
    rc = kv_limit_add(
        list, "byte_or_token_is_the_tail_model",
        "The split between EXACT_BYTE and EXACT_TOKEN is the tail model: with zero tails vllm-fa to sglang is "
        "EXACT_BYTE, with stale tails EXACT_TOKEN.",
        stale.verdict == KV_VERDICT_EXACT_TOKEN && zero.verdict == KV_VERDICT_EXACT_BYTE, k->err);
out:
    return rc;
}

kv_rc kv_limits_run(kv_device *dev, json_t *list, kv_err *err)
{
    limits k = {.dev = dev, .err = err};
    kv_rc rc;
    KV_TRY(rc, out, kv_builtin_catalogue(&k.all, err));
    KV_TRY(rc, out, declarations(&k, list));
    KV_TRY(rc, out, changed_value(&k, list));
    KV_TRY(rc, out, settings(&k, list));
out:
    kv_catalogue_free(&k.all);
    return rc;
}
