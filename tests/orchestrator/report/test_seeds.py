"""The results that stand for a sweep are those of fresh seeds of its best hyperparameters."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from orchestrator.ledger.sweeps.records import unpack_scores
from orchestrator.report.controls import sample_of
from orchestrator.report.history import History, seed_results
from orchestrator.report.summary import summarise
from tests import sweeps
from tests.orchestrator.report.confirmed import EXAMPLES, confirmation, history, right_answers

METRIC = "test/accuracy"


def test_confirmations_stand_for_the_sweep() -> None:
    """The best trial, whose seed was chosen, is left out beside them."""
    found = seed_results(history([0.6, 0.7, 0.8]), METRIC)
    assert [result.trial for result in found.results] == [f"{sweeps.SWEEP_ID}-c{k}" for k in range(3)]
    assert [result.value for result in found.results] == pytest.approx([0.6, 0.7, 0.8])
    assert found.results[1].scores is not None
    assert unpack_scores(found.results[1].scores) == right_answers(0.7, 1)
    assert (found.fresh, found.missing) == (True, 0)


def test_the_trial_of_a_search_of_one_is_a_seed_like_its_confirmations() -> None:
    before = history([0.6, 0.7])
    best = next(trial for trial in before.trials if trial.key == f"{sweeps.SWEEP_ID}-7")
    document = {**before.sweep.document, "budget": {"trials": 1}}
    confirmations = [trial for trial in before.trials if trial.role == "confirmation"]
    one = replace(before, sweep=replace(before.sweep, document=document), trials=(best, *confirmations))
    found = seed_results(one, METRIC)
    assert [result.trial.removeprefix(sweeps.SWEEP_ID) for result in found.results] == ["-7", "-c0", "-c1"]
    assert (found.fresh, found.missing) == (True, 0)


def test_without_confirmations_the_best_trial_stands_alone() -> None:
    found = seed_results(sweeps.history(), METRIC)
    assert [result.trial for result in found.results] == [f"{sweeps.SWEEP_ID}-7"]
    assert (found.fresh, found.missing) == (False, 0)


def test_a_sweep_without_a_complete_trial_has_no_result() -> None:
    whole = sweeps.history()
    pruned = tuple(trial for trial in whole.trials if trial.state != "COMPLETE")
    assert seed_results(replace(whole, trials=pruned), METRIC).results == ()
    assert sample_of(summarise(replace(whole, trials=pruned))) is None


def _with(before: History, *trials: object) -> History:
    return replace(before, trials=(*before.trials, *trials))  # type: ignore[arg-type]


def test_confirmations_of_another_trial_are_left_out() -> None:
    """It was the best one before the search was extended."""
    before = history([0.6, 0.7])
    other = confirmation(0, params=sweeps.trial(6).params)
    trials = tuple(other if trial.key == other.key else trial for trial in before.trials)
    found = seed_results(replace(before, trials=trials), METRIC)
    assert [result.trial for result in found.results] == [f"{sweeps.SWEEP_ID}-c1"]


def test_failed_and_diverged_confirmations_are_counted() -> None:
    before = history([0.6, 0.7, 0.8])
    (row,) = before.evaluations[f"{sweeps.SWEEP_ID}-c2"]
    diverged = replace(row, metrics={METRIC: math.nan})
    evaluations = {**before.evaluations, row.trial_key: [diverged]}
    found = seed_results(
        _with(
            replace(before, evaluations=evaluations), confirmation(3, "FAILED"), confirmation(4, "RUNNING")
        ),
        METRIC,
    )
    assert len(found.results) == 2
    assert found.missing == 2


def test_scores_are_of_the_tasks_metric() -> None:
    """With the loss as objective, the scores of the examples are those of another metric."""
    facts = {**sweeps.sweep_record().facts, "metric": "val/loss"}
    summary = summarise(history([0.6, 0.7], facts=facts))
    assert summary.test_metric == "test/loss"
    assert [result.scores for result in summary.seeds.results] == [None, None]


def test_the_sample_holds_values_and_scores() -> None:
    sample = sample_of(summarise(history([0.6, 0.7, 0.8])))
    assert sample is not None
    assert sample.scores is not None
    assert sample.scores.shape == (3, EXAMPLES)
    assert sample.scores.mean(axis=1) == pytest.approx(sample.values)
    assert (sample.share, sample.data) == (True, sweeps.sweep_record().data_digest)
    without = sample_of(summarise(history([0.6, 0.7], recorded=False)))
    assert without is not None
    assert without.scores is None
