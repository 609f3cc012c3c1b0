"""The sentences of a report claim no more than the results support."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from orchestrator.api.live import references
from orchestrator.ledger.sweeps.records import REPEATS, SIMILARITY, EvaluationRecord
from orchestrator.ledger.sweeps.selection import ranked
from orchestrator.report import html, terminal
from orchestrator.report.answer import context, findings
from orchestrator.report.comparison import markdown, side_by_side
from orchestrator.report.history import History
from orchestrator.report.published import is_as_published
from orchestrator.report.summary import summarise
from orchestrator.report.terminal import Directions
from orchestrator.study.similarity import Similarity
from tests import sweeps
from tests.orchestrator.report.confirmed import confirmation, history

_DOCUMENT = sweeps.sweep_record().document

COMPARABLE: dict[str, Any] = {
    "facts": {**sweeps.sweep_record().facts, "comparable": True},
    "document": {
        **_DOCUMENT,
        "model": {
            **_DOCUMENT["model"],
            "depth": 6,
            "d_model": 128,
            "d_state": 256,
            "heads": 32,
            "dropout": 0.1,
        },
        "training": {
            **_DOCUMENT["training"],
            "steps": 50_000,
            "recurrent_learning_rate": 1e-5,
            "weight_decay": 0.01,
        },
    },
    "profile": None,
}
"""Published data, with RotRNN's published network and training on Retrieval."""


def test_confirmations_are_stated_with_an_interval() -> None:
    sentences = findings(summarise(history([0.6, 0.62, 0.64], **COMPARABLE)))
    assert sentences[0].startswith("Over 3 fresh seeds test/accuracy is 0.6200 (95 % interval 0.")
    assert sentences[0].endswith(", seeds and examples).")
    assert sentences[1].startswith("Against the published 0.8990: a difference (p = 0.00")
    assert len(summarise(history([0.6, 0.62, 0.64])).rows) == 8


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (
            {"results": 40, "shared": 8, "correlation": 0.91, "weight": 0.91},
            "40 results in this space; left out: 2 without dropout; settings repeated by trials 0, 1; rank "
            "correlation 0.91 on 8 shared settings; the sampler was shown some, with weight 0.91 at first "
            "and none after 32 complete trials.",
        ),
        (
            {"results": 40, "shared": 4, "correlation": 0.4, "weight": 0.0},
            "40 results in this space; left out: 2 without dropout; settings repeated by trials 0, 1; rank "
            "correlation 0.40 on 4 shared settings, not positive beyond its error, so that the sampler was "
            "shown none.",
        ),
        (
            {"results": 40, "shared": 2, "correlation": None, "weight": 0.0},
            "40 results in this space; left out: 2 without dropout; settings repeated by trials 0, 1; "
            "similarity unknown on 2 shared settings, so that the sampler was shown none.",
        ),
    ],
)
def test_known_results_are_named_as_such_with_their_similarity(found: dict[str, Any], says: str) -> None:
    """The leaderboard has no rows of them."""
    document = {
        **_DOCUMENT,
        "known": [{"source": "a.csv", "results": [], "left_out": {"without dropout": 2}}],
    }
    facts = {**sweeps.sweep_record().facts, SIMILARITY: {"a.csv": found}}
    before = history([], document=document, facts=facts)
    trials = [
        replace(trial, system_attrs={REPEATS: "a.csv"})
        if trial.role == "search" and trial.number < 2
        else trial
        for trial in before.trials
    ]
    summary = summarise(replace(before, trials=tuple(trials)))
    assert f"Known results, measured elsewhere, of a.csv: {says}" in findings(summary)
    assert len(summary.rows) == len(summarise(history([])).rows)


def test_the_trial_with_the_published_values_is_named() -> None:
    document = {**_DOCUMENT, "published": {"source": "Table 5", "values": {"learning_rate": 1e-3}}}
    before = history([], document=document)
    trials = [
        replace(trial, system_attrs={REPEATS: "Table 5"}) if trial.number == 0 else trial
        for trial in before.trials
    ]
    summary = summarise(replace(before, trials=tuple(trials)))
    assert "Trial 0 has the published values (Table 5)." in context(summary)
    assert not [line for line in context(summarise(before)) if "has the published values" in line]


def test_an_earlier_sweep_is_named_with_its_similarity() -> None:
    document = {**_DOCUMENT, "warm_start": ["listops-1"]}
    facts = {**sweeps.sweep_record().facts, SIMILARITY: {"listops-1": Similarity([], [], True).facts()}}
    (sentence,) = [
        each
        for each in findings(summarise(history([], document=document, facts=facts)))
        if "listops-1" in each
    ]
    assert sentence.startswith(
        "Trials of the earlier sweep listops-1: 0 results in this space; similarity unknown"
    )


def test_a_figure_within_the_noise_is_no_difference() -> None:
    sentences = findings(summarise(history([0.86, 0.9, 0.94], **COMPARABLE)))
    assert sentences[1].startswith("Against the published 0.8990: no difference is established (p = 0.9")


def test_an_interval_says_which_noise_it_lacks() -> None:
    one = findings(summarise(history([0.6])))[0]
    assert one.startswith("Over 1 fresh seed test/accuracy is 0.6000 (95 % interval 0.5")
    assert one.endswith(", examples alone).")
    earlier = findings(summarise(history([0.6, 0.7], recorded=False)))[0]
    assert earlier.endswith(", seeds alone).")
    neither = findings(summarise(history([0.6], recorded=False)))[0]
    assert neither == "Over 1 fresh seed test/accuracy is 0.6000, without an interval."


def test_failed_confirmations_are_stated() -> None:
    before = history([0.6, 0.62, 0.64])
    failed = replace(before, trials=(*before.trials, confirmation(3, "FAILED")))
    assert "Confirmations without a result, because they failed or diverged: 1." in findings(
        summarise(failed)
    )


def test_results_that_cannot_be_compared_are_not_tested() -> None:
    for changes in (
        {},
        {**COMPARABLE, "document": {**COMPARABLE["document"], "training": _DOCUMENT["training"]}},
        {**COMPARABLE, "document": {**COMPARABLE["document"], "model": _DOCUMENT["model"]}},
        {**COMPARABLE, "facts": sweeps.sweep_record().facts},
    ):
        sentences = findings(summarise(history([0.6, 0.62, 0.64], **changes)))
        assert not [line for line in sentences if "published" in line]


def test_one_seed_of_each_establishes_no_difference_between_trials() -> None:
    (sentence,) = findings(summarise(sweeps.history()))
    assert sentence == (
        "Trial 7 is 0.01836 ahead of trial 6 on validation. "
        "With one seed of each, no difference is established."
    )
    alone = sweeps.history([sweeps.trial(0)])
    assert findings(summarise(alone)) == []
    equal = sweeps.history([replace(sweeps.trial(number), value=0.5) for number in (2, 0)])
    assert findings(summarise(equal)) == ["Trials 0 and 2 have the same value on validation."]


def test_without_a_preference_no_trial_is_ahead_of_another() -> None:
    """One objective alone does not rank the trials of a sweep with several."""
    document = sweeps.sweep_record().document
    for prefer in ({}, {"prefer": "val/accuracy"}):
        objective = {"maximize": ["val/accuracy"], "minimize": ["train/loss"], **prefer}
        summary = summarise(sweeps.history(document={**document, "objective": objective}))
        assert summary.front is not None
        assert [line for line in findings(summary) if "ahead" in line] == [
            "Trial 7 is 0.01836 ahead of trial 6 on validation. "
            "With one seed of each, no difference is established."
        ] * len(prefer)


@pytest.mark.parametrize(
    ("valued", "sentence"),
    [
        ([False], "1 trial diverged. The first"),
        ([True], "1 trial diverged, and keeps the value of an earlier report. The first"),
        ([True, False], "2 trials diverged, of which 1 keeps the value of an earlier report. The first"),
        ([True, True], "2 trials diverged, of which 2 keep the value of an earlier report. The first"),
    ],
)
def test_diverged_trials_are_told_with_the_values_that_they_keep(valued: list[bool], sentence: str) -> None:
    cause = "diverged at step 80: val/accuracy is nan"
    members = sweeps.trials()
    for number, has_value in enumerate(valued):
        done = replace(members[number], state="DIVERGED", cause=cause)
        members[number] = done if has_value else replace(done, value=None, best_step=None)
    (sentence_shown,) = (line for line in context(summarise(sweeps.history(members))) if "diverged" in line)
    assert sentence_shown == f"{sentence}: trial 0 {cause}."


def test_further_test_splits_have_their_median_and_their_best_seed() -> None:
    """After the test split itself, in the order of their numbers; the loss is not among them."""
    before = history([0.6, 0.62, 0.64])
    longer = {"x16": (0.5, 0.9, 0.6), "x2": (0.9, 1.0, 0.95)}

    def with_further(rows: Sequence[EvaluationRecord], seed: int) -> list[EvaluationRecord]:
        more = {f"test/accuracy_{name}": values[seed] for name, values in longer.items()}
        return [replace(row, metrics={**row.metrics, **more, "test/loss_x2": 1.0}) for row in rows]

    evaluations = {
        key: with_further(rows, int(key[-1])) if "-c" in key else rows
        for key, rows in before.evaluations.items()
    }
    summary = summarise(replace(before, evaluations=evaluations))
    assert list(summary.further) == ["test/accuracy_x2", "test/accuracy_x16"]
    assert findings(summary)[1] == (
        "Over 3 fresh seeds, median: test/accuracy 0.6200 (best 0.6400), "
        "test/accuracy_x2 0.9500 (best 1.000), test/accuracy_x16 0.6000 (best 0.9000)."
    )
    alone = replace(summary.seeds, results=summary.seeds.results[:1])
    one = replace(summary, seeds=alone, further={"test/accuracy_x2": (0.9,)})
    assert "Of one seed: test/accuracy 0.6000, test/accuracy_x2 0.9000." in findings(one)
    assert not any("median" in sentence for sentence in findings(replace(summary, further={})))


def _raced(values: dict[int, Sequence[float | None]]) -> list[str]:
    """Return the findings of a race: values by rank of the candidate, None of a failed retraining."""
    before = sweeps.history()
    best = ranked(before.trials, maximize=True)
    fresh = [
        replace(
            confirmation(10 * rank + number, "FAILED" if value is None else "COMPLETE"),
            params=best[rank].params,
            value=value,
        )
        for rank, of_candidate in values.items()
        for number, value in enumerate(of_candidate)
    ]
    document = {**before.sweep.document, "confirm": {"race": {"top": len(values), "runs": 6}}}
    raced = replace(before, sweep=replace(before.sweep, document=document), trials=(*before.trials, *fresh))
    return findings(summarise(raced))


def test_a_race_states_fresh_means_apart_from_search_values() -> None:
    leads, verdict = _raced({0: (0.70, None), 1: (0.80, 0.82)})
    assert leads.startswith("Race on validation, mean of fresh seeds: trial ")
    assert "0.8100 over 2 fresh seeds (search value " in leads
    assert "0.7000 over 1 fresh seed, 1 failed (search value " in leads
    assert "is not established as the best" in verdict


def test_a_race_of_a_clear_winner_establishes_it() -> None:
    _, verdict = _raced({0: (0.500, 0.501, 0.502), 1: (0.900, 0.901, 0.902)})
    assert "is established as the best" in verdict


def test_a_race_of_one_trial_chooses_nothing() -> None:
    assert _raced({0: (0.7, 0.8)})[-1] == "No other trial is complete, so the race has chosen nothing."


def texts_with_figures(found: History) -> dict[str, str]:
    """Return every text that may show a published figure: report, terminal, `compare` and lines of charts."""
    summary, out = summarise(found), io.StringIO()
    terminal.show(summary, Directions("sweep ui", None, "sweep evaluate"), Console(width=200, file=out))
    lines = references(found.sweep, "val/accuracy")
    return {
        "report": html.report(found, summary, []),
        "terminal": out.getvalue(),
        "compare": markdown(side_by_side([summary])),
        "page": " ".join(f"{line.name} {line.value}" for line in lines),
    }


@pytest.mark.slow
def test_a_published_figure_stands_only_beside_a_run_of_its_data_and_size() -> None:
    for text in texts_with_figures(history([0.6, 0.62, 0.64], **COMPARABLE)).values():
        assert "0.899" in text
    document = {**COMPARABLE["document"], "model": {**COMPARABLE["document"]["model"], "depth": 2}}
    others: tuple[dict[str, Any], ...] = (
        {},  # the profile laptop, on a stand-in for the data
        {**COMPARABLE, "facts": sweeps.sweep_record().facts},
        {**COMPARABLE, "document": document},
    )
    for other in others:
        shown = texts_with_figures(history([0.6, 0.62, 0.64], **other))
        assert not [place for place, text in shown.items() if "0.899" in text]


def test_a_function_of_the_user_has_its_published_figure_at_its_own_size() -> None:
    """Its data are the user's own, so only a profile makes it smaller."""
    found = sweeps.history()
    document = {"trainable": {"function": "train.py:train"}, "published": found.sweep.document["published"]}
    for profile, shown in ((None, True), ("laptop", False)):
        record = replace(found.sweep, document={**document, "task": "train"}, profile=profile)
        assert is_as_published(record, {}) == shown
