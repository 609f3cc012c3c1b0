"""Trainables that say in every report whose it is, and a checker that requires every report of its own trial.

Three steps, for a test of any pair of features:

    file = Search("function", trials=4, steps=6).write(folder, "first")   # a search-space file and its script
    ...                                                                   # run it, kill what you like
    require(read(commands.root, sweep_id))                                # fails with every wrong report

What a report says of itself, by the kind of the trainable:

| | function, command | program | network |
|---|---|---|---|
| its hyperparameter | `echo` | `train/loss` | `learning_rate` |
| its step | `echo_step` | `val/echo_step` | |
| what the checkpoint held from which its attempt has started | `held` | `val/loss` | |
| a random number of the process of its attempt | `nonce` | | |

`held` is -1 in an attempt from step 0, and else the sum of the step and the hyperparameter (in [0, 1)) which
the checkpoint holds, so that it shows another trial's as well as an older one. A program has no process for
each attempt; its state carries the least and the largest value under which it was ever trained, and
`val/loss` is their mean: the trial's own value, unless somebody else's state or value has come in between.

Required of every sweep: each report echoes its own trial, step, start and process; no step is missing;
the log of the trial and the curves in MLflow say what the ledger says; and the trial's value is the best of
its reports.
"""

from __future__ import annotations

import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.assignment import INITIAL_NORM, NORM
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.sweeps.records import (
    AttemptRecord,
    ReportRecord,
    TrialRecord,
    attempt_number,
    by_trial,
    trial_key_of,
)
from orchestrator.storage.paths import Paths
from orchestrator.tracking import events
from orchestrator.tracking.events import legal_name
from orchestrator.tracking.mlflow_private import Point, stored_runs

# ---------------------------------------------------------------- what is run

_IDENTITIES = """
import json, os, time

time.sleep(IMPORT_SECONDS)
NONCE = int.from_bytes(os.urandom(4), "big") / 2**32


def run(trial, x):
    held = json.loads((trial.resume / "held.json").read_text()) if trial.resume else -1.0
    for step in range(trial.start + 1, trial.steps + 1):
        time.sleep(PAUSE)
        if step % trial.interval and step != trial.steps:
            continue
        (trial.folder / "held.json").write_text(json.dumps(step + x))
        said = {"echo": x, "echo_step": step, "held": held, "nonce": NONCE, "val/loss": x + 1.0 / step}
        if not trial.report(step, said, checkpoint=trial.folder):
            return
"""
_FUNCTION = f"""{_IDENTITIES}

def train(trial):
    run(trial, trial.params["x"])
"""
_COMMAND = f"""import argparse
import sweep_client
{_IDENTITIES}

parser = argparse.ArgumentParser()
parser.add_argument("--x", type=float)
options = parser.parse_args()
run(sweep_client.trial(), options.x)
"""
_PROGRAM = """
import numpy as np
from jax import numpy as jnp

from trainables.program import Program


class Echo(Program):
    free = ("x",)
    metric = "echo_step"
    batch_size = 2

    def data(self, folder):
        return dict.fromkeys(("train", "validation", "test"), {"nothing": np.zeros(4, np.float32)})

    def initialise(self, key, free):
        return {"least": free["x"], "most": free["x"], "done": jnp.float32(0)}

    def step(self, state, batch, key, free):
        x, done = free["x"], state["done"] + 1
        moved = {"least": jnp.minimum(state["least"], x), "most": jnp.maximum(state["most"], x), "done": done}
        return moved, {"loss": x, "echo_step": done}

    def evaluate(self, state, batch):
        held, like = (state["least"] + state["most"]) / 2, jnp.zeros_like(batch["nothing"])
        return {"loss": like + held, "echo_step": like + state["done"]}
"""
_NETWORK = """
task: copy
data: {delay: 4, examples: 64, held_out: 16}
model: {layer: lds, depth: 1, d_model: 8, d_state: 16}
evaluate: {examples: 16}
"""
_NETWORK_TRAINING = "batch_size: 8, recurrent_learning_rate: 1e-3, schedule: constant, warmup: 0.0"
_SCRIPTS = {"function": _FUNCTION, "command": _COMMAND, "program": _PROGRAM}


@dataclass(frozen=True)
class Search:
    """A search-space file and the script beside it.

    Attributes:
        kind: a name of `KINDS`.
        trials: budget.
        steps: of each trial.
        interval: steps between two reports.
        seed: of the random sampler; sweeps with different seeds share no hyperparameter.
        scheduler: as the file writes it, such as `none` or `{asha: {reduction: 2}}`.
        resources: of an attempt, as the file writes them, such as `{cpu: 0.5}` or `{gpu: 1/4, cpu: 0.1}`.
        pause: seconds before each step of a function or a command. A program is slowed down by its length.
        import_seconds: that a script takes before it draws its nonce.
        mutable: whether the scheduler may change the hyperparameter of a trial that goes on (PBT).
        further: lines at the end of the file.
    """

    kind: str
    trials: int = 4
    steps: int = 6
    interval: int = 1
    seed: int = 0
    scheduler: str = "none"
    resources: str = "{cpu: 0.5}"
    pause: float = 0.1
    import_seconds: float = 0.0
    mutable: bool = False
    further: str = ""

    def write(self, folder: Path, name: str) -> Path:
        """Write `<name>.yaml` and its script `of_<name>.py` into a folder; return the path of the file."""
        folder.mkdir(parents=True, exist_ok=True)
        if self.kind in _SCRIPTS:
            text = _SCRIPTS[self.kind].replace("IMPORT_SECONDS", repr(self.import_seconds))
            (folder / f"of_{name}.py").write_text(text.replace("PAUSE", repr(self.pause)))
        file = folder / f"{name}.yaml"
        file.write_text(self._text(f"of_{name}.py"))
        return file

    def _text(self, script: str) -> str:
        mutable = ", mutable: [x]" if self.mutable else ""
        heads = {
            "function": f"trainable: {{function: {script}:train{mutable}}}",
            "command": f'trainable: {{command: [{sys.executable}, {script}, --x, "{{x}}"]{mutable}}}',
            "program": f'trainable: {{program: "{script}:Echo"}}',
            "network": _NETWORK,
        }
        is_network = self.kind == "network"
        training = f", {_NETWORK_TRAINING}" if is_network else ""
        searched = "learning_rate: {uniform: [1e-3, 1e-2]}" if is_network else "x: {uniform: [0, 1]}"
        return f"""{heads[self.kind]}
search: {{{searched}}}
training: {{steps: {self.steps}, interval: {self.interval}{training}}}
objective: {{minimize: val/loss}}
sampler: {{random: {{seed: {self.seed}}}}}
scheduler: {self.scheduler}
budget: {{trials: {self.trials}}}
resources: {self.resources}
{self.further}
"""


# ---------------------------------------------------------------- what its reports say


def _sum(start: int, value: float) -> float:
    return start + value if start else -1.0


@dataclass(frozen=True)
class Kind:
    """Under which names the reports of a kind of trainable say whose they are; None: they do not say it.

    Attributes:
        searched: the hyperparameter.
        echo: metric that repeats it.
        step: metric that repeats the step.
        held: metric of what the checkpoint held from which the attempt has started.
        holds: returns the right `held` from the attempt's first step and the value in the checkpoint.
        nonce: metric that is the same in all reports of an attempt, and in no other one.
        tolerance: largest difference, relative to the larger of the value and 1.
    """

    searched: str
    echo: str
    step: str | None = None
    held: str | None = None
    holds: Callable[[int, float], float] = _sum
    nonce: str | None = None
    tolerance: float = 0.0

    def agrees(self, found: float | None, expected: float) -> bool:
        """Return True if a metric has its right value."""
        return found is not None and abs(found - expected) <= self.tolerance * max(1.0, abs(expected))


_SCRIPT = Kind("x", "echo", "echo_step", "held", _sum, "nonce")
KINDS = {
    "function": _SCRIPT,
    "command": _SCRIPT,
    "program": Kind(  # computes in float32
        "x", "train/loss", "val/echo_step", "val/loss", lambda start, value: value, tolerance=1e-6
    ),
    "network": Kind("learning_rate", "learning_rate", tolerance=1e-6),
}


# ---------------------------------------------------------------- what is known of a sweep


@dataclass(frozen=True)
class Evidence:
    """What ledger, logs and MLflow say of one sweep.

    Attributes:
        kind: of its trainable.
        interval: steps between two reports.
        trials: of the search.
        attempts: of all of them.
        reports: of all of them.
        logs: texts of the trials' logs by trial key; None: not compared.
        points: of the one run of each trial in MLflow, by trial key; None: not compared.
    """

    kind: Kind
    interval: int
    trials: Sequence[TrialRecord]
    attempts: Sequence[AttemptRecord]
    reports: Sequence[ReportRecord]
    logs: Mapping[str, str] | None = None
    points: Mapping[str, Sequence[Point]] | None = None


def read(root: Path, sweep_id: str, *, mlflow: bool = True) -> Evidence:
    """Read what is known of a sweep. While a driver runs it, ask for no MLflow, which is behind.

    Args:
        root: of the service.
        sweep_id: of the sweep.
        mlflow: whether to read the curves in MLflow as well; then all deliveries must have been made.
    """
    paths = Paths(root)
    with closing(Ledger.open(paths.ledger_url)) as ledger:
        sweep = ledger.sweep(sweep_id)
        assert sweep is not None, f"sweep {sweep_id} must be in the ledger"
        # In this order, so that of what a driver adds meanwhile no report comes without the rest.
        reports = ledger.reports(sweep_id)
        attempts = ledger.attempts(sweep_id)
        trials = ledger.trials(sweep_id, "search")
        backlog = ledger.backlog(sweep_id)
    logs = {trial.key: _text(paths.log(sweep_id, trial.key)) for trial in trials}
    points: dict[str, list[Point]] | None = None
    if mlflow:
        assert backlog == 0, f"{sweep_id}: MLflow must have everything, {backlog} records wait"
        points = {}
        with stored_runs(root / "mlflow.db") as stored:
            for key, runs in stored.of_sweep(sweep_id, repr(sweep.created_at)).items():
                assert len(runs) == 1, f"{key}: MLflow must have one run of a trial, found {len(runs)}"
                points[key] = list(stored.points(runs[0][0]))
    section, training = sweep.document.get("trainable", {}), sweep.document["training"]
    kind = next((KINDS[name] for name in KINDS if name in section), KINDS["network"])
    return Evidence(kind, int(training["interval"]), trials, attempts, reports, logs, points)


def _text(log: Path) -> str:
    return log.read_text(encoding="utf-8") if log.exists() else ""


# ---------------------------------------------------------------- what must hold


@dataclass(frozen=True)
class Allowed:
    """What the reports of an attempt may say.

    Attributes:
        values: hyperparameters under which it may train, of which it must keep to one; None: any one.
        held: hyperparameters that the checkpoint may name from which it starts; None: any.
        start: the step from which it starts; None: any.
    """

    values: frozenset[float] | None
    held: frozenset[float] | None
    start: int | None


def by_attempt(evidence: Evidence) -> dict[str, Allowed]:
    """Return what every attempt may say if no trial changes: its own value, from its newest report on."""
    return {
        attempt.id: Allowed(own, own, _before(evidence, attempt))
        for trial in evidence.trials
        for own in [frozenset({float(trial.params[evidence.kind.searched])})]
        for attempt in evidence.attempts
        if attempt.trial_key == trial.key
    }


def of_population(evidence: Evidence) -> dict[str, Allowed]:
    """Return what every attempt may say under population based training.

    After a copy a trial has the value of its segment, and starts from what the donor had reported at that
    step. The value before its first copy is no longer in the ledger: any will do, if it is one.
    """
    echoes = {
        (one.trial_key, one.step): one.metrics.get(evidence.kind.echo, -1.0) for one in evidence.reports
    }
    first: dict[str, int] = {}
    for report in evidence.reports:
        first[report.attempt_id] = min(report.step, first.get(report.attempt_id, report.step))
    allowed = by_attempt(evidence)
    for trial in evidence.trials:
        segments = trial.system_attrs.get("segments", [])
        for attempt in evidence.attempts if segments else []:
            if attempt.trial_key != trial.key:
                continue
            if attempt.id not in first:  # the ledger does not say before which copy it was killed
                allowed[attempt.id] = replace(allowed[attempt.id], values=None, held=None)
                continue
            mine = [segment for segment in segments if segment["step"] < first[attempt.id]]
            before = _before(evidence, attempt)
            if not mine:
                allowed[attempt.id] = Allowed(None, None, before)
                continue
            own = frozenset({float(mine[-1]["params"][evidence.kind.searched])})
            donor = frozenset({float(echoes.get((mine[-1]["donor"], mine[-1]["step"]), -1.0))})
            is_copy = mine[-1]["step"] >= before
            start = max(before, int(mine[-1]["step"]))
            allowed[attempt.id] = Allowed(own, donor if is_copy else own, start)
    return allowed


def _before(evidence: Evidence, attempt: AttemptRecord) -> int:
    """Return the last step that the trial had reported before an attempt."""
    steps = [
        report.step
        for report in evidence.reports
        if report.trial_key == attempt.trial_key and attempt_number(report.attempt_id) < attempt.number
    ]
    return max(steps, default=0)


def require(
    *sweeps: Evidence,
    allowed: Mapping[str, Allowed] | None = None,
    finished: bool = True,
    calm: bool = False,
) -> None:
    """Require every report of its own trial, of one or more sweeps that ran at once.

    Args:
        sweeps: what is known of each.
        allowed: what an attempt may say, by attempt id; if left out, `by_attempt` of each sweep.
        finished: whether every trial must have ended. If not, what there is must be right and without gaps.
        calm: whether nothing was killed: then each trial has one attempt, and its log no line that is not in
            the ledger.

    Raises:
        AssertionError: names every trial and step that is wrong, what was expected and what was found.
    """
    assert sweeps, "some sweep must be checked"
    found = faults(*sweeps, allowed=allowed, finished=finished, calm=calm)
    count = sum(len(sweep.reports) for sweep in sweeps)
    message = f"{len(found)} faults in {count} reports, of which {misplaced(*sweeps)} echo another value"
    assert not found, "\n".join([f"{message} than their trial's:", *found[:60]])


def faults(
    *sweeps: Evidence,
    allowed: Mapping[str, Allowed] | None = None,
    finished: bool = True,
    calm: bool = False,
) -> list[str]:
    """Return what is wrong, one line each; the arguments are those of `require`."""
    found: list[str] = []
    for sweep in sweeps:
        may = by_attempt(sweep) if allowed is None else allowed
        found += [*_identities(sweep, may), *_steps(sweep, finished=finished)]
        if finished:
            found += _values(sweep)
        if calm:
            found += _further_attempts(sweep)
        found += [*_logs(sweep, may, calm=calm), *_starts(sweep, may), *_points(sweep)]
    return [*found, *_nonces(sweeps)]


def misplaced(*sweeps: Evidence) -> int:
    """Return how many reports echo another hyperparameter than that of their trial."""
    return sum(
        not sweep.kind.agrees(report.metrics.get(sweep.kind.echo), value)
        for sweep in sweeps
        for trial in sweep.trials
        for value in [float(trial.params[sweep.kind.searched])]
        for report in sweep.reports
        if report.trial_key == trial.key
    )


def _wrong(report: ReportRecord, what: str, expected: object, found: object) -> str:
    where = f"{report.trial_key}, step {report.step} (attempt {attempt_number(report.attempt_id)})"
    return f"{where}: {what} must be {expected}, found {found}"


def _shown(values: frozenset[float]) -> str:
    return " or ".join(repr(value) for value in sorted(values))


def _identities(sweep: Evidence, allowed: Mapping[str, Allowed]) -> Iterator[str]:
    """Yield the reports that echo another trial, another step or another checkpoint."""
    kind, used = sweep.kind, dict[str, float]()
    for report in sweep.reports:
        if trial_key_of(report.attempt_id) != report.trial_key:
            yield _wrong(report, "its attempt", f"one of {report.trial_key}", report.attempt_id)
            continue
        if report.attempt_id not in allowed:
            yield _wrong(report, "its attempt", "in the ledger", report.attempt_id)
            continue
        may, echo = allowed[report.attempt_id], report.metrics.get(kind.echo)
        values = may.values
        if values is None:
            values = frozenset({used.setdefault(report.attempt_id, echo if echo is not None else -1.0)})
        if not any(kind.agrees(echo, value) for value in values):
            yield _wrong(report, kind.echo, _shown(values), echo)
        if kind.step is not None and not kind.agrees(report.metrics.get(kind.step), report.step):
            yield _wrong(report, kind.step, report.step, report.metrics.get(kind.step))
        if kind.held is not None and may.held is not None and may.start is not None:
            right = frozenset(kind.holds(may.start, value) for value in may.held)
            if not any(kind.agrees(report.metrics.get(kind.held), value) for value in right):
                yield _wrong(report, kind.held, _shown(right), report.metrics.get(kind.held))


def _steps(sweep: Evidence, *, finished: bool) -> Iterator[str]:
    """Yield the trials in which a report is missing or one too many, or that have not ended well."""
    reports = by_trial(sweep.reports)
    for trial in sweep.trials:
        counts = Counter(report.step for report in reports.get(trial.key, []))
        last = max(counts, default=0)
        if finished and trial.state not in {"COMPLETE", "PRUNED"}:
            yield f"{trial.key}: must be COMPLETE or PRUNED, found {trial.state} ({trial.cause})"
        if trial.state == "COMPLETE":
            last = trial.total_steps
        elif finished:
            last = max(last, trial.step)
        copied = {int(segment["step"]) for segment in trial.system_attrs.get("segments", [])}
        wanted = {*range(sweep.interval, last + 1, sweep.interval), *([last] if last else [])}
        # A copy goes on from the donor's step, which may be later than that of the trial.
        for step in sorted(wanted - counts.keys()):
            if not any(step <= until and _nothing_between(counts, step, until) for until in copied):
                yield f"{trial.key}, step {step}: must have one report, found none"
        for step in sorted(counts.keys() - wanted):
            yield f"{trial.key}, step {step}: must have no report, found {counts[step]}"
        for step in sorted(step for step, count in counts.items() if count > 1):
            yield f"{trial.key}, step {step}: must have one report, found {counts[step]}"


def _nothing_between(counts: Mapping[int, int], first: int, last: int) -> bool:
    return not any(first <= step <= last for step in counts)


def _values(sweep: Evidence) -> Iterator[str]:
    """Yield the trials whose value is not the best of their reports."""
    reports = by_trial(sweep.reports)
    for trial in sweep.trials:
        losses = {report.step: report.metrics["val/loss"] for report in reports.get(trial.key, [])}
        if losses and trial.value != min(losses.values()):
            yield f"{trial.key}: its value must be {min(losses.values())!r}, found {trial.value!r}"


def _further_attempts(sweep: Evidence) -> Iterator[str]:
    for attempt in sweep.attempts:
        if attempt.number > 1:
            yield f"{attempt.trial_key}: must have one attempt, found {attempt.id} ({attempt.state})"


_STEP = re.compile(r"attempt (\d+): step (\d+): (.*)$", re.MULTILINE)
_STARTED = re.compile(r"attempt (\d+): started at step (\d+) on ")


def _logs(sweep: Evidence, allowed: Mapping[str, Allowed], *, calm: bool) -> Iterator[str]:
    """Yield where the log of a trial does not say what the ledger says."""
    if sweep.logs is None:
        return
    reports, kind = by_trial(sweep.reports), sweep.kind
    for trial in sweep.trials:
        lines: dict[tuple[int, int], list[dict[str, str]]] = defaultdict(list)
        for number, step, text in _STEP.findall(sweep.logs.get(trial.key, "")):
            pairs = (pair.rpartition(" ") for pair in text.split(", "))
            lines[int(number), int(step)].append({name: value for name, _, value in pairs})
        for report in reports.get(trial.key, []):
            said = lines.pop((attempt_number(report.attempt_id), report.step), [])
            if len(said) != 1:
                yield _wrong(report, "lines of the log", 1, len(said))
                continue
            for name, text in said[0].items():
                if (expected := f"{report.metrics.get(name, float('nan')):.6g}") != text:
                    yield _wrong(report, f"{name} in the log", expected, text)
        # A report that was under way when a driver or a worker was killed is in the log alone.
        for (number, step), said in lines.items():
            where = f"{trial.key}, step {step} (attempt {number})"
            if calm:
                yield f"{where}: the log must have no line without a report, found {said}"
            may = allowed.get(f"{trial.key}.{number}")
            if may is None or may.values is None:
                continue
            for one in said:
                text = one.get(kind.echo)
                if text is not None and not any(_printed(text, value) for value in may.values):
                    yield f"{where}: {kind.echo} in the log must be {_shown(may.values)}, found {text}"


def _printed(text: str, value: float) -> bool:
    """Return True if a log may have printed a value so, with six digits."""
    return abs(float(text) - value) <= 1e-5 * max(1.0, abs(value))


def _starts(sweep: Evidence, allowed: Mapping[str, Allowed]) -> Iterator[str]:
    """Yield the attempts that, by the log, have started from another step than the newest report's."""
    for key, text in (sweep.logs or {}).items():
        for number, step in _STARTED.findall(text):
            may = allowed.get(f"{key}.{number}")
            if may is None:
                yield f"{key}: attempt {number} must be in the ledger, found it in the log alone"
            elif may.start is not None and int(step) != may.start:
                yield f"{key}, attempt {number}: must start at step {may.start}, found {step} in the log"


def _points(sweep: Evidence) -> Iterator[str]:
    """Yield where the curves of MLflow are not those of the ledger."""
    if sweep.points is None:
        return
    reports = by_trial(sweep.reports)
    for trial in sweep.trials:
        stored: dict[tuple[str, int], list[float]] = defaultdict(list)
        for name, step, value in sweep.points.get(trial.key, []):
            stored[name, step].append(value)
        names: set[str] = set()
        for report in reports.get(trial.key, []):
            before = {
                NORM + name.removeprefix(INITIAL_NORM): value
                for name, value in report.metrics.items()
                if name.startswith(INITIAL_NORM)
            }
            shown = {(name, report.step): value for name, value in events.curves(report.metrics).items()}
            for (name, step), value in (shown | {(name, 0): value for name, value in before.items()}).items():
                names.add(legal := legal_name(name))
                if (found := stored.pop((legal, step), [])) != [value]:
                    yield _wrong(report, f"{name} in MLflow", [value], found)
        for (name, step), values in stored.items():
            if name in names:
                yield f"{trial.key}, step {step}: {name} in MLflow must be missing, found {values}"


def _nonces(sweeps: Sequence[Evidence]) -> Iterator[str]:
    """Yield the attempts whose reports come from several processes, and those that share a process."""
    attempts: dict[float, str] = {}
    for sweep in sweeps:
        if sweep.kind.nonce is None:
            continue
        nonces: dict[str, float] = {}
        for report in sweep.reports:
            nonce = report.metrics.get(sweep.kind.nonce, -1.0)
            if nonce != nonces.setdefault(report.attempt_id, nonce):
                yield _wrong(report, "its nonce", nonces[report.attempt_id], nonce)
            elif (other := attempts.setdefault(nonce, report.attempt_id)) != report.attempt_id:
                yield _wrong(report, "its nonce", "of no other attempt", f"that of {other}")
