# shellcheck shell=sh
# What every shell on a node of a cluster has; the set-up commands let ~/.bashrc read it.
export PATH="$HOME/sweeps/.venv/bin:$PATH"
# Nobody joins, submits or looks without the token that was brought to every node.
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH="$HOME/sweeps/mlruns/ray-token"
# With several machines, what each of them must reach (docs/cluster.md); a password stands in ~/.pgpass, mode 0600.
# export SWEEP_LEDGER=postgresql://sweep@127.0.0.1:5432/sweeps MLFLOW_TRACKING_URI=http://127.0.0.1:5000
# export SWEEP_CHECKPOINTS=s3://bucket/sweeps
# The head drives; a driver joins the Ray that is there and starts none.
export RAY_ADDRESS=127.0.0.1:6379
# A worker without a GPU share must not see every GPU of its node.
export RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO=1
# Ray's figures for Prometheus would be told to whoever asks, on every network, without the token.
export RAY_enable_metrics_collection=0 AUTOSCALER_METRIC_PORT=-1 DASHBOARD_METRIC_PORT=-1
# A network that is silent for less than a minute loses no node; Ray's own 10 s close the connections of its trials.
export RAY_grpc_keepalive_timeout_ms=60000
export RAY_USAGE_STATS_ENABLED=0
