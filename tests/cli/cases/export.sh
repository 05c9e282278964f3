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
    refused 2 "mine\.json" "certificate itself" -- export mine.json --intoto -o ./mine.json --key "$KEY" --trust "$PUB"
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
