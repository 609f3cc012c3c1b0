"""Every task of the registry keeps the contract of tasks, and a task that breaks it is reported."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.published import MADE, SMALL
from trainables.data.cache import Writer
from trainables.data.contract import violations
from trainables.data.task import Encoding, Progress, Signature, Source, Task, TaskData, completed
from trainables.errors import Refusal
from trainables.settings import Option
from trainables.tasks import TASKS


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a data folder with all files that tasks read."""
    root = tmp_path_factory.mktemp("data")
    for make in dict.fromkeys(MADE.values()):
        make(root)
    return root


def test_every_task_of_this_package_has_small_options() -> None:
    own_names = {name for name, task in TASKS.items() if type(task).__module__.startswith("trainables.")}
    assert SMALL.keys() == own_names


def test_using_a_task_imports_no_jax() -> None:
    """A search-space file is validated in milliseconds: its task does not import JAX."""
    code = (
        "import sys\n"
        "from trainables.tasks import TASKS\n"
        "for name, task in TASKS.items(): assert task.name == name\n"
        "print([module for module in sys.modules if module.split('.')[0] in {'jax', 'flax', 'optax'}])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "[]\n", done.stderr


@pytest.mark.parametrize("name", TASKS)
def test_the_contract(name: str, folder: Path) -> None:
    assert violations(TASKS[name], SMALL.get(name, {}), folder) == []
    assert TASKS[name].name == name


@pytest.mark.parametrize("name", SMALL)
def test_the_outline_is_the_signature_of_the_data(name: str, folder: Path) -> None:
    """It differs only in what the data decide: the vocabulary, the number of words, and the scale."""
    task = TASKS[name]
    options = completed(name, task.options, SMALL[name])
    outline = task.outline(options)
    read = task.load(options, folder).signature
    assert outline is not None
    decided = {"vocabulary": read.vocabulary, "scale": read.scale, "classes": read.classes}
    if name == "retrieval":  # without the published pairs, passages of Python's documentation are read
        decided["length"] = read.length
    assert replace(outline, **decided) == read
    assert (outline.vocabulary is None) == (read.vocabulary is None)


@pytest.mark.parametrize("name", TASKS)
def test_progress_is_reported_and_a_cached_load_is_silent(name: str, tmp_path: Path) -> None:
    if name in MADE:
        MADE[name](tmp_path)
    calls: list[tuple[str, int, int]] = []
    TASKS[name].load(SMALL.get(name, {}), tmp_path, lambda *call: calls.append(call))
    assert all(what and 0 <= done <= total for what, done, total in calls)
    calls.clear()
    TASKS[name].load(SMALL.get(name, {}), tmp_path, lambda *call: calls.append(call))
    assert calls == []


@pytest.mark.parametrize("name", TASKS)
def test_the_test_split_is_read_when_it_is_used(name: str, folder: Path) -> None:
    """A damaged test split is noticed when it is read, and is then built again."""
    TASKS[name].load(SMALL.get(name, {}), folder)
    entries = list((folder / ".cache").glob(f"{name}-*/test.inputs.npy"))
    contents = [path.read_bytes() for path in entries]
    for path in entries:
        path.write_bytes(b"")
    data = TASKS[name].load(SMALL.get(name, {}), folder)
    assert len(data.train)
    assert all(path.read_bytes() == b"" for path in entries)
    assert len(data.test) == len(data.test.inputs)
    assert [path.read_bytes() for path in entries] == contents


@pytest.mark.parametrize("name", TASKS)
def test_options_out_of_bounds_are_refused(name: str, folder: Path) -> None:
    for option, declared in TASKS[name].options.items():
        bad: list[Any] = [None]
        if declared.choices:
            bad.append("no such choice" if isinstance(declared.choices[0], str) else -1)
        if declared.at_least is not None:
            bad.append(type(declared.default)(declared.at_least - 1))
        for value in bad:
            with pytest.raises(Refusal, match=option):
                TASKS[name].check({option: value}, folder)


@pytest.mark.parametrize("name", MADE)
def test_missing_data_is_refused_with_what_to_fetch(name: str, tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="data fetch") as refused:
        TASKS[name].check({}, tmp_path)
    assert str(tmp_path) in str(refused.value)
    assert list(tmp_path.iterdir()) == []


class Parity(Task):
    """A complete task of another package: is the number of ones odd?"""

    name = "parity"
    title = "Parity of a row of bits"
    options = {"examples": Option(50, "Training rows.", at_least=1)}  # noqa: RUF012 (as a user would write it)

    def find(self, options: Mapping[str, Any], folder: Path) -> Source:
        return Source("random bits", comparable=False, note="made up")

    def encode(self, options: Mapping[str, Any], source: Source, out: Writer, progress: Progress) -> Encoding:
        rows = np.unpackbits(np.arange(options["examples"] + 30, dtype=np.uint8)[:, None], axis=1)
        rows = np.random.default_rng(0).permutation(rows)
        for split, part in zip(
            ("train", "validation", "test"), np.split(rows, [len(rows) - 30, -10]), strict=True
        ):
            out.put(f"{split}.inputs", part + np.uint8(1))
            out.put(f"{split}.lengths", np.full(len(part), 8, np.int32))
            out.put(f"{split}.targets", (part.sum(axis=1) % 2).astype(np.int32))
        return Encoding(Signature("class", 2, 3, 1, 8))


def test_a_task_of_another_package_passes(tmp_path: Path) -> None:
    assert violations(Parity(), {"examples": 20}, tmp_path) == []


def broken(**arrays: Any) -> type[Parity]:
    """Return the task with some arrays replaced by a function of the right ones."""

    class Broken(Parity):
        def encode(
            self, options: Mapping[str, Any], source: Source, out: Writer, progress: Progress
        ) -> Encoding:
            put = out.put

            def changed(name: str, values: np.ndarray) -> None:
                put(name, arrays.get(name.replace(".", "_"), lambda right: right)(values))

            out.put = changed  # type: ignore[method-assign]
            return super().encode(options, source, out, progress)

    return Broken


@pytest.mark.parametrize(
    ("task", "must"),
    [
        (broken(train_inputs=lambda x: x[:, :-1]), "train: inputs must be"),
        (broken(train_inputs=lambda x: x.astype(np.int64)), "train: inputs must be"),
        (broken(test_lengths=lambda x: x - 1), "test: inputs beyond the true length must be zero"),
        (broken(test_lengths=lambda x: x + 1), "test: lengths must be 1 to 8"),
        (broken(validation_targets=lambda x: x + 1), "validation: classes must be 0 to 1"),
        (broken(test_targets=lambda x: x.astype(np.int64)), "test: targets must be"),
        (broken(train_inputs=lambda x: x + 1), "train: tokens must be under 3"),
        (broken(validation_inputs=lambda x: x * 0 + 1, test_inputs=lambda x: x * 0 + 1), "share 1 examples"),
        (broken(validation_targets=np.sort), "validation must be mixed"),
        (broken(train_inputs=lambda x: np.random.default_rng().permutation(x)), "must give the same content"),
    ],
)
def test_the_contract_can_fail(task: type[Task], must: str, tmp_path: Path) -> None:
    assert any(must in violation for violation in violations(task(), {}, tmp_path))


@pytest.mark.parametrize("name", TASKS)
def test_the_signature_of_encoded_data_is_known_without_loading_it(name: str, tmp_path: Path) -> None:
    """Nothing is written, and nothing is known before the data is encoded."""
    if name in MADE:
        MADE[name](tmp_path)
    task, options = TASKS[name], SMALL.get(name, {})
    before = sorted(tmp_path.iterdir())
    assert task.signature(options, tmp_path) is None
    assert sorted(tmp_path.iterdir()) == before
    assert task.load(options, tmp_path).signature == task.signature(options, tmp_path)


class Loud(Parity):
    """A task whose `check` writes a file, and whose `load` opens the test split too early."""

    def check(self, options: Mapping[str, Any], folder: Path) -> Source:
        (folder / "log.txt").write_text("checked")
        return self.find(options, folder)

    def load(self, options: Mapping[str, Any], folder: Path, progress: Progress | None = None) -> TaskData:
        data = super().load(options, folder, progress)
        early = replace(data)
        assert early.test
        return early


def test_the_contract_covers_side_effects(tmp_path: Path) -> None:
    broken_rules = violations(Loud(), {}, tmp_path)
    assert "check must write nothing" in broken_rules
    assert "an unknown option must be refused" in broken_rules
    assert "the test split must not be opened before it is used" in broken_rules
