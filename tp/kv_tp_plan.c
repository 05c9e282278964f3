/* The re-shard plan, the rounds of a unit, the hops between pipeline stages. */
#include "tp/kv_tp_plan.h"

#include <inttypes.h>
#include <string.h>

#include "tp/kv_tp.h"
#include "tp/kv_tp_shard_index.h"

static kv_rc add(kv_tp_plan *plan, size_t *room, kv_tp_parcel p, kv_err *err)
{
    if (plan->n > 0) { /* heads that follow one another from the same sender are one parcel */
        kv_tp_parcel *last = &plan->parcel[plan->n - 1];
        if (last->from == p.from && last->to == p.to && last->first + last->heads == p.first) {
            last->heads += p.heads;
            return KV_OK;
        }
    }
    if (plan->n == *room) {
        const size_t more = *room * 2 + 8;
        kv_tp_parcel *grown = kv_realloc(plan->parcel, more, sizeof *grown);
        if (grown == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for %zu parcels", more);
        plan->parcel = grown;
        *room = more;
    }
    plan->parcel[plan->n++] = p;
    return KV_OK;
}

/* What destination rank `to` receives. taken[h]: how many receivers head h had so far. */
static kv_rc plan_rank(kv_tp_plan *plan, size_t *room, int64_t to, int64_t *taken, kv_err *err)
{
    const int64_t H = plan->heads, copies = kv_tp_shard_copies(H, plan->p), rank = plan->first[1] + to;
    const int64_t first = kv_tp_shard_first(H, plan->q, to), end = first + kv_tp_shard_heads(H, plan->q);
    for (int64_t h = first; h < end; h++) {
        if (kv_tp_shard_holds(H, plan->p, rank - plan->first[0], h)) continue;
        const int64_t from = plan->first[0] + kv_tp_shard_holder(H, plan->p, h) + taken[h]++ % copies;
        const kv_rc rc = add(plan, room, (kv_tp_parcel){(int32_t)from, (int32_t)rank, h, 1}, err);
        if (rc != KV_OK) return rc;
    }
    return KV_OK;
}

static kv_rc check_size(int64_t heads, int64_t size, const char *side, kv_err *err)
{
    if (size < 1 || size > INT32_MAX)
        return KV_FAIL(err, KV_EINVAL, "a tensor-parallel size of %" PRId64 " (%s) is impossible", size, side);
    if (!kv_tp_shard_exists(heads, size))
        return KV_FAIL(err, KV_EINVAL,
                       "a tensor-parallel size of %" PRId64 " (%s) neither divides %" PRId64
                       " kv heads nor is a multiple of them, so its shards do not exist",
                       size, side, heads);
    return KV_OK;
}

kv_rc kv_tp_plan_new(int64_t heads, int64_t p, int64_t q, kv_tp_plan *out, kv_err *err)
{
    static const int64_t zero[2] = {0, 0};
    return kv_tp_plan_between(heads, p, q, zero, out, err);
}

kv_rc kv_tp_plan_between(int64_t heads, int64_t p, int64_t q, const int64_t first[2], kv_tp_plan *out, kv_err *err)
{
    kv_tp_plan plan = {.heads = heads, .p = p, .q = q, .first = {first[0], first[1]}};
    size_t room = 0;
    int64_t *taken = NULL;
    kv_rc rc = KV_OK;
    if (heads < 1) return KV_FAIL(err, KV_EINVAL, "%" PRId64 " kv heads cannot be split", heads);
    KV_TRY(rc, out, check_size(heads, p, "source", err));
    KV_TRY(rc, out, check_size(heads, q, "destination", err));
    taken = kv_alloc((size_t)heads, sizeof *taken);
    if (taken == NULL) {
        rc = KV_FAIL(err, KV_ENOMEM, "no memory for a plan of %" PRId64 " heads", heads);
        goto out;
    }
    for (int64_t to = 0; to < q; to++) KV_TRY(rc, out, plan_rank(&plan, &room, to, taken, err));
    *out = plan;
    memset(&plan, 0, sizeof plan);
out:
    kv_free(taken);
    kv_free(plan.parcel);
    return rc;
}

void kv_tp_plan_free(kv_tp_plan *p)
{
    kv_free(p->parcel);
    memset(p, 0, sizeof *p);
}

/* ---- rounds ------------------------------------------------------------------------------ */

static kv_rc check_chunks(int64_t tokens, const int64_t *chunk, size_t n, kv_err *err)
{
    int64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        if (chunk[i] < 1 || !kv_add_i64(sum, chunk[i], &sum))
            return KV_FAIL(err, KV_EINVAL, "chunk %zu holds %" PRId64 " tokens", i, chunk[i]);
    if (sum != tokens)
        return KV_FAIL(err, KV_EINVAL, "the chunks hold %" PRId64 " tokens, the request %" PRId64, sum, tokens);
    return KV_OK;
}

static kv_tp_round round_of(int64_t layer, int64_t layers, int64_t token, int64_t end, int64_t block)
{
    const kv_tp_round r = {layer, layers, token, end - token, token / block, (end - token + block - 1) / block};
    return r;
}

kv_rc kv_tp_rounds_new(kv_tp_send send, int64_t layers, int64_t tokens, int64_t block, const int64_t *chunk,
                       size_t n_chunks, kv_tp_round **out, size_t *n, kv_err *err)
{
    const size_t room = send == KV_TP_SEND_LAYERS ? (size_t)layers : send == KV_TP_SEND_CHUNKS ? n_chunks + 1 : 1;
    if (block < 1) block = 1;
    if (send == KV_TP_SEND_CHUNKS) {
        const kv_rc rc = check_chunks(tokens, chunk, n_chunks, err);
        if (rc != KV_OK) return rc;
    }
    kv_tp_round *r = kv_alloc(room, sizeof *r);
    if (r == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for %zu rounds", room);
    size_t used = 0;
    int64_t sent = 0, here = 0;
    switch (send) {
    case KV_TP_SEND_UNIT: r[used++] = round_of(0, layers, 0, tokens, block); break;
    case KV_TP_SEND_LAYERS:
        for (int64_t l = 0; l < layers; l++) r[used++] = round_of(l, 1, 0, tokens, block);
        break;
    case KV_TP_SEND_CHUNKS:
        for (size_t i = 0; i < n_chunks; i++) {
            here += chunk[i];
            const int64_t whole = here == tokens ? tokens : here / block * block; /* the boundary page waits */
            if (whole > sent) r[used++] = round_of(0, layers, sent, whole, block);
            sent = whole;
        }
        break;
    }
    *out = r;
    *n = used;
    return KV_OK;
}
