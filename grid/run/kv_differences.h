/* What the ranks of one run, or the parts of one campaign, stand on, compared: drivers, libraries, the program itself. A bad
 * mixture must be seen; it is no error, since every row is checked on its own. */
#ifndef KV_DIFFERENCES_H
#define KV_DIFFERENCES_H

#include <jansson.h>

#include "base/kv_base.h"

/* One that is compared; borrowed. */
typedef struct {
    const json_t *versions; /* an object of texts */
    int rank;               /* where `part` is NULL */
    const char *host;
    const char *part; /* "1/4" of a merge, else NULL */
} kv_stands_on;

/* Appends {what, values: [{value, ranks[], hosts[]} or {value, parts[]}, ...]} to list for each key that is not the same in
 * all n; values in the order in which they are met, a missing key as "none". */
kv_rc kv_differences_find(const kv_stands_on *who, size_t n, json_t *list, kv_err *err) KV_MUST_USE;
/* One warning line on stderr for each entry from number `from` on. */
void kv_differences_say(const json_t *list, size_t from);

#endif
