"""The sections of a search-space file, field by field: types, bounds, defaults, descriptions, examples.

Unknown keys are refused, nothing is coerced between kinds, and what is written here is what the published
JSON Schema and the errors say. Rules that span several fields are in `orchestrator.spec.rules`.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

Scalar = str | int | float | bool
SLUG = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$"
_METRIC = r"^[a-z0-9_]+(/[a-z0-9_]+)?$"


def _must(must: str) -> PydanticCustomError:
    return PydanticCustomError("must", "must be {must}", {"must": must})


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _must("a number")
    return float(value)


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _must("a whole number")
    if value != int(value):
        raise _must("a whole number")
    return int(value)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _must("true or false")
    return value


def _word(value: Any) -> str:
    if not isinstance(value, str):
        raise _must("a word")
    return value


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, list | tuple) else [value]


Number = Annotated[float, BeforeValidator(_number)]
Whole = Annotated[int, BeforeValidator(_whole)]
Flag = Annotated[bool, BeforeValidator(_flag)]
Word = Annotated[str, BeforeValidator(_word), Field(min_length=1, max_length=200)]
Pair = tuple[Number, Number]


class Section(BaseModel):
    """A mapping of the file whose keys are all known."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, hide_input_in_errors=True)


class ModelSection(BaseModel):
    """The network. Further keys are options and initialisation ranges of the layer."""

    model_config = ConfigDict(extra="allow", frozen=True, allow_inf_nan=False)

    layer: Word = Field(description="Name of the recurrent layer.", examples=["rotrnn"])
    depth: Whole = Field(ge=1, le=256, description="Residual blocks.", examples=[6])
    d_model: Whole = Field(ge=1, le=65_536, description="Width D of a block.", examples=[128])
    d_state: Whole = Field(
        ge=1, le=1_048_576, description="State size N of a layer, as its paper counts it.", examples=[256]
    )
    bidirectional: Flag = Field(
        False, description="Whether each layer also reads the sequence backwards.", examples=[True]
    )
    dropout: Number = Field(
        0.0, ge=0, lt=1, description="Share of channels dropped, the same at every time step.", examples=[0.1]
    )

    @property
    def extras(self) -> dict[str, Any]:
        """Return the keys that belong to the layer, unchecked."""
        return dict(self.model_extra or {})


class TrainingSection(Section):
    """How a trial is trained."""

    steps: Whole = Field(
        ge=1,
        le=10**9,
        description="Optimiser updates of a whole trial, and its schedule's length.",
        examples=[50_000],
    )
    interval: Whole = Field(
        ge=1, le=10**9, description="Steps between two reports, and two checkpoints.", examples=[500]
    )
    batch_size: Whole = Field(ge=1, le=1_048_576, description="Examples a step.", examples=[32])
    learning_rate: Number | None = Field(
        None,
        gt=0,
        le=100,
        description="Peak rate outside the recurrence; here or in `search`.",
        examples=[1e-3],
    )
    recurrent_learning_rate: Number | None = Field(
        None, gt=0, le=100, description="Peak rate of the layers' recurrent parameters; here or in `search`.",
        examples=[1e-3],
    )  # fmt: skip
    weight_decay: Number = Field(
        0.01, ge=0, le=100, description="Decoupled decay outside the recurrence.", examples=[0.05]
    )
    warmup: Number = Field(
        0.1, ge=0, lt=1, description="Share of the steps with a linearly rising rate.", examples=[0.1]
    )
    accumulate: Whole = Field(
        1, ge=1, le=65_536, description="Batches whose gradients are averaged before an update.", examples=[4]
    )
    rematerialise: Flag = Field(
        False, description="Recompute activations in the reverse pass, to save memory.", examples=[True]
    )


class EvaluateSection(Section):
    """What an evaluation reads."""

    examples: Whole | None = Field(
        None,
        ge=1,
        le=10**9,
        description="Validation examples at each interval; all if left out.",
        examples=[2000],
    )


class SearchEntry(Section):
    """One searched hyperparameter: exactly one distribution, perhaps a step and a condition."""

    uniform: Pair | None = Field(None, description="[low, high], a real number.", examples=[[0.1, 0.9]])
    log_uniform: Pair | None = Field(
        None, description="[low, high], a real number, uniform in its logarithm.", examples=[[1e-5, 1e-2]]
    )
    int: tuple[Whole, Whole] | None = Field(
        None, description="[low, high], a whole number.", examples=[[2, 6]]
    )
    log_int: tuple[Whole, Whole] | None = Field(
        None, description="[low, high], a whole number, uniform in its logarithm.", examples=[[16, 256]]
    )
    choice: list[Any] | None = Field(None, description="The values to choose from.", examples=[[8, 16, 32]])
    step: Number | None = Field(
        None, gt=0, description="Distance between the values of a range.", examples=[0.1]
    )
    when: dict[str, Any] | None = Field(
        None, description="Other choices and the values under which this one is searched.",
        examples=[{"layer": "rotrnn"}],
    )  # fmt: skip


class ObjectiveSection(Section):
    """What is optimised. The first `val/...` metric decides which trial is best."""

    maximize: Annotated[list[Word], BeforeValidator(_listed)] = Field(
        [], description="Metrics to maximise.", examples=["val/accuracy"]
    )
    minimize: Annotated[list[Word], BeforeValidator(_listed)] = Field(
        [], description="Metrics to minimise.", examples=["val/loss"]
    )


class Bound(Section):
    """What a feasible trial's metric must keep."""

    at_least: Number | None = Field(None, description="Smallest feasible value.", examples=[1000])
    at_most: Number | None = Field(None, description="Largest feasible value.", examples=[0.7])

    @model_validator(mode="after")
    def _is_bound(self) -> Bound:
        if self.at_least is None and self.at_most is None:
            raise _must("{at_least: a number}, {at_most: a number} or both")
        return self


class BudgetSection(Section):
    """When the search ends; whichever comes first."""

    trials: Whole = Field(ge=1, le=100_000, description="Trials of the search.", examples=[64])
    hours: Number | None = Field(
        None, gt=0, le=87_600, description="Hours of wall-clock time.", examples=[12]
    )
    gpu_hours: Number | None = Field(None, gt=0, le=10**7, description="GPU hours, summed.", examples=[100])


class ResourcesSection(Section):
    """What one trial takes."""

    gpu: Number = Field(
        0.0, ge=0, le=1, description="GPUs a trial: 0, 1, or 1/K for a slot of an engine of K trials.",
        examples=[0.125],
    )  # fmt: skip
    cpu: Number = Field(1.0, ge=0.01, le=4096, description="CPU cores a trial.", examples=[1])
    concurrent: Whole | None = Field(
        None, ge=1, le=10_000, description="Most trials at a time; as many as fit if left out.", examples=[8]
    )


class ConfirmSection(Section):
    """How the chosen hyperparameters are confirmed."""

    seeds: Whole = Field(0, ge=0, le=100, description="Retrainings with a fresh seed.", examples=[3])


class PublishedSection(BaseModel):
    """The published values: trial 0, and the line to beat. Further keys are `test/<metric>: figure`."""

    model_config = ConfigDict(extra="allow", frozen=True, allow_inf_nan=False)

    source: Word = Field(description="Paper and table.", examples=["RotRNN, Tables 1 and 3"])
    values: dict[str, Any] = Field(
        description="A value for every searched hyperparameter.", examples=[{"learning_rate": 1e-3}]
    )


Slug = Annotated[Word, Field(pattern=SLUG)]


class SpaceFile(Section):
    """A whole search-space file, its profile applied."""

    task: Word = Field(description="Name of the task.", examples=["retrieval"])
    data: dict[str, Any] = Field({}, description="Options of the task.", examples=[{"length": 512}])
    model: ModelSection = Field(description="The network.", examples=["{layer: rotrnn, ...}"])
    training: TrainingSection = Field(
        description="How a trial is trained.", examples=["{steps: 50_000, ...}"]
    )
    evaluate: EvaluateSection = Field(EvaluateSection(), description="What an evaluation reads.")
    search: dict[str, SearchEntry] = Field(
        min_length=1, max_length=100, description="The searched hyperparameters.",
        examples=["{learning_rate: {log_uniform: [1e-5, 1e-2]}}"],
    )  # fmt: skip
    objective: ObjectiveSection | None = Field(
        None,
        description="What is optimised; the task's own metric if left out.",
        examples=["{maximize: val/accuracy}"],
    )
    constraints: dict[str, Bound] = Field(
        {}, description="What a feasible trial keeps.", examples=[{"seconds/train": {"at_most": 60}}]
    )
    sampler: Any = Field("tpe", description="How trials are proposed.", examples=["{tpe: {seed: 0}}"])
    scheduler: Any = Field(
        "asha", description="Which trials are stopped early.", examples=["{asha: {reduction: 4}}"]
    )
    budget: BudgetSection = Field(description="When the search ends.", examples=["{trials: 64}"])
    resources: ResourcesSection = Field(ResourcesSection(), description="What one trial takes.")
    confirm: ConfirmSection = Field(ConfirmSection(), description="Retrainings of the best trial.")
    published: PublishedSection | None = Field(None, description="The published values, tried first.")
    warm_start: list[Slug] = Field(
        [], max_length=20, description="Ids of earlier sweeps whose trials the sampler learns from.",
        examples=[["retrieval-laptop-1a2b3c4d"]],
    )  # fmt: skip
