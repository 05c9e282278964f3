/* kvgrid plan --simulate. */
#ifndef KV_CMD_SIMULATE_H
#define KV_CMD_SIMULATE_H

#include <jansson.h>

#include "grid/cli/kv_opts.h"
#include "grid/sim/kv_sim.h"

/* Whether the options go together (KV_EINVAL): before anything is printed. */
kv_rc kv_plan_simulate_check(const kv_opts *o, kv_err *err) KV_MUST_USE;

/* What --simulate adds to a plan: text on stdout, or an object under "simulation" of *answer (NULL for text).
 * KV_EBUG: a seed broke a run; its text says how to see it again. */
kv_rc kv_plan_simulate(const kv_opts *o, const kv_campaign *c, const kv_plan *p, json_t *answer, kv_err *err)
    KV_MUST_USE;

#endif
