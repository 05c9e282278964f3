#include "base/kv_temp.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What the handler reads: a name counts from the store of `used` on. A file beyond the places, or with a longer name, is not
 * removed by a signal. */
enum { PLACES = 8 };
static struct {
    atomic_bool used;
    char name[PATH_MAX];
} place[PLACES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;

void kv_temp_end(int sig)
{
    for (int i = 0; i < PLACES; i++)
        if (atomic_load(&place[i].used)) (void)unlink(place[i].name);
    signal(sig, SIG_DFL);
    raise(sig);
}

static const int signals[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM};

static void catch_signals(void)
{
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        struct sigaction now, act;
        if (sigaction(signals[i], NULL, &now) != 0 || (now.sa_flags & SA_SIGINFO) != 0 || now.sa_handler != SIG_DFL)
            continue;
        memset(&act, 0, sizeof act);
        act.sa_handler = kv_temp_end;
        (void)sigaction(signals[i], &act, NULL);
    }
}

int kv_temp_open(char *name)
{
    const size_t n = strlen(name) + 1;
    sigset_t held, before;
    (void)pthread_once(&once, catch_signals);
    /* a signal that comes when the file is there and its name is not noted yet waits until it is */
    (void)sigemptyset(&held);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) (void)sigaddset(&held, signals[i]);
    (void)pthread_sigmask(SIG_BLOCK, &held, &before);
    const int fd = mkstemp(name);
    (void)pthread_mutex_lock(&lock);
    for (int i = 0; fd >= 0 && n <= PATH_MAX && i < PLACES; i++) {
        if (atomic_load(&place[i].used)) continue;
        memcpy(place[i].name, name, n);
        atomic_store(&place[i].used, true);
        break;
    }
    (void)pthread_mutex_unlock(&lock);
    const int why = errno;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = why;
    return fd;
}

void kv_temp_done(const char *name)
{
    (void)pthread_mutex_lock(&lock);
    for (int i = 0; i < PLACES; i++)
        if (atomic_load(&place[i].used) && strcmp(place[i].name, name) == 0) atomic_store(&place[i].used, false);
    (void)pthread_mutex_unlock(&lock);
}
