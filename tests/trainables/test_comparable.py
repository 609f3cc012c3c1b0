"""What compares with papers is derived from the options and the examples, and each reason is named."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests import published
from trainables.data.comparable import other_options, other_rows
from trainables.tasks import TASKS


def test_options_and_rows_are_named_with_the_published_ones() -> None:
    wanted = {"length": (100, 2000), "colour": True, "share": 0.1, "rate": 1e-5}
    options = {"length": 1512, "colour": False, "share": 0.1, "seed": 3, "rate": 0.001}
    assert other_options(wanted, options) == [
        "length 1,512 instead of 100 or 2,000",
        "colour False instead of True",
        "rate 0.001 instead of 1e-5",
    ]
    assert other_options(wanted, {"length": 100, "colour": True, "share": 0.1}) == []
    assert other_rows({"train": 96_000, "test": 2000}, {"train": 8000, "test": 2000}) == [
        "8,000 train examples instead of 96,000"
    ]


@pytest.mark.parametrize(
    ("task", "options", "because"),
    [
        ("adding", {"length": 123}, "length 123 instead of 100, 200, 400 or 750"),
        ("adding", {"length": 100, "examples": 500}, "examples 500 instead of 50,000"),
        ("copy", {"delay": 40}, "delay 40 instead of 300, 500 or 2,000"),
        ("copy", {"delay": 300, "examples": 60}, "examples 60 instead of 10,000"),
        ("listops", {"length": 4000}, "length 4,000 instead of 2,000 or 2,048"),
        (
            "listops",
            {"max_length": 1000, "examples": 10},
            "max_length 1,000 instead of 2,000, examples 10 instead of 96,000",
        ),
        ("mqar", {"length": 40}, "4 pairs in 40 steps instead of 4 in 64, 8 in 128, 16 in 256, 64 in 512"),
        ("mqar", {"mixture": True}, "examples 100,000 instead of 180,000"),
        ("mqar", {"vocabulary": 64}, "vocabulary 64 instead of 8,192"),
    ],
)
def test_other_lengths_and_sizes_of_generated_data_do_not_compare(
    tmp_path: Path, task: str, options: Mapping[str, Any], because: str
) -> None:
    source = TASKS[task].check(options, tmp_path)
    assert not source.comparable
    assert source.note == because


@pytest.mark.parametrize(
    ("task", "options"),
    [
        ("adding", {"length": 750}),
        ("copy", {"delay": 2000}),
        ("listops", {}),
        ("mqar", {"length": 128, "pairs": 8}),
    ],
)
def test_published_lengths_and_sizes_compare(tmp_path: Path, task: str, options: Mapping[str, Any]) -> None:
    source = TASKS[task].check(options, tmp_path)
    assert (source.comparable, source.note) == (True, "")


def test_files_of_fewer_expressions_do_not_compare(tmp_path: Path) -> None:
    """The layout of Long Range Arena alone does not make them its data."""
    folder = tmp_path / "listops-1000"
    folder.mkdir()
    for name, rows in (("train", 5), ("val", 2), ("test", 1)):
        lines = ["Source\tTarget", *(f"( ( ( [MAX {row} ) 9 ) ] )\t9" for row in range(rows))]
        (folder / f"basic_{name}.tsv").write_text("\n".join(lines) + "\n")
    data = TASKS["listops"].load({"source": "published", "length": 64}, tmp_path)
    assert not data.comparable
    assert data.note == (
        "length 64 instead of 2,000 or 2,048; 5 train examples instead of 96,000, "
        "2 validation examples instead of 2,000, 1 test examples instead of 2,000"
    )


def test_a_part_of_the_images_does_not_compare(tmp_path: Path) -> None:
    published.cifar(tmp_path)
    data = TASKS["image"].load({"validation_share": 0.2}, tmp_path)
    assert not data.comparable
    assert "validation_share 0.2 instead of 0.1" in data.note
    assert "10 test examples instead of 10,000" in data.note


def test_easier_images_than_the_published_ones_do_not_compare(tmp_path: Path) -> None:
    root = published.pathfinder(tmp_path / "lra_release" / "lra_release")
    root.rename(root.with_name("curv_baseline"))
    source = TASKS["pathfinder"].check({"source": "published", "difficulty": "easy"}, tmp_path)
    assert not source.comparable
    assert source.note == "difficulty easy instead of hard"
