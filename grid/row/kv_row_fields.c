#include "grid/row/kv_row_fields.h"

#include <stddef.h>
#include <string.h>

#include "certs/kv_json.h"

#define N(name_, least_, most_)                                                                                        \
    {                                                                                                                  \
        offsetof(kv_row, name_), false, least_, most_                                                                  \
    }
#define W(name_)                                                                                                       \
    {                                                                                                                  \
        offsetof(kv_row, name_), true, 0, KV_JSON_INT_MAX                                                              \
    }
const kv_row_field kv_row_fields[KV_ROW_FIELDS] = {N(verdict, 0, KV_VERDICT_COUNT - 1),
                                                   N(error_class, -1, KV_ERRCLASS_COUNT - 1),
                                                   N(frontier, 0, KV_X4_GEOMETRY_UNREPRESENTABLE),
                                                   N(words, 0, ((int64_t)1 << KV_W_COUNT) - 1),
                                                   N(same_image, 0, 1),
                                                   N(ran, 0, 1),
                                                   N(observed[0], 0, KV_NULL),
                                                   N(observed[1], 0, KV_NULL),
                                                   N(observed[2], 0, KV_NULL),
                                                   N(observed[3], 0, KV_NULL),
                                                   W(native_bytes[0]),
                                                   W(native_bytes[1]),
                                                   W(unit_layers),
                                                   W(layers),
                                                   W(checked),
                                                   W(total),
                                                   W(source_checked),
                                                   W(source_total),
                                                   N(source_bijective, 0, 1),
                                                   N(dest_bijective, 0, 1),
                                                   W(source_padding),
                                                   W(dest_padding),
                                                   W(unread_padding),
                                                   W(diff_positions),
                                                   N(gather_payloads, 0, 1 << 16),
                                                   N(gather_agrees, 0, 1),
                                                   N(converts, 0, 1),
                                                   N(values_preserved, 0, 1),
                                                   N(finite, 0, 1),
                                                   W(worst_ppm)};

/* As wide as W, but of either sign. */
#define S(name_)                                                                                                       \
    {                                                                                                                  \
        offsetof(kv_row, name_), true, -KV_JSON_INT_MAX, KV_JSON_INT_MAX                                               \
    }
static const kv_row_field codec_fields[] = {
    W(codec.rows),         W(codec.encoded_rows),    W(codec.blocks),           W(codec.overflow_blocks),
    W(codec.outliers),     W(codec.saturated),       W(codec.stored_bytes),     W(codec.plain_bytes),
    N(codec.has_l2, 0, 1), N(codec.has_worst, 0, 1), N(codec.has_cosine, 0, 1), W(codec.l2_ppm),
    W(codec.worst_ppm),    S(codec.cosine_ppm)};
#define PASSAGE(i_) S(study.passage[i_][0]), S(study.passage[i_][1]), W(study.passage[i_][2])
static const kv_row_field study_fields[] = {N(study.finite, 0, 1),
                                            N(study.accept, 0, KV_CODEC_STUDY_REJECT),
                                            N(study.passages, 1, KV_STUDY_PASSAGES_MAX),
                                            W(study.base_nll_nano),
                                            W(study.nll_nano),
                                            S(study.ppl_change_ppm),
                                            S(study.kl_nano),
                                            W(study.top1_ppm),
                                            S(study.error_ppm[0]),
                                            S(study.error_ppm[1]),
                                            W(study.overflow_blocks[0]),
                                            W(study.overflow_blocks[1]),
                                            PASSAGE(0),
                                            PASSAGE(1),
                                            PASSAGE(2),
                                            PASSAGE(3),
                                            PASSAGE(4),
                                            PASSAGE(5),
                                            PASSAGE(6),
                                            PASSAGE(7)};

static const kv_row_field tp_fields[] = {W(tp.wire[0]),       W(tp.wire[1]),         W(tp.least[0]),
                                         W(tp.least[1]),      N(tp.minimal, 0, 1),   W(tp.rounds),
                                         W(tp.heads),         W(tp.of_heads),        W(tp.whole_positions),
                                         W(tp.whole_differs), W(tp.shard_positions), W(tp.shard_differs)};

const kv_row_more kv_row_mores[KV_ROW_MORES] = {
    {offsetof(kv_row, has_codec), codec_fields, sizeof codec_fields / sizeof *codec_fields,
     offsetof(kv_row, codec.digest), 6},
    {offsetof(kv_row, has_study), study_fields, sizeof study_fields / sizeof *study_fields,
     offsetof(kv_row, study.digest), 2},
    {offsetof(kv_row, has_tp), tp_fields, sizeof tp_fields / sizeof *tp_fields, 0, 0}};

const kv_row_more *kv_row_more_of(const kv_row *r)
{
    if (r->has_codec) return &kv_row_mores[0];
    if (r->has_tp) return &kv_row_mores[2];
    return r->has_study ? &kv_row_mores[1] : NULL;
}

int64_t kv_row_field_get(const kv_row *r, const kv_row_field *f)
{
    int32_t narrow;
    int64_t wide;
    if (f->wide) {
        memcpy(&wide, (const char *)r + f->at, sizeof wide);
        return wide;
    }
    memcpy(&narrow, (const char *)r + f->at, sizeof narrow);
    return narrow;
}

void kv_row_field_set(kv_row *r, const kv_row_field *f, int64_t v)
{
    const int32_t narrow = (int32_t)v;
    if (f->wide)
        memcpy((char *)r + f->at, &v, sizeof v);
    else
        memcpy((char *)r + f->at, &narrow, sizeof narrow);
}
