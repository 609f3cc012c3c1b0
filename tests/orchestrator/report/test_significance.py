"""The statistical tests agree with tables, and their results become sentences."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.ledger.records import EvaluationRecord
from orchestrator.report.answer import against_figure, between_accuracies, findings, spread
from orchestrator.report.history import History
from orchestrator.report.summary import summarise
from tests import sweeps


def test_spread() -> None:
    seen = spread([0.60, 0.62, 0.64])
    assert (seen.count, seen.mean, seen.deviation) == (3, pytest.approx(0.62), pytest.approx(0.02))
    assert spread([0.6]).deviation is None


def test_t_test_against_a_figure() -> None:
    # t = 4.303 with 2 degrees of freedom is the tabulated two-sided 5 % point.
    values = [-1.0, 0.0, 1.0]
    test = against_figure(values, 4.3027 / 3**0.5)
    assert test is not None
    assert test.p == pytest.approx(0.05, abs=1e-4)
    assert test.name == "one-sample t test"
    assert against_figure([0.6], 0.5) is None
    same = against_figure([0.6, 0.6], 0.6)
    assert same is not None
    assert same.p == 1.0


def test_z_test_between_accuracies() -> None:
    # p = 0.5 and n = 200 give a standard error of 0.05, and z = 1.96 the 5 % point.
    assert between_accuracies(0.549, 0.451, 200).p == pytest.approx(0.05, abs=1e-3)
    assert between_accuracies(0.6, 0.6, 200).p == 1.0
    assert between_accuracies(1.0, 1.0, 200).p == 1.0
    assert between_accuracies(0.9, 0.5, 2000).differs


def _with_confirmations(comparable: bool) -> History:
    history = sweeps.history(facts={**sweeps.sweep_record().facts, "comparable": comparable})
    fresh = [
        replace(sweeps.trial(7), key=f"{sweeps.SWEEP_ID}-c{k}", number=k, role="confirmation")
        for k in range(3)
    ]
    evaluations = {
        trial.key: [
            EvaluationRecord(trial.key, 200, "test", {"test/accuracy": 0.63 + 0.01 * trial.number}, 0.0)
        ]
        for trial in fresh
    }
    return replace(
        history, trials=(*history.trials, *fresh), evaluations={**history.evaluations, **evaluations}
    )


def test_confirmations_are_stated_as_mean_and_deviation() -> None:
    sentences = findings(summarise(_with_confirmations(comparable=True)))
    assert sentences[0] == "Over 3 fresh seeds test/accuracy is 0.6400 ± 0.0100 (standard deviation)."
    assert sentences[1].startswith(
        "Against the published 0.8990: a difference (one-sample t test, p = 0.0005"
    )
    assert len(summarise(_with_confirmations(comparable=True)).rows) == 8


def test_results_that_cannot_be_compared_are_not_tested() -> None:
    sentences = findings(summarise(_with_confirmations(comparable=False)))
    assert not [line for line in sentences if "published" in line]


def test_the_second_best_is_distinguished_only_if_possible() -> None:
    (sentence,) = findings(summarise(sweeps.history()))
    assert sentence.startswith(
        "Trial 7 is 0.0184 ahead of trial 6 on 512 validation examples: no more than chance"
    )
    assert "two-proportion z test, p = 0.5" in sentence
    alone = sweeps.history([sweeps.trial(0)])
    assert findings(summarise(alone)) == []
