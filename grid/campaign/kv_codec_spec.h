/* The section `codec` of a campaign: which recipes store which rows, and which arrangements of sealed pages are moved. */
#ifndef KV_CODEC_SPEC_H
#define KV_CODEC_SPEC_H

#include <jansson.h>

#include "grid/campaign/kv_codec_values.h"
#include "layouts/kv_geometry.h"

/* Ways to store rows, in the byte order of their names: recipes of the codec, and what they are measured against. */
typedef enum {
    KV_STORE_FP8,        /* each element as fp8_e4m3 */
    KV_STORE_INT4_TOKEN, /* 4 bits an element and an fp16 scale a row */
    KV_STORE_KV1,
    KV_STORE_KV1_SHARED,
    KV_STORE_PUBLISHED_HARNESS,
    KV_STORE_PUBLISHED_SERVING,
    KV_STORE_ROTATION, /* Walsh-Hadamard rotation and Lloyd-Max levels of the whole row: the codec without a skeleton */
    KV_STORE_COUNT
} kv_store_method;
const char *kv_store_method_name(kv_store_method m);
bool kv_store_method_parse(const char *name, kv_store_method *out);
/* Number of the recipe (kv_codec_recipe_id), -1 for a method that is none. */
int32_t kv_store_method_recipe(kv_store_method m);
/* Whether bits is an axis of the method. */
bool kv_store_method_has_bits(kv_store_method m);

/* How sealed pages of a layer stand in memory, in the byte order of their names; a slot is the K or V slot of one block
 * of one head. */
typedef enum {
    KV_PAGES_HEAD_MAJOR, /* [H][Tb][K slot|V slot] */
    KV_PAGES_KV_POOLS,   /* [Tb][H][K slot], behind it [Tb][H][V slot] */
    KV_PAGES_PAGES,      /* [Tb][H][K slot|V slot] */
    KV_PAGES_TABLE,      /* the same pages in a larger pool, in the shuffled order of a block table */
    KV_PAGES_COUNT
} kv_pages_kind;
const char *kv_pages_name(kv_pages_kind p);

#define KV_CODEC_BITS_DEFAULT 0 /* the recipe's own */

#define KV_CODEC_FILES_MAX 16

/* "gaussian", or "file:NAME". */
typedef struct {
    char name[80];
    kv_values_kind kind;
    int32_t file; /* index in files, for KV_VALUES_FILE */
} kv_codec_payload;

typedef struct {
    bool present;
    int64_t block; /* tokens of a sealed block: a power of two */
    bool method[KV_STORE_COUNT], stream[2], pages[KV_PAGES_COUNT];
    bool bits[5];                                                   /* [0]: bits is no axis, each recipe has its own */
    kv_codec_payload payload[KV_VALUES_COUNT + KV_CODEC_FILES_MAX]; /* those chosen, by name */
    int32_t n_payloads;
    kv_values_file file[KV_CODEC_FILES_MAX];
    int32_t n_files;
} kv_codec_section;
void kv_codec_section_free(kv_codec_section *s);
/* Before a campaign is read: measures every file of section v ({"name","path"}, relative to the campaign file) and turns
 * its entry into {"name","bytes","digest"}; *paths gets {"name": path}. */
kv_rc kv_codec_files_resolve(json_t *v, const char *campaign, json_t **paths, kv_err *err) KV_MUST_USE;
/* Gives the files of a section their paths again; files without one stay so. */
kv_rc kv_codec_files_locate(kv_codec_section *s, const json_t *paths, kv_err *err) KV_MUST_USE;

/* Refuses a file that holds a value that is not finite in the element type of one of the geometries that it fits (KV_EFORMAT
 * names it): an input that is not good, told before the run. */
kv_rc kv_codec_files_check(const kv_codec_section *s, const kv_geometry *g, size_t n, kv_err *err) KV_MUST_USE;

/* Reads and checks campaign.codec; a missing one (NULL) gives present false. KV_EFORMAT names the key. */
kv_rc kv_codec_section_read(const json_t *v, const char *where, kv_codec_section *out, kv_err *err) KV_MUST_USE;

/* One codec cell's place in the section. */
typedef struct {
    kv_store_method method;
    int32_t stream;                  /* 0 k, 1 v */
    int32_t bits;                    /* KV_CODEC_BITS_DEFAULT or 1..4 */
    const kv_codec_payload *payload; /* in the section */
} kv_codec_point;

int32_t kv_codec_point_bits(const kv_codec_point *p); /* as used: the axis, or the recipe's own: 3 for k, 2 for v */

/* One move cell's. */
typedef struct {
    kv_store_method method; /* KV1 or PUBLISHED_SERVING */
    kv_pages_kind src, dst;
} kv_move_point;

/* The points of one geometry in row order: number of them, and point i. */
size_t kv_codec_point_count(const kv_codec_section *s);
kv_codec_point kv_codec_point_at(const kv_codec_section *s, size_t i);
size_t kv_move_point_count(const kv_codec_section *s);
kv_move_point kv_move_point_at(const kv_codec_section *s, size_t i);

/* Side 0 the source, 1 the destination, by name: "canonical", "kv1"; "kv1:pages", "kv1:table". Never NULL. */
const char *kv_codec_point_side(const kv_codec_point *p, int side);
const char *kv_move_point_side(const kv_move_point *p, int side);
/* {"bits":"3","payload":"gaussian","stream":"k"}, without bits where it is no axis; NULL when memory is out. */
json_t *kv_codec_point_params_new(const kv_codec_point *p) KV_MUST_USE;

#endif
