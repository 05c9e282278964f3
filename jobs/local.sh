#!/usr/bin/env bash
# The published campaign on this machine, from nothing to a verified certificate:
# installs what is missing, builds, makes a key if there is none, runs, verifies, shows the matrix.
set -u -o pipefail

usage()
{
    cat <<'TEXT'
usage: jobs/local.sh [--ranks N] [--campaign FILE] [--out CERT] [--no-install]

Builds kvgrid (build/release), runs the published campaign with mpirun on all cores (one rank
per GPU where nvidia-smi lists GPUs), verifies the certificate and shows the matrix of grades.

  --ranks N        number of MPI ranks (default: GPUs, else cores)
  --campaign FILE  another campaign (default: jobs/campaigns/published.json)
  --out CERT       where the certificate goes (default: build/NAME.cert.json, NAME = the campaign's file name)
  --no-install     never install a package, only say what is missing

Environment: KVGRID_KEY names the secret key (default: kvgrid/key.sec in $XDG_CONFIG_HOME, else
in ~/.config; made if it does not exist). CMAKE_PREFIX_PATH and PKG_CONFIG_PATH name libraries in
folders of your own. Exit codes are those of kvgrid (README.md); 5 also when something is missing
or does not build.
TEXT
}

say() { printf '%s\n' "$*"; }
die()
{
    local rc=$1
    shift
    printf 'jobs/local.sh: %s\n' "$*" >&2
    exit "$rc"
}

self=$(readlink -f -- "${BASH_SOURCE[0]}") || exit 5
root=$(dirname -- "$(dirname -- "$self")")
ranks='' campaign=$root/jobs/campaigns/published.json cert=''
while [ $# -gt 0 ]; do
    case $1 in
        --help | -h) usage; exit 0 ;;
        --no-install) export KV_NO_INSTALL=1 ;;
        --ranks | --campaign | --out)
            [ $# -ge 2 ] || die 2 "$1 needs a value; see --help"
            case $1 in --ranks) ranks=$2 ;; --campaign) campaign=$2 ;; --out) cert=$2 ;; esac
            shift ;;
        *) die 2 "unknown argument '$1'; see --help" ;;
    esac
    shift
done
case $ranks in
    '') ;;
    0* | *[!0-9]*) die 2 "--ranks $ranks: a number from 1 is needed" ;;
esac
[ -r "$campaign" ] || die 1 "$campaign: cannot be read"

# The key first: without a place for it nothing below makes sense.
if [ -n "${KVGRID_KEY-}" ]; then
    key=$KVGRID_KEY
elif [ -n "${XDG_CONFIG_HOME-}" ]; then
    key=$XDG_CONFIG_HOME/kvgrid/key.sec
elif [ -n "${HOME-}" ]; then
    key=$HOME/.config/kvgrid/key.sec
else
    die 2 "no place for the signing key: set HOME or XDG_CONFIG_HOME, or name a key file with KVGRID_KEY"
fi
case $(readlink -m -- "$key") in
    "$root"/*) die 2 "$key: a secret key does not belong in the source tree; name another place with KVGRID_KEY" ;;
esac

. "$root/jobs/deps.sh"
kv_deps_ensure build || exit 5
kv_mpi_env

build=$root/build/release
log=$root/build/local.log
mkdir -p -- "$build" || die 5 "$build: cannot be made"
say "building in $build"
gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU ')
cuda=AUTO
[ "$gpus" -gt 0 ] || cuda=OFF # kernels that nothing here could run would take most of the time
if ! { cmake -S "$root" -B "$build" -DCMAKE_BUILD_TYPE=Release -DKV_WITH_TESTS=OFF -DKV_WITH_CUDA=$cuda &&
    cmake --build "$build" --parallel "$(nproc)"; } >"$log" 2>&1 </dev/null; then
    tail -n 30 -- "$log" >&2
    die 5 "the build failed; all of its output is in $log"
fi
kvgrid=$build/kvgrid

if [ ! -e "$key" ]; then
    say "making a signing key: $key"
    (umask 077 && mkdir -p -- "$(dirname -- "$key")") || die 5 "$(dirname -- "$key"): cannot be made"
    "$kvgrid" keygen "$key" || exit $?
fi
[ -r "$key.pub" ] || die 1 "$key.pub: cannot be read; it is the public half of $key, made beside it by kvgrid keygen"

if [ -z "$ranks" ]; then
    ranks=$gpus
    [ "$ranks" -gt 0 ] || ranks=$(nproc)
fi
[ -n "$cert" ] || cert=$root/build/$(basename -- "$campaign" .json).cert.json
say "running $campaign with $ranks ranks"
rc=0
"${KV_MPIRUN[@]}" -n "$ranks" "$kvgrid" run "$campaign" -o "$cert" --key "$key" </dev/null || rc=$?
case $rc in 0 | 4) ;; *) exit $rc ;; esac # 4: there is a certificate, and it holds rows that are no pass
say ""
"$kvgrid" verify "$cert" --trust "$key.pub"
verify_rc=$?
[ $rc -ne 0 ] || rc=$verify_rc
say ""
"$kvgrid" show "$cert" || exit $?
say ""
say "certificate: $cert"
say "public key:  $key.pub"
exit $rc
