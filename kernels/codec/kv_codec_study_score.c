/* Logits to numbers: likelihood, divergence, agreement, verdict. */
#include "kernels/codec/kv_codec_study_int.h"

enum { VOCAB = KV_CODEC_STUDY_VOCAB };
#define NANO 1e9
#define PPM 1e6

/* Nearest integer, halves away from zero, held at +-10^18; not for NaN. */
int64_t kv_study_integer(double x)
{
    if (x > 1e18) x = 1e18;
    if (x < -1e18) x = -1e18;
    return (int64_t)(x < 0.0 ? x - 0.5 : x + 0.5);
}

/* ln p of all tokens; false where a logit is not finite (out is then 0). */
static bool log_softmax(const float *logits, double *out)
{
    const double most = (double)logits[kv_token_argmax(logits, VOCAB)];
    double sum = 0.0;
    for (int32_t i = 0; i < VOCAB; i++) {
        const float off = logits[i] - logits[i];
        if (off != off) {
            memset(out, 0, VOCAB * sizeof *out);
            return false;
        }
        out[i] = kv_study_add((double)logits[i], -most);
        sum = kv_study_add(sum, kv_study_exp(out[i]));
    }
    const double whole = kv_study_log(sum);
    for (int32_t i = 0; i < VOCAB; i++) out[i] = kv_study_add(out[i], -whole);
    return true;
}

/* Sums over the tokens of a passage. */
typedef struct {
    bool finite;
    double nll, base_nll, kl;
    int64_t same;
} sums;

static sums sum_passage(const kv_codec_study *s, int64_t p)
{
    const uint8_t *next = s->text + p * (s->tokens + 1) + s->p.prefix + 1;
    sums r = {.finite = true};
    for (int64_t t = 0; t < s->p.evaluated; t++) {
        const int64_t at = (p * s->p.evaluated + t) * VOCAB;
        double base[VOCAB], cell[VOCAB], kl = 0.0;
        if (!log_softmax(s->base_logits + at, base)) r.finite = false;
        r.base_nll = kv_study_add(r.base_nll, -base[next[t]]);
        if (!log_softmax(s->logits + at, cell)) r.finite = false;
        if (!r.finite) continue;
        for (int32_t i = 0; i < VOCAB; i++)
            kl = kv_study_add(kl, kv_study_mul(kv_study_exp(base[i]), kv_study_add(base[i], -cell[i])));
        r.kl = kv_study_add(r.kl, kl);
        r.nll = kv_study_add(r.nll, -cell[next[t]]);
        r.same += kv_token_argmax(s->base_logits + at, VOCAB) == kv_token_argmax(s->logits + at, VOCAB);
    }
    return r;
}

static int32_t verdict_of(const kv_codec_study_score *m)
{
    const int64_t change = m->ppl_change_ppm < 0 ? -m->ppl_change_ppm : m->ppl_change_ppm;
    if (!m->finite) return KV_CODEC_STUDY_REJECT;
    if (change <= 10000 && m->top1_ppm >= 950000) return KV_CODEC_STUDY_ACCEPT;
    if (change <= 30000 && m->top1_ppm >= 850000) return KV_CODEC_STUDY_MARGINAL;
    return KV_CODEC_STUDY_REJECT;
}

void kv_study_score_all(const kv_codec_study *s, kv_codec_study_result *out)
{
    const double n = (double)s->p.evaluated, passages = (double)s->p.passages;
    double change = 0.0;
    sums all = {.finite = true};
    for (int64_t p = 0; p < s->p.passages; p++) {
        const sums r = sum_passage(s, p);
        all.base_nll += r.base_nll / n;
        all.finite = all.finite && r.finite;
        if (!r.finite) continue;
        const double shift = kv_study_exp((r.nll - r.base_nll) / n) - 1.0;
        out->passage[p] =
            (kv_codec_study_score){true, kv_study_integer(r.nll / n * NANO), kv_study_integer(shift * PPM),
                                   kv_study_integer(r.kl / n * NANO), kv_study_integer((double)r.same / n * PPM)};
        change += shift;
        all.nll += r.nll / n;
        all.kl += r.kl / n;
        all.same += r.same;
    }
    out->base_nll_nano = kv_study_integer(all.base_nll / passages * NANO);
    if (all.finite)
        out->mean = (kv_codec_study_score){
            true, kv_study_integer(all.nll / passages * NANO), kv_study_integer(change / passages * PPM),
            kv_study_integer(all.kl / passages * NANO), kv_study_integer((double)all.same / (n * passages) * PPM)};
    out->verdict = verdict_of(&out->mean);
}

kv_codec_study_gap kv_codec_study_additivity(const kv_codec_study_result *kv, const kv_codec_study_result *k,
                                             const kv_codec_study_result *v)
{
    kv_codec_study_gap gap = {.finite = kv->mean.finite && k->mean.finite && v->mean.finite};
    if (!gap.finite) return gap;
    gap.ppl_change_ppm = kv->mean.ppl_change_ppm - (k->mean.ppl_change_ppm + v->mean.ppl_change_ppm);
    gap.kl_nano = kv->mean.kl_nano - (k->mean.kl_nano + v->mean.kl_nano);
    return gap;
}

const char *kv_codec_study_verdict_name(int32_t verdict)
{
    static const char *const names[] = {"ACCEPT", "MARGINAL", "REJECT"};
    return verdict >= 0 && verdict <= KV_CODEC_STUDY_REJECT ? names[verdict] : NULL;
}
