/* certs, private: the sections `codec` and `attribution` of a campaign, and which cells they mean (docs/codec-rows.md).
 * Names stand in the order of their bytes, which is the order of rows. */
#ifndef KV_VERIFY_POINTS_H
#define KV_VERIFY_POINTS_H

#include "certs/kv_cert_names.h"

#include <jansson.h>

typedef enum { KV_VF_ATTRIBUTION, KV_VF_CODEC, KV_VF_MOVE, KV_VF_PAIR, KV_VF_TP, KV_VF_CHECK_COUNT } kv_vf_check;
const char *kv_vf_check_name(kv_vf_check check);
/* False where no check has that name; name may be NULL. */
bool kv_vf_check_parse(const char *name, kv_vf_check *out);

typedef enum {
    KV_VF_FP8_ROWS,
    KV_VF_INT4_TOKEN,
    KV_VF_KV1,
    KV_VF_KV1_SHARED,
    KV_VF_HARNESS,
    KV_VF_SERVING,
    KV_VF_ROTATION,
    KV_VF_RECIPE_COUNT
} kv_vf_recipe;
bool kv_vf_recipe_encodes(kv_vf_recipe r); /* a recipe of the codec, with blocks and slots */
bool kv_vf_recipe_has_bits(kv_vf_recipe r);

enum { KV_VF_HEAD_MAJOR, KV_VF_KV_POOLS, KV_VF_PAGES, KV_VF_TABLE, KV_VF_ARRANGEMENTS };
enum { KV_VF_FILES = 16, KV_VF_VALUES = 8 + KV_VF_FILES, KV_VF_STREAMS = 2, KV_VF_BITS = 5 /* 0: the recipe's own */ };
enum { KV_VF_STUDY_CELLS = 12, KV_VF_STUDY_IDENTITY = 0, KV_VF_STUDY_LAYERS = 7, KV_VF_LAYER_CELLS = 64 };
#define KV_VF_SEEDS_MAX 64
#define KV_VF_PASSAGES_MAX 8

/* A list of names and where to look them up. */
typedef struct {
    const char *const *name;
    int n;
} kv_vf_names;
extern const kv_vf_names kv_vf_recipes, kv_vf_values, kv_vf_streams, kv_vf_arrangements, kv_vf_study_cells;
/* Index of the name, or n. */
int kv_vf_name_find(kv_vf_names names, const char *name);

/* A payload. */
typedef struct {
    const char *name; /* lives in the document */
    int64_t bytes;    /* of a file; -1 of others */
} kv_vf_value;

typedef struct {
    bool present;
    bool recipe[KV_VF_RECIPE_COUNT], stream[KV_VF_STREAMS], move[KV_VF_ARRANGEMENTS];
    kv_vf_value value[KV_VF_VALUES]; /* by name */
    int n_values;
    bool bits[KV_VF_BITS];
    int64_t block;
    /* the places of cells in row order, counted from 1; 0 where there is no such cell */
    uint16_t place[KV_VF_RECIPE_COUNT][KV_VF_BITS][KV_VF_VALUES][KV_VF_STREAMS];
    uint16_t moved[KV_VF_RECIPE_COUNT][KV_VF_ARRANGEMENTS][KV_VF_ARRANGEMENTS];
    uint16_t places, moves;
} kv_vf_codec_section;

typedef struct {
    bool present, recipe[KV_VF_RECIPE_COUNT], cell[KV_VF_STUDY_CELLS];
    char seed[KV_VF_SEEDS_MAX][24];     /* sorted */
    size_t n_seeds, n_recipes, n_cells; /* n_cells: without those of layers */
    int64_t passages, evaluated, block;
    uint64_t *first; /* for each geometry, cells of the geometries before it */
} kv_vf_study_section;

enum { KV_VF_SEND_CHUNKS, KV_VF_SEND_LAYERS, KV_VF_SEND_SHARD, KV_VF_SEND_WHOLE, KV_VF_SENDS };

/* A cell of check tp. */
typedef struct {
    char id[2 * 64 + 3], sizes[2][4]; /* pair_id; from and to as texts */
    size_t src, dst;                  /* layouts; 0 of sealed pages */
    int64_t from, to;
    int send;
    int recipe;                         /* of sealed pages on both sides, else KV_VF_RECIPE_COUNT */
    const struct kv_vf_split *split[2]; /* NULL: no pipeline stages */
} kv_vf_tp_cell;

#define KV_VF_SPLITS_MAX 16

/* Layers over pipeline stages. */
typedef struct kv_vf_split {
    char *text;         /* as in params */
    int64_t stages;     /* number of them */
    const json_t *list; /* of stages, each a list of layers; NULL: shared out evenly */
} kv_vf_split;

typedef struct {
    bool present;
    kv_vf_tp_cell *cell; /* of a geometry, in row order */
    size_t n, room;
    int64_t chunk, block; /* block: tokens of a sealed page */
    kv_vf_split split[KV_VF_SPLITS_MAX];
    size_t n_splits;
} kv_vf_tp_section;

/* What a cell of these checks is of. */
typedef struct {
    kv_vf_recipe recipe;
    int stream, bits, value; /* codec */
    int src, dst;            /* move: arrangements */
    int cell;                /* attribution; -1 a layer */
    size_t seed;             /* place among the section's */
    const kv_vf_tp_cell *tp;
} kv_vf_point;

/* Sizes of a codec cell (kv_verify_codec.c). */
typedef struct {
    int64_t dim, rows, plain; /* plain: bytes in bf16 */
    int64_t stored;           /* bytes, without overflow */
    int64_t blocks, encoded;  /* encoded: rows */
    int64_t swap;             /* more bytes for each block that overflows */
    int64_t entries, lanes;   /* outliers that fit a slot; that a block can have. 0: no outlier part */
    int64_t slot;             /* bytes; 0 for what has none */
} kv_vf_codec_size;

#endif
