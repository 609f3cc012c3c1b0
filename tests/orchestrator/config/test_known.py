"""Known results are matched to the space of the search, and what does not match is counted."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from orchestrator.config import from_document
from orchestrator.config.known import MOST_RESULTS, matched
from orchestrator.config.space import Distribution
from orchestrator.config.sweep_config import KnownResults, Objective
from tests.orchestrator.config.files import VALID, edited, loaded, refused

FREE = VALID.split("published:")[0]
SPACE = {
    "layer": Distribution("choice", choices=("lru", "rotrnn")),
    "theta": Distribution("choice", choices=(math.pi / 10, 2 * math.pi), when={"layer": ("rotrnn",)}),
    "depth": Distribution("int", 1, 6),
    "rate": Distribution("log_uniform", 1e-5, 1e-2),
    "flag": Distribution("choice", choices=(True, False)),
}
OBJECTIVES = (Objective("val/accuracy", "maximize"),)
ROW = {"layer": "rotrnn", "theta": "0.314159265", "depth": "4", "rate": "1e-3", "flag": "True"}


def results(*rows: dict[str, Any]) -> KnownResults:
    complete = ({**ROW, "val/accuracy": "0.5", **row} for row in rows)
    return matched("results.csv", complete, SPACE, OBJECTIVES)


def test_a_table_of_text_has_the_types_of_the_space() -> None:
    found = results({"other": "ignored"}).results
    assert found == (
        {
            "layer": "rotrnn",
            "theta": math.pi / 10,
            "depth": 4,
            "rate": 1e-3,
            "flag": True,
            "val/accuracy": 0.5,
        },
    )


def test_a_hyperparameter_that_is_not_drawn_is_not_needed() -> None:
    (found,) = results({"layer": "lru", "theta": ""}).results or ()
    assert "theta" not in found


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"depth": ""}, "without depth"),
        ({"depth": "7"}, "with depth outside its search"),
        ({"depth": "2.5"}, "with depth outside its search"),
        ({"rate": "fast"}, "with rate outside its search"),
        ({"flag": "1"}, "with flag outside its search"),
        ({"theta": "1.0"}, "with theta outside its search"),
        ({"val/accuracy": "nan"}, "without a finite val/accuracy"),
        ({"val/accuracy": ""}, "without a finite val/accuracy"),
    ],
)
def test_what_cannot_be_matched_is_counted(row: dict[str, Any], why: str) -> None:
    found = results({}, row, row)
    assert len(found.results or ()) == 1
    assert found.left_out == {why: 2}
    assert found.phrase == f"results.csv: 1 result; left out: 2 {why}"


def test_the_mean_of_equal_settings_is_one_result() -> None:
    found = results({"val/accuracy": 0.5, "seed": 1}, {"val/accuracy": 0.7, "seed": 2}, {"depth": 1})
    assert [row["val/accuracy"] for row in found.results or ()] == pytest.approx([0.6, 0.5])


def test_of_many_results_some_of_all_ranks_are_kept() -> None:
    found = results(*({"rate": 1e-5 + 1e-6 * index, "val/accuracy": index} for index in range(1000)))
    values = [row["val/accuracy"] for row in found.results or ()]
    assert len(values) == MOST_RESULTS
    assert (values[0], values[-1]) == (0, 999)
    assert found.left_out == {f"beyond the first {MOST_RESULTS}": 1000 - MOST_RESULTS}


GIVEN = """known:
  - source: "Table 3"
    results:
    - {gamma_init.min: 0.5, gamma_init.max: 0.999, theta_init.max: 2*pi, learning_rate: 1e-4,
       recurrent_learning_rate: 1e-5, val/accuracy: 0.6}
    - {gamma_init.min: 0.5, val/accuracy: 0.6}
"""


def test_a_file_holds_results_and_its_document_reads_them_back(tmp_path: Path) -> None:
    sweep = loaded(tmp_path, FREE + GIVEN)
    (known,) = sweep.known
    assert known.phrase == "Table 3: 1 result; left out: 1 without gamma_init.max"
    again = from_document(sweep.document(), sweep.source_text)
    assert again.known == sweep.known
    assert again.digest == sweep.digest != loaded(tmp_path, FREE).digest


def test_the_results_are_part_of_the_identity_of_a_sweep(tmp_path: Path) -> None:
    one, other = (loaded(tmp_path, FREE + text) for text in (GIVEN, GIVEN.replace("0.6}", "0.7}")))
    assert one.digest != other.digest
    assert "known" not in loaded(tmp_path, FREE).document()


@pytest.mark.parametrize("known", ["results.csv", "[results.csv]", "[{source: results.csv}]"])
def test_a_source_is_not_read_with_the_file(tmp_path: Path, known: str) -> None:
    assert loaded(tmp_path, f"{FREE}known: {known}\n").known == (KnownResults("results.csv", None, {}),)


def test_results_that_do_not_match_at_all_are_refused(tmp_path: Path) -> None:
    error = refused(tmp_path, FREE + "known: {source: mine, results: [{val/accuracy: 0.5}]}\n")
    assert str(error).endswith(
        "known has no result in the space of the search (got 1 without gamma_init.max)."
        " Compare its names with `search` and `objective`."
    )


def test_a_source_is_named_once(tmp_path: Path) -> None:
    assert "must name each source once" in str(refused(tmp_path, f"{FREE}known: [a.csv, a.csv]\n"))


@pytest.mark.parametrize("sampler", ["random", "qmc", "nsgaii"])
def test_known_results_need_a_sampler_that_learns(tmp_path: Path, sampler: str) -> None:
    text = edited("{tpe: {seed: 3}}", sampler, FREE + "known: results.csv\n")
    assert "learns nothing from earlier results" in str(refused(tmp_path, text))
