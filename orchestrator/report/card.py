"""The chosen trial as a model for others to use: its name, its card, and what its version is told by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.ledger.records import Event
from orchestrator.report import words
from orchestrator.report.answer import answer, caveats, findings
from orchestrator.report.history import History
from orchestrator.report.markdown import table
from orchestrator.report.summary import Chosen, Summary, best_checkpoint
from orchestrator.tracking import events
from trainables.tasks import TASKS


def model_of(history: History, summary: Summary, at_ms: int) -> Event | None:
    """Return the event that registers the chosen checkpoint, or None while the choice may change."""
    chosen = summary.chosen
    if chosen is None or summary.state != "COMPLETE":
        return None
    key = chosen.row.key
    (trial,) = (each for each in history.trials if each.key == key)
    saved = best_checkpoint(trial, history.checkpoints[key])
    assert saved is not None, "a chosen trial has a checkpoint"
    name = f"{_layer(summary, chosen)}-{summary.task}"
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
    return events.model(key, name, saved, card(history, summary, name), facts, at_ms)


def card(history: History, summary: Summary, name: str) -> str:
    """Return the model's card in Markdown: what it is, its data, how good it is, what it is not for."""
    chosen = summary.chosen
    assert chosen is not None, "a card is of a chosen trial"
    model = {**history.sweep.document["model"], **_drawn(history, chosen)}
    size = f"{model['depth']} blocks of width {model['d_model']}, state {model['d_state']}"
    direction = "reads sequences both ways" if model.get("bidirectional") else "looks back only"
    parts = [
        f"# {name}",
        f"{TASKS[summary.task].title}. {model['layer']}, {size}; {direction}. Trial `{chosen.row.key}`.",
        f"```python\n{_asked(name, summary.task)}\n```",
        "## Data and splits",
        _lines([f"{summary.data_source}; SHA-256 `{history.sweep.data_digest}`.", *_splits(history)]),
        "## Metrics",
        answer(summary),
        _metrics(chosen),
        _lines(findings(summary)),
        "## Training",
        table(["hyperparameter", "value"], [[k, words.setting(v)] for k, v in _trained(chosen).items()]),
        "## Limits",
        _lines(_limits(summary, bool(model.get("bidirectional")))),
    ]
    return "\n\n".join(part for part in parts if part)


def _layer(summary: Summary, chosen: Chosen) -> str:
    return str(chosen.row.params.get("layer", summary.layer))


def _drawn(history: History, chosen: Chosen) -> Mapping[str, Any]:
    """Return the searched settings of the network that a trial drew in place of the file's."""
    return {
        name: value for name, value in chosen.row.params.items() if name in history.sweep.document["model"]
    }


def _asked(name: str, task: str) -> str:
    texts = TASKS[task].texts
    example = repr(list(texts) if len(texts) == 1 else [list(texts)]) if texts else "examples"
    loaded = f'mlflow.pyfunc.load_model("models:/{name}@champion")'
    return f"import mlflow\n\n{loaded}.predict({example})"


def _splits(history: History) -> list[str]:
    sizes = history.sweep.facts.get("examples", {})
    read = {
        "train": "gradients",
        "validation": "every comparison between trials, and the choice of the checkpoint",
        "test": "read once, after the choice",
    }
    return [
        f"{split}{f' ({sizes[split]:,} examples)' if split in sizes else ''}: {use}."
        for split, use in read.items()
    ]


def _metrics(chosen: Chosen) -> str:
    validation = {name: value for name, value in chosen.validation.items() if name.startswith("val/")}
    rows = [[name, words.number(value)] for name, value in {**validation, **chosen.test}.items()]
    return table(["metric", "value"], rows)


def _trained(chosen: Chosen) -> dict[str, Any]:
    return {**chosen.row.params, "step": chosen.row.best_step}


def _limits(summary: Summary, bidirectional: bool) -> list[str]:
    complete = summary.states.get("COMPLETE", 0)
    whole = bidirectional or len(TASKS[summary.task].texts) > 1
    stepping = (
        "It needs its sequences whole: reading step by step is refused."
        if whole
        else "It can be read step by step (`trainables.inference.Predictor.stream`)."
    )
    return [
        *caveats(summary),
        f"Chosen among {complete} complete trials by validation, which is therefore too good; test is not.",
        "It answers every input of the right form, and knows nothing of inputs unlike its training data.",
        stepping,
    ]


def _lines(lines: list[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)
