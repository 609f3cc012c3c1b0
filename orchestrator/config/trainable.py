"""What a trial runs if not a network of this package: a function, a command, or a program of one's own."""

from __future__ import annotations

import ast
import re
import string
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from orchestrator.config.document import Violation, nearest
from orchestrator.config.sections import TrainableFile, TrainableSection
from orchestrator.config.space import Distribution
from trainables.trial import Clock, ProgramSettings, ScriptSettings

Space = Mapping[str, Distribution]
Kind = Literal["function", "command", "program"]
KINDS: tuple[Kind, ...] = ("function", "command", "program")

_REFERENCE = re.compile(r"^([A-Za-z_][\w.]*|[^:\0]+\.py):[A-Za-z_]\w*$")
_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_.]{0,63}$")
_OWN = frozenset({"seed", "step", "folder", "resume"})
"""Names that every command has beside its hyperparameters."""

_GIB = 2**30


@dataclass(frozen=True)
class Trainable:
    """What a trial runs.

    Attributes:
        kind: which of the three.
        target: `module:name` of a function or a program; the words of a command.
        folder: working folder, and where files are looked for.
        shell: whether a command is one text for a shell.
        free: the hyperparameters of a program that are traced numbers; empty for the others.
        mlflow: whether a function or a command writes to the run of its trial in MLflow.
    """

    kind: Kind
    target: str | tuple[str, ...]
    folder: str
    shell: bool = False
    free: tuple[str, ...] = field(default=())
    mlflow: bool = False

    @property
    def name(self) -> str:
        """Return a short name: the reference, or the script among the words of a command."""
        if isinstance(self.target, str):
            return self.target
        scripts = (word for word in self.target[1:] if not word.startswith("-") and "{" not in word)
        return Path(next(scripts, self.target[0])).name

    def document(self) -> dict[str, Any]:
        """Return the section as plain JSON values."""
        target = self.target if isinstance(self.target, str) else list(self.target)
        flags = {name: True for name in ("shell", "mlflow") if getattr(self, name)}
        return {self.kind: target, **flags, "folder": self.folder}

    def settings(
        self,
        params: Mapping[str, Any],
        clock: Clock,
        seed: int,
        *,
        memory: float | None,
        minutes: float | None,
    ) -> ProgramSettings | ScriptSettings:
        """Return what a trial with these hyperparameters runs.

        Args:
            params: a value for every active hyperparameter.
            clock: how long.
            seed: of the trial.
            memory: GiB that it may hold, or None.
            minutes: longest time of an attempt, or None.
        """
        if self.kind == "program":
            free = tuple(name for name in self.free if name in params)
            return ProgramSettings(str(self.target), self.folder, dict(params), clock, seed, free)
        return ScriptSettings(
            function=str(self.target) if self.kind == "function" else None,
            command=tuple(self.target) if self.kind == "command" else None,
            shell=self.shell,
            folder=self.folder,
            params=dict(params),
            training=clock,
            seed=seed,
            memory=None if memory is None else round(memory * _GIB),
            minutes=minutes,
        )


def task_of(document: Mapping[str, Any]) -> str:
    """Return the name of the task that a recorded sweep trains, or that of its trainable."""
    if "trainable" not in document:
        return str(document["task"])
    section = document["trainable"]
    kind = next(kind for kind in KINDS if kind in section)
    target = section[kind]
    return Trainable(kind, target if isinstance(target, str) else tuple(target), "").name


def read_trainable(file: TrainableFile, space: Space, folder: Path) -> Trainable:
    """Return what the trials of a file run.

    Args:
        file: the file.
        space: its space.
        folder: of the file, unless it names another.

    Raises:
        Violation: the section, a name in `search`, the clock or the resources are wrong.
    """
    section = file.trainable
    given = [kind for kind in KINDS if getattr(section, kind) is not None]
    if len(given) != 1:
        must = f"must have exactly one of {', '.join(KINDS)}"
        raise Violation(("trainable",), must, "For example {function: train.py:train}.")
    (kind,) = given
    if section.shell and kind != "command":
        raise Violation(("trainable", "shell"), "must stand beside a command", "Leave it out.")
    if section.mlflow and kind == "program":
        must = "must stand beside a function or a command: a program logs nothing itself"
        raise Violation(("trainable", "mlflow"), must, "Leave it out.")
    for name in space:
        if not _NAME.match(name):
            must = "must be a name: letters, digits, _ and dots"
            raise Violation(("search", name), must, "For example learning_rate.", f"`{name}`")
    _check_clock(file)
    _check_resources(file, kind)
    place = str(Path(section.folder) if section.folder else folder)
    if kind == "command":
        return Trainable(kind, _command(section, space), place, section.shell, mlflow=section.mlflow)
    reference = str(getattr(section, kind))
    if not _REFERENCE.match(reference):
        must = "must be package.module:name, or file.py:name"
        raise Violation(("trainable", kind), must, "For example train.py:train.", f"`{reference[:80]}`")
    free = _free_of(reference, Path(place)) if kind == "program" else ()
    return Trainable(kind, reference, place, free=free, mlflow=section.mlflow)


def _command(section: TrainableSection, space: Space) -> tuple[str, ...]:
    """Return the words of a command, whose placeholders name hyperparameters."""
    words = tuple(section.command or ())
    if section.shell and len(words) != 1:
        must = "must be one text where shell is true"
        raise Violation(("trainable", "command"), must, "Write command: ['...'].", f"{len(words)} words")
    known = [*space, *sorted(_OWN - set(space))]
    for word in words:
        try:
            names = [name for _, name, _, _ in string.Formatter().parse(word) if name is not None]
        except ValueError as error:
            must = "must have matching braces; {{ and }} stand for braces"
            raise Violation(
                ("trainable", "command"), must, "Double a brace that is meant.", str(error)
            ) from None
        for name in names:
            if name not in known:
                must = "a placeholder must name a searched hyperparameter, or " + ", ".join(sorted(_OWN))
                raise Violation(("trainable", "command"), must, nearest(name, known), f"{{{name}}}")
    return words


def _check_clock(file: TrainableFile) -> None:
    steps, interval = file.training.steps, file.training.interval
    if interval > steps:
        must, got = "must be at most training.steps", f"{interval} of {steps}"
        raise Violation(("training", "interval"), must, f"Write {steps} or less.", got)


def _check_resources(file: TrainableFile, kind: Kind) -> None:
    resources = file.resources
    if kind == "program":
        for name in ("memory", "minutes"):
            if getattr(resources, name) is not None:
                must = "must stand beside a function or a command: trials of a program share a process"
                raise Violation(("resources", name), must, "Leave it out.")
        return
    if resources.slots is not None or 0 < resources.gpu < 1:
        name = "gpu" if resources.slots is None else "slots"
        must = f"must be left to programs: every trial of a {kind} has a process of its own"
        raise Violation(("resources", name), must, "Write gpu: 1, or gpu: 0.")


def _free_of(reference: str, folder: Path) -> tuple[str, ...]:
    """Return `free` of a program's class, read from its source: importing it takes seconds.

    Raises:
        Violation: there is no such file or class, or its `free` is no list of words.
    """
    module, _, name = reference.partition(":")
    path = ("trainable", "program")
    file = folder / module if module.endswith(".py") else _source_of(module, folder)
    if file is None or not file.is_file():
        must = "must name a class whose source can be read"
        remedy = "Write package.module:Name of an installed package, or file.py:Name beside this file."
        raise Violation(path, must, remedy, f"no file for `{module}`")
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"), str(file))
    except (SyntaxError, ValueError) as error:
        raise Violation(path, "must name a class in valid Python", "Correct the file.", str(error)) from None
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    if name not in classes:
        raise Violation(path, f"must name a class of {file.name}", nearest(name, classes), f"`{name}`")
    for node in classes[name].body:
        if not isinstance(node, ast.Assign | ast.AnnAssign):
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if any(isinstance(target, ast.Name) and target.id == "free" for target in targets):
            return _words(node.value, path, name)
    return ("learning_rate",)


def _words(node: ast.expr | None, path: tuple[str, ...], name: str) -> tuple[str, ...]:
    try:
        words = ast.literal_eval(node) if node is not None else None
    except ValueError:
        words = None
    if not isinstance(words, tuple | list) or not all(isinstance(word, str) for word in words):
        must = f"`free` of {name} must be a tuple of names, written out"
        raise Violation(path, must, 'For example free = ("learning_rate",).')
    return tuple(words)


def _source_of(module: str, folder: Path) -> Path | None:
    """Return the source of an installed module; only its top-level package is looked up, nothing imported."""
    top, *below = module.split(".")
    spec = find_spec(top)
    if spec is None:
        return None
    if not below:
        return Path(spec.origin) if spec.origin else None
    for root in spec.submodule_search_locations or ():
        inner = Path(root, *below)
        for file in (inner.with_suffix(".py"), inner / "__init__.py"):
            if file.is_file():
                return file
    return None
