#include "grid/campaign/kv_tail.h"

const char *kv_tail_name(kv_tail t)
{
    static const char *const names[KV_TAIL_COUNT] = {"stale", "zero", "nan"};
    return t < KV_TAIL_COUNT ? names[t] : "?";
}

uint32_t kv_tail_stale_bits(kv_tail t, kv_elem e)
{
    static const uint32_t stale[KV_ELEM_COUNT] = {0x5640, 0x42C8, 0x42C80000, 0x6C}; /* 100 (fp8: 96) */
    static const uint32_t nan[KV_ELEM_COUNT] = {0x7E00, 0x7FC0, 0x7FC00000, 0x7F};
    return t == KV_TAIL_STALE ? stale[e] : t == KV_TAIL_NAN ? nan[e] : 0;
}

uint32_t kv_tail_fill_bits(kv_tail t, kv_elem e)
{
    static const uint32_t fill[KV_ELEM_COUNT] = {0x3555, 0x3EAB, 0x3EAAAAAB, 0x2B}; /* about 1/3 */
    return t == KV_TAIL_ZERO ? 0 : fill[e];
}
