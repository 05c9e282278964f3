/* A campaign: which layouts, which geometries, which pairs; and the ordered list of cells it expands to. */
#ifndef KV_CAMPAIGN_H
#define KV_CAMPAIGN_H

#include <jansson.h>

#include "base/kv_base.h"
#include "grid/campaign/kv_codec_spec.h"
#include "grid/campaign/kv_shard_spec.h"
#include "grid/campaign/kv_study_spec.h"
#include "grid/campaign/kv_tail.h"
#include "layouts/kv_layout.h"

/* What a cell checks, in the order of rows (the bytes of the names). */
typedef enum {
    KV_CHECK_ATTRIBUTION,
    KV_CHECK_CODEC,
    KV_CHECK_MOVE,
    KV_CHECK_PAIR,
    KV_CHECK_TP,
    KV_CHECK_COUNT
} kv_check;
const char *kv_check_name(kv_check k);
bool kv_check_parse(const char *name, kv_check *out);

/* One unit of work. */
typedef struct {
    int32_t check;    /* kv_check */
    int32_t src, dst; /* pair: indices in the catalogue; others: src is the number of the point in the section */
    int32_t geometry; /* index in geometries */
    int32_t tail;     /* kv_tail; tp: the campaign's first by name; others: its first as given */
} kv_cell;

typedef struct {
    char *name;
    json_t *spec;           /* the campaign without its `layouts` key, as written */
    kv_catalogue catalogue; /* the layouts selected */
    kv_geometry *geometries;
    size_t n_geometries;
    kv_tail tails[KV_TAIL_COUNT];
    size_t n_tails;
    uint64_t seed;
    int64_t part, parts; /* this run is part `part` (from 1) of `parts`; 1 of 1 for the whole */
    bool exhaustive;     /* "values": "exhaustive": every bit pattern at every place */
    kv_codec_section codec;
    kv_study_section study;
    kv_shard_section tp;
    kv_cell *cells; /* in row order */
    size_t n_cells;
} kv_campaign;

/* Reads a campaign file and the layouts it names, and expands it; part ("i/n" or NULL) takes a part of its cells. Every error is one line that names the
 * file and the key: KV_EREAD, KV_EFORMAT. *out is zeroed by the caller and freed with kv_campaign_free
 * whatever happened. */
kv_rc kv_campaign_load(const char *path, const char *part, kv_campaign *out, kv_err *err) KV_MUST_USE;

/* The same from a spec (an object without `layouts`) and layouts that are loaded already: `all` gives up
 * those that are selected. `where` names the source in errors. Keeps a reference to spec. */
kv_rc kv_campaign_build(json_t *spec, kv_catalogue *all, const char *where, kv_campaign *out, kv_err *err) KV_MUST_USE;

/* "i/n" with 1 <= i <= n <= KV_PARTS_MAX, each number written in one way. */
#define KV_PARTS_MAX 65536
bool kv_part_parse(const char *text, int64_t *part, int64_t *parts);

/* A campaign as one self-contained text {"layouts":[...],"spec":{...}}, for the other ranks, and back. */
kv_rc kv_campaign_pack(const kv_campaign *c, kv_buf *out, kv_err *err) KV_MUST_USE;
kv_rc kv_campaign_unpack(const char *bytes, size_t n, kv_campaign *out, kv_err *err) KV_MUST_USE;

void kv_campaign_free(kv_campaign *c);

/* Whether it has rows of the codec: check "codec", "move" or "attribution". */
static inline bool kv_campaign_has_codec(const kv_campaign *c)
{
    return c->codec.present || c->study.present;
}

/* Payloads that a cell of geometry g moves: 6, or every bit pattern of its element type. */
int32_t kv_campaign_payloads(const kv_campaign *c, const kv_geometry *g);

/* "src->dst" of a cell. */
#define KV_PAIR_ID_TEXT (2 * KV_NAME_MAX + 3)
void kv_cell_pair_id(const kv_campaign *c, const kv_cell *cell, char out[KV_PAIR_ID_TEXT]);
const kv_shard_point *kv_cell_shard_point(const kv_campaign *c, const kv_cell *cell); /* of a tp cell */
kv_study_point kv_cell_study_point(const kv_campaign *c, const kv_cell *cell);        /* of an attribution cell */
/* Its source (side 0) or destination (1) by name. */
const char *kv_cell_side(const kv_campaign *c, const kv_cell *cell, int side);

/* Layouts from --layouts PATH, else $KVGRID_LAYOUTS, else beside the binary, else the source tree. The
 * path that was used stands in *used (may be NULL; freed by the caller). */
kv_rc kv_layouts_find(const char *given, kv_catalogue *out, char **used, kv_err *err) KV_MUST_USE;

#endif
