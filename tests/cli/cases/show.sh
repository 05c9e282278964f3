# shellcheck shell=bash disable=SC2034,SC2154
# kvgrid show: filters by layout, geometry and verdict.

case_select_takes_layouts_and_pairs()
{
    need_cert
    kv show "$CERT" --select 'vllm-*'
    expect_rc 0
    expect_no_err
    expect_out '^8 of 64 rows: 2 EXACT_TOKEN, 2 NOT_EXACT, 4 REFUSED$'
    ! grep -q sglang "$OUT" || fail "a layout that was not selected"
    kv show "$CERT" --select 'sglang->*,*->sglang'
    expect_rc 0
    expect_out '^14 of 64 rows: 9 EXACT_BYTE, 5 EXACT_TOKEN$'
    kv show "$CERT" --select 'sglang,trtllm' --format json
    expect_rc 0
    [ "$(wc -l <"$OUT")" -eq 2 ] || fail "a line for each row"
    "$KV_PYTHON" -c 'import json, sys
assert [json.loads(line)["pair_id"] for line in open(sys.argv[1])] == ["sglang->trtllm", "trtllm->sglang"]' "$OUT" || fail "other rows"
}

case_verdict_lists_rows_with_the_reason()
{
    need_cert
    kv show "$CERT" --verdict REFUSED,NOT_EXACT
    expect_rc 0
    expect_out '^NOT_EXACT +vllm-fa->vllm-fp8 at L=3,T=40,H=2,D=8,e=f16$'
    expect_out '^REFUSED +vllm-fa->vllm-paged-x16 at .*: X4_GEOMETRY_UNREPRESENTABLE: .*x 16 does not divide head_dim 8$'
    expect_out '^8 of 64 rows: 2 NOT_EXACT, 6 REFUSED$'
    kv show "$CERT" --verdict FAILED
    expect_rc 0
    expect_out '^0 of 64 rows$'
}

case_geometry_by_some_of_its_fields()
{
    need_key
    campaign c.json 'geometries.0.tokens=[16,17]' 'geometries.0.element=["f16","f32"]' 'tail=["stale","zero"]'
    kv run c.json -o c.cert.json --key "$KEY" --progress none
    expect_rc 0
    kv show c.cert.json --geometry T=17,e=f16
    expect_rc 0
    expect_out '^L=1,T=17,H=2,D=8,e=f16,tail=stale$'
    expect_out '^L=1,T=17,H=2,D=8,e=f16,tail=zero$'
    expect_out '^4 of 16 rows: 3 EXACT_BYTE, 1 EXACT_TOKEN$'
    kv show c.cert.json --geometry T=16 --geometry e=f32 --verdict EXACT_TOKEN
    expect_rc 0
    expect_out '^EXACT_TOKEN +vllm-fa->sglang at L=1,T=17,H=2,D=8,e=f32,tail=stale$'
    expect_out '^1 of 16 rows'
    kv show c.cert.json 'vllm-fa->sglang' --geometry T=17,e=f32
    expect_rc 0
    [ "$(grep -c '^vllm-fa->sglang at ' "$OUT")" -eq 2 ] || fail "a pair at one geometry with two tails"
    # geometries with the same grades share a matrix
    kv show c.cert.json
    expect_rc 0
    expect_out '^and the same at [0-9]+ more:'
}

case_filters_that_fit_nothing()
{
    need_cert
    refused 2 'no layout "q\*"' -- show "$CERT" --select 'q*'
    refused 2 'no layout "q"' -- show "$CERT" --select 'sglang->q'
    refused 2 'sglang->\*,\*->sglang' -- show "$CERT" --select sglang
    refused 2 'no such geometry' 'T=41' -- show "$CERT" --geometry T=41
    refused 2 '"X=1"' -- show "$CERT" --geometry X=1
    refused 2 '"GOOD"' 'EXACT_BYTE' -- show "$CERT" --verdict GOOD
    refused 2 'no pair' -- show "$CERT" 'sglang->q'
    refused 2 'no such row' -- show "$CERT" 'sglang->vllm-fa' --verdict REFUSED
}

case_inputs_that_are_none()
{
    need_cert
    mkdir folder
    refused 1 "folder: is a directory" -- show folder
    refused 1 "gone\.json" -- show gone.json
    refused 1 "no certificate" -- show "$PUBLISHED" --verdict REFUSED
    "$KVGRID" show "$CERT" --verdict REFUSED >/dev/full 2>"$ERR"
    rc=$?
    last="show >/dev/full"
    expect_rc 5
    expect_one_line "standard output"
}
