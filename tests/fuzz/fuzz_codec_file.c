/* Stored caches: any bytes as a file, once as they are and once with a digest that is right. What opens decodes, or says
 * which slot is bad. */
#include "grid/codec/kv_codec_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds)
{
    if (!holds) abort();
}

/* A file of this process, in memory where there is such a place. */
static const char *file_name(void)
{
    static char path[64];
    char dir[] = "/dev/shm/fuzz_codec.XXXXXX";
    if (path[0] != '\0') return path;
    if (mkdtemp(dir) == NULL) must(mkdtemp(memcpy(dir, "/tmp/fuzz_codec.XXXXXX", 23)) != NULL);
    snprintf(path, sizeof path, "%s/c", dir);
    return path;
}

static void put_file(const uint8_t *data, size_t size, bool right_digest)
{
    FILE *f = fopen(file_name(), "w");
    uint8_t digest[KV_HASH_BYTES];
    must(f != NULL);
    if (right_digest && size >= sizeof digest) {
        kv_hash_bytes(data, size - sizeof digest, digest);
        must(fwrite(data, 1, size - sizeof digest, f) == size - sizeof digest);
        must(fwrite(digest, 1, sizeof digest, f) == sizeof digest);
    } else {
        must(fwrite(data, 1, size, f) == size);
    }
    must(fclose(f) == 0);
}

static kv_rc decode_plane(kv_codec_reader *r, kv_codec_stream *s, int32_t layer, int32_t half, kv_err *err)
{
    const kv_codec_facts *f = kv_codec_reader_facts(r);
    const int64_t floats = f->geometry.kv_heads * f->config.half[half].slot.params.dim;
    float *x = malloc((size_t)floats * sizeof *x);
    must(x != NULL);
    kv_rc rc = kv_codec_reader_plane(r, s, 0, layer, half, err);
    for (int64_t t = 0; rc == KV_OK && t < f->geometry.tokens && t < 64; t++)
        rc = kv_codec_stream_get(s, 0, layer, half, t, 1, x, err);
    kv_codec_stream_drop(s, 0);
    free(x);
    return rc;
}

static void read_file(void)
{
    kv_codec_reader *r = NULL;
    kv_codec_stream *s = NULL;
    kv_err err = {0};
    kv_rc rc = kv_codec_reader_open(file_name(), &r, &err);
    if (rc == KV_OK) {
        const kv_codec_facts *f = kv_codec_reader_facts(r);
        rc = kv_codec_stream_new(&f->config, &s, &err);
        for (int32_t layer = 0; rc == KV_OK && layer < f->config.layers && layer < 8; layer++)
            for (int32_t half = 0; rc == KV_OK && half < KV_CODEC_HALVES; half++)
                if (f->config.has[half]) rc = decode_plane(r, s, layer, half, &err);
    }
    must(rc == KV_OK ||
         ((rc == KV_EFORMAT || rc == KV_ENOMEM) && err.text[0] != '\0' && strchr(err.text, '\n') == NULL));
    kv_codec_stream_free(s);
    kv_codec_reader_close(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    put_file(data, size, true);
    read_file();
    if (size % 16 != 0) return 0;
    put_file(data, size, false);
    read_file();
    return 0;
}
