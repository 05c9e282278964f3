#!/usr/bin/env bash
# The sweep of the record: 200 geometries x all 132 ordered pairs of the published layouts (26,400 cells) with 1, 2 and 4 ranks and
# with 64 that share the cores, then killed with SIGKILL at random moments and resumed. All body digests must be one, and the
# certificate must verify. Prints times, cells a second and rank, and the parallel efficiency. Not run by CI: it wants an idle machine.
#
#   tests/sweep_record.sh [--bin KVGRID] [--geometries N] [--kills N] [--ranks "1 2 4 64"] [--seed N] [--keep DIR]
#
# --geometries 6 is a trial of seconds. --seed makes the random moments again (as shares of the rows that are written).
# Exit 0: all digests equal and verified. 1: otherwise. 2: usage. 5: something needed is missing.
set -u -o pipefail
root=$(readlink -f -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/..")
. "$root/jobs/deps.sh"
bin=$root/build/release/kvgrid geometries=200 kills=5 ranks='1 2 4 64' seed=$RANDOM keep=''
while [ $# -gt 0 ]; do
    case $1 in
        --bin | --geometries | --kills | --ranks | --seed | --keep)
            [ $# -ge 2 ] || { echo "tests/sweep_record.sh: $1 needs a value" >&2; exit 2; }
            case $1 in
                --bin) bin=$2 ;;
                --geometries) geometries=$2 ;;
                --kills) kills=$2 ;;
                --ranks) ranks=$2 ;;
                --seed) seed=$2 ;;
                --keep) keep=$2 ;;
            esac
            shift ;;
        --help | -h) sed -n '2,/^set/{/^set/!s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit 0 ;;
        *) echo "tests/sweep_record.sh: unknown argument '$1'; see --help" >&2; exit 2 ;;
    esac
    shift
done
[ -x "$bin" ] || { echo "tests/sweep_record.sh: $bin: no such program; build it, or name one with --bin" >&2; exit 5; }
python=$(kv_deps_python) || { echo "tests/sweep_record.sh: no python3" >&2; exit 5; }
kv_mpi_env
RANDOM=$seed
if [ -n "$keep" ]; then
    mkdir -p "$keep" && work=$(readlink -f -- "$keep") || exit 5
else
    work=$(mktemp -d "${TMPDIR:-/tmp}/kvgrid-sweep.XXXXXX") || exit 5
    trap 'rm -rf "$work"' EXIT
fi
bad=0
wrong()
{
    echo "WRONG: $*"
    bad=1
}
now() { printf '%s' "${EPOCHREALTIME/[.,]/}"; } # microseconds

# campaign FILE NAME N PAIRS: N geometries, all different, small ones and larger ones mixed.
campaign()
{
    awk -v name="$2" -v n="$3" -v pairs="$4" -v layouts="$root/layouts/published" 'BEGIN {
        split("1 2 4 8", heads, " "); split("16 32 64 8 128", dims, " "); split("f16 bf16 f32", elements, " ")
        printf "{\"schema\":\"kvgrid.campaign/v1\",\"name\":\"%s\",\"layouts\":[\"%s\"],\"pairs\":%s,\"geometries\":[\n", name, layouts, pairs
        for (i = 0; i < n; i++)
            printf "%s{\"layers\":%d,\"tokens\":%d,\"kv_heads\":%d,\"head_dim\":%d,\"element\":\"%s\"}\n", (i > 0 ? "," : ""),
                1 + i % 2, 1 + i, heads[1 + i % 4], dims[1 + i % 5], elements[1 + i % 3]
        print "]}" }' >"$1"
}

# value CERT KEY: a top-level text of a certificate.
value() { "$python" -c 'import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$1" "$2"; }

launch() # RANKS CAMPAIGN OUT [OPTIONS]...
{
    local n=$1 file=$2 out=$3
    shift 3
    # exec: the pid that is killed is that of mpirun
    exec "${KV_MPIRUN[@]}" -n "$n" "$bin" run "$file" -o "$out" --key "$work/key" --progress none "$@" >"$out.said" 2>&1 </dev/null
}

# check NAME OUT: its digest is that of all others.
digest=
check()
{
    local d
    d=$(value "$2" body_digest) || { wrong "$1: no certificate: $(tail -n 1 "$2.said")"; return; }
    digest=${digest:-$d}
    [ "$d" = "$digest" ] || wrong "$1: body digest $d, $digest before"
}

# timed RANKS FILE OUT: runs to the end; microseconds in $took.
timed()
{
    local begin
    begin=$(now)
    (launch "$@") || wrong "$1 ranks: exit code $? ($(tail -n 1 "$3.said"))"
    took=$(($(now) - begin))
}

"$bin" keygen "$work/key" >/dev/null || exit 5
campaign "$work/sweep.json" sweep "$geometries" '"all-ordered"'
campaign "$work/empty.json" empty 1 '[["sglang","vllm-fa"]]'
cells=$((geometries * 132))
date -u +%FT%TZ
"$bin" --version
grep -m 1 'model name' /proc/cpuinfo
echo "$(nproc) cores, load $(cut -d ' ' -f 1-3 /proc/loadavg), seed $seed"
"$bin" plan "$work/sweep.json" --ranks 2 || exit 1

printf '\n%6s %10s %10s %12s %14s\n' ranks 'wall s' 'start s' 'cells/s' 'cells/s/rank'
declare -A net
for n in $ranks; do
    timed "$n" "$work/empty.json" "$work/empty.$n.json"
    start=$took
    timed "$n" "$work/sweep.json" "$work/sweep.$n.json"
    check "$n ranks" "$work/sweep.$n.json"
    net[$n]=$((took > start ? took - start : 1))
    awk -v n="$n" -v wall="$took" -v start="$start" -v net="${net[$n]}" -v cells="$cells" 'BEGIN {
        printf "%6d %10.2f %10.2f %12.0f %14.0f\n", n, wall / 1e6, start / 1e6, cells * 1e6 / net, cells * 1e6 / net / n }'
done
echo "start: a campaign of one cell with the same ranks, controls included; rates are of what is beyond it"
printf '\nparallel efficiency against 1 rank (%s cores)\n%6s %10s %10s %12s\n' "$(nproc)" ranks 'net s' speed-up efficiency
for n in $ranks; do
    [ -n "${net[1]-}" ] || break
    awk -v n="$n" -v one="${net[1]}" -v net="${net[$n]}" 'BEGIN {
        printf "%6d %10.2f %10.2f %12.3f\n", n, net / 1e6, one / net, one / net / n }'
done

# ---- killed and resumed -----------------------------------------------------------------

# rows_written: rows in the journal; its first line is its head.
rows_written()
{
    local n
    n=$( { wc -l <"$work/state/journal"; } 2>/dev/null) || n=1
    echo $((n > 0 ? n - 1 : 0))
}

# kill_at ROWS: starts the run and kills it once so many rows are written: all its processes, or one rank only. False where it
# had ended before (a small sweep on a busy machine).
kill_at()
{
    local target=$1 pid children how=all victim
    launch 2 "$work/sweep.json" "$work/killed.json" --state "$work/state" &
    pid=$!
    while kill -0 "$pid" 2>/dev/null && [ "$(rows_written)" -lt "$target" ]; do sleep 0.02; done
    mapfile -t children < <(pgrep -P "$pid")
    if [ ${#children[@]} -eq 0 ]; then
        wait "$pid"
        echo "the run had ended (exit $?) before it could be killed: once more from nothing"
        rm -rf "$work/state"
        return 1
    fi
    if [ $((RANDOM % 2)) -eq 0 ]; then
        victim=${children[RANDOM % ${#children[@]}]}
        how="one rank"
        kill -KILL "$victim" 2>/dev/null
    else
        kill -KILL "$pid" "${children[@]}" 2>/dev/null
    fi
    wait "$pid" 2>/dev/null
    printf 'killed (%s, exit %s) with %s of %s rows written\n' "$how" "$?" "$(rows_written)" "$cells"
    for victim in "${children[@]}"; do
        for _ in $(seq 500); do kill -0 "$victim" 2>/dev/null || break; sleep 0.02; done
    done
}

echo
# Refused cells come last and are written within moments, so the moments lie among those that move bytes.
refused=$("$bin" plan "$work/sweep.json" --format json | "$python" -c 'import json, sys; print(json.load(sys.stdin)["refused"])') || exit 1
span=$(((cells - refused) * 9 / 10))
mapfile -t moments < <(for ((i = 0; i < kills; i++)); do echo $((1 + RANDOM * span / 32768)); done | sort -n)
last=0
for target in "${moments[@]}"; do
    [ "$target" -gt "$last" ] || target=$((last + 1))
    for try in 1 2 3; do
        kill_at "$target" && break
        last=0 target=$((1 + span / 8))
        [ "$try" -lt 3 ] || wrong "it could not be killed; more geometries make it last longer"
    done
    written=$(rows_written)
    [ "$written" -ge "$last" ] || wrong "$written rows are left of $last"
    last=$written
done
timed 2 "$work/sweep.json" "$work/killed.json" --state "$work/state"
check "killed $kills times and resumed" "$work/killed.json"

# ---- verified ---------------------------------------------------------------------------

begin=$(now)
"$bin" verify "$work/killed.json" --trust "$work/key.pub" | tail -n 2 || wrong "verify refuses it"
echo "verify: $((($(now) - begin) / 1000)) ms"
begin=$(now)
"$python" "$root/certs/verify.py" "$work/killed.json" --trust "$work/key.pub" | tail -n 1 || wrong "verify.py refuses it"
echo "verify.py: $((($(now) - begin) / 1000)) ms"
echo "body digest $digest"
if [ $bad -eq 0 ]; then
    echo "all digests equal, verified"
else
    echo "something is wrong, see above"
fi
exit $bad
