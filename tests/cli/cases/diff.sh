# shellcheck shell=bash disable=SC2034,SC2154
# kvgrid diff: better, worse, new, gone, redeclared.

# changed IN OUT PYTHON: a certificate with its document changed, not signed again (diff does not verify).
changed()
{
    "$KV_PYTHON" -c 'import json, sys
doc = json.load(open(sys.argv[1]))
rows = doc["rows"]
row = {r["pair_id"]: r for r in rows}
layout = {l["name"]: l for l in doc["catalogue"]}
exec(sys.argv[3])
json.dump(doc, open(sys.argv[2], "w"))' "$1" "$2" "$3" || fail "the change of $1"
}

case_the_same()
{
    need_cert
    kv diff "$CERT" "$CERT"
    expect_rc 0
    expect_no_err
    expect_untouched
    expect_out ': 64 rows, .*: 64 rows; 64 the same, 0 worse, 0 better, 0 new, 0 gone; 0 redeclared$'
    [ "$(wc -l <"$OUT")" -eq 1 ] || fail "more than the counts"
}

case_worse_better_new_and_gone()
{
    need_cert
    changed "$CERT" old.json 'row["sglang->trtllm"]["verdict"] = "EXACT_TOKEN"; rows.remove(row["trtllm->sglang"])'
    changed "$CERT" new.json 'row["sglang->vllm-fa"]["verdict"] = "NOT_EXACT"; row["vllm-fa->sglang"]["verdict"] = "FAILED"; rows.remove(row["sglang->llamacpp"])'
    kv diff old.json new.json
    expect_rc 4
    expect_one_line '2 rows worse than in old\.json; the first is sglang->vllm-fa at L=3.*: EXACT_BYTE -> NOT_EXACT'
    expect_out '^worse \(2\)'
    expect_out '^  vllm-fa->sglang at L=3,T=40,H=2,D=8,e=f16: EXACT_TOKEN -> FAILED$'
    expect_out '^better \(1\)'
    expect_out '^  sglang->trtllm .*: EXACT_TOKEN -> EXACT_BYTE$'
    expect_out '^new \(1\)'
    expect_out '^  trtllm->sglang .*: EXACT_TOKEN$'
    expect_out '^gone \(1\)'
    expect_out '^  sglang->llamacpp .*: EXACT_BYTE$'
    expect_out '59 the same, 2 worse, 1 better, 1 new, 1 gone; 0 redeclared$'
    kv diff new.json old.json --format json
    expect_rc 4
    cp "$OUT" answer.json
    expect_value answer.json counts.worse 1
    expect_value answer.json counts.better 2
    expect_value answer.json counts.passes false
    expect_value answer.json worse.0.pair_id 'sglang->trtllm'
    expect_value answer.json worse.0.old EXACT_BYTE
    expect_value answer.json worse.0.new EXACT_TOKEN
    expect_value answer.json new.0.old null
    expect_value answer.json redeclared '[]'
}

# A conversion is NOT_EXACT before and after: what else was seen counts then.
case_an_observation_lost_is_worse()
{
    need_cert
    changed "$CERT" new.json 'row["vllm-fa->vllm-fp8"]["proof"]["gather_agrees"] = False'
    kv diff "$CERT" new.json
    expect_rc 4
    expect_out 'vllm-fa->vllm-fp8 .*: NOT_EXACT -> NOT_EXACT \(gather_agrees true -> false\)'
    kv diff new.json "$CERT"
    expect_rc 0
    expect_out '1 better'
}

case_redeclared_comes_first_and_must_be_accepted()
{
    need_cert
    changed "$CERT" new.json 'layout["trtllm"]["block"] = 64; row["sglang->vllm-fa"]["verdict"] = "NOT_EXACT"'
    kv diff "$CERT" new.json
    expect_rc 4
    [ "$(wc -l <"$ERR")" -eq 2 ] || fail "two reasons, two lines"
    sed -n 1p "$ERR" | grep -q '14 rows redeclared, which --accept-redeclared accepts' || fail "redeclared is not the first reason"
    sed -n 1p "$OUT" | grep -qE '^layout trtllm is declared otherwise: digest [0-9a-f]{16}\.\.\. was' || fail "the layout is not said first"
    sed -n 2p "$OUT" | grep -q '^redeclared (14)' || fail "redeclared rows are not the first list"
    expect_out '\[redeclared: trtllm\]$'
    changed "$CERT" new.json 'layout["trtllm"]["block"] = 64'
    kv diff "$CERT" new.json --accept-redeclared
    expect_rc 0
    expect_no_err
    changed "$CERT" new.json 'doc["geometries"][0]["tokens"] = 41'
    kv diff "$CERT" new.json
    expect_rc 4
    expect_err '64 rows redeclared'
    expect_out '\[redeclared: L=3,T=41,H=2,D=8,e=f16\]$'
}

# Rows match by the values of their geometry, not by its number.
case_rows_match_by_geometry_values()
{
    need_key
    campaign a.json 'geometries.0.tokens=[17,32]'
    campaign b.json 'geometries.0.tokens=[5,17,32]'
    kv run a.json -o a.cert.json --key "$KEY" --progress none
    kv run b.json -o b.cert.json --key "$KEY" --progress none
    kv diff a.cert.json b.cert.json
    expect_rc 0
    expect_out '4 the same, 0 worse, 0 better, 2 new, 0 gone; 0 redeclared$'
}

case_nothing_in_common_is_no_pass()
{
    need_key
    campaign a.json
    campaign b.json 'select=["trtllm","hf-dynamic-cache"]'
    kv run a.json -o a.cert.json --key "$KEY" --progress none
    kv run b.json -o b.cert.json --key "$KEY" --progress none
    kv diff a.cert.json b.cert.json
    expect_rc 4
    expect_one_line 'nothing was compared'
}

case_inputs_that_are_none()
{
    need_cert
    mkdir folder
    head -c 3000 "$CERT" >torn.json
    refused 1 "folder: is a directory" -- diff folder "$CERT"
    refused 1 "folder: is a directory" -- diff "$CERT" folder
    refused 1 "gone\.json" -- diff "$CERT" gone.json
    refused 1 "torn\.json" -- diff torn.json "$CERT"
    refused 1 "no certificate" -- diff "$CERT" "$PUBLISHED"
    refused 2 "missing" -- diff "$CERT"
    refused 2 "too many" -- diff "$CERT" "$CERT" "$CERT"
    changed "$CERT" bad.json 'rows[7]["verdict"] = "FINE"'
    refused 1 'bad\.json: rows\[7\]\.verdict' -- diff "$CERT" bad.json
    changed "$CERT" bad.json 'rows.append(rows[3])'
    refused 1 "twice" -- diff "$CERT" bad.json
}

case_outputs_that_fail()
{
    need_cert
    local target
    for target in /dev/full closed; do
        last="kvgrid diff >$target"
        if [ $target = closed ]; then
            "$KVGRID" diff "$CERT" "$CERT" >&- 2>"$ERR"
        else
            "$KVGRID" diff "$CERT" "$CERT" >$target 2>"$ERR"
        fi
        rc=$?
        expect_rc 5
        expect_one_line "standard output"
        "$KVGRID" diff "$CERT" "$CERT" --format json >/dev/full 2>"$ERR"
        rc=$?
        expect_rc 5
        expect_one_line "standard output"
    done
}

# 26,400 rows take seconds, of the processor: how busy the machine is does not count.
case_slow_large_certificates()
{
    need_cert
    local most=60
    [ -z "${KV_SANITIZED-}" ] || most=300
    "$KV_PYTHON" - "$CERT" <<'PY' || fail "the large certificates"
import json, sys
doc = json.load(open(sys.argv[1]))
names = [l["name"] for l in doc["catalogue"]]
one = next(r for r in doc["rows"] if r["pair_id"] == "sglang->vllm-fa")
geometry = doc["geometries"][0]
for name, verdict in (("old.json", "EXACT_BYTE"), ("new.json", "EXACT_TOKEN")):
    doc["geometries"] = [dict(geometry, tokens=t) for t in range(200)]
    doc["rows"] = [dict(one, geometry=g, src=s, dst=d, pair_id=s + "->" + d, verdict=verdict if g == 77 else "EXACT_BYTE")
                   for g in range(200) for s in names for d in names if s != d]
    json.dump(doc, open(name, "w"))
PY
    ulimit -S -t $most # for each program
    kv diff old.json new.json
    expect_rc 4
    expect_out '26268 the same, 132 worse'
    expect_out '  \.\.\. and 32 more; --format json lists all'
    kv show new.json --select 'sglang->*' --geometry T=77 --verdict EXACT_TOKEN
    expect_rc 0
    expect_out '^11 of 26400 rows: 11 EXACT_TOKEN$'
    kv show new.json
    expect_rc 0
    expect_out '^and the same at 198 more:'
    [ "$(wc -l <"$OUT")" -lt 60 ] || fail "$(wc -l <"$OUT") lines for 200 geometries of two kinds"
}
