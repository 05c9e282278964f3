#include "grid/campaign/kv_params.h"

#include <stdio.h>
#include <string.h>

#include "certs/kv_hash.h"

#define VALUE_WHOLE 80 /* longest value that stands as it is: "file:" and a name of 64 do */
#define VALUE_BEGINS 40

/* ",key=value" behind what is there; whether it fits. */
static bool print_param(char *out, size_t *at, const char *key, const char *value)
{
    char hex[KV_HASH_HEX];
    const size_t length = strlen(value), room = KV_PARAMS_TEXT - *at;
    int n;
    if (length <= VALUE_WHOLE) {
        n = snprintf(out + *at, room, ",%s=%s", key, value);
    } else {
        kv_hash_hex(value, length, hex);
        n = snprintf(out + *at, room, ",%s=%.*s...#%.16s", key, VALUE_BEGINS, value, hex);
    }
    if (n < 0 || (size_t)n >= room) return false;
    *at += (size_t)n;
    return true;
}

void kv_params_print(const json_t *params, char out[KV_PARAMS_TEXT])
{
    size_t at = 0;
    const char *key;
    json_t *value;
    out[0] = '\0';
    json_object_foreach((json_t *)(uintptr_t)params, key, value)
    {
        if (print_param(out, &at, key, json_string_value(value))) continue;
        char hex[KV_HASH_HEX] = "";
        if (kv_hash_json(params, NULL, hex, NULL) == KV_OK) snprintf(out + KV_PARAMS_TEXT - 24, 24, "...#%.16s", hex);
        return;
    }
}
