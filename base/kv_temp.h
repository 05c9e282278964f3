/* Temporary files on their way to their names. A signal that ends the program (SIGHUP, SIGINT, SIGQUIT, SIGTERM, unless
 * the program or who started it does something else with it) removes those that are open then. */
#ifndef KV_TEMP_H
#define KV_TEMP_H

#include "base/kv_base.h"

/* mkstemp: makes the file that `name` (ending in XXXXXX, changed in place) stands for; -1 and errno where it cannot. */
int kv_temp_open(char *name);
/* To be called once the file has its own name or is removed. */
void kv_temp_done(const char *name);
/* What the signal does: removes them and ends the program by this signal. For handlers. */
void kv_temp_end(int sig);

#endif
