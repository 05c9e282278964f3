/* Exit codes of the program (design: "Command line"), and which error gives which. */
#ifndef KV_EXIT_H
#define KV_EXIT_H

#include "base/kv_base.h"

enum {
    KV_EXIT_OK = 0,
    KV_EXIT_INPUT = 1, /* an input could not be read or is malformed */
    KV_EXIT_USAGE = 2,
    KV_EXIT_REFUSED = 3, /* certificate refused */
    KV_EXIT_WORSE = 4,   /* UNPROVEN, a floor or guard not met, nothing checked */
    KV_EXIT_FAILED = 5,  /* rows FAILED; output, device, MPI or launch error */
    KV_EXIT_INTERRUPTED = 75
};

int kv_exit_of(kv_rc rc);

#endif
