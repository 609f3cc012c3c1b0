"""Published arms stand for those that the ledger at hand does not have, and say where they come from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from orchestrator.errors import Damaged
from orchestrator.experiment import experiment_results, publishing
from orchestrator.experiment.experiment_page import doubts
from orchestrator.experiment.experiment_results import ArmResult, Circumstances, Origin
from orchestrator.experiment.file import OrderClaim
from orchestrator.experiment.order import ordering
from orchestrator.experiment.publishing import merged
from orchestrator.ledger.sweeps.records import pack_scores
from tests.orchestrator.experiment.test_results import arm, results_of
from tests.orchestrator.report import confirmed

CLAIM = (OrderClaim("rotrnn", "lru"),)

HERE = results_of(arm("rotrnn", 0.6, 0.61, 0.62), arm("lru"), claims=CLAIM)

ELSEWHERE = replace(
    results_of(arm("rotrnn"), arm("lru", 0.5, 0.51, 0.52), claims=CLAIM),
    circumstances=Circumstances("2026-11-01", "fedcba9876", "64 cores"),
)


def test_arms_of_two_machines_make_one_publication(tmp_path: Path) -> None:
    """Neither machine takes away what the other one has published."""
    publishing.publish(ELSEWHERE, tmp_path)
    data, text = publishing.publish(HERE, tmp_path)
    both = experiment_results.read(data)
    assert {one.name: one.values for one in both.arms} == {
        "rotrnn": [0.6, 0.61, 0.62],
        "lru": [0.5, 0.51, 0.52],
    }
    assert both.arms[1].origin == Origin("2026-11-01", "fedcba9876", "64 cores")
    assert "2026-11-01 | fedcba9 |" in text.read_text()
    publishing.publish(ELSEWHERE, tmp_path)
    again = experiment_results.read(data)
    assert [one.values for one in again.arms] == [one.values for one in both.arms]


def test_a_published_arm_keeps_its_own_origin() -> None:
    first = Origin("2026-10-01", "0000000000")
    older = replace(ELSEWHERE, arms=(ELSEWHERE.arms[0], replace(ELSEWHERE.arms[1], origin=first)))
    assert merged(HERE, older).arms[1].origin == first


def _published(**changes: object) -> ArmResult:
    return replace(ELSEWHERE.arms[1], **changes)  # type: ignore[arg-type]


def test_an_arm_of_another_specification_is_not_kept() -> None:
    other = replace(ELSEWHERE, arms=(ELSEWHERE.arms[0], _published(digest="another")))
    assert merged(HERE, other) == HERE
    assert merged(HERE, replace(ELSEWHERE, metric="test/loss")) == HERE


def test_a_measured_arm_is_known_by_its_call() -> None:
    here = replace(HERE, arms=(HERE.arms[0], replace(HERE.arms[1], digest="", about="m:f(a=1)")))
    same = replace(ELSEWHERE, arms=(ELSEWHERE.arms[0], _published(digest="", about="m:f(a=1)")))
    other = replace(ELSEWHERE, arms=(ELSEWHERE.arms[0], _published(digest="", about="m:f(a=2)")))
    assert len(merged(here, same).arms[1].values) == 3
    assert merged(here, other) == here


def test_the_ledger_is_used_if_it_has_as_many_values() -> None:
    """An arm that is being run again does not replace a complete one before it is complete."""
    part = replace(HERE, arms=(HERE.arms[0], arm("lru", 0.4, 0.4)))
    whole = replace(HERE, arms=(HERE.arms[0], arm("lru", 0.4, 0.4, 0.4)))
    assert merged(part, ELSEWHERE).arms[1].values == [0.5, 0.51, 0.52]
    assert merged(whole, ELSEWHERE).arms[1].values == [0.4, 0.4, 0.4]


def test_hardware_that_a_ledger_does_not_record_is_that_of_the_same_published_values() -> None:
    unknown, gpu = Origin("2026-11-02", "0000000000"), Origin("2026-11-02", "0000000000", "1 GPU")
    whole = replace(arm("lru", 0.5, 0.51, 0.52), origin=unknown)
    known = replace(ELSEWHERE, arms=(ELSEWHERE.arms[0], _published(origin=gpu)))

    def origin(own: ArmResult) -> Origin | None:
        return merged(replace(HERE, arms=(HERE.arms[0], own)), known).arms[1].origin

    assert origin(whole) == gpu
    assert origin(replace(whole, origin=replace(unknown, machine="2 cores"))) == Origin(
        "2026-11-02", "0000000000", "2 cores"
    )
    assert origin(replace(arm("lru", 0.5, 0.51, 0.53), origin=unknown)) == unknown


def test_what_was_spent_on_an_unfinished_arm_stays_published() -> None:
    """Every trial that was begun counts, although the ledger at hand knows of none."""
    begun = replace(arm("lru"), state="INTERRUPTED", trials=3, core_seconds=3_600.0)
    elsewhere = replace(ELSEWHERE, arms=(ELSEWHERE.arms[0], begun))
    new = replace(arm("lru"), state="NEW", trials=0)
    kept = merged(replace(HERE, arms=(HERE.arms[0], new)), elsewhere).arms[1]
    assert (kept.state, kept.trials, kept.core_seconds) == ("INTERRUPTED", 3, 3_600.0)
    again = replace(new, state="RUNNING", trials=1)
    begun_anew = merged(replace(HERE, arms=(HERE.arms[0], again)), elsewhere).arms[1]
    assert begun_anew.trials == 1
    assert [run.trials for run in begun_anew.runs] == [1, 3]


def test_a_run_in_another_ledger_stays_beside_the_one_that_stands(tmp_path: Path) -> None:
    """An arm that one machine has begun and another one has completed has cost what both have spent."""
    there, here = Origin("2026-11-01", "fedcba9876"), Origin("2026-11-02", "0123456789")
    begun = replace(
        arm("lru"), state="INTERRUPTED", trials=3, core_seconds=3_600.0, origin=there, begun_at=1.0
    )
    whole = replace(arm("lru", 0.5, 0.5, 0.5), core_seconds=7_200.0, origin=here, begun_at=2.0)
    publishing.publish(results_of(begun), tmp_path)
    data, text = publishing.publish(results_of(whole), tmp_path)
    assert "6 trials, 2.0 min of wall time, 3.00 core hours" in text.read_text()
    assert (
        "| lru | t-lru-1a2b3c4d | interrupted | 3 | 60 s | 1.00 | – | 2026-11-01 | fedcba9 |"
        in text.read_text()
    )
    publishing.publish(results_of(replace(begun, trials=2, core_seconds=60.0)), tmp_path)
    publishing.publish(results_of(replace(whole, core_seconds=7_200.0)), tmp_path)
    (kept,) = experiment_results.read(data).arms
    assert [(run.state, run.trials) for run in kept.runs] == [("COMPLETE", 3), ("INTERRUPTED", 3)]


def test_the_same_run_counts_once() -> None:
    """It is known by when its sweep was created; earlier results by their day and commit."""
    origin = Origin("2026-11-01", "fedcba9876")
    begun = replace(arm("lru", 0.5), origin=origin, begun_at=1.0)
    later = replace(arm("lru", 0.5, 0.5), origin=origin, begun_at=1.0)
    assert merged(results_of(later), results_of(begun)).arms[0].elsewhere == ()
    assert merged(results_of(begun), results_of(later)).arms[0].elsewhere == ()
    assert merged(results_of(later), results_of(replace(begun, begun_at=0.0))).arms[0].elsewhere == ()
    other = replace(begun, begun_at=0.0, origin=replace(origin, date="2026-10-01"))
    assert len(merged(results_of(later), results_of(other)).arms[0].elsewhere) == 1


def test_what_the_file_says_of_a_kept_arm_is_what_it_says_now() -> None:
    supposed = replace(HERE.arms[1], hypothesis=True, published=None, size="1 block")
    old = replace(ELSEWHERE, arms=(ELSEWHERE.arms[0], _published(obstacle="a smaller profile")))
    kept = merged(replace(HERE, arms=(HERE.arms[0], supposed)), old).arms[1]
    assert (kept.hypothesis, kept.published, kept.size, kept.obstacle) == (True, None, "1 block", "")
    assert merged(HERE, old).arms[1].obstacle == "a smaller profile"


def scored(name: str, *shares: float) -> ArmResult:
    """Return an arm with seeds that have these shares of right answers on the same test examples."""
    answers = [confirmed.right_answers(share, seed=7) for share in shares]
    whole = arm(name, *(float(np.mean(each)) for each in answers))
    seeds = zip(whole.seeds, answers, strict=True)
    return replace(whole, seeds=tuple(replace(seed, scores=pack_scores(each)) for seed, each in seeds))


def test_a_claim_about_arms_of_two_ledgers_counts_the_noise_of_their_examples(tmp_path: Path) -> None:
    """The seeds of each agree: without that noise, a difference of 4 of 400 examples would be established."""
    one, other = scored("rotrnn", *[0.6, 0.6025] * 3), scored("lru", *[0.59, 0.5925] * 3)
    publishing.publish(results_of(arm("rotrnn"), other, claims=CLAIM), tmp_path)
    data, _ = publishing.publish(results_of(one, arm("lru"), claims=CLAIM), tmp_path)
    (merged_order,) = experiment_results.read(data).orderings
    samples = [each.sample("test/accuracy") for each in (one, other)]
    assert merged_order == ordering(*samples, maximize=True, comparisons=3, scored=True)
    assert merged_order.sources == ("seeds", "examples")
    alone = [replace(each, scores=None) for each in samples]
    assert ordering(*alone, maximize=True).winner == "rotrnn"
    assert merged_order.winner is None


@pytest.mark.parametrize("damaged", ["not base 64", "eJw=", "AAAA"])
def test_scores_that_are_damaged_are_refused(tmp_path: Path, damaged: str) -> None:
    own = scored("rotrnn", 0.6, 0.61, 0.62)
    seeds = (replace(own.seeds[0], scores=damaged), *own.seeds[1:])
    data, _ = publishing.publish(results_of(own), tmp_path)
    data.write_text(experiment_results.dumped(results_of(replace(own, seeds=seeds))))
    with pytest.raises(Damaged, match="must hold the results of an experiment"):
        experiment_results.read(data)


def test_arms_whose_scores_were_not_published_are_not_compared_anew() -> None:
    """Versions before did not publish them: the noise of the examples is unknown."""
    whole = merged(HERE, ELSEWHERE)
    assert whole.orderings[0] is not None
    assert whole.orderings[0].winner is None
    assert whole.orderings[0].reason == "the scores of the test examples are not recorded for rotrnn, lru"
    assert whole.orders[0].outcome == "undetermined"


def test_seeds_of_measured_arms_stay_paired() -> None:
    """What a seed draws varies by far more than the arms differ."""
    first, second = arm("rotrnn", 1.0, 5.0, 9.0, 14.0, 3.0, 8.0), arm("lru", 1.5, 5.6, 9.4, 14.7, 3.5, 8.6)
    here = replace(results_of(first, arm("lru"), claims=CLAIM), metric="error", paired=True)
    there = replace(results_of(arm("rotrnn"), second, claims=CLAIM), metric="error", paired=True)
    (order,) = merged(here, there).orderings
    assert order is not None
    assert (order.winner, order.sources) == ("lru", ("paired seeds",))


def test_controls_of_another_ledger_mark_an_arm() -> None:
    own, control = scored("rotrnn", 0.6, 0.61, 0.6), scored("none", 0.6, 0.61, 0.61)
    whole = merged(results_of(own, arm("none")), results_of(arm("rotrnn"), control))
    assert doubts(whole, whole.arms[0]) == ("none",)
    unknown = replace(whole, arms=(own, arm("none", 0.2, 0.21, 0.22)))
    assert doubts(unknown, own) == ()
    assert doubts(replace(whole, arms=(own, arm("none", 0.5, 0.6, 0.7))), own) == ("none",)


def test_a_published_comparison_stands_while_its_arms_do() -> None:
    """It may rest on scores that were not published; its p value is its own, and its family corrects it."""
    two = (*CLAIM, OrderClaim("lru", "rotrnn"))
    whole = results_of(arm("rotrnn", 0.6, 0.61, 0.62), arm("lru", 0.5, 0.51, 0.52), claims=two)
    tested = tuple(replace(each, sources=("seeds", "examples")) for each in whole.orderings if each)
    earlier = replace(whole, orderings=tested)
    assert merged(results_of(arm("rotrnn"), arm("lru"), claims=two), earlier).orderings == tested
    assert merged(results_of(arm("rotrnn"), arm("lru"), claims=CLAIM), earlier).orderings == tested[:1]
    more = merged(results_of(arm("rotrnn"), arm("lru"), claims=(*two, CLAIM[0])), earlier)
    assert more.orderings == (*tested, tested[0])
    assert more.corrected[0].comparisons == 5
