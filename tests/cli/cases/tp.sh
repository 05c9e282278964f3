# shellcheck shell=bash disable=SC2034,SC2154
# Cells between tensor-parallel sizes: real ranks, one process that plays them, too few of them.

TP_GEOMETRIES='geometries=[{"layers":2,"tokens":19,"kv_heads":[2,3],"head_dim":8,"element":"f16"}]'
TP_SECTION='tp={"pairs":[["vllm-fa","sglang"],["sglang","vllm-fa"],["trtllm","trtllm"]],"sizes":[1,2,4],"pages":{"recipes":["kv1"],"block":8},"pipeline":{"pairs":[["sglang","vllm-fa"]],"splits":[2,[[1],[0]],[[1]]],"sizes":[1,2]},"sends":["whole","shard","chunks"],"chunk":5}'
TP_CAMPAIGN=$KV_WORK/shared/tp.json
TP_CERT=$KV_WORK/shared/tp.cert.json

make_tp()
{
    campaign "$TP_CAMPAIGN" 'select=["vllm-fa","sglang","trtllm"]' pairs= "$TP_GEOMETRIES" "$TP_SECTION"
    kv run "$TP_CAMPAIGN" -o "$TP_CERT" --key "$KEY" --progress none --tp-emulate
    [ "$rc" -eq 0 ] || { cat "$ERR"; return 1; }
}
need_tp()
{
    need_key
    once tp make_tp
}

both_verifiers()
{
    kv verify "$1" --trust "$PUB" "${@:3}"
    expect_rc "$2"
    "$KV_PYTHON" "$KV_ROOT/certs/verify.py" "$1" --trust "$PUB" "${@:3}" >"$OUT" 2>"$ERR"
    rc=$?
    last="verify.py $1"
    [ "$rc" -ne 2 ] || [ "$2" -ne 0 ] || return 0 # no openssl: no fault found
    expect_rc "$2"
}

case_a_process_can_play_all_ranks()
{
    need_tp
    expect_value "$TP_CERT" run.transports '["emulated"]'
    expect_value "$TP_CERT" observed.verdicts.FAILED 0
    expect_value "$TP_CERT" observed.verdicts.UNPROVEN 0
    both_verifiers "$TP_CERT" 0
    kv show "$TP_CERT" 'vllm-fa->sglang'
    expect_rc 0
}

# Bytes of each rank, as its transports counted them: payloads there and back, and the token leg there (sealed pages
# decode from the last payload).
expect_wire()
{
    "$KV_PYTHON" - "$1" "$2" <<'PY' || fail "$1: other bytes on the wire than its rows say"
import json, sys
cert, ranks = json.load(open(sys.argv[1])), int(sys.argv[2])
wire = cert["run"]["wire"]
want = 0
for r in cert["rows"]:
    p, sealed = r["proof"], ":pages" in r["pair_id"]
    if r["check"] == "tp" and p["wire_bytes"] is not None:
        want += (p["gather_payloads"] + (not sealed)) * p["wire_bytes"] + p["gather_payloads"] * p["wire_bytes_back"]
assert [w["rank"] for w in wire] == list(range(ranks)), wire
assert all(w["received"] == w["least"] for w in wire), wire
assert want > 0 and sum(w["sent"] for w in wire) == sum(w["received"] for w in wire) == want, (wire, want)
PY
}

# Other entries than one for each of the four ranks of n4.json: both verifiers name the list.
wire_forged()
{
    TP_CERT=n4.json forged H10 "run.wire=$1"
    expect_out '[$][.]run[.]wire:'
    kv verify forged.json --trust forged.pub
    expect_rc 3
    expect_out '[$][.]run[.]wire:'
}

case_the_body_is_that_of_real_ranks()
{
    local n
    need_tp
    body "$TP_CERT" >emulated.body
    for n in 4 5; do
        kv_mpi $n run "$TP_CAMPAIGN" -o "n$n.json" --key "$KEY" --progress none
        expect_rc 0
        expect_value "n$n.json" run.transports '["mpi"]'
        expect_wire "n$n.json" $n
        both_verifiers "n$n.json" 0
        body "n$n.json" >"n$n.body"
        expect_same "n$n.body" emulated.body
    done
    TP_CERT=n4.json forged H10 'run.wire.0.received=1'
    TP_CERT=n4.json forged H10 'run.wire.2.rank=1'
    TP_CERT=n4.json forged H10 'run.wire.3.sent=1'
    wire_forged '[]'
    wire_forged '[{"rank":0,"sent":0,"received":0,"least":0}]'
    wire_forged "[$(seq -s, -f '{"rank":%.0f,"sent":0,"received":0,"least":0}' 0 4)]"
    # a merged certificate has no such key, whatever it says
    TP_CERT=n4.json forged H10 'run.parts=[]'
    expect_out '[$][.]run[.]wire:'
    # words for what moved the shards that the rest of the run contradicts
    TP_CERT=n4.json forged H10 'run.transports=["nccl"]' 'run.transports_why=["nccl: each of the 4 ranks has a GPU of its own"]'
    expect_out '[$][.]run[.]transports[[]0[]]: expected two ranks whose device is cuda'
    TP_CERT=n4.json forged H10 'run.transports=[]' 'run.transports_why=[]'
    TP_CERT=n4.json forged H0 'run.transports.0="rdma"'
    TP_CERT=n4.json forged H0 'run.transports_why=[3]'
}

case_too_few_ranks_are_told()
{
    need_tp
    kv_mpi 2 run "$TP_CAMPAIGN" -o two.json --key "$KEY" --progress none --state st
    expect_rc 4
    expect_err 'need up to 4 ranks and there are 2'
    both_verifiers two.json 4
    both_verifiers two.json 0 --allow-unproven
    kv run "$TP_CAMPAIGN" -o one.json --key "$KEY" --progress none
    expect_rc 4
    expect_err 'need up to 4 ranks and there are 1'
    expect_value one.json run.transports '[]'
    kv plan "$TP_CAMPAIGN" --ranks 2
    expect_out 'need more than 2 ranks'
    kv plan "$TP_CAMPAIGN" --ranks 4
    ! grep -q 'need more' "$OUT" || fail "plan warns though there are enough ranks"
    # what two ranks left open, four finish
    kv_mpi 4 run "$TP_CAMPAIGN" -o four.json --key "$KEY" --state st
    expect_rc 0
    body "$TP_CERT" >emulated.body
    body four.json >four.body
    expect_same four.body emulated.body
}

case_d1_more_ranks_than_heads()
{
    need_key
    campaign c.json 'select=["lmdeploy-turbomind","trtllm"]' pairs= \
        'geometries=[{"layers":1,"tokens":8,"kv_heads":[4,8],"head_dim":8,"element":"bf16"}]' \
        'tp={"pairs":[["trtllm","trtllm"]],"sizes":[2,4,8]}'
    kv_mpi 8 run c.json -o c.cert.json --key "$KEY" --progress none
    expect_rc 0
    expect_value c.cert.json observed.verdicts.REFUSED 0
    expect_value c.cert.json observed.verdicts.NOT_EXACT 0
    both_verifiers c.cert.json 0
}

# The bytes are token-major inside the page, though declared head-major: equal sizes look right.
case_d2_a_wrong_declaration()
{
    local i verdict
    need_key
    mkdir lay
    cp "$KV_ROOT/layouts/published/trtllm.json" lay/
    sed 's/"trtllm"/"trtllm-token-major"/; s/"Tb", *"KV", *"H", *"Ti", *"D"/"Tb","KV","Ti","H","D"/' \
        lay/trtllm.json >lay/wrong.json
    cat >c.json <<'EOC'
{"schema":"kvgrid.campaign/v1","name":"d2","layouts":["lay"],
 "geometries":[{"layers":1,"tokens":8,"kv_heads":2,"head_dim":8,"element":"f16"}],
 "tp":{"pairs":[["trtllm","trtllm"]],"sizes":[1,2],"stored":{"trtllm":"trtllm-token-major"}}}
EOC
    kv_mpi 2 run c.json -o c.cert.json --key "$KEY" --progress none
    expect_rc 0
    for i in 0 1; do
        verdict=$(value c.cert.json rows.$i.verdict)
        [ "$verdict" = NOT_EXACT ] || fail "unequal sizes of wrongly declared bytes are $verdict"
    done
    both_verifiers c.cert.json 0
}

case_an_interrupted_run_goes_on()
{
    need_tp
    kv_mpi 4 run "$TP_CAMPAIGN" -o part.json --key "$KEY" --state st --time-limit 1 --progress none
    [ "$rc" -eq 75 ] || [ "$rc" -eq 0 ] || fail "exit code $rc"
    kv_mpi 4 run "$TP_CAMPAIGN" -o whole.json --key "$KEY" --state st --progress none
    expect_rc 0
    body "$TP_CERT" >emulated.body
    body whole.json >whole.body
    expect_same whole.body emulated.body
}

# In the middle of a move: no cell of this campaign takes fewer than two ranks, and rank 0 is in all of them.
case_a_lost_rank_ends_the_job()
{
    local fault kind rank limit=60 began
    need_key
    campaign c.json 'select=["vllm-fa","sglang"]' pairs= \
        'geometries=[{"layers":1,"tokens":19,"kv_heads":4,"head_dim":8,"element":"f16"}]' \
        'tp={"pairs":[["vllm-fa","sglang"],["sglang","vllm-fa"]],"sizes":[2,4]}'
    kv run c.json -o whole.json --key "$KEY" --progress none --tp-emulate
    expect_rc 0
    for fault in kill@1:3 hang@0:3; do
        kind=${fault%@*} rank=${fault#*@} rank=${rank%:*}
        KV_ENV=("KVGRID_FAULT=$fault")
        kv_mpi 4 run c.json -o lost.json --key "$KEY" --state "st-$kind$rank" --timeout $limit --progress none
        KV_ENV=()
        [ "$rc" -ne 0 ] || need_faults
        [ ! -e lost.json ] || fail "$fault: there is a certificate"
        if [ "$kind" = kill ]; then expect_err 'rank 1'; else expect_err "no sign of life from rank $rank"; fi
        began=$SECONDS
        kv_mpi 4 run c.json -o after.json --key "$KEY" --state "st-$kind$rank" --progress none
        expect_rc 0
        expect_value after.json body_digest "$(value whole.json body_digest)"
        limit=$((3 + 2 * (SECONDS - began + 1))) # nothing else ends a hang; twice what all of it takes on a machine as loaded as this one
    done
}

# Heads x sizes x layouts, tokens no multiple of a block: whatever exists is exact with the least bytes, all else is X4.
# matrix FILE PAIRS: the campaign
matrix()
{
    campaign "$1" "select=$LOSSLESS" pairs= "tp={\"pairs\":$2,\"sizes\":[1,2,3,4,8]}" \
        'geometries=[{"layers":1,"tokens":37,"kv_heads":[1,2,3,4,8,12],"head_dim":8,"element":"f16"}]'
}
LOSSLESS='["vllm-fa","vllm-paged-x","trtllm","sglang","hf-dynamic-cache","llamacpp","flashinfer-nhd","lmdeploy-turbomind"]'
expect_matrix()
{
    "$KV_PYTHON" - "$1" "$2" <<'PY' || fail "$1: not the matrix that it should be"
import json, sys
cert, pairs = json.load(open(sys.argv[1])), int(sys.argv[2])
there = lambda h, s: h % s == 0 or (s > h and s % h == 0)
seen, sides = {}, (set(), set())
for r in cert["rows"]:
    h, p, q = cert["geometries"][r["geometry"]]["kv_heads"], int(r["params"]["from"]), int(r["params"]["to"])
    seen[h, p, q] = seen.get((h, p, q), 0) + 1
    sides[0].add(r["src"]), sides[1].add(r["dst"])
    if not (there(h, p) and there(h, q)):
        assert (r["verdict"], r["frontier_code"]) == ("REFUSED", "X4_GEOMETRY_UNREPRESENTABLE"), r
        continue
    assert r["verdict"] in ("EXACT_BYTE", "EXACT_TOKEN"), r
    w = r["proof"]
    assert w["wire_minimal"] and w["wire_bytes"] == w["least_wire_bytes"] and w["ranks"] == max(p, q), r
    # a head of 37 tokens, K and V of 8 lanes of 2 bytes, to each rank that holds it there and not here
    holds = lambda s, r: set(range(r * h // s, (r + 1) * h // s)) if s <= h else {r // (s // h)}
    lacks = sum(len(holds(q, r) - (holds(p, r) if r < p else set())) for r in range(q))
    assert w["wire_bytes"] == lacks * 37 * 2 * 8 * 2, (r, lacks)
assert len(sides[0]) == len(sides[1]) == 8 and len(seen) == 6 * 25, (sides, len(seen))
assert all(n in (pairs, pairs - 8) for n in seen.values()), seen
PY
}
case_matrix_of_heads_sizes_and_layouts()
{
    local i list='' names
    need_key
    names=(vllm-fa vllm-paged-x trtllm sglang hf-dynamic-cache llamacpp flashinfer-nhd lmdeploy-turbomind)
    for i in 0 1 2 3 4 5 6 7; do list+=",[\"${names[i]}\",\"${names[(i + 3) % 8]}\"]"; done
    matrix c.json "[${list#,}]"
    kv run c.json -o c.cert.json --key "$KEY" --progress none --tp-emulate
    expect_rc 0
    expect_matrix c.cert.json 8
    both_verifiers c.cert.json 0
}
case_slow_matrix_of_all_pairs()
{
    [ -n "${KV_FULL-}" ] || skip "all pairs of layouts, by one process and by 8 ranks (over a minute), with --full only"
    need_key
    matrix c.json '"all-ordered"'
    kv run c.json -o played.json --key "$KEY" --progress none --tp-emulate
    expect_rc 0
    expect_matrix played.json 64
    both_verifiers played.json 0
    kv_mpi 8 run c.json -o ranks.json --key "$KEY" --progress none
    expect_rc 0
    expect_value ranks.json body_digest "$(value played.json body_digest)"
}

# One rank of a group has no memory, or its device fails, in the middle of a cell: all refuse alike, and go on.
case_a_failure_of_one_rank_is_a_row()
{
    local kind class
    need_tp
    for kind in memory device; do
        KV_ENV=("KVGRID_FAULT=$kind@1:2")
        kv_mpi 4 run "$TP_CAMPAIGN" -o "$kind.json" --key "$KEY" --state "st-$kind" --timeout 300 --progress none
        KV_ENV=()
        [ "$rc" -ne 0 ] || need_faults
        expect_rc 5
        expect_err '1 rows FAILED; .*: rank 1: planted: '
        expect_value "$kind.json" observed.verdicts.FAILED 1
        expect_value "$kind.json" observed.verdicts.NOT_EXACT 0
        expect_value "$kind.json" run.failures.0.rank 1
        expect_value "$kind.json" run.failures.0.error_class "$kind"
        kv_mpi 4 run "$TP_CAMPAIGN" -o "after-$kind.json" --key "$KEY" --state "st-$kind" --progress none
        expect_rc 0
        body "$TP_CERT" >emulated.body
        body "after-$kind.json" >after.body
        expect_same after.body emulated.body
    done
}

# NOT_EXACT of several ranks is not believed before other ranks have said so too.
case_an_unexpected_row_is_seen_again_by_other_ranks()
{
    local n
    need_key
    campaign c.json 'select=["vllm-fa","sglang"]' pairs= \
        'geometries=[{"layers":1,"tokens":9,"kv_heads":4,"head_dim":8,"element":"f16"}]' \
        'tp={"pairs":[["vllm-fa","sglang"],["sglang","vllm-fa"]],"sizes":[4]}'
    for n in 4 5; do
        kv_mpi $n run c.json -o right.json --key "$KEY" --cross-check 100
        expect_rc 0
        expect_err '2 cells of several ranks run again on other ranks'
        KV_ENV=(KVGRID_FAULT=wrong@0:1)
        kv_mpi $n run c.json -o wrong.json --key "$KEY"
        KV_ENV=()
        [ "$rc" -ne 0 ] || need_faults
        expect_rc 5
        expect_err '1 cells of several ranks run again on other ranks'
        expect_err 'disagree: that of rank 0 on .* says NOT_EXACT, that of rank 1 on .* says EXACT'
        expect_value wrong.json observed.verdicts.FAILED 1
        expect_value wrong.json run.failures.0.error_class device
    done
}

case_sections_are_read_strictly()
{
    local section
    need_key
    for section in '{}' '{"pairs":"some","sizes":[1]}' '{"pairs":[["vllm-fa","vllm-fa"]],"sizes":[2]}' \
        '{"pairs":"all-ordered","sizes":[0,1]}' '{"pairs":"all-ordered","sizes":[65]}' '{"pairs":"all-ordered","sizes":[2,2]}' \
        '{"pairs":"all-ordered","sizes":[1,2],"sends":["slowly"]}' '{"pairs":"all-ordered","sizes":[2,4],"sends":["shard"]}' \
        '{"pairs":"all-ordered","sizes":[1,2],"chunk":4}' '{"pairs":"all-ordered","sizes":[1,2],"stored":{"vllm-fa":"nothing"}}' \
        '{"pairs":[["vllm-tp2","vllm-fa"]],"sizes":[1,2]}' '{"pairs":"all-ordered","sizes":[1,2],"more":1}' \
        '{"pipeline":{"pairs":"all-ordered","splits":[1,[[0],[0]]]}}' '{"pipeline":{"pairs":"all-ordered","splits":[33],"sizes":[1,2]}}' \
        '{"pages":{"recipes":["fp8"]},"sizes":[1,2]}' '{"pages":{"recipes":["kv1"],"block":12},"sizes":[1,2]}'; do
        campaign c.json 'select=["vllm-fa","sglang","vllm-tp2"]' pairs= "$TP_GEOMETRIES" "tp=$section"
        refused 1 c.json tp -- plan c.json
    done
}

# forged EXPECT EDIT...: an edited certificate, signed anew, is refused by both for that reason.
forged()
{
    local want=$1 code=3
    [ "$1" != H0 ] || code=1
    shift
    "$KV_PYTHON" "$KV_ROOT/tests/cli/doc.py" forge "$TP_CERT" forged.json "$PUB" forged.pub "$@" || fail "forge $*"
    kv verify forged.json --trust forged.pub
    expect_rc $code
    expect_out "$want"
    codes >by-c.codes
    "$KV_PYTHON" "$KV_ROOT/certs/verify.py" forged.json --trust forged.pub >"$OUT" 2>"$ERR"
    rc=$?
    last="verify.py ($*)"
    expect_rc $code
    expect_out "$want"
    codes >by-python.codes
    expect_same by-python.codes by-c.codes
}
# The codes in what a verifier said.
codes()
{
    sed -n 's/^\(H[0-9]*\)_.*/\1/p' "$OUT" | sort -u
}

# rows_like VERDICT SEND [PAIR [STAGES]]: the index of the first row of that verdict (or frontier code), way of sending, pair and
# stages of the source (none: no stages).
rows_like()
{
    "$KV_PYTHON" - "$TP_CERT" "$1" "$2" "${3:-}" "${4:-}" <<'PY'
import json, sys
for i, r in enumerate(json.load(open(sys.argv[1]))["rows"]):
    if (sys.argv[2] in (r["verdict"], r["frontier_code"]) and r["params"]["send"] == sys.argv[3] and r["proof"]["wire_bytes"] != 0
            and sys.argv[4] in r["pair_id"] and sys.argv[5] == r["params"].get("from_stages", "")):
        print(i)
        break
PY
}

case_rows_cannot_be_made_up()
{
    local exact refused x4
    need_tp
    exact=$(rows_like EXACT_TOKEN chunks)
    refused=$(rows_like X2_HEAD_GATHER shard)
    x4=$(rows_like X4_GEOMETRY_UNREPRESENTABLE whole)
    forged H4 "rows.$exact.proof.wire_bytes=1"
    forged H4 "rows.$exact.proof.least_wire_bytes_back=1"
    forged H4 "rows.$exact.proof.wire_minimal=false"
    forged H4 "rows.$exact.proof.rounds=77"
    forged H4 "rows.$exact.proof.ranks=3"
    forged H3 "rows.$exact.proof.ranks=null"
    forged H3 "rows.$exact.proof.kind=\"index-permutation-exhaustive\""
    forged H3 "rows.$exact.proof.wire_bytes="
    forged H4 "rows.$exact.proof.positions_checked=1"
    forged H4 "rows.$exact.native_bytes.src=2"
    forged H5 "rows.$exact.transformations=[]"
    forged H2 "rows.$exact.observations.forward_reproduces_target=false"
    forged H13 "rows.$exact.proof.reference_tokens=[1,2,3,4,5,6,7,8]"
    forged H3 "rows.$refused.proof.witness=null"
    forged H4 "rows.$refused.proof.witness.shard_differs=1"
    forged H4 "rows.$refused.proof.witness.whole_differs=0"
    forged H4 "rows.$refused.proof.witness.heads=4"
    forged H14 "rows.$refused.frontier_code=\"X4_GEOMETRY_UNREPRESENTABLE\""
    forged H3 "rows.$x4.proof.witness={\"heads\":3,\"shard_heads\":1,\"whole_positions\":4,\"whole_differs\":1,\"shard_positions\":2,\"shard_differs\":0}"
    forged H11 "rows.$exact.params.to=\"16\""
    forged H11 "rows.$exact.src=\"nothing\""
    forged H15 "rows.$exact="
    forged H11 'campaign.spec.tp.chunk=6'
    forged H9 'checks.0.passed=false'
    forged H8 "checks.$(("$(value "$TP_CERT" observed.checks)" - 1))="
}

case_rows_of_sealed_pages_cannot_be_made_up()
{
    local exact refused
    need_tp
    exact=$(rows_like EXACT_BYTE chunks kv1:pages)
    refused=$(rows_like X2_HEAD_GATHER shard kv1:pages)
    forged H4 "rows.$exact.proof.wire_bytes=1"
    forged H4 "rows.$exact.proof.rounds=3"
    forged H4 "rows.$exact.native_bytes.dst=2"
    forged H3 "rows.$exact.proof.gather_payloads=5"
    forged H5 "rows.$exact.transformations=[\"page_remap\"]"
    forged H2 "rows.$exact.verdict=\"EXACT_TOKEN\""
    forged H2 "rows.$exact.observations.roundtrip_diff_is_exactly_unread_padding=false"
    forged H13 "rows.$exact.proof.reference_logits_digest=\"$(printf '%064d' 7)\""
    forged H11 "rows.$exact.src=\"kv1:table\""
    forged H4 "rows.$refused.proof.witness.whole_positions=7"
    forged H4 'campaign.spec.tp.pages.block=4'
}

case_rows_between_stages_cannot_be_made_up()
{
    local exact refused
    need_tp
    exact=$(rows_like EXACT_BYTE whole 'sglang->vllm-fa' '[[1],[0]]')
    refused=$(rows_like X4_GEOMETRY_UNREPRESENTABLE whole 'sglang->vllm-fa' '[[1]]')
    expect_value "$TP_CERT" "rows.$exact.params.to_stages" 2
    forged H4 "rows.$exact.proof.wire_bytes=1"
    forged H4 "rows.$exact.proof.ranks=1"
    forged H5 "rows.$exact.transformations=[\"kv_merge\",\"reblock\"]"
    forged H11 "rows.$exact.params.to_stages=\"1\""
    forged H11 "rows.$exact.params.from_stages=\"[[0],[1]]\""
    forged H14 "rows.$refused.frontier_code=\"X2_HEAD_GATHER\""
    forged H15 'campaign.spec.tp.pipeline.splits.0=1'
}

case_bench_measures_two_ranks()
{
    kv_mpi 2 bench --tp --repeat 2 --geometry L=2,T=64,H=2,D=8,e=f16 --format json
    expect_rc 0
    [ "$(grep -o '"pair_id"' "$OUT" | wc -l)" -eq 4 ] || fail "four pairs should be measured"
    kv_mpi 2 bench --tp --repeat 1 --geometry L=2,T=64,H=2,D=8,e=f16 --pairs 'deepseek-mla->sglang'
    expect_rc 1
    expect_err '^kvgrid: nothing to measure: of 1 pairs 1 are left out as refused'
    expect_no_out
    refused 2 'two ranks' -- bench --tp
}

# Long lists of stages are told apart wherever rows are named, and what pages are made of is part of their declaration.
case_long_stages_and_changed_pages_in_a_diff()
{
    need_key
    local block first second
    first=$(seq -s , 0 39) second=$(seq -s , 0 38)
    for block in 4 8; do
        campaign $block.json 'select=["vllm-fa"]' 'pairs=' \
            'geometries=[{"layers":80,"tokens":9,"kv_heads":1,"head_dim":2,"element":"bf16"}]' \
            'tp={"pages":{"recipes":["kv1"],"block":'$block'},"sizes":[1,2],"pipeline":{"pairs":[["vllm-fa","vllm-fa"]],"splits":[2,[['"$first"'],['"$(seq -s , 40 79)"']],[['"$second"'],['"$(seq -s , 39 79)"']]],"sizes":[1]}}'
        kv run $block.json -o $block.cert.json --key "$KEY" --progress none --tp-emulate
        expect_rc 0
    done
    kv diff 4.cert.json 4.cert.json
    expect_rc 0
    expect_out ' 0 worse, 0 better, 0 new, 0 gone; 0 redeclared'
    kv diff 4.cert.json 8.cert.json
    expect_rc 4
    expect_out '^  tp kv1:pages->kv1:pages at .* \[redeclared: tp\.pages\.block\]$'
    kv export 4.cert.json --junit -o names.xml --trust "$PUB"
    expect_rc 0
    [ -z "$(grep -o '<testcase [^>]*' names.xml | sed 's/ time="[^"]*"//' | sort | uniq -d)" ] || fail "two cases share class and name"
}
