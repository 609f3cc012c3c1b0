"""Reports name the scores of controls, and mark results that are not established to differ from one."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.ledger.sweeps.records import pack_scores
from orchestrator.report.answer import notes
from orchestrator.report.controls import control_lines, doubts
from orchestrator.report.history import SeedResult
from orchestrator.report.summary import Summary
from tests.orchestrator.report.confirmed import right_answers, summary


def _with_memoryless(found: Summary, value: float) -> Summary:
    """Return a sweep whose last complete trial had the layer `none`."""
    ranked = [row for row in found.rows if row.rank is not None]
    control = replace(ranked[-1], params={**ranked[-1].params, "layer": "none"}, value=value, test=None)
    return replace(found, rows=tuple(control if row == ranked[-1] else row for row in found.rows))


def test_the_controls_stand_in_every_report() -> None:
    """The best constant on test, and the best trial without recurrence on validation."""
    found = _with_memoryless(summary("a", [0.8, 0.81, 0.82], chance={"test": 0.5}), 0.55)
    number = next(row.number for row in found.rows if row.params.get("layer") == "none")
    line = (
        f"Controls: the best constant answer 0.5000 test/accuracy, "
        f"the layer none (trial {number}) 0.5500 val/accuracy."
    )
    assert control_lines(found) == [line]
    assert line in notes(found)
    assert doubts(found) == []


def test_a_result_like_a_control_is_marked() -> None:
    """With the p value, for each control that comes that close."""
    found = _with_memoryless(summary("a", [0.6, 0.62, 0.64], chance={"test": 0.4}), 0.615)
    (doubt,) = doubts(found)
    assert doubt.startswith("No difference from a control, the layer none (trial ")
    assert ", is established (p = 0.9" in doubt
    assert doubt in notes(found)
    (doubt,) = doubts(summary("a", [0.48, 0.5, 0.53], chance={"test": 0.5}))
    assert doubt.startswith("No difference from a control, the best constant answer, is established (p = 0.")


def test_a_result_that_is_worse_than_a_control_is_marked_too() -> None:
    (doubt,) = doubts(summary("a", [0.3, 0.31, 0.29], chance={"test": 0.5}))
    assert doubt.startswith("The result is worse than a control, the best constant answer (p = 0.")
    lower = replace(summary("a", [0.3, 0.31, 0.29], chance={"test": 0.5}), maximize=False)
    assert doubts(lower) == []


def test_a_control_has_noise_of_its_own() -> None:
    """What differs from a constant may not differ from one training, whose seed may have been unlucky."""
    shares = [0.66, 0.70, 0.74]
    assert doubts(summary("a", shares, chance={"test": 0.57})) == []
    (doubt,) = doubts(_with_memoryless(summary("a", shares, chance={}), 0.57))
    assert doubt.startswith("No difference from a control, the layer none")


def test_a_control_that_was_tested_is_compared_on_the_same_examples() -> None:
    """Paired scores differ by less than those of other examples, as of validation."""
    found = _with_memoryless(summary("a", [0.6, 0.6025, 0.605], chance={}), 0.56)
    assert len(doubts(found)) == 1
    tested = SeedResult("none", 0, 0.56, pack_scores(right_answers(0.56, 0)))
    assert doubts(replace(found, memoryless=tested)) == []
    (line,) = control_lines(replace(found, memoryless=tested))
    assert line.endswith("0.5600 test/accuracy.")


def test_a_single_seed_is_tested_with_the_noise_of_its_examples() -> None:
    assert doubts(summary("a", [0.9], chance={"test": 0.5})) == []
    assert len(doubts(summary("a", [0.51], chance={"test": 0.5}))) == 1


def test_nothing_is_said_of_what_is_not_known() -> None:
    """Without controls there is no line; a control is not compared with itself."""
    assert control_lines(summary("a", [0.6], chance={})) == []
    assert doubts(summary("a", [], chance={"test": 0.5})) == []
    assert doubts(replace(summary("a", [0.5, 0.5, 0.52], chance={"test": 0.5}), layer="none")) == []
