/* The rules of `expect` as they were read. Internal to kv_expect*.c. */
#ifndef KV_EXPECT_INT_H
#define KV_EXPECT_INT_H

#include "certs/kv_cert_names.h"
#include "grid/campaign/kv_campaign.h"
#include "grid/campaign/kv_expect_read.h"
#include "grid/campaign/kv_params.h"

#define KV_EXPECT_FIRST_TEXT (KV_PAIR_ID_TEXT + KV_GEOMETRY_TEXT + KV_PARAMS_TEXT + 32)

typedef struct {
    const char *pairs;               /* as written */
    char *src, *dst;                 /* its two patterns; src owns the bytes of both */
    const json_t *geometry, *params; /* or NULL */
    unsigned allowed;                /* bits kv_verdict */
    bool bound;                      /* at_least */
    const char *reason, *until;      /* of the waiver, or NULL */
    int64_t rows, unmet;
    char first[KV_EXPECT_FIRST_TEXT]; /* the first row that is not as expected */
} kv_expect_rule;

struct kv_expect {
    json_t *list; /* lends the texts */
    kv_expect_rule *rule;
    size_t n;
    char today[KV_DAY_TEXT];
};

#endif
