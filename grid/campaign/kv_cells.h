/* Expansion of a campaign: selection of layouts, pairs, cells in row order. */
#ifndef KV_CELLS_H
#define KV_CELLS_H

#include "grid/campaign/kv_campaign.h"

/* Moves the layouts that `select` names (default: all) from `all` to c->catalogue. A pattern holds * and ?;
 * one that matches nothing is an error. */
kv_rc kv_cells_select(kv_campaign *c, kv_catalogue *all, const char *where, kv_err *err) KV_MUST_USE;

/* Fills c->cells from `pairs`, geometries and tails, in row order. */
kv_rc kv_cells_expand(kv_campaign *c, const char *where, kv_err *err) KV_MUST_USE;

/* Whether name matches a pattern of letters, * (any text) and ? (one character). */
bool kv_pattern_match(const char *pattern, const char *name);

#endif
