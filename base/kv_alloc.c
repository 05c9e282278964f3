/* Checked allocation with a fail-after-n switch, byte buffers, strict numbers. */
#include "base/kv_base.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KV_IMAGE_ALIGN 64

static _Atomic long fail_after = -1; /* test switch; -1 = off */

static bool fails_now(void)
{
    long n = atomic_load_explicit(&fail_after, memory_order_relaxed);
    if (n < 0) return false;
    if (n == 0) return true;
    atomic_store_explicit(&fail_after, n - 1, memory_order_relaxed);
    return false;
}

void kv_alloc_fail_after(long n)
{
    atomic_store(&fail_after, n);
}

void *kv_alloc(size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes) || fails_now()) return NULL;
    return calloc(1, bytes > 0 ? bytes : 1);
}

void *kv_realloc(void *p, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes) || fails_now()) return NULL;
    return realloc(p, bytes > 0 ? bytes : 1);
}

void *kv_alloc_image(size_t bytes)
{
    size_t padded;
    if (__builtin_add_overflow(bytes, (size_t)KV_IMAGE_ALIGN, &padded) || fails_now()) return NULL;
    return aligned_alloc(KV_IMAGE_ALIGN, padded / KV_IMAGE_ALIGN * KV_IMAGE_ALIGN);
}

void kv_free(void *p)
{
    free(p);
}

char *kv_strdup(const char *s)
{
    size_t n = strlen(s) + 1;
    char *copy = kv_alloc(n, 1);
    if (copy != NULL) memcpy(copy, s, n);
    return copy;
}

bool kv_parse_i64(const char *text, int64_t least, int64_t most, int64_t *out)
{
    const char *digits = text[0] == '-' ? text + 1 : text;
    if (digits[0] < '0' || digits[0] > '9') return false;
    char *end = NULL;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || v < least || v > most) return false;
    *out = v;
    return true;
}

bool kv_parse_u64(const char *text, uint64_t *out)
{
    if (text[0] < '0' || text[0] > '9') return false;
    char *end = NULL;
    errno = 0;
    unsigned long long v = strtoull(text, &end, 10);
    if (errno != 0 || *end != '\0') return false;
    *out = v;
    return true;
}

kv_rc kv_buf_append(kv_buf *b, const void *bytes, size_t n, kv_err *err)
{
    if (n >= SIZE_MAX / 2 - b->len) return KV_FAIL(err, KV_ENOMEM, "a text of %zu + %zu bytes is too large", b->len, n);
    if (b->len + n + 1 > b->cap) {
        size_t cap = b->cap < 256 ? 256 : b->cap;
        while (cap < b->len + n + 1) cap *= 2;
        char *data = kv_realloc(b->data, cap, 1);
        if (data == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for a text of %zu bytes", cap);
        b->data = data;
        b->cap = cap;
    }
    if (n > 0) memcpy(b->data + b->len, bytes, n);
    b->len += n;
    b->data[b->len] = '\0';
    return KV_OK;
}

kv_rc kv_buf_puts(kv_buf *b, const char *s, kv_err *err)
{
    return kv_buf_append(b, s, strlen(s), err);
}

kv_rc kv_buf_printf(kv_buf *b, kv_err *err, const char *fmt, ...)
{
    char small[512];
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(small, sizeof small, fmt, ap);
    va_end(ap);
    kv_rc rc;
    if (n < 0) {
        rc = KV_FAIL(err, KV_EBUG, "a text could not be formatted");
    } else if ((size_t)n < sizeof small) {
        rc = kv_buf_append(b, small, (size_t)n, err);
    } else {
        char *big = kv_alloc((size_t)n + 1, 1);
        if (big == NULL) {
            rc = KV_FAIL(err, KV_ENOMEM, "no memory for a text of %d bytes", n);
        } else {
            vsnprintf(big, (size_t)n + 1, fmt, again);
            rc = kv_buf_append(b, big, (size_t)n, err);
            kv_free(big);
        }
    }
    va_end(again);
    return rc;
}

void kv_buf_free(kv_buf *b)
{
    kv_free(b->data);
    memset(b, 0, sizeof *b);
}
