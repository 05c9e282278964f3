/* What the index probe asks of one native position, for every device. */
#ifndef KV_KERN_PROBE_H
#define KV_KERN_PROBE_H

#include "layouts/kv_layout_index.h"

enum { KV_PLACE_BAD = -1, KV_PLACE_PADDING = 0, KV_PLACE_ELEMENT = 1 };

/* The inverse (by division), the walk (by carries) and the forward map must agree at the walk's position, and the
 * place must lie in the canonical tensor; *number is the element's. Places that pass are told apart by their number
 * (its axes are all within bounds) and lead forward to their own position, so no two positions share an element. */
KV_HD int kv_probe_place(const kv_index *ix, const kv_walk *w, int64_t *number)
{
    kv_coord c, walked;
    const int holds = kv_index_inverse(ix, w->position, &c);
    if (kv_walk_coord(ix, w, &walked) != holds) return KV_PLACE_BAD;
    if (!holds) return KV_PLACE_PADDING;
    if (c.layer != walked.layer || c.kv != walked.kv || c.token != walked.token || c.head != walked.head ||
        c.lane != walked.lane || kv_index_forward(ix, &c) != w->position)
        return KV_PLACE_BAD;
    *number = kv_index_canonical(ix, &c);
    if (c.layer < 0 || c.layer >= ix->layers || c.head < 0 || c.head >= ix->heads || *number < 0 ||
        *number >= ix->elements)
        return KV_PLACE_BAD;
    return KV_PLACE_ELEMENT;
}

#endif
