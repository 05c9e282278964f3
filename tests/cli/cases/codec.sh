# shellcheck shell=bash disable=SC2034,SC2154
# codec store, decode, inspect, calibrate on small arrays made here.

G=L=2,T=600,H=2,D=16

# made: array.bf16 (K and V), k.f32 (K alone), queries.f32 in this folder, from python alone and always the same.
made()
{
    "$KV_PYTHON" - <<'PY' || fail "the arrays could not be made"
import array, random

def bf16(values):
    bits = array.array('I')
    bits.frombytes(values.tobytes())
    return array.array('H', [(b + 0x7FFF + ((b >> 16) & 1)) >> 16 for b in bits])

layers, tokens, heads, dim = 2, 600, 2, 16
rnd = random.Random(5)
every, keys = array.array('f'), array.array('f')
for layer in range(layers):
    for half in range(2):
        turn = [[[rnd.gauss(0, 1) for _ in range(dim)] for _ in range(4)] for _ in range(heads)]
        plane = array.array('f')
        for t in range(tokens):
            for h in range(heads):
                z = [rnd.gauss(0, 4 * 0.7 ** a) for a in range(4)]
                plane.extend(2 + 0.2 * rnd.gauss(0, 1) + sum(z[a] * turn[h][a][j] for a in range(4)) for j in range(dim))
        every.extend(plane)
        if half == 0: keys.extend(plane)
open('array.bf16', 'wb').write(bf16(every).tobytes())
open('array.f32', 'wb').write(every.tobytes())
open('k.f32', 'wb').write(keys.tobytes())
queries = array.array('f', [rnd.gauss(0, 0.2 + j / 4) for _ in range(layers * 100 * 4) for j in range(dim)])
open('queries.f32', 'wb').write(queries.tobytes())
PY
}

# stopped REGEX... -- ARGS...: refused in the middle of the work: exit 1, one line, no x.kvc and nothing beside it.
stopped()
{
    local regex=()
    while [ "$1" != -- ]; do regex+=("$1"); shift; done
    shift
    kv "$@"
    expect_rc 1
    expect_one_line "${regex[@]}"
    expect_no_out
    [ -z "$(find . -name 'x.kvc*')" ] || fail "left behind: $(find . -name 'x.kvc*')"
}

# figure LINE_REGEX: the relative L2 error in the last output's line.
figure() { sed -n "s/.*$1: relative L2 \([0-9.]*\),.*/\1/p" "$OUT"; }
below() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a + 0 < b + 0) }' || fail "$1 is not below $2"; }

case_help_of_each_sub_command()
{
    local sub
    kv codec --help
    expect_rc 0
    for sub in store decode inspect calibrate conformance; do expect_out "$sub"; done
    for sub in store decode inspect calibrate conformance; do
        kv codec $sub --help
        expect_rc 0
        expect_no_err
        expect_out "usage: kvgrid codec $sub"
        expect_untouched
        [ "$(awk '{ if (length($0) > m) m = length($0) } END { print m + 0 }' "$OUT")" -le 120 ] || fail "help lines over 120 columns"
        refused 2 "--frobnicate" "kvgrid codec $sub --help" -- codec $sub --frobnicate
        refused 2 "missing" -- codec $sub
    done
    refused 2 "frobnicate" -- codec frobnicate
    refused 2 "sub-command" -- codec
}

case_store_and_decode()
{
    made
    kv codec store array.bf16 a.kvc --geometry $G,e=bf16 --verify
    expect_rc 0
    expect_no_err
    expect_no_colour
    expect_out '^a.kvc: kv1, L=2,T=600,H=2,D=16,e=bf16, solver own$'
    expect_out '^   4 slots, 352 rows of a head in tails$'
    below "$(figure 'verify k')" 0.12
    below "$(figure 'verify v')" 0.25
    below 0.001 "$(figure 'verify k')"
    kv codec decode a.kvc back.bf16
    expect_rc 0
    cmp -s array.bf16 back.bf16 && fail "a lossy store gave every byte back"
    [ "$(stat -c %s array.bf16)" = "$(stat -c %s back.bf16)" ] || fail "another size"
    # The last 88 tokens of each plane stand as they came.
    "$KV_PYTHON" - <<'PY' || fail "the tails are not what was stored"
a, b = open('array.bf16', 'rb').read(), open('back.bf16', 'rb').read()
token, plane = 2 * 16 * 2, 600 * 2 * 16 * 2
for p in range(4):
    tail = slice(p * plane + 512 * token, (p + 1) * plane)
    assert a[tail] == b[tail] and a[p * plane:p * plane + 512 * token] != b[p * plane:p * plane + 512 * token]
PY
    kv codec store array.bf16 again.kvc --geometry $G,e=bf16 --verify --format json
    expect_same a.kvc again.kvc # the same bytes every time
    # What --verify says is true of the array that decode writes, rounded to its type.
    "$KV_PYTHON" - "$OUT" <<'PY' || fail "--verify measured something else"
import array, json, math, sys
def floats(name):
    bits = array.array('H', open(name, 'rb').read())
    return array.array('f', array.array('I', [b << 16 for b in bits]).tobytes())
a, b, plane = floats('array.bf16'), floats('back.bf16'), 600 * 2 * 16
said = json.load(open(sys.argv[1]))
for half, name in enumerate('kv'):
    at = [p * plane + i for p in (half, half + 2) for i in range(plane)]
    off, worst = sum((b[i] - a[i]) ** 2 for i in at), max(abs(b[i] - a[i]) for i in at)
    want = math.sqrt(off / sum(a[i] ** 2 for i in at))
    said_here = said[name]['error']
    assert said_here['relative_l2_ppm'] == math.floor(want * 1e6 + 0.5), (name, said_here, want)
    assert said_here['largest_ppm'] == math.floor(worst * 1e6 + 0.5), (name, said_here, worst)
PY
}

case_sizes_are_those_of_the_file()
{
    made
    local recipe bytes
    for recipe in published-serving published-harness kv1 kv1-shared; do
        kv codec store array.bf16 a.kvc --geometry $G,e=bf16 --recipe $recipe --format json
        expect_rc 0
        cp "$OUT" told.json
        bytes=$(value told.json bytes)
        [ $(($(stat -c %s a.kvc) - bytes)) -gt 48 ] && [ $(($(stat -c %s a.kvc) - bytes)) -lt 1200 ] ||
            fail "$recipe: $bytes bytes, the file has $(stat -c %s a.kvc)"
        [ $(($(value told.json k.bytes) + $(value told.json v.bytes))) -eq "$bytes" ] || fail "$recipe: k and v do not add up"
        expect_value told.json file.recipe $recipe
        kv codec inspect a.kvc
        expect_rc 0
        expect_out "^a.kvc: $recipe,"
        expect_out '^k slots: all [48] are good; [0-9]+ outliers'
        kv codec decode a.kvc back.bf16
        expect_rc 0
    done
}

case_the_published_fault_and_ours()
{
    made
    local published
    kv codec store array.bf16 a.kvc --geometry $G,e=bf16 --recipe published-serving --verify
    published=$(figure 'verify k')
    kv codec store array.bf16 a.kvc --geometry $G,e=bf16 --verify
    below "$(figure 'verify k')" "$(awk -v x="$published" 'BEGIN { print x / 2 }')"
    # Of the same codes the published rule keeps no length for inner_product; with mse it does.
    kv codec store array.bf16 b.kvc --geometry $G,e=bf16 --recipe published-serving --metric mse --verify
    below "$(figure 'verify k')" "$(awk -v x="$published" 'BEGIN { print x / 2 }')"
}

case_one_stream_and_other_types()
{
    made
    kv codec store k.f32 k.kvc --geometry $G,e=f32 --stream k --verify --pca randomized
    expect_rc 0
    expect_out 'solver randomized'
    expect_out '^verify k:'
    ! grep -q '^v:' "$OUT" || fail "there is no V here"
    kv codec decode k.kvc back.f32
    expect_rc 0
    [ "$(stat -c %s k.f32)" = "$(stat -c %s back.f32)" ] || fail "another size"
    kv codec store array.f32 a.kvc --geometry $G,e=f32 --verify --bits 4 --outlier none
    expect_rc 0
    expect_out '4 bits'
    ! grep -q 'outliers above' "$OUT" || fail "outliers were switched off"
    refused 1 "k\.f32: 153600 bytes" "307200" "--stream" -- codec store k.f32 x.kvc --geometry $G,e=f32
}

case_layers_left_alone()
{
    made
    kv codec store array.bf16 a.kvc --geometry $G,e=bf16 --skip-layers 1 --verify
    expect_rc 0
    expect_out '^layers left as they are: 1$'
    expect_out '^   2 slots, 176 rows'
    kv codec decode a.kvc back.bf16
    cmp -s <(tail -c 76800 array.bf16) <(tail -c 76800 back.bf16) || fail "layer 1 is not as it was"
    kv codec store array.bf16 b.kvc --geometry $G,e=bf16 --skip-layers 0,1 --verify
    expect_out '^verify k: relative L2 0\.000000, largest error 0, cosine 1\.000000$'
    refused 2 "skip-layers" "2" "0 to 1" -- codec store array.bf16 x.kvc --geometry $G,e=bf16 --skip-layers 0,2
    refused 2 "skip-layers" -- codec store array.bf16 x.kvc --geometry $G,e=bf16 --skip-layers all
    refused 2 "skip-layers \"1,0,1\": layer 1 is named twice" -- codec store array.bf16 x.kvc --geometry $G,e=bf16 --skip-layers 1,0,1
}

case_shared_bases()
{
    made
    local alone shared
    kv codec store array.bf16 a.kvc --geometry $G,e=bf16
    alone=$(stat -c %s a.kvc)
    kv codec store array.bf16 b.kvc --geometry $G,e=bf16 --recipe kv1-shared --verify
    expect_rc 0
    expect_out '4 shared bases'
    kv codec store array.bf16 c.kvc --geometry $G,e=bf16 --share-basis --verify
    expect_rc 0
    expect_out 'shared bases'
    refused 2 "published" "kv1-shared" -- codec store array.bf16 x.kvc --geometry $G,e=bf16 --recipe published-serving --share-basis
}

case_outliers_that_do_not_fit()
{
    made
    stopped "array\.bf16: layer 0, k, head 0: block 0" "outliers do not fit" "holds 328" "budget" -- \
        codec store array.bf16 x.kvc --geometry $G,e=bf16 --outlier 0.5
    kv codec store array.bf16 x.kvc --geometry $G,e=bf16 --outlier 0.5 --outlier-budget 900000 --stream k
    expect_rc 1 # the array holds V too
    kv codec store k.f32 x.kvc --geometry $G,e=f32 --outlier 0.5 --outlier-budget 900000 --stream k --verify
    expect_rc 0
    below "$(figure 'verify k')" 0.1
    refused 2 "--outlier" "half" -- codec store k.f32 y.kvc --geometry $G,e=f32 --stream k --outlier half
    refused 2 "--outlier" -- codec store k.f32 y.kvc --geometry $G,e=f32 --stream k --outlier -1
    refused 2 "--outlier" "0x10" -- codec store k.f32 y.kvc --geometry $G,e=f32 --stream k --outlier 0x10
    refused 2 "--outlier-budget 0" "none" -- codec store k.f32 y.kvc --geometry $G,e=f32 --stream k --outlier-budget 0
}

case_values_that_are_not_finite()
{
    made
    printf '\200\177' | dd of=array.bf16 bs=1 seek=64 conv=notrunc 2>/dev/null
    stopped "array\.bf16: layer 0, k, head" "block 0" "finite" -- codec store array.bf16 x.kvc --geometry $G,e=bf16
    kv codec store array.bf16 x.kvc --geometry $G,e=bf16 --skip-layers 0 --verify
    expect_rc 0
    expect_out '^verify k: values are not finite'
    expect_one_line '^kvgrid: array\.bf16: 1 value is not finite, stored as it came .* layer 0, k, token 1, head 0, lane 0$'
    # So it is behind the last block: token 599, head 1, lane 5 of K and of V in layer 1.
    made
    printf '\300\177' | dd of=array.bf16 bs=1 seek=$((3 * 38400 - 22)) conv=notrunc 2>/dev/null
    printf '\200\377' | dd of=array.bf16 bs=1 seek=$((4 * 38400 - 22)) conv=notrunc 2>/dev/null
    kv codec store array.bf16 tail.kvc --geometry $G,e=bf16
    expect_rc 0
    expect_one_line '^kvgrid: array\.bf16: 2 values are not finite, stored as they came .* layer 1, k, token 599, head 1, lane 5$'
    kv codec decode tail.kvc back.bf16
    expect_rc 0
    cmp -s <(tail -c 64 array.bf16) <(tail -c 64 back.bf16) || fail "the tail is not what came"
}

case_tables()
{
    made
    kv codec calibrate table k.f32 t.f32 --geometry $G,e=f32 --stream k
    expect_rc 0
    expect_no_err
    [ "$(stat -c %s t.f32)" = 32 ] || fail "8 levels of 4 bytes were expected"
    expect_out '^t.f32: 8 levels after [0-9]+ rounds: -'
    expect_out '^fitted on: 2 blocks, .* -[0-9.]+ %, gain [0-9.]+ dB$'
    expect_out '^kept apart: 2 blocks, .* gain [0-9.]+ dB$'
    kv codec store array.bf16 a.kvc --geometry $G,e=bf16 --table t.f32 --verify
    expect_rc 0
    kv codec calibrate table k.f32 t2.f32 --geometry $G,e=f32 --stream k --bits 2
    expect_rc 0
    kv codec store array.bf16 b.kvc --geometry $G,e=bf16 --table t.f32,t2.f32
    expect_rc 0
    kv codec decode b.kvc back.bf16
    expect_rc 0
    # Each file of the list is an input.
    refused 2 "OUT t\.f32 is the input t\.f32 and would destroy it" -- codec store array.bf16 t.f32 --geometry $G,e=bf16 --table t.f32,t2.f32
    refused 2 "OUT \./t2\.f32 is the input t2\.f32 and would destroy it" -- codec store array.bf16 ./t2.f32 --geometry $G,e=bf16 --table t.f32,t2.f32
    cp t.f32 t,2.f32
    refused 2 "OUT t,2\.f32 is the input t,2\.f32" -- codec store array.bf16 t,2.f32 --geometry $G,e=bf16 --table t,2.f32
    head -c 8 t.f32 >two.f32
    refused 2 "two\.f32" "2 levels" -- codec store array.bf16 x.kvc --geometry $G,e=bf16 --table two.f32
    head -c 12 t.f32 >odd.f32
    refused 1 "odd\.f32" "12 bytes" -- codec store array.bf16 x.kvc --geometry $G,e=bf16 --table odd.f32
    cat <(tail -c 16 t.f32) <(head -c 16 t.f32) >down.f32
    refused 1 "down\.f32" "ascending" -- codec store array.bf16 x.kvc --geometry $G,e=bf16 --table down.f32
    "$KV_PYTHON" -c 'import struct
for name, most in (("huge", 3e38), ("tiny", 1e-40)):
    open(name + ".f32", "wb").write(struct.pack("<8f", *[most * (i - 3.5) / 3.5 for i in range(8)]))'
    refused 1 "huge\.f32: level 0 is -[0-9.]+e\+38" -- codec store array.bf16 x.kvc --geometry $G,e=bf16 --table huge.f32
    refused 1 "tiny\.f32: the largest level is [0-9.]+e-4[01]" -- codec store array.bf16 x.kvc --geometry $G,e=bf16 --table tiny.f32
}

case_a_table_needs_two_blocks()
{
    made
    head -c 32768 k.f32 >one.f32
    refused 2 "one\.f32" "fewer than two" -- codec calibrate table one.f32 t.f32 --geometry L=1,T=512,H=1,D=16,e=f32 --stream k
    refused 2 "--stream" -- codec calibrate table one.f32 t.f32 --geometry L=1,T=512,H=1,D=16,e=f32
    refused 2 "whiten or table" -- codec calibrate both one.f32 t.f32 --geometry L=1,T=512,H=1,D=16,e=f32
}

case_whitening()
{
    made
    kv codec calibrate whiten queries.f32 w.st --geometry L=2,T=100,H=4,D=16,e=f32 --kv-heads 2
    expect_rc 0
    expect_no_err
    expect_out '^layer 1: condition [0-9.]+ [0-9.]+$'
    expect_out '^w.st: factors of 2 layers x 2 kv heads'
    kv codec store array.bf16 a.kvc --geometry $G,e=bf16 --whiten w.st --verify
    expect_rc 0
    expect_out '^layers whose K runs with the identity: none$'
    kv codec decode a.kvc back.bf16 --whiten w.st
    expect_rc 0
    kv codec inspect a.kvc
    expect_out '^K is whitened with factors [0-9a-f]{16}'
    refused 2 "whitening factors" "--whiten" -- codec decode a.kvc x.bf16
    kv codec calibrate whiten queries.f32 other.st --geometry L=2,T=100,H=4,D=16,e=f32 --kv-heads 2
    expect_same w.st other.st
    head -c 25600 queries.f32 >half.f32
    kv codec calibrate whiten half.f32 other.st --geometry L=2,T=50,H=4,D=16,e=f32 --kv-heads 2
    refused 1 "other\.st" "digest" -- codec decode a.kvc x.bf16 --whiten other.st
    kv codec store array.bf16 b.kvc --geometry $G,e=bf16
    refused 2 "without factors" -- codec decode b.kvc x.bf16 --whiten w.st
    refused 1 "w\.st" "F32 \[1, 16, 16\]" -- codec store k.f32 x.kvc --geometry L=4,T=600,H=1,D=16,e=f32 --stream k --whiten w.st
    refused 2 "--kv-heads 3" "4 query heads" -- codec calibrate whiten queries.f32 x.st --geometry L=2,T=100,H=4,D=16,e=f32 --kv-heads 3
    head -c 100 w.st >cut.st
    refused 1 "cut\.st" -- codec store array.bf16 x.kvc --geometry $G,e=bf16 --whiten cut.st
}

case_inputs_and_outputs()
{
    made
    refused 1 "gone" "cannot be opened" -- codec store gone x.kvc --geometry $G,e=bf16
    refused 1 "regular file" -- codec store . x.kvc --geometry $G,e=bf16
    refused 2 "--geometry" -- codec store array.bf16 x.kvc
    refused 2 "fp8_e4m3" -- codec store array.bf16 x.kvc --geometry $G,e=fp8_e4m3
    refused 2 "D=1024" -- codec store array.bf16 x.kvc --geometry L=1,T=1,H=1,D=2000,e=f16
    refused 5 "no/such" -- codec store array.bf16 no/such/x.kvc --geometry $G,e=bf16
    refused 2 "OUT array.bf16 is the input array.bf16" "destroy" -- codec store array.bf16 array.bf16 --geometry $G,e=bf16
    refused 2 "--recipe" "kv2" -- codec store array.bf16 x.kvc --geometry $G,e=bf16 --recipe kv2
    refused 2 "whole bytes" "kv1" -- codec store array.bf16 x.kvc --geometry L=2,T=1200,H=2,D=8,e=bf16 --recipe published-serving
    refused 1 "array.bf16" "no stored cache" -- codec decode array.bf16 x
    refused 1 "array.bf16" "no stored cache" -- codec inspect array.bf16
    kv codec store array.bf16 a.kvc --geometry $G,e=bf16
    refused 2 "OUT a.kvc is the input a.kvc" "destroy" -- codec decode a.kvc a.kvc
    refused 1 "-none/index\.json" -- codec conformance -- -none
    refused 2 "--geometry" -- bench --codec --geometry L=1,T=16,H=1,D=16,e=f16
    refused 2 "--tp" -- bench --codec --tp
    refused 5 "no/such" -- codec decode a.kvc no/such/x
}

# A pipe that nobody writes into is not waited for.
case_pipes_are_no_arrays()
{
    mkfifo pipe
    made
    kv codec store array.bf16 a.kvc --geometry $G,e=bf16
    refused 1 "pipe" "no regular file" -- codec store pipe x.kvc --geometry $G,e=bf16
    refused 1 "pipe" "no regular file" -- codec decode pipe x
    refused 1 "pipe" "no regular file" -- codec inspect pipe
    refused 1 "pipe" "no regular file" -- codec calibrate table pipe x --geometry $G,e=bf16 --stream k
    refused 1 "pipe" "pipe, a file is needed" -- codec store array.bf16 x.kvc --geometry $G,e=bf16 --table pipe
    refused 1 "pipe" "pipe, a file is needed" -- codec store array.bf16 x.kvc --geometry $G,e=bf16 --whiten pipe
    refused 1 "pipe" "pipe, a file is needed" -- verify pipe
    refused 1 "pipe" "pipe, a file is needed" -- plan pipe
}

# Whatever ends it, nothing is left beside the output.
case_nothing_is_left_behind()
{
    local signal tries
    truncate -s 512M zeros.bf16 # [1][2][131072][8][128]: half a minute of work, of which a moment is done
    for signal in INT TERM HUP; do
        env --default-signal=INT "$KVGRID" codec store zeros.bf16 x.kvc --geometry L=1,T=131072,H=8,D=128,e=bf16 >"$OUT" 2>"$ERR" &
        for ((tries = 0; tries < 12000; tries++)); do
            compgen -G 'x.kvc.tmp.*' >/dev/null && break
            kill -0 $! 2>/dev/null || break
            sleep 0.01
        done
        [ -n "$(find . -name 'x.kvc.tmp.*')" ] || fail "it has begun no output"
        kill -$signal $! || fail "it was done before the signal"
        wait $!
        rc=$?
        last="kvgrid codec store, SIG$signal"
        [ "$rc" -gt 128 ] || fail "SIG$signal: exit code $rc"
        [ -z "$(find . -name 'x.kvc*')" ] || fail "left behind: $(find . -name 'x.kvc*')"
    done
    rm zeros.bf16
    made
    kv codec store array.bf16 a.kvc --geometry $G,e=bf16
    (ulimit -f 32 && "$KVGRID" codec store array.bf16 x.kvc --geometry $G,e=bf16 --skip-layers 0,1 >"$OUT" 2>"$ERR")
    finish $?
    expect_rc 5
    expect_one_line 'x\.kvc: cannot be written: File too large'
    (ulimit -f 32 && "$KVGRID" codec decode a.kvc x.kvc >"$OUT" 2>"$ERR")
    finish $?
    expect_rc 5
    expect_one_line 'x\.kvc: cannot be written: File too large'
    [ -z "$(find . -name 'x.kvc*')" ] || fail "left behind: $(find . -name 'x.kvc*')"
}

case_no_tokens_at_all()
{
    : >none
    kv codec store none n.kvc --geometry L=2,T=0,H=2,D=16,e=bf16 --verify
    expect_rc 0
    kv codec decode n.kvc back
    expect_rc 0
    [ -e back ] && [ ! -s back ] || fail "an empty array was expected"
    kv codec inspect n.kvc
    expect_rc 0
}

case_a_damaged_cache()
{
    made
    local at
    kv codec store array.bf16 a.kvc --geometry $G,e=bf16
    for at in 0 9 40 500 20000 $(($(stat -c %s a.kvc) - 1)); do
        cp a.kvc b.kvc
        printf '\001' | dd of=b.kvc bs=1 seek="$at" conv=notrunc 2>/dev/null
        cmp -s a.kvc b.kvc && printf '\002' | dd of=b.kvc bs=1 seek="$at" conv=notrunc 2>/dev/null
        refused 1 "b\.kvc" -- codec decode b.kvc x
        refused 1 "b\.kvc" -- codec inspect b.kvc
    done
    head -c 5000 a.kvc >c.kvc
    refused 1 "c\.kvc" "cut off" -- codec decode c.kvc x
}

case_a_slot_alone()
{
    made
    kv codec store k.f32 a.kvc --geometry $G,e=f32 --stream k
    "$KV_PYTHON" - <<'PY' || fail "no slot was cut out"
import struct
b = open('a.kvc', 'rb').read()
at = 16 + struct.unpack('<Q', b[8:16])[0]
n = 48 + 2 * 8 * 16 + 2 * 16 + 2 * 16 * 8 + 256 + 1024 + 1024 + 512 * 3 + 1024 + 4 * 328
assert b[at:at + 4] == b'KK13' and b[at + n:at + n + 4] == b'KK13'
open('slot', 'wb').write(b[at:at + n])
open('cut', 'wb').write(b[at:at + n - 1])
PY
    kv codec inspect slot
    expect_rc 0
    expect_out '^slot: slot of recipe kv1: 512 rows of 16, 8 directions, 16 centres, 3 bits, mse, rule kv1, seed cafebabe'
    kv codec inspect slot --format json
    expect_rc 0
    cp "$OUT" told.json
    expect_value told.json rows 512
    expect_value told.json budget_ppm 80000
    refused 1 "cut" "bytes" -- codec inspect cut
}

# A folder of one vector that can be worked out by hand: a row of one zero, so that the level below zero is what comes back,
# turned by the first sign of seed 0, which is -. No store takes a table of such levels, a vector may have one.
case_conformance_says_which_field()
{
    mkdir vectors
    "$KV_PYTHON" - <<'PY' || fail "the vector could not be made"
import hashlib, json, struct
level = 1e6
parts = [(1, '<f', 0), (1, '<f', 1), (2, '<e', 0), (2, '<e', 1), (2, '<e', 1), (1, '<2f', -level, level), (3, '<I', 0), (2, '<e', 0),
         (2, '<e', 1), (5, '<B', 0), (3, '<I', 0), (4, '<'), (2, '<'), (1, '<f', level), (1, '<f', 0)]
table, body = b'', b''
for i, (kind, form, *values) in enumerate(parts):
    data = struct.pack(form, *values)
    table += struct.pack('<IIQQ', i + 1, kind, 64 + 24 * len(parts) + len(body), len(data))
    body += data + bytes(-len(data) % 8)
good = b'KKVEC01\0' + struct.pack('<8If5I', 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 1, 0, len(parts), 0) + table + body
open('vectors/a.bin', 'wb').write(good)
for name, section, byte in (('norm', 9, 1), ('seg', 7, 3), ('count', 11, 2)):
    at = struct.unpack_from('<Q', good, 64 + 24 * (section - 1) + 8)[0] + byte
    open(name + '.bin', 'wb').write(good[:at] + bytes([good[at] ^ 1]) + good[at + 1:])
open('vectors/a.slot', 'wb').write(b'KK13' + struct.pack('<5IQ16x3eB2eB', 1, 1, 1, 0, 0, 0, 1, 0, 1, 0, 0, 1, 0))
slot = {'file': 'a.slot', 'outlier_budget_frac': 0.0, 'slot_size': 60, 'offsets': {'residual_block': 59}}
json.dump({'cases': [{'name': 'a', 'file': 'a.bin', 'n': 1, 'sha256': hashlib.sha256(good).hexdigest(), 'slot': slot}, {'name': 'b', 'file': 'b.bin'}]},
          open('vectors/index.json', 'w'))
PY
    cp vectors/a.bin vectors/b.bin
    kv codec conformance vectors
    expect_rc 0
    expect_no_err
    expect_out '^ok a$'
    expect_out '^2 cases, 2 agree, 0 differ in 0 fields; 0 k-means refits, 1 slots, '
    cp norm.bin vectors/a.bin
    kv codec conformance vectors
    expect_rc 4
    expect_no_err
    expect_out '^DIFFERS a file sha256 got [0-9a-f]{64}, want [0-9a-f]{64}'
    expect_out '^DIFFERS a reference norm at 0: got 1 \(0x3c00\), want 1\.25 \(0x3d00\)$'
    expect_out '^ok b$'
    # Beyond every size: compared all the same.
    cp seg.bin vectors/b.bin
    kv codec conformance vectors
    expect_rc 4
    expect_out '^DIFFERS b reference seg_id at 0: got 0, want 16777216$'
    expect_out '^DIFFERS b reference decoded row 0: seg_id 16777216 of 1 centres$'
    cp count.bin vectors/b.bin
    kv codec conformance vectors --format json
    expect_rc 4
    expect_value "$OUT" differing_cases 2
    # What the index says is quoted, tame, and cut at no cost to the answer.
    cp vectors/index.json index.kept
    "$KV_PYTHON" - <<'PY' || fail "the index could not be changed"
import json
index = json.load(open('vectors/index.json'))
index['cases'][0]['sha256'] = 'x' + '\u00e9' * 40
index['cases'][1].update(sha256='\x1b[31m', name='b\x1b')
json.dump(index, open('vectors/index.json', 'w'))
PY
    kv codec conformance vectors --format json
    expect_rc 4
    grep -q '"field":"file sha256","first":"got [0-9a-f]*, want x' "$OUT" || fail "a difference is lost"
    kv codec conformance vectors
    expect_rc 4
    expect_out '^DIFFERS b[?] file sha256 got [0-9a-f]{64}, want [?][[]31m: '
    mv index.kept vectors/index.json
    # A file that cannot be used hides no other case.
    rm vectors/b.bin
    kv codec conformance vectors
    expect_rc 1
    expect_one_line 'vectors/b\.bin: cannot be opened'
    expect_out '^DIFFERS a reference norm '
    expect_out '^DIFFERS b file cannot be used: '
    expect_out '^2 cases, 0 agree, 1 differ in [0-9]+ fields, 1 cannot be used;'
    refused 1 "vectors/a\.bin/index\.json" -- codec conformance vectors/a.bin
}
