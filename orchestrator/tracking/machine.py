"""The machine beside a sweep: processor, memory, disk, network and GPUs, by MLflow's own monitor.

It watches the machine of the driver, and writes to the sweep's run as `system/...`, a point in half a minute.
`MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING=false` leaves it out, as everywhere else in MLflow.
"""

from __future__ import annotations

from mlflow.environment_variables import MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING
from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

_SAMPLE_SECONDS = 10.0
_SAMPLES_A_POINT = 3


class MachineWatch:
    """Watches from the first time that the sweep has a run until the end."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._monitor: SystemMetricsMonitor | None = None
        # MLflow's own default is not to watch.
        self._wanted = MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING.get() or (
            not MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING.is_set()
        )

    def begin(self, run_id: str | None) -> None:
        """Begin to watch for this run, after its last point, unless there is none yet or this has begun."""
        if run_id is None or self._monitor is not None or not self._wanted:
            return
        self._monitor = SystemMetricsMonitor(
            run_id, _SAMPLE_SECONDS, _SAMPLES_A_POINT, resume_logging=True, tracking_uri=self._uri
        )
        self._monitor.start()

    def end(self) -> None:
        """Write what is not written yet, and stop."""
        if self._monitor is not None:
            self._monitor.finish()
