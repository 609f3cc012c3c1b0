"""The similarity of earlier sweeps to the present one, and the trials of theirs that a sampler is shown."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import fmean

import numpy as np
import pytest
from scipy.stats import spearmanr

from orchestrator.ledger.sweeps.records import TrialRecord
from orchestrator.study.similarity import Similarity, rank_correlation
from orchestrator.study.study import Study
from tests.orchestrator.study.sweeps import STEPS, objective, sweep

PARAMS = [{"rate": float(number)} for number in range(20)]
VALUES = [float(number) for number in range(20)]


def test_the_correlation_is_that_of_scipy() -> None:
    rng = np.random.default_rng(0)
    one, other = rng.integers(0, 5, 12), rng.normal(size=12)
    assert rank_correlation(one, other) == pytest.approx(spearmanr(one, other).statistic)
    assert rank_correlation([1, 1, 1], [1, 2, 3]) == 0


def test_settings_from_the_best_to_the_worst_are_repeated() -> None:
    similarity = Similarity(PARAMS, VALUES, maximize=True, trials=64)
    assert [each["rate"] for each in similarity.repeated] == [19, 17, 14, 11, 9, 6, 3, 0]
    assert not Similarity(PARAMS, VALUES, maximize=True, trials=31).repeated
    assert len(Similarity(PARAMS, VALUES, maximize=True, trials=32).repeated) == 4


def test_a_small_sweep_is_shown_all_trials_as_they_are() -> None:
    assert Similarity(PARAMS, VALUES, maximize=True, trials=16).shown() == dict(enumerate(VALUES))


def told(sign: float, *, failed: int = 0) -> Similarity:
    """Return the similarity after all repeated settings have run, with values in another range."""
    similarity = Similarity(PARAMS, VALUES, maximize=True, trials=64)
    for position, params in enumerate(similarity.repeated):
        value = None if position >= 8 - failed else 100 + 2 * sign * params["rate"]
        assert similarity.correlation is None or position == 7
        similarity.add(params, value, complete=value is not None)
    return similarity


def test_a_similar_task_is_shown_in_the_values_of_this_one() -> None:
    similarity = told(1)
    assert similarity.correlation == pytest.approx(1)
    shown = similarity.shown()
    assert len(shown) == 16
    assert {0, 19} < shown.keys()
    assert shown == pytest.approx({index: 100 + 2 * index for index in shown})


def test_an_opposite_task_is_not_shown() -> None:
    assert told(-1).correlation == pytest.approx(-1)
    assert told(-1).shown() == {}


def test_failed_trials_are_the_worst_ones() -> None:
    assert told(1, failed=2).correlation == pytest.approx(0.994, abs=0.01)
    assert len(told(1, failed=7).shown()) == 0, "one complete trial gives no line"


@pytest.mark.parametrize("shift", [0.0, 5.0])
def test_a_rebuilt_study_is_shown_the_same(shift: float) -> None:
    """The order in which trials end does not matter, and neither does a restart."""
    rng = np.random.default_rng(1)
    chosen = sweep("tpe")
    drawn = Study(sweep("random"))
    settings = [dict(drawn.ask(number).params) for number in range(30)]  # type: ignore[union-attr]
    earlier = [
        _record("earlier", number, each, shift + objective(each)) for number, each in enumerate(settings)
    ]
    study = Study(chosen, (), (), earlier)
    proposals = [study.ask(number) for number in range(8)]
    trials = [
        _record("own", number, dict(each.params), objective(each.params) + rng.normal(0, 0.05))  # type: ignore[union-attr]
        for number, each in enumerate(proposals)
    ]
    for number in (3, 1, 7, 0, 2, 6, 5, 4):
        study.tell(number, "COMPLETE", trials[number].value, STEPS)
    rebuilt = Study(chosen, trials, (), earlier)
    assert rebuilt.similarity == study.similarity
    assert rebuilt.similarity is not None
    assert rebuilt.similarity > 0.5
    assert rebuilt.ask(8) == study.ask(8)


def _record(sweep_id: str, number: int, params: dict[str, object], value: float) -> TrialRecord:
    return TrialRecord(
        f"{sweep_id}-{number}", sweep_id, number, "search", "COMPLETE", None, params, {}, 0, value, STEPS,
        STEPS, STEPS, 1, 0.0,
    )  # fmt: skip


def best_of(study: Study, trials: int) -> float:
    best = -math.inf
    for number in range(trials):
        proposal = study.ask(number)
        assert proposal is not None
        value = objective(proposal.params)
        best = max(best, value)
        study.tell(number, "COMPLETE", value, STEPS)
    return best


def test_a_misleading_sweep_costs_little() -> None:
    """Its values are the opposite of those of the present one; shown as they are, they would mislead."""
    chosen = sweep("tpe")
    chosen = replace(chosen, budget=chosen.budget.model_copy(update={"trials": 64}))
    drawn = Study(sweep("random", seed=3))
    settings = [dict(drawn.ask(number).params) for number in range(30)]  # type: ignore[union-attr]
    misled, cold = [], []
    for seed in range(3):
        seeded = replace(
            chosen, sampler=replace(chosen.sampler, options={**chosen.sampler.options, "seed": seed})
        )
        earlier = [_record("earlier", number, each, -objective(each)) for number, each in enumerate(settings)]
        misled.append(best_of(Study(seeded, (), (), earlier), 40))
        cold.append(best_of(Study(seeded), 40))
    assert fmean(misled) > fmean(cold) - 0.01
