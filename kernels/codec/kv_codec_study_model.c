/* The study's model: weights from hashes of the seed, rotary tables. */
#include "kernels/codec/kv_codec_study_int.h"

#include <math.h>

/* Directions r < D that keys, queries and values carry have sizes lead * e^(-fall * r / D). */
#define KEY_LEAD 4.0
#define KEY_FALL 6.74 /* 0.034 of the lead at D/2 */
#define QUERY_LEAD 3.5
#define QUERY_FALL 3.37 /* 0.19 */
#define VALUE_LEAD 2.5
#define VALUE_FALL 3.28 /* 0.19 */
#define UNIT 1.31       /* makes hashed weights, of magnitude [1/2, 1), unit variance */
#define NOISE 0.15      /* full rank, in each lane of keys, queries and values */
#define QUERY_OWN 0.7   /* directions of a query head's own beside those of the keys */
#define OFFSET 0.5      /* biases */
#define OFFSET_PEAK 3.0 /* of lanes 13, 29, 45, ... */
#define KEY_SLOW 1.5    /* the fastest turning lanes are e^-slow times as large as the slowest */
#define QUERY_SLOW 0.75
#define OUT_GAIN 0.7
#define LOGIT_GAIN 4.0

enum { E = KV_STUDY_E, VOCAB = KV_CODEC_STUDY_VOCAB };

static float weight(const kv_codec_study *s, int32_t layer, kv_study_matrix m, int64_t row, int64_t column)
{
    const uint64_t key = kv_study_key(s->p.seed, (uint64_t)layer, m, (uint64_t)row);
    return kv_token_weight(kv_token_hash(key, (uint32_t)column), 0);
}

/* dst[c * stride + r] = gain * w(row0 + r, c). */
static void fill(const kv_codec_study *s, int32_t layer, kv_study_matrix m, int64_t row0, int64_t rows, int64_t columns,
                 float gain, int64_t stride, float *dst)
{
    for (int64_t r = 0; r < rows; r++) {
        const uint64_t key = kv_study_key(s->p.seed, (uint64_t)layer, m, (uint64_t)(row0 + r));
        for (int64_t c = 0; c < columns; c++)
            dst[c * stride + r] = gain * kv_token_weight(kv_token_hash(key, (uint32_t)c), 0);
    }
}

/* A head's projection [E][D of stride] += sum over r ascending of out[d][r] * fall(r) * in[r][e]. */
typedef struct {
    kv_study_matrix in, out;
    int64_t in_row, out_row;
    double lead, fall, gain;
    const float *lanes; /* [D] gain of each lane; NULL: 1 */
} low_rank;

static void add_low_rank(const kv_codec_study *s, int32_t layer, const low_rank *m, int64_t stride, float *scratch,
                         float *dst)
{
    const int64_t dim = s->p.head_dim;
    const float in_gain = (float)(UNIT / sqrt((double)E));
    float *column = scratch + E;
    for (int64_t r = 0; r < dim; r++) {
        const double size = m->lead * kv_study_exp(-m->fall * (double)r / (double)dim);
        const float gain = (float)(m->gain * size * UNIT / sqrt((double)dim));
        fill(s, layer, m->in, m->in_row + r, 1, E, in_gain, 1, scratch);
        fill(s, layer, m->out, m->out_row + r, 1, dim, gain, 1, column);
        for (int64_t d = 0; m->lanes != NULL && d < dim; d++) column[d] *= m->lanes[d];
        for (int64_t e = 0; e < E; e++)
            for (int64_t d = 0; d < dim; d++) dst[e * stride + d] += column[d] * scratch[e];
    }
}

static void add_noise(const kv_codec_study *s, int32_t layer, kv_study_matrix m, int64_t row0, int64_t stride,
                      float *dst)
{
    const float gain = (float)(NOISE * UNIT / sqrt((double)E));
    for (int64_t d = 0; d < s->p.head_dim; d++)
        for (int64_t e = 0; e < E; e++) dst[e * stride + d] += gain * weight(s, layer, m, row0 + d, e);
}

static void fill_bias(const kv_codec_study *s, int32_t layer, kv_study_matrix m, int64_t head, const float *lanes,
                      float *dst)
{
    for (int64_t d = 0; d < s->p.head_dim; d++) {
        const double size = d % 16 == 13 ? OFFSET_PEAK : OFFSET;
        dst[d] = (float)(size * UNIT) * lanes[d] * weight(s, layer, m, head, d);
    }
}

/* D / 64 to the power -1/4: scores keep their spread over head_dim. */
static double narrow(const kv_codec_study *s)
{
    return sqrt(sqrt(64.0 / (double)s->p.head_dim));
}

static void fill_attention(kv_codec_study *s, int32_t layer, float *scratch)
{
    const int64_t dim = s->p.head_dim, heads = s->p.kv_heads, pad = s->d_pad;
    const int64_t kv = heads * pad, all = KV_STUDY_GROUP * kv;
    const double lead = KEY_LEAD * narrow(s), query = QUERY_LEAD * narrow(s);
    const kv_study_model *m = &s->model;
    kv_study_layer *l = &s->model.layer[layer];
    for (int64_t h = 0; h < heads; h++) {
        const low_rank key = {KV_STUDY_QK_IN, KV_STUDY_K_OUT, h * dim, h * dim, lead, KEY_FALL, 1.0, m->key_gain};
        const low_rank value = {KV_STUDY_V_IN, KV_STUDY_V_OUT, h * dim, h * dim, VALUE_LEAD, VALUE_FALL, 1.0, NULL};
        add_low_rank(s, layer, &key, kv, scratch, l->wk + h * pad);
        add_noise(s, layer, KV_STUDY_K_NOISE, h * dim, kv, l->wk + h * pad);
        fill_bias(s, layer, KV_STUDY_K_BIAS, h, m->key_gain, l->k_bias + h * pad);
        add_low_rank(s, layer, &value, kv, scratch, l->wv + h * pad);
        add_noise(s, layer, KV_STUDY_V_NOISE, h * dim, kv, l->wv + h * pad);
    }
    for (int64_t g = 0; g < KV_STUDY_GROUP * heads; g++) {
        const int64_t h = g / KV_STUDY_GROUP;
        const low_rank shared = {KV_STUDY_QK_IN, KV_STUDY_K_OUT, h * dim, h * dim,
                                 query,          QUERY_FALL,     1.0,     m->query_gain};
        const low_rank own = {KV_STUDY_QK_IN, KV_STUDY_Q_OUT, h * dim,   g * dim,
                              query,          QUERY_FALL,     QUERY_OWN, m->query_gain};
        add_low_rank(s, layer, &shared, all, scratch, l->wq + g * pad);
        add_low_rank(s, layer, &own, all, scratch, l->wq + g * pad);
        add_noise(s, layer, KV_STUDY_Q_NOISE, g * dim, all, l->wq + g * pad);
        fill_bias(s, layer, KV_STUDY_Q_BIAS, g, m->query_gain, l->q_bias + g * pad);
    }
}

static void fill_layer(kv_codec_study *s, int32_t layer, float *scratch)
{
    const int64_t dim = s->p.head_dim, all = KV_STUDY_GROUP * s->p.kv_heads;
    const float out_gain = (float)(OUT_GAIN * UNIT / sqrt((double)(all * dim)));
    const float mlp_gain = (float)(UNIT / sqrt((double)E));
    kv_study_layer *l = &s->model.layer[layer];
    fill_attention(s, layer, scratch);
    for (int64_t g = 0; g < all; g++)
        for (int64_t d = 0; d < dim; d++)
            fill(s, layer, KV_STUDY_WO, g * dim + d, 1, E, out_gain, 1, l->wo + (g * s->d_pad + d) * E);
    fill(s, layer, KV_STUDY_MLP_IN, 0, E, E, mlp_gain, E, l->mlp_in);
    fill(s, layer, KV_STUDY_MLP_OUT, 0, E, E, mlp_gain, E, l->mlp_out);
}

/* Gains of mean square 1, e^-slow for the fastest pair of lanes against the slowest. */
static void fill_lane_gain(const kv_codec_study *s, double slow, float *gain)
{
    const int64_t half = s->p.head_dim / 2;
    double sum = 0.0;
    for (int64_t j = 0; j < half; j++) sum += kv_study_exp(-2.0 * slow * (double)(half - 1 - j) / (double)half);
    const double unit = sqrt((double)half / sum);
    for (int64_t d = 0; d < s->p.head_dim; d++)
        gain[d] = (float)(unit * kv_study_exp(-slow * (double)(half - 1 - d % half) / (double)half));
}

static void fill_tables(kv_codec_study *s)
{
    const int64_t half = s->p.head_dim / 2;
    kv_study_model *m = &s->model;
    for (int64_t j = 0; j < half; j++) {
        /* 10000^(-2j/D) */
        const double frequency = kv_study_exp(-9.210340371976182736 * (double)(2 * j) / (double)s->p.head_dim);
        for (int64_t t = 0; t < s->tokens; t++) {
            double sine, cosine;
            kv_study_sincos((double)t * frequency, &sine, &cosine);
            m->sine[t * half + j] = (float)sine;
            m->cosine[t * half + j] = (float)cosine;
        }
    }
    for (int64_t t = 0; t < VOCAB; t++) fill(s, 0, KV_STUDY_EMBED, t, 1, E, 1.0f, 1, m->embed + t * E);
    for (int64_t t = 0; t < s->tokens; t++) fill(s, 0, KV_STUDY_POSITION, t, 1, E, 0.5f, 1, m->position + t * E);
    fill(s, 0, KV_STUDY_UNEMBED, 0, VOCAB, E, (float)(LOGIT_GAIN / sqrt((double)E)), VOCAB, m->unembed);
}

static bool layer_new(kv_codec_study *s, int32_t layer, kv_err *err)
{
    const int64_t kv = s->p.kv_heads * s->d_pad, all = KV_STUDY_GROUP * kv;
    kv_study_layer *l = &s->model.layer[layer];
    float *at = kv_study_floats(s, (2 * all + 2 * kv + 2 * E) * E + all + kv, err);
    if (at == NULL) return false;
    l->wq = at;
    l->wk = l->wq + all * E;
    l->wv = l->wk + kv * E;
    l->wo = l->wv + kv * E;
    l->mlp_in = l->wo + all * E;
    l->mlp_out = l->mlp_in + E * E;
    l->q_bias = l->mlp_out + E * E;
    l->k_bias = l->q_bias + all;
    return true;
}

kv_rc kv_study_model_new(kv_codec_study *s, kv_err *err)
{
    const int64_t half = s->p.head_dim / 2;
    kv_study_model *m = &s->model;
    float *scratch;
    m->embed = kv_study_floats(s, 2 * VOCAB * E + s->tokens * (E + 2 * half) + 2 * s->p.head_dim, err);
    scratch = kv_study_floats(s, E + s->p.head_dim, err);
    if (m->embed == NULL || scratch == NULL) return KV_ENOMEM;
    m->unembed = m->embed + VOCAB * E;
    m->position = m->unembed + VOCAB * E;
    m->cosine = m->position + s->tokens * E;
    m->sine = m->cosine + s->tokens * half;
    m->key_gain = m->sine + s->tokens * half;
    m->query_gain = m->key_gain + s->p.head_dim;
    fill_lane_gain(s, KEY_SLOW, m->key_gain);
    fill_lane_gain(s, QUERY_SLOW, m->query_gain);
    fill_tables(s);
    for (int32_t i = 0; i < s->p.layers; i++) {
        if (!layer_new(s, i, err)) return KV_ENOMEM;
        fill_layer(s, i, scratch);
    }
    return KV_OK;
}
