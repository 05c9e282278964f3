#!/usr/bin/env bash
# Runs the cases of tests/cli/cases: each function case_NAME of each file is one case, in a shell and a
# folder of its own (with a space in its path).
#
#   tests/cli/run.sh [--bin KVGRID] [--only REGEX] [--jobs N] [--quick] [--full] [--list] [--tally FILE] [--keep]
#
# A case passes with 0, is skipped with 77 (its last line of output says why), else failed. --quick leaves out the
# cases named slow_*, --full sets KV_FULL=1 (the big memory case, the whole oracle). KV_SANITIZED=1 says that the
# binary has sanitizers. Prints one line a case and a closing line; exit 1 if any failed or none ran.
set -u -o pipefail
here=$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")
KV_ROOT=$(readlink -f -- "$here/../..")
. "$KV_ROOT/jobs/deps.sh"

bin=$KV_ROOT/build/dev/kvgrid only=. jobs=2 quick='' list='' tally='' keep=''
while [ $# -gt 0 ]; do
    case $1 in
        --bin) bin=$2; shift ;;
        --only) only=$2; shift ;;
        --jobs) jobs=$2; shift ;;
        --tally) tally=$2; shift ;;
        --quick) quick=1 ;;
        --full) export KV_FULL=1 ;;
        --list) list=1 ;;
        --keep) keep=1 ;;
        --help | -h) sed -n '2,/^set/{/^set/!s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit 0 ;;
        *) echo "tests/cli/run.sh: unknown argument '$1'" >&2; exit 2 ;;
    esac
    shift
done

cases=()
for file in "$here"/cases/*.sh; do
    while IFS= read -r name; do
        name=$(basename "$file" .sh)/$name
        [[ cli/$name =~ $only ]] || continue
        [ -z "$quick" ] || [[ $name != */slow_* ]] || continue
        cases+=("$name")
    done < <(sed -n 's/^case_\([a-z0-9_]*\)().*/\1/p' "$file")
done
[ -z "$list" ] || { printf '%s\n' "${cases[@]}"; exit 0; }

[ -x "$bin" ] || { echo "tests/cli/run.sh: $bin: no such program; build it first" >&2; exit 1; }
KVGRID=$(readlink -f -- "$bin")
KV_PYTHON=$(kv_deps_python numpy || kv_deps_python) || { echo "tests/cli/run.sh: no python3" >&2; exit 1; }
kv_mpi_env
KV_WORK=$(mktemp -d "${TMPDIR:-/tmp}/kvgrid cli.XXXXXX") || exit 1
[ -n "$keep" ] || trap 'rm -rf "$KV_WORK"' EXIT
mkdir -p "$KV_WORK/shared" "$KV_WORK/result"
export KV_ROOT KVGRID KV_PYTHON KV_WORK KV_MPIRUN_TEXT="${KV_MPIRUN[*]}"
# What a user's own settings must not decide.
unset KVGRID_KEY KVGRID_TRUST KVGRID_LAYOUTS XDG_CONFIG_HOME SLURM_NTASKS SLURM_STEP_NUM_TASKS PMI_SIZE OMPI_COMM_WORLD_SIZE
export LC_ALL=C HOME=$KV_WORK/shared/home
mkdir -p "$HOME"

[ ${#cases[@]} -gt 0 ] || { echo "tests/cli/run.sh: no case is called $only"; exit 1; }
printf '%s\0' "${cases[@]}" | xargs -0 -n 1 -P "$jobs" bash "$here/one.sh"

passed=0 failed=0 skipped=0
for name in "${cases[@]}"; do
    IFS=$'\t' read -r what _ why <"$KV_WORK/result/${name//\//.}" ||
        { what=FAILED why="it left no result" && echo "FAILED  cli/$name: $why" && tail -n 40 "$KV_WORK/${name//\//.}/log"; }
    case $what in
        passed) passed=$((passed + 1)) ;;
        skipped) skipped=$((skipped + 1)) ;;
        *) failed=$((failed + 1)) ;;
    esac
    [ -z "$tally" ] || printf '%s\tcli/%s\t%s\n' "$what" "$name" "$why" >>"$tally"
done
[ ! -e "$KV_WORK/shared/times" ] || cat "$KV_WORK/shared/times"
[ -z "$keep" ] || echo "kept: $KV_WORK"
echo "cli cases: $passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ] && [ $((passed + skipped)) -gt 0 ]
