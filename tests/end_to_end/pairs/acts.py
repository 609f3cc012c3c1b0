"""What tests of two features at once do: serve, submit, hold trials at a step, kill, look what is left."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil

from orchestrator.errors import Exit
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.queue import submissions
from orchestrator.ledger.sweeps.records import TrialRecord
from orchestrator.machines.head import running
from orchestrator.storage.paths import Paths
from tests.end_to_end import identities
from tests.end_to_end.commands import LEAVE_SECONDS, Commands, finish, wait_for
from tests.end_to_end.identities import Evidence, Search
from tests.shared_ray import own_ray, runtime_folder_of

LONG = 400.0
"""Longest wait for anything, in seconds."""

_GATE = """
from pathlib import Path
GATE = Path(GATE_FILE)


def is_held(trial, step):
    try:
        after, *seeds = GATE.read_text().split()
    except FileNotFoundError:
        return False
    return step > int(after) and seeds in ([], [str(trial.seed)]) and not trial.stopping


def run("""


@dataclass(frozen=True)
class Gate:
    """What holds the trials of a script before a step, until they are asked to leave.

    Attributes:
        file: that holds them while it exists.
    """

    file: Path

    def hold(self, *, after: int, seed: int | None = None) -> None:
        """Hold all trials, or the one with a seed alone, once they have reported a step."""
        written = self.file.with_suffix(".new")
        written.write_text(f"{after} {'' if seed is None else seed}")
        written.replace(self.file)

    def release(self) -> None:
        """Let them go on."""
        self.file.unlink()


def gated(search: Search, folder: Path, name: str) -> tuple[Path, Gate]:
    """Write a search of a script whose trials can be held.

    They report their seed too, as `seed`, and as `held_seed` that in the checkpoint from which their attempt
    has started, or -1.
    """
    file = search.write(folder, name)
    script, gate = folder / f"of_{name}.py", Gate(folder / f"hold-{name}")
    changes = {
        "\ndef run(": _GATE.replace("GATE_FILE", repr(str(gate.file))),
        f"        time.sleep({search.pause!r})\n": f"        time.sleep({search.pause!r})\n"
        "        while is_held(trial, step):\n            time.sleep(0.05)\n",
        "    for step in range(trial.start": "    held_seed = -1.0\n    if trial.resume:\n"
        '        held_seed = json.loads((trial.resume / "seed.json").read_text())\n'
        "    for step in range(trial.start",
        '"held": held,': '"held": held, "seed": trial.seed, "held_seed": held_seed,',
        "        said =": '        (trial.folder / "seed.json").write_text(json.dumps(trial.seed))\n'
        "        said =",
    }
    text = script.read_text()
    for before, afterwards in changes.items():
        assert text.count(before) == 1, f"the script must have once: {before}"
        text = text.replace(before, afterwards)
    script.write_text(text)
    return file, gate


@dataclass
class Stage:
    """A root and a Ray of their own, in which processes stay warm.

    Attributes:
        commands: of the test.
        folder: of the Ray.
        environment: of all commands.
        ledger: of the root; use `Stage.open` before it.
    """

    commands: Commands
    folder: Path
    environment: dict[str, str]
    _ledgers: list[Ledger] = field(default_factory=list)

    @property
    def ledger(self) -> Ledger:
        """Return the ledger, which some command has created."""
        if not self._ledgers:
            wait_for(lambda: (self.commands.root / "sweeps.db").exists(), LONG)
            self._ledgers.append(self.commands.ledger)
        return self._ledgers[0]

    def run(self, *arguments: str, **environment: str) -> str:
        """Run a command that must succeed; return what it prints."""
        code, printed = self.commands.run(*arguments, timeout=LONG, **{**self.environment, **environment})
        assert code == Exit.COMPLETE, f"{arguments[0]} left with code {code}: {printed}"
        return printed

    def submit(self, file: Path, *options: str, **environment: str) -> str:
        """Submit a sweep; return its id."""
        return self.run("submit", str(file), *options, **environment).split()[-1]

    def reports(self, sweep_id: str) -> int:
        """Return how many reports of a sweep are recorded."""
        return len(self.ledger.reports(sweep_id))

    def until(self, condition: Callable[[], bool], *sweep_ids: str) -> None:
        """Wait until a condition holds; fail at once if one of the sweeps cannot go on."""

        def looked() -> bool:
            for sweep_id in sweep_ids:
                sweep, entry = self.ledger.sweep(sweep_id), submissions.submission(self.ledger, sweep_id)
                assert sweep is None or sweep.state != "FAILED", f"{sweep_id} has FAILED: {sweep.reason}"
                assert entry is None or entry.state != "PARKED", f"{sweep_id} is PARKED: {entry.cause}"
            return condition()

        wait_for(looked, LONG)

    def until_reports(self, count: int, *sweep_ids: str) -> None:
        """Wait until each sweep has a number of reports."""
        self.until(lambda: all(self.reports(one) >= count for one in sweep_ids), *sweep_ids)

    def until_more(self, count: int, sweep_id: str) -> None:
        """Wait until a sweep has a number of reports more than now."""
        self.until_reports(self.reports(sweep_id) + count, sweep_id)

    def has_left(self, sweep_id: str) -> bool:
        """Return True once the service has nothing more to do for a sweep, because its driver has left."""
        entry = submissions.submission(self.ledger, sweep_id)
        return entry is not None and entry.state == "ENDED"

    def until_left(self, *sweep_ids: str) -> None:
        """Wait until the drivers of submitted sweeps have left, and MLflow has everything."""

        def delivered() -> bool:
            return all(self.has_left(one) and not self.ledger.backlog(one) for one in sweep_ids)

        self.until(delivered, *sweep_ids)

    def state(self, sweep_id: str) -> str:
        """Return the state of a sweep."""
        sweep = self.ledger.sweep(sweep_id)
        return sweep.state if sweep else "QUEUED"

    def warm_workers(self) -> list[psutil.Process]:
        """Return the living warm workers, by the titles of their processes."""
        head = running(runtime_folder_of(self.folder))
        assert head is not None, "there must be a Ray"
        return [
            one
            for one in psutil.Process(head.pid).children(recursive=True)
            if "ray::WarmWorker" in _words(one)
        ]

    def processes_of(self, sweep_id: str, trial_key: str = "") -> list[int]:
        """Return the workers that have run the attempts of a trial, or of all, by their logs, in order.

        Of those that started in the same second, the newest need not be the last.
        """
        logs = Paths(self.commands.root).log(sweep_id, "any").parent.glob(f"{trial_key or '*'}.log")
        found = [
            (line, int(pid))
            for log in logs
            for line, pid in re.findall(r"^(.*started at step .* process (\d+).*)$", log.read_text(), re.M)
        ]
        return [pid for _, pid in sorted(found)]

    def evidence(self, *sweep_ids: str) -> list[Evidence]:
        """Return what is known of sweeps that have ended, their confirmations included."""
        return [self._evidence(one) for one in sweep_ids]

    def _evidence(self, sweep_id: str) -> Evidence:
        evidence = identities.read(self.commands.root, sweep_id)
        trials = self.ledger.trials(sweep_id)
        paths = Paths(self.commands.root)
        logs = {trial.key: paths.log(sweep_id, trial.key).read_text(encoding="utf-8") for trial in trials}
        return replace(evidence, trials=trials, logs=logs)

    def require(self, *sweep_ids: str, trials: int, calm: bool = False) -> None:
        """Require that ledger, logs and MLflow agree on complete sweeps, and that `check` finds nothing.

        Args:
            sweep_ids: of the sweeps.
            trials: of each search.
            calm: see `identities.require`.
        """
        for sweep_id in sweep_ids:
            sweep = self.ledger.sweep(sweep_id)
            assert sweep is not None
            assert sweep.state == "COMPLETE", (sweep_id, sweep.state, sweep.reason)
            assert len(self.ledger.trials(sweep_id, "search")) == trials
        identities.require(*self.evidence(*sweep_ids), calm=calm)
        self.run("check")


@contextmanager
def stage(commands: Commands, folder: Path, **environment: str) -> Iterator[Stage]:
    """Yield a stage; require on exit that nothing of it goes on running."""
    with own_ray(folder) as variables:
        opened = Stage(commands, folder, {**variables, "SWEEP_WARM": "600", **environment})
        try:
            yield opened
        finally:
            for ledger in opened._ledgers:
                ledger.close()
    until, left = time.monotonic() + LEAVE_SECONDS, _mentioning(commands.folder, folder)
    while left and time.monotonic() < until:
        time.sleep(0.25)
        left = _mentioning(commands.folder, folder)
    assert not left, f"left running: {left}"


@contextmanager
def service(stage: Stage, *options: str, **environment: str) -> Iterator[str]:
    """Yield what a service prints in its first line; end it, which it must do well."""
    served = stage.commands.start(
        "serve", *options, **{**stage.environment, **environment, "PYTHONUNBUFFERED": "1"}
    )
    wait_for(lambda: (stage.commands.root / "serve.json").exists() or served.poll() is not None, LONG)
    assert served.stdout is not None
    try:
        yield served.stdout.readline()
    finally:
        served.terminate()
    code, printed = finish(served)
    assert code == Exit.COMPLETE, printed


def kill(pid: int) -> bool:
    """Kill a process at once; return False if it has ended before."""
    try:
        psutil.Process(pid).kill()
    except psutil.NoSuchProcess:
        return False
    return True


def newest_attempt(stage: Stage, trial: TrialRecord) -> int:
    """Return the number of the newest attempt of a trial."""
    return max(attempt.number for attempt in stage.ledger.trial_attempts(trial.key))


def _mentioning(*folders: Path) -> list[str]:
    """Return the command lines of the processes that name one of the folders."""
    found = [_words(one) for one in psutil.process_iter()]
    return [words[:200] for words in found if any(str(folder) in words for folder in folders)]


def _words(one: psutil.Process) -> str:
    try:
        return " ".join(one.cmdline())
    except psutil.Error:
        return ""
