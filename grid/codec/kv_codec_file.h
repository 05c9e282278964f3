/* Stored caches: what `kvgrid codec store` writes and `codec decode` reads (docs/codec.md, "The file").
 *
 *   8 bytes "KVCODEC1", 8 bytes little-endian length of the header, the header (canonical JSON), the planes (one for each
 *   layer and half, in that order: sealed bytes of all lanes, then the rows that are not sealed), 32 bytes BLAKE2b-256 of
 *   all before.
 *
 * The header says recipe, geometry and parameters; every size and offset follows from it and is checked against it. */
#ifndef KV_CODEC_FILE_H
#define KV_CODEC_FILE_H

#include "certs/kv_hash.h"
#include "kernels/codec/kv_codec_stream.h"
#include "layouts/kv_geometry.h"

#define KV_CODEC_FILE_MAGIC "KVCODEC1"
#define KV_CODEC_FILE_FORMAT "kvgrid.codec/v1"

typedef struct {
    int32_t recipe;
    kv_geometry geometry;
    kv_codec_stream_config config; /* skip points to the array below; whiten is the caller's */
    bool *skip;                    /* [layers], owned */
    char whiten[KV_HASH_HEX];      /* digest of the factor file; empty: no factors */
    char solver[16];               /* "own", "exact", "randomized" */
} kv_codec_facts;
void kv_codec_facts_free(kv_codec_facts *f); /* also resets to {0} */
/* Bytes of one plane: sealed and not, as they stand in the file. */
kv_rc kv_codec_facts_plane(const kv_codec_facts *f, int32_t layer, int32_t half, int64_t *bytes, kv_err *err)
    KV_MUST_USE;

/* ---- writing ---------------------------------------------------------------------------- */

typedef struct kv_codec_writer kv_codec_writer;
/* Facts are borrowed until the close. KV_EWRITE, KV_EINVAL. */
kv_rc kv_codec_writer_open(const char *path, const kv_codec_facts *f, kv_codec_writer **out, kv_err *err) KV_MUST_USE;
/* The next plane (layers ascending, K before V), finished in the stream under this sequence. */
kv_rc kv_codec_writer_plane(kv_codec_writer *w, const kv_codec_stream *s, uint64_t sequence, int32_t layer,
                            int32_t half, kv_err *err) KV_MUST_USE;
/* Where rc is KV_OK and all planes were written: the file appears. Else nothing does. Frees w. */
kv_rc kv_codec_writer_close(kv_codec_writer *w, kv_rc rc, kv_err *err) KV_MUST_USE;

/* ---- reading ---------------------------------------------------------------------------- */

typedef struct kv_codec_reader kv_codec_reader;
/* Hostile bytes: magic, header, sizes and digest are checked here, slots when they are decoded. KV_EREAD, KV_EFORMAT,
 * both with the path. */
kv_rc kv_codec_reader_open(const char *path, kv_codec_reader **out, kv_err *err) KV_MUST_USE;
const kv_codec_facts *kv_codec_reader_facts(const kv_codec_reader *r);
int64_t kv_codec_reader_bytes(const kv_codec_reader *r); /* of the whole file */
/* Loads a plane into a stream of the facts' configuration. */
kv_rc kv_codec_reader_plane(kv_codec_reader *r, kv_codec_stream *s, uint64_t sequence, int32_t layer, int32_t half,
                            kv_err *err) KV_MUST_USE;
void kv_codec_reader_close(kv_codec_reader *r);

/* ---- the header, for both --------------------------------------------------------------- */

json_t *kv_codec_facts_json_new(const kv_codec_facts *f) KV_MUST_USE; /* NULL: no memory */
/* KV_EFORMAT names the key. The caller frees *out whatever happened. */
kv_rc kv_codec_facts_read(const json_t *v, kv_codec_facts *out, kv_err *err) KV_MUST_USE;

#endif
