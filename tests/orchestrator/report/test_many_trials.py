"""A report of many trials lists and draws some of them, the best ones first among these."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from orchestrator.report import report_files
from orchestrator.report.figures import curves, landscape, style
from orchestrator.report.history import History
from tests import sweeps

MANY = style.MOST_TRIALS + 200
STATES = ("COMPLETE", "PRUNED", "COMPLETE", "FAILED", "COMPLETE")


@pytest.fixture(scope="module")
def history() -> History:
    return sweeps.history([sweeps.trial(number, STATES[number % 5]) for number in range(MANY)])


def test_figures_draw_the_best_of_many_trials_and_evenly_spaced_others(history: History) -> None:
    drawn = style.drawn(history)
    complete = [trial for trial in history.trials if trial.state == "COMPLETE"]
    best = sorted(complete, key=lambda trial: trial.value or 0.0)[-style.MOST_TRIALS // 2 :]
    assert len(drawn) == style.MOST_TRIALS
    assert {trial.key for trial in best} <= {trial.key for trial in drawn}
    assert [trial.number for trial in drawn] == sorted(trial.number for trial in drawn)
    assert drawn[0].number == 0, "the others are spaced from the first on"
    values = landscape.valued(history, landscape.axes(history))
    assert len(values.numbers) == sum(trial.value is not None for trial in drawn)
    figure = curves.learning_curves(history, "val/accuracy", best[-1].key)
    names = {name for trace in figure.data for name in (trace.text if trace.text is not None else ())}
    assert len(names - {"", None}) == style.MOST_TRIALS - 1


def test_few_trials_are_all_drawn() -> None:
    history = sweeps.history()
    assert tuple(style.drawn(history)) == tuple(history.search())


@pytest.mark.slow
def test_the_page_lists_a_thousand_trials_and_the_file_all(history: History, tmp_path: Path) -> None:
    files = report_files.write_history(history, tmp_path)
    page = files.html.read_text()
    [table] = re.findall(r'<section id="leaderboard">.*?</section>', page, re.DOTALL)
    assert table.count("<tr class") == style.MOST_TRIALS
    assert f"The first 1,000 of {MANY:,} rows" in table
    assert f"Of {MANY:,} trials, 1,000 are drawn" in page
    with files.leaderboard.open() as file:
        assert len(list(csv.reader(file))) == 1 + MANY
