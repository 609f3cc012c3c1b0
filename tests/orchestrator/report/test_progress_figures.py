"""The sweep's history and its costs, as drawn, equal the ledger."""

from __future__ import annotations

import pytest

from orchestrator.report.figures import progress
from orchestrator.report.spending import Spending
from tests import sweeps


def test_history_shows_every_value_and_the_best_so_far() -> None:
    figure = progress.optimisation_history(sweeps.history(), sweeps.trial(7).key)
    traces = {trace.name: trace for trace in figure.data}
    assert list(traces["complete"].x) == [0, 2, 4, 6, 7]
    assert list(traces["complete"].y) == [sweeps.trial(n).value for n in (0, 2, 4, 6, 7)]
    assert list(traces["pruned"].y) == [sweeps.trial(n, "PRUNED").value for n in (1, 5)]
    assert list(traces["chosen"].x) == [7]
    assert list(traces["best so far"].y)[-1] == sweeps.trial(7).value


@pytest.mark.parametrize(("maximize", "best"), [(True, [0.5, 0.7, 0.7, 0.7]), (False, [0.5, 0.5, 0.4, 0.4])])
def test_best_so_far_ignores_what_is_not_complete(maximize: bool, best: list[float]) -> None:
    trials = [
        sweeps.trial(3, value=0.4),
        sweeps.trial(0, value=0.5),
        sweeps.trial(1, "PRUNED", value=0.9),
        sweeps.trial(2, value=0.7),
        sweeps.trial(9, "FAILED"),
    ]
    steps = progress.best_so_far(trials, maximize=maximize)
    assert [number for number, _ in steps] == [0, 2, 3, 9]
    assert [value for _, value in steps] == best


def test_the_bar_is_the_spending() -> None:
    figure = progress.spending_bar(Spending(train=600, compile=60, evaluate=30, other=6, lost=120))
    drawn = {trace.name: trace.x[0] for trace in figure.data}
    assert drawn == {
        "training": 10.0,
        "compiling": 1.0,
        "evaluating": 0.5,
        "starting, saving, waiting": 0.1,
        "lost to faults": 2.0,
    }
    assert figure.layout.xaxis.title.text.startswith("minutes")
    assert progress.spending_bar(Spending(train=7200)).data[0].x[0] == 2.0
