"""Files with a function, a command or a program: what they mean, and what is refused when they are read."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from orchestrator.config import from_document, load
from orchestrator.config.sweep_config import SweepConfig, identity
from orchestrator.errors import BadInput
from orchestrator.scripts.script_process import AttemptFolder, command_of, environment_of, metrics_of
from trainables.trial import ProgramSettings, ScriptSettings, settings_from

FILE = """
trainable: {{{trainable}}}
search:
  learning_rate: {{log_uniform: [1e-4, 1e-1]}}
  optimizer.kind: {{choice: [sgd, adam]}}
  momentum: {{uniform: [0.5, 0.9], when: {{optimizer.kind: sgd}}}}
training: {{steps: 100, interval: 10}}
objective: {{minimize: val/loss}}
budget: {{trials: 4}}
{more}
"""
FUNCTION, COMMAND, PROGRAM = (
    "function: train.py:train",
    'command: [python, x.py, "{seed}"]',
    'program: "m.py:Net"',
)
CLOCK = "training: {steps: 100, interval: 10}\nobjective: {minimize: val/loss}\nbudget: {trials: 4}"
NET = "class Net(Linen):\n    free = ('learning_rate', 'momentum')\n"


def read(folder: Path, trainable: str = FUNCTION, more: str = "", *overrides: str) -> SweepConfig:
    (folder / "m.py").write_text(NET)
    file = folder / "digits.yaml"
    file.write_text(FILE.format(trainable=trainable, more=more))
    return load(file, profile=None, overrides=overrides, gpus=1)


def test_any_name_can_be_searched_and_conditions_hold(tmp_path: Path) -> None:
    sweep = read(tmp_path)
    params = {"learning_rate": 0.01, "optimizer.kind": "sgd", "momentum": 0.7}
    settings = sweep.settings(params, seed=3)
    assert isinstance(settings, ScriptSettings)
    assert (settings.function, settings.folder, settings.params) == ("train.py:train", str(tmp_path), params)
    assert (settings.training.steps, settings.training.interval, settings.seed) == (100, 10, 3)
    assert sweep.active({"learning_rate": 0.01, "optimizer.kind": "adam"}) == {
        "learning_rate",
        "optimizer.kind",
    }
    assert (sweep.task, sweep.subject) == ("train.py:train", "the function train.py:train")


ANYTHING = """fixed: {layers: [64, null], name: a b}"""
CHOICES = """
search:
  size: {choice: [8, 16, 0.5, null, true, [1, a], {a: 1}]}
  stack: {choice: {small: [64], large: [64, 64]}, ordered: true}
"""


def test_values_of_any_type_reach_a_trial(tmp_path: Path) -> None:
    """A list, a mapping, null and numbers of both kinds survive the record of the sweep and of the trial."""
    file = tmp_path / "any.yaml"
    words = "trainable: {command: [x, '{size}', '{stack}', '{layers}', '{name}', '{seed}']}"
    file.write_text("\n".join([words, CHOICES, CLOCK, ANYTHING]))
    read_from_file = load(file, profile=None, gpus=1)
    sweep = from_document(json.loads(json.dumps(read_from_file.document(), sort_keys=True)))
    assert sweep.document() == read_from_file.document()
    assert sweep.digest == read_from_file.digest
    texts = ["8", "16", "0.5", "null", "True", '[1, "a"]', '{"a": 1}']
    for value, text in zip(sweep.search["size"].choices, texts, strict=True):
        params = json.loads(json.dumps({"size": value, "stack": "large"}))
        settings = sweep.settings(params, seed=1)
        assert isinstance(settings, ScriptSettings)
        assert settings.params == {"layers": [64, None], "name": "a b", "size": value, "stack": [64, 64]}
        assert type(settings.params["size"]) is type(value)
        place = AttemptFolder(tmp_path)
        assert command_of(settings, place, 0) == ["x", text, "[64, 64]", "[64, null]", "a b", "1"]
        assert environment_of(settings, place, 0)["SWEEP_PARAM_SIZE"] == text


def test_lists_are_static_choices_of_a_program(tmp_path: Path) -> None:
    """1, true and the word 1 are three programs."""
    (tmp_path / "m.py").write_text(NET)
    file = tmp_path / "any.yaml"
    search = "search: {size: {choice: [1, true, '1', [1, 2], null]}, learning_rate: {uniform: [0, 1]}}"
    file.write_text("\n".join(["trainable: {program: 'm.py:Net'}", search, CLOCK]))
    sweep = load(file, profile=None, gpus=1)
    every = [{"size": size, "learning_rate": 0.5} for size in sweep.search["size"].choices]
    assert len({sweep.settings(params, seed=0).static() for params in every}) == len(every)


@pytest.mark.parametrize(
    ("more", "must"),
    [
        ("fixed: {learning_rate: 1}", "fixed.learning_rate must not be searched too"),
        ("fixed: {seed: 1}", "fixed.seed must not be a name that every trial has"),
        ("fixed: {Learning_Rate: 1}", "same environment variable as learning_rate"),
        ("search: {seed: {choice: [a, b]}, x: {uniform: [0, 1]}}", "search.seed must be numbers"),
    ],
)
def test_wrong_fixed_values(tmp_path: Path, more: str, must: str) -> None:
    file = tmp_path / "any.yaml"
    search = "" if more.startswith("search") else "search: {learning_rate: {uniform: [0, 1]}}"
    file.write_text("\n".join(["trainable: {function: 'train.py:train'}", search, CLOCK, more]))
    with pytest.raises(BadInput, match=must):
        load(file, profile=None, gpus=1)


def test_free_hyperparameters_of_a_program_are_numbers(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(NET)
    file = tmp_path / "any.yaml"
    search = "search: {learning_rate: {choice: [0.1, null]}}"
    file.write_text("\n".join(["trainable: {program: 'm.py:Net'}", search, CLOCK]))
    with pytest.raises(BadInput, match="must be numbers, because the program"):
        load(file, profile=None, gpus=1)


def test_limits_reach_the_settings(tmp_path: Path) -> None:
    sweep = read(tmp_path, more="resources: {cpu: 3, memory: 2, minutes: 30}")
    settings = sweep.settings(sweep.largest(), seed=0)
    assert isinstance(settings, ScriptSettings)
    assert (settings.cpu, settings.memory, settings.minutes) == (3, 2 << 30, 30)


def test_a_whole_number_is_a_word_of_a_command(tmp_path: Path) -> None:
    sweep = read(tmp_path, "command: [python, x.py, --epochs, 20]")
    settings = sweep.settings(sweep.largest(), seed=0)
    assert isinstance(settings, ScriptSettings)
    assert settings.command == ("python", "x.py", "--epochs", "20")


def test_a_placeholder_may_have_a_format(tmp_path: Path) -> None:
    sweep = read(tmp_path, 'command: [a, "{learning_rate:.3e}", "{optimizer.kind:>8}", "{seed:d}"]')
    assert sweep.trainable is not None


def test_a_placeholder_is_the_hyperparameter_of_exactly_this_name(tmp_path: Path) -> None:
    names = "search.a.b.real={choice: [z]}", "search.a.b={choice: [y]}", "search.a={choice: [x]}"
    sweep = read(tmp_path, 'command: [run, "{a} {a.b} {a.b.real} {{a}}"]', "", *names)
    settings = sweep.settings(sweep.largest(), seed=3)
    assert isinstance(settings, ScriptSettings)
    assert command_of(settings, AttemptFolder(tmp_path), 0) == ["run", "x y z {a}"]


@pytest.mark.parametrize(
    "metrics",
    [
        {"step": r"epoch (\d+)", "val/loss": "loss=([0-9]{1,3})"},
        {"file": "{folder}/{seed}/m.csv", "step": "epoch"},
        {"tensorboard": "{folder}/{?momentum: x}runs"},
        {"source": "mlflow"},
    ],
)
def test_where_reports_come_from_reaches_the_settings_and_the_record(
    tmp_path: Path, metrics: dict[str, str]
) -> None:
    sweep = read(tmp_path, f"{COMMAND}, metrics: {json.dumps(metrics)}")
    assert from_document(sweep.document(), "").document() == sweep.document()
    settings = sweep.settings({"learning_rate": 0.01, "optimizer.kind": "adam"}, seed=3)
    assert isinstance(settings, ScriptSettings)
    assert settings.metrics == metrics
    assert settings_from(json.loads(json.dumps(asdict(settings)))) == settings
    filled = metrics_of(settings, AttemptFolder(tmp_path), 0)
    texts = {"file": f"{tmp_path}/scratch/3/m.csv", "tensorboard": f"{tmp_path}/scratch/runs"}
    assert filled == {name: texts.get(name, text) for name, text in metrics.items()}


def test_words_of_a_hyperparameter_with_a_condition_are_only_for_trials_that_have_it(tmp_path: Path) -> None:
    words = '"{?momentum: --momentum {momentum} --kind={optimizer.kind}}", "{args}", "--of={steps}"'
    sweep = read(tmp_path, f"command: [run, {words}]")

    def command(**params: Any) -> list[str]:
        drawn = {"learning_rate": 0.01, **params}
        settings = sweep.settings(drawn, seed=3)
        assert isinstance(settings, ScriptSettings)
        return command_of(settings, AttemptFolder(tmp_path), 0)

    sgd, adam = {"optimizer.kind": "sgd", "momentum": 0.7}, {"optimizer.kind": "adam"}
    everything = ["--learning_rate=0.01", "--momentum=0.7", "--optimizer.kind=sgd", "--of=100"]
    assert command(**sgd) == ["run", "--momentum", "0.7", "--kind=sgd", *everything]
    assert command(**adam) == ["run", "--learning_rate=0.01", "--optimizer.kind=adam", "--of=100"]


@pytest.mark.parametrize("words", [2, 8_000])
def test_a_word_may_have_8000_characters(tmp_path: Path, words: int) -> None:
    sweep = read(tmp_path, f"command: [run, {'x' * words}]")
    assert sweep.trainable is not None
    assert sweep.trainable.target == ("run", "x" * words)


@pytest.mark.parametrize("shell", [True, False])
@pytest.mark.parametrize(
    ("written", "value", "text"),
    [
        ('"1e3"', "1e3", "1e3"),
        ('"2024-01-01"', "2024-01-01", "2024-01-01"),
        ("2024-01-01", "2024-01-01", "2024-01-01"),
        ("on", "on", "on"),
        ('"null"', "null", "null"),
        ("0x10", "0x10", "0x10"),
        ('"1_000"', "1_000", "1_000"),
        ('"8"', "8", "8"),
        ('""', "", ""),
        ("8", 8, "8"),
        ("8.0", 8.0, "8.0"),
        ("9007199254740993", 2**53 + 1, "9007199254740993"),
        ("-9223372036854775808", -(2**63), "-9223372036854775808"),
        ("0.30000000000000004", 0.1 + 0.2, "0.30000000000000004"),
        ("5e-324", 5e-324, "5e-324"),
        ("-0.0", -0.0, "-0.0"),
        ("true", True, "True"),
    ],
)
def test_a_value_keeps_its_type_and_digits(
    tmp_path: Path, written: str, value: object, text: str, shell: bool
) -> None:
    """In the record of a sweep, in the file of a trial's hyperparameters, in a variable and in a command."""
    word = "run {x}" if shell else "{x}"
    command = f'command: ["{word}"]{", shell: true" * shell}'
    sweep = from_document(
        json.loads(json.dumps(read(tmp_path, command, "", f"search.x={{choice: [{written}]}}").document()))
    )
    settings = sweep.settings({**sweep.largest(), "x": sweep.search["x"].choices[0]}, seed=1)
    assert isinstance(settings, ScriptSettings)
    stored = json.loads(json.dumps(dict(settings.params)))["x"]
    assert repr(stored) == repr(value)
    place = AttemptFolder(tmp_path / "attempt")
    words = command_of(settings, place, 0)
    assert (shlex.split(words[-1])[1:] if shell else words) == [text]
    assert environment_of(settings, place, 0)["SWEEP_PARAM_X"] == text


def test_a_command_is_as_long_as_a_system_takes(tmp_path: Path) -> None:
    words = ["torchrun", "--out", f"/{'long/' * 400}", f"{'x' * 131_000}{{seed}}"]
    sweep = read(tmp_path, f"command: {json.dumps(words)}")
    assert sweep.trainable is not None
    assert sweep.trainable.target == tuple(words)
    for longer in ("x" * 131_072, f"{'x' * 131_070}{{seed}}"):
        with pytest.raises(BadInput, match="at most 131"):
            read(tmp_path, f"command: {json.dumps(['a', longer])}")


def test_a_path_may_be_longer_than_a_name(tmp_path: Path) -> None:
    sweep = read(tmp_path, f"function: {'deep/' * 100}train.py:train")
    assert sweep.trainable is not None
    assert sweep.task.endswith("deep/train.py:train")
    assert len(sweep.task) <= 250, "as it is the name of an experiment of MLflow"


@pytest.mark.parametrize("shell", [True, False])
def test_a_command_may_have_several_lines(tmp_path: Path, shell: bool) -> None:
    text = "\n  command:\n  - |\n    export A=1\n    python3 train.py {seed}\n"
    file = tmp_path / "digits.yaml"
    file.write_text(FILE.format(trainable="", more="").replace("{}", text + "  shell: true\n" * shell))
    sweep = load(file, profile=None, gpus=0)
    assert sweep.trainable is not None
    assert sweep.trainable.target == ("export A=1\npython3 train.py {seed}\n",)
    assert from_document(sweep.document()).trainable == sweep.trainable
    assert sweep.trainable.name.isprintable()
    assert (sweep.trainable.name == "train.py") == shell
    file.write_text(file.read_text().replace("[sgd, adam]", '["sgd\\n", adam]'))
    with pytest.raises(BadInput, match="must be plain text"):
        load(file, profile=None, gpus=0)


def test_a_program_of_a_package_beside_the_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "nets" / "small").mkdir(parents=True)
    (tmp_path / "nets" / "small" / "net.py").write_text(NET)
    sweep = read(tmp_path, "program: nets.small.net:Net")
    assert sweep.trainable is not None
    assert sweep.trainable.free == ("learning_rate", "momentum")


def test_a_program_is_read_without_importing_it(tmp_path: Path) -> None:
    """The class derives from a name that the file does not even import."""
    settings = read(tmp_path, PROGRAM).settings(
        {"learning_rate": 0.1, "optimizer.kind": "sgd", "momentum": 0.6}, seed=1
    )
    assert isinstance(settings, ProgramSettings)
    assert settings.static_params() == {"optimizer.kind": "sgd"}
    assert settings.free == ("learning_rate", "momentum")


@pytest.mark.parametrize("trainable", [FUNCTION, COMMAND, PROGRAM])
def test_a_searched_seed_is_the_seed_of_the_trial(tmp_path: Path, trainable: str) -> None:
    """A confirmation has the hyperparameters of the best trial, and sees its own seed among them."""
    sweep = read(tmp_path, trainable, "", "search.seed={int: [0, 4]}")
    params = {**sweep.largest(), "seed": 3}
    fresh = sweep.confirmation_seed(1)
    for seed in (sweep.trial_seed(17, params), fresh):
        settings = sweep.settings(params, seed)
        assert isinstance(settings, ScriptSettings | ProgramSettings)
        assert (settings.seed, settings.params) == (seed, {**params, "seed": seed})
    assert params["seed"] == 3 != fresh


def test_a_searched_seed_that_is_no_whole_number_stays_as_it_was_drawn(tmp_path: Path) -> None:
    sweep = read(tmp_path, FUNCTION, "", "search.seed={uniform: [0, 1]}")
    params = {**sweep.largest(), "seed": 0.75}
    settings = sweep.settings(params, sweep.trial_seed(17, params))
    assert isinstance(settings, ScriptSettings)
    assert (settings.seed, settings.params) == (0, params)


@pytest.mark.parametrize(
    "trainable", [FUNCTION, f"{FUNCTION}, mlflow: true, mutable: [momentum]", COMMAND, PROGRAM]
)
def test_a_record_is_read_back(tmp_path: Path, trainable: str) -> None:
    sweep = read(tmp_path, trainable)
    again = from_document(sweep.document())
    assert again.document() == sweep.document()
    assert again.id == sweep.id
    settings = sweep.settings(sweep.largest(), seed=0)
    assert settings_from(_plain(settings)) == settings


def _plain(settings: Any) -> Any:
    return json.loads(json.dumps(asdict(settings)))


def test_the_folder_is_no_part_of_the_identity(tmp_path: Path) -> None:
    document = read(tmp_path).document()
    moved = {**document, "trainable": {**document["trainable"], "folder": "/elsewhere"}}
    other = {**document, "trainable": {**document["trainable"], "function": "other.py:train"}}
    assert identity(moved) == identity(document) != identity(other)


def test_a_relative_folder_is_beside_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    sweep = read(tmp_path, f"{FUNCTION}, folder: code")
    assert sweep.trainable is not None
    assert sweep.trainable.folder == str(tmp_path / "code")


@pytest.mark.parametrize(
    ("trainable", "more", "where", "message"),
    [
        (f"{FUNCTION}, {PROGRAM}", "", "trainable", "exactly one of"),
        ("shell: true", "", "trainable", "exactly one of"),
        (f"{FUNCTION}, shell: true", "", "trainable.shell", "requires `command`"),
        (f"{PROGRAM}, mlflow: true", "", "trainable.mlflow", "a function or a command"),
        ("function: train", "", "trainable.function", "file.py:name"),
        ('command: [python, "{rate}"]', "", "trainable.command", "learning_rate"),
        ('command: [python, "{rate"]', "", "trainable.command", "{{ and }} stand for braces"),
        (
            "command: [a, '{\"lr\": {learning_rate}}']",
            "",
            "trainable.command",
            'Write {{"lr": {learning_rate}}}',
        ),
        (
            'command: [a, "{learning_rate.real}"]',
            "",
            "trainable.command",
            "must name a searched hyperparameter",
        ),
        ('command: [a, "{seed!r}"]', "", "trainable.command", "{{ and }} stand for braces"),
        ('command: [a, "{seed:{step}}"]', "", "trainable.command", "{{ and }} stand for braces"),
        ('command: [a, "{seed:{a.b[0]}}"]', "", "trainable.command", "{{ and }} stand for braces"),
        ('command: [a, "{seed[0]}"]', "", "trainable.command", "{{ and }} stand for braces"),
        ('command: [a, "{learning_rate:1000000000}"]', "", "trainable.command", "at most 3 digits"),
        ('command: [a, "{learning_rate:.1000000000f}"]', "", "trainable.command", "at most 3 digits"),
        (
            'command: [a, "{folder:d}"]',
            "",
            "trainable.command",
            "the format of a placeholder must suit its values",
        ),
        (
            'command: [a, "{step:.1s}"]',
            "",
            "trainable.command",
            "the format of a placeholder must suit its values",
        ),
        ('command: ["a `b {folder}`"], shell: true', "", "trainable.command", "$SWEEP_FOLDER"),
        (
            'command: ["a `b {learning_rate:9}`"], shell: true',
            "",
            "trainable.command",
            "$SWEEP_PARAM_LEARNING",
        ),
        ('command: ["a ${learning_rate}"], shell: true', "", "trainable.command", "${{learning_rate}}"),
        ('command: ["a ${HOME}"], shell: true', "", "trainable.command", "Write ${{HOME}}"),
        ('command: ["a\\0b"]', "", "trainable.command", "must be plain text"),
        ("command: [python, x.py, --rate, 1.0e-3]", "", "trainable.command", "in quotes"),
        ("command: [python, x.py, --fast, true]", "", "trainable.command", "in quotes"),
        ("command: [a, 'db://ada:pass@host/x']", "", "trainable.command", "must not contain credentials"),
        ("command: [a, b], shell: true", "", "trainable.command", "must be one string"),
        ('command: [a, "{momentum}"]', "", "trainable.command", "that every trial has"),
        ('command: [a, "{momentum}"]', "", "trainable.command", "{?momentum: ...}"),
        (f"{PROGRAM}, metrics: {{a: (b)}}", "", "trainable.metrics", "a function or a command"),
        (f"{FUNCTION}, metrics: {{val/loss: (b}}", "", "trainable.metrics.val/loss", "one group"),
        (f"{FUNCTION}, metrics: {{val/loss: b}}", "", "trainable.metrics.val/loss", "one group"),
        (f"{FUNCTION}, metrics: {{a: (b)}}", "", "trainable.metrics", "a pattern of the objective val/loss"),
        (f"{FUNCTION}, metrics: {{file: m.txt}}", "", "trainable.metrics.file", ".jsonl"),
        (f"{FUNCTION}, metrics: {{file: m.csv, a: (b)}}", "", "trainable.metrics.a", "only file and step"),
        (f"{FUNCTION}, metrics: {{tensorboard: '{{a}}'}}", "", "trainable.metrics.tensorboard", "must name"),
        (f"{FUNCTION}, metrics: {{source: wandb}}", "", "trainable.metrics.source", "must be mlflow"),
        (
            f"{FUNCTION}, mlflow: true, metrics: {{source: mlflow}}",
            "",
            "trainable.metrics.source",
            "cannot be combined with `mlflow: true`",
        ),
        (f"{FUNCTION}, metrics: {{file: '{{args}}'}}", "", "trainable.metrics.file", "must name"),
        ('command: [a, "{?seed: {momentum}}"]', "", "trainable.command", "that every trial has"),
        ('command: [a, "{?momentun: -m}"]', "", "trainable.command", "momentum"),
        ('command: [a, "--all={args}"]', "", "trainable.command", "a word of its own"),
        ('command: [a, "{?args: x}"]', "", "trainable.command", "a word of its own"),
        ('command: [a, "{?momentum: {args}}"]', "", "trainable.command", "must not be in"),
        ('command: ["a x{args}"], shell: true', "", "trainable.command", "a word of its own"),
        ("command: [\"a '{args}'\"], shell: true", "", "trainable.command", "a word of its own"),
        ('command: ["a {?momentum: \'}"], shell: true', "", "trainable.command", "must close the quotes"),
        (
            'command: [a, "{learning_rate:d}"]',
            "",
            "trainable.command",
            "the format of a placeholder must suit its values",
        ),
        ('program: "m.py:Nett"', "", "trainable.program", "Net"),
        ('program: "n.py:Net"', "", "trainable.program", "whose source can be read"),
        ("program: no_such_package.model:Net", "", "trainable.program", "whose source can be read"),
        (FUNCTION, "task: retrieval", "task", "cannot be combined with `trainable`"),
        (FUNCTION, "model: {layer: lru}", "model", "cannot be combined with `trainable`"),
        (FUNCTION, "resources: {gpu: 1.5}", "resources.gpu", "a whole number of GPUs, or a part 1/K of one"),
        (FUNCTION, "resources: {gpu: 0.3}", "resources.gpu", "0, 1 or 1/K of a GPU"),
        (PROGRAM, "resources: {gpu: 2}", "resources.gpu", "an engine trains on one GPU"),
        (PROGRAM, "resources: {nodes: 2}", "resources.nodes", "a function or a command"),
        (
            FUNCTION,
            "resources: {gpu: 1, slots: 4}",
            "resources.slots",
            "every trial of a function has its own process",
        ),
        (PROGRAM, "resources: {memory: 4}", "resources.memory", "a function or a command"),
        (PROGRAM, "scheduler: {pbt: {mutations: [optimizer.kind]}}", "mutations", "learning_rate"),
        (FUNCTION, "scheduler: {pbt: {mutations: [learning_rate]}}", "mutations", "trainable.mutable"),
        (f"{FUNCTION}, mutable: [rate]", "", "trainable.mutable", "learning_rate"),
        (f"{PROGRAM}, mutable: [learning_rate]", "", "trainable.mutable", "a function or a command"),
        (
            f"{FUNCTION}, mutable: [learning_rate]",
            "scheduler: {pbt: {mutations: [momentum]}}",
            "mutations",
            "learning_rate",
        ),
        (FUNCTION, "confirms: {seeds: 3}", "confirms", "confirm"),
    ],
)
def test_what_cannot_work_is_refused(
    tmp_path: Path, trainable: str, more: str, where: str, message: str
) -> None:
    with pytest.raises(BadInput) as caught:
        read(tmp_path, trainable, more)
    assert where in caught.value.where
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("objective: {minimize: val/loss}\n", "", "must name a metric"),
        ("interval: 10", "interval: 200", "at most training.steps"),
        ("interval: 10", "interval: 10, batch_size: 4", "batch_size"),
        ("interval: 10", "interval: 10, reproducible: bits", "requires a program"),
        ("  momentum:", "  OPTIMIZER_kind:", "has the same environment variable as optimizer.kind"),
        ("  momentum:", "  2nd momentum:", "must be a name"),
        ("budget: {trials: 4}", "", "budget"),
    ],
)
def test_other_sections_are_checked_too(tmp_path: Path, old: str, new: str, message: str) -> None:
    file = tmp_path / "digits.yaml"
    text = FILE.format(trainable=FUNCTION, more="")
    assert old in text
    file.write_text(text.replace(old, new))
    with pytest.raises(BadInput, match=message):
        load(file, profile=None, gpus=0)


@pytest.mark.parametrize("name", ["memory", "minutes"])
def test_a_network_has_no_limits(tmp_path: Path, name: str) -> None:
    file = tmp_path / "adding.yaml"
    file.write_text(
        "task: adding\nmodel: {layer: lru, depth: 1, d_model: 8, d_state: 8}\n"
        "training: {steps: 10, interval: 5, batch_size: 4, recurrent_learning_rate: 1e-3}\n"
        "search: {learning_rate: {log_uniform: [1e-4, 1e-2]}}\nbudget: {trials: 1}\n"
        f"resources: {{{name}: 1}}\n"
    )
    with pytest.raises(BadInput, match="requires a `trainable`"):
        load(file, profile=None, gpus=0)


def test_a_program_may_change_what_is_free_while_it_runs(tmp_path: Path) -> None:
    sweep = read(tmp_path, PROGRAM, "scheduler: {pbt: {mutations: [learning_rate]}}")
    assert sweep.scheduler.options["mutations"] == ["learning_rate"]


def test_what_decides_whether_others_are_drawn_cannot_be_changed(tmp_path: Path) -> None:
    """The trial would go on with the hyperparameters of another branch; what a ledger holds can be read."""
    mutable = f"{FUNCTION}, mutable: [learning_rate, optimizer.kind]"
    pbt = "scheduler: {pbt: {mutations: [learning_rate, MORE]}}"
    with pytest.raises(BadInput) as caught:
        read(tmp_path, mutable, pbt.replace("MORE", "optimizer.kind"))
    error = caught.value
    assert error.where.endswith("digits.yaml:10: scheduler.pbt.mutations")
    assert error.must == "must not include optimizer.kind: momentum is drawn only for some of its values"
    assert error.got == ""
    assert error.remedy == "Take optimizer.kind out of the mutations, or search momentum without `when:`."
    document = read(tmp_path, mutable, pbt.replace(", MORE", "")).document()
    document["scheduler"]["pbt"]["mutations"] = ["optimizer.kind"]
    assert from_document(document).scheduler.options["mutations"] == ["optimizer.kind"]


@pytest.mark.parametrize("first", ["minimize", "maximize"])
def test_the_objective_named_first_decides(tmp_path: Path, first: str) -> None:
    """Also of a document of the ledger, whose keys are sorted."""
    metrics = {"minimize": "val/loss", "maximize": "speed"}
    other = next(direction for direction in metrics if direction != first)
    goals = f"{first}: {metrics[first]}, {other}: {metrics[other]}"
    file = tmp_path / "digits.yaml"
    text = FILE.format(trainable=FUNCTION, more="scheduler: none")
    file.write_text(text.replace("minimize: val/loss", goals))
    sweep = load(file, profile=None, gpus=0)
    assert (sweep.direction, sweep.metric) == (first, metrics[first])
    stored = json.loads(json.dumps(sweep.document(), sort_keys=True))
    again = from_document(stored)
    assert again.objectives == sweep.objectives
    assert again.document() == sweep.document()
    assert again.digest == sweep.digest == identity(stored)
    earlier = {**stored, "objective": {"maximize": ["speed"], "minimize": ["val/loss"]}}
    assert from_document(earlier).metric == "speed", "as in the versions that recorded it"
    assert (stored == earlier) == (identity(earlier) == sweep.digest) == (first == "maximize")


def test_a_script_may_declare_what_may_change(tmp_path: Path) -> None:
    mutable, pbt = f"{FUNCTION}, mutable: [learning_rate]", "scheduler: {pbt: {mutations: [learning_rate]}}"
    assert read(tmp_path, mutable, pbt).scheduler.options["mutations"] == ["learning_rate"]


@pytest.mark.parametrize(
    ("trainable", "steps", "interval", "phrase"),
    [
        (FUNCTION, 12, 1, "asha, grace 3 of 12 steps (default)"),
        (COMMAND, 100, 10, "asha, grace 25 of 100 steps (default)"),
        (COMMAND, 4, 1, "asha, grace 1 of 4 steps (default)"),
        (FUNCTION, 1, 1, "none (default)"),
        (COMMAND, 30, 10, "none (default)"),
        (PROGRAM, 100, 10, "asha, grace 10 of 100 steps (default)"),
    ],
)
def test_the_default_scheduler_suits_what_trials_report(
    tmp_path: Path, trainable: str, steps: int, interval: int, phrase: str
) -> None:
    """Nothing stops a script that reports once, or by its first report of many."""
    clock = f"training.steps={steps}", f"training.interval={interval}"
    sweep = read(tmp_path, trainable, "", *clock)
    assert sweep.scheduler.phrase(sweep.training) == phrase
    again = from_document(sweep.document())
    assert (again.scheduler, again.id) == (sweep.scheduler, sweep.id)
    named = read(tmp_path, trainable, "scheduler: asha", *clock)
    assert named.scheduler.phrase(named.training).startswith("asha, grace ")
    assert not named.scheduler.phrase(named.training).endswith("(default)")


def test_several_objectives_have_no_scheduler_by_default(tmp_path: Path) -> None:
    sweep = read(tmp_path, FUNCTION, "", "objective.maximize=speed")
    assert sweep.scheduler.phrase(sweep.training) == "none (default)"
