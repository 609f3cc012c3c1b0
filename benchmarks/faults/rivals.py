"""Two drivers of one sweep on PostgreSQL, each started again whenever it exits, under every kind of fault."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from subprocess import Popen

import psutil

from benchmarks.faults.damage import harmed
from benchmarks.faults.pair import Pair
from benchmarks.faults.preload import Clock
from benchmarks.faults.served import BUCKET, ServedSite
from benchmarks.faults.site import Site
from benchmarks.faults.stores import fill, free, small_disk
from benchmarks.faults.table import Dose, Row
from benchmarks.faults.workers import tired
from orchestrator.ledger.lease_backends import LIFE_SECONDS
from tests import postgres
from tests.orchestrator.tracking.proxy import Mode
from trainables.checkpoint import ARRAYS, MANIFEST

LONG = ("--set", "training.interval=500")
STEPS = 30_000
"""Steps of a trial: enough that a sweep of eight trials outlasts most of its faults."""

AWAY_SECONDS = 8.0
SILENT_SECONDS = LIFE_SECONDS + 10.0
NOTICED_SECONDS = 120.0
"""Longest time until a sweep is PAUSED for a disk or a store; the store's client tries four times before."""

HOURS = 2 * 3600
MUST = (
    "one driver at a time runs the sweep; nothing finished lost or run twice, at most one interval "
    "repeated per trial and fault, two after damage; curves and best as undisturbed, every MLflow point "
    "once, `check` clean"
)


def rivals(dose: Dose) -> list[Row]:
    """Inject `dose.kills` faults of the kinds `dose.faults` into a sweep that two drivers want to run."""
    programs, user = postgres.binaries(), postgres.unprivileged_user()
    if programs is None or user is None:
        return [Row("two drivers", MUST, "not run: PostgreSQL is not installed", True)]
    with ExitStack() as stack:
        server = postgres.Server(programs, user)
        stack.callback(server.remove)
        store_disk = stack.enter_context(small_disk(dose.folder / "rivals-store"))
        site = ServedSite(dose.folder, "rivals", server.empty_database(), store_disk)
        stack.callback(site.end)
        own_disk = stack.enter_context(small_disk(site.root / "checkpoints"))
        site.write(steps=STEPS)
        clock = Clock(dose.folder, "rivals")
        pair = Pair(site, "--tracking-patience", "300", *LONG, **clock.environment)
        kinds = _Faults(pair, server, clock, own_disk, store_disk).kinds()
        chosen = dose.faults.split(",") if dose.faults else list(kinds)
        assert kinds.keys() >= set(chosen), f"--faults takes {', '.join(kinds)}"
        pair.run([kinds[name] for name in chosen], dose.kills)
        undisturbed = Site(dose.folder, "rivals-undisturbed").write(steps=STEPS)
        code, output = undisturbed.finished(*LONG)
        pair.tally.expect(code == 0, f"the undisturbed sweep exited with {code}: {output[-300:]}")
        return [pair.row("two drivers on PostgreSQL", MUST, undisturbed.outcome())]


@dataclass
class _Faults:
    """The faults that hit two drivers and what they use; each returns what it has done.

    Attributes:
        pair: Both drivers.
        server: Server of the ledger.
        clock: Clock of the drivers and their processes.
        own_disk: Disk of this machine's checkpoints; None if mounting is not permitted.
        store_disk: Disk of the store; None likewise.
    """

    pair: Pair
    server: postgres.Server
    clock: Clock
    own_disk: Path | None
    store_disk: Path | None

    def kinds(self) -> dict[str, Callable[[], str]]:
        """Return every fault that is possible here, by the name that `--faults` gives it."""
        pair, site = self.pair, self.pair.site
        disks = {
            name: partial(self._disk_full, disk, of_what)
            for name, disk, of_what in (
                ("disk", self.own_disk, "of the checkpoints"),
                ("store-disk", self.store_disk, "of the store"),
            )
            if disk is not None
        }
        return {
            **disks,
            "kill": partial(pair.send, signal.SIGKILL),
            "term": partial(pair.send, signal.SIGTERM),
            "int": partial(pair.send, signal.SIGINT),
            "driver-stopped": self._driver_stopped,
            "worker": self._worker_killed,
            "postgres": self._database_restarted,
            "clock": self._clock_stepped,
            "store-gone": partial(self._store_away, "hang up"),
            "store-503": partial(self._store_away, "503"),
            "store-stopped": partial(self._stopped, site.store, "store"),
            "mlflow-killed": self._tracking_killed,
            "mlflow-503": partial(self._tracking_away, "503"),
            "mlflow-silent": partial(self._tracking_away, "swallow"),
            "mlflow-stopped": self._tracking_stopped,
            "arrays": partial(self._damaged, ARRAYS, "flip"),
            "manifest": partial(self._damaged, MANIFEST, "zero"),
        }

    def _driver_stopped(self) -> str:
        """Stop the driver for longer than its lease lasts: the other one takes over."""
        if (driver := self.pair.holder()) is None:
            return "no driver to stop"
        driver.send_signal(signal.SIGSTOP)
        self.pair.wait(SILENT_SECONDS)
        driver.send_signal(signal.SIGCONT)
        return f"driver stopped for {SILENT_SECONDS:g} s"

    def _worker_killed(self) -> str:
        workers = [] if tired(self.pair.site) else self.pair.site.titled("ray::Worker")
        if not workers:
            return "no worker to kill"
        with suppress(psutil.NoSuchProcess):
            self.pair.chance.choice(workers).kill()
        return "worker killed"

    def _database_restarted(self) -> str:
        self.server.stop()
        self.pair.wait(AWAY_SECONDS)
        self.server.start()
        return f"PostgreSQL down for {AWAY_SECONDS:g} s"

    def _clock_stepped(self) -> str:
        """Set the clock of both drivers and all that they have started; then kill the one that runs."""
        ahead = self.pair.chance.choice((-HOURS, HOURS))
        self.clock.shift(ahead)
        self.pair.wait(AWAY_SECONDS)
        sent = self.pair.send(signal.SIGKILL)
        return f"clock set to {ahead / 3600:+g} h, {sent} {AWAY_SECONDS:g} s later"

    def _disk_full(self, disk: Path, of_what: str) -> str:
        """Fill a disk until the sweep is PAUSED, and some seconds longer."""

        def paused() -> bool:
            fill(disk)  # again and again: superseded checkpoints are deleted meanwhile
            return self._paused()

        how = self._until(paused)
        free(disk)
        return f"disk {of_what} full{how}"

    def _store_away(self, mode: Mode) -> str:
        """Let nothing reach the store until the sweep is PAUSED, and some seconds longer."""
        self.pair.site.to_store.mode = mode
        how = self._until(self._paused)
        self.pair.site.to_store.mode = "pass"
        return f"store {'unreachable' if mode == 'hang up' else f'answers {mode}'}{how}"

    def _until(self, paused: Callable[[], bool]) -> str:
        """Wait until the sweep is PAUSED, and some seconds longer; return what that is to be called."""
        if not self.pair.wait(NOTICED_SECONDS, paused):
            return ", unnoticed"
        self.pair.wait(AWAY_SECONDS)
        return " until PAUSED"

    def _paused(self) -> bool:
        return any(sweep.state == "PAUSED" for sweep in self.pair.site.ledger.sweeps())

    def _tracking_killed(self) -> str:
        self.pair.site.tracking.kill()
        self.pair.wait(2 * AWAY_SECONDS)
        self.pair.site.tracking.start()
        return f"MLflow killed, back after {2 * AWAY_SECONDS:g} s"

    def _tracking_away(self, mode: Mode) -> str:
        proxy = self.pair.site.tracking.proxy
        proxy.mode = mode
        self.pair.wait(2 * AWAY_SECONDS)
        proxy.mode = "pass"
        how = "does not answer" if mode == "swallow" else f"answers {mode}"
        return f"MLflow {how} for {2 * AWAY_SECONDS:g} s"

    def _tracking_stopped(self) -> str:
        return self._stopped(self.pair.site.tracking.process, "MLflow")

    def _stopped(self, server: Popen[bytes], name: str) -> str:
        processes = [psutil.Process(server.pid), *psutil.Process(server.pid).children(recursive=True)]
        for process in processes:
            process.suspend()
        self.pair.wait(AWAY_SECONDS)
        for process in processes:
            process.resume()
        return f"{name} stopped for {AWAY_SECONDS:g} s"

    def _damaged(self, file: str, harm: str) -> str:
        """Kill the driver and damage the last checkpoint of each trial, here and in the store."""
        site, sent = self.pair.site, self.pair.send(signal.SIGKILL)
        self.pair.allowed += 1
        rows = (
            next((row for row in site.ledger.trial_checkpoints(trial.key) if row.kind == "last"), None)
            for trial in site.trials()
            if trial.state == "RUNNING"
        )
        found = [self._damage(Path(row.path), file, harm) for row in rows if row is not None]
        return f"{sent}, then {file} damaged{'' if any(found) else ', but none was there'}"

    def _damage(self, folder: Path, file: str, harm: str) -> bool:
        """Damage a file of a checkpoint; return False if the store does not hold it."""
        objects, name = self.pair.site.objects, f"/{folder.parent.name}/{folder.name}/{file}"
        listed = objects.list_objects_v2(Bucket=BUCKET, Prefix="checkpoints/").get("Contents", ())
        keys = [entry["Key"] for entry in listed if entry["Key"].endswith(name)]
        for key in keys:
            whole = objects.get_object(Bucket=BUCKET, Key=key)["Body"].read()
            content = harmed(whole, harm, self.pair.chance)
            objects.put_object(Bucket=BUCKET, Key=key, Body=content)
            if (folder / file).exists():
                (folder / file).write_bytes(content)
        return bool(keys)
