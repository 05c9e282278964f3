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
flags=(-std=c17 -g -O2 -D_POSIX_C_SOURCE=200809L -D_DEFAULT_SOURCE -I. "-fsanitize=fuzzer-no-link,address,undefined"
       -fno-sanitize-recover=all "-DKV_FUZZ_BASE=\"$root/tests/fuzz/corpus/certificate/small.json\"")

objects=()
for source in base/*.c certs/*.c layouts/*.c; do
    object=$out/$(basename -- "$source" .c).o
    objects+=("$object")
    "${CLANG:-clang}" "${flags[@]}" -c "$source" -o "$object" &
    [ "$(jobs -pr | wc -l)" -lt "$(nproc)" ] || wait -n
done
wait
for source in tests/fuzz/fuzz_*.c; do
    name=$(basename -- "$source" .c)
    "${CLANG:-clang}" "${flags[@]}" -fsanitize=fuzzer,address,undefined "$source" "${objects[@]}" "${libraries[@]}" -o "$out/$name"
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
