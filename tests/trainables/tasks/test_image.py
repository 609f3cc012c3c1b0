"""Image: real CIFAR-10 batches, batches made to both formats, and files that are not in them."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import PIL.Image
import pytest

from tests.data import cifar_subset
from tests.published import cifar
from trainables.data.cifar import grey, read
from trainables.errors import BadData
from trainables.tasks.image import Image

TASK = Image()


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a data folder with the first 1,000 images of each original Python batch."""
    return cifar_subset(tmp_path_factory.mktemp("cifar"))


@pytest.mark.slow
def test_the_original_python_batches_are_read(real: Path) -> None:
    data = TASK.load({"colour": True}, real)
    assert (len(data.train), len(data.validation), len(data.test)) == (4500, 500, 1000)
    assert data.train.inputs.shape == (4500, 1024, 3)
    # CIFAR-10's test set begins with a cat, two ships and a plane.
    assert data.test.targets[:4].tolist() == [3, 8, 8, 0]
    shift, factor = data.signature.scale
    standard = (np.array(data.train.inputs, np.float64) - shift) * factor
    assert np.abs(standard.mean(axis=(0, 1))).max() < 0.03
    assert np.abs(standard.std(axis=(0, 1)) - 1).max() < 0.03
    assert not data.comparable
    assert "subset" in data.note


def test_grey_is_pillows_luma_and_standardised(real: Path) -> None:
    colour, luma = TASK.load({"colour": True}, real), TASK.load({}, real)
    assert luma.train.inputs.shape == (4500, 1024, 1)
    picture = PIL.Image.fromarray(np.array(colour.test.inputs[0]).reshape(32, 32, 3))
    assert (np.asarray(picture.convert("L")).ravel() == luma.test.inputs[0, :, 0]).all()
    shift, factor = luma.signature.scale
    standard = (np.array(luma.train.inputs, np.float64) - shift) * factor
    assert abs(standard.mean()) < 0.03
    assert abs(standard.std() - 1) < 0.03
    assert "grey" in luma.source
    assert "colour" in colour.source


def test_luma_agrees_with_pillow_on_all_corners() -> None:
    levels = np.array([0, 1, 127, 128, 254, 255], np.uint8)
    pixels = np.stack(np.meshgrid(levels, levels, levels), axis=-1).reshape(1, -1, 3)
    assert (np.asarray(PIL.Image.fromarray(pixels).convert("L")) == grey(pixels)[:, :, 0]).all()


def as_python(binary: Path) -> None:
    """Write the binary batches again as the published Python batches, in a folder beside, and remove them."""
    inner = binary.with_name("cifar-10-batches-py")
    inner.mkdir()
    for path in list(binary.iterdir()):
        records = np.fromfile(path, np.uint8).reshape(-1, 3073)
        content = {b"data": records[:, 1:].copy(), b"labels": records[:, 0].tolist(), b"batch_label": b"x"}
        (inner / path.stem).write_bytes(pickle.dumps(content, protocol=3))
        path.unlink()
    binary.rmdir()


def test_both_forms_give_the_same_arrays(tmp_path: Path) -> None:
    binary = cifar(tmp_path)
    first = TASK.load({}, tmp_path)
    assert (len(first.train), len(first.validation), len(first.test)) == (45, 5, 10)
    as_python(binary)
    assert TASK.load({}, tmp_path).digest == first.digest


def test_pixels_are_read_row_after_row(tmp_path: Path) -> None:
    inner = cifar(tmp_path, number=2)
    record = np.zeros((2, 3073), np.uint8)
    record[:, 0] = [1, 2]
    # The second pixel of the first row is red, the first pixel of the second row is blue.
    record[:, 1 + 1] = 255
    record[:, 1 + 2048 + 32] = 255
    record.tofile(inner / "test_batch.bin")
    test = TASK.load({"colour": True}, tmp_path).test
    assert test.inputs[0, 1].tolist() == [255, 0, 0]
    assert test.inputs[0, 32].tolist() == [0, 0, 255]


class Evil:
    """Writes a file when it is unpickled."""

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str, ...]]:
        return (Path.write_text, (Path("pwned"), "pwned"))  # type: ignore[return-value]


def test_a_pickle_that_is_not_a_batch_runs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    as_python(cifar(tmp_path))
    (tmp_path / "cifar-10-batches-py" / "data_batch_1").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(BadData, match="which no batch needs"):
        TASK.load({}, tmp_path)
    assert not (tmp_path / "pwned").exists()


def python_batch(**entries: object) -> bytes:
    return pickle.dumps({name.encode(): value for name, value in entries.items()}, protocol=3)


PIXELS = np.zeros((2, 3072), np.uint8)
MADE_WITHOUT_ARGUMENTS = b"\x80\x02}(U\x04datacnumpy.core.multiarray\n_reconstruct\n)\x81U\x06labels]K\x00au."
MEMO_OF_BILLIONS = b"\x80\x02}r\xff\xff\xff\x7f."
BYTES_OF_PETABYTES = b"\x80\x04\x8e\x00\x00\x00\x00\x00\x00\x10\x00."


@pytest.mark.parametrize(
    ("content", "must"),
    [
        (b"not a pickle", "must be a complete Python batch"),
        (python_batch(data=PIXELS, labels=[0, 1])[:-40], "must be a complete Python batch"),
        (python_batch(data=PIXELS), "must hold the data and labels of CIFAR-10"),
        (pickle.dumps([1, 2]), r"must hold the data and labels of CIFAR-10 \(got list\)"),
        (python_batch(data=PIXELS, labels=[0]), r"must hold 1 rows of 3072 bytes \(got shape \(2, 3072\)"),
        (python_batch(data=PIXELS.astype(float), labels=[0, 1]), "dtype 'f8'"),
        (python_batch(data=PIXELS, labels=[0, 10]), r"row 1 must have a label of 0 to 9 \(got 10\)"),
        (python_batch(data=PIXELS, labels=[0, "cat"]), "whole numbers as labels"),
        (python_batch(data=PIXELS[:0], labels=[]), "zero rows"),
        (MADE_WITHOUT_ARGUMENTS, r"must hold 1 rows of 3072 bytes \(got shape None, dtype None\)"),
        (MEMO_OF_BILLIONS, "it asks for a memo of 2,147,483,647 values"),
        (BYTES_OF_PETABYTES, "must be a complete Python batch"),
    ],
)
def test_bad_python_batches_are_refused(tmp_path: Path, content: bytes, must: str) -> None:
    as_python(cifar(tmp_path))
    path = tmp_path / "cifar-10-batches-py" / "data_batch_3"
    path.write_bytes(content)
    with pytest.raises(BadData, match=must) as refused:
        TASK.load({}, tmp_path)
    assert str(refused.value).startswith(str(path))


@pytest.mark.slow
def test_no_damage_to_a_python_batch_does_more_than_be_refused(tmp_path: Path) -> None:
    """Damage falls around the array's header, whose sizes and shapes an unpickler trusts."""
    path, whole = tmp_path / "data_batch_1", python_batch(data=PIXELS, labels=[0, 1])
    generator, refused = np.random.default_rng(0), 0
    for _ in range(1_000):
        content = bytearray(whole)
        for _ in range(generator.integers(1, 5)):
            place = int(generator.integers(160)) * int(generator.choice([1, -1]))
            if generator.random() < 0.75:
                content[place] = int(generator.integers(256))
            else:
                del content[place : place + int(generator.integers(1, 9))]
        path.write_bytes(content)
        try:
            read(path)
        except BadData:
            refused += 1
    assert 500 < refused < 1_000, "most damage is detected; damage to names and pixels cannot be"


def test_bad_binary_batches_are_refused(tmp_path: Path) -> None:
    path = cifar(tmp_path) / "data_batch_2.bin"
    good = path.read_bytes()
    for content, must in (
        (good[:-1], r"must consist of complete records of 3073 bytes \(got 30,729 bytes\)"),
        (b"\x0b" + good[1:], r"row 0 must have a label of 0 to 9 \(got 11\)"),
        (b"", r"must be a batch of CIFAR-10 \(got an empty file\)"),
    ):
        path.write_bytes(content)
        with pytest.raises(BadData, match=must):
            TASK.load({}, tmp_path)
    path.unlink()
    with pytest.raises(BadData, match="got no such file"):
        TASK.check({}, tmp_path)


def test_one_class_is_refused(tmp_path: Path) -> None:
    for path in cifar(tmp_path).iterdir():
        records = np.fromfile(path, np.uint8).reshape(-1, 3073)
        records[:, 0] = 4
        records.tofile(path)
    with pytest.raises(BadData, match=r"several classes \(got only 4\)"):
        TASK.load({}, tmp_path)


@pytest.mark.parametrize("module", [b"numpy.core.multiarray", b"numpy._core.multiarray"])
def test_both_spellings_of_numpys_module_are_read(tmp_path: Path, module: bytes) -> None:
    content = python_batch(data=PIXELS, labels=[0, 1])
    path = tmp_path / "data_batch_1"
    path.write_bytes(content.replace(b"numpy._core.multiarray", module))
    assert read(path)[0].shape == (2, 1024, 3)
