"""Every verb prints the same with and without `--server`, or works only on the machine of its ledger."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from orchestrator.cli.app import VERBS, run_command
from orchestrator.cli.options import OF_THIS_MACHINE, URL
from orchestrator.ledger.queue.submissions import submissions
from tests import sweeps
from tests.orchestrator.cli.test_help import COMMANDS
from tests.orchestrator.web import server
from tests.orchestrator.web.server import FILE, QUEUED, Client

DOCUMENTED = Path(__file__).parents[3] / "docs" / "service.md"
TRIAL = f"{sweeps.SWEEP_ID}-0"
SERVICE = "https://sweeps.example.org"

SAME: Mapping[str, list[list[str]]] = {
    "list": [[], ["--json"], ["--archived"], ["--disk"], ["--disk", "--json"]],
    "status": [[], [sweeps.SWEEP_ID], [QUEUED], [sweeps.SWEEP_ID, "--json"], ["retrieval"]],
    "queue": [[], ["--json"]],
    "show": [[TRIAL], [TRIAL, "--json"], [sweeps.SWEEP_ID, "7"]],
    "logs": [[TRIAL], [TRIAL, "--json"]],
    "sql": [
        ["select key, state from trials order by key"],
        ["select key, value from trials order by key", "--json", "--rows", "3"],
        ["select name, cause from trials join sweeps on sweep = id", "--csv"],
    ],
    "follow": [[sweeps.SWEEP_ID]],
    "validate": [["small.yaml"], ["small.yaml", "--json"]],
    "move": [[QUEUED, "idle", "--weight", "2"], [QUEUED, "normal", "--json"]],
    "compare": [
        [sweeps.SWEEP_ID],
        ["retrieval", "retrieval", "--json"],
        [sweeps.SWEEP_ID, "--tuning", "--markdown", "--output", "compared.html"],
    ],
    "replay": [
        [sweeps.SWEEP_ID, "--scheduler", "asha:reduction=3", "--workers", "4"],
        ["retrieval", "--scheduler", "none", "--draws", "2", "--json"],
    ],
    "quota": [
        ["ada"],
        ["ada", "--json"],
        ["ada", "--weight", "2", "--share", "0.5", "--gpu-hours", "100", "--sweeps", "4"],
    ],
    "cost": [[], ["--json"], ["--prices", "prices.yaml"]],
    "stop": [[QUEUED], [QUEUED, "--json"]],
    "archive": [[sweeps.SWEEP_ID]],
    "delete": [[sweeps.SWEEP_ID, "--yes"], [sweeps.SWEEP_ID, "--yes", "--json"]],
    "user list": [[], ["--json"]],
    "user revoke": [["bob"], ["bob", "--json"]],
}
"""Words after each verb that prints the same on both sides."""

OTHER: Mapping[str, tuple[list[str], str]] = {
    "submit": (["small.yaml", "--set", "budget.trials=3", "--key", "k"], "small-"),
    "resume": ([QUEUED], "is submitted."),
    "try": ([QUEUED, "learning_rate=1e-3"], "tries learning_rate 0.001 next."),
    "retry-failed": ([sweeps.SWEEP_ID, "--key", "k2"], "is submitted."),
    "note": ([sweeps.SWEEP_ID, "7", "--text", "Spikes", "--tag", "odd"], "odd\nSpikes\n(ada, 20"),
    "run": (["small.yaml", "--set", "budget.trials=5"], "is submitted."),
    "report": ([sweeps.SWEEP_ID, "--output", "page.html"], "page.html"),
    "notify": (["mailto:ada@example.org", "--event", "ended"], "1  mailto:ada@example.org  ended"),
    "user add": (["eve", "--role", "viewer", "--days", "7"], "Created eve (viewer) until 20"),
    "user log": (["--limit", "3"], "grace: user add eve"),
}
"""Verbs whose output names a token, a user or this machine, and what they print of the service."""

BY_PROTOCOL = {"mcp"}
"""Verbs that answer by a protocol on standard output; `test_agent_tools.py` calls them on both sides."""

HERE_ONLY = {
    *("experiment", "evaluate", "export", "export-study", "export-tensorboard"),
    *("ui", "check", "gc", "mlflow", "recover"),
}
"""Verbs that need the machine of the ledger."""

ALONE = {"init", "import", "serve", "data", "cluster"}
"""Verbs that act on no ledger of sweeps, or are the service."""

ARGUMENTS: Mapping[str, list[str]] = {
    "experiment": ["small.yaml"],
    "mlflow": ["rebuild"],
    "export-study": [sweeps.SWEEP_ID, "study.db"],
    "export-tensorboard": [sweeps.SWEEP_ID, "curves"],
    "evaluate": [TRIAL],
    "export": [TRIAL],
}
"""Words with which each verb of `HERE_ONLY` would act on this machine; the others need none."""


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with server.served(tmp_path / "service" / "mlruns") as client:
        paths = client.workspace.paths
        for log, text in (
            (paths.log(sweeps.SWEEP_ID, TRIAL), "what a worker has printed\n"),
            (paths.driver_log(sweeps.SWEEP_ID), "the end\n"),
        ):
            log.parent.mkdir(parents=True, exist_ok=True)
            log.write_text(text)
        yield client


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of this machine with a file and a ledger of its own, in which commands run."""
    (tmp_path / "small.yaml").write_text(FILE)
    (tmp_path / "prices.yaml").write_text("CPU: 0.04\n")
    sweeps.filled(tmp_path / "mlruns")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(URL, raising=False)
    return tmp_path


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_every_verb_is_in_one_table() -> None:
    """A verb reaches a service if, and only if, it has `--server`; the protocol has what it needs."""
    having = {verb for verb, command in COMMANDS.items() if _has(command, "--server")}
    assert having == SAME.keys() | OTHER.keys() | BY_PROTOCOL
    without = {verb.split()[0] for verb in COMMANDS} - {verb.split()[0] for verb in having}
    assert without == HERE_ONLY | ALONE


def test_the_documented_table_is_that_of_the_code() -> None:
    """Each row of docs/service.md: a verb, and what it does with `--server`."""
    text = DOCUMENTED.read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `([a-z-]+)` \| (works|refuses)\b.*\|$", text, re.MULTILINE))
    working = {verb.split()[0] for verb in SAME.keys() | OTHER.keys() | BY_PROTOCOL}
    answers = {verb: "works" if verb in working else "refuses" for verb in VERBS}
    assert rows == answers


@pytest.mark.slow_cases("replay", "validate")
@pytest.mark.parametrize("verb", SAME)
def test_a_verb_prints_the_same_on_both_sides(
    client: Client,
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    verb: str,
) -> None:
    monkeypatch.setenv("SWEEP_TOKEN", client.tokens["grace"])
    before = contents(here / "mlruns")
    root = client.workspace.paths.root
    for words in SAME[verb]:
        if verb == "validate":  # both look for the same data folder
            monkeypatch.setenv("SWEEP_DATA", str(client.workspace.data))
        codes = [run_command([*verb.split(), *words, *where]) for where in _sides(client, root)]
        printed = capsys.readouterr()
        there, local = _halves(printed.out)
        assert there == local, words
        assert there
        if "--json" in words:
            json.loads(there)
        assert codes[0] == codes[1], printed.err
    assert contents(here / "mlruns") == before


def _sides(client: Client, root: Path) -> Iterator[list[str]]:
    yield ["--server", client.address]
    print("=" * 8)  # noqa: T201 - parts the outputs
    yield ["--root", str(root)]


def _halves(text: str) -> tuple[str, str]:
    there, _, local = text.partition("=" * 8 + "\n")
    return there, local


@pytest.mark.slow
def test_the_other_verbs_act_on_the_service(
    client: Client, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(here / "mlruns")
    run_command(["stop", QUEUED, "--root", str(client.workspace.paths.root)])
    for verb, (words, shown) in OTHER.items():
        follows = verb in {"run", "resume", "retry-failed"}
        monkeypatch.setenv("SWEEP_TOKEN", client.tokens["grace" if verb.startswith("user ") else "ada"])
        with _ended(client) if follows else nullcontext():
            code = run_command([*verb.split(), *words, "--server", client.address])
        printed = capsys.readouterr()
        assert code == (4 if follows else 0), (verb, printed.err)
        assert shown in printed.out, verb
    assert contents(here / "mlruns") == before


@contextmanager
def _ended(client: Client) -> Iterator[None]:
    """End what is queued meanwhile, as a service does whose driver was stopped."""
    over = threading.Event()

    def end() -> None:
        while not over.wait(0.1):
            with client.workspace.ledger() as ledger:
                waiting = submissions(ledger, ended=False)
            for entry in waiting:
                if entry.state == "QUEUED":
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


def test_a_parked_sweep_is_resumed(
    client: Client, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SWEEP_TOKEN", client.tokens["ada"])
    _set_state(client, QUEUED, "PARKED")
    with _ended(client):
        assert run_command(["resume", QUEUED, "--server", client.address]) == 4
    assert f"{QUEUED} is submitted." in capsys.readouterr().out


@pytest.mark.parametrize("verb", sorted(HERE_ONLY | ALONE))
def test_a_verb_without_a_server_refuses_one_and_changes_nothing(
    here: Path, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    before = contents(here)
    words = {"data": ["list"], "cluster": ["token"]}.get(verb, ARGUMENTS.get(verb, []))
    assert run_command([verb, *words, "--server", SERVICE]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    [line] = printed.err.splitlines()
    assert line == f"`{verb}` works only on this machine: it has no option --server."
    assert contents(here) == before


@pytest.mark.parametrize("verb", sorted(HERE_ONLY))
def test_a_verb_of_this_ledger_refuses_while_the_variable_names_a_service(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    monkeypatch.setenv(URL, "https://ada:secret@sweeps.example.org")
    before = contents(here)
    assert run_command([verb, *ARGUMENTS.get(verb, [])]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("SWEEP_URL must")
    assert "secret" not in line
    assert contents(here) == before


def test_the_variable_is_the_service_unless_a_root_is_given(
    client: Client, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(URL, client.address)
    monkeypatch.setenv("SWEEP_TOKEN", client.tokens["vera"])
    assert run_command(["list", "--json"]) == 0
    assert QUEUED in {entry["id"] for entry in json.loads(capsys.readouterr().out)}
    assert run_command(["list", "--json", "--root", "mlruns"]) == 0
    assert {entry["id"] for entry in json.loads(capsys.readouterr().out)} == {sweeps.SWEEP_ID}
    assert run_command(["check", "--root", "mlruns"]) in {0, 1}
    assert run_command(["init"]) == 0, "a verb that reads no ledger"


def test_users_of_the_service_are_not_those_of_this_machine(
    client: Client, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(URL, client.address)
    monkeypatch.setenv("SWEEP_TOKEN", client.tokens["ada"])
    for words in (["add", "eve"], ["list"], ["revoke", "vera"], ["log"]):
        assert run_command(["user", *words]) == 2
        assert "requires an admin" in capsys.readouterr().err
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
    assert "No users yet" in capsys.readouterr().out


@pytest.mark.parametrize("verb", sorted(SAME.keys() | OTHER.keys()))
def test_an_option_without_effect_there_is_refused(
    here: Path, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    command = COMMANDS[verb]
    words = ["something"] * sum(parameter.param_type_name == "argument" for parameter in command.params)
    for parameter in command.params:
        if getattr(parameter, "rich_help_panel", None) in OF_THIS_MACHINE:
            value = [] if parameter.is_flag else ["1"]
            assert run_command([*verb.split(), *words, "--server", SERVICE, parameter.opts[0], *value]) == 2
            [line] = capsys.readouterr().err.splitlines()
            assert line.startswith(f"{parameter.opts[0]} has no effect on a remote service")
    assert not (here / "mlruns" / "something").exists()


def _has(command: object, option: str) -> bool:
    return any(option in parameter.opts for parameter in command.params)  # type: ignore[attr-defined]
