#!/bin/sh
# tp_ranks.sh matrix|faults PROGRAM [MPIRUN]: the stories of tp_ranks_main.c under a real launcher.
# Exit 0: all held; 1: the first that did not is printed; 77: there is no mpirun (a visible skip).
set -u
part=$1
program=$(readlink -f -- "$2")
mpirun=${3:-mpirun}
command -v "$mpirun" >/dev/null 2>&1 || { echo "tp_ranks.sh: no $mpirun"; exit 77; }
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 ASAN_OPTIONS=detect_leaks=0
unset PMI_SIZE SLURM_STEP_NUM_TASKS SLURM_NTASKS KV_EMU_NCCL
dir=$(mktemp -d /tmp/kvt.XXXXXX) || exit 1 # short: Open MPI's sockets lie in it
trap 'rm -rf "$dir"' EXIT
TMPDIR=$dir; export TMPDIR # not shared with other runs of this user, whose end may remove it
cd "$dir" || exit 1         # where the ranks leave their marks

# play RANKS STORY TRANSPORT DEVICE [TIMEOUT_S]: runs a story; sets $code
play() {
    story="$* ${KV_EMU_NCCL-}"
    ranks=$1
    shift
    rm -f mark.*
    timeout -k 5 300 "$mpirun" --oversubscribe -n "$ranks" "$program" "$@" >"$dir/out" 2>"$dir/err"
    code=$?
}

broken() {
    echo "tp_ranks.sh: \"$story\": $1"
    echo "--- exit $code, stdout:"; cat "$dir/out"
    echo "--- stderr:"; cat "$dir/err"
    echo "\"$story\": $1" # last, for the summary
    exit 1
}

exits() { [ "$code" -eq "$1" ] || broken "exit code $code, want $1"; }
out() { grep -q -x -E -e "$1" "$dir/out" || broken "stdout has no line $1"; }
none() { if grep -q -E -e "$1" "$dir/out"; then broken "stdout has $1"; fi; }
lines() { n=$(grep -c -E -e "$1" "$dir/out"); [ "$n" -eq "$2" ] || broken "$n lines $1, want $2"; }

# Every cell exact, the same line on any transport, device and number of ranks.
matrix() {
    for n in 1 2 4 8; do
        for how in "mpi cpu" "nccl cpu" "nccl gpu" "mpi gpu"; do
            # shellcheck disable=SC2086 # two words
            play $n matrix $how 60
            exits 0
            none WRONG
            grep '^cell ' "$dir/out" >"$dir/cells.$n"
            if [ "$how" = "mpi cpu" ]; then
                cp "$dir/cells.$n" "$dir/first.$n"
            else
                cmp -s "$dir/cells.$n" "$dir/first.$n" || { diff "$dir/first.$n" "$dir/cells.$n"; broken "cells differ from mpi cpu"; }
            fi
        done
    done
    for n in 1 2 4; do
        while IFS= read -r line; do
            grep -q -x -F -e "$line" "$dir/first.8" || broken "8 ranks have no line: $line"
        done <"$dir/first.$n"
    done
    story="8 ranks"
    [ "$(wc -l <"$dir/first.8")" -eq 93 ] || broken "$(wc -l <"$dir/first.8") cells, want 93"
    [ "$(wc -l <"$dir/first.4")" -eq 63 ] || broken "$(wc -l <"$dir/first.4") cells with 4 ranks, want 63"
    for how in "mpi cpu" "nccl gpu"; do
        # shellcheck disable=SC2086
        play 3 pipe $how; exits 0; lines "^pipe rank=[012] forward=1 moved=3 sent=1728$" 3
    done
    play 2 parts mpi cpu; exits 0; lines "^parts rank=[01] well$" 2
    play 3 choose mpi cpu; exits 0
    lines "^choose rank=[012] 0 mpi: rank 2 has no GPU of its own$" 3
    lines "^choose rank=[012] 1 emulated: each of the 3 ranks has a GPU of its own$" 3
}

# A rank that is missing, dead or broken: all others end by themselves, and name it. A rank that sleeps wakes
# only when they have. The limit of 4 s is short, and longer than a loaded machine stops a process; where nobody may come
# to the limit it is 60 s.
faults() {
    for how in "mpi cpu" "nccl gpu"; do
        for missing in sleep absent; do
            # shellcheck disable=SC2086
            play 4 $missing $how 4; exits 5
            for r in 0 1 3; do
                out "rank=$r rc=KV_(ETIME|EPEER) after [0-9]+ s: .*no sign of life from rank 2"
            done
            none "never ended"
            out "rank=2 rc=KV_EPEER after [0-9]+ s: rank [013] gave up: .+ 4 s"
        done
        # shellcheck disable=SC2086
        play 4 kill $how 60
        [ "$code" -ne 0 ] && [ "$code" -ne 124 ] || broken "exit code $code"
        grep -q -E -e "rank 2 .*signal 9" "$dir/err" "$dir/out" || broken "nobody names rank 2"
    done
    KV_EMU_NCCL="async 2 1"; export KV_EMU_NCCL
    play 4 gather nccl gpu 60; exits 5
    out "rank=2 rc=KV_EDEVICE after [0-4]?[0-9] s: NCCL reports on rank 2: .+"
    for r in 0 1 3; do out "rank=$r rc=KV_EPEER after [0-4]?[0-9] s: rank 2 gave up: NCCL reports on rank 2: .+"; done
    KV_EMU_NCCL="absent 2 0"
    play 4 gather nccl gpu 4; exits 5
    lines "^rank=[0123] rc=KV_(ETIME|EPEER) after [0-9]+ s: .*the start of NCCL not finished after 4 s" 4
    KV_EMU_NCCL="stuck 2 0"
    play 4 gather nccl gpu 4; exits 5
    lines "^rank=[0123] rc=KV_(ETIME|EPEER) after [0-9]+ s: " 4
    out "rank=2 rc=KV_(ETIME|EPEER) after [0-9]+ s: .*(an exchange over NCCL with rank [0-9, ]+ not finished|sent nothing).*"
    none "no sign of life" # all are there, it is NCCL that does not go on
    KV_EMU_NCCL="slow 2 40"
    play 4 gather nccl cpu 60; exits 0; lines "^cell .* exact " 3
    unset KV_EMU_NCCL
}

case $part in
    matrix | faults) "$part" ;;
    *) echo "tp_ranks.sh: there is no part $part"; exit 1 ;;
esac
echo "all stories held"
