/* The proof of an attribution row: what its numbers must be to each other, and to those of other rows. */
#include "certs/kv_verify_int.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define PPM 1000000
#define MEAN_OFF 2 /* how far the mean of rounded numbers may be from the rounded mean */

enum { CHANGE, DIVERGENCE, TOP1, NLL, SCORES };
static const char *const scores[SCORES] = {"ppl_change_ppm", "kl_nano", "top1_ppm", "nll_nano"};

typedef struct {
    kv_vf *v;
    const kv_vf_derived *d;
    const kv_vf_study_section *s;
    const json_t *proof;
    bool unproven, scored;
    int64_t score[SCORES];
} check;

static const char *at(const check *c, const char *key)
{
    return kv_vf_at(c->v, "$.rows[%zu].proof.%s", c->d->i, key);
}

static bool present(const check *c, const char *key)
{
    return kv_vf_present(c->v, c->d, key, c->unproven);
}

static void fault(const check *c, kv_hcode code, const char *key, const char *expected)
{
    char actual[KV_VF_TEXT];
    kv_vf_fault(c->v, code, at(c, key), expected, kv_vf_show(json_object_get(c->proof, key), actual));
}

/* ---- scores ------------------------------------------------------------------------------------ */

/* All scores are there, or all are null: then a logit was not finite, or the row is UNPROVEN. */
static bool read_scores(const json_t *from, int n, int64_t out[SCORES], bool *all_null)
{
    int numbers = 0, nulls = 0;
    for (int k = 0; k < n; k++) {
        const json_t *value = json_object_get(from, scores[k]);
        numbers += json_is_integer(value);
        nulls += json_is_null(value);
        out[k] = json_integer_value(value);
    }
    *all_null = nulls == n;
    return numbers == n;
}

/* How many of n tokens agree, by their share in parts per million; -1 where no number of them has that share. */
static int64_t agreeing(int64_t ppm, int64_t n)
{
    if (ppm < 0 || ppm > PPM) return -1;
    const int64_t same = (ppm * n + PPM / 2) / PPM, off = ppm * n - same * PPM;
    return 2 * (off < 0 ? -off : off) <= n ? same : -1;
}

static int64_t apart(int64_t a, int64_t b)
{
    return a < b ? b - a : a - b;
}

/* The scores of the row are the means of those of its passages. */
static void check_means(const check *c, const int64_t sum[TOP1], int64_t same)
{
    const int64_t n = c->s->passages, tokens = n * c->s->evaluated;
    if (c->score[TOP1] >= 0 && c->score[TOP1] <= PPM && apart(c->score[TOP1] * tokens, same * PPM) * 2 > tokens)
        fault(c, KV_H2_VERDICT_NOT_DERIVED, "top1_ppm", "the share of tokens that agree, by the passages");
    for (int k = 0; k < TOP1; k++)
        if (apart(c->score[k] * n, sum[k]) > MEAN_OFF * n) /* numbers below 2^53, at most 8 of them */
            fault(c, KV_H2_VERDICT_NOT_DERIVED, scores[k], "the mean of the passages");
}

static void check_passages(check *c)
{
    const json_t *list = json_object_get(c->proof, "per_passage");
    char expected[32], actual[KV_VF_TEXT];
    int64_t sum[TOP1] = {0}, same = 0;
    bool good = true, none;
    if (!present(c, "per_passage")) return;
    if (json_array_size(list) != (size_t)c->s->passages) {
        snprintf(expected, sizeof expected, "%" PRId64 " passages", c->s->passages);
        kv_vf_fault(c->v, KV_H4_PROOF_NOT_EXHAUSTIVE, at(c, "per_passage"), expected, kv_vf_show(list, actual));
        return;
    }
    for (size_t i = 0; i < json_array_size(list); i++) {
        int64_t one[SCORES];
        const bool numbers = read_scores(json_array_get(list, i), NLL, one, &none);
        if (c->scored ? !numbers : !none) {
            kv_vf_fault(c->v, KV_H3_PROOF_MISSING, kv_vf_at(c->v, "$.rows[%zu].proof.per_passage[%zu]", c->d->i, i),
                        c->scored ? "three scores" : "three nulls, as the row has none",
                        kv_vf_show(json_array_get(list, i), actual));
            good = false;
        }
        if (!numbers || !good) continue;
        const int64_t agree = agreeing(one[TOP1], c->s->evaluated);
        if (agree < 0) {
            kv_vf_fault(c->v, KV_H2_VERDICT_NOT_DERIVED,
                        kv_vf_at(c->v, "$.rows[%zu].proof.per_passage[%zu].top1_ppm", c->d->i, i),
                        "the share of a number of tokens", kv_vf_show(json_array_get(list, i), actual));
            good = false;
        }
        same += agree;
        for (int k = 0; k < TOP1; k++) sum[k] += one[k];
    }
    if (good && c->scored) check_means(c, sum, same);
}

static void check_accept(const check *c)
{
    const int64_t change = apart(c->score[CHANGE], 0), top1 = c->score[TOP1];
    const char *want = !c->scored                          ? "REJECT"
                       : change <= 10000 && top1 >= 950000 ? "ACCEPT"
                       : change <= 30000 && top1 >= 850000 ? "MARGINAL"
                                                           : "REJECT";
    if (!present(c, "accept") || (c->unproven && !c->scored)) return;
    (void)kv_vf_want_text(c->v, KV_H2_VERDICT_NOT_DERIVED, at(c, "accept"), want, json_object_get(c->proof, "accept"));
}

static void check_observation(const check *c, kv_study_obs o, bool derived)
{
    const json_t *claim = json_object_get(json_object_get(c->d->row, "observations"), kv_study_obs_name(o));
    if (json_is_boolean(claim))
        (void)kv_vf_want_bool(c->v, KV_H2_VERDICT_NOT_DERIVED,
                              kv_vf_at(c->v, "$.rows[%zu].observations.%s", c->d->i, kv_study_obs_name(o)), derived,
                              claim);
}

static void check_scores(check *c)
{
    bool none;
    c->scored = read_scores(c->proof, SCORES, c->score, &none);
    for (int k = 0; k < SCORES; k++) {
        const json_t *value = json_object_get(c->proof, scores[k]);
        if (value == NULL || (json_is_null(value) && !none && !c->unproven)) (void)present(c, scores[k]);
    }
    if (c->scored && (c->score[TOP1] < 0 || c->score[TOP1] > PPM))
        fault(c, KV_H2_VERDICT_NOT_DERIVED, "top1_ppm", "0 to 1000000");
    check_passages(c);
    check_accept(c);
    check_observation(c, KV_STUDY_OBS_FINITE, c->scored);
    check_observation(c, KV_STUDY_OBS_TOP1, c->scored && c->score[TOP1] == PPM);
}

/* ---- the base run ------------------------------------------------------------------------------- */

/* A digest, or NULL where there is none. */
static const char *digest(const check *c, const char *key)
{
    const json_t *value = json_object_get(c->proof, key);
    if (!present(c, key)) return NULL;
    if (kv_vf_digest_good(value)) return json_string_value(value);
    fault(c, KV_H13_TOKEN_CLAIM_WITHOUT_A_DECODE, key, "64 hex digits");
    return NULL;
}

/* Rows of one geometry and seed have one base run. */
static void check_base(const check *c, const char *base_digest)
{
    kv_vf *v = c->v;
    const json_t *nll = json_object_get(c->proof, "base_nll_nano");
    if (v->base_geometry != c->d->cell->geometry) memset(v->base, 0, sizeof v->base); /* rows come by geometry */
    v->base_geometry = c->d->cell->geometry;
    kv_vf_base *b = &v->base[c->d->cell->point.seed];
    if (present(c, "base_nll_nano")) {
        if (!b->has_nll) b->nll = json_integer_value(nll);
        b->has_nll = true;
        if (json_integer_value(nll) != b->nll)
            fault(c, KV_H13_TOKEN_CLAIM_WITHOUT_A_DECODE, "base_nll_nano", "the base run of this geometry and seed");
    }
    if (base_digest == NULL) return;
    if (!b->has_digest) memcpy(b->digest, base_digest, sizeof b->digest);
    b->has_digest = true;
    if (strcmp(b->digest, base_digest) != 0)
        fault(c, KV_H13_TOKEN_CLAIM_WITHOUT_A_DECODE, "base_logits_digest", "the base run of this geometry and seed");
}

/* The same logits have the same scores; those of the cell identity are the same. */
static void check_no_change(const check *c, const char *base, const char *made)
{
    const bool identity = c->d->cell->point.cell == KV_VF_STUDY_IDENTITY;
    const bool same = base != NULL && made != NULL && strcmp(base, made) == 0;
    const json_t *nll = json_object_get(c->proof, "base_nll_nano");
    const bool no_change = c->scored && c->score[CHANGE] == 0 && c->score[DIVERGENCE] == 0 && c->score[TOP1] == PPM &&
                           (!json_is_integer(nll) || c->score[NLL] == json_integer_value(nll));
    const kv_hcode code = identity ? KV_H9_GUARD_FAILED_OPEN : KV_H2_VERDICT_NOT_DERIVED;
    if (identity && base != NULL && made != NULL && !same)
        fault(c, code, "logits_digest", "the base run's, as identity changes nothing");
    if ((identity || same) && (c->scored || (identity && !c->unproven)) && !no_change)
        kv_vf_fault(c->v, code, kv_vf_at(c->v, "$.rows[%zu].proof", c->d->i),
                    "changes of 0, top-1 of 1000000 and the base run's likelihood", "others");
}

/* ---- all of it ----------------------------------------------------------------------------------- */

static void check_errors(const check *c)
{
    static const char *const errors[] = {"k_error_ppm", "v_error_ppm"};
    for (int k = 0; k < 2; k++)
        if (present(c, errors[k]) && json_integer_value(json_object_get(c->proof, errors[k])) < -1)
            fault(c, KV_H2_VERDICT_NOT_DERIVED, errors[k], "a number >= 0, or -1 where it is not finite");
    (void)present(c, "k_overflow_blocks");
    (void)present(c, "v_overflow_blocks");
}

void kv_vf_study_proof(kv_vf *v, const kv_vf_derived *d, bool unproven)
{
    static const char *const sides[] = {"src", "dst"};
    check c = {
        .v = v, .d = d, .s = &v->campaign.study, .proof = json_object_get(d->row, "proof"), .unproven = unproven};
    (void)kv_vf_want_text(v, KV_H3_PROOF_MISSING, at(&c, "kind"), KV_PROOF_ATTRIBUTION,
                          json_object_get(c.proof, "kind"));
    for (int s = 0; s < 2; s++) {
        const json_t *value = json_object_get(json_object_get(d->row, "native_bytes"), sides[s]);
        if (unproven && json_is_null(value)) continue;
        (void)kv_vf_want_int(v, KV_H4_PROOF_NOT_EXHAUSTIVE, kv_vf_at(v, "$.rows[%zu].native_bytes.%s", d->i, sides[s]),
                             0, value);
    }
    if (present(&c, "passages"))
        (void)kv_vf_want_int(v, KV_H4_PROOF_NOT_EXHAUSTIVE, at(&c, "passages"), c.s->passages,
                             json_object_get(c.proof, "passages"));
    check_scores(&c);
    check_errors(&c);
    const char *base = digest(&c, "base_logits_digest"), *made = digest(&c, "logits_digest");
    check_base(&c, base);
    check_no_change(&c, base, made);
}
