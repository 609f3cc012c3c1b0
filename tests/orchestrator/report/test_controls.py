"""Reports name the scores of controls, and mark results that are not established to differ from one."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.report.answer import notes
from orchestrator.report.controls import control_lines, doubts
from orchestrator.report.summary import Summary
from tests.orchestrator.report.confirmed import summary


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
    found = _with_memoryless(summary("a", [0.6, 0.62, 0.64], chance={"test": 0.4}), 0.62)
    (doubt,) = doubts(found)
    assert doubt.startswith("No difference from a control, the layer none (trial ")
    assert ", is established (p = 0.9" in doubt
    assert doubt in notes(found)
    (doubt,) = doubts(summary("a", [0.48, 0.5, 0.53], chance={"test": 0.5}))
    assert doubt.startswith("No difference from a control, the best constant answer, is established (p = 0.")


def test_nothing_is_said_of_what_is_not_known() -> None:
    """Without controls there is no line; a control is not compared with itself."""
    assert control_lines(summary("a", [0.6], chance={})) == []
    assert doubts(summary("a", [], chance={"test": 0.5})) == []
    assert doubts(replace(summary("a", [0.5, 0.5, 0.52], chance={"test": 0.5}), layer="none")) == []
