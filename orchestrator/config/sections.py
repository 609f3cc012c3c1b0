"""The sections of a search-space file, field by field: type, bounds, default, description, example.

Unknown keys are refused and nothing is converted from one type to another. The published JSON Schema and the
errors are made from these fields. Rules between several fields are in `orchestrator.config.rules`. A default
that the science has is read from there.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, WithJsonSchema
from pydantic.fields import FieldInfo
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import PydanticCustomError

from orchestrator.config.document import UNKNOWN_KEY, Path, Violation, flow, nearest, raise_all
from orchestrator.config.yaml_reader import NotFiniteError, parse_number
from orchestrator.placeholders import LONGEST_WORD
from trainables.matching import Size
from trainables.settings import EncoderKind, Gate, Grouping, Mixing, Norm, NormPosition, Pooling, Schedule
from trainables.trial import OPTIMIZERS, ModelSettings, TrainingSettings, TrialSettings

Model = TypeVar("Model", bound=BaseModel)

MOST_SLOTS = 256
"""Largest number of trials that can share a device."""

LONGEST_PATH = 4_096
"""Largest number of characters of a path, as on Linux."""

REPORTS = r"best|last|mean of last [1-9][0-9]{0,3}"
"""Pattern of the reports that are the value of a trial."""

SLUG = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$"


def setting(description: str, example: Any, default: Any = ..., **bounds: Any) -> Any:
    """Return a field of a section; without a default it must be given."""
    return Field(default, description=description, examples=[example], **bounds)


def _must(must: str) -> PydanticCustomError:
    return PydanticCustomError("must", "must be {must}", {"must": must})


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _must("a number")
    return float(value)


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value):
        raise _must("a whole number")
    return int(value)


def _slots(value: Any) -> int | str:
    if value == "auto":
        return "auto"
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or value != int(value) or not 1 <= value <= MOST_SLOTS:
        raise _must(f"a whole number from 1 to {MOST_SLOTS}, or auto")
    return int(value)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _must("true or false")
    return value


def _word(value: Any) -> str:
    if not isinstance(value, str):
        raise _must("a word")
    return value


def _command_word(value: Any) -> str:
    """Return a word of a command as text. A whole number has one text; 1e-3 and `true` have several."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise _must("a word or a whole number, anything else in quotes")
    return str(value)


def _reports(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch(REPORTS, value):
        raise _must("best, last, or mean of last N")
    return value


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


Number = Annotated[float, BeforeValidator(_number)]
Whole = Annotated[int, BeforeValidator(_whole)]
Slots = Annotated[Annotated[int, Field(ge=1, le=MOST_SLOTS)] | Literal["auto"], BeforeValidator(_slots)]
Flag = Annotated[bool, BeforeValidator(_flag)]
Word = Annotated[str, BeforeValidator(_word), Field(min_length=1, max_length=250)]
Text = Annotated[str, BeforeValidator(_word), Field(min_length=1, max_length=2000)]
Reference = Annotated[str, BeforeValidator(_word), Field(min_length=1, max_length=LONGEST_PATH)]
CommandWord = Annotated[
    str,
    BeforeValidator(_command_word),
    Field(min_length=1, max_length=LONGEST_WORD),
    WithJsonSchema(
        {"anyOf": [{"type": "string", "minLength": 1, "maxLength": LONGEST_WORD}, {"type": "integer"}]}
    ),
]
Slug = Annotated[Word, Field(pattern=SLUG)]
Reports = Annotated[
    str,
    BeforeValidator(_reports),
    WithJsonSchema({"type": "string", "pattern": f"^({REPORTS})$"}),
]
Words = Annotated[list[Word], BeforeValidator(_listed), Field(max_length=20)]
Pair = tuple[Number, Number]
OptimizerName: Any = Literal[tuple(OPTIMIZERS)]
WholePair = tuple[Whole, Whole]


class Section(BaseModel):
    """A mapping of the file whose keys are all known."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class OpenSection(BaseModel):
    """A mapping of the file with further keys, which `orchestrator.config.rules` checks."""

    model_config = ConfigDict(extra="allow", frozen=True, allow_inf_nan=False)

    @property
    def extras(self) -> dict[str, Any]:
        """Return the further keys and their values."""
        return dict(self.model_extra or {})


OWN_FIELDS = ("d_model", "d_state", "bidirectional")
"""Fields of the network that may differ by layer, beside the layer's own options and ranges."""


class MatchSection(Section):
    """The number of parameters that every network of the search has, to 1 %."""

    parameters: Whole = setting(
        "Number of trained parameters of the whole network.", 600_000, ge=1, le=10**12
    )
    adjust: Size | None = setting(
        "The only size that is adjusted; if left out, d_state, and d_model if d_state does not suffice.",
        "d_state",
        None,
    )


class ModelSection(OpenSection):
    """The network. Further keys are options and initialisation ranges of the layer."""

    layer: Word = setting("Name of the recurrent layer.", "rotrnn")
    depth: Whole = setting("Residual blocks.", 6, ge=1, le=256)
    d_model: Whole = setting("Width D of a block.", 128, ge=1, le=65_536)
    d_state: Whole = setting("State size N of a layer, as its paper counts it.", 256, ge=1, le=1_048_576)
    bidirectional: Flag = setting(
        "Whether each layer also reads the sequence backwards.", True, ModelSettings.bidirectional
    )
    dropout: Number = setting(
        "Share of channels dropped, the same at every time step.", 0.1, ModelSettings.dropout, ge=0, lt=1
    )
    pooling: Pooling | None = setting(
        "How the steps of a sequence become one answer; the default of the task if left out.", "last", None
    )
    mixing: Mixing = setting(
        "Activation after the layer of a block: a gate of two dense layers or of one, GELU alone, or none.",
        "half_glu1",
        ModelSettings.mixing,
    )
    short_conv: Whole = setting(
        "Steps that a causal convolution of each channel sees before the layer; 0 is none.",
        4,
        ModelSettings.short_conv,
        ge=0,
        le=4,
    )
    gate: Gate = setting(
        "A dense branch beside the layer, through SiLU or GELU, that multiplies its outputs; or none.",
        "silu",
        ModelSettings.gate,
    )
    norm: Norm = setting(
        "Normalisation: of each channel over batch and time, of each step over its channels, or none.",
        "layer",
        ModelSettings.norm,
    )
    norm_position: NormPosition = setting(
        "Place of the normalisation: before the layer of a block, or after the block's skip connection.",
        "after",
        ModelSettings.norm_position,
    )
    encoder: EncoderKind = setting(
        "A dense layer to width D, or none: d_model is then the task's number of tokens or features.",
        "none",
        ModelSettings.encoder,
    )
    layers: dict[str, dict[str, Any]] = setting(
        "Values of single layers: their d_model, d_state, bidirectional, options and ranges.",
        {"lru": {"d_state": 128, "r_init": [0.9, 0.99]}},
        {},
    )
    match: MatchSection | None = setting(
        "Number of parameters to which a size of each layer is adjusted.", {"parameters": 600_000}, None
    )

    def of(self, layer: str) -> ModelSection:
        """Return the network of a layer, whose own values override those of all layers."""
        return self.model_copy(update=self.layers.get(layer, {}))


class TrainingSection(Section):
    """How a trial is trained."""

    steps: Whole = setting("Optimiser updates of a trial; its schedule's length.", 50_000, ge=1, le=10**9)
    interval: Whole = setting("Steps between two reports, and two checkpoints.", 500, ge=1, le=10**9)
    batch_size: Whole = setting("Examples per step.", 32, ge=1, le=1_048_576)
    learning_rate: Number | None = setting(
        "Peak rate outside the recurrence; here or in `search`.", 1e-3, None, gt=0, le=100
    )
    recurrent_learning_rate: Number | None = setting(
        "Peak rate of the layers' recurrent parameters; here or in `search`.", 1e-3, None, gt=0, le=100
    )
    weight_decay: Number = setting(
        "Decoupled decay outside the recurrence.", 0.05, TrainingSettings.weight_decay, ge=0, le=100
    )
    warmup: Number = setting(
        "Share of the steps with a linearly rising rate.", 0.1, TrainingSettings.warmup, ge=0, lt=1
    )
    warmup_epochs: Number | None = setting(
        "Length of that rise in epochs of the training split, in place of `warmup`.",
        1,
        TrainingSettings.warmup_epochs,
        ge=0,
        le=10**6,
    )
    groups: Grouping = setting(
        "Which parameters of a layer have the recurrent rate, and which decay: as the layer declares, or as"
        " in a configuration of S5's released program.",
        "standard",
        TrainingSettings.groups,
    )
    optimizer: OptimizerName = setting(
        "Optimiser, by its name in Optax; without a weight decay unless its name ends in w or is lion.",
        "adamax",
        TrainingSettings.optimizer,
    )
    clip: Number | None = setting(
        "Largest norm of the gradient of all parameters; any if left out.", 1.0, TrainingSettings.clip, gt=0
    )
    label_smoothing: Number | None = setting(
        "Share of a target's probability that training spreads over all classes; none if left out.",
        0.1,
        TrainingSettings.label_smoothing,
        ge=0,
        lt=1,
    )
    schedule: Schedule = setting(
        "Shape of the rates after the warm-up.", "constant", TrainingSettings.schedule
    )
    plateau_factor: Number = setting(
        "Schedule `plateau`: factor of the rates when the loss stops falling.",
        0.5,
        TrainingSettings.plateau_factor,
        gt=0,
        lt=1,
    )
    plateau_patience: Whole = setting(
        "Schedule `plateau`: intervals without a lower mean training loss before the rates are reduced.",
        2,
        TrainingSettings.plateau_patience,
        ge=1,
        le=10**6,
    )
    accumulate: Whole = setting(
        "Number of batches whose gradients are accumulated for one update.",
        4,
        TrainingSettings.accumulate,
        ge=1,
        le=65_536,
    )
    remat: Flag = setting(
        "Recompute activations in the reverse pass, to save memory.", True, TrainingSettings.remat
    )
    reproducible: Literal["bits"] | None = setting(
        "`bits`: the results of a trial are bitwise independent of its neighbours, also on a GPU; slower.",
        "bits",
        TrainingSettings.reproducible,
    )
    carry_state: Flag | None = setting(
        "Whether layers carry their states over consecutive segments; the default of the task if left out.",
        False,
        None,
    )


class TrainableSection(Section):
    """Code that a trial runs instead of a built-in network: exactly one of the first three keys."""

    function: Reference | None = setting(
        "A function `train(trial)`, by its module or the file beside this one.", "train.py:train", None
    )
    command: list[CommandWord] | None = setting(
        "A command, word by word; {name} stands for the value of a hyperparameter.",
        ["python", "train.py", "--lr", "{learning_rate}"],
        None,
        min_length=1,
    )
    program: Reference | None = setting(
        "A class that derives from `trainables.program.Program`: its trials share a compiled program.",
        "model.py:Net",
        None,
    )
    shell: Flag = setting("Whether the command is one text for a shell.", True, False)
    mlflow: Flag = setting(
        "Whether `mlflow.log_*` of a function or a command writes to the run of its trial.", True, False
    )
    metrics: dict[str, Text] | None = setting(
        "Metrics of a function or a command that sends no reports: a pattern of printed lines by metric, with"
        " `step` for the step; or `file`, a CSV or JSON-lines file; or `tensorboard`, a folder; or"
        " `source: mlflow`, its calls of `mlflow.log_metric`.",
        {"step": r"epoch (\d+)", "val/loss": r"val_loss=(\S+)"},
        None,
    )
    predictor: Reference | None = setting(
        "A function `load(folder)` that returns a predictor of what a function or a command has saved: the"
        " chosen trial becomes a registered model.",
        "train.py:load",
        None,
    )
    mutable: list[Word] = setting(
        "Hyperparameters of a function or a command that may differ when it resumes from a checkpoint.",
        ["learning_rate"],
        [],
    )
    folder: Reference | None = setting(
        "Working folder, in which files are also looked up; the folder of this file if left out.",
        "/home/ada/digits",
        None,
    )


class ClockSection(Section):
    """How long a trial of a `trainable` is trained."""

    steps: Whole = setting("Steps of a trial.", 2000, ge=1, le=10**9)
    interval: Whole = setting("Steps between two reports.", 100, ge=1, le=10**9)
    reproducible: Literal["bits"] | None = setting(
        "`bits`: the results of a trial of a program are bitwise independent of its neighbours; slower.",
        "bits",
        None,
    )


class EvaluateSection(Section):
    """Examples that an evaluation reads."""

    examples: Whole | None = setting(
        "Validation examples at each interval; all if left out.",
        2000,
        TrialSettings.evaluate_examples,
        ge=1,
        le=10**9,
    )


class SearchEntry(Section):
    """One searched hyperparameter: exactly one distribution, perhaps a step and a condition."""

    uniform: Pair | None = setting("[low, high], a real number.", [0.1, 0.9], None)
    log_uniform: Pair | None = setting("[low, high], a real number by its logarithm.", [1e-5, 1e-2], None)
    int: WholePair | None = setting("[low, high], a whole number.", [2, 6], None)
    log_int: WholePair | None = setting("[low, high], a whole number by its logarithm.", [16, 256], None)
    power_of_two: WholePair | None = setting("[low, high], a power of two.", [16, 512], None)
    normal: Pair | None = setting("[mean, standard deviation], a real number.", [0, 1], None)
    log_normal: Pair | None = setting(
        "[mean, standard deviation] of the logarithm of a real number.", [-7, 1], None
    )
    choice: list[Any] | dict[str, Any] | None = setting(
        "The values to choose from, of any types, or a mapping of labels to values.", [8, 16, 32], None
    )
    labels: list[Word] | None = setting(
        "A label for each value of a choice, by which it is shown.", ["small", "large"], None
    )
    ordered: Flag = setting("Whether the values of a choice are ordered, as on a scale.", True, False)
    step: Number | None = setting("Distance between the values of uniform, int or log_int.", 0.1, None, gt=0)
    when: dict[str, Any] | None = setting(
        "Other searched names and the values under which this one is drawn.", {"layer": "rotrnn"}, None
    )


class ObjectiveSection(Section):
    """Metrics to optimise. A `val/...` metric decides which trial is best."""

    maximize: Words = setting("Metrics to maximise.", "val/accuracy", [])
    minimize: Words = setting("Metrics to minimise.", "val/loss", [])
    of: Reports = setting(
        "Reports that are the value of a trial: `best`, `last`, or `mean of last N`.",
        "mean of last 5",
        "best",
    )
    prefer: Word | None = setting(
        "The objective that decides which trial is best, if there are several.", "val/accuracy", None
    )


class Bound(Section):
    """Bounds of a metric that a feasible trial satisfies."""

    at_least: Number | None = setting("Smallest feasible value.", 1000, None)
    at_most: Number | None = setting("Largest feasible value.", 0.7, None)


class LongerSection(Section):
    """Continuation of the best trials of a finished search."""

    steps: Whole = setting("Steps of each of these trials, those of the search included.", 20_000, ge=1)
    top: Whole = setting("Number of trials, the best ones.", 4, 1, ge=1, le=1000)


class NoImprovementSection(Section):
    """End of the search after a number of trials without an improvement."""

    trials: Whole = setting("Trials that end one after another without an improvement.", 20, ge=1, le=100_000)
    by: Number = setting("Smallest improvement that counts.", 0.001, 0.0, ge=0)


class BudgetSection(Section):
    """Limits of the search; the first one that is reached ends it."""

    trials: Whole = setting("Trials of the search.", 64, ge=1, le=100_000)
    hours: Number | None = setting("Hours of wall-clock time.", 12, None, gt=0, le=87_600)
    gpu_hours: Number | None = setting("GPU hours, summed.", 100, None, gt=0, le=10**7)
    target: Number | None = setting(
        "The search ends when a trial has ended with this value or a better one.", 0.95, None
    )
    no_improvement: NoImprovementSection | None = setting(
        "Number of trials without an improvement that end the search.", {"trials": 20, "by": 0.001}, None
    )
    failures: Whole | None = setting(
        "Failed trials that end the search while no trial has ended otherwise; 8 if left out.",
        8,
        None,
        ge=1,
        le=100_000,
    )
    longer: SkipJsonSchema[LongerSection | None] = setting(
        "Set by `--extend steps=20000 --top 4` on a finished sweep, and not in a file.",
        {"steps": 20_000, "top": 4},
        None,
    )


class ResourcesSection(Section):
    """Resources of one trial."""

    gpu: Number = setting(
        "GPUs: 0, 1, or 1/K, which is a slot of an engine of K trials; for functions and commands a part of "
        "one GPU, or several GPUs of one node.",
        "1/8",
        0.0,
        ge=0,
        le=64,
    )
    cpu: Number = setting("CPU cores; a script gets OMP_NUM_THREADS of them.", 1, 1.0, ge=0.01, le=4096)
    nodes: Whole | None = setting(
        "Nodes of one trial of a function or command, with its gpu and cpu on each; 1 if left out.",
        2,
        None,
        ge=1,
        le=256,
    )
    slots: Slots | None = setting(
        "With gpu: 1, how many trials share it: K, or auto, measured when the sweep starts.", "auto", None
    )
    concurrent: Whole | None = setting(
        "Largest number of concurrent trials; as many as fit if left out.", 8, None, ge=1, le=10_000
    )
    memory: Number | None = setting(
        "GiB of memory that a function or command may use; above that, its attempt is ended.", 4, None, gt=0
    )
    disk: Number | None = setting(
        "GiB that a function or command may have in its own folders, checkpoints included; 20 if left out.",
        50,
        None,
        gt=0,
    )
    minutes: Number | None = setting(
        "Longest time of an attempt of a function or command, in minutes.", 60, None, gt=0
    )

    @property
    def node_count(self) -> int:
        """Number of nodes of one trial."""
        return self.nodes or 1

    @property
    def total_gpu(self) -> float:
        """GPUs of one trial on all its nodes."""
        return self.gpu * self.node_count

    @property
    def phrase(self) -> str:
        """Resources of one trial in words, such as `1 CPU and 4 GPU a trial on each of 2 nodes`."""
        where = f" on each of {self.nodes} nodes" if self.node_count > 1 else ""
        return f"{self.cpu:g} CPU and {self.gpu:g} GPU a trial{where}"

    def shared_by(self, slots: int) -> ResourcesSection:
        """Return the resources of one of several trials that share a GPU."""
        return self.model_copy(update={"gpu": 1 / slots, "slots": None})


LIMITS = ("memory", "disk", "minutes")
"""Resources that are limits of the process of a function or a command."""


class RaceSection(Section):
    """A race between the best trials of the search, by retraining them with fresh seeds."""

    top: Whole = setting("Trials in the race.", 3, 3, ge=2, le=20)
    runs: Whole = setting("Total number of retrainings.", 6, 6, ge=2, le=200)


class ConfirmSection(Section):
    """How the chosen hyperparameters are confirmed: by retraining the best trial, or by a race."""

    seeds: Whole = setting("Retrainings of the best trial with a fresh seed.", 3, 0, ge=0, le=100)
    race: RaceSection | None = setting(
        "Retraining of the best trials in turn, to choose among them.", {"top": 3, "runs": 6}, None
    )

    @property
    def most(self) -> int:
        """Largest number of retrainings."""
        return self.race.runs if self.race is not None else self.seeds


class PublishedSection(OpenSection):
    """Published hyperparameters, tried first; further keys are published results, `test/<metric>: value`."""

    source: Word = setting("Paper and table.", '"RotRNN, Tables 1 and 3"')
    values: dict[str, Any] = setting(
        "A value for every searched hyperparameter, or none at all.", {"learning_rate": 1e-3}, {}
    )


class KnownSection(Section):
    """Results that others have measured, from which the sampler learns; the best ones may be run."""

    source: Reference = setting(
        "A CSV file, optuna://STORAGE#STUDY, mlflow://TRACKING#EXPERIMENT, or any name of given results.",
        "results.csv",
    )
    results: list[dict[str, Any]] | None = setting(
        "Hyperparameters and objectives of each result; read from the source if left out.",
        [{"learning_rate": 1e-3, "val/accuracy": 0.9}],
        None,
        max_length=1_000,
    )
    run: Whole = setting("Number of its best settings that the first trials run.", 4, 0, ge=0, le=64)
    left_out: dict[str, Whole] = setting(
        "Number of results that were left out when the source was read, by reason.",
        {"without dropout": 2},
        {},
    )


def _sources(value: Any) -> list[Any]:
    return [{"source": each} if isinstance(each, str) else each for each in _listed(value)]


MERGED_SECTIONS = ("data", "model", "training", "evaluate", "search", "fixed")
"""Sections whose keys a profile changes one by one; it replaces any other section as a whole."""


NoticeEvent = Literal["best", "failed", "stuck", "parked", "ended", "quota"]
"""Events about which a target of `notify` can hear."""


def _events(value: Any) -> Any:
    return [] if value == "all" else value


NoticeEvents = Annotated[
    list[NoticeEvent],
    BeforeValidator(_events),
    WithJsonSchema(
        {
            "anyOf": [
                {"const": "all"},
                {"type": "array", "items": {"enum": list(get_args(NoticeEvent))}},
            ]
        }
    ),
]
"""Some events, or `all`, which is an empty list."""


class StudySections(Section):
    """The sections that files of both kinds have."""

    search: dict[str, SearchEntry] = setting(
        "The searched hyperparameters.",
        {"learning_rate": {"log_uniform": [1e-5, 1e-2]}},
        min_length=1,
        max_length=100,
    )
    require: list[Text] = setting(
        "Relations between hyperparameters that every trial satisfies.",
        ["d_state >= 2 * heads"],
        [],
        max_length=20,
    )
    first: list[dict[str, Any]] = setting(
        "Settings to try first; the sampler completes what they leave out.",
        [{"learning_rate": 1e-3}],
        [],
        alias="try",
        max_length=1_000,
    )
    repeat: Flag = setting("Whether a setting may be tried more than once.", True, False)
    objective: ObjectiveSection | None = setting(
        "Metrics to optimise; the metric of the task if left out.", {"maximize": "val/accuracy"}, None
    )
    constraints: dict[str, Bound] = setting(
        "Bounds of metrics that a feasible trial satisfies.",
        {"seconds/train": {"at_most": 60}},
        {},
        max_length=20,
    )
    sampler: Any = setting("How trials are proposed.", {"tpe": {"seed": 0}}, "tpe")
    scheduler: Any = setting("Which trials are stopped early.", {"asha": {"reduction": 4}}, "asha")
    budget: BudgetSection = setting("Limits that end the search.", {"trials": 64})
    resources: ResourcesSection = setting("Resources of one trial.", {"cpu": 1}, ResourcesSection())
    confirm: ConfirmSection = setting("Retrainings of the best trial.", {"seeds": 3}, ConfirmSection())
    published: PublishedSection | None = setting(
        "The published values, tried first.", {"source": "...", "values": {"learning_rate": 1e-3}}, None
    )
    warm_start: list[Slug] = setting(
        "Ids of earlier sweeps whose trials the sampler learns from.",
        ["retrieval-laptop-1a2b3c4d"],
        [],
        max_length=20,
    )
    known: Annotated[list[KnownSection], BeforeValidator(_sources)] = setting(
        "Results that others have measured, from which the sampler learns.", "results.csv", [], max_length=4
    )
    notify: dict[str, NoticeEvents] = setting(
        "Targets of notifications about the sweep: names that `sweep notify --name` has set, or `mailto:...`,"
        " with their events.",
        {"team": ["best", "ended"]},
        {},
        max_length=10,
    )


class TaskSections(Section):
    """The sections that only files of a task and a network have."""

    task: Word = setting("Name of the task.", "retrieval")
    data: dict[str, Any] = setting("Options of the task.", {"length": 512}, {})
    model: ModelSection = setting("The network.", {"layer": "rotrnn", "depth": 6, "d_model": 128})
    training: TrainingSection = setting("How a trial is trained.", {"steps": 50_000, "interval": 500})
    evaluate: EvaluateSection = setting(
        "Examples that an evaluation reads.", {"examples": 2000}, EvaluateSection()
    )


class TrainableSections(Section):
    """The sections that only files of a function, a command or a program have."""

    trainable: TrainableSection = setting("Code that a trial runs.", {"function": "train.py:train"})
    training: ClockSection = setting("How long a trial is trained.", {"steps": 2000, "interval": 100})
    fixed: dict[str, Any] = setting(
        "Further hyperparameters, with the value that every trial gets.",
        {"layers": [64, 64]},
        {},
        max_length=100,
    )


# pydantic puts the fields of the last base first: errors name what is missing in the order of a file.
class SpaceFile(StudySections, TaskSections):
    """A whole search-space file of a task and a network, its profile applied."""


class TrainableFile(StudySections, TrainableSections):
    """A whole search-space file of a function, a command or a program, its profile applied."""


FILE_SECTIONS = tuple(
    dict.fromkeys(
        field.alias or name
        for file in (SpaceFile, TrainableFile)
        for name, field in file.model_fields.items()
    )
)
"""Names of the sections, for both kinds of file."""


_MOST_ERRORS = 50

_MUST = {
    "missing": "must be given",
    "greater_than": "must be above {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be below {lt}",
    "less_than_equal": "must be at most {le}",
    "string_too_long": "must be at most {max_length} characters",
    "string_too_short": "must not be empty",
    "string_pattern_mismatch": "must be letters, digits, - and _, at most 64",
    "empty": "must not be empty",
    "too_short": "must have at least {min_length} values",
    "too_long": "must have at most {max_length} values",
    "tuple_type": "must be a list of two numbers",
    "list_type": "must be a list",
    "dict_type": "must be a mapping",
    "model_type": "must be a mapping",
    "literal_error": "must be {expected}",
    "finite_number": "must be a finite number",
}


def validated(model: type[Model], value: Any, path: Path = ()) -> Model:
    """Return a value of the file as a section.

    Args:
        model: Class of the section.
        value: Plain values.
        path: Path where the value stands in the file.

    Raises:
        Violation: A field is wrong, with all others. Of several errors an unknown key comes first: it often
            explains what is missing.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        errors = sorted(error.errors(include_url=False), key=lambda one: one["type"] != "extra_forbidden")
        violations = [_violation(one, model, path) for one in errors[:_MOST_ERRORS]]
        raise_all(list({violation.path: violation for violation in reversed(violations)}.values())[::-1])
        raise


def example_of(model: type[BaseModel], names: Path) -> Any:
    """Return the example of a field of a section, or None if it has none.

    Args:
        model: Class of the section.
        names: Keys that lead to the field.
    """
    owner = _model_at(model, names[:-1])
    field = owner.model_fields.get(str(names[-1])) if owner else None
    return field.examples[0] if field is not None and field.examples else None


def _violation(error: Any, model: type[BaseModel], prefix: Path) -> Violation:
    kind, location, context = error["type"], error["loc"], error.get("ctx", {})
    path = (*prefix, *location)
    if kind == "extra_forbidden":
        name = str(location[-1])
        owner = _model_at(model, location[:-1])
        fields = owner.model_fields if owner else {}
        known = [field.alias or key for key, field in fields.items() if key != "longer"]  # no file has that
        known += ["trainable"] if owner is SpaceFile else []
        remedy = nearest(name, known)
        if location[0] == "search" and len(location) == 3 and isinstance(error["input"], dict):
            remedy = f"Write a nested name with a dot, `{location[1]}.{name}: ...`."
        return Violation(path, UNKNOWN_KEY, remedy, "")
    if isinstance(error["input"], str) and kind in ("too_short", "too_long"):
        kind = f"string_{kind}"
    if context.get("field_type") == "Tuple" or (kind == "missing" and isinstance(location[-1], int)):
        kind, path = "tuple_type", tuple(part for part in path if isinstance(part, str))
    if kind == "too_short" and context["min_length"] == 1:
        kind = "empty"
    template = _MUST.get(kind)
    must = (
        template.format(**{name: flow(value) for name, value in context.items()})
        if template
        else error["msg"]
    )
    got = "" if kind == "missing" else None
    return Violation(path, must, _remedy(model, location, error["input"]), got)


def _model_at(model: type[BaseModel], location: Path) -> type[BaseModel] | None:
    current: type[BaseModel] | None = model
    for part in location:
        field = current.model_fields.get(str(part)) if current else None
        if field is None:
            continue  # a key of a dict, whose values are of the model reached so far
        current = _inner(field)
    return current


def _inner(field: FieldInfo) -> type[BaseModel] | None:
    pending: list[Any] = [field.annotation]
    while pending:
        annotation = pending.pop()
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            return annotation
        pending.extend(getattr(annotation, "__args__", ()))
    return None


def _remedy(model: type[BaseModel], location: Path, given: Any) -> str:
    if isinstance(given, str) and _spells_number(given):
        return "Remove the quotes."
    names = tuple(part for part in location if isinstance(part, str))
    if len(names) == 2 and names[0] == "search" and not isinstance(given, dict):
        values = given if isinstance(given, list) else [given] if isinstance(given, int | float) else []
        return f"For example {names[1]}: {flow({'choice': values} if values else {'uniform': [0.1, 0.9]})}."
    owner = _model_at(model, names[:-1])
    field = owner.model_fields.get(names[-1]) if owner and names else None
    if field is None or not field.examples:
        return "See docs/search-space.md."
    return f"For example {names[-1]}: {flow(field.examples[0])}."


def _spells_number(text: str) -> bool:
    try:
        return parse_number(text) is not None
    except NotFiniteError:
        return False
