/* Controls that run: bad translators and decodes must be caught, frontiers must refuse. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "grid/campaign/kv_builtin.h"
#include "grid/document/kv_assurance.h"
#include "kernels/kv_kern_num.h"

#define GEOMETRY "L=1,T=40,H=2,D=8,e=f16"

typedef struct {
    kv_device *dev;
    kv_catalogue all;
    json_t *list;
    kv_err *err;
} controls;

/* The grade as a guard: the frontier code, view_reinterpret, or the verdict. */
static const char *guard_of(const kv_row *row)
{
    if (row->verdict == KV_VERDICT_REFUSED) return kv_layout_frontier_name((kv_layout_frontier)row->frontier);
    if (row->words == (uint32_t)1 << KV_W_VIEW_REINTERPRET) return kv_layout_word_name(KV_W_VIEW_REINTERPRET);
    return kv_verdict_name((kv_verdict)row->verdict);
}

static kv_rc pair(controls *k, kv_device *dev, const char *src, const char *dst, const char *geometry, kv_row *row)
{
    return kv_control_pair(dev, &k->all, src, dst, geometry, "stale", "payloads", 1, row, k->err);
}

/* ---- where a bad translator is caught ---------------------------------------------------- */

/* Names the first place at which the translation of the first payload is wrong. */
static kv_rc locate(controls *k, kv_device *bad, const kv_layout *side[2], char *out, size_t n)
{
    kv_geometry g;
    kv_index ix[2];
    kv_bind_state state;
    char reason[KV_REASON_TEXT];
    kv_image *im[3] = {NULL, NULL, NULL};
    kv_compare_result cmp;
    const kv_device_ops *ops = bad->ops;
    kv_rc rc;
    KV_TRY(rc, out, kv_geometry_parse(GEOMETRY, &g, k->err));
    for (int i = 0; i < 2; i++) KV_TRY(rc, out, kv_layout_bind(side[i], &g, 1, &ix[i], &state, reason, k->err));
    for (int i = 0; i < 3; i++) {
        const int64_t bytes = kv_index_bytes(&ix[i > 0]);
        KV_TRY(rc, out, ops->image_new(bad, bytes, &im[i], k->err));
        KV_TRY(rc, out, ops->poison(bad, im[i], bytes, (uint32_t)i, k->err));
    }
    const kv_payload p = {.seed = 1,
                          .tokens = g.tokens,
                          .kv_heads = g.kv_heads,
                          .lanes = {g.head_dim, g.head_dim_v},
                          .first_head = ix[0].first_head,
                          .kind = 0,
                          .element = (int32_t)g.element};
    KV_TRY(rc, out,
           ops->build(bad, im[0], &ix[0], &p, ix[0].element, kv_tail_stale_bits(KV_TAIL_STALE, g.element), k->err));
    KV_TRY(rc, out,
           ops->build(bad, im[2], &ix[1], &p, (int32_t)g.element, kv_tail_fill_bits(KV_TAIL_STALE, g.element), k->err));
    KV_TRY(rc, out,
           ops->translate(bad, &ix[0], im[0], &ix[1], im[1], kv_tail_fill_bits(KV_TAIL_STALE, g.element), k->err));
    KV_TRY(rc, out, ops->compare(bad, &ix[1], im[1], im[2], &cmp, k->err));
    if (cmp.differing == 0) {
        snprintf(out, n, "not located");
        goto out;
    }
    kv_coord c;
    kv_index_inverse(&ix[1], cmp.first, &c);
    snprintf(out, n,
             "%" PRId64 " positions wrong, the first at position %" PRId64 ": %s token %" PRId64 " head %" PRId64
             " lane %" PRId64,
             cmp.differing, cmp.first, c.kv == 0 ? "K" : "V", c.token, c.head, c.lane);
out:
    for (int i = 0; i < 3; i++) ops->image_free(bad, im[i]);
    return rc;
}

static kv_rc mutant_translators(controls *k)
{
    static const struct {
        const char *name;
        kv_mutant kind;
    } table[] = {{"mutant_tail_dropped", KV_MUTANT_TAIL_DROPPED},
                 {"mutant_k_and_v_swapped", KV_MUTANT_KV_SWAPPED},
                 {"mutant_heads_shifted", KV_MUTANT_HEADS_SHIFTED},
                 {"mutant_only_block_0", KV_MUTANT_ONLY_BLOCK_0},
                 {"mutant_nothing_copied", KV_MUTANT_NOTHING_COPIED}};
    const kv_layout *side[2] = {kv_catalogue_find(&k->all, "vllm-fa"), kv_catalogue_find(&k->all, "trtllm")};
    kv_rc rc = KV_OK;
    for (size_t i = 0; rc == KV_OK && i < sizeof table / sizeof table[0]; i++) {
        kv_device *bad = NULL;
        kv_row row;
        char where[160] = "";
        rc = kv_mutant_new(k->dev, table[i].kind, 0, &bad, k->err);
        if (rc != KV_OK) break;
        rc = pair(k, bad, "vllm-fa", "trtllm", GEOMETRY, &row);
        if (rc == KV_OK) rc = locate(k, bad, side, where, sizeof where);
        kv_mutant_free(bad);
        if (rc == KV_OK)
            rc = kv_control_add(k->list, table[i].name, "NOT_EXACT", guard_of(&row), strcmp(where, "not located") != 0,
                                where, k->err);
    }
    return rc;
}

/* A translator that only relabels the bytes: the way back undoes it, so the round trip is perfect. */
static kv_rc reinterpreting(controls *k)
{
    kv_device *bad = NULL;
    kv_row row;
    kv_rc rc = kv_mutant_new(k->dev, KV_MUTANT_REINTERPRET, 0, &bad, k->err);
    if (rc != KV_OK) return rc;
    rc = pair(k, bad, "vllm-fa", "flashinfer-nhd", GEOMETRY, &row);
    kv_mutant_free(bad);
    if (rc != KV_OK) return rc;
    return kv_control_add(k->list, "reinterpreting_translator", "NOT_EXACT", guard_of(&row),
                          row.observed[KV_OBS_IDENTICAL] == KV_TRUE && row.observed[KV_OBS_FORWARD] == KV_FALSE,
                          "the round trip is byte-identical, the destination is wrong", k->err);
}

static kv_rc bad_decodes(controls *k)
{
    static const struct {
        const char *name, *detail;
        kv_mutant kind;
    } table[] = {{"source_tail_in_the_tokens", "the decode reads the last block to its end", KV_MUTANT_TAIL_DECODED},
                 {"corrupted_cache_element", "the lowest bit of one cached element is changed before the decode",
                  KV_MUTANT_CORRUPT_ELEMENT}};
    kv_rc rc = KV_OK;
    for (size_t i = 0; rc == KV_OK && i < 2; i++) {
        kv_device *bad = NULL;
        kv_row row;
        rc = kv_mutant_new(k->dev, table[i].kind, 0, &bad, k->err);
        if (rc != KV_OK) break;
        rc = pair(k, bad, "sglang", "vllm-fa", GEOMETRY, &row);
        kv_mutant_free(bad);
        if (rc == KV_OK)
            rc = kv_control_add(k->list, table[i].name, "NOT_EXACT", guard_of(&row),
                                row.observed[KV_OBS_FORWARD] == KV_TRUE && row.observed[KV_OBS_TOKENS] == KV_FALSE,
                                table[i].detail, k->err);
    }
    return rc;
}

/* ---- grades that must come out ----------------------------------------------------------- */

static kv_rc expected_grades(controls *k)
{
    static const struct {
        const char *name, *dst, *guard, *detail;
    } table[] = {{"mla_destination", "deepseek-mla", "X1_LATENT_KV", "vllm-fa to deepseek-mla"},
                 {"tp_shard_destination", "vllm-tp2", "X2_HEAD_GATHER", "vllm-fa to vllm-tp2 at two kv heads"},
                 {"x16_head_dim", "vllm-paged-x16", "X4_GEOMETRY_UNREPRESENTABLE", "x 16 at head_dim 8"},
                 {"fp8_runs_and_is_not_exact", "vllm-fp8", "NOT_EXACT", "vllm-fa to vllm-fp8 runs"}};
    kv_rc rc = KV_OK;
    for (size_t i = 0; rc == KV_OK && i < sizeof table / sizeof table[0]; i++) {
        kv_row row;
        rc = pair(k, k->dev, "vllm-fa", table[i].dst, GEOMETRY, &row);
        const bool ran = strcmp(table[i].guard, "NOT_EXACT") != 0 || (rc == KV_OK && row.ran && row.gather_agrees);
        if (rc == KV_OK)
            rc = kv_control_add(k->list, table[i].name, table[i].guard, guard_of(&row), ran, table[i].detail, k->err);
    }
    return rc;
}

static kv_rc one_head_dim(controls *k)
{
    kv_row at8, at6;
    char actual[96];
    kv_rc rc;
    KV_TRY(rc, out, pair(k, k->dev, "sglang", "vllm-paged-x", GEOMETRY, &at8));
    KV_TRY(rc, out, pair(k, k->dev, "sglang", "vllm-paged-x", "L=1,T=40,H=2,D=6,e=f16", &at6));
    snprintf(actual, sizeof actual, "%s then %s", guard_of(&at8), guard_of(&at6));
    rc = kv_control_add(k->list, "exact_at_one_head_dim_only", "EXACT_BYTE then X4_GEOMETRY_UNREPRESENTABLE", actual,
                        true, "sglang to vllm-paged-x at head_dim 8 and 6", k->err);
out:
    return rc;
}

/* Withholding any one observation of a real exact row must make it UNPROVEN. */
static kv_rc withheld(controls *k)
{
    kv_row row;
    kv_rc rc = pair(k, k->dev, "sglang", "vllm-fa", GEOMETRY, &row);
    if (rc != KV_OK) return rc;
    bool all = row.verdict == KV_VERDICT_EXACT_BYTE;
    for (int i = 0; i < KV_OBS_COUNT; i++) {
        int32_t less[KV_OBS_COUNT];
        memcpy(less, row.observed, sizeof less);
        less[i] = KV_NULL;
        all = all && kv_grade(false, false, false, less) == KV_VERDICT_UNPROVEN;
    }
    return kv_control_add(k->list, "withheld_observation", "UNPROVEN", all ? "UNPROVEN" : "better than UNPROVEN", all,
                          "each of the four observations of an exact row, withheld alone", k->err);
}

/* The anchor under a second name. */
static kv_rc declared_twice(controls *k)
{
    kv_layout *twin = NULL;
    kv_row row;
    kv_rc rc;
    json_t *obj = json_copy(kv_catalogue_find(&k->all, "vllm-fa")->json);
    if (obj == NULL || json_object_set_new(obj, "name", json_string("vllm-fa-again")) != 0) {
        rc = KV_FAIL(k->err, KV_ENOMEM, "no memory for a control");
        goto out;
    }
    KV_TRY(rc, out, kv_layout_new(obj, "control", &twin, k->err));
    KV_TRY(rc, out, kv_catalogue_take(&k->all, twin, "control", k->err));
    KV_TRY(rc, out, pair(k, k->dev, "vllm-fa", "vllm-fa-again", GEOMETRY, &row));
    rc = kv_control_add(k->list, "engine_declared_twice", "view_reinterpret", guard_of(&row), row.same_image,
                        "vllm-fa and a copy under another name: no translation", k->err);
out:
    json_decref(obj);
    return rc;
}

/* A translator that changes one value, in the mode that moves every value through every place. */
static kv_rc one_value(controls *k)
{
    kv_device *bad = NULL;
    kv_row row;
    kv_rc rc = kv_mutant_new(k->dev, KV_MUTANT_ONE_VALUE, 0x35, &bad, k->err);
    if (rc != KV_OK) return rc;
    rc = kv_control_pair(bad, &k->all, "sglang", "hf-dynamic-cache", "L=1,T=2,H=2,D=2,e=fp8_e4m3", "stale",
                         "exhaustive", 1, &row, k->err);
    kv_mutant_free(bad);
    if (rc != KV_OK) return rc;
    return kv_control_add(
        k->list, "mutant_one_value_exhaustive", "NOT_EXACT", guard_of(&row), row.observed[KV_OBS_FORWARD] == KV_FALSE,
        "a translator that changes one of the 256 values of fp8_e4m3, every value at every place", k->err);
}

kv_rc kv_controls_run(kv_device *dev, json_t *list, kv_err *err)
{
    controls k = {.dev = dev, .list = list, .err = err};
    kv_rc rc;
    KV_TRY(rc, out, kv_builtin_catalogue(&k.all, err));
    KV_TRY(rc, out, reinterpreting(&k));
    KV_TRY(rc, out, bad_decodes(&k));
    KV_TRY(rc, out, declared_twice(&k));
    KV_TRY(rc, out, one_head_dim(&k));
    KV_TRY(rc, out, expected_grades(&k));
    KV_TRY(rc, out, withheld(&k));
    KV_TRY(rc, out, mutant_translators(&k));
    KV_TRY(rc, out, one_value(&k));
out:
    kv_catalogue_free(&k.all);
    return rc;
}
