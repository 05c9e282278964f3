/* certs: the fixed names of a certificate, in one place for producer and verifier. Each enum has
 * its name function (never NULL inside the range) and its parse function (false if unknown). */
#ifndef KV_CERT_NAMES_H
#define KV_CERT_NAMES_H

#include "base/kv_base.h"

#define KV_CERT_SCHEMA "kvgrid.certificate/v1"
#define KV_CAMPAIGN_SCHEMA "kvgrid.campaign/v1"
#define KV_CERT_PAYLOADS 6
#define KV_CERT_DECODE_STEPS 8
#define KV_CERT_VOCABULARY 64
#define KV_CERT_ANCHOR "vllm-fa" /* the layout that pair selection "published" measures others against */
#define KV_PROOF_EXHAUSTIVE "index-permutation-exhaustive"
#define KV_CERT_CANONICAL "canonical" /* the source of a codec row: the canonical tensor itself */
#define KV_PROOF_ATTRIBUTION "attribution-study"
#define KV_PROOF_CODEC "codec-store-decode"
#define KV_PROOF_TP "tp-shards-exhaustive"
#define KV_PROOF_FRONTIER "frontier"
#define KV_PROOF_FAILED "failed"

/* Grades, the key order of observed.verdicts. */
typedef enum {
    KV_VERDICT_EXACT_BYTE,
    KV_VERDICT_EXACT_TOKEN,
    KV_VERDICT_NOT_EXACT,
    KV_VERDICT_REFUSED,
    KV_VERDICT_UNPROVEN,
    KV_VERDICT_FAILED,
    KV_VERDICT_COUNT
} kv_verdict;
const char *kv_verdict_name(kv_verdict v);
bool kv_verdict_parse(const char *name, kv_verdict *out);

/* Why no exact translation exists (design section 3; 3 is free). */
typedef enum {
    KV_FRONTIER_NONE, /* has the name NULL: null in a row */
    KV_FRONTIER_X1,
    KV_FRONTIER_X2,
    KV_FRONTIER_X4,
    KV_FRONTIER_COUNT
} kv_frontier;
const char *kv_frontier_name(kv_frontier f);
bool kv_frontier_parse(const char *name, kv_frontier *out);

/* Transformation words, in the order of their names, so that bits in rising order give a sorted
 * list. Rules: docs/words.md. */
typedef enum {
    KV_WORD_AXIS_PERMUTE,
    KV_WORD_HEAD_DEDUPE,
    KV_WORD_HEAD_DIM_DEVECTORIZE,
    KV_WORD_HEAD_DIM_REVECTORIZE,
    KV_WORD_HEAD_DIM_VECTORIZE,
    KV_WORD_HEAD_ORDER_TRANSPOSE,
    KV_WORD_HEAD_REPLICATE,
    KV_WORD_KV_MERGE,
    KV_WORD_KV_MOVE,
    KV_WORD_KV_SPLIT,
    KV_WORD_LAYER_MERGE,
    KV_WORD_LAYER_MOVE,
    KV_WORD_LAYER_SPLIT,
    KV_WORD_PAGE_PAD,
    KV_WORD_PAGE_REMAP,
    KV_WORD_PP_RESHARD,
    KV_WORD_REBLOCK,
    KV_WORD_REQUANTIZE,
    KV_WORD_TOKEN_DEVECTORIZE,
    KV_WORD_TOKEN_REVECTORIZE,
    KV_WORD_TOKEN_VECTORIZE,
    KV_WORD_TP_RESHARD,
    KV_WORD_V_AXIS_PERMUTE,
    KV_WORD_V_DIM_TRANSPOSE,
    KV_WORD_VIEW_REINTERPRET,
    KV_WORD_COUNT
} kv_word;
typedef uint32_t kv_word_set; /* bit kv_word */
#define KV_WORD_BIT(word_) ((kv_word_set)1 << (word_))
const char *kv_word_name(kv_word w);
bool kv_word_parse(const char *name, kv_word *out);

/* Laws that a proof stands on; each names a property test of that law. */
typedef enum {
    KV_LEMMA_EACH_ELEMENT_ONCE,
    KV_LEMMA_INDEX_FORWARD_OF_INVERSE,
    KV_LEMMA_INDEX_INVERSE_OF_FORWARD,
    KV_LEMMA_ODOMETER_IS_SUCCESSOR,
    KV_LEMMA_PADDING_IS_THE_COMPLEMENT,
    KV_LEMMA_COUNT
} kv_lemma;
const char *kv_lemma_name(kv_lemma l);
bool kv_lemma_parse(const char *name, kv_lemma *out);

/* Why a FAILED row could not be run. */
typedef enum {
    KV_ERRCLASS_DEVICE,
    KV_ERRCLASS_INTERNAL,
    KV_ERRCLASS_IO,
    KV_ERRCLASS_MEMORY,
    KV_ERRCLASS_COUNT
} kv_errclass;
const char *kv_errclass_name(kv_errclass e);
bool kv_errclass_parse(const char *name, kv_errclass *out);

/* The four observations, in the order of design section 4. */
typedef enum { KV_OBS_FORWARD, KV_OBS_IDENTICAL, KV_OBS_DIFF_IS_PADDING, KV_OBS_TOKENS, KV_OBS_COUNT } kv_obs;
const char *kv_obs_name(kv_obs o);

/* The four observations of a codec row. */
typedef enum { KV_CODEC_OBS_STORE, KV_CODEC_OBS_SLOT, KV_CODEC_OBS_DECODE, KV_CODEC_OBS_TOKENS } kv_codec_obs;
const char *kv_codec_obs_name(kv_codec_obs o);
/* The four observations of an attribution row. */
typedef enum { KV_STUDY_OBS_IDENTITY, KV_STUDY_OBS_VARIANTS, KV_STUDY_OBS_FINITE, KV_STUDY_OBS_TOP1 } kv_study_obs;
const char *kv_study_obs_name(kv_study_obs o);

/* Reasons to refuse a certificate, H0 to H15. */
typedef enum {
    KV_H0_DOCUMENT_UNREADABLE,
    KV_H1_SIGNATURE_INVALID,
    KV_H2_VERDICT_NOT_DERIVED,
    KV_H3_PROOF_MISSING,
    KV_H4_PROOF_NOT_EXHAUSTIVE,
    KV_H5_TRIVIAL_TRANSFORMATION,
    KV_H6_HUNT_FOUND_NOTHING,
    KV_H7_VOCABULARY_NOT_EXERCISED,
    KV_H8_FLOOR_BELOW_OBSERVATION,
    KV_H9_GUARD_FAILED_OPEN,
    KV_H10_COUNTS_DO_NOT_RECOMPUTE,
    KV_H11_ENGINE_UNDECLARED,
    KV_H12_PAIR_DECLARED_TWICE,
    KV_H13_TOKEN_CLAIM_WITHOUT_A_DECODE,
    KV_H14_NO_FRONTIER,
    KV_H15_CELL_MISSING,
    KV_HCODE_COUNT
} kv_hcode;
const char *kv_hcode_name(kv_hcode h);

/* A control and the guard that must fire in it: a certificate that expects another one proves less. */
typedef struct {
    const char *name, *guard;
} kv_cert_control;

/* The lists that a certificate must hold, each name once and no other (H8). They end with NULL; certs/verify.py holds
 * the same names and guards. */
typedef struct {
    const char *const *checks;
    const kv_cert_control *controls;
    const char *const *known_limits;
} kv_cert_required;
extern const kv_cert_required kv_cert_required_built_in;

#endif
