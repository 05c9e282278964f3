/* subject and run: formats, and what of it the document itself can contradict. */
#include "certs/kv_verify_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- formats ---------------------------------------------------------------------------------- */

static bool malformed(kv_vf *v, const char *path, const char *expected, const json_t *value)
{
    char actual[KV_VF_TEXT];
    kv_vf_fault(v, KV_H0_DOCUMENT_UNREADABLE, path, expected, kv_vf_show(value, actual));
    return false;
}

/* The number in two digits, or -1. */
static int two_digits(const char *s)
{
    if (s[0] < '0' || s[0] > '9' || s[1] < '0' || s[1] > '9') return -1;
    return 10 * (s[0] - '0') + (s[1] - '0');
}

/* "YYYY-MM-DDTHH:MM:SSZ". */
static bool is_moment(const char *s)
{
    char day[11];
    if (strlen(s) != 20 || s[10] != 'T' || s[13] != ':' || s[16] != ':' || s[19] != 'Z') return false;
    snprintf(day, sizeof day, "%.10s", s);
    const int h = two_digits(s + 11), m = two_digits(s + 14), second = two_digits(s + 17);
    return kv_vf_is_date(day) && h >= 0 && h < 24 && m >= 0 && m < 60 && second >= 0 && second <= 60;
}

static bool is_subject_name(const char *s)
{
    const size_t n = strlen(s);
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] < 0x20 || (unsigned char)s[i] > 0x7E) return false;
    return n > 0 && n <= 512;
}

static bool is_sha256(const char *s)
{
    return strncmp(s, "sha256:", 7) == 0 && strlen(s) == 71 && strspn(s + 7, "0123456789abcdef") == 64;
}

static bool is_device(const char *s)
{
    return strcmp(s, "cpu") == 0 || strcmp(s, "cuda") == 0 || strcmp(s, "emulated") == 0;
}

#define TRANSPORTS 3
static const char *const transport[TRANSPORTS] = {"mpi", "nccl", "emulated"};

static bool is_transport(const char *s)
{
    size_t i = 0;
    while (i < TRANSPORTS && strcmp(s, transport[i]) != 0) i++;
    return i < TRANSPORTS;
}

bool kv_vf_formats(kv_vf *v)
{
    const json_t *subject = json_object_get(v->doc, "subject"), *run = json_object_get(v->doc, "run");
    const json_t *devices = json_object_get(run, "devices"), *started = json_object_get(run, "started");
    const json_t *transports = json_object_get(run, "transports");
    bool good = true;
    if (subject != NULL && !is_subject_name(kv_vf_string(subject, "name")))
        good = malformed(v, "$.subject.name", "1 to 512 printable ASCII characters", json_object_get(subject, "name"));
    if (subject != NULL && !is_sha256(kv_vf_string(subject, "digest")))
        good = malformed(v, "$.subject.digest", "sha256: and 64 lower-case hex digits",
                         json_object_get(subject, "digest"));
    if (!is_moment(json_string_value(started))) good = malformed(v, "$.run.started", "YYYY-MM-DDTHH:MM:SSZ", started);
    for (size_t i = 0; i < json_array_size(devices); i++) {
        const json_t *device = json_object_get(json_array_get(devices, i), "device");
        if (!is_device(json_string_value(device)))
            good = malformed(v, kv_vf_at(v, "$.run.devices[%zu].device", i), "cpu, cuda or emulated", device);
    }
    for (size_t i = 0; i < json_array_size(transports); i++)
        if (!is_transport(json_string_value(json_array_get(transports, i))))
            good = malformed(v, kv_vf_at(v, "$.run.transports[%zu]", i), "mpi, nccl or emulated",
                             json_array_get(transports, i));
    return good;
}

/* ---- ranks -------------------------------------------------------------------------------------- */

/* One device for each rank, in their order; those of a merged certificate begin with 0 again for each part. */
static void check_ranks(kv_vf *v, const json_t *run)
{
    char actual[KV_VF_TEXT];
    const json_t *devices = json_object_get(run, "devices");
    const size_t n = json_array_size(devices);
    const bool merged = json_object_get(run, "parts") != NULL;
    if (n == 0) kv_vf_fault(v, KV_H10_COUNTS_DO_NOT_RECOMPUTE, "$.run.devices", "at least one", "none");
    (void)kv_vf_want_int(v, KV_H10_COUNTS_DO_NOT_RECOMPUTE, "$.run.ranks", (int64_t)n, json_object_get(run, "ranks"));
    int64_t next = 0;
    for (size_t i = 0; i < n; i++) {
        const json_t *rank = json_object_get(json_array_get(devices, i), "rank");
        if (json_integer_value(rank) != next && !(merged && json_integer_value(rank) == 0)) {
            kv_vf_fault(v, KV_H10_COUNTS_DO_NOT_RECOMPUTE, kv_vf_at(v, "$.run.devices[%zu].rank", i),
                        "each rank once, in order", kv_vf_show(rank, actual));
            return;
        }
        next = json_integer_value(rank) + 1;
    }
}

/* ---- what moved the shards ------------------------------------------------------------------------ */

static size_t ranks_on(const json_t *run, const char *device)
{
    const json_t *devices = json_object_get(run, "devices");
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(devices); i++)
        n += device == NULL || strcmp(kv_vf_string(json_array_get(devices, i), "device"), device) == 0;
    return n;
}

/* Which of the names a text begins with, as a set: `end` follows the name. A text that begins with none has a bit of its own. */
static unsigned named(const json_t *texts, const char *end)
{
    unsigned set = 0;
    for (size_t k = 0; k < json_array_size(texts); k++) {
        const char *text = json_string_value(json_array_get(texts, k));
        size_t i = 0;
        while (i < TRANSPORTS && (strncmp(text, transport[i], strlen(transport[i])) != 0 ||
                                  strncmp(text + strlen(transport[i]), end, strlen(end)) != 0))
            i++;
        set |= 1U << i;
    }
    return set;
}

/* Only where the campaign moves shards, one a run: NCCL between GPUs, MPI between ranks. */
static void check_transports(kv_vf *v, const json_t *run)
{
    const json_t *transports = json_object_get(run, "transports"), *whys = json_object_get(run, "transports_why");
    const json_t *spec = json_object_get(json_object_get(v->doc, "campaign"), "spec");
    const bool merged = json_object_get(run, "parts") != NULL;
    const size_t n = json_array_size(transports);
    const kv_hcode h10 = KV_H10_COUNTS_DO_NOT_RECOMPUTE;
    char actual[KV_VF_TEXT];
    if (n > 0 && json_object_get(spec, "tp") == NULL)
        kv_vf_fault(v, h10, "$.run.transports", "none where the campaign has no tp", kv_vf_show(transports, actual));
    for (size_t i = 0; i < n; i++) {
        const char *name = json_string_value(json_array_get(transports, i));
        bool again = i > 0 && !merged;
        for (size_t k = 0; k < i; k++)
            again = again || json_equal(json_array_get(transports, k), json_array_get(transports, i));
        if (again)
            kv_vf_fault(v, h10, kv_vf_at(v, "$.run.transports[%zu]", i), "one transport of a run, of parts each once",
                        name);
        if (strcmp(name, "nccl") == 0 && ranks_on(run, "cuda") < 2)
            kv_vf_fault(v, h10, kv_vf_at(v, "$.run.transports[%zu]", i), "two ranks whose device is cuda", name);
        if (strcmp(name, "mpi") == 0 && ranks_on(run, NULL) < 2)
            kv_vf_fault(v, h10, kv_vf_at(v, "$.run.transports[%zu]", i), "two ranks", name);
    }
    if (whys != NULL && named(whys, ": ") != named(transports, ""))
        kv_vf_fault(v, h10, "$.run.transports_why", "\"TRANSPORT: REASON\" of each of run.transports, and no other",
                    kv_vf_show(whys, actual));
}

/* ---- bytes on the wire --------------------------------------------------------------------------- */

/* One entry for each rank, in their order: every rank received what it lacked and no more, and all that was sent was received.
 * A merged certificate has none: its parts count their ranks from 0 again. */
static void check_wire(kv_vf *v, const json_t *run)
{
    const json_t *wire = json_object_get(run, "wire");
    const size_t n = json_array_size(wire);
    char actual[KV_VF_TEXT];
    uint64_t sent = 0, received = 0;
    if (wire == NULL) return;
    snprintf(actual, sizeof actual, "%zu", n);
    if (json_object_get(run, "parts") != NULL || json_array_size(json_object_get(run, "transports")) == 0)
        kv_vf_fault(v, KV_H10_COUNTS_DO_NOT_RECOMPUTE, "$.run.wire",
                    "no such key where there are parts, or no transport", actual);
    else if (n == 0 || n != json_array_size(json_object_get(run, "devices")))
        kv_vf_fault(v, KV_H10_COUNTS_DO_NOT_RECOMPUTE, "$.run.wire", "one entry for each rank", actual);
    for (size_t i = 0; i < n; i++) {
        const json_t *entry = json_array_get(wire, i);
        sent += (uint64_t)kv_vf_number(entry, "sent");
        received += (uint64_t)kv_vf_number(entry, "received");
        (void)kv_vf_want_int(v, KV_H10_COUNTS_DO_NOT_RECOMPUTE, kv_vf_at(v, "$.run.wire[%zu].rank", i), (int64_t)i,
                             json_object_get(entry, "rank"));
        (void)kv_vf_want_int(v, KV_H10_COUNTS_DO_NOT_RECOMPUTE, kv_vf_at(v, "$.run.wire[%zu].received", i),
                             kv_vf_number(entry, "least"), json_object_get(entry, "received"));
    }
    if (sent != received)
        kv_vf_fault(v, KV_H10_COUNTS_DO_NOT_RECOMPUTE, "$.run.wire", "as many bytes sent as received", "others");
}

/* ---- failures ------------------------------------------------------------------------------------ */

static kv_rc key_of(const json_t *o, char out[KV_HASH_HEX])
{
    json_t *key =
        json_pack("[O,O,O,O,O]", json_object_get(o, "check"), json_object_get(o, "pair_id"),
                  json_object_get(o, "geometry"), json_object_get(o, "params"), json_object_get(o, "error_class"));
    const kv_rc rc = key != NULL ? kv_hash_json(key, NULL, out, NULL) : KV_ENOMEM;
    json_decref(key);
    return rc;
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const kv_vf_failure *)a)->key, ((const kv_vf_failure *)b)->key);
}

/* Sorts the entries of run.failures by what they tell of; equal ones become one that counts them. */
static void read_failures(kv_vf *v, const json_t *list)
{
    kv_vf_failures *f = &v->failures;
    const size_t n = json_array_size(list);
    if (n == 0) return;
    f->entry = kv_alloc(n, sizeof *f->entry);
    if (f->entry == NULL) {
        kv_vf_no_memory(v);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        f->entry[i].left = 1;
        if (key_of(json_array_get(list, i), f->entry[i].key) == KV_OK) continue;
        kv_vf_no_memory(v);
        return;
    }
    qsort(f->entry, n, sizeof *f->entry, by_key);
    f->n = 1;
    for (size_t i = 1; i < n; i++) {
        if (by_key(&f->entry[i], &f->entry[f->n - 1]) == 0)
            f->entry[f->n - 1].left++;
        else
            f->entry[f->n++] = f->entry[i];
    }
}

void kv_vf_run(kv_vf *v)
{
    const json_t *run = json_object_get(v->doc, "run");
    check_ranks(v, run);
    check_transports(v, run);
    check_wire(v, run);
    read_failures(v, json_object_get(run, "failures"));
}

bool kv_vf_failure_told(kv_vf *v, const json_t *row)
{
    kv_vf_failure key;
    if (v->failures.n == 0) return false;
    if (key_of(row, key.key) != KV_OK) {
        kv_vf_no_memory(v);
        return true;
    }
    kv_vf_failure *found = bsearch(&key, v->failures.entry, v->failures.n, sizeof key, by_key);
    if (found == NULL || found->left == 0) return false;
    found->left--;
    return true;
}

void kv_vf_failures_left(kv_vf *v)
{
    char actual[64];
    size_t left = 0;
    for (size_t i = 0; i < v->failures.n; i++) left += v->failures.entry[i].left;
    if (left == 0) return;
    snprintf(actual, sizeof actual, "%zu entries without one", left);
    kv_vf_fault(v, KV_H10_COUNTS_DO_NOT_RECOMPUTE, "$.run.failures", "a FAILED row for each entry", actual);
}
