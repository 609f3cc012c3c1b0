"""Names in a file from HTTP: each text of a file has a row in docs/service.md."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from orchestrator.config.sections import SpaceFile, TrainableFile
from orchestrator.config.strategy import SAMPLERS, SCHEDULERS
from tests import sweeps
from tests.orchestrator.web.server import LEARNS, Answer, Client
from trainables.layers import LAYERS
from trainables.tasks import TASKS

PAGE = Path(__file__).parents[3] / "docs" / "service.md"
HEAD = "| text of a file | what it may name over HTTP |\n|---|---|\n"


def texts(schema: Mapping[str, Any], sections: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Yield the path of every value of a JSON schema that can be any text; `*` is any key."""
    if "$ref" in schema:
        yield from texts(sections[schema["$ref"].rpartition("/")[2]], sections, path)
        return
    for part in [*schema.get("anyOf", ()), *([schema["items"]] if "items" in schema else ())]:
        yield from texts(part, sections, path)
    if schema.keys().isdisjoint({"anyOf", "enum", "const"}) and schema.get("type", "string") == "string":
        yield path
    for name, part in schema.get("properties", {}).items():
        yield from texts(part, sections, f"{path}.{name}" if path else name)
    further = schema.get("additionalProperties", False)
    if further is not False:
        yield from texts({} if further is True else further, sections, f"{path}.*")


def test_each_text_of_a_file_has_a_row() -> None:
    schemas = [model.model_json_schema() for model in (SpaceFile, TrainableFile)]
    expected = {path for schema in schemas for path in texts(schema, schema["$defs"])}
    _, _, table = PAGE.read_text().partition(HEAD)
    rows = table.partition("\n\n")[0].splitlines()
    named = [name for row in rows for name in re.findall(r"`([^`]+)`", row.split(" | ")[0])]
    assert sorted(named) == sorted(expected)


def test_no_option_of_this_package_takes_any_text() -> None:
    options = {
        f"{name}.{option}": declared
        for name, own in [*((name, TASKS[name].options) for name in TASKS)]
        + [(name, LAYERS.settings(name).options) for name in LAYERS]
        for option, declared in own.items()
    }
    assert [
        name for name, option in options.items() if isinstance(option.default, str) and not option.choices
    ] == []
    strategies = {
        f"{name}.{option}": declared
        for registry in (SAMPLERS, SCHEDULERS)
        for name in registry
        for option, declared in registry.settings(name).options.items()
    }
    words = {name for name, option in strategies.items() if option.kind in ("word", "words")}
    reported = {f"{name}.metric" for name in ("asha", "hyperband", "median", "pbt")}
    assert {name for name in words if not strategies[name].choices} == {"pbt.mutations", *reported}, (
        "searched names, and metrics of the sweep itself, alone"
    )


def sent(client: Client, user: str, text: str) -> Answer:
    return client.send("POST", "/api/v1/sweeps", user, body={"name": "small", "text": text})


@pytest.mark.slow
def test_a_member_may_learn_from_the_sweep_of_another(client: Client) -> None:
    assert client.send("GET", f"/api/v1/sweeps/{sweeps.SWEEP_ID}/trials", "bob").status == 200
    answer = sent(client, "bob", f"{LEARNS}warm_start: [{sweeps.SWEEP_ID}]\n")
    assert answer.status == 202, answer.body


@pytest.mark.slow
@pytest.mark.parametrize("user", ["bob", "grace"])
def test_a_sweep_to_learn_from_that_does_not_exist_is_refused(client: Client, user: str) -> None:
    answer = sent(client, user, f"{LEARNS}warm_start: [retrieval-laptop-00000000]\n")
    assert answer.status == 422
    assert (answer.document["where"], answer.document["must"]) == (
        "small: warm_start",
        "must name sweeps of this ledger",
    )
    assert answer.document["got"] == "`retrieval-laptop-00000000`"
    assert sweeps.SWEEP_ID in answer.document["remedy"], "every user may list every sweep"
