/* kv_device_check [--small] [--no-speeds]: see tests/device_check.sh. Exit 0 all the same, 1 something differs, 2 usage, 5 a call
 * failed, 77 no GPU. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/device/kv_device_check.h"

const kv_check_layout kv_check_layouts[] = {
    {"vllm-fa", KV_STORE_INTERLEAVED, "KV.Tb.Ti.H.D", NULL, .block = 16, .published = true},
    {"vllm-paged-x", KV_STORE_SEPARATE, "Tb.H.Dg.Ti.Dx", "Tb.H.D.Ti", .block = 16, .x = 4, .published = true},
    {"trtllm", KV_STORE_INTERLEAVED, "Tb.KV.H.Ti.D", NULL, .block = 32, .published = true},
    {"sglang", KV_STORE_SEPARATE, "T.H.D", NULL, .published = true},
    {"hf-dynamic-cache", KV_STORE_SEPARATE, "H.T.D", NULL, .published = true},
    {"llamacpp", KV_STORE_SEPARATE, "T.H.D", "H.D.T", .published = true},
    {"flashinfer-nhd", KV_STORE_INTERLEAVED, "Tb.KV.Ti.H.D", NULL, .block = 16, .published = true},
    {"lmdeploy-turbomind", KV_STORE_SEPARATE, "Tb.H.Ti.D", NULL, .block = 64, .published = true},
    {"x-8", KV_STORE_SEPARATE, "Tb.H.Dg.Ti.Dx", "Tb.H.D.Ti", .block = 16, .x = 8},
    {"odd-blocks", KV_STORE_INTERLEAVED, "Tb.D.H.Ti.KV", NULL, .block = 7},
    {"token-groups", KV_STORE_SEPARATE, "Tb.Tg.H.D.Tx", "H.T.D", .block = 12, .tx = 4},
    {"paged", KV_STORE_SEPARATE, "Tb.H.Ti.D", NULL, .block = 16, .page_stride_bytes = 131072},
    {"pad-lanes", KV_STORE_SEPARATE, "T.H.D", NULL, .row_lanes = 144},
    {"all-turned", KV_STORE_SEPARATE, "D.H.T", "T.D.H", .published = false},
};
const int kv_check_layout_count = (int)(sizeof kv_check_layouts / sizeof kv_check_layouts[0]);

static kv_axes axes_of(const char *text)
{
    static const struct {
        const char *name;
        kv_factor f;
    } names[] = {{"L", KV_F_L},   {"KV", KV_F_KV}, {"T", KV_F_T}, {"Tb", KV_F_TB}, {"Ti", KV_F_TI}, {"Tg", KV_F_TG},
                 {"Tx", KV_F_TX}, {"H", KV_F_H},   {"D", KV_F_D}, {"Dg", KV_F_DG}, {"Dx", KV_F_DX}};
    kv_axes a = {0};
    while (*text != '\0') {
        const size_t n = strcspn(text, ".");
        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
            if (strlen(names[i].name) == n && strncmp(names[i].name, text, n) == 0) a.f[a.n++] = names[i].f;
        text += n + (text[n] == '.');
    }
    return a;
}

bool kv_check_bind(const kv_check_layout *l, const kv_geometry *g, kv_index *ix)
{
    kv_layout x = {.attention = KV_ATTENTION_GQA,
                   .store = l->store,
                   .block = l->block,
                   .x = l->x,
                   .tx = l->tx,
                   .page_stride_bytes = l->page_stride_bytes,
                   .row_lanes = l->row_lanes,
                   .element_same = true,
                   .tp_size = 1};
    kv_bind_state state;
    char reason[KV_REASON_TEXT];
    kv_err err = {0};
    snprintf(x.name, sizeof x.name, "%s", l->name);
    x.axes[0] = axes_of(l->k);
    x.axes[1] = axes_of(l->v != NULL ? l->v : l->k);
    kv_check_must(kv_layout_bind(&x, g, 1, ix, &state, reason, &err), &err, l->name);
    return state == KV_BIND_OK;
}

int64_t kv_check_below(kv_check *c, int64_t n)
{
    c->random = c->random * 6364136223846793005ULL + 1442695040888963407ULL;
    return (int64_t)((c->random >> 33) % (uint64_t)n);
}

void kv_check_note(kv_check *c, bool good, const char *fmt, ...)
{
    va_list ap;
    c->checks++;
    if (good) return;
    if (c->wrong++ >= 20) return; /* enough is known */
    va_start(ap, fmt);
    printf("WRONG: ");
    vprintf(fmt, ap);
    printf("\n");
    va_end(ap);
}

void kv_check_must(kv_rc rc, const kv_err *err, const char *what)
{
    if (rc == KV_OK) return;
    printf("FAILED: %s: %s: %s\n", what, kv_rc_name(rc), err->text);
    exit(5);
}

double kv_check_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int kv_check_by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    kv_check c = {.random = 20261129};
    bool small = false, speeds = true;
    char versions[96];
    int count = 0;
    kv_err err = {0};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--small") == 0)
            small = true;
        else if (strcmp(argv[i], "--no-speeds") == 0)
            speeds = false;
        else
            return 2;
    }
    if (kv_cuda_count(&count, &err) != KV_OK) {
        printf("no GPU to check: %s\n", err.text);
        return 77;
    }
    kv_check_must(kv_cuda_describe(0, &c.about, &err), &err, "describe");
    printf("%s, %s, capability %d.%d, %d multiprocessors, %" PRId64 " MiB, L2 %" PRId64 " KiB; %s; %d GPU%s seen\n",
           c.about.name, c.about.uuid, c.about.major, c.about.minor, c.about.multiprocessors,
           c.about.memory_bytes >> 20, c.about.l2_bytes >> 10, kv_cuda_versions(versions, sizeof versions), count,
           count == 1 ? "" : "s");
    kv_check_must(kv_device_cpu_new(&c.cpu, &err), &err, "CPU");
    kv_check_must(kv_device_cuda_new(0, &c.gpu, &err), &err, "GPU");
    kv_check_all(&c, small);
    kv_check_waves(&c, small);
    kv_check_codec(&c, small);
    printf("%ld comparisons with the CPU, %ld wrong\n", c.checks, c.wrong);
    fflush(stdout);
    if (speeds && !small && c.wrong == 0) {
        kv_check_speeds(&c);
        kv_check_codec_speeds(&c);
    }
    c.gpu->ops->close(c.gpu);
    c.cpu->ops->close(c.cpu);
    return c.wrong == 0 && c.checks > 0 ? 0 : 1;
}
