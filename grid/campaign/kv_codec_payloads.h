/* The keys "payloads" and "files" of a codec section. */
#ifndef KV_CODEC_PAYLOADS_H
#define KV_CODEC_PAYLOADS_H

#include "grid/campaign/kv_codec_spec.h"

/* "files": [{"name","bytes","digest"}, ...], NULL for none. KV_EFORMAT. */
kv_rc kv_codec_files_read(const json_t *v, kv_codec_section *out, const char *where, kv_err *err) KV_MUST_USE;
/* "payloads": names of made-up values, and "file:NAME" for every file; each once. After kv_codec_files_read. */
kv_rc kv_codec_payloads_read(const json_t *v, kv_codec_section *out, const char *where, kv_err *err) KV_MUST_USE;

#endif
