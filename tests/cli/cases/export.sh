# shellcheck shell=bash disable=SC2034,SC2154
# kvgrid export: verified first, then one format.

check_intoto() { "$KV_PYTHON" "$KV_ROOT/tests/certs/check_intoto.py" "$@"; }

# predicate FILE KEY: a value of the statement's predicate as JSON.
predicate()
{
    "$KV_PYTHON" -c 'import base64, json, sys
statement = json.loads(base64.b64decode(json.load(open(sys.argv[1]))["payload"]))
print(json.dumps(statement["predicate"][sys.argv[2]]))' "$1" "$2" || fail "$1 has no $2"
}

checked()
{
    check_intoto "$@"
    case $? in
        0) ;;
        77) exit 77 ;;
        *) fail "the envelope does not hold" ;;
    esac
}

case_intoto_checked_with_openssl()
{
    need_cert
    kv export "$CERT" --intoto -o s.json --key "$KEY" --trust "$PUB"
    expect_rc 0
    expect_no_out
    expect_no_err
    [ "$(predicate s.json result)" = '"PASSED"' ] || fail "result $(predicate s.json result)"
    kv export "$CERT" --intoto --key "$KEY" --trust "$PUB"
    expect_rc 0
    expect_untouched
    expect_same "$OUT" s.json # to stdout, and the same bytes each time
    checked openssl s.json "$CERT" "$PUB"
}

case_slow_intoto_checked_with_securesystemslib()
{
    need_cert
    checked venv "$KV_CASE/venv"
    kv export "$CERT" --intoto -o s.json --key "$KEY" --trust "$PUB"
    expect_rc 0
    "$KV_CASE/venv/bin/python" "$KV_ROOT/tests/certs/check_intoto.py" securesystemslib s.json "$CERT" "$PUB" || fail "securesystemslib refuses it"
}

case_intoto_names_the_subject()
{
    local digest=00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff
    need_key
    campaign c.json 'tail=["stale","zero"]'
    kv run c.json -o c.cert.json --key "$KEY" --subject "a model@sha256:$digest"
    expect_rc 0
    kv export c.cert.json --intoto -o s.json --key "$KEY" --trust "$PUB"
    expect_rc 0
    checked openssl s.json c.cert.json "$PUB"
    "$KV_PYTHON" -c 'import base64, json, sys
statement = json.loads(base64.b64decode(json.load(open("s.json"))["payload"]))
assert statement["subject"] == [{"name": "a model", "digest": {"sha256": sys.argv[1]}}], statement["subject"]
assert "sglang->vllm-fa@L=1,T=17,H=2,D=8,e=f16,tail=zero" in statement["predicate"]["passedTests"], statement' $digest || fail "subject or names"
}

# Nothing is checked at T = 0: sound, exit 4, and no statement may call that a pass.
case_intoto_of_a_certificate_that_is_no_pass()
{
    need_key
    campaign c.json 'geometries.0.tokens=0' 'claims={"words":[],"frontier_codes":[],"checks":["pair"]}'
    kv run c.json -o c.cert.json --key "$KEY"
    kv verify c.cert.json --trust "$PUB"
    expect_rc 4
    kv export c.cert.json --intoto -o s.json --key "$KEY" --trust "$PUB"
    expect_rc 0
    [ "$(predicate s.json result)" = '"WARNED"' ] || fail "result $(predicate s.json result)"
    [ "$(predicate s.json warnedTests)" = '["nothing_checked"]' ] || fail "warned $(predicate s.json warnedTests)"
    checked openssl s.json c.cert.json "$PUB"
}

# A sound certificate with one row that FAILED, one UNPROVEN, one NOT_EXACT without a change of the element type.
case_intoto_says_failed_and_unproven()
{
    local verdict list result
    need_cert
    for verdict in UNPROVEN:warnedTests:WARNED FAILED:failedTests:FAILED NOT_EXACT:failedTests:FAILED; do
        IFS=: read -r verdict list result <<<"$verdict"
        "$KV_PYTHON" - "$KV_ROOT" "$CERT" "$verdict" <<'PY' || fail "the edit of the certificate"
import json, sys
sys.path.insert(0, sys.argv[1] + "/tests/certs")
import make_cert, mutations
cert, verdict = json.load(open(sys.argv[2])), sys.argv[3]
row = next(r for r in cert["rows"] if r["pair_id"] == "sglang->vllm-fa")
if verdict == "NOT_EXACT":
    row["verdict"] = verdict
    row["observations"]["forward_reproduces_target"] = row["proof"]["gather_agrees"] = False
elif verdict == "FAILED":
    mutations.nothing(row, verdict, "failed", "memory")
    cert["run"]["failures"].append(mutations.failure_of(row))
else:
    mutations.nothing(row, verdict, "index-permutation-exhaustive")
json.dump(make_cert.observe(cert), open("edited.json", "w"))
PY
        "$KV_PYTHON" "$KV_ROOT/tests/cli/doc.py" forge edited.json forged.json "$PUB" forger.pub || fail "forge"
        kv export forged.json --intoto -o s.json --key "$KEY" --trust forger.pub
        expect_rc 0
        [ "$(predicate s.json result)" = "\"$result\"" ] || fail "$verdict: result $(predicate s.json result)"
        [ "$(predicate s.json "$list")" = '["sglang->vllm-fa@L=3,T=40,H=2,D=8,e=f16"]' ] || fail "$verdict: $list $(predicate s.json "$list")"
        checked openssl s.json forged.json "$PUB"
    done
}

case_unsound_certificates_are_not_exported()
{
    need_cert
    kv keygen stranger
    sed 's/"positions_checked":90880/"positions_checked":90881/' "$CERT" >changed.json
    head -c 1000 "$CERT" >torn.json
    refused 3 "changed\.json" H1_SIGNATURE_INVALID -- export changed.json --intoto -o s.json --key "$KEY" --trust "$PUB"
    refused 3 H1_SIGNATURE_INVALID -- export changed.json --intoto --key "$KEY" --trust "$PUB"
    refused 3 H1_SIGNATURE_INVALID -- export "$CERT" --intoto -o s.json --key "$KEY" --trust stranger.pub
    refused 3 H1_SIGNATURE_INVALID -- export "$CERT" --intoto -o s.json --key "$KEY"
    refused 1 "torn\.json" H0_DOCUMENT_UNREADABLE -- export torn.json --intoto -o s.json --key "$KEY" --trust "$PUB"
    refused 1 "gone\.json" -- export gone.json --intoto -o s.json --key "$KEY" --trust "$PUB"
    "$KV_PYTHON" "$KV_ROOT/tests/cli/doc.py" forge "$CERT" forged.json "$PUB" forger.pub 'observed.rows=65' || fail "forge"
    refused 3 H10_COUNTS_DO_NOT_RECOMPUTE -- export forged.json --intoto -o s.json --key "$KEY" --trust forger.pub
}

case_a_format_must_be_named()
{
    need_cert
    refused 2 "--intoto" "in-toto" -- export "$CERT" --key "$KEY" --trust "$PUB"
    refused 2 "one format" -- export "$CERT" --junit --csv --trust "$PUB"
    refused 2 . -- export
    refused 2 "too many" -- export "$CERT" second --intoto
    kv export --help
    expect_rc 0
    expect_no_err
    expect_out 'kvgrid export CERT'
    expect_out '--intoto'
    [ "$(awk '{ if (length($0) > m) m = length($0) } END { print m + 0 }' "$OUT")" -le 120 ] || fail "help lines over 120 columns"
}

case_the_key_and_the_output()
{
    need_cert
    cp "$CERT" mine.json
    refused 1 "gone" -- export mine.json --intoto -o s.json --key gone --trust "$PUB"
    refused 1 "public key|secret key|$(basename "$PUB")" -- export mine.json --intoto -o s.json --key "$PUB" --trust "$PUB"
    refused 5 "no/such/dir" -- export mine.json --intoto -o no/such/dir/s.json --key "$KEY" --trust "$PUB"
    refused 2 "mine\.json" "is the input mine.json and would destroy it" -- export mine.json --intoto -o ./mine.json --key "$KEY" --trust "$PUB"
    kv export mine.json --intoto -o s.json --key "$KEY" --trust "$PUB"
    expect_rc 0
    [ "$(stat -c %a s.json)" = 644 ] || fail "mode $(stat -c %a s.json)"
}

case_intoto_with_a_sealed_key()
{
    need_cert
    KV_ENV=(KVGRID_PASSPHRASE="open sesame")
    kv keygen sealed --seal
    expect_rc 0
    kv export "$CERT" --intoto -o s.json --key sealed --trust "$PUB"
    expect_rc 0
    checked openssl s.json "$CERT" sealed.pub
    KV_ENV=(KVGRID_PASSPHRASE="wrong")
    refused 1 "passphrase" -- export "$CERT" --intoto -o t.json --key sealed --trust "$PUB"
}

# ---- JUnit and CSV ------------------------------------------------------------------------------

junit() { "$KV_PYTHON" "$KV_ROOT/tests/cli/junit.py" "$@" || fail "the JUnit report does not hold"; }

# expect_case REPORT NAME CLASS-END REGEX: what became of a case.
expect_case() { junit "$1" case "$2" "$3" | tr '\n' ' ' | grep -qE -- "$4" || fail "$2: $(junit "$1" case "$2" "$3" | head -n 1), $4 was expected"; }

case_junit_of_a_pass()
{
    need_cert
    kv export "$CERT" --junit -o r.xml --trust "$PUB"
    expect_rc 0
    expect_no_out
    expect_no_err
    [ "$(junit r.xml "$CERT")" = "64 0 0" ] || fail "counts $(junit r.xml "$CERT")"
    kv export "$CERT" --junit --trust "$PUB"
    expect_rc 0
    expect_untouched
    expect_same "$OUT" r.xml
    if command -v xmllint >/dev/null 2>&1; then xmllint --noout r.xml || fail "xmllint"; fi
}

case_junit_of_what_was_expected()
{
    need_key
    campaign c.json 'geometries.0.tokens=[17,32]' 'tail=["stale","zero"]' 'select=["sglang","vllm-fa","vllm-fp8"]' \
        'expect=[{"pairs":"vllm-fa->sglang","geometry":{"tokens":17},"verdict":"EXACT_BYTE","waiver":{"reason":"<bug> \"7\" & more","until":"2999-12-31"}},{"pairs":"*->vllm-fp8","verdict":"NOT_EXACT"},{"pairs":"gone->*","verdict":"REFUSED"},{"pairs":"vllm-fp8->sglang","at_least":"EXACT_TOKEN","waiver":{"reason":"old","until":"2001-01-01"}}]'
    kv run c.json -o c.cert.json --key "$KEY" --progress none
    expect_rc 4
    kv export c.cert.json --junit -o r.xml --trust "$PUB"
    expect_rc 0
    [ "$(junit r.xml c.cert.json)" = "28 5 1" ] || fail "counts $(junit r.xml c.cert.json)"
    expect_case r.xml 'vllm-fa->sglang,tail=stale' 'T=17,H=2,D=8,e=f16' '^skipped EXACT_TOKEN .*waived until 2999-12-31: <bug> "7" & more'
    expect_case r.xml 'vllm-fa->sglang,tail=zero' 'T=17,H=2,D=8,e=f16' '^passed'
    expect_case r.xml 'sglang->vllm-fp8,tail=zero' 'T=32,H=2,D=8,e=f16' '^passed'
    expect_case r.xml 'vllm-fp8->vllm-fa,tail=zero' 'T=32,H=2,D=8,e=f16' '^passed' # a conversion; nothing is expected of it
    expect_case r.xml 'vllm-fp8->sglang,tail=zero' 'T=32,H=2,D=8,e=f16' '^failure NOT_EXACT .*at least EXACT_TOKEN\) demands; its waiver ran out after 2001-01-01: old .*forward_reproduces_target: false'
    expect_case r.xml 'expect[2] "gone->*" (REFUSED)' small.expect '^failure ABSENT .*no row fits it'
    expect_case r.xml 'expect[1] "*->vllm-fp8" (NOT_EXACT)' small.expect '^passed'
}

# A sound certificate whose row FAILED, with a text that XML cannot hold; then UNPROVEN; then NOT_EXACT for no reason.
case_junit_says_failed_and_unproven()
{
    local verdict
    need_cert
    for verdict in FAILED UNPROVEN NOT_EXACT; do
        "$KV_PYTHON" - "$KV_ROOT" "$CERT" "$verdict" <<'PY' || fail "the edit of the certificate"
import json, sys
sys.path.insert(0, sys.argv[1] + "/tests/certs")
import make_cert, mutations
cert, verdict = json.load(open(sys.argv[2])), sys.argv[3]
row = next(r for r in cert["rows"] if r["pair_id"] == "sglang->vllm-fa")
if verdict == "NOT_EXACT":
    row["verdict"] = verdict
    row["observations"]["forward_reproduces_target"] = row["proof"]["gather_agrees"] = False
elif verdict == "FAILED":
    mutations.nothing(row, verdict, "failed", "memory")
    cert["run"]["failures"].append(dict(mutations.failure_of(row), text="]]> \ufffe<&\"\U0001f600 end"))
else:
    mutations.nothing(row, verdict, "index-permutation-exhaustive")
json.dump(make_cert.observe(cert), open("edited.json", "w"))
PY
        "$KV_PYTHON" "$KV_ROOT/tests/cli/doc.py" forge edited.json forged.json "$PUB" forger.pub || fail "forge"
        kv export forged.json --junit -o r.xml --trust forger.pub
        expect_rc 0
        [ "$(junit r.xml forged.json)" = "64 1 0" ] || fail "$verdict: counts $(junit r.xml forged.json)"
        expect_case r.xml 'sglang->vllm-fa' 'e=f16' "^failure $verdict "
    done
    expect_case r.xml 'sglang->vllm-fa' 'e=f16' 'without a change of the element type'
}

case_junit_replaces_what_xml_cannot_hold()
{
    need_cert
    "$KV_PYTHON" - "$KV_ROOT" "$CERT" <<'PY' || fail "the edit of the certificate"
import json, sys
sys.path.insert(0, sys.argv[1] + "/tests/certs")
import make_cert, mutations
cert = json.load(open(sys.argv[2]))
row = next(r for r in cert["rows"] if r["pair_id"] == "sglang->vllm-fa")
mutations.nothing(row, "FAILED", "failed", "memory")
cert["run"]["failures"].append(dict(mutations.failure_of(row), text="]]> \ufffe<&\"\U0001f600 end"))
json.dump(make_cert.observe(cert), open("edited.json", "w"))
PY
    "$KV_PYTHON" "$KV_ROOT/tests/cli/doc.py" forge edited.json forged.json "$PUB" forger.pub || fail "forge"
    kv export forged.json --junit -o r.xml --trust forger.pub
    expect_rc 0
    junit r.xml forged.json >/dev/null
    "$KV_PYTHON" -c 'import sys, xml.etree.ElementTree as E
text = next(E.parse(sys.argv[1]).iter("failure")).text
assert "]]> \ufffd<&\"\U0001f600 end" in text, ascii(text)' r.xml || fail "the text of the failure"
}

case_csv_holds_every_row()
{
    need_key
    campaign c.json 'tail=["stale","zero"]' 'select=["sglang","vllm-fa","vllm-fp8","vllm-tp2"]'
    kv run c.json -o c.cert.json --key "$KEY" --progress none
    expect_rc 0
    kv export c.cert.json --csv -o r.csv --trust "$PUB"
    expect_rc 0
    expect_no_out
    "$KV_PYTHON" - <<'PY' || fail "the table is not the certificate"
import csv, json
doc = json.load(open("c.cert.json"))
table = list(csv.DictReader(open("r.csv", newline="")))
assert len(table) == len(doc["rows"]) == 24
def text(v):
    return "" if v is None else str(v).lower() if isinstance(v, bool) else str(v)
for line, row in zip(table, doc["rows"]):
    assert None not in line and None not in line.values()
    geometry = doc["geometries"][row["geometry"]]
    want = {"src": row["src"], "dst": row["dst"], "verdict": row["verdict"], "params": "tail=" + row["params"]["tail"],
            "tokens": geometry["tokens"], "head_dim_v": 8, "frontier_reason": row["frontier_reason"],
            "transformations": " ".join(row["transformations"]), "same_image": row["same_image"],
            "src_native_bytes": row["native_bytes"]["src"], "tokens_identical": row["observations"]["tokens_identical"],
            "positions_checked": row["proof"]["positions_checked"],
            "worst_relative_error_ppm": (row["proof"]["detail"] or {}).get("worst_relative_error_ppm")}
    for key, value in want.items():
        assert line[key] == text(value), (key, line[key], value)
PY
}

case_junit_and_csv_outputs_that_fail()
{
    need_cert
    local format
    for format in --junit --csv; do
        refused 5 "no/such/dir" -- export "$CERT" $format -o no/such/dir/r --trust "$PUB"
        refused 5 "directory" -- export "$CERT" $format -o . --trust "$PUB"
        refused 3 H1_SIGNATURE_INVALID -- export "$CERT" $format -o r
        last="export $format >/dev/full"
        "$KVGRID" export "$CERT" $format --trust "$PUB" >/dev/full 2>"$ERR"
        rc=$?
        expect_rc 5
        expect_one_line "standard output"
        [ -e full ] || { [ "$(id -u)" -eq 0 ] && mkdir full && mount -t tmpfs -o size=4k tmpfs full 2>/dev/null; } || continue
        kv export "$CERT" $format -o full/r --trust "$PUB"
        expect_rc 5
        expect_one_line "full/r"
        [ -z "$(ls -A full)" ] || fail "left behind: $(ls -A full)"
        umount full
        rmdir full
    done
}
