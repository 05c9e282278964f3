#!/usr/bin/env bash
# Runs one case (FILE/NAME) for run.sh: prints its line, writes its result to $KV_WORK/result.
here=$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")
name=$1
export KV_CASE="$KV_WORK/${name//\//.}"
mkdir -p "$KV_CASE/dir"
# Open MPI puts a folder of the user's into TMPDIR (its name must be short); two runs that share it and have no
# mpirun can trip over each other's clean-up, so each case has its own.
TMPDIR=$(mktemp -d /tmp/kvt.XXXXXX) || exit 1
export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT
limit=${KV_CASE_LIMIT:-${KV_FULL:+7200}}
limit=${limit:-900} # seconds: against hangs, not for speed
started=${EPOCHREALTIME/[.,]/}
timeout --kill-after=10 "$limit" bash -c '
    set -u -o pipefail
    . "$1/lib.sh"
    . "$1/cases/$2.sh"
    cd "$KV_CASE/dir" || exit 1
    "case_$3"
    exit 0' one "$here" "${name%%/*}" "${name#*/}" >"$KV_CASE/log" 2>&1 </dev/null
rc=$?
ms=$(((${EPOCHREALTIME/[.,]/} - started) / 1000))
why=$(tail -n 1 "$KV_CASE/log" | tr '\t' ' ')
case $rc in
    0) what=passed why= ;;
    77) what=skipped ;;
    124 | 137) what=FAILED why="ran past $limit s" ;;
    *) what=FAILED ;;
esac
printf '%s\t%s\t%s\n' "$what" "$ms" "$why" >"$KV_WORK/result/${name//\//.}"
printf '%-7s cli/%s (%d ms)%s\n' "$what" "$name" "$ms" "${why:+: ${why:0:300}}"
if [ "$what" = FAILED ]; then cut -c 1-300 "$KV_CASE/log" | sed 's/^/        | /' | tail -n 60; fi
exit 0
