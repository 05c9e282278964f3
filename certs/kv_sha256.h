/* certs: SHA-256, for what others name by it (in-toto subjects, conformance vectors). */
#ifndef KV_SHA256_H
#define KV_SHA256_H

#include <stddef.h>

#define KV_SHA256_HEX 65 /* 64 lower-case digits and a NUL */
void kv_sha256_hex(const void *bytes, size_t n, char out[KV_SHA256_HEX]);

#endif
