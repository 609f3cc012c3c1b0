"""Drivers of one user share one Ray on a machine: real heads and keepers, without a sweep."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from orchestrator.errors import BadInput, Busy, NoCluster
from orchestrator.machines import joining, keeper
from orchestrator.machines.hardware import Hardware
from orchestrator.machines.head import Head, running, runtime_folder
from orchestrator.schedule import environment
from orchestrator.schedule.resources import REFUSED
from tests.another_account import needs_root, reached

pytestmark = [pytest.mark.end_to_end, pytest.mark.ray]

ONE = Hardware(cpus=1, gpus=0)
DRIVER = """
import sys
from orchestrator.machines.hardware import Hardware
from orchestrator.machines.joining import joined
from orchestrator.schedule import environment
with joined(Hardware(cpus=int(sys.argv[1]), gpus=0), environment.of_head()) as head:
    print(head.pid, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def folder(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield a runtime folder of its own, whose Ray ends with its last driver."""
    monkeypatch.setenv("SWEEP_RUNTIME", str(temporary))
    monkeypatch.setenv("SWEEP_RAY_LINGER", "0")
    yield runtime_folder()
    wait_for(lambda: not processes(temporary))


def processes(folder: Path) -> list[psutil.Process]:
    """Return the keepers of a runtime folder, its head and the head's processes."""
    own = [process for process in psutil.process_iter() if str(folder) in " ".join(_words(process))]
    head = Head.read(runtime_folder())
    return [*own, psutil.Process(head.pid)] if head and head.lives() else own


def keepers(folder: Path) -> list[psutil.Process]:
    """Return the keepers of a runtime folder."""
    return [one for one in processes(folder) if "orchestrator.machines.keeper" in _words(one)]


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def wait_for(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait until a condition holds; fail after a timeout."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


class Driver:
    """A process that uses the shared Ray until it is ended."""

    def __init__(self, cpus: int = 1, *, niceness: int = 0) -> None:
        self.process = subprocess.Popen(
            ["nice", "-n", str(niceness), sys.executable, "-c", DRIVER, str(cpus)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def head(self) -> int:
        """Wait until the driver has joined; return the process id of the head."""
        assert self.process.stdout is not None
        return int(self.process.stdout.readline())

    def leave(self) -> None:
        """End the driver as one that has finished."""
        assert self.process.communicate()[1] == ""

    def kill(self) -> None:
        """Kill the driver."""
        self.process.kill()
        self.process.communicate()


def test_drivers_that_start_at_once_share_one_head_which_ends_with_the_last(folder: Path) -> None:
    drivers = [Driver(), Driver(), Driver()]
    (pid,) = {driver.head() for driver in drivers}
    assert len(keepers(folder)) == 1
    assert stat.S_IMODE((folder / "ray.json").stat().st_mode) == 0o600
    head = running(folder)
    assert head is not None
    assert psutil.Process(pid).environ()["GLIBC_TUNABLES"] == head.inherited["GLIBC_TUNABLES"] != ""
    assert os.getpgid(pid) == pid != os.getpgid(0), "a signal to a terminal's processes must not reach Ray"
    shared = joining.shared_ray()
    assert shared is not None
    assert set(shared.users) == {driver.process.pid for driver in drivers}
    with pytest.raises(Busy, match=f"process {drivers[0].process.pid}") as refusal:
        joining.end_shared_ray()
    assert f"process {os.getpid()}" not in str(refusal.value), "this process only asks"
    drivers[0].leave()
    drivers[1].kill()
    time.sleep(3 * keeper.POLL_SECONDS)
    assert head.lives(), "a driver still uses it"
    drivers[2].kill()
    wait_for(lambda: not processes(folder))
    assert running(folder) is None
    assert not Path(head.temporary).exists()


def listening(head: Head) -> set[str]:
    """Return the addresses at which a head and its processes accept connections."""
    process = psutil.Process(head.pid)
    own = {one.pid for one in (process, *process.children(recursive=True))}
    sockets = psutil.net_connections("inet")
    return {
        one.laddr.ip.removeprefix("::ffff:") for one in sockets if one.pid in own and one.status == "LISTEN"
    }


def joins(address: str, **token: str) -> int:
    """Return the exit code of a process that asks a head for its nodes."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}
    command = [sys.executable, "-m", "orchestrator.schedule.resources", address]
    return subprocess.run(command, env={**ours, **token}, capture_output=True, check=False).returncode


@pytest.mark.slow
@needs_root
def test_another_account_neither_reads_nor_joins_a_ray_nor_publishes_an_address(
    folder: Path, tmp_path: Path
) -> None:
    """Its folders are closed, also where everybody may read and write by default, and its ports local."""
    folder.parent.chmod(0o755)
    before = os.umask(0)
    driver = Driver()
    os.umask(before)
    driver.head()
    head = running(folder)
    assert head is not None
    closed = [folder, folder / "ray.json", folder / "ray-token", Path(head.temporary), head.published]
    sockets = list(head.of_ray.rglob("sockets/*"))
    assert sockets
    assert all(path.exists() for path in closed)
    assert head.published.read_text() == head.address
    assert reached(*closed, *sockets) == []
    assert listening(head) <= {"127.0.0.1", "::1"}
    guessed = tmp_path / "token"
    guessed.write_text("0" * 64)
    assert joins(head.address, RAY_AUTH_MODE="disabled") == REFUSED
    assert joins(head.address, RAY_AUTH_MODE="token", RAY_AUTH_TOKEN_PATH=str(guessed)) == REFUSED
    assert joins(head.address, RAY_AUTH_MODE="token", RAY_AUTH_TOKEN_PATH=str(folder / "ray-token")) == 0
    driver.leave()


@pytest.mark.slow
def test_a_head_starts_no_worker_before_one_is_needed(folder: Path) -> None:
    """By default Ray starts one for each processor when the first driver connects, and trials use none."""
    code = """
import sys, time
from pathlib import Path
import psutil
from orchestrator.machines.hardware import Hardware
from orchestrator.machines.head import running, runtime_folder
from orchestrator.schedule import environment
environment.prepare(Path(sys.argv[1]))
from orchestrator.schedule import cluster
with cluster.connected(Hardware(cpus=2, gpus=0)):
    time.sleep(5)
    for process in psutil.Process(running(runtime_folder()).pid).children(recursive=True):
        print(*process.cmdline()[:2])
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder / "unused")], capture_output=True, text=True, check=True
    )
    started = done.stdout.splitlines()
    assert any("raylet" in line for line in started)
    assert [line for line in started if "ray::IDLE" in line or "default_worker" in line] == []


@pytest.mark.slow
def test_every_head_has_a_token_of_its_own(folder: Path) -> None:
    """Also in one process, which joins one head after the other."""
    code = """
import sys, time
from pathlib import Path
from orchestrator.machines.hardware import Hardware
from orchestrator.machines.head import running, runtime_folder
from orchestrator.schedule import environment
environment.prepare(Path(sys.argv[1]))
from orchestrator.schedule import cluster
for _ in range(2):
    with cluster.connected(Hardware(cpus=1, gpus=0)):
        print((runtime_folder() / "ray-token").read_text(), running(runtime_folder()).pid, flush=True)
    while running(runtime_folder()) is not None:
        time.sleep(0.05)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder / "unused")], capture_output=True, text=True, check=True
    )
    (first, head), (second, other) = (line.split() for line in done.stdout.splitlines())
    assert head != other
    assert first != second
    assert len(first) == len(second) == 64


@pytest.mark.parametrize(("mode", "owner"), [(0o622, None), (0o602, None), (0o600, 65_534)])
def test_an_address_that_another_account_may_have_written_is_refused(
    folder: Path, mode: int, owner: int | None
) -> None:
    record = folder / "ray.json"
    record.write_text('{"address": "127.0.0.1:9"}')
    record.chmod(mode)
    if owner is not None:
        if os.geteuid() != 0:
            pytest.skip("needs root, which can give a file away")
        os.chown(record, owner, owner)
    with pytest.raises(
        BadInput, match=rf"only user {os.geteuid()} can write \(got user \d+, mode {mode:04o}\)"
    ):
        running(folder)
    record.unlink()
    target = folder / "elsewhere"
    target.write_text("{}")
    record.symlink_to(target)
    assert running(folder) is None, "a link is not followed"
    record.unlink()


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o707])
def test_a_runtime_folder_that_others_can_enter_is_refused(folder: Path, mode: int) -> None:
    folder.chmod(mode)
    with pytest.raises(BadInput, match=rf"no other user can enter \(got user 0, mode {mode:04o}\)"):
        runtime_folder()
    folder.chmod(0o700)


@pytest.mark.slow
def test_a_head_that_nice_has_started_comes_after_other_sessions(folder: Path) -> None:
    """Linux may share processors between sessions first, and Ray has a session of its own."""
    driver = Driver(niceness=3)
    session = Path(f"/proc/{driver.head()}/autogroup")
    if session.exists():
        assert session.read_text().split()[-1] == str(min(19, os.getpriority(os.PRIO_PROCESS, 0) + 3))
    driver.leave()


@pytest.mark.slow
def test_a_killed_keeper_or_head_is_replaced(folder: Path) -> None:
    first = Driver()
    pid = first.head()
    keepers(folder)[0].kill()
    wait_for(lambda: not keepers(folder))
    second = Driver()
    assert second.head() == pid
    wait_for(lambda: len(keepers(folder)) == 1)
    os.kill(pid, signal.SIGKILL)
    third = Driver()
    assert third.head() != pid
    for driver in (first, second, third):
        driver.leave()


@pytest.mark.slow
def test_a_driver_that_leaves_replaces_a_killed_keeper(folder: Path) -> None:
    driver = Driver()
    driver.head()
    keepers(folder)[0].kill()
    wait_for(lambda: not keepers(folder))
    driver.leave()
    wait_for(lambda: not processes(folder))


@pytest.mark.slow
def test_a_keeper_that_is_asked_to_end_leaves_no_head_behind(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends the head as soon as no driver uses it, however long it would have kept it."""
    monkeypatch.setenv("SWEEP_RAY_LINGER", "600")
    driver = Driver()
    pid = driver.head()
    keepers(folder)[0].terminate()
    time.sleep(3 * keeper.POLL_SECONDS)
    assert psutil.pid_exists(pid), "a driver still uses it"
    driver.leave()
    wait_for(lambda: not processes(folder))
    assert running(folder) is None


@pytest.mark.slow
def test_a_driver_killed_while_ray_starts_leaves_nothing(folder: Path) -> None:
    driver = Driver()
    wait_for(lambda: Head.read(folder) is not None)
    driver.kill()
    wait_for(lambda: running(folder) is None and not processes(folder), seconds=120)


@pytest.mark.slow
def test_the_head_ends_with_its_last_driver_although_the_runtime_folder_was_deleted(folder: Path) -> None:
    """Systemd deletes $XDG_RUNTIME_DIR when its user has logged out."""
    driver = Driver()
    driver.head()
    head = running(folder)
    assert head is not None
    while folder.exists():  # its keeper may write to it meanwhile
        shutil.rmtree(folder, ignore_errors=True)
    time.sleep(2 * keeper.POLL_SECONDS)
    assert head.lives(), "a driver still uses it"
    driver.leave()
    wait_for(lambda: not head.lives() and not Path(head.temporary).exists())
    assert not folder.exists(), "the lock of the driver created it, and open to other accounts"


@pytest.mark.slow
def test_another_version_is_refused_while_a_driver_uses_ray_and_replaces_it_afterwards(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWEEP_RAY_LINGER", "60")
    driver = Driver()
    pid = driver.head()
    head = running(folder)
    assert head is not None
    replace(head, setup=replace(head.setup, python="3.10.1")).write(folder)
    with pytest.raises(NoCluster) as refusal, joining.joined(ONE, environment.of_head()):
        pass
    text = str(refusal.value)
    assert f"python 3.10.1 in process {pid}, used by process {driver.process.pid}" in text
    assert "cluster ray --end" in text
    assert "SWEEP_RUNTIME" in text
    driver.leave()
    with joining.joined(ONE, environment.of_head()) as other:
        assert other.pid != pid
    assert joining.end_shared_ray() == other
    assert joining.shared_ray() is None


@pytest.mark.slow
def test_ray_ends_on_request_although_its_keeper_holds_the_lock_for_a_moment(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The keeper takes the lock twice a second to check whether a driver uses the head."""
    monkeypatch.setenv("SWEEP_RAY_LINGER", "60")
    driver = Driver()
    pid = driver.head()
    driver.leave()
    with ExitStack() as held:
        held.enter_context(keeper.users(folder, fcntl.LOCK_EX))
        threading.Timer(keeper.POLL_SECONDS / 2, held.close).start()
        ended = joining.end_shared_ray()
    assert ended is not None
    assert ended.pid == pid
    assert joining.shared_ray() is None


def test_a_ray_that_does_not_start_is_reported(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_object_store_memory", "x")
    broken = {**environment.of_head(), "RAY_AUTH_TOKEN_PATH": str(folder / "none")}
    with pytest.raises(NoCluster, match="does not start on this machine"), joining.joined(ONE, broken):
        pass
