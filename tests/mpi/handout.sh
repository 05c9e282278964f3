#!/bin/sh
# handout.sh PROGRAM [MPIRUN]: the stories of mpi_handout_main.c under a real launcher.
# Exit 0: all held; 1: the first that did not is printed; 77: there is no mpirun (a visible skip).
set -u
program=$(readlink -f -- "$1")
mpirun=${2:-mpirun}
command -v "$mpirun" >/dev/null 2>&1 || { echo "handout.sh: no $mpirun"; exit 77; }
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 ASAN_OPTIONS=detect_leaks=0
unset PMI_SIZE SLURM_STEP_NUM_TASKS SLURM_NTASKS
dir=$(mktemp -d /tmp/kvt.XXXXXX) || exit 1 # short: Open MPI's sockets lie in it
trap 'rm -rf "$dir"' EXIT
TMPDIR=$dir; export TMPDIR # not shared with other runs of this user, whose end may remove it
cd "$dir" || exit 1         # where the ranks leave their marks

# play RANKS MODE ITEMS ITEM_US TIMEOUT_S: runs a story; sets $code
play() {
    story="$*"
    ranks=$1
    shift
    rm -f mark.*
    timeout -k 5 300 "$mpirun" --oversubscribe -n "$ranks" "$program" "$@" >"$dir/out" 2>"$dir/err"
    code=$?
}

broken() {
    echo "handout.sh: \"$story\": $1"
    echo "--- exit $code, stdout:"; cat "$dir/out"
    echo "--- stderr:"; cat "$dir/err"
    echo "\"$story\": $1" # last, for the summary
    exit 1
}

exits() { [ "$code" -eq "$1" ] || broken "exit code $code, want $1"; }
out() { grep -q -x -E -e "$1" "$dir/out" || broken "stdout has no line $1"; }
err() { grep -q -E -e "$1" "$dir/err" || broken "stderr has no $1"; }
value() { sed -n "s/^$1=//p" "$dir/out"; }
at_least() { [ "$(value "$1")" -ge "$2" ] || broken "$1 is $(value "$1"), want at least $2"; }
all_well() { exits 0; out rc=KV_OK; out twice=0; out never=0; out wrong=0; out "delivered=$1"; out "progress=$1"; }
once_at_most() { out twice=0; out wrong=0; }

for n in 1 2 3 4; do
    play $n plain 64 0 60; all_well 64
    play $n plain 1000 100 60; all_well 1000
    play $n plain 100000 0 60; all_well 100000
    echo "$n ranks: $(value per_second) tiny items a second"
    play $n plain 0 0 60; all_well 0
    play $n plain 1 0 60; all_well 1
    play $n twice 300 100 60; all_well 300
done
play 3 slowroot 1000 1000 60; all_well 1000; at_least from_others 300
play 3 large 64 1000 60; all_well 64

play 1 exchanges 1 0 60; exits 0
for n in 2 3 4; do
    play $n exchanges 1 0 60; exits 5; out "rc=KV_EPEER"
    out "text=rank 1 on .+ failed: planted on rank 1"; err "rank 1: KV_ENOMEM planted on rank 1"
done

# One rank fails (d10): all end, the item has a name, what was finished is kept.
play 4 fail 200 2000 60; exits 5; once_at_most; at_least delivered 8
out "rc=KV_EPEER"; out "text=rank 2 on .+ failed in item [0-9]+: the planted fault"
err "rank 2: KV_EDEVICE item [0-9]+: the planted fault"
err "rank 3: KV_EPEER rank 2 on .+ failed in item"
play 4 fail0 200 2000 60; exits 5; once_at_most; at_least delivered 4
out "rc=KV_EDEVICE"; out "text=item [0-9]+: the planted fault"; err "rank 1: KV_EPEER rank 0 on .+ failed in item"
play 1 fail0 200 0 60; exits 5; out delivered=4; out "text=item [0-9]+: the planted fault"
play 3 journal 200 1000 60; exits 5; out delivered=5; out "rc=KV_EWRITE"; out "text=item [0-9]+: the disk is full"
play 1 journal 200 0 60; exits 5; out delivered=5; out "rc=KV_EWRITE"
play 3 lists 200 1000 60; exits 5; out "text=rank 1 on .+ failed: the work list here is not that of rank 0"

# Asked to stop: on any rank, everywhere the same answer, nothing finished is lost.
play 4 stop 200 2000 60; exits 75; once_at_most; out "rc=KV_EINTR"; at_least delivered 8; err "rank 1: KV_EINTR"
play 4 stop0 200 2000 60; exits 75; once_at_most; out "rc=KV_EINTR"; at_least delivered 5; err "rank 3: KV_EINTR"
play 1 stop0 200 0 60; exits 75; out "rc=KV_EINTR"; out delivered=5

# The limit is short, and longer than a loaded machine stops a process. A dead rank ends the job; a silent one after the time limit, with its name; rank 0's own too.
play 4 kill 2000 2000 60; [ "$code" -ne 0 ] && [ "$code" -ne 124 ] || broken "exit code $code"
play 4 hang 200 2000 4; exits 5; once_at_most; out "rc=KV_ETIME"; out broken=1; at_least delivered 100
out "text=rank 2 on .+ sent nothing for 4 s; it was in item [0-9]+ and holds [0-9]+ items?"
err "rank 1: KV_EPEER .+rank 2 on"
play 4 hang0 200 2000 4; exits 5; err "rank 0 on .+: item [0-9]+ runs for more than 4 s here"
play 3 absent 5 0 4; exits 5; out rc=KV_ETIME; out "text=rank 0 on .+ waited 4 s for the other ranks .+"

# The launcher announced more than this world (d11): each copy fails by itself.
story="launch checks"
for v in PMI_SIZE SLURM_STEP_NUM_TASKS SLURM_NTASKS; do
    env $v=4 timeout 300 "$program" plain 5 0 60 >"$dir/out" 2>"$dir/err"; code=$?
    exits 5; err "launcher started 4 tasks \($v\), but this MPI world has 1 rank"
done
env PMI_SIZE=four timeout 300 "$program" plain 5 0 60 >"$dir/out" 2>"$dir/err"; code=$?
exits 5; err 'PMI_SIZE="four" is no number of tasks'
timeout 300 "$program" plain 5 0 60 >"$dir/out" 2>"$dir/err"; code=$?
all_well 5
export SLURM_NTASKS=4
play 2 plain 64 0 60; all_well 64
play 1 plain 64 0 60; all_well 64
echo "all stories held"
