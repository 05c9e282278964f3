/* Keys: file modes, sealing, refusals, where they are looked for, and RFC 8032. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/kv_file.h"
#include "certs/kv_hash.h"
#include "certs/kv_key.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[] = "/tmp/kv_key_test.XXXXXX";

static const char *in_dir(const char *name)
{
    static char paths[8][512];
    static unsigned next;
    char *p = paths[next++ % 8];
    snprintf(p, sizeof paths[0], "%s/%s", dir, name);
    return p;
}

static unsigned mode_of(const char *path)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return (unsigned)(st.st_mode & 07777);
}

static void put_file(const char *path, const char *text)
{
    assert_int_equal(kv_file_write(path, text, strlen(text), 0600, KV_FILE_REPLACE, NULL), KV_OK);
}

static void sign__gives_the_vectors_of_rfc_8032(void **state)
{
    (void)state;
    /* section 7.1, TEST 2 */
    static const char seed_hex[] = "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb";
    static const char want_public[] = "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c";
    static const char want_sig[] = "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
                                   "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00";
    uint8_t seed[32], sig[KV_KEY_SIG_BYTES];
    char hex[KV_KEY_SIG_HEX];
    kv_key *k = NULL;
    assert_true(kv_hex_decode(seed_hex, seed, sizeof seed));
    assert_int_equal(kv_key_new(seed, &k, NULL), KV_OK);
    kv_hex_encode(kv_key_public_view(k), KV_KEY_PUBLIC_BYTES, hex);
    assert_string_equal(hex, want_public);
    assert_int_equal(kv_key_sign(k, "\x72", 1, sig, NULL), KV_OK);
    kv_hex_encode(sig, sizeof sig, hex);
    assert_string_equal(hex, want_sig);
    assert_true(kv_key_verify(kv_key_public_view(k), "\x72", 1, sig));
    assert_false(kv_key_verify(kv_key_public_view(k), "\x73", 1, sig));
    sig[0] ^= 1;
    assert_false(kv_key_verify(kv_key_public_view(k), "\x72", 1, sig));
    kv_key_free(k);
}

static void generate__writes_modes_0600_and_0644_and_loads_again(void **state)
{
    (void)state;
    char id[KV_KEY_ID_HEX], id2[KV_KEY_ID_HEX];
    kv_key *k = NULL;
    kv_trust *t = NULL;
    mode_t old = umask(077);
    assert_int_equal(kv_key_generate(in_dir("a.sec"), NULL, id, NULL), KV_OK);
    umask(old);
    assert_int_equal(mode_of(in_dir("a.sec")), 0600);
    assert_int_equal(mode_of(in_dir("a.sec.pub")), 0644);
    assert_int_equal(kv_key_load(in_dir("a.sec"), NULL, &k, NULL), KV_OK);
    kv_key_id_of(kv_key_public_view(k), id2);
    assert_string_equal(id, id2);
    assert_int_equal(kv_trust_load(in_dir("a.sec.pub"), &t, NULL), KV_OK);
    assert_int_equal(kv_trust_count(t), 1);
    assert_true(kv_trust_has(t, kv_key_public_view(k)));
    kv_trust_free(t);
    kv_key_free(k);
}

static void generate__never_overwrites_either_file(void **state)
{
    (void)state;
    char id[KV_KEY_ID_HEX];
    kv_buf text = {0};
    kv_err err = {0};
    put_file(in_dir("b.sec"), "mine");
    assert_int_equal(kv_key_generate(in_dir("b.sec"), NULL, id, &err), KV_EEXIST);
    assert_non_null(strstr(err.text, "b.sec"));
    assert_false(kv_path_exists(in_dir("b.sec.pub")));
    put_file(in_dir("c.sec.pub"), "mine");
    kv_err_clear(&err);
    assert_int_equal(kv_key_generate(in_dir("c.sec"), NULL, id, &err), KV_EEXIST);
    assert_non_null(strstr(err.text, "c.sec.pub"));
    assert_false(kv_path_exists(in_dir("c.sec")));
    assert_int_equal(kv_file_read(in_dir("c.sec.pub"), 100, &text, NULL), KV_OK);
    assert_string_equal(text.data, "mine");
    kv_buf_free(&text);
    assert_int_equal(kv_key_generate(in_dir("no/such/folder/k"), NULL, id, NULL), KV_EWRITE);
}

static void load__refuses_a_key_that_others_can_use(void **state)
{
    (void)state;
    static const mode_t bad[] = {0640, 0604, 0620, 0602, 0610, 0644, 0660};
    char id[KV_KEY_ID_HEX];
    kv_key *k = NULL;
    const char *path = in_dir("d.sec");
    assert_int_equal(kv_key_generate(path, NULL, id, NULL), KV_OK);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char want[16];
        kv_err err = {0};
        assert_int_equal(chmod(path, bad[i]), 0);
        assert_int_equal(kv_key_load(path, NULL, &k, &err), KV_ESIG);
        snprintf(want, sizeof want, "mode %04o", (unsigned)bad[i]);
        assert_non_null(strstr(err.text, want));
        assert_non_null(strstr(err.text, "chmod 600 "));
    }
    assert_int_equal(chmod(path, 0400), 0);
    assert_int_equal(kv_key_load(path, NULL, &k, NULL), KV_OK);
    kv_key_free(k);
}

static void sealed__needs_the_right_passphrase(void **state)
{
    (void)state;
    char id[KV_KEY_ID_HEX];
    kv_pass *right = NULL, *wrong = NULL;
    kv_key *k = NULL;
    kv_err err = {0};
    kv_buf text = {0};
    assert_int_equal(kv_pass_dup("correct horse", 13, &right, NULL), KV_OK);
    assert_int_equal(kv_pass_dup("correct horsf", 13, &wrong, NULL), KV_OK);
    assert_int_equal(kv_key_generate(in_dir("e.sec"), right, id, NULL), KV_OK);
    assert_int_equal(mode_of(in_dir("e.sec")), 0600);
    assert_int_equal(kv_file_read(in_dir("e.sec"), 10000, &text, NULL), KV_OK);
    assert_null(strstr(text.data, "seed"));
    kv_buf_free(&text);
    assert_int_equal(kv_key_load(in_dir("e.sec"), NULL, &k, &err), KV_ESIG);
    assert_non_null(strstr(err.text, "KVGRID_PASSPHRASE"));
    kv_err_clear(&err);
    assert_int_equal(kv_key_load(in_dir("e.sec"), wrong, &k, &err), KV_ESIG);
    assert_non_null(strstr(err.text, "passphrase is wrong"));
    assert_int_equal(kv_key_load(in_dir("e.sec"), right, &k, NULL), KV_OK);
    kv_key_free(k);
    kv_pass_free(right);
    kv_pass_free(wrong);
}

static void pass__comes_from_a_descriptor_or_the_environment(void **state)
{
    (void)state;
    kv_pass *p = NULL;
    int fds[2];
    char rest[8] = {0};
    unsetenv("KVGRID_PASSPHRASE");
    assert_int_equal(kv_pass_find(-1, &p, NULL), KV_OK);
    assert_null(p);
    setenv("KVGRID_PASSPHRASE", "", 1);
    assert_int_equal(kv_pass_find(-1, &p, NULL), KV_EINVAL);
    setenv("KVGRID_PASSPHRASE", "from env", 1);
    assert_int_equal(kv_pass_find(-1, &p, NULL), KV_OK);
    assert_non_null(p);
    kv_pass_free(p);
    unsetenv("KVGRID_PASSPHRASE");
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(write(fds[1], "secret\nrest", 11), 11);
    assert_int_equal(kv_pass_find(fds[0], &p, NULL), KV_OK);
    assert_int_equal(read(fds[0], rest, 4), 4); /* what follows the line is left alone */
    assert_string_equal(rest, "rest");
    kv_pass_free(p);
    close(fds[1]);
    assert_int_equal(kv_pass_find(fds[0], &p, NULL), KV_EINVAL); /* ended: empty */
    close(fds[0]);
    assert_int_equal(kv_pass_find(fds[0], &p, NULL), KV_EREAD);
    char *big = malloc(1025);
    memset(big, 'x', 1025);
    assert_int_equal(kv_pass_dup(big, 1025, &p, NULL), KV_EINVAL);
    assert_int_equal(kv_pass_dup(big, 1024, &p, NULL), KV_OK);
    kv_pass_free(p);
    free(big);
}

/* Every single-byte change of a key file is refused: it cannot give another key. */
static void parse__refuses_every_changed_byte(void **state)
{
    (void)state;
    char id[KV_KEY_ID_HEX];
    kv_buf text = {0};
    kv_key *k = NULL;
    assert_int_equal(kv_key_generate(in_dir("f.sec"), NULL, id, NULL), KV_OK);
    assert_int_equal(kv_file_read(in_dir("f.sec"), 10000, &text, NULL), KV_OK);
    for (size_t i = 0; i < text.len; i++) {
        text.data[i] = (char)(text.data[i] ^ 1);
        kv_err err = {0};
        assert_int_equal(kv_key_parse(text.data, text.len, "f", NULL, &k, &err), KV_EFORMAT);
        assert_non_null(strstr(err.text, "f:"));
        text.data[i] = (char)(text.data[i] ^ 1);
    }
    for (size_t n = 0; n + 1 < text.len; n++) /* without its last newline it is still a key */
        assert_int_equal(kv_key_parse(text.data, n, "f", NULL, &k, NULL), KV_EFORMAT);
    kv_buf_free(&text);
}

static void trust__reads_several_keys_and_names_the_bad_line(void **state)
{
    (void)state;
    kv_buf text = {0};
    kv_trust *t = NULL;
    kv_err err = {0};
    char id[KV_KEY_ID_HEX];
    for (int i = 0; i < 3; i++) {
        char name[32], pub[40];
        kv_buf one = {0};
        snprintf(name, sizeof name, "t%d.sec", i);
        snprintf(pub, sizeof pub, "t%d.sec.pub", i);
        assert_int_equal(kv_key_generate(in_dir(name), NULL, id, NULL), KV_OK);
        assert_int_equal(kv_file_read(in_dir(pub), 1000, &one, NULL), KV_OK);
        assert_int_equal(
            kv_buf_printf(&text, NULL, "# key %d\n\n%.*s the build farm\r\n", i, (int)one.len - 1, one.data), KV_OK);
        kv_buf_free(&one);
    }
    assert_int_equal(kv_trust_parse(text.data, text.len, "keys", &t, NULL), KV_OK);
    assert_int_equal(kv_trust_count(t), 3);
    kv_trust_free(t);
    char *hex = strrchr(text.data, 't') - 4; /* " the build": change a digit of the last key before it */
    while (*hex != ' ') hex--;
    hex[-1] = hex[-1] == '0' ? '1' : '0';
    assert_int_equal(kv_trust_parse(text.data, text.len, "keys", &t, &err), KV_EFORMAT);
    assert_non_null(strstr(err.text, "keys: line 9: the key id does not belong"));
    kv_buf_free(&text);
    kv_err_clear(&err);
    assert_int_equal(kv_trust_parse("# none\n", 7, "keys", &t, &err), KV_EFORMAT);
    assert_non_null(strstr(err.text, "holds no public key"));
    kv_err_clear(&err);
    assert_int_equal(kv_trust_load(in_dir("t0.sec"), &t, &err), KV_EFORMAT);
    assert_non_null(strstr(err.text, "secret key file"));
    assert_int_equal(kv_trust_load(dir, &t, NULL), KV_EREAD);
}

static void find_path__prefers_given_then_environment_then_config(void **state)
{
    (void)state;
    char *p = NULL;
    kv_err err = {0};
    unsetenv("KVGRID_TRUST");
    unsetenv("KVGRID_KEY");
    setenv("XDG_CONFIG_HOME", dir, 1);
    assert_int_equal(kv_trust_find_path(NULL, &p, NULL), KV_OK);
    assert_null(p); /* none given */
    assert_int_equal(kv_key_find_path(NULL, &p, &err), KV_EREAD);
    assert_non_null(strstr(err.text, "kvgrid/key.sec"));
    assert_int_equal(mkdir(in_dir("kvgrid"), 0700), 0);
    put_file(in_dir("kvgrid/trusted.pub"), "");
    put_file(in_dir("kvgrid/key.sec"), "");
    assert_int_equal(kv_trust_find_path(NULL, &p, NULL), KV_OK);
    assert_string_equal(p, in_dir("kvgrid/trusted.pub"));
    kv_free(p);
    assert_int_equal(kv_key_find_path(NULL, &p, NULL), KV_OK);
    assert_string_equal(p, in_dir("kvgrid/key.sec"));
    kv_free(p);
    unsetenv("XDG_CONFIG_HOME");
    assert_int_equal(mkdir(in_dir(".config"), 0700), 0);
    assert_int_equal(rename(in_dir("kvgrid"), in_dir(".config/kvgrid")), 0);
    setenv("HOME", dir, 1);
    assert_int_equal(kv_trust_find_path(NULL, &p, NULL), KV_OK);
    assert_string_equal(p, in_dir(".config/kvgrid/trusted.pub"));
    kv_free(p);
    setenv("KVGRID_TRUST", "/from/env.pub", 1);
    setenv("KVGRID_KEY", "/from/env.sec", 1);
    assert_int_equal(kv_trust_find_path(NULL, &p, NULL), KV_OK);
    assert_string_equal(p, "/from/env.pub");
    kv_free(p);
    assert_int_equal(kv_key_find_path(NULL, &p, NULL), KV_OK);
    assert_string_equal(p, "/from/env.sec");
    kv_free(p);
    assert_int_equal(kv_trust_find_path("given.pub", &p, NULL), KV_OK);
    assert_string_equal(p, "given.pub");
    kv_free(p);
    unsetenv("KVGRID_TRUST");
    unsetenv("KVGRID_KEY");
}

static int make_dir(void **state)
{
    (void)state;
    return mkdtemp(dir) == NULL;
}

static int remove_dir(void **state)
{
    (void)state;
    char command[600];
    snprintf(command, sizeof command, "rm -r '%s'", dir);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sign__gives_the_vectors_of_rfc_8032),
        cmocka_unit_test(generate__writes_modes_0600_and_0644_and_loads_again),
        cmocka_unit_test(generate__never_overwrites_either_file),
        cmocka_unit_test(load__refuses_a_key_that_others_can_use),
        cmocka_unit_test(sealed__needs_the_right_passphrase),
        cmocka_unit_test(pass__comes_from_a_descriptor_or_the_environment),
        cmocka_unit_test(parse__refuses_every_changed_byte),
        cmocka_unit_test(trust__reads_several_keys_and_names_the_bad_line),
        cmocka_unit_test(find_path__prefers_given_then_environment_then_config),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir) != 0;
}
