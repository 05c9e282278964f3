#include "grid/kv_fault.h"

kv_rc kv_fault_cell(int rank, kv_row *row, kv_err *err)
{
    (void)rank;
    (void)row;
    (void)err;
    return KV_OK;
}
