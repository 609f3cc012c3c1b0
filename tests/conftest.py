"""Settings that hold for every test."""

from __future__ import annotations

import os

# Before the first import of JAX: no test may depend on a GPU, and workers of the suite share two cores.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
