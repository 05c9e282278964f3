# shellcheck shell=bash disable=SC2154
# Sourced by jobs/*.sbatch, never run: what all batch jobs of kvgrid share. docs/slurm.md shows them in use.
#
# Read from the environment; an empty value counts as none:
#   KVGRID            the program (default: kvgrid in PATH, else build/release/kvgrid of KVGRID_HOME)
#   KVGRID_HOME       the kvgrid folder (default: the folder the job was submitted from)
#   KVGRID_KEY        the secret key (default: kvgrid/key.sec in $XDG_CONFIG_HOME, else in ~/.config)
#   KVGRID_TRUST      public keys that may have signed (default: the key's own public half, KEY.pub)
#   KVGRID_OUT        the certificate (default: NAME.cert.json in the folder the job was submitted from)
#   KVGRID_STATE      folder for finished rows (default: beside the certificate, its name and .state)
#   KVGRID_LAUNCH     srun (default) or mpirun: what starts the ranks
#   KVGRID_SRUN_MPI   what srun --mpi= gets (default: pmix)
#   KVGRID_RANKS      number of ranks (default: one per GPU if the job has GPUs, else --ntasks if that was given,
#                     else one per core)
#   KVGRID_BIND       auto (default: ranks to cores, or to the cores near their GPU, where this Slurm can) or none
#   KVGRID_ARGS       more arguments for kvgrid run, separated by blanks
#   KVGRID_MODULES    modules to load first, separated by blanks
#   KVGRID_REQUEUES   how often a job goes back into the queue by itself after a signal (default: 50; 0: never)

job_say() { printf '%s\n' "$*"; }
job_die()
{
    local rc=$1
    shift
    printf 'kvgrid job: %s\n' "$*" >&2
    exit "$rc"
}

job_number()
{
    case $2 in '' | *[!0-9]* | 0?*) job_die 2 "$1=$2: a whole number is needed" ;; esac
}

job_modules()
{
    local -a modules
    [ -n "${KVGRID_MODULES-}" ] || return 0
    read -r -a modules <<<"$KVGRID_MODULES"
    type module >/dev/null 2>&1 || job_die 5 "KVGRID_MODULES is set, but there is no module command on $(hostname)"
    set +u # the module command of many sites uses unset variables
    module load "${modules[@]}" || job_die 5 "module load ${modules[*]} failed"
    set -u
}

job_program()
{
    if [ -n "${KVGRID-}" ]; then
        command -v -- "$KVGRID" >/dev/null 2>&1 || job_die 5 "KVGRID=$KVGRID: no such program on $(hostname)"
    elif command -v kvgrid >/dev/null 2>&1; then
        KVGRID=kvgrid
    elif [ -x "$job_home/build/release/kvgrid" ]; then
        KVGRID=$job_home/build/release/kvgrid
    else
        job_die 5 "no kvgrid in PATH and no $job_home/build/release/kvgrid; build it (docs/slurm.md), or name it with KVGRID"
    fi
    KVGRID=$(command -v -- "$KVGRID")
}

job_key()
{
    job_key=${KVGRID_KEY-}
    [ -n "$job_key" ] || job_key=${XDG_CONFIG_HOME:-${HOME-}/.config}/kvgrid/key.sec
    [ -r "$job_key" ] || job_die 1 "$job_key: no readable secret key; make one with 'kvgrid keygen $job_key', or name it with KVGRID_KEY"
    job_trust=${KVGRID_TRUST:-$job_key.pub}
    [ -r "$job_trust" ] || job_die 1 "$job_trust: no readable public key; name one with KVGRID_TRUST"
}

job_versions()
{
    job_say "job ${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}${SLURM_ARRAY_TASK_ID:+ part $SLURM_ARRAY_TASK_ID} (${SLURM_JOB_NAME-}), start $((${SLURM_RESTART_COUNT:-0} + 1)), $(date -u +%Y-%m-%dT%H:%M:%SZ)"
    job_say "nodes: ${SLURM_JOB_NUM_NODES:-1} (${SLURM_JOB_NODELIST:-$(hostname)}), Linux $(uname -r)"
    job_say "versions: $(sbatch --version)"
    job_say "$(mpirun --version 2>/dev/null | head -n 1 || true)"
    job_say "$("$KVGRID" --version)"
    if command -v nvidia-smi >/dev/null 2>&1; then
        nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | sort | uniq -c || true
    fi
}

# job_start CAMPAIGN: everything a job needs is there, else it ends here and says what is missing.
job_start()
{
    [ -n "${SLURM_JOB_ID-}" ] || job_die 2 "this is a batch job: submit it with sbatch"
    [ $# -eq 1 ] && [ -n "$1" ] || job_die 2 "one campaign file is needed: sbatch [OPTIONS] jobs/NAME.sbatch CAMPAIGN"
    job_campaign=$1
    case ${KVGRID_LAUNCH:=srun} in
        srun | mpirun) ;;
        *) job_die 2 "KVGRID_LAUNCH=$KVGRID_LAUNCH: srun or mpirun" ;;
    esac
    case ${KVGRID_BIND:=auto} in auto | none) ;; *) job_die 2 "KVGRID_BIND=$KVGRID_BIND: auto or none" ;; esac
    job_number KVGRID_REQUEUES "${KVGRID_REQUEUES:=50}"
    job_modules
    job_program
    command -v "$KVGRID_LAUNCH" >/dev/null 2>&1 || job_die 5 "no $KVGRID_LAUNCH on $(hostname)"
    job_versions
    [ -r "$job_campaign" ] && [ -f "$job_campaign" ] || job_die 1 "$job_campaign: no readable campaign file (in $PWD)"
    job_key
    job_out=${KVGRID_OUT:-$(basename -- "$job_campaign" .json).cert.json}
    job_state=${KVGRID_STATE:-$job_out.state}
    read -r -a job_args <<<"${KVGRID_ARGS-}"
}

# job_part_empty I N: part I of N of the campaign has no cell. With many parts of few cells that is to be expected, since a
# cell's number says which part it is in; the other parts are the whole.
job_part_empty()
{
    local said
    said=$("$KVGRID" plan "$job_campaign" --part "$1/$2" 2>&1 >/dev/null) || true
    [[ $said == *"part $1 of $2 holds no cell"* ]]
}

# Adds up a list of Slurm like 16(x2),8: a number for each node.
job_sum()
{
    local part sum=0
    for part in ${1//,/ }; do
        case $part in
            *'(x'*) sum=$((sum + ${part%%'('*} * $(expr "$part" : '.*(x\([0-9]*\))'))) ;;
            *) sum=$((sum + part)) ;;
        esac
    done
    printf '%s' "$sum"
}

# job_ranks: how many, and of which kind.
job_ranks()
{
    local threads cpus
    cpus=$(job_sum "${SLURM_JOB_CPUS_PER_NODE:-1}")
    job_kind=core
    job_per_node=
    if [ "${SLURM_GPUS_ON_NODE:-0}" -gt 0 ]; then
        job_kind=gpu
        job_per_node=$SLURM_GPUS_ON_NODE
        job_n=$((job_per_node * ${SLURM_JOB_NUM_NODES:-1}))
    elif [ -n "${SLURM_NTASKS-}" ]; then
        job_n=$SLURM_NTASKS
    else
        threads=$(LC_ALL=C lscpu 2>/dev/null | sed -n 's/^Thread(s) per core: *//p')
        job_n=$((cpus / ${threads:-1}))
        [ "$job_n" -ge 1 ] || job_n=1
    fi
    if [ -n "${KVGRID_RANKS-}" ]; then
        job_number KVGRID_RANKS "$KVGRID_RANKS"
        [ "$KVGRID_RANKS" -gt 0 ] || job_die 2 "KVGRID_RANKS=0: at least one rank is needed"
        [ "$KVGRID_RANKS" -eq "$job_n" ] || job_per_node=
        job_n=$KVGRID_RANKS
    fi
    # A job that holds GPUs and quietly runs on the CPU wastes them; KVGRID_ARGS may name another device.
    if [ "$job_kind" = gpu ] && [[ " ${KVGRID_ARGS-} " != *" --device"* ]]; then job_args+=(--device cuda); fi
    job_crowded=
    [ "$job_n" -le "$cpus" ] || job_crowded=1
    job_say "ranks: $job_n, one per $job_kind${job_crowded:+ (more than the $cpus CPUs of the job)}, started by $KVGRID_LAUNCH"
}

# What starts the ranks, in job_launcher. Memory is bound too: a rank's pages lie near its core by first touch, and
# --mem-bind=local keeps them there.
job_launcher()
{
    local plugins
    if [ "$KVGRID_LAUNCH" = srun ]; then
        # One task that ends early (killed, out of memory) must not leave the others waiting.
        job_launcher=(srun "--mpi=${KVGRID_SRUN_MPI:-pmix}" "--ntasks=$job_n" --wait=120 --kill-on-bad-exit=0)
        [ -z "$job_per_node" ] || job_launcher+=("--ntasks-per-node=$job_per_node")
        [ -z "$job_crowded" ] || job_launcher+=(--overcommit)
        plugins=$(scontrol show config | sed -n 's/^TaskPlugin *= *//p')
        if [ "$KVGRID_BIND" = auto ] && [ -z "$job_crowded" ] && [[ $plugins == *affinity* || $plugins == *cgroup* ]]; then
            if [ "$job_kind" = gpu ]; then job_launcher+=(--cpu-bind=ldoms --mem-bind=local); else job_launcher+=(--cpu-bind=cores --mem-bind=local); fi
        fi
        return 0
    fi
    job_launcher=(mpirun -n "$job_n")
    [ -z "$job_per_node" ] || job_launcher+=(--map-by "ppr:$job_per_node:node")
    if [ "$(id -u)" -eq 0 ]; then export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; fi
    if [ "$KVGRID_BIND" = none ] || [ -n "$job_crowded" ]; then
        job_launcher+=(--bind-to none)
    elif [ "$job_kind" = gpu ]; then
        job_launcher+=(--bind-to numa:if-supported)
    else
        job_launcher+=(--bind-to core:if-supported)
    fi
    # Slurm counts a slot for each task it was asked for, which may be one a node.
    [ "$job_n" -le "$(job_sum "${SLURM_TASKS_PER_NODE:-1}")" ] || job_launcher+=(--oversubscribe)
}

# On USR1 (#SBATCH --signal=B:USR1@...) the ranks are told to save and end. TERM (scancel, the time limit itself) Slurm
# sends to every process of the job; then the job is over and does not go back into the queue.
job_on_usr1()
{
    job_say "USR1: the ranks finish their cells and save"
    [ -z "$job_pid" ] || kill -USR1 "$job_pid" 2>/dev/null || true
}
job_on_term()
{
    job_over=1
    job_say "TERM: the job ends"
}

# Runs the command in the background, so that a signal is seen at once; its exit code in job_rc.
job_wait()
{
    job_pid='' job_over=''
    trap job_on_usr1 USR1
    trap job_on_term TERM
    "$@" </dev/null &
    job_pid=$!
    while true; do
        job_rc=0
        wait "$job_pid" || job_rc=$?
        # A trap ends wait early, with more than 128, while the command is still there.
        [ "$job_rc" -gt 128 ] && kill -0 "$job_pid" 2>/dev/null || break
    done
    job_pid=''
    trap '' USR1
}

# Which file the certificate is: a run never writes into an old one.
job_certificate() { [ ! -e "$job_out" ] || stat -c '%i %z' -- "$job_out"; }

job_bytes() { [ ! -e "$job_state/journal" ] || stat -c %s -- "$job_state/journal"; }

# A lock that an earlier start of this very job left (its node died) is nobody's: Slurm has ended that start.
job_unlock()
{
    if [ "${SLURM_RESTART_COUNT:-0}" -gt 0 ] && [ -e "$job_state/lock" ] && [ "$(cat -- "$job_state/slurm_job" 2>/dev/null)" = "$SLURM_JOB_ID" ]; then
        job_say "removing the lock that start $SLURM_RESTART_COUNT of this job left in $job_state"
        rm -f -- "$job_state/lock"
    fi
    mkdir -p -- "$job_state" || job_die 5 "$job_state: cannot be made"
    printf '%s\n' "$SLURM_JOB_ID" >"$job_state/slurm_job" || job_die 5 "$job_state: cannot be written"
}

# job_run ARGUMENTS...: kvgrid run with the state; ends the job, or puts it back into the queue, unless there is a
# certificate (exit codes 0, 4, and 5 with FAILED rows, in job_rc).
job_run()
{
    local before certificate start
    job_ranks
    job_launcher
    job_unlock
    before=$(job_bytes)
    certificate=$(job_certificate)
    job_args+=("$@")
    set -- "${job_launcher[@]}" "$KVGRID" run "$job_campaign" -o "$job_out" --key "$job_key" --state "$job_state" "${job_args[@]}"
    job_say "$*"
    for ((start = 1; ; start++)); do
        job_wait "$@"
        # FAILED rows are 5, but there is a certificate that names them. And srun was seen to end with 0 where a busy node
        # started no task ("task launch failed"): an older certificate must not pass for this run's, and another try may do.
        case $job_rc in 0 | 4 | 5) [ "$(job_certificate)" = "$certificate" ] || return 0 ;; esac
        if [ "$job_rc" -ne 0 ] || [ -n "$job_over" ] || [ "$start" -ge 3 ]; then break; fi
        job_say "$KVGRID_LAUNCH ended with 0, but no task wrote a certificate; it is started again"
        sleep $((2 * start))
    done
    [ "$job_rc" -ne 0 ] || job_die 5 "$KVGRID_LAUNCH ended with 0, but kvgrid run wrote no certificate; what it printed stands above"
    if [ -n "$job_over" ] || [ "$job_rc" -eq 75 ]; then job_again "$before"; fi # mpirun has its own code after TERM
    job_die "$job_rc" "kvgrid run ended with $job_rc and wrote no certificate; finished rows are in $job_state"
}

# job_again BYTES: the run was interrupted and its rows are saved. Back into the queue, if that makes sense.
job_again()
{
    local count=${SLURM_RESTART_COUNT:-0}
    local hint="finished rows are in $job_state; submit the same job again to go on"
    [ -z "$job_over" ] || job_die 75 "interrupted; $hint"
    [ "$(job_bytes)" != "$1" ] || job_die 75 "interrupted before one cell was finished, so a longer --time is needed; $hint"
    [ "$count" -lt "$KVGRID_REQUEUES" ] || job_die 75 "interrupted in start $((count + 1)), and KVGRID_REQUEUES is $KVGRID_REQUEUES; $hint"
    job_say "interrupted; back into the queue"
    trap '' TERM # requeueing ends this start with TERM
    scontrol requeue "$SLURM_JOB_ID" || job_die 75 "this Slurm does not put the job back into the queue; $hint"
    exit 75
}

# job_verify ARGUMENTS...: the certificate against the trusted keys. Then the state is no longer needed, unless rows
# FAILED: the next run with it tries those again. Exit code in job_rc.
job_verify()
{
    local rc=0
    "$KVGRID" verify "$job_out" --trust "$job_trust" "$@" || rc=$?
    case $rc in 0 | 4) ;; *) job_die "$rc" "$job_out was written, but verify ended with $rc" ;; esac
    if [ -n "$job_state" ] && [ "$job_rc" -ne 5 ]; then
        rm -f -- "$job_state/journal" "$job_state/slurm_job"
        rmdir -- "$job_state" 2>/dev/null || true
    fi
    [ "$job_rc" -ne 0 ] || job_rc=$rc
    job_say "certificate: $job_out"
}
