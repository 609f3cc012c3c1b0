"""How fast sweeps finish their trials, in both databases."""

from __future__ import annotations

import pytest

from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.pool.rates import NEWEST, FinishRate, finish_rates
from tests.orchestrator.ledger.examples import create_sweep, sweep_record, trial_record, writer


def test_the_pace_is_that_of_the_newest_finished_trials_of_the_search(ledger: Ledger) -> None:
    create_sweep(ledger, sweep_record(id="a"))
    own = writer(ledger, "a")
    others = {"role": "confirmation", "state": "COMPLETE", "finished_at": 9_999.0}
    trials = [
        trial_record(n, sweep_id="a", state="COMPLETE", finished_at=10.0 * n) for n in range(NEWEST + 5)
    ]
    trials += [
        trial_record(90, sweep_id="a", **others),
        trial_record(91, sweep_id="a", state="RUNNING"),
    ]
    for trial in trials:
        own.add_trial(trial)
    [(sweep, pace)] = finish_rates(ledger, ["a", "unknown"]).items()
    assert (sweep, pace.finished) == ("a", NEWEST + 5)
    assert pace.ends == tuple(10.0 * n for n in range(5, NEWEST + 5))
    assert pace.seconds_left(NEWEST + 8) == pytest.approx(30.0)


def test_a_pace_needs_two_trials_that_ended_at_different_times() -> None:
    assert FinishRate(1, (5.0,)).seconds_left(8) is None
    assert FinishRate(2, (5.0, 5.0)).seconds_left(8) is None
    assert FinishRate(2, (5.0, 7.0)).seconds_left(8) == 12.0
    assert FinishRate(9, (5.0, 7.0)).seconds_left(8) == 0.0, "confirmations may still run"
