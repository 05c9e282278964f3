/* What the user demands of a run: --require device=cuda,transport=nccl,ranks>=8 and --subject. */
#ifndef KV_DEMAND_H
#define KV_DEMAND_H

#include <jansson.h>

#include "base/kv_base.h"

typedef struct {
    char device[16];    /* "" = any; all ranks must have it */
    char transport[16]; /* "" = any; at least one must be it */
    int64_t ranks;      /* at least */
} kv_demand;

/* Parses "device=K,transport=K,ranks>=N" (each at most once, any order); text may be NULL. KV_EINVAL. */
kv_rc kv_demand_parse(const char *text, kv_demand *out, kv_err *err) KV_MUST_USE;

/* True if a `run` object (ranks, devices[].device, transports[]) meets the demand; else err names both sides. */
bool kv_demand_met(const kv_demand *d, const json_t *run, kv_err *err);

/* True if some device of a `run` object is an emulated one. */
bool kv_demand_emulated(const json_t *run);

/* Parses "NAME@sha256:HEX" to a new object {name, digest}; NULL text gives NULL. KV_EINVAL. */
kv_rc kv_subject_parse(const char *text, json_t **out, kv_err *err) KV_MUST_USE;

#endif
