/* Declared layouts: parsing, binding to a geometry, and what a pair of them means
 * (transformation words, frontier codes). The JSON keys are described in docs/layouts.md. */
#ifndef KV_LAYOUT_H
#define KV_LAYOUT_H

#include <jansson.h>

#include "base/kv_base.h"
#include "layouts/kv_geometry.h"
#include "layouts/kv_layout_index.h"

#define KV_NAME_MAX 64

typedef enum { KV_ATTENTION_GQA, KV_ATTENTION_MLA } kv_attention;
typedef enum { KV_STORE_SEPARATE, KV_STORE_INTERLEAVED, KV_STORE_LATENT } kv_store;
typedef enum { KV_ROLE_LOSSLESS, KV_ROLE_FRONTIER, KV_ROLE_LOSSY } kv_role;

/* An ordered list of factors, slowest first. */
typedef struct {
    int n;
    kv_factor f[KV_FACTORS_MAX];
} kv_axes;

/* One declared layout. Owned by kv_layout_new/kv_layout_free; every field is read-only for users. */
typedef struct {
    char name[KV_NAME_MAX + 1];
    kv_attention attention;
    kv_store store;
    kv_role role;
    kv_axes axes[2];           /* K, V; latent: axes[1].n = 0 */
    int64_t block;             /* tokens in a block; 0 = tokens are not split */
    int64_t x;                 /* lanes in Dx; 0 = none, or x_bytes is used */
    int64_t x_bytes;           /* bytes in Dx; 0 = none */
    int64_t tx;                /* tokens in Tx; 0 = none */
    int64_t page_stride_bytes; /* 0 = the payload */
    int64_t row_lanes;         /* 0 = head_dim */
    bool element_same;         /* element is the geometry's */
    kv_elem element;           /* where !element_same */
    int64_t tp_size, tp_rank;
    json_t *json; /* the object as declared */
} kv_layout;

/* Parses one layout object. Keeps a reference to obj (as layout->json) but no other pointer.
 * `where` names the source in errors ("file.json" or "file.json: layout 2"). KV_EFORMAT. */
kv_rc kv_layout_new(json_t *obj, const char *where, kv_layout **out, kv_err *err) KV_MUST_USE;
void kv_layout_free(kv_layout *l); /* NULL is fine */

/* "Tb" and so on; never NULL. */
const char *kv_factor_name(kv_factor f);
/* True if the axes hold factor f. */
bool kv_axes_has(const kv_axes *a, kv_factor f);
/* Element type of the layout at geometry g. */
kv_elem kv_layout_element(const kv_layout *l, const kv_geometry *g);

/* A sorted set of layouts with unique names. Initialise with {0}. */
typedef struct {
    kv_layout **item; /* by the bytes of their names */
    size_t n;
} kv_catalogue;

/* Adds every layout of `path`: a file (one object or a list of them) or a folder (each *.json in it).
 * A name that is already there is KV_EFORMAT, naming both. On error the catalogue may hold a part. */
kv_rc kv_catalogue_load(kv_catalogue *c, const char *path, kv_err *err) KV_MUST_USE;
/* Adds one parsed layout; takes it even on failure. */
kv_rc kv_catalogue_take(kv_catalogue *c, kv_layout *l, const char *where, kv_err *err) KV_MUST_USE;
const kv_layout *kv_catalogue_find(const kv_catalogue *c, const char *name);
void kv_catalogue_free(kv_catalogue *c);

/* Why a layout does not exist at a geometry. */
typedef enum {
    KV_BIND_OK,
    KV_BIND_NO_SHARD, /* the TP shard does not exist */
    KV_BIND_NO_SHAPE  /* some other size does not fit (x, widths, strides) */
} kv_bind_state;

#define KV_REASON_TEXT 320

/* Binds l to g for a unit of unit_layers layers (1 or g->layers). On *state = KV_BIND_OK *out is the bound
 * layout; otherwise `reason` names the numbers and *out is untouched. KV_EINVAL only where a size does
 * not fit 64 bits, naming the layout and geometry. */
kv_rc kv_layout_bind(const kv_layout *l, const kv_geometry *g, int64_t unit_layers, kv_index *out, kv_bind_state *state,
                     char reason[KV_REASON_TEXT], kv_err *err) KV_MUST_USE;

/* Heads that the layout holds at g: [*first, *first + *count). False (and a reason) if the shard does not exist. */
bool kv_layout_heads(const kv_layout *l, const kv_geometry *g, int64_t *first, int64_t *count,
                     char reason[KV_REASON_TEXT]);

/* True if native position = canonical position everywhere (no padding). */
bool kv_index_is_identity(const kv_index *ix);
/* True if both images hold every element at the same position and have the same size and element type.
 * Both must be bound to the same geometry and unit, and hold the same heads. */
bool kv_index_same_image(const kv_index *a, const kv_index *b);

/* Layers of the unit that a pair is checked by: g->layers if either side keeps the layer axis in its
 * array, else 1. */
int64_t kv_pair_unit_layers(const kv_layout *src, const kv_layout *dst, const kv_geometry *g);

/* ---- what a pair means ---------------------------------------------------------------- */

typedef enum { KV_X_NONE, KV_X1_LATENT_KV, KV_X2_HEAD_GATHER, KV_X4_GEOMETRY_UNREPRESENTABLE } kv_layout_frontier;
/* "X1_LATENT_KV" and so on; NULL for KV_X_NONE. */
const char *kv_layout_frontier_name(kv_layout_frontier f);

/* Which frontier, if any, stands between src and dst at g; `reason` then names the numbers. */
kv_rc kv_pair_frontier(const kv_layout *src, const kv_layout *dst, const kv_geometry *g, kv_layout_frontier *out,
                       char reason[KV_REASON_TEXT], kv_err *err) KV_MUST_USE;

/* Transformation words, one bit each, in the order of their names. */
typedef enum {
    KV_W_AXIS_PERMUTE,
    KV_W_HEAD_DEDUPE,
    KV_W_HEAD_DIM_DEVECTORIZE,
    KV_W_HEAD_DIM_REVECTORIZE,
    KV_W_HEAD_DIM_VECTORIZE,
    KV_W_HEAD_ORDER_TRANSPOSE,
    KV_W_HEAD_REPLICATE,
    KV_W_KV_MERGE,
    KV_W_KV_MOVE,
    KV_W_KV_SPLIT,
    KV_W_LAYER_MERGE,
    KV_W_LAYER_MOVE,
    KV_W_LAYER_SPLIT,
    KV_W_PAGE_PAD,
    KV_W_PAGE_REMAP, /* of sealed pages; no two layouts have it */
    KV_W_PP_RESHARD, /* of layers on pipeline stages; no pair of layouts has it */
    KV_W_REBLOCK,
    KV_W_REQUANTIZE,
    KV_W_TOKEN_DEVECTORIZE,
    KV_W_TOKEN_REVECTORIZE,
    KV_W_TOKEN_VECTORIZE,
    KV_W_TP_RESHARD, /* of shards on ranks; no pair of layouts has it */
    KV_W_V_AXIS_PERMUTE,
    KV_W_V_DIM_TRANSPOSE,
    KV_W_VIEW_REINTERPRET,
    KV_W_COUNT
} kv_layout_word;
const char *kv_layout_word_name(kv_layout_word w);

/* The set of words (bit w = kv_layout_word w) of src -> dst at g. Empty only for pairs refused by X1, X2 or a
 * shard that does not exist. */
uint32_t kv_pair_words(const kv_layout *src, const kv_layout *dst, const kv_geometry *g);

#endif
