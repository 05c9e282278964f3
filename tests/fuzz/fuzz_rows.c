/* The row file of a certificate: any bytes, declared as they are. The reader takes them only where every line is a canonical
 * object; then writing the rows again gives the same bytes. The verifier meets the same file beside KV_FUZZ_BASE. */
#include "base/kv_file.h"
#include "certs/kv_json.h"
#include "certs/kv_rows.h"
#include "certs/kv_verify.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef KV_FUZZ_BASE
#define KV_FUZZ_BASE "tests/fuzz/corpus/certificate/small.json"
#endif

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds)
{
    if (!holds) abort();
}

/* A folder of this process, in memory where there is such a place. */
static char cert_path[64], rows_path[80];
static void name_files(void)
{
    char dir[] = "/dev/shm/fuzz_rows.XXXXXX";
    if (cert_path[0] != '\0') return;
    if (mkdtemp(dir) == NULL) must(mkdtemp(memcpy(dir, "/tmp/fuzz_rows.XXXXXX", 22)) != NULL);
    snprintf(cert_path, sizeof cert_path, "%s/c", dir);
    snprintf(rows_path, sizeof rows_path, "%s" KV_ROWS_SUFFIX, cert_path);
}

static void put_file(const uint8_t *data, size_t size)
{
    FILE *f = fopen(rows_path, "w");
    must(f != NULL && fwrite(data, 1, size, f) == size);
    must(fclose(f) == 0);
}

static json_t *base_document(void)
{
    static json_t *base;
    if (base == NULL) must(kv_json_parse_file(KV_FUZZ_BASE, 1 << 20, &base, NULL) == KV_OK);
    return base;
}

/* The base document with these bytes declared as its rows. */
static json_t *document_of(const uint8_t *data, size_t size)
{
    kv_merkle m = {0};
    char root[KV_HASH_HEX];
    for (size_t at = 0; at < size;) {
        const uint8_t *end = memchr(data + at, '\n', size - at);
        if (end == NULL) break;
        kv_merkle_add(&m, data + at, (size_t)(end - data) - at);
        at = (size_t)(end - data) + 1;
    }
    kv_merkle_root(&m, root);
    json_t *doc = json_copy(base_document());
    json_object_set_new(doc, "rows", json_array());
    json_object_set_new(
        doc, "rows_file",
        json_pack("{s:I,s:I,s:s}", "count", (json_int_t)m.count, "bytes", (json_int_t)size, "merkle_root", root));
    return doc;
}

static void read_back(const json_t *doc, const uint8_t *data, size_t size)
{
    kv_buf again = {0};
    kv_rows *r = NULL;
    const json_t *row = NULL;
    kv_err err = {0};
    kv_rc rc = kv_rows_open(doc, cert_path, &r, &err);
    must(rc == KV_OK && kv_rows_in_file(r));
    do {
        rc = kv_rows_next(r, &row, &err);
        if (rc != KV_OK || row == NULL) break;
        must(kv_json_write(row, &again, NULL) == KV_OK && kv_buf_puts(&again, "\n", NULL) == KV_OK);
    } while (row != NULL);
    must(rc == KV_OK || (rc == KV_EFORMAT && err.text[0] != '\0')); /* the declaration is right */
    if (rc == KV_OK) must(again.len == size && (size == 0 || memcmp(again.data, data, size) == 0));
    kv_rows_close(r);
    kv_buf_free(&again);
}

static void verify(const json_t *doc)
{
    static const char *const checks[] = {"reference_sequence_not_degenerate", "token_class_is_unread_padding", NULL};
    static const kv_cert_control controls[] = {{"reinterpreting_translator", "NOT_EXACT"}, {NULL, NULL}};
    static const char *const limits[] = {"made_up_engine_is_graded_like_a_real_one", NULL};
    static const kv_cert_required few = {checks, controls, limits};
    const kv_verify_opts opts = {.required = &few, .path = cert_path};
    kv_buf text = {0};
    kv_verify_report r = {0};
    must(kv_json_write(doc, &text, NULL) == KV_OK);
    must(kv_verify_bytes(text.data, text.len, NULL, &opts, &r, NULL) == KV_OK);
    must(r.exit_code == 1 || r.exit_code == 3); /* no trust is given */
    kv_verify_report_free(&r);
    kv_buf_free(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    name_files();
    put_file(data, size);
    json_t *doc = document_of(data, size);
    read_back(doc, data, size);
    verify(doc);
    json_decref(doc);
    return 0;
}
