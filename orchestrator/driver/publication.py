"""The end of a sweep in MLflow: its results, its report, and the chosen trial as a registered model."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePath
from typing import Any

from orchestrator.config.document import Violation
from orchestrator.config.trainable import KINDS, task_of, why_not_kept, why_not_registered
from orchestrator.driver.sweep_rows import CODE
from orchestrator.errors import counted
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.sweeps.records import FINISHED_SWEEP, CheckpointRecord, Event, SweepState
from orchestrator.ledger.sweeps.selection import best_checkpoint
from orchestrator.report import words
from orchestrator.report.answer import answer, caveats, findings, notes
from orchestrator.report.history import History, read
from orchestrator.report.markdown import bullets, plain, table
from orchestrator.report.summary import Chosen, Summary, summarise
from orchestrator.storage.paths import Paths
from orchestrator.tracking import events
from trainables.tasks import TASKS


def conclude(
    ledger: Ledger, sweep_id: str, paths: Paths, state: SweepState, reason: str | None = None
) -> list[Event]:
    """Write the report of a sweep in its last `state`, and return the events for MLflow."""
    # It imports plotly and scipy, an eighth of a driver's memory, of no use before the end of the search.
    from orchestrator.report import report_files

    history = read(ledger, sweep_id)
    history = replace(history, sweep=replace(history.sweep, state=state, reason=reason))
    files = report_files.write_history(history, paths.report(sweep_id), partial(paths.log, sweep_id))
    now = events.milliseconds(ledger.now())
    code = [events.artifact(sweep_id, file, file.parent.name, now) for file in archives(paths, sweep_id)]
    return [*code, *publication(history, summarise(history), files.all(), now)]


def archives(paths: Paths, sweep_id: str) -> list[Path]:
    """Return the archives of the code that a sweep ran."""
    return sorted(paths.code(sweep_id).glob("code-*.zip"))


def publication(history: History, summary: Summary, files: Sequence[Path], at_ms: int) -> list[Event]:
    """Return the events that close a sweep's run in MLflow at a time, in milliseconds since 1970.

    The files become artifacts of the run.
    """
    run = summary.sweep_id
    note = "\n\n".join([answer(summary), bullets(notes(summary)), f"Used: {words.used(summary.cost)}."])
    published = [
        events.tags(run, {"mlflow.note.content": note, "sweep.trials": _states(summary)}, at_ms),
        *(events.artifact(run, file, "", at_ms) for file in files),
    ]
    if summary.chosen is not None:
        key = summary.chosen.row.key
        published.append(events.tags(run, {"chosen.trial": key}, at_ms))
        published.append(events.tags(key, {"trial.chosen": "yes"}, at_ms))
    model = model_of(history, summary, at_ms)
    if model is not None:
        published.append(model)
    ended = events.sweep_ended(run, summary.state, at_ms, reason=summary.reason, results=_results(summary))
    return [*published, *events.trials_left(history.trials, at_ms), ended]


def _states(summary: Summary) -> str:
    return ", ".join(f"{count} {state.lower()}" for state, count in sorted(summary.states.items()))


def _results(summary: Summary) -> dict[str, float]:
    """Return the final metrics of a finished sweep; one that can be resumed would log them twice."""
    chosen = summary.chosen
    if chosen is None or summary.state not in FINISHED_SWEEP:
        return {}
    metrics = {events.OBJECTIVE: chosen.row.value, **chosen.test}
    return {name: value for name, value in metrics.items() if value is not None}


def model_of(history: History, summary: Summary, at_ms: int) -> Event | None:
    """Return the event that registers the chosen checkpoint as a model.

    None while the choice can still change, and for a trainable without a predictor.
    """
    chosen, trainable = summary.chosen, history.sweep.document.get("trainable")
    if chosen is None or summary.state != "COMPLETE":
        return None
    key = chosen.row.key
    (trial,) = (trial for trial in history.trials if trial.key == key)
    checkpoint = best_checkpoint(trial, history.checkpoints[key])
    assert checkpoint is not None, "a chosen trial has a checkpoint"
    program = None if trainable is None else _program(history, checkpoint)
    if trainable is not None and program is None:
        return None
    name = f"{summary.chosen_layer}-{summary.task}" if trainable is None else _name(history)
    facts = {
        "sweep.id": summary.sweep_id,
        "sweep.profile": summary.profile or "none",
        "trial.key": key,
        "data.source": summary.data_source,
        "data.digest": history.sweep.data_digest,
        "data.comparable": summary.comparable,
        "metric": summary.metric,
        "direction": "maximize" if summary.maximize else "minimize",
        "value": chosen.row.value,
        "git.commit": history.sweep.facts.get("git_commit", "unknown"),
    }
    return events.model(key, name, checkpoint, card(history, summary, name), facts, at_ms, program)


def _program(history: History, checkpoint: CheckpointRecord) -> Mapping[str, Any] | None:
    """Return the program of a checkpoint, its folder, and the digest of the code that trained it.

    For a function or a command, the loader of its predictor takes the place of the program. None without a
    predictor, if the source can no longer be read, or if no code is recorded.
    """
    section = history.sweep.document["trainable"]
    kind = next(kind for kind in KINDS if kind in section)
    target, folder = section.get("predictor", section[kind]), section["folder"]
    if kind != "program" and "predictor" not in section:
        return None
    try:
        why = (why_not_registered if kind == "program" else why_not_kept)(target, Path(folder))
    except Violation:
        return None
    key = checkpoint.trial_key
    (report,) = (row for row in history.reports[key] if row.step == checkpoint.step)
    (began,) = (row.started_at for row in history.attempts[key] if row.id == report.attempt_id)
    codes = [one["digest"] for one in history.sweep.facts.get(CODE, ()) if one["at"] <= began]
    if why is not None or not codes:
        return None
    known = {"target": target, "folder": folder, "code": codes[-1]}
    return known if kind == "program" else {**known, "trained": section[kind]}


def _name(history: History) -> str:
    """Return the name of a trainable's model, made of its sweep and its class, function or script.

    MLflow does not allow dots in it.
    """
    _, _, name = task_of(history.sweep.document).rpartition(":")
    return re.sub(r"[^A-Za-z0-9_-]", "-", f"{history.sweep.name}-{PurePath(name).stem}")


def card(history: History, summary: Summary, name: str) -> str:
    """Return the model card in Markdown: the model, its data, its metrics and its limits."""
    chosen = summary.chosen
    assert chosen is not None, "a card is of a chosen trial"
    data = f"{summary.data_source}; SHA-256 {history.sweep.data_digest}."
    trained = {**chosen.row.params, "step": chosen.row.best_step}
    parts = [
        f"# {name}",
        f"{_subject(history, summary, chosen)} Trial `{chosen.row.key}`.",
        f"```python\n{_usage(history, summary, name)}\n```",
        *([] if summary.runs_script else ["## Data and splits", bullets([data, *_splits(history)])]),
        "## Metrics",
        answer(summary),
        _metrics(chosen),
        bullets(findings(summary)),
        "## Training",
        table(["hyperparameter", "value"], [[key, words.setting(value)] for key, value in trained.items()]),
        "## Limits",
        _limits(summary, _reading(history, summary, chosen)),
    ]
    return "\n\n".join(part for part in parts if part)


def _subject(history: History, summary: Summary, chosen: Chosen) -> str:
    """Return a description of the model in one or two sentences."""
    if "trainable" in history.sweep.document:
        return _subject_of(history.sweep.document["trainable"])
    model = {**history.sweep.document["model"], **_drawn(history, chosen)}
    size = f"{counted(model['depth'], 'block')} of width {model['d_model']}, state {model['d_state']}"
    direction = "bidirectional" if model.get("bidirectional") else "looks back only"
    return f"{plain(TASKS[summary.task].title)}. {model['layer']}, {size}; {direction}."


def _subject_of(section: Mapping[str, Any]) -> str:
    if "program" in section:
        return f"The program `{section['program']}`."
    kind = next(kind for kind in KINDS if kind in section)
    words = section[kind] if isinstance(section[kind], str) else " ".join(section[kind])
    return f"What the {kind} `{words}` has saved, loaded by `{section['predictor']}`."


def _drawn(history: History, chosen: Chosen) -> Mapping[str, Any]:
    """Return the settings of the network that are hyperparameters of the trial."""
    return {
        name: value for name, value in chosen.row.params.items() if name in history.sweep.document["model"]
    }


def _usage(history: History, summary: Summary, name: str) -> str:
    texts = () if "trainable" in history.sweep.document else TASKS[summary.task].texts
    example = repr(list(texts) if len(texts) == 1 else [list(texts)]) if texts else "examples"
    loaded = f'mlflow.pyfunc.load_model("models:/{name}@champion")'
    return f"import mlflow\n\n{loaded}.predict({example})"


def _splits(history: History) -> list[str]:
    sizes = history.sweep.facts.get("examples", {})
    uses = {
        "train": "gradients",
        "validation": "every comparison between trials, and the choice of the checkpoint",
        "test": "evaluated once, after the choice",
    }
    return [
        f"{split}{f' ({sizes[split]:,} examples)' if split in sizes else ''}: {use}."
        for split, use in uses.items()
    ]


def _metrics(chosen: Chosen) -> str:
    validation = {name: value for name, value in chosen.validation.items() if name.startswith("val/")}
    rows = [[name, words.number(value)] for name, value in {**validation, **chosen.test}.items()]
    return table(["metric", "value"], rows)


def _reading(history: History, summary: Summary, chosen: Chosen) -> str:
    """Return a sentence about the input of the model."""
    if "trainable" in history.sweep.document:
        if loader := history.sweep.document["trainable"].get("predictor"):
            return f"It reads what the function reads that `{loader}` returns."
        return "It reads what `predict` of the program reads: a dict of arrays with the dtypes of its data."
    model = {**history.sweep.document["model"], **_drawn(history, chosen)}
    if model.get("bidirectional") or len(TASKS[summary.task].texts) > 1:
        return "It needs whole sequences: streaming, step by step, is refused."
    return "It can read a sequence step by step: `trainables.inference.Predictor.stream`."


def _limits(summary: Summary, reading: str) -> str:
    complete = summary.states.get("COMPLETE", 0)
    lines = [
        *(plain(line) for line in caveats(summary)),
        f"Chosen among {complete} complete trials by validation, so its validation result is too optimistic; "
        "its test result is not.",
        "It answers every input of the right form, and does not notice inputs unlike its training data.",
        reading,
    ]
    return "\n".join(f"- {line}" for line in lines)
