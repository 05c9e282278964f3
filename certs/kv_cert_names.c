#include "certs/kv_cert_names.h"

#include <string.h>

/* Index of name among n names, or n. NULL entries match nothing. */
static size_t index_of(const char *const *names, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (names[i] != NULL && strcmp(names[i], name) == 0) return i;
    return n;
}

static const char *const verdicts[KV_VERDICT_COUNT] = {
    [KV_VERDICT_EXACT_BYTE] = "EXACT_BYTE", [KV_VERDICT_EXACT_TOKEN] = "EXACT_TOKEN",
    [KV_VERDICT_NOT_EXACT] = "NOT_EXACT",   [KV_VERDICT_REFUSED] = "REFUSED",
    [KV_VERDICT_UNPROVEN] = "UNPROVEN",     [KV_VERDICT_FAILED] = "FAILED",
};

static const char *const frontiers[KV_FRONTIER_COUNT] = {
    [KV_FRONTIER_NONE] = NULL,
    [KV_FRONTIER_X1] = "X1_LATENT_KV",
    [KV_FRONTIER_X2] = "X2_HEAD_GATHER",
    [KV_FRONTIER_X4] = "X4_GEOMETRY_UNREPRESENTABLE",
};

static const char *const words[KV_WORD_COUNT] = {
    [KV_WORD_AXIS_PERMUTE] = "axis_permute",
    [KV_WORD_HEAD_DEDUPE] = "head_dedupe",
    [KV_WORD_HEAD_DIM_DEVECTORIZE] = "head_dim_devectorize",
    [KV_WORD_HEAD_DIM_REVECTORIZE] = "head_dim_revectorize",
    [KV_WORD_HEAD_DIM_VECTORIZE] = "head_dim_vectorize",
    [KV_WORD_HEAD_ORDER_TRANSPOSE] = "head_order_transpose",
    [KV_WORD_HEAD_REPLICATE] = "head_replicate",
    [KV_WORD_KV_MERGE] = "kv_merge",
    [KV_WORD_KV_MOVE] = "kv_move",
    [KV_WORD_KV_SPLIT] = "kv_split",
    [KV_WORD_LAYER_MERGE] = "layer_merge",
    [KV_WORD_LAYER_MOVE] = "layer_move",
    [KV_WORD_LAYER_SPLIT] = "layer_split",
    [KV_WORD_PAGE_PAD] = "page_pad",
    [KV_WORD_PAGE_REMAP] = "page_remap",
    [KV_WORD_PP_RESHARD] = "pp_reshard",
    [KV_WORD_REBLOCK] = "reblock",
    [KV_WORD_REQUANTIZE] = "requantize",
    [KV_WORD_TOKEN_DEVECTORIZE] = "token_devectorize",
    [KV_WORD_TOKEN_REVECTORIZE] = "token_revectorize",
    [KV_WORD_TOKEN_VECTORIZE] = "token_vectorize",
    [KV_WORD_TP_RESHARD] = "tp_reshard",
    [KV_WORD_V_AXIS_PERMUTE] = "v_axis_permute",
    [KV_WORD_V_DIM_TRANSPOSE] = "v_dim_transpose",
    [KV_WORD_VIEW_REINTERPRET] = "view_reinterpret",
};

static const char *const lemmas[KV_LEMMA_COUNT] = {
    [KV_LEMMA_EACH_ELEMENT_ONCE] = "each_element_once",
    [KV_LEMMA_INDEX_FORWARD_OF_INVERSE] = "index_forward_of_inverse",
    [KV_LEMMA_INDEX_INVERSE_OF_FORWARD] = "index_inverse_of_forward",
    [KV_LEMMA_ODOMETER_IS_SUCCESSOR] = "odometer_is_successor",
    [KV_LEMMA_PADDING_IS_THE_COMPLEMENT] = "padding_is_the_complement",
};

static const char *const errclasses[KV_ERRCLASS_COUNT] = {
    [KV_ERRCLASS_DEVICE] = "device",
    [KV_ERRCLASS_INTERNAL] = "internal",
    [KV_ERRCLASS_IO] = "io",
    [KV_ERRCLASS_MEMORY] = "memory",
};

static const char *const observations[KV_OBS_COUNT] = {
    [KV_OBS_FORWARD] = "forward_reproduces_target",
    [KV_OBS_IDENTICAL] = "roundtrip_byte_identical",
    [KV_OBS_DIFF_IS_PADDING] = "roundtrip_diff_is_exactly_unread_padding",
    [KV_OBS_TOKENS] = "tokens_identical",
};

static const char *const hcodes[KV_HCODE_COUNT] = {
    [KV_H0_DOCUMENT_UNREADABLE] = "H0_DOCUMENT_UNREADABLE",
    [KV_H1_SIGNATURE_INVALID] = "H1_SIGNATURE_INVALID",
    [KV_H2_VERDICT_NOT_DERIVED] = "H2_VERDICT_NOT_DERIVED",
    [KV_H3_PROOF_MISSING] = "H3_PROOF_MISSING",
    [KV_H4_PROOF_NOT_EXHAUSTIVE] = "H4_PROOF_NOT_EXHAUSTIVE",
    [KV_H5_TRIVIAL_TRANSFORMATION] = "H5_TRIVIAL_TRANSFORMATION",
    [KV_H6_HUNT_FOUND_NOTHING] = "H6_HUNT_FOUND_NOTHING",
    [KV_H7_VOCABULARY_NOT_EXERCISED] = "H7_VOCABULARY_NOT_EXERCISED",
    [KV_H8_FLOOR_BELOW_OBSERVATION] = "H8_FLOOR_BELOW_OBSERVATION",
    [KV_H9_GUARD_FAILED_OPEN] = "H9_GUARD_FAILED_OPEN",
    [KV_H10_COUNTS_DO_NOT_RECOMPUTE] = "H10_COUNTS_DO_NOT_RECOMPUTE",
    [KV_H11_ENGINE_UNDECLARED] = "H11_ENGINE_UNDECLARED",
    [KV_H12_PAIR_DECLARED_TWICE] = "H12_PAIR_DECLARED_TWICE",
    [KV_H13_TOKEN_CLAIM_WITHOUT_A_DECODE] = "H13_TOKEN_CLAIM_WITHOUT_A_DECODE",
    [KV_H14_NO_FRONTIER] = "H14_NO_FRONTIER",
    [KV_H15_CELL_MISSING] = "H15_CELL_MISSING",
};

const char *kv_verdict_name(kv_verdict v)
{
    return verdicts[v];
}
const char *kv_frontier_name(kv_frontier f)
{
    return frontiers[f];
}
const char *kv_word_name(kv_word w)
{
    return words[w];
}
const char *kv_lemma_name(kv_lemma l)
{
    return lemmas[l];
}
const char *kv_errclass_name(kv_errclass e)
{
    return errclasses[e];
}
const char *kv_codec_obs_name(kv_codec_obs o)
{
    static const char *const names[KV_OBS_COUNT] = {"store_agrees_with_reference", "slot_roundtrip_byte_identical",
                                                    "decode_agrees_with_reference", "tokens_identical"};
    return names[o];
}

const char *kv_study_obs_name(kv_study_obs o)
{
    static const char *const names[KV_OBS_COUNT] = {"identity_changes_nothing", "variants_agree", "logits_are_finite",
                                                    "top1_identical"};
    return names[o];
}

const char *kv_obs_name(kv_obs o)
{
    return observations[o];
}
const char *kv_hcode_name(kv_hcode h)
{
    return hcodes[h];
}

bool kv_verdict_parse(const char *name, kv_verdict *out)
{
    size_t i = index_of(verdicts, KV_VERDICT_COUNT, name);
    if (i < KV_VERDICT_COUNT) *out = (kv_verdict)i;
    return i < KV_VERDICT_COUNT;
}

bool kv_frontier_parse(const char *name, kv_frontier *out)
{
    size_t i = index_of(frontiers, KV_FRONTIER_COUNT, name);
    if (i < KV_FRONTIER_COUNT) *out = (kv_frontier)i;
    return i < KV_FRONTIER_COUNT;
}

bool kv_word_parse(const char *name, kv_word *out)
{
    size_t i = index_of(words, KV_WORD_COUNT, name);
    if (i < KV_WORD_COUNT) *out = (kv_word)i;
    return i < KV_WORD_COUNT;
}

bool kv_lemma_parse(const char *name, kv_lemma *out)
{
    size_t i = index_of(lemmas, KV_LEMMA_COUNT, name);
    if (i < KV_LEMMA_COUNT) *out = (kv_lemma)i;
    return i < KV_LEMMA_COUNT;
}

bool kv_errclass_parse(const char *name, kv_errclass *out)
{
    size_t i = index_of(errclasses, KV_ERRCLASS_COUNT, name);
    if (i < KV_ERRCLASS_COUNT) *out = (kv_errclass)i;
    return i < KV_ERRCLASS_COUNT;
}

/* ---- what a certificate must hold: fewer or others are H8 -------------------------------------- */
static const char *const required_checks[] = {
    "proofs_have_every_field",
    "exact_rows_proved_over_the_whole_space",
    "no_exact_row_is_a_relabelling",
    "token_class_is_unread_padding",
    "claimed_vocabulary_exercised",
    "claimed_frontier_codes_reached",
    "token_leg_not_vacuous",
    "reference_sequence_not_degenerate",
    "round_trip_alone_is_not_exact",
    "token_identical_means_padding_only",
    "equal_descriptors_are_views",
    "equal_images_are_same_image",
    "every_layout_cited",
    "lemmas_of_exact_rows_exist",
    "no_missing_observation_improves_a_row",
    "every_cell_has_a_row",
    NULL,
};

static const kv_cert_control required_controls[] = {
    /* translators and declarations that must be caught */
    {"reinterpreting_translator", "NOT_EXACT"},
    {"source_tail_in_the_tokens", "NOT_EXACT"},
    {"engine_declared_twice", "view_reinterpret"},
    {"exact_at_one_head_dim_only", "EXACT_BYTE then X4_GEOMETRY_UNREPRESENTABLE"},
    {"mla_destination", "X1_LATENT_KV"},
    {"tp_shard_destination", "X2_HEAD_GATHER"},
    {"x16_head_dim", "X4_GEOMETRY_UNREPRESENTABLE"},
    {"fp8_runs_and_is_not_exact", "NOT_EXACT"},
    {"withheld_observation", "UNPROVEN"},
    {"corrupted_cache_element", "NOT_EXACT"},
    {"edited_attention", "equal_descriptors"},
    {"edited_element", "equal_descriptors"},
    {"edited_tp_size", "equal_descriptors"},
    {"edited_x", "catalogue_digest"},
    {"mutant_tail_dropped", "NOT_EXACT"},
    {"mutant_k_and_v_swapped", "NOT_EXACT"},
    {"mutant_heads_shifted", "NOT_EXACT"},
    {"mutant_only_block_0", "NOT_EXACT"},
    {"mutant_nothing_copied", "NOT_EXACT"},
    {"mutant_one_value_exhaustive", "NOT_EXACT"},
    /* mutations of a provisional document */
    {"mutation_none", "sound"},
    {"mutation_verdict_relabelled", "H2_VERDICT_NOT_DERIVED"},
    {"mutation_observation_withheld", "H2_VERDICT_NOT_DERIVED"},
    {"mutation_gather_agrees_nulled", "H3_PROOF_MISSING"},
    {"mutation_bijection_denied", "H2_VERDICT_NOT_DERIVED"},
    {"mutation_proof_deleted", "H3_PROOF_MISSING"},
    {"mutation_no_lemma", "H3_PROOF_MISSING"},
    {"mutation_sampled_proof", "H4_PROOF_NOT_EXHAUSTIVE"},
    {"mutation_one_position_is_the_space", "H4_PROOF_NOT_EXHAUSTIVE"},
    {"mutation_trivial_transformation", "H5_TRIVIAL_TRANSFORMATION"},
    {"mutation_hunt_emptied", "H6_HUNT_FOUND_NOTHING"},
    {"mutation_row_dropped", "H15_CELL_MISSING"},
    {"mutation_vocabulary_thinned", "H7_VOCABULARY_NOT_EXERCISED"},
    {"mutation_floor_above_observation", "H8_FLOOR_BELOW_OBSERVATION"},
    {"mutation_guard_set_shrunk", "H8_FLOOR_BELOW_OBSERVATION"},
    {"mutation_failed_check", "H9_GUARD_FAILED_OPEN"},
    {"mutation_counts_changed", "H10_COUNTS_DO_NOT_RECOMPUTE"},
    {"mutation_undeclared_engine", "H11_ENGINE_UNDECLARED"},
    {"mutation_duplicate_pair", "H12_PAIR_DECLARED_TWICE"},
    {"mutation_token_claim_without_decode", "H13_TOKEN_CLAIM_WITHOUT_A_DECODE"},
    {"mutation_no_frontier", "H14_NO_FRONTIER"},
    {"mutation_forged_signer", "H1_SIGNATURE_INVALID"},
    {"mutation_mutated_byte", "H1_SIGNATURE_INVALID"},
    {"mutation_wrong_type_in_a_list", "H0_DOCUMENT_UNREADABLE"},
    {"mutation_torn_file", "H0_DOCUMENT_UNREADABLE"},
    {NULL, NULL},
};

static const char *const required_limits[] = {
    "made_up_engine_is_graded_like_a_real_one",
    "payload_mode_misses_one_changed_value",
    "exactness_depends_on_the_geometry",
    "tokens_depend_on_the_weight_seed",
    "byte_or_token_is_the_tail_model",
    "wrong_bijection_proves_as_well",
    NULL,
};

const kv_cert_required kv_cert_required_built_in = {required_checks, required_controls, required_limits};
