#!/usr/bin/env bash
# The arrows between the folders, and the libraries that only some folders may use (arrows.txt).
. "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lint.sh"

declare -A may_folder may_lib
while IFS=':|' read -r folder folders libs; do
    folder=${folder//[[:space:]]/}
    may_folder[$folder]=" $(echo $folders) "
    may_lib[$folder]=" c $(echo $libs) "
done < <(grep -v -e '^#' -e '^$' "$lint_here/arrows.txt")

foreign_lib=() foreign_glob=()
while read -r lib glob; do
    foreign_lib+=("$lib")
    foreign_glob+=("$glob")
done < <(grep -v -e '^#' -e '^$' "$lint_here/foreign.txt")

# The longest declared folder that holds the file.
owner_of()
{
    local dir=${1%/*}
    while [ -z "${may_folder[$dir]+x}" ]; do
        case $dir in */*) dir=${dir%/*} ;; *) return 1 ;; esac
    done
    printf '%s' "$dir"
}

library_of()
{
    local i
    for i in "${!foreign_glob[@]}"; do
        # shellcheck disable=SC2053 # the right side is a pattern
        if [[ $1 == ${foreign_glob[i]} ]]; then
            printf '%s' "${foreign_lib[i]}"
            return
        fi
    done
    return 1
}

check_quoted()
{
    local where=$1 owner=$2 header=$3 to
    [ "$header" != kv_source.h ] || [[ $owner != grid* ]] || return 0 # made by the build
    case $header in
        *.c | *.cu) fault "$where: a source is included: $header"; return ;;
        */*) ;;
        *) fault "$where: \"$header\" is not named from the root of the tree"; return ;;
    esac
    to=$(owner_of "$header") || to=${header%%/*}
    [[ ${may_folder[$owner]} == *" $to "* || ${may_folder[$owner]} == *" ${header%%/*} "* ]] || fault "$where: $owner must not include $to: \"$header\""
    [ -e "$lint_root/$header" ] || fault "$where: \"$header\" does not exist"
}

check_angle()
{
    local where=$1 owner=$2 header=$3 lib
    lib=$(library_of "$header") || { fault "$where: <$header> is no known header (tests/lint/foreign.txt)"; return; }
    [[ ${may_lib[$owner]} == *" $lib "* ]] || fault "$where: $owner must not include <$header> ($lib)"
}

seen=0
while IFS= read -r file; do
    owner=$(owner_of "$file") || { fault "$file: no line in arrows.txt holds this folder"; continue; }
    seen=$((seen + 1))
    while IFS=: read -r line text; do
        case $text in
            *'"'*) header=${text#*\"}; check_quoted "$file:$line" "$owner" "${header%%\"*}" ;;
            *'<'*) header=${text#*<}; check_angle "$file:$line" "$owner" "${header%%>*}" ;;
            *) fault "$file:$line: an include that cannot be followed: $text" ;;
        esac
    done < <(grep -nE '^[[:space:]]*#[[:space:]]*include' -- "$lint_root/$file")
done < <(lint_files '*.c' '*.h' '*.cu' '*.cuh')
[ "$seen" -gt 0 ] || fault "no source was found below $lint_root"
lint_end
