"""User code as a trainable: a function, a command or a program."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import packages_distributions
from pathlib import Path, PurePath
from typing import Any, Literal

from orchestrator.config.document import Violation, flow, nearest, raise_all
from orchestrator.config.sections import LIMITS, ResourcesSection, TrainableFile, TrainableSection
from orchestrator.config.space import Distribution, chosen
from orchestrator.placeholders import (
    ARGUMENTS,
    LONGEST_WORD,
    NAME,
    ConditionalText,
    Piece,
    Placeholder,
    PlaceholderError,
    parsed,
    plain,
)
from orchestrator.process_secrets import redacted
from trainables import sources
from trainables.sources import digest_of, module_in, source_of, text_of
from trainables.trial import (
    METRIC_SOURCES,
    Clock,
    ProgramSettings,
    ScriptSettings,
    memory_share,
    variable_of,
)

Space = Mapping[str, Distribution]
Kind = Literal["function", "command", "program"]
KINDS: tuple[Kind, ...] = ("function", "command", "program")

_REFERENCE = re.compile(r"^([A-Za-z_][\w.]*|[^:\0]+\.py):[A-Za-z_]\w*$")
_OWN = frozenset({"seed", "step", "steps", "folder", "resume", "gpus", "nodes"})
"""Names that every command has beside its hyperparameters."""
_PROGRAM_PATH = ("trainable", "program")
_PATHS = frozenset({"folder", "resume"})

_SCRIPT = re.compile(r"[^'\"$;&|<>]+\.[A-Za-z]{1,4}")
_LONGEST_NAME = 100
_LONGEST_REFERENCE = 250

_GIB = 2**30

DISK = 20
"""GiB that the files of an attempt may take unless the file says otherwise."""


@dataclass(frozen=True)
class Trainable:
    """A function, a command or a program of a user.

    Attributes:
        kind: `function`, `command` or `program`.
        target: `module:name` of a function or a program; the words of a command.
        folder: Working folder, in which files are found.
        shell: Whether a command is one text for a shell.
        free: Hyperparameters of a program that are traced numbers; empty for the others.
        mlflow: Whether a function or a command writes to the run of its trial in MLflow.
        mutable: Hyperparameters of a function or a command that may differ when it resumes.
        predictor: Function that makes a predictor from the files that a function or a command has saved, or
            ''.
        metrics: Where the reports of a function or a command come from; empty if it sends them itself.
    """

    kind: Kind
    target: str | tuple[str, ...]
    folder: str
    shell: bool = False
    free: tuple[str, ...] = field(default=())
    mlflow: bool = False
    mutable: tuple[str, ...] = ()
    predictor: str = ""
    metrics: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Return a short name: the reference, or the script among the words of a command."""
        if isinstance(self.target, str):
            return (
                self.target
                if len(self.target) <= _LONGEST_REFERENCE
                else f"...{self.target[-_LONGEST_NAME:]}"
            )
        words = self.target[0].split() if self.shell else self.target
        named = [
            word for word in words[1:] if word.isprintable() and not word.startswith("-") and "{" not in word
        ]
        scripts = [word for word in named if _SCRIPT.fullmatch(word)]
        name = Path(next(iter((*scripts, *named, *words[:1])), "")).name
        return " ".join(name.split())[:_LONGEST_NAME] or self.kind

    @property
    def changeable(self) -> frozenset[str]:
        """Return the hyperparameters that may change when a trial resumes."""
        return frozenset(self.free or self.mutable)

    def code(self) -> str:
        """Return the digest of the code that its trials run, as it is on disk now."""
        return digest_of(self.target, Path(self.folder))

    def imported_code(self) -> str:
        """Return the digest of a program's code, which workers import, or ''."""
        return self.code() if self.kind == "program" else ""

    def why_not_registered(self) -> str | None:
        """Return the reason why the best trial cannot become a registered model, or None.

        Raises:
            Violation: The class of a program cannot be read.
        """
        if self.predictor:
            return why_not_kept(self.predictor, Path(self.folder))
        if self.kind != "program":
            return f"a {self.kind} offers no predictor unless `predictor` names a function that loads one"
        return why_not_registered(str(self.target), Path(self.folder))

    def document(self) -> dict[str, Any]:
        """Return the section as plain JSON values."""
        target = self.target if isinstance(self.target, str) else list(self.target)
        flags = {name: True for name in ("shell", "mlflow") if getattr(self, name)}
        mutable = {"mutable": list(self.mutable)} if self.mutable else {}
        predictor = {"predictor": self.predictor} if self.predictor else {}
        metrics = {"metrics": dict(self.metrics)} if self.metrics else {}
        free = {"free": list(self.free)} if self.kind == "program" else {}
        return {self.kind: target, **flags, **mutable, **predictor, **metrics, **free, "folder": self.folder}

    def settings(
        self,
        params: Mapping[str, Any],
        clock: Clock,
        seed: int,
        limits: ResourcesSection,
    ) -> ProgramSettings | ScriptSettings:
        """Return the settings of a trial with these hyperparameters.

        Args:
            params: Value for every active hyperparameter.
            clock: Length of the trial.
            seed: Seed of the trial. It replaces a searched `seed`, because a confirmation has the params of
                the best trial.
            limits: Cores, GPUs, nodes and limits of a function or a command.
        """
        own = _with_seed(params, seed)
        if self.kind == "program":
            free = tuple(name for name in self.free if name in params)
            return ProgramSettings(str(self.target), self.folder, own, clock, seed, free)
        return ScriptSettings(
            function=str(self.target) if self.kind == "function" else None,
            command=tuple(self.target) if self.kind == "command" else None,
            shell=self.shell,
            folder=self.folder,
            params=own,
            training=clock,
            seed=seed,
            memory=None if limits.memory is None else round(limits.memory * _GIB),
            minutes=limits.minutes,
            disk=round((limits.disk or DISK) * _GIB),
            metrics=self.metrics,
            gpu=limits.gpu,
            nodes=limits.node_count,
            cpu=limits.cpu,
        )


def _with_seed(params: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Replace a searched seed by the seed of the trial."""
    if int(params.get("seed", seed)) == seed:  # it may have been drawn as 0.75, of which the trial's is 0
        return dict(params)
    return {**params, "seed": seed}


def task_of(document: Mapping[str, Any]) -> str:
    """Return the name of the task that a recorded sweep trains, or that of its trainable."""
    if "trainable" not in document:
        return str(document["task"])
    section = document["trainable"]
    kind = next(kind for kind in KINDS if kind in section)
    target = section[kind]
    shell = section.get("shell", False)
    return Trainable(kind, target if isinstance(target, str) else tuple(target), "", shell).name


def resources_of(document: Mapping[str, Any]) -> str:
    """Return the resources of one trial of a recorded sweep in words, with the bound of its GPU's memory."""
    asked = ResourcesSection.model_validate(document.get("resources", {}))
    if 0 < asked.gpu < 1 and {"function", "command"} & document.get("trainable", {}).keys():
        return f"{asked.phrase}, with at most {memory_share(asked.gpu):.1%} of the GPU's memory"
    return asked.phrase


def read_trainable(
    file: TrainableFile, space: Space, folder: Path, recorded: Mapping[str, Any] | None = None
) -> Trainable:
    """Return the trainable of a file.

    Args:
        file: Validated file.
        space: Space of the search.
        folder: Folder of the file, unless it names another.
        recorded: Section as `Trainable.document` wrote it, for the record of a sweep, which can be read
            without its code; None for a user's file.

    Raises:
        Violation: The section, a name in `search`, the clock or the resources are wrong.
    """
    section = file.trainable
    given = [kind for kind in KINDS if getattr(section, kind) is not None]
    if len(given) != 1:
        must = f"must have exactly one of {', '.join(KINDS)}"
        raise Violation(("trainable",), must, "For example {function: train.py:train}.")
    (kind,) = given
    if section.shell and kind != "command":
        raise Violation(("trainable", "shell"), "requires `command`", "Leave it out.")
    if section.mlflow and kind == "program":
        must = "requires a function or a command, because a program logs nothing itself"
        raise Violation(("trainable", "mlflow"), must, "Leave it out.")
    _check_names(space, _check_fixed(file.fixed, space), kind)
    _check_mutable(section, space, kind)
    _check_predictor(section, kind)
    _check_metrics(file, kind, space)
    _check_clock(file, kind)
    _check_resources(file, kind)
    place = str((folder / Path(section.folder).expanduser()).absolute()) if section.folder else str(folder)
    own: dict[str, Any] = {"mlflow": section.mlflow, "mutable": tuple(section.mutable)}
    own |= {"predictor": section.predictor or "", "metrics": dict(section.metrics or {})}
    if kind == "command":
        words = _command(section, _values_of_trials(space, file.fixed))
        return Trainable(kind, words, place, section.shell, **own)
    reference = str(getattr(section, kind))
    _check_reference(kind, reference)
    free: tuple[str, ...] = ()
    if kind == "program":
        free = free_of(reference, Path(place)) if recorded is None else tuple(recorded["free"])
        _check_free(free, _values_of_trials(space, file.fixed))
    return Trainable(kind, reference, place, free=free, **own)


def _check_fixed(fixed: Mapping[str, Any], space: Space) -> Space:
    """Return the fixed hyperparameters as choices of one value, which must not be searched too."""
    for name in fixed:
        if name in space or name in _OWN:
            must = "must not be searched too" if name in space else "must not be a name that every trial has"
            raise Violation(("fixed", name), must, "Leave one of them out, or rename it.", f"`{name}`")
    return {name: chosen([value]) for name, value in fixed.items()}


def _values_of_trials(space: Space, fixed: Mapping[str, Any]) -> Space:
    """Return the space with values in place of labels, and with the fixed values."""
    unlabelled = {
        name: replace(distribution, choices=distribution.labelled, labelled=())
        if distribution.labelled
        else distribution
        for name, distribution in space.items()
    }
    return {**unlabelled, **{name: chosen([value]) for name, value in fixed.items()}}


def _check_free(free: Sequence[str], space: Space) -> None:
    """Refuse values of a program's free hyperparameters that are not numbers: they are traced."""
    for name in free:
        values = space[name].choices if name in space else ()
        if wrong := [value for value in values if not isinstance(value, int | float)]:
            must = "must be numbers, because the program declares it as `free`"
            raise Violation(("search", name), must, "Take it out of `free`, or change it.", flow(wrong[0]))


def _command(section: TrainableSection, space: Space) -> tuple[str, ...]:
    """Return the words of a command, with checked placeholders."""
    words = tuple(section.command or ())
    if section.shell and len(words) != 1:
        must = "must be one string if `shell` is true"
        raise Violation(("trainable", "command"), must, "Write command: ['...'].", f"{len(words)} words")
    if redacted(" ".join(words), secrets=()) != " ".join(words):
        must = "must not contain credentials, because commands are stored and displayed"
        raise Violation(("trainable", "command"), must, "Let the script read it from a file.")
    known = [*space, *sorted(_OWN - set(space)), ARGUMENTS]
    wrong: list[Violation] = []
    for word in words:
        try:
            _check_word(word, space, known, shell=section.shell)
        except Violation as violation:
            wrong.append(violation)
    raise_all(wrong)
    return words


def _check_word(word: str, space: Space, known: Sequence[str], *, shell: bool) -> None:
    """Check that the placeholders of a word have a value in every trial, and that it is never too long."""
    path = ("trainable", "command")
    try:
        pieces = parsed(word, shell=shell)
    except PlaceholderError as error:
        raise Violation(path, error.must, error.remedy, error.got) from None
    if any(_is_arguments(piece, space) for piece in pieces):
        _check_arguments(word, pieces, shell=shell)
    longest = sum(_longest(piece, space, known) for piece in pieces)
    if longest > LONGEST_WORD:
        must = f"must be at most {LONGEST_WORD:,} bytes, the longest argument of a program"
        raise Violation(path, must, "Let the script read it from a file.", f"{longest:,}")


def _longest(piece: Piece, space: Space, known: Sequence[str], given: str | None = None) -> int:
    """Return the largest size of a piece of a word, in bytes.

    Args:
        piece: Piece of a word.
        space: Space of the search.
        known: Names that a placeholder may have.
        given: Hyperparameter of all trials that use the piece, or None.

    Raises:
        Violation: A placeholder has no value in a trial.
    """
    path = ("trainable", "command")
    if isinstance(piece, str):
        return len(piece.encode())
    name = piece.name
    if name not in known:
        must = "a placeholder must name a searched hyperparameter, or " + ", ".join(
            sorted({*_OWN, ARGUMENTS})
        )
        remedy = f"{nearest(name, known)} {{{{ and }}}} stand for braces."
        raise Violation(path, must, remedy, f"{{{name}}}")
    if isinstance(piece, ConditionalText):
        if name == ARGUMENTS and name not in space:
            must = f"{{{name}}} must be a word of its own, because every trial has it"
            raise Violation(path, must, "Name a hyperparameter.", f"{{?{name}: ...}}")
        if name in _OWN and name in space and space[name].when:
            must = f"{{?{name}: ...}} must not name a conditional hyperparameter with the name of a value"
            remedy = f"Give the hyperparameter {name} another name."
            raise Violation(path, must + " that every trial has", remedy, f"{{{name}}}")
        return sum(_longest(each, space, known, name) for each in piece.pieces)
    if _is_arguments(piece, space):
        if given is not None:
            raise Violation(path, f"{{{ARGUMENTS}}} must not be in {{?{given}: ...}}", "Move it out of it.")
        return 0
    if name in space and not _has(given, name, space):
        must = "a placeholder must name a hyperparameter that every trial has"
        other = f"write {{?{name}: ...}} around the text that only some trials get"
        remedy = f"Let the script read it from the file that SWEEP_PARAMS names, or {other}."
        raise Violation(path, must, remedy, f"{{{name}}}, which has a condition")
    return max(len(text.encode()) for text in _texts(piece, space))


def _has(given: str | None, name: str, space: Space) -> bool:
    """Return True if every trial, or every trial with another hyperparameter, has a hyperparameter."""
    if given == name:
        return True
    conditions = space[given].when if given is not None and given in space else {}
    return all(
        parent in conditions and all(value in values for value in conditions[parent])
        for parent, values in space[name].when.items()
    )


def _is_arguments(piece: Piece, space: Space) -> bool:
    return isinstance(piece, Placeholder) and piece.name == ARGUMENTS and ARGUMENTS not in space


def _check_arguments(word: str, pieces: Sequence[Piece], *, shell: bool) -> None:
    """Check that the placeholder of all hyperparameters is a word of its own."""
    text = f"{{{ARGUMENTS}}}"
    are_words = all(
        piece.context == "word" and not piece.format
        for piece in pieces
        if isinstance(piece, Placeholder) and piece.name == ARGUMENTS
    )
    if (not shell and word != text) or (
        shell and not (are_words and word.count(text) == len(re.findall(rf"(?<!\S){text}(?!\S)", word)))
    ):
        must = f"{text} must be a word of its own, because it stands for several arguments"
        raise Violation(("trainable", "command"), must, f"Put spaces around {text}.", word[:60])


def _texts(placeholder: Placeholder, space: Space) -> list[str]:
    """Return the texts that a placeholder may have: of every choice, or of both ends of a range.

    Raises:
        Violation: Its format does not suit its values, or a shell would split a value into several words.
    """
    path, name, context = ("trainable", "command"), placeholder.name, placeholder.context
    values: Sequence[Any] = (2**31,) if name in _OWN - _PATHS else ("",)
    if name in space:
        values = space[name].choices or space[name].ends()
    try:
        for value in values:
            format(plain(value), placeholder.format)
    except ValueError as error:
        must, remedy = "the format of a placeholder must suit its values", f"Write {{{name}}}."
        raise Violation(path, must, remedy, f"{{{name}:{placeholder.format}}}: {error}") from None
    is_number = name in space and space[name].kind != "choice"
    is_path = name in _PATHS - set(space)
    try:
        texts = [placeholder.text(value) for value in values if not (is_path and context == "unclear")]
    except ValueError as error:
        problem = str(error)
    else:
        if context != "unclear" or not (is_path or (is_number and not placeholder.keeps_numbers_harmless)):
            return texts
        problem = f"{{{name}}}"
    must = "a placeholder must be where a shell can quote it: not in `...`, ${...}, after a \\ or after <<"
    variable = f"SWEEP_{name.upper()}" if name not in space else variable_of(name)
    raise Violation(path, must, f"Move {{{name}}}, or write the variable ${variable}.", problem)


def _check_names(space: Space, fixed: Space, kind: Kind) -> None:
    """Check the names of hyperparameters; those of a script must differ as environment variables too."""
    seeds = space["seed"].choices if "seed" in space else ()
    if wrong := [seed for seed in seeds if isinstance(seed, bool) or not isinstance(seed, int | float)]:
        raise Violation(
            ("search", "seed"), "must be numbers", "For example {choice: [0, 1]}.", flow(wrong[0])
        )
    variables: dict[str, str] = {}
    for name in (*space, *fixed):
        path = ("search" if name in space else "fixed", name)
        if not re.fullmatch(NAME, name):
            must = "must be a name: letters, digits, _ and dots"
            raise Violation(path, must, "For example learning_rate.", f"`{name}`")
        other = variables.setdefault(variable_of(name), name)
        if kind != "program" and other != name:
            must = f"has the same environment variable as {other}"
            raise Violation(path, must, "Rename one of them.", variable_of(name))


def _check_mutable(section: TrainableSection, space: Space, kind: Kind) -> None:
    path = ("trainable", "mutable")
    if section.mutable and kind == "program":
        must = "requires a function or a command; a program declares `free` instead"
        raise Violation(path, must, "Leave it out.")
    for name in section.mutable:
        if name not in space:
            raise Violation(path, "must name searched hyperparameters", nearest(name, space), f"`{name}`")


def _check_predictor(section: TrainableSection, kind: Kind) -> None:
    if section.predictor is None:
        return
    if kind == "program":
        must = "requires a function or a command; a program has the method `predict`"
        raise Violation(("trainable", "predictor"), must, "Leave it out.")
    _check_reference("predictor", section.predictor)


def _check_metrics(file: TrainableFile, kind: Kind, space: Space) -> None:
    """Check where the reports come from: patterns of printed lines, a file, event files, or MLflow."""
    metrics = file.trainable.metrics
    if metrics is None:
        return
    path = ("trainable", "metrics")
    if kind == "program":
        must = "requires a function or a command, because programs report by themselves"
        raise Violation(path, must, "Leave it out.")
    for source, others in METRIC_SOURCES.items():
        if source in metrics:
            if strange := sorted(metrics.keys() - {source, *others}):
                names = " and ".join([source, *others])
                must = f"must have only {names}, because the script names its metrics in the {source}"
                raise Violation((*path, strange[0]), must, "Leave it out.")
            if source == "source":
                _check_calls(file.trainable)
            else:
                _check_path((*path, source), metrics[source], space)
            return
    for name, pattern in metrics.items():
        _check_pattern((*path, name), pattern)
    objective = file.objective
    wanted = [*objective.maximize, *objective.minimize] if objective is not None else []
    if missing := [name for name in wanted if name not in metrics]:
        must = f"must have a pattern of the objective {missing[0]}"
        raise Violation(path, must, f"Write {missing[0]}: '{missing[0].rpartition('/')[2]}=(\\S+)'.")


def _check_calls(section: TrainableSection) -> None:
    """Check that MLflow calls are the source of the reports, and of nothing else."""
    path = ("trainable", "metrics", "source")
    if (section.metrics or {})["source"] != "mlflow":
        must = "must be mlflow"
        raise Violation(path, must, "Write source: mlflow.", f"`{(section.metrics or {})['source']}`")
    if section.mlflow:
        must = (
            "cannot be combined with `mlflow: true`, with which the script writes to its trial's run itself"
        )
        raise Violation(path, must, "Leave out `mlflow: true`, or report with `sweep_client`.")


def _check_path(path: tuple[str, ...], text: str, space: Space) -> None:
    try:
        _check_word(text, space, [*space, *sorted(_OWN - set(space))], shell=False)
    except Violation as error:
        raise Violation(path, error.must, error.remedy, error.got) from None
    if path[-1] == "file" and not text.endswith((".csv", ".jsonl")):
        must = "must end with .csv, with the names in the first line, or .jsonl, with a JSON object a line"
        raise Violation(path, must, "For example file: '{folder}/metrics.csv'.", f"`{text}`")


def _check_pattern(path: tuple[str, ...], pattern: str) -> None:
    must = "must be a regular expression with one group, which is the value"
    try:
        groups = re.compile(pattern).groups
    except re.error as error:
        raise Violation(path, must, "Correct it.", f"{pattern}: {error}") from None
    if groups != 1:
        raise Violation(path, must, "Write (?:...) for other groups.", f"{groups} groups in {pattern}")


def _check_reference(name: str, reference: str) -> None:
    if not _REFERENCE.match(reference):
        must = "must be package.module:name, or file.py:name"
        raise Violation(("trainable", name), must, "For example train.py:train.", f"`{reference[:80]}`")


def _check_clock(file: TrainableFile, kind: Kind) -> None:
    if file.training.reproducible is not None and kind != "program":
        must = "requires a program, because functions and commands control their own computation"
        raise Violation(("training", "reproducible"), must, "Leave it out, and use the trial's seed.")
    steps, interval = file.training.steps, file.training.interval
    if interval > steps:
        must, got = "must be at most training.steps", f"{interval} of {steps}"
        raise Violation(("training", "interval"), must, f"Write {steps} or less.", got)


def _check_resources(file: TrainableFile, kind: Kind) -> None:
    resources = file.resources
    if kind == "program":
        for name in (*LIMITS, "nodes"):
            if getattr(resources, name) is not None:
                must = "requires a function or a command, because trials of a program share a process"
                raise Violation(("resources", name), must, "Leave it out.")
        if resources.gpu > 1:
            must = "must be at most 1, because an engine trains on one GPU"
            raise Violation(("resources", "gpu"), must, "Write gpu: 1.", f"{resources.gpu:g}")
        return
    if resources.slots is not None:
        must = f"is for programs only, because every trial of a {kind} has its own process"
        raise Violation(("resources", "slots"), must, "Write gpu: 1/4 for four trials on a GPU.")


def free_of(reference: str, folder: Path) -> tuple[str, ...]:
    """Return `free` of a program's class.

    Args:
        reference: `module:Name` or `file.py:Name`.
        folder: Folder in which files are looked for.

    Raises:
        Violation: The file or the class is missing, or its `free` is not a list of words.
    """
    found = _class_of(reference, folder)
    for node in found.body:
        if not isinstance(node, ast.Assign | ast.AnnAssign):
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if any(isinstance(target, ast.Name) and target.id == "free" for target in targets):
            return _free_words(node.value, found.name)
    return ("learning_rate",)


def why_not_registered(reference: str, folder: Path) -> str | None:
    """Return the reason why a program's best trial cannot become a registered model, or None.

    Args:
        reference: `module:Name` or `file.py:Name`.
        folder: Folder in which files are looked for.

    Raises:
        Violation: The file or the class is missing.
    """
    found = _class_of(reference, folder)
    if not any(isinstance(node, ast.FunctionDef) and node.name == "predict" for node in found.body):
        return f"class {found.name} does not define `predict`"
    return why_not_kept(reference, folder)


def why_not_kept(reference: str, folder: Path) -> str | None:
    """Return the reason why a registered model cannot contain the code of a class or a function, or None."""
    module = reference.partition(":")[0]
    if module.endswith(".py"):
        file = PurePath(module)
        return f"{module} is not below {folder}" if file.is_absolute() or ".." in file.parts else None
    top = module.partition(".")[0]
    if not module_in(folder, module) and top not in packages_distributions():
        return f"{top} belongs to no installed distribution, and is not in {folder}"
    return None


def _class_of(reference: str, folder: Path) -> ast.ClassDef:
    module, _, name = reference.partition(":")
    file = source_of(module, folder)
    if file is None or not file.is_file():
        must = "must name a class whose source can be read"
        remedy = "Write package.module:Name of an installed package, or file.py:Name beside this file."
        raise Violation(_PROGRAM_PATH, must, remedy, f"no file for `{module}`")
    try:
        tree = sources.parsed(text_of(file), str(file))
    except (SyntaxError, ValueError, OSError) as error:
        raise Violation(
            _PROGRAM_PATH, "must name a class in valid Python", "Correct the file.", str(error)
        ) from None
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    if name not in classes:
        raise Violation(
            _PROGRAM_PATH, f"must name a class of {file.name}", nearest(name, classes), f"`{name}`"
        )
    return classes[name]


def _free_words(node: ast.expr | None, name: str) -> tuple[str, ...]:
    try:
        words = ast.literal_eval(node) if node is not None else None
    except ValueError:
        words = None
    if not isinstance(words, tuple | list) or not all(isinstance(word, str) for word in words):
        must = f"`free` of {name} must be a tuple of names, written out"
        raise Violation(_PROGRAM_PATH, must, 'For example free = ("learning_rate",).')
    return tuple(words)
