"""Metrics and Hydra configuration that are found in the source of a script, without running it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.config.sweep_config import Direction
from orchestrator.config.yaml_reader import read_document
from orchestrator.errors import BadInput

NUMBER = r"([-+.\w]*\w)"
"""Pattern of a printed number, without the punctuation after it."""

_STEP = re.compile(r"(epoch|step|iteration|iter)\W{0,3}$", re.IGNORECASE)
_METRIC = re.compile(r"([A-Za-z][\w/]*(?:[ -]\w+)?)\s?[=:]?\s*$")
_GROWS = re.compile(
    r"acc|f1|auc|score|reward|return|bleu|rouge|iou|dice|recall|precision|r2|map$", re.IGNORECASE
)
_JUDGES = re.compile(rf"loss|err|rmse|mse|mae|perplexity|ppl|{_GROWS.pattern}", re.IGNORECASE)
_HELD_OUT = re.compile(r"val|valid|dev|eval", re.IGNORECASE)


@dataclass(frozen=True)
class FoundMetrics:
    """The metrics that a script reports or prints.

    Attributes:
        objective: Metric to optimise.
        direction: Guess from its name.
        source: Section `trainable.metrics`, which is empty for a script that reports.
        line: Line of the script where the objective was found.
    """

    objective: str
    direction: Direction
    source: dict[str, str]
    line: int


def metrics_in(tree: ast.Module) -> FoundMetrics | None:
    """Return the metrics of the first report, or of the first call of MLflow with a step, or those of the
    printed line that fits best, or None.
    """
    calls = sorted(
        (node for node in ast.walk(tree) if isinstance(node, ast.Call)),
        key=lambda call: (call.lineno, call.col_offset),
    )
    for call in calls:
        if isinstance(call.func, ast.Attribute) and call.func.attr == "report":
            keys = [_text(key) for each in call.args if isinstance(each, ast.Dict) for key in each.keys]
            if names := [key for key in keys if key]:
                best = _best(names)
                return FoundMetrics(best, _direction(best), {}, call.lineno)
    for call in calls:
        if names := _logged(call):
            best = _best(names)
            return FoundMetrics(best, _direction(best), {"source": "mlflow"}, call.lineno)
    found: dict[str, tuple[str, int]] = {}
    for call in calls:
        if _name(call.func) in ("print", "info", "write"):
            for text in (each for each in call.args if isinstance(each, ast.JoinedStr)):
                for name, pattern in _printed(text):
                    found.setdefault(name, (pattern, call.lineno))
    names = [name for name in found if name != "step" and _JUDGES.search(name)]
    if not names:
        return None
    best = _best(names)
    patterns = {name: found[name][0] for name in ("step", best) if name in found}
    return FoundMetrics(best, _direction(best), patterns, found[best][1])


def _logged(call: ast.Call) -> list[str]:
    """Return the names of the metrics that a call logs with MLflow at a step."""
    place = {"log_metric": 2, "log_metrics": 1}.get(_name(call.func))
    if place is None or not (len(call.args) > place or any(word.arg == "step" for word in call.keywords)):
        return []
    first = call.args[0] if call.args else None
    names = [_text(key) for key in first.keys] if isinstance(first, ast.Dict) else [_text(first)]
    return [name for name in names if name]


def _printed(text: ast.JoinedStr) -> Iterator[tuple[str, str]]:
    """Yield the name and the pattern of each value in a formatted text that a name precedes."""
    before = ""
    for piece in text.values:
        if isinstance(piece, ast.Constant):
            before = str(piece.value)
            continue
        if _STEP.search(before) and (label := re.search(r"\S+\s*$", before)):
            yield "step", f"{re.escape(label[0].lstrip('[('))}{NUMBER}"
        elif label := _METRIC.search(before):
            yield (
                re.sub(r"[^\w/]+", "_", label[1].strip()),
                f"{re.escape(label[0].rstrip())}\\s*{NUMBER}",
            )
        before = ""


def _best(names: list[str]) -> str:
    """Return the name of the most likely objective: a loss or a score, of held-out data if possible."""
    return max(names, key=lambda name: (bool(_HELD_OUT.search(name)), bool(_JUDGES.search(name))))


def _direction(name: str) -> Direction:
    return "maximize" if _GROWS.search(name) else "minimize"


def _text(node: ast.expr | None) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


@dataclass(frozen=True)
class HydraConfig:
    """The main configuration file of a script that uses Hydra.

    Attributes:
        file: The file.
        values: Values by their names with dots.
        groups: Whether it takes other files by `defaults`, which were not read.
    """

    file: Path
    values: dict[str, Any]
    groups: bool


def hydra_config(tree: ast.Module, folder: Path) -> HydraConfig | None:
    """Return the configuration that `@hydra.main` names; None if there is none, or it cannot be read.

    Args:
        tree: Parsed script.
        folder: Folder of the script.
    """
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and ast.unparse(node.func) == "hydra.main"):
            continue
        given = {word.arg: _text(word.value) for word in node.keywords}
        name = given.get("config_name") or "config"
        file = (
            folder / (given.get("config_path") or "") / (name if name.endswith(".yaml") else f"{name}.yaml")
        )
        try:
            document = read_document(file)[0].plain()
        except (BadInput, OSError):
            return None
        if isinstance(document, dict):
            groups = bool(document.pop("defaults", None))
            document.pop("hydra", None)
            return HydraConfig(file, dict(_leaves(document, "")), groups)
    return None


def _leaves(document: dict[Any, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in document.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
