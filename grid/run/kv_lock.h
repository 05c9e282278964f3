/* One run to a state folder. */
#ifndef KV_LOCK_H
#define KV_LOCK_H

#include "grid/run/kv_disk.h"

/* Makes path exclusively (works on NFS). A lock of this host whose process is gone is taken over; any other is
 * KV_EEXIST with whose it is and what to do. */
kv_rc kv_lock_take_on(const kv_disk *d, const char *path, kv_err *err) KV_MUST_USE;
/* Removes it, unless it is another's by now. */
void kv_lock_release_on(const kv_disk *d, const char *path);

#endif
