"""Sweeps side by side with published results."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.report.compare import comparison, measured
from orchestrator.report.published import FIGURES, figures
from orchestrator.report.summary import LeaderboardRow, Summary, summarise
from tests import sweeps
from trainables.layers import LAYERS
from trainables.tasks import TASKS


def _summary(**changes: object) -> Summary:
    return replace(summarise(sweeps.history()), **changes)  # type: ignore[arg-type]


def test_figures_name_existing_layers_and_tasks() -> None:
    assert {figure.layer for figure in FIGURES} <= LAYERS.keys()
    assert {figure.task for figure in FIGURES} <= TASKS.keys()
    assert all(0.3 < figure.accuracy < 1.0 for figure in FIGURES)
    assert len(set(FIGURES)) == len(FIGURES)


@pytest.mark.parametrize(
    ("layer", "task", "expected"),
    [
        ("rotrnn", "listops", [(0.611, None)]),
        ("lru", "listops", [(0.602, 0.008), (0.579, None)]),
        ("relu_rnn", "listops", [(0.376, 0.08)]),
        ("rotrnn", "speech_commands", [(0.952, None)]),
        ("tanh_rnn", "pathx", []),
    ],
)
def test_figures_are_the_papers(layer: str, task: str, expected: list[tuple[float, float | None]]) -> None:
    published = figures(layer, task)
    assert [figure.accuracy for figure in published] == pytest.approx([value for value, _ in expected])
    assert [figure.error for figure in published] == [
        None if error is None else pytest.approx(error) for _, error in expected
    ]


def test_every_image_figure_says_colour_or_grey() -> None:
    assert all(figure.note for figure in FIGURES if figure.task == "image")


def test_side_by_side() -> None:
    summary = _summary()
    other = _summary(sweep_id="listops-1", layer="lru", task="listops", comparable=True, profile=None)
    text = comparison([summary, other])
    matrix = text[text.index("## Layers") : text.index("## Sources")]
    rotrnn, lru = [line for line in matrix.splitlines() if line.startswith(("| rotrnn", "| lru"))]
    assert "0.6359 *; published 0.899 [3]" in rotrnn
    assert "–; published 0.611 [1]" in rotrnn
    assert "0.6359; published 0.602 (0.0080) [8]" in lru
    assert "which cannot be compared" in text
    assert "[3] RotRNN, Table 1" in text
    assert "LRU, Table 6" not in text


def test_fresh_seeds_count_before_one_evaluation() -> None:
    def fresh(test: float) -> LeaderboardRow:
        return replace(_summary().rows[0], test=test)

    summary = _summary(confirmations=tuple(fresh(0.62 + 0.01 * k) for k in range(3)))
    assert measured(summary) == "0.6300 ± 0.0100 (3 seeds)"
    assert measured(_summary(chosen=None)) == "–"


def test_a_comparable_result_has_no_asterisk() -> None:
    assert " *" not in comparison([_summary(comparable=True, profile=None)])
