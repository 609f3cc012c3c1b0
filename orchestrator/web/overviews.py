"""The rows of the list of all sweeps, each read again only when the sweep may have changed.

A ledger keeps every sweep that has ever run, and a page that is left open asks for all of them once a second.
One query tells the version of each sweep; what has ended is read once.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from orchestrator.api import status
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.pool import claims
from orchestrator.ledger.queue import submissions
from orchestrator.ledger.sweeps.index import SweepVersion, versions
from orchestrator.sharing.rows import PriorityClass

Document = dict[str, Any]


class Overviews:
    """Overviews of the sweeps of one ledger; safe to share between threads."""

    def __init__(self) -> None:
        self._kept: Mapping[str, tuple[SweepVersion, str, Document]] = {}
        self._lock = threading.Lock()

    def read(self, ledger: Ledger) -> list[Document]:
        """Return the overview of every sweep, in the order of `known_sweeps`."""
        with self._lock:
            classes, found, kept = claims.priority_classes(ledger), [], {}
            for sweep_id, version in versions(ledger).items():
                priority_class = classes.get(sweep_id, "normal")
                seen = self._kept.get(sweep_id)
                if seen is not None and seen[:2] == (version, priority_class):
                    document = seen[2]
                else:
                    document = _overview(ledger, sweep_id, priority_class)
                if _is_settled(document):
                    kept[sweep_id] = (version, priority_class, document)
                found.append(document)
            self._kept = kept
            return found


def _is_settled(document: Document) -> bool:
    """Return True if an overview holds until the version of its sweep changes.

    The rows of a sweep that no process drives change only once one has taken its lease. The reason of a
    queued one depends on the clock.
    """
    return document["driver"] is None and document["state"] != "QUEUED"


def _overview(ledger: Ledger, sweep_id: str, priority_class: PriorityClass) -> Document:
    record, submission = ledger.sweep(sweep_id), submissions.submission(ledger, sweep_id)
    return asdict(status.overview(ledger, record, submission, {sweep_id: priority_class}))
