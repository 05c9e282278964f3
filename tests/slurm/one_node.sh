# shellcheck shell=bash disable=SC2034,SC2154
# Cases on a Slurm of one node with two made-up GPUs and task/affinity.

case_sweep_srun()
{
    need_job_key
    submit --ntasks=2 "$JOBS/sweep.sbatch" "$PUBLISHED"
    expect_rc 0
    expect_err '^job [0-9]+ \(kvgrid-sweep\), start 1,'
    expect_err '^versions: slurm'
    expect_err '^kvgrid [0-9.]+'
    expect_err '^ranks: 2, one per core, started by srun'
    expect_err 'srun --mpi=pmix .*--cpu-bind=cores --mem-bind=local'
    expect_err '^sound'
    expect_digest published.cert.json "$(published_digest)"
    expect_value published.cert.json run.ranks 2
    expect_no_file published.cert.json.state
}

case_sweep_mpirun()
{
    need_job_key
    KVGRID_LAUNCH=mpirun submit --ntasks=2 "$JOBS/sweep.sbatch" "$PUBLISHED"
    expect_rc 0
    expect_err '^ranks: 2, one per core, started by mpirun'
    expect_digest published.cert.json "$(published_digest)"
    expect_value published.cert.json run.ranks 2
}

# The number of ranks that nobody said: the CPUs of the job, or its GPUs.
case_ranks_by_default()
{
    need_job_key
    KVGRID_OUT=cpus.json submit --cpus-per-task=2 "$JOBS/sweep.sbatch" "$PUBLISHED"
    expect_rc 0
    expect_value cpus.json run.ranks 2
    KVGRID_OUT=gpus.json KVGRID_ARGS='--device cpu' submit --gpus-per-node=2 "$JOBS/sweep.sbatch" "$PUBLISHED"
    expect_rc 0
    expect_err '^ranks: 2, one per gpu'
    expect_value gpus.json run.ranks 2
}
# GPUs are not quietly left idle.
case_gpus_are_used_or_it_fails()
{
    need_job_key
    submit --gpus-per-node=2 --cpus-per-gpu=1 "$JOBS/sweep.sbatch" "$PUBLISHED"
    [ "$rc" -ne 0 ] || fail "it ran without a device"
    expect_err '--device cuda'
    expect_no_file published.cert.json
}

# USR1 to the batch script, as --signal=B:USR1@120 sends it: saved, queued again, gone on, the same body.
requeue()
{
    need_job_key
    long_campaign long.json
    stops_in_the_middle
    KVGRID_LAUNCH=$1 submit_begin --ntasks=2 "$JOBS/sweep.sbatch" long.json
    expect_no_file long.cert.json
    meet USR1 scancel --batch --signal=USR1 "$job"
    start_again "$job"
    submit_end
    expect_rc 0
    expect_err 'interrupted; back into the queue'
    expect_err "^job $job \(kvgrid-sweep\), start 2,"
    expect_long_digest long.cert.json
    expect_no_file long.cert.json.state
}
case_requeue_srun() { requeue srun; }
waited_job() { job=$(squeue -h -o %A --name=waited) && [ -n "$job" ]; }
# sbatch --wait waits through it, and hands on the exit code of the last start.
case_requeue_and_wait()
{
    local waits
    need_job_key
    long_campaign long.json
    stops_in_the_middle
    submit --ntasks=2 --job-name=waited "$JOBS/sweep.sbatch" long.json &
    waits=$!
    wait_for 120 "no job is called waited" waited_job
    meet USR1 scancel --batch --signal=USR1 "$job"
    start_again "$job"
    while kill -0 $waits 2>/dev/null; do send_on; sleep 0.1; done
    wait $waits || fail "submit"
    grep -q ', start 2,' ./*.log || fail "the job did not start again"
    expect_long_digest long.cert.json
}
case_requeue_mpirun() { requeue mpirun; }

# Slurm's own signal to the steps (scancel without --batch), queued again never: 75, and the next job goes on.
case_signal_to_the_step()
{
    need_job_key
    long_campaign long.json
    stops_in_the_middle
    KVGRID_REQUEUES=0 submit_begin --ntasks=2 "$JOBS/sweep.sbatch" long.json
    meet USR1 scancel --signal=USR1 "$job"
    submit_end
    expect_rc 75
    expect_err 'submit the same job again'
    expect_no_file long.cert.json
    expect_file long.cert.json.state/journal
    resubmit --ntasks=2 "$JOBS/sweep.sbatch" long.json
    expect_rc 0
    expect_long_digest long.cert.json
}

# scancel ends it for good: no certificate, not queued again, and the rows are there for the next job.
case_cancelled_stays_cancelled()
{
    need_job_key
    long_campaign long.json
    stops_in_the_middle
    KVGRID_LAUNCH=mpirun submit_begin --ntasks=2 "$JOBS/sweep.sbatch" long.json
    meet TERM scancel "$job"
    submit_end
    [ "$rc" -ne 0 ] || fail "a cancelled job ended with 0"
    expect_err 'interrupted; finished rows are in'
    ! grep -q 'back into the queue' "$ERR" || fail "a cancelled job was queued again"
    expect_no_file long.cert.json
    wait_for 120 "the run does not end" no_run_here # mpirun may have killed it with its lock
    resubmit --ntasks=1 "$JOBS/sweep.sbatch" long.json
    expect_rc 0
    expect_long_digest long.cert.json
}

# A killed rank ends the job, with an intact journal.
case_killed_rank()
{
    need_job_key
    long_campaign long.json
    stops_in_the_middle
    submit_begin --ntasks=2 "$JOBS/sweep.sbatch" long.json
    meet KILL scancel --signal=KILL "$job.0"
    submit_end
    [ "$rc" -ne 0 ] && [ "$rc" -ne 75 ] || fail "a killed step ended with $rc"
    expect_no_file long.cert.json
    resubmit --ntasks=2 "$JOBS/sweep.sbatch" long.json
    expect_rc 0
    expect_long_digest long.cert.json
}

# The lock of an earlier start of the same job, on a node that is gone, is removed; another job's is respected.
case_lock_of_a_lost_node()
{
    need_job_key
    long_campaign long.json
    stops_in_the_middle
    submit_begin --ntasks=2 "$JOBS/sweep.sbatch" long.json
    meet USR1 scancel --batch --signal=USR1 "$job"
    wait_for 120 "it does not go back into the queue" holds_text 'back into the queue'
    echo 'gone-node 1 1' >long.cert.json.state/lock
    start_again "$job"
    submit_end
    expect_rc 0
    expect_err 'removing the lock'
    expect_long_digest long.cert.json
    mkdir published.cert.json.state
    echo 'gone-node 1 1' >published.cert.json.state/lock
    resubmit --ntasks=1 "$JOBS/sweep.sbatch" "$PUBLISHED"
    [ "$rc" -ne 0 ] || fail "a locked state was used"
    expect_err 'gone-node'
    expect_no_file published.cert.json
}

# srun without PMIx starts worlds of one: refused in words, and no certificate (d11).
case_srun_without_pmix()
{
    need_job_key
    last="srun --mpi=none -n 2 kvgrid run"
    srun --mpi=none -n 2 "$KVGRID" run "$PUBLISHED" -o alone.json --key "$KEY" >"$OUT" 2>"$ERR"
    rc=$?
    expect_rc 5
    expect_err 'launcher started 2 tasks .*but this MPI world has 1 rank'
    expect_no_file alone.json
    KVGRID_SRUN_MPI=none submit --ntasks=2 "$JOBS/sweep.sbatch" "$PUBLISHED"
    expect_rc 5
    expect_err 'launcher started 2 tasks'
    expect_no_file published.cert.json
}

# What is missing is said, with kvgrid's own exit codes, before anything runs. All at once, each in a folder.
refuse()
{
    local dir=$1 code=$2 regex=$3
    shift 3
    (
        mkdir "$dir" && cd "$dir" || exit 1
        KV_CASE=$PWD OUT=$PWD/out ERR=$PWD/err
        submit --ntasks=1 "$@"
        expect_rc "$code"
        expect_err "$regex"
    ) &
    refusals+=($!)
}
# srun may end with 0 though no task could be started: the certificate of an earlier run is not taken for this one's.
case_a_launcher_that_starts_nothing()
{
    need_job_key
    cp "$(need_cert >/dev/null; echo "$CERT")" published.cert.json
    mkdir fake
    printf '#!/bin/sh\nexit 0\n' >fake/srun
    chmod +x fake/srun
    PATH=$PWD/fake:$PATH submit --ntasks=2 "$JOBS/gate.sbatch" "$PUBLISHED"
    expect_rc 5
    expect_err 'srun ended with 0, but no task wrote a certificate; it is started again'
    expect_err 'srun ended with 0, but kvgrid run wrote no certificate'
}
# The next try may start them.
case_a_launcher_that_starts_late()
{
    need_job_key
    mkdir fake
    printf '#!/bin/sh\nmkdir "%s" 2>/dev/null && exit 0\nexec "%s" "$@"\n' "$PWD/tried" "$(command -v srun)" >fake/srun
    chmod +x fake/srun
    PATH=$PWD/fake:$PATH submit --ntasks=2 "$JOBS/gate.sbatch" "$PUBLISHED"
    expect_rc 0
    expect_err 'it is started again'
    expect_digest published.cert.json "$(published_digest)"
}

case_missing_things()
{
    local refusals=() pid
    need_key
    refuse campaign 2 'one campaign file is needed' "$JOBS/sweep.sbatch"
    refuse file 1 'no-such.json: no readable campaign' "$JOBS/sweep.sbatch" no-such.json
    refuse key 1 'kvgrid/key.sec: no readable secret key; make one with' "$JOBS/sweep.sbatch" "$PUBLISHED"
    KVGRID=/no/such/kvgrid refuse program 5 'KVGRID=/no/such/kvgrid: no such program' "$JOBS/sweep.sbatch" "$PUBLISHED"
    KVGRID_LAUNCH=prun refuse launch 2 'KVGRID_LAUNCH=prun: srun or mpirun' "$JOBS/sweep.sbatch" "$PUBLISHED"
    KVGRID_MODULES=openmpi refuse modules 5 'no module command' "$JOBS/sweep.sbatch" "$PUBLISHED"
    KVGRID_HOME=/no/such refuse home 2 'no /no/such/jobs/slurm.sh' "$JOBS/sweep.sbatch" "$PUBLISHED"
    for pid in "${refusals[@]}"; do wait "$pid" || exit 1; done
}

# Parts and their merge, as in the head of array.sbatch, give the body of one run.
case_array_and_merge()
{
    local array
    need_job_key
    array=$(sbatch --parsable --ntasks=1 --array=1-3 "$JOBS/array.sbatch" "$PUBLISHED") || fail "sbatch --array"
    submit "--dependency=afterany:$array" "$JOBS/merge.sbatch" "$PUBLISHED"
    expect_rc 0
    expect_digest published.cert.json "$(published_digest)"
    expect_file published.cert.part-1-of-3.json
    # A lost part is named with what to do, and can be run alone.
    rm published.cert.json published.cert.part-2-of-3.json
    resubmit "$JOBS/merge.sbatch" "$PUBLISHED"
    expect_rc 1
    expect_err 'parts missing: 2 of 3; run them: KVGRID_PARTS=3 sbatch --array=2 '
    KVGRID_PARTS=3 resubmit --ntasks=1 --array=2 "$JOBS/array.sbatch" "$PUBLISHED"
    expect_rc 0
    resubmit "$JOBS/merge.sbatch" "$PUBLISHED"
    expect_rc 0
    expect_digest published.cert.json "$(published_digest)"
    resubmit --ntasks=1 --array=2-3 "$JOBS/array.sbatch" "$PUBLISHED"
    expect_rc 2
    expect_err 'set KVGRID_PARTS'
}

# With more parts than cells some hold none: nothing to do there, and nothing missing.
case_array_with_an_empty_part()
{
    local array
    need_job_key
    campaign pair.json 'pairs=[["vllm-fa","sglang"]]'
    array=$(sbatch --parsable --ntasks=1 --array=1-2 "$JOBS/array.sbatch" pair.json) || fail "sbatch --array"
    submit "--dependency=afterany:$array" "$JOBS/merge.sbatch" pair.json
    expect_rc 0
    expect_value pair.cert.json observed.rows 1
    [ "$(find . -name 'pair.cert.part-?-of-2.json' | wc -l)" -eq 1 ] || fail "not one part"
    grep -q 'of 2 holds no cell of this campaign: nothing to do' kvgrid-part-*.log || fail "the empty part does not say so"
}

# A part that is interrupted goes back into the queue like a sweep.
case_array_requeue()
{
    local part=long.cert.part-2-of-2.json
    need_job_key
    long_campaign long.json
    stops_in_the_middle
    KVGRID_PARTS=2 submit_begin --ntasks=1 --array=2 "$JOBS/array.sbatch" long.json
    meet USR1 scancel --batch --signal=USR1 "${job}_2"
    start_again "${job}_2"
    submit_end
    expect_rc 0
    expect_err 'start 2,'
    expect_file "$part"
    KVGRID_PARTS=2 resubmit --ntasks=1 --array=1 "$JOBS/array.sbatch" long.json
    expect_rc 0
    resubmit "$JOBS/merge.sbatch" long.json
    expect_rc 0
    expect_long_digest long.cert.json
}

case_gate()
{
    need_job_key
    KVGRID_REQUIRE='ranks>=2' KVGRID_BASELINE=$(need_cert >/dev/null; echo "$CERT") KVGRID_JUNIT=junit.xml \
        submit --ntasks=2 "$JOBS/gate.sbatch" "$PUBLISHED"
    expect_rc 0
    expect_digest published.cert.json "$(published_digest)"
    "$KV_PYTHON" -c 'import sys, xml.etree.ElementTree as t; sys.exit(sum(1 for _ in t.parse("junit.xml").iter("testcase")) < 64)' ||
        fail "junit.xml has too few cases"
}
case_gate_too_few_ranks()
{
    need_job_key
    KVGRID_REQUIRE='ranks>=3' submit --ntasks=2 "$JOBS/gate.sbatch" "$PUBLISHED"
    expect_rc 5
    expect_no_file published.cert.json
}
# A pair that was exact and is not any more: 4, and the JUnit report is written all the same.
case_gate_worse_than_the_baseline()
{
    need_job_key
    campaign old.json 'name="gated"' 'geometries=[{"layers":3,"tokens":40,"kv_heads":2,"head_dim":8,"element":"f16"}]'
    sed 's/"element": *"f16"/"element":"f32"/' old.json >new.json
    "$KVGRID" run old.json -o old.cert.json --key "$KEY" --progress none >"$OUT" 2>"$ERR" || fail "the baseline"
    KVGRID_BASELINE=old.cert.json KVGRID_JUNIT=junit.xml submit --ntasks=1 "$JOBS/gate.sbatch" new.json
    expect_rc 4
    expect_file new.cert.json
    expect_file junit.xml
}
# A CI system hears of a time that was too short; the same job again goes on.
case_gate_out_of_time()
{
    need_job_key
    long_campaign long.json
    stops_in_the_middle
    submit_begin --ntasks=2 "$JOBS/gate.sbatch" long.json
    meet USR1 scancel --batch --signal=USR1 "$job"
    submit_end
    expect_rc 75
    expect_no_file long.cert.json
    resubmit --ntasks=2 "$JOBS/gate.sbatch" long.json
    expect_rc 0
    expect_long_digest long.cert.json
}

# ci_gate FILE PATH...: the script that the example for a CI system runs, as a project that holds it would.
ci_gate()
{
    local file=$1
    shift
    need_key
    "$KV_PYTHON" -c 'import yaml' 2>/dev/null || skip "no PyYAML to read $file with"
    "$KV_PYTHON" - "$JOBS/$file" "$@" >gate.sh <<'PY' || fail "$file has no script"
import sys, yaml
node = yaml.safe_load(open(sys.argv[1]))
for key in sys.argv[2:]:
    node = node[int(key)] if isinstance(node, list) else node[key]
print("\n".join(node) if isinstance(node, list) else node)
PY
    ln -s "$KV_ROOT/jobs" "$KV_ROOT/layouts" .
    mkdir -p build/release home
    ln -s "$KVGRID" build/release/kvgrid
    last="the script of $file"
    rc=0
    env -u KVGRID_HOME -u KVGRID HOME="$PWD/home" KVGRID_CI_KEY="$ci_key" KVGRID_CI_PUB="$ci_pub" bash -e gate.sh >"$OUT" 2>"$ERR" || rc=$?
    expect_rc 0
    expect_digest published.cert.json "$(published_digest)"
    expect_file kvgrid.junit.xml
    [ -z "$(ls -A home/kvgrid-ci-key.* 2>/dev/null)" ] || fail "a key was left behind"
}
# GitLab hands over names of files, GitHub what is in them.
case_gitlab_example()
{
    local ci_key=$KEY ci_pub=$PUB
    ci_gate gitlab-ci.example.yml gate script
}
case_github_example()
{
    local ci_key ci_pub
    need_key
    ci_key=$(cat "$KEY")
    ci_pub=$(cat "$PUB")
    ci_gate github-actions.example.yml jobs slurm steps 2 run
}

# A tensor-parallel campaign with real ranks on CPUs, more ranks than cores: the body of one process that plays them all.
case_tp()
{
    need_job_key
    tp_campaign tp.json
    KVGRID_RANKS=4 KVGRID_TP_REQUIRE='transport=mpi,ranks>=4' submit --ntasks=2 "$JOBS/tp.sbatch" tp.json
    expect_rc 0
    expect_err '^job [0-9]+ \(kvgrid-tp\), start 1,'
    expect_err '--require transport=mpi,ranks>=4'
    expect_err '^sound'
    expect_digest tp.cert.json "$(value played.json body_digest)"
    expect_value tp.cert.json run.ranks 4
    expect_value tp.cert.json run.transports '["mpi"]'
    expect_no_file tp.cert.json.state
    # too few ranks, not refused: UNPROVEN rows, 4, and a certificate
    KVGRID_OUT=few.json KVGRID_TP_REQUIRE='' resubmit --ntasks=2 "$JOBS/tp.sbatch" tp.json
    expect_rc 4
    expect_err 'need up to 4 ranks and there are 2'
    expect_file few.json
}
# By default shards go over NCCL or the job does not begin; the shipped campaign is what is run without a name.
case_tp_needs_gpus()
{
    need_job_key
    submit --ntasks=2 "$JOBS/tp.sbatch"
    expect_rc 5
    expect_err 'run .*/jobs/campaigns/tp.json -o tp.cert.json'
    expect_err 'requires? transport=nccl'
    expect_no_file tp.cert.json
}
