#include "grid/kv_fault.h"

kv_rc kv_fault_cell(int rank, kv_row *row, kv_err *err)
{
    (void)rank;
    (void)row;
    (void)err;
    return KV_OK;
}

size_t kv_fault_rows_limit(size_t limit)
{
    return limit;
}
