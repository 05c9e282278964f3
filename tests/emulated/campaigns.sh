#!/usr/bin/env bash
# campaigns.sh PROGRAM: whole campaigns by kvgrid-emulated, on the CPU and on the emulated GPU: byte-identical
# bodies, certificates that say "emulated" and are refused for it, and the errors about which rank has which GPU.
set -u -o pipefail
program=$1
root=$(readlink -f -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/../..")
. "$root/jobs/deps.sh"
kv_mpi_env
export ASAN_OPTIONS=detect_leaks=0
unset KV_EMU_DEVICES KV_EMU_DRIVER KV_EMU_MEMORY KVGRID_MEMORY_LIMIT SLURM_NTASKS SLURM_STEP_NUM_TASKS PMI_SIZE OMPI_COMM_WORLD_SIZE
work=$(mktemp -d /tmp/kvt.XXXXXX) || exit 1 # short: Open MPI's sockets lie in it
trap 'rm -rf "$work"' EXIT
export TMPDIR=$work # not shared with other runs of this user, whose end may remove it

broken()
{
    echo "campaigns.sh: $*"
    cat "$work/out" "$work/err"
    echo "campaigns.sh: $*" # last, for the summary
    exit 1
}
run() # ARGS...: exit code in $rc
{
    "$program" "$@" >"$work/out" 2>"$work/err" </dev/null
    rc=$?
}
ranks() # N ARGS...
{
    local n=$1
    shift
    timeout -k 5 400 "${KV_MPIRUN[@]}" -n "$n" "$program" "$@" >"$work/out" 2>"$work/err" </dev/null
    rc=$?
}
body() { sed -n 's/.*"body_digest":"\([0-9a-f]*\)".*/\1/p' "$1"; }
wants() # CODE TEXT...: exit code, and all texts on stderr
{
    local code=$1 text
    shift
    [ $rc -eq "$code" ] || broken "exit code $rc, not $code"
    for text in "$@"; do grep -qE -- "$text" "$work/err" || broken "stderr does not say: $text"; done
}

run keygen "$work/key"
published=$root/jobs/campaigns/published.json
common=(--key "$work/key" --progress none)

for campaign in "$published" "$root/tests/emulated/odd_shapes.json" "$root/tests/emulated/codec_rows.json"; do
    for device in cpu cuda; do
        run run "$campaign" --device $device -o "$work/$device.json" "${common[@]}"
        wants 0
    done
    [ -n "$(body "$work/cpu.json")" ] || broken "no digest"
    [ "$(body "$work/cpu.json")" = "$(body "$work/cuda.json")" ] || broken "$campaign: the bodies differ"
    grep -q '"device":"emulated"' "$work/cuda.json" || broken "the device is not called emulated"
    ! grep -q '"device":"cuda"' "$work/cuda.json" || broken "something calls itself cuda"
done
run run "$published" --device cuda -o "$work/cuda.json" "${common[@]}"
[ "$(body "$work/cuda.json")" = 15600014fa0773db36b59f2f2f47676f90c877a0f7a8183947a31d02d56f0078 ] || broken "not the published body"

run verify "$work/cuda.json" --trust "$work/key.pub"
wants 4 'emulated device; --allow-emulated'
run verify "$work/cuda.json" --trust "$work/key.pub" --allow-emulated
wants 0
run run "$published" --device cuda --require device=cuda -o "$work/x.json" "${common[@]}"
wants 5 '--require device=cuda: rank 0 has emulated'

# memory that is short: of the GPU, of the host (in builds with planted faults). What fits only in windows of tokens gives
# the same body; what does not fit even so is refused, with both numbers.
cat >"$work/windows.json" <<EOF
{"schema":"kvgrid.campaign/v1","name":"windows","layouts":["$root/layouts/published"],"select":["vllm-fa","llamacpp","vllm-fp8"],
 "pairs":"all-ordered","geometries":[{"layers":1,"tokens":150,"kv_heads":2,"head_dim":8,"element":"f16"}]}
EOF
number() { sed -n 's/.*"'"$1"'": *\([0-9]*\).*/\1/p' "$work/out"; }
run run "$work/windows.json" --device cpu -o "$work/whole.json" "${common[@]}"
wants 0
run plan "$work/windows.json" --format json
wants 0
whole=$(number peak_bytes_per_rank) host=$(number least_bytes_per_rank) gpu=$(number least_bytes_per_gpu)
[ "$gpu" -gt 0 ] && [ "$host" -lt "$whole" ] || broken "nothing to split: $whole, $host and $gpu bytes"
KV_EMU_MEMORY=$((gpu + gpu / 60 + 8192)) run run "$work/windows.json" --device cuda -o "$work/windows.cert" "${common[@]}"
wants 0
[ "$(body "$work/windows.cert")" = "$(body "$work/whole.json")" ] || broken "another body from windows on the GPU"
KV_EMU_MEMORY=$((gpu - 1)) run run "$work/windows.json" --device cuda -o "$work/x.json" "${common[@]}"
wants 5 "needs $gpu bytes, cut as small as it can be: GPU-656d756c-6174-6564-0000-000000000000 \\(emulated\\) has [0-9]+ free"
[ ! -e "$work/x.json" ] || broken "a refused run left a certificate"
KVGRID_MEMORY_LIMIT=$((host + host / 15)) run plan "$work/windows.json"
wants 0
if grep -q 'cells\{0,1\} would run in windows of tokens, .* in [0-9]* of [0-9]* tokens' "$work/out"; then
    KVGRID_MEMORY_LIMIT=$((host + host / 15)) run run "$work/windows.json" --device cpu -o "$work/windows.cert" "${common[@]}"
    wants 0
    [ "$(body "$work/windows.cert")" = "$(body "$work/whole.json")" ] || broken "another body from windows on the CPU"
    KVGRID_MEMORY_LIMIT=$((host - 1)) run run "$work/windows.json" --device cpu -o "$work/x.json" "${common[@]}"
    wants 5 "needs $host bytes, cut as small as it can be: 1 rank on a host of $((host - 1)) bytes"
    KVGRID_MEMORY_LIMIT=$((host - 1)) run plan "$work/windows.json"
    grep -q 'this host could not run it: .* needs' "$work/out" || broken "the plan does not tell what is too large"
fi

# which rank has which GPU
KV_EMU_DEVICES='' run run "$published" --device cuda -o "$work/x.json" "${common[@]}"
wants 5 '--device cuda: this process sees no GPU'
KV_EMU_DEVICES='' run run "$published" -o "$work/auto.json" "${common[@]}"
wants 0
grep -q '"device":"cpu"' "$work/auto.json" || broken "auto without a GPU is not the CPU"
KV_EMU_DRIVER=old run run "$published" --device cuda -o "$work/x.json" "${common[@]}"
wants 5 'driver is too old' '13\.0' '11\.4'
KV_EMU_DRIVER=old run run "$published" -o "$work/auto.json" "${common[@]}"
wants 0 'computing on the CPU: .*too old'
[ ! -e "$work/x.json" ] || broken "a refused run left a certificate"

if ! command -v mpirun >/dev/null 2>&1; then
    echo "no mpirun: one rank alone was looked at"
    exit 77
fi
ranks 2 run "$published" --device cuda -o "$work/x.json" "${common[@]}"
wants 5 'ranks 0 and 1 on .* would share GPU-656d756c-6174-6564-0000-000000000000' '--share-gpu'
ranks 2 run "$published" --device cuda --share-gpu -o "$work/shared.json" "${common[@]}"
wants 0
KV_EMU_MEMORY=$((gpu + gpu / 2)) ranks 2 run "$work/windows.json" --device cuda --share-gpu -o "$work/x.json" "${common[@]}"
wants 5 "needs $gpu bytes.* for each rank that shares it"
KV_EMU_DEVICES=0,1 ranks 2 run "$published" --device cuda -o "$work/two.json" "${common[@]}"
wants 0
grep -q '000000000001' "$work/two.json" || broken "the second rank has not the second GPU"
for cert in shared two; do
    [ "$(body "$work/$cert.json")" = "$(body "$work/cuda.json")" ] || broken "two ranks, another body"
done

ranks 1 bench --device cuda --geometry L=1,T=64,H=2,D=16,e=f16 --pairs 'sglang->llamacpp' --repeat 1 --format json
wants 0
grep -q '"device": *"emulated"' "$work/out" || broken "bench does not say where it ran"
run bench --codec --device cuda --repeat 1 --format json
wants 0
grep -q '"device": *"emulated"' "$work/out" && grep -q '"task": *"decode"' "$work/out" || broken "bench --codec does not say where it ran"
exit 0
