/* kvgrid keygen: a key pair to sign and to trust with. */
#include <stdio.h>

#include "base/kv_text.h"
#include "certs/kv_key.h"
#include "grid/cli/kv_ask.h"
#include "grid/cli/kv_exit.h"

int kv_cmd_keygen(const kv_opts *o, int argc, char **argv)
{
    (void)argc;
    (void)argv;
    kv_err err = {0};
    kv_pass *pass = NULL;
    char shown[KV_TEXT_SHOWN], id[KV_KEY_ID_HEX];
    const char *path = o->positional[0];
    kv_rc rc;
    KV_TRY(rc, out, kv_ask_check_output("OUT", path, NULL, 0, &err));
    if (!o->seal && o->pass_fd >= 0) {
        rc =
            KV_FAIL(&err, KV_EINVAL, "--pass-fd goes with --seal: without it the key would stand in the file unsealed");
        goto out;
    }
    if (o->seal) KV_TRY(rc, out, kv_pass_find((int)o->pass_fd, &pass, &err));
    if (o->seal && pass == NULL) {
        rc = KV_FAIL(&err, KV_EINVAL, "--seal needs a passphrase: --pass-fd N or $KVGRID_PASSPHRASE");
        goto out;
    }
    KV_TRY(rc, out, kv_key_generate(path, pass, id, &err));
    printf("secret key %s (keep it to yourself)\npublic key %s.pub (give it to those who verify)\nkey id %s\n",
           kv_text_show(path, shown), kv_text_show(path, shown), id);
out:
    kv_pass_free(pass);
    return rc == KV_OK ? kv_ask_finish(KV_EXIT_OK) : kv_ask_fail(&err);
}
