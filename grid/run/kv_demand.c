#include "grid/run/kv_demand.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static kv_rc take_word(const char *value, const char *key, const char *const *known, char *to, size_t n, kv_err *err)
{
    if (*to != '\0') return KV_FAIL(err, KV_EINVAL, "--require: %s is given twice", key);
    for (const char *const *k = known; *k != NULL; k++)
        if (strcmp(*k, value) == 0) {
            snprintf(to, n, "%s", value);
            return KV_OK;
        }
    return KV_FAIL(err, KV_EINVAL, "--require: %s=%s is not known", key, value);
}

static kv_rc take_part(const char *part, kv_demand *d, kv_err *err)
{
    static const char *const devices[] = {"cpu", "cuda", "emulated", NULL};
    static const char *const transports[] = {"mpi", "nccl", NULL};
    if (strncmp(part, "device=", 7) == 0)
        return take_word(part + 7, "device", devices, d->device, sizeof d->device, err);
    if (strncmp(part, "transport=", 10) == 0)
        return take_word(part + 10, "transport", transports, d->transport, sizeof d->transport, err);
    if (strncmp(part, "ranks>=", 7) == 0 && d->ranks == 0 && kv_parse_i64(part + 7, 1, 1 << 24, &d->ranks))
        return KV_OK;
    return KV_FAIL(err, KV_EINVAL,
                   "--require \"%s\": must be device=cpu|cuda, transport=mpi|nccl or ranks>=N, separated by commas",
                   part);
}

kv_rc kv_demand_parse(const char *text, kv_demand *out, kv_err *err)
{
    kv_demand d = {.ranks = 0};
    kv_rc rc = KV_OK;
    if (text == NULL) {
        *out = d;
        return KV_OK;
    }
    char *copy = kv_strdup(text);
    if (copy == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for --require");
    for (char *part = copy, *next; rc == KV_OK && part != NULL; part = next) {
        next = strchr(part, ',');
        if (next != NULL) *next++ = '\0';
        rc = take_part(part, &d, err);
    }
    kv_free(copy);
    if (rc == KV_OK) *out = d;
    return rc;
}

static const char *device_of(const json_t *run, size_t i)
{
    const char *s = json_string_value(json_object_get(json_array_get(json_object_get(run, "devices"), i), "device"));
    return s != NULL ? s : "none";
}

bool kv_demand_met(const kv_demand *d, const json_t *run, kv_err *err)
{
    const json_t *transports = json_object_get(run, "transports");
    const int64_t ranks = json_integer_value(json_object_get(run, "ranks"));
    const size_t devices = json_array_size(json_object_get(run, "devices"));
    bool transport = *d->transport == '\0';
    if (ranks < d->ranks) {
        KV_FAIL(err, KV_EUNSUP, "--require ranks>=%" PRId64 ": there are %" PRId64, d->ranks, ranks);
        return false;
    }
    for (size_t i = 0; *d->device != '\0' && i < devices; i++)
        if (strcmp(device_of(run, i), d->device) != 0) {
            KV_FAIL(err, KV_EUNSUP, "--require device=%s: rank %zu has %s", d->device, i, device_of(run, i));
            return false;
        }
    if (*d->device != '\0' && devices == 0) {
        KV_FAIL(err, KV_EUNSUP, "--require device=%s: the run names no device", d->device);
        return false;
    }
    for (size_t i = 0; !transport && i < json_array_size(transports); i++) {
        const char *name = json_string_value(json_array_get(transports, i));
        transport = name != NULL && strcmp(name, d->transport) == 0;
    }
    if (!transport) KV_FAIL(err, KV_EUNSUP, "--require transport=%s: this run moved nothing over it", d->transport);
    return transport;
}

bool kv_demand_emulated(const json_t *run)
{
    for (size_t i = 0; i < json_array_size(json_object_get(run, "devices")); i++)
        if (strcmp(device_of(run, i), "emulated") == 0) return true;
    return false;
}

kv_rc kv_subject_parse(const char *text, json_t **out, kv_err *err)
{
    *out = NULL;
    if (text == NULL) return KV_OK;
    const char *at = strrchr(text, '@');
    const size_t name = at != NULL ? (size_t)(at - text) : 0;
    bool good = at != NULL && name > 0 && name <= 512 && strncmp(at + 1, "sha256:", 7) == 0 && strlen(at + 8) == 64 &&
                strspn(at + 8, "0123456789abcdef") == 64;
    for (size_t i = 0; good && i < name; i++) good = text[i] >= 0x20 && text[i] < 0x7F;
    if (!good)
        return KV_FAIL(err, KV_EINVAL, "--subject \"%s\": must be NAME@sha256: and 64 lower-case hex digits", text);
    *out = json_pack("{s:s%,s:s}", "name", text, name, "digest", at + 1);
    return *out != NULL ? KV_OK : KV_FAIL(err, KV_ENOMEM, "no memory for the subject");
}
