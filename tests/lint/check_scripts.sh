#!/usr/bin/env bash
# Shell scripts parse, and shellcheck (where there) has nothing to say.
. "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/lint.sh"

cd -- "$lint_root" || exit 1
mapfile -t scripts < <(find .ci jobs tests -type f \( -name '*.sh' -o -name '*.sbatch' -o -path '.ci/run' \) 2>/dev/null | sort)
[ ${#scripts[@]} -gt 0 ] || fault "no script was found below $lint_root"
for script in "${scripts[@]}"; do bash -n -- "$script" || fault "$script: does not parse"; done
[ "$lint_faults" -eq 0 ] || lint_end
if ! command -v shellcheck >/dev/null 2>&1; then
    echo "shellcheck is not there; the scripts were only parsed"
    exit 77
fi
shellcheck --external-sources --source-path=SCRIPTDIR --severity=warning -- "${scripts[@]}" || fault "shellcheck: see above"
lint_end
