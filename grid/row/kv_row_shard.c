#include "grid/row/kv_row_shard.h"

static json_t *number(const kv_row *r, int64_t v)
{
    return r->ran && r->has_tp ? json_integer((json_int_t)v) : json_null();
}

/* Ranks that the cell takes: also of a row that had too few of them. */
static json_t *ranks_new(const kv_campaign *c, const kv_row *r)
{
    if (r->verdict == KV_VERDICT_REFUSED || r->verdict == KV_VERDICT_FAILED) return json_null();
    return json_integer((json_int_t)kv_shard_point_ranks(kv_cell_shard_point(c, &c->cells[r->cell])));
}

static json_t *witness_new(const kv_row *r)
{
    const kv_row_shard *t = &r->tp;
    if (r->verdict != KV_VERDICT_REFUSED || !r->has_tp) return json_null();
    return json_pack("{s:I,s:I,s:I,s:I,s:I,s:I}", "shard_heads", (json_int_t)t->heads, "heads", (json_int_t)t->of_heads,
                     "whole_positions", (json_int_t)t->whole_positions, "whole_differs", (json_int_t)t->whole_differs,
                     "shard_positions", (json_int_t)t->shard_positions, "shard_differs", (json_int_t)t->shard_differs);
}

json_t *kv_row_shard_proof_add(const kv_campaign *c, const kv_row *r, json_t *proof)
{
    const kv_row_shard *t = &r->tp;
    json_t *more =
        json_pack("{s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "ranks", ranks_new(c, r), "rounds", number(r, t->rounds),
                  "wire_bytes", number(r, t->wire[0]), "least_wire_bytes", number(r, t->least[0]), "wire_bytes_back",
                  number(r, t->wire[1]), "least_wire_bytes_back", number(r, t->least[1]), "wire_minimal",
                  r->ran && r->has_tp ? json_boolean(t->minimal) : json_null(), "witness", witness_new(r));
    if (proof != NULL && more != NULL && json_object_update(proof, more) == 0) {
        json_decref(more);
        return proof;
    }
    json_decref(more);
    json_decref(proof);
    return NULL;
}

static int64_t value(const json_t *o, const char *key)
{
    return json_integer_value(json_object_get(o, key));
}

bool kv_row_shard_of_proof(const json_t *proof, kv_row *r)
{
    const json_t *w = json_object_get(proof, "witness");
    kv_row_shard *t = &r->tp;
    r->has_tp = r->ran || json_is_object(w);
    if (!r->has_tp) return true;
    t->rounds = value(proof, "rounds");
    t->wire[0] = value(proof, "wire_bytes");
    t->least[0] = value(proof, "least_wire_bytes");
    t->wire[1] = value(proof, "wire_bytes_back");
    t->least[1] = value(proof, "least_wire_bytes_back");
    t->minimal = json_is_true(json_object_get(proof, "wire_minimal"));
    t->heads = value(w, "shard_heads");
    t->of_heads = value(w, "heads");
    t->whole_positions = value(w, "whole_positions");
    t->whole_differs = value(w, "whole_differs");
    t->shard_positions = value(w, "shard_positions");
    t->shard_differs = value(w, "shard_differs");
    return true;
}
