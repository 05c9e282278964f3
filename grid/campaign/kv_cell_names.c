/* What a cell is called: its check, its sides, its pair. */
#include <stdio.h>
#include <string.h>

#include "grid/campaign/kv_campaign.h"

static const char *const check_names[KV_CHECK_COUNT] = {"attribution", "codec", "move", "pair", "tp"};

const char *kv_check_name(kv_check k)
{
    return k < KV_CHECK_COUNT ? check_names[k] : "?";
}

bool kv_check_parse(const char *name, kv_check *out)
{
    for (int k = 0; k < KV_CHECK_COUNT; k++)
        if (strcmp(name, check_names[k]) == 0) {
            *out = (kv_check)k;
            return true;
        }
    return false;
}

kv_study_point kv_cell_study_point(const kv_campaign *c, const kv_cell *cell)
{
    return kv_study_point_at(&c->study, c->geometries[cell->geometry].layers, (size_t)cell->src);
}

const kv_shard_point *kv_cell_shard_point(const kv_campaign *c, const kv_cell *cell)
{
    return &c->tp.point[cell->src];
}

const char *kv_cell_side(const kv_campaign *c, const kv_cell *cell, int side)
{
    if (cell->check == KV_CHECK_ATTRIBUTION) {
        const kv_study_point p = kv_cell_study_point(c, cell);
        return kv_study_point_side(&p, side);
    }
    if (cell->check == KV_CHECK_CODEC) {
        const kv_codec_point p = kv_codec_point_at(&c->codec, (size_t)cell->src);
        return kv_codec_point_side(&p, side);
    }
    if (cell->check == KV_CHECK_MOVE) {
        const kv_move_point p = kv_move_point_at(&c->codec, (size_t)cell->src);
        return kv_move_point_side(&p, side);
    }
    if (cell->check == KV_CHECK_TP) return kv_shard_point_side(kv_cell_shard_point(c, cell), &c->catalogue, side);
    return c->catalogue.item[side == 0 ? cell->src : cell->dst]->name;
}

void kv_cell_pair_id(const kv_campaign *c, const kv_cell *cell, char out[KV_PAIR_ID_TEXT])
{
    snprintf(out, KV_PAIR_ID_TEXT, "%s->%s", kv_cell_side(c, cell, 0), kv_cell_side(c, cell, 1));
}
