/* Shorthand of campaign files: ranges, model presets, patterns. It is written out when the file is read, so that
 * campaign.spec in the certificate holds plain lists and a verifier needs no table of ours. */
#ifndef KV_WRITE_OUT_H
#define KV_WRITE_OUT_H

#include "grid/campaign/kv_campaign.h"

/* In spec (changed in place):
 *   geometries[].FIELD {"from": a, "to": b, "step": s} or {"from": a, "to": b, "times": t}, alone or in a list -> a list of numbers
 *   geometries[].model "NAME" or a list of names -> one geometry object each, with layers, kv_heads and head_dim of the
 *     preset where the object does not give them itself
 *   exclude [patterns] -> select without those layouts
 *   pairs {"include": [patterns], "exclude": [patterns]} over "SRC->DST" -> a list of pairs
 * KV_EFORMAT names the key. */
kv_rc kv_write_out(json_t *spec, const kv_catalogue *all, const char *where, kv_err *err) KV_MUST_USE;

/* The presets that came with the program: a new list of {name, layers, kv_heads, head_dim, source}. */
kv_rc kv_models_new(json_t **out, kv_err *err) KV_MUST_USE;

#endif
