#!/usr/bin/env bash
# Checks the CUDA backend on a machine with a GPU and little else: no network, Open MPI, libsodium or jansson is needed.
# Compares every kernel with the CPU backend bit for bit on random shapes with poisoned outputs, lets compute-sanitizer
# look at small ones where it is there, and prints a table of speeds beside a device-to-device copy. Ends within five
# minutes and says what was not checked.
#
#   tests/device_check.sh [--build FILE] [--program FILE] [--archs "80;90"]
#
#   --build FILE     only build the program here, to carry it to a machine without nvcc
#   --program FILE   run that one
#   --archs LIST     machine code for these (default: of the GPU that is here, else all that kvgrid is built for)
#
# Exit 0: everything that was checked is right. 1: something differs. 2: usage. 5: it could not be built or a call failed.
# 77: there is no GPU.
set -u -o pipefail
root=$(readlink -f -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/..")
limit=290 only_build='' program='' archs=''
while [ $# -gt 0 ]; do
    [ $# -ge 2 ] || case $1 in --help | -h) ;; *) echo "$0: $1 needs a value; see --help" >&2; exit 2 ;; esac
    case $1 in
        --build) only_build=$2; shift ;;
        --program) program=$2; shift ;;
        --archs) archs=$2; shift ;;
        --help | -h) sed -n '2,/^set/{/^set/!s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit 0 ;;
        *) echo "$0: unknown argument '$1'; see --help" >&2; exit 2 ;;
    esac
    shift
done
left() { echo $((limit - SECONDS)); }

not_checked=("the published campaign with its certificate: run kvgrid run jobs/campaigns/published.json --device cuda"
    "NCCL: see tests/tp")

nvcc=$(command -v nvcc || command -v /usr/local/cuda/bin/nvcc)
have_gpu=''
if ls /dev/nvidia[0-9]* >/dev/null 2>&1 || nvidia-smi -L 2>/dev/null | grep -q GPU; then have_gpu=1; fi
if [ -z "$have_gpu" ] && [ -z "$only_build" ] && [ -z "$program" ]; then
    echo "tests/device_check.sh: this machine has no NVIDIA GPU (no /dev/nvidia*): nothing was checked"
    exit 77
fi

# build OUT: all sources at once, in a folder of its own.
build()
{
    local out=$1 work flags=() arch cc source objects=() jobs=0 rc=0
    [ -n "$nvcc" ] || { echo "tests/device_check.sh: no nvcc here; build elsewhere with --build and bring it with --program" >&2; return 5; }
    cc=$(command -v gcc || command -v cc) || { echo "tests/device_check.sh: no C compiler" >&2; return 5; }
    work=$(mktemp -d) || return 5
    if [ -n "$archs" ]; then
        for arch in ${archs//;/ }; do flags+=(-gencode "arch=compute_$arch,code=sm_$arch"); done
    elif [ -n "$have_gpu" ]; then
        flags=(-arch=native)
    else
        for arch in 80 89 90 100 120; do flags+=(-gencode "arch=compute_$arch,code=sm_$arch"); done
    fi
    for source in "$root"/base/kv_{err,alloc,text}.c "$root"/layouts/kv_{geometry,layout_bind}.c "$root"/kernels/kv_kern_*.c \
        "$root"/kernels/codec/kv_codec_{batch,params,pick,ref,work,simd_sse2,simd_avx2,simd_avx512}.c \
        "$root"/kernels/cuda/*.c "$root"/kernels/cuda/*.cu "$root"/tests/device/*.c; do
        case $source in */kv_cuda_none.c) continue ;; esac
        [ -e "$source" ] || continue
        objects+=("$work/$(basename "$source").o")
        if [[ $source == *.cu ]]; then
            "$nvcc" -std=c++17 -O3 --fmad=false "${flags[@]}" -I"$root" -c "$source" -o "${objects[-1]}" >>"$work/log" 2>&1 &
        else
            "$cc" -std=c17 -O3 -ffp-contract=off -D_POSIX_C_SOURCE=200809L -D_DEFAULT_SOURCE -I"$root" -I"$root/tests/device/include" \
                -isystem "$(dirname "$nvcc")/../include" -c "$source" -o "${objects[-1]}" >>"$work/log" 2>&1 &
        fi
        jobs=$((jobs + 1))
        if [ $((jobs % $(nproc))) -eq 0 ]; then wait; fi
    done
    wait
    "$nvcc" -o "$out" "${objects[@]}" -lm >>"$work/log" 2>&1 || { grep -m 20 -E 'error|undefined|fatal' "$work/log" >&2; rc=5; }
    rm -rf "$work"
    return $rc
}

work=$(mktemp -d) || exit 5
trap 'rm -rf "$work"' EXIT
if [ -z "$program" ]; then
    program=${only_build:-$work/kv_device_check}
    build "$program" || exit 5
    echo "built in $SECONDS s"
    [ -z "$only_build" ] || exit 0
fi

echo "== every kernel against the CPU, and speeds"
timeout "$(left)" "$program"
rc=$?
case $rc in
    0) ;;
    77) exit 77 ;;
    124) echo "stopped at the time limit"; exit 5 ;;
    *) exit $rc ;;
esac

sanitizer=$(command -v compute-sanitizer || command -v /usr/local/cuda/bin/compute-sanitizer)
if [ -z "$sanitizer" ]; then
    not_checked+=("memory accesses and races: no compute-sanitizer here")
else
    for tool in memcheck racecheck; do
        if [ "$(left)" -lt 40 ]; then not_checked+=("compute-sanitizer $tool: no time was left"); continue; fi
        echo "== compute-sanitizer $tool"
        timeout "$(left)" "$sanitizer" --tool "$tool" --error-exitcode 9 "$program" --small >"$work/log" 2>&1
        rc=$?
        tail -n 3 "$work/log"
        case $rc in
            0) ;;
            124) not_checked+=("compute-sanitizer $tool: it ran past the time limit") ;;
            9 | 1) cat "$work/log"; exit 1 ;;
            *) not_checked+=("compute-sanitizer $tool: it does not work here (exit code $rc)") ;;
        esac
    done
fi
printf '\nnot checked:\n'
printf '  %s\n' "${not_checked[@]}"
echo "all that was checked is right ($SECONDS s)"
