#!/bin/bash
# A sweep under Slurm: a head and its workers on the nodes of one job, which end with the job.
#
#     sbatch cluster/slurm.sh search_spaces/retrieval.yaml      # one sweep
#     sbatch cluster/slurm.sh serve --stop-drivers              # the service: every submitted sweep
#
# When the job is preempted or reaches its time limit, it is requeued and resumes the sweep, or all of them.

# ---------------------------------------------------------------- fill in
#SBATCH --job-name=sweep
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=8
#SBATCH --gpus-per-node=1
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:TERM@120             # two minutes before the time limit, every trial is saved
# The ledger's password goes in ~/.pgpass, mode 0600. The checkpoint folder must be on a disk that all nodes share.
export SWEEP_LEDGER=postgresql://sweep@FILL-IN/sweeps
export MLFLOW_TRACKING_URI=http://FILL-IN:5000
export SWEEP_CHECKPOINTS=file:///FILL-IN/sweeps

# ---------------------------------------------------------------- the rest
set -euo pipefail
cd "${SLURM_SUBMIT_DIR:?must run under sbatch}"
export PATH="$PWD/.venv/bin:$PATH"
# Other accounts can enter the nodes too: no file is open to them, and every job has a token of its own.
umask 077
mkdir -p mlruns
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH="$PWD/mlruns/ray-token-$SLURM_JOB_ID"
rm -f "$RAY_AUTH_TOKEN_PATH"
od -An -N32 -tx1 /dev/urandom | tr -d ' \n' >"$RAY_AUTH_TOKEN_PATH"
folder=/tmp/ray-$(od -An -N6 -tx1 /dev/urandom | tr -d ' \n')  # on every node; above Ray's own, which is open to all
trap 'rm -rf "$RAY_AUTH_TOKEN_PATH" "$folder"' EXIT
export RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO=1 RAY_USAGE_STATS_ENABLED=0
# Turn Ray's Prometheus metrics off: Ray would serve them to anyone, without the token.
export RAY_enable_metrics_collection=0 AUTOSCALER_METRIC_PORT=-1 DASHBOARD_METRIC_PORT=-1
# Keep a node through a network outage of up to a minute; Ray's default of 10 s closes the connections of its trials.
export RAY_grpc_keepalive_timeout_ms=60000
# Pages of memory of 2 MiB instead of 4 KiB, which Linux hands out faster; a step of training on a CPU takes less time.
export GLIBC_TUNABLES=glibc.malloc.hugetlb=1
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
if ((SLURM_JOB_NUM_NODES > 1)); then
  address=$(srun --nodes=1 --ntasks=1 -w "$head" hostname --ip-address | cut -d ' ' -f 1)
else
  address=127.0.0.1
  export RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0  # Ray then listens on this address alone, as on these systems
fi
port=$((20000 + SLURM_JOB_ID % 10000))  # one per job, since another job may share the node
# Ray would count all processors of a node, of which other jobs may have some.
cpus=${SLURM_CPUS_PER_TASK:-$(nproc)}

start=(python -m orchestrator.machines.head "$folder" ray start --block --num-cpus="$cpus")
srun --nodes=1 --ntasks=1 -w "$head" "${start[@]}" --head \
  --node-ip-address="$address" --port="$port" --include-dashboard=false &
until ray health-check --address "$address:$port" >/dev/null 2>&1; do sleep 1; done
if ((SLURM_JOB_NUM_NODES > 1)); then
  srun --nodes=$((SLURM_JOB_NUM_NODES - 1)) --exclude="$head" \
    "${start[@]}" --address="$address:$port" &
fi

export RAY_ADDRESS="$address:$port"
# After a restart by Slurm, a sweep that was ended by `stop` stays ended.
if ((${SLURM_RESTART_COUNT:-0} > 0)); then export SWEEP_UNLESS_STOPPED=1; fi
python -m orchestrator.sweep "$@" &
sweep=$!
trap 'kill -TERM $sweep' TERM
code=0
wait $sweep || code=$?
# A signal interrupts `wait`, but the sweep is still saving its trials: wait for it again.
while kill -0 $sweep 2>/dev/null; do code=0; wait $sweep || code=$?; done
if ((code == 4)); then scontrol requeue "$SLURM_JOB_ID"; fi
exit "$code"
