/* kv_elem: the element types of a cache, their sizes and names. Host and device. */
#ifndef KV_ELEM_H
#define KV_ELEM_H

#include <stdbool.h>
#include <stdint.h>

/* Prefix of every formula that CPU and GPU share (the common part of C17 and C++17). */
#ifndef KV_HD
#ifdef __CUDACC__
#define KV_HD static inline __host__ __device__
#else
#define KV_HD static inline
#endif
#endif

typedef enum {
    KV_ELEM_F16,      /* IEEE 754 binary16 */
    KV_ELEM_BF16,     /* upper half of a binary32 */
    KV_ELEM_F32,      /* IEEE 754 binary32 */
    KV_ELEM_FP8_E4M3, /* OCP E4M3: bias 7, no Inf, NaN is S.1111.111, largest 448 */
    KV_ELEM_COUNT
} kv_elem;

/* Bytes of one element; 0 for a value outside the enum. */
KV_HD int64_t kv_elem_bytes(kv_elem e)
{
    switch (e) {
    case KV_ELEM_F16:
    case KV_ELEM_BF16: return 2;
    case KV_ELEM_F32: return 4;
    case KV_ELEM_FP8_E4M3: return 1;
    case KV_ELEM_COUNT: break;
    }
    return 0;
}

/* The name in layout and campaign files; "?" for a value outside the enum, never NULL. */
static inline const char *kv_elem_name(kv_elem e)
{
    switch (e) {
    case KV_ELEM_F16: return "f16";
    case KV_ELEM_BF16: return "bf16";
    case KV_ELEM_F32: return "f32";
    case KV_ELEM_FP8_E4M3: return "fp8_e4m3";
    case KV_ELEM_COUNT: break;
    }
    return "?";
}

/* The type of that exact name; *out is set only on success. NULL is no name. */
static inline bool kv_elem_parse(const char *name, kv_elem *out)
{
    if (name == (const char *)0) return false;
    for (int i = 0; i < (int)KV_ELEM_COUNT; i++) {
        const char *a = name, *b = kv_elem_name((kv_elem)i);
        while (*a != '\0' && *a == *b) {
            a++;
            b++;
        }
        if (*a != *b) continue;
        *out = (kv_elem)i;
        return true;
    }
    return false;
}

#endif
