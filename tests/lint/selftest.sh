#!/usr/bin/env bash
# A check that cannot fail is none: each planted fault must be found by its check, by name, and the
# clean tree must pass. Exit 0, or 1 with what was not found.
set -u -o pipefail
here=$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
bad=0
tried=0

# A small clean tree in $work/tree.
clean()
{
    local tree=$work/tree
    rm -rf "$tree"
    mkdir -p "$tree"/{base,layouts,kernels/cuda,mpi,tp,certs,grid,tests/grid}
    printf '#ifndef A_H\n#define A_H\n#include <stdint.h>\n/* do not call sprintf( here */\nint a(int64_t x);\n#endif\n' >"$tree/base/a.h"
    printf '#include "base/a.h"\n#include <stdio.h>\nint a(int64_t x)\n{\n    return x > 0 ? fprintf(stderr, "exit(1) atoi(x)\\n") : 0;\n}\n' >"$tree/base/a.c"
    printf '#include "base/a.h"\n#include <mpi.h>\n' >"$tree/mpi/m.c"
    printf '#include "base/a.h"\n#include <jansson.h>\n#include <sodium.h>\n' >"$tree/certs/c.c"
    printf '#include "certs/x.h"\n#include "mpi/x.h"\n#include "kv_source.h"\n#include <stdlib.h>\nint main(void)\n{\n    exit(0);\n}\n' >"$tree/grid/kv_main.c"
    cp "$tree/base/a.h" "$tree/certs/x.h"
    cp "$tree/base/a.h" "$tree/mpi/x.h"
    for header in $(grep -v -e '^#' -e '^$' "$here/inline.txt"); do
        mkdir -p "$(dirname "$tree/$header")"
        printf '#ifndef I_H\n#define I_H\nstatic inline int i_fn(int x)\n{\n    return x;\n}\n#endif\n' >"$tree/$header"
    done
    printf 'target_compile_options(x -fno-fast-math)\n' >"$tree/CMakeLists.txt"
}

# passes CHECK
passes()
{
    tried=$((tried + 1))
    "$here/check_$1.sh" "$work/tree" >"$work/log" 2>&1 && return
    echo "check_$1 does not pass the clean tree: $(tail -n 1 "$work/log")"
    bad=$((bad + 1))
}

# finds CHECK FILE "TEXT" REGEX: with TEXT appended to FILE, the check must print a line that matches.
finds()
{
    tried=$((tried + 1))
    clean
    mkdir -p "$(dirname "$work/tree/$2")"
    printf '%b\n' "$3" >>"$work/tree/$2"
    if "$here/check_$1.sh" "$work/tree" >"$work/log" 2>&1; then
        echo "check_$1 does not see in $2: $3"
        bad=$((bad + 1))
    elif ! grep -qE -- "$4" "$work/log"; then
        echo "check_$1 fails for $2, but not with /$4/: $(tail -n 1 "$work/log")"
        bad=$((bad + 1))
    fi
}

clean
for check in includes calls headers; do passes $check; done
export KV_LINT_NO_NVCC=1 # once is enough, it is slow

finds includes base/a.c '#include "layouts/l.h"' 'base/a.c:.*base must not include layouts'
finds includes layouts/l.c '#include "kernels/k.h"' 'layouts must not include kernels'
finds includes kernels/k.c '#include "tp/t.h"' 'kernels must not include tp'
finds includes mpi/m.c '#include "grid/x.h"' 'mpi must not include grid'
finds includes grid/row/r.c '#include "grid/run/x.h"' 'grid/row must not include grid/run'
finds includes mpi/m.c '  #  include "layouts/x.h"' 'mpi must not include layouts'
finds includes tp/t.c '#include "mpi/x.h"' 'tp must not include mpi'
finds includes certs/c.c '#include "layouts/kv_layout_index.h"' 'certs must not include layouts'
finds includes grid/g.c '#include "tests/kv_test.h"' 'grid must not include tests'
finds includes grid/g.c '#include <mpi.h>' 'grid must not include <mpi.h>'
finds includes certs/c.c '#include <mpi.h>' 'certs must not include <mpi.h>'
finds includes grid/g.c '#include <sodium.h>' 'grid must not include <sodium.h>'
finds includes base/a.c '#include <jansson.h>' 'base must not include <jansson.h>'
finds includes kernels/k.c '#include <cuda_runtime.h>' 'kernels must not include <cuda_runtime.h>'
finds includes kernels/cuda/k.cu '#include <nccl.h>' 'kernels/cuda must not include <nccl.h>'
finds includes kernels/cuda/k.cu '#include <jansson.h>' 'kernels/cuda must not include <jansson.h>'
finds includes base/a.c '#include <openssl/evp.h>' 'no known header'
finds includes base/a.c '#include "a.h"' 'not named from the root'
finds includes base/a.c '#include "base/b.c"' 'a source is included'
finds includes base/a.c '#include "base/gone.h"' 'does not exist'
finds includes base/a.c '#include KV_HEADER' 'cannot be followed'
for call in 'sprintf(b, "x")' 'strcpy(a, b)' 'strcat (a, b)' 'strtok(a, b)' 'atoi(s)' 'atol(s)' 'gets(s)' 'rand()' 'exit(1)' \
    'malloc(3)' 'printf("x")' 'cudaGetErrorString(e)' 'ncclGetErrorString(e)' 'MPI_Abort(c, 1)' 'json_real(1.0)' 'setlocale(0, "")'; do
    finds calls certs/c.c "void f(void) { if (x) $call; }" "certs/c.c:[0-9]+: ${call%%[ (]*} is not called here"
done
finds calls grid/g.c 'void f(void) { exit(3); }' 'grid/g.c:.*exit'
finds calls CMakeLists.txt 'add_compile_options(-ffast-math)' 'CMakeLists.txt:.*floating point'
finds calls CMakeLists.txt 'set(CMAKE_C_FLAGS "-Ofast")' 'floating point'
finds calls kernels/CMakeLists.txt 'set(CMAKE_CUDA_FLAGS "--use_fast_math")' 'floating point'
finds headers base/b.h 'size_t no_include(void);' 'base/b.h: does not compile alone as C17'
finds headers base/b.h 'int twice = 1;' 'base/b.h: does not compile alone'
if command -v g++ >/dev/null 2>&1 || command -v clang++ >/dev/null 2>&1; then
    finds headers layouts/kv_layout_index.h 'static inline int f(int *restrict p) { return *p; }' 'alone as C\+\+17'
    finds headers layouts/kv_layout_index.h 'static inline void *f(void *p) { int *q = p; return q; }' 'alone as C\+\+17'
fi

clean
"$here/check_format.sh" "$work/tree" >/dev/null 2>&1
[ $? -eq 77 ] || finds format base/a.c 'int  f( void ){return 1;}' 'base/a.c: not formatted'
finds scripts jobs/x.sh 'if true; then' 'jobs/x.sh: does not parse'

[ "$tried" -gt 40 ] || { echo "only $tried faults were planted"; bad=$((bad + 1)); }
[ $bad -eq 0 ] || exit 1
echo "$tried planted faults and clean trees, each seen as it should be"
