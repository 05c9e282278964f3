# shellcheck shell=bash disable=SC2034,SC2154
# Rows of attribution, codec and move: one body for any ranks, parts and interruptions, which both verifiers accept.

ROWS_JSON=$KV_WORK/shared/codec.json
ROWS_CERT=$KV_WORK/shared/codec.cert.json

codec_section='"payloads":["gaussian","k-like-2","zeros"],"block":16,"moves":["pages","kv-pools","table"]'
rows_campaign()
{
    campaign "$ROWS_JSON" 'select=["sglang","vllm-fa"]' 'pairs="all-ordered"' \
        'geometries=[{"layers":5,"tokens":70,"kv_heads":2,"head_dim":16,"head_dim_v":12,"element":"bf16"},{"layers":2,"tokens":[0,40],"kv_heads":1,"head_dim":16,"element":"f16"}]' \
        'codec={"recipes":["fp8","int4-token","kv1","kv1-shared","published-harness","published-serving","rotation"],'"$codec_section"'}' \
        'attribution={"recipes":["kv1","published-serving"],"seeds":[2,10],"cells":["identity","kv","layers"],"block":16,"passages":2,"evaluated":16}'
}
make_rows()
{
    rows_campaign
    kv run "$ROWS_JSON" -o "$ROWS_CERT" --key "$KEY" --progress none
    [ "$rc" -eq 0 ] || { cat "$ERR"; return 1; }
}
need_rows()
{
    need_key
    once codec_rows make_rows
}

# accepted CERT: both verifiers say sound.
accepted()
{
    kv verify "$1" --trust "$PUB"
    expect_rc 0
    expect_out '^sound$'
    "$KV_PYTHON" "$KV_ROOT/certs/verify.py" "$1" --trust "$PUB" >said || fail "verify.py: $(tail -n 3 said)"
}

case_both_verifiers_accept_them()
{
    need_rows
    accepted "$ROWS_CERT"
    local check
    for check in attribution codec move pair; do
        grep -q "\"check\":\"$check\"" "$ROWS_CERT" || fail "no row of check $check"
    done
    grep -q '"name":"codec_agrees","passed":true' "$ROWS_CERT" || fail "codec_agrees is not there"
    kv show "$ROWS_CERT" --verdict REFUSED
    expect_rc 0
}

# A row that agrees with its reference is a pass, though it is NOT_EXACT.
case_exports_take_them_for_what_they_are()
{
    need_rows
    cp "$ROWS_CERT" rows.json
    kv export --intoto rows.json --trust "$PUB" --key "$KEY" -o rows.intoto.json
    expect_rc 0
    "$KV_PYTHON" "$KV_ROOT/tests/certs/check_intoto.py" openssl rows.intoto.json rows.json "$PUB" >said || fail "$(tail -n 1 said)"
    kv export --junit rows.json --trust "$PUB" -o rows.xml
    expect_rc 0
    grep -q '<testcase ' rows.xml || fail "no case"
    ! grep -q '<failure' rows.xml || fail "a row of the codec is told as a failure: $(grep -m 1 '<failure' rows.xml)"
    kv export --csv rows.json --trust "$PUB" -o rows.csv
    expect_rc 0
    "$KV_PYTHON" - <<'PY' || fail "the table is not the certificate"
import csv, json
rows, seen = json.load(open("rows.json"))["rows"], set()
for line, row in zip(csv.DictReader(open("rows.csv", newline="")), rows, strict=True):
    keys = {**row["params"], **row["observations"], **{k: v for k, v in row["proof"].items() if not isinstance(v, (list, dict))}}
    for key in [k for k in keys if k in line and k not in ("layers", "tokens")]:  # these are the geometry's
        seen.add(key)
        v = keys[key]
        assert line[key] == ("" if v is None else str(v).lower() if isinstance(v, bool) else str(v)), (key, line[key], v)
assert {"payload", "stream", "cell", "seed", "store_agrees_with_reference", "variants_agree", "relative_l2_ppm",
        "ratio_ppm", "overflow_blocks", "ppl_change_ppm", "kl_nano", "accept"} <= seen, seen
PY
}

# Rows whose sides are no layouts are counted, not put into empty matrices.
case_show_names_them_apart()
{
    need_rows
    kv show "$ROWS_CERT"
    expect_rc 0
    expect_out '^attribution: [0-9]+ NOT_EXACT.*; side by side: kvgrid codec table '
    expect_out '^codec: [0-9]+ NOT_EXACT.*; side by side: kvgrid codec table '
    expect_out '^move: [0-9]+ EXACT_BYTE'
    ! grep -qE '(payload|cell)=' "$OUT" || fail "a matrix for rows of the codec: $(grep -m 1 -E '(payload|cell)=' "$OUT")"
    [ "$(grep -c ' to:  1  2$' "$OUT")" -ge 1 ] || fail "no matrix of the pairs"
}

case_a_table_that_cannot_be_written_says_why()
{
    need_rows
    last="codec table >/dev/full"
    "$KVGRID" codec table "$ROWS_CERT" >/dev/full 2>"$ERR"
    rc=$?
    expect_rc 5
    expect_one_line 'standard output cannot be written: No space left on device'
}

# A figure that a campaign sells, changed and signed again, is found by both.
# Against itself nothing is redeclared or new: not from the file, and not from the run's own memory.
case_compared_with_themselves_they_are_the_same()
{
    need_rows
    kv diff "$ROWS_CERT" "$ROWS_CERT"
    expect_rc 0
    expect_out ' 0 worse, 0 better, 0 new, 0 gone; 0 redeclared'
    campaign bits.json 'select=["sglang","vllm-fa"]' 'pairs="all-ordered"' \
        'geometries=[{"layers":1,"tokens":40,"kv_heads":1,"head_dim":16,"element":"bf16"}]' \
        'codec={"recipes":["kv1","fp8"],"bits":[2,3],'"$codec_section"'}' \
        'attribution={"recipes":["kv1"],"seeds":[1],"cells":["identity","k"],"block":16,"passages":2,"evaluated":16}'
    kv run bits.json -o old.json --key "$KEY" --progress none
    expect_rc 0
    kv run bits.json -o new.json --key "$KEY" --progress none --baseline old.json
    expect_rc 0
    expect_out ' 0 worse, 0 better, 0 new, 0 gone; 0 redeclared'
    sed 's/"identity_changes_nothing":true/"identity_changes_nothing":false/' old.json >edited.json
    kv diff old.json edited.json
    expect_rc 4
    expect_out 'identity_changes_nothing true -> false'
}

# What a section declares besides its axes is declared otherwise when it changes: for the rows that it concerns.
case_a_changed_section_is_redeclared()
{
    need_key
    local block
    for block in 16 32; do
        campaign c.json 'select=["sglang"]' 'pairs=' \
            'geometries=[{"layers":1,"tokens":40,"kv_heads":1,"head_dim":16,"element":"bf16"}]' \
            'codec={"recipes":["kv1","fp8"],"payloads":["gaussian"],"streams":["k"],"moves":["pages","table"],"block":'$block'}' \
            'attribution={"recipes":["kv1"],"seeds":[1],"cells":["k"],"block":16,"passages":1,"evaluated":'$block'}'
        kv run c.json -o $block.json --key "$KEY" --progress none
        expect_rc 0
    done
    kv diff 16.json 32.json
    expect_rc 4
    expect_out '^  codec canonical->kv1 at .* \[redeclared: codec\.block\]$'
    expect_out '^  move kv1:pages->kv1:table at .* \[redeclared: codec\.block\]$'
    expect_out '^  attribution canonical->kv1 at .* \[redeclared: attribution\.evaluated\]$'
    ! grep -q 'fp8.*redeclared' "$OUT" || fail "rows of fp8 have no blocks"
    expect_out '; 4 redeclared$'
    kv diff 16.json 32.json --accept-redeclared --format json
    expect_out '"codec\.block"'
}

# Codes that are not the reference's: no grade says so, the check codec_agrees does.
case_a_store_that_disagrees()
{
    need_key
    campaign wrong.json 'select=["sglang"]' pairs= 'geometries=[{"layers":1,"tokens":40,"kv_heads":1,"head_dim":16,"element":"bf16"}]' \
        'codec={"recipes":["kv1"],"payloads":["gaussian"],"block":16}' || fail "no campaign"
    KV_ENV=(KVGRID_FAULT=wrong@0:1)
    kv run wrong.json -o wrong.cert.json --key "$KEY" --progress none
    KV_ENV=()
    [ "$rc" -ne 0 ] || need_faults
    expect_rc 4
    expect_err 'codec_agrees'
    grep -q '"name":"codec_agrees","passed":false' wrong.cert.json || fail "the certificate does not say so"
    kv verify wrong.cert.json --trust "$PUB"
    expect_rc 3
    expect_out 'H9_GUARD_FAILED_OPEN'
}

case_null_is_no_value()
{
    campaign null.json 'select=["sglang"]' 'pairs=[]' 'codec={"recipes":["kv1"],"payloads":["zeros"],"block":null}' 2>/dev/null ||
        fail "no campaign"
    kv plan null.json
    expect_rc 1
    expect_err '"codec": "block" is null'
}

case_changed_figures_are_refused()
{
    need_rows
    local edit i=0 first
    first=$(grep -o '"check":"[a-z]*"' "$ROWS_CERT" | grep -n '"codec"' | head -n 1 | cut -d : -f 1)
    first=$((first - 1))
    for edit in "rows.$first.native_bytes.dst=1000" "rows.$first.proof.ratio_ppm=8000000" \
        "rows.$first.verdict=\"EXACT_BYTE\"" "rows.0.proof.passages=3" "rows.$first.params.payload=\"zeros\""; do
        i=$((i + 1))
        "$KV_PYTHON" "$KV_ROOT/tests/cli/doc.py" forge "$ROWS_CERT" forged.json "$PUB" forged.pub "$edit" || fail "no forged certificate"
        kv verify forged.json --trust forged.pub
        expect_rc 3
        "$KV_PYTHON" "$KV_ROOT/certs/verify.py" forged.json --trust forged.pub >said
        [ $? -eq 3 ] || fail "verify.py lets $edit pass"
    done
    [ $i -eq 5 ] || fail "not every edit was tried"
}

case_any_number_of_ranks()
{
    need_rows
    local n
    for n in 2 3; do
        kv_mpi $n run "$ROWS_JSON" -o ranks.json --key "$KEY" --progress none
        expect_rc 0
        [ "$(body ranks.json)" = "$(body "$ROWS_CERT")" ] || fail "another body with $n ranks"
        rm ranks.json
    done
}

case_parts_merge_to_the_same_body()
{
    need_rows
    local p
    for p in 1 2 3; do
        kv run "$ROWS_JSON" --part $p/3 -o p$p.json --key "$KEY" --progress none
        expect_rc 0
        accepted p$p.json
    done
    # The first cell that is missing is named so that it can be told from all others.
    kv merge p1.json p3.json -o x.json --key "$KEY" --trust "$PUB"
    expect_rc 1
    expect_one_line 'the first is attribution canonical->kv1 at .*,cell=[a-z0-9-]+,seed=[0-9]+; give'
    kv merge p1.json p2.json p3.json -o all.json --key "$KEY" --trust "$PUB"
    expect_rc 0
    [ "$(body all.json)" = "$(body "$ROWS_CERT")" ] || fail "another body"
    accepted all.json
}

case_interrupted_and_gone_on()
{
    need_key
    local pid
    campaign long.json 'select=["sglang"]' 'pairs=' 'geometries=[{"layers":2,"tokens":1500,"kv_heads":2,"head_dim":32,"element":"f16"}]' \
        'codec={"recipes":["kv1","published-harness","rotation"],"payloads":["gaussian","k-like-1","k-like-2","heavy-tailed"],"block":64,"moves":["pages","table"]}' \
        'attribution={"recipes":["kv1"],"seeds":[1],"cells":["identity","kv","k","v"],"block":64,"passages":2,"evaluated":64}'
    kv run long.json -o once.json --key "$KEY" --progress none
    expect_rc 0
    KVGRID_FAULT=stop@0:9 "$KVGRID" run long.json -o again.json --key "$KEY" --progress none --state state >"$OUT" 2>"$ERR" &
    pid=$!
    until stopped "$pid"; do
        if ! kill -0 "$pid" 2>/dev/null; then
            wait "$pid" || fail "the run ended with $?"
            need_faults
            fail "the run ended by itself"
        fi
        sleep 0.01
    done
    kill -USR1 "$pid"
    kill -CONT "$pid"
    wait "$pid"
    rc=$?
    last='kvgrid run long.json, SIGUSR1'
    expect_rc 75
    expect_no_file again.json
    kv run long.json -o again.json --key "$KEY" --state state
    expect_rc 0
    expect_err '^kvgrid: [0-9]+ of 30 cells stand in'
    [ "$(body again.json)" = "$(body once.json)" ] || fail "another body"
    accepted again.json
}

case_many_stand_in_a_file()
{
    need_key
    campaign many.json 'select=["sglang"]' 'pairs=' \
        'geometries=[{"layers":1,"tokens":{"from":0,"to":79},"kv_heads":[1,2],"head_dim":[2,4],"element":"f16"}]' \
        'codec={"recipes":["fp8","int4-token"],"payloads":["constant","gaussian","heavy-tailed","k-like-1","k-like-2","k-like-3","k-like-4","zeros"],"block":2}'
    kv_mpi 2 run many.json -o many.cert.json --key "$KEY" --progress none
    expect_rc 0
    expect_value many.cert.json rows '[]'
    expect_value many.cert.json rows_file.count 10240
    accepted many.cert.json
    sed -i '5000s/"saturated":0/"saturated":1/' many.cert.json.rows
    kv verify many.cert.json --trust "$PUB"
    expect_rc 3
    "$KV_PYTHON" "$KV_ROOT/certs/verify.py" many.cert.json --trust "$PUB" >said
    [ $? -eq 3 ] || fail "verify.py lets another row file pass"
}

case_a_users_file_is_a_payload()
{
    need_key
    head -c 1280 /dev/zero | tr '\0' '\074' >k.f16 # [2][2][10][2][8] of 1.06
    campaign own.json 'select=["sglang"]' 'pairs=' \
        'geometries=[{"layers":2,"tokens":[10,11],"kv_heads":2,"head_dim":8,"element":"f16"}]' \
        'codec={"recipes":["kv1","fp8"],"payloads":["file:mine"],"block":4,"files":[{"name":"mine","path":"k.f16"}]}'
    kv run own.json -o own.cert.json --key "$KEY" --progress none
    expect_rc 0
    accepted own.cert.json
    expect_value own.cert.json observed.verdicts.REFUSED 4
    expect_value own.cert.json observed.verdicts.NOT_EXACT 4
    ! grep -q 'k\.f16' own.cert.json || fail "the path stands in the certificate"
    # A value that is no number is an input that is not good: told by plan and run before the work, and only where the file fits.
    printf '\001\176' | dd of=k.f16 bs=2 seek=7 conv=notrunc 2>/dev/null
    refused 1 'payload file mine: value 7 of .*k\.f16 is not finite \(as f16\)' -- plan own.json
    refused 1 'value 7 of .*k\.f16 is not finite' -- run own.json -o x.json --key "$KEY"
    "$KV_PYTHON" -c 'import json
c = json.load(open("own.json")); c["geometries"][0]["tokens"] = 11; json.dump(c, open("other.json", "w"))'
    kv plan other.json
    expect_rc 0
}

case_a_study_alone_is_something_checked()
{
    need_key
    campaign study.json 'select=["sglang"]' 'pairs=' 'geometries=[{"layers":2,"tokens":20,"kv_heads":1,"head_dim":8,"element":"f16"}]' \
        'attribution={"recipes":["kv1"],"seeds":[1],"cells":["identity","v"],"block":8,"passages":1,"evaluated":8}'
    kv run study.json -o study.cert.json --key "$KEY" --progress none
    expect_rc 0
    accepted study.cert.json
    expect_value study.cert.json observed.positions_checked 0
    kv export --intoto study.cert.json --trust "$PUB" --key "$KEY" -o study.intoto.json
    expect_rc 0
    # where nothing could be stored, nothing was checked
    campaign none.json 'select=["sglang"]' 'pairs=' 'geometries=[{"layers":2,"tokens":0,"kv_heads":1,"head_dim":8,"element":"f16"}]' \
        'codec={"recipes":["kv1"],"payloads":["zeros"],"block":8}'
    kv run none.json -o none.cert.json --key "$KEY" --progress none
    expect_rc 4
    expect_err 'nothing was checked is not a pass'
    kv verify none.cert.json --trust "$PUB"
    expect_rc 4
}
