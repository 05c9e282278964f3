# shellcheck shell=bash disable=SC2034,SC2154
# Sizes beyond toys: memory that does not grow with the layers, counts beyond 31 bits.

# One pair under a meter: prints the peak memory of the process in KiB into $KV_CASE/rss.
metered_run()
{
    last="kvgrid run $*"
    sanitizer_env run
    "$KV_PYTHON" - "$KV_CASE/rss" "$KVGRID" run "$@" >"$OUT" 2>"$ERR" <<'PY'
import resource, subprocess, sys
rc = subprocess.run(sys.argv[2:], stdin=subprocess.DEVNULL).returncode
open(sys.argv[1], "w").write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
sys.exit(rc)
PY
    rc=$?
}

# memory_at LAYERS TOKENS: runs one pair; the peak in KiB goes to $peak.
memory_at()
{
    campaign "m$1.json" 'pairs=[["vllm-fa","sglang"]]' "geometries=[{\"layers\":$1,\"tokens\":$2,\"kv_heads\":8,\"head_dim\":128,\"element\":\"f16\"}]"
    metered_run "m$1.json" -o "m$1.cert.json" --key "$KEY"
    expect_rc 0
    expect_value "m$1.cert.json" rows.0.proof.positions_checked $(($2 * 8 * 128 * 2))
    expect_value "m$1.cert.json" rows.0.proof.layers "$1"
    peak=$(cat "$KV_CASE/rss")
}

case_memory_does_not_grow_with_layers()
{
    [ -z "${KV_SANITIZED-}" ] || skip "memory is not measured under the sanitizers"
    local tokens=2048 image one four
    need_key
    image=$((tokens * 8 * 128 * 2 * 2 / 1024)) # KiB of one layer
    memory_at 1 8
    local base=$peak
    memory_at 1 $tokens
    one=$peak
    memory_at 4 $tokens
    four=$peak
    printf 'baseline %d KiB; one layer of %d KiB: 1 layer %d KiB, 4 layers %d KiB (%d.%d images over the baseline)\n' \
        "$base" "$image" "$one" "$four" $(((four - base) / image)) $(((four - base) * 10 / image % 10))
    [ $((four - base)) -le $((image * 4)) ] || fail "$(((four - base) / image)) images of memory, about three were expected"
    [ $((four - one)) -le $((image / 4)) ] || fail "memory grows with the layers: $one KiB for one, $four for four"
}

case_slow_big_cache_in_bounded_memory()
{
    [ -n "${KV_FULL-}" ] || skip "the big cache (32 layers x 8192 tokens) runs with --full only"
    [ -z "${KV_SANITIZED-}" ] || skip "memory is not measured under the sanitizers"
    need_key
    memory_at 1 8
    local base=$peak image=32768
    memory_at 32 8192
    printf 'peak %d KiB, baseline %d KiB, image of one layer %d KiB\n' "$peak" "$base" "$image"
    expect_value m32.cert.json rows.0.native_bytes '{"dst": 33554432, "src": 33554432}'
    expect_value m32.cert.json rows.0.verdict EXACT_BYTE
    [ $((peak - base)) -le $((image * 4)) ] || fail "$(((peak - base) / image)) images of memory, about three were expected"
}

case_plan_beyond_31_bits()
{
    campaign big.json 'geometries=[{"layers":1,"tokens":2097152,"kv_heads":8,"head_dim":128,"element":"f16"}]' 'pairs=[["sglang","vllm-fa"]]'
    kv plan big.json
    expect_rc 0
    expect_no_err
    expect_out '4,?294,?967,?296' # positions of one image
    expect_out '8,?589,?934,?592|8\.[0-9] ?G|8 ?GiB' # its bytes
    kv plan big.json --format json
    expect_rc 0
    grep -q 4294967296 "$OUT" || fail "the JSON plan does not hold 4294967296 positions"
    expect_untouched
}

case_plan_refuses_what_cannot_be_counted()
{
    campaign huge.json 'geometries=[{"layers":1,"tokens":4611686018427387904,"kv_heads":8,"head_dim":128,"element":"f16"}]'
    refused 1 "tokens|64 bits|2\^53|large" -- plan huge.json
}

case_plan_of_the_published_campaign()
{
    kv plan "$PUBLISHED"
    expect_rc 0
    expect_out '64 cells'
    expect_out '6 refused'
    expect_no_colour
    kv plan "$PUBLISHED" --format json
    expect_rc 0
    "$KV_PYTHON" -c 'import json, sys; json.load(open(sys.argv[1]))' "$OUT" || fail "not JSON"
}

case_bench_answers()
{
    # A small one: that it runs and says its yardstick, not how fast it is.
    kv bench --geometry L=1,T=64,H=2,D=8,e=f16 --select sglang,vllm-fa --pairs all-ordered --repeat 1
    expect_rc 0
    expect_out 'sglang->vllm-fa'
    expect_out 'copy'
    kv bench --geometry L=1,T=64,H=2,D=8,e=f16 --select sglang,vllm-fa --pairs all-ordered --repeat 1 --format json
    expect_rc 0
    "$KV_PYTHON" - "$OUT" <<'PY' || fail "the JSON answer is not as it should be"
import json, sys
answer = json.load(open(sys.argv[1]))
assert [pair["pair_id"] for pair in answer["pairs"]] == ["sglang->vllm-fa", "vllm-fa->sglang"], answer
assert all(pair["copy_mb_per_s"] > 0 and pair["ratio_to_copy_ppm"] > 0 for pair in answer["pairs"]), answer
PY
    expect_no_err
    # What is left out is counted, and nothing left is no answer.
    kv bench --geometry L=1,T=64,H=2,D=8,e=f16 --pairs 'sglang->vllm-fa,deepseek-mla->sglang' --repeat 1
    expect_rc 0
    expect_one_line '^kvgrid: of 2 pairs 1 are left out as refused$'
    refused 1 'of 1 pairs 1 are left out as refused' 'kvgrid explain' -- \
        bench --geometry L=1,T=64,H=2,D=8,e=f16 --pairs 'deepseek-mla->sglang' --repeat 1
    refused 1 'of 1 pairs 0 are left out as refused, 1 have no tokens' -- \
        bench --geometry L=1,T=0,H=2,D=8,e=f16 --pairs 'sglang->vllm-fa' --repeat 1 --format json
}

# What plan says of the certificate's size is what it comes to, within a tenth.
case_plan_tells_the_size_of_the_certificate()
{
    local said is
    need_cert
    kv plan "$PUBLISHED" --format json
    cp "$OUT" plan.json
    said=$(value plan.json certificate_bytes)
    is=$(stat -c %s "$CERT")
    [ $((said * 10)) -ge $((is * 9)) ] && [ $((said * 10)) -le $((is * 11)) ] || fail "$said bytes are told, the certificate has $is"
}

# The share of each rank, without simulating.
case_plan_tells_the_share_of_each_rank()
{
    kv plan "$PUBLISHED" --ranks 3
    expect_rc 0
    expect_out '^time: about [0-9.]+ s on one CPU core, controls included; [0-9.]+ s on 3 ranks'
    expect_out '^work of a rank: [0-9.]+ to [0-9.]+ s, [0-9.]+ to [0-9.]+ % of all$'
    expect_out '^  rank 2: [0-9]+ items, [0-9.]+ s, [0-9.]+ %$'
    kv plan "$PUBLISHED" --ranks 100
    expect_out '; 33 ranks get nothing$'
    ! grep -q '^  rank' "$OUT" || fail "a hundred ranks one by one"
    kv plan "$PUBLISHED" --ranks 3 --format json
    cp "$OUT" plan.json
    "$KV_PYTHON" - <<'PY' || fail "the shares do not add up: $(cat plan.json)"
import json
work = json.load(open("plan.json"))["work"]
assert len(work["ranks"]) == 3 and sum(r["items"] for r in work["ranks"]) == 67
assert abs(sum(r["us"] for r in work["ranks"]) - work["all_us"]) < 10
assert abs(sum(r["ppm"] for r in work["ranks"]) - 1000000) < 10
assert max(r["us"] for r in work["ranks"]) == work["most_us"]
PY
}

# As many geometries as may be, found different from one another at once.
case_slow_fifty_thousand_geometries()
{
    campaign c.json 'geometries=[{"layers":1,"tokens":{"from":1,"to":50000},"kv_heads":2,"head_dim":8,"element":"f16"}]'
    kv plan c.json --format json
    expect_rc 0
    cp "$OUT" plan.json
    expect_value plan.json geometries 50000
    campaign d.json 'geometries=[{"layers":1,"tokens":[{"from":1,"to":40000},77],"kv_heads":2,"head_dim":8,"element":"f16"}]'
    refused 1 'L=1,T=77,H=2,D=8,e=f16 stands twice' -- plan d.json
}
