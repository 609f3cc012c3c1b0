"""The trials that a sweep enters: those that its sampler proposes, then those that confirm the chosen one."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from orchestrator.config.sweep_config import SweepConfig
from orchestrator.ledger.keys import trial_key
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.records import Role, TrialRecord
from orchestrator.session.board import Standing
from orchestrator.session.grouping import pick, several_programs, static
from orchestrator.tracking import events

if TYPE_CHECKING:
    # Optuna takes a second to import, and whoever only shows progress imports this module too.
    from orchestrator.study.study import Study


class Proposals:
    """Enters trials; each is committed before it can be launched."""

    def __init__(
        self,
        sweep: SweepConfig,
        ledger: Ledger,
        study: Study,
        standing: Standing,
        trials: Sequence[TrialRecord],
    ) -> None:
        """Go on counting where an earlier driver stopped."""
        self._sweep, self._ledger, self._study, self._standing = sweep, ledger, study, standing
        self._several_programs = several_programs(sweep)
        self._proposed: list[TrialRecord] = []
        self._next_number = _after(trials, "search")
        self._confirmations = _after(trials, "confirmation")
        self._exhausted = False

    @property
    def searching(self) -> bool:
        """Tell whether there may be trials of the search that were never launched."""
        return bool(self._proposed) or not self._asked_all

    @property
    def unconfirmed(self) -> bool:
        """Tell whether the chosen hyperparameters are still to be trained with another fresh seed."""
        return self._standing.best is not None and self._confirmations < self._sweep.confirm.seeds

    @property
    def _asked_all(self) -> bool:
        return self._exhausted or self._next_number >= self._sweep.budget.trials

    def next(self, running: Sequence[TrialRecord], room: int) -> TrialRecord | None:
        """Return a trial of the search, of a static choice that runs already if there is one.

        Args:
            running: trials that run.
            room: how many may run at once.
        """
        ahead = room if self._several_programs else 1
        while len(self._proposed) < ahead and not self._asked_all:
            self._ask()
        if not self._proposed:
            return None
        proposed = [static(self._sweep, trial) for trial in self._proposed]
        return self._proposed.pop(pick(proposed, [static(self._sweep, trial) for trial in running]))

    def confirmation(self, chosen: TrialRecord) -> TrialRecord:
        """Return the next confirmation of a chosen trial."""
        number = self._confirmations
        self._confirmations += 1
        seed = self._sweep.confirmation_seed(number)
        return self._enter(number, "confirmation", chosen.params, seed=seed)

    def _ask(self) -> None:
        """Enter one more trial of the search, to be launched when its turn comes."""
        number = self._next_number
        proposal = self._study.ask(number)
        if proposal is None:
            self._exhausted = True
            return
        self._next_number = number + 1
        seed, attrs = self._sweep.trial_seed(number, proposal.params), proposal.system_attrs
        trial = self._enter(number, "search", proposal.params, seed=seed, system_attrs=attrs)
        self._proposed.append(trial)

    def _enter(
        self,
        number: int,
        role: Role,
        params: Mapping[str, Any],
        *,
        seed: int,
        system_attrs: Mapping[str, Any] | None = None,
    ) -> TrialRecord:
        """Commit a new trial."""
        trial = TrialRecord(
            key=trial_key(self._sweep.id, number, role),
            sweep_id=self._sweep.id,
            number=number,
            role=role,
            state="WAITING",
            cause=None,
            params=dict(params),
            system_attrs=dict(system_attrs or {}),
            seed=seed,
            value=None,
            best_step=None,
            step=0,
            total_steps=self._sweep.settings(params, seed).training.steps,
            attempts=0,
            created_at=time.time(),
        )
        self._ledger.add_trial(trial, events=[events.trial_started(trial, self._sweep)])
        self._standing.states[trial.key] = "WAITING"
        return trial


def _after(trials: Sequence[TrialRecord], role: Role) -> int:
    return max((trial.number + 1 for trial in trials if trial.role == role), default=0)
