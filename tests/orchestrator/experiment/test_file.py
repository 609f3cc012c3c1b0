"""Experiment files: how arms are put together, and the files that are refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from orchestrator.errors import BadInput
from orchestrator.experiment.file import Arm, Experiment, load
from orchestrator.experiment.verdict import StatedFigure

SPACE = """
task: copy
data: {delay: 20, examples: 50, held_out: 20}
model: {layer: lru, depth: 1, d_model: 8, d_state: 8}
training: {steps: 4, interval: 2, batch_size: 4, learning_rate: 1e-2, recurrent_learning_rate: 1e-3}
search: {seed: {choice: [0]}}
sampler: grid
scheduler: none
budget: {trials: 1}
profiles:
  laptop: {training: {steps: 3, interval: 1}}
"""

EXPERIMENT = """
title: Two layers on copy memory
source: "A paper, Table 1"
claim: The first layer is better.
seeds: 3
compare: {metric: test/loss, better: lower, tolerance: 0.1}
common: {space: space.yaml, training: {steps: 10}}
parts:
  s5: {model: {layer: s5, d_state: 16}}
  long: {data: {delay: 30}}
arms:
  lru: {paper: 0.5}
  s5: {use: [s5, long], training: {batch_size: 2}, paper: {at_most: 0.1, source: "B, Table 2", note: once}}
claims: [{better: lru, than: s5}]
profiles:
  laptop:
    seeds: 2
    common: {training: {steps: 5}}
    parts: {s5: {model: {d_state: 4}}}
    arms: {lru: null}
"""


def loaded(
    folder: Path, text: str = EXPERIMENT, profile: str | None = None, space: str = SPACE
) -> Experiment:
    (folder / "space.yaml").write_text(space)
    (folder / "table-1.yaml").write_text(text)
    return load(folder / "table-1.yaml", profile=profile, gpus=0)


def arms(experiment: Experiment) -> dict[str, Arm]:
    return {arm.name: arm for arm in experiment.arms}


def refused(folder: Path, before: str, after: str, profile: str | None = None) -> str:
    assert EXPERIMENT.count(before) == 1
    with pytest.raises(BadInput) as error:
        loaded(folder, EXPERIMENT.replace(before, after), profile)
    return str(error.value)


def test_an_arm_is_put_together_in_the_order_of_the_page(tmp_path: Path) -> None:
    sweep = arms(loaded(tmp_path))["s5"].sweep
    assert sweep is not None
    assert (sweep.name, sweep.profile) == ("table-1-s5", None)
    assert (sweep.model.layer, sweep.model.d_state, sweep.model.d_model) == ("s5", 16, 8)
    assert (sweep.training.steps, sweep.training.batch_size) == (10, 2)
    assert sweep.task_options["delay"] == 30


def test_the_chosen_trial_and_the_confirmations_are_the_seeds(tmp_path: Path) -> None:
    for arm in loaded(tmp_path).arms:
        assert arm.sweep is not None
        assert arm.sweep.confirm.seeds == 2


def test_a_profile_comes_after_everything_and_leaves_arms_out(tmp_path: Path) -> None:
    experiment = loaded(tmp_path, profile="laptop")
    assert (experiment.id, experiment.seeds, experiment.is_published_size) == ("table-1-laptop", 2, False)
    assert arms(experiment).keys() == {"s5"}
    assert experiment.claims == ()
    sweep = arms(experiment)["s5"].sweep
    assert sweep is not None
    assert (sweep.profile, sweep.confirm.seeds) == ("laptop", 1)
    assert (sweep.model.d_state, sweep.training.steps, sweep.training.batch_size) == (4, 5, 2)
    assert arms(experiment)["s5"].changes == ("d_state 4 instead of 16", "steps 5 instead of 10")


def test_what_a_profile_changes_is_named_with_the_defaults() -> None:
    """An option that the file does not give has the value of its task or layer."""
    table = Path(__file__).parents[3] / "experiments" / "lru-table-6.yaml"
    (_, arm, _) = load(table, profile="laptop", gpus=0).arms
    assert set(arm.changes) == {
        "length 128 instead of 2,048",
        "min_length 10 instead of 500",
        "max_length 100 instead of 2,000",
        "examples 30,000 instead of 96,000",
        "held_out 1,000 instead of 2,000",
        "depth 2 instead of 6",
        "d_model 32 instead of 128",
        "d_state 35 instead of 256",
        "transition_init bounded instead of glorot",
        "steps 2,400 instead of 80,000",
        "search of learning_rate choice [0.002] instead of choice [0.001, 0.002, 0.004]",
    }


def test_a_profile_that_changes_nothing_has_the_published_size(tmp_path: Path) -> None:
    """Whether a size is the published one follows from what the profile changes: nobody declares it."""
    same = EXPERIMENT[: EXPERIMENT.index("profiles:")] + "profiles:\n  laptop: {seeds: 2, only: [s5]}\n"
    experiment = loaded(tmp_path, same, profile="laptop")
    assert experiment.is_published_size
    declared = same.replace("seeds: 2,", "seeds: 2, published_size: true,")
    with pytest.raises(BadInput, match="published_size is not a known key"):
        loaded(tmp_path, declared, profile="laptop")


def test_a_profile_can_name_the_arms_that_it_keeps(tmp_path: Path) -> None:
    text = EXPERIMENT.replace("arms: {lru: null}", "only: [lru]")
    assert arms(loaded(tmp_path, text, "laptop")).keys() == {"lru"}


def test_auto_is_the_laptop_profile_without_a_gpu(tmp_path: Path) -> None:
    assert loaded(tmp_path, profile="auto").profile == "laptop"
    assert load(tmp_path / "table-1.yaml", profile="auto", gpus=1).profile is None


def test_a_profile_of_the_search_space_file_can_be_the_start(tmp_path: Path) -> None:
    text = EXPERIMENT.replace(", training: {steps: 10}}", ", space_profile: laptop}")
    sweep = arms(loaded(tmp_path, text))["lru"].sweep
    assert sweep is not None
    assert (sweep.training.steps, sweep.profile) == (3, None)


def test_resources_can_be_those_of_a_machine_and_leave_every_identity_as_it_is(tmp_path: Path) -> None:
    stated = arms(loaded(tmp_path))
    given = load(tmp_path / "table-1.yaml", profile=None, gpus=1, overrides=["resources.gpu=1/4"])
    for arm in given.arms:
        sweep, before = arm.sweep, stated[arm.name].sweep
        assert sweep is not None
        assert before is not None
        assert (sweep.resources.gpu, sweep.resources.cpu, before.resources.gpu) == (0.25, 1.0, 0.0)
        assert (sweep.digest, sweep.id) == (before.digest, before.id)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("training.steps=2", "--set must override a key of `resources`"),
        ("resources", "--set must override a key of `resources`"),
        ("resources.gpu=2/3", "--set resources.gpu must be 0, 1 or 1/K of a GPU"),
        ("resources.gpus=1", "is not a known key"),
    ],
)
def test_no_override_makes_another_experiment(tmp_path: Path, override: str, message: str) -> None:
    loaded(tmp_path)
    with pytest.raises(BadInput) as error:
        load(tmp_path / "table-1.yaml", profile=None, gpus=1, overrides=[override])
    assert message in str(error.value)


def test_the_resources_of_a_measured_function_are_refused() -> None:
    with pytest.raises(BadInput, match="must be left out: ldstack-figure-2 calls a function"):
        load(Path("experiments/ldstack-figure-2.yaml"), profile=None, gpus=1, overrides=["resources.gpu=1"])


def test_an_experiment_can_share_the_sweeps_of_another(tmp_path: Path) -> None:
    """Its arms have the same identity as those of the file that it names."""
    own = arms(loaded(tmp_path))["s5"].sweep
    (tmp_path / "figure-2.yaml").write_text(EXPERIMENT.replace("seeds: 3", "seeds: 3\nshares: table-1"))
    shared = arms(load(tmp_path / "figure-2.yaml", profile=None, gpus=0))["s5"].sweep
    assert own is not None
    assert shared is not None
    assert shared.id == own.id


def test_published_figures_and_bounds(tmp_path: Path) -> None:
    both = arms(loaded(tmp_path))
    assert both["lru"].published == StatedFigure(0.5, None, 0.1, source="A paper, Table 1")
    bound = both["s5"].published
    assert bound is not None
    assert (bound.at_most, bound.value, bound.source, bound.note) == (0.1, None, "B, Table 2", "once")


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (
            "use: [s5, long]",
            "use: [s5, lang]",
            r"arms.s5.use must name parts of the file \(got 'lang'\). Did you",
        ),
        ("{delay: 30}", "{dely: 30}", r":\d+: data.dely is not an option of copy"),
        (
            "training: {batch_size: 2}",
            "trainig: {}",
            r"arms.s5.trainig is not a known key",
        ),
        ("{batch_size: 2}", "{batch_size: 0}", r"yaml:\d+: training.batch_size must be at least 1 \(got 0\)"),
        ("than: s5", "than: s6", r"claims.than must name an arm \(got `s6`\)"),
        ("paper: 0.5", "paper: {at_least: 1, at_most: 2}", "must have exactly one of value, at_least"),
        ("tolerance: 0.1", "of: value", "arms.lru.paper must have a tolerance, here or in `compare`"),
        (
            "metric: test/loss",
            "metric: test/losss",
            "compare.metric must be a metric of copy, the task of lru",
        ),
        (
            "test/loss, better",
            "test/loss, of: drift, better",
            "compare.of must be `value` for a metric of the test split",
        ),
        (
            "lru: {paper: 0.5}",
            "lru: {confirm: {seeds: 1}}",
            r"is not a known key. Write `seeds`",
        ),
        ("lru: {paper: 0.5}", "lru: {arguments: {a: 1}}", "arms.lru.arguments requires `measure`"),
        ("arms: {lru: null}", "arms: {lstm: null}", "profiles.laptop.arms.lstm must name one of the arms"),
        (
            "    seeds: 2",
            "    only: [lstm]",
            r"profiles.laptop.only must name one of the arms \(got `lstm`\)",
        ),
        ("seeds: 3", "seeds: 0", r"seeds must be at least 1 \(got 0\)"),
        ("space: space.yaml", "space: spice.yaml", "spice.yaml does not exist"),
        ('source: "A paper, Table 1"\n', "", "source must be given"),
    ],
)
def test_a_wrong_file_is_refused_with_its_place(
    tmp_path: Path, before: str, after: str, message: str
) -> None:
    text = refused(tmp_path, before, after)
    assert re.search(message, text), text


def test_an_unknown_profile_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="must name a profile"):
        loaded(tmp_path, profile="laptob")


def test_an_error_in_the_search_space_file_names_that_file(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"space.yaml:4: model.depth"):
        loaded(tmp_path, space=SPACE.replace("depth: 1", "depth: 0"))


@pytest.mark.parametrize(
    ("of_file", "of_arm", "expected"),
    [("", "", False), ("hypothesis: true\n", "", True), ("hypothesis: true\n", "hypothesis: false, ", False)],
)
def test_a_file_says_which_bounds_nobody_has_published(
    tmp_path: Path, of_file: str, of_arm: str, expected: bool
) -> None:
    text = of_file + EXPERIMENT.replace("  lru: {", "  lru: {" + of_arm)
    experiment = loaded(tmp_path, text)
    assert experiment.arms[0].hypothesis == expected
    assert experiment.claims[0].hypothesis == bool(of_file)


def test_what_is_not_shown_is_read(tmp_path: Path) -> None:
    assert loaded(tmp_path, "not_shown: Other sizes.\n" + EXPERIMENT).not_shown == "Other sizes."


def test_controls_name_arms_and_need_a_threshold(tmp_path: Path) -> None:
    solved = EXPERIMENT.replace("tolerance: 0.1", "tolerance: 0.1, solved: {at: 0.2}")
    stated = loaded(tmp_path, solved + "controls: {positive: [lru], negative: [s5]}")
    assert (stated.solved, stated.positive, stated.negative) == (0.2, ("lru",), ("s5",))
    assert loaded(tmp_path).positive is None
    with pytest.raises(BadInput, match=r"requires `compare\.solved`"):
        loaded(tmp_path, EXPERIMENT + "controls: {positive: [lru]}")
    with pytest.raises(BadInput, match="must name an arm"):
        loaded(tmp_path, solved + "controls: {negative: [lstm]}")


def test_families_name_arms_that_are_corrected_together(tmp_path: Path) -> None:
    assert loaded(tmp_path).families == {}
    stated = EXPERIMENT + 'families: {one: ["l*"], two: [s5]}\n'
    assert loaded(tmp_path, stated).families == {"one": ("lru",), "two": ("s5",)}
    assert loaded(tmp_path, stated, profile="laptop").families == {"one": (), "two": ("s5",)}
    with pytest.raises(BadInput, match=r"families\.one must name an arm \(got `lstm`\)"):
        loaded(tmp_path, EXPERIMENT + "families: {one: [lstm]}\n")
    with pytest.raises(
        BadInput, match=r"must not name an arm of another family \(got `s5`, which is in one\)"
    ):
        loaded(tmp_path, EXPERIMENT + 'families: {one: ["*"], two: [s5]}\n')
