/* The program: finds the command, parses its options, runs it; gives the exit code. */
#ifndef KV_MAIN_H
#define KV_MAIN_H

int kv_main(int argc, char **argv);

#endif
