"""The unit of systemd under a real user manager, on a machine of namespaces whose power can be cut."""

from __future__ import annotations

import os
import shutil
import sys
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from orchestrator.errors import Exit
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.queue import submissions
from orchestrator.ledger.queue.submissions import Submission
from tests.end_to_end.commands import ROOT, SMALL, finish, wait_for
from tests.end_to_end.machine import Machine, possible

SPACES = ["--pid", "--mount", "--cgroup", "--uts", "--ipc"]
MANAGER = "/lib/systemd/systemd"
ENDLESS = [*SMALL, "--set", "training.steps=1_000_000", "--set", "budget.trials=1"]

# `loginctl enable-linger` starts the manager of a user at boot; here the first process does.
BOOT = """
set -e
mount --bind {folder}/boot_id /proc/sys/kernel/random/boot_id
mount -t tmpfs none /run
mkdir -p /run/systemd/system /run/user/{user}
chmod 700 /run/user/{user}
dbus-daemon --session --fork --address="$DBUS_SESSION_BUS_ADDRESS"
echo up
# As process 1 it would be the manager of the system.
{manager} --user --log-target=console & wait
"""


def missing() -> str | None:
    """Return what these tests lack here, or None."""
    if not all(map(shutil.which, ("systemctl", "dbus-daemon"))) or not Path(MANAGER).exists():
        return "needs systemd and dbus-daemon (Debian: systemd, dbus)"
    return None if possible(SPACES) else "needs the permission to create namespaces (unshare)"


pytestmark = [
    pytest.mark.end_to_end,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
]


class Booted:
    """A machine on which the manager of a user runs; `~/sweeps` has the project, as the unit says.

    Args:
        folder: home folder of the user, which outlives the machine.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.root = folder, folder / "sweeps" / "mlruns"
        self._variables: dict[str, str] = {}
        self._machine: Machine | None = None

    def boot(self) -> None:
        """Start the machine; it has another boot id than before."""
        (self.folder / "boot_id").write_text(f"{uuid.uuid4()}\n")
        runtime = f"/run/user/{os.geteuid()}"
        self._variables = {
            "HOME": str(self.folder),
            "XDG_RUNTIME_DIR": runtime,
            "DBUS_SESSION_BUS_ADDRESS": f"unix:path={runtime}/bus",
            "PATH": os.environ["PATH"],
            # Of the account that runs the service: a user sets them in ~/.config/environment.d.
            "PYTHONPATH": str(ROOT),
            "JAX_COMPILATION_CACHE_DIR": os.environ["JAX_COMPILATION_CACHE_DIR"],
            "RAY_TMPDIR": str(self.folder),
            "SWEEP_RAY_LINGER": "0",
            "SWEEP_WARM": "0",
        }
        script = BOOT.format(folder=self.folder, user=os.geteuid(), manager=MANAGER)
        log = self.folder / "manager.log"
        with log.open("w") as output, pytest.MonkeyPatch.context() as patch:
            for name in os.environ.keys() & {"SWEEP_ROOT", "SWEEP_DATA", "SWEEP_RUNTIME", "RAY_ADDRESS"}:
                patch.delenv(name)
            for name, value in self._variables.items():
                patch.setenv(name, value)
            self._machine = Machine(SPACES, script, output.fileno())
        wait_for(lambda: log.read_text().startswith("up"), seconds=60)
        wait_for(lambda: self.systemctl("is-system-running").strip() in ("running", "degraded"), seconds=60)

    def cut_power(self) -> None:
        """Kill every process of the machine at once."""
        if self._machine is not None:
            self._machine.end()
            self._machine = None

    def run(self, *command: str) -> tuple[int, str]:
        """Run a command as a user who has logged in."""
        assert self._machine is not None
        variables = {**self._variables, "SWEEP_ROOT": str(self.root), "SWEEP_DATA": str(self.folder / "data")}
        return finish(self._machine.run(command, **variables))

    def sweep(self, *words: str) -> str:
        """Run a verb, which must succeed."""
        code, output = self.run(sys.executable, "-m", "orchestrator.sweep", *words)
        assert code == Exit.COMPLETE, output
        return output

    def systemctl(self, *words: str) -> str:
        """Return what `systemctl --user` prints."""
        return self.run("systemctl", "--user", *words)[1]

    def main_process(self) -> int:
        """Return the process id of the service, 0 if it does not run."""
        return int(self.systemctl("show", "--property=MainPID", "--value", "sweep-serve") or 0)

    def submission(self, sweep_id: str) -> Submission:
        with closing(self.ledger()) as ledger:
            entry = submissions.submission(ledger, sweep_id)
        assert entry is not None
        return entry

    def reports(self, sweep_id: str) -> int:
        """Return how many reports of a sweep are committed."""
        with closing(self.ledger()) as ledger:
            return len(ledger.reports(sweep_id)) if ledger.sweep(sweep_id) else 0

    def ledger(self) -> Ledger:
        return Ledger.open(f"sqlite:///{self.root}/sweeps.db")

    def goes_on(self, sweep_id: str) -> None:
        """Wait until a sweep has reported several times more."""
        before = self.reports(sweep_id)
        wait_for(lambda: self.reports(sweep_id) > before + 2)


@pytest.fixture
def booted(temporary: Path) -> Iterator[Booted]:
    """Yield a machine whose user has enabled the unit as docs/service.md says."""
    project = temporary / "sweeps"
    project.mkdir(mode=0o700)
    (project / ".venv").symlink_to(Path(sys.executable).parents[1])
    for name in ("orchestrator", "trainables"):
        (project / name).symlink_to(ROOT / name)
    units = temporary / ".config" / "systemd" / "user"
    units.mkdir(parents=True)
    shutil.copy(ROOT / "cluster" / "sweep-serve.service", units)
    machine = Booted(temporary)
    try:
        machine.boot()
        machine.systemctl("enable", "--now", "sweep-serve")
        wait_for(lambda: (machine.root / "serve.json").exists(), seconds=60)
        yield machine
    finally:
        machine.cut_power()


def submitted(machine: Booted, key: str) -> str:
    """Submit a sweep without an end; return its id once it has reported."""
    machine.sweep("submit", *ENDLESS, "--new", "--key", key)
    with closing(machine.ledger()) as ledger:
        [sweep_id] = [one.sweep_id for one in submissions.submissions(ledger, ended=False) if one.key == key]
    wait_for(lambda: machine.reports(sweep_id) > 0)
    return sweep_id


def test_the_unit_restarts_the_service_and_its_drivers_outlive_it(booted: Booted) -> None:
    """The service is killed, stopped and started; the same process drives the sweep all the time."""
    sweep_id = submitted(booted, "a")
    driver = booted.submission(sweep_id).driver
    killed = booted.main_process()
    assert booted.run("kill", "-9", str(killed))[0] == 0
    wait_for(lambda: booted.main_process() not in (0, killed), seconds=60)
    assert booted.systemctl("show", "--property=NRestarts", "--value", "sweep-serve").strip() == "1"
    booted.goes_on(sweep_id)
    booted.systemctl("stop", "sweep-serve")
    assert booted.systemctl("is-active", "sweep-serve").strip() == "inactive"
    booted.goes_on(sweep_id)
    booted.systemctl("start", "sweep-serve")
    wait_for(lambda: (booted.root / "serve.json").exists(), seconds=60)
    booted.goes_on(sweep_id)
    entry = booted.submission(sweep_id)
    assert (entry.state, entry.starts, entry.crashes) == ("STARTED", 1, 0)
    assert entry.driver == driver
    booted.sweep("stop", sweep_id)
    wait_for(lambda: booted.submission(sweep_id).state == "ENDED")


def test_after_a_loss_of_power_what_ran_goes_on_and_nothing_that_was_stopped(booted: Booted) -> None:
    """Nobody logs in or runs a command: the manager starts the service, which starts the driver.

    The power is cut while the driver of the stopped sweep may still be saving.
    """
    running, stopped = submitted(booted, "a"), submitted(booted, "b")
    booted.sweep("stop", stopped)
    booted.cut_power()
    before = booted.reports(running)
    booted.boot()
    wait_for(lambda: booted.reports(running) > before, seconds=300)
    entry = booted.submission(running)
    assert (entry.state, entry.starts, entry.crashes) == ("STARTED", 2, 0)
    wait_for(lambda: booted.submission(stopped).state == "ENDED")
    assert booted.submission(stopped).starts == 1
    assert "stopped" in str(booted.submission(stopped).cause)
    booted.sweep("stop", running)
    wait_for(lambda: booted.submission(running).state == "ENDED")
    booted.sweep("check", running)
