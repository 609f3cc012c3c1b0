"""The card of a model says what the ledger says."""

from __future__ import annotations

from orchestrator.report.card import card, model_of
from orchestrator.report.summary import summarise
from tests import sweeps


def test_the_card_tells_data_splits_metrics_and_limits() -> None:
    history = sweeps.history(
        facts={**sweeps.sweep_record().facts, "examples": {"train": 4000, "validation": 512}}
    )
    summary = summarise(history)
    told = card(history, summary, "rotrnn-retrieval")
    assert summary.chosen is not None
    for part in (
        "# rotrnn-retrieval",
        "Retrieval: are two documents related?",
        f"`{summary.chosen.row.key}`",
        "embedded English passages",
        "train (4,000 examples): gradients.",
        f"| test/accuracy | {summary.chosen.test['test/accuracy']:.4f} |",
        "Not comparable with published figures",
        "Chosen among 5 complete trials",
        "reading step by step is refused",
        'load_model("models:/rotrnn-retrieval@champion")',
    ):
        assert part in told, part
    assert "\n\n\n" not in told


def test_the_model_is_the_chosen_checkpoint() -> None:
    """One event, with what decides between two versions; none before the sweep has chosen for good."""
    history = sweeps.history()
    summary = summarise(history)
    event = model_of(history, summary, 7)
    assert event is not None
    assert summary.chosen is not None
    assert (event.kind, event.run, event.at_ms) == ("model", summary.chosen.row.key, 7)
    assert event.payload["name"] == "rotrnn-retrieval"
    assert event.payload["digest"] == "beef" * 16
    assert event.payload["checkpoint"].endswith(summary.chosen.checkpoint)
    assert event.payload["tags"]["value"] == repr(summary.chosen.row.value)
    running = sweeps.history(state="INTERRUPTED")
    assert model_of(running, summarise(running), 7) is None
