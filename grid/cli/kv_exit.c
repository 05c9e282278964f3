#include "grid/cli/kv_exit.h"

int kv_exit_of(kv_rc rc)
{
    switch (rc) {
    case KV_OK: return KV_EXIT_OK;
    case KV_EINVAL: return KV_EXIT_USAGE;
    case KV_EFORMAT:
    case KV_EREAD: return KV_EXIT_INPUT;
    case KV_ESIG: return KV_EXIT_INPUT; /* a key file that must not be used */
    case KV_EINTR: return KV_EXIT_INTERRUPTED;
    case KV_EWRITE:
    case KV_ENOMEM:
    case KV_EUNSUP:
    case KV_EEXIST:
    case KV_EDEVICE:
    case KV_EMPI:
    case KV_EPEER:
    case KV_ETIME:
    case KV_EBUG:
    case KV_RC_COUNT: break;
    }
    return KV_EXIT_FAILED;
}
