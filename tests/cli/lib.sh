# shellcheck shell=bash disable=SC2034
# What a case may call. A case runs in an empty folder; what the last command said is in $OUT and $ERR,
# its exit code in $rc. The first expectation that does not hold ends the case.

OUT=$KV_CASE/out
ERR=$KV_CASE/err
rc=
last=

# both_ends NAME FILE: its first and its last lines.
both_ends()
{
    [ -e "$2" ] || return 0
    awk -v name="$1" '{ line[NR] = $0 } END { for (i = 1; i <= NR; i++) {
        if (i <= 12 || i > NR - 12) printf "  %s: %s\n", name, line[i]
        else if (i == 13) printf "  %s ... %d lines\n", name, NR - 24 } }' "$2"
}
fail()
{
    printf 'FAILED: %s\n' "$*"
    if [ -n "$last" ]; then
        printf 'after: %s (exit %s)\n' "$last" "$rc"
        both_ends stdout "$OUT"
        both_ends stderr "$ERR"
        printf 'FAILED: %s\n' "$*" # last, for the summary
    fi
    exit 1
}
skip()
{
    printf '%s\n' "$*"
    exit 77
}

# Leaks are looked for everywhere but where Open MPI itself leaks: in commands that start it.
sanitizer_env()
{
    local leaks=1
    case ${1-} in run | bench) leaks=0 ;; esac
    export ASAN_OPTIONS="detect_leaks=$leaks:exitcode=99:abort_on_error=0" UBSAN_OPTIONS="print_stacktrace=1:exitcode=99"
}

snapshot() { find . -printf '%p %s %m %T@\n' | sort; }

finish()
{
    rc=$1
    if [ -n "${KV_SANITIZED-}" ] && grep -qE 'Sanitizer|runtime error:' "$ERR"; then
        cp "$ERR" "$KV_CASE/sanitizer"
        fail "the sanitizers complain: $(grep -m 1 -E 'Sanitizer|runtime error:' "$ERR")"
    fi
}

# kv ARGS...: the program alone. KV_ENV (an array) holds extra NAME=VALUE settings.
KV_ENV=()
kv()
{
    last="kvgrid $*"
    snapshot >"$KV_CASE/before"
    sanitizer_env "$@"
    env "${KV_ENV[@]}" "$KVGRID" "$@" >"$OUT" 2>"$ERR"
    finish $?
}

# kv_mpi N ARGS...: the program under mpirun with N ranks.
kv_mpi()
{
    local n=$1 mpirun
    shift
    last="mpirun -n $n kvgrid $*"
    snapshot >"$KV_CASE/before"
    sanitizer_env "$@"
    read -r -a mpirun <<<"$KV_MPIRUN_TEXT"
    env "${KV_ENV[@]}" "${mpirun[@]}" -n "$n" "$KVGRID" "$@" >"$OUT" 2>"$ERR"
    finish $?
}

expect_rc() { [ "$rc" -eq "$1" ] || fail "exit code $rc, $1 was expected"; }
expect_out() { grep -qE -- "$1" "$OUT" || fail "stdout has no line like: $1"; }
expect_err() { grep -qE -- "$1" "$ERR" || fail "stderr has no line like: $1"; }
expect_no_out() { [ ! -s "$OUT" ] || fail "stdout should be empty"; }
expect_no_err() { [ ! -s "$ERR" ] || fail "stderr should be empty"; }
expect_no_file() { [ ! -e "$1" ] || fail "$1 exists"; }
expect_file() { [ -s "$1" ] || fail "$1 does not exist or is empty"; }
expect_same() { cmp -s -- "$1" "$2" || fail "$1 and $2 differ"; }
expect_no_colour() { ! grep -q $'\033' "$OUT" "$ERR" || fail "there are colour codes, though this is no terminal"; }

# Exactly one line on stderr, with its newline, and it says what: each REGEX must match it.
expect_one_line()
{
    local regex
    [ "$(wc -l <"$ERR")" -eq 1 ] && [ "$(grep -c . "$ERR")" -eq 1 ] || fail "stderr should be exactly one line"
    [ -z "$(tail -c 1 "$ERR")" ] || fail "the error line has no end"
    for regex in "$@"; do grep -qiE -- "$regex" "$ERR" || fail "the error does not say: $regex"; done
}

# The folder is as it was before the last command.
expect_untouched() { snapshot | cmp -s - "$KV_CASE/before" || fail "something was written here: $(snapshot | diff - "$KV_CASE/before" | head -n 3)"; }

# refused RC REGEX... -- ARGS...: the command must end with RC, one line that matches, nothing on stdout, nothing written.
refused()
{
    local want=$1 regex=()
    shift
    while [ "$1" != -- ]; do regex+=("$1"); shift; done
    shift
    kv "$@"
    expect_rc "$want"
    expect_one_line "${regex[@]}"
    expect_no_out
    expect_untouched
}

# value FILE PATH: a value of a JSON file as text (strings bare); PATH like observed.verdicts.REFUSED or rows.0.src.
value() { "$KV_PYTHON" "$KV_ROOT/tests/cli/doc.py" value "$1" "$2" || fail "$1 has no $2"; }
expect_value()
{
    local got
    got=$(value "$1" "$2")
    [ "$got" = "$3" ] || fail "$1: $2 is $got, $3 was expected"
}
# body FILE: the canonical bytes of a certificate's body.
body() { "$KV_PYTHON" "$KV_ROOT/tests/cli/doc.py" body "$1" || fail "$1 has no body"; }

# campaign FILE [KEY=JSON | KEY=]...: a small valid campaign with keys set, or left out where nothing follows "=".
campaign() { "$KV_PYTHON" "$KV_ROOT/tests/cli/doc.py" campaign "$KV_ROOT/layouts/published" "$@" || fail "campaign"; }

need_faults() { grep -aq KVGRID_FAULT "$KVGRID" || skip "this build does not take \$KVGRID_FAULT (KV_FAULTS is off)"; }
# planted FAULT PREPARE COMMAND...: until the fault is met, as a rank may be given too few cells where others are quicker.
planted()
{
    local fault=$1 prepare=$2 i
    shift 2
    need_faults
    for ((i = 0; i < 50; i++)); do
        "$prepare"
        KV_ENV=("KVGRID_FAULT=$fault")
        "$@"
        KV_ENV=()
        [ "$rc" -eq 0 ] || return 0
    done
    fail "$fault: never met"
}

# stopped PID: the process stopped itself (KVGRID_FAULT=stop@RANK:N). waits_for_it PID SIGNAL: that signal lies there until it goes on.
# What is sent to it meanwhile meets it at that place, however fast or slow the machine is.
stopped() { [[ $(sed -n 's/^State:[^A-Z]*\(.\).*/\1/p' "/proc/$1/status" 2>/dev/null) == [Tt] ]]; }
waits_for_it()
{
    local set
    set=$(sed -n 's/^ShdPnd:[^0-9a-f]*//p' "/proc/$1/status" 2>/dev/null)
    [ $((0x${set:-0} >> ($(kill -l "$2") - 1) & 1)) -eq 1 ]
}

# once NAME COMMAND...: runs the command the first time any case asks; later callers wait, then share the result.
once()
{
    local name=$1
    shift
    (
        flock 9
        if [ ! -e "$KV_WORK/shared/$name.done" ]; then
            "$@" && : >"$KV_WORK/shared/$name.done"
        fi
        [ -e "$KV_WORK/shared/$name.done" ]
    ) 9>"$KV_WORK/shared/$name.lock" || fail "the shared $name could not be made"
}

KEY=$KV_WORK/shared/test.key
PUB=$KEY.pub
PUBLISHED=$KV_ROOT/jobs/campaigns/published.json
CERT=$KV_WORK/shared/published.cert.json

make_key()
{
    sanitizer_env keygen
    "$KVGRID" keygen "$KEY" >/dev/null
}
make_cert()
{
    kv_mpi 2 run "$PUBLISHED" -o "$CERT" --key "$KEY"
    [ "$rc" -eq 0 ] || { cat "$ERR"; return 1; }
    cp "$OUT" "$CERT.out"
}
need_key() { once key make_key; }
# The published campaign's certificate, made with 2 ranks; what run said is in $CERT.out.
need_cert()
{
    need_key
    once cert make_cert
}
