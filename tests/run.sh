#!/usr/bin/env bash
# Every test of kvgrid, from nothing: installs what is missing, builds, runs, and closes with one line
#   N passed, N failed, N skipped
# that counts test programs, command-line cases, lint checks and builds; skips are listed with their reason.
#
#   tests/run.sh [--quick] [--full] [--only REGEX] [--no-install]
#
#   --quick        one compiler, no sanitizers, no slow cases
#   --full         also the big memory case, the oracle over all geometries, every GPU architecture (adds many minutes)
#   --only REGEX   only what has such a name: layouts/test_x, cli/published/counts, lint/includes, build/clang ...
#   --no-install   never install a package, only say what is missing
#
# Exit 0: nothing failed and something passed. 1: otherwise. 2: usage. 5: something needed is missing.
set -u -o pipefail
root=$(readlink -f -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/..")
quick='' full='' only=.
while [ $# -gt 0 ]; do
    case $1 in
        --quick) quick=1 ;;
        --full) full=1 ;;
        --no-install) export KV_NO_INSTALL=1 ;;
        --only)
            [ $# -ge 2 ] || { echo "tests/run.sh: --only needs a pattern" >&2; exit 2; }
            only=$2
            shift ;;
        --help | -h) sed -n '2,/^set/{/^set/!s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit 0 ;;
        *) echo "tests/run.sh: unknown argument '$1'; see --help" >&2; exit 2 ;;
    esac
    shift
done
cd -- "$root" || exit 1
. jobs/deps.sh
kv_deps_ensure test || exit 5
kv_mpi_env
jobs=$(nproc)
mkdir -p build || exit 5
logs=$root/build/test-logs
rm -rf "$logs"
mkdir -p "$logs"
tally=$logs/tally
: >"$tally"

# enter: lines for the tally, from standard input; whole, though several jobs enter theirs at a time.
enter() { flock "$tally" cat >>"$tally"; }
note() { printf '%s\t%s\t%s\n' "$1" "$2" "${3-}" | enter; }
wanted() { [[ $1 =~ $only ]]; }
section()
{
    printf '\n== %s (%d s)\n' "$1" "$SECONDS"
}

# build PRESET: configures and builds; a failure is one failed test.
build()
{
    local log=$logs/build-$1
    section "build $1"
    if cmake --preset "$1" >"$log" 2>&1 </dev/null && cmake --build "build/$1" --parallel "$jobs" >>"$log" 2>&1 </dev/null; then
        note passed "build/$1"
        return 0
    fi
    printf 'build/%s:\n' "$1"
    { grep -E 'error|warning|Error' "$log" | head -n 20; echo ...; tail -n 15 "$log"; } | cut -c 1-300 | sed 's/^/    /'
    note FAILED "build/$1" "see $log"
    return 1
}

# unit PRESET PREFIX LOG [CTEST-ARGS]...: the test programs of a build; PREFIX goes before their names.
unit()
{
    local preset=$1 prefix=$2 log=$logs/ctest-$3
    shift 3
    ctest --test-dir "build/$preset" -V -j $((3 * jobs)) -R "$only" "$@" >"$log" 2>&1 </dev/null
    "$KV_PYTHON" tests/ctest_tally.py <"$log" >"$log.tally"
    awk -F '\t' -v OFS='\t' -v prefix="$prefix" '{ $2 = prefix $2; print }' "$log.tally" | enter
    awk -F '\t' '{ n[$1]++ } END { printf "test programs: %d passed, %d failed, %d skips\n", n["passed"], n["FAILED"], n["skipped"] }' "$log.tally"
    if [ ! -s "$log.tally" ] && [ "$only" = . ]; then note FAILED "${prefix}unit tests $*" "no test program ran; see $log"; fi
    grep FAILED "$log.tally" && grep -E '^[0-9]+: .*(\[  (ERROR|FAILED)|error:|Sanitizer|leaked)' "$log" | head -n 30
    return 0
}

cli()
{
    local preset=$1 prefix=$2 log
    shift 2
    log=$logs/cli-$preset
    tests/cli/run.sh --bin "build/$preset/kvgrid" --jobs $((jobs + 1)) --only "$only" --tally "$log.tally" ${full:+--full} "$@" 2>&1 </dev/null |
        tee "$log" | grep -v -e '^passed ' -e '^cli cases: '
    [ ! -e "$log.tally" ] || awk -F '\t' -v OFS='\t' -v prefix="$prefix" '{ $2 = prefix $2; print }' "$log.tally" | enter
    tail -n 1 "$log"
}

# slurm PRESET: the batch scripts on a Slurm of our own; one skip, with its reason, where there can be none.
slurm()
{
    local log=$logs/slurm rc
    tests/slurm/run.sh --bin "build/$1/kvgrid" --only "$only" --tally "$log.tally" >"$log" 2>&1 </dev/null
    rc=$?
    [ -e "$log.tally" ] || [ "$only" != . ] || note FAILED slurm "no case ran (exit $rc); see $log"
    [ ! -e "$log.tally" ] || enter <"$log.tally"
    grep -v '^passed ' "$log"
}

# script NAME COMMAND...: one check with exit code 0, 77 (skipped, the last line says why) or another.
script()
{
    local name=$1 log rc
    shift
    wanted "$name" || return 0
    log=$logs/${name//\//.}
    "$@" >"$log" 2>&1 </dev/null
    rc=$?
    case $rc in
        0) note passed "$name" ;;
        77) note skipped "$name" "$(tail -n 1 "$log")" ;;
        *)
            note FAILED "$name" "$(tail -n 1 "$log")"
            printf '%s:\n' "$name"
            tail -n 40 "$log" | cut -c 1-300 | sed 's/^/    /' ;;
    esac
}

section "lint"
for check in includes headers calls format scripts; do script lint/$check tests/lint/check_$check.sh & done
script lint/selftest tests/lint/selftest.sh &
wait

if build dev; then
    section "unit tests"
    unit dev '' dev
    section "command line"
    cli dev '' ${quick:+--quick}
fi

if [ -z "$quick" ]; then
    if build asan-ubsan; then
        section "unit tests with sanitizers"
        export UBSAN_OPTIONS=print_stacktrace=1
        # Open MPI itself leaks, so leaks are not looked for in what starts it. What runs many minutes with sanitizers, and
        # does there what other tests do, runs without them only.
        ASAN_OPTIONS=detect_leaks=1 unit asan-ubsan 'asan:' asan-ubsan -E '^mpi/|^certs/test_kv_verify_scalars|^kernels/cuda/(campaigns|device_nccl|test_kv_cell_windows_gpu)|^tp/(ranks|program)'
    fi
    section "batch scripts on a Slurm of our own, meanwhile clang" # they mostly wait
    if wanted build/clang; then
        if kv_deps_compiler clang; then build clang & else note skipped build/clang "no clang"; fi
    fi
    slurm dev &
    if [ -x build/asan-ubsan/kvgrid ]; then
        ASAN_OPTIONS=detect_leaks=0 unit asan-ubsan 'asan:' asan-ubsan.mpi -E '^[^m]' &
        section "command line with sanitizers"
        # What takes input from outside; what runs for long and only computes has had its unit tests above.
        outside=(--only '/(badinput|codec|explain|export|help|keys|launch|outputs|published|rows|show|verify)/')
        [ "$only" = . ] || outside=()
        KV_SANITIZED=1 cli asan-ubsan 'asan:' --quick "${outside[@]}"
    fi
    wait
    section "kernels for every architecture, and on a GPU if there is one"
    if [ -n "$full" ]; then
        script build/kernels tests/build/kernels.sh
        script tp/program_full tests/emulated/program.sh --full build/dev/tests/emulated/kvgrid-emulated
    elif wanted build/kernels; then
        note skipped build/kernels "every kernel for all architectures (minutes of nvcc) with --full only; the dev build compiles one"
    fi
    script device_check tests/device_check.sh
    section "build as a plain user"
    script build/plain_user tests/build/plain_user.sh
fi

section "done"
for what in skipped FAILED; do
    grep -q "^$what" "$tally" || continue
    printf '%s:\n' "$what"
    awk -F '\t' -v what="$what" '$1 == what { printf "  %s%s\n", $2, $3 == "" ? "" : ": " $3 }' "$tally"
done
passed=$(grep -c '^passed' "$tally")
failed=$(grep -c '^FAILED' "$tally")
skipped=$(grep -c '^skipped' "$tally")
printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
