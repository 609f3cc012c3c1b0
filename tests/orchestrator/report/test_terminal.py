"""The end of a sweep on a terminal and in a file."""

from __future__ import annotations

import io
import math
import random
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from orchestrator.report import html, markdown, terminal, words
from orchestrator.report.leaderboard import leaderboard_csv
from orchestrator.report.summary import Summary, summarise
from tests import sweeps
from trainables import checkpoint

DIRECTIONS = terminal.Directions("sweep ui", "reports/report.html", "sweep evaluate x")


def shown(summary: Summary, **options: object) -> str:
    out = io.StringIO()
    terminal.show(summary, DIRECTIONS, Console(file=out, **options))  # type: ignore[arg-type]
    return out.getvalue()


def test_plain_text_is_complete() -> None:
    text = shown(summarise(sweeps.history()))
    lines = text.splitlines()
    header = next(line for line in lines if "val/accuracy" in line)
    assert header.split() == [
        *("#", "trial", "val/accuracy", "test/accuracy", "steps", "state"),
        *("learning_rate", "gamma_init.min", "theta_init.max"),
    ]
    first = lines[lines.index(header) + 1].split()
    assert first == ["1", "7", "0.6469", "0.6359", "200/200", "complete", "0.008", "0.172", "1"]
    assert "val/accuracy 0.6469 (always the most frequent class: 0.5020)" in text
    assert "test/accuracy 0.6359 (always the most frequent class: 0.5040)" in text
    assert "Data: embedded English passages." in text
    assert "Not comparable with published figures: not AAN" in text
    assert "0.8990" not in text, "a published figure of another size is no line to beat"
    assert "Failed: 1 × non-finite" in text
    assert "sweep ui" in text
    assert "reports/report.html" in text
    assert f"checkpoints/{sweeps.SWEEP_ID}-7" in text
    assert "\x1b" not in text


def test_the_cause_of_one_failure_is_not_said_to_be_that_of_all() -> None:
    """Failures are counted by their kind; of each kind the first is described."""
    history = sweeps.history()
    causes = iter(["error: ValueError: x must be below 3", "error: no memory"])
    trials = [
        replace(trial, state="FAILED", value=None, best_step=None, cause=next(causes))
        if trial.number in (2, 3)
        else trial
        for trial in history.trials
    ]
    text = shown(summarise(replace(history, trials=tuple(trials))))
    assert "Failed: 2 × error, the first: ValueError: x must be below 3" in text


def test_a_narrow_terminal_omits_columns() -> None:
    text = shown(summarise(sweeps.history()), force_terminal=True, width=70, no_color=True)
    header = next(line for line in text.splitlines() if "val/accuracy" in line)
    assert "learning_rate" not in header
    assert "… +3 columns" in text
    assert "learning_rate 0.008" in text


def test_no_line_breaks_in_the_middle_of_a_word_at_80_columns() -> None:
    """A terminal breaks a longer line anywhere; a path or a command has a line of its own."""
    history = sweeps.history(data_source=" ".join(["embedded"] * 20))
    deep = terminal.Directions(
        "http://mlflow:5000", f"{'reports/' * 8}report.html", f"sweep {'evaluate ' * 9}"
    )
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, color_system=None, width=80)
    terminal.show(summarise(history), deep, console)
    lines = out.getvalue().splitlines()
    long = [line.strip() for line in lines if len(line) > 80]
    assert long == [f"sweep {'evaluate ' * 9}".strip()]
    at = lines.index(f"    {deep.report}")
    assert lines[at - 1] == "  Report"
    assert " embedded embedded" in out.getvalue()


def test_paths_and_addresses_are_links_of_a_terminal() -> None:
    directions = replace(DIRECTIONS, tracking="http://mlflow:5000")
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, color_system="standard", width=80)
    terminal.show(summarise(sweeps.history()), directions, console)
    links = re.findall(r"\x1b\]8;id=\d+;([^\x1b]+)\x1b", out.getvalue())
    assert links[:2] == ["http://mlflow:5000", Path("reports/report.html").absolute().as_uri()]


def test_columns_without_a_value_are_left_out() -> None:
    failed = [sweeps.trial(number, "FAILED") for number in range(3)]
    history = replace(sweeps.history(), trials=tuple(failed), evaluations={})
    header = next(line for line in shown(summarise(history)).splitlines() if "trial" in line.split())
    assert header.split()[:3] == ["trial", "steps", "state"]


def test_colour_only_if_it_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    summary = summarise(sweeps.history())
    assert "\x1b[32m" in shown(summary, force_terminal=True, color_system="standard")
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[32m" not in shown(summary, force_terminal=True, color_system="standard")


def test_names_are_not_markup() -> None:
    summary = replace(summarise(sweeps.history()), data_source="[red]x[/red] :smile:")
    assert "[red]x[/red] :smile:" in shown(summary)


def test_many_trials_are_cut_short() -> None:
    text = shown(summarise(sweeps.history([sweeps.trial(number) for number in range(40)])))
    assert "… and 30 more in the report" in text


@pytest.mark.parametrize("state", ["INTERRUPTED", "PAUSED"])
def test_without_an_answer_it_says_how_to_resume(state: str) -> None:
    history = sweeps.history(state=state, reason="disk full")
    trials = (sweeps.trial(0, "PREEMPTED", value=None, best_step=None),)
    text = shown(summarise(replace(history, trials=trials)))
    assert "No trial is complete" in text
    assert f"{state} (disk full)" in text
    assert "run the same command again" in text


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ([0.5, None, 0.25], ["0.5000", "–", "0.2500"]),
        ([0.12345, 0.12346], ["0.12345", "0.12346"]),
        ([0.62600001, 0.62600002, 0.626], ["0.62600001", "0.62600002", "0.62600000"]),
        ([1e-5, 2e-5, 0.0], ["1e-5", "2e-5", "0"]),
        ([1234567.25, 1234569.5], ["1.234567e6", "1.23457e6"]),
        ([0.5, 0.5, math.nan], ["0.5000", "0.5000", "nan"]),
        ([-math.inf, 0.1], ["-inf", "0.1000"]),
    ],
)
def test_values_that_differ_look_different(values: list[float | None], shown: list[str]) -> None:
    assert words.numbers(values) == shown


@pytest.mark.parametrize("seed", range(20))
def test_values_order_as_they_were_compared(seed: int) -> None:
    draw = random.Random(seed)
    base, scale = draw.choice([0.0, 0.5, -3.0, 1e9]), 10.0 ** draw.randrange(-12, 6)
    values = [base + scale * draw.random() for _ in range(50)]
    for shown in (words.numbers(values), words.numbers(values, words.brief)):
        order = sorted(range(50), key=lambda index: values[index])
        assert sorted(range(50), key=lambda index: float(shown[index])) == order


def test_a_script_has_no_column_of_a_test_split() -> None:
    """It has neither one nor a network whose size could be counted; its objective may have any name."""
    history = sweeps.history()
    document = {**history.sweep.document, "trainable": {"function": "train.py:train"}, "published": {}}
    scripted = replace(
        history.sweep, document=document, facts={**history.sweep.facts, "metric": "score", "chance": {}}
    )
    summary = summarise(replace(history, sweep=scripted, evaluations={}))
    assert summary.test_metric == "test/score"
    text = shown(summary)
    assert "Chosen" in text
    assert "test/" not in text
    for written in (text, markdown.markdown(summary), html.report(history, summary, ())):
        assert "on validation" not in written
        assert f"Data: {summary.data_source}" not in written
    for table in (markdown.leaderboard(summary, summary.rows), leaderboard_csv(summary), text):
        header = next(line for line in table.splitlines() if "state" in line)
        assert "score" in header
        assert "test/" not in header
        assert "parameters" not in header


def test_a_script_that_has_saved_nothing_has_no_checkpoint(tmp_path: Path) -> None:
    history = sweeps.history()
    best = summarise(history).chosen
    assert best is not None
    rows = list(history.checkpoints[best.row.key])
    for arrays, is_named in (({}, False), ({"weights": np.zeros(3)}, True)):
        saved = checkpoint.save(tmp_path / f"step-{is_named}", arrays, {"step": 1})
        kept = {**history.checkpoints, best.row.key: [replace(row, path=str(saved.folder)) for row in rows]}
        assert ("Checkpoint" in shown(summarise(replace(history, checkpoints=kept)))) is is_named
