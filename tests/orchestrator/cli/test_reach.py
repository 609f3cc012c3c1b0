"""Every verb reaches a service over HTTP, or refuses; none acts on the ledger of this machine instead."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from orchestrator.cli import reach
from orchestrator.cli.app import VERBS, run_command
from orchestrator.ledger.submissions import submissions
from tests import sweeps
from tests.orchestrator.cli.test_help import COMMANDS
from tests.orchestrator.web import server
from tests.orchestrator.web.server import FILE, QUEUED, Client

DOCUMENTED = Path(__file__).parents[3] / "docs" / "service.md"

TRIAL = f"{sweeps.SWEEP_ID}-0"

WORKING: Mapping[str, tuple[list[str], str]] = {
    "submit": (["small.yaml", "--set", "budget.trials=3", "--key", "k"], "small-"),
    "list": ([], QUEUED),
    "status": ([sweeps.SWEEP_ID], "INTERRUPTED"),
    "queue": ([], QUEUED),
    "show": ([TRIAL], f"{TRIAL}: COMPLETE"),
    "logs": ([TRIAL], "what a worker has printed"),
    "move": ([QUEUED, "idle", "--weight", "2"], "class idle, weight 2"),
    "quota": (["ada"], "ada: weight 1, at most 100%"),
    "pause": ([QUEUED], "is asked to save"),
    "resume": ([QUEUED], "goes on"),
    "stop": ([QUEUED], "is asked to save"),
    "retry-failed": ([sweeps.SWEEP_ID, "--key", "k2"], "QUEUED"),
    "release": (["parked"], "QUEUED"),
    "follow": (["ended"], "the end"),
    "run": (["small.yaml", "--set", "budget.trials=5"], "is submitted."),
    "validate": (["small.yaml", "--set", "budget.trials=6"], "trials: 6 of 20 steps"),
    "report": ([sweeps.SWEEP_ID, "--output", "page.html"], "report: page.html"),
    "user add": (["eve", "--role", "viewer", "--days", "7"], "eve has the role viewer until 20"),
    "user list": ([], "bob"),
    "user revoke": (["bob"], "The token of bob is revoked."),
    "user log": (["--limit", "3"], "grace: user revoke bob"),
}
"""Words after each verb, and what it prints of the service."""

CODES = {"follow": 4, "run": 4}
"""Exit codes that are not 0: the sweeps of these verbs have been interrupted."""

ARGUMENTS: Mapping[str, list[str]] = {
    "run": ["small.yaml"],
    "data": ["list"],
    "cluster": ["check", "aws.yaml"],
    "experiment": ["small.yaml"],
    "compare": [sweeps.SWEEP_ID],
    "export-study": [sweeps.SWEEP_ID, "study.db"],
    "export-tensorboard": [sweeps.SWEEP_ID, "curves"],
    "evaluate": [TRIAL],
    "export": [TRIAL],
}
"""Words with which each verb that refuses would act on this machine; the others need none."""

URL = "https://sweeps.example.org"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with server.served(tmp_path / "service" / "mlruns") as client:
        yield client


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of this machine with a file and a ledger of its own, in which commands run."""
    (tmp_path / "small.yaml").write_text(FILE)
    sweeps.filled(tmp_path / "mlruns")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(reach.URL, raising=False)
    return tmp_path


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_every_verb_is_in_one_table() -> None:
    tables = (reach.OVER_HTTP.keys(), reach.HERE.keys(), reach.ALONE.keys())
    verbs = [verb for table in tables for verb in table]
    assert len(verbs) == len(set(verbs))
    grouped = {verb.split()[0] for verb in verbs if " " in verb}
    assert sorted({verb.split()[0] for verb in verbs}) == sorted(VERBS)
    assert {verb for verb in COMMANDS if verb.split()[0] in grouped} <= set(verbs)


def test_the_verbs_of_the_table_have_the_option_and_the_others_do_not() -> None:
    having = {verb for verb, command in COMMANDS.items() if _has(command, reach.OPTION)}
    assert having == reach.OVER_HTTP.keys()
    for verb, options in reach.OVER_HTTP.items():
        assert options <= {name for parameter in COMMANDS[verb].params for name in parameter.opts}


def test_the_documented_table_is_that_of_the_code() -> None:
    """Each row of docs/service.md: a verb, and what it does with `--server`."""
    text = DOCUMENTED.read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `([a-z-]+)` \| (works|refuses)\b.*\|$", text, re.MULTILINE))
    working = {verb.split()[0] for verb in reach.OVER_HTTP}
    answers = {verb: "works" if verb in working else "refuses" for verb in VERBS}
    assert rows == answers


def test_every_verb_that_works_is_run() -> None:
    assert WORKING.keys() == reach.OVER_HTTP.keys()


def test_each_verb_acts_on_the_service(
    client: Client, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = client.workspace.paths
    for log, text in (
        (paths.log(sweeps.SWEEP_ID, TRIAL), "what a worker has printed\n"),
        (paths.driver_log(sweeps.SWEEP_ID), "the end\n"),
    ):
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(text)
    before = contents(here / "mlruns")
    for verb, (words, shown) in WORKING.items():
        known = {"parked": QUEUED, "ended": sweeps.SWEEP_ID}
        chosen = [known.get(word, word) for word in words]
        if verb == "release":
            _set_state(client, QUEUED, "PARKED")
        if verb == "follow":
            _set_state(client, sweeps.SWEEP_ID, "ENDED")
        monkeypatch.setenv("SWEEP_TOKEN", client.tokens["grace" if verb.startswith("user ") else "ada"])
        with interrupted(client) if verb == "run" else nullcontext():
            code = run_command([*verb.split(), *chosen, "--server", client.address])
        printed = capsys.readouterr()
        assert code == CODES.get(verb, 0), (verb, printed.err)
        assert shown in printed.out, verb
    assert contents(here / "mlruns") == before


@contextmanager
def interrupted(client: Client) -> Iterator[None]:
    """End what is submitted meanwhile, as a service does whose driver was stopped."""
    over = threading.Event()

    def end() -> None:
        while not over.wait(0.1):
            with client.workspace.ledger() as ledger:
                new = [entry for entry in submissions(ledger, ended=False) if entry.sweep_id != QUEUED]
            for entry in new:
                _set_state(client, entry.sweep_id, "ENDED")

    thread = threading.Thread(target=end)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _set_state(client: Client, sweep_id: str, state: str) -> None:
    with client.workspace.ledger() as ledger, ledger.writer() as connection:
        connection.exec_driver_sql(f"UPDATE submission SET state = '{state}' WHERE sweep_id = '{sweep_id}'")
        connection.commit()


@pytest.mark.parametrize("verb", [*reach.HERE, *reach.ALONE])
def test_the_other_verbs_refuse_and_change_nothing(
    here: Path, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    before = contents(here)
    assert run_command([verb, *ARGUMENTS.get(verb, []), "--server", URL]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    [line] = printed.err.splitlines()
    assert line.startswith("--server: must")
    assert verb in line
    assert URL in line
    assert contents(here) == before


@pytest.mark.parametrize("verb", reach.HERE)
def test_a_verb_of_this_ledger_refuses_while_the_variable_names_a_service(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    monkeypatch.setenv(reach.URL, URL)
    before = contents(here)
    assert run_command([verb, *ARGUMENTS.get(verb, [])]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("SWEEP_URL: must")
    assert contents(here) == before


def test_the_variable_is_the_service_unless_a_root_is_given(
    client: Client, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(reach.URL, client.address)
    monkeypatch.setenv("SWEEP_TOKEN", client.tokens["vera"])
    assert run_command(["list", "--json"]) == 0
    assert QUEUED in {entry["id"] for entry in json.loads(capsys.readouterr().out)}
    assert run_command(["list", "--json", "--root", "mlruns"]) == 0
    assert {entry["id"] for entry in json.loads(capsys.readouterr().out)} == {sweeps.SWEEP_ID}
    assert run_command(["check", "--root", "mlruns"]) in {0, 1}
    assert run_command(["init"]) == 0, "a verb that asks no ledger"


def test_an_option_of_a_quota_is_for_the_service_too(
    client: Client, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SWEEP_TOKEN", client.tokens["grace"])
    options = ["--weight", "2", "--share", "0.5", "--gpu-hours", "100", "--sweeps", "4"]
    assert run_command(["quota", "ada", *options, "--server", client.address]) == 0
    assert "at most 50%" in capsys.readouterr().out


def test_users_of_the_service_are_not_those_of_this_machine(
    client: Client, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(reach.URL, client.address)
    monkeypatch.setenv("SWEEP_TOKEN", client.tokens["ada"])
    for words in (["add", "eve"], ["list"], ["revoke", "vera"], ["log"]):
        assert run_command(["user", *words]) == 2
        assert "must be asked for by an admin" in capsys.readouterr().err
    monkeypatch.setenv("SWEEP_TOKEN", client.tokens["grace"])
    assert run_command(["user", "add", "eve", "--days", "inf"]) == 0
    sentence, token = capsys.readouterr().out.splitlines()
    assert "until" not in sentence
    assert run_command(["user", "list", "--json"]) == 0
    listed = capsys.readouterr().out
    assert {row["name"]: row["expires_at"] for row in json.loads(listed)}["eve"] is None
    assert run_command(["user", "log", "--json", "--limit", "1"]) == 0
    logged = capsys.readouterr().out
    [entry] = json.loads(logged)
    assert (entry["actor"], entry["action"], entry["target"]) == ("grace", "user add", "eve")
    assert token not in listed + logged
    monkeypatch.setenv("SWEEP_TOKEN", token)
    assert run_command(["queue"]) == 0
    assert run_command(["user", "list", "--root", "mlruns"]) == 0
    assert "There are no users" in capsys.readouterr().out


@pytest.mark.parametrize("verb", reach.OVER_HTTP)
def test_an_option_without_effect_there_is_refused(
    here: Path, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    options = {name for parameter in COMMANDS[verb].params for name in parameter.opts if name[:2] == "--"}
    for option in sorted(options - reach.OVER_HTTP[verb] - {reach.OPTION}):
        assert run_command([*verb.split(), "something", "--server", URL, f"{option}=1"]) == 2
        [line] = capsys.readouterr().err.splitlines()
        assert line.startswith(f"{option}: must be left out of `{verb}`")
    assert not (here / "mlruns" / "something").exists()


def test_a_user_name_in_an_address_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["gc", "--server=https://ada:secret@sweeps.example.org"]) == 2
    assert "secret" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [["gc", "--server"], ["gc", "--help"], ["--help"], ["--show-completion"], ["user"], ["user", "no"], []],
)
def test_incomplete_command_lines_are_left_to_the_verb(words: list[str]) -> None:
    if words == ["gc", "--server"]:
        with pytest.raises(reach.BadInput):
            reach.with_server(words, None)
    else:
        assert reach.with_server(words, URL) == words


def _has(command: object, option: str) -> bool:
    return any(option in parameter.opts for parameter in command.params)  # type: ignore[attr-defined]
