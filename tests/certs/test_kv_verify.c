/* The verifier against sound, broken and torn certificates, and against certs/verify.py. The documents are
 * made by tests/certs/mutations.py, which shares no code with either verifier. */
#include "tests/kv_test.h"

#include "certs/kv_json.h"
#include "tests/certs/kv_verify_docs.h"

static kv_buf sound; /* the bytes of sound_published.json */

/* The fault of this code whose text holds the needle. */
static void check_fault(const kv_verify_report *r, kv_hcode code, const char *needle)
{
    for (size_t i = 0; i < r->n_faults; i++)
        if (r->faults[i].code == code && strstr(r->faults[i].actual, needle) != NULL) return;
    fail_msg("no %s says \"%s\"", kv_hcode_name(code), needle);
}

static void h1__tells_wrong_unknown_and_no_trust_apart(void **state)
{
    (void)state;
    kv_key *k = NULL;
    kv_trust *other = NULL;
    assert_int_equal(kv_key_new(NULL, &k, NULL), KV_OK);
    assert_int_equal(kv_trust_of_key(k, &other, NULL), KV_OK);
    kv_verify_report r = verify(sound.data, sound.len, NULL);
    check_fault(&r, KV_H1_SIGNATURE_INVALID, "no trust given");
    assert_true(r.signature_good);
    assert_false(r.signer_trusted);
    char id[KV_KEY_ID_HEX];
    memcpy(id, r.key_id, sizeof id);
    kv_verify_report_free(&r);
    r = verify(sound.data, sound.len, other);
    check_fault(&r, KV_H1_SIGNATURE_INVALID, "signer unknown");
    check_fault(&r, KV_H1_SIGNATURE_INVALID, id); /* names the key id */
    assert_int_equal(r.n_faults, 1);
    kv_verify_report_free(&r);
    kv_buf changed = read_file("h1_changed_run.json");
    r = verify(changed.data, changed.len, trust);
    check_fault(&r, KV_H1_SIGNATURE_INVALID, "signature wrong");
    assert_int_equal(r.n_faults, 1);
    kv_verify_report_free(&r);
    kv_buf_free(&changed);
    kv_trust_free(other);
    kv_key_free(k);
}

static void report__is_told_as_text_and_as_json(void **state)
{
    (void)state;
    kv_buf bytes = read_file("h4_one_position.json"), text = {0};
    json_t *o = NULL;
    kv_verify_report r = verify(bytes.data, bytes.len, trust);
    assert_int_equal(kv_verify_text(&r, &text, NULL), KV_OK);
    assert_non_null(strstr(text.data, "H4_PROOF_NOT_EXHAUSTIVE $.rows["));
    assert_non_null(strstr(text.data, "].proof.positions_total: expected "));
    assert_non_null(strstr(text.data, ", found 1\n"));
    assert_non_null(strstr(text.data, "refused: 2 faults\n"));
    kv_buf_free(&text);
    assert_int_equal(kv_verify_json(&r, &text, NULL), KV_OK);
    assert_int_equal(kv_json_parse(text.data, text.len, text.len, &o, NULL), KV_OK);
    assert_int_equal(json_integer_value(json_object_get(o, "exit")), 3);
    assert_int_equal(json_array_size(json_object_get(o, "faults")), 2);
    json_decref(o);
    kv_buf_free(&text);
    kv_verify_report_free(&r);
    kv_buf_free(&bytes);
}

static void allow_unproven__accepts_unproven_rows_alone(void **state)
{
    (void)state;
    static const kv_verify_opts opts = {.allow_unproven = true};
    static const struct {
        const char *name;
        int exit_code;
    } cases[] = {{"sound_unproven.json", 0}, {"sound_failed.json", 4}, {"sound_all_unproven.json", 4}};
    for (size_t i = 0; i < KVT_COUNT(cases); i++) {
        kv_buf bytes = read_file(cases[i].name);
        kv_verify_report r = {0};
        assert_int_equal(kv_verify_bytes(bytes.data, bytes.len, trust, &opts, &r, NULL), KV_OK);
        assert_int_equal(r.exit_code, cases[i].exit_code);
        kv_verify_report_free(&r);
        kv_buf_free(&bytes);
    }
}

static void verify_file__names_what_cannot_be_read(void **state)
{
    (void)state;
    kv_verify_report r = {0};
    kv_err err = {0};
    char *cert = kvt_path(dir, "sound_published.json"), *keys = kvt_path(dir, "trusted.pub");
    kv_buf read = {0};
    assert_int_equal(kv_verify_file(cert, keys, NULL, &r, &read, &err), KV_OK);
    assert_int_equal(read.len, sound.len);
    assert_memory_equal(read.data, sound.data, sound.len);
    kv_buf_free(&read);
    assert_int_equal(r.exit_code, 0);
    assert_string_equal(r.campaign, "published");
    assert_int_equal(r.rows, 64);
    assert_int_equal(r.verdicts[KV_VERDICT_EXACT_BYTE], 21);
    kv_verify_report_free(&r);
    kvt_refused(kv_verify_file("/no/such.json", keys, NULL, &r, NULL, &err), KV_EREAD, &err, "cert",
                KVT_SAYS("/no/such.json"));
    kvt_refused(kv_verify_file(cert, "/no/such.pub", NULL, &r, NULL, &err), KV_EREAD, &err, "trust",
                KVT_SAYS("/no/such.pub"));
    kvt_refused(kv_verify_file(cert, cert, NULL, &r, NULL, &err), KV_EREAD, &err, "trust", KVT_SAYS("65536"));
    free(cert);
    free(keys);
}

/* A check that says better than rows and controls is told by its own place, beside what made it so. */
static void checks__are_told_where_they_say_better(void **state)
{
    (void)state;
    static const struct {
        const char *name, *check;
    } cases[] = {{"h9_padding_denied.json", "token_class_is_unread_padding"},
                 {"h9_degenerate_reference.json", "reference_sequence_not_degenerate"},
                 {"h9_claimed_word.json", "claimed_vocabulary_exercised"},
                 {"h9_claimed_code.json", "claimed_frontier_codes_reached"},
                 {"h9_leg_without_its_control.json", "token_leg_not_vacuous"},
                 {"h9_round_trip_without_its_control.json", "round_trip_alone_is_not_exact"}};
    for (size_t i = 0; i < KVT_COUNT(cases); i++) {
        char place[64];
        json_t *doc = NULL;
        kv_buf bytes = read_file(cases[i].name);
        kv_verify_report r = verify(bytes.data, bytes.len, trust);
        assert_int_equal(kv_json_parse(bytes.data, bytes.len, bytes.len, &doc, NULL), KV_OK);
        const json_t *checks = json_object_get(doc, "checks");
        size_t at = 0;
        while (strcmp(json_string_value(json_object_get(json_array_get(checks, at), "name")), cases[i].check) != 0)
            at++;
        snprintf(place, sizeof place, "$.checks[%zu].passed", at);
        size_t found = 0;
        for (size_t k = 0; k < r.n_faults; k++)
            found += r.faults[k].code == KV_H9_GUARD_FAILED_OPEN && strcmp(r.faults[k].path, place) == 0;
        if (found != 1) fail_msg("%s: %zu faults at %s", cases[i].name, found, place);
        json_decref(doc);
        kv_verify_report_free(&r);
        kv_buf_free(&bytes);
    }
}

/* Cut anywhere or one bit flipped anywhere: never sound, never a crash. */
static void verify__refuses_every_torn_and_flipped_document(void **state)
{
    (void)state;
    uint64_t rng = 5;
    for (size_t n = 0; n < sound.len; n += 1 + (size_t)kvt_below(&rng, 400)) {
        kv_verify_report r = verify(sound.data, n, trust);
        assert_int_equal(r.exit_code, 1);
        kv_verify_report_free(&r);
    }
    for (int i = 0; i < 400; i++) {
        const size_t at = (size_t)kvt_below(&rng, (int64_t)sound.len);
        const char bit = (char)(1 << kvt_below(&rng, 8));
        sound.data[at] = (char)(sound.data[at] ^ bit);
        kv_verify_report r = verify(sound.data, sound.len, trust);
        assert_true(r.exit_code == 1 || r.exit_code == 3);
        kv_verify_report_free(&r);
        sound.data[at] = (char)(sound.data[at] ^ bit);
    }
}

static void verify__survives_every_failed_allocation(void **state)
{
    (void)state;
    kv_buf bytes = read_file("h4_sampled.json");
    for (long n = 0;; n += n < 60 ? 1 : 41) {
        kv_verify_report r = {0};
        kv_alloc_fail_after(n);
        const kv_rc rc = kv_verify_bytes(bytes.data, bytes.len, trust, NULL, &r, NULL);
        kv_alloc_fail_after(-1);
        kv_verify_report_free(&r);
        if (rc == KV_OK) break;
        assert_int_equal(rc, KV_ENOMEM);
    }
    kv_buf_free(&bytes);
}

/* ---- verify.py as a program ---------------------------------------------------------------------- */

static int run_python(const char *environment, const char *arguments, kv_buf *out)
{
    char command[1024], piece[256];
    /* the interpreter itself, as PATH may lead nowhere */
    snprintf(
        command, sizeof command,
        "cd '%s' && p=$(python3 -c 'import sys; print(sys.executable)') && env %s \"$p\" '%s/certs/verify.py' %s 2>&1",
        dir, environment, KV_SOURCE_DIR, arguments);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    while (fgets(piece, sizeof piece, f) != NULL) assert_int_equal(kv_buf_puts(out, piece, NULL), KV_OK);
    const int status = pclose(f);
    return status / 256; /* the exit code of a program that ended by itself */
}

static void verify_py__has_the_exit_codes_and_options(void **state)
{
    (void)state;
    static const struct {
        const char *environment, *arguments;
        int exit_code;
        const char *says;
    } cases[] = {
        {"", "sound_published.json --trust trusted.pub", 0, "sound\n"},
        {"KVGRID_TRUST=trusted.pub", "sound_published.json", 0, "sound\n"},
        {"-u KVGRID_TRUST XDG_CONFIG_HOME=/nonexistent", "sound_published.json", 3, "no trust given"},
        {"PATH=/nonexistent", "sound_published.json --trust trusted.pub", 2, "signature was not checked"},
        {"PATH=/nonexistent", "h4_sampled.json --trust trusted.pub", 3, "H4_PROOF_NOT_EXHAUSTIVE"},
        {"", "h1_forged_signer.json --trust trusted.pub", 3, "signer unknown"},
        {"", "h1_changed_run.json --trust trusted.pub", 3, "signature wrong"},
        {"", "h0_torn.json --trust trusted.pub", 1, "H0_DOCUMENT_UNREADABLE"},
        {"", "sound_unproven.json --trust trusted.pub", 4, "UNPROVEN"},
        {"", "sound_unproven.json --trust trusted.pub --allow-unproven", 0, "sound\n"},
        {"", "sound_emulated.json --trust trusted.pub", 4, "made on an emulated device"},
        {"", "sound_emulated.json --trust trusted.pub --allow-emulated", 0, "sound\n"},
        {"", "sound_emulated.json --trust trusted.pub --allow-emulated --require 'device=emulated,ranks>=1'", 0,
         "sound\n"},
        {"", "sound_published.json --trust trusted.pub --require device=cpu", 0, "sound\n"},
        {"", "sound_published.json --trust trusted.pub --require device=cuda", 4,
         "--require device=cuda: a rank has cpu"},
        {"", "sound_published.json --trust trusted.pub --require transport=nccl", 4, "moved nothing over it"},
        {"", "sound_published.json --trust trusted.pub --require 'ranks>=2'", 4, "--require ranks>=2: there are 1"},
        {"", "sound_other_run.json --trust trusted.pub --require 'device=cpu,ranks>=8'", 0, "sound\n"},
        {"", "sound_merged.json --trust trusted.pub --require 'ranks>=6'", 4, "there are 5"},
        {"", "sound_unproven.json --trust trusted.pub --require device=cuda", 4, "--require device=cuda"},
        {"", "h10_ranks_above.json --trust trusted.pub --require 'ranks>=8'", 3, "H10_COUNTS_DO_NOT_RECOMPUTE"},
        {"", "sound_published.json --trust trusted.pub --require device=gpu", 2, "--require"},
        {"", "sound_published.json --trust trusted.pub --require device=cpu,device=cpu", 2, "given twice"},
        {"", "sound_published.json --trust trusted.pub --require 'ranks>=0'", 2, "out of range"},
        {"", "sound_published.json --trust trusted.pub --require ranks=2", 2, "must be device="},
        {"", "sound_published.json --trust trusted.pub --require ''", 2, "must be device="},
        {"", "h4_sampled.json --trust trusted.pub --format json", 3, "\"code\":\"H4_PROOF_NOT_EXHAUSTIVE\""},
        {"", "nothing.json --trust trusted.pub", 1, "nothing.json"},
        {"", "sound_published.json --trust nothing.pub", 1, "nothing.pub"},
        {"", "--no-such-option", 2, "usage"},
    };
    for (size_t i = 0; i < KVT_COUNT(cases); i++) {
        kv_buf out = {0};
        const int code = run_python(cases[i].environment, cases[i].arguments, &out);
        if (code != cases[i].exit_code) fail_msg("%s: exit %d\n%s", cases[i].arguments, code, out.data);
        if (strstr(out.data, cases[i].says) == NULL)
            fail_msg("%s: does not say %s\n%s", cases[i].arguments, cases[i].says, out.data);
        kv_buf_free(&out);
    }
}

/* ---- without any verifier of ours ------------------------------------------------------------------ */

/* The recipe of docs/keys.md, as it stands there. */
static void openssl__alone_checks_a_signature(void **state)
{
    (void)state;
    char command[2048];
    snprintf(command, sizeof command,
             "cd '%s' && check() {\n"
             "sed -E 's/\"signature\":\\{[^}]*\\},//' $1 >signed.bin\n"
             "sed -E 's/.*\"signature\":\\{[^}]*\"sig\":\"([0-9a-f]+)\".*/\\1/' $1 | tr a-f A-F | basenc --base16 -d "
             ">sig.bin\n"
             "awk '$1 == \"ed25519\" { print \"302a300506032b6570032100\" $3; exit }' trusted.pub | tr a-f A-F | "
             "basenc --base16 -d "
             ">key.der\n"
             "openssl pkeyutl -verify -pubin -inkey key.der -keyform DER -rawin -in signed.bin -sigfile sig.bin "
             ">openssl.log 2>&1\n"
             "}\ncheck sound_published.json && check h2_relabelled_up.json && ! check h1_changed_run.json",
             dir);
    assert_int_equal(system(command), 0);
}

/* ---- the folder of documents ----------------------------------------------------------------------- */

static int make_documents(void **state)
{
    (void)state;
    if (!make_folder("--only others --random 80 --campaigns 6")) return 1;
    sound = read_file("sound_published.json");
    return 0;
}

static int remove_documents(void **state)
{
    (void)state;
    kv_buf_free(&sound);
    return remove_folder();
}

int main(void)
{
    if (system("command -v python3 >/dev/null && command -v openssl >/dev/null") != 0) {
        print_message("python3 and openssl are needed to make certificates\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(verify__gives_each_mutation_its_code),
        KVT_BOTH_VERIFIERS cmocka_unit_test(h1__tells_wrong_unknown_and_no_trust_apart),
        cmocka_unit_test(report__is_told_as_text_and_as_json),
        cmocka_unit_test(allow_unproven__accepts_unproven_rows_alone),
        cmocka_unit_test(verify_file__names_what_cannot_be_read),
        cmocka_unit_test(checks__are_told_where_they_say_better),
        cmocka_unit_test(verify__refuses_every_torn_and_flipped_document),
        cmocka_unit_test(verify__survives_every_failed_allocation),
        cmocka_unit_test(verify_py__has_the_exit_codes_and_options),
        cmocka_unit_test(openssl__alone_checks_a_signature),
        cmocka_unit_test(schema__fits_what_is_sound),
    };
    return cmocka_run_group_tests(tests, make_documents, remove_documents) != 0;
}
