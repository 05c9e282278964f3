/* certs, private: what the parts of the verifier share. Nothing here comes from layouts/ or grid/. */
#ifndef KV_VERIFY_INT_H
#define KV_VERIFY_INT_H

#include "certs/kv_hash.h"
#include "certs/kv_verify.h"
#include "certs/kv_verify_points.h"

#include <jansson.h>

#define KV_VF_AXES_MAX 10
#define KV_VF_LIST_MAX 2048                /* layouts, patterns, claims: bounds time and memory */
#define KV_VF_TOO_LARGE ((int64_t)1 << 53) /* sizes stay below this, or the document cannot say them */
#define KV_VF_PATH 320
#define KV_VF_TEXT 240

/* ---- elements ---------------------------------------------------------------------------- */
typedef enum { KV_VF_F16, KV_VF_BF16, KV_VF_F32, KV_VF_FP8, KV_VF_ELEMENT_COUNT } kv_vf_element;
bool kv_vf_element_parse(const char *name, kv_vf_element *out);
const char *kv_vf_element_name(kv_vf_element e);
int64_t kv_vf_element_bytes(kv_vf_element e);
/* True when every value of `from` has an equal in `to`. */
bool kv_vf_element_widens(kv_vf_element from, kv_vf_element to);

/* ---- layouts as declared ----------------------------------------------------------------- */
typedef enum {
    KV_VF_L,
    KV_VF_KV,
    KV_VF_T,
    KV_VF_TB,
    KV_VF_TI,
    KV_VF_TG,
    KV_VF_TX,
    KV_VF_H,
    KV_VF_D,
    KV_VF_DG,
    KV_VF_DX,
    KV_VF_C,
    KV_VF_AXIS_COUNT
} kv_vf_axis;

typedef struct {
    int n;
    kv_vf_axis a[KV_VF_AXES_MAX];
} kv_vf_axes;

typedef enum { KV_VF_SEPARATE, KV_VF_INTERLEAVED, KV_VF_LATENT } kv_vf_store;

typedef struct {
    const char *name; /* lives in the document */
    size_t entry;     /* its place in catalogue[] */
    bool mla;
    bool lossless; /* role */
    kv_vf_store store;
    kv_vf_axes half[2]; /* K, V; latent: half[1].n = 0 */
    int64_t block;      /* numbers are 0 where absent */
    int64_t x, x_bytes, tx;
    int64_t page_stride_bytes, row_lanes;
    bool element_same;
    kv_vf_element element; /* where !element_same */
    int64_t tp_size, tp_rank;
} kv_vf_layout;

typedef struct {
    int64_t layers, tokens, heads, dim, dim_v;
    kv_vf_element element;
} kv_vf_geometry;

bool kv_vf_has(const kv_vf_axes *axes, kv_vf_axis a);
bool kv_vf_layout_has(const kv_vf_layout *l, kv_vf_axis a); /* in K or V */
kv_vf_element kv_vf_bound_element(const kv_vf_layout *l, const kv_vf_geometry *g);
/* Lanes in Dx at g: as declared, x_bytes / element size rounded down; 0 without Dx. */
int64_t kv_vf_bound_x(const kv_vf_layout *l, const kv_vf_geometry *g);

/* ---- layouts bound to a geometry ---------------------------------------------------------- */
/* Where the index of one canonical axis goes: sum over digits of (i / weight % next weight) * stride,
 * in a form where equal functions on [0, extent) are equal lists. */
typedef struct {
    int n;
    int64_t weight[3];
    int64_t stride[3];
} kv_vf_digits;

typedef struct {
    int64_t base;
    kv_vf_digits l, t, h, d;
} kv_vf_map; /* of K or V elements to native positions */

typedef struct {
    bool shard;     /* its TP shard exists */
    bool exists;    /* and everything else too */
    bool too_large; /* sizes that no document can say; the rest is not filled */
    int64_t first_head, heads;
    kv_vf_element element;
    int64_t unit_layers;
    int64_t size[2][KV_VF_AXES_MAX]; /* factor sizes in declared order */
    int64_t native;                  /* positions of the unit */
    int64_t elements;                /* canonical elements of the unit */
    kv_vf_map map[2];
} kv_vf_bound;

void kv_vf_bind(const kv_vf_layout *l, const kv_vf_geometry *g, int64_t unit_layers, kv_vf_bound *out);
bool kv_vf_is_identity(const kv_vf_layout *l, const kv_vf_geometry *g, const kv_vf_bound *own);
bool kv_vf_same_image(const kv_vf_bound *a, const kv_vf_bound *b, const kv_vf_geometry *g);
int64_t kv_vf_unit_layers(const kv_vf_layout *a, const kv_vf_layout *b, const kv_vf_geometry *g);

/* ---- what a pair means: docs/words.md ----------------------------------------------------- */
kv_frontier kv_vf_frontier(const kv_vf_layout *a, const kv_vf_layout *b, const kv_vf_bound *ba, const kv_vf_bound *bb);
kv_word_set kv_vf_words(const kv_vf_layout *a, const kv_vf_layout *b, const kv_vf_geometry *g, const kv_vf_bound *ba,
                        const kv_vf_bound *bb);
bool kv_vf_same_descriptor(const kv_vf_layout *a, const kv_vf_layout *b, const kv_vf_geometry *g);

/* ---- the campaign, expanded ---------------------------------------------------------------- */
typedef struct {
    uint32_t src, dst;
} kv_vf_pair;

typedef struct {
    kv_vf_pair *pairs; /* sorted, each once */
    size_t n_pairs;
    const char **tails; /* sorted, each once; "stale" if none is given */
    size_t n_tails;
    bool exhaustive;      /* values: every bit pattern, not payloads */
    const json_t *claims; /* or NULL */
    const json_t *floors; /* or NULL */
    kv_vf_codec_section codec;
    kv_vf_study_section study;
    kv_vf_tp_section tp;
    uint64_t part, parts; /* this certificate is part `part` (from 1) of `parts`; 1 of 1 for the whole */
} kv_vf_campaign;

/* What a row is of. Of other checks than pair: src is the place among the check's cells at that geometry, dst and tail are 0. */
typedef struct {
    uint32_t geometry, src, dst, tail;
    kv_vf_check check;
    kv_vf_point point; /* of a cell that a row was found to be of */
} kv_vf_cell;

/* Cells that have a row, with the first of their rows (kv_verify_cells.c). Initialise with {0}. */
typedef struct {
    uint64_t *key;
    uint32_t *row;
    size_t n, slots;
} kv_vf_cells;

/* What the checks and the boundary follow from, counted over rows that ran. */
typedef struct {
    int64_t ran, decoded; /* decoded: with tokens_identical */
    bool has_tokens, reference_varies;
    bool class_is_not_padding; /* an exact row in the wrong class for its padding and tail */
    bool differs_elsewhere;    /* an EXACT_TOKEN row that differs in other than all of its unread padding */
    int64_t stored, studied;   /* rows of check codec and attribution; not among ran */
    bool measured;             /* one of them of at least one row of a head, or of a study */
    int64_t resharded, shown;  /* rows of check tp that ran, and with a witness */
    bool tp_wrong;             /* one of them sent more than the least, or has no witness */
    bool codec_disagrees;      /* one of them differs from its reference */
    bool check[KV_VF_CHECK_COUNT];
} kv_vf_seen;

/* The reference decodes of the geometry that the rows are at (kv_verify_reference.c). Initialise with {0}. */
typedef struct {
    int64_t what[3]; /* what is decoded: first head, heads, latent or not; payload; recipe */
    bool has_tokens, has_digest;
    size_t tokens_row, digest_row; /* that said it first */
    uint8_t tokens[KV_CERT_DECODE_STEPS];
    char digest[KV_HASH_HEX];
} kv_vf_reference;
typedef struct {
    kv_vf_reference *entry;
    size_t n, room;
    uint32_t geometry;
    kv_vf_check check;
} kv_vf_references;

/* The base runs of attribution rows of one geometry, by seed (kv_verify_study.c). */
typedef struct {
    bool has_nll, has_digest;
    int64_t nll;
    char digest[KV_HASH_HEX];
} kv_vf_base;

/* run.failures (kv_verify_run.c). Initialise with {0}. */
typedef struct {
    char key[KV_HASH_HEX]; /* of check, pair_id, geometry, params, error_class */
    size_t left;           /* entries that no FAILED row has taken yet */
} kv_vf_failure;
typedef struct {
    kv_vf_failure *entry; /* by key */
    size_t n;
} kv_vf_failures;

/* ---- everything together ------------------------------------------------------------------ */
typedef struct {
    const json_t *doc;
    const char *doc_path; /* where it was read from, or NULL */
    const kv_cert_required *required;
    kv_verify_report *report;
    kv_rc rc; /* KV_OK until memory runs out */
    char path[KV_VF_PATH];

    kv_vf_layout *layouts; /* by the bytes of their names, unique */
    size_t n_layouts;
    kv_vf_geometry *geometries;
    size_t n_geometries;
    kv_vf_campaign campaign;
    kv_vf_cells cells; /* of the campaign, that have a row */

    /* counted from the rows */
    int64_t n_rows;
    int64_t verdicts[KV_VERDICT_COUNT]; /* without views that ran */
    int64_t positions, source_positions, view_rows, same_image_rows, empty_rows;
    kv_word_set words;
    unsigned frontiers;  /* bit kv_frontier */
    bool claims_exact;   /* an exact row that is no view */
    bool could_be_exact; /* a cell that might have been one */
    kv_vf_seen seen;
    kv_vf_references references;
    kv_vf_base base[KV_VF_SEEDS_MAX];
    uint32_t base_geometry; /* that base[] is of */
    kv_vf_failures failures;
} kv_vf;

/* Sizes of a tp cell. */
typedef struct {
    int64_t heads, from;    /* split over ranks; source shards that take part */
    kv_vf_bound one, whole; /* a source shard, the whole destination */
    int64_t ranks, rounds, least[2];
} kv_vf_tp_size;

/* What the cell of a row derives. */
typedef struct {
    const json_t *row;
    size_t i;
    const kv_vf_cell *cell;
    const kv_vf_geometry *g;
    kv_frontier frontier;
    kv_word_set words;
    bool twins; /* a pair of equal descriptors */
    bool same_image;
    kv_vf_bound bound[2]; /* pair and move: the images of a unit; nothing exists for other checks */
    const char *tail;
    int64_t payloads;      /* passed over each position */
    kv_vf_codec_size size; /* codec */
    kv_vf_tp_size tp;
} kv_vf_derived;

/* Faults. `path` is a printf format for the JSON path; texts are copied. */
void kv_vf_fault(kv_vf *v, kv_hcode code, const char *path, const char *expected, const char *actual);
/* Formats a path into v->path (kept until the next call). */
const char *kv_vf_at(kv_vf *v, const char *fmt, ...) KV_PRINTF(2, 3);
/* The value as short canonical text ("missing" for NULL) in out. */
const char *kv_vf_show(const json_t *value, char out[KV_VF_TEXT]);
/* A fault where `value` is not the wanted text, number or boolean; true when it is. */
bool kv_vf_want_text(kv_vf *v, kv_hcode code, const char *path, const char *want, const json_t *value);
bool kv_vf_want_int(kv_vf *v, kv_hcode code, const char *path, int64_t want, const json_t *value);
bool kv_vf_want_bool(kv_vf *v, kv_hcode code, const char *path, bool want, const json_t *value);
bool kv_vf_want_null(kv_vf *v, kv_hcode code, const char *path, const json_t *value);
/* Memory ran out: the verification ends without a report. */
void kv_vf_no_memory(kv_vf *v);

/* Payloads that a row at this geometry passes over each position. */
int64_t kv_vf_payloads(const kv_vf *v, const kv_vf_geometry *g);

/* The stages, in order. shape is false where the document's types are not what they must be: then
 * only the signature can still be checked. */
bool kv_vf_shape(kv_vf *v);
bool kv_vf_formats(kv_vf *v);                                /* of subject and run, part of the shape */
bool kv_vf_row_shape(kv_vf *v, const json_t *row, size_t i); /* of a row that stands in the row file */
void kv_vf_signature(kv_vf *v, const kv_trust *trust);
bool kv_vf_layout_parse(kv_vf *v, const json_t *object, size_t entry, kv_vf_layout *out); /* one catalogue entry */
bool kv_vf_catalogue(kv_vf *v);
bool kv_vf_spec(kv_vf *v);
bool kv_vf_geometries(kv_vf *v);
void kv_vf_bindings(kv_vf *v);
void kv_vf_method(kv_vf *v);
/* Reads all rows, and judges them where the declarations are good. False where that could not be done to the end: then
 * nothing can be said of totals and missing cells. */
bool kv_vf_rows(kv_vf *v, bool judge);
/* Notes that a cell has this row; false where it had one already, which is *first. */
bool kv_vf_cells_add(kv_vf *v, const kv_vf_cell *c, size_t row, size_t *first);
bool kv_vf_cells_has(const kv_vf *v, const kv_vf_cell *c);
void kv_vf_cells_free(kv_vf_cells *s);
void kv_vf_row(kv_vf *v, const json_t *row, size_t i, const kv_vf_cell *cell);
const char *kv_vf_obs_name(kv_vf_check check, int o);
/* What follows from a cell of other checks than pair; false where its sizes are more than a document can say. */
bool kv_vf_point_derive(kv_vf *v, kv_vf_derived *d);
/* The proof of a row that ran, by its check; unproven: parts may be null. */
void kv_vf_proof(kv_vf *v, const kv_vf_derived *d, bool unproven);
/* Sealed pages of a layer: how many there are, and the bytes that a head has in one. False where there is none. */
bool kv_vf_sealed_page(kv_vf_recipe recipe, const kv_vf_geometry *g, int64_t block, int64_t *blocks, int64_t *bytes);
void kv_vf_codec_proof(kv_vf *v, const kv_vf_derived *d, bool unproven);
void kv_vf_study_proof(kv_vf *v, const kv_vf_derived *d, bool unproven);
bool kv_vf_tp_section_read(kv_vf *v, const json_t *section);               /* section may be NULL */
uint32_t kv_vf_tp_find(const kv_vf *v, const json_t *row, kv_vf_point *p); /* place from 1, 0: no such cell */
const char *kv_vf_tp_name(const kv_vf *v, uint64_t place);
bool kv_vf_tp_derive(kv_vf *v, kv_vf_derived *d);
void kv_vf_tp_free(kv_vf_tp_section *s);
void kv_vf_tp_proof(kv_vf *v, const kv_vf_derived *d, bool unproven);
void kv_vf_tp_witness(kv_vf *v, const kv_vf_derived *d); /* of a row that did not run */
/* Whether proof.KEY of row i holds a value. Null or absent is an H3, null not in an UNPROVEN row. */
bool kv_vf_present(kv_vf *v, const kv_vf_derived *d, const char *key, bool unproven);
/* Tokens and logits of both sides, and the observation of them (H13). */
void kv_vf_token_leg(kv_vf *v, const kv_vf_derived *d, bool unproven);
void kv_vf_missing(kv_vf *v);
void kv_vf_counts(kv_vf *v);
void kv_vf_vocabulary(kv_vf *v);
void kv_vf_guards(kv_vf *v);
/* Notes what a row that claims this verdict means for the checks; then, when all are read, what follows. */
void kv_vf_note_checks(kv_vf *v, const kv_vf_derived *d, kv_verdict claimed);
void kv_vf_checks(kv_vf *v);
void kv_vf_boundary(kv_vf *v);
void kv_vf_run(kv_vf *v);
bool kv_vf_failure_told(kv_vf *v, const json_t *row); /* takes the entry: two rows need two */
void kv_vf_failures_left(kv_vf *v);
/* The reference of row i is that of other rows that decode the same. */
void kv_vf_reference_check(kv_vf *v, const kv_vf_derived *d);
bool kv_vf_tokens_good(const json_t *list); /* as many as the decode makes, all of the vocabulary */
bool kv_vf_digest_good(const json_t *value);
bool kv_vf_occurs(const kv_vf *v, const char *name); /* a word or frontier code that is in a row */
bool kv_vf_is_date(const char *s);                   /* YYYY-MM-DD, a day that there is; s may be NULL */

/* Lookup of a layout by name: its index, or n_layouts. */
size_t kv_vf_find(const kv_vf *v, const char *name);
/* The shape of campaign.spec.expect (may be NULL). */
bool kv_vf_expect(kv_vf *v, const json_t *expect);
/* campaign.spec.codec and attribution (kv_verify_sections.c); once the geometries are read, where their cells begin. */
bool kv_vf_sections(kv_vf *v, const json_t *spec);
void kv_vf_sections_place(kv_vf *v);
/* Cells of other checks than pair at one geometry; whether one of them belongs to this part. */
uint64_t kv_vf_point_count(const kv_vf *v, kv_vf_check check, size_t geometry);
bool kv_vf_point_in_part(const kv_vf *v, kv_vf_check check, size_t geometry, uint64_t place);
/* The cell of a row of such a check; false (and a fault) where the campaign has no such cell. */
bool kv_vf_point_find(kv_vf *v, const json_t *row, size_t i, kv_vf_check check, kv_vf_cell *out);
/* H15: such a cell has no row. */
void kv_vf_point_missing(kv_vf *v, kv_vf_check check, size_t geometry, uint64_t place);
/* Whether a cell belongs to this certificate's part of the campaign. */
bool kv_vf_in_part(const kv_vf *v, uint64_t geometry, uint64_t src, uint64_t dst, uint64_t tail);
/* Whether the campaign has this ordered pair. */
bool kv_vf_in_campaign(const kv_vf *v, size_t src, size_t dst);
const char *kv_vf_string(const json_t *object, const char *key); /* NULL where it is none */
int64_t kv_vf_number(const json_t *object, const char *key);     /* -1 where it is none */

#endif
