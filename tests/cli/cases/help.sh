# shellcheck shell=bash disable=SC2034,SC2154
# --help, --version and usage errors of every command.
COMMANDS=(run plan verify show diff explain layouts bench keygen)

case_help_of_the_program()
{
    local command
    kv --help
    expect_rc 0
    expect_no_err
    expect_no_colour
    for command in "${COMMANDS[@]}"; do expect_out "(^|[^a-z])$command([^a-z]|$)"; done
    cp "$OUT" "$KV_CASE/help"
    kv help
    [ "$rc" -ne 0 ] || expect_same "$OUT" "$KV_CASE/help" # where there is a help command, it says the same
}

case_help_of_each_command()
{
    local command
    for command in "${COMMANDS[@]}"; do
        kv "$command" --help
        expect_rc 0
        expect_no_err
        expect_out "kvgrid $command"
        expect_out '--help'
        expect_untouched
        [ "$(awk '{ if (length($0) > m) m = length($0) } END { print m + 0 }' "$OUT")" -le 120 ] || fail "help lines over 120 columns"
    done
}

case_help_says_what_may_be_repeated()
{
    local command words
    for command in run plan show bench; do
        kv "$command" --help
        expect_out '^  --geometry G .*; may be repeated$'
    done
    for command in explain 'codec store' 'codec calibrate'; do
        read -r -a words <<<"$command"
        kv "${words[@]}" --help
        expect_out '^  --geometry G '
        ! grep -q 'may be repeated' "$OUT" || fail "$command takes one --geometry"
    done
}

case_device_check_knows_its_arguments()
{
    local script=$KV_ROOT/tests/device_check.sh
    said() { rc=0; last="device_check.sh $*"; "$script" "$@" >"$OUT" 2>"$ERR" || rc=$?; expect_rc 2; }
    said --nope
    expect_one_line "unknown argument '--nope'"
    said --archs
    expect_one_line "--archs needs a value"
    said --program x --build y
    expect_one_line "--build only builds and --program only runs"
    expect_no_file y
}

case_version_everywhere()
{
    local command
    kv --version
    expect_rc 0
    expect_no_err
    expect_out '^kvgrid [0-9]+\.[0-9]+\.[0-9]+'
    cp "$OUT" "$KV_CASE/version"
    for command in "${COMMANDS[@]}"; do
        kv "$command" --version
        expect_rc 0
        expect_same "$OUT" "$KV_CASE/version"
    done
}

case_usage_is_exit_2()
{
    local command
    kv
    expect_rc 2
    expect_no_out
    refused 2 "frobnicate" -- frobnicate
    refused 2 "--frobnicate" -- --frobnicate
    for command in "${COMMANDS[@]}"; do
        refused 2 "--frobnicate" -- "$command" --frobnicate
        refused 2 "--form( |'|\"|:|$)" -- "$command" --form text # no abbreviations
    done
}

case_missing_and_extra_operands()
{
    refused 2 "campaign" -- run
    refused 2 . -- plan
    refused 2 . -- verify
    refused 2 . -- show
    refused 2 . -- explain
    refused 2 . -- explain sglang
    refused 2 . -- keygen
    refused 2 "b\.json|too many|extra|one" -- plan a.json b.json
    refused 2 "second|too many|extra|one" -- verify first second
    refused 2 "second|too many|extra|one" -- keygen first second
    refused 2 "third|too many|extra|two" -- explain sglang vllm-fa third --geometry L=1,T=40,H=2,D=8,e=f16
}

case_options_want_their_values()
{
    refused 2 -- run "$PUBLISHED" -o
    refused 2 "--key" -- run "$PUBLISHED" --key
    refused 2 "--trust" -- verify x.json --trust
    refused 2 "--format.*xml|xml" -- layouts --format xml
    refused 2 "--geometry" -- explain sglang vllm-fa --geometry
    refused 2 . -- explain sglang vllm-fa # a pair has no grade without a geometry
}

case_geometry_text_is_strict()
{
    local bad
    for bad in "" "L=1" "L=1,T=40,H=2,D=8" "L=1,T=40,H=2,D=8,e=f17" "L=1,T=40,H=2,D=8,e=f16,Z=1" "L=1,T=40,H=2,D=8,e=f16,L=2" \
        "L=0,T=40,H=2,D=8,e=f16" "L=1,T=-1,H=2,D=8,e=f16" "L=1,T=40,H=0,D=8,e=f16" "L=1,T=40,H=2,D=0,e=f16" "L=1,T=4x,H=2,D=8,e=f16" \
        "L=1,T= 40,H=2,D=8,e=f16" "L=1,T=0x10,H=2,D=8,e=f16" "L=1,T=1e2,H=2,D=8,e=f16" "L=1;T=40;H=2;D=8;e=f16" "L=1,T=40,H=2,D=8,e=f16," \
        "L=99999999999999999999,T=40,H=2,D=8,e=f16"; do
        refused 2 "geometry|tokens|layers|heads|head_dim|element|T|L|H|D" -- explain sglang vllm-fa --geometry "$bad"
    done
}

case_unknown_names()
{
    refused 2 "no-such-layout" -- explain sglang no-such-layout --geometry L=1,T=40,H=2,D=8,e=f16
    refused 2 "no-such-layout" -- layouts no-such-layout
    need_cert
    refused 2 "sglang->nothing" -- show "$CERT" "sglang->nothing"
}

case_a_part_that_cannot_be()
{
    local bad
    for bad in 5/4 0/3 01/3 1/03 1 /3 1/ 1/65537 -1/2 1/2/3; do
        refused 2 "--part \"$bad\": must be I/N with 1 <= I <= N <= 65536" -- plan "$PUBLISHED" --part "$bad"
    done
    kv plan "$PUBLISHED" --part 4/4
    expect_rc 0
}

# Each option of each command stands in a page of docs or the README.
case_every_option_stands_in_a_page()
{
    local command option n=0
    kv --help
    mapfile -t commands < <(sed -n 's/^  \([a-z]\{1,\}\)  *[^ ].*/\1/p' "$OUT")
    [ ${#commands[@]} -ge 11 ] || fail "the help names ${#commands[@]} commands"
    for command in "${commands[@]}"; do
        kv "$command" --help
        expect_rc 0
        while IFS= read -r option; do
            n=$((n + 1))
            grep -qE -- "(^|[^a-z-])$option([^a-z-]|\$)" "$KV_ROOT"/docs/*.md "$KV_ROOT/README.md" ||
                fail "no page says what $option of kvgrid $command is (docs/options.md lists them)"
        done < <(grep -oE '(^|[ ,])--[a-z][a-z-]*' "$OUT" | tr -d ' ,' | sort -u)
    done
    [ $n -gt 50 ] || fail "only $n options were found"
}
