/* With NCCL: its version, asked of the library that is linked. */
#include <nccl.h>
#include <stdio.h>

#include "tp/kv_tp.h"

const char *kv_tp_nccl_version(void)
{
    static char text[32];
    int v = 0;
    if (ncclGetVersion(&v) != ncclSuccess) return "unknown";
    if (v < 10000)
        snprintf(text, sizeof text, "%d.%d.%d", v / 1000, v / 100 % 10, v % 100);
    else
        snprintf(text, sizeof text, "%d.%d.%d", v / 10000, v / 100 % 100, v % 100);
    return text;
}
