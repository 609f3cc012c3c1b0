"""The identity of a sweep, its document, and the settings of its trials."""

from __future__ import annotations

import json
import math
from dataclasses import FrozenInstanceError, asdict, replace
from pathlib import Path

import pytest

from orchestrator.config import from_document
from orchestrator.config.sections import TrainingSection
from orchestrator.session.proposals import several_programs
from tests.orchestrator.config.files import VALID, edited, loaded, refused
from trainables.trial import ModelSettings, TrainingSettings, TrialSettings


def test_reads_the_whole_file(tmp_path: Path) -> None:
    """Every section of a file is read, and defaults are filled in."""
    sweep = loaded(tmp_path)
    assert (sweep.name, sweep.profile, sweep.task) == ("space", None, "listops")
    assert sweep.task_options == {"length": 2048}
    assert (sweep.metric, sweep.direction) == ("val/accuracy", "maximize")
    assert (sweep.training.steps, sweep.training.warmup) == (1000, 0.1)
    assert sweep.sampler.seed == 3
    assert sweep.sampler.options["n_ei_candidates"] == 24
    asha = {
        "reduction": 4.0,
        "grace": 0.1,
        "mode": "stop",
        "keep": 3,
        "metric": None,
        "direction": None,
    }
    assert (sweep.scheduler.name, dict(sweep.scheduler.options)) == ("asha", asha)
    assert (sweep.budget.trials, sweep.resources.gpu, sweep.resources.concurrent) == (16, 0.125, None)
    assert sweep.search["theta_init.max"].choices == (math.pi / 10, 2 * math.pi)
    assert sweep.published is not None
    assert sweep.published.results == {"test/accuracy": 0.611}
    assert sweep.source_text == VALID
    with pytest.raises(FrozenInstanceError):
        sweep.name = "other"  # type: ignore[misc]


def test_settings_of_the_published_trial(tmp_path: Path) -> None:
    """Drawn values replace those of the file, which replace the layer's defaults; types are the layer's."""
    sweep = loaded(tmp_path)
    params = sweep.published_params()
    assert params is not None
    settings = sweep.settings(params, 7)
    assert settings.seed == 7
    assert settings.model.options == {
        "heads": 8,
        "normalisation": "input",
        "basis": "learned",
        "init": "paper",
        "train_theta": True,
        "train_gamma": True,
        "algorithm": "auto",
        "activations": "float32",
    }
    assert settings.model.ranges == {"gamma_init": (0.5, 0.999), "theta_init": (0.0, 2 * math.pi)}
    assert settings.training.learning_rate == 1e-4
    assert (settings.training.steps, settings.evaluate_examples) == (1000, 200)
    assert settings.task_options == {"length": 2048}
    assert json.loads(json.dumps(asdict(settings)))["model"]["dropout"] == 0.1
    hash(settings.static())


def test_settings_cast_to_the_type_of_the_hyperparameter(tmp_path: Path) -> None:
    """A hyperparameter has its declared type, int or float, whatever the file wrote."""
    added = ["published=", "search.heads={choice: [8, 16.0]}", "search.dropout={choice: [0]}"]
    sweep = loaded(tmp_path, overrides=added)
    params = {"gamma_init.min": 0.5, "gamma_init.max": 0.99, "theta_init.max": math.pi / 10, "heads": 16.0,
              "dropout": 0, "learning_rate": 1e-3, "recurrent_learning_rate": 1e-3}  # fmt: skip
    settings = sweep.settings(params, 0)
    assert type(settings.model.options["heads"]) is int
    assert type(settings.model.dropout) is float


def test_settings_need_exactly_the_searched_hyperparameters(tmp_path: Path) -> None:
    """Missing or unknown hyperparameters raise an error."""
    sweep = loaded(tmp_path)
    params = sweep.published_params() or {}
    with pytest.raises(AssertionError):
        sweep.settings({**params, "heads": 8}, 0)
    with pytest.raises(AssertionError):
        sweep.settings({name: params[name] for name in list(params)[1:]}, 0)


def test_conditional_settings(tmp_path: Path) -> None:
    """If a condition does not hold, the file's own value is used."""
    conditional = ["search.heads={choice: [4, 8]}", "search.depth={int: [2, 4], when: {heads: 4}}"]
    sweep = loaded(tmp_path, overrides=["published=", "search.theta_init.max=", *conditional])
    rest = {
        "gamma_init.min": 0.5,
        "gamma_init.max": 0.99,
        "learning_rate": 1e-3,
        "recurrent_learning_rate": 1e-3,
    }
    assert sweep.settings({**rest, "heads": 4, "depth": 3}, 0).model.depth == 3
    assert sweep.settings({**rest, "heads": 8}, 0).model.depth == 2
    assert sweep.active({"heads": 8}) == {*rest, "heads"}
    assert list(sweep.search)[-1] == "depth"


def test_targets_of_notifications_are_no_part_of_the_identity(tmp_path: Path) -> None:
    text = VALID + "notify: {team: [best, ended], mailto:ada@example.org: all}\n"
    sweep = loaded(tmp_path, text)
    assert sweep.notify == {"team": ("best", "ended"), "mailto:ada@example.org": ()}
    assert sweep.document()["notify"] == {"team": ["best", "ended"], "mailto:ada@example.org": "all"}
    assert from_document(sweep.document()).notify == sweep.notify
    assert sweep.digest == loaded(tmp_path).digest


@pytest.mark.parametrize(
    ("notify", "must"),
    [
        (
            "{https://hooks.example.org/canary: all}",
            "must be the name of a target, or mailto: and an address",
        ),
        ("{./canary.sh --to ada: all}", "must be the name of a target"),
        ("{team: [bset]}", "best"),
        ("{team: }", "notify.team"),
        ("team", "must be a mapping"),
    ],
)
def test_a_target_of_a_file_is_a_name_or_an_address(tmp_path: Path, notify: str, must: str) -> None:
    error = refused(tmp_path, VALID + f"notify: {notify}\n")
    assert must in str(error)
    assert "canary" not in str(error) or "canary.sh" in notify, "the address of a webhook is a secret"


def test_identity(tmp_path: Path) -> None:
    """The id consists of stem, profile and digest; only a change of meaning changes it."""
    sweep = loaded(tmp_path)
    assert sweep.id == f"space-{sweep.digest[:8]}"
    assert loaded(tmp_path, profile="laptop").id.startswith("space-laptop-")
    respelt = (
        VALID.replace("1_000", "1000").replace("1e-5", "0.00001").replace("pi/10", "0.1*pi") + "# a comment\n"
    )
    assert loaded(tmp_path, respelt).id == sweep.id
    for changed in ("budget.trials=99", "resources.cpu=2", "resources.concurrent=3", "resources.gpu=1"):
        assert loaded(tmp_path, overrides=[changed]).id == sweep.id, changed
    others = {
        "training.steps=900",
        "sampler.tpe.seed=4",
        "model.dropout=0.2",
        "search.dropout={uniform: [0, 0.2]}",
    }
    ids = {loaded(tmp_path, overrides=["published=", change]).id for change in others}
    assert len(ids | {sweep.id}) == len(others) + 1


@pytest.mark.parametrize("profile", [None, "laptop"])
def test_document_reads_back(tmp_path: Path, profile: str | None) -> None:
    """The document is plain JSON, and gives the same sweep even if its keys were sorted meanwhile."""
    sweep = loaded(tmp_path, profile=profile)
    again = from_document(json.loads(json.dumps(sweep.document(), sort_keys=True)), sweep.source_text)
    assert again == sweep
    assert again.id == sweep.id
    assert list(again.search) == list(sweep.search)


def test_rotrnn_in_a_block_like_that_of_mamba(tmp_path: Path) -> None:
    """A convolution before any layer and a gate beside it are words of a file, and static choices."""
    plain, block = loaded(tmp_path), ["model.short_conv=4", "model.gate=silu", "model.mixing=gelu"]
    changed = loaded(tmp_path, overrides=block)
    network = changed.settings(changed.published_params() or {}, 0).model
    assert (network.layer, network.short_conv, network.gate, network.mixing) == ("rotrnn", 4, "silu", "gelu")
    assert changed.digest != plain.digest
    assert refused(tmp_path, VALID, overrides=["model.short_conv=5"]).must == "must be at most 4"
    assert refused(tmp_path, VALID, overrides=["model.gate=tanh"]).must == "must be 'none', 'silu' or 'gelu'"
    searched = loaded(tmp_path, overrides=["search.gate={choice: [none, silu]}", "published="])
    assert searched.settings(searched.largest(), 0).model.gate == "silu"


def test_the_task_decides_how_steps_are_pooled(tmp_path: Path) -> None:
    """A file may override it."""
    text = edited("  test/accuracy: 0.611\n", "", edited("listops", "adding"))
    text = edited("{maximize: val/accuracy}", "{minimize: val/mse}", edited("{length: 2048}", "{}", text))
    text = edited("    data: {length: 256, min_length: 20, max_length: 200}\n", "", text)
    adding = loaded(tmp_path, text)
    assert (loaded(tmp_path).model.pooling, adding.model.pooling) == ("mean", "last")
    mean = loaded(tmp_path, text, overrides=["model.pooling=mean"])
    assert mean.settings(mean.published_params() or {}, 0).model.pooling == "mean"
    assert mean.digest != adding.digest
    assert refused(tmp_path, text, overrides=["model.pooling=first"]).must == "must be 'mean' or 'last'"
    searched = loaded(tmp_path, text, overrides=["search.pooling={choice: [mean, last]}", "published="])
    assert searched.settings(searched.largest(), 0).model.pooling == "mean"


TEXT = (
    edited("task: listops", "task: char_lm")
    .replace("  test/accuracy: 0.611\n", "")
    .replace("{maximize: val/accuracy}", "{minimize: val/bits}")
    .replace("    data: {length: 256, min_length: 20, max_length: 200}\n", "")
    .replace("data: {length: 2048}", "data: {source: pydoc, length: 64}")
)


def test_a_new_file_of_a_text_carries_states(tmp_path: Path) -> None:
    """A file without them is another sweep."""
    carrying, apart = loaded(tmp_path, TEXT), loaded(tmp_path, TEXT, overrides=["training.carry_state=false"])
    assert carrying.digest != apart.digest
    for sweep, carries in ((carrying, True), (apart, False)):
        assert isinstance(sweep.training, TrainingSection)
        assert sweep.training.carry_state is carries
        trial = sweep.network_settings(sweep.published_params() or {}, 0)
        assert trial.training.carry_state is carries
        assert trial == TrialSettings.from_document(json.loads(json.dumps(asdict(trial))))
        assert from_document(sweep.document()).document() == sweep.document()
    assert loaded(tmp_path).document()["training"]["carry_state"] is False


def test_settings_of_code_are_those_of_a_document_that_does_not_carry() -> None:
    """Settings built without the option mean the same before and after they are a document."""
    network, training = ModelSettings("lru", 1, 8, 8), TrainingSettings(10, 5, 4, 1e-3, 1e-3)
    trial = TrialSettings("char_lm", network, training, 0)
    assert TrialSettings.from_document(json.loads(json.dumps(asdict(trial)))) == trial
    carrying = replace(trial, training=replace(training, carry_state=True))
    assert TrialSettings.from_document(json.loads(json.dumps(asdict(carrying)))) == carrying
    assert (trial.training.carry_state, carrying.static() != trial.static()) == (False, True)


def test_states_are_carried_in_one_direction_over_consecutive_segments_alone(tmp_path: Path) -> None:
    both = refused(tmp_path, edited("heads: 8,", "heads: 8, bidirectional: true,", TEXT))
    assert both.where.endswith(":3: model.bidirectional")
    assert both.must == "must be false for every network that carries its state from segment to segment"
    assert "carry_state: false" in both.remedy
    drawn = "search.bidirectional={choice: [true, false]}"
    assert "search.bidirectional" in refused(tmp_path, TEXT, overrides=[drawn, "published="]).where
    one = "model.layers={rotrnn: {bidirectional: true}}"
    assert "model.layers.rotrnn" in refused(tmp_path, TEXT, overrides=[one]).where
    loaded(tmp_path, TEXT, overrides=["model.bidirectional=true", "training.carry_state=false"])
    other = refused(tmp_path, VALID, overrides=["training.carry_state=true"])
    assert other.must == "is not available for listops, because its examples are not consecutive segments"
    loaded(tmp_path, overrides=["training.carry_state=false"])


def test_only_an_optimizer_with_a_decay_is_given_one(tmp_path: Path) -> None:
    """The default decay is refused too: it would be recorded, and not be there."""
    error = refused(tmp_path, VALID, overrides=["training.optimizer=adamax"])
    assert error.where.endswith(":4: training.weight_decay")
    assert error.must == "must be 0 with the optimizer adamax, which does not support it"
    assert error.got == "0.01"
    assert "adamaxw" in error.remedy
    plain = loaded(tmp_path, overrides=["training.optimizer=adamax", "training.weight_decay=0"])
    assert plain.settings(plain.published_params() or {}, 0).training.optimizer == "adamax"
    searched = ["published=", "search.weight_decay={uniform: [0, 0.1]}", "training.weight_decay=0"]
    both = [*searched, "search.optimizer={choice: [adamw, adamax]}"]
    assert refused(tmp_path, VALID, overrides=both).got == "[0, 0.1]"
    only = "search.weight_decay={uniform: [0, 0.1], when: {optimizer: adamw}}"
    sweep = loaded(tmp_path, overrides=[*both, only])
    assert "weight_decay" not in sweep.active({"optimizer": "adamax"})


def test_clip_and_schedule_are_searched(tmp_path: Path) -> None:
    """The size of a clip is free: every value of it shares a program."""
    added = ["published=", "search.clip={log_uniform: [0.1, 10]}", "search.schedule={choice: [linear]}"]
    sweep = loaded(tmp_path, overrides=added)
    draw = sweep.largest()
    settings = sweep.settings(draw, 0)
    assert (settings.training.clip, settings.training.schedule) == (10, "linear")
    assert sweep.settings({**draw, "clip": 0.5}, 0).static() == settings.static()
    assert "above 0" in refused(tmp_path, VALID, overrides=["training.clip=0"]).must


def test_null_is_a_value_of_what_can_be_left_out(tmp_path: Path) -> None:
    """A trial without a clip has another program, so that no scheduler changes a clip that may be null."""
    added = ["published=", "search.clip={choice: [null, 0.5, 1]}"]
    sweep = loaded(tmp_path, overrides=added)
    draw = sweep.largest()
    clips = [sweep.settings({**draw, "clip": clip}, 0) for clip in sweep.search["clip"].choices]
    assert [settings.training.clip for settings in clips] == [None, 0.5, 1.0]
    assert clips[0].static() != clips[1].static() == clips[2].static()
    assert several_programs(sweep)
    population = ["sampler=", "scheduler={pbt: {mutations: [clip]}}"]
    assert "can change during training" in refused(tmp_path, VALID, overrides=[*added, *population]).must
    for name in ("weight_decay", "learning_rate"):
        error = refused(tmp_path, VALID, overrides=["published=", f"search.{name}={{choice: [null, 0.5]}}"])
        assert error.got == "null"
    labelled = refused(
        tmp_path, VALID, overrides=["published=", "search.dropout={choice: {none: 0, some: 0.1}}"]
    )
    assert "must have no labels" in labelled.must


def test_groups_of_s5s_program_are_for_the_layers_that_it_names(tmp_path: Path) -> None:
    """As a setting and as a searched choice; neither is part of the identity of a file without them."""
    plain, grouped = loaded(tmp_path), loaded(tmp_path, overrides=["training.groups=standard"])
    assert grouped.network_settings(grouped.largest(), 0).training.groups == "standard"
    assert plain.digest != grouped.digest
    assert plain.digest == loaded(tmp_path, overrides=["training.groups=layer"]).digest
    others = ["model={layer: s4d, depth: 2, d_model: 32, d_state: 64}", "published="]
    others += ["training.learning_rate=1e-3", "training.recurrent_learning_rate=1e-3"]
    others += ["search={seed: {choice: [0, 1]}}"]
    for added in ("training.groups=standard", "search.groups={choice: [layer, standard]}"):
        error = refused(tmp_path, VALID, overrides=[*others, added])
        assert "only for rotrnn, lru, s5" in error.must
        assert "groups" in str(error)


def test_label_smoothing_is_searched_where_targets_are_classes(tmp_path: Path) -> None:
    """Its size is free; of a file without it, identity and documents are those of before."""
    added = ["published=", "search.label_smoothing={uniform: [0, 0.3]}"]
    sweep = loaded(tmp_path, overrides=added)
    draw = sweep.largest()
    settings = sweep.settings(draw, 0)
    assert settings.training.label_smoothing == 0.3
    assert sweep.settings({**draw, "label_smoothing": 0.1}, 0).static() == settings.static()
    assert "label_smoothing" not in loaded(tmp_path).document()["training"]
    assert "below 1" in refused(tmp_path, VALID, overrides=["training.label_smoothing=1"]).must
    for overrides in (["training.label_smoothing=0.1"], added):
        error = refused(tmp_path, VALID, overrides=["task=adding", "data=", "objective=", *overrides])
        assert "label_smoothing" in str(error)
        assert "targets are not classes" in error.must


def test_a_plateau_is_another_program_and_another_sweep(tmp_path: Path) -> None:
    """Its settings matter only under the schedule `plateau`; the losses are averaged over an interval."""
    plateau = ["training.schedule=plateau", "training.plateau_patience=3"]
    sweep = loaded(tmp_path, overrides=plateau)
    settings = sweep.settings(sweep.largest(), 0)
    assert (settings.training.plateau_factor, settings.training.plateau_patience) == (0.5, 3)
    assert sweep.digest != loaded(tmp_path, overrides=plateau[:1]).digest
    cosine = loaded(tmp_path)
    every = [s.settings(s.largest(), 0) for s in (cosine, loaded(tmp_path, overrides=plateau[1:]))]
    assert every[0].static() == every[1].static() != settings.static()
    longer = replace(settings, training=replace(settings.training, interval=7))
    assert longer.static() != settings.static()
    assert "below 1" in refused(tmp_path, VALID, overrides=["training.plateau_factor=1"]).must


def test_seeds_differ_and_repeat(tmp_path: Path) -> None:
    """Each trial and each confirmation has its own seed, the same in every process."""
    sweep = loaded(tmp_path)
    seeds = [sweep.trial_seed(number, {}) for number in range(100)] + [
        sweep.confirmation_seed(k) for k in range(100)
    ]
    assert len(set(seeds)) == 200
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert seeds[0] == loaded(tmp_path).trial_seed(0, {})
    assert seeds[0] != loaded(tmp_path, overrides=["sampler.tpe.seed=4"]).trial_seed(0, {})


def test_a_searched_seed_is_the_trials_seed(tmp_path: Path) -> None:
    """A seed can be searched; a confirmation still gets a fresh one."""
    sweep = loaded(tmp_path, overrides=["published=", "search.seed={int: [0, 4]}"])
    params = {name: distribution.ends()[0] for name, distribution in sweep.search.items()} | {"seed": 3}
    assert sweep.trial_seed(17, params) == 3
    assert sweep.settings(params, sweep.trial_seed(17, params)).seed == 3
    fresh = sweep.confirmation_seed(1)
    assert sweep.settings(params, fresh).seed == fresh


def test_budget_can_be_replaced(tmp_path: Path) -> None:
    """A sweep keeps its id when its budget changes."""
    sweep = loaded(tmp_path)
    more = replace(sweep, budget=sweep.budget.model_copy(update={"trials": 128}))
    assert (more.budget.trials, more.id) == (128, sweep.id)


def test_no_objective_means_the_metric_of_the_task(tmp_path: Path) -> None:
    """A file may omit objective, sampler and scheduler."""
    text = edited("objective: {maximize: val/accuracy}\n", "")
    text = edited("sampler: {tpe: {seed: 3}}\n", "", text)
    text = edited("scheduler: {asha: {reduction: 4, grace: 0.1}}\n", "", text)
    sweep = loaded(tmp_path, text)
    assert (sweep.metric, sweep.direction) == ("val/accuracy", "maximize")
    assert (sweep.sampler.name, sweep.sampler.seed, sweep.scheduler.name) == ("tpe", 0, "asha")


def test_several_objectives_are_led_by_the_score(tmp_path: Path) -> None:
    """The validation score decides which trial is best, at whatever position the file names it."""
    text = edited("{maximize: val/accuracy}", "{minimize: [seconds/train, val/loss], maximize: val/accuracy}")
    text = edited("scheduler: {asha: {reduction: 4, grace: 0.1}}", "scheduler: none", text)
    sweep = loaded(tmp_path, text)
    assert [goal.metric for goal in sweep.objectives] == ["val/accuracy", "seconds/train", "val/loss"]
    assert sweep.objective.direction == "maximize"


@pytest.mark.parametrize("of", ["best", "last", "mean of last 5"])
def test_the_file_says_which_reports_are_the_value(tmp_path: Path, of: str) -> None:
    """The default does not change the identity, as before there was a choice."""
    sweep = loaded(tmp_path, edited("{maximize: val/accuracy}", f"{{maximize: val/accuracy, of: {of}}}"))
    assert sweep.reports == of
    assert from_document(sweep.document(), sweep.source_text).reports == of
    assert (sweep.id == loaded(tmp_path, VALID).id) == (of == "best")


def test_other_words_are_no_value_of_a_trial(tmp_path: Path) -> None:
    text = edited("{maximize: val/accuracy}", "{maximize: val/accuracy, of: mean of last 0}")
    error = refused(tmp_path, text)
    assert error.must == "must be best, last, or mean of last N"
    goals = "{maximize: val/accuracy, minimize: val/loss, of: mean of last 3}"
    text = edited("scheduler: {asha: {reduction: 4, grace: 0.1}}", "scheduler: none")
    error = refused(tmp_path, edited("{maximize: val/accuracy}", goals, text))
    assert error.where.endswith(" objective.of")


def test_files_of_several_encodings_are_one_sweep(tmp_path: Path) -> None:
    """A byte order mark and CRLF change only the recorded text."""
    windows = b"\xef\xbb\xbf" + VALID.replace("\n", "\r\n").encode()
    from_windows = loaded(tmp_path, windows.decode("utf-8"))
    assert from_windows.id == loaded(tmp_path).id


def test_layers_can_be_compared_in_one_sweep(tmp_path: Path) -> None:
    """Each layer gets only its own options, ranges and hyperparameters."""
    head, _, _ = VALID.partition("search:")
    text = edited("heads: 8,", "heads: 8, r_init: [0.2, 0.9],", head) + (
        "search:\n"
        "  layer: {choice: [rotrnn, lru]}\n"
        "  heads: {choice: [4, 16], when: {layer: rotrnn}}\n"
        "  r_init.max: {uniform: [0.95, 0.99], when: {layer: lru}}\n"
        "  learning_rate: {log_uniform: [1e-4, 1e-2]}\n"
        "  recurrent_learning_rate: {log_uniform: [1e-4, 1e-2]}\n"
        "budget: {trials: 8}\n"
    )
    sweep = loaded(tmp_path, text)
    rates = {"learning_rate": 1e-3, "recurrent_learning_rate": 1e-3}
    rotrnn = sweep.settings({"layer": "rotrnn", "heads": 16, **rates}, 0).model
    assert (rotrnn.layer, rotrnn.options["heads"], set(rotrnn.ranges)) == (
        "rotrnn",
        16,
        {"gamma_init", "theta_init"},
    )
    lru = sweep.settings({"layer": "lru", "r_init.max": 0.97, **rates}, 0).model
    assert (lru.layer, lru.ranges["r_init"], "heads" in lru.options) == ("lru", (0.2, 0.97), False)
    error = refused(tmp_path, edited(", when: {layer: lru}", "", text))
    assert error.where.endswith(": search.r_init.max")
    assert "with the layer rotrnn" in error.must
    assert "every draw" in refused(tmp_path, edited("[0.95, 0.99]", "[0.1, 0.99]", text)).must
    assert "divisible" in refused(tmp_path, edited("[4, 16]", "[4, 12]", text)).must


def test_a_value_of_a_shared_key_must_suit_every_layer(tmp_path: Path) -> None:
    """`algorithm: convolution` is valid for S4D, but not for LRU."""
    head = edited("heads: 8", "algorithm: convolution", VALID.partition("search:")[0])
    rest = (
        "  learning_rate: {choice: [1e-3]}\n  recurrent_learning_rate: {choice: [1e-3]}\nbudget: {trials: 8}"
    )
    text = f"{head}search:\n  layer: {{choice: [s4d, lru]}}\n{rest}"
    assert "must be one of" in refused(tmp_path, text).must
    assert loaded(tmp_path, edited("[s4d, lru]", "[s4d]", text)).model.extras == {"algorithm": "convolution"}
    assert refused(tmp_path, edited("{choice: [s4d, lru]}", "{int: [1, 2]}", text)).got == "`int`"


def test_slots_share_a_gpu(tmp_path: Path) -> None:
    """`gpu: 1, slots: 4` means `gpu: 1/4`."""
    sweep = loaded(tmp_path, overrides=["resources={gpu: 1, slots: 4}"])
    assert sweep.resources.slots == 4
    shared = sweep.resources.shared_by(4)
    assert (shared.gpu, shared.slots) == (0.25, None)


def test_the_largest_trial_can_be_built(tmp_path: Path) -> None:
    """It has the upper end of every range, without hyperparameters whose condition does not hold."""
    sweep = loaded(tmp_path, overrides=["search.depth={int: [1, 3]}", "published="])
    assert sweep.largest()["gamma_init.min"] == 0.9
    assert sweep.settings(sweep.largest(), seed=0).model.depth == 3


def test_the_largest_trial_may_have_some_hyperparameters_at_their_lower_ends(tmp_path: Path) -> None:
    """A rate changes no size, and training may diverge at its upper end."""
    sweep = loaded(tmp_path, overrides=["published=", "search.clip={log_uniform: [0.1, 10]}"])
    highest, lowest = sweep.largest(), sweep.largest(lowest=["clip"])
    assert (highest["clip"], lowest["clip"]) == (10, 0.1)
    assert {**lowest, "clip": 10} == highest
