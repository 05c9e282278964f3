/* `expect` in a campaign file: what is refused, and the place that is named. */
#include "grid/report/kv_expect.h"
#include "tests/kv_test.h"

#define R "'verdict':'REFUSED'"
#define P "'pairs':'a->b'"

static const char *const refused[][2] = {
    {"{}", "\"expect\" must be a list"},
    {"[]", "\"expect\" must be a list of 1 to"},
    {"'a->b'", "\"expect\" must be a list"},
    {"["
     "{" P "," R "},7]",
     "\"expect\"[1]"},
    {"[{" R "}]", "\"pairs\" is missing"},
    {"[{'pairs':['a->b']," R "}]", "\"pairs\""},
    {"[{'pairs':'ab'," R "}]", "\"ab\" must be SRC->DST"},
    {"[{'pairs':'->b'," R "}]", "\"->b\""},
    {"[{'pairs':'a->'," R "}]", "\"a->\""},
    {"[{'pairs':'a->b->c'," R "}]", "\"a->b->c\""},
    {"[{" P "}]", "\"verdict\""},
    {"[{" P "," R ",'at_least':'REFUSED'}]", "not both"},
    {"[{" P ",'verdict':[]}]", "\"verdict\""},
    {"[{" P ",'verdict':'GOOD'}]", "GOOD"},
    {"[{" P ",'verdict':['REFUSED','REFUSED']}]", "REFUSED twice"},
    {"[{" P ",'verdict':'FAILED'}]", "FAILED"}, /* is no verdict */
    {"[{" P ",'at_least':'FAILED'}]", "FAILED"},
    {"[{" P ",'at_least':['REFUSED']}]", "\"at_least\""},
    {"[{" P ",'verdict':3}]", "not a text"},
    {"[{" P "," R ",'geometry':{}}]", "is empty"},
    {"[{" P "," R ",'geometry':[]}]", "\"geometry\""},
    {"[{" P "," R ",'geometry':{'T':40}}]", "unknown key \"T\""},
    {"[{" P "," R ",'geometry':{'tokens':'40'}}]", "\"tokens\""},
    {"[{" P "," R ",'geometry':{'tokens':-1}}]", "\"tokens\""},
    {"[{" P "," R ",'geometry':{'tokens':[]}}]", "\"tokens\""},
    {"[{" P "," R ",'geometry':{'element':'f8'}}]", "\"element\""},
    {"[{" P "," R ",'params':{'tail':'fresh'}}]", "\"tail\""},
    {"[{" P "," R ",'params':{'codec':'x'}}]", "unknown key \"codec\""},
    {"[{" P "," R ",'params':{}}]", "\"params\": is empty"},
    {"[{" P "," R ",'params':{'payload':''}}]", "\"payload\" must be the name of a payload, or a list"},
    {"[{" P "," R ",'params':{'payload':['zeros','a b']}}]", "\"payload\""},
    {"[{" P "," R ",'params':{'cell':[]}}]", "\"cell\""},
    {"[{" P "," R ",'params':{'stream':'kv'}}]", "\"stream\" must be k or v"},
    {"[{" P "," R ",'params':{'bits':3}}]", "\"bits\" must be \"1\" to \"4\""},
    {"[{" P "," R ",'params':{'bits':'5'}}]", "\"bits\""},
    {"[{" P "," R ",'params':{'seed':'01'}}]", "\"seed\""},
    {"[{" P "," R ",'params':{'seed':'-1'}}]", "\"seed\""},
    {"[{" P "," R ",'params':{'from':'65'}}]", "\"from\" must be \"1\" to \"64\""},
    {"[{" P "," R ",'params':{'to':'0'}}]", "\"to\""},
    {"[{" P "," R ",'params':{'send':'all'}}]", "\"send\" must be chunks"},
    {"[{" P "," R ",'params':{'from_stages':2}}]", "\"from_stages\" must be a split"},
    {"[{" P "," R ",'params':{'to_stages':'[[0], [1]]'}}]", "\"to_stages\" must be a split"},
    {"[{" P "," R ",'params':{'to_stages':',,,'}}]", "\"to_stages\" must be a split"},
    {"[{" P "," R ",'params':{'to_stages':'0'}}]", "\"to_stages\" must be a split"},
    {"[{" P "," R ",'params':{'from_stages':['2','[[0],[0]']}}]", "\"from_stages\" must be a split"},
    {"[{" P "," R ",'waiver':'x'}]", "\"waiver\""},
    {"[{" P "," R ",'waiver':{'reason':'r'}}]", "\"until\" is missing"},
    {"[{" P "," R ",'waiver':{'until':'2026-01-01'}}]", "\"reason\" is missing"},
    {"[{" P "," R ",'waiver':{'reason':'','until':'2026-01-01'}}]", "\"reason\""},
    {"[{" P "," R ",'waiver':{'reason':'r','until':'2026-1-01'}}]", "\"2026-1-01\""},
    {"[{" P "," R ",'waiver':{'reason':'r','until':'2026-02-29'}}]", "\"2026-02-29\""},
    {"[{" P "," R ",'waiver':{'reason':'r','until':'2100-02-29'}}]", "\"2100-02-29\""},
    {"[{" P "," R ",'waiver':{'reason':'r','until':'2026-13-01'}}]", "\"2026-13-01\""},
    {"[{" P "," R ",'waiver':{'reason':'r','until':'2026-04-31'}}]", "\"2026-04-31\""},
    {"[{" P "," R ",'waiver':{'reason':'r','until':'0000-01-01'}}]", "\"0000-01-01\""},
    {"[{" P "," R ",'waiver':{'reason':'r','until':'2026-01-01T00:00'}}]", "YYYY-MM-DD"},
    {"[{" P "," R ",'waiver':{'reason':'r','until':'2026-01-01','by':'me'}}]", "unknown key \"by\""},
    {"[{" P "," R ",'waivers':{}}]", "unknown key \"waivers\""},
};

static void expect_check__refuses_and_names_the_place(void **state)
{
    (void)state;
    for (size_t i = 0; i < KVT_COUNT(refused); i++) {
        json_t *list = kvt_json(refused[i][0]);
        kv_err err = {0};
        kvt_refused(kv_expect_check(list, "c.json", &err), KV_EFORMAT, &err, refused[i][0],
                    KVT_SAYS("c.json", "\"expect\"", refused[i][1]));
        json_decref(list);
    }
}

static void expect_check__takes_what_is_well_formed(void **state)
{
    (void)state;
    static const char *const good[] = {
        "[{" P "," R "}]",
        "[{'pairs':'*->?','at_least':'UNPROVEN','geometry':{'layers':1,'tokens':[0,1],'kv_heads':2,'head_dim':8,"
        "'head_dim_v':[4],'element':['f16','fp8_e4m3']},'params':{'tail':['nan']},"
        "'waiver':{'reason':'leap','until':'2028-02-29'}}]",
        "[{'pairs':'a-->b'," R "}]",
        "[{" P "," R ",'params':{'payload':['k-like-1','file:My_k.2'],'stream':['k','v'],'bits':'2'}}]",
        "[{" P "," R ",'params':{'cell':'layer-12','seed':['0','9007199254740991']}}]",
        "[{" P "," R ",'params':{'from':'64','to':['1','2'],'send':['chunks','layers','shard','whole']}}]",
        "[{" P "," R ",'params':{'from_stages':'2','to_stages':['[[0],[1]]','3']}}]"};
    kv_err err = {0};
    kvt_ok(kv_expect_check(NULL, "c.json", &err), &err);
    for (size_t i = 0; i < KVT_COUNT(good); i++) {
        json_t *list = kvt_json(good[i]);
        kvt_ok(kv_expect_check(list, "c.json", &err), &err);
        json_decref(list);
    }
}

static void expect_new__bounds_the_number_of_rules(void **state)
{
    (void)state;
    json_t *list = json_array(), *rule = kvt_json("{" P "," R "}");
    kv_err err = {0};
    for (int i = 0; i < KV_EXPECT_RULES_MAX; i++) json_array_append(list, rule);
    kvt_ok(kv_expect_check(list, "c.json", &err), &err);
    json_array_append(list, rule);
    kvt_refused(kv_expect_check(list, "c.json", &err), KV_EFORMAT, &err, "one too many", KVT_SAYS("1 to 2048"));
    json_decref(rule);
    json_decref(list);
}

static void expect_new__survives_every_failed_allocation(void **state)
{
    (void)state;
    json_t *list = kvt_json("[{" P "," R "},{" P "," R "}]");
    for (long n = 0;; n++) {
        kv_expect *e = NULL;
        kv_err err = {0};
        kv_alloc_fail_after(n);
        const kv_rc rc = kv_expect_new(list, "2026-01-01", "c.json", &e, &err);
        kv_alloc_fail_after(-1);
        kv_expect_free(e);
        if (rc == KV_OK) break;
        assert_int_equal(rc, KV_ENOMEM);
        assert_true(n < 20);
    }
    json_decref(list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(expect_check__refuses_and_names_the_place),
        cmocka_unit_test(expect_check__takes_what_is_well_formed),
        cmocka_unit_test(expect_new__bounds_the_number_of_rules),
        cmocka_unit_test(expect_new__survives_every_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
