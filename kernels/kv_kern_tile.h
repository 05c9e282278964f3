/* 8 x 8 blocks of 16-bit elements, turned: the inner step where one side runs along tokens and the other along
 * lanes. Only moves bits. With SSE2 in registers, else element by element; both give the same bytes. */
#ifndef KV_KERN_TILE_H
#define KV_KERN_TILE_H

#include <stdint.h>
#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define KV_TILE 8

/* dst[c][r] = src[r][c] for r, c < 8. Rows of src are src_row elements apart, rows of dst dst_row elements. */
static inline void kv_tile_turn_u16(const uint16_t *src, int64_t src_row, uint16_t *dst, int64_t dst_row)
{
#ifdef __SSE2__
    __m128i a[KV_TILE], b[KV_TILE];
    for (int r = 0; r < KV_TILE; r++) a[r] = _mm_loadu_si128((const __m128i *)(const void *)(src + r * src_row));
    for (int i = 0; i < 4; i++) { /* pairs of rows, 16-bit elements interleaved */
        b[2 * i] = _mm_unpacklo_epi16(a[2 * i], a[2 * i + 1]);
        b[2 * i + 1] = _mm_unpackhi_epi16(a[2 * i], a[2 * i + 1]);
    }
    for (int i = 0; i < 2; i++) { /* then 32-bit pairs of two row pairs */
        a[4 * i] = _mm_unpacklo_epi32(b[4 * i], b[4 * i + 2]);
        a[4 * i + 1] = _mm_unpackhi_epi32(b[4 * i], b[4 * i + 2]);
        a[4 * i + 2] = _mm_unpacklo_epi32(b[4 * i + 1], b[4 * i + 3]);
        a[4 * i + 3] = _mm_unpackhi_epi32(b[4 * i + 1], b[4 * i + 3]);
    }
    for (int i = 0; i < 4; i++) { /* then the two halves */
        b[2 * i] = _mm_unpacklo_epi64(a[i], a[i + 4]);
        b[2 * i + 1] = _mm_unpackhi_epi64(a[i], a[i + 4]);
    }
    for (int c = 0; c < KV_TILE; c++) _mm_storeu_si128((__m128i *)(void *)(dst + c * dst_row), b[c]);
#else
    for (int r = 0; r < KV_TILE; r++)
        for (int c = 0; c < KV_TILE; c++) dst[c * dst_row + r] = src[r * src_row + c];
#endif
}

/* dst[c][r] = src[r][c] for r, c < 2, elements of 8 bytes. Rows are src_row and dst_row bytes apart. */
static inline void kv_tile_turn_u64(const unsigned char *src, int64_t src_row, unsigned char *dst, int64_t dst_row)
{
#ifdef __SSE2__
    const __m128i a = _mm_loadu_si128((const __m128i *)(const void *)src);
    const __m128i b = _mm_loadu_si128((const __m128i *)(const void *)(src + src_row));
    _mm_storeu_si128((__m128i *)(void *)dst, _mm_unpacklo_epi64(a, b));
    _mm_storeu_si128((__m128i *)(void *)(dst + dst_row), _mm_unpackhi_epi64(a, b));
#else
    for (int r = 0; r < 2; r++)
        for (int c = 0; c < 2; c++) memcpy(dst + c * dst_row + 8 * r, src + r * src_row + 8 * c, 8);
#endif
}

#endif
