# shellcheck shell=bash disable=SC2034
# What a Slurm case may call, on top of tests/cli/lib.sh: there $OUT, $ERR, $rc, fail, skip, expect_*, value, once ...
# A case runs in its own folder; the shipped scripts are submitted as they are, and $ERR then holds the jobs' logs.

JOBS=$KV_ROOT/jobs

# submit SBATCH-ARGS...: until the job is over, as a user waits for it; its exit code in rc.
submit()
{
    last="sbatch --wait $*"
    rc=0
    sbatch --wait --parsable "$@" >"$OUT" 2>"$ERR" || rc=$?
    cat ./*.log >>"$ERR" 2>/dev/null
}

# The same in two steps, for what happens in between; looks itself when the job is over, since sbatch --wait looks
# ever more seldom. The job's number in job.
submit_begin()
{
    last="sbatch $*"
    job=$(sbatch --parsable "$@" 2>"$ERR") || fail "sbatch takes no job"
}
submit_end()
{
    local state
    rc=
    wait_for 400 "job $job does not end" job_is_over
    cat ./*.log >"$ERR" 2>/dev/null
    state=$(scontrol show job --oneliner "$job" | grep -oE 'ExitCode=[0-9]+:[0-9]+')
    state=${state#ExitCode=}
    rc=${state%:*}
    [ "$rc" -ne 0 ] || [ "${state#*:}" -eq 0 ] || rc=$((128 + ${state#*:}))
}
resubmit()
{
    submit_begin "$@"
    submit_end
}
job_is_over() { send_on; scontrol show job --oneliner "$job" | grep -qE ' JobState=(COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL|OUT_OF_MEMORY) '; }

# A key with its place said in KVGRID_KEY, made once.
need_job_key()
{
    need_key
    export KVGRID_KEY=$KEY
}

# long_campaign FILE: many small cells, for a signal in the middle.
long_campaign()
{
    campaign "$1" 'name="long"' select= 'pairs="all-ordered"' \
        'geometries=[{"layers":[3],"tokens":[40,64],"kv_heads":[2,4],"head_dim":[8,16],"element":"f16"}]'
}
# The body digest of its uninterrupted run with one rank, made once, without Slurm.
make_long_reference()
{
    long_campaign "$KV_WORK/shared/long.json"
    env -u SLURM_CONF -u KVGRID_FAULT "$KVGRID" run "$KV_WORK/shared/long.json" -o "$KV_WORK/shared/long.cert.json" --key "$KEY" --progress none >"$KV_WORK/shared/long.out" 2>&1
}
expect_long_digest()
{
    once long make_long_reference
    expect_digest "$1" "$(value "$KV_WORK/shared/long.cert.json" body_digest)"
}
# tp_campaign FILE: a small tensor-parallel campaign, and its certificate played.json by one process without Slurm.
tp_campaign()
{
    campaign "$1" 'select=["vllm-fa","sglang"]' pairs= \
        'geometries=[{"layers":2,"tokens":19,"kv_heads":[2,4],"head_dim":8,"element":"f16"}]' \
        'tp={"pairs":[["vllm-fa","sglang"]],"sizes":[1,2,4],"sends":["whole","shard"]}'
    env -u SLURM_CONF "$KVGRID" run "$1" -o played.json --key "$KEY" --progress none --tp-emulate >"$OUT" 2>"$ERR" || fail "one process"
}

# expect_digest CERT DIGEST: the certificate verifies and has that body.
expect_digest()
{
    expect_file "$1"
    "$KVGRID" verify "$1" --trust "$PUB" >"$KV_CASE/verify" 2>&1 || fail "verify: $(cat "$KV_CASE/verify")"
    expect_value "$1" body_digest "$2"
}
published_digest()
{
    need_cert >/dev/null
    value "$CERT" body_digest
}

# wait_for SECONDS WHAT COMMAND...
wait_for()
{
    local until=$((SECONDS + $1)) what=$2
    shift 2
    until "$@" 2>/dev/null; do
        [ $SECONDS -lt $until ] || { cat ./*.log >"$ERR" 2>/dev/null; fail "$what"; }
        sleep 0.05
    done
}
holds_text() { grep -qE -- "$1" ./*.log; }

# A long run that stops itself in the middle (in the 60th cell of rank 0), so that what comes meets it there:
#   stops_in_the_middle; submit_begin ...; meet SIGNAL COMMAND...     COMMAND sends the signal; then the run goes on
# Each later start of the job stops there too and is sent on while the job is waited for.
held=
stops_in_the_middle()
{
    grep -aq KVGRID_FAULT "$KVGRID" || skip "this build does not take \$KVGRID_FAULT (KV_FAULTS is off)"
    export KVGRID_FAULT=stop@0:60
}
# The processes of runs in this folder, one a line.
runs_here()
{
    local exe
    find /proc -maxdepth 2 -path '/proc/[0-9]*/exe' -lname "$KVGRID" 2>/dev/null | while IFS= read -r exe; do
        if [ "${exe%exe}cwd" -ef . ]; then echo "${exe//[!0-9]/}"; fi
    done
}
held_run()
{
    for held in $(runs_here); do
        if stopped "$held"; then return 0; fi
    done
    return 1
}
no_run_here() { [ -z "$(runs_here)" ]; }
send_on() { ! held_run || kill -CONT "$held"; }
has_met() { waits_for_it "$held" "$1" || ! stopped "$held"; } # Slurm and mpirun send it on themselves before they end it
meet()
{
    local signal=$1
    shift
    wait_for 250 "no run comes to its middle" held_run
    "$@" || fail "$*"
    wait_for 120 "no $signal comes to the run" has_met "$signal"
    kill -CONT "$held" 2>/dev/null
}

# A job that went back into the queue starts when its old credential has expired, after two minutes; here at once
# (but not in the second in which its first start was ended: that credential counts as ended too).
back_in_queue() { [ "$(squeue -h -o %T -j "$1")" = PENDING ]; }
start_again()
{
    wait_for 300 "job $1 does not go back into the queue" back_in_queue "$1"
    scontrol update "job=$1" starttime=now+2seconds || fail "scontrol update job=$1"
}
