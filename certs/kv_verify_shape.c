/* The document's types: one table a level, walked by one function. Values are judged elsewhere. */
#include "certs/kv_verify_int.h"

#include <stdio.h>
#include <string.h>

enum { STR = 1, NAT = 2, BOOL = 4, NUL = 8, OBJ = 16, ARR = 32, NEG = 64 };
enum { INT = NAT | NEG };
enum { OPTIONAL = 1, OPEN = 2 }; /* may be absent; an object that may hold other keys */

/* One key of an object. Tables end with key NULL. */
typedef struct shape {
    const char *key;
    unsigned types; /* allowed types */
    unsigned flags;
    unsigned items;            /* ARR: allowed types of its items */
    const struct shape *inner; /* keys of the object, or of the items that are objects */
} shape;

static const shape s_campaign[] = {{"name", STR, 0, 0, NULL},
                                   {"digest", STR, 0, 0, NULL},
                                   {"spec", OBJ, OPEN, 0, NULL}, /* kv_verify_spec.c */
                                   {NULL, 0, 0, 0, NULL}};
static const shape s_method[] = {{"payloads", NAT, 0, 0, NULL},
                                 {"payload_kinds", ARR, 0, STR, NULL},
                                 {"values", STR, 0, 0, NULL},
                                 {"tail", STR | ARR, 0, STR, NULL},
                                 {"tail_bits", OBJ, OPEN, 0, NULL},
                                 {"decode_steps", NAT, 0, 0, NULL},
                                 {"vocabulary", NAT, 0, 0, NULL},
                                 {"weight_seed", STR, 0, 0, NULL},
                                 {"value_seed", STR, 0, 0, NULL},
                                 {"reproduce", STR, 0, 0, NULL},
                                 {NULL, 0, 0, 0, NULL}};
static const shape s_layout[] = {{"digest", STR, 0, 0, NULL}, /* the rest: kv_verify_layout.c */
                                 {NULL, 0, 0, 0, NULL}};
static const shape s_geometry[] = {{"layers", NAT, 0, 0, NULL},   {"tokens", NAT, 0, 0, NULL},
                                   {"kv_heads", NAT, 0, 0, NULL}, {"head_dim", NAT, 0, 0, NULL},
                                   {"element", STR, 0, 0, NULL},  {"head_dim_v", NAT, OPTIONAL, 0, NULL},
                                   {NULL, 0, 0, 0, NULL}};
static const shape s_shapes[] = {{"k", ARR, 0, NAT, NULL}, {"v", ARR, 0, NAT, NULL}, {NULL, 0, 0, 0, NULL}};
static const shape s_binding[] = {{"layout", STR, 0, 0, NULL},
                                  {"geometry", NAT, 0, 0, NULL},
                                  {"exists", BOOL, 0, 0, NULL},
                                  {"reason", STR | NUL, 0, 0, NULL},
                                  {"native_shapes", OBJ | NUL, 0, 0, s_shapes},
                                  {"is_identity", BOOL, 0, 0, NULL},
                                  {NULL, 0, 0, 0, NULL}};
static const shape s_boundary[] = {{"holds", ARR, 0, STR, NULL},
                                   {"does_not_hold", ARR, 0, STR, NULL},
                                   {"note", STR, 0, 0, NULL},
                                   {NULL, 0, 0, 0, NULL}};
static const shape s_native[] = {{"src", NAT | NUL, 0, 0, NULL}, {"dst", NAT | NUL, 0, 0, NULL}, {NULL, 0, 0, 0, NULL}};
/* absent observations and proof keys are faults of their own (H2, H3) */
static const shape s_observations[] = {{"forward_reproduces_target", BOOL | NUL, OPTIONAL, 0, NULL},
                                       {"roundtrip_byte_identical", BOOL | NUL, OPTIONAL, 0, NULL},
                                       {"roundtrip_diff_is_exactly_unread_padding", BOOL | NUL, OPTIONAL, 0, NULL},
                                       {"tokens_identical", BOOL | NUL, OPTIONAL, 0, NULL},
                                       {NULL, 0, 0, 0, NULL}};
static const shape s_detail[] = {{"conversion", STR, 0, 0, NULL},
                                 {"values_preserved", BOOL, 0, 0, NULL},
                                 {"worst_relative_error_ppm", NAT | NUL, 0, 0, NULL},
                                 {NULL, 0, 0, 0, NULL}};
/* What the proof of a pair holds. */
#define PAIR_PROOF                                                                                                     \
    {"kind", STR, OPTIONAL, 0, NULL}, {"unit_layers", NAT | NUL, OPTIONAL, 0, NULL},                                   \
        {"layers", NAT | NUL, OPTIONAL, 0, NULL}, {"positions_checked", NAT | NUL, OPTIONAL, 0, NULL},                 \
        {"positions_total", NAT | NUL, OPTIONAL, 0, NULL}, {"source_positions_checked", NAT | NUL, OPTIONAL, 0, NULL}, \
        {"source_positions_total", NAT | NUL, OPTIONAL, 0, NULL}, {"source_bijective", BOOL | NUL, OPTIONAL, 0, NULL}, \
        {"dest_bijective", BOOL | NUL, OPTIONAL, 0, NULL}, {"source_padding_positions", NAT | NUL, OPTIONAL, 0, NULL}, \
        {"dest_padding_positions", NAT | NUL, OPTIONAL, 0, NULL},                                                      \
        {"unread_padding_positions", NAT | NUL, OPTIONAL, 0, NULL},                                                    \
        {"roundtrip_diff_positions", NAT | NUL, OPTIONAL, 0, NULL}, {"gather_payloads", NAT | NUL, OPTIONAL, 0, NULL}, \
        {"gather_agrees", BOOL | NUL, OPTIONAL, 0, NULL}, {"decoded_tokens", ARR | NUL, OPTIONAL, NAT, NULL},          \
        {"reference_tokens", ARR | NUL, OPTIONAL, NAT, NULL}, {"logits_digest", STR | NUL, OPTIONAL, 0, NULL},         \
        {"reference_logits_digest", STR | NUL, OPTIONAL, 0, NULL}, {"lemmas", ARR, OPTIONAL, STR, NULL},               \
    {                                                                                                                  \
        "detail", OBJ | NUL, OPTIONAL, 0, s_detail                                                                     \
    }
static const shape s_proof[] = {PAIR_PROOF, {NULL, 0, 0, 0, NULL}};
static const shape s_witness[] = {{"shard_heads", NAT, 0, 0, NULL},
                                  {"heads", NAT, 0, 0, NULL},
                                  {"whole_positions", NAT, 0, 0, NULL},
                                  {"whole_differs", NAT, 0, 0, NULL},
                                  {"shard_positions", NAT, 0, 0, NULL},
                                  {"shard_differs", NAT, 0, 0, NULL},
                                  {NULL, 0, 0, 0, NULL}};
static const shape s_tp_proof[] = {PAIR_PROOF,
                                   {"ranks", NAT | NUL, OPTIONAL, 0, NULL},
                                   {"rounds", NAT | NUL, OPTIONAL, 0, NULL},
                                   {"wire_bytes", NAT | NUL, OPTIONAL, 0, NULL},
                                   {"least_wire_bytes", NAT | NUL, OPTIONAL, 0, NULL},
                                   {"wire_bytes_back", NAT | NUL, OPTIONAL, 0, NULL},
                                   {"least_wire_bytes_back", NAT | NUL, OPTIONAL, 0, NULL},
                                   {"wire_minimal", BOOL | NUL, OPTIONAL, 0, NULL},
                                   {"witness", OBJ | NUL, OPTIONAL, 0, s_witness},
                                   {NULL, 0, 0, 0, NULL}};
static const shape s_codec_observations[] = {{"store_agrees_with_reference", BOOL | NUL, OPTIONAL, 0, NULL},
                                             {"slot_roundtrip_byte_identical", BOOL | NUL, OPTIONAL, 0, NULL},
                                             {"decode_agrees_with_reference", BOOL | NUL, OPTIONAL, 0, NULL},
                                             {"tokens_identical", BOOL | NUL, OPTIONAL, 0, NULL},
                                             {NULL, 0, 0, 0, NULL}};
static const shape s_codec_proof[] = {{"kind", STR, OPTIONAL, 0, NULL},
                                      {"rows", NAT | NUL, OPTIONAL, 0, NULL},
                                      {"encoded_rows", NAT | NUL, OPTIONAL, 0, NULL},
                                      {"blocks", NAT | NUL, OPTIONAL, 0, NULL},
                                      {"overflow_blocks", NAT | NUL, OPTIONAL, 0, NULL},
                                      {"outliers", NAT | NUL, OPTIONAL, 0, NULL},
                                      {"saturated", NAT | NUL, OPTIONAL, 0, NULL},
                                      {"relative_l2_ppm", NAT | NUL, OPTIONAL, 0, NULL},
                                      {"worst_element_ppm", NAT | NUL, OPTIONAL, 0, NULL},
                                      {"ratio_ppm", NAT | NUL, OPTIONAL, 0, NULL},
                                      {"cosine_ppm", INT | NUL, OPTIONAL, 0, NULL},
                                      {"value_preserving", BOOL, OPTIONAL, 0, NULL},
                                      {"codes_digest", STR | NUL, OPTIONAL, 0, NULL},
                                      {"reference_codes_digest", STR | NUL, OPTIONAL, 0, NULL},
                                      {"slots_digest", STR | NUL, OPTIONAL, 0, NULL},
                                      {"repacked_slots_digest", STR | NUL, OPTIONAL, 0, NULL},
                                      {"values_digest", STR | NUL, OPTIONAL, 0, NULL},
                                      {"reference_values_digest", STR | NUL, OPTIONAL, 0, NULL},
                                      {"logits_digest", STR | NUL, OPTIONAL, 0, NULL},
                                      {"reference_logits_digest", STR | NUL, OPTIONAL, 0, NULL},
                                      {"decoded_tokens", ARR | NUL, OPTIONAL, NAT, NULL},
                                      {"reference_tokens", ARR | NUL, OPTIONAL, NAT, NULL},
                                      {NULL, 0, 0, 0, NULL}};
static const shape s_study_observations[] = {{"identity_changes_nothing", BOOL | NUL, OPTIONAL, 0, NULL},
                                             {"variants_agree", BOOL | NUL, OPTIONAL, 0, NULL},
                                             {"logits_are_finite", BOOL | NUL, OPTIONAL, 0, NULL},
                                             {"top1_identical", BOOL | NUL, OPTIONAL, 0, NULL},
                                             {NULL, 0, 0, 0, NULL}};
static const shape s_passage[] = {{"ppl_change_ppm", INT | NUL, 0, 0, NULL},
                                  {"kl_nano", INT | NUL, 0, 0, NULL},
                                  {"top1_ppm", NAT | NUL, 0, 0, NULL},
                                  {NULL, 0, 0, 0, NULL}};
static const shape s_study_proof[] = {{"kind", STR, OPTIONAL, 0, NULL},
                                      {"accept", STR | NUL, OPTIONAL, 0, NULL},
                                      {"passages", NAT | NUL, OPTIONAL, 0, NULL},
                                      {"top1_ppm", NAT | NUL, OPTIONAL, 0, NULL},
                                      {"k_overflow_blocks", NAT | NUL, OPTIONAL, 0, NULL},
                                      {"v_overflow_blocks", NAT | NUL, OPTIONAL, 0, NULL},
                                      {"base_nll_nano", INT | NUL, OPTIONAL, 0, NULL},
                                      {"nll_nano", INT | NUL, OPTIONAL, 0, NULL},
                                      {"ppl_change_ppm", INT | NUL, OPTIONAL, 0, NULL},
                                      {"kl_nano", INT | NUL, OPTIONAL, 0, NULL},
                                      {"k_error_ppm", INT | NUL, OPTIONAL, 0, NULL},
                                      {"v_error_ppm", INT | NUL, OPTIONAL, 0, NULL},
                                      {"per_passage", ARR | NUL, OPTIONAL, OBJ, s_passage},
                                      {"base_logits_digest", STR | NUL, OPTIONAL, 0, NULL},
                                      {"logits_digest", STR | NUL, OPTIONAL, 0, NULL},
                                      {NULL, 0, 0, 0, NULL}};
#define ROW_OF(observations_, proof_)                                                                                  \
    {                                                                                                                  \
        {"check", STR, 0, 0, NULL}, {"pair_id", STR, 0, 0, NULL}, {"src", STR, 0, 0, NULL}, {"dst", STR, 0, 0, NULL},  \
            {"geometry", NAT, 0, 0, NULL}, {"params", OBJ, OPEN, 0, NULL}, {"same_image", BOOL, 0, 0, NULL},           \
            {"verdict", STR, 0, 0, NULL}, {"error_class", STR | NUL, 0, 0, NULL},                                      \
            {"frontier_code", STR | NUL, 0, 0, NULL}, {"frontier_reason", STR | NUL, 0, 0, NULL},                      \
            {"transformations", ARR, 0, STR, NULL}, {"native_bytes", OBJ, 0, 0, s_native},                             \
            {"observations", OBJ, 0, 0, observations_}, {"proof", OBJ | NUL, OPTIONAL, 0, proof_},                     \
        {                                                                                                              \
            NULL, 0, 0, 0, NULL                                                                                        \
        }                                                                                                              \
    }
static const shape s_row[] = ROW_OF(s_observations, s_proof); /* of checks pair and move */
static const shape s_tp_row[] = ROW_OF(s_observations, s_tp_proof);
static const shape s_codec_row[] = ROW_OF(s_codec_observations, s_codec_proof);
static const shape s_study_row[] = ROW_OF(s_study_observations, s_study_proof);
static const shape s_control[] = {{"name", STR, 0, 0, NULL},         {"expected_guard", STR, 0, 0, NULL},
                                  {"actual_guard", STR, 0, 0, NULL}, {"passed", BOOL, 0, 0, NULL},
                                  {"detail", STR, 0, 0, NULL},       {NULL, 0, 0, 0, NULL}};
static const shape s_check[] = {
    {"name", STR, 0, 0, NULL}, {"passed", BOOL, 0, 0, NULL}, {"detail", STR, 0, 0, NULL}, {NULL, 0, 0, 0, NULL}};
static const shape s_limit[] = {
    {"name", STR, 0, 0, NULL}, {"text", STR, 0, 0, NULL}, {"demonstrated", BOOL, 0, 0, NULL}, {NULL, 0, 0, 0, NULL}};
static const shape s_floors[] = {{"exact_byte", NAT, 0, 0, NULL},
                                 {"exact_token", NAT, 0, 0, NULL},
                                 {"not_exact", NAT, 0, 0, NULL},
                                 {"refused", NAT, 0, 0, NULL},
                                 {"positions_checked", NAT, 0, 0, NULL},
                                 {"source_positions_checked", NAT, 0, 0, NULL},
                                 {"words", NAT, 0, 0, NULL},
                                 {"frontier_codes", NAT, 0, 0, NULL},
                                 {"checks", NAT, 0, 0, NULL},
                                 {"controls", NAT, 0, 0, NULL},
                                 {"known_limits", NAT, 0, 0, NULL},
                                 {NULL, 0, 0, 0, NULL}};
static const shape s_verdicts[] = {{"EXACT_BYTE", NAT, 0, 0, NULL},
                                   {"EXACT_TOKEN", NAT, 0, 0, NULL},
                                   {"NOT_EXACT", NAT, 0, 0, NULL},
                                   {"REFUSED", NAT, 0, 0, NULL},
                                   {"UNPROVEN", NAT, 0, 0, NULL},
                                   {"FAILED", NAT, 0, 0, NULL},
                                   {NULL, 0, 0, 0, NULL}};
static const shape s_observed[] = {{"rows", NAT, 0, 0, NULL},
                                   {"verdicts", OBJ, 0, 0, s_verdicts},
                                   {"positions_checked", NAT, 0, 0, NULL},
                                   {"source_positions_checked", NAT, 0, 0, NULL},
                                   {"view_rows", NAT, 0, 0, NULL},
                                   {"same_image_rows", NAT, 0, 0, NULL},
                                   {"empty_rows", NAT, 0, 0, NULL},
                                   {"words", NAT, 0, 0, NULL},
                                   {"frontier_codes", NAT, 0, 0, NULL},
                                   {"checks", NAT, 0, 0, NULL},
                                   {"controls", NAT, 0, 0, NULL},
                                   {"known_limits", NAT, 0, 0, NULL},
                                   {NULL, 0, 0, 0, NULL}};
static const shape s_subject[] = {{"name", STR, 0, 0, NULL}, {"digest", STR, 0, 0, NULL}, {NULL, 0, 0, 0, NULL}};
static const shape s_source[] = {
    {"commit", STR, 0, 0, NULL}, {"dirty", BOOL, 0, 0, NULL}, {"flags", STR, 0, 0, NULL}, {NULL, 0, 0, 0, NULL}};
static const shape s_failure[] = {{"check", STR, 0, 0, NULL},       {"pair_id", STR, 0, 0, NULL},
                                  {"geometry", NAT, 0, 0, NULL},    {"params", OBJ, OPEN, 0, NULL},
                                  {"error_class", STR, 0, 0, NULL}, {"rank", NAT, 0, 0, NULL},
                                  {"host", STR, 0, 0, NULL},        {"device", STR, 0, 0, NULL},
                                  {"text", STR, 0, 0, NULL},        {NULL, 0, 0, 0, NULL}};
static const shape s_device[] = {{"rank", NAT, 0, 0, NULL},
                                 {"host", STR, 0, 0, NULL},
                                 {"device", STR, 0, 0, NULL},
                                 {"name", STR, 0, 0, NULL},
                                 {NULL, 0, 0, 0, NULL}};
static const shape s_difference_value[] = {{"value", STR, 0, 0, NULL},
                                           {"ranks", ARR, OPTIONAL, NAT, NULL},
                                           {"hosts", ARR, OPTIONAL, STR, NULL},
                                           {"parts", ARR, OPTIONAL, STR, NULL},
                                           {NULL, 0, 0, 0, NULL}};
static const shape s_difference[] = {
    {"what", STR, 0, 0, NULL}, {"values", ARR, 0, OBJ, s_difference_value}, {NULL, 0, 0, 0, NULL}};
static const shape s_wire[] = {{"rank", NAT, 0, 0, NULL},
                               {"sent", NAT, 0, 0, NULL},
                               {"received", NAT, 0, 0, NULL},
                               {"least", NAT, 0, 0, NULL},
                               {NULL, 0, 0, 0, NULL}};
static const shape s_run[] = {{"source", OBJ, OPEN, 0, s_source},
                              {"ranks", NAT, 0, 0, NULL},
                              {"devices", ARR, OPEN, OBJ, s_device},
                              {"transports", ARR, 0, STR, NULL},
                              {"versions", OBJ, OPEN, 0, NULL},
                              {"failures", ARR, 0, OBJ, s_failure},
                              {"started", STR, 0, 0, NULL},
                              {"elapsed_ms", NAT, 0, 0, NULL},
                              {"transports_why", ARR, OPTIONAL, STR, NULL},
                              {"differences", ARR, OPTIONAL, OBJ, s_difference},
                              {"wire", ARR, OPTIONAL, OBJ, s_wire},
                              {NULL, 0, 0, 0, NULL}};
static const shape s_signature[] = {{"alg", STR, 0, 0, NULL},
                                    {"key_id", STR, 0, 0, NULL},
                                    {"public_key", STR, 0, 0, NULL},
                                    {"sig", STR, 0, 0, NULL},
                                    {NULL, 0, 0, 0, NULL}};
static const shape s_rows_file[] = {
    {"count", NAT, 0, 0, NULL}, {"bytes", NAT, 0, 0, NULL}, {"merkle_root", STR, 0, 0, NULL}, {NULL, 0, 0, 0, NULL}};
static const shape s_document[] = {{"schema", STR, 0, 0, NULL},
                                   {"campaign", OBJ, 0, 0, s_campaign},
                                   {"method", OBJ, 0, 0, s_method},
                                   {"catalogue", ARR, OPEN, OBJ, s_layout},
                                   {"geometries", ARR, 0, OBJ, s_geometry},
                                   {"bindings", ARR, 0, OBJ, s_binding},
                                   {"vocabulary", ARR, 0, STR, NULL},
                                   {"boundary", OBJ, 0, 0, s_boundary},
                                   {"rows", ARR, 0, OBJ, s_row},
                                   {"rows_file", OBJ, OPTIONAL, 0, s_rows_file},
                                   {"controls", ARR, 0, OBJ, s_control},
                                   {"checks", ARR, 0, OBJ, s_check},
                                   {"known_limits", ARR, 0, OBJ, s_limit},
                                   {"floors", OBJ, 0, 0, s_floors},
                                   {"observed", OBJ, 0, 0, s_observed},
                                   {"subject", OBJ, OPTIONAL, 0, s_subject},
                                   {"body_digest", STR, 0, 0, NULL},
                                   {"run", OBJ, OPEN, 0, s_run},
                                   {"signature", OBJ, 0, 0, s_signature},
                                   {NULL, 0, 0, 0, NULL}};

static unsigned type_of(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_STRING: return STR;
    case JSON_INTEGER: return json_integer_value(value) >= 0 ? NAT : NEG;
    case JSON_TRUE:
    case JSON_FALSE: return BOOL;
    case JSON_NULL: return NUL;
    case JSON_OBJECT: return OBJ;
    case JSON_ARRAY: return ARR;
    case JSON_REAL: break;
    }
    return 0;
}

static const char *name_of(unsigned types)
{
    static const struct {
        unsigned types;
        const char *name;
    } names[] = {{STR, "a string"},
                 {NAT, "a number >= 0"},
                 {BOOL, "true or false"},
                 {OBJ, "an object"},
                 {ARR, "a list"},
                 {STR | NUL, "a string or null"},
                 {NAT | NUL, "a number >= 0 or null"},
                 {BOOL | NUL, "true, false or null"},
                 {OBJ | NUL, "an object or null"},
                 {ARR | NUL, "a list or null"},
                 {STR | ARR, "a string or a list"},
                 {INT | NUL, "a number or null"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].types == types) return names[i].name;
    return "another type";
}

/* The path of the place being looked at, grown and cut as the walk goes. */
typedef struct {
    kv_vf *v;
    bool good;
    char path[KV_VF_PATH];
} walk;

static void type_fault(walk *w, unsigned types, const json_t *value)
{
    char actual[KV_VF_TEXT];
    kv_vf_fault(w->v, KV_H0_DOCUMENT_UNREADABLE, w->path, name_of(types), kv_vf_show(value, actual));
    w->good = false;
}

static void check_object(walk *w, const json_t *o, const shape *keys, bool open);

static void check_items(walk *w, const json_t *list, const shape *s)
{
    const size_t end = strlen(w->path);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        snprintf(w->path + end, sizeof w->path - end, "[%zu]", i);
        if ((type_of(item) & s->items) == 0)
            type_fault(w, s->items, item);
        else if (s->inner != NULL)
            check_object(w, item, s->inner, (s->flags & OPEN) != 0);
    }
    w->path[end] = '\0';
}

static void check_member(walk *w, const json_t *o, const shape *s)
{
    const size_t end = strlen(w->path);
    const json_t *value = json_object_get(o, s->key);
    if (value == NULL && (s->flags & OPTIONAL) != 0) return;
    snprintf(w->path + end, sizeof w->path - end, ".%s", s->key);
    if (value == NULL || (type_of(value) & s->types) == 0)
        type_fault(w, s->types, value);
    else if (json_is_array(value))
        check_items(w, value, s);
    else if (json_is_object(value) && s->inner != NULL)
        check_object(w, value, s->inner, (s->flags & OPEN) != 0);
    w->path[end] = '\0';
}

/* Keys that the table does not name; their text is the document's, so it is cut to what fits. */
static void check_unknown(walk *w, const json_t *o, const shape *keys)
{
    char actual[KV_VF_TEXT];
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)o, key, value)
    {
        const shape *s = keys;
        while (s->key != NULL && strcmp(s->key, key) != 0) s++;
        if (s->key != NULL) continue;
        const size_t end = strlen(w->path);
        snprintf(w->path + end, sizeof w->path - end, ".%.64s", key);
        kv_vf_fault(w->v, KV_H0_DOCUMENT_UNREADABLE, w->path, "no such key", kv_vf_show(value, actual));
        w->path[end] = '\0';
        w->good = false;
    }
}

/* The keys of a row are those of its check. */
static const shape *row_keys(const json_t *row)
{
    static const shape *const of[KV_VF_CHECK_COUNT] = {s_study_row, s_codec_row, s_row, s_row, s_tp_row};
    kv_vf_check check;
    return kv_vf_check_parse(kv_vf_string(row, "check"), &check) ? of[check] : s_row;
}

static void check_object(walk *w, const json_t *o, const shape *keys, bool open)
{
    if (keys == s_row) keys = row_keys(o);
    for (const shape *s = keys; s->key != NULL; s++) check_member(w, o, s);
    if (!open) check_unknown(w, o, keys);
}

bool kv_vf_row_shape(kv_vf *v, const json_t *row, size_t i)
{
    walk w = {v, true, ""};
    snprintf(w.path, sizeof w.path, "$.rows[%zu]", i);
    check_object(&w, row, s_row, false);
    return w.good;
}

/* Rows stand in one place. */
static void check_rows_place(walk *w)
{
    char actual[KV_VF_TEXT];
    const json_t *rows = json_object_get(w->v->doc, "rows");
    if (json_object_get(w->v->doc, "rows_file") == NULL || json_array_size(rows) == 0) return;
    kv_vf_fault(w->v, KV_H0_DOCUMENT_UNREADABLE, "$.rows", "[] beside rows_file", kv_vf_show(rows, actual));
    w->good = false;
}

bool kv_vf_shape(kv_vf *v)
{
    walk w = {v, true, "$"};
    if (!json_is_object(v->doc)) {
        type_fault(&w, OBJ, v->doc);
        return false;
    }
    check_object(&w, v->doc, s_document, false);
    check_rows_place(&w);
    const json_t *schema = json_object_get(v->doc, "schema");
    if (json_is_string(schema) && !kv_vf_want_text(v, KV_H0_DOCUMENT_UNREADABLE, "$.schema", KV_CERT_SCHEMA, schema))
        w.good = false;
    return w.good && kv_vf_formats(v);
}
