/* The campaign reader over the built-in layouts: any bytes. What it accepts must expand to cells in order, pack and
 * unpack to the same cells. Campaigns of more than some thousand cells are not expanded twice. */
#include "grid/campaign/kv_builtin.h"
#include "grid/campaign/kv_campaign.h"
#include "grid/campaign/kv_write_out.h"
#include "layouts/kv_layout_json.h"

#include <stdlib.h>
#include <string.h>

#define CELLS_MAX 4096

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds)
{
    if (!holds) abort();
}

static const kv_catalogue *layouts(void)
{
    static kv_catalogue all;
    if (all.n == 0) must(kv_builtin_catalogue(&all, NULL) == KV_OK);
    return &all;
}

static void check_round_trip(const kv_campaign *c)
{
    kv_buf text = {0};
    kv_campaign again;
    memset(&again, 0, sizeof again);
    must(kv_campaign_pack(c, &text, NULL) == KV_OK);
    must(kv_campaign_unpack(text.data, text.len, &again, NULL) == KV_OK);
    must(again.n_cells == c->n_cells && memcmp(again.cells, c->cells, c->n_cells * sizeof *c->cells) == 0);
    kv_campaign_free(&again);
    kv_buf_free(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *spec = NULL;
    kv_campaign c;
    kv_err err = {0};
    memset(&c, 0, sizeof c);
    kv_catalogue all = *layouts(); /* borrowed: build takes copies */
    kv_rc rc = kv_json_load_strict((const char *)data, size, "fuzz", &spec, &err);
    if (rc == KV_OK && !json_is_object(spec)) rc = KV_FAIL(&err, KV_EFORMAT, "no object");
    if (rc == KV_OK) json_object_del(spec, "layouts");
    if (rc == KV_OK) rc = kv_write_out(spec, &all, "fuzz", &err);
    if (rc == KV_OK) rc = kv_campaign_build(spec, &all, "fuzz", &c, &err);
    if (rc != KV_OK)
        must(err.text[0] != '\0' && strchr(err.text, '\n') == NULL);
    else if (c.n_cells <= CELLS_MAX)
        check_round_trip(&c);
    kv_campaign_free(&c);
    json_decref(spec);
    return 0;
}
