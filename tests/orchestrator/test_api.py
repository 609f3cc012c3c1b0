"""A sweep in Python has the same ledger, driver and report as on the command line."""

from __future__ import annotations

import ast
import io
import math
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import orchestrator
from orchestrator import BadInput, DamagedCheckpoint, Exit, Observer, Progress, Refusal, Sweep, Trial
from orchestrator.api import local_sweep as api_sweep
from orchestrator.config import SweepConfig
from orchestrator.config.yaml_reader import parse_document
from orchestrator.driver.admission import Run
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.queue.queue_settings import asked_to_stop
from orchestrator.ledger.sweeps.lease import Lease
from orchestrator.machines.hardware import Hardware, Node
from orchestrator.report.figures import FIGURES
from orchestrator.storage.paths import Paths
from tests import sweeps
from tests.orchestrator.cli.test_inputs import SPACE
from tests.orchestrator.ledger.examples import create_sweep

ROOT = Path(__file__).parents[2]
SPACES = ROOT / "search_spaces"
PACKAGES = (ROOT / "orchestrator", ROOT / "trainables")
DOCUMENT: Mapping[str, Any] = parse_document(SPACE, "space.yaml").plain()  # type: ignore[assignment]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a root whose ledger holds a sweep of twenty trials, most of them complete."""
    states = ["COMPLETE", "COMPLETE", "COMPLETE", "PRUNED"]
    trials = [sweeps.trial(number, states[number % 4]) for number in range(20)]
    return sweeps.filled(tmp_path_factory.mktemp("api") / "mlruns", trials).root


@pytest.fixture
def sweep(root: Path) -> Sweep:
    """Return that sweep."""
    return Sweep.find("retrieval", root=root)


def test_loading_runs_nothing_and_writes_nothing(tmp_path: Path) -> None:
    sweep = Sweep.load(
        SPACES / "listops.yaml", profile="laptop", overrides=["budget.trials=3"], root=tmp_path / "no"
    )
    assert (sweep.state, sweep.specification.budget.trials) == ("NEW", 3)
    assert sweep.id.startswith("listops-laptop-")
    with pytest.raises(BadInput, match="has not run yet"):
        _ = sweep.trials
    assert list(tmp_path.iterdir()) == []


def test_loading_with_a_cluster_named_neither_writes_nor_connects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cluster is asked when the sweep runs."""
    with socket.create_server(("127.0.0.1", 0)) as cluster:
        cluster.settimeout(0.5)
        monkeypatch.setenv("RAY_ADDRESS", "{}:{}".format(*cluster.getsockname()))
        sweep = Sweep.load(SPACES / "listops.yaml", root=tmp_path / "no")
        assert sweep.specification.profile is None
        with pytest.raises(TimeoutError):
            cluster.accept()
    assert list(tmp_path.iterdir()) == []


def test_a_mistake_is_the_refusal_of_the_command_line(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"^--set training.stesp is not a known key\. .* `steps`\?$"):
        Sweep.load(SPACES / "listops.yaml", overrides=["training.stesp=3"], root=tmp_path)


def test_a_mapping_means_what_the_file_means(tmp_path: Path) -> None:
    file = tmp_path / "space.yaml"
    file.write_text(SPACE)
    loaded = Sweep.load(file, root=tmp_path)
    given = Sweep.from_dict(DOCUMENT, name="space", root=tmp_path)
    assert given.id == loaded.id
    assert given.specification.document() == loaded.specification.document()
    again = parse_document(given.specification.source_text, "stored").plain()
    assert again == DOCUMENT, "the stored file of the sweep must give the mapping again"


def test_a_profile_of_a_mapping_is_applied(tmp_path: Path) -> None:
    profiles = {"laptop": {"budget": {"trials": 2}}}
    given = Sweep.from_dict({**DOCUMENT, "profiles": profiles}, name="space", profile="laptop", root=tmp_path)
    assert given.specification.budget.trials == 2
    assert given.id.startswith("space-laptop-")


MISTAKES: dict[str, tuple[Any, str]] = {
    "an unknown key": (
        {**DOCUMENT, "training": {**DOCUMENT["training"], "batchsize": 3}},
        "training.batchsize is not a known key. Did you mean `batch_size`?",
    ),
    "a value out of bounds": (
        {**DOCUMENT, "budget": {"trials": 0}},
        "budget.trials must be at least 1 (got 0).",
    ),
    "a number that is not finite": (
        {**DOCUMENT, "training": {**DOCUMENT["training"], "weight_decay": math.nan}},
        "training.weight_decay must be a finite number of 64 bits (got nan).",
    ),
    "a number that is too large": (
        {**DOCUMENT, "budget": {"trials": 2**64}},
        "budget.trials must be a finite",
    ),
    "an object": (
        {**DOCUMENT, "search": {"learning_rate": object()}},
        "search.learning_rate must be a mapping, a",
    ),
    "a key that is no word": ({**DOCUMENT, "data": {3: 4}}, "data: a key must be a word (got 3)."),
    "a strange character": ({**DOCUMENT, "task": "co\u202epy"}, "task must be plain text (got '\\u202e')."),
    "a missing section": ({"task": "copy"}, "model must be given."),
    "a deep nesting": ({**DOCUMENT, "data": {"a": [[[[[[[[1]]]]]]]]}}, "data.a must have at most 8 levels"),
    "no mapping": ([1], "document must be a mapping (got [1])."),
    "an unknown profile": (DOCUMENT, "--profile must name a profile (got 'full-size')."),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_a_mapping_names_its_key(tmp_path: Path, name: str) -> None:
    document, expected = MISTAKES[name]
    profile = "full-size" if "profile" in name else None
    with pytest.raises(BadInput) as refused:
        Sweep.from_dict(document, name="space", profile=profile, root=tmp_path)
    assert str(refused.value).startswith(expected)


def test_a_mapping_that_contains_itself_is_refused(tmp_path: Path) -> None:
    endless: dict[str, Any] = dict(DOCUMENT)
    endless["data"] = endless
    with pytest.raises(BadInput, match="at most 8 levels"):
        Sweep.from_dict(endless, name="space", root=tmp_path)


@pytest.mark.parametrize("name", ["", "..", "a/b", "x" * 65])
def test_the_name_of_a_sweep_is_a_word(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadInput, match=r"must be letters, digits"):
        Sweep.from_dict(DOCUMENT, name=name, root=tmp_path)


def test_a_new_sweep_of_the_same_file_has_another_id(tmp_path: Path) -> None:
    first = Sweep.from_dict(DOCUMENT, name="space", root=tmp_path)
    _record(first, tmp_path)
    assert Sweep.from_dict(DOCUMENT, name="space", root=tmp_path).id == first.id
    assert Sweep.from_dict(DOCUMENT, name="space", root=tmp_path, new=True).id == f"{first.id}-2"


def test_extending_changes_the_budget_alone(tmp_path: Path) -> None:
    sweep = Sweep.from_dict(DOCUMENT, name="space", root=tmp_path)
    longer = sweep.extended(trials=9, hours=2)
    assert (longer.id, longer.specification.id) == (sweep.id, sweep.id)
    assert (longer.specification.budget.trials, longer.specification.budget.hours) == (9, 2)
    assert sweep.specification.budget.trials == 4
    with pytest.raises(BadInput, match=r"budget.trials must be at least 1 \(got 0\)"):
        sweep.extended(trials=0)
    with pytest.raises(BadInput, match=r"budget.trial is not a known key"):
        sweep.extended(trial=9)


def test_an_extension_of_the_best_trials_is_no_part_of_a_file(tmp_path: Path) -> None:
    sweep = Sweep.from_dict(DOCUMENT, name="space", root=tmp_path)
    longer = sweep.extended(steps="20_000", top=4)
    assert longer.specification.document()["budget"]["longer"] == {"steps": 20_000, "top": 4}
    assert longer.specification.digest == sweep.specification.digest
    assert longer.extended(trials=9).specification.budget.longer == longer.specification.budget.longer
    with pytest.raises(BadInput, match="top must come with `steps`"):
        sweep.extended(top=4)
    with pytest.raises(BadInput, match=r"budget.longer.top must be at least 1 \(got 0\)"):
        sweep.extended(steps=20_000, top=0)
    document = {**DOCUMENT, "budget": {"trials": 4, "longer": {"steps": 20_000}}}
    with pytest.raises(BadInput, match=r"budget.longer must be left out of a file"):
        Sweep.from_dict(document, name="space", root=tmp_path)


def test_stop_needs_a_driver_and_writes_a_request(tmp_path: Path) -> None:
    sweep = Sweep.from_dict(DOCUMENT, name="space", root=tmp_path)
    ledger = _record(sweep, tmp_path)
    with pytest.raises(BadInput, match="must be running to be stopped"):
        sweep.stop()
    with Lease(ledger, sweep.id):
        assert sweep.stop().driver == sweep.status().driver
        assert asked_to_stop(ledger, sweep.id) == socket.gethostname()


def test_a_finished_sweep_whose_driver_has_not_left_is_not_to_be_stopped(tmp_path: Path) -> None:
    sweep = Sweep.from_dict(DOCUMENT, name="space", root=tmp_path)
    ledger = _record(sweep, tmp_path)
    with Lease(ledger, sweep.id) as lease:
        lease.writer.set_sweep_state("COMPLETE")
        with pytest.raises(BadInput, match=r"must not have finished to be stopped \(got COMPLETE\)"):
            sweep.stop()
        assert asked_to_stop(ledger, sweep.id) is None


def test_only_failed_trials_are_retried(sweep: Sweep) -> None:
    assert sweep.failed() == ()
    with pytest.raises(BadInput, match="has no failed trials to retry"):
        sweep.run(retry_failed=True)


def test_a_run_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    sweep = Sweep.from_dict({**DOCUMENT, "resources": {"cpu": 4096}}, name="space", root=tmp_path / "no")
    with pytest.raises(BadInput, match=r"resources\.cpu"):
        sweep.run()
    assert list(tmp_path.iterdir()) == []


def test_the_frame_is_the_ledger(sweep: Sweep) -> None:
    frame = sweep.trials
    assert list(frame["number"]) == list(range(20))
    assert set(frame["state"]) == {"COMPLETE", "PRUNED"}
    for number in range(20):
        trial = sweeps.trial(number, frame["state"].iloc[number])
        row = frame.loc[trial.key]
        assert row["value"] == trial.value
        assert row["params.learning_rate"] == trial.params["learning_rate"]
    best = sweep.best
    assert best is not None
    assert best.key == f"{sweeps.SWEEP_ID}-18"
    assert frame.loc[best.key, "test"] == pytest.approx(sweeps.accuracy(18, 200) - 0.011)
    assert frame["test"].notna().sum() == 1


def test_curves_have_one_row_a_report(sweep: Sweep) -> None:
    wanted = [
        row
        for number in range(20)
        for row in sweeps.reports(sweeps.trial(number, sweep.trials["state"].iloc[number]))
    ]
    assert len(sweep.curves) == len(wanted)
    point = sweep.curves.set_index(["trial", "step"]).loc[(wanted[0].trial_key, wanted[0].step)]
    assert point["val/accuracy"] == wanted[0].metrics["val/accuracy"]
    assert isinstance(sweep.curves, pd.DataFrame)


@pytest.mark.slow
def test_the_best_trial_is_an_object(root: Path, sweep: Sweep) -> None:
    best = sweep.best
    assert best is not None
    expected = sweeps.trial(18)
    assert (best.key, best.state, best.params, best.value) == (
        expected.key,
        "COMPLETE",
        expected.params,
        expected.value,
    )
    assert (
        best.checkpoint
        == root / "checkpoints" / sweeps.SWEEP_ID / best.key / f"step-{expected.best_step:09d}"
    )
    for name in (best.key, "retrieval-18", "18", 18):
        assert best == Trial.find(name, root=root), "named as on the command line"
    with pytest.raises(DamagedCheckpoint):
        best.predictor()  # the checkpoints of this sweep are stubs
    with pytest.raises(BadInput, match="cannot be evaluated: "):
        best.evaluate()


def test_a_sweep_without_a_complete_trial_has_no_best_one(tmp_path: Path) -> None:
    sweeps.filled(tmp_path / "mlruns", [sweeps.trial(0, "PRUNED"), sweeps.trial(1)])
    paths = Paths(tmp_path / "mlruns")
    sweep = Sweep.find("retrieval", root=paths.root)
    assert sweep.best is not None
    ledger = Ledger.open(paths.ledger_url)
    for row in ledger.trial_checkpoints(sweep.best.key):
        sweeps.writer_of(ledger).drop_checkpoint(row.trial_key, Path(row.path))
    assert sweep.best is None, "its weights are gone"


def test_exports_are_written_once(root: Path, sweep: Sweep, tmp_path: Path) -> None:
    best = sweep.best
    assert best is not None
    best.export(tmp_path / "trial")
    assert (tmp_path / "trial" / "run.sh").exists()
    assert sweep.export_study(tmp_path / "study.db") == 20
    assert sweep.export_tensorboard(tmp_path / "curves") == 20
    for again in (
        lambda: best.export(tmp_path / "trial"),
        lambda: sweep.export_study(tmp_path / "study.db"),
        lambda: sweep.export_tensorboard(tmp_path / "curves"),
    ):
        with pytest.raises(BadInput, match="already exists"):
            again()


@pytest.mark.slow
def test_the_report_is_written_where_the_sweep_is(sweep: Sweep, root: Path) -> None:
    page = sweep.report()
    assert (root / "reports" / sweeps.SWEEP_ID / "report.html").read_bytes() == page
    files = sweep.write_report()
    assert files.html == root / "reports" / sweeps.SWEEP_ID / "report.html"
    assert all(file.exists() for file in files.all())


def test_sweeps_are_compared(sweep: Sweep) -> None:
    [result] = sweep.compare().document["results"]
    assert result["sweep_id"] == sweeps.SWEEP_ID
    assert len(sweep.compare(sweep.id).document["results"]) == 2


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_draws_something(sweep: Sweep, name: str) -> None:
    assert sweep.figure(name).data


def test_an_unknown_figure_is_named(sweep: Sweep) -> None:
    with pytest.raises(BadInput, match=r"Did you mean hidden-norms\?"):
        sweep.figure("hidden_norms")


def test_every_public_name_can_be_imported() -> None:
    assert list(orchestrator.__all__) == sorted(orchestrator.__all__)
    for name in orchestrator.__all__:
        assert getattr(orchestrator, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'Sweeep'"):
        _ = orchestrator.Sweeep  # type: ignore[attr-defined]


def test_every_refusal_can_be_imported_from_the_package() -> None:
    """They are found in the source of both packages: to import every module takes ten seconds."""
    bases: dict[str, set[str]] = {}
    for path in (path for package in PACKAGES for path in package.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                named = {ast.unparse(base).rpartition(".")[2] for base in node.bases}
                bases[node.name] = named | bases.get(node.name, set())
    refusals = {"Refusal"}
    while more := {name for name, named in bases.items() if named & refusals} - refusals:
        refusals |= more
    assert {"BadInput", "Busy", "DamagedCheckpoint", "StaleRevision"} <= refusals
    refusals.remove("Mistake")  # a BadInput that also says where in a file it is, for its reader alone
    assert refusals <= set(orchestrator.__all__)
    for name in refusals:
        assert issubclass(getattr(orchestrator, name), Refusal)


def test_importing_it_imports_neither_ray_nor_jax_nor_mlflow_nor_optuna() -> None:
    assert _loaded_by("from orchestrator import Sweep") & HEAVY == set()


@pytest.mark.slow
def test_the_api_imports_neither_typer_nor_rich(root: Path) -> None:
    """Scikit-learn, which draws importances, imports rich by itself: so nothing is drawn at first."""
    used = f"sweep = Sweep.find('retrieval', root={str(root)!r}); sweep.best.history(); sweep.status()"
    drawn = "assert {'typer', 'rich'}.isdisjoint(__import__('sys').modules); sweep.figure('history')"
    loaded = _loaded_by(f"from orchestrator import Sweep; {used}; {drawn}")
    assert loaded & {"typer", "orchestrator.report.terminal"} == set()


HEAVY = {"ray", "jax", "mlflow", "optuna", "plotly", "pandas", "sklearn"}


def _loaded_by(code: str) -> set[str]:
    """Return the modules that a piece of Python code loads."""
    shown = f"{code}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", shown], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def _record(sweep: Sweep, root: Path) -> Ledger:
    """Write a sweep to the ledger under a root, as interrupted."""
    what = sweep.specification
    ledger = Ledger.open(sweep.workspace.paths.ledger_url)
    facts = {"metric": what.metric, "direction": what.direction}
    about = {"id": sweep.id, "name": what.name, "profile": what.profile, "task": what.task}
    record = sweeps.sweep_record(
        **about, document=what.document(), digest=what.digest, state="INTERRUPTED", facts=facts
    )
    create_sweep(ledger, record)
    return ledger


@pytest.mark.parametrize(
    ("resources", "nodes", "at_once"),
    [
        ({"cpu": 1}, [Node(4, 0), Node(2, 0)], 6),
        ({"cpu": 2}, [Node(3, 0), Node(3, 0)], 2),
        ({"cpu": 0.1, "gpu": 1, "slots": 4}, [Node(4, 1), Node(4, 1)], 8),
        ({"cpu": 1, "concurrent": 5}, [Node(4, 0), Node(4, 0)], 5),
        ({"cpu": 1}, [Node(90, 0)], 12),
    ],
)
def test_a_plan_counts_the_trials_of_all_nodes_and_slots(
    tmp_path: Path, resources: Mapping[str, Any], nodes: list[Node], at_once: int
) -> None:
    """It counts at most the trials of the budget, which are 12."""
    document = {**DOCUMENT, "resources": resources, "budget": {"trials": 12}}
    hardware = Hardware.of(nodes)
    sweep = Sweep.from_dict(document, name="plan", profile=None, hardware=hardware, root=tmp_path)
    assert sweep.plan().at_once == at_once


SHADOWING = ("trainables", "sweep_client", "json", "yaml", "typer", "rich", "ray", "mlflow", "sqlalchemy")


def shadowed(folder: Path) -> None:
    """Write modules that end every process which imports one of them."""
    for name in SHADOWING:
        (folder / f"{name}.py").write_text(f"raise SystemExit('{name} was imported from here')\n")


def run_among(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a folder of such modules, where this package is found by PYTHONPATH alone."""
    shadowed(folder)
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, *words], cwd=folder, env=variables, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_a_command_imports_nothing_from_the_folder_in_which_it_is_started(tmp_path: Path) -> None:
    (tmp_path / "space.yaml").write_text(SPACE)
    done = run_among(tmp_path, "-m", "orchestrator.sweep", "validate", "space.yaml", "--root", "mlruns")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_nor_do_the_processes_that_it_starts(tmp_path: Path) -> None:
    """Not even a module with the name of this package, which an installed command can meet."""
    (tmp_path / "orchestrator.py").write_text("raise SystemExit('orchestrator was imported')")
    start = "subprocess.run([sys.executable, '-m', 'orchestrator.tracking.deliver'], input=b'', check=True)"
    code = f"import subprocess, sys, orchestrator; orchestrator.search_installed_modules_alone(); {start}"
    done = run_among(tmp_path, "-P", "-c", code)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_package_that_is_only_in_the_working_folder_is_found_by_what_it_starts(tmp_path: Path) -> None:
    (tmp_path / "orchestrator").symlink_to(ROOT / "orchestrator")
    (tmp_path / "trainables").symlink_to(ROOT / "trainables")
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-m", "orchestrator.sweep", "list", "--root", "mlruns"],
        cwd=tmp_path,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "sweeps.db does not exist" in done.stderr
    code = "import orchestrator; orchestrator.search_installed_modules_alone(); import os; print(os.environ)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=variables, capture_output=True, text=True, check=True
    )
    assert f"'PYTHONPATH': '{tmp_path}'" in done.stdout


class Screen(io.StringIO):
    """A stream that is a terminal, or is none."""

    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


@pytest.mark.parametrize(
    ("is_terminal", "asked", "is_shown"),
    [(True, None, True), (True, False, False), (False, None, False), (False, True, True), (True, True, True)],
)
def test_a_run_shows_a_bar_on_standard_error(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    is_terminal: bool,
    asked: bool | None,
    is_shown: bool,
) -> None:
    """In terminals, unless it is turned off, and in a pipe only if it is asked for; never with results."""
    seen: list[type[Observer]] = []

    def drive(sweep: SweepConfig, run: Run, observer: Observer) -> tuple[str, Exit]:
        seen.append(type(observer))
        observer.say("a message")
        observer.show(Progress({"COMPLETE": 1}, 4, "space-1", 0.25, 90.0))
        observer.show(Progress({"COMPLETE": 4}, 4, "space-1", 0.125))
        observer.close()
        return sweep.id, Exit.COMPLETE

    monkeypatch.setattr(api_sweep, "drive", drive)
    monkeypatch.setattr(sys, "stderr", screen := Screen(is_terminal=is_terminal))
    sweep = Sweep.from_dict(DOCUMENT, name="space", hardware=Hardware(cpus=2, gpus=0), root=tmp_path)
    assert sweep.run(progress=asked) is Exit.COMPLETE
    assert seen == [api_sweep._Bar if is_shown else Observer]
    assert (sweep.id in screen.getvalue() and "4/4" in screen.getvalue()) is is_shown
    assert ("best val/loss 0.1250" in screen.getvalue()) is is_shown
    assert capsys.readouterr().out == ""
    seen.clear()
    own = Observer()
    sweep.run(own, progress=asked)
    assert seen == [Observer]
