/* Inside the CUDA backend: launches that are written down, to be made with those of other cells (kv_cuda_wave.h). */
#ifndef KV_CUDA_LIST_H
#define KV_CUDA_LIST_H

#include "base/kv_base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The kernels, in the order in which one turn over all lists looks for them: after one of these a cell mostly goes on with a
 * later one, so that a turn takes several launches off each list. */
typedef enum {
    KV_CUDA_PROBE,
    KV_CUDA_POISON,
    KV_CUDA_BUILD,
    KV_CUDA_FILL,
    KV_CUDA_CONVERT,
    KV_CUDA_DIRECT,
    KV_CUDA_TILES,
    KV_CUDA_GUARDS,
    KV_CUDA_COMPARE,
    KV_CUDA_FIRST,
    KV_CUDA_DIFF_ADD,
    KV_CUDA_DIFF_TAKE,
    KV_CUDA_DRIFT,
    KV_CUDA_GATHER,
    KV_CUDA_PROJECT,
    KV_CUDA_SCORE,
    KV_CUDA_LARGEST,
    KV_CUDA_WEIGH,
    KV_CUDA_TOTAL,
    KV_CUDA_STEP,
    KV_CUDA_KERNELS
} kv_cuda_kernel;

/* One launch: its kernel, its blocks in x, and where its arguments lie in the list's bytes. */
typedef struct {
    kv_cuda_kernel kernel;
    unsigned blocks;
    size_t at, bytes;
} kv_cuda_item;

/* The launches of one cell. {0} is empty. Two of one kernel that follow one another must not depend on each other. */
typedef struct kv_cuda_list {
    kv_cuda_item *items;
    size_t n, room;
    size_t next; /* the first that is not taken yet */
    kv_buf bytes;
} kv_cuda_list;

/* Writes a launch down. KV_ENOMEM. */
kv_rc kv_cuda_list_add(kv_cuda_list *l, kv_cuda_kernel kernel, unsigned blocks, const void *arguments, size_t bytes,
                       kv_err *err) KV_MUST_USE;
void kv_cuda_list_empty(kv_cuda_list *l); /* keeps its memory */
void kv_cuda_list_free(kv_cuda_list *l);

/* A launch for several lists: `n` arguments of `bytes` each, one after the other from `at` on. */
typedef struct {
    kv_cuda_kernel kernel;
    unsigned blocks; /* the most that one of them wants */
    int32_t n;
    size_t at;
} kv_cuda_launch;

/* Merges the lists: *launches in an order that keeps each list's own, their arguments in *arguments (alignment 16).
 * Empties nothing. KV_ENOMEM. */
kv_rc kv_cuda_list_merge(kv_cuda_list *lists, int32_t n_lists, kv_buf *launches, kv_buf *arguments, kv_err *err)
    KV_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
