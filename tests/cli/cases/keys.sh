# shellcheck shell=bash disable=SC2034,SC2154
# keygen, and which secret keys are accepted.

case_keygen_makes_a_private_and_a_public_file()
{
    (umask 000 && kv keygen "my key" && [ "$rc" -eq 0 ]) || fail "keygen"
    [ "$(stat -c %a "my key")" = 600 ] || fail "mode $(stat -c %a "my key")"
    [ "$(stat -c %a "my key.pub")" = 644 ] || fail "mode $(stat -c %a "my key.pub")"
    [ "$(find . -type f | wc -l)" -eq 2 ] || fail "other files were left behind"
    campaign c.json
    kv run c.json -o c.cert.json --key "my key"
    expect_rc 0
    kv verify c.cert.json --trust "my key.pub"
    expect_rc 0
}

case_keygen_never_overwrites()
{
    kv keygen a
    expect_rc 0
    refused 5 "a" "exists" -- keygen a
    rm a
    refused 5 "a\.pub" "exists" -- keygen a # the public half alone is kept, too
}

case_keygen_into_nowhere()
{
    refused 5 "no/such/dir" -- keygen no/such/dir/key
    refused 5 . -- keygen .
}

case_a_passphrase_without_seal_is_refused()
{
    kv keygen here.sec --pass-fd 3
    expect_rc 2
    expect_err 'goes with --seal'
    expect_no_file here.sec
}

case_two_keys_differ()
{
    kv keygen a
    kv keygen b
    ! cmp -s a b || fail "two keys are the same"
    ! cmp -s a.pub b.pub || fail "two public keys are the same"
}

case_a_key_that_others_can_read_is_refused()
{
    local mode
    kv keygen k
    campaign c.json
    for mode in 644 640 604 660 620; do
        chmod $mode k
        refused 1 "k" "$mode|mode|group|others" -- run c.json -o c.cert.json --key k
    done
    chmod 400 k
    kv run c.json -o c.cert.json --key k
    expect_rc 0
}

case_bad_key_files()
{
    campaign c.json
    refused 1 "gone" -- run c.json -o c.cert.json --key gone
    : >empty
    printf 'hello\n' >text
    mkdir dir
    kv keygen k
    head -c 40 k >half
    chmod 600 empty text half
    refused 1 "empty" -- run c.json -o c.cert.json --key empty
    refused 1 "text" -- run c.json -o c.cert.json --key text
    refused 1 "dir" -- run c.json -o c.cert.json --key dir
    refused 1 "half" -- run c.json -o c.cert.json --key half
    chmod 600 k.pub
    refused 1 "k.pub" -- run c.json -o c.cert.json --key k.pub
}

case_no_key_at_all()
{
    campaign c.json
    KV_ENV=(-u KVGRID_KEY -u HOME -u XDG_CONFIG_HOME)
    kv run c.json -o c.cert.json
    [ "$rc" -eq 1 ] || [ "$rc" -eq 2 ] || fail "exit code $rc"
    expect_one_line "key"
    expect_untouched
    KV_ENV=(XDG_CONFIG_HOME="$PWD/config" HOME=)
    refused 1 "config/kvgrid" -- run c.json -o c.cert.json
}

case_keys_are_found_in_the_documented_places()
{
    campaign c.json
    mkdir -p config/kvgrid
    kv keygen config/kvgrid/key.sec
    KV_ENV=(XDG_CONFIG_HOME="$PWD/config")
    kv run c.json -o a.cert.json
    expect_rc 0
    cp config/kvgrid/key.sec.pub config/kvgrid/trusted.pub
    kv verify a.cert.json
    expect_rc 0
    kv keygen other
    KV_ENV+=(KVGRID_KEY="$PWD/other" KVGRID_TRUST="$PWD/other.pub") # the environment goes before the folder
    kv run c.json -o b.cert.json
    expect_rc 0
    kv verify b.cert.json
    expect_rc 0
    kv verify a.cert.json
    expect_rc 3
    kv verify a.cert.json --trust config/kvgrid/trusted.pub # and an option before both
    expect_rc 0
}

# A pipe without a writer would be waited for; one that the shell has opened is read.
case_a_key_from_a_pipe()
{
    need_key
    campaign c.json
    mkfifo -m 600 pipe
    refused 1 'pipe: is a pipe or device, a key file is needed' -- run c.json -o out.json --key pipe
    last="kvgrid run --key /dev/fd/9"
    "$KVGRID" run c.json -o out.json --key /dev/fd/9 --progress none >"$OUT" 2>"$ERR" 9< <(sleep 0.3 && cat "$KEY")
    finish $?
    expect_rc 0
    kv verify out.json --trust "$PUB"
    expect_rc 0
}
