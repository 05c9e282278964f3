# shellcheck shell=bash disable=SC2034,SC2154
# What the verifier refuses, and with which code.

# forged CODE EDIT...: the certificate with these edits, its digest fitted and signed by a key that the caller trusts.
forged()
{
    local code=$1
    shift
    need_cert
    "$KV_PYTHON" "$KV_ROOT/tests/cli/doc.py" forge "$CERT" forged.json "$PUB" forger.pub "$@" || fail "forge"
    kv verify forged.json --trust forger.pub
    if [ "$code" = none ]; then
        expect_rc 0
        return
    fi
    expect_rc 3
    cat "$OUT" "$ERR" >"$KV_CASE/said"
    grep -qE "$code" "$KV_CASE/said" || fail "$code is not said: $(tail -n 3 "$KV_CASE/said")"
}

case_cut_in_half()
{
    need_cert
    head -c $(($(stat -c %s "$CERT") / 2)) "$CERT" >half.json
    kv verify half.json --trust "$PUB"
    expect_rc 1
    cat "$OUT" "$ERR" | grep -q H0_DOCUMENT_UNREADABLE || fail "H0 is not said"
    kv show half.json
    expect_rc 1
    expect_one_line "half\.json"
    expect_untouched
}

case_one_byte_changed()
{
    need_cert
    # 90880 -> 90881: still canonical JSON of the right shape, so only digest and signature can tell.
    sed 's/"positions_checked":90880/"positions_checked":90881/' "$CERT" >changed.json
    ! cmp -s changed.json "$CERT" || fail "nothing was changed"
    kv verify changed.json --trust "$PUB"
    expect_rc 3
    cat "$OUT" "$ERR" | grep -q H1_SIGNATURE_INVALID || fail "H1 is not said"
}

case_any_byte_changed()
{
    need_cert
    local at n
    n=$(stat -c %s "$CERT")
    for at in 0 1 100 $((n / 3)) $((n / 2)) $((n - 200)) $((n - 2)) $((n - 1)); do
        "$KV_PYTHON" -c 'import sys
data = bytearray(open(sys.argv[1], "rb").read())
data[int(sys.argv[2])] ^= 1
open("b.json", "wb").write(data)' "$CERT" "$at"
        kv verify b.json --trust "$PUB"
        [ "$rc" -eq 1 ] || [ "$rc" -eq 3 ] || fail "byte $at changed: exit code $rc"
    done
}

case_unreadable_documents()
{
    need_cert
    local text
    kv verify gone.json --trust "$PUB"
    expect_rc 1
    expect_one_line "gone\.json"
    mkdir dir
    kv verify dir --trust "$PUB"
    expect_rc 1
    for text in '' '{}' '[]' 'null' 'x' '{"schema":"kvgrid.certificate/v9"}'; do
        printf '%s' "$text" >d.json
        kv verify d.json --trust "$PUB"
        expect_rc 1
        kv show d.json
        expect_rc 1
    done
    printf '%s\n' "$(cat "$CERT")" >newline.json # trailing byte
    kv verify newline.json --trust "$PUB"
    expect_rc 1
    "$KV_PYTHON" -c 'import json, sys; json.dump(json.load(open(sys.argv[1])), open("spaced.json", "w"))' "$CERT"
    kv verify spaced.json --trust "$PUB"
    expect_rc 1
    sed 's/^{/{"run":{},/' "$CERT" >twice.json # d14: duplicate key, at the top
    kv verify twice.json --trust "$PUB"
    expect_rc 1
    sed 's/"observed":{/"observed":{"rows":3,/' "$CERT" >twice.json # and further down
    kv verify twice.json --trust "$PUB"
    expect_rc 1
}

case_trust_is_explicit()
{
    need_cert
    kv keygen stranger
    kv verify "$CERT" --trust stranger.pub
    expect_rc 3
    cat "$OUT" "$ERR" | grep -q H1_SIGNATURE_INVALID || fail "H1 is not said"
    kv verify "$CERT"
    expect_rc 3
    cat "$OUT" "$ERR" | grep -q H1_SIGNATURE_INVALID || fail "H1 is not said"
    cat stranger.pub "$PUB" >both.pub
    kv verify "$CERT" --trust both.pub
    expect_rc 0
    refused 1 "gone\.pub" -- verify "$CERT" --trust gone.pub
    refused 1 "$(basename "$CERT")" -- verify "$CERT" --trust "$CERT"
}

case_a_forger_can_sign()
{
    # The forger's hand is steady: unedited, the document verifies under the forger's key.
    forged none
}

case_verdicts_follow_from_observations()
{
    # Row 0 of the published campaign is deepseek-mla->vllm-fa, REFUSED; find others by name.
    local exact byte
    need_cert
    exact=$(row_of 'vllm-fa->sglang')
    byte=$(row_of 'sglang->vllm-fa')
    forged H2_VERDICT_NOT_DERIVED "rows.$exact.verdict=\"EXACT_BYTE\""
    forged H2_VERDICT_NOT_DERIVED "rows.$exact.observations.roundtrip_byte_identical=true"
    forged H2_VERDICT_NOT_DERIVED "rows.$byte.proof.gather_agrees=false"
    forged H2_VERDICT_NOT_DERIVED "rows.$byte.proof.dest_bijective=false"
    forged H2_VERDICT_NOT_DERIVED "rows.$byte.observations.tokens_identical=null"
    forged H2_VERDICT_NOT_DERIVED "rows.$(row_of 'vllm-fa->vllm-fp8').verdict=\"EXACT_TOKEN\""
}

row_of()
{
    "$KV_PYTHON" -c 'import json, sys
print([r["pair_id"] for r in json.load(open(sys.argv[1]))["rows"]].index(sys.argv[2]))' "$CERT" "$1"
}

case_the_whole_space_must_be_checked()
{
    need_cert
    local at
    at=$(row_of 'sglang->vllm-fa')
    forged H4_PROOF_NOT_EXHAUSTIVE "rows.$at.proof.positions_checked=1"
    forged H4_PROOF_NOT_EXHAUSTIVE "rows.$at.proof.positions_checked=1" "rows.$at.proof.positions_total=1"
    forged H4_PROOF_NOT_EXHAUSTIVE "rows.$at.proof.source_positions_checked=1279"
}

case_counts_must_recompute()
{
    forged H10_COUNTS_DO_NOT_RECOMPUTE 'observed.positions_checked=90881'
    forged H10_COUNTS_DO_NOT_RECOMPUTE 'observed.verdicts.EXACT_BYTE=22'
    forged H10_COUNTS_DO_NOT_RECOMPUTE 'observed.rows=65'
}

case_every_cell_has_a_row()
{
    need_cert
    forged H15_CELL_MISSING "rows.$(row_of 'sglang->vllm-fa')="
}

case_wrong_types_are_unreadable()
{
    need_cert
    "$KV_PYTHON" "$KV_ROOT/tests/cli/doc.py" forge "$CERT" forged.json "$PUB" forger.pub 'rows.1.verdict=7' || fail "forge"
    kv verify forged.json --trust forger.pub
    expect_rc 1
    "$KV_PYTHON" "$KV_ROOT/tests/cli/doc.py" forge "$CERT" forged.json "$PUB" forger.pub 'rows.1.extra=7' || fail "forge"
    kv verify forged.json --trust forger.pub
    expect_rc 1
    "$KV_PYTHON" "$KV_ROOT/tests/cli/doc.py" forge "$CERT" forged.json "$PUB" forger.pub 'campaign.spec=' || fail "forge"
    kv verify forged.json --trust forger.pub
    expect_rc 1
}

case_all_faults_are_printed()
{
    need_cert
    "$KV_PYTHON" "$KV_ROOT/tests/cli/doc.py" forge "$CERT" forged.json "$PUB" forger.pub 'observed.rows=65' \
        "rows.$(row_of 'vllm-fa->sglang').verdict=\"EXACT_BYTE\"" || fail "forge"
    kv verify forged.json --trust "$PUB"
    expect_rc 3
    cat "$OUT" "$ERR" >"$KV_CASE/said"
    for code in H1_ H2_ H10_; do grep -q "$code" "$KV_CASE/said" || fail "$code is not said among all faults"; done
}

case_json_answer()
{
    need_cert
    kv verify "$CERT" --trust "$PUB" --format json
    expect_rc 0
    "$KV_PYTHON" -c 'import json, sys; json.load(open(sys.argv[1]))' "$OUT" || fail "not JSON"
}

case_a_part_says_that_it_is_one()
{
    need_key
    kv run "$PUBLISHED" --part 2/3 -o part.json --key "$KEY"
    expect_rc 0
    kv verify part.json --trust "$PUB"
    expect_rc 0
    expect_out 'part 2 of 3 only'
}
