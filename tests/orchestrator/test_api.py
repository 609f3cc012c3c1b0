"""A sweep in Python: the same ledger, the same figures, nothing imported before it is needed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from orchestrator import Sweep
from orchestrator.errors import BadInput
from orchestrator.ledger.ledger import Ledger
from orchestrator.report.figures import FIGURES
from orchestrator.storage.paths import Paths
from tests import sweeps

SPACES = Path(__file__).parents[2] / "search_spaces"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a root whose ledger holds a sweep of forty trials, most of them complete."""
    paths = Paths(tmp_path_factory.mktemp("api") / "mlruns")
    paths.create()
    ledger = Ledger.open(paths.ledger_url)
    states = ["COMPLETE", "COMPLETE", "COMPLETE", "PRUNED"]
    members = [sweeps.trial(number, states[number % 4]) for number in range(20)]
    sweeps.fill(ledger, paths.root / "checkpoints", members)
    ledger.close()
    return paths.root


def test_loading_runs_nothing_and_writes_nothing(tmp_path: Path) -> None:
    sweep = Sweep.load(
        SPACES / "listops.yaml", profile="laptop", overrides=["budget.trials=3"], root=tmp_path / "no"
    )
    assert (sweep.state, sweep.specification.budget.trials) == ("NEW", 3)
    assert sweep.id.startswith("listops-laptop-")
    with pytest.raises(BadInput, match="must have run"):
        _ = sweep.trials
    assert list(tmp_path.iterdir()) == []


def test_a_mistake_is_told_as_on_the_command_line(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="steps"):
        Sweep.load(SPACES / "listops.yaml", overrides=["training.stesp=3"], root=tmp_path)


def test_the_frame_is_the_ledger(root: Path) -> None:
    sweep = Sweep.find("retrieval", root=root)
    frame = sweep.trials
    assert list(frame["number"]) == list(range(20))
    assert set(frame["state"]) == {"COMPLETE", "PRUNED"}
    for number in range(20):
        trial = sweeps.trial(number, frame["state"].iloc[number])
        row = frame.loc[trial.key]
        assert row["value"] == trial.value
        assert row["params.learning_rate"] == trial.params["learning_rate"]
    assert sweep.best == f"{sweeps.SWEEP_ID}-18"
    assert frame.loc[sweep.best, "test"] == pytest.approx(sweeps.accuracy(18, 200) - 0.011)
    assert frame["test"].notna().sum() == 1


def test_curves_have_one_row_a_report(root: Path) -> None:
    sweep = Sweep.find("retrieval", root=root)
    wanted = [
        row
        for number in range(20)
        for row in sweeps.reports(sweeps.trial(number, sweep.trials["state"].iloc[number]))
    ]
    assert len(sweep.curves) == len(wanted)
    point = sweep.curves.set_index(["trial", "step"]).loc[(wanted[0].trial_key, wanted[0].step)]
    assert point["val/accuracy"] == wanted[0].metrics["val/accuracy"]
    assert isinstance(sweep.curves, pd.DataFrame)


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_draws_something(root: Path, name: str) -> None:
    figure = Sweep.find("retrieval", root=root).figure(name)
    assert figure.data


def test_an_unknown_figure_is_named(root: Path) -> None:
    with pytest.raises(BadInput, match=r"Did you mean hidden-norms\?"):
        Sweep.find("retrieval", root=root).figure("hidden_norms")


def test_importing_it_imports_neither_ray_nor_jax_nor_mlflow_nor_optuna() -> None:
    code = (
        "import sys; from orchestrator import Sweep; "
        "print({'ray', 'jax', 'mlflow', 'optuna', 'plotly'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
