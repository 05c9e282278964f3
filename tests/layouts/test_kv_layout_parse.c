/* The layout loader: what it takes, what it refuses and that every refusal names layout and key. */
#include "tests/kv_test.h"

static kv_rc parse(const char *text, kv_layout **out, kv_err *err)
{
    json_t *o = kvt_json(text);
    const kv_rc rc = kv_layout_new(o, "file.json", out, err);
    json_decref(o);
    return rc;
}

static void layout_new__reads_every_key(void **state)
{
    (void)state;
    kv_layout *l = NULL;
    kv_err err = {0};
    kvt_ok(parse("{'name':'a.B_9-x','engine':'e','version':'1','attention':'gqa','kv':'interleaved',"
                 "'k_axes':['Tb','KV','L','Tg','H','D','Tx'],'v_axes':['Tb','KV','D','Tg','H','L','Tx'],"
                 "'block':12,'tx':3,'element':'bf16','tp':{'size':4,'rank':3},'role':'lossy','pages':'contiguous',"
                 "'page_stride_bytes':4096,'row_lanes':20,'cite':'c','evidence':'cited','notes':'n'}",
                 &l, &err),
           &err);
    assert_string_equal(l->name, "a.B_9-x");
    assert_int_equal(l->attention, KV_ATTENTION_GQA);
    assert_int_equal(l->store, KV_STORE_INTERLEAVED);
    assert_int_equal(l->role, KV_ROLE_LOSSY);
    static const kv_factor v[] = {KV_F_TB, KV_F_KV, KV_F_D, KV_F_TG, KV_F_H, KV_F_L, KV_F_TX};
    assert_int_equal(l->axes[1].n, 7);
    for (int i = 0; i < 7; i++) assert_int_equal(l->axes[1].f[i], v[i]);
    assert_int_equal(l->axes[0].f[2], KV_F_L);
    assert_int_equal(l->block, 12);
    assert_int_equal(l->tx, 3);
    assert_int_equal(l->page_stride_bytes, 4096);
    assert_int_equal(l->row_lanes, 20);
    assert_false(l->element_same);
    assert_int_equal(l->element, KV_ELEM_BF16);
    assert_int_equal(l->tp_size, 4);
    assert_int_equal(l->tp_rank, 3);
    kv_layout_free(l);
}

static void layout_new__fills_the_defaults(void **state)
{
    (void)state;
    kv_layout *l = NULL;
    kv_err err = {0};
    kvt_ok(parse("{'name':'a','engine':'e','attention':'gqa','kv':'separate','k_axes':['T','H','D'],'block':null,"
                 "'x':null,'tp':null,'version':null,'v_axes':null,'element':null,'cite':'c'}",
                 &l, &err),
           &err);
    assert_int_equal(l->axes[1].n, 3);
    assert_memory_equal(&l->axes[0], &l->axes[1], sizeof l->axes[0]);
    assert_true(l->element_same);
    assert_int_equal(l->role, KV_ROLE_LOSSLESS);
    assert_int_equal(l->block + l->x + l->x_bytes + l->tx + l->page_stride_bytes + l->row_lanes, 0);
    assert_int_equal(l->tp_size, 1);
    assert_int_equal(l->tp_rank, 0);
    kv_layout_free(l);
    kvt_ok(parse("{'name':'m','engine':'e','attention':'mla','kv':'latent','k_axes':['Tb','L','Ti','C'],'block':64,"
                 "'cite':'c'}",
                 &l, &err),
           &err);
    assert_int_equal(l->store, KV_STORE_LATENT);
    assert_int_equal(l->axes[1].n, 0);
    kv_layout_free(l);
    kv_layout_free(NULL);
}

#define SEP "'name':'lay','engine':'e','attention':'gqa','kv':'separate','cite':'c'"
#define INT "'name':'lay','engine':'e','attention':'gqa','kv':'interleaved','cite':'c'"
#define LAT "'name':'lay','engine':'e','attention':'mla','kv':'latent','cite':'c'"
#define THD "'k_axes':['T','H','D']"

static const char *const refused[][3] = {
    /* document, a needle, another */
    {"[]", "file.json", "object"},
    {"{" SEP "," THD ",'colour':'red'}", "layout lay", "unknown key \"colour\""},
    {"{'engine':'e','attention':'gqa','kv':'separate','cite':'c'," THD "}", "file.json", "\"name\""},
    {"{'name':'','engine':'e'}", "\"name\"", "empty"},
    {"{'name':7,'engine':'e'}", "\"name\"", "text"},
    {"{'name':'a b'}", "a b", "a-z"},
    {"{'name':'-a'}", "-a", "starting"},
    {"{'name':'../../etc/passwd'}", "\"name\"", "starting"},
    {"{'name':'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'}", "\"name\"", "1 to 64"},
    {"{'name':'lay','attention':'gqa','kv':'separate','cite':'c'," THD "}", "lay", "\"engine\" is missing"},
    {"{'name':'lay','engine':'e','attention':'gqa','kv':'separate'," THD "}", "lay", "\"cite\" is missing"},
    {"{'name':'lay','engine':'e','attention':'gqa','kv':'separate','cite':''," THD "}", "lay", "\"cite\""},
    {"{'name':'lay','engine':'e','kv':'separate','cite':'c'," THD "}", "lay", "\"attention\" is missing"},
    {"{'name':'lay','engine':'e','attention':'mha','kv':'separate','cite':'c'," THD "}", "\"attention\"", "mha"},
    {"{'name':'lay','engine':'e','attention':'gqa','kv':'joined','cite':'c'," THD "}", "\"kv\"", "joined"},
    {"{'name':'lay','engine':'e','attention':'gqa','cite':'c'," THD "}", "lay", "\"kv\" is missing"},
    {"{" SEP "," THD ",'role':'best'}", "\"role\"", "best"},
    {"{" SEP "," THD ",'pages':'random'}", "\"pages\"", "random"},
    {"{" SEP "," THD ",'pages':'table'}", "\"pages\"", "not supported"},
    {"{" SEP "," THD ",'version':3}", "\"version\"", "text"},
    {"{" SEP "}", "\"k_axes\"", "list"},
    {"{" SEP ",'k_axes':'T H D'}", "\"k_axes\"", "list"},
    {"{" SEP ",'k_axes':[]}", "\"k_axes\"", "list"},
    {"{" SEP ",'k_axes':['T','H','Q']}", "\"k_axes\"", "\"Q\" is no axis"},
    {"{" SEP ",'k_axes':['T','H',4]}", "\"k_axes\"", "not a text"},
    {"{" SEP ",'k_axes':['T','H','D','T']}", "axis T", "twice"},
    {"{" SEP ",'k_axes':['T','Tb','Ti','Tg','Tx','H','D','Dg','Dx','L','KV']}", "\"k_axes\"", "at most 10"},
    {"{" SEP ",'k_axes':['T','H','D'],'v_axes':['H','H','D']}", "\"v_axes\"", "twice"},
    {"{" SEP ",'k_axes':['H','D']}", "\"k_axes\"", "tokens once"},
    {"{" SEP ",'k_axes':['T','Tb','Ti','H','D'],'block':4}", "\"k_axes\"", "tokens once"},
    {"{" SEP ",'k_axes':['Tb','H','D'],'block':4}", "\"k_axes\"", "tokens once"},
    {"{" SEP ",'k_axes':['Tb','Ti','Tx','H','D'],'block':4,'tx':2}", "\"k_axes\"", "tokens once"},
    {"{" SEP ",'k_axes':['Tb','Tg','H','D'],'block':4}", "\"k_axes\"", "tokens once"},
    {"{" SEP ",'k_axes':['T','D']}", "\"k_axes\"", "H is missing"},
    {"{" SEP ",'k_axes':['T','H']}", "\"k_axes\"", "head dimension once"},
    {"{" SEP ",'k_axes':['T','H','Dg'],'x':2}", "\"k_axes\"", "head dimension once"},
    {"{" SEP ",'k_axes':['T','H','D','Dx'],'x':2}", "\"k_axes\"", "head dimension once"},
    {"{" SEP ",'k_axes':['T','H','C']}", "\"k_axes\"", "latent"},
    {"{" SEP "," THD ",'v_axes':['T','H']}", "\"v_axes\"", "head dimension once"},
    {"{" SEP ",'k_axes':['KV','T','H','D']}", "\"k_axes\"", "KV"},
    {"{" INT "," THD "}", "\"k_axes\"", "KV"},
    {"{" SEP ",'k_axes':['L','T','H','D'],'v_axes':['T','H','D']}", "axis L", "both"},
    {"{" INT ",'k_axes':['T','KV','H','D'],'v_axes':['H','KV','T','D']}", "agree up to", "KV"},
    {"{" INT ",'k_axes':['KV','T','H','D'],'v_axes':['KV','Tb','Ti','H','D'],'block':4}", "same factors", "lay"},
    {"{" INT ",'k_axes':['KV','T','H','D'],'v_axes':['KV','T','H','Dg','Dx'],'x':2}", "same factors", "lay"},
    {"{" INT ",'k_axes':['KV','Tb','Ti','H','D'],'v_axes':['KV','H','Tb','Ti','D'],'block':4,'page_stride_bytes':999}",
     "page_stride_bytes", "before Tb"},
    {"{" INT ",'k_axes':['KV','H','Tb','Ti','D'],'v_axes':['KV','D','Tb','Ti','H'],'block':4,'page_stride_bytes':999}",
     "page_stride_bytes", "before Tb"},
    {"{" LAT ",'k_axes':['T','H','C']}", "latent", "C and no H"},
    {"{" LAT ",'k_axes':['T','D']}", "latent", "C and no H"},
    {"{" LAT ",'k_axes':['T','C'],'v_axes':['T','C']}", "latent", "v_axes"},
    {"{'name':'lay','engine':'e','attention':'gqa','kv':'latent','cite':'c','k_axes':['T','C']}", "latent", "mla"},
    {"{" SEP ",'k_axes':['Tb','Ti','H','D']}", "Tb", "\"block\""},
    {"{" SEP "," THD ",'block':16}", "\"block\"", "Tb"},
    {"{" SEP ",'k_axes':['Tb','Ti','H','D'],'block':0}", "\"block\"", "1 to"},
    {"{" SEP ",'k_axes':['Tb','Ti','H','D'],'block':-16}", "\"block\"", "1 to"},
    {"{" SEP ",'k_axes':['Tb','Ti','H','D'],'block':2147483648}", "\"block\"", "2147483647"},
    {"{" SEP ",'k_axes':['Tb','Ti','H','D'],'block':'16'}", "\"block\"", "integer"},
    {"{" SEP ",'k_axes':['Tb','Ti','H','D'],'block':true}", "\"block\"", "integer"},
    {"{" SEP ",'k_axes':['T','H','Dg','Dx']}", "Dx", "\"x\""},
    {"{" SEP "," THD ",'x':4}", "\"x\"", "Dx"},
    {"{" SEP "," THD ",'x_bytes':16}", "\"x\"", "Dx"},
    {"{" SEP ",'k_axes':['T','H','Dg','Dx'],'x':0}", "\"x\"", "1 to"},
    {"{" SEP ",'k_axes':['T','H','Dg','Dx'],'x':4,'x_bytes':16}", "x_bytes", "not both"},
    {"{" SEP ",'k_axes':['Tb','Tg','Tx','H','D'],'block':8}", "Tx", "\"tx\""},
    {"{" SEP ",'k_axes':['Tb','Tg','Tx','H','D'],'block':8,'tx':3}", "\"tx\" 3", "\"block\" 8"},
    {"{" SEP "," THD ",'tx':3}", "\"tx\"", "Tx"},
    {"{" SEP "," THD ",'page_stride_bytes':64}", "page_stride_bytes", "Tb"},
    {"{" SEP ",'k_axes':['T','H','Dg','Dx'],'x':4,'row_lanes':16}", "row_lanes", "D"},
    {"{" SEP "," THD ",'row_lanes':0}", "row_lanes", "1 to"},
    {"{" SEP "," THD ",'element':'f64'}", "\"element\"", "f64"},
    {"{" SEP "," THD ",'element':16}", "\"element\"", "text"},
    {"{" SEP "," THD ",'tp':2}", "\"tp\"", "object"},
    {"{" SEP "," THD ",'tp':{'size':2}}", "\"tp\"", "\"rank\""},
    {"{" SEP "," THD ",'tp':{'size':2,'rank':2}}", "\"rank\"", "0 to 1"},
    {"{" SEP "," THD ",'tp':{'size':2,'rank':-1}}", "\"rank\"", "0 to 1"},
    {"{" SEP "," THD ",'tp':{'size':0,'rank':0}}", "\"size\"", "1 to"},
    {"{" SEP "," THD ",'tp':{'size':2,'rank':0,'x':1}}", "\"tp\"", "unknown key"},
};

static void layout_new__refuses_by_layout_and_key(void **state)
{
    (void)state;
    for (size_t i = 0; i < KVT_COUNT(refused); i++) {
        kv_layout *const before = (kv_layout *)&state, *l = before;
        kv_err err = {0};
        const kv_rc rc = parse(refused[i][0], &l, &err);
        kvt_refused(rc, KV_EFORMAT, &err, refused[i][0], KVT_SAYS("file.json", refused[i][1], refused[i][2]));
        assert_ptr_equal(l, before); /* untouched */
        assert_int_equal(parse(refused[i][0], &l, NULL), KV_EFORMAT);
    }
}

/* Ten factors are the most that a list may hold; eight are the most that a layout can need. */
static void layout_new__takes_every_factor_at_once(void **state)
{
    (void)state;
    kv_layout *l = kvt_layout("all int k=L.Tb.KV.H.Tg.Dg.Tx.Dx v=L.Tb.KV.Dx.Tx.Dg.Tg.H block=8 tx=2 x_bytes=16 tp=1/2");
    assert_int_equal(l->axes[0].n, 8);
    kv_layout_free(l);
    l = kvt_layout("two sep k=L.T.H.D v=Tb.Ti.Dx.L.Dg.H block=8 x=4"); /* K and V apart may split differently */
    assert_true(kv_axes_has(&l->axes[1], KV_F_DX) && !kv_axes_has(&l->axes[0], KV_F_DX));
    kv_layout_free(l);
}

static void factor_name__names_every_factor(void **state)
{
    (void)state;
    static const char *const names[] = {"L", "KV", "T", "Tb", "Ti", "Tg", "Tx", "H", "D", "Dg", "Dx", "C"};
    for (int f = 0; f < KV_F_COUNT; f++) assert_string_equal(kv_factor_name((kv_factor)f), names[f]);
    assert_string_equal(kv_factor_name(KV_F_COUNT), "?");
}

static void layout_new__survives_every_failed_allocation(void **state)
{
    (void)state;
    json_t *o = kvt_layout_json("a int k=KV.Tb.Ti.H.D block=4");
    for (long n = 0;; n++) {
        kv_layout *l = NULL;
        kv_err err = {0};
        kv_alloc_fail_after(n);
        const kv_rc rc = kv_layout_new(o, "file.json", &l, &err);
        kv_alloc_fail_after(-1);
        kv_layout_free(l);
        if (rc == KV_OK) break;
        assert_int_equal(rc, KV_ENOMEM);
        assert_true(n < 10);
    }
    json_decref(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layout_new__reads_every_key),
        cmocka_unit_test(layout_new__fills_the_defaults),
        cmocka_unit_test(layout_new__refuses_by_layout_and_key),
        cmocka_unit_test(layout_new__takes_every_factor_at_once),
        cmocka_unit_test(factor_name__names_every_factor),
        cmocka_unit_test(layout_new__survives_every_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
