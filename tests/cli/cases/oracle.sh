# shellcheck shell=bash disable=SC2034,SC2154
# The grid against the numpy oracle, over geometries that break toys.

need_numpy() { "$KV_PYTHON" -c 'import numpy' 2>/dev/null || skip "no numpy for the oracle"; }
oracle() { "$KV_PYTHON" "$KV_ROOT/tests/oracle/oracle.py" "$@"; }

case_the_oracle_itself()
{
    need_numpy
    oracle self || fail "the oracle disagrees with offsets worked out by hand"
}

case_a_fixed_sample_of_geometries()
{
    need_numpy
    sanitizer_env run
    oracle sweep --kvgrid "$KVGRID" --mpirun "$KV_MPIRUN_TEXT" --ranks 2 || fail "the grid and the oracle disagree"
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
