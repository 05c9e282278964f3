/* Headers and claims: what ranks say about their bytes, and what is refused. */
#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include "tp/kv_tp_shard_index.h"
#include "tp/kv_tp_wire.h"

static uint64_t seal_of(const void *bytes, size_t n)
{
    uint64_t h = 0xCBF29CE484222325ULL;
    for (size_t i = 0; i < n; i++) h = (h ^ ((const unsigned char *)bytes)[i]) * 0x100000001B3ULL;
    return h;
}

void kv_tp_header_seal(kv_tp_header *h)
{
    h->magic = KV_TP_MAGIC;
    h->seal = seal_of(h, offsetof(kv_tp_header, seal));
}

void kv_tp_claim_seal(kv_tp_claim *c)
{
    c->seal = seal_of(c, offsetof(kv_tp_claim, seal));
}

typedef struct {
    const char *what;
    int64_t got, want;
} said;

kv_rc kv_tp_header_check(const kv_tp_header *got, const kv_tp_header *want, const int32_t *rank_name, kv_err *err)
{
    const int32_t from = rank_name[want->from], to = rank_name[want->to];
    if (got->magic == 0)
        return KV_FAIL(err, KV_EFORMAT,
                       "rank %" PRId32 " has no message for rank %" PRId32 ", which needs heads %" PRId64 " to %" PRId64
                       " of it",
                       from, to, want->first_head, want->first_head + want->heads - 1);
    if (got->magic != KV_TP_MAGIC || got->seal != seal_of(got, offsetof(kv_tp_header, seal)))
        return KV_FAIL(err, KV_EFORMAT, "the message from rank %" PRId32 " to rank %" PRId32 " has a torn header", from,
                       to);
    const said all[] = {{"sending rank", got->from, want->from},
                        {"receiving rank", got->to, want->to},
                        {"shard id", got->shard, want->shard},
                        {"tensor-parallel size", got->size, want->size},
                        {"total of kv heads", got->total_heads, want->total_heads},
                        {"first head", got->first_head, want->first_head},
                        {"number of heads", got->heads, want->heads},
                        {"first layer", got->layer, want->layer},
                        {"number of layers", got->layers, want->layers},
                        {"first token", got->token, want->token},
                        {"number of tokens", got->tokens, want->tokens},
                        {"number of bytes", got->bytes, want->bytes}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (all[i].got != all[i].want)
            return KV_FAIL(err, KV_EFORMAT,
                           "the message from rank %" PRId32 " to rank %" PRId32 " has %s %" PRId64 ", not %" PRId64,
                           from, to, all[i].what, all[i].got, all[i].want);
    return KV_OK;
}

static const char *const side_name[2] = {"source", "destination"};

/* One claim by itself. */
static kv_rc check_claim(const kv_tp_claim *c, int32_t rank, const kv_tp_claim *want, const int32_t *rank_name,
                         kv_err *err)
{
    const int32_t name = rank_name[rank];
    if (c->seal != seal_of(c, offsetof(kv_tp_claim, seal)))
        return KV_FAIL(err, KV_EFORMAT, "what rank %" PRId32 " says of its shards is torn", name);
    if (c->rank != rank)
        return KV_FAIL(err, KV_EFORMAT, "rank %" PRId32 " says that it is rank %" PRId32 " of the group, not %" PRId32,
                       name, c->rank, rank);
    if (c->total_heads != want->total_heads)
        return KV_FAIL(err, KV_EFORMAT,
                       "rank %" PRId32 " has shards of %" PRId64 " kv heads in all, the others of %" PRId64, name,
                       c->total_heads, want->total_heads);
    for (int i = 0; i < 2; i++)
        if (c->size[i] != want->size[i])
            return KV_FAIL(err, KV_EFORMAT,
                           "rank %" PRId32 " has %s tensor-parallel size %" PRId64 ", the others %" PRId64, name,
                           side_name[i], c->size[i], want->size[i]);
    if (c->what != want->what)
        return KV_FAIL(err, KV_EFORMAT, "rank %" PRId32 " works on another cell (other layouts, geometry or seed)",
                       name);
    return KV_OK;
}

/* Each shard of one side stands on the rank of its number, once. */
static kv_rc check_side(const kv_tp_claim *claim, int32_t n, int side, int64_t size, const int32_t *rank_name,
                        kv_err *err)
{
    for (int64_t s = 0; s < size; s++) {
        int32_t holder = -1;
        for (int32_t r = 0; r < n; r++) {
            if (claim[r].shard[side] != s) continue;
            if (holder >= 0)
                return KV_FAIL(err, KV_EFORMAT,
                               "ranks %" PRId32 " and %" PRId32 " both hold %s shard %" PRId64 " of %" PRId64,
                               rank_name[holder], rank_name[r], side_name[side], s, size);
            holder = r;
        }
        if (holder < 0)
            return KV_FAIL(err, KV_EFORMAT, "%s shard %" PRId64 " of %" PRId64 " is missing: no rank holds it",
                           side_name[side], s, size);
        if (holder != s)
            return KV_FAIL(err, KV_EFORMAT,
                           "rank %" PRId32 " holds %s shard %" PRId64 ", which belongs on rank %" PRId32,
                           rank_name[holder], side_name[side], s, rank_name[s]);
    }
    for (int32_t r = 0; r < n; r++)
        if (claim[r].shard[side] < -1 || claim[r].shard[side] >= size)
            return KV_FAIL(err, KV_EFORMAT, "rank %" PRId32 " holds %s shard %" PRId64 " of %" PRId64, rank_name[r],
                           side_name[side], claim[r].shard[side], size);
    return KV_OK;
}

kv_rc kv_tp_claims_check(const kv_tp_claim *claim, int32_t n, const kv_tp_claim *want, const int32_t *rank_name,
                         kv_err *err)
{
    kv_rc rc = KV_OK;
    for (int32_t r = 0; r < n; r++) KV_TRY(rc, out, check_claim(&claim[r], r, want, rank_name, err));
    for (int side = 0; side < 2; side++) KV_TRY(rc, out, check_side(claim, n, side, want->size[side], rank_name, err));
out:
    return rc;
}
