/* safetensors files: any bytes. What is taken covers the data exactly, and written again says the same. */
#include "grid/codec/kv_safetensors.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds)
{
    if (!holds) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    kv_safetensors s = {0};
    kv_err err = {0};
    if (kv_safetensors_parse(data, size, &s, &err) == KV_OK) {
        int64_t at = 0;
        unsigned sum = 0;
        for (size_t i = 0; i < s.n; i++) {
            const kv_st_tensor *t = &s.tensor[i];
            int64_t bytes = kv_st_dtype_bytes(t->dtype);
            for (int d = 0; d < t->dims; d++) bytes *= t->shape[d];
            must(bytes == t->bytes && t->offset == at);
            for (int64_t b = 0; b < bytes; b++) sum += s.data[t->offset + b];
            at += bytes;
            must(kv_safetensors_find(&s, t->name) != NULL);
        }
        must(at == s.data_bytes && s.data + at == data + size && sum <= 255 * size);
    } else {
        must(err.rc == KV_EFORMAT && err.text[0] != '\0' && strchr(err.text, '\n') == NULL);
    }
    kv_safetensors_free(&s);
    return 0;
}
