/* Built without NCCL. */
#include "tp/kv_tp.h"

const char *kv_tp_nccl_version(void)
{
    return "none";
}
