"""A refusal is one line that reads as a sentence, wherever the mistake is."""

from __future__ import annotations

import pickle

import pytest

from trainables.errors import BadData, Refusal


@pytest.mark.parametrize(
    ("parts", "line"),
    [
        (
            ("search.yaml:12: learning_rate", "must be positive", "-1", "Try 1e-3."),
            "search.yaml:12: learning_rate must be positive (got -1). Try 1e-3.",
        ),
        (
            ("search.yaml:12", "must be UTF-8 text", "UTF-16", "Save it as UTF-8."),
            "search.yaml:12: must be UTF-8 text (got UTF-16). Save it as UTF-8.",
        ),
        (
            ("search.yaml:7: search.heads", "low <= high must hold", "[9, 1]", "Write [1, 9]."),
            "search.yaml:7: search.heads: low <= high must hold (got [9, 1]). Write [1, 9].",
        ),
        (("budget", "must be given", "", "Add it."), "budget must be given. Add it."),
        (("ledger", "is locked by another process", "", ""), "ledger is locked by another process."),
    ],
)
def test_a_refusal_is_one_sentence(parts: tuple[str, str, str, str], line: str) -> None:
    assert str(Refusal(*parts)) == line


def test_a_refusal_survives_a_process() -> None:
    """Workers send it to the driver, which prints it."""
    refusal = BadData("a.gz", "must be a complete gzip file", "512 bytes", "Fetch it again.")
    copy = pickle.loads(pickle.dumps(refusal))
    assert (type(copy), copy.parts(), str(copy)) == (BadData, refusal.parts(), str(refusal))
