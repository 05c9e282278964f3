# shellcheck shell=bash disable=SC2034,SC2154
# --state: the faults of d13, the lock, signals, time limit, full disk, second looks; the body is that of an undisturbed run.

# A campaign of 264 cells of moments each; its certificate is made once for all cases.
SMALL=$KV_WORK/shared/resume.json
WHOLE=$KV_WORK/shared/resume.cert.json
CELLS=264
make_whole()
{
    campaign "$SMALL" 'select=["*"]' 'pairs="all-ordered"' 'geometries=[{"layers":[1,2],"tokens":17,"kv_heads":2,"head_dim":8,"element":"f16"}]'
    kv run "$SMALL" -o "$WHOLE" --key "$KEY" --progress none --state "$KV_WORK/shared/resume.state"
    [ "$rc" -eq 0 ] || { cat "$ERR"; return 1; }
}
# The campaign as c.json, and the state of a run that finished in st.
need_state()
{
    need_key
    once resume make_whole
    cp "$SMALL" c.json
    cp -r "$KV_WORK/shared/resume.state" st
}
# Some rows fewer, as if the run had been killed.
cut_state() { head -n 100 "$KV_WORK/shared/resume.state/journal" >st/journal; }
begin_anew() { rm -rf c.cert.json st; }
begin() { exec "$KVGRID" run c.json -o c.cert.json --key "$KEY" --state st --progress none "$@" >"$OUT" 2>"$ERR" </dev/null; }
again() { kv run c.json -o c.cert.json --key "$KEY" --state st "$@"; }
expect_whole()
{
    again --progress none
    expect_rc 0
    expect_no_err
    expect_value c.cert.json body_digest "$(value "$WHOLE" body_digest)"
    rm c.cert.json
}
# refuses RC REGEX...: the state is not gone on with, and left as it is.
refuses()
{
    local want=$1
    shift
    cp st/journal before.journal
    again --progress none
    expect_rc "$want"
    expect_one_line "$@"
    expect_no_out
    expect_no_file c.cert.json
    expect_same st/journal before.journal
}
# Twelve cells of a tenth of a second, all exact: each rank gets some.
campaign_of_slow_cells()
{
    campaign "$1" 'select=["vllm-fa","sglang","trtllm","llamacpp"]' 'pairs="all-ordered"' 'geometries=[{"layers":1,"tokens":1500,"kv_heads":4,"head_dim":64,"element":"f16"}]'
}
# sum_line TEXT: a journal line with its checksum.
sum_line() { "$KV_PYTHON" -c 'import hashlib, sys; t = sys.argv[1]; print(hashlib.blake2b(t.encode(), digest_size=32).hexdigest()[:16], t)' "$1"; }
# until_stopped PID: it stopped itself, or this build has no planted faults.
until_stopped()
{
    until stopped "$1"; do
        kill -0 "$1" 2>/dev/null || { need_faults; fail "the run ended by itself"; }
        sleep 0.01
    done
}

case_d13_a_last_line_cut()
{
    need_state
    cut_state
    truncate -s -7 st/journal
    expect_whole
    [ "$(wc -l <st/journal)" -eq $((CELLS + 1)) ] || fail "not one line for each row and the head"
    truncate -s 30 st/journal # in the middle of the head
    expect_whole
}

case_d13_b_bad_line_in_the_middle()
{
    need_state
    sed -i '50s/,1,/,0,/' st/journal
    refuses 1 'st/journal: line 50: its checksum is wrong'
    sed -i '50d' st/journal
    expect_whole
    sed -i '1s/v1/v2/' st/journal
    refuses 1 'st/journal: line 1 is not the head of a journal'
}

case_d13_c_failed_runs_again()
{
    local kind
    need_state
    for kind in memory device; do
        cut_state
        KV_ENV=("KVGRID_FAULT=$kind@0:5")
        again --progress none
        KV_ENV=()
        [ "$rc" -ne 0 ] || need_faults
        expect_rc 5
        expect_one_line '1 rows FAILED; the first is [^ ]+->[^ ]+: planted: '
        expect_value c.cert.json run.failures.0.error_class $kind
        expect_whole
    done
}

case_d13_d_doubled_and_conflicting()
{
    local row
    need_state
    sed -n 20p st/journal >>st/journal
    expect_whole
    row=$(sed -n 20p st/journal | cut -d ' ' -f 2-)
    sum_line "${row/,1,/,0,}" >>st/journal
    sed -n 21p st/journal >>st/journal
    refuses 1 "st/journal: line $((CELLS + 3)): cell [0-9]+ \([^ ]+->[^ ]+\) stands twice with different results"
}

case_d13_e_another_campaign()
{
    need_state
    campaign c.json 'select=["*"]' 'pairs="all-ordered"' 'geometries=[{"layers":[1,2],"tokens":18,"kv_heads":2,"head_dim":8,"element":"f16"}]'
    refuses 1 'st/journal: belongs to another campaign'
    # the same campaign, and a layout file that was changed since
    cp -r "$KV_ROOT/layouts/published" lay
    cp "$SMALL" c.json
    "$KV_PYTHON" - <<'PY'
import json
spec = json.load(open("c.json"))
spec["layouts"] = ["lay"]
json.dump(spec, open("c.json", "w"))
layout = json.load(open("lay/sglang.json"))
json.dump(layout | {"notes": "changed"}, open("sglang.json", "w"))
PY
    expect_whole
    mv sglang.json lay/sglang.json
    refuses 1 'belongs to another campaign' 'or a layout was changed'
    kv run "$SMALL" -o p.json --key "$KEY" --state st --part 1/2
    expect_rc 1
    expect_one_line 'belongs to another campaign'
}

case_two_runs_at_once()
{
    local pid
    need_state
    cut_state
    (export KVGRID_FAULT=stop@0:9; begin) &
    pid=$!
    until_stopped "$pid"
    kv run c.json -o other.json --key "$KEY" --state st --progress none
    expect_rc 5
    expect_one_line "st/lock: the state is in use by process $pid on [^ ]+; if that run is gone, remove this file"
    kill -KILL "$pid"
    wait "$pid" 2>/dev/null
    expect_whole # its lock is seen to be nobody's
    expect_no_file st/lock
    echo 'another-host 77 5' >st/lock
    refuses 5 'in use by process 77 on another-host; if that run is gone, remove this file and start again'
    echo rubbish >st/lock
    refuses 5 'locked by a run that does not say who it is; remove the file if no run uses this state'
    rm st/lock
    expect_whole
}

case_signals_end_it_after_the_cell()
{
    local sig pid
    need_state
    for sig in USR1 TERM INT; do
        cut_state
        (trap - INT; export KVGRID_FAULT=stop@0:9; begin) &
        pid=$!
        until_stopped "$pid"
        kill -$sig "$pid"
        kill -CONT "$pid"
        wait "$pid"
        rc=$?
        last="kvgrid run, SIG$sig"
        expect_rc 75
        expect_no_out
        expect_one_line 'interrupted; what is finished stands in st, run again with the same --state'
        expect_no_file c.cert.json
        expect_no_file st/lock
        [ "$(wc -l <st/journal)" -eq 109 ] || fail "$(wc -l <st/journal) lines, the cell in hand was not finished"
        expect_whole
    done
}

case_a_second_signal_stops_at_once()
{
    local pid
    need_state
    cut_state
    (export KVGRID_FAULT=hang@0:9; begin) &
    pid=$!
    until [ "$(wc -l <st/journal)" -ge 108 ]; do sleep 0.01; done
    kill -TERM "$pid"
    sleep 0.3
    kill -0 "$pid" 2>/dev/null || { need_faults; fail "the run ended by itself"; }
    kill -TERM "$pid"
    wait "$pid" 2>/dev/null
    rc=$?
    expect_rc 143
    expect_whole
}

# Before the first cell: here it waits for the passphrase of its key.
case_a_signal_before_the_first_cell()
{
    local pid caught=0
    need_state
    rm -r st
    KV_ENV=(KVGRID_PASSPHRASE=open)
    kv keygen sealed --seal
    KV_ENV=()
    expect_rc 0
    mkfifo pass
    exec 7<>pass
    "$KVGRID" run c.json -o c.cert.json --key sealed --pass-fd 7 --state st --progress none >"$OUT" 2>"$ERR" </dev/null &
    pid=$!
    for _ in $(seq 500); do
        caught=$((0x$(sed -n 's/^SigCgt:[^0-9a-f]*//p' "/proc/$pid/status") >> 9 & 1))
        [ $caught -eq 0 ] || break
        sleep 0.02
    done
    kill -USR2 "$pid"
    kill -USR1 "$pid"
    echo open >&7
    wait "$pid"
    rc=$?
    last='kvgrid run, SIGUSR1 while it gets ready'
    exec 7>&-
    expect_rc 75
    expect_err '^kvgrid: this rank is getting ready$'
    expect_err 'interrupted; what is finished stands in st'
    [ "$(wc -l <st/journal)" -eq 1 ] || fail "cells were run"
    expect_no_file st/lock
}

case_signals_under_mpirun()
{
    local pid victim
    need_key
    campaign_of_slow_cells c.json # so that rank 0 has not done them all before the signal comes
    read -r -a mpirun <<<"$KV_MPIRUN_TEXT"
    sanitizer_env run
    KVGRID_FAULT=stop@1:1 "${mpirun[@]}" -n 2 "$KVGRID" run c.json -o c.cert.json --key "$KEY" --state st --progress none >"$OUT" 2>"$ERR" </dev/null &
    pid=$!
    victim=
    until [ -n "$victim" ]; do
        kill -0 "$pid" 2>/dev/null || { need_faults; fail "the run ended by itself"; }
        for p in $(pgrep -P "$pid"); do if stopped "$p"; then victim=$p; fi; done
        sleep 0.02
    done
    kill -USR1 "$pid"
    until waits_for_it "$victim" USR1; do sleep 0.02; done
    kill -CONT "$victim"
    wait "$pid"
    rc=$?
    last='mpirun -n 2 kvgrid run, SIGUSR1'
    expect_rc 75
    expect_err '^kvgrid: interrupted; what is finished stands in st'
    expect_no_file c.cert.json
    again
    expect_rc 0
    expect_err 'of 12 cells stand in st/journal'
    expect_no_file st/lock
}

case_a_killed_rank_leaves_the_journal()
{
    need_state
    planted kill@1:1 begin_anew kv_mpi 3 run c.json -o c.cert.json --key "$KEY" --state st --progress none --timeout 60
    expect_no_file c.cert.json
    expect_whole
}

# d10, as soon as a rank works at all: on a busy machine the others may leave it few cells.
case_an_error_of_one_rank_names_it_and_the_cell()
{
    need_state
    planted error@2:1 begin_anew kv_mpi 4 run c.json -o c.cert.json --key "$KEY" --state st --progress none --timeout 60
    expect_rc 5
    expect_err 'rank 2 .*cell [0-9]+'
    expect_no_file c.cert.json
    [ "$(wc -l <st/journal)" -ge 1 ] || fail "no journal was kept"
    expect_whole
}

case_a_full_disk_in_the_middle()
{
    need_state
    rm -r st
    last='kvgrid run with a limit of the size of files'
    (ulimit -f 64; begin)
    finish $?
    expect_rc 5
    expect_one_line 'st/journal: cannot be written: File too large; the rows before this one are kept, run again with the same --state'
    expect_no_out
    expect_no_file c.cert.json
    [ -z "$(tail -c 1 st/journal)" ] && [ "$(wc -l <st/journal)" -gt 50 ] || fail "the journal has no whole lines"
    expect_whole
}

# ---- second looks -----------------------------------------------------------------------

case_a_second_look_goes_on_too()
{
    local pid
    need_state
    cut_state
    kv_mpi 2 run c.json -o c.cert.json --key "$KEY" --state st --cross-check 100
    expect_rc 0
    expect_err "$CELLS cells run again on another rank$" # those of the journal too
    [ "$(wc -l <st/journal)" -eq $((2 * CELLS + 1)) ] || fail "not every row was confirmed"
    expect_value c.cert.json body_digest "$(value "$WHOLE" body_digest)"
    head -n $((CELLS + 41)) st/journal >short.journal
    mv short.journal st/journal
    again --cross-check 100
    expect_err "$((CELLS - 40)) cells run again on another rank"
    cut_state
    (export KVGRID_FAULT=stop@0:$((CELLS - 99 + 20)); begin --cross-check 100) & # 165 cells, then looks
    pid=$!
    until_stopped "$pid"
    kill -USR1 "$pid"
    kill -CONT "$pid"
    wait "$pid"
    rc=$?
    last='kvgrid run --cross-check 100, SIGUSR1'
    expect_rc 75
    [ "$(wc -l <st/journal)" -eq $((CELLS + 21)) ] || fail "$(wc -l <st/journal) lines in the journal"
    again --cross-check 100
    expect_rc 0
    expect_err "$((CELLS - 20)) cells run again on another rank"
    expect_value c.cert.json body_digest "$(value "$WHOLE" body_digest)"
}

case_a_second_look_that_disagrees()
{
    need_state
    campaign_of_slow_cells slow.json
    planted wrong@0:1 true kv_mpi 2 run slow.json -o slow.cert.json --key "$KEY" --state slow --progress none
    expect_rc 5
    expect_err '1 rows FAILED; .*: two ranks disagree: rank 0 on [^ ]+ \(cpu\) says NOT_EXACT, rank 1 on [^ ]+ \(cpu\) says EXACT'
    expect_value slow.cert.json observed.verdicts.FAILED 1
    kv run slow.json -o slow.cert.json --key "$KEY" --state slow --progress none # the FAILED cell again
    expect_rc 0
    expect_value slow.cert.json observed.verdicts.FAILED 0
    KV_ENV=("KVGRID_FAULT=wrong@0:13") # the first pair that is not refused
    again --cross-check 100
    KV_ENV=()
    expect_rc 5
    expect_err ': two runs disagree: an earlier one on this state says [A-Z_]+, rank 0 on [^ ]+ \(cpu\) says NOT_EXACT'
    expect_whole
}

# ---- standard descriptors ---------------------------------------------------------------

# Where they are closed no file may get their number: lines meant for people would end in it.
case_closed_descriptors_are_filled()
{
    local pid fd
    need_state
    cut_state
    KVGRID_FAULT=stop@0:9 "$KVGRID" run c.json -o c.cert.json --key "$KEY" --state st <&- >&- 2>&- &
    pid=$!
    until_stopped "$pid"
    for fd in 0 1 2; do
        [ "$(readlink "/proc/$pid/fd/$fd")" = /dev/null ] || fail "descriptor $fd is $(readlink "/proc/$pid/fd/$fd")"
    done
    kill -KILL "$pid"
    wait "$pid" 2>/dev/null
    expect_whole
    "$KVGRID" run c.json -o c.cert.json --key "$KEY" --state st <&- >&- 2>&-
    rc=$?
    last='kvgrid run with all standard descriptors closed'
    expect_rc 5 # the answer went nowhere
    expect_value c.cert.json body_digest "$(value "$WHOLE" body_digest)"
}
