"""Sweeps side by side: what is measured, what is spent, and what the differences support."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from orchestrator.cli.printing import print_tables
from orchestrator.report.comparison import (
    SideBySide,
    conclusion,
    markdown,
    measured,
    side_by_side,
    tables,
)
from orchestrator.report.published import FIGURES, figures
from orchestrator.report.summary import Summary, summarise
from tests import sweeps
from tests.orchestrator.report.confirmed import EXAMPLES, confirmation, history, summary
from trainables.layers import LAYERS
from trainables.tasks import TASKS

HIGH, LOW = (0.82, 0.84, 0.86, 0.84), (0.60, 0.62, 0.64, 0.62)
AS_PUBLISHED = {"comparable": True, "profile": None, "departures": ()}


def _searched(**changes: object) -> Summary:
    """Return the summary of a sweep without confirmations."""
    return replace(summarise(sweeps.history()), **changes)  # type: ignore[arg-type]


def _concluded(*summaries: Summary) -> list[str]:
    (comparison,) = side_by_side(summaries).comparisons
    return list(conclusion(comparison))


def test_figures_name_existing_layers_and_tasks() -> None:
    assert {figure.layer for figure in FIGURES} <= LAYERS.keys()
    assert {figure.task for figure in FIGURES} <= TASKS.keys()
    assert all(0.3 < figure.accuracy < 1.0 for figure in FIGURES)
    assert len(set(FIGURES)) == len(FIGURES)


@pytest.mark.parametrize(
    ("layer", "task", "expected"),
    [
        ("rotrnn", "listops", [(0.611, None)]),
        ("lru", "listops", [(0.602, 0.008), (0.579, None)]),
        ("relu_rnn", "listops", [(0.376, 0.08)]),
        ("rotrnn", "speech_commands", [(0.952, None)]),
        ("tanh_rnn", "pathx", []),
    ],
)
def test_figures_are_the_papers(layer: str, task: str, expected: list[tuple[float, float | None]]) -> None:
    published = figures(layer, task)
    assert [figure.accuracy for figure in published] == pytest.approx([value for value, _ in expected])
    assert [figure.error for figure in published] == [
        None if error is None else pytest.approx(error) for _, error in expected
    ]


def test_every_image_figure_says_colour_or_grey() -> None:
    assert all(figure.note for figure in FIGURES if figure.task == "image")


def test_published_results_stand_beside() -> None:
    other = _searched(sweep_id="listops-1", layer="lru", task="listops", **AS_PUBLISHED)
    text = markdown(side_by_side([_searched(), other]))
    matrix = text[text.index("## Layers") :]
    rotrnn, lru = [line for line in matrix.splitlines() if line.startswith(("| rotrnn", "| lru"))]
    assert rotrnn == "| rotrnn | 0.6359 (1 seed) * | – |"
    assert "0.6359 (1 seed); published 0.602 (0.008) [8]" in lru
    assert "which cannot be compared" in text
    assert "[3] RotRNN, Table 1" not in text
    assert "published 0.899 [3]" in markdown(side_by_side([_searched(**AS_PUBLISHED)]))
    assert "LRU, Table 6" not in text
    assert " *" not in markdown(side_by_side([_searched(**AS_PUBLISHED)]))


def test_another_network_is_named_and_not_compared() -> None:
    """Published data without a profile is not enough: a small network is no published one."""
    small = replace(sweeps.history(), sweep=sweeps.sweep_record(profile=None))
    facts = {**small.sweep.facts, "comparable": True, "note": ""}
    compared = side_by_side([summarise(replace(small, sweep=replace(small.sweep, facts=facts)))])
    (result,) = compared.results
    assert not result.comparable
    for line in ("depth 2 instead of 6", "d_model 32 instead of 128", "steps 200 instead of 50,000"):
        assert line in result.why_not
    assert "0.6359 (1 seed) *" in markdown(compared)
    assert "0.899" not in markdown(compared)


def test_results_within_the_noise_of_a_control_are_marked() -> None:
    """As reports and the pages of experiments do."""
    lucky, sure = summary("lucky", (0.49, 0.51, 0.5)), summary("sure", HIGH)
    compared = side_by_side([replace(lucky, chance={"test": 0.5}), replace(sure, chance={"test": 0.5})])
    assert [bool(result.doubts) for result in compared.results] == [True, False]
    text = markdown(compared)
    rows = {line.split(" | ")[0].strip("| "): line for line in text.splitlines() if line.startswith("| ")}
    assert "(!)" in rows["lucky"]
    assert "(!)" not in rows["sure"]
    assert "lucky (!): No difference from a control, the best constant answer, is established" in text


def test_the_layer_is_the_chosen_trials() -> None:
    """A search over layers has another layer in its file."""
    searched = _searched()
    assert searched.chosen is not None
    row = replace(searched.chosen.row, params={**searched.chosen.row.params, "layer": "s5"})
    (result,) = side_by_side([replace(searched, chosen=replace(searched.chosen, row=row))]).results
    assert result.layer == "s5"


def test_the_best_sweep_is_named() -> None:
    compared = side_by_side([summary("low", LOW), summary("high", HIGH)])
    (task,) = compared.comparisons
    assert (task.task, task.metric, task.comparison.winner) == ("retrieval", "test/accuracy", "high")
    (difference,) = task.comparison.differences
    assert difference.mean == pytest.approx(-0.22, abs=0.01)
    assert difference.paired
    assert list(conclusion(task)) == ["high is better than every other sweep on retrieval."]


def test_smaller_is_better_where_the_objective_is_minimised() -> None:
    assert _concluded(summary("low", LOW, maximize=False), summary("high", HIGH, maximize=False)) == [
        "low is better than every other sweep on retrieval."
    ]


def test_within_the_noise_none_is_named_but_a_detectable_difference() -> None:
    lines = _concluded(summary("a", (0.60, 0.64, 0.62)), summary("b", (0.61, 0.655, 0.63)))
    assert lines[0] == "No sweep is named the best on retrieval: b is not established to differ from a."
    assert lines[1].startswith("With these seeds and examples, a difference of 0.")
    assert lines[1].endswith(" would be established with a probability of 80 %.")
    assert 0.01 < float(lines[1].split()[8]) < 0.2


def test_a_single_seed_names_none() -> None:
    assert _concluded(_searched(sweep_id="a"), summary("b", HIGH)) == [
        "No sweep is named the best on retrieval: fewer than 3 seeds of a."
    ]


def test_evaluations_of_earlier_versions_name_none() -> None:
    earlier = replace(summarise(history(LOW, recorded=False)), sweep_id="earlier")
    (line,) = _concluded(earlier, summary("new", HIGH))
    assert line.endswith("the scores of the examples are not recorded for earlier.")


def test_other_data_name_none() -> None:
    (line,) = _concluded(summary("a", LOW, data_digest="beef"), summary("b", HIGH))
    assert line.endswith("other data than b: a.")


def test_the_survivors_of_failed_confirmations_name_none() -> None:
    before = history(HIGH)
    failed = replace(before, trials=(*before.trials, confirmation(4, "FAILED")))
    survivors = replace(summarise(failed), sweep_id="survivors")
    assert _concluded(summary("low", LOW), survivors) == [
        "No sweep is named the best on retrieval: 1 of the 5 confirmations of survivors failed or diverged."
    ]


@pytest.mark.parametrize("state", ["RUNNING", "WAITING"])
def test_nothing_is_named_before_all_confirmations_have_ended(state: str) -> None:
    """Neither the leader nor a rival whose further seeds may change the comparison."""
    begun = {name: history(values) for name, values in (("low", LOW), ("high", HIGH))}
    for name, before in begun.items():
        more = replace(before, trials=(*before.trials, confirmation(4, state)))
        whole = {**begun, name: more}
        both = [replace(summarise(each), sweep_id=sweep) for sweep, each in whole.items()]
        assert _concluded(*both) == [
            f"No sweep is named the best on retrieval: 1 confirmation of {name} has not ended."
        ]


def test_a_sweep_without_a_result_is_left_out() -> None:
    whole = sweeps.history()
    pruned = tuple(trial for trial in whole.trials if trial.state != "COMPLETE")
    without = replace(summarise(replace(whole, trials=pruned)), sweep_id="without")
    lines = _concluded(summary("low", LOW), without, summary("high", HIGH))
    assert lines[-1] == "Without a test result: without."
    assert side_by_side([without, summary("high", HIGH)]).comparisons == ()


def test_all_differences_share_the_confidence() -> None:
    """Of two tasks with two sweeps each, every interval is wider than that of two sweeps alone."""
    pair = [summary("a", LOW), summary("b", HIGH)]
    others = [summary("c", LOW, task="listops"), summary("d", HIGH, task="listops")]

    def width(compared: SideBySide) -> float:
        (difference,) = compared.comparisons[0].comparison.differences
        assert difference.low is not None
        assert difference.high is not None
        return difference.high - difference.low

    assert width(side_by_side([*pair, *others])) > 1.1 * width(side_by_side(pair))


def test_a_sweep_is_not_compared_with_itself() -> None:
    compared = side_by_side([summary("a", LOW), summary("a", LOW)])
    assert len(compared.results) == 2
    assert compared.comparisons == ()


def test_what_was_spent_stands_beside_every_result() -> None:
    (result,) = side_by_side([summary("a", LOW)]).results
    assert result.spent.trials == {"COMPLETE": 5, "PRUNED": 2, "FAILED": 1}
    assert result.spent.confirmations == 4
    assert result.examples == EXAMPLES
    assert "| 8 (2 pruned, 1 failed) + 4 confirmations |" in markdown(side_by_side([summary("a", LOW)]))


def test_forty_examples_show_their_interval() -> None:
    """A result on few examples, of one seed, is no better known than they allow."""
    few = summarise(history([0.6]))
    results = replace(few.seeds, results=few.seeds.results[:1])
    shown = measured(side_by_side([replace(few, seeds=results)]).results[0])
    assert shown.startswith("0.6000 [0.5")
    assert shown.endswith(" (1 seed)")


def test_the_document_is_plain_json() -> None:
    document = json.loads(json.dumps(side_by_side([summary("a", LOW), summary("b", HIGH)]).document()))
    first = document["results"][0]
    assert list(first["values"].values()) == pytest.approx(list(LOW))
    assert first["estimate"]["sources"] == ["seeds", "examples"]
    assert first["spent"]["trials"] == {"COMPLETE": 5, "FAILED": 1, "PRUNED": 2}
    assert document["comparisons"][0]["comparison"]["winner"] == "b"


def test_the_terminal_shows_what_markdown_shows() -> None:
    compared, out = side_by_side([summary("a", LOW), summary("b", HIGH)]), io.StringIO()
    print_tables(tables(compared), Console(file=out))
    shown, text = out.getvalue(), markdown(compared)
    for cell in (
        "a - b",
        "0.6000, 0.6200, 0.6400, 0.6200",
        "the same",
        "seeds and examples",
        "b is better than",
    ):
        assert cell in shown
        assert cell in text
