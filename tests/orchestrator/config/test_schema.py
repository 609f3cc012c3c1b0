"""The JSON Schema for editors: up to date, and of one mind with the loader."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from orchestrator.config.json_schema import DESTINATION, schema, written
from orchestrator.config.yaml_reader import parse_document
from tests.orchestrator.config.files import VALID, edited

ROOT = Path(__file__).parents[3]
VALIDATOR = jsonschema.Draft202012Validator(schema())


def _complaints(text: str) -> list[str]:
    plain: Any = parse_document(text, "f").plain()
    return [error.message for error in VALIDATOR.iter_errors(plain)]


def test_the_published_file_is_up_to_date() -> None:
    """`python -m orchestrator.config.json_schema` writes what stands in the repository."""
    assert (ROOT / DESTINATION).read_text(encoding="utf-8") == written()


def test_it_is_a_schema() -> None:
    """The file is valid by the standard that it names."""
    jsonschema.Draft202012Validator.check_schema(json.loads(written()))


@pytest.mark.parametrize("path", sorted((ROOT / "search_spaces").glob("*.yaml")), ids=lambda path: path.stem)
def test_our_files_name_it_and_fit_it(path: Path) -> None:
    """Every search-space file names its schema for an editor, and is valid by it."""
    text = path.read_text(encoding="utf-8")
    assert "# yaml-language-server: $schema=schema.json\n" in text
    assert _complaints(text) == []


def test_numbers_as_an_editor_reads_them() -> None:
    """An editor takes pi/10 and 50_000 for text; the schema lets them pass, and no other text."""
    plain: Any = parse_document(VALID, "f").plain()
    plain["training"]["steps"] = "50_000"
    plain["search"]["theta_init.max"] = {"uniform": ["pi/10", "2 * pi"]}
    assert not list(VALIDATOR.iter_errors(plain))
    plain["training"]["steps"] = "many"
    assert list(VALIDATOR.iter_errors(plain))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("evaluate:", "evalute:"),
        ("batch_size: 16", "batchsize: 16"),
        ("heads: 8", "head: 8"),
        ("steps: 1_000", "steps: -3"),
        ("task: listops", "task: listop"),
        ("layer: rotrnn", "layer: rotnn"),
        ("{length: 2048}", "{lenght: 2048}"),
        ("gamma_init.min: {", "gama_init.min: {"),
        ("{uniform: [0.1, 0.9]}", "{uniform: [a, 0.9]}"),
        ("{tpe: {seed: 3}}", "{tpe: {sed: 3}}"),
        ("{tpe: {seed: 3}}", "tep"),
        ("test/accuracy: 0.611", "tes/accuracy: 0.611"),
        ("    training: {steps: 200}", "    training: {stepz: 200}"),
        ("budget: {trials: 16}\n", ""),
    ],
)
def test_mistakes_are_underlined(old: str, new: str) -> None:
    """What the loader refuses within one field, an editor marks too."""
    assert _complaints(VALID) == []
    assert _complaints(edited(old, new))
