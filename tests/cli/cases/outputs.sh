# shellcheck shell=bash disable=SC2034,SC2154
# Standard output that is closed or full, pipes that end early.

# with_output TARGET ARGS...: the program with its standard output sent to TARGET ("closed", or a file).
with_output()
{
    local target=$1
    shift
    last="kvgrid $* >$target"
    : >"$OUT"
    sanitizer_env "$@"
    if [ "$target" = closed ]; then
        "$KVGRID" "$@" >&- 2>"$ERR"
    else
        "$KVGRID" "$@" >"$target" 2>"$ERR"
    fi
    finish $?
}

# cannot_say TARGET ARGS...: exit 5 and one line, since the answer cannot be written.
cannot_say()
{
    with_output "$@"
    expect_rc 5
    expect_one_line .
}

case_a_full_disk_is_seen()
{
    need_cert
    cannot_say /dev/full show "$CERT"
    cannot_say /dev/full plan "$PUBLISHED"
    cannot_say /dev/full layouts
    cannot_say /dev/full explain sglang vllm-fa --geometry L=1,T=40,H=2,D=8,e=f16
    cannot_say /dev/full verify "$CERT" --trust "$PUB"
    cannot_say /dev/full --help
    cannot_say /dev/full run --help
    cannot_say /dev/full --version
}

case_a_closed_output_is_seen()
{
    need_cert
    cannot_say closed show "$CERT"
    cannot_say closed plan "$PUBLISHED"
    cannot_say closed verify "$CERT" --trust "$PUB"
}

case_run_with_a_closed_output()
{
    need_key
    campaign c.json
    with_output closed run c.json -o out.json --key "$KEY"
    expect_rc 5
    # The certificate itself must not have got what was meant for the terminal.
    [ ! -e out.json ] || "$KV_PYTHON" "$KV_ROOT/tests/cli/doc.py" canonical out.json || fail "a broken certificate was left"
}

case_a_full_disk_for_the_certificate()
{
    [ "$(id -u)" -eq 0 ] || skip "only root may mount a tiny file system"
    need_key
    mkdir tiny
    mount -t tmpfs -o size=16k tmpfs tiny 2>/dev/null || skip "no tmpfs may be mounted here"
    trap 'umount "$KV_CASE/dir/tiny"' EXIT
    kv run "$PUBLISHED" -o tiny/out.json --key "$KEY" --progress none
    expect_rc 5
    expect_one_line "out\.json"
    [ -z "$(ls -A tiny)" ] || fail "left behind: $(ls -A tiny)"
}

case_a_reader_that_leaves()
{
    need_cert
    # As for any program, a closed pipe ends it: by SIGPIPE (141) or with exit 5, without noise on stdout.
    local code
    "$KVGRID" show "$CERT" 2>"$ERR" | head -n 1 >"$OUT"
    code=${PIPESTATUS[0]}
    [ "$code" -eq 0 ] || [ "$code" -eq 141 ] || [ "$code" -eq 5 ] || fail "exit code $code"
}

case_colour_only_on_a_terminal()
{
    need_cert
    kv show "$CERT"
    expect_no_colour
    command -v script >/dev/null 2>&1 || skip "no script(1) to give the program a terminal"
    TERM=xterm script -qec "'$KVGRID' show '$CERT'" /dev/null >"$KV_CASE/terminal" 2>&1
    grep -q $'\033' "$KV_CASE/terminal" || fail "no colour on a terminal"
    NO_COLOR=1 TERM=xterm script -qec "'$KVGRID' show '$CERT'" /dev/null >"$KV_CASE/terminal" 2>&1
    ! grep -q $'\033\[[0-9;]*m' "$KV_CASE/terminal" || fail "NO_COLOR is not honoured"
}

case_progress_goes_to_stderr()
{
    need_key
    campaign c.json
    kv_mpi 2 run c.json -o out.json --key "$KEY"
    expect_rc 0
    expect_no_colour
    ! grep -qE '^kvgrid:|%|eta' "$OUT" || fail "progress on stdout"
}

# What stands where an output should go and is no regular file must stay what it is.
case_no_pipe_or_link_is_replaced()
{
    need_key
    campaign c.json
    mkfifo pipe
    echo kept >target
    ln -s target link
    for out in pipe link; do
        kv run c.json -o $out --key "$KEY"
        expect_rc 5
        expect_one_line "$out: is a device, a pipe or a link"
    done
    [ -p pipe ] || fail "the pipe is gone"
    [ -L link ] && [ "$(cat target)" = kept ] || fail "the link or what it names was changed"
}

# A file name may hold anything: what is shown of it cannot colour a terminal or add a line.
case_names_are_shown_without_control_characters()
{
    need_key
    local bad=$'a\e[31m\nb'
    campaign c.json
    kv run c.json -o "$bad" --key "$KEY" --progress none
    expect_rc 0
    expect_out '^certificate a\?\[31m\?b$'
    expect_no_colour
    head -c 1280 /dev/zero >zeros.bf16 # [1][2][4][5][16]
    shown() # ARGS...: good, and the name cannot be told from a plain one
    {
        kv "$@"
        expect_rc 0
        expect_no_colour
        ! grep -q '^b' "$OUT" "$ERR" || fail "the name of a file began a line"
    }
    shown diff "$bad" "$bad"
    shown keygen "$bad.key"
    shown show "$bad"
    shown codec store zeros.bf16 "$bad.kvc" --geometry L=1,T=4,H=5,D=16,e=bf16
    shown codec inspect "$bad.kvc"
    shown codec decode "$bad.kvc" "$bad.back"
}

case_an_output_is_no_input()
{
    need_key
    campaign c.json
    cp "$KEY" own.key
    for out in own.key c.json; do
        cp $out before.copy
        kv run c.json -o $out --key own.key
        expect_rc 2
        expect_one_line "$out would|is the input"
        expect_same $out before.copy
    done
}

# Keys, named or found, and the row file of a certificate are inputs too.
case_an_output_is_no_key_and_no_row_file()
{
    need_cert
    cp "$KEY" own.key
    cp "$PUB" own.pub
    cp "$CERT" c.json
    echo 'rows' >c.json.rows
    KV_ENV=(KVGRID_KEY=own.key KVGRID_TRUST=own.pub)
    local out how
    cp "$PUB" own.key.pub
    for out in own.key own.key.pub own.pub c.json c.json.rows; do
        cp $out before.copy
        for how in --csv --intoto; do
            refused 2 "-o $out is the input $out and would destroy it" -- export c.json $how -o $out
        done
        expect_same $out before.copy
        [ $out != c.json.rows ] || continue
        refused 2 "-o $out is the input $out and would destroy it" -- merge c.json -o $out
        expect_same $out before.copy
        [ $out != c.json ] || continue
        refused 2 "-o $out is the input $out and would destroy it" -- run "$KV_ROOT/jobs/campaigns/published.json" -o $out
        expect_same $out before.copy
    done
}

case_an_option_stands_once()
{
    need_key
    campaign c.json
    kv run c.json -o a.json -o b.json --key "$KEY"
    expect_rc 2
    expect_one_line '--out is given twice'
    expect_no_file a.json
    expect_no_file b.json
}

case_dash_is_standard_output()
{
    need_cert
    kv export "$CERT" --csv --trust "$PUB"
    cp "$OUT" rows.csv
    kv export "$CERT" --csv --trust "$PUB" -o -
    expect_rc 0
    expect_same "$OUT" rows.csv
    expect_no_file -
    campaign c.json
    refused 2 '"-": this goes to a file' -- run c.json -o - --key "$KEY"
    refused 2 '"-": this goes to a file' -- merge "$CERT" -o - --key "$KEY"
    refused 2 '"-": this goes to a file' -- keygen -
    head -c 1280 /dev/zero >zeros.bf16
    refused 2 '"-": this goes to a file' -- codec store zeros.bf16 - --geometry L=1,T=4,H=5,D=16,e=bf16
    kv codec store zeros.bf16 z.kvc --geometry L=1,T=4,H=5,D=16,e=bf16
    refused 2 '"-": this goes to a file' -- codec decode z.kvc -
    refused 2 '"-": this goes to a file' -- codec calibrate table zeros.bf16 - --geometry L=1,T=4,H=10,D=16,e=bf16 --stream k
}

case_a_closed_pipe_is_told_in_one_line()
{
    need_cert
    local code how
    for how in "export --csv" "export --junit" "verify" "show" "plan"; do
        local what=$CERT more=(--trust "$PUB")
        [ "$how" != plan ] || what=$PUBLISHED
        [[ $how != show && $how != plan ]] || more=()
        exec 8> >(:)
        wait $! # the reader is gone before anything is written
        # shellcheck disable=SC2086
        "$KVGRID" $how "$what" "${more[@]}" >&8 2>"$ERR" 8>&-
        code=$?
        exec 8>&-
        [ "$code" -eq 5 ] || fail "kvgrid $how: exit code $code where nobody reads"
        expect_one_line 'standard output cannot be written: Broken pipe'
    done
}

# Few rows over many: the file of the old rows must not stay.
case_no_row_file_is_orphaned()
{
    need_key
    campaign c.json
    cp "$PUBLISHED" out.json
    printf '{"check":"pair"}\n' >out.json.rows
    kv run c.json -o out.json --key "$KEY" --progress none
    expect_rc 0
    expect_no_file out.json.rows
    echo 'my own' >out.json.rows
    kv run c.json -o out.json --key "$KEY" --progress none
    expect_rc 0
    expect_file out.json.rows
}
