#!/usr/bin/env bash
# Checks the CUDA backend on a machine with a GPU and little else: no network, Open MPI, libsodium or jansson is needed.
# Compares every kernel with the CPU backend bit for bit on random shapes with poisoned outputs, lets compute-sanitizer
# look at small ones where it is there, starts a real NCCL communicator of one rank, runs the published campaign, and prints a
# table of speeds beside a device-to-device copy. Ends within five minutes and says what was not checked.
#
#   tests/device_check.sh [--build DIR] [--program DIR] [--archs "80;90"]
#
#   --build DIR      only build into DIR, to carry it to a machine without nvcc: the programs, and kvgrid with its libraries
#   --program DIR    run what was built there
#   --archs LIST     machine code for these (default: of the GPU that is here, else all that kvgrid is built for)
#
# Exit 0: everything that was checked is right. 1: something differs. 2: usage. 5: it could not be built or a call failed.
# 77: there is no GPU.
set -u -o pipefail
root=$(readlink -f -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/..")
. "$root/tests/device/carry.sh"
limit=290 only_build='' program='' archs=''
while [ $# -gt 0 ]; do
    case $1 in
        --build | --program | --archs) [ $# -ge 2 ] || { echo "$0: $1 needs a value; see --help" >&2; exit 2; } ;;
    esac
    case $1 in
        --build) only_build=$2; shift ;;
        --program) program=$2; shift ;;
        --archs) archs=$2; shift ;;
        --help | -h) sed -n '2,/^set/{/^set/!s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit 0 ;;
        *) echo "$0: unknown argument '$1'; see --help" >&2; exit 2 ;;
    esac
    shift
done
if [ -n "$only_build" ] && [ -n "$program" ]; then
    echo "$0: --build only builds and --program only runs what was built; give one of them" >&2
    exit 2
fi
left() { echo $((limit - SECONDS)); }

not_checked=()

nvcc=$(command -v nvcc || command -v /usr/local/cuda/bin/nvcc)
have_gpu=''
if ls /dev/nvidia[0-9]* >/dev/null 2>&1 || nvidia-smi -L 2>/dev/null | grep -q GPU; then have_gpu=1; fi
if [ -z "$have_gpu" ] && [ -z "$only_build" ] && [ -z "$program" ]; then
    echo "tests/device_check.sh: this machine has no NVIDIA GPU (no /dev/nvidia*): nothing was checked"
    exit 77
fi

# build DIR: what can be built here. kvgrid takes long, so only where it is to be carried.
build()
{
    local dir=$1
    [ -n "$nvcc" ] || { echo "tests/device_check.sh: no nvcc here; build elsewhere with --build and bring it with --program" >&2; return 5; }
    cc=$(command -v gcc || command -v cc) || { echo "tests/device_check.sh: no C compiler" >&2; return 5; }
    gpu_flags=()
    if [ -n "$archs" ]; then
        for arch in ${archs//;/ }; do gpu_flags+=(-gencode "arch=compute_$arch,code=sm_$arch"); done
    elif [ -n "$have_gpu" ]; then
        gpu_flags=(-arch=native)
    else
        for arch in 80 89 90 100 120; do gpu_flags+=(-gencode "arch=compute_$arch,code=sm_$arch"); done
    fi
    build_check "$dir/kv_device_check" || return 5
    if nccl_found; then build_nccl "$dir/kv_device_nccl" || return 5; fi
    [ -n "$only_build" ] || return 0
    build_kvgrid "$dir" || { echo "tests/device_check.sh: kvgrid is not carried: $(tail -n 1 "$dir/kvgrid.log")" >&2; rm -f "$dir/kvgrid"; }
}

work=$(mktemp -d) || exit 5
trap 'rm -rf "$work"' EXIT
if [ -z "$program" ]; then
    dir=${only_build:-$work}
    mkdir -p "$dir" && build "$dir" || exit 5
    echo "built in $SECONDS s"
    [ -z "$only_build" ] || { du -sh "$dir"; exit 0; }
else
    dir=$(readlink -f -- "$program")
fi
program=$dir/kv_device_check
[ -x "$program" ] || { echo "tests/device_check.sh: $program: no such program; make it with --build" >&2; exit 2; }

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

if [ ! -x "$dir/kv_device_nccl" ]; then
    not_checked+=("NCCL: no header or library was found where this was built")
elif [ "$(left)" -lt 40 ]; then
    not_checked+=("NCCL: no time was left")
else
    echo "== a NCCL communicator of one rank"
    nccl_found
    LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$(dirname "${nccl_lib:-/none/}") timeout "$(left)" "$dir/kv_device_nccl" >"$work/log" 2>&1
    rc=$?
    cat "$work/log"
    case $rc in
        0) ;;
        127) not_checked+=("NCCL: its library is not on this machine") ;;
        *) exit $rc ;;
    esac
fi

if [ ! -x "$dir/kvgrid" ]; then
    not_checked+=("the published campaign with its certificate: kvgrid was not carried")
elif [ "$(left)" -lt 40 ]; then
    not_checked+=("the published campaign: no time was left")
else
    echo "== the published campaign, one rank, on the GPU and on the CPU"
    carried "$dir" keygen "$work/key" >/dev/null || exit 5
    for device in cuda cpu; do
        timeout "$(left)" bash -c ". '$root/tests/device/carry.sh'; carried '$dir' run '$dir/published.json' --device $device \
            -o '$work/$device.json' --key '$work/key' --progress none" || exit 1
        carried "$dir" verify "$work/$device.json" --trust "$work/key.pub" || exit 1
    done
    digest() { sed -n 's/.*"body_digest":"\([0-9a-f]*\)".*/\1/p' "$1"; }
    [ -n "$(digest "$work/cuda.json")" ] && [ "$(digest "$work/cuda.json")" = "$(digest "$work/cpu.json")" ] ||
        { echo "the bodies of GPU and CPU differ"; exit 1; }
fi
if [ ${#not_checked[@]} -gt 0 ]; then
    printf '\nnot checked:\n'
    printf '  %s\n' "${not_checked[@]}"
fi
echo "all that was checked is right ($SECONDS s)"
