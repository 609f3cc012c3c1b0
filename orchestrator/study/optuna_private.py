"""Undocumented interfaces of Optuna that the service uses; checked with Optuna 5.0.0.

- Storage methods that address a study or a trial by id, which Optuna's documentation calls internal.
  `Study.tell` is public and is used; but a running trial of a rebuilt study has no `Trial` object, whose
  `report` also refuses several objectives, and the attributes of a study can be read and written through its
  storage only.
- Every sampler reads the past through `get_all_trials` of the storage, and of a trial's intermediate values
  only the one at the latest step: `WindowedStorage` overrides both. A trial that it lists as RUNNING is, to
  TPE, neither good nor bad by its value.
- `Trial._suggest`, which draws from a given distribution. `Trial.suggest_float` builds one from the ends and
  the step, and would shorten a range whose decimals the step does not divide.
- `BaseDistribution._contains`, by which Optuna accepts or refuses a value.
- The attributes in which CMA-ES keeps its state between generations. Optuna pickles that state, and unpickles
  whatever the attributes hold. Nothing pickled is ever read from disk here: a state that this process has
  pickled becomes plain JSON before it is stored, and is pickled again when a study is rebuilt. A stored
  attribute that Optuna would unpickle is refused. The state of this process is read by an unpickler that
  knows only optimizers and arrays.

`tests/orchestrator/study/test_optuna_private.py` fails when one of these changes.
"""

from __future__ import annotations

import copy
import importlib
import io
import pickle
import re
from collections.abc import Container, Mapping
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution
from optuna.storages import InMemoryStorage
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial, TrialState

from orchestrator.errors import RECOVER, Damaged
from orchestrator.study.observations import Window

CHECKED_VERSION = "5.0.0"

_PIECE = re.compile(r"(?:cma|cmawm):optimizer:(\d+)")
_STORED = "optimizer"
_CLASSES = ("CMA", "CMAwM")
_DTYPES = ("float64", "int64", "bool")
_PICKLED = {
    ("cmaes._cma", "CMA"),
    ("cmaes._cmawm", "CMAwM"),
    ("numpy", "dtype"),
    ("numpy", "ndarray"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "scalar"),
}
"""Classes in the pickled state of an optimizer."""


class WindowedStorage(InMemoryStorage):
    """Optuna's storage in memory, which lists only the trials in a window, and keeps one point of a curve.

    Samplers read no point but the latest one. Optuna copies all points of a trial at each report.

    Args:
        window: Trials that are listed.
        lists_stopped: Whether a stopped trial is listed as PRUNED; otherwise it is listed as RUNNING.
    """

    def __init__(self, window: Window, *, lists_stopped: bool = True) -> None:
        super().__init__()
        self._window, self._lists_stopped = window, lists_stopped
        self._as_running: dict[int, FrozenTrial] = {}

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
        """Add a trial that has the distributions of its template, and copies of everything else in it.

        Distributions do not change, and copying them takes most of the time of adding a trial.
        """
        if template_trial is None:
            return super().create_new_trial(study_id)
        bare = copy.copy(template_trial)
        bare.distributions = {}
        trial_id = super().create_new_trial(study_id, bare)
        self.get_trial(trial_id).distributions = dict(template_trial.distributions)
        return trial_id

    def get_all_trials(
        self, study_id: int, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        """Return the trials in the window that are in the given states."""
        shown = self._window.shown()
        is_as_stored = self._lists_stopped and not self._window.translated
        if states == (TrialState.WAITING,) or (shown is None and is_as_stored):
            return super().get_all_trials(study_id, deepcopy, states)
        every: list[Any] = super().get_all_trials(study_id, deepcopy=False)
        trials = every if shown is None else [every[number] for number in shown]
        if not self._lists_stopped:
            trials = [self._unfinished(trial) for trial in trials]
        trials = [_translated(trial, self._window.translated.get(trial.number)) for trial in trials]
        return [trial for trial in trials if states is None or trial.state in states]

    def _unfinished(self, trial: FrozenTrial) -> FrozenTrial:
        """Return a stopped trial as a running one, and any other trial as it is."""
        if trial.state != TrialState.PRUNED:
            return trial
        if trial.number not in self._as_running:
            running = copy.copy(trial)
            running.state, running.values, running.datetime_complete = TrialState.RUNNING, None, None
            self._as_running[trial.number] = running
        return self._as_running[trial.number]

    def set_trial_intermediate_value(self, trial_id: int, step: int, intermediate_value: float) -> None:
        """Set the point of a running trial at a step, and drop all points but the latest one."""
        super().set_trial_intermediate_value(trial_id, step, intermediate_value)
        points = self.get_trial(trial_id).intermediate_values  # copied just now, for this report
        for earlier in sorted(points)[:-1]:
            del points[earlier]


def _translated(trial: FrozenTrial, value: float | None) -> FrozenTrial:
    """Return a trial with another value of its first objective, or as it is if there is none."""
    if value is None:
        return trial
    shown = copy.copy(trial)
    shown.values = [value, *trial.values[1:]]
    return shown


class StoredStudy:
    """The trials and attributes of one study in its storage, with trials addressed by number."""

    def __init__(self, storage: InMemoryStorage, study: Study) -> None:
        self._storage = storage
        self._study_id = storage.get_study_id_from_name(study.study_name)

    def trial(self, number: int) -> FrozenTrial:
        """Return one trial."""
        return self._storage.get_trial(self._trial_id(number))

    def trials(self) -> list[FrozenTrial]:
        """Return every trial, inside and outside the window."""
        return InMemoryStorage.get_all_trials(self._storage, self._study_id)

    def report(self, number: int, step: int, value: float) -> None:
        """Set the first objective of a running trial at a step."""
        self._storage.set_trial_intermediate_value(self._trial_id(number), step, value)

    def set_attributes(self, number: int, attributes: Mapping[str, Any]) -> None:
        """Set system attributes of a running trial."""
        for name, value in attributes.items():
            self._storage.set_trial_system_attr(self._trial_id(number), name, value)

    def study_attributes(self) -> dict[str, Any]:
        """Return the system attributes of the study."""
        return dict(self._storage.get_study_system_attrs(self._study_id))

    def set_study_attributes(self, attributes: Mapping[str, Any]) -> None:
        """Set system attributes of the study."""
        for name, value in attributes.items():
            self._storage.set_study_system_attr(self._study_id, name, value)

    def _trial_id(self, number: int) -> int:
        return self._storage.get_trial_id_from_study_id_trial_number(self._study_id, number)


def suggest(trial: Trial, name: str, distribution: BaseDistribution) -> Any:
    """Draw a hyperparameter of a trial from a distribution, whose ends and step are not rounded."""
    return trial._suggest(name, distribution)


def contains(distribution: BaseDistribution, value: Any) -> bool:
    """Return True if Optuna accepts a value of a distribution."""
    return distribution._contains(distribution.to_internal_repr(value))


class _Unpickler(pickle.Unpickler):
    """Loads optimizers and NumPy's arrays, and imports nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _PICKLED:
            raise pickle.UnpicklingError(f"{module}.{name} is not part of an optimizer's state")
        return super().find_class(module, name)


def to_plain(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a trial's attributes, which this process has just written, with any optimizer as plain JSON.

    Raises:
        UnpicklingError: The pickled optimizer refers to anything but optimizers and arrays.
    """
    pieces = {int(match[1]): name for name in attributes if (match := _PIECE.fullmatch(name))}
    plain = {name: value for name, value in attributes.items() if name not in pieces.values()}
    if pieces:
        pickled = bytes.fromhex("".join(attributes[pieces[index]] for index in sorted(pieces)))
        optimizer = _Unpickler(io.BytesIO(pickled)).load()
        plain[_STORED] = {"key": pieces[0].rpartition(":")[0], "state": _encode(optimizer)}
    return plain


def from_plain(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return stored attributes in the form that Optuna expects.

    Raises:
        Damaged: An attribute is a pickled optimizer, which this service never stores.
    """
    full = {name: value for name, value in attributes.items() if name != _STORED}
    if pickles := [name for name in full if f":{_STORED}" in name]:
        raise Damaged(
            "ledger, attributes of a trial", "must be plain JSON, not a pickle", pickles[0], RECOVER
        )
    if _STORED in attributes:
        stored = attributes[_STORED]
        full[f"{stored['key']}:0"] = pickle.dumps(_decode(stored["state"])).hex()
    return full


def _encode(value: Any) -> Any:
    if type(value).__name__ in _CLASSES:
        return {"class": type(value).__name__, "state": _encode(value.__getstate__())}
    if isinstance(value, np.ndarray | np.generic):
        return {"dtype": value.dtype.name, "shape": list(value.shape), "values": value.ravel().tolist()}
    if isinstance(value, dict):
        return {"fields": {name: _encode(field) for name, field in value.items()}}
    assert value is None or isinstance(value, bool | int | float), f"{type(value)} in an optimizer's state"
    return value


def _decode(plain: Any) -> Any:
    if not isinstance(plain, dict):
        return plain
    if "class" in plain:
        # The package cmaes is an extra: only a sweep with this sampler needs it.
        kind = getattr(importlib.import_module("cmaes"), _CLASSES[_CLASSES.index(plain["class"])])
        optimizer = kind.__new__(kind)
        # As pickle does: without a __setstate__ the state becomes the attributes.
        restore = getattr(optimizer, "__setstate__", optimizer.__dict__.update)
        restore(_decode(plain["state"]))
        return optimizer
    if "fields" in plain:
        return {name: _decode(field) for name, field in plain["fields"].items()}
    dtype = np.dtype(_DTYPES[_DTYPES.index(plain["dtype"])])
    array = np.array(plain["values"], dtype).reshape(plain["shape"])
    return array if plain["shape"] else array[()]
