/* The published campaign and its layouts as they came with the program. */
#ifndef KV_BUILTIN_H
#define KV_BUILTIN_H

#include "grid/campaign/kv_campaign.h"

/* Adds the built-in layouts to *out. */
kv_rc kv_builtin_catalogue(kv_catalogue *out, kv_err *err) KV_MUST_USE;
/* The built-in published campaign; free with kv_campaign_free. */
kv_rc kv_builtin_published(kv_campaign *out, kv_err *err) KV_MUST_USE;

#endif
