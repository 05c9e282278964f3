/* The layout loader: any bytes. What it accepts must bind, or say why not, and keep the laws of the index algebra
 * at a small geometry. */
#include "layouts/kv_layout.h"
#include "layouts/kv_layout_json.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds)
{
    if (!holds) abort();
}

/* inverse, forward and walk agree at the first positions */
static void check_laws(const kv_index *ix)
{
    kv_walk w;
    kv_walk_start(&w);
    for (int64_t p = 0; p < ix->native && p < 4096; p++, kv_walk_next(ix, &w)) {
        kv_coord c, walked;
        const int holds = kv_index_inverse(ix, p, &c);
        must(w.position == p && kv_walk_coord(ix, &w, &walked) == holds);
        if (holds) must(kv_index_forward(ix, &c) == p && memcmp(&c, &walked, sizeof c) == 0);
    }
}

static void check_layout(const kv_layout *l)
{
    static const int64_t tokens[] = {0, 1, 17}, heads[] = {1, 2}, dims[] = {1, 6, 16};
    for (size_t t = 0; t < 3; t++)
        for (size_t h = 0; h < 2; h++)
            for (size_t d = 0; d < 3; d++) {
                const kv_geometry g = {2, tokens[t], heads[h], dims[d], d == 1 ? 4 : dims[d], KV_ELEM_F16};
                kv_index ix;
                kv_bind_state state;
                char reason[KV_REASON_TEXT];
                kv_err err = {0};
                if (kv_layout_bind(l, &g, kv_pair_unit_layers(l, l, &g), &ix, &state, reason, &err) != KV_OK) {
                    must(err.text[0] != '\0');
                    continue;
                }
                must((state == KV_BIND_OK) == (reason[0] == '\0'));
                if (state == KV_BIND_OK) check_laws(&ix);
            }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *v = NULL;
    kv_layout *l = NULL;
    kv_err err = {0};
    if (kv_json_load_strict((const char *)data, size, "fuzz", &v, &err) == KV_OK &&
        kv_layout_new(v, "fuzz", &l, &err) == KV_OK)
        check_layout(l);
    else
        must(err.text[0] != '\0' && strchr(err.text, '\n') == NULL);
    kv_layout_free(l);
    json_decref(v);
    return 0;
}
