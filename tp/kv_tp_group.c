#include "tp/kv_tp.h"

int64_t kv_tp_group_ranks(int64_t p, int64_t q)
{
    if (p < 1 || q < 1) return 0;
    return p > q ? p : q;
}
