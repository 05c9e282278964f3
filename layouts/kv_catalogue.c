/* A set of layouts, loaded from files and folders, sorted by name. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/kv_file.h"
#include "layouts/kv_layout.h"
#include "layouts/kv_layout_json.h"

#define FILE_LIMIT ((size_t)16 << 20)

/* Where name stands or belongs. */
static size_t place_of(const kv_catalogue *c, const char *name)
{
    size_t lo = 0, hi = c->n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (strcmp(c->item[mid]->name, name) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

const kv_layout *kv_catalogue_find(const kv_catalogue *c, const char *name)
{
    size_t i = place_of(c, name);
    return i < c->n && strcmp(c->item[i]->name, name) == 0 ? c->item[i] : NULL;
}

kv_rc kv_catalogue_take(kv_catalogue *c, kv_layout *l, const char *where, kv_err *err)
{
    if (kv_catalogue_find(c, l->name) != NULL) {
        kv_rc rc = KV_FAIL(err, KV_EFORMAT, "%s: layout %s is declared twice", where, l->name);
        kv_layout_free(l);
        return rc;
    }
    kv_layout **grown = kv_realloc(c->item, c->n + 1, sizeof(kv_layout *));
    if (grown == NULL) {
        kv_layout_free(l);
        return KV_FAIL(err, KV_ENOMEM, "no memory for %zu layouts", c->n + 1);
    }
    c->item = grown;
    size_t i = place_of(c, l->name);
    memmove(&c->item[i + 1], &c->item[i], (c->n - i) * sizeof(kv_layout *));
    c->item[i] = l;
    c->n++;
    return KV_OK;
}

static kv_rc take_value(kv_catalogue *c, json_t *v, const char *where, kv_err *err)
{
    kv_layout *l = NULL;
    kv_rc rc = kv_layout_new(v, where, &l, err);
    if (rc == KV_OK) rc = kv_catalogue_take(c, l, where, err);
    return rc;
}

static kv_rc load_file(kv_catalogue *c, const char *path, kv_err *err)
{
    kv_buf bytes = {0};
    json_t *v = NULL;
    kv_rc rc;
    KV_TRY(rc, out, kv_file_read(path, FILE_LIMIT, &bytes, err));
    KV_TRY(rc, out, kv_json_load_strict(bytes.data, bytes.len, path, &v, err));
    if (json_is_array(v)) {
        if (json_array_size(v) == 0) rc = KV_FAIL(err, KV_EFORMAT, "%s: an empty list declares no layout", path);
        for (size_t i = 0; rc == KV_OK && i < json_array_size(v); i++)
            rc = take_value(c, json_array_get(v, i), path, err);
    } else {
        rc = take_value(c, v, path, err);
    }
out:
    json_decref(v);
    kv_buf_free(&bytes);
    return rc;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool is_json_name(const char *name)
{
    size_t n = strlen(name);
    return n > 5 && name[0] != '.' && strcmp(name + n - 5, ".json") == 0;
}

/* Names of the *.json entries of a folder, sorted by bytes; each and the list are freed by the caller. */
static kv_rc list_folder(const char *path, char ***names, size_t *n, kv_err *err)
{
    kv_rc rc = KV_OK;
    DIR *dir = opendir(path);
    if (dir == NULL) return KV_FAIL(err, KV_EREAD, "%s: cannot be opened: %s", path, strerror(errno));
    for (const struct dirent *e = readdir(dir); e != NULL && rc == KV_OK; e = readdir(dir)) {
        if (!is_json_name(e->d_name)) continue;
        char **grown = kv_realloc(*names, *n + 1, sizeof(char *));
        size_t len = strlen(path) + strlen(e->d_name) + 2;
        char *full = grown != NULL ? kv_alloc(len, 1) : NULL;
        if (grown != NULL) *names = grown;
        if (full == NULL) {
            rc = KV_FAIL(err, KV_ENOMEM, "no memory to list %s", path);
            break;
        }
        snprintf(full, len, "%s/%s", path, e->d_name);
        (*names)[(*n)++] = full;
    }
    closedir(dir);
    if (rc == KV_OK && *n == 0) rc = KV_FAIL(err, KV_EREAD, "%s: the folder holds no *.json file", path);
    if (*n > 1) qsort(*names, *n, sizeof(char *), by_name);
    return rc;
}

kv_rc kv_catalogue_load(kv_catalogue *c, const char *path, kv_err *err)
{
    if (!kv_path_is_dir(path)) return load_file(c, path, err);
    char **names = NULL;
    size_t n = 0;
    kv_rc rc = list_folder(path, &names, &n, err);
    for (size_t i = 0; rc == KV_OK && i < n; i++) rc = load_file(c, names[i], err);
    for (size_t i = 0; i < n; i++) kv_free(names[i]);
    kv_free(names);
    return rc;
}

void kv_catalogue_free(kv_catalogue *c)
{
    for (size_t i = 0; i < c->n; i++) kv_layout_free(c->item[i]);
    kv_free(c->item);
    c->item = NULL;
    c->n = 0;
}
