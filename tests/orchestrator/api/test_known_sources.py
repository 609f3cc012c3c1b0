"""Known results are read from a CSV file or a study of Optuna when a file is loaded, and shown as such."""

from __future__ import annotations

from pathlib import Path

import optuna
import pytest
from optuna.distributions import FloatDistribution
from optuna.trial import create_trial

from orchestrator import BadInput, Sweep
from orchestrator.api.planning import planned
from orchestrator.config import from_document
from orchestrator.study.known_results import known_trials
from orchestrator.study.study import Study
from tests.orchestrator.cli.test_inputs import SPACE

TEXT = SPACE.replace("random: {seed: 3}", "tpe: {seed: 3}").replace("trials: 4", "trials: 16")


def load(folder: Path, known: str, text: str = TEXT) -> Sweep:
    """Return the sweep of a file in a folder that is not the working folder."""
    file = folder / "space.yaml"
    file.write_text(f"{text}known: {known}\n")
    return Sweep.load(file, root=folder / "runs", profile=None)


def csv_file(folder: Path) -> None:
    rows = [f"{1e-3 * (1 + index)},{0.5 - 0.1 * index},a" for index in range(5)]
    (folder / "results.csv").write_text(
        "\n".join(["learning_rate,val/loss,note", *rows, "1.0,0.2,b", ",0.3,c"])
    )


def study(folder: Path, direction: str = "minimize") -> str:
    storage = f"sqlite:///{folder / 'study.db'}"
    written = optuna.create_study(storage=storage, study_name="mine", direction=direction)
    space = {"learning_rate": FloatDistribution(1e-4, 1.0, log=True)}
    for rate in (2e-3, 5e-3, 0.5):
        written.add_trial(create_trial(params={"learning_rate": rate}, distributions=space, value=rate))
    written.add_trial(create_trial(params={}, distributions={}, state=optuna.trial.TrialState.FAIL))
    return storage


def test_a_csv_file_beside_the_search_space_file(tmp_path: Path) -> None:
    csv_file(tmp_path)
    sweep = load(tmp_path, "results.csv")
    (known,) = sweep.specification.known
    assert known.phrase == (
        "results.csv: 5 results; left out: 1 with learning_rate outside its search, 1 without learning_rate"
    )
    assert f"known results of {known.phrase}" in planned(sweep, sizes=False).lines
    (tmp_path / "results.csv").unlink()
    assert from_document(sweep.specification.document()).known == sweep.specification.known, "as resumed"


def test_a_changed_csv_file_is_another_sweep(tmp_path: Path) -> None:
    csv_file(tmp_path)
    before = load(tmp_path, "results.csv").id
    assert load(tmp_path, "results.csv").id == before
    with (tmp_path / "results.csv").open("a") as file:
        file.write("\n0.002,0.1,d")
    assert load(tmp_path, "results.csv").id != before


@pytest.mark.parametrize("is_relative", [True, False])
def test_a_study_of_optuna(tmp_path: Path, is_relative: bool) -> None:
    storage = study(tmp_path)
    source = f"optuna://{'sqlite:///study.db' if is_relative else storage}#mine"
    (known,) = load(tmp_path, source).specification.known
    assert known.results == tuple({"learning_rate": rate, "val/loss": rate} for rate in (2e-3, 5e-3))
    assert known.left_out == {"with learning_rate outside its search": 1}


def test_a_password_of_a_storage_is_not_kept(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as error:
        load(tmp_path, "optuna://postgresql+nodriver://ada:secret@host/db#mine")
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    ("known", "message"),
    [
        ("nothing.csv", "known must name a CSV file that can be read"),
        ("wrong.csv", "wrong.csv has no result in the search (got 1 without learning_rate)"),
        ("optuna://sqlite:///study.db", "known must end with # and the name of a study"),
        ("optuna://sqlite:///nothing.db#mine", "known must name a database that exists"),
        ("optuna://sqlite:///study.db#yours", "known: study yours cannot be read"),
        ("mlflow://sqlite:///nothing.db#mine", "known must name a database that exists"),
    ],
)
def test_a_source_that_cannot_be_read(tmp_path: Path, known: str, message: str) -> None:
    study(tmp_path)
    (tmp_path / "wrong.csv").write_text("rate,val/loss\n1e-3,0.5\n")
    with pytest.raises(BadInput) as error:
        load(tmp_path, known)
    assert message in str(error.value)
    assert not (tmp_path / "nothing.db").exists()


def test_a_study_with_another_direction(tmp_path: Path) -> None:
    study(tmp_path, "maximize")
    with pytest.raises(BadInput, match="same objectives: minimize"):
        load(tmp_path, "optuna://sqlite:///study.db#mine")


def test_the_first_trials_repeat_known_settings_and_say_so(tmp_path: Path) -> None:
    csv_file(tmp_path)
    specification = load(tmp_path, "results.csv").specification
    trials, points = known_trials(specification)
    chosen = Study(specification, (), points, trials)
    proposals = [chosen.ask(number) for number in range(5)]
    repeated = [each.system_attrs.get("repeats") for each in proposals if each is not None]
    assert repeated == ["results.csv"] * 4 + [None]
    assert proposals[0] is not None
    assert proposals[0].params == {"learning_rate": 5e-3}, "the best of them"
    assert chosen.trials()[0].number == 5, "known results are not trials of the sweep"


def test_the_best_known_settings_are_run_first_and_labelled(tmp_path: Path) -> None:
    csv_file(tmp_path)
    specification = load(tmp_path, "{source: results.csv, run: 5}").specification
    assert specification.known[0].phrase.startswith(
        "results.csv: 5 results, of which the best 5 are run first;"
    )
    assert from_document(specification.document()).known == specification.known, "as resumed"
    trials, points = known_trials(specification)
    chosen = Study(specification, (), points, trials)
    proposals = [chosen.ask(number) for number in range(6)]
    rates = [each.params["learning_rate"] for each in proposals if each is not None]
    assert rates[:5] == pytest.approx([5e-3, 4e-3, 3e-3, 2e-3, 1e-3]), "beyond an eighth of the budget too"
    labels = [each.system_attrs.get("repeats") for each in proposals if each is not None]
    assert labels == ["results.csv"] * 5 + [None]


def test_published_values_are_labelled_with_their_source(tmp_path: Path) -> None:
    csv_file(tmp_path)
    text = f"{TEXT}published: {{source: Table 5, values: {{learning_rate: 2.5e-3}}}}\n"
    specification = load(tmp_path, "results.csv", text).specification
    first = Study(specification).ask(0)
    assert first is not None
    assert first.params == {"learning_rate": 2.5e-3}
    assert first.system_attrs["repeats"] == "Table 5"
