"""Rules that stop or change trials, and drivers that are killed, stopped, resumed and extended."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from subprocess import Popen

import pytest

from orchestrator.config.resolve import load
from orchestrator.errors import Exit
from orchestrator.study.study import Study
from tests.end_to_end.commands import Commands, wait_for
from tests.end_to_end.identities import Evidence, Search, of_population
from tests.end_to_end.pairs.scenes import (
    PATIENCE,
    better_at,
    edited,
    halved,
    pruned,
    repeated,
    require_running,
    scene,
)

pytestmark = [pytest.mark.end_to_end, pytest.mark.slow, pytest.mark.timeout(1800)]

THREE = "{cpu: 0.5, concurrent: 3}"
HALVED = 9
"""Seed of a search whose second trial is the best, and whose fifth is the worst: it is stopped at a rung."""
MEETING = """
import pathlib


def meet(trial, done):
    \"\"\"Wait after every third step until all four trials have done it, so that one can copy another.\"\"\"
    if done % 3:
        return
    folder = pathlib.Path(__file__).parent / "met"
    folder.mkdir(exist_ok=True)
    (folder / f"{trial.seed}.part").write_text(str(done))
    (folder / f"{trial.seed}.part").rename(folder / f"{trial.seed}.step")
    while len(there := [*folder.glob("*.step")]) < 4 or min(int(one.read_text()) for one in there) < done:
        time.sleep(0.05)
"""
"""Part of a script whose trials go on side by side on a slow machine too."""


def drawn(file: Path, trials: int) -> list[float]:
    """Return the hyperparameters that the search of a file tries, in their order."""
    study = Study(load(file, profile=None, gpus=0))
    proposals = [study.ask(number) for number in range(trials)]
    return [float(one.params["x"]) for one in proposals if one is not None]


def values(evidence: Evidence) -> list[float]:
    """Return the hyperparameters of all trials, in their order."""
    return [float(one.params["x"]) for one in sorted(evidence.trials, key=lambda trial: trial.number)]


def test_early_stopping_and_killed_drivers(commands: Commands, temporary: Path) -> None:
    """The rule stops the same trials as it would have done without a kill, and the others go on."""
    search = Search(
        "function",
        trials=8,
        steps=8,
        seed=HALVED,
        scheduler="{asha: {reduction: 2, grace: 0.25}}",
        resources=THREE,
        pause=0.3,
    )
    file = search.write(commands.folder / "own", "halved")
    with scene(commands, temporary) as this:
        for reports in (5, 14):
            driver, sweep = this.begin(str(file), reports=reports)
            this.kill(driver)
        this.run(str(file))
        [found] = this.require(sweep)
        assert pruned(found) == halved(found, rungs=[2, 4])
        assert len(pruned(found)) in range(1, 8)
        assert values(found) == drawn(file, 8)
        causes = {cause for cause in this.causes(sweep) if not cause.startswith("stopped at step ")}
        assert causes == {"driver lost"}


def test_population_based_training_and_killed_drivers(commands: Commands, temporary: Path) -> None:
    """Each attempt goes on from the trial that the rule chose, or after a kill from its own last report."""
    search = Search(
        "function",
        trials=4,
        steps=18,
        seed=1,
        scheduler="{pbt: {mutations: [x], period: 0.16, quantile: 0.5}}",
        resources="{cpu: 0.25, concurrent: 4}",
        pause=0.2,
        mutable=True,
    )
    own = commands.folder / "own"
    file = search.write(own, "population")
    script = own / "of_population.py"
    edited(script, "        time.sleep(", "        meet(trial, step - 1)\n        time.sleep(")
    edited(script, "def run(", f"{MEETING}\n\ndef run(")
    with scene(commands, temporary) as this:
        driver, sweep = this.begin(str(file), reports=6)
        this.kill(driver)
        for copies in (1, 2):
            driver, _ = this.begin(str(file), reports=0)

            def has_copies(driver: Popen[str] = driver, copies: int = copies) -> bool:
                require_running(driver)
                return sum(len(one.system_attrs.get("segments", [])) for one in this.trials(sweep)) >= copies

            wait_for(has_copies, PATIENCE)
            this.kill(driver)
        this.run(str(file))
        [found] = this.require(sweep, allowed=of_population)
        assert [one.state for one in found.trials] == ["COMPLETE"] * 4
        better = better_at(found, period=3)
        copied = [
            (one.key, segment) for one in found.trials for segment in one.system_attrs.get("segments", [])
        ]
        assert len(copied) >= 2
        for key, segment in copied:
            steps = [
                one.step for one in found.reports if one.trial_key == key and one.step <= segment["step"]
            ]
            assert segment["donor"] in better.get((key, max(steps)), set()), (key, segment)
        assert this.causes(sweep) >= {"driver lost"}


def test_stops_resumes_and_an_extension_of_one_sweep(commands: Commands, temporary: Path) -> None:
    """Nothing is repeated, and the six trials are those of a search that was never stopped."""
    search = Search("function", trials=3, steps=8, seed=3, pause=0.4)
    file = search.write(commands.folder / "own", "extended")
    with scene(commands, temporary) as this:
        driver, sweep = this.begin(str(file), reports=3)
        this.stop(driver, sweep)
        this.run("resume", sweep)
        [found] = this.require(sweep)
        assert len(found.trials) == 3
        driver, _ = this.begin("resume", sweep, "--extend", "trials=6", reports=len(found.reports) + 3)
        this.stop(driver, sweep)
        this.run("resume", sweep)
        [found] = this.require(sweep)
        assert [one.state for one in found.trials] == ["COMPLETE"] * 6
        assert values(found) == drawn(file, 6)
        assert repeated(found) == []
        assert this.causes(sweep) == {"interrupted"}


def test_failed_trials_that_are_retried_and_early_stopping(commands: Commands, temporary: Path) -> None:
    """A script fails at step 5 while a file lies beside it; the rule counts the reports before that once."""
    search = Search(
        "function",
        trials=6,
        steps=12,
        seed=HALVED,
        scheduler="{asha: {reduction: 2, grace: 0.16}}",
        resources=THREE,
    )
    own = commands.folder / "own"
    file, broken = search.write(own, "retried"), own / "broken"
    broken.touch()
    edited(
        own / "of_retried.py",
        "        time.sleep(",
        f"        if step == 5 and os.path.exists({str(broken)!r}):\n"
        "            raise OSError('it is broken')\n"
        "        time.sleep(",
    )
    with scene(commands, temporary) as this:
        this.run(str(file), code=Exit.SOME_FAILED)
        [sweep] = this.ids("retried")
        failed = {one.key for one in this.trials(sweep) if one.state == "FAILED"}
        stopped = {one.key for one in this.trials(sweep) if one.state == "PRUNED"}
        assert failed
        assert stopped
        assert {one.key for one in this.trials(sweep)} == failed | stopped
        assert {one.step for one in this.trials(sweep) if one.key in failed} == {4}
        broken.unlink()
        this.run("retry-failed", sweep)
        [found] = this.require(sweep)
        assert pruned(found) == halved(found, rungs=[2, 4, 8])
        assert stopped <= pruned(found).keys()
        with closing(commands.ledger) as ledger:
            attempts = {one.key: len(ledger.trial_attempts(one.key)) for one in found.trials}
        assert attempts == {key: 3 if key in failed else 1 for key in failed | stopped}
