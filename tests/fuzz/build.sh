#!/usr/bin/env bash
# Builds every fuzzer of this folder with clang's libFuzzer, address and undefined-behaviour sanitizers.
#
#   tests/fuzz/build.sh OUT [RUNS [NAME...]]
#
# OUT/fuzz_NAME are the programs. With RUNS each (or each NAME) is then run that many times over
# its seed corpus tests/fuzz/corpus/NAME; what it finds stays in OUT/NAME. Exit 77: no clang.
set -eu -o pipefail
[ $# -ge 1 ] || { sed -n '2,/^set/{/^set/!s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" >&2; exit 2; }
root=$(readlink -f -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/../..")
mkdir -p -- "$1"
out=$(readlink -f -- "$1") runs=${2-}
shift $(($# < 2 ? $# : 2))
command -v "${CLANG:-clang}" >/dev/null || { echo 'clang is not there' >&2; exit 77; }
cd -- "$root"
read -r -a libraries <<<"$(pkg-config --cflags --libs libsodium jansson)"
flags=(-std=c17 -g -O2 -D_POSIX_C_SOURCE=200809L -D_DEFAULT_SOURCE -ffp-contract=off -I. "-I$out" "-fsanitize=fuzzer-no-link,address,undefined"
       -fno-sanitize-recover=all "-DKV_FUZZ_BASE=\"$root/tests/fuzz/corpus/certificate/small.json\"")

objects=()
printf '#define KV_SOURCE_COMMIT ""\n#define KV_SOURCE_DIRTY 1\n#define KV_SOURCE_FLAGS "fuzz"\n#define KV_SOURCE_VERSION "0"\n' >"$out/kv_source.h"
# The campaign reader is part of grid/: its own files, and the built-in campaign that they embed.
for part in layouts campaign models; do
    files=$(printf "%s;" layouts/published/*.json)
    [ $part != campaign ] || files=$root/jobs/campaigns/published.json
    [ $part != models ] || files=$root/layouts/models.json
    cmake "-DOUT=$out/kv_builtin_$part.c" "-DNAME=kv_builtin_$part" "-DFILES=${files%;}" -P base/kv_embed.cmake
done
grid=() # all of it that needs no MPI
for source in grid/*.c grid/*/*.c; do
    case $source in
        *_main.c | */kv_cmd_* | grid/kv_commands.c | grid/kv_program.c | grid/run/kv_session_* | grid/run/kv_machine.c | grid/run/kv_plan.c | \
            grid/run/kv_progress.c | grid/cli/kv_ask.c | grid/cli/kv_opts.c | grid/cell/kv_fault_on.c | grid/sim/*) ;;
        *) grid+=("$source") ;;
    esac
done
flags+=("-DKV_SOURCE_LAYOUTS=\"$root/layouts/published\"")
codec=() # LAPACKE is loaded at run time and has nothing to do with hostile bytes
for source in kernels/codec/*.c; do
    [ "$source" = kernels/codec/kv_codec_lapack.c ] || codec+=("$source")
done
for source in base/*.c certs/*.c layouts/*.c kernels/*.c "${codec[@]}" "${grid[@]}" "$out"/kv_builtin_*.c; do
    object=$out/$(basename -- "$source" .c).o
    objects+=("$object")
    level=()
    case $source in *_simd_*) level=(-O1) ;; esac # unrolled by hand: minutes at -O2 under sanitizers
    "${CLANG:-clang}" "${flags[@]}" "${level[@]}" -c "$source" -o "$object" &
    [ "$(jobs -pr | wc -l)" -lt "$(nproc)" ] || wait -n
done
wait
rm -f "$out/all.a"
ar rcs "$out/all.a" "${objects[@]}" # so that a fuzzer takes what it calls and no more
for source in tests/fuzz/fuzz_*.c; do
    name=$(basename -- "$source" .c)
    "${CLANG:-clang}" "${flags[@]}" -fsanitize=fuzzer,address,undefined "$source" "$out/all.a" "${libraries[@]}" -lm -o "$out/$name"
done
[ -n "$runs" ] || exit 0

names=("$@")
[ ${#names[@]} -gt 0 ] || for source in tests/fuzz/fuzz_*.c; do
    name=$(basename -- "$source" .c)
    names+=("${name#fuzz_}")
done
for name in "${names[@]}"; do
    mkdir -p -- "$out/$name"
    "$out/fuzz_$name" -runs="$runs" -max_len="${KV_FUZZ_MAX_LEN:-8192}" -timeout=10 -rss_limit_mb=4096 -print_final_stats=1 \
        -artifact_prefix="$out/$name-" "$out/$name" "tests/fuzz/corpus/$name" >"$out/$name.log" 2>&1 ||
        { tail -40 -- "$out/$name.log" >&2; echo "fuzz_$name found something: $out/$name-*" >&2; exit 1; }
    echo "fuzz_$name: $(sed -n 's/^stat::number_of_executed_units: *//p' "$out/$name.log") executions, nothing found"
done
