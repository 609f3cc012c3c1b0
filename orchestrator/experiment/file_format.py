"""The sections of an experiment file, field by field: type, bounds, default, description, example."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from orchestrator.config.sections import (
    Flag,
    Number,
    OpenSection,
    Section,
    Slug,
    SpaceFile,
    Text,
    Whole,
    Word,
    Words,
    setting,
)

OF_A_SPACE = frozenset(SpaceFile.model_fields) - {"confirm"}
"""The sections of a search-space file that an experiment may give; its `seeds` stand for `confirm`."""

Reduction = Literal["value", "mean", "last", "drift", "layers", "seeds"]


class SolvedSection(Section):
    """The threshold of a solved task."""

    at: Number = setting("Value that a seed must reach, stated before the run.", 0.9)


class CompareSection(Section):
    """The compared metric."""

    metric: Word = setting(
        "Metric by which arms are compared: of the test split, or reported during training.",
        "test/accuracy",
        "test/accuracy",
    )
    better: Literal["higher", "lower"] = setting("Which values are better.", "higher", "higher")
    of: Reduction = setting(
        "How the curve of a reported metric becomes one number a seed: `value` at the best step, `mean`,"
        " `last`, `drift` (deviation over time by mean), `layers` (deviation over layers by mean), `seeds`"
        " (distance from the median of the seeds by that median).",
        "drift",
        "value",
    )
    paired: bool = setting(
        "Whether a seed draws the same for all arms of a `measure`, such as the system that they approximate."
        " Claims are then judged by the differences of a seed.",
        True,
        False,
    )
    tolerance: Number | None = setting(
        "Largest distance between the median over seeds and a published figure that counts as reproduced;"
        " for every arm that gives none itself.",
        0.01,
        None,
        gt=0,
    )
    solved: SolvedSection | None = setting(
        "Counts the seeds that solve the task, with an exact interval of their share.", {"at": 0.9}, None
    )


class PaperSection(Section):
    """The published figure of an arm."""

    value: Number | None = setting("The published figure.", 0.611, None)
    error: Number | None = setting("Its published standard error.", 0.008, None, ge=0)
    tolerance: Number | None = setting("Overrides `compare.tolerance`.", 0.02, None, gt=0)
    at_least: Number | None = setting("A claim without a figure: the median is at least this.", 0.918, None)
    at_most: Number | None = setting("A claim without a figure: the median is at most this.", 0.0065, None)
    source: Word | None = setting("Paper and table, if they are not the file's.", "LRU, Table 6", None)
    note: Word | None = setting("A remark for readers.", "grey images", None)
    layer_parameters: Whole | None = setting(
        "Number of trained parameters of the published layers; more than 2 % apart, they do not compare.",
        4_175,
        None,
        ge=1,
    )


def _paper(value: Any) -> Any:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return {"value": value} if is_number else value


Paper = Annotated[PaperSection, BeforeValidator(_paper)]


class PartSection(OpenSection):
    """A part of several arms. Further keys are sections of a search-space file and override their keys."""

    space: Word | None = setting(
        "Path of the search-space file that the arm starts from, relative to the experiment file.",
        "../search_spaces/listops.yaml",
        None,
    )
    space_profile: Word | None = setting("Profile of that file.", "laptop", None)


class ArmSection(PartSection):
    """One arm: a sweep, or one call of the function that the file measures."""

    use: Words = setting("Parts that the arm starts from, in this order.", "[lru, ring]", [])
    arguments: dict[str, Any] = setting(
        "Arguments of the measured function; only beside `measure`.", {"length": 300}, {}
    )
    paper: Paper | None = setting("What the paper prints: a number, or a mapping.", 0.611, None)
    departure: Annotated[str, Field(max_length=400)] | None = setting(
        "How the arm departs from the paper, so that its figures cannot be compared.",
        "the paper's permutation of pixels is not used",
        None,
    )
    hypothesis: Flag | None = setting(
        "Whether the bound under `paper` is the file's own; the file's `hypothesis` if left out.",
        True,
        None,
    )
    cell: list[Word] | None = setting(
        "Row and column of the paper's table.", ["RotRNN", "ListOps"], None, min_length=2, max_length=2
    )


class ClaimSection(Section):
    """A claim of the paper, or a hypothesis, that one arm is better than another."""

    better: Word = setting("Name of the better arm.", "rotrnn")
    than: Word = setting("Name of the other one.", "lru")
    hypothesis: Flag | None = setting(
        "Whether the order is the file's own; the file's `hypothesis` if left out.", True, None
    )


class ControlsSection(Section):
    """Arms that show whether an experiment could have found an ability."""

    positive: Words = setting(
        "Arms that must solve the task. Claims, and hypotheses that an arm does not solve it, count only"
        " beside one of the same data that does.",
        "[attention]",
        [],
    )
    negative: Words = setting("Arms that must not solve the task.", "[none]", [])


class ProfileSection(Section):
    """A smaller size of the experiment: changes that apply after everything else."""

    seeds: Whole | None = setting("Overrides that of the file.", 2, None, ge=1, le=100)
    only: Words = setting("The arms that the profile keeps; all if left out.", "[rotrnn, lru]", [])
    common: PartSection = setting("Changes of every arm.", {"training": {"steps": 100}}, PartSection())
    parts: dict[Slug, PartSection] = setting("Changes of parts.", {"lru": {"model": {"d_state": 64}}}, {})
    arms: dict[Slug, ArmSection | None] = setting(
        "Changes of arms; `null` leaves one out.", {"pathx": None}, {}
    )


class ExperimentFile(Section):
    """A whole experiment file."""

    title: Word = setting("Title of the page.", "RotRNN on Long Range Arena")
    source: Word = setting("Paper, and table or figure.", '"RotRNN, Table 1"')
    claim: Text = setting("What the paper claims.", "RotRNN is on a par with LRU.")
    hypothesis: Flag = setting(
        "Whether bounds and claims are hypotheses, which are tested at whatever size the arms have, and not"
        " published. Arms and claims may say otherwise.",
        True,
        False,
    )
    not_shown: Text | None = setting(
        "Limitations of the results, printed with them.", "Other sizes and a search of the rates.", None
    )
    seeds: Whole = setting("Seeds of every arm.", 3, ge=1, le=100)
    compare: CompareSection = setting("Compared metric.", {"metric": "test/accuracy"}, CompareSection())
    shares: Slug | None = setting(
        "Name of another experiment with the same arms, whose sweeps are compared by another metric here.",
        "rotrnn-figure-3a",
        None,
    )
    measure: Word | None = setting(
        "Measured function instead of sweeps, `module:function`, called with an arm's arguments and a seed.",
        "benchmarks.teacher:error",
        None,
    )
    common: PartSection = setting("Sections that all arms start from.", {"seeds": 3}, PartSection())
    parts: dict[Slug, PartSection] = setting(
        "Parts that several arms start from, by name.",
        {"lru": {"model": {"layer": "lru"}}},
        {},
        max_length=100,
    )
    arms: dict[Slug, ArmSection] = setting(
        "The arms by name.", {"rotrnn": {"paper": 0.611}}, min_length=1, max_length=200
    )
    claims: list[ClaimSection] = setting(
        "Orders of arms that the paper states.", [{"better": "rotrnn", "than": "lru"}], [], max_length=100
    )
    controls: ControlsSection | None = setting(
        "Controls, which need `compare.solved`.", {"positive": ["attention"]}, None
    )
    families: dict[Slug, Words] = setting(
        "Arms whose bounds, figures and claims are corrected together, by the name of the family; `*` in a"
        " name stands for any letters. A claim belongs to the family of both its arms. All that is left is"
        " one family.",
        {"parity": ["parity-*"]},
        {},
        max_length=20,
    )
    profiles: dict[Slug, ProfileSection] = setting(
        "Smaller sizes by name.", {"laptop": {"seeds": 2}}, {}, max_length=10
    )
