#!/usr/bin/env bash
# Each header compiles alone as C17. The headers that a GPU shares (inline.txt) compile alone as
# C++17 too, and as CUDA C++ where nvcc is there.
. "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lint.sh"

work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
read -r -a flags <<<"$(pkg-config --cflags libsodium jansson cmocka 2>/dev/null) $(mpicc --showme:compile 2>/dev/null)"
flags+=(-D_POSIX_C_SOURCE=200809L -D_DEFAULT_SOURCE -I"$lint_root")
cuda=${CUDA_HOME:-/usr/local/cuda}
[ ! -d "$cuda/include" ] || flags+=(-isystem "$cuda/include")
gpu_ok=''
[ -n "${KV_LINT_NO_NVCC-}" ] || gpu_ok=$(command -v nvcc || command -v "$cuda/bin/nvcc")

# alone FILE WHAT COMMAND...: the command must compile a source that includes the header twice.
alone()
{
    local file=$1 what=$2 suffix=$3
    shift 3
    printf '#include "%s"\n#include "%s"\n' "$file" "$file" >"$work/alone.$suffix"
    "$@" "$work/alone.$suffix" >"$work/log" 2>&1 || fault "$file: does not compile alone as $what: $(grep -m 1 -i error "$work/log")"
}

needs_gpu_headers() { grep -qE '^[[:space:]]*#[[:space:]]*include[[:space:]]*<(cuda|nccl|cusolver|cublas)' -- "$lint_root/$1"; }

skipped=()
seen=0
while IFS= read -r file; do
    seen=$((seen + 1))
    if needs_gpu_headers "$file" && [ -z "$gpu_ok" ]; then skipped+=("$file (no CUDA)"); continue; fi
    # cmocka.h asks its user for four headers first, so test headers get them.
    pre=()
    case $file in tests/*) pre=(-include stdarg.h -include stddef.h -include setjmp.h -include stdint.h) ;; esac
    alone "$file" C17 c gcc -std=c17 -Wall -Wextra -Wshadow -Werror -Wno-unused-function -fsyntax-only "${pre[@]}" "${flags[@]}"
done < <(lint_files '*.h')
[ "$seen" -gt 0 ] || fault "no header was found below $lint_root"

cxx=$(command -v g++ || command -v clang++)
while IFS= read -r file; do
    [ -e "$lint_root/$file" ] || { fault "$file: named in tests/lint/inline.txt, but does not exist"; continue; }
    if [ -n "$cxx" ]; then
        alone "$file" C++17 cc "$cxx" -std=c++17 -Wall -Wextra -Wpedantic -Werror -Wno-unused-function -fsyntax-only "${flags[@]}"
    else
        skipped+=("$file as C++17 (no C++ compiler)")
    fi
    if [ -n "$gpu_ok" ]; then
        alone "$file" "CUDA C++" cu "$gpu_ok" -std=c++17 -c -o "$work/alone.o" -I"$lint_root" -Wno-deprecated-gpu-targets
    else
        skipped+=("$file as CUDA C++ (no nvcc)")
    fi
done < <(grep -v -e '^#' -e '^$' "$lint_here/inline.txt")
[ ${#skipped[@]} -eq 0 ] || printf 'not looked at: %s\n' "${skipped[@]}"
lint_end
