#include "grid/kv_machine.h"

#include <stdio.h>
#include <string.h>

#include "kv_source.h"
#include "tp/kv_tp.h"

void kv_machine_cpu(char *out, size_t n)
{
    char line[512];
    FILE *f = fopen("/proc/cpuinfo", "r");
    snprintf(out, n, "unknown");
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || colon == NULL) continue;
        snprintf(out, n, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
        break;
    }
    if (f != NULL) fclose(f);
    for (char *c = out; *c != '\0'; c++)
        if ((unsigned char)*c < 0x20 || (unsigned char)*c > 0x7E) *c = '?';
}

static json_t *versions_new(const kv_mpi *m)
{
    char mpi[128];
    snprintf(mpi, sizeof mpi, "%.100s", kv_mpi_version_view(m));
    for (char *c = mpi; *c != '\0'; c++)
        if ((unsigned char)*c < 0x20 || (unsigned char)*c > 0x7E) *c = ' ';
    return json_pack("{s:s,s:s,s:s,s:s,s:s}", "kvgrid", KV_SOURCE_VERSION, "compiler", __VERSION__, "mpi", mpi,
                     "jansson", JANSSON_VERSION, "nccl", kv_tp_nccl_version());
}

kv_rc kv_machine_gather(kv_mpi *m, const kv_device *dev, json_t **devices, json_t **versions, kv_err *err)
{
    char name[256];
    const int size = kv_mpi_size(m);
    kv_rc rc = KV_OK;
    kv_machine_cpu(name, sizeof name);
    kv_buf *texts = kv_mpi_rank(m) == 0 ? kv_alloc((size_t)size, sizeof *texts) : NULL;
    if (kv_mpi_rank(m) == 0 && texts == NULL) rc = KV_FAIL(err, KV_ENOMEM, "no memory for %d device names", size);
    KV_TRY(rc, out, kv_mpi_agree(m, rc, err));
    KV_TRY(rc, out, kv_mpi_gather_texts(m, name, strlen(name) + 1, texts, err));
    if (texts == NULL) goto out;
    *devices = json_array();
    for (int r = 0; *devices != NULL && r < size; r++)
        json_array_append_new(*devices, json_pack("{s:i,s:s,s:s,s:s}", "rank", r, "host", kv_mpi_host_view(m, r),
                                                  "device", dev->ops->kind, "name", texts[r].data));
    *versions = versions_new(m);
    if (*devices == NULL || *versions == NULL) rc = KV_FAIL(err, KV_ENOMEM, "no memory for the facts of the run");
out:
    for (int r = 0; texts != NULL && r < size; r++) kv_buf_free(&texts[r]);
    kv_free(texts);
    return rc;
}
