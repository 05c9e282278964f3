/* The hand-out under a real launcher, driven by handout.sh: each mode plays one story and rank 0
 * prints what it saw as "name=value" lines. Exit codes are those of kvgrid (0, 5, 75). */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "mpi/kv_mpi.h"
#include "tests/kv_test_marks.h"

#define UNLUCKY_ITEM 5
#define FEW 8 /* results that rank 0 has before the misfortune, and items that other ranks do before it */

typedef struct {
    const char *mode;
    kv_mpi *m;
    int64_t n_items;
    int64_t run_here;
    int64_t item_us;
    unsigned char *seen; /* rank 0: how often each result came */
    int64_t delivered, wrong, from_others;
    double last_progress;
} story;

static volatile sig_atomic_t stop_flag;

static void on_signal(int sig)
{
    (void)sig;
    stop_flag = 1;
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void sleep_us(int64_t us)
{
    struct timespec t = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};
    while (us > 0 && nanosleep(&t, &t) != 0) continue;
}

static bool is_mode(const story *s, const char *mode)
{
    return strcmp(s->mode, mode) == 0;
}

/* The rank that has bad luck in its 5th item: 2, or 0 in the modes that end in "0"; -1: none. */
static int unlucky(const story *s)
{
    static const char *const modes[] = {"fail", "kill", "hang", "stop"};
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++)
        if (strncmp(s->mode, modes[i], 4) == 0) return s->mode[4] == '0' ? 0 : 2;
    return -1;
}

static kv_rc misfortune(story *s, kv_err *err)
{
    kvt_mark("unlucky", 0);
    if (kv_mpi_size(s->m) > 1 && !kvt_await_mark("few", 0)) return KV_FAIL(err, KV_EBUG, "rank 0 has no results");
    if (is_mode(s, "fail") || is_mode(s, "fail0")) return KV_FAIL(err, KV_EDEVICE, "the planted fault");
    if (is_mode(s, "kill")) raise(SIGKILL);
    while (is_mode(s, "hang") || is_mode(s, "hang0")) sleep_us(1000000);
    if (is_mode(s, "stop") || is_mode(s, "stop0")) raise(SIGUSR1);
    return KV_OK;
}

static kv_rc run_item(void *ctx, int64_t item, kv_buf *result, kv_err *err)
{
    story *s = ctx;
    const int rank = kv_mpi_rank(s->m), bad = unlucky(s);
    s->run_here++;
    if (s->run_here == UNLUCKY_ITEM && rank == bad) {
        const kv_rc rc = misfortune(s, err);
        if (rc != KV_OK) return rc;
    }
    /* however slow that rank is, there must be an item left for it */
    if (s->run_here > FEW && bad >= 0 && rank != bad && !kvt_await_mark("unlucky", 0))
        return KV_FAIL(err, KV_EBUG, "rank %d never came to its item %d", bad, UNLUCKY_ITEM);
    if (is_mode(s, "slowroot") && rank == 0) /* so slow that the others' share is no matter of load */
        sleep_us(50 * s->item_us);
    else
        sleep_us(s->item_us);
    if (item % 7 == 3) return KV_OK;         /* an empty result is one too */
    if (is_mode(s, "large") && item == 11) { /* past any eager limit */
        const size_t n = (size_t)48 << 20;
        char *big = kv_alloc(n, 1);
        if (big == NULL) return KV_FAIL(err, KV_ENOMEM, "large");
        memset(big, 'L', n);
        const kv_rc rc = kv_buf_append(result, big, n, err);
        kv_free(big);
        return rc;
    }
    return kv_buf_printf(result, err, "result of %" PRId64, item);
}

static kv_rc on_result(void *ctx, int64_t item, int rank, const char *bytes, size_t n, kv_err *err)
{
    story *s = ctx;
    char want[64] = "";
    if (is_mode(s, "journal") && s->delivered == 5) return KV_FAIL(err, KV_EWRITE, "the disk is full");
    if (item < 0 || item >= s->n_items) return KV_FAIL(err, KV_EBUG, "item %" PRId64, item);
    if (item % 7 != 3) snprintf(want, sizeof want, "result of %" PRId64, item);
    const bool large = is_mode(s, "large") && item == 11;
    if (large ? n != (size_t)48 << 20 : n != strlen(want) || memcmp(bytes, want, n) != 0) s->wrong++;
    s->seen[item]++;
    s->delivered++;
    s->from_others += rank != 0;
    if (s->delivered == FEW) kvt_mark("few", 0);
    return KV_OK;
}

static void on_progress(void *ctx, const kv_mpi_progress *p)
{
    story *s = ctx;
    s->last_progress = (double)p->items_done;
}

static void print_findings(const story *s, kv_rc rc, const kv_err *err, double took)
{
    int64_t twice = 0, never = 0;
    for (int64_t i = 0; i < s->n_items; i++) {
        twice += s->seen[i] > 1;
        never += s->seen[i] == 0;
    }
    printf("rc=%s\ntext=%s\ndelivered=%" PRId64 "\ntwice=%" PRId64 "\nnever=%" PRId64 "\nwrong=%" PRId64 "\n",
           kv_rc_name(rc), err->text, s->delivered, twice, never, s->wrong);
    printf("from_others=%" PRId64 "\nprogress=%.0f\nseconds=%.6f\nper_second=%.0f\nbroken=%d\n", s->from_others,
           s->last_progress, took, took > 0 ? (double)s->delivered / took : 0, kv_mpi_broken(s->m));
    fflush(stdout);
}

/* The small exchanges, each with its law. */
static kv_rc exchanges(kv_mpi *m, kv_err *err)
{
    const int size = kv_mpi_size(m), rank = kv_mpi_rank(m);
    kv_buf b = {0}, mine = {0};
    kv_buf *texts = kv_alloc((size_t)size, sizeof *texts);
    kv_rc rc = KV_OK;
    for (int i = 0; i < 50000 && rank == 0 && rc == KV_OK; i++) rc = kv_buf_printf(&b, err, "%d,", i);
    const size_t want = 288890;
    if (rc == KV_OK) rc = kv_mpi_bcast_bytes(m, &b, err);
    if (rc == KV_OK && (b.len != want || memcmp(b.data + b.len - 6, "49999,", 6) != 0))
        rc = KV_FAIL(err, KV_EBUG, "bcast gave %zu bytes", b.len);
    for (int i = 0; i < rank && rc == KV_OK; i++) rc = kv_buf_puts(&mine, "x", err); /* rank r: r bytes, 0 too */
    rc = kv_mpi_agree(m, rc, err);
    if (rc == KV_OK) rc = kv_mpi_gather_texts(m, mine.data, mine.len, rank == 0 ? texts : NULL, err);
    for (int r = 0; r < size && rank == 0 && rc == KV_OK; r++)
        if (texts[r].len != (size_t)r) rc = KV_FAIL(err, KV_EBUG, "gather gave %zu bytes of rank %d", texts[r].len, r);
    for (int r = 0; r < size; r++) kv_buf_free(&texts[r]);
    kv_free(texts);
    kv_buf_free(&mine);
    kv_buf_free(&b);
    rc = kv_mpi_agree(m, rc, err);
    if (rc != KV_OK || size < 2) return rc;
    return kv_mpi_agree(m, rank == 1 ? KV_FAIL(err, KV_ENOMEM, "planted on rank 1") : KV_OK, err);
}

static int exit_code(kv_rc rc)
{
    return rc == KV_OK ? 0 : rc == KV_EINTR ? 75 : 5;
}

static kv_rc play(story *s, kv_err *err)
{
    kv_rc rc = KV_OK;
    uint64_t *costs = kv_alloc((size_t)s->n_items, sizeof *costs);
    s->seen = kv_alloc((size_t)s->n_items, 1);
    if (costs == NULL || s->seen == NULL) rc = KV_FAIL(err, KV_ENOMEM, "items");
    for (int64_t i = 0; i < s->n_items && rc == KV_OK; i++) costs[i] = (uint64_t)(i * 7919 % 101);
    if (is_mode(s, "lists") && kv_mpi_rank(s->m) == 1 && s->n_items > 0) costs[0] = 12345;
    const kv_mpi_job job = {.n_items = s->n_items,
                            .costs = costs,
                            .ctx = s,
                            .run_item = run_item,
                            .on_result = on_result,
                            .on_progress = on_progress,
                            .stop = &stop_flag};
    while (is_mode(s, "absent") && kv_mpi_rank(s->m) == 1) sleep_us(1000000);
    const double begin = seconds();
    rc = kv_mpi_agree(s->m, rc, err);
    if (rc == KV_OK) rc = is_mode(s, "exchanges") ? exchanges(s->m, err) : kv_mpi_handout(s->m, &job, err);
    if (rc == KV_OK && is_mode(s, "twice")) { /* nothing of the first run may be left in the second */
        memset(s->seen, 0, (size_t)s->n_items);
        s->delivered = s->from_others = 0;
        rc = kv_mpi_handout(s->m, &job, err);
    }
    if (kv_mpi_rank(s->m) == 0)
        print_findings(s, rc, err, seconds() - begin);
    else if (rc != KV_OK)
        fprintf(stderr, "rank %d: %s %s\n", kv_mpi_rank(s->m), kv_rc_name(rc), err->text);
    kvt_mark("said", kv_mpi_rank(s->m));
    if (is_mode(s, "hang") && kv_mpi_rank(s->m) == 0) /* it ends the job: not before rank 1 has spoken */
        (void)kvt_await_mark("said", 1);
    kv_free(costs);
    kv_free(s->seen);
    return rc;
}

int main(int argc, char **argv)
{
    story s = {0};
    kv_err err = {0};
    double timeout_s = 0;
    if (argc != 5 || sscanf(argv[4], "%lf", &timeout_s) != 1 || !kv_parse_i64(argv[2], 0, 1 << 30, &s.n_items) ||
        !kv_parse_i64(argv[3], 0, 1 << 30, &s.item_us)) {
        fprintf(stderr, "usage: mpi_handout MODE ITEMS ITEM_US TIMEOUT_S\n");
        return 2;
    }
    s.mode = argv[1];
    signal(SIGUSR1, on_signal);
    kv_rc rc = kv_mpi_start(timeout_s, &s.m, &err);
    if (rc != KV_OK) {
        fprintf(stderr, "start: %s %s\n", kv_rc_name(rc), err.text);
        return 5;
    }
    rc = play(&s, &err);
    kv_mpi_stop(s.m, &err);
    return exit_code(rc);
}
