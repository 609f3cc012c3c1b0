"""Create or migrate MLflow's database, under a lock, before a server or a second writer opens it."""

from __future__ import annotations

import sys

from orchestrator.tracking.mlflow_sink import connect

if __name__ == "__main__":
    connect(sys.argv[1])
