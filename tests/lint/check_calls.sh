#!/usr/bin/env bash
# Calls that are not made here (banned.txt), and flags that would change what floating point means.
. "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lint.sh"

names=() allowed=()
while read -r name where; do
    names+=("$name")
    allowed+=("$where")
done < <(grep -v -e '^#' -e '^$' "$lint_here/banned.txt")
any=$(IFS='|'; printf '%s' "${names[*]}")

may_call()
{
    local i glob
    for i in "${!names[@]}"; do
        [ "${names[i]}" = "$1" ] || continue
        set -f
        # shellcheck disable=SC2053,SC2086 # a list of patterns
        for glob in ${allowed[i]}; do [[ $2 != $glob ]] || { set +f; return 0; }; done
        set +f
        return 1
    done
}

seen=0
while IFS= read -r file; do
    seen=$((seen + 1))
    while IFS=: read -r line text; do
        while IFS= read -r call; do
            may_call "$call" "$file" || fault "$file:$line: $call is not called here"
        done < <(printf '%s\n' "$text" | grep -oE "(^|[^A-Za-z0-9_.>])($any)[[:space:]]*\(" | grep -oE '[A-Za-z_][A-Za-z0-9_]*')
    done < <(lint_code "$lint_root/$file" | grep -nE "(^|[^A-Za-z0-9_.>])($any)[[:space:]]*\(")
done < <(lint_files '*.c' '*.h' '*.cu' '*.cuh')
[ "$seen" -gt 0 ] || fault "no source was found below $lint_root"

while IFS= read -r found; do
    case $found in tests/lint/*) ;; *) fault "$found: floating point must mean the same everywhere" ;; esac
done < <(cd -- "$lint_root" && grep -rnE --include='CMake*' --include='*.cmake' --include='*.json' --include='*.sh' --include='*.c' \
    --include='*.h' --include='*.cu' -e '(^|[^o])-(ffast-math|Ofast|funsafe-math-optimizations|ffinite-math-only)' \
    -e 'use_fast_math' -e 'optimize *\( *"(Ofast|fast-math)' --exclude-dir=build --exclude-dir=.git . | sed 's,^\./,,')
lint_end
