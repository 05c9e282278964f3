# shellcheck shell=bash
# Sourced by the checks of this folder. Each is called as  check_NAME.sh [ROOT]  and exits 0 (clean),
# 1 (faults, one line each on stdout: FILE:LINE: what) or 77 (could not look; the last line says why).
set -u -o pipefail
lint_here=$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")
lint_root=$(readlink -f -- "${1:-$lint_here/../..}")
lint_faults=0
lint_folders=(base layouts kernels mpi tp certs grid tests)

fault()
{
    printf '%s\n' "$*"
    lint_faults=$((lint_faults + 1))
}

# Paths below the root, with the given name patterns, of the source folders that exist.
lint_files()
{
    local folder pattern
    (
        cd -- "$lint_root" || exit 1
        for folder in "${lint_folders[@]}"; do
            [ -d "$folder" ] || continue
            for pattern in "$@"; do find "$folder" -type f -name "$pattern"; done
        done | sort
    )
}

# The file with comments, strings and characters blanked, lines kept.
lint_code()
{
    perl -0777 -pe 's{(/\*.*?\*/|//[^\n]*)|("(?:\\.|[^"\\\n])*")|(\x27(?:\\.|[^\x27\\\n])*\x27)}
                     {my $t = $&; defined $2 ? "\"\"" : do { $t =~ s/[^\n]//g; $t }}gsex' -- "$1"
}

lint_end()
{
    [ "$lint_faults" -eq 0 ] || exit 1
    exit 0
}
