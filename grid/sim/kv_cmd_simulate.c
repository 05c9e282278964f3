#include "grid/sim/kv_cmd_simulate.h"

#include <inttypes.h>
#include <stdio.h>

#define RANKS_MOST 65536

/* ---- the forecast ---- */

static json_int_t ppm(double share)
{
    return (json_int_t)(share * 1e6 + 0.5);
}

static kv_rc put(json_t *answer, const char *key, json_t *value, kv_err *err)
{
    if (value != NULL && json_object_set_new(answer, key, value) == 0) return KV_OK;
    return KV_FAIL(err, KV_ENOMEM, "no memory for the answer");
}

static kv_rc tell_forecast(const kv_sim_forecast *f, int64_t cores, json_t *answer, kv_err *err)
{
    if (answer != NULL)
        return put(answer, "simulation",
                   json_pack("{s:i,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I}", "ranks", f->ranks, "cores",
                             (json_int_t)cores, "makespan_us", (json_int_t)(f->makespan_s * 1e6), "work_us",
                             (json_int_t)(f->work_s * 1e6), "longest_item_us", (json_int_t)(f->longest_s * 1e6),
                             "efficiency_ppm", ppm(f->efficiency), "messages", (json_int_t)f->messages, "message_bytes",
                             (json_int_t)f->bytes, "rank_0_serving_ppm", ppm(f->helper_share), "rank_0_busy_ppm",
                             ppm(f->root_share), "least_busy_ppm", ppm(f->least_share)),
                   err);
    printf(
        "simulated on %d rank%s: makespan %.4g s for %.4g s of work, efficiency %.3f; the longest item takes %.3g s\n",
        f->ranks, f->ranks == 1 ? "" : "s", f->makespan_s, f->work_s, f->efficiency, f->longest_s);
    printf("messages: %" PRId64 ", %" PRId64
           " bytes; rank 0 serves the others for %.2f %% of the time and computes for "
           "%.1f %%; the least busy rank computes for %.1f %%\n",
           f->messages, f->bytes, f->helper_share * 100, f->root_share * 100, f->least_share * 100);
    return KV_OK;
}

static kv_rc forecast(const kv_opts *o, const kv_campaign *c, const kv_plan *p, json_t *answer, kv_err *err)
{
    kv_sim_forecast f;
    kv_sim_model model = kv_sim_model_default();
    model.cores = (int)o->cores;
    kv_rc rc = kv_sim_predict(c, p, &model, (int)o->ranks, (double)o->timeout_s, &f, err);
    return rc == KV_OK ? tell_forecast(&f, o->cores, answer, err) : rc;
}

/* ---- faults ---- */

static json_t *tally_json_new(const kv_sim_tally *t, uint64_t first, int64_t n)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, first);
    json_t *runs = json_object(), *faults = json_object();
    for (int i = 0; runs != NULL && i < KV_SIM_END_COUNT; i++)
        json_object_set_new(runs, kv_sim_end_name((kv_sim_end)i), json_integer((json_int_t)t->runs[i]));
    for (int i = 0; faults != NULL && kv_sim_fault_name(i) != NULL; i++)
        json_object_set_new(faults, kv_sim_fault_name(i), json_integer((json_int_t)t->faults[i]));
    return json_pack("{s:s,s:I,s:o,s:o,s:I,s:I,s:I}", "first_seed", text, "seeds", (json_int_t)n, "runs", runs,
                     "faults", faults, "messages", (json_int_t)t->messages, "disk_changes", (json_int_t)t->disk_ops,
                     "virtual_s", (json_int_t)t->virtual_s);
}

static void print_tally(const kv_sim_tally *t, uint64_t first, int64_t n)
{
    int64_t runs = 0;
    for (int i = 0; i < KV_SIM_END_COUNT; i++) runs += t->runs[i];
    printf("%" PRId64 " seed%s from %" PRIu64 ": %" PRId64
           " runs, each story came to the rows of an undisturbed run\nruns:",
           n, n == 1 ? "" : "s", first, runs);
    for (int i = 0; i < KV_SIM_END_COUNT; i++)
        printf("%s %" PRId64 " %s", i > 0 ? "," : "", t->runs[i], kv_sim_end_name((kv_sim_end)i));
    printf("\nfaults:");
    for (int i = 0; kv_sim_fault_name(i) != NULL; i++)
        printf("%s %" PRId64 " %s", i > 0 ? "," : "", t->faults[i], kv_sim_fault_name(i));
    printf("\n%" PRId64 " messages, %" PRId64 " changes of the disk, %.0f s of virtual time\n", t->messages,
           t->disk_ops, t->virtual_s);
}

static kv_rc stories(const kv_opts *o, const kv_campaign *c, json_t *answer, kv_err *err)
{
    uint64_t first = 1;
    kv_sim_tally t = {0};
    kv_buf log = {0};
    const int64_t n = o->sim_seeds > 0 ? o->sim_seeds : 1;
    if (o->sim_seed != NULL) (void)kv_parse_u64(o->sim_seed, &first);
    kv_rc rc = KV_OK;
    for (int64_t i = 0; rc == KV_OK && i < n; i++)
        rc = kv_sim_story(c, first + (uint64_t)i, &t, n == 1 && answer == NULL ? &log : NULL, err);
    if (log.len > 0) printf("%s", log.data);
    kv_buf_free(&log);
    if (rc != KV_OK) return rc;
    if (answer != NULL) return put(answer, "stories", tally_json_new(&t, first, n), err);
    print_tally(&t, first, n);
    return KV_OK;
}

static bool asks_for_faults(const kv_opts *o)
{
    return o->sim_seed != NULL || o->sim_seeds > 0;
}

kv_rc kv_plan_simulate_check(const kv_opts *o, kv_err *err)
{
    uint64_t seed;
    if (o->simulate == 0 && (asks_for_faults(o) || o->cores > 0))
        return KV_FAIL(err, KV_EINVAL, "--cores, --sim-seed and --sim-seeds go with --simulate");
    if (o->sim_seed != NULL && !kv_parse_u64(o->sim_seed, &seed))
        return KV_FAIL(err, KV_EINVAL, "--sim-seed \"%s\": must be an integer from 0 to 18446744073709551615",
                       o->sim_seed);
    if (o->simulate != 0 && o->ranks > RANKS_MOST)
        return KV_FAIL(err, KV_EINVAL, "--ranks %" PRId64 ": at most %d can be simulated", o->ranks, RANKS_MOST);
    return KV_OK;
}

kv_rc kv_plan_simulate(const kv_opts *o, const kv_campaign *c, const kv_plan *p, json_t *answer, kv_err *err)
{
    if (o->simulate == 0) return KV_OK;
    return asks_for_faults(o) ? stories(o, c, answer, err) : forecast(o, c, p, answer, err);
}
