/* What all ranks found, into one result that is the same on each. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tp/kv_tp_int.h"
#include "tp/kv_tp_shard_index.h"

kv_rc kv_tp_copies_check(kv_tp_work *w, int i, int64_t base, const uint8_t *digest, size_t stride, const char *when,
                         kv_err *err)
{
    const int64_t heads = w->plan[0].heads, size = w->s->tp[i], copies = kv_tp_shard_copies(heads, size);
    for (int64_t head = 0; copies > 1 && head < heads; head++) {
        const int64_t first = base + kv_tp_shard_holder(heads, size, head);
        for (int64_t r = first + 1; r < first + copies; r++) {
            w->copies_compared++;
            if (memcmp(digest + (size_t)first * stride, digest + (size_t)r * stride, KV_TP_DIGEST_BYTES) != 0)
                return KV_FAIL(err, KV_EFORMAT,
                               "ranks %" PRId32 " and %" PRId32 " hold different copies of kv head %" PRId64
                               " (%s shards, %s)",
                               w->t->world[first], w->t->world[r], head, i == 0 ? "source" : "destination", when);
        }
    }
    return KV_OK;
}

static void add_up(const kv_tp_work *w, kv_tp_result *out, const kv_tp_tally *all, int64_t ranks)
{
    out->gather_agrees = out->values_preserved = out->finite = out->minimal = 1;
    out->bijective[0] = out->bijective[1] = 1;
    for (int64_t r = 0; r < ranks; r++) {
        const kv_tp_tally *t = &all[r];
        out->gather_agrees = out->gather_agrees && t->gather;
        out->values_preserved = out->values_preserved && t->preserved;
        out->finite = out->finite && t->finite;
        out->minimal = out->minimal && t->minimal;
        out->diff_positions += t->diff;
        if (t->worst_ppm > out->worst_ppm) out->worst_ppm = t->worst_ppm;
        for (int i = 0; i < 2; i++) {
            if (r < w->s->tp[i]) { /* of one stage: those of the others are the same spaces */
                out->checked[i] += t->checked[i];
                out->total[i] += t->total[i];
                out->padding[i] += t->padding[i];
            }
            out->bijective[i] = out->bijective[i] && t->bijective[i];
            out->sent[i][r] = t->sent[i];
            out->received[i][r] = t->received[i];
            out->sent_total[i] += t->sent[i];
        }
    }
}

/* The digest of one rank is its own; of several, the hash over theirs in order. */
static void join_digests(const kv_tp_work *w, const kv_tp_tally *all, kv_tp_result *out)
{
    if (kv_tp_side_ranks(w->s, 1) == 1) {
        memcpy(out->logits_digest, all[0].logits, KV_TP_DIGEST_BYTES);
        memcpy(out->reference_digest, all[0].reference_logits, KV_TP_DIGEST_BYTES);
        return;
    }
    for (int i = 0; i < 2; i++) {
        kv_tp_hash_state state;
        w->hash->begin(&state);
        for (int64_t r = 0; r < kv_tp_side_ranks(w->s, 1); r++)
            w->hash->update(&state, i == 0 ? all[r].logits : all[r].reference_logits, KV_TP_DIGEST_BYTES);
        w->hash->end(&state, i == 0 ? out->logits_digest : out->reference_digest);
    }
}

static void observe(const kv_tp_work *w, const kv_tp_tally *all, kv_tp_result *out)
{
    bool forward = out->bijective[0] && out->bijective[1], outside = false, tokens = true;
    for (int64_t r = 0; r < out->ranks; r++) {
        forward = forward && all[r].forward;
        outside = outside || all[r].outside;
        if (r < kv_tp_side_ranks(w->s, 1))
            tokens = tokens && all[r].tokens && memcmp(all[r].logits, all[r].reference_logits, KV_TP_DIGEST_BYTES) == 0;
    }
    out->unread_padding = out->padding[0] * (out->layers / out->unit_layers);
    const int64_t expected = w->s->stale != w->s->fill[0] ? out->unread_padding : 0;
    out->observed[KV_TP_FORWARD] = forward;
    out->observed[KV_TP_IDENTICAL] = out->diff_positions == 0;
    out->observed[KV_TP_DIFF_IS_PADDING] = !outside && out->diff_positions == expected;
    out->observed[KV_TP_TOKENS] = tokens;
}

static kv_rc check_all(kv_tp_work *w, const kv_tp_tally *all, kv_err *err)
{
    kv_rc rc = KV_OK;
    for (int32_t r = 0; r < w->t->size; r++)
        if (all[r].rc != KV_OK) return kv_tp_failed_at(w->t, r, (kv_rc)all[r].rc, all[r].text, err);
    for (int i = 1; i >= 0; i--)
        for (int64_t base = 0; base < kv_tp_side_ranks(w->s, i); base += w->s->tp[i])
            KV_TRY(rc, out,
                   kv_tp_copies_check(w, i, base, all[0].chain[i], sizeof *all,
                                      i == 1 ? "after the move" : "after the way back", err));
out:
    return rc;
}

kv_rc kv_tp_sum_up(kv_tp_work *w, const kv_tp_tally *mine, kv_tp_result *out, kv_err *err)
{
    kv_tp_tally *all = kv_alloc((size_t)w->t->size, sizeof *all);
    kv_rc rc;
    if (all == NULL) {
        kv_tp_abort(w->t, KV_ENOMEM, "no memory for the results");
        return KV_FAIL(err, KV_ENOMEM, "no memory for the results of %" PRId32 " ranks", w->t->size);
    }
    KV_TRY(rc, out, kv_tp_share(w->t, mine, sizeof *mine, all, err));
    KV_TRY(rc, out, check_all(w, all, err));
    add_up(w, out, all, out->ranks);
    observe(w, all, out);
    join_digests(w, all, out);
    const int64_t shard0 = w->hop != NULL ? w->hop[0].to * w->s->tp[1] : 0; /* of layer 0 */
    memcpy(out->decoded, all[shard0].decoded, sizeof out->decoded);
    memcpy(out->reference, all[shard0].reference, sizeof out->reference);
    out->copies_compared = w->copies_compared;
out:
    if (!w->t->lost_buffers) kv_free(all);
    return rc;
}
