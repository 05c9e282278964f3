#!/usr/bin/env bash
# Sources look as .clang-format says. Only with the version the style was fixed with: others differ.
. "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lint.sh"

want=14
tool=''
for name in "clang-format-$want" clang-format; do
    if [[ $("$name" --version 2>/dev/null) == *"version $want."* ]]; then tool=$name; break; fi
done
[ -n "$tool" ] || { echo "clang-format $want is not there"; exit 77; }
cd -- "$lint_root" || exit 1
while IFS= read -r file; do
    "$tool" --style=file:"$lint_here/../../.clang-format" -- "$file" | cmp -s -- - "$file" ||
        fault "$file: not formatted; run: $tool -i $file"
done < <(lint_files '*.c' '*.h' '*.cu' '*.cuh')
lint_end
