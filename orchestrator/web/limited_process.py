"""Process that answers one request of an untrusted user, with limits of time and memory.

    in   {"NAME": "value", ...}, the secret environment variables
    in   {"name": ..., "text": ..., "profile": ..., "overrides": [...], "new": ..., "root": ..., "data": ...,
          "plugins": ..., "owner": ..., "sizes": ..., "limits": {"cpu_seconds": ..., "memory_bytes": ...}}
     or  {"replay": ..., "schedulers": [...], "workers": [...], "draws": ..., "root": ..., "data": ...,
          "limits": ...}
     or  {"sql": ..., "rows": ..., "file": ..., "root": ..., "data": ..., "limits": ...}
    out  {"document": ..., "warnings": [...]}  or  {"plan": {...}}  or  {"report": {...}}
     or  {"answer": {...}}
     or  {"refusals": [{...}]}  or  {"exhausted": true}

A few bytes can define a grid of 10^12 trials or endlessly nested mappings, so the cost of a check is unknown
in advance. The process reads the ledger and writes nothing. It imports only what the request needs: a query
of a SQLite file takes less time than the imports of a check.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator import process_secrets
from orchestrator.errors import Refusal, Unfinished, to_document
from orchestrator.ledger.sql import selected


@dataclass(frozen=True)
class CheckLimits:
    """Resource limits of a check.

    Attributes:
        cpu_seconds: Processor time, including the imports.
        memory_bytes: Written memory; memory that is only mapped does not count.
        seconds: Wall-clock time; a process without memory may hang instead of ending.
    """

    cpu_seconds: int = 20
    memory_bytes: int = 2 * 1024**3
    seconds: float = 60.0


def main() -> None:
    """Answer the request on standard input."""
    process_secrets.begin()
    given = json.load(sys.stdin)
    answering = _answering(given)
    _limit(CheckLimits(**given["limits"]))
    try:
        answer = answering(given)
    except Unfinished:
        answer = {"exhausted": True}
    except Refusal as refusal:
        answer = {"refusals": [to_document(one) for one in refusal.all()]}
    json.dump(answer, sys.stdout)


def _answering(given: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
    """Return the function that answers a request; its imports are done before memory is limited."""
    if given.get("file") is not None:
        return _selected
    from orchestrator.web import check_process

    return check_process.answer


def _selected(given: Mapping[str, Any]) -> Mapping[str, Any]:
    columns, rows, truncated = selected(Path(given["file"]), given["sql"], given["rows"])
    return {"answer": {"columns": columns, "rows": rows, "truncated": truncated}}


def _limit(limits: CheckLimits) -> None:
    for kind, most in (
        (resource.RLIMIT_CPU, limits.cpu_seconds),
        (resource.RLIMIT_DATA, limits.memory_bytes),
    ):
        resource.setrlimit(kind, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    main()
