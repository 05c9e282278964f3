#include "kernels/cuda/kv_cuda_list.h"

#include <string.h>

#define ALIGN 16 /* of arguments */

kv_rc kv_cuda_list_add(kv_cuda_list *l, kv_cuda_kernel kernel, unsigned blocks, const void *arguments, size_t bytes,
                       kv_err *err)
{
    if (l->n == l->room) {
        const size_t room = l->room > 0 ? 2 * l->room : 64;
        kv_cuda_item *items = kv_realloc(l->items, room, sizeof *items);
        if (items == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for the launches of a cell");
        l->items = items;
        l->room = room;
    }
    const size_t at = l->bytes.len;
    const kv_rc rc = kv_buf_append(&l->bytes, arguments, bytes, err);
    if (rc != KV_OK) return rc;
    l->items[l->n++] = (kv_cuda_item){.kernel = kernel, .blocks = blocks, .at = at, .bytes = bytes};
    return KV_OK;
}

void kv_cuda_list_empty(kv_cuda_list *l)
{
    l->n = l->next = 0;
    l->bytes.len = 0;
}

void kv_cuda_list_free(kv_cuda_list *l)
{
    kv_free(l->items);
    kv_buf_free(&l->bytes);
    memset(l, 0, sizeof *l);
}

/* Takes off every list what stands at its head of this kernel. */
static kv_rc take_heads(kv_cuda_list *lists, int32_t n_lists, kv_cuda_launch *x, kv_buf *arguments, kv_err *err)
{
    static const char gap[ALIGN];
    kv_rc rc = kv_buf_append(arguments, gap, (ALIGN - arguments->len % ALIGN) % ALIGN, err);
    x->at = arguments->len;
    for (int32_t i = 0; i < n_lists; i++) {
        kv_cuda_list *l = &lists[i];
        for (; rc == KV_OK && l->next < l->n && l->items[l->next].kernel == x->kernel; l->next++) {
            const kv_cuda_item *item = &l->items[l->next];
            rc = kv_buf_append(arguments, l->bytes.data + item->at, item->bytes, err);
            x->blocks = item->blocks > x->blocks ? item->blocks : x->blocks;
            x->n++;
        }
    }
    return rc;
}

kv_rc kv_cuda_list_merge(kv_cuda_list *lists, int32_t n_lists, kv_buf *launches, kv_buf *arguments, kv_err *err)
{
    kv_rc rc = KV_OK;
    bool left = true;
    launches->len = arguments->len = 0;
    for (int32_t i = 0; i < n_lists; i++) lists[i].next = 0;
    while (left && rc == KV_OK) {
        left = false;
        for (int k = 0; k < KV_CUDA_KERNELS && rc == KV_OK; k++) {
            kv_cuda_launch x = {.kernel = (kv_cuda_kernel)k};
            rc = take_heads(lists, n_lists, &x, arguments, err);
            if (rc == KV_OK && x.n > 0) rc = kv_buf_append(launches, &x, sizeof x, err);
            left = left || x.n > 0;
        }
    }
    return rc;
}
