#include "grid/campaign/kv_shard_spec.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *const sends[KV_SHARD_SENDS] = {"chunks", "layers", "shard", "whole"};

const char *kv_shard_send_name(kv_shard_send s)
{
    return s < KV_SHARD_SENDS ? sends[s] : "?";
}

int64_t kv_shard_point_ranks(const kv_shard_point *p)
{
    if (p->send == KV_SHARD_ONE) return 1;
    const int64_t a = (p->split[0] != NULL ? p->split[0]->stages : 1) * (int64_t)p->from;
    const int64_t b = (p->split[1] != NULL ? p->split[1]->stages : 1) * (int64_t)p->to;
    return a > b ? a : b;
}

json_t *kv_shard_point_params_new(const kv_shard_point *p)
{
    char from[12], to[12];
    snprintf(from, sizeof from, "%" PRId32, p->from);
    snprintf(to, sizeof to, "%" PRId32, p->to);
    if (p->split[0] == NULL) return json_pack("{s:s,s:s,s:s}", "from", from, "send", sends[p->send], "to", to);
    return json_pack("{s:s,s:s,s:s,s:s,s:s}", "from", from, "from_stages", p->split[0]->text, "send", sends[p->send],
                     "to", to, "to_stages", p->split[1]->text);
}

const char *kv_shard_point_side(const kv_shard_point *p, const kv_catalogue *layouts, int side)
{
    const kv_move_point pages = {(kv_store_method)p->recipe, KV_PAGES_PAGES, KV_PAGES_PAGES};
    if (p->recipe >= 0) return kv_move_point_side(&pages, side);
    return layouts->item[side == 0 ? p->src : p->dst]->name;
}

void kv_shard_section_free(kv_shard_section *s)
{
    for (size_t i = 0; i < s->n_splits; i++) kv_shard_split_free(&s->split[i]);
    kv_free(s->split);
    kv_free(s->point);
    kv_free(s->stored);
    memset(s, 0, sizeof *s);
}
