#!/usr/bin/env bash
# program.sh [--full] PROGRAM: tensor-parallel cells by kvgrid-emulated, with the NCCL transport over the emulated NCCL and
# device buffers: the bodies of the MPI transport with 2, 4 and 8 ranks, and every kind of fault in the middle of it.
#   --full   also the shipped campaign (some minutes), and a failure of every seventh call of the device
set -u -o pipefail
full='' limit=300 # seconds of one run: against hangs
[ "${1-}" != --full ] || { full=1 limit=2400; shift; }
program=$1
root=$(readlink -f -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/../..")
. "$root/jobs/deps.sh"
kv_mpi_env
command -v mpirun >/dev/null 2>&1 || { echo "no mpirun"; exit 77; }
export ASAN_OPTIONS=detect_leaks=0 KV_EMU_DEVICES=0,1,2,3,4,5,6,7
unset KV_EMU_DRIVER KV_EMU_NCCL KV_EMU_FAIL KVGRID_FAULT SLURM_NTASKS SLURM_STEP_NUM_TASKS PMI_SIZE OMPI_COMM_WORLD_SIZE
work=$(mktemp -d /tmp/kvt.XXXXXX) || exit 1 # short: Open MPI's sockets lie in it
trap 'rm -rf "$work"' EXIT
export TMPDIR=$work # not shared with other runs of this user, whose end may remove it

broken()
{
    echo "program.sh: $story: $*"
    cat "$work/out" "$work/err"
    echo "$story: $*" # last, for the summary
    exit 1
}
# ranks N CAMPAIGN CERT ARGS...: exit code in $rc
ranks()
{
    local n=$1 campaign=$2 cert=$work/$3
    shift 3
    rm -f "$cert"
    timeout -k 5 "$limit" "${KV_MPIRUN[@]}" -n "$n" "$program" run "$campaign" -o "$cert" --key "$work/key" --progress none "$@" \
        >"$work/out" 2>"$work/err" </dev/null
    rc=$?
}
body() { sed -n 's/.*"body_digest":"\([0-9a-f]*\)".*/\1/p' "$work/$1" 2>/dev/null; }
verdicts() { sed -n 's/.*"verdicts":{[^}]*"'"$2"'":\([0-9]*\).*/\1/p' "$work/$1" 2>/dev/null; }
exits() { [ $rc -eq "$1" ] || broken "exit code $rc, not $1"; }
says() { grep -qE -- "$1" "$work/err" || broken "stderr does not say: $1"; }
same() { [ -n "$(body "$1")" ] && [ "$(body "$1")" = "$(body "$2")" ] || broken "the bodies of $1 and $2 differ"; }
# compare N CAMPAIGN: over MPI and over NCCL
compare()
{
    local n=$1 campaign=$2 nccl
    nccl=$(basename "$campaign" .json)$n.json
    story="$n ranks, $campaign"
    ranks "$n" "$campaign" mpi.json --device cpu
    [ $rc -eq 0 ] || [ $rc -eq 4 ] || broken "exit code $rc over MPI"
    local want=$rc
    ranks "$n" "$campaign" "$nccl" --device cuda
    exits "$want"
    same mpi.json "$nccl"
    grep -q '"transports":\["mpi"\]' "$work/mpi.json" || broken "not over MPI"
    grep -q '"transports":\["emulated"\],"transports_why":\["emulated: each of the' "$work/$nccl" || broken "not over the emulated NCCL"
    ! grep -qE '"(nccl|cuda)"[],}]|"nccl":"[0-9]|"device":"cuda"' "$work/$nccl" || broken "something calls itself real"
}

story=keys
"$program" keygen "$work/key" >"$work/out" 2>"$work/err" || broken "no key"
cat >"$work/small.json" <<EOF
{"schema":"kvgrid.campaign/v1","name":"small","layouts":["$root/layouts/published"],"select":["vllm-fa","trtllm"],
 "geometries":[{"layers":1,"tokens":9,"kv_heads":4,"head_dim":4,"element":"f16"}],
 "tp":{"pairs":[["vllm-fa","trtllm"]],"sizes":[1,2,4,8]}}
EOF
cat >"$work/two.json" <<EOF
{"schema":"kvgrid.campaign/v1","name":"two","layouts":["$root/layouts/published"],"select":["vllm-fa","trtllm"],
 "geometries":[{"layers":1,"tokens":9,"kv_heads":4,"head_dim":4,"element":"f16"}],
 "tp":{"pairs":[["vllm-fa","trtllm"]],"sizes":[1,2]}}
EOF
cat >"$work/pages.json" <<EOF
{"schema":"kvgrid.campaign/v1","name":"pages","layouts":["$root/layouts/published"],"select":["vllm-fa","trtllm"],
 "geometries":[{"layers":2,"tokens":9,"kv_heads":2,"head_dim":4,"element":"f16"}],
 "tp":{"pages":{"recipes":["kv1"],"block":4},"sizes":[1,4],"sends":["whole","chunks"],"chunk":5,
       "pipeline":{"pairs":[["vllm-fa","trtllm"]],"splits":[1,[[1],[0]]],"sizes":[1,2]}}}
EOF

# ---- the same body --------------------------------------------------------------------------
for n in 2 4 8; do compare $n "$work/small.json"; done
if [ -n "$full" ]; then
    for n in 2 4; do compare $n "$root/jobs/campaigns/tp.json"; done
    # with 8 ranks all of it takes a quarter of an hour: each layout once as source and once as destination
    sed -e "s|\.\./\.\./layouts|$root/layouts|" -e 's|"all-ordered"|[["vllm-fa","trtllm"],["trtllm","sglang"],["sglang","hf-dynamic-cache"],["hf-dynamic-cache","llamacpp"],["llamacpp","flashinfer-nhd"],["flashinfer-nhd","lmdeploy-turbomind"],["lmdeploy-turbomind","vllm-fa"]]|' \
        "$root/jobs/campaigns/tp.json" >"$work/ring.json"
    compare 8 "$work/ring.json"
fi
story="images of a GPU over MPI"
KV_EMU_DEVICES=0 ranks 4 "$work/small.json" shared.json --device cuda --share-gpu
exits 4
grep -q '"transports":\["mpi"\]' "$work/shared.json" || broken "not over MPI"
same shared.json small4.json
compare 5 "$work/pages.json" # sealed pages, pipeline stages; one rank more than the cells take

story="who believes it"
"$program" verify "$work/small8.json" --trust "$work/key.pub" >"$work/out" 2>"$work/err"; rc=$?
exits 4
"$program" verify "$work/small8.json" --trust "$work/key.pub" --allow-emulated >"$work/out" 2>"$work/err"; rc=$?
exits 0
ranks 2 "$work/two.json" x.json --device cuda --require transport=nccl
exits 5
says 'transport=nccl'

# ---- faults of NCCL and of ranks --------------------------------------------------------------
# What nothing but the time limit ends gets a short one, of which a machine as loaded as now needs less than half for all.
story="how fast it is"
pace=$SECONDS
ranks 4 "$work/small.json" x.json --device cuda
exits 4
short=$((3 + 2 * (SECONDS - pace + 1)))
# lost NAME=VALUE REGEX [TIMEOUT_S]: the job ends by itself, says that, and what it had finished can be gone on with.
lost()
{
    local began=$SECONDS
    story=$1
    rm -rf "$work/state"
    export "${1%%=*}=${1#*=}"
    ranks 4 "$work/small.json" x.json --device cuda --state "$work/state" --timeout "${3:-60}"
    unset "${1%%=*}"
    [ $rc -ne 0 ] && [ $rc -ne 4 ] && [ $rc -ne 124 ] || broken "exit code $rc"
    [ "$2" = killed ] || exits 5
    [ -n "${3-}" ] || [ $((SECONDS - began)) -lt 60 ] || broken "it waited for the time limit"
    [ ! -e "$work/x.json" ] || broken "there is a certificate"
    [ "$2" = killed ] || says "$2"
    says 'rank 1'
    ranks 4 "$work/small.json" x.json --device cuda --state "$work/state"
    exits 4
    same x.json small4.json
}
lost 'KV_EMU_NCCL=async 1 2' 'rank 1 gave up: NCCL reports on rank 1: remote process'
lost 'KV_EMU_NCCL=stuck 1 3' 'rank 1' $short
lost 'KVGRID_FAULT=hang@1:2' 'no sign of life from rank 1' $short
lost 'KVGRID_FAULT=kill@1:3' killed

story="a rank whose NCCL never starts"
KV_EMU_NCCL='absent 1 0' ranks 2 "$work/two.json" x.json --device cuda --timeout $short
exits 5
says "the start of NCCL not finished after $short s"
story="a slow rank"
KV_EMU_NCCL='slow 1 3' ranks 4 "$work/small.json" slow.json --device cuda
exits 4
same slow.json small4.json

# ---- a device that fails on one rank ----------------------------------------------------------
# A failure is never a row that says something about the translation.
calls=(3 15 30 60 120)
[ -z "$full" ] || mapfile -t calls < <(seq 0 7 600)
seen=' ' tried=0
# Which calls come when depends on which cells a rank is handed: more of them where these did not meet both kinds of end.
# Where rank 1 is handed none, calls 13 and 14 end the job.
for call in "${calls[@]}" {16..29} {5..14} 13 14 13 14 13 14 13 14; do
    [ $((tried++)) -lt ${#calls[@]} ] || [[ $seen != *' row '* || $seen != *' job '* ]] || break
    story="call $call of rank 1's device fails"
    KV_EMU_FAIL="1 $call" ranks 2 "$work/two.json" x.json --device cuda --timeout 60
    case $rc:$(verdicts x.json NOT_EXACT):$(verdicts x.json FAILED) in
        0:0:0) seen+='none ' ;; # the call was never made
        5:0:[1-9]*)
            seen+='row '
            grep -q '"failures":\[{[^]]*"rank":1[,}]' "$work/x.json" || says 'groups of ranks disagree' ;;
        5::) seen+='job '; says 'rank 1' ;;
        *) broken "exit code $rc with $(verdicts x.json NOT_EXACT) NOT_EXACT and $(verdicts x.json FAILED) FAILED rows" ;;
    esac
done
[[ $seen == *' row '* && $seen == *' job '* ]] || broken "not every kind of end was seen:$seen"
exit 0
