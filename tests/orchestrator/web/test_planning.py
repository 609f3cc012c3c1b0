"""Plans of files, and files that are too large to check."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.api.templates import EXAMPLE, EXAMPLE_NAME
from orchestrator.web import file_checks
from orchestrator.web.app_state import CHECKS_WAITING, AppState
from orchestrator.web.check_process import MOST_TRIALS
from orchestrator.web.http_errors import MEDIA_TYPE
from orchestrator.web.limited_process import CheckLimits
from orchestrator.web.rate_limits import FairQueue
from orchestrator.web.server import Listening, answering
from tests.orchestrator.web.server import FILE, Client


def test_the_example_is_valid_and_says_what_would_run(reader: Client) -> None:
    example = reader.get("/example", "ada")
    assert example == {"name": EXAMPLE_NAME, "text": EXAMPLE}
    answer = reader.send("POST", "/api/v1/validate", "ada", body={**example, "sizes": True})
    assert answer.status == 200, answer.body
    plan = answer.document["plan"]
    assert answer.document["refusals"] == []
    assert (plan["task"], plan["metric"], plan["direction"]) == ("copy", "val/loss", "minimize")
    assert (plan["trials"], plan["steps"]) == (8, 200)
    assert plan["networks"][0]["model"]["layer"] == "lru"
    assert plan["networks"][0]["parameters"] > 0


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    ("text", "where"),
    [
        (FILE.replace("lru", "lur"), "small.yaml"),
        (FILE.replace("cpu: 1", "cpu: 100000"), "resources"),
        (FILE.replace("{trials: 2}", "{trials: 100001}"), "budget.trials"),
    ],
)
def test_a_refusal_has_four_parts_and_a_class(reader: Client, text: str, where: str) -> None:
    answer = reader.send("POST", "/api/v1/validate", "ada", body={"name": "small", "text": text})
    assert (answer.status, answer.document["plan"]) == (200, None)
    [refusal] = answer.document["refusals"]
    assert where in refusal["where"]
    assert refusal.keys() == {"where", "must", "got", "remedy", "error"}
    assert refusal["error"] == "BadInput"
    assert "/tmp" not in str(refusal), "the folder of the server is not named"


TWICE_WRONG = FILE.replace("interval: 10", "interval: -3").replace("random: {seed: 0}", "randon: {seed: 0}")


@pytest.mark.slow
def test_all_mistakes_of_a_file_are_told_at_once(reader: Client, client: Client) -> None:
    body = {"name": "small", "text": TWICE_WRONG}
    answer = reader.send("POST", "/api/v1/validate", "ada", body=body)
    told = answer.document["refusals"]
    assert [refusal["got"] for refusal in told] == ["-3", "`randon`"]
    refused = client.send("POST", "/api/v1/sweeps", "ada", body=body)
    assert refused.status == 422, refused.body
    assert [{name: refused.document[name] for name in told[0]}, *refused.document["more"]] == told


SEARCH = "search: {learning_rate: {log_uniform: [1e-4, 1e-1]}}"

GRID = FILE.replace("random: {seed: 0}", "grid: {seed: 0}").replace(
    "{trials: 2}", f"{{trials: {MOST_TRIALS}}}"
)

ALIASES = "a: &a [1]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n"
    for before, name in zip("abcdefghi", "bcdefghij", strict=True)
)
"""Ten levels of ten aliases each: 10^9 numbers, once they are written out."""


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    ("text", "where", "must"),
    [
        (FILE + ALIASES, "small.yaml", "no anchors and no aliases"),
        ("task: " + "[" * 100_000, "small.yaml", "at most 8 levels"),
        ("task: " + "{a: " * 50_000, "small.yaml", "at most 8 levels"),
        (
            GRID.replace(SEARCH, "search: {learning_rate: {uniform: [0.1, 0.2], step: 1.0e-9}}"),
            "search.learning_rate",
            "at most 1,000 steps",
        ),
    ],
    ids=["aliases", "lists", "mappings", "a grid of small steps"],
)
def test_a_small_file_that_asks_for_much_is_refused(reader: Client, text: str, where: str, must: str) -> None:
    answer = reader.send("POST", "/api/v1/validate", "bob", body={"name": "small", "text": text})
    assert (answer.status, answer.document["plan"]) == (200, None), answer.body
    [refusal] = answer.document["refusals"]
    assert where in refusal["where"]
    assert must in refusal["must"]


@pytest.mark.slow
def test_a_grid_of_many_combinations_is_valid_and_lists_none(reader: Client) -> None:
    """At most as many of 10^12 combinations or 10^9 seeds are made as the budget has trials."""
    choices = ", ".join(f"{value / 2000:g}" for value in range(1, 1001))
    names = ("learning_rate", "recurrent_learning_rate", "weight_decay", "dropout")
    space = "search:\n" + "".join(f"  {name}: {{choice: [{choices}]}}\n" for name in names)
    text = GRID.replace(SEARCH, space)
    seeds = GRID.replace(SEARCH, "search: {learning_rate: {choice: [0.1]}, seed: {int: [0, 1000000000]}}")
    for file in (text, seeds):
        answer = reader.send("POST", "/api/v1/validate", "bob", body={"name": "small", "text": file})
        assert (answer.status, answer.document["refusals"]) == (200, []), answer.body
        assert answer.document["plan"]["trials"] == MOST_TRIALS


LONG = f"{FILE}# \U0001f600{'a' * 240_000}\n"
"""A valid file whose text takes a megabyte in one piece, four bytes a character, because of one of them."""

NETWORKS = FILE.replace(SEARCH, f"{SEARCH[:-1]}, d_state: {{choice: {list(range(8, 88, 2))}}}}}")
"""Its 40 networks take more than a second of a processor to count."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limits", "text", "sizes"),
    [
        (CheckLimits(memory_bytes=4 * 1024**2, seconds=20.0), LONG, False),
        (CheckLimits(cpu_seconds=1), NETWORKS, True),  # a process of its own counts the sizes
    ],
    ids=["memory", "processor"],
)
def test_a_check_that_reaches_a_limit_is_refused_and_the_service_lives_on(
    reader: Client, monkeypatch: pytest.MonkeyPatch, limits: CheckLimits, text: str, sizes: bool
) -> None:
    """The C library must return large freed blocks, so that memory freed by imports counts.

    The next file is checked within ordinary limits, as the imports alone take a second on a busy machine.
    """
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", str(128 * 1024))
    site = AppState(reader.workspace, check_limits=limits)
    ordinary = replace(site, check_limits=CheckLimits())  # and everything else is the same
    with answering(site, Listening(0)) as address, answering(ordinary, Listening(0)) as next_address:
        limited = replace(reader, address=address)
        body = {"name": "small", "text": text}
        memory = f"{limits.memory_bytes / 1024**3:g} GiB"
        refusal = {
            "where": "small.yaml",
            "must": f"must take at most {limits.cpu_seconds} s of processor time and {memory} to check",
            "got": "more",
            "remedy": "Search fewer values, or nest them less.",
            "error": "BadInput",
        }
        checked = limited.send("POST", "/api/v1/validate", "ada", body={**body, "sizes": sizes})
        assert (checked.status, checked.document) == (200, {"refusals": [refusal], "plan": None})
        if not sizes:
            sent = limited.send("POST", "/api/v1/sweeps", "ada", body=body)
            assert (sent.status, sent.headers["content-type"]) == (422, MEDIA_TYPE)
            assert {name: sent.document[name] for name in refusal} == refusal
        assert limited.get("/queue")["queue"], "the service lives on"
        following = replace(reader, address=next_address)
        wrong = following.send(
            "POST", "/api/v1/validate", "ada", body={"name": "small", "text": "task: no\n"}
        )
        assert "must be given" in str(wrong.document["refusals"]), "and checks the next file"


SLOW = """\
import json, sys, time
given = sys.stdin.read()
if '"owner": "bob"' in given:
    time.sleep(12)
json.dump({"document": {}, "plan": None}, sys.stdout)
"""
"""A check that is slow for the files of Bob."""


@pytest.mark.slow
def test_slow_files_of_one_member_do_not_hold_up_another(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slow_check.py").write_text(SLOW)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(file_checks, "_MODULE", "slow_check")
    body = {"name": "small", "text": FILE}

    def checked(user: str) -> int:
        return client.send("POST", "/api/v1/validate", user, body=body).status

    with ThreadPoolExecutor(10) as threads:
        began = time.monotonic()
        slow = [threads.submit(checked, "bob") for _ in range(8)]
        while sum(one.done() for one in slow) < 8 - 1 - CHECKS_WAITING:
            assert time.monotonic() - began < 10.0, "those above the limit are refused at once"
            time.sleep(0.05)
        refused = {one.result() for one in slow if one.done()}
        began = time.monotonic()
        assert [checked("ada") for _ in range(3)] == [200] * 3
        assert time.monotonic() - began < 10.0
        assert refused == {429}


def test_turns_are_given_to_each_user_and_to_who_has_waited_longest() -> None:
    turns, order, lock = FairQueue(2, 2), list[str](), threading.Lock()
    release = {name: threading.Event() for name in "abc"}

    def work(user: str) -> bool:
        with turns.turn(user, 30.0) as granted:
            if granted:
                with lock:
                    order.append(user)
                release[user].wait(30.0)
            return granted

    def until(count: int) -> None:
        deadline = time.monotonic() + 10.0
        while len(order) < count:
            assert time.monotonic() < deadline, order
            time.sleep(0.01)

    with ThreadPoolExecutor(10) as threads:
        for user, count in (("a", 1), ("b", 2)):
            threads.submit(work, user)
            until(count)
        waiting = [threads.submit(work, "a") for _ in range(2)]
        while len(turns._queue) < 2:
            time.sleep(0.01)
        assert not work("a"), "two of one user may wait"
        late = threads.submit(work, "c")
        time.sleep(0.1)
        assert order == ["a", "b"], "two users work at once"
        release["b"].set()
        until(3)
        assert order == ["a", "b", "c"], "c goes before another one of a, who still works"
        for event in release.values():
            event.set()
        assert all(one.result(10) for one in [*waiting, late])
    with turns.turn("a", 0.0) as granted:
        assert granted, "all turns were given back"
