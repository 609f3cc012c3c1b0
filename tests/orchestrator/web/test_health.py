"""Whether the service works, as a supervisor such as Kubernetes asks it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from orchestrator.api import serving
from orchestrator.service.discovery import MOST_SILENT_SECONDS, Rounds
from orchestrator.web.app_state import AppState
from orchestrator.web.server import Listening, answering
from tests.orchestrator.web.server import Client


def test_a_service_whose_supervision_stands_still_says_so(reader: Client) -> None:
    now = [0.0]
    rounds = Rounds(lambda: now[0])
    with answering(AppState(reader.workspace, rounds=rounds), Listening(0)) as address:
        asked = replace(reader, address=address)
        now[0] = MOST_SILENT_SECONDS
        assert asked.send("GET", "/api/v1/healthz").status == 200
        now[0] += 1.0
        late = asked.send("GET", "/api/v1/healthz")
        assert (late.status, late.headers["content-type"]) == (503, "application/problem+json")
        assert late.document["where"] == "supervision"
        assert late.document["got"] == "none for 61 s"
        assert asked.send("GET", "/api/v1/readyz").status == 200, "the ledger answers"
        rounds.complete()
        assert asked.send("GET", "/api/v1/healthz").status == 200


class OneRound(Rounds):
    """Ends the service after its first round, as a signal would."""

    count = 0

    def complete(self) -> None:
        self.count += 1
        raise KeyboardInterrupt("the end of the test")


def test_the_supervision_tells_its_rounds(tmp_path: Path) -> None:
    rounds, said = OneRound(), list[str]()
    serving.serve(said.append, root=tmp_path / "mlruns", rounds=rounds)
    assert rounds.count == 1
    assert said[-1] == "The service stops after the end of the test; the drivers keep running."
