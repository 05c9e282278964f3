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

# ---- ranks that do not stand on the same ------------------------------------------------

case_ranks_that_are_alike()
{
    need_key
    campaign c.json
    kv_mpi 3 run c.json -o out.json --key "$KEY" --progress none
    expect_rc 0
    expect_no_err
    expect_value out.json run.differences '[]'
}

# In builds with planted faults: one rank of three says that it has another driver.
case_a_rank_with_another_driver()
{
    need_key
    campaign c.json
    KV_ENV=(KVGRID_FAULT_FACT=driver=470.57@1)
    kv_mpi 3 run c.json -o out.json --key "$KEY" --progress none
    KV_ENV=()
    expect_rc 0
    [ "$(value out.json run.differences)" != '[]' ] || need_faults
    expect_one_line 'warning: the ranks differ in driver: "[^"]*" in ranks 0, 2 \([^ ]+\), "470\.57" in rank 1 \([^ ]+\); .*run\.differences'
    expect_value out.json run.differences.0.what driver
    expect_value out.json run.differences.0.values.0.ranks '[0, 2]'
    expect_value out.json run.differences.0.values.1.value 470.57
    expect_value out.json run.differences.0.values.1.ranks '[1]'
    kv verify out.json --trust "$PUB"
    expect_rc 0
    "$KV_PYTHON" "$KV_ROOT/certs/verify.py" out.json --trust "$PUB" >said || fail "verify.py: $(tail -n 3 said)"
    kv run c.json -o alone.json --key "$KEY" --progress none
    [ "$(body out.json)" = "$(body alone.json)" ] || fail "a difference of drivers is in the body"
}

case_parts_of_another_build()
{
    need_key
    campaign c.json
    KV_ENV=(KVGRID_FAULT_FACT=source=old@0)
    kv run c.json --part 1/2 -o p1.json --key "$KEY" --progress none
    expect_rc 0
    KV_ENV=()
    kv run c.json --part 2/2 -o p2.json --key "$KEY" --progress none
    expect_rc 0
    [ "$(value p1.json run.versions.source)" = old ] || need_faults
    kv merge p1.json p2.json -o both.json --key "$KEY" --trust "$PUB"
    expect_rc 0
    expect_one_line 'warning: the parts differ in source: "old" in part 1/2, "[^"]+" in part 2/2; '
    expect_value both.json run.differences.0.values.0.parts '["1/2"]'
    kv verify both.json --trust "$PUB"
    expect_rc 0
}
