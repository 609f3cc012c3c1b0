"""Every method of the client protocol answers the same on both backends."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, is_dataclass, replace
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from orchestrator import Sweep
from orchestrator.api.local import LocalBackend
from orchestrator.client import answers, protocol
from orchestrator.client.http import HttpBackend
from orchestrator.client.protocol import Backend
from orchestrator.errors import (
    CLASSES,
    BadInput,
    Damaged,
    NotAllowed,
    NotSignedIn,
    OverQuota,
    Refusal,
    TooManyRequests,
    to_document,
)
from orchestrator.ledger.rows import ATTEMPTS
from orchestrator.ledger.tables import ATTEMPT
from tests import sweeps
from tests.orchestrator.ledger.examples import create_sweep
from tests.orchestrator.web import server
from tests.orchestrator.web.server import FILE, QUEUED, Client

TRIAL = f"{sweeps.SWEEP_ID}-0"
METHODS = {name for name in vars(Backend) if not name.startswith("_")}

READ: dict[str, Callable[[Backend], Any]] = {
    "sweeps": lambda backend: [
        backend.sweeps(),
        backend.sweeps(tag="baseline"),
        backend.sweeps(task="copy", since=1.0),
        backend.sweeps(since=1e12),
        backend.sweeps(archived=True),
    ],
    "status": lambda backend: [backend.status(name) for name in (None, sweeps.SWEEP_ID, QUEUED)],
    "live": lambda backend: [backend.live(name) for name in (None, sweeps.SWEEP_ID, QUEUED)],
    "changes": lambda backend: backend.changes(sweeps.SWEEP_ID),
    "pareto": lambda backend: backend.pareto(sweeps.SWEEP_ID),
    "trials": lambda backend: backend.trials(sweeps.SWEEP_ID),
    "trial": lambda backend: backend.trial(TRIAL),
    "reports": lambda backend: backend.reports(TRIAL),
    "log": lambda backend: [backend.log(sweeps.SWEEP_ID), backend.log(sweeps.SWEEP_ID, 4)],
    "trial_log": lambda backend: backend.trial_log(TRIAL, 3),
    "curves": lambda backend: [
        backend.curves(sweeps.SWEEP_ID),
        backend.curves(sweeps.SWEEP_ID, "train/loss", trials=2, points=3),
        backend.curves(sweeps.SWEEP_ID, chosen=(1, 4, 99)),
        backend.curves(QUEUED),
    ],
    "result": lambda backend: backend.result(sweeps.SWEEP_ID),
    "analysis": lambda backend: backend.analysis(sweeps.SWEEP_ID),
    "compare": lambda backend: [
        backend.compare([sweeps.SWEEP_ID]),
        backend.compare([sweeps.SWEEP_ID, "retrieval"], tuning=True),
        backend.compare([sweeps.SWEEP_ID], page=True),
    ],
    "replay": lambda backend: [
        backend.replay(sweeps.SWEEP_ID, ["asha:reduction=3", "none"], [2, 4], draws=2),
        backend.replay(sweeps.SWEEP_ID, ["none"]),
    ],
    "sql": lambda backend: [
        backend.sql("SELECT key, number, value, cause FROM trials"),
        backend.sql("SELECT * FROM metrics", rows=3),
    ],
    "queue": lambda backend: backend.queue(),
    "pools": lambda backend: backend.pools(),
    "quota": lambda backend: backend.quota("ada"),
    "deletion": lambda backend: [backend.deletion(name) for name in (sweeps.SWEEP_ID, QUEUED)],
    "disk": lambda backend: backend.disk(),
    "cost": lambda backend: [
        backend.cost(),
        backend.cost(since=sweeps.CREATED + 100),
        backend.cost(since=1e12),
    ],
    "notices": lambda backend: backend.notices(),
    "users": lambda backend: backend.users(),
    "audit_log": lambda backend: backend.audit_log(3),
}
"""Calls of the methods that change nothing."""


UNKNOWN = "nothing-of-the-kind"
"""Beginning of no ID, and no name of a user."""

SHORT = "task: copy\ntraining: {steps: -1}\nsampler: {randon: {}}\n"
"""File with several mistakes."""

REFUSED: dict[str, list[Callable[[Backend, Path], Any]]] = {
    "status": [lambda backend, folder: backend.status(UNKNOWN), lambda backend, folder: backend.status("")],
    "live": [lambda backend, folder: backend.live(UNKNOWN)],
    "changes": [lambda backend, folder: backend.changes(UNKNOWN)],
    "trials": [lambda backend, folder: backend.trials(UNKNOWN)],
    "trial": [
        lambda backend, folder: backend.trial(f"{sweeps.SWEEP_ID}-99"),
        lambda backend, folder: backend.trial(f"{QUEUED}-0"),
        lambda backend, folder: backend.trial(f"{UNKNOWN}-0"),
        lambda backend, folder: backend.trial("99"),
        lambda backend, folder: backend.trial("best"),
    ],
    "reports": [lambda backend, folder: backend.reports(f"{sweeps.SWEEP_ID}-99")],
    "log": [lambda backend, folder: backend.log(UNKNOWN)],
    "trial_log": [lambda backend, folder: backend.trial_log(f"{sweeps.SWEEP_ID}-99")],
    "curves": [lambda backend, folder: backend.curves(UNKNOWN)],
    "result": [
        lambda backend, folder: backend.result(UNKNOWN),
        lambda backend, folder: backend.result(QUEUED),
    ],
    "analysis": [
        lambda backend, folder: backend.analysis(UNKNOWN),
        lambda backend, folder: backend.analysis(QUEUED),
    ],
    "pareto": [
        lambda backend, folder: backend.pareto(UNKNOWN),
        lambda backend, folder: backend.pareto(QUEUED),
    ],
    "try_setting": [
        lambda backend, folder: backend.try_setting(UNKNOWN, {"learning_rate": 1e-3}),
        lambda backend, folder: backend.try_setting(sweeps.SWEEP_ID, {"learning_rate": 1e-3}),
        lambda backend, folder: backend.try_setting(QUEUED, {"learning_rate": 1e9}),
        lambda backend, folder: backend.try_setting(QUEUED, {"depth": 3}),
    ],
    "compare": [
        lambda backend, folder: backend.compare([sweeps.SWEEP_ID, UNKNOWN]),
        lambda backend, folder: backend.compare([QUEUED]),
        lambda backend, folder: backend.compare([]),
    ],
    "replay": [
        lambda backend, folder: backend.replay(UNKNOWN),
        lambda backend, folder: backend.replay(QUEUED),
        lambda backend, folder: backend.replay(sweeps.SWEEP_ID, ["ashes"]),
        lambda backend, folder: backend.replay(sweeps.SWEEP_ID, ["none"], [0]),
        lambda backend, folder: backend.replay(sweeps.SWEEP_ID, ["none"], draws=0),
    ],
    "sql": [
        lambda backend, folder: backend.sql("DROP TABLE trial"),
        lambda backend, folder: backend.sql("SELECT token_digest FROM service_user"),
        lambda backend, folder: backend.sql(""),
        lambda backend, folder: backend.sql("SELECT " + "1" * 5_000),
        lambda backend, folder: backend.sql("SELECT 1", rows=0),
    ],
    "report": [
        lambda backend, folder: backend.report(UNKNOWN),
        lambda backend, folder: backend.report(QUEUED),
    ],
    "submit": [
        lambda backend, folder: backend.submit(folder / "short.yaml"),
        lambda backend, folder: backend.submit(folder / "missing.yaml"),
        lambda backend, folder: backend.submit(folder / "small.yaml", overrides=["budget.trials=0"]),
    ],
    "validate": [
        lambda backend, folder: backend.validate(folder / "short.yaml"),
        lambda backend, folder: backend.validate(folder / "small.yaml", profile="large"),
    ],
    "stop": [
        lambda backend, folder: backend.stop(UNKNOWN),
        lambda backend, folder: backend.stop(sweeps.SWEEP_ID),
        lambda backend, folder: backend.stop(sweeps.SWEEP_ID, "0"),
        lambda backend, folder: backend.stop(sweeps.SWEEP_ID, "99"),
        lambda backend, folder: backend.stop(QUEUED, "best"),
    ],
    "deletion": [lambda backend, folder: backend.deletion(UNKNOWN)],
    "shelve": [
        lambda backend, folder: backend.shelve(UNKNOWN, "archived"),
        lambda backend, folder: backend.shelve(QUEUED, "deleted"),
        lambda backend, folder: backend.shelve(sweeps.SWEEP_ID, None),
    ],
    "note": [
        lambda backend, folder: backend.note(UNKNOWN, text="x"),
        lambda backend, folder: backend.note(sweeps.SWEEP_ID, "99", text="x"),
        lambda backend, folder: backend.note(sweeps.SWEEP_ID, "best", text="x"),
        lambda backend, folder: backend.note(QUEUED, "0", text="x"),
        lambda backend, folder: backend.note(sweeps.SWEEP_ID),
        lambda backend, folder: backend.note(sweeps.SWEEP_ID, add=["two words"]),
        lambda backend, folder: backend.note(sweeps.SWEEP_ID, text="x" * 6_001),
        lambda backend, folder: backend.note(sweeps.SWEEP_ID, text="\x1b[2J"),
    ],
    "resume": [
        lambda backend, folder: backend.resume(UNKNOWN),
        lambda backend, folder: backend.resume(QUEUED),
        lambda backend, folder: backend.resume(sweeps.SWEEP_ID, "0"),
        lambda backend, folder: backend.resume(QUEUED, "0"),
    ],
    "extend": [
        lambda backend, folder: backend.extend(UNKNOWN, trials=9),
        lambda backend, folder: backend.extend(QUEUED, trials=9),
        lambda backend, folder: backend.extend(sweeps.SWEEP_ID, trials=0),
        lambda backend, folder: backend.extend(sweeps.SWEEP_ID, hours=-1.0),
    ],
    "retry": [
        lambda backend, folder: backend.retry(UNKNOWN),
        lambda backend, folder: backend.retry(QUEUED),
    ],
    "move": [
        lambda backend, folder: backend.move(UNKNOWN, "idle"),
        lambda backend, folder: backend.move(QUEUED, "fast"),
        lambda backend, folder: backend.move(QUEUED, "idle", weight=0),
    ],
    "quota": [lambda backend, folder: backend.quota(UNKNOWN)],
    "set_quota": [
        lambda backend, folder: backend.set_quota(UNKNOWN, weight=2),
        lambda backend, folder: backend.set_quota("ada", share=2),
        lambda backend, folder: backend.set_quota("ada", gpu_hours=-1),
        lambda backend, folder: backend.set_quota("ada", sweeps=1.5),
    ],
    "cost": [
        lambda backend, folder: backend.cost(folder / "missing.yaml"),
        lambda backend, folder: backend.cost(folder / "free.yaml"),
        lambda backend, folder: backend.cost(folder / "wrong.yaml"),
    ],
    "add_notice": [
        lambda backend, folder: backend.add_notice("mailto:ada"),
        lambda backend, folder: backend.add_notice("https://"),
        lambda backend, folder: backend.add_notice("mailto:ada@example.org", ["bset"]),
        lambda backend, folder: backend.add_notice("https://example.org/" + "x" * 2_000),
    ],
    "remove_notice": [lambda backend, folder: backend.remove_notice(7)],
    "add_user": [
        lambda backend, folder: backend.add_user("ada"),
        lambda backend, folder: backend.add_user("Not A Name"),
        lambda backend, folder: backend.add_user("eve", "owner"),
        lambda backend, folder: backend.add_user("eve", days=0),
    ],
    "revoke_user": [lambda backend, folder: backend.revoke_user(UNKNOWN)],
}
"""Calls that are refused: an unknown sweep, trial or user, a wrong state, a wrong value."""

NOTICES = {"add_notice", "remove_notice"}
"""Methods that change the caller's targets of notifications."""

WITHOUT_ARGUMENTS = {"disk", "sweeps", "queue", "pools", "notices", "users", "audit_log"}
"""Methods that can be refused only if the ledger does not answer, or over HTTP to a user without the role."""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with server.served(tmp_path_factory.mktemp("service") / "mlruns") as client:
        paths = client.workspace.paths
        for log in (paths.log(sweeps.SWEEP_ID, TRIAL), paths.driver_log(sweeps.SWEEP_ID)):
            log.parent.mkdir(parents=True, exist_ok=True)
            log.write_text("what was printed\n")
        give_workers(client)
        yield client


def give_workers(client: Client) -> None:
    """Let each attempt of the finished sweep have held its resources for 36 s."""
    with client.workspace.ledger() as ledger, ledger.writer() as connection:
        for attempt in ledger.attempts(sweeps.SWEEP_ID):
            held = replace(attempt, taken_at=attempt.started_at, ended_at=attempt.started_at + 36.0)
            row = ATTEMPTS.encode(held)
            connection.execute(ATTEMPT.update().where(ATTEMPT.c.id == attempt.id).values(row))
        connection.commit()


def backends(client: Client, user: str = "grace") -> tuple[Backend, Backend]:
    paths = client.workspace
    return LocalBackend(paths.paths.root, paths.data), HttpBackend(client.address, client.tokens[user])


def plain(answer: Any) -> Any:
    """Return an answer as JSON values, with the type of each dataclass, without the time of an analysis."""
    if isinstance(answer, list | tuple):
        return [plain(each) for each in answer]
    if is_dataclass(answer) and not isinstance(answer, type):
        values = {name: value for name, value in asdict(answer).items() if name != "as_of"}
        return [type(answer).__name__, json.loads(json.dumps(values))]
    return answer


@pytest.mark.slow_cases("replay")
@pytest.mark.parametrize("method", READ)
def test_both_backends_answer_the_same(client: Client, method: str) -> None:
    local, remote = backends(client)
    assert plain(READ[method](remote)) == plain(READ[method](local))


OF_A_SWEEP: dict[str, Callable[[Sweep], Any]] = {
    "status": lambda sweep: sweep.status(),
    "pareto": lambda sweep: sweep.pareto(),
    "result": lambda sweep: sweep.result(),
    "analysis": lambda sweep: sweep.analysis(),
    "compare": lambda sweep: sweep.compare("retrieval", tuning=True),
}
"""Methods of `Sweep` that are in the protocol and only read."""


@pytest.mark.parametrize("method", OF_A_SWEEP)
def test_a_sweep_of_this_machine_answers_like_a_remote_service(client: Client, method: str) -> None:
    sweep = Sweep.find(sweeps.SWEEP_ID, root=client.workspace.paths.root)
    _, remote = backends(client)
    asked = (
        remote.compare([sweep.id, "retrieval"], tuning=True)
        if method == "compare"
        else getattr(remote, method)(sweep.id)
    )
    assert plain(OF_A_SWEEP[method](sweep)) == plain(asked)


def test_every_method_of_a_sweep_that_is_in_the_protocol_returns_the_same_type() -> None:
    """`trials` and `curves` are no calls: they are the pandas frames of a sweep of this machine."""
    shared = {name for name in METHODS if callable(getattr(Sweep, name, None))}
    assert shared == {*OF_A_SWEEP, "report", "stop", "try_setting"}
    for name in shared:
        of_sweep = get_type_hints(getattr(Sweep, name))["return"]
        known = {
            **vars(answers),
            **vars(protocol),
        }  # the protocol imports most answers for type checkers alone
        of_backend = get_type_hints(getattr(Backend, name), known)["return"]
        assert of_sweep is of_backend, name


def test_connect_chooses_the_url_then_the_root_then_the_variable(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, token = client.workspace.paths.root, client.tokens["grace"]
    for given in ({"url": client.address, "token": token}, {"root": root}):
        assert Sweep.connect(**given).status(sweeps.SWEEP_ID).id == sweeps.SWEEP_ID
    monkeypatch.setenv("SWEEP_URL", client.address)
    monkeypatch.setenv("SWEEP_TOKEN", token)
    assert isinstance(Sweep.connect(), HttpBackend)
    assert isinstance(Sweep.connect(root=root), LocalBackend)
    monkeypatch.delenv("SWEEP_URL")
    assert isinstance(Sweep.connect(), LocalBackend)
    with pytest.raises(BadInput, match="root must be left out if a URL is given"):
        Sweep.connect(client.address, token, root=tmp_path)


def test_the_report_is_the_same_page(client: Client) -> None:
    pages = [backend.report(sweeps.SWEEP_ID) for backend in backends(client)]
    assert all(b"<html" in page for page in pages)


def test_hours_have_the_prices_of_a_file(client: Client, tmp_path: Path) -> None:
    """Each of eight trials has held one core for 36 s."""
    file = tmp_path / "prices.yaml"
    file.write_text("CPU: 0.5\nNVIDIA H200: 3.2\n")
    for backend in backends(client, "vera"):
        [row] = backend.cost(file)
        assert (row.owner, row.sweep, row.device, row.gpu_hours) == ("ada", sweeps.SWEEP_ID, "CPU", 0.0)
        used = backend.status(sweeps.SWEEP_ID).cost
        assert used is not None
        assert row.core_hours == row.trial_hours == pytest.approx(used.core_hours) == pytest.approx(0.08)
        assert row.cost == pytest.approx(0.04)


@pytest.mark.slow
def test_a_validated_file_gives_the_same_plan(client: Client, tmp_path: Path) -> None:
    file = tmp_path / "small.yaml"
    file.write_text(FILE)
    local, remote = (backend.validate(file, sizes=False) for backend in backends(client))
    assert plain(remote) == plain(local)
    assert remote.lines[0].endswith(": valid")


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("place", [0, 1], ids=["local", "http"])
def test_a_submission_answers_with_the_warnings_of_validate(place: int, tmp_path: Path) -> None:
    """The file repeats a sweep that runs; with a key, the repeated request has the answer of the first."""
    file = tmp_path / "small.yaml"
    file.write_text(FILE)
    with server.served(tmp_path / "mlruns") as client:
        workspace, backend = client.workspace, backends(client)[place]
        first = Sweep.load(file, root=workspace.paths.root, data=workspace.data)
        what = first.specification
        with workspace.ledger() as ledger:
            create_sweep(
                ledger, sweeps.sweep_record(id=first.id, document=what.document(), digest=what.digest)
            )
        planned = backend.validate(file, sizes=False).warnings
        assert [text.partition(",")[0] for text in planned] == [f"it repeats {first.id}"]
        for _ in range(2):
            submitted = backend.submit(file, new=True, key="k")
            assert submitted.id != first.id
            assert list(submitted.warnings) == list(planned)
        other = backend.submit(file, overrides=["training.steps=30"], new=True)
        assert list(other.warnings) == []


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("place", [0, 1], ids=["local", "http"])
def test_changes_answer_the_same_types(place: int, tmp_path: Path) -> None:
    """The answers differ in names of hosts and tokens only, so each is compared with its own effect."""
    file = tmp_path / "small.yaml"
    file.write_text(FILE)
    with server.served(tmp_path / "mlruns") as client:
        backend = backends(client)[place]
        submitted = backend.submit(file, overrides=["budget.trials=3"])
        assert (submitted.state, submitted.added) == ("QUEUED", True)
        assert backend.status(submitted.id).progress.wanted == 3
        assert backend.status("small").id == submitted.id
        moved = backend.move(submitted.id, "idle", weight=2)
        assert (moved.id, moved.priority_class, moved.weight) == (submitted.id, "idle", 2.0)
        tried = backend.try_setting(submitted.id, {"learning_rate": 2e-3})
        assert (tried.id, tried.params, tried.before) == (submitted.id, {"learning_rate": 2e-3}, 0)
        assert backend.try_setting(submitted.id, {"learning_rate": 1e-3}).before == 1
        assert backend.stop(submitted.id).driver is None
        assert backend.status(submitted.id).paused
        assert not backend.resume(submitted.id).paused
        assert backend.shelve(sweeps.SWEEP_ID, "archived").shelf == "archived"
        assert sweeps.SWEEP_ID not in {each.id for each in backend.sweeps()}
        assert [each.id for each in backend.sweeps(archived=True)] == [sweeps.SWEEP_ID]
        assert backend.status(sweeps.SWEEP_ID).shelf == "archived"
        assert backend.shelve(sweeps.SWEEP_ID, None).shelf is None
        retried = backend.retry(sweeps.SWEEP_ID)
        assert (retried.id, retried.state) == (sweeps.SWEEP_ID, "QUEUED")
        quota = backend.set_quota("ada", weight=2, share=0.5, gpu_hours=math.inf, sweeps=9)
        assert (quota.weight, quota.share, quota.gpu_hours, quota.sweeps) == (2.0, 0.5, None, 9)
        assert backend.quota("ada") == quota
        hook, mail = "https://example.org/secret", "mailto:grace@example.org"
        assert [each.number for each in backend.add_notice(hook, ["best"])] == [1]
        [first, second] = backend.add_notice(mail)
        assert (first.target, tuple(first.events)) == ("https://example.org/...", ("best",))
        assert (second.target, tuple(second.events)) == (mail, ())
        assert (
            plain(backend.remove_notice(1)) == plain([replace(second, number=1)]) == plain(backend.notices())
        )
        eve = backend.add_user("eve", "viewer", days=math.inf)
        assert (eve.name, eve.role, eve.expires_at) == ("eve", "viewer", None)
        assert eve.token
        assert eve.token not in repr(eve)
        assert backend.revoke_user("eve").revoked_at is not None


def refusal(call: Callable[[], Any]) -> Refusal:
    with pytest.raises(Refusal) as refused:
        call()
    return refused.value


@pytest.mark.slow_cases("replay")
@pytest.mark.parametrize("method", REFUSED)
def test_both_backends_refuse_with_the_same_class_and_sentence(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """Both read the same file, of which each names the place as it was given."""
    (tmp_path / "small.yaml").write_text(FILE)
    (tmp_path / "short.yaml").write_text(SHORT)
    (tmp_path / "free.yaml").write_text("NVIDIA H200: 3.2\n")
    (tmp_path / "wrong.yaml").write_text("CPU: 1\nGPU: cheap\n")
    monkeypatch.chdir(tmp_path)
    for call in REFUSED[method]:
        local, remote = (refusal(lambda: call(backend, Path())) for backend in backends(client))  # noqa: B023
        assert [to_document(one) for one in remote.all()] == [to_document(one) for one in local.all()]
        assert [str(one) for one in remote.all()] == [str(one) for one in local.all()]
        assert [type(one) for one in remote.all()] == [
            CLASSES[to_document(one)["error"]] for one in local.all()
        ]


def test_a_member_may_not_do_what_an_admin_may(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The local backend knows no roles, except that class `urgent` requires an admin."""
    monkeypatch.setenv("SWEEP_OWNER", "ada")
    local, remote = (refusal(lambda: each.move(QUEUED, "urgent")) for each in backends(client, "ada"))  # noqa: B023
    assert (type(local), str(local)) == (type(remote), str(remote))
    assert type(remote) is NotAllowed
    _, ada = backends(client, "ada")
    _, bob = backends(client, "bob")
    for refused in (
        *(ada.users, ada.audit_log, lambda: ada.add_user("eve"), lambda: ada.revoke_user("bob")),
        *(lambda: ada.set_quota("ada", weight=2), lambda: bob.move(QUEUED, "idle")),
        *(lambda: bob.stop(QUEUED, "0"), lambda: bob.resume(QUEUED, "0")),
        lambda: bob.shelve(QUEUED, "archived"),
        *(lambda: backends(client, "vera")[1].notices(), lambda: bob.stop(QUEUED)),
        *(lambda: bob.resume(QUEUED), lambda: bob.extend(QUEUED, trials=9)),
        *(lambda: bob.retry(QUEUED), lambda: ada.sql("SELECT 1")),
    ):
        error = refusal(refused)
        assert type(error) is NotAllowed
        assert (error.where[:8], error.remedy) == ("/api/v1/", "Ask an admin to do it.")


@pytest.mark.parametrize("method", sorted(WITHOUT_ARGUMENTS))
def test_a_wrong_token_is_refused(client: Client, method: str) -> None:
    stranger = HttpBackend(client.address, f"unknown-{method}")
    assert type(refusal(getattr(stranger, method))) in {NotSignedIn, TooManyRequests}


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("method", sorted(WITHOUT_ARGUMENTS - {"notices"} | {"status", "quota"}))
def test_an_unreadable_ledger_is_the_same_error_on_both_backends(tmp_path: Path, method: str) -> None:
    """`Damaged` and not `NoServer`: the service answers, and running the command again does not help.

    The targets of notifications are in a file beside the ledger.
    """
    with server.served(tmp_path / "mlruns") as client:
        local, remote = backends(client)
        (client.workspace.paths.root / "sweeps.db").write_bytes(b"This is not a database. " * 500)
        arguments = {"status": (sweeps.SWEEP_ID,), "quota": ("ada",)}.get(method, ())
        errors = [refusal(lambda: getattr(each, method)(*arguments)) for each in (local, remote)]  # noqa: B023
    assert [type(error) for error in errors] == [Damaged, Damaged]
    assert str(errors[0]) == str(errors[1])


@pytest.mark.slow
def test_a_quota_and_a_queued_sweep_are_the_same_errors_on_both_backends(tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(FILE)
    with server.served(tmp_path / "mlruns") as client:
        local, remote = backends(client, "ada")
        backends(client)[0].set_quota("ada", sweeps=1)
        errors = []
        for each in (local, remote):
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("SWEEP_OWNER", "ada")
                errors.append(refusal(lambda: each.submit(tmp_path / "small.yaml")))  # noqa: B023
    assert [type(error) for error in errors] == [OverQuota, OverQuota]
    assert str(errors[0]) == str(errors[1])


def test_every_method_is_refused_somewhere() -> None:
    assert REFUSED.keys() | WITHOUT_ARGUMENTS == METHODS


def test_every_method_is_tested() -> None:
    changing = {"submit", "validate", "stop", "try_setting", "resume", "extend", "retry", "move", "set_quota"}
    named = {"shelve", "note", "add_user", "revoke_user", "report"} | NOTICES
    assert READ.keys() | changing | named == METHODS
