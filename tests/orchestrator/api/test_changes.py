"""How a sweep differs from the previous one of the same file."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.api.status import changes
from orchestrator.client.answers import Changes
from orchestrator.errors import BadInput
from orchestrator.ledger.ledger import Ledger
from tests import sweeps
from tests.orchestrator.ledger.examples import create_sweep


def test_the_differences_are_those_to_the_previous_sweep_of_the_file(tmp_path: Path) -> None:
    paths = sweeps.filled(tmp_path)
    first = sweeps.sweep_record()
    training = {**first.document["training"], "steps": 400}
    others = [
        ("retrieval-later", {**first.document, "training": training}, 1.0),
        ("retrieval-full", {**first.document, "profile": None}, 2.0),
        ("retrieval-same", {**first.document, "training": training}, 3.0),
    ]
    ledger = Ledger.open(paths.ledger_url)
    for name, document, after in others:
        create_sweep(
            ledger,
            sweeps.sweep_record(
                id=name,
                document=document,
                profile=document["profile"],
                created_at=first.created_at + after,
            ),
        )
    ledger.close()
    assert changes(sweeps.SWEEP_ID, root=tmp_path) == Changes(None, ())
    assert changes("retrieval-later", root=tmp_path) == Changes(
        sweeps.SWEEP_ID, ("training.steps 200 -> 400",)
    )
    assert changes("retrieval-full", root=tmp_path) == Changes(None, ())
    assert changes("retrieval-same", root=tmp_path) == Changes("retrieval-later", ())
    with pytest.raises(BadInput):
        changes("listops", root=tmp_path)
