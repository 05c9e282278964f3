/* What many tests need: cmocka with its headers in order, seeded random numbers, layouts and JSON from
 * short texts, temporary folders, errors that must say something. */
#ifndef KV_TEST_H
#define KV_TEST_H

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/kv_base.h"
#include "base/kv_file.h"
#include "layouts/kv_layout.h"

#ifndef KV_SOURCE_DIR /* the build says where; this header also compiles alone */
#define KV_SOURCE_DIR "."
#endif
#define KVT_PUBLISHED_LAYOUTS KV_SOURCE_DIR "/layouts/published"
#define KVT_PUBLISHED_CAMPAIGN KV_SOURCE_DIR "/jobs/campaigns/published.json"
#define KVT_COUNT(array_) (sizeof(array_) / sizeof(array_)[0])
#define KVT_PUBLISHED_GEOMETRY "L=3,T=40,H=2,D=8,e=f16"

/* ---- random numbers: the same on every machine ------------------------------------------- */

static inline uint64_t kvt_next(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15U;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
}

/* 0 <= result < n */
static inline int64_t kvt_below(uint64_t *state, int64_t n)
{
    return (int64_t)(kvt_next(state) % (uint64_t)n);
}

static inline bool kvt_one_in(uint64_t *state, int64_t n)
{
    return kvt_below(state, n) == 0;
}

/* ---- memory and errors ------------------------------------------------------------------- */

static inline void *kvt_take(int64_t n, size_t size)
{
    void *p = calloc((size_t)n + 1, size);
    if (p == NULL) {
        print_error("no memory for %" PRId64 " x %zu bytes\n", n, size);
        abort();
    }
    return p;
}

#define kvt_ok(call_, err_)                                                                                            \
    do {                                                                                                               \
        const kv_rc kvt_rc_ = (call_);                                                                                 \
        if (kvt_rc_ != KV_OK) fail_msg("%s: %s: %s", #call_, kv_rc_name(kvt_rc_), (err_)->text);                       \
    } while (0)

/* The call failed with rc, and its one line holds every needle of the list. */
static inline void kvt_refused(kv_rc got, kv_rc want, kv_err *err, const char *what, const char *const *needles)
{
    if (got != want) fail_msg("%s: %s instead of %s: %s", what, kv_rc_name(got), kv_rc_name(want), err->text);
    if (err->rc != want) fail_msg("%s: the record says %s", what, kv_rc_name(err->rc));
    for (int i = 0; needles[i] != NULL; i++)
        if (strstr(err->text, needles[i]) == NULL)
            fail_msg("%s: \"%s\" does not hold \"%s\"", what, err->text, needles[i]);
    if (strchr(err->text, '\n') != NULL) fail_msg("%s: more than one line: %s", what, err->text);
    kv_err_clear(err);
}
#define KVT_SAYS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* ---- JSON and layouts from short texts --------------------------------------------------- */

/* JSON written with ' for ". */
static inline json_t *kvt_json(const char *text)
{
    json_error_t je;
    char *copy = strdup(text);
    if (copy == NULL) fail_msg("no memory");
    for (char *c = copy; *c != '\0'; c++)
        if (*c == '\'') *c = '"';
    json_t *v = json_loads(copy, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &je);
    if (v == NULL) fail_msg("%s: %s", je.text, copy);
    free(copy);
    return v;
}

static inline json_t *kvt_axes_json(const char *text, size_t n)
{
    json_t *list = json_array();
    for (size_t at = 0; at < n;) {
        size_t len = strcspn(text + at, ". ");
        if (at + len > n) len = n - at;
        json_array_append_new(list, json_stringn(text + at, len));
        at += len + 1;
    }
    return list;
}

/* One blank-separated part of a layout text. */
static inline void kvt_layout_part(json_t *o, const char *part, size_t n)
{
    static const char *const stores[][2] = {{"sep", "separate"}, {"int", "interleaved"}, {"lat", "latent"}};
    const char *eq = memchr(part, '=', n);
    char value[64] = "";
    if (eq == NULL) {
        for (size_t i = 0; i < KVT_COUNT(stores); i++)
            if (n == 3 && strncmp(part, stores[i][0], 3) == 0) json_object_set_new(o, "kv", json_string(stores[i][1]));
        if (n == 3 && (strncmp(part, "mla", 3) == 0 || strncmp(part, "lat", 3) == 0))
            json_object_set_new(o, "attention", json_string("mla"));
        return;
    }
    const size_t key = (size_t)(eq - part), rest = n - key - 1;
    snprintf(value, sizeof value, "%.*s", (int)rest, eq + 1);
    if (strncmp(part, "k=", 2) == 0) {
        json_object_set_new(o, "k_axes", kvt_axes_json(eq + 1, rest));
    } else if (strncmp(part, "v=", 2) == 0) {
        json_object_set_new(o, "v_axes", kvt_axes_json(eq + 1, rest));
    } else if (strncmp(part, "e=", 2) == 0) {
        json_object_set_new(o, "element", json_string(value));
    } else if (strncmp(part, "role=", 5) == 0) {
        json_object_set_new(o, "role", json_string(value));
    } else if (strncmp(part, "tp=", 3) == 0) { /* rank/size */
        char *slash = NULL;
        const long long rank = strtoll(value, &slash, 10), size = strtoll(slash + 1, NULL, 10);
        json_object_set_new(o, "tp", json_pack("{s:I,s:I}", "size", (json_int_t)size, "rank", (json_int_t)rank));
    } else {
        char name[32];
        snprintf(name, sizeof name, "%.*s", (int)key, part);
        json_object_set_new(o, name, json_integer(strtoll(value, NULL, 10)));
    }
}

/* "NAME STORE k=Tb.Ti.H.D v=... block=4 x=2 tp=RANK/SIZE e=f16 mla role=frontier"; STORE is sep, int or lat. */
static inline json_t *kvt_layout_json(const char *text)
{
    const size_t name = strcspn(text, " ");
    json_t *o = json_pack("{s:s,s:s,s:s}", "engine", "test", "attention", "gqa", "cite", "tests");
    json_object_set_new(o, "name", json_stringn(text, name));
    for (const char *p = text + name; *p != '\0';) {
        p += strspn(p, " ");
        const size_t n = strcspn(p, " ");
        if (n > 0) kvt_layout_part(o, p, n);
        p += n;
    }
    return o;
}

static inline kv_layout *kvt_layout(const char *text)
{
    kv_err err = {0};
    kv_layout *l = NULL;
    json_t *o = kvt_layout_json(text);
    if (kv_layout_new(o, text, &l, &err) != KV_OK) fail_msg("%s", err.text);
    json_decref(o);
    return l;
}

static inline kv_geometry kvt_geometry(const char *text)
{
    kv_geometry g;
    kv_err err = {0};
    kvt_ok(kv_geometry_parse(text, &g, &err), &err);
    return g;
}

static inline kv_catalogue kvt_published(void)
{
    kv_catalogue c = {0};
    kv_err err = {0};
    kvt_ok(kv_catalogue_load(&c, KVT_PUBLISHED_LAYOUTS, &err), &err);
    assert_int_equal(c.n, 12);
    return c;
}

/* Binds where the layout must exist. */
static inline kv_index kvt_bind(const kv_layout *l, const kv_geometry *g, int64_t unit)
{
    kv_index ix;
    kv_bind_state state;
    char reason[KV_REASON_TEXT];
    kv_err err = {0};
    kvt_ok(kv_layout_bind(l, g, unit, &ix, &state, reason, &err), &err);
    if (state != KV_BIND_OK) fail_msg("%s: %s", l->name, reason);
    return ix;
}

/* ---- files ------------------------------------------------------------------------------- */

/* A new folder below the temporary one; out holds its path. */
static inline void kvt_folder(char out[128])
{
    const char *base = getenv("TMPDIR");
    snprintf(out, 128, "%.90s/kv_test.XXXXXX", base != NULL && *base != '\0' ? base : "/tmp");
    if (mkdtemp(out) == NULL) fail_msg("%s cannot be made", out);
}

static inline char *kvt_path(const char *folder, const char *name)
{
    const size_t n = strlen(folder) + strlen(name) + 2;
    char *p = kvt_take((int64_t)n, 1);
    snprintf(p, n, "%s/%s", folder, name);
    return p;
}

/* Writes text (' for ") to folder/name. */
static inline void kvt_put(const char *folder, const char *name, const char *text)
{
    char *path = kvt_path(folder, name);
    FILE *f = fopen(path, "w");
    if (f == NULL) fail_msg("%s cannot be written", path);
    for (const char *c = text; *c != '\0'; c++) fputc(*c == '\'' ? '"' : *c, f);
    if (fclose(f) != 0) fail_msg("%s cannot be written", path);
    free(path);
}

static inline void kvt_remove(const char *folder, const char *name)
{
    char *path = kvt_path(folder, name);
    (void)unlink(path);
    free(path);
}

#endif
