# shellcheck shell=bash
# Sourced by jobs/local.sh and tests/run.sh: finds what a build or test needs, and installs what is
# missing with apt-get (Debian 12, Ubuntu 24.04) where that is allowed. What is there already, also in
# a folder named by CMAKE_PREFIX_PATH or PKG_CONFIG_PATH, is used as it is, and then no right to
# install anything is needed.
#
#   kv_deps_ensure build    compiler, cmake, pkg-config, MPI, libsodium, jansson; wanted: git, LAPACKE
#   kv_deps_ensure test     the same, and gcc, cmocka, python3 with numpy; wanted, but only skipped
#                           when missing: clang, clang-format, shellcheck, strace, the locale sources
#
# Returns 0, or 5 after saying on stderr what is missing and what to do. KV_NO_INSTALL=1 forbids
# installing. Sets KV_PYTHON to a python3 (with numpy for "test").

KV_CMAKE_LEAST=3.20

kv_deps_say() { printf '%s\n' "$*" >&2; }

# Makes programs and .pc files below CMAKE_PREFIX_PATH visible, as cmake itself sees them.
kv_deps_paths()
{
    local prefix dir list=${CMAKE_PREFIX_PATH-}
    while [ -n "$list" ]; do
        prefix=${list%%[:;]*}
        case $list in *[:\;]*) list=${list#*[:;]} ;; *) list= ;; esac
        [ -n "$prefix" ] || continue
        case ":$PATH:" in *":$prefix/bin:"*) ;; *) [ ! -d "$prefix/bin" ] || PATH=$prefix/bin:$PATH ;; esac
        for dir in "$prefix"/lib/pkgconfig "$prefix"/lib64/pkgconfig "$prefix"/lib/*/pkgconfig "$prefix"/share/pkgconfig; do
            [ ! -d "$dir" ] || PKG_CONFIG_PATH=${PKG_CONFIG_PATH:+$PKG_CONFIG_PATH:}$dir
        done
    done
    export PATH PKG_CONFIG_PATH="${PKG_CONFIG_PATH-}"
}

# Compiles and links the program on standard input with the given command.
kv_deps_compiles()
{
    local dir rc
    dir=$(mktemp -d) || return 1
    cat >"$dir/try.c"
    "$@" "$dir/try.c" -o "$dir/try" >/dev/null 2>&1
    rc=$?
    rm -rf "$dir"
    return $rc
}

kv_deps_compiler()
{
    local cc=$1
    command -v "$cc" >/dev/null 2>&1 && printf '#include <stdio.h>\nint main(void) { return puts("") == EOF; }\n' | kv_deps_compiles "$cc"
}

kv_deps_cmake()
{
    local version
    version=$(cmake --version 2>/dev/null | sed -n 's/^cmake version \([0-9.]*\).*/\1/p')
    [ -n "$version" ] && [ "$(printf '%s\n%s\n' "$KV_CMAKE_LEAST" "$version" | sort -V | head -n 1)" = "$KV_CMAKE_LEAST" ]
}

kv_deps_mpi()
{
    command -v mpirun >/dev/null 2>&1 && command -v mpicc >/dev/null 2>&1 &&
        printf '#include <mpi.h>\nint main(void) { return MPI_Init(NULL, NULL); }\n' | kv_deps_compiles mpicc
}

# LAPACKE is loaded at run time, so the library alone is enough.
kv_deps_lapacke()
{
    local lib
    for lib in liblapacke.so.3 libopenblas.so.0; do
        printf 'int LAPACKE_ssyevd(void);\nint main(void) { return LAPACKE_ssyevd(); }\n' |
            kv_deps_compiles "${CC:-cc}" -Wl,--no-as-needed "-l:$lib" && return 0
    done
    return 1
}

kv_deps_pc() { pkg-config --exists "$1" 2>/dev/null; }

# The first python3 that has the module (any python3 without one); prints its path.
kv_deps_python()
{
    local module=${1:-json} python
    for python in "${KV_PYTHON-}" python3 /usr/bin/python3; do
        if [ -n "$python" ] && "$python" -c "import $module" >/dev/null 2>&1; then
            command -v "$python"
            return 0
        fi
    done
    return 1
}

# Fills KV_NEED_* (must be there) and KV_WANT_* (better with it) with what is missing.
kv_deps_check()
{
    local mode=$1
    KV_NEED_TEXT=() KV_NEED_PKG=() KV_WANT_TEXT=() KV_WANT_PKG=()
    need() { KV_NEED_TEXT+=("$1"); shift; KV_NEED_PKG+=("$@"); }
    want() { KV_WANT_TEXT+=("$1"); shift; KV_WANT_PKG+=("$@"); }
    kv_deps_compiler "${CC:-cc}" || kv_deps_compiler gcc || kv_deps_compiler clang || need "a C compiler" gcc libc6-dev
    command -v make >/dev/null 2>&1 || need "make" make
    kv_deps_cmake || need "cmake $KV_CMAKE_LEAST or newer" cmake
    command -v pkg-config >/dev/null 2>&1 || need "pkg-config" pkg-config
    kv_deps_mpi || need "Open MPI (mpicc, mpirun, mpi.h)" libopenmpi-dev openmpi-bin
    kv_deps_pc 'libsodium >= 1.0.16' || need "libsodium 1.0.16 or newer" libsodium-dev
    kv_deps_pc 'jansson >= 2.13' || need "jansson 2.13 or newer" libjansson-dev
    command -v git >/dev/null 2>&1 || want "git (to name the commit in certificates)" git
    kv_deps_lapacke || want "LAPACKE (the faster of two solvers for codec stores)" liblapacke libopenblas0-pthread
    [ "$mode" = test ] || return 0
    kv_deps_compiler gcc || need "gcc" gcc libc6-dev
    kv_deps_pc cmocka || need "cmocka" libcmocka-dev
    kv_deps_python numpy >/dev/null || need "python3 with numpy (for the independent oracle)" python3 python3-numpy
    kv_deps_compiler clang || want "clang (a second compiler)" clang
    command -v clang-format >/dev/null 2>&1 || want "clang-format (format check)" clang-format
    command -v shellcheck >/dev/null 2>&1 || want "shellcheck (script check)" shellcheck
    command -v strace >/dev/null 2>&1 || want "strace (what commands open)" strace
    { command -v localedef >/dev/null 2>&1 && [ -e /usr/share/i18n/locales/de_DE ]; } ||
        want "the locale sources (decimal-comma test)" locales
}

# Sets KV_ROOT_CMD to what runs a command as root, or fails with the reason in KV_DEPS_WHY.
# With "quiet" nobody is asked for a password.
kv_deps_root()
{
    KV_ROOT_CMD=()
    if [ -n "${KV_NO_INSTALL-}" ]; then
        KV_DEPS_WHY="installing is switched off (KV_NO_INSTALL or --no-install)"
    elif ! command -v apt-get >/dev/null 2>&1; then
        KV_DEPS_WHY="this is not Debian or Ubuntu: there is no apt-get"
    elif [ "$(id -u)" -eq 0 ]; then
        KV_ROOT_CMD=(env)
        return 0
    elif ! command -v sudo >/dev/null 2>&1; then
        KV_DEPS_WHY="you are not root and there is no sudo"
    elif sudo -n true >/dev/null 2>&1; then
        KV_ROOT_CMD=(sudo -n env)
        return 0
    elif [ "${1-}" != quiet ] && [ -t 0 ] && [ -t 2 ]; then
        KV_ROOT_CMD=(sudo env)
        return 0
    else
        KV_DEPS_WHY="you are not root, and sudo wants a password but there is no terminal to ask on"
    fi
    return 1
}

kv_deps_apt()
{
    local log apt
    log=$(mktemp) || return 1
    apt=("${KV_ROOT_CMD[@]}" DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=120 -o Acquire::Retries=2
         -o Acquire::http::Timeout=30)
    kv_deps_say "installing: $*"
    "${apt[@]}" update >"$log" 2>&1 </dev/null
    if ! "${apt[@]}" install --no-install-recommends "$@" >>"$log" 2>&1 </dev/null; then
        # No network is the cause, an unknown package only what follows from it.
        KV_DEPS_WHY="apt-get failed: $({ grep -E '(Could not|Temporary failure|Unable to connect|Failed to fetch)' "$log" || grep -E '^E: ' "$log"; } | head -n 1 | sed 's/^ *//; s/\.$//')"
        rm -f "$log"
        return 1
    fi
    rm -f "$log"
    hash -r
}

kv_deps_refuse()
{
    local text
    kv_deps_say "kvgrid: missing here:"
    for text in "${KV_NEED_TEXT[@]}"; do kv_deps_say "  - $text"; done
    kv_deps_say "kvgrid: not installed, since $KV_DEPS_WHY."
    kv_deps_say "  As root on Debian 12 or Ubuntu 24.04:  apt-get update && apt-get install -y ${KV_NEED_PKG[*]}"
    kv_deps_say "  Without root: load the modules that hold them, or put them in a folder of your own, and set"
    kv_deps_say "  CMAKE_PREFIX_PATH=/that/folder and PKG_CONFIG_PATH=/that/folder/lib/pkgconfig; then run this again."
}

kv_deps_ensure()
{
    local mode=$1
    KV_DEPS_WHY=
    kv_deps_paths
    kv_deps_check "$mode"
    if [ ${#KV_NEED_PKG[@]} -gt 0 ]; then
        if kv_deps_root && kv_deps_apt "${KV_NEED_PKG[@]}"; then
            kv_deps_check "$mode"
            KV_DEPS_WHY="apt-get installed them, but they still cannot be used"
        fi
        if [ ${#KV_NEED_PKG[@]} -gt 0 ]; then
            kv_deps_refuse
            return 5
        fi
    fi
    if [ ${#KV_WANT_PKG[@]} -gt 0 ] && kv_deps_root quiet && kv_deps_apt "${KV_WANT_PKG[@]}"; then kv_deps_check "$mode"; fi
    if [ ${#KV_WANT_TEXT[@]} -gt 0 ]; then kv_deps_say "going on without: $(printf '%s; ' "${KV_WANT_TEXT[@]}" | sed 's/; $//')"; fi
    if [ "$mode" = test ]; then KV_PYTHON=$(kv_deps_python numpy); else KV_PYTHON=$(kv_deps_python); fi
    export KV_PYTHON
    return 0
}

# Environment in which mpirun works as root, in containers and with more ranks than cores.
kv_mpi_env()
{
    if [ "$(id -u)" -eq 0 ]; then export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; fi
    export OMPI_MCA_btl_vader_single_copy_mechanism=none # containers forbid it, and then it warns
    KV_MPIRUN=(mpirun)
    case $(mpirun --version 2>/dev/null) in *"Open MPI"*) KV_MPIRUN+=(--oversubscribe --bind-to none) ;; esac
}
