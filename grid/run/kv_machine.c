#include "grid/run/kv_machine.h"

#include <stdio.h>
#include <string.h>
#ifdef __GLIBC__ /* features.h came with the above */
#include <gnu/libc-version.h>
#endif

#include "base/kv_file.h"
#include "certs/kv_hash.h"
#include "certs/kv_json.h"
#include "grid/cell/kv_fault.h"
#include "grid/run/kv_differences.h"
#include "kv_source.h"
#include "tp/kv_tp.h"

#define FACT 192

/* Bytes that are no printable ASCII become `instead`. */
static void make_plain(char *text, char instead)
{
    for (char *c = text; *c != '\0'; c++)
        if ((unsigned char)*c < 0x20 || (unsigned char)*c > 0x7E) *c = instead;
}

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
    make_plain(out, '?');
}

/* ---- what a rank stands on -------------------------------------------------------------- */

/* The version line of the GPU driver, "none" where there is no such driver. */
static void driver_of(char out[FACT])
{
    FILE *f = fopen("/proc/driver/nvidia/version", "r");
    if (f == NULL || fgets(out, FACT, f) == NULL) snprintf(out, FACT, "none");
    if (f != NULL) fclose(f);
    out[strcspn(out, "\n")] = '\0';
}

/* The program's own bytes: two builds of one source differ here. */
static void program_of(char out[FACT])
{
    kv_buf bytes = {0};
    char digest[KV_HASH_HEX];
    snprintf(out, FACT, "unknown");
    if (kv_file_read("/proc/self/exe", (size_t)1 << 28, &bytes, NULL) == KV_OK) {
        kv_hash_hex(bytes.data, bytes.len, digest);
        snprintf(out, FACT, "%.16s", digest);
    }
    kv_buf_free(&bytes);
}

static const char *libc_version(void)
{
#ifdef __GLIBC__
    return gnu_get_libc_version();
#else
    return "unknown";
#endif
}

static json_t *versions_new(const kv_mpi *m)
{
    enum { KVGRID, SOURCE, PROGRAM, COMPILER, LIBC, MPI, JANSSON, CUDA, NCCL, DRIVER, FACTS };
    static const char *const keys[FACTS] = {"kvgrid", "source",  "program", "compiler", "libc",
                                            "mpi",    "jansson", "cuda",    "nccl",     "driver"};
    char fact[FACTS][FACT];
    json_t *v = json_object();
    snprintf(fact[KVGRID], FACT, "%s", KV_SOURCE_VERSION);
    snprintf(fact[SOURCE], FACT, "%.40s%s %s", KV_SOURCE_COMMIT, KV_SOURCE_DIRTY ? " (changed)" : "", KV_SOURCE_FLAGS);
    program_of(fact[PROGRAM]);
    snprintf(fact[COMPILER], FACT, "%s", __VERSION__);
    snprintf(fact[LIBC], FACT, "%s", libc_version());
    snprintf(fact[MPI], FACT, "%.100s", kv_mpi_version_view(m));
    snprintf(fact[JANSSON], FACT, "%s", jansson_version_str());
    snprintf(fact[NCCL], FACT, "%s", kv_tp_nccl_version());
    (void)kv_cuda_versions(fact[CUDA], FACT);
    driver_of(fact[DRIVER]);
    for (int i = 0; v != NULL && i < FACTS; i++) {
        kv_fault_fact(kv_mpi_rank(m), keys[i], fact[i], FACT);
        make_plain(fact[i], ' ');
        if (json_object_set_new(v, keys[i], json_string(fact[i])) == 0) continue;
        json_decref(v);
        v = NULL;
    }
    return v;
}

/* {entry, versions} of this rank as text; the entry is the one in run.devices. */
static kv_rc describe(const kv_mpi *m, const kv_chosen *on, kv_buf *out, kv_err *err)
{
    char name[256];
    kv_machine_cpu(name, sizeof name);
    if (*on->gpu.uuid != '\0') snprintf(name, sizeof name, "%s", on->gpu.name);
    make_plain(name, '?');
    json_t *versions = versions_new(m);
    json_t *entry =
        json_pack("{s:i,s:s,s:s,s:s,s:s*}", "rank", kv_mpi_rank(m), "host", kv_mpi_host_view(m, kv_mpi_rank(m)),
                  "device", on->dev->ops->kind, "name", name, "uuid", *on->gpu.uuid != '\0' ? on->gpu.uuid : NULL);
    json_t *v = json_pack("{s:O?,s:O?}", "entry", entry, "versions", versions);
    const kv_rc rc = v != NULL && entry != NULL && versions != NULL ? kv_json_write(v, out, err)
                                                                    : KV_FAIL(err, KV_ENOMEM, "no memory for versions");
    json_decref(entry);
    json_decref(versions);
    json_decref(v);
    return rc;
}

/* ---- all ranks -------------------------------------------------------------------------- */

/* Rank 0: texts[r] is what rank r said. */
static kv_rc join(const kv_mpi *m, const kv_buf *texts, kv_machines *out, kv_err *err)
{
    const int size = kv_mpi_size(m);
    json_t *said = json_array();
    kv_stands_on *who = kv_alloc((size_t)size, sizeof *who);
    kv_rc rc = KV_OK;
    out->devices = json_array();
    out->differences = json_array();
    if (said == NULL || who == NULL || out->devices == NULL || out->differences == NULL)
        rc = KV_FAIL(err, KV_ENOMEM, "no memory for the facts of %d ranks", size);
    for (int r = 0; rc == KV_OK && r < size; r++) {
        json_t *one = NULL;
        KV_TRY(rc, out, kv_json_parse(texts[r].data, texts[r].len, KV_MPI_TEXT_BYTES_MAX, &one, err));
        who[r] = (kv_stands_on){json_object_get(one, "versions"), r, kv_mpi_host_view(m, r), NULL};
        if (json_array_append_new(said, one) != 0 ||
            json_array_append(out->devices, json_object_get(one, "entry")) != 0)
            rc = KV_FAIL(err, KV_ENOMEM, "no memory for the facts of %d ranks", size);
    }
    if (rc == KV_OK) rc = kv_differences_find(who, (size_t)size, out->differences, err);
    if (rc == KV_OK) out->versions = json_incref((json_t *)(uintptr_t)who[0].versions);
out:
    json_decref(said);
    kv_free(who);
    return rc;
}

kv_rc kv_machine_gather(kv_mpi *m, const kv_chosen *on, kv_machines *out, kv_err *err)
{
    const bool root = kv_mpi_rank(m) == 0;
    const int size = kv_mpi_size(m);
    kv_buf own = {0}, *texts = root ? kv_alloc((size_t)size, sizeof *texts) : NULL;
    kv_rc rc = describe(m, on, &own, err);
    if (rc == KV_OK && root && texts == NULL) rc = KV_FAIL(err, KV_ENOMEM, "no memory for the facts of %d ranks", size);
    KV_TRY(rc, out, kv_mpi_agree(m, rc, err));
    KV_TRY(rc, out, kv_mpi_gather_texts(m, own.data, own.len, texts, err));
    if (root) rc = join(m, texts, out, err);
    if (root && rc == KV_OK) kv_differences_say(out->differences, 0);
out:
    for (int r = 0; texts != NULL && r < size; r++) kv_buf_free(&texts[r]);
    kv_free(texts);
    kv_buf_free(&own);
    return rc;
}

void kv_machines_free(kv_machines *machines)
{
    json_decref(machines->devices);
    json_decref(machines->versions);
    json_decref(machines->differences);
    *machines = (kv_machines){NULL, NULL, NULL};
}
