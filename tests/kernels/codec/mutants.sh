#!/usr/bin/env bash
# Deliberate mutations of the codec's core, each on a copy of the sources: the tests and the shared vectors must catch
# every one. Not part of a normal test run (several minutes). mutants.sh [NAME...] runs only those; CC chooses the compiler.
# Exit 0 all caught, 1 one survived or does not apply, 77 no cmocka.
set -u -o pipefail
root=$(readlink -f -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/../../..")
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cc=${CC:-gcc}
pkg-config --exists cmocka jansson libsodium || { echo "cmocka, jansson or libsodium is not there"; exit 77; }
read -r -a libs <<<"$(pkg-config --libs cmocka jansson libsodium)"
read -r -a flags <<<"$(pkg-config --cflags cmocka jansson libsodium)"
flags+=(-std=c17 -O1 -ffp-contract=off -w -D_POSIX_C_SOURCE=200809L -D_DEFAULT_SOURCE "-DKV_SOURCE_DIR=\"$root\"")
codec=kernels/codec
sources=("$codec"/kv_codec_{params,work,ref,kmeans,pick,simd_sse2,simd_avx2,simd_avx512,vectors,slot,slot_unpack}.c
    kernels/kv_kern_num.c grid/codec/kv_codec_{conform,conform_slot,compare}.c certs/kv_sha256.c)
tests=(rng property kmeans vectors '')

# name | files below kernels/codec | sed expression
mutants() { cat <<'TABLE'
dot-starts-at-plus-zero|kv_codec_step.h|s/float sum = -0\.0f/float sum = 0.0f/
scale-at-eps|kv_codec_step.h|s/return length > KV_CODEC_EPS ? kv_codec_div/return length >= KV_CODEC_EPS ? kv_codec_div/
norm-not-reciprocal-of-scale|kv_codec_step.h|s/const float back = .*/const float back = length > KV_CODEC_EPS ? length : 1.0f;/
huber-always-linear|kv_codec_step.h|s/if (a < KV_CODEC_HUBER)/if (a < 0.0f)/
huber-product-for-division|kv_codec_step.h|s/kv_codec_div(kv_num_mul(a, a), 0\.2f)/kv_num_mul(kv_num_mul(a, a), 5.0f)/
level-ties-go-up|kv_codec_step.h|s/if (cost < least)/if (cost <= least)/
kv1-norm-never-zero|kv_codec_step.h|s/return length > KV_CODEC_EPS ? kv_codec_h_held(back, saturated) : (uint16_t)0/return kv_codec_h_held(back, saturated)/
kv1-residual-against-float-t|kv_codec_step.h|s/\*used = kv_codec_f(h);/*used = t;/
published-gain-applied|kv_codec_step.h|s/return kv_codec_norm_is_raw(rule, metric) ? 1\.0f : kv_codec_f(norm)/return kv_codec_f(norm)/
no-saturation|kv_codec_step.h|s/if ((h \& 0x7FFFu) != KV_CODEC_F16_INF) return h;/return h;/
bits-most-significant-first|kv_codec_step.h|s/value >> b \& 1u/value >> (bits - 1 - b) \& 1u/
seed-increment|kv_codec_rng.h|s/11634580027462260723u/11634580027462260725u/
draw-without-rejection|kv_codec_rng.h|s/while (low > zone);/while (false);/
signs-swapped|kv_codec_rng.h|s/? 1\.0f : -1\.0f/? -1.0f : 1.0f/
centre-ties-take-the-last|kv_codec_ref.c|s/kv_codec_abs(along) > most/kv_codec_abs(along) >= most/
short-row-limit|kv_codec_ref.c|s/d_eff) <= KV_CODEC_EPS/d_eff) <= 0x1p-24f/
small-coefficients-kept|kv_codec_ref.c|s/if (all_small) return;//
outlier-at-threshold|kv_codec_ref.c|s/> w->p\.threshold/>= w->p.threshold/
decoder-without-signs|kv_codec_ref.c|s/kv_num_mul(kv_num_mul(v\[i\], w->sign\[i\]), /kv_num_mul(v[i], /
simd-word-boundary|kv_codec_simd_encode.h|s/index >> (bits - fill)/index >> fill/
simd-second-tile-of-centres|kv_codec_simd_vec.h|s/kv_splat_i(first + g)/kv_splat_i(g)/
simd-small-coefficients-kept|kv_codec_simd_encode.h|s/(kv_vf)((kv_vi)r \& counts)/r/
simd-butterfly-order|kv_codec_simd_vec.h|s/a_b + c_d/a_b - c_d/
simd-third-butterfly-step|kv_codec_simd_vec.h|s/a\[k\] - a\[k + 4\]/a[k] + a[k + 4]/
simd-centre-of-another-row|kv_codec_simd_vec.h|s/(index << 28)/(index << 29)/
simd-columns-of-the-last-skeleton|kv_codec_work.c|s/w->tiled = w->columned = false;/w->tiled = false;/
simd-words-of-neighbours|kv_codec_simd_decode.h|s/(first + kv_at_most(l + i, here)) \* bytes/(first + kv_at_most(l, here)) * bytes/
simd-last-rows|kv_codec_simd_encode.h|s/return i < here ? i : here - 1;/return i < here - 1 ? i : here - 1 - (here > 1);/
kmeans-start-by-line|kv_codec_kmeans.c|s/if (dots\[i\] > m->best\[i\]) m->best\[i\] = dots\[i\];/if (kv_codec_abs(dots[i]) > m->best[i]) m->best[i] = kv_codec_abs(dots[i]);/
kmeans-sides-not-turned|kv_codec_kmeans.c|s/(kv_num_bits(dot) \& 0x80000000u) | 0x3F800000u/0x3F800000u/
kmeans-empty-cluster-is-zeroed|kv_codec_kmeans.c|s/if (!(m->mass\[g\] > KV_CODEC_EPS)) continue;.*/if (!m->open[g]) continue;/
kmeans-old-cluster-forgotten|kv_codec_kmeans.c|s/m->open\[m->now\[i\]\] = m->open\[m->seg\[i\]\] = true/m->open[m->now[i]] = true/
kmeans-turned-side-forgotten|kv_codec_kmeans.c|s/ || !(side == m->side\[i\])//
kmeans-moved-centre-forgotten|kv_codec_kmeans.c|s/m->moved\[m->n_moved++\] = g;/m->moved[m->n_moved] = g; m->n_moved += g > 0;/
simd-fourth-centre|kv_codec_simd_fit.h|s/sum\[i\]\[1\] + x1 \* c/sum[i][1] + x0 * c/
kmeans-updates-before-it-stops|kv_codec_kmeans.c|s/if (memcmp(m->now, m->seg, bytes) == 0) return round;/if (memcmp(m->now, m->seg, bytes) == 0) { compare(m, true); update(m, centers, sums); return round; }/
TABLE
}

# compile TREE: objects and test programs; false where it does not compile.
compile()
{
    local f t pids=() ok=0
    cd -- "$1" || return 1
    for f in "${sources[@]}" base/kv_{alloc,err,file,temp,text}.c; do
        "$cc" "${flags[@]}" -I. -c -o "obj/$(basename "$f" .c).o" "$f" & pids+=($!)
    done
    for t in "${tests[@]}"; do
        "$cc" "${flags[@]}" -I. -c -o "obj/test$t.obj" "tests/kernels/codec/test_kv_codec${t:+_$t}.c" & pids+=($!)
    done
    for f in "${pids[@]}"; do wait "$f" || ok=1; done
    [ $ok -eq 0 ] || return 1
    for t in "${tests[@]}"; do
        "$cc" -o "test_${t:-codec}" "obj/test$t.obj" obj/*.o "$root_layouts" "${libs[@]}" -lm || return 1
    done
}

# Which test programs fail in a built tree, as words.
failing()
{
    local t rc
    for t in "${tests[@]}"; do
        timeout 120 "$1/test_${t:-codec}" >/dev/null 2>&1
        rc=$?
        [ $rc -eq 0 ] || [ $rc -eq 77 ] || printf '%s ' "${t:-codec}"
    done
}

fresh()
{
    rm -rf "$1" && mkdir -p "$1/obj" && cp -r --parents -t "$1" base layouts kernels tests/kernels/codec tests/*.h grid/codec/kv_codec_*.[ch] certs/kv_sha256.[ch]
}

cd -- "$root" || exit 1
fresh "$work/clean"
root_layouts=$work/layouts.a # kv_test.h binds layouts; they are not mutated
(cd -- "$work/clean" && for f in layouts/*.c base/*.c; do "$cc" "${flags[@]}" -I. -c -o "obj/l_$(basename "$f" .c).lo" "$f" || exit 1; done &&
    ar rc "$root_layouts" obj/l_*.lo) || { echo "the sources do not compile"; exit 1; }
(compile "$work/clean") || { echo "the sources do not compile"; exit 1; }
bad=$(failing "$work/clean")
[ -z "$bad" ] || { echo "without any mutation these fail: $bad"; exit 1; }
[ -e "$root/../shared/codec_vectors/index.json" ] || echo "../shared is not there: only the project's own tests count"

survived=0 count=0
while IFS='|' read -r name files expression; do
    if [ $# -gt 0 ]; then case " $* " in *" $name "*) ;; *) continue ;; esac; fi
    cd -- "$root" || exit 1
    fresh "$work/tree"
    for f in $files; do sed -i -e "$expression" "$work/tree/$codec/$f"; done
    count=$((count + 1))
    if diff -rq "$work/clean/$codec" "$work/tree/$codec" >/dev/null; then
        caught="DOES NOT APPLY"
        survived=$((survived + 1))
    elif ! (compile "$work/tree") 2>/dev/null; then
        caught="DOES NOT COMPILE"
        survived=$((survived + 1))
    else
        caught=$(failing "$work/tree")
        [ -n "$caught" ] || { caught=SURVIVED; survived=$((survived + 1)); }
    fi
    printf '%-34s %-24s %s\n' "$name" "$files" "$caught"
done < <(mutants)
echo "$count mutations, $((count - survived)) caught"
[ "$count" -gt 0 ] && [ "$survived" -eq 0 ]
