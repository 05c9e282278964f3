/* Where layouts are found: --layouts, $KVGRID_LAYOUTS, beside the binary, the source tree. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/kv_file.h"
#include "grid/campaign/kv_campaign.h"

static kv_rc load(const char *path, kv_catalogue *out, char **used, kv_err *err)
{
    kv_rc rc = kv_catalogue_load(out, path, err);
    if (rc != KV_OK || used == NULL) return rc;
    *used = kv_strdup(path);
    return *used != NULL ? KV_OK : KV_FAIL(err, KV_ENOMEM, "no memory for a path");
}

kv_rc kv_layouts_find(const char *given, kv_catalogue *out, char **used, kv_err *err)
{
    static const char *const beside[] = {"layouts/published", "../share/kvgrid/layouts/published"};
    const char *env = getenv("KVGRID_LAYOUTS");
    if (given != NULL) return load(given, out, used, err);
    if (env != NULL && *env != '\0') {
        kv_rc rc = load(env, out, used, err);
        if (rc != KV_OK) kv_err_prefix(err, "$KVGRID_LAYOUTS");
        return rc;
    }
    char exe[4096];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    for (size_t i = 0; n > 0 && i < sizeof beside / sizeof beside[0]; i++) {
        exe[n] = '\0';
        char *path = kv_path_beside(exe, beside[i]);
        if (path == NULL) return KV_FAIL(err, KV_ENOMEM, "no memory for a path");
        kv_rc rc = KV_EREAD;
        if (kv_path_is_dir(path)) rc = load(path, out, used, err);
        const bool there = kv_path_is_dir(path);
        kv_free(path);
        if (there) return rc;
    }
    if (kv_path_is_dir(KV_SOURCE_LAYOUTS)) return load(KV_SOURCE_LAYOUTS, out, used, err);
    return KV_FAIL(err, KV_EREAD,
                   "no layouts found beside the program; name a file or folder with --layouts or $KVGRID_LAYOUTS");
}
