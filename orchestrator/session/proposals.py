"""New trials of a sweep: the proposals of its sampler, then confirmations of the best trials."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from orchestrator.config.sweep_config import SweepConfig
from orchestrator.ledger.queue.wanted_settings import wanted_settings
from orchestrator.ledger.sweeps.records import EXTENSIONS, Extension, Role, TrialRecord, trial_key
from orchestrator.ledger.sweeps.selection import (
    best_of_sweep,
    confirmations_of,
    fresh_values,
    racers,
    ranked,
    violations_of,
)
from orchestrator.ledger.sweeps.writer import SweepWriter
from orchestrator.session.board import TrialBoard
from orchestrator.session.limits import SearchEnd
from orchestrator.study.race import next_candidate
from orchestrator.study.study import Proposal, Study
from orchestrator.tracking import events
from trainables.settings import range_ends


class Proposals:
    """Creates trials; each one is committed before it can be launched.

    Numbering continues after `trials`, those of earlier drivers.
    """

    def __init__(
        self,
        sweep: SweepConfig,
        writer: SweepWriter,
        study: Study,
        board: TrialBoard,
        end: SearchEnd,
        trials: Sequence[TrialRecord],
    ) -> None:
        self._sweep, self._writer, self._study, self._board, self._end = sweep, writer, study, board, end
        self._dropped: set[str] = set()
        self._several_programs = several_programs(sweep)
        self._proposed: list[TrialRecord] = []
        self._next_number = _number_after(trials, "search")
        self._next_confirmation = _number_after(trials, "confirmation")
        self._searched = {trial.key: trial for trial in trials if trial.role == "search"}
        self._confirmed = [trial for trial in trials if trial.role == "confirmation"]
        self._search_trials = min(sweep.budget.trials, study.size or sweep.budget.trials)
        self._raced_at: tuple[int, int] | None = None
        self._raced: tuple[TrialRecord, int] | None = None
        self._programs: dict[Hashable, int] = {}
        self._program_of: dict[str, int] = {}

    @property
    def searching(self) -> bool:
        """Return True if unlaunched trials of the search may remain."""
        return self._end.reason is None and (bool(self._proposed) or not self._asked_all)

    @property
    def unlaunched(self) -> int:
        """Return the number of trials of the search that were never launched."""
        if self._end.reason is not None:
            return 0
        return len(self._proposed) + max(0, self._search_trials - self._next_number)

    @property
    def confirmable(self) -> int:
        """Return the number of confirmations that are left; 0 without a best trial.

        Confirmations of an earlier best trial, from before the search was extended, do not count. A race may
        end with fewer confirmations.
        """
        if (best := self._board.best) is None:
            return 0
        if (race := self._sweep.confirm.race) is not None:
            if self.searching:
                return race.runs
            following = self._following()
            return 0 if following is None else following[1]
        return max(
            0, self._sweep.confirm.seeds - len(confirmations_of(self._confirmed, self._searched[best[0]]))
        )

    @property
    def wanted(self) -> int:
        """Return the final number of trials, including those that are still to be created."""
        search = max(self._next_number, self._search_trials)
        if self._end.reason is not None:
            search = self._next_number - len(self._proposed) - len(self._dropped)
        if self._board.best is None and (self.searching or self._board.unfinished):
            return search + len(self._confirmed) + self._sweep.confirm.most
        return search + len(self._confirmed) + self.confirmable

    @property
    def _asked_all(self) -> bool:
        return self._next_number >= self._search_trials

    def next(self, running: Sequence[TrialRecord], concurrency: int) -> TrialRecord | None:
        """Return the next trial of the search, preferably one that shares a program with running trials.

        For this choice, as many trials are proposed in advance as may run concurrently.
        """
        ahead = concurrency if self._several_programs else 1
        while len(self._proposed) < ahead and not self._asked_all:
            self._ask()
        if not self._proposed:
            return None
        if not self._several_programs:
            return self._proposed.pop(0)
        proposed = [self._program(trial) for trial in self._proposed]
        return self._proposed.pop(pick(proposed, [self._program(trial) for trial in running]))

    def _program(self, trial: TrialRecord) -> int:
        """Return a number that identifies the static choice of a trial; it is computed once per trial."""
        if trial.key not in self._program_of:
            choice = static_choice(self._sweep, trial)
            self._program_of[trial.key] = self._programs.setdefault(choice, len(self._programs))
        return self._program_of[trial.key]

    def drop(self, key: str) -> None:
        """Count an unlaunched trial of an earlier driver that will not be launched."""
        self._dropped.add(key)

    def withdraw(self, key: str) -> None:
        """Take an unlaunched trial out of those that are launched next, if it is among them."""
        self._proposed = [trial for trial in self._proposed if trial.key != key]

    def follow(self, trial: TrialRecord) -> None:
        """Record the hyperparameters that a trial has copied from another one."""
        self._searched[trial.key] = trial

    def _following(self) -> tuple[TrialRecord, int] | None:
        """Return the trial to confirm next in a race and the number of retrainings left, or None at its end.

        Read again only after a trial has ended or was created.
        """
        if (state := (self._board.settled, len(self._confirmed))) != self._raced_at:
            self._raced_at, self._raced = state, self._read_race()
        return self._raced

    def _read_race(self) -> tuple[TrialRecord, int] | None:
        race, ledger, maximize = self._sweep.confirm.race, self._writer.ledger, self._board.maximize
        record = ledger.sweep(self._sweep.id)
        assert race is not None, "only a race has candidates"
        assert record is not None, "ledger rows are never deleted"
        trials = ledger.trials(self._sweep.id)
        violations = violations_of(ledger, record)
        best_first = ranked(trials, maximize=maximize, violations=violations)
        candidates = racers(best_first, violations, race.top)
        values = [fresh_values(trials, candidate, maximize=maximize) for candidate in candidates]
        index = next_candidate(values, race.runs) if candidates else None
        return None if index is None else (candidates[index], race.runs - sum(map(len, values)))

    def confirmed_next(self) -> TrialRecord | None:
        """Return the trial that the next confirmation retrains, or None if none is left."""
        if self._sweep.confirm.race is not None:
            following = self._following()
            return None if following is None else following[0]
        ledger = self._writer.ledger
        record = ledger.sweep(self._sweep.id)
        assert record is not None, "ledger rows are never deleted"
        return best_of_sweep(ledger, record) if self.confirmable else None

    def confirmation(self, best: TrialRecord) -> TrialRecord:
        """Create and return the next confirmation: a trial's hyperparameters with a fresh seed."""
        number = self._next_confirmation
        self._next_confirmation += 1
        seed = self._sweep.confirmation_seed(number)
        extended = {EXTENSIONS: [asdict(Extension(each.step)) for each in best.extensions]}
        attrs = extended if best.extensions else {}
        trial = self._create(
            number, "confirmation", best.params, seed=seed, system_attrs=attrs, total_steps=best.total_steps
        )
        self._confirmed.append(trial)
        return trial

    def _ask(self) -> None:
        """Create one more trial of the search, to be launched later."""
        number = self._next_number
        proposal, wanted = self._wanted(number)
        if proposal is None:
            proposal = self._study.ask(number)
        if proposal is None:
            self._search_trials = number  # all settings have been tried
            return
        self._next_number = number + 1
        seed, attrs = self._sweep.trial_seed(number, proposal.params), proposal.system_attrs
        trial = self._create(number, "search", proposal.params, seed=seed, system_attrs=attrs, wanted=wanted)
        self._searched[trial.key] = trial
        self._proposed.append(trial)

    def _wanted(self, number: int) -> tuple[Proposal | None, str | None]:
        """Return the next setting that a user has requested and the ID of the request, if there is one.

        The settings of the file come first. Requests for what was tried meanwhile are dropped.
        """
        if number < len(self._sweep.points):
            return None, None
        for wanted in wanted_settings(self._writer.ledger, self._sweep.id):
            if (proposal := self._study.ask(number, wanted.params)) is not None:
                return proposal, wanted.id
            self._writer.drop_wanted(wanted.id)
        return None, None

    def _create(
        self,
        number: int,
        role: Role,
        params: Mapping[str, Any],
        *,
        seed: int,
        system_attrs: Mapping[str, Any] | None = None,
        total_steps: int | None = None,
        wanted: str | None = None,
    ) -> TrialRecord:
        """Commit a new trial and return it."""
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
            total_steps=total_steps or self._sweep.settings(params, seed).training.steps,
            attempts=0,
            created_at=self._writer.ledger.now(),
        )
        self._writer.add_trial(trial, [events.trial_started(trial, self._sweep)], wanted)
        self._board.enter(trial.key, "WAITING")
        return trial


def _number_after(trials: Sequence[TrialRecord], role: Role) -> int:
    return max((trial.number + 1 for trial in trials if trial.role == role), default=0)


def static_choice(sweep: SweepConfig, trial: TrialRecord) -> Hashable:
    """Return the static choice of a trial: trials with the same one share a compiled program."""
    return sweep.settings(trial.params, trial.seed).static()


def several_programs(sweep: SweepConfig) -> bool:
    """Return True if the search varies static choices, so that trials need different programs."""
    if sweep.trainable is not None:
        static = sweep.search.keys() - {"seed", *sweep.trainable.free}
        return sweep.trainable.kind == "program" and bool(static)
    if any(None in distribution.choices for distribution in sweep.search.values()):
        return True  # a trial without a limit of the gradient, for example, has another program
    settings = sweep.network_settings(sweep.largest(), seed=0)
    ends = {end for name in settings.model.complete().ranges for end in range_ends(name)}
    own = {f"{settings.model.layer}.{end}" for end in ends}
    return not sweep.search.keys() <= {"seed", *settings.free(), *ends, *own}


def pick(proposed: Sequence[Hashable], running: Sequence[Hashable]) -> int:
    """Return the index of the trial to launch: the commonest running program first, then the commonest other.

    Args:
        proposed: Static choices of the proposed trials, the oldest first; at least one.
        running: Static choices of the running trials.
    """
    for choice, _ in Counter(running).most_common():
        if choice in proposed:
            return proposed.index(choice)
    most, _ = Counter(proposed).most_common(1)[0]
    return proposed.index(most)
