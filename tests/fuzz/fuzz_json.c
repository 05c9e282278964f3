/* The strict JSON reader: any bytes. What it accepts must survive canonical form and back. */
#include "certs/kv_hash.h"
#include "certs/kv_json.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds)
{
    if (!holds) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *first = NULL, *second = NULL;
    kv_buf text = {0}, again = {0};
    char a[KV_HASH_HEX], b[KV_HASH_HEX];
    kv_err err = {0};
    if (kv_json_parse(data, size, 1 << 20, &first, &err) != KV_OK) {
        must(err.text[0] != '\0' && strstr(err.text, "byte ") != NULL);
        return 0;
    }
    must(kv_json_write(first, &text, NULL) == KV_OK);
    must(kv_json_parse(text.data, text.len, text.len, &second, NULL) == KV_OK);
    must(json_equal(first, second) == 1);
    must(kv_json_check_canonical(second, text.data, text.len, NULL) == KV_OK);
    must(kv_json_write(second, &again, NULL) == KV_OK);
    must(again.len == text.len && memcmp(again.data, text.data, text.len) == 0);
    must(kv_hash_json(first, NULL, a, NULL) == KV_OK);
    kv_hash_hex(text.data, text.len, b);
    must(strcmp(a, b) == 0);
    if (kv_json_check_canonical(first, data, size, NULL) == KV_OK)
        must(size == text.len && memcmp(data, text.data, size) == 0);
    json_decref(first);
    json_decref(second);
    kv_buf_free(&text);
    kv_buf_free(&again);
    return 0;
}
