# shellcheck shell=bash disable=SC2034,SC2154
# Cases on a Slurm of two nodes, both on this host, with task/none. Here mpirun gives a rank on each node and no
# memory that they share; srun --mpi=pmix cannot work, since both nodes want the same PMIx folder of the host.

case_sweep_mpirun()
{
    need_job_key
    KVGRID_LAUNCH=mpirun submit --nodes=2 --ntasks-per-node=1 "$JOBS/sweep.sbatch" "$PUBLISHED"
    expect_rc 0
    expect_err '^nodes: 2 \(n\[1-2\]\)'
    expect_err '^ranks: 2, one per core, started by mpirun'
    expect_digest published.cert.json "$(published_digest)"
    expect_value published.cert.json run.ranks 2
}

# No --ntasks: a rank for each core of both nodes. Two ranks of one node would use shared memory under names that
# hold the host's name, which both nodes have: they talk over TCP here.
case_ranks_by_default()
{
    need_job_key
    OMPI_MCA_btl=tcp,self KVGRID_LAUNCH=mpirun submit --nodes=2 --cpus-per-task=2 "$JOBS/sweep.sbatch" "$PUBLISHED"
    expect_rc 0
    expect_value published.cert.json run.ranks 4
    expect_digest published.cert.json "$(published_digest)"
}

case_requeue_mpirun()
{
    need_job_key
    long_campaign long.json
    stops_in_the_middle
    KVGRID_LAUNCH=mpirun submit_begin --nodes=2 --ntasks-per-node=1 "$JOBS/sweep.sbatch" long.json
    meet USR1 scancel --batch --signal=USR1 "$job"
    start_again "$job"
    submit_end
    expect_rc 0
    expect_err 'interrupted; back into the queue'
    expect_long_digest long.cert.json
}

case_srun_on_one_of_them()
{
    need_job_key
    submit --nodes=1 --ntasks=2 "$JOBS/sweep.sbatch" "$PUBLISHED"
    expect_rc 0
    expect_err '^ranks: 2, one per core, started by srun'
    ! grep -q -e --cpu-bind "$ERR" || fail "binding was asked for where this Slurm has none"
    expect_digest published.cert.json "$(published_digest)"
}

# What cannot work here ends, and leaves no certificate.
case_srun_over_both()
{
    need_job_key
    submit_begin --nodes=2 --ntasks-per-node=1 "$JOBS/sweep.sbatch" "$PUBLISHED"
    submit_end
    [ "$rc" -ne 0 ] && [ "$rc" -ne 75 ] || fail "it ended with $rc"
    expect_no_file published.cert.json
}

# Shards over two nodes, two ranks on each.
case_tp()
{
    need_job_key
    tp_campaign tp.json
    OMPI_MCA_btl=tcp,self KVGRID_LAUNCH=mpirun KVGRID_RANKS=4 KVGRID_TP_REQUIRE='transport=mpi,ranks>=4' \
        submit --nodes=2 --ntasks-per-node=2 "$JOBS/tp.sbatch" tp.json
    expect_rc 0
    expect_err '^nodes: 2 '
    expect_digest tp.cert.json "$(value played.json body_digest)"
    expect_value tp.cert.json run.ranks 4
}
