"""The similarity of earlier sweeps to the present one, and the trials of theirs that a sampler is shown."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from statistics import fmean

import numpy as np
import pytest
from scipy.stats import spearmanr

from orchestrator.ledger.sweeps.records import TrialRecord
from orchestrator.study.similarity import Similarity, most_repeated, rank_correlation
from orchestrator.study.study import Study
from tests.orchestrator.study.sweeps import STEPS, objective, sweep

PARAMS = [{"rate": float(number)} for number in range(20)]
VALUES = [float(number) for number in range(20)]


def test_the_correlation_is_that_of_scipy() -> None:
    rng = np.random.default_rng(0)
    one, other = rng.integers(0, 5, 12), rng.normal(size=12)
    assert rank_correlation(one, other) == pytest.approx(spearmanr(one, other).statistic)
    assert rank_correlation([1, 1, 1], [1, 2, 3]) == 0


def similarity() -> Similarity:
    return Similarity(PARAMS, VALUES, maximize=True)


def repeat(
    similarity: Similarity, own: Callable[[float], float | None], *, complete: bool = True
) -> list[float]:
    """End each repeated setting before the next one begins; return their rates."""
    rates: list[float] = []
    while (params := similarity.next()) is not None:
        similarity.begin(params)
        value = own(params["rate"])
        similarity.add(params, value, complete=complete and value is not None)
        rates.append(params["rate"])
    return rates


def test_four_settings_are_repeated_and_more_only_if_their_order_is_similar() -> None:
    assert repeat(similarity(), lambda rate: 100 + rate) == [19, 10, 5, 0, 15, 13, 8, 3]
    assert repeat(similarity(), lambda rate: -rate) == [19, 10, 5, 0]


def test_further_settings_wait_for_the_first_ones() -> None:
    waiting = similarity()
    for _ in range(4):
        params = waiting.next()
        assert params is not None
        waiting.begin(params)
        waiting.add(params, params["rate"], complete=True) if params["rate"] else None
    assert waiting.next() is None
    waiting.add({"rate": 0.0}, 0.0, complete=True)
    assert waiting.next() == {"rate": 15.0}


@pytest.mark.parametrize(("trials", "most"), [(1, 0), (4, 2), (8, 4), (32, 4), (64, 8), (256, 32)])
def test_most_of_a_sweep_repeats_nothing(trials: int, most: int) -> None:
    assert most_repeated(trials) == most


def test_a_similar_task_is_shown_in_the_values_of_this_one_and_fades() -> None:
    similar = similarity()
    repeat(similar, lambda rate: 100 + 2 * rate)
    assert similar.correlation == similar.weight == pytest.approx(1)
    assert similar.shared == 8
    shown = similar.shown()
    assert len(shown) == 12, "8 trials are complete: 16 * (1 - 8 / 32)"
    assert {0, 19} < shown.keys()
    assert shown == pytest.approx({index: 100 + 2 * index for index in shown})
    for number in range(24):
        similar.add({"rate": 0.5 + number}, 0.0, complete=True)
    assert similar.shown() == {}


def test_an_opposite_task_is_not_shown() -> None:
    opposite = similarity()
    repeat(opposite, lambda rate: -rate)
    assert opposite.correlation == pytest.approx(-1)
    assert opposite.weight == 0
    assert opposite.shown() == {}


def test_a_correlation_within_its_error_does_not_count() -> None:
    chance = similarity()
    repeat(chance, {19: 4, 10: 3, 5: 1, 0: 2, 15: 3.5, 13: 1.5, 8: 3.2, 3: 1.7}.__getitem__)
    assert chance.correlation == pytest.approx(0.595, abs=0.001)
    assert chance.shared == 8
    assert chance.weight == 0, "the error is 1 / sqrt(7) = .38"


def test_a_failed_trial_is_the_worst_and_a_stopped_one_is_worse_than_a_complete_one() -> None:
    failed = similarity()
    repeat(failed, lambda rate: None if rate < 10 else rate)
    assert failed.correlation == pytest.approx(math.sqrt(37 / 42))
    stopped = similarity()
    for rate in (19.0, 10.0, 5.0, 0.0):
        stopped.add({"rate": rate}, 50 - rate if rate < 10 else rate, complete=rate >= 10)
    assert stopped.correlation == pytest.approx(0.8)


def test_one_complete_trial_gives_no_line() -> None:
    lonely = similarity()
    repeat(lonely, lambda rate: rate if rate == 19 else None)
    assert lonely.shown() == {}


def test_of_two_trials_with_one_setting_the_better_one_counts() -> None:
    one, other = similarity(), similarity()
    values = [(19.0, 1.0), (19.0, 5.0), (12.0, 3.0), (6.0, 2.0), (0.0, 1.0)]
    for rate, value in values:
        one.add({"rate": rate}, value, complete=True)
    for rate, value in reversed(values):
        other.add({"rate": rate}, value, complete=True)
    assert one.correlation == other.correlation == pytest.approx(1)


def test_a_stopped_repeated_trial_counts() -> None:
    """To TPE a stopped trial is still running; it has a shared setting all the same."""
    study = Study(sweep("tpe", scheduler="asha"), (), (), earlier_trials())
    for number in range(4):
        proposal = study.ask(number)
        assert proposal is not None
        study.report(number, STEPS // 2, objective(proposal.params))
        state = "COMPLETE" if number < 2 else "PRUNED"
        study.tell(number, state, objective(proposal.params), STEPS // 2)
    assert study.similarities["earlier"].shared == 4
    assert study.similarities["earlier"].correlation == pytest.approx(1)


def test_each_source_is_compared_by_itself() -> None:
    good, bad = earlier_trials(), earlier_trials("other", sign=-1)
    chosen = sweep("tpe")
    chosen = replace(chosen, budget=chosen.budget.model_copy(update={"trials": 64}))
    study = Study(chosen, (), (), [*bad, *good])
    for number in range(16):
        proposal = study.ask(number)
        assert proposal is not None
        study.tell(number, "COMPLETE", objective(proposal.params), STEPS)
    found = study.similarities
    assert list(found) == ["other", "earlier"]
    assert found["other"].correlation == pytest.approx(-1)
    assert found["earlier"].correlation == pytest.approx(1)
    assert found["other"].weight == 0 < found["earlier"].weight


def earlier_trials(name: str = "earlier", *, sign: float = 1, shift: float = 0) -> list[TrialRecord]:
    drawn = Study(sweep("random", seed=1 + (sign < 0)))
    settings = [dict(drawn.ask(number).params) for number in range(30)]  # type: ignore[union-attr]
    return [
        _record(name, number, each, shift + sign * objective(each)) for number, each in enumerate(settings)
    ]


@pytest.mark.parametrize("shift", [0.0, 5.0])
def test_a_rebuilt_study_is_shown_the_same(shift: float) -> None:
    """The order in which trials end does not matter, and neither does a restart."""
    rng = np.random.default_rng(1)
    chosen = sweep("tpe")
    chosen = replace(chosen, budget=chosen.budget.model_copy(update={"trials": 64}))
    earlier = earlier_trials(shift=shift)
    study, trials = Study(chosen, (), (), earlier), []
    for batch in (range(4), range(4, 8), range(8, 12)):
        proposals = {number: study.ask(number) for number in batch}
        for number, each in proposals.items():
            value = objective(each.params) + rng.normal(0, 0.02)  # type: ignore[union-attr]
            trials.append(_record("own", number, dict(each.params), value))  # type: ignore[union-attr]
        for number in reversed(batch):
            study.tell(number, "COMPLETE", trials[number].value, STEPS)
    rebuilt = Study(chosen, trials, (), earlier)
    assert rebuilt.similarities == study.similarities
    assert rebuilt.similarities["earlier"].weight > 0.5
    assert rebuilt.ask(12) == study.ask(12)


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
