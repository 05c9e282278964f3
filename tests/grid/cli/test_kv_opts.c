/* The command line: one table, strict values, nothing taken silently. */
#include "grid/cli/kv_opts.h"
#include "tests/kv_test.h"

static int nothing(const kv_opts *o, int argc, char **argv)
{
    (void)o;
    (void)argc;
    (void)argv;
    return 0;
}

static const kv_command cmd = {
    "cmd", "[FILE] [FILE]", "for tests", NULL, "out geometry seed tail format seal select timeout", 0, 2, nothing};
static const kv_command one = {"one", "FILE", "for tests", NULL, "format", 1, 1, nothing};

/* Arguments after "kvgrid cmd", separated by "|". They live as long as the buffer does. */
typedef struct {
    char text[512];
    char *argv[32];
    int argc;
} line;

static void split(line *l, const char *text)
{
    memset(l, 0, sizeof *l);
    snprintf(l->text, sizeof l->text, "%s", text);
    l->argv[l->argc++] = l->text + sizeof l->text - 1;
    l->argv[l->argc++] = l->text + sizeof l->text - 1;
    for (char *p = l->text; *text != '\0' && p != NULL;) {
        char *bar = strchr(p, '|');
        if (bar != NULL) *bar = '\0';
        l->argv[l->argc++] = p;
        p = bar != NULL ? bar + 1 : NULL;
    }
}

static void opts_parse__fills_what_is_asked_and_the_defaults(void **state)
{
    (void)state;
    line l;
    kv_opts o;
    kv_err err = {0};
    split(&l, "");
    kvt_ok(kv_opts_parse(&cmd, l.argc, l.argv, &o, &err), &err);
    assert_int_equal(o.seed, 1);
    assert_int_equal(o.timeout_s, 3600);
    assert_int_equal(o.pass_fd, -1);
    assert_int_equal(o.ranks, 1);
    assert_int_equal(o.n_positional + o.n_geometry, 0);
    assert_true(o.out == NULL && o.tail == NULL && !o.json && !o.seal && !o.help);
    split(
        &l,
        "a.json|-o|out.json|--geometry|L=1|--geometry=L=2,T=3|--seed=7|--tail|nan|--format=json|--seal|b|--timeout|5");
    kvt_ok(kv_opts_parse(&cmd, l.argc, l.argv, &o, &err), &err);
    assert_string_equal(o.out, "out.json");
    assert_int_equal(o.n_geometry, 2);
    assert_string_equal(o.geometry[0], "L=1");
    assert_string_equal(o.geometry[1], "L=2,T=3"); /* only the first = ends the name */
    assert_int_equal(o.seed, 7);
    assert_string_equal(o.tail, "nan");
    assert_true(o.json && o.seal);
    assert_int_equal(o.timeout_s, 5);
    assert_int_equal(o.n_positional, 2);
    assert_string_equal(o.positional[0], "a.json");
    assert_string_equal(o.positional[1], "b");
    split(&l, "--seed|9007199254740991|--out=-");
    kvt_ok(kv_opts_parse(&cmd, l.argc, l.argv, &o, &err), &err);
    assert_int_equal(o.seed, INT64_C(9007199254740991));
    assert_string_equal(o.out, "-");
}

static void opts_parse__ends_options_with_two_dashes(void **state)
{
    (void)state;
    line l;
    kv_opts o;
    kv_err err = {0};
    split(&l, "-|--|--seed");
    kvt_ok(kv_opts_parse(&cmd, l.argc, l.argv, &o, &err), &err);
    assert_string_equal(o.positional[0], "-");
    assert_string_equal(o.positional[1], "--seed");
    assert_int_equal(o.seed, 1);
}

static void opts_parse__asks_for_help_without_arguments(void **state)
{
    (void)state;
    static const char *const asks[] = {"--help", "-h", "-h|x"};
    for (size_t i = 0; i < KVT_COUNT(asks); i++) {
        line l;
        kv_opts o;
        kv_err err = {0};
        split(&l, asks[i]);
        kvt_ok(kv_opts_parse(&one, l.argc, l.argv, &o, &err), &err);
        assert_true(o.help);
    }
}

static void opts_parse__refuses_by_option_and_value(void **state)
{
    (void)state;
    static const struct {
        const kv_command *cmd;
        const char *line, *says[2];
    } cases[] = {
        {&cmd, "--nonsense", {"--nonsense", "--help"}},
        {&cmd, "--see=7", {"--see", "unknown"}},
        {&cmd, "--seeds=7", {"--seeds", "unknown"}},
        {&cmd, "-x", {"-x", "unknown"}},
        {&cmd, "--key=k", {"--key", "unknown"}}, /* known, but not of this command */
        {&cmd, "--", {"", ""}},
        {&cmd, "--seed", {"--seed", "needs a value"}},
        {&cmd, "-o", {"--out", "needs a value"}},
        {&cmd, "--seed=", {"--seed", "integer"}},
        {&cmd, "--seed=x", {"\"x\"", "integer"}},
        {&cmd, "--seed=-1", {"\"-1\"", "0 to 9007199254740991"}},
        {&cmd, "--seed=9007199254740992", {"9007199254740992", "0 to"}},
        {&cmd, "--seed=1 ", {"--seed", "integer"}},
        {&cmd, "--timeout=0", {"--timeout", "1 to"}},
        {&cmd, "--tail=fresh", {"\"fresh\"", "stale|zero|nan"}},
        {&cmd, "--tail=stale|zero", {"--tail", "one of"}},
        {&cmd, "--tail=", {"--tail", "one of"}},
        {&cmd, "--tail=sta", {"\"sta\"", "one of"}},
        {&cmd, "--format=xml", {"\"xml\"", "text|json"}},
        {&cmd, "--out=", {"--out", "empty"}},
        {&cmd, "--seal=1", {"--seal", "no value"}},
        {&cmd, "--seal|--seal", {"--seal", "given twice"}},
        {&cmd, "--seed|3|--seed=3", {"--seed", "given twice"}},
        {&cmd, "--timeout|5|--seed|1|--timeout|5", {"--timeout", "given twice"}},
        {&cmd, "--tail|nan|--tail|zero", {"--tail", "given twice"}},
        {&cmd, "-o|a|--out|b", {"--out", "given twice"}},
        {&cmd, "a|b|c", {"\"c\"", "too many"}},
        {&one, "", {"missing", "kvgrid one FILE"}},
        {&one, "a|b", {"\"b\"", "too many"}},
        {&cmd, "--=x", {"--=x", "unknown"}},
    };
    for (size_t i = 0; i < KVT_COUNT(cases); i++) {
        line l;
        kv_opts o;
        kv_err err = {0};
        split(&l, cases[i].line);
        if (strstr(cases[i].line, "stale|zero") != NULL) { /* a bar inside a value */
            l.argc = 3;
            l.argv[2] = l.text;
            snprintf(l.text, sizeof l.text, "%s", cases[i].line);
        }
        const kv_rc rc = kv_opts_parse(cases[i].cmd, l.argc, l.argv, &o, &err);
        if (cases[i].says[0][0] == '\0')
            assert_int_equal(rc, KV_OK);
        else
            kvt_refused(rc, KV_EINVAL, &err, cases[i].line, KVT_SAYS(cases[i].says[0], cases[i].says[1]));
    }
}

static void opts_parse__takes_a_list_up_to_its_limit(void **state)
{
    (void)state;
    enum { MORE = KV_OPTS_LIST_MAX + 1 };
    static char *argv[2 + MORE];
    char program[] = "kvgrid", option[] = "--geometry=L=1";
    kv_opts o;
    kv_err err = {0};
    argv[0] = argv[1] = program;
    for (int i = 0; i < MORE; i++) argv[2 + i] = option;
    kvt_ok(kv_opts_parse(&cmd, 2 + KV_OPTS_LIST_MAX, argv, &o, &err), &err);
    assert_int_equal(o.n_geometry, KV_OPTS_LIST_MAX);
    kvt_refused(kv_opts_parse(&cmd, 2 + MORE, argv, &o, &err), KV_EINVAL, &err, "257", KVT_SAYS("--geometry", "256"));
}

/* Every option that a command names is in the table, and takes something. */
static void commands__name_only_options_that_exist(void **state)
{
    (void)state;
    static const char *const tries[] = {"", "=1", "=json", "=stale", "=cpu", "=auto", "=none", "=text"};
    for (const kv_command *c = kv_commands; c->name != NULL; c++) {
        assert_non_null(c->run);
        assert_true(c->least <= c->most && c->most <= KV_POSITIONAL_MAX && strlen(c->summary) > 10);
        if (c->options == NULL) continue; /* parses argv itself: tests/cli/cases/codec.sh tries its options */
        for (const char *p = c->options; *p != '\0';) {
            const size_t n = strcspn(p, " ");
            bool taken = false;
            for (size_t t = 0; t < KVT_COUNT(tries) && !taken; t++) {
                char option[80], program[] = "kvgrid", help[] = "--help";
                char *argv[] = {program, program, option, help};
                kv_opts o;
                snprintf(option, sizeof option, "--%.*s%s", (int)n, p, tries[t]);
                taken = kv_opts_parse(c, 4, argv, &o, NULL) == KV_OK && o.help;
            }
            if (!taken) fail_msg("%s: option %.*s is not in the table", c->name, (int)n, p);
            p += n + strspn(p + n, " ");
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opts_parse__fills_what_is_asked_and_the_defaults),
        cmocka_unit_test(opts_parse__ends_options_with_two_dashes),
        cmocka_unit_test(opts_parse__asks_for_help_without_arguments),
        cmocka_unit_test(opts_parse__refuses_by_option_and_value),
        cmocka_unit_test(opts_parse__takes_a_list_up_to_its_limit),
        cmocka_unit_test(commands__name_only_options_that_exist),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
