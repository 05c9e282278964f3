#!/usr/bin/env bash
# As on a login node: a user without root, libsodium and jansson in a folder of their own, no cmocka, no
# CUDA, a source folder with a space in its name. jobs/local.sh must build, run and verify there, and an
# installed copy must work without the sources. Exit 0, 1, or 77 with the reason on the last line.
set -u -o pipefail
root=$(readlink -f -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/../..")
work=$(mktemp -d "${TMPDIR:-/tmp}/kvgrid user.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
fail()
{
    echo "$*"
    exit 1
}

# The prefix: the two libraries with their headers, and .pc files that point here.
prefix=$work/prefix
mkdir -p "$prefix/lib/pkgconfig" "$prefix/include"
for pc in libsodium jansson; do
    pkg-config --exists $pc || { echo "no $pc to copy into a prefix"; exit 77; }
    libdir=$(pkg-config --variable=libdir $pc)
    includedir=$(pkg-config --variable=includedir $pc)
    cp -a "$libdir/lib${pc#lib}".so* "$prefix/lib/" || fail "$pc: libraries"
    cp -a "$includedir"/{sodium,sodium.h,jansson.h,jansson_config.h} "$prefix/include/" 2>/dev/null
    config=$(find "$libdir" /usr/include -name jansson_config.h 2>/dev/null | head -n 1)
    [ -z "$config" ] || cp "$config" "$prefix/include/"
    # A blank in a .pc file's prefix must be written with a backslash.
    sed -e "s|^prefix=.*|prefix=${prefix// /\\\\ }|" -e 's|^libdir=.*|libdir=${prefix}/lib|' -e 's|^includedir=.*|includedir=${prefix}/include|' \
        "$(pkg-config --variable=pcfiledir $pc)/$pc.pc" >"$prefix/lib/pkgconfig/$pc.pc"
done

# The sources, as they are now (not only what is committed), and a user who owns nothing else.
src="$work/my sources"
mkdir -p "$src" "$work/home" "$work/elsewhere" "$work/no pc files"
(cd "$root" && tar -cf - --exclude=./build --exclude=./.git .) | tar -xf - -C "$src" || fail "copying the sources"
as_user=(env)
if [ "$(id -u)" -eq 0 ]; then
    id nobody >/dev/null 2>&1 || { echo "no user nobody to be"; exit 77; }
    command -v setpriv >/dev/null 2>&1 || { echo "no setpriv to become another user with"; exit 77; }
    chown -R nobody "$work"
    as_user=(setpriv "--reuid=$(id -u nobody)" "--regid=$(id -g nobody)" --clear-groups env)
fi
without=(-u CMAKE_PREFIX_PATH -u PKG_CONFIG_PATH -u HOME -u XDG_CONFIG_HOME -u KVGRID_KEY -u KVGRID_TRUST -u KVGRID_LAYOUTS -u OMPI_ALLOW_RUN_AS_ROOT -u OMPI_ALLOW_RUN_AS_ROOT_CONFIRM)
as_user+=("${without[@]}" "PKG_CONFIG_LIBDIR=$work/no pc files" KV_NO_INSTALL=1)
with_prefix=("HOME=$work/home" "CMAKE_PREFIX_PATH=$prefix" "PKG_CONFIG_PATH=$prefix/lib/pkgconfig")
user() { (cd "$work/elsewhere" && "${as_user[@]}" "${with_prefix[@]}" "$@" </dev/null); }

# Without the prefix it must say what is missing, and touch nothing.
missing=$(cd "$work/elsewhere" && "${as_user[@]}" "HOME=$work/home" bash "$src/jobs/local.sh" 2>&1 </dev/null)
[ $? -eq 5 ] || fail "libraries missing: not exit 5: $missing"
for word in libsodium-dev libjansson-dev CMAKE_PREFIX_PATH PKG_CONFIG_PATH 'apt-get install'; do
    [[ $missing == *"$word"* ]] || fail "libraries missing, and nobody says $word: $missing"
done
no_home=$(cd "$work/elsewhere" && "${as_user[@]}" bash "$src/jobs/local.sh" 2>&1 </dev/null)
[ $? -eq 2 ] && [[ $no_home == *"set HOME"* ]] && [ "$(printf '%s\n' "$no_home" | wc -l)" -eq 1 ] || fail "HOME unset: $no_home"
[ ! -e "$src/build" ] || fail "something was built before everything needed was there"

touch "$work/before"
user bash "$src/jobs/local.sh" --no-install --ranks 2 >"$work/out" 2>"$work/err"
rc=$?
[ $rc -eq 0 ] || { tail -n 20 "$work/out" "$work/err"; fail "jobs/local.sh ended with $rc"; }
grep -q '64 rows: 21 EXACT_BYTE, 35 EXACT_TOKEN, 2 NOT_EXACT, 6 REFUSED' "$work/out" || fail "no counts in the output: $(cat "$work/out")"
grep -q "certificate: $src/build/published.cert.json" "$work/out" || fail "it does not say where the certificate is"
! grep -q $'\033' "$work/out" "$work/err" || fail "colour codes, though this is no terminal"
[ "$(stat -c %a "$work/home/.config/kvgrid/key.sec")" = 600 ] || fail "the key is not private"
[ -z "$(ls -A "$work/elsewhere")" ] || fail "the current folder was written to: $(ls -A "$work/elsewhere")"
new=$(find "$src" -newer "$work/before" -type f -not -path "$src/build/*")
[ -z "$new" ] || fail "the source tree was written to outside build: $new"
for lib in sodium jansson; do
    ldd "$src/build/release/kvgrid" | grep -q "$prefix/lib/lib$lib" || fail "lib$lib was not taken from the prefix"
done
grep -q 'no unit tests in this build\|KV_WITH_TESTS' "$src/build/release/CMakeCache.txt" "$src/build/local.log" || fail "unit tests were built"

# Again with the same key: it is used, not made anew.
before=$(cat "$work/home/.config/kvgrid/key.sec.pub")
user bash "$src/jobs/local.sh" --no-install --ranks 1 >"$work/out" 2>"$work/err" || fail "the second run failed: $(tail -n 3 "$work/err")"
[ "$before" = "$(cat "$work/home/.config/kvgrid/key.sec.pub")" ] || fail "the key changed"

# Configuring by hand, tests left to chance: no cmocka is no error.
user cmake -S "$src" -B "$work/elsewhere/by hand" -DKV_WITH_CUDA=OFF >"$work/out" 2>&1 || fail "cmake by hand: $(tail -n 5 "$work/out")"
grep -q 'cmocka not found' "$work/out" || fail "cmake does not say that there are no unit tests"

# Installed, and the sources gone.
user cmake --install "$src/build/release" --prefix "$work/installed" >"$work/out" 2>&1 || fail "install: $(tail -n 3 "$work/out")"
mv "$src" "$work/gone"
user "$work/installed/bin/kvgrid" explain sglang vllm-fa --geometry L=1,T=40,H=2,D=8,e=f16 >"$work/out" 2>"$work/err" ||
    fail "installed: $(cat "$work/err")"
grep -q EXACT_BYTE "$work/out" || fail "the installed copy answers: $(cat "$work/out")"
[ -e "$work/installed/share/kvgrid/jobs/campaigns/published.json" ] || fail "the published campaign was not installed"
user "$work/installed/bin/kvgrid" plan "$work/installed/share/kvgrid/jobs/campaigns/published.json" >"$work/out" 2>"$work/err" ||
    fail "the installed campaign cannot be planned: $(cat "$work/err")"
exit 0
