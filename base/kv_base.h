/* base: what every folder uses: error records, checked allocation, byte buffers, strict
 * number parsing. libc only. Nothing here prints or exits. */
#ifndef KV_BASE_H
#define KV_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define KV_MUST_USE __attribute__((warn_unused_result))
#define KV_PRINTF(fmt_, first_) __attribute__((format(printf, fmt_, first_)))
#else
#define KV_MUST_USE
#define KV_PRINTF(fmt_, first_)
#endif

/* What went wrong, in the terms that decide the exit code (grid maps them, see kv_exit.h). */
typedef enum {
    KV_OK = 0,
    KV_EINVAL,  /* the caller (command line, API) asked for something impossible */
    KV_EFORMAT, /* an input file was read and is malformed */
    KV_EREAD,   /* an input could not be read */
    KV_EWRITE,  /* an output could not be written */
    KV_ENOMEM,  /* memory ran out, or a size does not fit 64 bits */
    KV_EUNSUP,  /* this build or machine cannot do it */
    KV_EEXIST,  /* an output exists and must not be overwritten */
    KV_ESIG,    /* a signature, digest or signer is not good */
    KV_EDEVICE, /* a compute device failed */
    KV_EMPI,    /* MPI or the launcher failed */
    KV_EPEER,   /* another rank failed */
    KV_ETIME,   /* a wait ran past its limit */
    KV_EINTR,   /* a signal asked to stop */
    KV_EBUG,    /* cannot happen */
    KV_RC_COUNT
} kv_rc;

#define KV_ERR_TEXT 768

/* An error record: fixed size, so that it works when memory is gone. The first cause stays.
 * Initialise with {0}. Every function that takes a kv_err accepts NULL. */
typedef struct {
    kv_rc rc;
    int line;         /* source line that decided it */
    const char *func; /* function that decided it */
    char text[KV_ERR_TEXT];
} kv_err;

/* Records rc and the text unless err already holds a cause; returns rc. */
kv_rc kv_err_set(kv_err *err, kv_rc rc, const char *func, int line, const char *fmt, ...) KV_PRINTF(5, 6);
#define KV_FAIL(err_, rc_, ...) kv_err_set((err_), (rc_), __func__, __LINE__, __VA_ARGS__)
/* Puts "what: " before the text of a recorded error (to name the file or row it came from). */
void kv_err_prefix(kv_err *err, const char *fmt, ...) KV_PRINTF(2, 3);
/* Forgets the recorded error. */
void kv_err_clear(kv_err *err);
/* "KV_EFORMAT" and so on; never NULL. */
const char *kv_rc_name(kv_rc rc);

#define KV_TRY(rc_, label_, call_)                                                                                     \
    do {                                                                                                               \
        (rc_) = (call_);                                                                                               \
        if ((rc_) != KV_OK) goto label_;                                                                               \
    } while (0)

/* count * size bytes, zeroed; NULL when memory is out or the product does not fit.
 * count or size 0 gives a unique pointer. Free with kv_free. */
void *kv_alloc(size_t count, size_t size) KV_MUST_USE;
/* Grows p to count * size bytes; on NULL p is still valid. */
void *kv_realloc(void *p, size_t count, size_t size) KV_MUST_USE;
/* Like kv_alloc, 64-byte aligned and not zeroed: for images. Free with kv_free. */
void *kv_alloc_image(size_t bytes) KV_MUST_USE;
void kv_free(void *p);
/* Copy of a string, NULL when memory is out. */
char *kv_strdup(const char *s) KV_MUST_USE;
/* Tests: the n-th allocation from now on fails (0 = the next one), n < 0 switches it off. */
void kv_alloc_fail_after(long n);

/* Sizes: *out is set only when the result fits. */
static inline bool kv_mul_i64(int64_t a, int64_t b, int64_t *out)
{
    int64_t r;
    if (__builtin_mul_overflow(a, b, &r)) return false;
    *out = r;
    return true;
}
static inline bool kv_add_i64(int64_t a, int64_t b, int64_t *out)
{
    int64_t r;
    if (__builtin_add_overflow(a, b, &r)) return false;
    *out = r;
    return true;
}

/* Whole text as a decimal integer in [least, most]; no blanks, no sign but '-', no leading '+'. */
bool kv_parse_i64(const char *text, int64_t least, int64_t most, int64_t *out);
/* The same for unsigned 64 bits. */
bool kv_parse_u64(const char *text, uint64_t *out);

/* A growable byte string. Initialise with {0}; data is NUL-terminated past len when not NULL. */
typedef struct {
    char *data;
    size_t len;
    size_t cap;
} kv_buf;
kv_rc kv_buf_append(kv_buf *b, const void *bytes, size_t n, kv_err *err) KV_MUST_USE;
kv_rc kv_buf_puts(kv_buf *b, const char *s, kv_err *err) KV_MUST_USE;
kv_rc kv_buf_printf(kv_buf *b, kv_err *err, const char *fmt, ...) KV_PRINTF(3, 4) KV_MUST_USE;
void kv_buf_free(kv_buf *b); /* also resets to {0} */

#ifdef __cplusplus
}
#endif
#endif
