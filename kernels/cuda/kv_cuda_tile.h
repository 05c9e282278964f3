/* How one half (K or V) is translated in tiles, worked out on the host from the strides of both sides.
 *
 * A tile is `tokens` x `heads` x `lanes` elements. Its axes are cut where either side cuts them (blocks, groups), which
 * gives factors over which both sides' offsets are linear. In the destination's order of the factors a tile lies in
 * shared memory as it will lie in the destination; the source's order says how it is read. On both sides a thread moves
 * vectors of up to 16 bytes that are contiguous in memory.
 *   load    vectors of load_bytes, contiguous in the source; each goes to the tile in groups of group_bytes
 *   store   vectors of store_bytes, contiguous in tile and destination
 *   direct  both sides run the same way for 64 bytes and more: from register to register, no tile
 * Tiles that reach past the tokens or lanes held go element by element. All offsets are bytes. */
#ifndef KV_CUDA_TILE_H
#define KV_CUDA_TILE_H

#include "kernels/kv_kern_stride.h"
#include "layouts/kv_elem.h"

#define KV_TILE_FACTORS 10
#define KV_TILE_VECTORS 4 /* that one thread moves at a time */
#define KV_TILE_THREADS 256
#define KV_TILE_BYTES 16384 /* at most: KV_TILE_VECTORS * KV_TILE_THREADS * 16 */

typedef struct {
    int64_t src, dst;    /* bytes from one digit to the next */
    int32_t extent;      /* digits, at least 2 */
    int32_t tile;        /* bytes in the tile from one digit to the next */
    int32_t token, lane; /* what a digit adds to the tile's first token and lane */
} kv_tile_factor;

typedef struct {
    kv_strides s, t;                             /* positions, not bytes */
    int64_t held_tokens, held_lanes;             /* of the canonical tensor */
    int64_t token_tiles, head_tiles, lane_tiles; /* a head lies inside a lane tile's neighbour: heads vary fastest */
    int64_t tiles;                               /* of all layers */
    kv_tile_factor factor[KV_TILE_FACTORS];      /* in the destination's order, slowest first */
    int32_t by_source[KV_TILE_FACTORS];          /* numbers of the factors in the source's order, slowest first */
    int32_t factors;
    int32_t tokens, heads, lanes; /* of a tile */
    int32_t elements;             /* of a tile: the product */
    int32_t element_bytes;
    int32_t load_bytes, group_bytes, store_bytes;
    int32_t delta[16]; /* bytes in the tile from the first element of a load vector to element k */
    int32_t direct;
} kv_tile_plan;

#ifdef __cplusplus
extern "C" {
#endif
/* The plan of half kv for a move from s to t, which hold the same canonical tensor of at least one element and have
 * elements of one size. */
void kv_tile_plan_of(const kv_index *s, const kv_index *t, int32_t kv, kv_tile_plan *out);
#ifdef __cplusplus
}
#endif
#endif
