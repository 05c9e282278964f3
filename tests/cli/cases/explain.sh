# shellcheck shell=bash disable=SC2034,SC2154
# One question about one pair.

case_x_that_does_not_divide()
{
    kv explain sglang vllm-paged-x --geometry L=1,T=40,H=2,D=6,e=f16
    expect_rc 0
    expect_no_err
    expect_out REFUSED
    expect_out X4_GEOMETRY_UNREPRESENTABLE
    expect_out '(^|[^0-9])4([^0-9].*[^0-9]|[^0-9])6([^0-9]|$)|(^|[^0-9])6([^0-9].*[^0-9]|[^0-9])4([^0-9]|$)' # the reason names x and head_dim
}

case_x_that_divides()
{
    kv explain sglang vllm-paged-x --geometry L=1,T=40,H=2,D=8,e=f16
    expect_rc 0
    expect_out EXACT_BYTE
    expect_out head_dim_vectorize
    expect_out reblock
    expect_no_colour
}

case_padding_makes_it_exact_token()
{
    kv explain vllm-fa sglang --geometry L=1,T=40,H=2,D=8,e=f16
    expect_rc 0
    expect_out EXACT_TOKEN
    kv explain vllm-fa sglang --geometry L=1,T=48,H=2,D=8,e=f16
    expect_rc 0
    expect_out EXACT_BYTE
}

case_head_gather_and_replication()
{
    kv explain vllm-fa vllm-tp2 --geometry L=1,T=40,H=2,D=8,e=f16
    expect_rc 0
    expect_out X2_HEAD_GATHER
    kv explain vllm-fa vllm-tp2 --geometry L=1,T=48,H=1,D=8,e=f16
    expect_rc 0
    expect_out EXACT_BYTE
    expect_out head_replicate
    kv explain vllm-fa vllm-tp2 --geometry L=1,T=40,H=3,D=8,e=f16
    expect_rc 0
    expect_out X4_GEOMETRY_UNREPRESENTABLE
}

case_latent_requantize_and_empty()
{
    kv explain vllm-fa deepseek-mla --geometry L=1,T=40,H=2,D=8,e=f16
    expect_rc 0
    expect_out X1_LATENT_KV
    kv explain vllm-fa vllm-fp8 --geometry L=1,T=40,H=2,D=8,e=f16
    expect_rc 0
    expect_out NOT_EXACT
    expect_out requantize
    kv explain vllm-fa vllm-fp8 --geometry L=1,T=0,H=2,D=8,e=f16
    expect_rc 0
    expect_out EXACT_BYTE
}

case_widths_that_differ()
{
    kv explain sglang hf-dynamic-cache --geometry L=1,T=9,H=2,D=6,Dv=4,e=f16
    expect_rc 0
    expect_out EXACT_BYTE
    kv explain sglang vllm-fa --geometry L=1,T=9,H=2,D=6,Dv=4,e=f16
    expect_rc 0
    expect_out X4_GEOMETRY_UNREPRESENTABLE
    expect_out '6.*4' # the reason names both widths
}

case_json_answers()
{
    kv explain sglang vllm-paged-x --geometry L=1,T=40,H=2,D=6,e=f16 --format json
    expect_rc 0
    "$KV_PYTHON" - "$OUT" <<'PY' || fail "the JSON answer is not as it should be"
import json, sys
text = open(sys.argv[1]).read()
answer = json.loads(text)
assert "X4_GEOMETRY_UNREPRESENTABLE" in text and "REFUSED" in text and isinstance(answer, dict), text
PY
}

case_a_big_geometry_is_answered_at_once()
{
    local start=${EPOCHREALTIME/[.,]/} ms
    kv explain vllm-fa sglang --geometry L=61,T=131072,H=8,D=128,e=bf16
    expect_rc 0
    expect_out 'EXACT'
    ms=$(((${EPOCHREALTIME/[.,]/} - start) / 1000))
    echo "explain at 61 x 131072 x 8 x 128: $ms ms"
}

case_layouts_lists_and_shows()
{
    local file
    kv layouts
    expect_rc 0
    for file in "$KV_ROOT"/layouts/published/*.json; do expect_out "(^| )$(basename "$file" .json)( |$)"; done
    kv layouts vllm-paged-x
    expect_rc 0
    expect_out 'Dg'
    kv layouts --format json
    expect_rc 0
    "$KV_PYTHON" -c 'import json, sys; assert len(json.load(open(sys.argv[1]))) >= 1' "$OUT" || fail "not JSON"
}

case_found_from_any_folder()
{
    mkdir -p a/b
    cd a/b || exit 1
    kv explain sglang vllm-fa --geometry L=1,T=40,H=2,D=8,e=f16
    expect_rc 0
    ln -s "$KVGRID" linked
    last="linked explain"
    ./linked explain sglang vllm-fa --geometry L=1,T=40,H=2,D=8,e=f16 >"$OUT" 2>"$ERR"
    rc=$?
    expect_rc 0
}
