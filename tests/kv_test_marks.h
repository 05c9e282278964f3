/* Marks that programs of a test leave for each other in the folder they run in: one waits until another has come so far,
 * instead of for as long as that usually takes. */
#ifndef KV_TEST_MARKS_H
#define KV_TEST_MARKS_H

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define KVT_MARK_WAIT_S 120 /* against hangs: no load makes a program that goes on so late */

static inline void kvt_mark(const char *what, int rank)
{
    char name[64];
    snprintf(name, sizeof name, "mark.%s.%d", what, rank);
    const int fd = open(name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd >= 0) close(fd);
}

static inline bool kvt_marked(const char *what, int rank)
{
    char name[64];
    snprintf(name, sizeof name, "mark.%s.%d", what, rank);
    return access(name, F_OK) == 0;
}

/* False where nobody left it. */
static inline bool kvt_await_mark(const char *what, int rank)
{
    const struct timespec look = {0, 1000000};
    for (int i = 0; i < KVT_MARK_WAIT_S * 1000; i++) {
        if (kvt_marked(what, rank)) return true;
        nanosleep(&look, NULL);
    }
    return false;
}

#endif
