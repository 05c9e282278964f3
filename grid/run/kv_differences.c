#include "grid/run/kv_differences.h"

#include <stdio.h>
#include <string.h>

#define NAMED 4 /* ranks, parts or hosts that a warning names; the certificate names all */

static const char *value_of(const kv_stands_on *who, const char *key)
{
    const char *text = json_string_value(json_object_get(who->versions, key));
    return text != NULL ? text : "none";
}

static json_t *find_value(const json_t *values, const char *value)
{
    for (size_t i = 0; i < json_array_size(values); i++) {
        json_t *one = json_array_get(values, i);
        if (strcmp(json_string_value(json_object_get(one, "value")), value) == 0) return one;
    }
    return NULL;
}

/* Hosts stand once; ranks come host by host, so most are the last. */
static int add_host(json_t *hosts, const char *host)
{
    for (size_t i = json_array_size(hosts); i-- > 0;)
        if (strcmp(json_string_value(json_array_get(hosts, i)), host) == 0) return 0;
    return json_array_append_new(hosts, json_string(host));
}

static int add_owner(json_t *values, const kv_stands_on *who, const char *value)
{
    json_t *one = find_value(values, value);
    if (one == NULL) {
        one = who->part != NULL ? json_pack("{s:s,s:[]}", "value", value, "parts")
                                : json_pack("{s:s,s:[],s:[]}", "value", value, "ranks", "hosts");
        if (one == NULL || json_array_append_new(values, one) != 0) return -1;
    }
    if (who->part != NULL) return json_array_append_new(json_object_get(one, "parts"), json_string(who->part));
    if (json_array_append_new(json_object_get(one, "ranks"), json_integer(who->rank)) != 0) return -1;
    return add_host(json_object_get(one, "hosts"), who->host);
}

static kv_rc compare_key(const kv_stands_on *who, size_t n, const char *key, json_t *list, kv_err *err)
{
    bool same = true;
    for (size_t i = 1; same && i < n; i++) same = strcmp(value_of(&who[0], key), value_of(&who[i], key)) == 0;
    if (same) return KV_OK;
    json_t *entry = json_pack("{s:s,s:[]}", "what", key, "values");
    int bad = entry == NULL;
    for (size_t i = 0; !bad && i < n; i++)
        bad = add_owner(json_object_get(entry, "values"), &who[i], value_of(&who[i], key));
    if (!bad) bad = json_array_append(list, entry);
    json_decref(entry);
    return !bad ? KV_OK : KV_FAIL(err, KV_ENOMEM, "no memory to compare %zu versions", n);
}

/* Whether an earlier one has the key too, so that it was compared already. */
static bool is_known(const kv_stands_on *who, size_t before, const char *key)
{
    for (size_t i = 0; i < before; i++)
        if (json_object_get(who[i].versions, key) != NULL) return true;
    return false;
}

kv_rc kv_differences_find(const kv_stands_on *who, size_t n, json_t *list, kv_err *err)
{
    for (size_t i = 0; i < n; i++) {
        const char *key;
        json_t *value;
        json_object_foreach((json_t *)(uintptr_t)who[i].versions, key, value)
        {
            const kv_rc rc = is_known(who, i, key) ? KV_OK : compare_key(who, n, key, list, err);
            if (rc != KV_OK) return rc;
        }
    }
    return KV_OK;
}

/* ---- telling ---------------------------------------------------------------------------- */

/* "0, 1, 2, 3 and 60 more" */
static void say_list(const json_t *items)
{
    const size_t n = json_array_size(items);
    for (size_t i = 0; i < n && i < NAMED; i++) {
        const json_t *v = json_array_get(items, i);
        if (json_is_integer(v))
            fprintf(stderr, "%s%d", i > 0 ? ", " : "", (int)json_integer_value(v));
        else
            fprintf(stderr, "%s%s", i > 0 ? ", " : "", json_string_value(v));
    }
    if (n > NAMED) fprintf(stderr, " and %zu more", n - NAMED);
}

static void say_value(const json_t *v, bool first)
{
    const json_t *parts = json_object_get(v, "parts"), *ranks = json_object_get(v, "ranks");
    const json_t *who = parts != NULL ? parts : ranks;
    fprintf(stderr, "%s\"%s\" in %s%s ", first ? "" : ", ", json_string_value(json_object_get(v, "value")),
            parts != NULL ? "part" : "rank", json_array_size(who) == 1 ? "" : "s");
    say_list(who);
    if (parts != NULL) return;
    fprintf(stderr, " (");
    say_list(json_object_get(v, "hosts"));
    fprintf(stderr, ")");
}

void kv_differences_say(const json_t *list, size_t from)
{
    for (size_t i = from; i < json_array_size(list); i++) {
        const json_t *entry = json_array_get(list, i), *values = json_object_get(entry, "values");
        const bool parts = json_object_get(json_array_get(values, 0), "parts") != NULL;
        fprintf(stderr, "kvgrid: warning: the %s differ in %s: ", parts ? "parts" : "ranks",
                json_string_value(json_object_get(entry, "what")));
        for (size_t k = 0; k < json_array_size(values); k++) say_value(json_array_get(values, k), k == 0);
        fprintf(stderr, "; the certificate says so in run.differences\n");
    }
}
