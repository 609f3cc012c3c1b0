"""Run one sweep from its specification to its report."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module

from orchestrator import process_secrets
from orchestrator.accounts import files_closed
from orchestrator.config.sweep_config import SweepConfig
from orchestrator.driver import sweep_rows
from orchestrator.driver.admission import LeasedSweep, Run, leased_sweep
from orchestrator.driver.log import Observer
from orchestrator.driver.preflight import check_warmup, check_widths
from orchestrator.driver.shutdown import Shutdown
from orchestrator.errors import Exit, NoCluster, NoSpace, counted
from orchestrator.machines.head import Head
from orchestrator.machines.joining import joined
from orchestrator.schedule import environment
from orchestrator.storage.store import outage_of
from orchestrator.tracking.shipper import Shipper
from orchestrator.upkeep.recovery import rebuilding_if_damaged
from trainables.data.task import TaskData
from trainables.tasks import TASKS


def drive(sweep: SweepConfig, run: Run, observer: Observer) -> tuple[str, Exit]:
    """Run or resume a sweep until it is finished, interrupted or refused; return its id and an exit code.

    The steps are: preflight checks, lease, integrity check, load the data, connect to Ray, fix the slots, run
    the session, conclude. A damaged ledger is rebuilt from its backup, and the sweep goes on.

    Example:

        sweep = load(Path("retrieval.yaml"), profile="laptop", gpus=0)
        sweep_id, code = drive(sweep, Run(paths, data, hardware), Observer())

    Raises:
        BadInput: The file differs from that of its unfinished sweep.
        Busy: Another driver holds the sweep.
        BadData: The task's data cannot be read.
        Damaged: The ledger is damaged beyond its backup.
    """
    return rebuilding_if_damaged(lambda: _drive(sweep, run, observer), run.paths.ledger_url, observer.say)


def _drive(sweep: SweepConfig, run: Run, observer: Observer) -> tuple[str, Exit]:
    process_secrets.conceal()  # of a process that calls this from Python
    with files_closed(), Shutdown() as shutdown, leased_sweep(sweep, run, observer, shutdown) as leased:
        if sweep_rows.is_stopped(leased):
            return leased.sweep.id, Exit.COMPLETE
        curves = sweep_rows.check_integrity(leased)
        sweep_rows.compare_with_mlflow(leased)
        data = _load_data(leased)
        sweep_rows.enter(leased, data)
        shutdown.at_the_end(lambda reason: sweep_rows.abandon(leased, f"stopped by {reason}"))
        with _shipping(leased) as shipper, _resumable(leased):
            if sweep_rows.is_finished(leased):
                how = "`--extend` with a larger budget continues it (trials=128); `--new` starts another"
                observer.say(f"{leased.sweep.id} is finished. {how}.")
                return leased.sweep.id, sweep_rows.exit_code(leased)
            sweep_rows.resume(leased)
            environment.prepare(run.paths.token)
            with ExitStack() as of_ray:
                head = _started_beside_imports(leased, of_ray)
                # Ray and Optuna take seconds to import, so they are imported after every check.
                from orchestrator.driver import execution

                leaving = of_ray.enter_context(execution.connected(leased, head))
                slotted = execution.with_slots(leased)
                sweep_rows.record_resources(leased, slotted)
                stopped, engines = execution.run_session(leased, slotted, curves, shipper.nudge, leaving)
                if stopped is None or stopped.state == "COMPLETE":
                    record_work = None if data is None else execution.count_work(leased, data.signature)
                    if sweep.evaluates_test:
                        execution.evaluate_test(leased, engines)
                    if record_work is not None:
                        record_work()
            return leased.sweep.id, execution.conclude(leased, stopped)
        return leased.sweep.id, Exit.RESUMABLE


def _started_beside_imports(leased: LeasedSweep, leaving: ExitStack) -> Head | None:
    """Start or join the Ray of this machine, while a thread imports what a driver needs with it.

    Ray's processes mostly wait for one another while they start, and that takes longer than the imports.

    Args:
        leased: Leased sweep.
        leaving: Leaves this Ray at its end.

    Returns:
        The head of this Ray; None if RAY_ADDRESS names a cluster.

    Raises:
        NoCluster: The Ray of this machine cannot be used, or does not start.
    """
    # The import statement of the main thread waits for this one, and raises its error again.
    threading.Thread(target=import_module, args=["orchestrator.driver.execution"], daemon=True).start()
    if os.environ.get("RAY_ADDRESS"):
        return None
    needs_gpu = leased.sweep.resources.gpu > 0
    ray = joined(leased.run.hardware, environment.of_head(), needs_gpu=needs_gpu)
    return leased.shutdown.interruptible(lambda: leaving.enter_context(ray))


def _load_data(leased: LeasedSweep) -> TaskData | None:
    """Load the data of the task; None for a trainable, which loads its own."""
    sweep, observer = leased.sweep, leased.observer
    if sweep.trainable is not None:
        return None
    data = leased.shutdown.interruptible(
        lambda: TASKS[sweep.task].load(sweep.task_options, leased.run.data, observer.loading)
    )
    observer.say(f"Data: {data.source}.{_remark(data)}")
    check_widths(sweep, data.signature)
    check_warmup(sweep, len(data.train))
    return data


def _remark(data: TaskData) -> str:
    """Return the note on the data as a sentence with a leading space, or '' without a note."""
    if not data.note:
        return ""
    return f" {data.note}" if data.comparable else f" Not as published: {data.note}."


@contextmanager
def _shipping(leased: LeasedSweep) -> Iterator[Shipper]:
    """Ship the outbox of a sweep to MLflow; on exit, wait up to `tracking_patience` for what is pending."""
    paths, observer = leased.run.paths, leased.observer
    shipper = Shipper(leased.lease, paths.tracking_uri, paths.artifacts)
    shipper.start()
    leased.shutdown.kill_at_the_end(shipper.kill)
    try:
        yield shipper
    finally:
        observer.close()
        pending = shipper.drain(leased.run.tracking_patience, lambda: leased.shutdown.reason is not None)
        shipper.close()
        if pending:
            records = counted(pending, "record waits", "records wait")
            how = "the next run of this command delivers them, and `serve` what was submitted to it"
            observer.say(f"{records} for MLflow; {how}.")


@contextmanager
def _resumable(leased: LeasedSweep) -> Iterator[None]:
    """Handle the errors after which the same command resumes the sweep; record them if the ledger can."""
    try:
        yield
    except (NoSpace, OSError) as error:
        if not isinstance(error, NoSpace) and outage_of(error) != "disk full":
            raise
        # The state cannot be written either; an unfinished sweep without a driver counts as interrupted.
        leased.observer.say(f"{error} Every report so far is kept; the same command resumes the sweep.")
    except NoCluster as lack:
        leased.observer.say(str(lack))
        sweep_rows.interrupt(leased, f"{lack.where} {lack.problem}")
    except KeyboardInterrupt as shutdown:
        sweep_rows.interrupt(leased, f"stopped by {shutdown}")
