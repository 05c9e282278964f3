# shellcheck shell=bash disable=SC2034,SC2154
# The grid against the numpy oracle, over geometries that break toys.

need_numpy() { "$KV_PYTHON" -c 'import numpy' 2>/dev/null || skip "no numpy for the oracle"; }
oracle() { "$KV_PYTHON" "$KV_ROOT/tests/oracle/oracle.py" "$@"; }

case_the_oracle_itself()
{
    need_numpy
    oracle self || fail "the oracle disagrees with offsets worked out by hand"
}

case_slow_fixed_sample_of_geometries()
{
    need_numpy
    sanitizer_env run
    oracle sweep --kvgrid "$KVGRID" --mpirun "$KV_MPIRUN_TEXT" --ranks 2 || fail "the grid and the oracle disagree"
}

# Padded pages before and behind KV, and in one of two arrays only.
case_pages_in_every_place()
{
    need_numpy
    need_key
    local common='"engine":"t","cite":"t","attention":"gqa","block":4,"page_stride_bytes":512'
    printf '%s\n' "[{\"name\":\"behind\",$common,\"kv\":\"interleaved\",\"k_axes\":[\"KV\",\"H\",\"Tb\",\"Ti\",\"D\"],\"v_axes\":[\"KV\",\"H\",\"Tb\",\"D\",\"Ti\"]}," \
        "{\"name\":\"before\",$common,\"kv\":\"interleaved\",\"k_axes\":[\"Tb\",\"KV\",\"H\",\"Ti\",\"D\"]}," \
        "{\"name\":\"in-k\",$common,\"kv\":\"separate\",\"k_axes\":[\"Tb\",\"Ti\",\"H\",\"D\"],\"v_axes\":[\"T\",\"H\",\"D\"]}," \
        '{"name":"plain","engine":"t","cite":"t","attention":"gqa","kv":"separate","k_axes":["T","H","D"]}]' >pages.json
    printf '%s\n' '{"schema":"kvgrid.campaign/v1","name":"pages","layouts":["pages.json"],"pairs":"all-ordered","tail":["stale","zero"],' \
        '"geometries":[{"layers":2,"tokens":[0,5],"kv_heads":2,"head_dim":8,"element":"f16"}]}' >c.json
    kv run c.json -o pages.cert.json --key "$KEY" --progress none
    expect_rc 0
    oracle check pages.cert.json --layouts pages.json || fail "the grid and the oracle disagree"
}

case_slow_all_geometries()
{
    need_numpy
    [ -n "${KV_FULL-}" ] || skip "all 648 geometries x 132 pairs run with --full only"
    sanitizer_env run
    oracle sweep --all --kvgrid "$KVGRID" --mpirun "$KV_MPIRUN_TEXT" --ranks 2 || fail "the grid and the oracle disagree"
}

# The comparison can fail: one wrong field anywhere in a row is seen.
case_the_oracle_sees_a_wrong_field()
{
    need_numpy
    need_cert
    local change
    for change in rows.3.proof.source_padding_positions=7 rows.9.same_image=true 'rows.20.transformations=["reblock"]' rows.30.native_bytes.dst=1 \
        rows.40.verdict='"NOT_EXACT"' rows.5.proof.roundtrip_diff_positions=5 observed.view_rows=1 bindings.2.is_identity=null \
        bindings.3.native_shapes.k.0=9 'rows.12.proof.logits_digest="00"' rows.7=; do
        "$KV_PYTHON" - "$KV_ROOT" "$CERT" "$change" <<'PY' || fail "edit"
import json, sys
sys.path.insert(0, sys.argv[1] + "/tests/cli")
import doc
cert = json.load(open(sys.argv[2]))
before = json.dumps(cert)
doc.edit(cert, sys.argv[3])
assert json.dumps(cert) != before
json.dump(cert, open("edited.json", "w"))
PY
        ! oracle check edited.json >/dev/null || fail "the oracle does not see $change"
    done
}
