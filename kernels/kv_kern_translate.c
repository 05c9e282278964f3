/* The translator: moves every element of a source image to its place in a destination image.
 *
 * Independent of kv_layout_index.h's Horner steps and of the builder: it works from strides. A position is
 * a sum of one term for each canonical axis, so a half (K or V of one layer) is described by a base, a
 * head stride, and one offset table each for tokens and lanes. Elements move in rows (lanes that lie
 * together on both sides), fused over heads and tokens where those lie together too, or in tiles where one
 * side runs along tokens and the other along lanes. Padding of the destination is filled apart, so each
 * destination position is written exactly once. */
#include <inttypes.h>
#include <string.h>

#include "kernels/kv_kern_cpu.h"
#include "kernels/kv_kern_num.h"
#include "kernels/kv_kern_stride.h"
#include "kernels/kv_kern_tile.h"

#define TILE_TOKENS 64
#define TILE_LANES 64
#define NEAR_LANES 256 /* positions between two lanes */
#define NEAR_TOKENS 32
#define RUN_TOKENS 16 /* rows of tokens lie powers of two apart: more of them would push each other out of the cache */

/* Strides of one half of one side, in positions. */
typedef struct {
    int64_t base, layer, head;
    int64_t tokens, lanes;           /* allocated: tail and pad lanes included */
    int64_t *token, *lane;           /* offset tables of those lengths */
    int64_t *token_step, *lane_step; /* spacing of each group of KV_TILE offsets, 0 where it is uneven */
} side;

/* What moves: one half. */
typedef struct {
    side s, t;
    const unsigned char *src;
    unsigned char *dst;
    kv_elem from, to;
    int64_t from_bytes, to_bytes;
    int64_t tokens, heads, lanes; /* held */
    int64_t run;                  /* lanes that lie together on both sides */
    int64_t row;                  /* lanes * fused heads, where a token's row lies together on both sides; else 0 */
} half_move;

/* Offsets of all numbers of an axis. */
static int64_t *table_new(const kv_split *x)
{
    int64_t *table = kv_alloc((size_t)kv_split_extent(x), sizeof(int64_t)), n = 0;
    for (int64_t a = 0; table != NULL && a < x->outers; a++)
        for (int64_t b = 0; b < x->groups; b++)
            for (int64_t c = 0; c < x->ones; c++)
                table[n++] = a * x->outer_stride + b * x->group_stride + c * x->one_stride;
    return table;
}

static int64_t *steps_new(const int64_t *table, int64_t n)
{
    int64_t *step = kv_alloc((size_t)(n / KV_TILE) + 1, sizeof *step);
    for (int64_t g = 0; step != NULL && g < n / KV_TILE; g++) {
        const int64_t *at = table + g * KV_TILE;
        step[g] = at[1] - at[0];
        for (int i = 2; i < KV_TILE; i++)
            if (at[i] - at[i - 1] != step[g]) step[g] = 0;
    }
    return step;
}

static kv_rc side_new(side *m, const kv_index *ix, int kv, kv_err *err)
{
    kv_strides x;
    memset(m, 0, sizeof *m);
    kv_strides_of(ix, kv, &x);
    m->base = x.base;
    m->layer = x.layer;
    m->head = x.head;
    m->tokens = kv_split_extent(&x.token);
    m->lanes = kv_split_extent(&x.lane);
    m->token = table_new(&x.token);
    m->lane = table_new(&x.lane);
    if (m->token != NULL && m->lane != NULL) {
        m->token_step = steps_new(m->token, m->tokens);
        m->lane_step = steps_new(m->lane, m->lanes);
    }
    if (m->token_step == NULL || m->lane_step == NULL)
        return KV_FAIL(err, KV_ENOMEM, "no memory for the offsets of %" PRId64 " tokens", m->tokens);
    return KV_OK;
}

static void side_free(side *m)
{
    kv_free(m->token);
    kv_free(m->lane);
    kv_free(m->token_step);
    kv_free(m->lane_step);
}

static int64_t gcd(int64_t a, int64_t b)
{
    while (b != 0) {
        const int64_t r = a % b;
        a = b;
        b = r;
    }
    return a;
}

/* How many lanes lie together on both sides, in every group of that many. */
static int64_t common_run(const half_move *m)
{
    int64_t run = m->lanes;
    for (int64_t i = 1; i < m->lanes; i++)
        if (m->s.lane[i] - m->s.lane[i - 1] != 1 || m->t.lane[i] - m->t.lane[i - 1] != 1) run = gcd(run, i);
    return run;
}

static inline void move_run(const half_move *m, int64_t to, int64_t from, int64_t n)
{
    if (m->from == m->to)
        memcpy(m->dst + to * m->to_bytes, m->src + from * m->from_bytes, (size_t)(n * m->to_bytes));
    else
        kv_num_convert_row(m->from, m->to, m->src + from * m->from_bytes, m->dst + to * m->to_bytes, (size_t)n);
}

/* Tokens from t on whose rows of `row` lanes lie one after the other on both sides. */
static int64_t fused_tokens(const half_move *m, int64_t t, int64_t end, int64_t row)
{
    int64_t n = 1;
    while (t + n < end && m->s.token[t + n] - m->s.token[t + n - 1] == row &&
           m->t.token[t + n] - m->t.token[t + n - 1] == row)
        n++;
    return n;
}

/* Rows of m->row lanes that lie together on both sides (heads are fused, or taken one by one). */
static void move_rows(const half_move *m, int64_t s0, int64_t t0, int64_t heads)
{
    for (int64_t tile = 0; tile < m->tokens; tile += TILE_TOKENS) {
        const int64_t end = tile + TILE_TOKENS < m->tokens ? tile + TILE_TOKENS : m->tokens;
        for (int64_t h = 0; h < heads; h++)
            for (int64_t t = tile; t < end;) {
                const int64_t n = fused_tokens(m, t, end, m->row);
                move_run(m, t0 + h * m->t.head + m->t.token[t], s0 + h * m->s.head + m->s.token[t], n * m->row);
                t += n;
            }
    }
}

/* Runs of a size that the compiler knows, for tokens [tile, end). */
#define MOVE_FIXED(bytes_)                                                                                             \
    static void move_fixed_##bytes_(const half_move *m, int64_t to, int64_t from, int64_t tile, int64_t end)           \
    {                                                                                                                  \
        for (int64_t t = tile; t < end; t++)                                                                           \
            memcpy(m->dst + (to + m->t.token[t]) * m->to_bytes, m->src + (from + m->s.token[t]) * m->to_bytes,         \
                   bytes_);                                                                                            \
    }
MOVE_FIXED(8)
MOVE_FIXED(16)
MOVE_FIXED(32)

static void move_run_tokens(const half_move *m, int64_t to, int64_t from, int64_t tile, int64_t end)
{
    const int64_t bytes = m->from == m->to ? m->run * m->to_bytes : 0;
    if (bytes == 8)
        move_fixed_8(m, to, from, tile, end);
    else if (bytes == 16)
        move_fixed_16(m, to, from, tile, end);
    else if (bytes == 32)
        move_fixed_32(m, to, from, tile, end);
    else
        for (int64_t t = tile; t < end; t++) move_run(m, to + m->t.token[t], from + m->s.token[t], m->run);
}

/* Two runs of 8 bytes, of KV_TILE tokens, turned in registers: one side's runs lie together, and the other side's tokens;
 * false where they do not. */
static bool turn_runs(const half_move *m, int64_t to, int64_t from, int64_t d, int64_t tok)
{
    const int64_t size = m->to_bytes, s_run = m->s.lane[d + m->run] - m->s.lane[d],
                  t_run = m->t.lane[d + m->run] - m->t.lane[d];
    const int64_t s_tok = m->s.token_step[tok / KV_TILE], t_tok = m->t.token_step[tok / KV_TILE];
    const unsigned char *src = m->src + (from + m->s.token[tok]) * size;
    unsigned char *dst = m->dst + (to + m->t.token[tok]) * size;
    if (s_run == m->run && t_tok == m->run && s_tok != 0) {
        for (int i = 0; i < KV_TILE; i += 2)
            kv_tile_turn_u64(src + i * s_tok * size, s_tok * size, dst + i * t_tok * size, t_run * size);
        return true;
    }
    if (t_run == m->run && s_tok == m->run && t_tok != 0) {
        for (int i = 0; i < KV_TILE; i += 2)
            kv_tile_turn_u64(src + i * s_tok * size, s_run * size, dst + i * t_tok * size, t_tok * size);
        return true;
    }
    return false;
}

/* Short runs of lanes (a vectorised head dimension on one side), tokens inside. */
static void move_runs(const half_move *m, int64_t s0, int64_t t0)
{
    const bool turns = m->from == m->to && m->run * m->to_bytes == 8;
    for (int64_t tile = 0; tile < m->tokens; tile += RUN_TOKENS) {
        const int64_t end = tile + RUN_TOKENS < m->tokens ? tile + RUN_TOKENS : m->tokens;
        for (int64_t h = 0; h < m->heads; h++)
            for (int64_t d = 0; d < m->lanes; d += m->run) {
                const int64_t to = t0 + h * m->t.head + m->t.lane[d], from = s0 + h * m->s.head + m->s.lane[d];
                int64_t turned = tile;
                while (turns && d + m->run < m->lanes && turned + KV_TILE <= end && turn_runs(m, to, from, d, turned))
                    turned += KV_TILE;
                move_run_tokens(m, to, from, turned, end);
                if (turned == tile) continue;
                d += m->run; /* the second one has what was turned */
                move_run_tokens(m, t0 + h * m->t.head + m->t.lane[d], s0 + h * m->s.head + m->s.lane[d], turned, end);
            }
    }
}

/* One tile, element by element, along tokens or along lanes, whichever lies together in the destination. */
#define MOVE_TILE(type_)                                                                                               \
    static void move_tile_##type_(const half_move *m, int64_t s0, int64_t t0, int64_t tok0, int64_t tok1,              \
                                  int64_t lane0, int64_t lane1, bool along_tokens)                                     \
    {                                                                                                                  \
        const type_ *restrict src = (const type_ *)(const void *)m->src + s0;                                          \
        type_ *restrict dst = (type_ *)(void *)m->dst + t0;                                                            \
        if (along_tokens) {                                                                                            \
            for (int64_t d = lane0; d < lane1; d++)                                                                    \
                for (int64_t t = tok0; t < tok1; t++)                                                                  \
                    dst[m->t.lane[d] + m->t.token[t]] = src[m->s.lane[d] + m->s.token[t]];                             \
        } else {                                                                                                       \
            for (int64_t t = tok0; t < tok1; t++)                                                                      \
                for (int64_t d = lane0; d < lane1; d++)                                                                \
                    dst[m->t.lane[d] + m->t.token[t]] = src[m->s.lane[d] + m->s.token[t]];                             \
        }                                                                                                              \
    }
MOVE_TILE(uint8_t)
MOVE_TILE(uint16_t)
MOVE_TILE(uint32_t)

/* A tile's elements of one size to a dense [tokens][lanes] buffer, or back. */
#define TILE_COPY(type_)                                                                                               \
    static void take_tile_##type_(const unsigned char *image, const side *x, int64_t at, const int64_t box[4],         \
                                  type_ *dense)                                                                        \
    {                                                                                                                  \
        const type_ *src = (const type_ *)(const void *)image + at;                                                    \
        for (int64_t t = box[0]; t < box[1]; t++)                                                                      \
            for (int64_t d = box[2]; d < box[3]; d++) *dense++ = src[x->token[t] + x->lane[d]];                        \
    }                                                                                                                  \
    static void put_tile_##type_(unsigned char *image, const side *x, int64_t at, const int64_t box[4],                \
                                 const type_ *dense)                                                                   \
    {                                                                                                                  \
        type_ *dst = (type_ *)(void *)image + at;                                                                      \
        for (int64_t t = box[0]; t < box[1]; t++)                                                                      \
            for (int64_t d = box[2]; d < box[3]; d++) dst[x->token[t] + x->lane[d]] = *dense++;                        \
    }
TILE_COPY(uint8_t)
TILE_COPY(uint16_t)
TILE_COPY(uint32_t)

static void convert_tile(const half_move *m, int64_t s0, int64_t t0, int64_t tok0, int64_t tok1, int64_t lane0,
                         int64_t lane1)
{
    uint32_t in[TILE_TOKENS * TILE_LANES], out[TILE_TOKENS * TILE_LANES]; /* room for the widest element */
    const int64_t box[4] = {tok0, tok1, lane0, lane1};
    in[0] = 0;
    if (m->from_bytes == 1)
        take_tile_uint8_t(m->src, &m->s, s0, box, (uint8_t *)(void *)in);
    else if (m->from_bytes == 2)
        take_tile_uint16_t(m->src, &m->s, s0, box, (uint16_t *)(void *)in);
    else
        take_tile_uint32_t(m->src, &m->s, s0, box, in);
    kv_num_convert_row(m->from, m->to, in, out, (size_t)((tok1 - tok0) * (lane1 - lane0)));
    if (m->to_bytes == 1)
        put_tile_uint8_t(m->dst, &m->t, t0, box, (uint8_t *)(void *)out);
    else if (m->to_bytes == 2)
        put_tile_uint16_t(m->dst, &m->t, t0, box, (uint16_t *)(void *)out);
    else
        put_tile_uint32_t(m->dst, &m->t, t0, box, out);
}

/* An 8 x 8 block of 16-bit elements turned in registers, where one side's tokens and the other side's lanes lie
 * together, or copied where tokens do on both sides; false where neither is so. */
static bool turn_block(const half_move *m, int64_t s0, int64_t t0, int64_t tok, int64_t lane)
{
    const uint16_t *src = (const uint16_t *)(const void *)m->src + s0 + m->s.token[tok] + m->s.lane[lane];
    uint16_t *dst = (uint16_t *)(void *)m->dst + t0 + m->t.token[tok] + m->t.lane[lane];
    const int64_t s_tok = m->s.token_step[tok / KV_TILE], t_tok = m->t.token_step[tok / KV_TILE];
    const int64_t s_lane = m->s.lane_step[lane / KV_TILE], t_lane = m->t.lane_step[lane / KV_TILE];
    if (s_lane == 1 && t_tok == 1 && s_tok != 0 && t_lane != 0) {
        kv_tile_turn_u16(src, s_tok, dst, t_lane);
        return true;
    }
    if (s_tok == 1 && t_lane == 1 && s_lane != 0 && t_tok != 0) {
        kv_tile_turn_u16(src, s_lane, dst, t_tok);
        return true;
    }
    if (s_tok == 1 && t_tok == 1) { /* tokens lie together on both sides */
        for (int64_t d = lane; d < lane + KV_TILE; d++)
            memcpy(dst + m->t.lane[d] - m->t.lane[lane], src + m->s.lane[d] - m->s.lane[lane], KV_TILE * sizeof *dst);
        return true;
    }
    return false;
}

/* A tile of 16-bit elements in blocks of 8 x 8; what does not fit a block goes element by element. Lanes of a destination
 * that lie far apart fall into few sets of the cache: each is then written to its end first. */
static void move_blocks(const half_move *m, int64_t s0, int64_t t0, int64_t tok0, int64_t tok1, int64_t lane0,
                        int64_t lane1, bool along_tokens, bool far)
{
    const int64_t tokens = (tok1 - tok0 + KV_TILE - 1) / KV_TILE, lanes = (lane1 - lane0 + KV_TILE - 1) / KV_TILE;
    for (int64_t a = 0; a < (far ? lanes : tokens); a++)
        for (int64_t b = 0; b < (far ? tokens : lanes); b++) {
            const int64_t tok = tok0 + (far ? b : a) * KV_TILE, lane = lane0 + (far ? a : b) * KV_TILE;
            const int64_t tok_end = tok + KV_TILE < tok1 ? tok + KV_TILE : tok1;
            const int64_t lane_end = lane + KV_TILE < lane1 ? lane + KV_TILE : lane1;
            if (tok_end - tok == KV_TILE && lane_end - lane == KV_TILE && turn_block(m, s0, t0, tok, lane)) continue;
            move_tile_uint16_t(m, s0, t0, tok, tok_end, lane, lane_end, along_tokens);
        }
}

/* One side runs along tokens, the other along lanes. */
static void move_tiles(const half_move *m, int64_t s0, int64_t t0)
{
    const bool along_tokens = m->tokens > 1 && m->t.token[1] - m->t.token[0] == 1;
    const bool far = along_tokens && m->lanes > 1 && m->t.lane[1] - m->t.lane[0] > NEAR_LANES;
    const int64_t tile = far ? TILE_TOKENS : NEAR_TOKENS;
    for (int64_t tok = 0; tok < m->tokens; tok += tile) {
        const int64_t tok1 = tok + tile < m->tokens ? tok + tile : m->tokens;
        for (int64_t h = 0; h < m->heads; h++)
            for (int64_t lane = 0; lane < m->lanes; lane += TILE_LANES) {
                const int64_t lane1 = lane + TILE_LANES < m->lanes ? lane + TILE_LANES : m->lanes;
                const int64_t s = s0 + h * m->s.head, t = t0 + h * m->t.head;
                if (m->from != m->to)
                    convert_tile(m, s, t, tok, tok1, lane, lane1);
                else if (m->to_bytes == 1)
                    move_tile_uint8_t(m, s, t, tok, tok1, lane, lane1, along_tokens);
                else if (m->to_bytes == 2)
                    move_blocks(m, s, t, tok, tok1, lane, lane1, along_tokens, far);
                else
                    move_tile_uint32_t(m, s, t, tok, tok1, lane, lane1, along_tokens);
            }
    }
}

static void fill_span(const half_move *m, int64_t at, int64_t n, uint32_t fill)
{
    for (int64_t i = 0; i < n; i++) kv_num_store(m->to, m->dst, at + i, fill);
}

/* Tail tokens in all their lanes, and the pad lanes of the tokens held. */
static void fill_padding(const half_move *m, int64_t t0, uint32_t fill)
{
    for (int64_t t = 0; t < m->t.tokens; t++) {
        const int64_t from = t < m->tokens ? m->lanes : 0;
        for (int64_t h = 0; from < m->t.lanes && h < m->heads; h++)
            for (int64_t d = from; d < m->t.lanes; d++)
                kv_num_store(m->to, m->dst, t0 + h * m->t.head + m->t.token[t] + m->t.lane[d], fill);
    }
}

/* What lies between the payload of a page and the next page. */
static void fill_slack(const half_move *m, const kv_index *ix, int kv, int64_t array_base, uint32_t fill)
{
    const kv_order *o = &ix->half[kv];
    int64_t pages = 1;
    if (o->page_payload == o->page_span) return;
    for (int32_t i = 0; i < o->cut; i++) pages *= o->size[i];
    for (int64_t p = 0; p < pages; p++)
        fill_span(m, array_base + p * o->page_span + o->page_payload, o->page_span - o->page_payload, fill);
}

static void move_half(half_move *m, int64_t layers)
{
    m->run = common_run(m);
    int64_t heads = m->heads;
    m->row = 0;
    if (m->run == m->lanes) {
        m->row = m->lanes;
        if (m->s.head == m->lanes && m->t.head == m->lanes) { /* heads follow one another on both sides */
            m->row = m->lanes * m->heads;
            heads = 1;
        }
    }
    for (int64_t l = 0; l < layers; l++) {
        const int64_t s0 = m->s.base + l * m->s.layer, t0 = m->t.base + l * m->t.layer;
        if (m->row > 1)
            move_rows(m, s0, t0, heads);
        else if (m->run > 1)
            move_runs(m, s0, t0);
        else
            move_tiles(m, s0, t0);
    }
}

kv_rc kv_cpu_translate(kv_device *d, const kv_index *s, const kv_image *src, const kv_index *t, kv_image *dst,
                       uint32_t fill, kv_err *err)
{
    (void)d;
    kv_rc rc = KV_OK;
    half_move m = {.src = src->data, .dst = dst->data, .from = (kv_elem)s->element, .to = (kv_elem)t->element};
    m.from_bytes = kv_elem_bytes(m.from);
    m.to_bytes = kv_elem_bytes(m.to);
    m.tokens = s->tokens;
    m.heads = s->heads;
    for (int kv = 0; kv < s->halves && rc == KV_OK; kv++) {
        m.lanes = s->lanes[kv];
        rc = side_new(&m.s, s, kv, err);
        if (rc == KV_OK) rc = side_new(&m.t, t, kv, err);
        if (rc == KV_OK) {
            move_half(&m, s->layers);
            for (int64_t l = 0; l < t->layers; l++) fill_padding(&m, m.t.base + l * m.t.layer, fill);
            if (kv == 0 || t->separate) /* one array: its pages hold both halves */
                for (int64_t l = 0; l < (t->has_layer ? 1 : t->layers); l++)
                    fill_slack(&m, t, kv, t->half_base[kv] + l * t->layer_span, fill);
        }
        side_free(&m.s);
        side_free(&m.t);
        memset(&m.s, 0, sizeof m.s);
        memset(&m.t, 0, sizeof m.t);
    }
    return rc;
}
