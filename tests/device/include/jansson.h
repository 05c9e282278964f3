/* For machines without jansson (tests/device_check.sh): the headers of layouts name its type, nothing here uses it. */
#ifndef KV_DEVICE_JANSSON_H
#define KV_DEVICE_JANSSON_H

typedef struct json_t json_t;
typedef long long json_int_t;

#endif
