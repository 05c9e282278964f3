# shellcheck shell=bash
# Sourced by tests/slurm/run.sh: a Slurm of our own, with munge key, sockets, ports, spool and logs in one private
# folder, so that a Slurm of the machine is neither used nor touched.
#
#   cluster_need          programs there, or installed where that is allowed; else 77 and the reason on stdout
#   cluster_start 1|2     one slurmd that owns every core, or two on this host with a node name and a port each
#   cluster_stop          ends exactly the daemons that were started
#
# After cluster_start SLURM_CONF points at ours; $CLUSTER_DIR/*.log are the daemons' own words.

CLUSTER_DIR=
CLUSTER_PIDS=()

cluster_missing()
{
    local program missing=()
    for program in munged slurmctld slurmd sbatch srun scontrol scancel squeue sinfo; do
        command -v "$program" >/dev/null 2>&1 || missing+=("$program")
    done
    [ ${#missing[@]} -eq 0 ] || printf '%s' "${missing[*]}"
}

cluster_need()
{
    local missing
    PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
    missing=$(cluster_missing)
    if [ -n "$missing" ] && kv_deps_root quiet && kv_deps_apt munge slurm-wlm; then
        missing=$(cluster_missing)
        KV_DEPS_WHY="apt-get installed munge and slurm-wlm, and they are still not there"
    fi
    [ -z "$missing" ] || { echo "no Slurm ($missing missing): ${KV_DEPS_WHY-}"; return 77; }
    [ "$(id -u)" -eq 0 ] || { echo "the test Slurm is seen to work only as root"; return 77; }
}

# Ports that nobody listens on, one a line: below those that the system gives away by itself, so that no other program is
# given one before our daemon takes it.
cluster_ports()
{
    "$KV_PYTHON" -c '
import random, socket, sys
try: first = int(open("/proc/sys/net/ipv4/ip_local_port_range").read().split()[0])
except (OSError, ValueError): first = 32768
held = []
for port in random.sample(range(10000, first) if first > 12000 else range(61000, 65536), 200):
    s = socket.socket()
    try: s.bind(("", port))
    except OSError: continue
    held.append(s)
    print(port)
    if len(held) == int(sys.argv[1]): break' "$1"
}

# cluster_wait SECONDS WHAT COMMAND...: until the command succeeds.
cluster_wait()
{
    local until=$((SECONDS + $1)) what=$2
    shift 2
    until "$@" >/dev/null 2>&1; do
        [ $SECONDS -lt $until ] || { echo "the test Slurm: $what"; return 1; }
        sleep 0.1
    done
}

cluster_config()
{
    local host cpus nodes=$1 task node_lines
    local -a port
    host=$(hostname -s)
    cpus=$(nproc)
    [ "$cpus" -ge 2 ] || cpus=2
    mapfile -t port < <(cluster_ports 3)
    if [ "$nodes" -eq 1 ]; then
        node_lines="NodeName=n1 NodeHostname=$host NodeAddr=127.0.0.1 Port=${port[1]} CPUs=$cpus Gres=gpu:2"
        task=affinity
    else
        node_lines="NodeName=n1 NodeHostname=$host NodeAddr=127.0.0.1 Port=${port[1]} CPUs=$cpus
NodeName=n2 NodeHostname=$host NodeAddr=127.0.0.1 Port=${port[2]} CPUs=$cpus"
        task=none
    fi
    cat >"$CLUSTER_DIR/slurm.conf" <<CONF
ClusterName=kvgridtest
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=${port[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$CLUSTER_DIR/munge.socket
CredType=cred/munge
StateSaveLocation=$CLUSTER_DIR/state
SlurmdSpoolDir=$CLUSTER_DIR/spool.%n
SlurmctldPidFile=$CLUSTER_DIR/slurmctld.pid
SlurmdPidFile=$CLUSTER_DIR/slurmd.%n.pid
SlurmctldLogFile=$CLUSTER_DIR/slurmctld.log
SlurmdLogFile=$CLUSTER_DIR/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/$task
SlurmdParameters=config_overrides
SwitchType=switch/none
MpiDefault=none
GresTypes=gpu
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=2,batch_sched_delay=1,requeue_delay=1
SchedulerType=sched/backfill
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
ReturnToService=2
SlurmdTimeout=300
KillWait=60
MessageTimeout=60
TCPTimeout=30
BatchStartTimeout=300
MinJobAge=300
JobRequeue=1
PlugStackConfig=$CLUSTER_DIR/plugstack.conf
$node_lines
PartitionName=test Nodes=ALL Default=YES MaxTime=60 State=UP OverSubscribe=FORCE:8
CONF
    # Two GPUs that are none: what the scripts do with a count of GPUs does not need the devices.
    : >"$CLUSTER_DIR/plugstack.conf"
    : >"$CLUSTER_DIR/cgroup.conf"
    touch "$CLUSTER_DIR/gpu0" "$CLUSTER_DIR/gpu1"
    if [ "$nodes" -eq 1 ]; then echo "Name=gpu File=$CLUSTER_DIR/gpu[0-1]"; fi >"$CLUSTER_DIR/gres.conf"
}

# cluster_daemon COMMAND...: in the foreground of its own, so that its process id is known.
cluster_daemon()
{
    setsid "$@" </dev/null >>"$CLUSTER_DIR/daemons.out" 2>&1 &
    CLUSTER_PIDS+=($!)
}

cluster_start()
{
    local nodes=1 node
    [ "$1" != two ] || nodes=2
    CLUSTER_DIR=$(mktemp -d /tmp/kvslurm.XXXXXX) || return 1
    chmod 755 "$CLUSTER_DIR"
    mkdir "$CLUSTER_DIR/state"
    cluster_config "$nodes"
    export SLURM_CONF=$CLUSTER_DIR/slurm.conf
    (umask 077 && head -c 1024 /dev/urandom >"$CLUSTER_DIR/munge.key")
    cluster_daemon munged --foreground --force --num-threads=2 --key-file="$CLUSTER_DIR/munge.key" \
        --socket="$CLUSTER_DIR/munge.socket" --pid-file="$CLUSTER_DIR/munged.pid" --seed-file="$CLUSTER_DIR/munged.seed" \
        --log-file="$CLUSTER_DIR/munged.log"
    cluster_wait 120 "munged does not answer" munge -S "$CLUSTER_DIR/munge.socket" -n || return 1
    cluster_daemon slurmctld -D -i
    cluster_wait 120 "slurmctld does not answer" scontrol ping || return 1
    for node in $(seq 1 "$nodes"); do
        mkdir -p "$CLUSTER_DIR/spool.n$node"
        cluster_daemon slurmd -D -N "n$node"
    done
    cluster_wait 120 "the nodes do not become idle" cluster_idle "$nodes"
}

cluster_idle() { [ "$(sinfo -h -N -o '%t' | grep -c '^idle$')" -eq "$1" ]; }

cluster_stop()
{
    local i pid
    [ -n "$CLUSTER_DIR" ] || return 0
    if [ ${#CLUSTER_PIDS[@]} -gt 1 ]; then
        timeout 10 scancel --user="$(id -un)" >/dev/null 2>&1
        cluster_wait 15 "jobs do not end" eval '[ -z "$(timeout 5 squeue -h)" ]'
    fi
    for ((i = ${#CLUSTER_PIDS[@]} - 1; i >= 0; i--)); do
        pid=${CLUSTER_PIDS[i]}
        kill -TERM "$pid" 2>/dev/null
        timeout 10 tail --pid="$pid" -f /dev/null || kill -KILL "$pid" 2>/dev/null
        wait "$pid" 2>/dev/null
    done
    CLUSTER_PIDS=()
    unset SLURM_CONF
    [ -n "${KV_KEEP-}" ] && { echo "kept: $CLUSTER_DIR"; CLUSTER_DIR=; return 0; }
    rm -rf "$CLUSTER_DIR"
    CLUSTER_DIR=
}
