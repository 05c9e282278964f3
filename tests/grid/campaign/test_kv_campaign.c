/* The campaign file: what it takes, what it refuses and how, and its way to the other ranks. */
#include "certs/kv_json.h"
#include "tests/kv_test_grid.h"

#define HEAD "'schema':'kvgrid.campaign/v1','name':'n'"
#define PAIRS "'pairs':'all-ordered'"
#define GEO "'geometries':[{'layers':1,'tokens':4,'kv_heads':2,'head_dim':8,'element':'f16'}]"
#define TWO "a sep k=T.H.D; b sep k=H.T.D"

static kv_rc build(const char *spec, const char *layouts, kv_campaign *c, kv_err *err)
{
    kv_catalogue all = kvt_layouts(layouts);
    json_t *s = kvt_json(spec);
    memset(c, 0, sizeof *c);
    const kv_rc rc = kv_campaign_build(s, &all, "file.json", c, err);
    json_decref(s);
    kv_catalogue_free(&all);
    return rc;
}

static void campaign_build__reads_every_key(void **state)
{
    (void)state;
    kv_campaign c;
    kv_err err = {0};
    kvt_ok(build("{" HEAD ",'select':['a*'],'pairs':[['a2','a1']],'tail':['nan','stale'],'values':'payloads','seed':'"
                 "18446744073709551615',"
                 "'claims':{'words':['kv_move'],'frontier_codes':['X2_HEAD_GATHER'],'checks':['pair']},"
                 "'floors':{'exact_byte':3},'geometries':[{'layers':2,'tokens':0,'kv_heads':3,'head_dim':5,'head_dim_v'"
                 ":4,'element':'f32'}]}",
                 "a1 sep k=T.H.D; a2 sep k=H.T.D; b sep k=T.H.D", &c, &err),
           &err);
    assert_string_equal(c.name, "n");
    assert_int_equal(c.catalogue.n, 2);
    assert_true(c.seed == UINT64_MAX);
    assert_int_equal(c.n_tails, 2);
    assert_int_equal(c.n_geometries, 1);
    const kv_geometry want = {2, 0, 3, 5, 4, KV_ELEM_F32};
    assert_true(kv_geometry_equal(&c.geometries[0], &want));
    assert_int_equal(c.n_cells, 2);
    kv_campaign_free(&c);
    assert_int_equal(c.n_cells, 0);
    kv_campaign_free(&c); /* again is fine */
}

static void campaign_build__fills_the_defaults(void **state)
{
    (void)state;
    kv_campaign c;
    kv_err err = {0};
    kvt_ok(build("{" HEAD "," PAIRS "," GEO "}", TWO, &c, &err), &err);
    assert_true(c.seed == 1);
    assert_int_equal(c.n_tails, 1);
    assert_int_equal(c.tails[0], KV_TAIL_STALE);
    assert_int_equal(c.geometries[0].head_dim_v, 8);
    assert_false(c.exhaustive);
    assert_int_equal(kv_campaign_payloads(&c, &c.geometries[0]), 6);
    kv_campaign_free(&c);
}

/* Fields in the fixed order layers, tokens, kv_heads, head_dim, head_dim_v, element, the first slowest. */
static void campaign_build__expands_lists_the_first_field_slowest(void **state)
{
    (void)state;
    static const char *const want[] = {
        "L=1,T=1,H=2,D=8,e=f16",       "L=1,T=1,H=2,D=8,e=f32",       "L=1,T=1,H=2,D=8,Dv=4,e=f16",
        "L=1,T=1,H=2,D=8,Dv=4,e=f32",  "L=1,T=40,H=2,D=8,e=f16",      "L=1,T=40,H=2,D=8,e=f32",
        "L=1,T=40,H=2,D=8,Dv=4,e=f16", "L=1,T=40,H=2,D=8,Dv=4,e=f32", "L=3,T=1,H=2,D=8,e=f16",
        "L=3,T=1,H=2,D=8,e=f32",       "L=3,T=1,H=2,D=8,Dv=4,e=f16",  "L=3,T=1,H=2,D=8,Dv=4,e=f32",
        "L=3,T=40,H=2,D=8,e=f16",      "L=3,T=40,H=2,D=8,e=f32",      "L=3,T=40,H=2,D=8,Dv=4,e=f16",
        "L=3,T=40,H=2,D=8,Dv=4,e=f32", "L=9,T=9,H=9,D=9,e=bf16"};
    kv_campaign c;
    kv_err err = {0};
    kvt_ok(build("{" HEAD "," PAIRS ",'geometries':[{'element':['f16','f32'],'head_dim_v':[8,4],'head_dim':[8],'kv_"
                 "heads':2,'tokens':[1,40],'layers':[1,3]},"
                 "{'layers':9,'tokens':9,'kv_heads':9,'head_dim':9,'element':'bf16'}]}",
                 TWO, &c, &err),
           &err);
    assert_int_equal(c.n_geometries, KVT_COUNT(want));
    for (size_t i = 0; i < KVT_COUNT(want); i++) {
        char text[KV_GEOMETRY_TEXT];
        kv_geometry_print(&c.geometries[i], text);
        assert_string_equal(text, want[i]);
    }
    kv_campaign_free(&c);
}

static const char *const refused[][2] = {
    {"{'name':'n'," PAIRS "," GEO "}", "\"schema\" is missing"},
    {"{'schema':'kvgrid.campaign/v2','name':'n'," PAIRS "," GEO "}", "campaign/v2"},
    {"{'schema':'kvgrid.campaign/v1'," PAIRS "," GEO "}", "\"name\" is missing"},
    {"{'schema':'kvgrid.campaign/v1','name':'../x'," PAIRS "," GEO "}", "../x"},
    {"{'schema':'kvgrid.campaign/v1','name':'a/b'," PAIRS "," GEO "}", "a/b"},
    {"{" HEAD "," PAIRS "," GEO ",'layouts':['x']}", "unknown key \"layouts\""}, /* a spec has none */
    {"{" HEAD "," PAIRS "," GEO ",'pair':'x'}", "unknown key \"pair\""},
    {"{" HEAD "," GEO "}", "\"pairs\""},
    {"{" HEAD "," GEO ",'pairs':'some'}", "\"pairs\""},
    {"{" HEAD "," GEO ",'pairs':[]}", "\"pairs\""},
    {"{" HEAD "," GEO ",'pairs':[['a']]}", "\"pairs\"[0]"},
    {"{" HEAD "," GEO ",'pairs':[['a','b'],['a','b','a']]}", "\"pairs\"[1]"},
    {"{" HEAD "," GEO ",'pairs':[['a','z']]}", "no layout is called \"z\""},
    {"{" HEAD "," GEO ",'pairs':[['a',7]]}", "not a text"},
    {"{" HEAD "," GEO ",'pairs':[['a','a']]}", "pairs a with itself"},
    {"{" HEAD "," GEO ",'pairs':[['a','b'],['b','a'],['a','b']]}", "a->b stands twice"},
    {"{" HEAD "," GEO ",'pairs':'published'}", "vllm-fa"}, /* the anchor is not there */
    {"{" HEAD "," PAIRS "," GEO ",'select':['a','q*']}", "\"q*\""},
    {"{" HEAD "," PAIRS "," GEO ",'select':'a'}", "\"select\""},
    {"{" HEAD "," PAIRS "," GEO ",'select':[1]}", "\"select\""},
    {"{" HEAD "," PAIRS "," GEO ",'select':['a']}", "fewer than two"},
    {"{" HEAD "," PAIRS "," GEO ",'select':[]}", "fewer than two"},
    {"{" HEAD "," PAIRS "," GEO ",'tail':'fresh'}", "\"tail\""},
    {"{" HEAD "," PAIRS "," GEO ",'tail':[]}", "\"tail\""},
    {"{" HEAD "," PAIRS "," GEO ",'tail':['nan','nan']}", "\"nan\" twice"},
    {"{" HEAD "," PAIRS "," GEO ",'tail':3}", "\"tail\""},
    {"{" HEAD "," PAIRS "," GEO ",'values':'some'}", "\"values\""},
    {"{" HEAD "," PAIRS "," GEO ",'seed':-1}", "\"seed\""},
    {"{" HEAD "," PAIRS "," GEO ",'seed':'18446744073709551616'}", "\"seed\""},
    {"{" HEAD "," PAIRS "," GEO ",'seed':'0x1'}", "\"seed\""},
    {"{" HEAD "," PAIRS "," GEO ",'seed':'007'}", "leading zeros"},
    {"{" HEAD "," PAIRS "," GEO ",'seed':[1]}", "\"seed\""},
    {"{" HEAD "," PAIRS "," GEO ",'claims':{'words':['fly']}}", "\"fly\" is not known"},
    {"{" HEAD "," PAIRS "," GEO ",'claims':{'frontier_codes':['X3']}}", "\"X3\" is not known"},
    {"{" HEAD "," PAIRS "," GEO ",'claims':{'checks':['nothing']}}", "\"nothing\" is not known"},
    {"{" HEAD "," PAIRS "," GEO ",'claims':{'tails':[]}}", "unknown key \"tails\""},
    {"{" HEAD "," PAIRS "," GEO ",'claims':{'words':'kv_move'}}", "\"words\""},
    {"{" HEAD "," PAIRS "," GEO ",'floors':{'rows':1}}", "unknown key \"rows\""},
    {"{" HEAD "," PAIRS "," GEO ",'floors':{'exact_byte':-1}}", "\"exact_byte\""},
    {"{" HEAD "," PAIRS "," GEO ",'floors':{'exact_byte':'1'}}", "\"exact_byte\""},
    {"{" HEAD "," PAIRS "}", "\"geometries\""},
    {"{" HEAD "," PAIRS ",'geometries':[]}", "\"geometries\""},
    {"{" HEAD "," PAIRS ",'geometries':{}}", "\"geometries\""},
    {"{" HEAD "," PAIRS ",'geometries':[7]}", "geometries[0]"},
    {"{" HEAD "," PAIRS ",'geometries':[{'layers':1,'tokens':4,'kv_heads':2,'head_dim':8}]}", "\"element\" is missing"},
    {"{" HEAD "," PAIRS ",'geometries':[{'layers':1,'kv_heads':2,'head_dim':8,'element':'f16'}]}",
     "\"tokens\" is missing"},
    {"{" HEAD "," PAIRS ",'geometries':[{'layers':1,'tokens':4,'kv_heads':2,'head_dim':8,'element':'f16','batch':1}]}",
     "unknown key \"batch\""},
    {"{" HEAD "," PAIRS ",'geometries':[{'layers':0,'tokens':4,'kv_heads':2,'head_dim':8,'element':'f16'}]}",
     "layers is 0"},
    {"{" HEAD "," PAIRS ",'geometries':[{'layers':1,'tokens':-4,'kv_heads':2,'head_dim':8,'element':'f16'}]}",
     "tokens is -4"},
    {"{" HEAD "," PAIRS ",'geometries':[{'layers':1,'tokens':4,'kv_heads':2,'head_dim':1048577,'element':'f16'}]}",
     "head_dim is 1048577"},
    {"{" HEAD "," PAIRS ",'geometries':[{'layers':1,'tokens':'4','kv_heads':2,'head_dim':8,'element':'f16'}]}",
     "\"tokens\""},
    {"{" HEAD "," PAIRS ",'geometries':[{'layers':1,'tokens':[],'kv_heads':2,'head_dim':8,'element':'f16'}]}",
     "\"tokens\" is an empty list"},
    {"{" HEAD "," PAIRS ",'geometries':[{'layers':1,'tokens':[4,[5]],'kv_heads':2,'head_dim':8,'element':'f16'}]}",
     "\"tokens\""},
    {"{" HEAD "," PAIRS ",'geometries':[{'layers':1,'tokens':[4,5,4],'kv_heads':2,'head_dim':8,'element':'f16'}]}",
     "L=1,T=4,H=2,D=8,e=f16 stands twice"},
    {"{" HEAD "," PAIRS
     ",'geometries':[{'layers':1,'tokens':4,'kv_heads':2,'head_dim':8,'head_dim_v':8,'element':'f16'},"
     "{'layers':1,'tokens':4,'kv_heads':2,'head_dim':8,'element':'f16'}]}",
     "stands twice"},
    {"{" HEAD "," PAIRS ",'geometries':[{'layers':1,'tokens':4,'kv_heads':2,'head_dim':8,'element':'f8'}]}", "\"f8\""},
    {"{" HEAD "," PAIRS ",'geometries':[{'layers':1,'tokens':4,'kv_heads':2,'head_dim':8,'element':16}]}",
     "\"element\""},
    {"{" HEAD "," PAIRS
     ",'values':'exhaustive','geometries':[{'layers':1,'tokens':4,'kv_heads':2,'head_dim':8,'element':'f32'}]}",
     "f32"},
    {"[]", "object"},
};

static void campaign_build__refuses_by_place_and_key(void **state)
{
    (void)state;
    for (size_t i = 0; i < KVT_COUNT(refused); i++) {
        kv_campaign c;
        kv_err err = {0};
        kvt_refused(build(refused[i][0], TWO, &c, &err), KV_EFORMAT, &err, refused[i][0],
                    KVT_SAYS("file.json", refused[i][1]));
        kv_campaign_free(&c);
    }
}

static void campaign_load__reads_the_published_campaign(void **state)
{
    (void)state;
    kv_campaign c = kvt_published_campaign();
    assert_string_equal(c.name, "published");
    assert_int_equal(c.catalogue.n, 12);
    assert_int_equal(c.n_cells, 64);
    assert_null(json_object_get(c.spec, "layouts"));
    assert_non_null(json_object_get(c.spec, "claims"));
    kv_campaign_free(&c);
}

static kv_rc load(const char *folder, const char *text, kv_campaign *c, kv_err *err)
{
    kvt_put(folder, "c.json", text);
    char *path = kvt_path(folder, "c.json");
    memset(c, 0, sizeof *c);
    const kv_rc rc = kvt_load(path, c, err);
    free(path);
    return rc;
}

static void campaign_load__names_the_file_that_is_wrong(void **state)
{
    (void)state;
    char folder[128];
    kv_campaign c;
    kv_err err = {0};
    kvt_folder(folder);
    kvt_put(folder, "l.json",
            "{'name':'a','engine':'e','attention':'gqa','kv':'separate','k_axes':['T','H','D'],'cite':'c'}");
    kvt_put(folder, "m.json",
            "{'name':'b','engine':'e','attention':'gqa','kv':'separate','k_axes':['H','T','D'],'cite':'c'}");
    kvt_put(folder, "bad.json",
            "{'name':'z','engine':'e','attention':'gqa','kv':'separate','k_axes':['H','T','Q'],'cite':'c'}");
    static const struct {
        const char *text;
        kv_rc rc;
        const char *says[2];
    } cases[] = {
        {"not JSON", KV_EFORMAT, {"c.json", "line 1"}},
        {"[]", KV_EFORMAT, {"c.json", "object"}},
        {"{'a':1,'a':2}", KV_EFORMAT, {"c.json", "a"}},
        {"{" HEAD ",'layouts':[]," PAIRS "," GEO "}", KV_EFORMAT, {"c.json", "\"layouts\""}},
        {"{" HEAD ",'layouts':[7]," PAIRS "," GEO "}", KV_EFORMAT, {"c.json", "\"layouts\""}},
        {"{" HEAD ",'layouts':'l.json'," PAIRS "," GEO "}", KV_EFORMAT, {"c.json", "\"layouts\""}},
        {"{" HEAD ",'layouts':['gone.json']," PAIRS "," GEO "}", KV_EREAD, {"c.json", "gone.json"}},
        {"{" HEAD ",'layouts':['bad.json']," PAIRS "," GEO "}", KV_EFORMAT, {"bad.json", "layout z"}},
        {"{" HEAD ",'layouts':['l.json','l.json']," PAIRS "," GEO "}", KV_EFORMAT, {"l.json", "declared twice"}},
        {"{" HEAD ",'layouts':['l.json','m.json']," PAIRS "," GEO ",'seed':1.5}", KV_EFORMAT, {"c.json", ""}}};
    for (size_t i = 0; i < KVT_COUNT(cases); i++) {
        kvt_refused(load(folder, cases[i].text, &c, &err), cases[i].rc, &err, cases[i].text,
                    KVT_SAYS(cases[i].says[0], cases[i].says[1]));
        kv_campaign_free(&c);
    }
    kvt_ok(load(folder, "{" HEAD ",'layouts':['l.json','./m.json']," PAIRS "," GEO "}", &c, &err),
           &err); /* relative to the file */
    assert_int_equal(c.n_cells, 2);
    kv_campaign_free(&c);
    memset(&c, 0, sizeof c);
    kvt_refused(kvt_load("/no/such/campaign.json", &c, &err), KV_EREAD, &err, "gone",
                KVT_SAYS("/no/such/campaign.json"));
    kv_campaign_free(&c);
    static const char *const files[] = {"c.json", "l.json", "m.json", "bad.json"};
    for (size_t i = 0; i < KVT_COUNT(files); i++) kvt_remove(folder, files[i]);
    assert_int_equal(rmdir(folder), 0);
}

static void assert_equal_campaigns(const kv_campaign *a, const kv_campaign *b)
{
    assert_string_equal(a->name, b->name);
    assert_true(a->seed == b->seed);
    assert_int_equal(a->exhaustive, b->exhaustive);
    assert_true(json_equal(a->spec, b->spec));
    assert_int_equal(a->catalogue.n, b->catalogue.n);
    for (size_t i = 0; i < a->catalogue.n; i++)
        assert_true(json_equal(a->catalogue.item[i]->json, b->catalogue.item[i]->json));
    assert_int_equal(a->n_geometries, b->n_geometries);
    for (size_t i = 0; i < a->n_geometries; i++) assert_true(kv_geometry_equal(&a->geometries[i], &b->geometries[i]));
    assert_int_equal(a->n_cells, b->n_cells);
    assert_memory_equal(a->cells, b->cells, a->n_cells * sizeof *a->cells);
}

/* What other ranks get is the same campaign; packing twice gives the same bytes. */
static void campaign_pack__comes_back_the_same(void **state)
{
    (void)state;
    kv_campaign list[3] = {kvt_published_campaign(),
                           kvt_campaign("a sep k=T.H.D; b lat k=Tb.Ti.C block=3; c int k=KV.T.H.D tp=1/2",
                                        "L=2,T=3,H=4,D=6,e=bf16",
                                        "'tail':['zero','stale','nan'],'seed':'12345678901234567890','select':['*']"),
                           kvt_campaign(TWO, "L=1,T=3,H=1,D=2,e=fp8_e4m3", "'values':'exhaustive'")};
    for (size_t i = 0; i < KVT_COUNT(list); i++) {
        kv_buf one = {0}, two = {0};
        kv_campaign back = {0};
        kv_err err = {0};
        kvt_ok(kv_campaign_pack(&list[i], &one, &err), &err);
        kvt_ok(kv_campaign_unpack(one.data, one.len, &back, &err), &err);
        assert_equal_campaigns(&list[i], &back);
        kvt_ok(kv_campaign_pack(&back, &two, &err), &err);
        assert_int_equal(one.len, two.len);
        assert_memory_equal(one.data, two.data, one.len);
        kv_buf_free(&one);
        kv_buf_free(&two);
        kv_campaign_free(&back);
        kv_campaign_free(&list[i]);
    }
    kv_campaign c = {0};
    assert_int_equal(kv_campaign_unpack("{}", 2, &c, NULL), KV_EFORMAT);
    kv_campaign_free(&c);
}

static void campaign_load__survives_every_failed_allocation(void **state)
{
    (void)state;
    for (long n = 0;; n++) {
        kv_campaign c = {0}, back = {0};
        kv_buf text = {0};
        kv_err err = {0};
        kv_alloc_fail_after(n);
        kv_rc rc = kvt_load(KVT_PUBLISHED_CAMPAIGN, &c, &err);
        if (rc == KV_OK) rc = kv_campaign_pack(&c, &text, &err);
        if (rc == KV_OK) rc = kv_campaign_unpack(text.data, text.len, &back, &err);
        kv_alloc_fail_after(-1);
        kv_campaign_free(&c);
        kv_campaign_free(&back);
        kv_buf_free(&text);
        if (rc == KV_OK) {
            assert_true(n > 50);
            break;
        }
        assert_int_equal(rc, KV_ENOMEM);
        assert_int_equal(err.rc, KV_ENOMEM);
        assert_true(n < 5000);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(campaign_build__reads_every_key),
        cmocka_unit_test(campaign_build__fills_the_defaults),
        cmocka_unit_test(campaign_build__expands_lists_the_first_field_slowest),
        cmocka_unit_test(campaign_build__refuses_by_place_and_key),
        cmocka_unit_test(campaign_load__reads_the_published_campaign),
        cmocka_unit_test(campaign_load__names_the_file_that_is_wrong),
        cmocka_unit_test(campaign_pack__comes_back_the_same),
        cmocka_unit_test(campaign_load__survives_every_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
