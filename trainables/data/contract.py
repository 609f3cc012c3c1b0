"""The contract of tasks, checked on any task, of this package or of another.

assert violations(MyTask(), {"examples": 100}, Path("data")) == []
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from trainables.data.task import IGNORED, SPLITS, Signature, Split, Task, TaskData
from trainables.errors import Refusal

_METRICS = (("accuracy", "maximize"), ("mse", "minimize"), ("bits", "minimize"))
_NO_OPTION = "no_such_option"


def violations(task: Task, options: Mapping[str, Any], folder: Path) -> list[str]:
    """Return every rule that a task violates, in words; an empty list if it violates none.

    Args:
        task: Task.
        options: Options of the task, small enough for a check in seconds.
        folder: Data folder; the encoded arrays are left in its cache.

    Raises:
        Refusal: The task refuses the options or the data.
    """
    before = _entries(folder)
    broken = list(_declarations(task, folder))
    task.check(options, folder)
    if _entries(folder) != before:
        broken.append("check must write nothing")
    data = task.load(options, folder)
    if "test" in vars(data):
        broken.append("the test split must not be opened before it is used")
    for name in (*SPLITS, *(f"test_{further}" for further in data.further)):
        split = data.split(name)
        signature = data.signature if name in SPLITS else _of_its_length(data.signature, split)
        broken += [f"{name}: {must}" for must in _shapes(signature, split)]
    if not broken:
        broken += _contents(task, data)
    if _again(task, options, folder).digest != data.digest:
        broken.append("the same options and source must give the same content")
    return broken


def _declarations(task: Task, folder: Path) -> Iterator[str]:
    if not task.name.isidentifier() or not task.title:
        yield "name must be an identifier, and title one line"
    if (task.metric, task.direction) not in _METRICS:
        yield "metric and direction must be accuracy, maximize, or mse or bits, minimize"
    try:
        task.check({_NO_OPTION: 1}, folder)
    except Refusal as refusal:
        if _NO_OPTION not in str(refusal):
            yield f"an unknown option must be named in its refusal (got {refusal})"
    else:
        yield "an unknown option must be refused"


def _shapes(signature: Signature, split: Split) -> Iterator[str]:
    examples, length = len(split), signature.length
    towers = () if signature.towers == 1 else (signature.towers,)
    features = () if signature.vocabulary else (signature.features,)
    wanted: dict[str, tuple[tuple[int, ...], tuple[str, ...]]] = {
        "inputs": ((examples, *towers, length, *features), ("uint8", "uint16", "int16", "int32", "float32")),
        "lengths": ((examples, *towers), ("int32",)),
        "targets": (
            (examples, length) if signature.output == "steps" else (examples,),
            ("float32",) if signature.output == "value" else ("int32",),
        ),
    }
    for name, (shape, dtypes) in wanted.items():
        array = getattr(split, name)
        if array.shape != shape or array.dtype.name not in dtypes:
            yield f"{name} must be {shape} of {' or '.join(dtypes)} (got {array.shape} of {array.dtype})"
        if array.flags.writeable:
            yield f"{name} must be read-only"
    if not examples:
        yield "must hold examples"


def _contents(task: Task, data: TaskData) -> Iterator[str]:
    signature = data.signature
    if signature.metric != task.metric:
        yield "the signature's metric must be the task's"
    for name in SPLITS:
        yield from (f"{name}: {must}" for must in _values(signature, getattr(data, name)))
    for name in (f"test_{further}" for further in data.further):
        split = data.split(name)
        yield from (f"{name}: {must}" for must in _values(_of_its_length(signature, split), split))
    if signature.output == "class" and _class_after_class(data.validation.targets):
        yield "validation must be mixed, because a report may read only its first examples"
    further = tuple(f"test_{name}" for name in data.further)
    rows = {name: _digests(data.split(name).inputs) for name in (*SPLITS, *further)}
    pairs = (("train", name) for name in ("validation", "test", *further))
    for one, other in (*pairs, ("validation", "test")):
        if shared := rows[one] & rows[other]:
            yield f"{one} and {other} must be disjoint, but share {len(shared)} examples"
    if len(data.digest) != 64:
        yield "digest must be a SHA-256"
    if not data.source or (not data.comparable and not data.note):
        yield "source must be given, and a note with the reason if scores do not compare"


def _values(signature: Signature, split: Split) -> Iterator[str]:
    if split.lengths.min() < 1 or split.lengths.max() > signature.length:
        yield f"lengths must be 1 to {signature.length}"
    steps = np.arange(signature.length)
    padded = steps >= split.lengths[..., None]
    if np.asarray(split.inputs)[padded].any():
        yield "inputs beyond the true length must be zero"
    if signature.vocabulary and split.inputs.max() >= signature.vocabulary:
        yield f"tokens must be under {signature.vocabulary} (got {split.inputs.max()})"
    if signature.output == "steps":
        yield from _targets_by_step(signature, split, padded)
    elif (
        signature.output == "class"
        and not 0 <= split.targets.min() <= split.targets.max() < signature.classes
    ):
        yield f"classes must be 0 to {signature.classes - 1}"
    if not np.isfinite(np.asarray(split.inputs, np.float64)).all():
        yield "inputs must be finite"


def _targets_by_step(signature: Signature, split: Split, padded: np.ndarray) -> Iterator[str]:
    counted = (split.targets != IGNORED) & ~padded
    if not IGNORED <= split.targets.min() <= split.targets.max() < signature.classes:
        yield f"classes must be 0 to {signature.classes - 1}, or {IGNORED} where a step has no target"
    if not counted.any(axis=1).all():
        yield "every example must have a step with a target"


def _of_its_length(signature: Signature, split: Split) -> Signature:
    """Return the signature of a further test split, with the length of its sequences."""
    return replace(signature, length=split.inputs.shape[split.lengths.ndim])


def _class_after_class(targets: np.ndarray) -> bool:
    """Return True if targets (n,) are sorted by class although enough of them were drawn to be mixed."""
    classes = len(np.unique(targets))
    changes = np.count_nonzero(np.diff(targets))
    return bool(len(targets) > 5 * classes and changes < classes)


def _digests(inputs: np.ndarray) -> set[bytes]:
    return {blake2b(row.tobytes(), digest_size=16).digest() for row in inputs}


def _entries(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} if folder.is_dir() else set()


def _again(task: Task, options: Mapping[str, Any], folder: Path) -> TaskData:
    """Load the task again without its cache."""
    with TemporaryDirectory() as temporary:
        fresh = Path(temporary)
        for name in _entries(folder) - {".cache"}:
            (fresh / name).symlink_to((folder / name).absolute())
        return task.load(options, fresh)
