"""As which account the code of a sweep runs, and what a service that runs it so must keep closed."""

from __future__ import annotations

import grp
import os
import pwd
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.accounts import CODE_AS_USERS, NOBODY
from orchestrator.api import serving
from orchestrator.api.loaded_sweep import LoadedSweep
from orchestrator.api.local_sweep import Sweep
from orchestrator.api.serving import run_code_as_users
from orchestrator.config.trainable import Trainable
from orchestrator.driver import submitted_sweep, user_code
from orchestrator.driver.user_code import AS_USER, account_for, check_service, reader_for
from orchestrator.errors import BadInput, NotAllowed
from orchestrator.ledger.queue import submissions
from orchestrator.storage.paths import Paths
from orchestrator.web.check_process import check

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, which alone can act as others")

GROUP = grp.getgrgid(pwd.getpwnam("nobody").pw_gid).gr_name
COMMAND = Trainable("command", ("true",), "/")
FILE = """\
trainable: {{{code}, folder: "{folder}"}}
search: {{rate: {{uniform: [0, 1]}}}}
training: {{steps: 2, interval: 1}}
objective: {{minimize: val/loss}}
budget: {{trials: 1}}
resources: {{cpu: 1}}
"""


@pytest.fixture
def as_users(monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, which alone can act as others")
    monkeypatch.setenv(CODE_AS_USERS, GROUP)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


@pytest.fixture
def opened() -> Iterator[Path]:
    """A folder that every account can enter, unlike those of pytest."""
    with tempfile.TemporaryDirectory(prefix="accounts-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_code_runs_as_this_process_unless_it_must_run_as_users() -> None:
    assert account_for(COMMAND, "no-such-account") is None
    assert reader_for("no-such-account") is None


@pytest.mark.usefixtures("as_users")
def test_code_runs_as_its_owner_or_not_at_all() -> None:
    owner = account_for(COMMAND, "nobody")
    assert owner is not None
    assert owner.uid == NOBODY.uid
    assert account_for(None, "ada") is None, "a network of this package is not code of a user"
    with pytest.raises(BadInput, match="no such account or group"):
        account_for(COMMAND, "no-such-account")
    assert reader_for("no-such-account") == NOBODY


@pytest.mark.usefixtures("as_users")
@pytest.mark.parametrize(
    ("changes", "where"),
    [
        (
            {"kind": "program", "target": "net.py:Net"},
            "trainable.program is not available where code runs as users",
        ),
        ({"predictor": "train.py:load"}, "trainable.predictor is not available where code runs as users"),
        ({"mlflow": True}, "trainable.mlflow is not available where code runs as users"),
    ],
)
def test_what_would_run_or_be_read_as_the_service_is_refused(changes: Mapping[str, Any], where: str) -> None:
    with pytest.raises(BadInput, match=where):
        account_for(replace(COMMAND, **changes), "nobody")


@pytest.mark.usefixtures("as_users")
def test_a_cluster_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    with pytest.raises(BadInput, match="accounts exist on one machine only"):
        account_for(COMMAND, "nobody")


@pytest.mark.usefixtures("as_users")
def test_nobody_but_root_runs_code_as_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(BadInput, match="SWEEP_CODE_AS_USERS requires root, because only root can"):
        account_for(COMMAND, "nobody")


# ------------------------------------------------------------------ the service


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Python and the code be where every account can read them, wherever this checkout is."""
    monkeypatch.setattr(sys, "executable", "/bin/sh")
    monkeypatch.setattr(user_code, "CODE", Path("/bin/sh"))


@needs_root
@pytest.mark.usefixtures("installed")
def test_a_service_keeps_its_own_files_closed(opened: Path) -> None:
    paths = Paths(opened / "mlruns")
    check_service(GROUP, paths, opened / "data")
    assert (opened / "mlruns").stat().st_mode & 0o777 == 0o700
    (opened / "mlruns").chmod(0o750)
    with pytest.raises(BadInput, match=r"where code runs as users \(got mode 750\)"):
        check_service(GROUP, paths, opened / "data")
    (opened / "mlruns").chmod(0o700)
    elsewhere = replace(paths, database=f"sqlite:///{opened}/sweeps.db")
    with pytest.raises(BadInput, match="must be closed to other accounts"):
        check_service(GROUP, elsewhere, opened / "data")


@needs_root
@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("what", ["mlruns", "data", "sweeps", "cache", "python"])
def test_no_account_can_replace_what_is_the_service_s(
    opened: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """A folder that an account owns is closed to all others, and one above can be renamed with all in it."""
    home = opened / "home"
    home.mkdir(mode=0o755)
    places = {name: opened / name for name in ("mlruns", "data", "sweeps", "cache")}
    places[what] = home / what
    places["sweeps"].mkdir(mode=0o700, exist_ok=True)
    if what == "python":
        monkeypatch.setattr(sys, "executable", str(home / "python"))
    ledger = f"sqlite:///{places['sweeps']}/sweeps.db"
    paths = Paths(places["mlruns"], database=ledger, cache=places["cache"])
    check_service(GROUP, paths, places["data"])
    os.chown(home, NOBODY.uid, NOBODY.gid)
    with pytest.raises(BadInput, match=f"{home} must belong to root"):
        check_service(GROUP, paths, places["data"])
    os.chown(home, 0, 0)
    home.chmod(0o775)
    with pytest.raises(BadInput, match=f"{home} must belong to root"):
        check_service(GROUP, paths, places["data"])


@needs_root
def test_a_service_needs_a_group_and_a_python_that_accounts_can_run(
    opened: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BadInput, match=r"must name a group of this machine \(got 'no-such-group'\)"):
        check_service("no-such-group", Paths(opened / "mlruns"), opened / "data")
    closed = opened / "closed"
    closed.mkdir(mode=0o700)
    (closed / "python").touch()
    monkeypatch.setattr(sys, "executable", str(closed / "python"))
    with pytest.raises(BadInput, match=f"{closed} must be open to other accounts"):
        check_service(GROUP, Paths(opened / "mlruns"), opened / "data")


def test_only_root_runs_code_as_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(BadInput, match="requires root on Linux") as refused:
        run_code_as_users(GROUP, root=tmp_path / "mlruns")
    assert refused.value.got.startswith("user 1000")
    assert CODE_AS_USERS not in os.environ
    assert not (tmp_path / "mlruns").exists()


# ------------------------------------------------------------------ files that are sent


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What a check imports late is imported: no account may be able to enter the folder of this Python."""
    folder = tmp_path_factory.mktemp("imported")
    (folder / "own.py").write_text("class Net: pass\ndef train(trial): pass\n")
    for code in ("function: own.py:train", "program: 'own.py:Net'", "command: ['true']"):
        with pytest.raises(BadInput):
            check(sent(folder, code, folder))


def sent(tmp_path: Path, code: str, folder: object, owner: str = "nobody") -> Mapping[str, Any]:
    return {
        "name": "own",
        "text": FILE.format(code=code, folder=folder),
        "profile": None,
        "overrides": (),
        "new": False,
        "root": str(tmp_path / "mlruns"),
        "data": str(tmp_path / "data"),
        "plugins": False,
        "owner": owner,
        "sizes": False,
    }


def test_no_code_of_users_comes_over_http_by_default(opened: Path, tmp_path: Path) -> None:
    with pytest.raises(NotAllowed, match="trainable must be omitted over HTTP"):
        check(sent(tmp_path, "command: ['true']", opened))


@needs_root
@pytest.mark.usefixtures("imported", "as_users")
def test_a_file_that_is_sent_is_read_with_the_rights_of_its_owner(
    opened: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (opened / "train.py").write_text("def train(trial): pass\n")
    modes: list[int] = []
    load = LoadedSweep.load

    def seen(file: Path, **given: Any) -> LoadedSweep:
        modes.append(file.stat().st_mode & 0o777)
        return load(file, **given)

    monkeypatch.setattr(LoadedSweep, "load", seen)
    given = sent(tmp_path, "function: train.py:train", opened)
    checked = check({**given, "sizes": None})
    assert modes == [0o600], "no other account reads what is sent"
    assert checked["document"]["trainable"] == {"function": "train.py:train", "folder": str(opened)}
    assert check(given)["plan"]["trials"] == 1
    opened.chmod(0o700)
    with pytest.raises(BadInput, match="must be accessible to nobody, the account that runs the code"):
        check(sent(tmp_path, "function: train.py:train", opened))


@needs_root
@pytest.mark.usefixtures("imported", "as_users")
@pytest.mark.parametrize("owner", ["nobody", "no-such-account"])
def test_a_program_that_is_sent_shows_nothing_of_files_of_others(
    opened: Path, tmp_path: Path, owner: str
) -> None:
    closed = opened / "closed"
    closed.mkdir(mode=0o700)
    (closed / "net.py").write_text("class Secret: pass\n")
    with pytest.raises(BadInput) as refused:
        check(sent(tmp_path, "program: 'net.py:Net'", closed, owner))
    assert "Secret" not in str(refused.value)


@needs_root
@pytest.mark.usefixtures("imported", "as_users")
def test_a_file_that_is_sent_says_where_its_code_is(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"trainable\.folder must be the absolute path of a folder"):
        check(sent(tmp_path, "command: ['true']", "."))


def change(sweep: Sweep, columns: str) -> None:
    with sweep.workspace.ledger() as ledger, ledger.writer() as connection:
        connection.exec_driver_sql(f"UPDATE submission SET {columns}")
        connection.commit()


@needs_root
@pytest.mark.usefixtures("as_users")
def test_neither_a_later_service_nor_root_runs_the_code_as_itself(
    opened: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, root = opened / "own.yaml", tmp_path / "mlruns"
    file.write_text(FILE.format(code="command: ['true']", folder=opened))
    sweep = Sweep.load(file, root=root)
    submission, _ = serving.submit(sweep, owner="nobody")
    assert submission.options[AS_USER] is True
    with pytest.raises(BadInput, match="no such account"):
        serving.submit(Sweep.load(file, new=True, root=root), owner="no-such-account")
    change(sweep, "state = 'ENDED', code = 4")
    monkeypatch.delenv(CODE_AS_USERS)
    submission, _ = serving.submit(Sweep.load(file, root=root), owner="nobody")
    assert submission.options[AS_USER] is True, "which stays as it is"
    for again in (Sweep.find(sweep.id, root=root), Sweep.load(file, root=root)):
        with pytest.raises(BadInput, match="must be run by a service with `--code-as-users`"):
            again.run()  # as `sweep resume`, `retry-failed` or the file itself would, for root
    change(sweep, "state = 'STARTED', starts = 1, code = NULL")
    with pytest.raises(BadInput, match="must be run by a service with `--code-as-users`"):
        submitted_sweep.drive(sweep.id, 1, root)
    with sweep.workspace.ledger() as ledger:
        ended = submissions.submission(ledger, sweep.id)
    assert ended is not None
    assert ended.code == 2
