# shellcheck shell=bash disable=SC2034,SC2154
# d11: a launcher that says one thing and a world that says another.

wrong_world()
{
    need_key
    campaign c.json
    KV_ENV=("$@")
    refused 5 "4" "1" "launch|world|task|rank" -- run c.json -o out.json --key "$KEY"
    KV_ENV=()
}

case_the_launcher_said_four()
{
    wrong_world SLURM_STEP_NUM_TASKS=4
    wrong_world PMI_SIZE=4
    wrong_world SLURM_NTASKS=4
    wrong_world OMPI_COMM_WORLD_SIZE=4
}

case_only_run_asks()
{
    need_cert
    KV_ENV=(SLURM_STEP_NUM_TASKS=4 PMI_SIZE=4 SLURM_NTASKS=4)
    kv verify "$CERT" --trust "$PUB"
    expect_rc 0
    kv plan "$PUBLISHED"
    expect_rc 0
    kv show "$CERT"
    expect_rc 0
}

case_mpirun_inside_an_allocation()
{
    need_key
    campaign c.json
    KV_ENV=(SLURM_NTASKS=8 SLURM_STEP_NUM_TASKS=8) # of the allocation and its batch step, not of mpirun
    kv_mpi 2 run c.json -o out.json --key "$KEY"
    expect_rc 0
    expect_value out.json run.ranks 2
}

case_a_launcher_that_says_one()
{
    need_key
    campaign c.json
    KV_ENV=(SLURM_STEP_NUM_TASKS=1)
    kv run c.json -o out.json --key "$KEY"
    expect_rc 0
}

case_only_run_and_bench_start_mpi()
{
    need_cert
    local mpi
    mpi=$(ldd "$KVGRID" | grep -o 'libmpi[^ ]*' | head -n 1)
    [ -n "$mpi" ] || skip "the program is not linked with a shared libmpi"
    command -v strace >/dev/null 2>&1 || skip "no strace to see what other commands open"
    strace -f -e trace=execve,socket -o "$KV_CASE/trace" "$KVGRID" plan "$PUBLISHED" >"$OUT" 2>"$ERR"
    [ "$(grep -c execve "$KV_CASE/trace")" -le 1 ] || fail "plan starts other programs"
    ! grep -q 'socket(' "$KV_CASE/trace" || fail "plan opens sockets"
}
