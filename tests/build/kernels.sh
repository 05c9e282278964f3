#!/usr/bin/env bash
# Every kernel for every architecture that kvgrid is built for: no warning, and no spill in the kernels that are meant to
# be fast. Prints registers, stack and spills of each (docs/measurements.md).
#
#   tests/build/kernels.sh [ARCH...]
#
# Exit 0, 1 with what was wrong, 77 without nvcc.
set -u -o pipefail
root=$(readlink -f -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/../..")
nvcc=$(command -v nvcc || command -v /usr/local/cuda/bin/nvcc) || { echo "no nvcc"; exit 77; }
archs=("$@")
if [ ${#archs[@]} -eq 0 ]; then
    IFS=';' read -r -a archs < <(sed -n 's/^set(KV_CUDA_ARCHS "\([^"]*\)".*/\1/p' "$root/CMakeLists.txt")
fi
[ ${#archs[@]} -gt 0 ] || { echo "CMakeLists.txt names no architecture"; exit 1; }
fast='translate|probe|compare|diff_add|score|weigh|codec_decode|codec_encode'
allowed=8 # bytes: one 64-bit number, kept aside across a loop
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

# one ARCH SOURCE: compiles, and leaves a table in $work/ARCH.SOURCE
one()
{
    local log
    log=$work/log.$1.$(basename "$2")
    "$nvcc" -std=c++17 -O3 --fmad=false "-arch=sm_$1" -Xptxas -v -Werror=all-warnings -Xcompiler=-Wall,-Wextra,-Werror \
        -I"$root" -c "$2" -o "$log.o" >"$log" 2>&1 || { echo "sm_$1: $2 does not compile without a warning:"; head -n 20 "$log"; return 1; }
    awk -v arch="sm_$1" '
        /Compiling entry function/ { split($0, q, "\047"); name = q[2] }
        /bytes stack frame/ { match($0, /[0-9]+ bytes stack/); stack = substr($0, RSTART) + 0
                              match($0, /[0-9]+ bytes spill stores/); spill = substr($0, RSTART) + 0 }
        /Used [0-9]+ registers/ { match($0, /Used [0-9]+/); used = substr($0, RSTART + 5) + 0; shared = 0
                                  if (match($0, /[0-9]+ bytes smem/)) shared = substr($0, RSTART) + 0
                                  print arch, name, used, stack, spill, shared }' "$log" >>"$work/table.$1"
}

rc=0
for arch in "${archs[@]}"; do
    for source in "$root"/kernels/cuda/*.cu "$root"/kernels/codec/*.cu; do
        [ -e "$source" ] || continue
        one "$arch" "$source" || rc=1
    done
done
sort -k2 -k1 "$work"/table.* >"$work/all"
for name in ${fast//|/ }; do grep -q "[0-9]$name" "$work/all" || { echo "no kernel is called $name any more"; rc=1; }; done
printf '%-8s %-28s %9s %6s %6s %7s\n' arch kernel registers stack spills shared
while read -r arch name used stack spill shared; do
    length=$(printf '%s' "$name" | sed -E 's/^_Z([0-9]+).*/\1/') # a mangled name is _Z, its length, itself
    short=${name#"_Z$length"}
    rest=${short:length}
    short=${short:0:length}
    if [[ $rest =~ ^ILi([0-9]+)E ]]; then short="$short<${BASH_REMATCH[1]}>"; fi
    [ "$rest" != "$name" ] && [ -n "$short" ] || { echo "no kernel's name: $name"; rc=1; }
    printf '%-8s %-28s %9s %6s %6s %7s\n' "$arch" "$short" "$used" "$stack" "$spill" "$shared"
    if [[ $short =~ ^($fast) ]] && [ "$spill" -gt $allowed ]; then echo "$short spills $spill bytes on $arch"; rc=1; fi
done <"$work/all"
[ -s "$work/all" ] || { echo "no kernel was compiled"; rc=1; }
[ $rc -eq 0 ] && echo "${#archs[@]} architectures, $(wc -l <"$work/all") kernels, no warning, no spill over $allowed bytes where speed counts"
exit $rc
