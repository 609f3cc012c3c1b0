"""The page is one complete file, and escapes every text of the ledger."""

from __future__ import annotations

import gzip
import json
import re
from base64 import b64decode, b64encode
from dataclasses import replace
from hashlib import sha256
from html.parser import HTMLParser
from importlib.resources import files

import plotly.graph_objects as go
import pytest
from plotly.offline import get_plotlyjs_version

from orchestrator.report import html
from orchestrator.report.analysis import Importance
from orchestrator.report.figures import style
from orchestrator.report.summary import summarise
from tests import sweeps

IMPORTANCES = [Importance("learning_rate", 0.6, 0.4, 0.8), Importance("gamma_init.min", 0.4, 0.2, 0.5)]


def figures_of(text: str) -> list[dict[str, object]]:
    """Return the figures of a page as its script reads them."""
    contents = re.findall(r'<script type="application/json" id="figure[^"]+">(.*?)</script>', text, re.DOTALL)
    return [json.loads(content) for content in contents]


class _Links(HTMLParser):
    """Collects the links of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href")]


def headings(text: str) -> list[str]:
    return re.findall(r"<h2>(.*?)</h2>", text)


def test_the_report_has_every_part() -> None:
    history = sweeps.history()
    text = html.report(history, summarise(history), IMPORTANCES)
    assert headings(text) == [
        "Leaderboard",
        "Optimisation history",
        "Learning curves",
        "Hidden norms",
        "Hidden norms over trials",
        "Importances",
        "Parallel coordinates",
        "Slices",
        "Where the time went",
        "Failures",
        "Run it again",
    ]
    assert len(figures_of(text)) == 11  # norms of heads and of states, three slices
    assert all(figure["data"] for figure in figures_of(text))
    assert text.index("0.6359") < text.index("<h2>Leaderboard")
    assert "Not comparable with published figures" in text
    assert "c0ffee" in text


def test_contours_need_enough_complete_trials() -> None:
    history = sweeps.history([sweeps.trial(number) for number in range(12)])
    text = html.report(history, summarise(history), IMPORTANCES)
    assert "Contours" in headings(text)


def test_a_sweep_that_has_just_begun_has_a_report() -> None:
    history = sweeps.history(state="RUNNING")
    trials = (sweeps.trial(0, "RUNNING", value=None, best_step=None),)
    history = replace(history, trials=trials, reports={}, attempts={}, checkpoints={}, evaluations={})
    text = html.report(history, summarise(history), [])
    assert "No trial is complete" in text
    assert html.hidden_norms_page(history, summarise(history)) == ""


def test_one_file_that_fetches_nothing() -> None:
    history = sweeps.history()
    text = html.report(history, summarise(history), IMPORTANCES)

    links = _Links()
    links.feed(text)
    assert links.addresses
    assert all(link.startswith("#") for link in links.addresses)
    assert "default-src 'none'" in text
    packed = re.search(r'<script type="text/plain" id="plotly">(.*?)</script>', text)
    assert packed is not None
    script = gzip.decompress(b64decode(packed[1]))
    assert b"plotly.js (cartesian - minified) v4.1.1" in script[:100]
    assert b64encode(sha256(script).digest()).decode() in text[:1000], "the policy admits it"


def test_a_report_of_64_trials_weighs_less_than_a_megabyte_and_a_half() -> None:
    history = sweeps.history([sweeps.trial(number) for number in range(64)])
    text = html.report(history, summarise(history), IMPORTANCES)
    assert len(text.encode()) < 1_500_000


def test_plotly_js_is_as_published() -> None:
    """The digest is that of the file in npm's plotly.js-cartesian-dist-min 4.1.1."""
    file = files("orchestrator.report").joinpath("templates", html.PLOTLY_SCRIPT)
    assert sha256(file.read_bytes()).hexdigest() == (
        "79542150855a52c567260e3137095dbe2b744e6d702a5cabe67da246942fba7a"
    )
    major, installed = "4", get_plotlyjs_version().partition(".")[0]
    assert installed == major, "take the file of the version whose figures plotly writes"


def test_every_colour_of_a_figure_has_one_for_dark_pages() -> None:
    history = sweeps.history()
    text = html.report(history, summarise(history), IMPORTANCES)
    figures = re.findall(r'id="figure-[^"]+">(.*?)</script>', text)
    named = {found for figure in figures for found in re.findall(r'color":"(#[^"]+|rgba[^"]+)"', figure)}
    assert named
    assert named <= set(style.DARK)


def test_texts_of_the_ledger_stay_texts() -> None:
    attack = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
    facts = {**sweeps.sweep_record().facts, "note": attack, "command": attack, "specification": attack}
    history = sweeps.history(facts=facts, data_source=attack)
    trials = tuple(replace(trial, cause=attack) for trial in history.trials)
    text = html.report(replace(history, trials=trials), summarise(replace(history, trials=trials)), [])
    assert "<script>alert" not in text
    assert "<img" not in text
    figure = go.Figure(go.Scatter(x=[1], y=[2], name=attack))
    drawn = html.page(attack, None, [html.ReportSection(attack, attack, listing=attack, figures=(figure,))])
    assert "<script>alert" not in drawn
    (parsed,) = figures_of(drawn)
    assert parsed["data"][0]["name"] == attack  # type: ignore[index]


@pytest.mark.parametrize(
    ("recorded", "shown"),
    [
        ("sweep search_spaces/retrieval.yaml", "sweep search_spaces/retrieval.yaml"),
        ("sweep.py retrieval.yaml --new", "python -m orchestrator.sweep retrieval.yaml --new"),
        (
            "__main__.py retrieval-laptop-0123abcd --start 1 --root mlruns",
            "python -m orchestrator.sweep retrieval.yaml --profile laptop --new",
        ),
    ],
)
def test_the_command_to_run_it_again_is_that_of_the_user(recorded: str, shown: str) -> None:
    """The service starts a driver by a command that a user cannot run."""
    history = sweeps.history(facts={**sweeps.sweep_record().facts, "command": recorded})
    text = html.report(history, summarise(history), [])
    assert re.search(rf"<td[^>]*>command</td>\s*<td[^>]*>{re.escape(shown)}</td>", text)


def test_cells_sort_by_their_value() -> None:
    cells = [html.Cell("82 s", 82.0), html.Cell("1.7 min", 102.0), html.Cell("–", None)]
    table = html.Table(("a",), tuple(html.TableRow((cell,)) for cell in cells))
    text = html.page("t", None, [html.ReportSection("s", tables=(table,))])
    assert 'data-v="82.0">82 s<' in text
    assert 'data-v="">–<' in text


def test_a_sweep_without_a_result_begins_with_the_causes_of_its_failures() -> None:
    cause = (
        "error: the script has failed (got exit code 1: ModuleNotFoundError: No module named "
        "'x' (train.py, line 37: import x)). See `sweep logs`."
    )
    failed = [sweeps.trial(number, "FAILED", cause=cause) for number in range(3)]
    history = replace(sweeps.history(), trials=tuple(failed), evaluations={})
    logs = {failed[0].key: "Traceback\nModuleNotFoundError: No module named 'x'"}
    text = html.report(history, summarise(history), [], last_lines=lambda key: logs[key])
    assert headings(text)[:2] == ["Failures", "Leaderboard"]
    assert "Optimisation history" not in headings(text)
    section = text[text.index("<h2>Failures") : text.index("<h2>Leaderboard")]
    for shown in (
        "ModuleNotFoundError: No module named &#39;x&#39;",
        "train.py, line 37",
        "0, 1, 2",
        "Traceback",
    ):
        assert shown in section


def test_the_reason_of_a_pruning_is_in_the_leaderboard() -> None:
    reason = (
        "stopped at step 80: val/accuracy 0.4 is rank 4 of 4 at this rung; one in 4 goes on (0.5 or better)"
    )
    trials = [sweeps.trial(0), sweeps.trial(1, "PRUNED", cause=reason)]
    history = sweeps.history(trials)
    assert f'title="{reason}">pruned<' in html.report(history, summarise(history), [])


def test_cards_without_a_value_are_left_out() -> None:
    history = replace(sweeps.history(), evaluations={})
    text = html.report(history, summarise(history), [], at=1_790_000_000.0)
    assert "<b>–</b>" not in text
    assert '<time datetime="2026-09-21T14:13:20+00:00">' in text
    assert "learning_rate 0.008" in text[: text.index("<h2>")]
