/* kernels: what one compute device does for a cell. A device is a table of operations over images it
 * owns; the CPU backend (kv_kern_cpu.c) is the reference, a GPU backend implements the same table.
 *
 * An image is `bytes` bytes of device memory with KV_GUARD_BYTES of a known pattern on both sides.
 * Counts are elements (positions), not bytes, unless the name says _bytes. No operation keeps a
 * pointer to its arguments. Errors: KV_ENOMEM, KV_EDEVICE; outputs are set only on KV_OK. */
#ifndef KV_KERN_H
#define KV_KERN_H

#include "base/kv_base.h"
#include "kernels/kv_kern_payload.h"
#include "layouts/kv_layout_index.h"

#define KV_GUARD_BYTES 64
#define KV_DECODE_STEPS 8
#define KV_VOCABULARY 64
#define KV_WAVES 2       /* that may be under way */
#define KV_WAVE_CELLS 64 /* at most in one */

typedef struct kv_device kv_device;
typedef struct kv_image kv_image;
typedef struct kv_codec_ops kv_codec_ops; /* kernels/codec/kv_codec_batch.h */

/* Result of the index probe of one native space. */
typedef struct {
    int64_t checked;      /* positions walked */
    int64_t padding;      /* of them, positions that hold no element */
    int64_t bad;          /* positions where forward(inverse(p)) != p, the walk disagrees, or an element is hit twice */
    int64_t first_bad;    /* -1 if none */
    int64_t elements_hit; /* canonical elements hit exactly once */
} kv_probe_result;

/* Result of looking at an image's guards. */
typedef struct {
    int32_t before; /* how far before the image the furthest overwritten byte lies, 0 if none */
    int32_t after;  /* number of the first overwritten byte past its end, -1 if none */
} kv_guards_result;

/* Result of comparing two images of one layout. */
typedef struct {
    int64_t differing;  /* positions whose bits differ */
    int64_t first;      /* first such position, -1 if none */
    uint32_t got, want; /* bits there */
} kv_compare_result;

/* Result of collecting round-trip differences over the payloads of a unit. */
typedef struct {
    int64_t differing;       /* positions that differed for at least one payload */
    int64_t outside_padding; /* of them, positions that hold an element */
    int64_t first_outside;   /* -1 if none */
} kv_diffset_result;

/* How far a conversion moved the values (token payload, source image against translated image). */
typedef struct {
    bool preserved;    /* every value is the same number */
    bool finite;       /* every value on both sides is finite and no source value is 0 */
    int64_t worst_ppm; /* largest |difference| / |source value| in parts per million, rounded */
} kv_drift_result;

/* Positions that differed for some payload: a bit for each position of one unit. Opaque, host or device. */
typedef struct kv_diffset kv_diffset;

/* Tokens and logits of one layer's decode. */
typedef struct {
    int32_t tokens[KV_DECODE_STEPS];
    uint32_t logits[KV_DECODE_STEPS * KV_VOCABULARY]; /* float32 bits, NaN as 0x7FC00000 */
} kv_decode_result;

/* Tokens of a layer of which an index holds a part: it is bound to [first, first + ix->tokens) of `tokens`. */
typedef struct {
    int64_t first, tokens;
} kv_window;

/* How much later element n of a window (kv_index_place) stands in the dense layer, K [tokens][H][D], then V [tokens][H][Dv]. */
KV_HD int64_t kv_dense_shift(const kv_index *ix, const kv_window *w, int64_t kv)
{
    const int64_t k = ix->heads * ix->lanes[0], v = ix->heads * ix->lanes[1];
    return kv == 0 ? w->first * k : (w->tokens - ix->tokens) * k + w->first * v;
}

/* ---- the table ------------------------------------------------------------------------- */

typedef struct {
    const char *kind; /* "cpu", "cuda", "emulated" */

    kv_rc (*image_new)(kv_device *d, int64_t capacity_bytes, kv_image **out, kv_err *err);
    void (*image_free)(kv_device *d, kv_image *im);
    /* Sets the size in use (<= capacity), fills it with poison that depends on `round`, renews the guards. */
    kv_rc (*poison)(kv_device *d, kv_image *im, int64_t bytes, uint32_t round, kv_err *err);
    kv_rc (*guards)(kv_device *d, const kv_image *im, kv_guards_result *out, kv_err *err);

    /* The image that layout ix would build itself from payload p: each element is the payload's bits converted to
     * `via` and then to the image's element type; padding holds `pad` bits. Walks the factors digit by digit. */
    kv_rc (*build)(kv_device *d, kv_image *im, const kv_index *ix, const kv_payload *p, int32_t via, uint32_t pad,
                   kv_err *err);
    /* src image in layout s to dst image in layout t (same canonical tensor); padding of dst gets `fill` bits.
     * Strides and tiles; writes every position of dst exactly once. */
    kv_rc (*translate)(kv_device *d, const kv_index *s, const kv_image *src, const kv_index *t, kv_image *dst,
                       uint32_t fill, kv_err *err);

    kv_rc (*probe)(kv_device *d, const kv_index *ix, kv_probe_result *out, kv_err *err);
    kv_rc (*compare)(kv_device *d, const kv_index *ix, const kv_image *got, const kv_image *want,
                     kv_compare_result *out, kv_err *err);

    kv_rc (*diffset_new)(kv_device *d, const kv_index *ix, kv_diffset **out, kv_err *err);
    void (*diffset_free)(kv_device *d, kv_diffset *s);
    /* Adds the positions at which the two images differ. */
    kv_rc (*diffset_add)(kv_device *d, kv_diffset *s, const kv_image *got, const kv_image *want, kv_err *err);
    /* Counts, and empties the set for the next unit. */
    kv_rc (*diffset_take)(kv_device *d, kv_diffset *s, kv_diffset_result *out, kv_err *err);

    /* Values of t's image against s's, element by element. */
    kv_rc (*drift)(kv_device *d, const kv_index *s, const kv_image *src, const kv_index *t, const kv_image *dst,
                   kv_drift_result *out, kv_err *err);

    /* The token leg in two steps, for layers that are at hand a window of tokens at a time. gather: the elements of a window
     * of one layer to their places in `dense`, an image with room for the whole dense layer: those of layer `layer` of the
     * unit through layout ix from im, or, where im is NULL, the canonical tensor itself from payload p (its first_layer and
     * first_token), heads held by ix. decode_dense: decodes the layer; ix is bound to all its tokens, `element` (kv_elem) is
     * that of ix's image or of p. */
    kv_rc (*gather)(kv_device *d, const kv_index *ix, const kv_image *im, const kv_payload *p, int64_t layer,
                    const kv_window *w, kv_image *dense, kv_err *err);
    kv_rc (*decode_dense)(kv_device *d, const kv_index *ix, int32_t element, const kv_image *dense,
                          uint64_t weight_seed, int64_t model_layer, kv_decode_result *out, kv_err *err);
    /* Both at once, ix bound to all tokens: layer `layer` of the unit; scratch has room for one layer's elements. */
    kv_rc (*decode)(kv_device *d, const kv_index *ix, const kv_image *im, int64_t layer, uint64_t weight_seed,
                    int64_t model_layer, kv_image *scratch, kv_decode_result *out, kv_err *err);
    /* The same decode over the canonical tensor itself, made from payload p (one layer: p->first_layer), heads held by ix. */
    kv_rc (*decode_reference)(kv_device *d, const kv_index *ix, const kv_payload *p, uint64_t weight_seed,
                              int64_t model_layer, kv_image *scratch, kv_decode_result *out, kv_err *err);

    /* The bytes in use to host memory; n bytes from there (n <= capacity), which are then in use. */
    kv_rc (*read)(kv_device *d, const kv_image *im, void *bytes, kv_err *err);
    kv_rc (*write)(kv_device *d, kv_image *im, const void *bytes, int64_t n, kv_err *err);

    /* Plain copy of the bytes in use: the yardstick of `kvgrid bench`. */
    kv_rc (*copy)(kv_device *d, const kv_image *src, kv_image *dst, kv_err *err);
    /* Waits until all that was asked for is done: what gives no result may only be queued. KV_EDEVICE where some of it
     * failed. Every operation with a result does the same first. */
    kv_rc (*finish)(kv_device *d, kv_err *err);
    void (*close)(kv_device *d);

    /* Waves, NULL where a device gives every result at once. A wave is some cells whose operations are queued together: in
     * their order within a cell, in none between cells, and what gives a result gives it late, for *out is set by wave_wait;
     * until then it, the images and the sets must live. With one cell operations go to the device as they come, with several
     * when the wave is sent, those that are alike in one launch; `finish` then waits for
     * the wave of the current cell. Not for `read`, `write`, `copy` and the codec.
     * wave_open: 0 <= wave < KV_WAVES, not under way; 1 <= cells <= KV_WAVE_CELLS. */
    kv_rc (*wave_open)(kv_device *d, int32_t wave, int32_t cells, kv_err *err);
    /* What follows belongs to that cell; with wave -1 to none, and its results come at once. */
    void (*wave_cell)(kv_device *d, int32_t wave, int32_t cell);
    kv_rc (*wave_send)(kv_device *d, int32_t wave, kv_err *err);
    /* Ends the wave. KV_OK: all its results are set. An error, also one of an operation before, means that none is. */
    kv_rc (*wave_wait)(kv_device *d, int32_t wave, kv_err *err);

    const kv_codec_ops *codec; /* batches of the lossy codec */
} kv_device_ops;

struct kv_device {
    const kv_device_ops *ops;
};

/* The CPU backend, one core. Close with dev->ops->close(dev). */
kv_rc kv_device_cpu_new(kv_device **out, kv_err *err) KV_MUST_USE;

/* Bytes that an image of ix holds. */
KV_HD int64_t kv_index_bytes(const kv_index *ix)
{
    return ix->native * kv_elem_bytes((kv_elem)ix->element);
}

/* Whether both guards stand. */
KV_HD bool kv_guards_whole(const kv_guards_result *g)
{
    return g->before == 0 && g->after < 0;
}
/* KV_EDEVICE if a guard byte changed; the text says which side. */
kv_rc kv_check_guards(kv_device *d, const kv_image *im, kv_err *err) KV_MUST_USE;

/* Read-only view of an image's bytes for tests and files; NULL where the device's memory is not the host's. */
void *kv_image_host_view(kv_image *im);

#endif
