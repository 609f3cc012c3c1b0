"""The JSON Schema for editors is up to date, and accepts and refuses the same files as the loader."""

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


def _errors(text: str) -> list[str]:
    plain: Any = parse_document(text, "f").plain()
    return [error.message for error in VALIDATOR.iter_errors(plain)]


def test_the_published_file_is_up_to_date() -> None:
    """The file in the repository equals the output of `python -m orchestrator.config.json_schema`."""
    assert (ROOT / DESTINATION).read_text(encoding="utf-8") == written()


def test_it_is_a_schema() -> None:
    """The file is valid under the standard that it names."""
    jsonschema.Draft202012Validator.check_schema(json.loads(written()))


@pytest.mark.parametrize("path", sorted((ROOT / "search_spaces").glob("*.yaml")), ids=lambda path: path.stem)
def test_search_space_files_name_the_schema_and_are_valid(path: Path) -> None:
    """Every search-space file names the schema for editors, and is valid under it."""
    text = path.read_text(encoding="utf-8")
    assert "# yaml-language-server: $schema=schema.json\n" in text
    assert _errors(text) == []


def test_numbers_as_an_editor_reads_them() -> None:
    """Editors read pi/10 and 50_000 as text; the schema accepts these numbers, but no other text."""
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
        ("heads: 8", "layers: {lru: {heads: 8}}"),
        ("heads: 8", "layers: {lur: {}}"),
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
    """An editor marks the mistakes within one field that the loader refuses."""
    assert _errors(VALID) == []
    assert _errors(edited(old, new))
