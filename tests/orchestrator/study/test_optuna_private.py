"""Contract with Optuna: fails when something undocumented that the service relies on changes.

No pickle from outside this process is ever read.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import cmaes
import numpy as np
import optuna
import pytest
from optuna.trial import TrialState, create_trial

from orchestrator.errors import Damaged
from orchestrator.study.observations import BEST, Window
from orchestrator.study.optuna_private import (
    CHECKED_VERSION,
    StoredStudy,
    WindowedStorage,
    contains,
    from_plain,
    suggest,
    to_plain,
)


def test_the_version_was_checked() -> None:
    """After an upgrade of Optuna: run this file, read its release notes, then change `CHECKED_VERSION`."""
    assert version("optuna") == CHECKED_VERSION


def test_a_stored_study_is_addressed_by_numbers() -> None:
    """What is written by number is what Optuna's public interface returns."""
    storage = WindowedStorage(Window(None))
    study = optuna.create_study(storage=storage)
    study.ask()
    study.add_trial(create_trial(state=TrialState.RUNNING))
    stored = StoredStudy(storage, study)
    stored.report(1, 3, 0.5)
    stored.set_attributes(1, {"constraints:loss": -1.0})
    stored.set_study_attributes({"name": "value"})
    assert stored.study_attributes() == {"name": "value"}
    study.tell(1, state=TrialState.PRUNED)
    first, second = study.get_trials()
    assert (first.state, second.state) == (TrialState.RUNNING, TrialState.PRUNED)
    assert (second.intermediate_values, second.value) == ({3: 0.5}, 0.5)
    assert stored.trial(1).system_attrs == second.system_attrs
    assert [trial.number for trial in stored.trials()] == [0, 1]


def test_an_added_trial_shares_its_distributions_with_its_template_and_nothing_else() -> None:
    """Optuna would copy them too, which takes most of the time of rebuilding a large study."""
    unit = optuna.distributions.FloatDistribution(0.0, 1.0)
    template = create_trial(
        params={"x": 0.5}, distributions={"x": unit}, value=0.1, system_attrs={"drawn": [1, 2]}
    )
    study = optuna.create_study(storage=WindowedStorage(Window(None)))
    study.add_trial(template)
    [added] = study.get_trials(deepcopy=False)
    assert (added.params, added.distributions, added.values) == ({"x": 0.5}, {"x": unit}, [0.1])
    assert added.distributions["x"] is unit
    assert added.system_attrs == template.system_attrs
    assert template.distributions == {"x": unit}
    for name in ("params", "distributions", "system_attrs"):
        assert getattr(added, name) is not getattr(template, name)
    assert added.system_attrs["drawn"] is not template.system_attrs["drawn"]
    assert study.best_trial.number == 0


@pytest.mark.filterwarnings("ignore:The distribution is specified by")
def test_a_trial_draws_from_a_distribution_as_it_is() -> None:
    """`suggest_float` would make another one of its ends, which ends earlier."""
    thirds = optuna.distributions.FloatDistribution(0.0, 1.0, step=1 / 3)
    assert (thirds.high, contains(thirds, 1.0)) == (0.9999999999999999, False)
    thirds.high = 1.0
    assert (contains(thirds, 1.0), contains(thirds, 0.5)) == (True, False)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    drawn = [suggest(study.ask(), "x", thirds) for _ in range(40)]
    assert max(drawn) == 1.0
    assert drawn == [trial.params["x"] for trial in study.get_trials()]
    assert all(trial.distributions == {"x": thirds} for trial in study.get_trials())


def test_constraints_are_attributes_of_a_trial() -> None:
    attributes = create_trial(state=TrialState.RUNNING, constraints={"loss": -1.0}).system_attrs
    assert create_trial(state=TrialState.RUNNING, system_attrs=dict(attributes)).constraints == {"loss": -1.0}


@pytest.mark.parametrize("sampler", [optuna.samplers.TPESampler, optuna.samplers.NSGAIISampler])
def test_samplers_read_the_past_through_the_overridden_method(
    sampler: type[optuna.samplers.BaseSampler], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trial outside the window never reaches a sampler."""
    window = Window(BEST + 5)
    storage = WindowedStorage(window)
    study = optuna.create_study(storage=storage, sampler=sampler(seed=0))
    space = {"x": optuna.distributions.FloatDistribution(0.0, 1.0)}
    for number in range(BEST + 50):
        study.add_trial(create_trial(params={"x": 0.5}, distributions=space, value=float(number)))
        window.begin(number)
        window.settle(number, (0.0, float(number)))
    read: list[int] = []
    whole = WindowedStorage.get_all_trials

    def recorded(*arguments: object, **options: object) -> list[optuna.trial.FrozenTrial]:
        trials = whole(*arguments, **options)  # type: ignore[arg-type]
        read.extend(trial.number for trial in trials)
        return trials

    monkeypatch.setattr(WindowedStorage, "get_all_trials", recorded)
    study.ask(space)
    shown = window.shown()
    assert shown is not None
    assert read
    assert set(read) <= {*shown, BEST + 50}


def _written(optimizer: object) -> dict[str, object]:
    """Return attributes as Optuna writes them: hexadecimal, in pieces."""
    text = pickle.dumps(optimizer).hex()
    return {
        f"cma:optimizer:{k}": text[start : start + 500] for k, start in enumerate(range(0, len(text), 500))
    }


def test_an_optimizer_survives_the_conversion_to_json() -> None:
    optimizer = cmaes.CMA(np.zeros(3), 1.3, seed=5)
    optimizer.tell([(point, float(point @ point)) for point in (optimizer.ask() for _ in range(7))])
    stored = json.loads(json.dumps(to_plain({**_written(optimizer), "cma:generation": 1})))
    assert stored["cma:generation"] == 1
    assert set(stored) == {"cma:generation", "optimizer"}
    again = pickle.loads(bytes.fromhex(str(from_plain(stored)["cma:optimizer:0"])))
    assert again.generation == optimizer.generation
    again._rng, optimizer._rng = np.random.RandomState(1), np.random.RandomState(1)
    assert (again.ask() == optimizer.ask()).all()


class Evil:
    """A pickle that writes a file when it is loaded."""

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return (Path.write_text, (Path("pwned"), "pwned"))


def test_the_state_of_an_optimizer_may_refer_to_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(pickle.UnpicklingError, match="is not part of an optimizer"):
        to_plain(_written(Evil()))
    assert not Path("pwned").exists()


@pytest.mark.parametrize(
    "name", ["cma:optimizer:0", "sepcma:optimizer:0", "cmawm:optimizer", "cma:optimizer:x"]
)
def test_a_planted_pickle_is_refused(name: str) -> None:
    """Optuna would unpickle any attribute whose name starts like its own."""
    with pytest.raises(Damaged, match="must be plain JSON, not a pickle"):
        from_plain({name: pickle.dumps(Evil()).hex()})
