#!/bin/sh
# shellcheck shell=sh
# The environment of every shell on a cluster node; the set-up commands make ~/.bashrc source this file.
export PATH="$HOME/sweeps/.venv/bin:$PATH"
# Joining, submitting and reading require the token, which is copied to every node.
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH="$HOME/sweeps/mlruns/ray-token"
# With several machines, the stores that all of them must reach (docs/cluster.md). Passwords go in ~/.pgpass, mode 0600.
# export SWEEP_LEDGER=postgresql://sweep@127.0.0.1:5432/sweeps MLFLOW_TRACKING_URI=http://127.0.0.1:5000
# export SWEEP_CHECKPOINTS=s3://bucket/sweeps
# The driver runs on the head, and joins the running Ray cluster instead of starting its own.
export RAY_ADDRESS=127.0.0.1:6379
# A worker without a GPU share must not see every GPU of its node.
export RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO=1
# Turn Ray's Prometheus metrics off: Ray would serve them to anyone, on every network, without the token.
export RAY_enable_metrics_collection=0 AUTOSCALER_METRIC_PORT=-1 DASHBOARD_METRIC_PORT=-1
# Keep a node through a network outage of up to a minute; Ray's default of 10 s closes the connections of its trials.
export RAY_grpc_keepalive_timeout_ms=60000
# Pages of memory of 2 MiB instead of 4 KiB, which Linux hands out faster; a step of training on a CPU takes less time.
export GLIBC_TUNABLES=glibc.malloc.hugetlb=1
export RAY_USAGE_STATS_ENABLED=0
