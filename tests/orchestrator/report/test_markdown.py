"""The Markdown report and the leaderboard's CSV."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

import pytest

from orchestrator.report.leaderboard import leaderboard_csv
from orchestrator.report.markdown import leaderboard, markdown
from orchestrator.report.summary import summarise
from orchestrator.report.words import inert
from tests import sweeps


def test_the_answer_comes_first() -> None:
    text = markdown(summarise(sweeps.history()))
    answer = text.split("\n\n")[1]
    assert answer.startswith("Trial 7 reaches **0.6469** val/accuracy")
    assert "**0.6359** test/accuracy" in answer
    assert "| non-finite | 1 |" in text
    assert "| compile | 8 s |" in text


def test_only_the_first_lines_of_a_long_leaderboard() -> None:
    summary = summarise(sweeps.history([sweeps.trial(number) for number in range(40)]))
    assert markdown(summary, rows=5).count("complete |") == 5


def test_a_cell_cannot_break_the_table() -> None:
    summary = summarise(sweeps.history())
    rows = [replace(summary.rows[0], params={"learning_rate": "a|b\nc"})]
    assert "a\\|b c" in leaderboard(summary, rows)
    assert len(leaderboard(summary, rows).splitlines()) == 3


HOSTILE = "a|b\n\n# heading `code` <img src=x onerror=alert(1)> [text](//x) \\"
SAFE = r"a\|b # heading \`code\` \<img src=x onerror=alert(1)> [text]\(//x) \\"


def test_no_text_of_a_trial_or_of_its_data_changes_the_document() -> None:
    """Neither a name nor a cause starts a line, a cell, code, HTML or a link."""
    facts = {**sweeps.sweep_record().facts, "note": HOSTILE}
    published = {**sweeps.sweep_record().document, "published": {"source": HOSTILE, "test/accuracy": 0.9}}
    history = sweeps.history(facts=facts, data_source=HOSTILE, document=published)
    trials = tuple(replace(trial, cause=HOSTILE, params={HOSTILE: HOSTILE}) for trial in history.trials)
    text = markdown(summarise(replace(history, trials=trials)))
    before = markdown(summarise(sweeps.history()))
    assert [line for line in text.splitlines() if line.startswith("#")] == [
        line for line in before.splitlines() if line.startswith("#")
    ]
    assert text.replace(SAFE, "").count("heading") == 0
    assert f"Data: {SAFE}." in text
    assert f"| {SAFE} | 1 |" in text
    lines = text.splitlines()
    rows = lines[lines.index("## Leaderboard") + 2 : lines.index("## Failures") - 1]
    assert {row.replace(SAFE, "").count("|") for row in rows} == {8}


def test_csv_keeps_every_digit() -> None:
    rows = list(csv.DictReader(io.StringIO(leaderboard_csv(summarise(sweeps.history())))))
    assert len(rows) == 8
    assert float(rows[0]["val/accuracy"]) == sweeps.trial(7).value
    assert float(rows[0]["gamma_init.min"]) == sweeps.trial(7).params["gamma_init.min"]
    assert rows[-1]["val/accuracy"] == ""


@pytest.mark.parametrize(
    ("cell", "written"),
    [
        ("=cmd|' /C calc'!A0", "'=cmd|' /C calc'!A0"),
        ("+1+1", "'+1+1"),
        ("-2+3", "'-2+3"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\t=1", "'\t=1"),
        ("\r=1", "'\r=1"),
        ("\uff1d1", "'\uff1d1"),
        ("-0.5", "-0.5"),
        ("+1e-3", "+1e-3"),
        ("-inf", "-inf"),
        ("adam", "adam"),
        ("", ""),
        (-0.5, -0.5),
        (-3, -3),
        (None, None),
        (True, True),
    ],
)
def test_a_spreadsheet_runs_no_cell(cell: object, written: object) -> None:
    assert inert(cell) == written


def test_no_cell_of_the_leaderboard_is_a_formula() -> None:
    """Names of metrics and hyperparameters, and what they were set to, come from users."""
    history = sweeps.history()
    trials = [replace(trial, params={"=name": "=1+1", "rate": -0.5}) for trial in history.trials]
    rows = list(csv.reader(io.StringIO(leaderboard_csv(summarise(replace(history, trials=trials))))))
    assert {"'=name", "rate"} <= set(rows[0])
    assert {row[rows[0].index("'=name")] for row in rows[1:]} == {"'=1+1"}
    assert {row[rows[0].index("rate")] for row in rows[1:]} == {"-0.5"}
