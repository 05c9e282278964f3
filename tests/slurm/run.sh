#!/usr/bin/env bash
# The shipped batch scripts on a real Slurm: for each set-up (one_node, two_nodes) a private Slurm is started
# (cluster.sh), and every function case_NAME of SETUP.sh runs in a folder of its own (with a space in its path).
#
#   tests/slurm/run.sh [--bin KVGRID] [--only REGEX] [--jobs N] [--tally FILE] [--keep]
#
# A case passes with 0, is skipped with 77 (its last line of output says why), else failed. Prints one line a case
# and a closing line; exit 0, 1 if any failed or none ran, 77 (the last line says why) where no Slurm can be had.
set -u -o pipefail
here=$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")

# One case, called by xargs below: --case SETUP/NAME.
if [ "${1-}" = --case ]; then
    name=$2
    export KV_CASE="$KV_WORK/${name//\//.}"
    mkdir -p "$KV_CASE/dir"
    TMPDIR=$(mktemp -d /tmp/kvt.XXXXXX) || exit 1
    export TMPDIR
    trap 'rm -rf "$TMPDIR"' EXIT
    started=${EPOCHREALTIME/[.,]/}
    timeout --kill-after=10 600 bash -c '
        set -u -o pipefail
        . "$KV_ROOT/tests/cli/lib.sh"
        . "$1/lib.sh"
        . "$1/${2%%/*}.sh"
        cd "$KV_CASE/dir" || exit 1
        "case_${2#*/}"
        exit 0' case "$here" "$name" >"$KV_CASE/log" 2>&1 </dev/null
    rc=$?
    why=$(tail -n 1 "$KV_CASE/log" | tr '\t' ' ')
    case $rc in
        0) what=passed why= ;;
        77) what=skipped ;;
        124 | 137) what=FAILED why="ran past 600 s" ;;
        *) what=FAILED ;;
    esac
    printf '%s\t%s\n' "$what" "$why" >"$KV_WORK/result/${name//\//.}"
    printf '%-7s slurm/%s (%d ms)%s\n' "$what" "$name" $(((${EPOCHREALTIME/[.,]/} - started) / 1000)) "${why:+: ${why:0:300}}"
    if [ "$what" = FAILED ]; then cut -c 1-300 "$KV_CASE/log" | sed 's/^/        | /' | tail -n 60; fi
    exit 0
fi

KV_ROOT=$(readlink -f -- "$here/../..")
. "$KV_ROOT/jobs/deps.sh"
. "$here/cluster.sh"

bin=$KV_ROOT/build/dev/kvgrid only=. jobs=6 tally=''
while [ $# -gt 0 ]; do
    case $1 in
        --bin) bin=$2; shift ;;
        --only) only=$2; shift ;;
        --jobs) jobs=$2; shift ;;
        --tally) tally=$2; shift ;;
        --keep) export KV_KEEP=1 ;;
        --help | -h) sed -n '2,/^set/{/^set/!s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit 0 ;;
        *) echo "tests/slurm/run.sh: unknown argument '$1'" >&2; exit 2 ;;
    esac
    shift
done
[ -x "$bin" ] || { echo "tests/slurm/run.sh: $bin: no such program; build it first" >&2; exit 1; }
KVGRID=$(readlink -f -- "$bin")
KV_PYTHON=$(kv_deps_python numpy || kv_deps_python) || { echo "tests/slurm/run.sh: no python3" >&2; exit 1; }
record() { [ -z "$tally" ] || printf '%s\t%s\t%s\n' "$1" "$2" "${3-}" >>"$tally"; }
# The wanted cases of a set-up, by their whole names (slurm/SETUP/NAME).
cases_of() { sed -n "s/^case_\([a-z0-9_]*\)().*/$1\/\1/p" "$here/$1.sh" | while read -r name; do [[ ! slurm/$name =~ $only ]] || echo "$name"; done; }
[ -n "$(cases_of one_node; cases_of two_nodes)" ] || { echo "slurm cases: none is called $only"; exit 1; }

work=$(mktemp -d "${TMPDIR:-/tmp}/kvgrid slurm.XXXXXX") || exit 1
finish_all()
{
    cluster_stop
    if [ -n "${KV_KEEP-}" ]; then echo "kept: $work"; else rm -rf "$work"; fi
}
trap finish_all EXIT
trap 'exit 1' INT TERM HUP
if ! cluster_need >"$work/need"; then
    record skipped slurm "$(tail -n 1 "$work/need")"
    cat "$work/need"
    exit 77
fi
kv_mpi_env
export KV_ROOT KVGRID KV_PYTHON KV_MPIRUN_TEXT="${KV_MPIRUN[*]}" KVGRID_HOME=$KV_ROOT
# What a user's own settings must not decide.
for name in $(compgen -v | grep -E '^(SLURM|SBATCH|SRUN|PMI|PMIX|OMPI_COMM)_|^KVGRID_'); do [ "$name" = KVGRID_HOME ] || unset "$name"; done
unset XDG_CONFIG_HOME
export LC_ALL=C

passed=0 failed=0 skipped=0
count()
{
    case $1 in
        passed) passed=$((passed + 1)) ;;
        skipped) skipped=$((skipped + 1)) ;;
        *) failed=$((failed + 1)) ;;
    esac
    record "$1" "slurm/$2" "${3-}"
}
for setup in one_node two_nodes; do
    mapfile -t cases < <(cases_of "$setup")
    [ ${#cases[@]} -gt 0 ] || continue
    # Slurm's spool and PMIx sockets need short paths, so the cluster lies elsewhere than the cases.
    if ! cluster_start "${setup%%_*}"; then
        count FAILED "$setup/start" "the test Slurm does not start"
        tail -n 20 "$CLUSTER_DIR"/*.log "$CLUSTER_DIR/daemons.out"
        cluster_stop
        continue
    fi
    export KV_WORK="$work/$setup"
    export HOME="$KV_WORK/shared/home"
    mkdir -p "$KV_WORK/shared/home" "$KV_WORK/result"
    printf '%s\0' "${cases[@]}" | xargs -0 -n 1 -P "$jobs" bash "$here/run.sh" --case
    for name in "${cases[@]}"; do
        IFS=$'\t' read -r what why <"$KV_WORK/result/${name//\//.}" ||
            { what=FAILED why="it left no result" && echo "FAILED  slurm/$name: $why" && tail -n 60 "$KV_WORK/${name//\//.}/log"; }
        count "$what" "$name" "$why"
    done
    cluster_stop
done
echo "slurm cases: $passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ] && [ $((passed + skipped)) -gt 0 ]
