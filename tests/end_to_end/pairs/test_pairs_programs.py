"""Programs of different static choices that take turns in one engine."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.ledger.sweeps.records import trial_key_of
from tests.end_to_end.commands import Commands, wait_for
from tests.end_to_end.identities import Allowed, Evidence, Search, by_attempt
from tests.end_to_end.pairs.scenes import PATIENCE, edited, require_running, scene

pytestmark = [pytest.mark.end_to_end, pytest.mark.slow, pytest.mark.timeout(1800)]


def with_widths(file: Path, script: Path) -> None:
    """Let a search draw a static choice, which shapes the state, and `val/loss` add it to what is held."""
    edited(file, "search: {x: {uniform: [0, 1]}}", "search: {x: {uniform: [0, 1]}, width: {choice: [1, 2]}}")
    edited(
        script,
        "    def data(",
        "    def __init__(self, width: int = 1):\n        self.width = width\n\n    def data(",
    )
    edited(
        script,
        '{"least": free["x"], "most": free["x"]',
        '{"least": jnp.full(self.width, free["x"]), "most": jnp.full(self.width, free["x"])',
    )
    edited(script, '(state["least"] + state["most"]) / 2', '(state["least"].min() + state["most"].max()) / 2')
    edited(script, '"loss": like + held', '"loss": like + held + self.width')


def of_widths(evidence: Evidence) -> Mapping[str, Allowed]:
    """Return what an attempt may say: its static choice as well."""
    widths = {one.key: float(one.params["width"]) for one in evidence.trials}
    keys = {one.id: one.trial_key for one in evidence.attempts}
    return {
        attempt: replace(may, held=frozenset(value + widths[keys[attempt]] for value in may.values or ()))
        for attempt, may in by_attempt(evidence).items()
    }


def test_two_static_choices_in_one_engine_and_killed_drivers(commands: Commands, temporary: Path) -> None:
    """Each trial goes on in the program of its own static choice, and from its own state."""
    search = Search("program", trials=8, steps=400, interval=20, seed=5, resources="{gpu: 1/4, cpu: 0.1}")
    own = commands.folder / "own"
    file = search.write(own, "widths")
    with_widths(file, own / "of_widths.py")
    with scene(commands, temporary, SWEEP_HOST_DEVICES="1") as this:
        driver, sweep = this.begin(str(file), reports=3)
        this.kill(driver)
        driver, _ = this.begin(str(file), reports=0)

        def widths() -> dict[str, int]:
            return {one.key: one.params["width"] for one in this.trials(sweep)}

        def both_have_reported() -> bool:
            require_running(driver)
            known = widths()
            return {known.get(one.trial_key) for one in this.reports(sweep)} >= {1, 2}

        wait_for(both_have_reported, PATIENCE)
        this.kill(driver)
        this.run(str(file))
        [found] = this.require(sweep, allowed=of_widths)
        assert [one.state for one in found.trials] == ["COMPLETE"] * 8
        assert this.causes(sweep) == {"driver lost"}
        known = widths()
        served: dict[int, set[int]] = defaultdict(set)
        for attempt, pid in this.workers(sweep).items():
            served[pid].add(known[trial_key_of(attempt)])
        assert len(served) == 3, "one engine for each driver"
        assert {1, 2} in served.values()
