"""What a file would run, and files that are too large to check."""

from __future__ import annotations

import pytest

from orchestrator.api.starting import EXAMPLE, EXAMPLE_NAME
from tests.orchestrator.web.server import FILE, Client


def test_the_example_is_valid_and_says_what_would_run(reader: Client) -> None:
    example = reader.get("/example")
    assert example == {"name": EXAMPLE_NAME, "text": EXAMPLE}
    answer = reader.send("POST", "/api/v1/validate", "ada", body={**example, "sizes": True})
    assert answer.status == 200, answer.body
    plan = answer.document["plan"]
    assert answer.document["refusals"] == []
    assert (plan["task"], plan["metric"], plan["direction"]) == ("copy", "val/loss", "minimize")
    assert (plan["trials"], plan["steps"]) == (8, 200)
    assert plan["networks"][0]["model"]["layer"] == "lru"
    assert plan["networks"][0]["parameters"] > 0


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (FILE.replace("lru", "lur"), "small.yaml"),
        (FILE.replace("cpu: 1", "cpu: 100000"), "resources"),
        (FILE.replace("{trials: 2}", "{trials: 100001}"), "budget.trials"),
    ],
)
def test_a_refusal_has_four_parts(reader: Client, text: str, where: str) -> None:
    answer = reader.send("POST", "/api/v1/validate", "ada", body={"name": "small", "text": text})
    assert (answer.status, answer.document["plan"]) == (200, None)
    [refusal] = answer.document["refusals"]
    assert where in refusal["where"]
    assert refusal.keys() == {"where", "must", "got", "remedy"}
    assert "/tmp" not in str(refusal), "the folder of the server is not named"
