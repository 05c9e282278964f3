/* Both verifiers on rows of attribution, codec and move, sound and broken (tests/certs/codec_mutations.py). */
#include "tests/certs/kv_verify_docs.h"

static int make_documents(void **state)
{
    (void)state;
    return make_folder("--only codec --random 120") ? 0 : 1;
}

static int remove_documents(void **state)
{
    (void)state;
    return remove_folder();
}

/* Every allocation of a verification that meets all three checks can fail. */
static void verify__survives_failed_allocations_of_codec_rows(void **state)
{
    (void)state;
    kv_buf bytes = read_file("sound_codec_part.json");
    for (long n = 0;; n += n < 60 ? 1 : 331) {
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

int main(void)
{
    if (system("command -v python3 >/dev/null && command -v openssl >/dev/null") != 0) {
        print_message("python3 and openssl are needed to make certificates\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(verify__gives_each_mutation_its_code),
        KVT_BOTH_VERIFIERS cmocka_unit_test(verify__survives_failed_allocations_of_codec_rows),
        cmocka_unit_test(schema__fits_what_is_sound),
    };
    return cmocka_run_group_tests(tests, make_documents, remove_documents) != 0;
}
