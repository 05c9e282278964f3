# shellcheck shell=bash disable=SC2034,SC2154
# The gate of a run: what the campaign expects, an older certificate, the summary for machines.

# lines REGEX...: one line on stderr for each, in this order, and no other.
lines()
{
    local regex n=0
    [ "$(wc -l <"$ERR")" -eq $# ] || fail "stderr should have $# lines"
    for regex in "$@"; do
        n=$((n + 1))
        sed -n "${n}p" "$ERR" | grep -qE -- "$regex" || fail "line $n of stderr does not say: $regex"
    done
}

# changed IN OUT PYTHON: a certificate with its document changed, not signed again (diff and baseline do not verify).
changed()
{
    "$KV_PYTHON" -c 'import json, sys
doc = json.load(open(sys.argv[1]))
rows = doc["rows"]
exec(sys.argv[3])
json.dump(doc, open(sys.argv[2], "w"))' "$1" "$2" "$3" || fail "the change of $1"
}

quiet() { kv "$@" --progress none; }

case_expect_met_and_unmet()
{
    need_key
    campaign c.json 'geometries.0.tokens=[17,32]' 'expect=[{"pairs":"vllm-fa->sglang","verdict":["EXACT_TOKEN","EXACT_BYTE"]},{"pairs":"*->*","at_least":"EXACT_TOKEN"}]'
    quiet run c.json -o a.json --key "$KEY"
    expect_rc 0
    expect_no_err
    kv verify a.json --trust "$PUB" --expect
    expect_rc 0
    campaign c.json 'geometries.0.tokens=[17,32]' 'expect=[{"pairs":"vllm-fa->*","verdict":"EXACT_BYTE"},{"pairs":"*->*","at_least":"EXACT_TOKEN"},{"pairs":"s*->*","at_least":"REFUSED"}]'
    quiet run c.json -o b.json --key "$KEY"
    expect_rc 4
    lines 'expect\[0\] "vllm-fa->\*" \(EXACT_BYTE\): 1 of 2 rows is not so; the first is vllm-fa->sglang at L=1,T=17.*: EXACT_TOKEN' \
        'expect\[2\] "s\*->\*".*no row fits it, or an earlier rule has them all'
    kv verify b.json --trust "$PUB" # sound, and signed: what is expected of it is another matter
    expect_rc 0
    kv verify b.json --trust "$PUB" --expect
    expect_rc 4
    expect_err 'expect\[0\]'
    "$KV_PYTHON" "$KV_ROOT/certs/verify.py" b.json --trust "$PUB" >"$OUT" 2>"$ERR" || fail "verify.py refuses it"
}

case_expect_geometry_and_params_filters()
{
    need_key
    campaign c.json 'geometries.0.tokens=[17,32]' 'tail=["stale","zero"]' 'expect=[{"pairs":"vllm-fa->*","geometry":{"tokens":[32,33]},"verdict":"EXACT_BYTE"},{"pairs":"vllm-fa->*","params":{"tail":"zero"},"verdict":"EXACT_BYTE"},{"pairs":"vllm-fa->*","geometry":{"element":"f16"},"verdict":"EXACT_TOKEN"}]'
    quiet run c.json -o a.json --key "$KEY"
    expect_rc 0
    expect_no_err
}

# The day decides whether the gate opens, and nothing that is signed but for the campaign's own words.
case_waivers_leave_no_trace_in_the_body()
{
    need_key
    local until
    for until in 2001-01-01 2999-12-31; do
        campaign c.json 'expect=[{"pairs":"vllm-fa->*","verdict":"EXACT_BYTE","waiver":{"reason":"bug 7","until":"'$until'"}}]'
        quiet run c.json -o "$until.json" --key "$KEY"
        if [ $until = 2001-01-01 ]; then expect_rc 4; else expect_rc 0; fi
        expect_one_line 'expect\[0\].*1 of 1 rows is not so' "$([ $until = 2001-01-01 ] && echo 'its waiver ran out after 2001-01-01: bug 7' || echo 'waived until 2999-12-31: bug 7')"
    done
    "$KV_PYTHON" - <<'PY' || fail "the bodies differ by more than the campaign"
import json
docs = [json.load(open(name)) for name in ("2001-01-01.json", "2999-12-31.json")]
for doc in docs:
    for key in ("run", "body_digest", "signature"):
        del doc[key]
    del doc["campaign"]["digest"]
    del doc["campaign"]["spec"]["expect"][0]["waiver"]["until"]
assert docs[0] == docs[1]
PY
}

case_expect_is_strict()
{
    need_key
    local bad
    for bad in '{}' '[]' '[{"pairs":"a->b"}]' '[{"pairs":"a","verdict":"REFUSED"}]' '[{"pairs":"a->b","verdict":"FAILED"}]' \
        '[{"pairs":"a->b","at_least":"REFUSED","verdict":"REFUSED"}]' '[{"pairs":"a->b","verdict":"REFUSED","waiver":{"reason":"r","until":"soon"}}]'; do
        campaign c.json "expect=$bad"
        refused 1 'c\.json' '"expect"' -- plan c.json
    done
    refused 1 '"expect"' -- run c.json -o out.json --key "$KEY"
}

case_verify_expect_needs_rules()
{
    need_cert
    kv verify "$CERT" --trust "$PUB" --expect
    expect_rc 2
    expect_one_line 'no "expect"'
}

# A part holds some of the rows: what is expected of all of them is judged when they are merged.
case_expect_holds_for_the_whole_not_for_a_part()
{
    need_key
    local i
    campaign c.json 'geometries.0.tokens=[17,32,33,40]' 'expect=[{"pairs":"sglang->*","verdict":"EXACT_BYTE"},{"pairs":"vllm-fa->*","geometry":{"tokens":17},"verdict":"EXACT_BYTE"}]'
    for i in 1 2; do
        quiet run c.json --part $i/2 -o p$i.json --key "$KEY"
        expect_rc 0
        expect_no_err
    done
    kv verify p1.json --trust "$PUB" --expect
    expect_rc 2
    kv merge p1.json p2.json -o all.json --key "$KEY" --trust "$PUB"
    expect_rc 4
    expect_one_line 'expect\[1\]' '1 of 1 rows'
    kv verify all.json --trust "$PUB"
    expect_rc 0
}

case_baseline()
{
    need_key
    campaign c.json
    quiet run c.json -o old.json --key "$KEY"
    quiet run c.json -o new.json --key "$KEY" --baseline old.json
    expect_rc 0
    expect_no_err
    expect_out 'old\.json: 2 rows, this run: 2 rows; 2 the same, 0 worse'
    changed old.json better.json 'rows[1]["verdict"] = "EXACT_BYTE"'
    quiet run c.json -o new.json --key "$KEY" --baseline better.json
    expect_rc 4
    expect_one_line '1 row worse than in better\.json; the first is vllm-fa->sglang at .*: EXACT_BYTE -> EXACT_TOKEN'
    expect_file new.json
    kv verify new.json --trust "$PUB"
    expect_rc 0
    changed old.json other.json '[l for l in doc["catalogue"] if l["name"] == "sglang"][0]["notes"] = "x"'
    quiet run c.json -o new.json --key "$KEY" --baseline other.json
    expect_rc 4
    expect_one_line '2 rows redeclared, which --accept-redeclared accepts'
    quiet run c.json -o new.json --key "$KEY" --baseline other.json --accept-redeclared
    expect_rc 0
    expect_no_err
}

# A weaker way to check must not look like rows that got better.
case_another_tail_or_other_values_are_redeclared()
{
    need_key
    local change
    campaign c.json
    quiet run c.json -o old.json --key "$KEY"
    for change in 'tail="zero"' 'values="exhaustive"'; do
        campaign c.json "$change"
        quiet run c.json -o new.json --key "$KEY" --baseline old.json
        expect_rc 4
        expect_one_line "2 rows redeclared, which --accept-redeclared accepts; .*\[redeclared: ${change%%=*}\]"
        kv diff new.json old.json --accept-redeclared --format json
        cp "$OUT" diff.json
        expect_value diff.json redeclared.0.redeclared "[\"${change%%=*}\"]"
    done
    campaign c.json 'tail=["stale"]' 'values="payloads"' # as it was, in other words
    quiet run c.json -o new.json --key "$KEY" --baseline old.json
    expect_rc 0
    # several tails stand in params: each with itself
    campaign c.json 'tail=["stale","zero"]'
    quiet run c.json -o old.json --key "$KEY"
    campaign c.json 'tail=["zero","nan","stale"]'
    quiet run c.json -o new.json --key "$KEY" --baseline old.json
    expect_rc 0
    expect_out '4 the same, 0 worse, 0 better, 2 new, 0 gone; 0 redeclared'
}

# Whatever is wrong with the baseline is said before anything runs.
case_a_bad_baseline()
{
    need_key
    campaign c.json
    head -c 100 c.json >torn.json
    refused 1 "gone\.json" -- run c.json -o out.json --key "$KEY" --baseline gone.json
    refused 1 "torn\.json" -- run c.json -o out.json --key "$KEY" --baseline torn.json
    refused 1 "c\.json" "no certificate" -- run c.json -o out.json --key "$KEY" --baseline c.json
    refused 1 "\. *: is a directory" -- run c.json -o out.json --key "$KEY" --baseline .
}

# d12: exactly 256 wrong verdicts, which 8 bits read as none.
case_an_exit_code_is_never_a_count()
{
    need_key
    local tokens
    tokens=$(seq -s, 17 289 | tr ',' '\n' | awk '$1 % 16 != 0' | head -n 256 | paste -sd,)
    campaign c.json "geometries.0.tokens=[$tokens]" 'pairs=[["vllm-fa","sglang"]]' 'expect=[{"pairs":"*->*","verdict":"EXACT_BYTE"}]'
    quiet run c.json -o a.json --key "$KEY"
    expect_rc 4
    expect_one_line '256 of 256 rows are not so'
    campaign c.json "geometries.0.tokens=[$tokens]" 'pairs=[["vllm-fa","sglang"]]'
    changed a.json better.json 'for row in rows: row["verdict"] = "EXACT_BYTE"'
    quiet run c.json -o b.json --key "$KEY" --baseline better.json
    expect_rc 4
    expect_one_line '256 rows worse'
    kv diff better.json b.json
    expect_rc 4
    expect_one_line '256 rows worse'
    kv export a.json --junit -o a.xml --trust "$PUB"
    expect_rc 0
    [ "$("$KV_PYTHON" "$KV_ROOT/tests/cli/junit.py" a.xml a.json)" = "257 256 0" ] || fail "the report does not count 256 failures"
}

case_summary_for_machines()
{
    need_key
    campaign c.json 'expect=[{"pairs":"vllm-fa->*","verdict":"EXACT_BYTE","waiver":{"reason":"bug 7","until":"2999-12-31"}},{"pairs":"sglang->*","verdict":"EXACT_TOKEN"}]'
    quiet run c.json -o old.json --key "$KEY" --format json
    expect_rc 4
    cp "$OUT" first.json
    expect_value first.json exit_code 4
    expect_value first.json reasons '["expect"]'
    expect_value first.json certificate old.json
    expect_value first.json campaign.name small
    expect_value first.json body_digest "$(value old.json body_digest)"
    expect_value first.json observed "$(value old.json observed)"
    expect_value first.json expect.rules 2
    expect_value first.json expect.met 0
    expect_value first.json expect.waived 1
    expect_value first.json expect.unmet 1
    expect_value first.json baseline null
    changed old.json better.json 'rows[1]["verdict"] = "EXACT_BYTE"'
    quiet run c.json -o new.json --key "$KEY" --format json --baseline better.json
    expect_rc 4
    cp "$OUT" second.json
    expect_value second.json reasons '["expect", "baseline"]'
    expect_value second.json baseline.counts.worse 1
    expect_value second.json baseline.counts.passes false
    expect_value second.json baseline.worse.0.pair_id 'vllm-fa->sglang'
    campaign c.json
    kv_mpi 2 run c.json -o out.json --key "$KEY" --format json --progress none
    expect_rc 0
    cp "$OUT" third.json
    expect_value third.json exit_code 0
    expect_value third.json reasons '[]'
    expect_value third.json expect null
}
