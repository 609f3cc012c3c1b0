"""Notifications about submitted sweeps, which the service sends to the targets of their owners.

A thread of the service compares the rows of the ledger with those of a few seconds before. No driver waits
for it, and a driver that hangs is noticed. What happens while no service runs is not sent.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise

from orchestrator.driver.notice_targets import Message, NoticeSetting, shown
from orchestrator.driver.notifications import LAST_SECONDS, Notifier, Seen, changes, ended
from orchestrator.errors import BadInput, Exit, NoDatabase
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.pool import claims
from orchestrator.ledger.queue.submissions import SubmissionEnd, states_of, submission
from orchestrator.ledger.sweeps.records import ReportRecord, TrialOutline
from orchestrator.ledger.sweeps.selection import preference_of
from orchestrator.ledger.sweeps.standing import SPEED_REPORTS, ValueSoFar, first_so_far, read_values
from orchestrator.process_secrets import redacted
from orchestrator.service.notice_list import of_file, targets
from orchestrator.sharing.pool_rows import Owner
from orchestrator.sharing.usage import week_of
from orchestrator.storage.paths import Paths
from orchestrator.system import System

_log = logging.getLogger(__name__)

LOOK_SECONDS = 5.0
"""Interval of the reads of the ledger."""

LONGEST_WAIT_SECONDS = 300.0
"""Wait after an unexpected error."""

SHORTEST_SILENCE = 60.0
"""Seconds without a report after which a trial can count as stuck."""

USUAL_TIMES = 5.0
"""Number of the longest intervals between its last reports after which a trial counts as stuck."""

NEARLY_SPENT = 0.9
"""Part of the GPU-hours of the week from which on a quota counts as nearly spent."""


@dataclass(frozen=True)
class Standing:
    """A submitted sweep at one moment.

    Attributes:
        submission: State of the submission.
        metric: Name of the objective; '' before the first driver.
        seen: Snapshot of its trials; None if it was not read.
        notify: Events by target that its file names.
    """

    submission: SubmissionEnd
    metric: str
    seen: Seen | None
    notify: Mapping[str, Sequence[str]] = field(default_factory=dict)


def messages(before: Standing | None, now: Standing) -> list[Message]:
    """Return the messages about a sweep.

    Args:
        before: Earlier moment, or None for a sweep that was submitted since.
        now: Later moment.
    """
    sweep_id, state = now.submission.sweep_id, now.submission.state
    earlier, found = before.seen if before is not None else Seen(), list[Message]()
    if earlier is not None and now.seen is not None:
        found += changes(sweep_id, now.metric, earlier, now.seen)
    is_same = before is not None and before.submission == now.submission
    if state == "ENDED" and not is_same:
        code = Exit(now.submission.code or 0)
        found.append({"event": "ended", "sweep": sweep_id, "exit": int(code), "result": code.name.lower()})
    if state == "PARKED" and not is_same:
        found.append({"event": "parked", "sweep": sweep_id, "cause": now.submission.cause or "unknown"})
    return found


def is_stuck(reports: Sequence[ReportRecord], now: float) -> bool:
    """Return True if the last report of a running trial is much older than its usual interval of reports.

    Args:
        reports: Last reports of the trial, by step.
        now: Time in seconds since the epoch.
    """
    # Between two attempts a trial waits.
    own = [report for report in reports if report.attempt_id == reports[-1].attempt_id]
    if len(own) < 2:
        return False
    longest = max(later.at - earlier.at for earlier, later in pairwise(own))
    return now - own[-1].at > max(SHORTEST_SILENCE, USUAL_TIMES * longest)


def quota_message(owner: Owner, now: float) -> Message | None:
    """Return the message about an owner whose GPU-hours of the week are nearly spent, or None."""
    if owner.most_gpu_hours is None or owner.week != week_of(now):
        return None
    used = owner.week_gpu_seconds / 3600
    if used < NEARLY_SPENT * owner.most_gpu_hours:
        return None
    return {
        "event": "quota",
        "owner": owner.name,
        "used_gpu_hours": round(used, 3),
        "gpu_hours": owner.most_gpu_hours,
    }


class NoticeThread(ABC):
    """Thread that reads the ledger and sends messages. No method raises; only `close` waits.

    Args:
        paths: Paths of the ledger and of the file of targets.
        system: System of this process.
        say: Function that receives a line about the first failure of each target.
    """

    last_seconds = 0.0
    """Longest wait for each slow target in `close`."""

    def __init__(self, paths: Paths, system: System, say: Callable[[str], None]) -> None:
        self._paths, self._system, self._say = paths, system, say
        self._over = system.event()
        self._thread = system.thread(self._run, "notices")
        self._warned: dict[str, int] = {}
        """Week of the last message about the quota of each owner."""
        self._notifiers: dict[tuple[str, NoticeSetting], Notifier] = {}

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """End the thread; messages that wait for a slow target are lost after `last_seconds`."""
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join()
        for notifier in self._notifiers.values():
            notifier.close(self.last_seconds)

    @abstractmethod
    def _round(self) -> None:
        """Send what has changed since the last round."""

    def _run(self) -> None:
        wait = 0.0
        while not self._over.wait(wait):
            wait = LOOK_SECONDS
            try:
                self._round()
            except (BadInput, NoDatabase):  # the database does not answer
                continue
            except Exception as error:  # noqa: BLE001 - no failure of a notification may end the process
                _log.warning("Notifications cannot be sent: %s", redacted(str(error)))
                wait = LONGEST_WAIT_SECONDS

    def _ledger(self) -> closing[Ledger]:
        url, system = self._paths.ledger_url, self._system
        return closing(Ledger.open(url, create=False, system=system, reconnect_seconds=0.0))

    def _of_quota(self, owner: Owner, now: float, *, is_first: bool) -> list[Message]:
        message, week = quota_message(owner, now), week_of(now)
        if message is None or self._warned.get(owner.name) == week:
            return []
        self._warned[owner.name] = week
        return [] if is_first else [message]

    def _send(self, owner: str, settings: Iterable[NoticeSetting], found: Sequence[Message]) -> None:
        for setting in settings:
            for message in found:
                if setting.wants(message["event"]):
                    self._notifier(owner, setting).send(message)

    def _notifier(self, owner: str, setting: NoticeSetting) -> Notifier:
        # Sweeps may name a target with other events each.
        key = (owner, replace(setting, events=()))
        known = self._notifiers.get(key)
        if known is None:
            where = f"{owner}, {shown(setting.target)}"
            known = Notifier(
                setting.target,
                lambda line: self._say(f"{where}: {line}"),
                restricted=setting.restricted,
            )
            self._notifiers[key] = known
        return known


class Notices(NoticeThread):
    """Sends notifications to the owners of submitted sweeps, and to the targets that their files name.

    Args:
        paths: Paths of the ledger and of the file of targets.
        system: System of this process.
        say: Function that receives a line about the first failure of each target.
    """

    def __init__(self, paths: Paths, system: System, say: Callable[[str], None]) -> None:
        super().__init__(paths, system, say)
        self._before: dict[str, dict[str, Standing]] = {}
        """The sweeps of each owner in the last round."""
        self._unknown: set[tuple[str, str]] = set()
        """Sweeps and names of targets of their files that are not set, which were logged."""

    def _round(self) -> None:
        """Send what has changed since the last round; the first round of an owner only reads."""
        wanted = targets(self._paths.notices)
        with self._ledger() as ledger:
            by_owner: dict[str, list[SubmissionEnd]] = {owner: [] for owner in wanted}
            for entry in states_of(ledger):
                by_owner.setdefault(entry.owner, []).append(entry)
            owners = claims.owners(ledger)
            for owner, entries in by_owner.items():
                own, before = wanted.get(owner, []), self._before.get(owner)
                of_all = [setting for setting in own if not setting.name]
                now = {
                    entry.sweep_id: _standing(ledger, entry, before, has_listener=bool(of_all))
                    for entry in entries
                }
                self._before[owner] = now
                spent = self._of_quota(owners.get(owner, Owner(owner)), ledger.now(), is_first=before is None)
                self._send(owner, of_all, spent)
                of_files = dict[NoticeSetting, None]()
                for sweep_id, standing in now.items():
                    named = self._named(standing, own)
                    if standing.submission.state == "STARTED":
                        of_files |= dict.fromkeys(named)
                    if before is not None:
                        found = messages(before.get(sweep_id), standing)
                        self._send(owner, [*of_all, *named], found)
                self._send(owner, of_files, spent)
        self._close_others(wanted)

    def _named(self, standing: Standing, own: Sequence[NoticeSetting]) -> list[NoticeSetting]:
        """Return the targets that the file of a sweep names."""
        found, unknown = of_file(standing.notify, own)
        for name in unknown:
            sweep_id, owner = standing.submission.sweep_id, standing.submission.owner
            if (sweep_id, name) not in self._unknown:
                self._unknown.add((sweep_id, name))
                self._say(f"{sweep_id}: notify: {owner} has no target `{name}`, which hears nothing.")
        return found

    def _close_others(self, wanted: Mapping[str, Sequence[NoticeSetting]]) -> None:
        """End the threads of targets that were removed."""
        kept = {(owner, replace(each, events=())) for owner, own in wanted.items() for each in own}
        for key in self._notifiers.keys() - kept:
            if not key[1].target.startswith("mailto:"):  # which files name directly
                self._notifiers.pop(key).close(0.0)


class SweepNotices(NoticeThread):
    """Sends notifications about one sweep that this process drives to the targets that its file names.

    Args:
        paths: Paths of the ledger.
        system: System of this process.
        say: Function that receives a line about the first failure of each target.
        sweep_id: ID of the sweep.
        owner: Owner of the sweep.
        settings: The targets.
    """

    last_seconds = LAST_SECONDS

    def __init__(
        self,
        paths: Paths,
        system: System,
        say: Callable[[str], None],
        sweep_id: str,
        owner: str,
        settings: Sequence[NoticeSetting],
    ) -> None:
        super().__init__(paths, system, say)
        self._submission = SubmissionEnd(sweep_id, owner, "STARTED", 0, None, None)
        self._settings, self._is_first = settings, True
        self._before = Standing(self._submission, "", Seen())
        with suppress(BadInput, NoDatabase), self._ledger() as ledger:
            self._before = self._now(ledger)
        for setting in settings:  # a target of a wrong form is refused before the sweep starts
            self._notifier(owner, setting)

    def end(self, code: Exit) -> None:
        """Send what has changed, and the end of the run with an exit code."""
        self._over.set()
        self._thread.join()
        with suppress(BadInput, NoDatabase):
            self._round()
        owner = self._submission.owner
        self._send(owner, self._settings, [ended(self._submission.sweep_id, code)])

    def _round(self) -> None:
        with self._ledger() as ledger:
            now, owner = self._now(ledger), self._submission.owner
            spent = self._of_quota(
                claims.owners(ledger).get(owner, Owner(owner)), ledger.now(), is_first=self._is_first
            )
            self._send(owner, self._settings, [*messages(self._before, now), *spent])
            self._before, self._is_first = now, False

    def _now(self, ledger: Ledger) -> Standing:
        return _standing(ledger, self._submission, {})


def _standing(
    ledger: Ledger, entry: SubmissionEnd, before: Mapping[str, Standing] | None, *, has_listener: bool = True
) -> Standing:
    """Return the standing of a sweep; only one that runs or has changed is read.

    Args:
        ledger: Ledger of the sweep.
        entry: State of its submission.
        before: Sweeps of the owner in the last round, or None in the first round.
        has_listener: Whether a target gets notices of the sweep even if its file names none.
    """
    known = (before or {}).get(entry.sweep_id)
    is_same = known is not None and known.submission == entry
    if known is not None and is_same and entry.state != "STARTED":
        return known
    if before is None and entry.state == "ENDED":
        return Standing(entry, "", None)
    notify = known.notify if known is not None and is_same else _notify_of(ledger, entry.sweep_id)
    if not (has_listener or notify):
        return Standing(entry, "", None)
    record = ledger.sweep(entry.sweep_id)
    if record is None:
        return Standing(entry, "", Seen(), notify)
    trials, now = ledger.trial_outlines(record.id), ledger.now()
    best, values = None, dict[str, ValueSoFar]()
    if "direction" in record.facts and preference_of(record) is not None:
        values = read_values(ledger, record, trials)
        best = first_so_far(trials, values, maximize=record.facts["direction"] == "maximize")
    seen = Seen(
        None if best is None else best.key,
        None if best is None else values[best.key].value,
        sum(trial.state == "FAILED" for trial in trials),
        max(len(trials), int((record.document.get("budget") or {}).get("trials") or 0)),
        frozenset(trial.key for trial in trials if _is_silent(ledger, trial, now)),
    )
    return Standing(entry, str(record.facts["metric"]), seen, notify)


def _notify_of(ledger: Ledger, sweep_id: str) -> Mapping[str, Sequence[str]]:
    """Return the targets that the file of a submitted sweep names."""
    known = submission(ledger, sweep_id)
    recorded = {} if known is None else known.document.get("notify") or {}
    return {target: () if events == "all" else tuple(events) for target, events in recorded.items()}


def _is_silent(ledger: Ledger, trial: TrialOutline, now: float) -> bool:
    is_old = trial.state == "RUNNING" and now - (trial.reported_at or now) > SHORTEST_SILENCE
    return is_old and is_stuck(ledger.recent_reports(trial.key, SPEED_REPORTS), now)
