# shellcheck shell=bash disable=SC2154
# Sourced by tests/device_check.sh: the programs of the device check, and kvgrid itself with every library that it needs, in
# one folder that a machine without compiler, Open MPI, libsodium or jansson can run.

# nccl_found: sets nccl_include and nccl_lib to where NCCL's header and library are; Python packages bring them too.
nccl_found()
{
    local at
    nccl_include='' nccl_lib=''
    for at in /usr /usr/local /usr/local/cuda "$(dirname "$(dirname "$nvcc")")" \
        "$(python3 -c 'import nvidia.nccl as n; print(list(n.__path__)[0])' 2>/dev/null)"; do
        [ -n "$at" ] || continue
        [ -n "$nccl_include" ] || [ ! -e "$at/include/nccl.h" ] || nccl_include=$at/include
        for so in "$at"/lib/libnccl.so.2 "$at"/lib64/libnccl.so.2 "$at"/lib/x86_64-linux-gnu/libnccl.so.2; do
            [ -n "$nccl_lib" ] || [ ! -e "$so" ] || nccl_lib=$so
        done
    done
    [ -n "$nccl_include" ] && [ -n "$nccl_lib" ]
}

# compile_all OUT SOURCE...: compiles every source at once and links them; extra flags in compile_flags, libraries in link_flags.
compile_all()
{
    local out=$1 objects=() jobs=0 source rc=0 folder
    shift
    folder=$(mktemp -d) || return 5
    for source in "$@"; do
        [ -e "$source" ] || continue
        objects+=("$folder/$(basename "$source").o")
        if [[ $source == *.cu ]]; then
            "$nvcc" -std=c++17 -O3 --fmad=false "${gpu_flags[@]}" -I"$root" -c "$source" -o "${objects[-1]}" >>"$folder/log" 2>&1 &
        else
            "$cc" -std=c17 -O3 -ffp-contract=off -D_POSIX_C_SOURCE=200809L -D_DEFAULT_SOURCE -I"$root" "${compile_flags[@]}" \
                -isystem "$(dirname "$nvcc")/../include" -c "$source" -o "${objects[-1]}" >>"$folder/log" 2>&1 &
        fi
        jobs=$((jobs + 1))
        if [ $((jobs % $(nproc))) -eq 0 ]; then wait; fi
    done
    wait
    "$nvcc" -o "$out" "${objects[@]}" "${link_flags[@]}" -lm >>"$folder/log" 2>&1 ||
        { grep -m 20 -E 'error|undefined|fatal' "$folder/log" >&2; rc=5; }
    rm -rf "$folder"
    return $rc
}

# build_check OUT and build_nccl OUT: the two programs of this check.
build_check()
{
    local sources=("$root"/kernels/cuda/*.c "$root"/kernels/cuda/*.cu)
    compile_flags=("-I$root/tests/device/include") link_flags=()
    compile_all "$1" "$root"/base/kv_{err,alloc,text}.c "$root"/layouts/kv_{geometry,layout_bind}.c "$root"/kernels/kv_kern_*.c \
        "$root"/kernels/codec/kv_codec_{batch,params,pick,ref,work,simd_sse2,simd_avx2,simd_avx512}.c \
        "${sources[@]//*kv_cuda_none.c/}" "$root"/tests/device/*.c
}
build_nccl()
{
    compile_flags=(-isystem "$nccl_include") link_flags=(-Xlinker "$nccl_lib" -lpthread)
    compile_all "$1" "$root"/base/kv_{err,alloc,text}.c "$root"/tp/kv_tp_{nccl,local,transport}.c \
        "$root"/tests/device/nccl/kv_device_nccl_main.c
}

# build_kvgrid DIR: the program with CUDA and without NCCL, its libraries, and the parts of Open MPI that it loads by name.
# Nonzero where something is missing to build it; the log is DIR/kvgrid.log then.
build_kvgrid()
{
    local dir=$1 tree components file
    command -v cmake >/dev/null && command -v ompi_info >/dev/null || { echo "no cmake or no Open MPI" >"$dir/kvgrid.log"; return 5; }
    tree=$(mktemp -d) || return 5
    if ! { cmake -S "$root" -B "$tree" -DCMAKE_BUILD_TYPE=Release -DKV_WITH_TESTS=OFF -DKV_WITH_CUDA=ON -DKV_WITH_NCCL=OFF \
        "-DKV_CUDA_ARCHS=${archs:-80;89;90;100;120}" && cmake --build "$tree" --parallel "$(nproc)" --target kvgrid; } \
        >"$dir/kvgrid.log" 2>&1 </dev/null; then
        rm -rf "$tree"
        return 5
    fi
    components=$(readlink -f "$(ompi_info --path pkglibdir --parsable | cut -d: -f3)")
    mkdir -p "$dir/lib" "$dir/openmpi" &&
        cp "$tree/kvgrid" "$root/jobs/campaigns/published.json" "$dir/" &&
        cp -r "$root/layouts" "$dir/layouts" &&
        cp -L "$components"/*.so "$dir/openmpi/" || return 5
    sed -i 's#"../../layouts/#"layouts/#' "$dir/published.json"
    for file in "$dir/kvgrid" "$dir"/openmpi/*.so; do ldd "$file" 2>/dev/null; done |
        awk '/=> \// { print $3 } /^[ \t]*\/lib.*ld-linux/ { print $1 }' | grep -v libcuda.so | sort -u >"$tree/libs"
    while read -r file; do cp -L "$file" "$dir/lib/" || return 5; done <"$tree/libs"
    rm -rf "$tree" "$dir/kvgrid.log"
}

# carried DIR ARGS...: DIR/kvgrid with what was carried, as one rank of its own.
carried()
{
    local dir=$1 loader=("$1"/lib/ld-linux-*.so.*)
    shift
    OMPI_MCA_mca_base_component_path=$dir/openmpi OMPI_MCA_ess_singleton_isolated=1 OMPI_ALLOW_RUN_AS_ROOT=1 \
        OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "${loader[0]}" --library-path "$dir/lib" "$dir/kvgrid" "$@"
}
