"""The end of a sweep on a terminal and in a file."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from orchestrator.report import terminal
from orchestrator.report.summary import Summary, summarise
from tests import sweeps

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
        *("#", "trial", "val/accuracy", "test/accuracy", "steps", "state", "parameters"),
        *("learning_rate", "gamma_init.min", "theta_init.max"),
    ]
    first = lines[lines.index(header) + 1].split()
    assert first == ["1", "7", "0.6469", "0.6359", "200/200", "complete", "–", "0.008", "0.172", "1"]
    assert "val/accuracy 0.6469 (always the most frequent class: 0.5020)" in text
    assert "test/accuracy 0.6359 (always the most frequent class: 0.5040)" in text
    assert "Data: embedded English passages." in text
    assert "Not comparable with published figures: not AAN" in text
    assert "Published test/accuracy: 0.8990 (RotRNN, Tables 1 and 3)." in text
    assert "Failed: 1 × non-finite" in text
    assert "sweep ui" in text
    assert "reports/report.html" in text
    assert f"checkpoints/{sweeps.SWEEP_ID}-7" in text
    assert "\x1b" not in text


def test_a_narrow_terminal_omits_columns() -> None:
    text = shown(summarise(sweeps.history()), force_terminal=True, width=70, no_color=True)
    header = next(line for line in text.splitlines() if "val/accuracy" in line)
    assert "learning_rate" not in header
    assert "learning_rate 0.008" in text


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
