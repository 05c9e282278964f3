# shellcheck shell=bash disable=SC2034,SC2154
# Bad input: one clear line, the right exit code, nothing written.

# bad REGEX... -- KEY=JSON...: run and plan must refuse the small campaign with these changes, exit 1.
bad()
{
    local regex=()
    while [ "$1" != -- ]; do regex+=("$1"); shift; done
    shift
    need_key
    campaign c.json "$@"
    refused 1 "c\.json" "${regex[@]}" -- run c.json -o out.json --key "$KEY"
    refused 1 "c\.json" "${regex[@]}" -- plan c.json
}

# bad_layout REGEX... -- LAYOUT-CHANGE...: a layout file with these changes, beside the good ones.
bad_layout()
{
    local regex=()
    while [ "$1" != -- ]; do regex+=("$1"); shift; done
    shift
    need_key
    mkdir -p lay
    "$KV_PYTHON" - "$KV_ROOT" "$@" <<'PY' || fail "layout file"
import json, sys
sys.path.insert(0, sys.argv[1] + "/tests/cli")
import doc
lay = {"name": "mine", "engine": "none", "attention": "gqa", "kv": "separate", "k_axes": ["T", "H", "D"], "cite": "none"}
for change in sys.argv[2:]:
    doc.edit(lay, change)
open("lay/mine.json", "w").write(json.dumps(lay))
PY
    campaign c.json 'layouts=["lay"]' 'select='
    refused 1 "mine\.json" "${regex[@]}" -- run c.json -o out.json --key "$KEY"
    refused 1 "mine\.json" "${regex[@]}" -- layouts --layouts lay
}

case_the_small_campaign_is_good()
{
    need_key
    campaign c.json
    kv run c.json -o out.json --key "$KEY"
    expect_rc 0
    kv verify out.json --trust "$PUB"
    expect_rc 0
}

case_campaign_that_cannot_be_read()
{
    need_key
    refused 1 "gone\.json" -- run gone.json -o out.json --key "$KEY"
    refused 1 "gone\.json" -- plan gone.json
    mkdir dir
    refused 1 "dir" -- run dir -o out.json --key "$KEY"
    : >empty.json
    refused 1 "empty\.json" -- run empty.json -o out.json --key "$KEY"
}

case_campaign_that_is_not_json()
{
    local text
    need_key
    for text in 'hello' '{"schema":' '[]' '"text"' '{} {}' '{"a":1,}' "{'a':1}" '{"a":NaN}' '{"a":1.5}' '{"a":1e3}' $'{"a":"\x01"}' $'\xef\xbb\xbf{}' $'{"a":"\xff"}'; do
        printf '%s' "$text" >c.json
        refused 1 "c\.json" -- run c.json -o out.json --key "$KEY"
        refused 1 "c\.json" -- plan c.json
    done
    printf '{"schema":"kvgrid.campaign/v1","schema":"kvgrid.campaign/v1"}' >c.json
    refused 1 "c\.json" "duplicate|twice" -- plan c.json
    "$KV_PYTHON" -c 'print("[" * 100000)' >c.json
    refused 1 "c\.json" -- plan c.json
}

case_unknown_and_missing_keys()
{
    bad "colour" -- 'colour="red"'
    bad "colour" -- 'geometries.0.colour=1'
    bad "schema" -- 'schema="kvgrid.campaign/v2"'
    bad "schema" -- 'schema='
    bad "name" -- 'name='
    bad "geometries" -- 'geometries='
    bad "geometries" -- 'geometries=[]'
    bad "tokens" -- 'geometries.0.tokens='
    bad "element" -- 'geometries.0.element='
}

case_wrong_types_and_values()
{
    bad "name" -- 'name=7'
    bad "name" -- 'name=""'
    bad "name" -- 'name="../evil"'
    bad "tail" -- 'tail="wet"'
    bad "seed" -- 'seed=-1'
    bad "pairs" -- 'pairs="some"'
    bad "pairs" -- 'pairs=[["sglang"]]'
    bad "element" "f17" -- 'geometries.0.element="f17"'
    bad "tokens" -- 'geometries.0.tokens="40"'
    bad "tokens" -- 'geometries.0.tokens=[]'
    bad "tokens" -- 'geometries.0.tokens=-1'
    bad "layers" -- 'geometries.0.layers=0'
    bad "kv_heads" -- 'geometries.0.kv_heads=0'
    bad "head_dim" -- 'geometries.0.head_dim=0'
    bad "head_dim" -- 'geometries.0.head_dim=-8'
    bad "head_dim_v" -- 'geometries.0.head_dim_v=0'
    bad "geometries" -- 'geometries={}'
}

case_huge_sizes_and_overflow()
{
    bad . -- 'geometries.0.tokens=9223372036854775807'
    bad . -- 'geometries.0.tokens=99999999999999999999999'
    bad . -- 'geometries.0.tokens=9007199254740992'
    bad . -- 'geometries.0={"layers":1000000000,"tokens":1000000000,"kv_heads":1000000000,"head_dim":1000000000,"element":"f16"}'
}

case_layouts_of_a_campaign()
{
    bad "no-such" -- 'select=["no-such"]'
    bad "no-such" -- 'pairs=[["sglang","no-such"]]'
    bad "twice|repeat|duplicate" -- 'pairs=[["sglang","vllm-fa"],["sglang","vllm-fa"]]'
    need_key
    campaign c.json 'layouts=["no/such/folder"]'
    refused 1 "no/such/folder" -- run c.json -o out.json --key "$KEY"
    campaign c.json 'layouts=[]'
    refused 1 "layouts" -- run c.json -o out.json --key "$KEY"
}

case_repeated_geometry()
{
    bad "geometr" "twice|repeat|duplicate|same" -- 'geometries.0.tokens=[1,40,1]'
    bad "geometr" "twice|repeat|duplicate|same" -- 'geometries=[{"layers":1,"tokens":1,"kv_heads":2,"head_dim":8,"element":"f16"},{"layers":[2,1],"tokens":[0,1],"kv_heads":2,"head_dim":8,"element":"f16"}]'
    bad "geometr" "twice|repeat|duplicate|same" -- 'geometries=[{"layers":1,"tokens":1,"kv_heads":2,"head_dim":8,"element":"f16"},{"layers":1,"tokens":1,"kv_heads":2,"head_dim":8,"head_dim_v":8,"element":"f16"}]'
}

case_duplicate_layout()
{
    need_key
    mkdir lay
    cp "$KV_ROOT/layouts/published/sglang.json" lay/a.json
    cp "$KV_ROOT/layouts/published/sglang.json" lay/b.json
    campaign c.json 'layouts=["lay"]' 'select='
    refused 1 "sglang" "twice|duplicate|already" -- run c.json -o out.json --key "$KEY"
    printf '[%s,%s]' "$(cat lay/a.json)" "$(cat lay/a.json)" >lay/a.json.new
    rm lay/a.json lay/b.json
    mv lay/a.json.new lay/list.json
    refused 1 "sglang" "twice|duplicate|already" -- run c.json -o out.json --key "$KEY"
}

case_axes_of_a_layout()
{
    bad_layout "k_axes" -- 'k_axes=["T","H","D","H"]'
    bad_layout "k_axes" -- 'k_axes=["T","T","H","D"]'
    bad_layout "k_axes" -- 'k_axes=["T","H"]'
    bad_layout "k_axes" -- 'k_axes=["H","D"]'
    bad_layout "k_axes" -- 'k_axes=["Tb","H","D"]' 'block=16'
    bad_layout "k_axes" -- 'k_axes=["T","Tb","Ti","H","D"]' 'block=16'
    bad_layout "k_axes" -- 'k_axes=["T","H","D","Dg","Dx"]' 'x=4'
    bad_layout "k_axes" -- 'k_axes=["T","H","Q"]'
    bad_layout "k_axes" -- 'k_axes=[]'
    bad_layout "k_axes" -- 'k_axes="THD"'
    bad_layout "KV" -- 'kv="interleaved"'
    bad_layout "KV" -- 'k_axes=["KV","T","H","D"]'
    bad_layout "v_axes" -- 'v_axes=["T","H"]'
}

case_blocks_and_lanes_of_a_layout()
{
    bad_layout "block" -- 'k_axes=["Tb","Ti","H","D"]'
    bad_layout "block" -- 'k_axes=["Tb","Ti","H","D"]' 'block=0'
    bad_layout "block" -- 'k_axes=["Tb","Ti","H","D"]' 'block=-16'
    bad_layout "block" -- 'k_axes=["Tb","Ti","H","D"]' 'block=2147483648'
    bad_layout "block" -- 'k_axes=["Tb","Ti","H","D"]' 'block="16"'
    bad_layout "block" -- 'block=16'
    bad_layout "x" -- 'k_axes=["T","H","Dg","Dx"]'
    bad_layout "x" -- 'k_axes=["T","H","Dg","Dx"]' 'x=0'
    bad_layout "x" -- 'x=4'
    bad_layout "x" -- 'k_axes=["T","H","Dg","Dx"]' 'x=4' 'x_bytes=16'
}

case_other_keys_of_a_layout()
{
    bad_layout "colour" -- 'colour=1'
    bad_layout "name" -- 'name='
    bad_layout "name" -- 'name="no blanks"'
    bad_layout "name" -- 'name="UP/down"'
    bad_layout "cite" -- 'cite='
    bad_layout "engine" -- 'engine=7'
    bad_layout "attention" -- 'attention="mha"'
    bad_layout "kv" -- 'kv="mixed"'
    bad_layout "element" -- 'element="int3"'
    bad_layout "tp" -- 'tp={"size":0,"rank":0}'
    bad_layout "tp" -- 'tp={"size":2,"rank":2}'
    bad_layout "tp" -- 'tp={"size":2,"rank":-1}'
    bad_layout "role" -- 'role="hero"'
}

case_outputs_that_cannot_be_written()
{
    need_key
    campaign c.json
    mkdir dir
    refused 5 "no/such/dir" -- run c.json -o no/such/dir/out.json --key "$KEY"
    refused 5 "dir" -- run c.json -o dir --key "$KEY"
    [ "$(id -u)" -eq 0 ] && return 0 # root may write everywhere
    chmod 500 dir
    refused 5 "dir/out\.json" -- run c.json -o dir/out.json --key "$KEY"
}

case_an_old_certificate_survives_a_bad_run()
{
    need_key
    campaign c.json
    kv run c.json -o out.json --key "$KEY"
    expect_rc 0
    campaign c.json 'colour=1'
    refused 1 colour -- run c.json -o out.json --key "$KEY"
}

case_bad_input_under_mpirun()
{
    need_key
    kv_mpi 3 run gone.json -o out.json --key "$KEY"
    expect_rc 1
    expect_no_file out.json
    expect_no_out
    [ "$(grep -c 'gone\.json' "$ERR")" -eq 1 ] || fail "the error should be said once, not by each rank"
    campaign c.json 'colour=1'
    kv_mpi 2 run c.json -o out.json --key "$KEY"
    expect_rc 1
    expect_no_file out.json
    kv_mpi 2 run c.json --frobnicate
    expect_rc 2
    campaign c.json
    kv_mpi 2 run c.json -o no/such/dir/out.json --key "$KEY"
    expect_rc 5
}

case_nothing_checked_is_no_pass()
{
    need_key
    campaign c.json 'geometries.0.tokens=0'
    kv run c.json -o out.json --key "$KEY"
    expect_rc 4
    expect_value out.json rows.0.verdict EXACT_BYTE
    campaign c.json 'geometries.0.tokens=[0,1]'
    kv run c.json -o out.json --key "$KEY"
    expect_rc 0
}
