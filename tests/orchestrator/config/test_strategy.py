"""Samplers and schedulers by name: their defaults, and combinations that are refused."""

from __future__ import annotations

import inspect
from pathlib import Path

import optuna
import pytest

from orchestrator.config import from_document
from orchestrator.config.strategy import SCHEDULERS, options_section
from orchestrator.config.sweep_config import Objective
from tests.orchestrator.config.files import VALID, edited, loaded, refused

FREE = VALID.split("published:")[0]
GRID = """
  gamma_init.min: {uniform: [0.1, 0.9], step: 0.4}
  gamma_init.max: {choice: [0.99]}
  learning_rate: {choice: [1e-3, 1e-4]}
  recurrent_learning_rate: {choice: [1e-4]}
"""


def _with(sampler: str, text: str = FREE, scheduler: str | None = None) -> str:
    text = edited("{tpe: {seed: 3}}", sampler, text)
    return text if scheduler is None else edited("{asha: {reduction: 4, grace: 0.1}}", scheduler, text)


@pytest.mark.parametrize("name", ["tpe", "qmc", "random", "nsgaii"])
def test_a_bare_sampler_name_means_all_defaults(tmp_path: Path, name: str) -> None:
    """The defaults are filled in."""
    sampler = loaded(tmp_path, _with(name)).sampler
    assert (sampler.name, sampler.seed) == (name, 0)
    assert set(sampler.options) == set(options_section("sampler", name).model_fields)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("tpe", "TPESampler"), ("gp", "GPSampler"), ("cmaes", "CmaEsSampler"), ("qmc", "QMCSampler"),
     ("random", "RandomSampler"), ("nsgaii", "NSGAIISampler")],
)  # fmt: skip
def test_options_are_those_of_optuna(name: str, kind: str) -> None:
    """Every option of a sampler has the name that Optuna gives it."""
    accepted = inspect.signature(getattr(optuna.samplers, kind)).parameters
    assert set(options_section("sampler", name).model_fields) <= set(accepted)


def test_a_missing_optional_package_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The refusal comes before anything runs, and gives the command that installs the package."""
    monkeypatch.setattr("orchestrator.config.strategy.find_spec", lambda package: None)
    error = refused(tmp_path, _with("cmaes"))
    assert error.where.endswith(":13: sampler")
    assert "needs the package cmaes" in error.must
    assert error.remedy == "pip install cmaes, or this package's extra `cmaes`."
    monkeypatch.setattr("orchestrator.config.strategy.find_spec", lambda package: object())
    assert loaded(tmp_path, _with("cmaes")).sampler.name == "cmaes"
    assert loaded(tmp_path, _with("{gp: {seed: 9}}")).sampler.seed == 9


@pytest.mark.parametrize("name", ["random", "qmc", "nsgaii"])
def test_warm_start_needs_a_sampler_that_learns(tmp_path: Path, name: str) -> None:
    """Earlier sweeps that the sampler would not use are refused."""
    text = FREE + "warm_start: [retrieval-laptop-1a2b3c4d]\n"
    error = refused(tmp_path, _with(name, text))
    assert "learns nothing from earlier results" in error.must
    assert "tpe, gp" in error.remedy
    assert loaded(tmp_path, _with("tpe", text)).warm_start == ("retrieval-laptop-1a2b3c4d",)


def test_grid_needs_finitely_many_values(tmp_path: Path) -> None:
    """A continuous range has no grid, but a stepped one has."""
    error = refused(tmp_path, _with("grid"))
    assert error.where.endswith(": search.gamma_init.min")
    assert "finitely many" in error.must
    head, _, tail = FREE.partition("search:")
    text = _with("grid", f"{head}search:{GRID}objective:{tail.partition('objective:')[2]}")
    assert loaded(tmp_path, text).search["gamma_init.min"].values() == pytest.approx((0.1, 0.5, 0.9))


def test_cmaes_needs_ranges(tmp_path: Path) -> None:
    """CMA-ES is refused with fewer than two ranges of numbers."""
    text = _with("cmaes", edited("{log_uniform: [1e-5, 1e-2]}", "{choice: [1e-3]}", FREE))
    text = edited("{log_uniform: [1e-6, 1e-3]}", "{choice: [1e-3]}", text)
    assert "2 ranges" in refused(tmp_path, text).must


@pytest.mark.parametrize("name", ["gp", "cmaes", "qmc", "grid", "nsgaii"])
def test_conditions_need_a_sampler_that_models_them(tmp_path: Path, name: str) -> None:
    """A sampler that would draw conditional hyperparameters at random is refused."""
    text = edited("theta_init.max: {", "theta_init.max: {when: {gamma_init.max: 0.99}, ", FREE)
    assert loaded(tmp_path, text).search["theta_init.max"].when == {"gamma_init.max": (0.99,)}
    error = refused(tmp_path, _with(name, text))
    assert "takes no conditions" in error.must
    assert error.remedy == "Write one of: tpe, random."


def test_tpe_models_branches_by_groups(tmp_path: Path) -> None:
    """On a conditional space the multivariate model needs Optuna's groups; groups need that model."""
    text = edited("theta_init.max: {", "theta_init.max: {when: {gamma_init.max: 0.99}, ", FREE)
    assert "conditions" in refused(tmp_path, _with("{tpe: {group: false}}", text)).must
    assert loaded(tmp_path, _with("{tpe: {group: false, multivariate: false}}", text)).sampler.name == "tpe"
    assert "group must be false" in refused(tmp_path, _with("{tpe: {multivariate: false}}")).must


def test_constraints(tmp_path: Path) -> None:
    """Constraints are bounds on reported metrics, for samplers that learn from them."""
    text = edited("budget:", "constraints: {seconds/train: {at_most: 60}}\nbudget:", FREE)
    (constraint,) = loaded(tmp_path, text).constraints
    assert (constraint.metric, constraint.at_least, constraint.at_most) == ("seconds/train", None, 60.0)
    assert "does not learn from constraints" in refused(tmp_path, _with("random", text)).must
    assert "both" in refused(tmp_path, edited("{at_most: 60}", "{}", text)).must
    assert (
        "at_least <= at_most"
        in refused(tmp_path, edited("at_most: 60", "at_most: 6, at_least: 60", text)).must
    )
    assert "trials report" in refused(tmp_path, edited("seconds/train", "second/train", text)).must


def test_several_objectives_are_pruned_by_a_named_metric_only(tmp_path: Path) -> None:
    """A scheduler would stop trials by one objective of several, unknown to who wrote the file."""
    text = edited("{maximize: val/accuracy}", "{maximize: val/accuracy, minimize: val/loss}", FREE)
    error = refused(tmp_path, text)
    assert error.where.endswith(" scheduler.asha.metric")
    assert error.remedy == "Write metric: val/accuracy."
    named = loaded(tmp_path, edited("{reduction: 4,", "{metric: val/loss, reduction: 4,", text))
    assert named.compared == Objective("val/loss", "minimize")
    again = from_document(named.document(), named.source_text)
    assert (again.compared, again.digest) == (named.compared, named.digest)
    assert len(loaded(tmp_path, _with("nsgaii", text, "none")).objectives) == 2
    assert "one objective only" in refused(tmp_path, _with("cmaes", text, "none")).must


@pytest.mark.parametrize(
    ("options", "compared", "message"),
    [
        ("", Objective("val/accuracy", "maximize"), ""),
        ("metric: train/loss, ", Objective("train/loss", "minimize"), ""),
        ("metric: val/accuracy, ", Objective("val/accuracy", "maximize"), ""),
        ("metric: val/los, ", None, "must be a metric that trials report"),
        ("metric: val/loss, direction: maximize, ", None, "val/loss is better when it is low"),
        ("direction: minimize, ", None, "needs a metric"),
    ],
)
def test_a_scheduler_compares_the_metric_that_the_file_names(
    tmp_path: Path, options: str, compared: Objective | None, message: str
) -> None:
    text = edited("{reduction: 4,", f"{{{options}reduction: 4,", FREE)
    if compared is None:
        assert message in refused(tmp_path, text).must
    else:
        sweep = loaded(tmp_path, text)
        assert sweep.compared == compared
        assert compared.metric in sweep.observed_metrics
        assert (sweep.id == loaded(tmp_path, FREE).id) == (not options)


@pytest.mark.parametrize(
    ("section", "where"),
    [
        ("confirm: {seeds: 2}\n", "confirm.seeds"),
        ("budget: {trials: 9, target: 0.9}\n", "budget.target"),
        ("budget: {trials: 9, no_improvement: {trials: 3}}\n", "budget.no_improvement"),
    ],
)
def test_what_needs_the_best_trial_needs_a_preference_among_objectives(
    tmp_path: Path, section: str, where: str
) -> None:
    goals = "{maximize: val/accuracy, minimize: val/loss}"
    text = _with("nsgaii", edited("{maximize: val/accuracy}", goals, FREE), "none")
    name = section.partition(":")[0]
    text = "".join(line for line in text.splitlines(keepends=True) if not line.startswith(name)) + section
    error = refused(tmp_path, text)
    assert error.where.endswith(f" {where}")
    assert error.remedy == "Write objective: {..., prefer: val/accuracy}."
    sweep = loaded(tmp_path, edited(goals, f"{goals[:-1]}, prefer: val/loss}}", text))
    assert [goal.metric for goal in sweep.objectives] == ["val/loss", "val/accuracy"]
    again = from_document(sweep.document(), sweep.source_text)
    assert (again.prefers, again.metric, again.digest) == (True, "val/loss", sweep.digest)


@pytest.mark.parametrize("name", [name for name in SCHEDULERS if name != "pbt"])
def test_a_bare_scheduler_name_means_all_defaults(tmp_path: Path, name: str) -> None:
    """The defaults are filled in."""
    scheduler = loaded(tmp_path, _with("tpe", scheduler=name)).scheduler
    assert (scheduler.name, set(scheduler.options)) == (
        name,
        set(options_section("scheduler", name).model_fields),
    )


def test_population_based_training(tmp_path: Path) -> None:
    """Only hyperparameters that can change during training can mutate, with a sampler that does not learn."""
    text = edited("sampler: {tpe: {seed: 3}}\n", "", FREE)
    text = edited("{asha: {reduction: 4, grace: 0.1}}", "{pbt: {mutations: [learning_rate]}}", text)
    sweep = loaded(tmp_path, text)
    assert (sweep.sampler.name, sweep.scheduler.options["factors"]) == ("random", [0.8, 1.2])
    for mutation, message in (
        ("gamma_init.min", "can change during training"),
        ("theta_init.max", "can change during training"),
        ("heads", "searched"),
        ("learnin_rate", "searched"),
    ):
        error = refused(tmp_path, edited("[learning_rate]", f"[{mutation}]", text))
        assert error.where.endswith(":13: scheduler.pbt.mutations")
        assert message in error.must
        assert error.got == f"`{mutation}`"
    assert "must not be empty" in refused(tmp_path, edited("[learning_rate]", "[]", text)).must
    assert "must be given" in refused(tmp_path, edited("mutations: [learning_rate]", "", text)).must
    assert (
        "cannot be combined with pbt"
        in refused(tmp_path, edited("budget:", "sampler: tpe\nbudget:", text)).must
    )
    factors = edited("[learning_rate]", "[learning_rate], factors: [1.2, 0.8]", text)
    assert "below 1, above 1" in refused(tmp_path, factors).must
