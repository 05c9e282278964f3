# shellcheck shell=bash disable=SC2034,SC2154
# More than 10,000 rows: they stand in a file beside the certificate.

MANY=$KV_WORK/shared/many.cert.json
many_geometries='geometries=[{"layers":1,"tokens":{"from":1,"to":19},"kv_heads":{"from":1,"to":4},"head_dim":8,"element":"f16"}]'

make_many()
{
    campaign "$KV_WORK/shared/many.json" 'select=["*"]' 'pairs="all-ordered"' "$many_geometries"
    kv_mpi 2 run "$KV_WORK/shared/many.json" -o "$MANY" --key "$KEY" --progress none
    [ "$rc" -eq 0 ] || { cat "$ERR"; return 1; }
}
need_many()
{
    need_key
    once many make_many
}

# copy_many: the certificate and its row file, to be broken, as c.json here.
copy_many()
{
    need_many
    cp "$MANY" c.json
    cp "$MANY.rows" c.json.rows
}

case_rows_stand_beside()
{
    need_many
    expect_value "$MANY" rows '[]'
    expect_value "$MANY" rows_file.count 10032
    expect_value "$MANY" rows_file.bytes "$(stat -c %s "$MANY.rows")"
    [ "$(wc -l <"$MANY.rows")" -eq 10032 ] || fail "not one line a row"
    kv verify "$MANY" --trust "$PUB"
    expect_rc 0
    expect_out '^10032 rows, '
    "$KV_PYTHON" "$KV_ROOT/certs/verify.py" "$MANY" --trust "$PUB" >said || fail "verify.py: $(tail -n 3 said)"
    # few rows stay in the document
    need_cert
    expect_no_file "$CERT.rows"
}

case_everyone_reads_them()
{
    need_many
    kv show "$MANY" --verdict REFUSED --select 'vllm-fa,deepseek-mla'
    expect_rc 0
    expect_out '^152 of 10032 rows'
    kv show "$MANY" 'sglang->vllm-fa' --geometry T=7,H=2 --format json
    expect_rc 0
    [ "$(wc -l <"$OUT")" -eq 1 ] || fail "not one row"
    kv diff "$MANY" "$MANY"
    expect_rc 0
    expect_out '10032 the same'
    kv export --csv "$MANY" --trust "$PUB" -o rows.csv
    expect_rc 0
    [ "$(wc -l <rows.csv)" -eq 10033 ] || fail "not a line for each row"
    kv export --junit "$MANY" --trust "$PUB" -o rows.xml
    expect_rc 0
    [ "$(grep -c '<testcase ' rows.xml)" -eq 10032 ] || fail "not a case for each row"
    kv export --intoto "$MANY" --trust "$PUB" --key "$KEY" -o rows.intoto.json
    expect_rc 0
    [ "$(stat -c %s rows.intoto.json)" -lt 100000 ] || fail "the statement names every row"
}

case_parts_merge_to_the_same_body()
{
    need_many
    local p
    for p in 1 2; do
        kv run "$KV_WORK/shared/many.json" --part $p/2 -o p$p.json --key "$KEY" --progress none
        expect_rc 0
        expect_no_file p$p.json.rows
    done
    kv merge p1.json p2.json -o both.json --key "$KEY" --trust "$PUB"
    expect_rc 0
    expect_same both.json.rows "$MANY.rows"
    [ "$(body both.json)" = "$(body "$MANY")" ] || fail "another body"
    kv run "$KV_WORK/shared/many.json" -o again.json --key "$KEY" --progress none --baseline "$MANY" --state state
    expect_rc 0
    expect_same again.json.rows "$MANY.rows"
    rm again.json again.json.rows
    kv run "$KV_WORK/shared/many.json" -o again.json --key "$KEY" --state state # 3 MB of journal, nothing to do
    expect_rc 0
    expect_err '10032 of 10032 cells stand in'
    expect_same again.json.rows "$MANY.rows"
}

# everyone_refuses RC REGEX: all who read c.json.
everyone_refuses()
{
    local want=$1 regex=$2 how
    kv verify c.json --trust "$PUB"
    expect_rc "$want"
    expect_out "$regex"
    for how in --csv --junit --intoto; do
        kv export $how c.json --trust "$PUB" --key "$KEY" -o answer
        expect_rc "$want"
        expect_no_file answer
    done
    kv merge c.json c.json -o both.json --key "$KEY" --trust "$PUB"
    expect_rc "$want"
    expect_no_file both.json
    kv show c.json
    expect_rc 1
    expect_one_line 'c\.json\.rows'
    kv diff c.json c.json
    expect_rc 1
    expect_one_line 'c\.json\.rows'
    kv run "$KV_WORK/shared/many.json" --baseline c.json -o new.json --key "$KEY"
    expect_rc 1
    expect_one_line 'c\.json\.rows'
    expect_no_file new.json
}

case_missing()
{
    copy_many
    rm c.json.rows
    everyone_refuses 1 H0_DOCUMENT_UNREADABLE
}
case_torn()
{
    copy_many
    head -c 5000000 c.json.rows >half
    mv half c.json.rows
    everyone_refuses 1 H0_DOCUMENT_UNREADABLE
}
case_folder_in_its_place()
{
    copy_many
    rm c.json.rows
    mkdir c.json.rows
    everyone_refuses 1 H0_DOCUMENT_UNREADABLE
}
case_reordered()
{
    copy_many
    { sed -n 2p "$MANY.rows" && sed -n 1p "$MANY.rows" && tail -n +3 "$MANY.rows"; } >c.json.rows
    everyone_refuses 3 'H1_SIGNATURE_INVALID \$\.rows_file\.merkle_root'
}
case_one_digit_changed()
{
    copy_many
    sed '5000,5200s/"positions_checked":\([0-9]\)/"positions_checked":1\1/' "$MANY.rows" >c.json.rows
    everyone_refuses 3 'H1_SIGNATURE_INVALID \$\.rows_file\.merkle_root'
}
case_lines_dropped()
{
    copy_many
    head -n 9000 "$MANY.rows" >c.json.rows
    everyone_refuses 3 'H10_COUNTS_DO_NOT_RECOMPUTE \$\.rows_file\.count'
}

# The limit lowered, in builds with planted faults: small campaigns, parts with row files of their own.
case_lowered_limit()
{
    need_key
    campaign small.json 'select=["*"]' 'pairs="all-ordered"'
    KV_ENV=(KVGRID_ROWS_LIMIT=20)
    kv run small.json -o c.json --key "$KEY"
    expect_rc 0
    [ -e c.json.rows ] || need_faults
    local p
    for p in 1 2 3; do
        kv run small.json --part $p/3 -o p$p.json --key "$KEY"
        expect_rc 0
        expect_file p$p.json.rows
    done
    kv merge p3.json p1.json p2.json -o both.json --key "$KEY" --trust "$PUB"
    expect_rc 0
    expect_same both.json.rows c.json.rows
    [ "$(body both.json)" = "$(body c.json)" ] || fail "another body"
    cp p1.json.rows p2.json.rows
    kv merge p1.json p2.json p3.json -o other.json --key "$KEY" --trust "$PUB"
    expect_rc 3
    expect_one_line 'p2\.json: refused: H1'
}

# Whatever is written in between, nobody meets rows of another run unseen.
case_stale_rows_are_seen()
{
    copy_many
    need_cert
    cp "$MANY.rows" c.json.rows
    "$KV_PYTHON" - c.json <<'PY'
import sys
data = open(sys.argv[1] + ".rows").read().splitlines(True)
data[77] = data[77].replace('"same_image":false', '"same_image":true')
open(sys.argv[1] + ".rows", "w").writelines(data)
PY
    everyone_refuses 3 'H1_SIGNATURE_INVALID \$\.rows_file\.merkle_root'
    # a certificate of few rows does not look at what lies there
    cp "$CERT" few.json
    cp "$MANY.rows" few.json.rows
    kv verify few.json --trust "$PUB"
    expect_rc 0
}
