"""Submissions and situations, for the tests of supervision."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from orchestrator.ledger.holder import Holder
from orchestrator.ledger.queue.submissions import Submission
from orchestrator.ledger.sweeps.records import FINISHED_SWEEP
from orchestrator.service.start_order import Situation
from tests import sweeps

DRIVER = Holder(pid=7, host="machine", place="boot", start=1, since=0.0)


def submission(sweep_id: str = "a", **changes: Any) -> Submission:
    """Return a submission of ada, made at 0 s."""
    made = Submission("ada", {}, "", {}, None, "c0ffee", sweep_id=sweep_id, at=0.0)
    return replace(made, **changes)


def queued(sweep_id: str = "a", **changes: Any) -> Situation:
    """Return the situation of a submission that waits."""
    return Situation(submission(sweep_id, **changes))


def started(sweep_id: str = "a", at: float = 100.0, **changes: Any) -> Situation:
    """Return the situation of a submission whose driver was started and runs, without its lease yet."""
    own = {name: changes.pop(name) for name in list(changes) if name in Submission.__dataclass_fields__}
    own.setdefault("reported_before", at)
    made = submission(sweep_id, state="STARTED", starts=1, started_at=at, driver=DRIVER, **own)
    return Situation(made, **{"process": "alive", **changes})


def sweep(state: str, reason: str | None = None) -> Any:
    """Return the row of a sweep; a finished one has finished at 500 s."""
    finished_at = 500.0 if state in FINISHED_SWEEP else None
    return sweeps.sweep_record(state=state, reason=reason, finished_at=finished_at)
