"""Results of an experiment: collected from a ledger, kept as JSON, judged, and shown on pages."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from orchestrator.errors import BadInput, Damaged
from orchestrator.experiment import experiment_page, experiment_results, picture, publishing
from orchestrator.experiment.collected import collected, covered
from orchestrator.experiment.experiment_page import doubts
from orchestrator.experiment.experiment_results import (
    ArmResult,
    Circumstances,
    ExperimentResults,
    Origin,
    Seed,
)
from orchestrator.experiment.file import Arm, Experiment, OrderClaim
from orchestrator.experiment.order import interval_of
from orchestrator.experiment.verdict import RULES, StatedFigure
from orchestrator.ledger.sweeps.records import ReportRecord, pack_scores
from orchestrator.report.history import History
from tests import sweeps
from tests.orchestrator.report import confirmed

MACHINE = "2 cores, no GPU"
FIGURE = StatedFigure(value=0.6, tolerance=0.05, source="A paper, Table 1")


def arm(
    name: str,
    *values: float,
    obstacle: str = "",
    published: StatedFigure | None = FIGURE,
    scored: bool = False,
) -> ArmResult:
    """Return an arm; where it is scored, each of 400 test examples has the value of the seed."""
    seeds = tuple(
        Seed(
            seed,
            f"{name}-{seed}",
            value,
            (1, 2),
            (0.1, value),
            pack_scores(np.full(400, value)) if scored else "",
        )
        for seed, value in enumerate(values)
    )
    return ArmResult(
        name, f"{name} on listops", f"t-{name}-1a2b3c4d", "COMPLETE", seeds, published, obstacle, ("R", name),
        "generated <data>", "feed" * 16, "beef" * 16, len(values), 60.0, 7200.0,
    )  # fmt: skip


def results_of(
    *arms: ArmResult, claims: tuple[OrderClaim, ...] = (), profile: str | None = None
) -> ExperimentResults:
    found = ExperimentResults(
        name="table-1",
        profile=profile,
        is_published_size=profile is None,
        title="Two layers",
        source="A paper, Table 1",
        claim="The first <layer> is better.",
        metric="test/accuracy",
        reduction="value",
        maximize=True,
        seeds_asked=3,
        arms=arms,
        claims=claims,
        orderings=(None,) * len(claims),
        circumstances=Circumstances("2026-11-22", "0123456789", "2 cores, no GPU", {"jax": "0.10.2"}),
    )
    return replace(found, orderings=tuple(map(found.measured, claims)))


BOTH = results_of(
    arm("rotrnn", *[0.60, 0.61, 0.62, 0.6, 0.61] * 2, scored=True),
    arm("lru", *[0.50, 0.51, 0.52, 0.5, 0.51] * 2, scored=True),
    arm("s5", *[0.6] * 10, obstacle="other data", scored=True),
    claims=(OrderClaim("rotrnn", "lru"), OrderClaim("lru", "rotrnn")),
)


def experiment(
    metric: str = "test/accuracy", reduction: str = "value", profile: str | None = None
) -> Experiment:
    only = Arm("rotrnn", None, {}, FIGURE, "", None)
    return Experiment(
        name="table-1",
        profile=profile,
        is_published_size=profile is None,
        title="T",
        source="S",
        claim="C",
        metric=metric,
        reduction=reduction,
        maximize=True,
        claims=(),
        seeds=3,
        measure=None,
        arms=(only,),
    )


def test_every_published_figure_and_claim_has_a_verdict() -> None:
    assert {name: verdict.outcome for name, verdict in BOTH.verdicts.items()} == {
        "rotrnn": "reproduced",
        "lru": "not reproduced",
        "s5": "not comparable",
    }
    assert [verdict.outcome for verdict in BOTH.orders] == ["reproduced", "not reproduced"]
    assert [BOTH.count(name) for name in ("reproduced", "not reproduced", "not comparable")] == [2, 2, 1]


def test_a_claim_about_arms_of_another_size_is_not_judged() -> None:
    small = replace(BOTH.arms[0], obstacle="depth 2 instead of 6")
    few = replace(BOTH, arms=(small, *BOTH.arms[1:]))
    assert few.orders[0].phrase == (
        "not comparable, because depth 2 instead of 6. Here, at the size of the file: rotrnn is better;"
        " p = 0.0001, 0.0003 corrected for 3 comparisons"
    )
    assert few.count("reproduced") == few.count("not reproduced") - 1 == 0


def test_a_claim_waits_for_all_seeds() -> None:
    few = results_of(arm("rotrnn", 0.6, 0.7), arm("lru"), claims=(OrderClaim("rotrnn", "lru"),))
    assert few.orders[0].phrase == (
        "not comparable, because 2 seeds of rotrnn and 0 seeds of lru have a value, of 3"
    )
    assert few.orderings == (None,)


def test_results_survive_their_json(tmp_path: Path) -> None:
    data, text = publishing.publish(BOTH, tmp_path)
    assert experiment_results.read(data) == BOTH
    assert text.read_text() == experiment_page.markdown(BOTH)


@pytest.mark.parametrize("content", ["{", "[]", '{"format": 3}', '{"format": 3, "arms": []}'])
def test_a_damaged_file_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(Damaged, match="must hold the results of an experiment"):
        experiment_results.read(tmp_path / "a.json")


def test_another_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps({**BOTH.document(), "format": 1}))
    with pytest.raises(BadInput, match="must have the format 3"):
        experiment_results.read(tmp_path / "a.json")


def test_the_page_shows_the_paper_beside_the_measurement() -> None:
    text = experiment_page.markdown(BOTH)
    for line in (
        "| rotrnn | rotrnn on listops | – | 0.61 (interval 0.6 to 0.62) | 10 | 10 | 0.608 | 0.62 | – | 0.6 |"
        " reproduced: median 0.61 (10 seeds, interval 0.6 to 0.62) against 0.6 ± 0.05; p = 0.0012, 0.0024"
        " corrected for 4 comparisons |",
        "| s5 | s5 on listops | – | 0.6 (10 equal seeds) | 10 | 10 | 0.6 | 0.6 | – | 0.6 "
        "| not comparable, because other data |",
        "| R | 0.61 (interval 0.6 to 0.62) / 0.6 | 0.51 (interval 0.5 to 0.52) / 0.6 | 0.6 (10 equal seeds) /"
        " 0.6 |",
        "| rotrnn | 1 | 0.61 | rotrnn-1 |",
        "| lru | t-lru-1a2b3c4d | complete | 10 | 60 s | 2.00 | – | – | – |",
        "| rotrnn | – | – | generated \\<data> | feedfeedfeedfeed | beefbeefbeefbeef |",
        "- Spent: 30 trials, 3.0 min of wall time, 6.00 core hours.",
    ):
        assert line in text
    assert "python -m orchestrator.sweep experiment experiments/table-1.yaml --profile full" in text


def test_the_page_shows_what_was_spent_on_gpus() -> None:
    arms = (replace(BOTH.arms[0], gpu_seconds=1_800.0), *BOTH.arms[1:])
    text = experiment_page.markdown(replace(BOTH, arms=arms))
    assert "6.00 core hours, 0.50 GPU hours." in text
    assert "| complete | 10 | 60 s | 2.00 | 0.50 |" in text


def test_texts_of_a_page_are_escaped() -> None:
    shown = experiment_page.page(BOTH)
    assert "The first &lt;layer&gt; is better." in shown
    assert "<layer>" not in shown
    assert "generated <data>" not in shown


def test_the_page_draws_every_seed() -> None:
    figure = experiment_page.curves(BOTH.arms, "val/accuracy")
    assert len(figure.data) == 30
    assert [trace.showlegend for trace in figure.data[:3]] == [True, False, False]
    assert experiment_page.page(BOTH).count('data-figure="') == 3  # one a column of the paper's table


def test_the_list_names_every_result_and_what_is_withdrawn(tmp_path: Path) -> None:
    publishing.publish(BOTH, tmp_path / "experiments")
    publishing.publish(replace(BOTH, profile="laptop"), tmp_path / "experiments")
    (tmp_path / "experiments" / "before.md").write_text("# Results\n\nMeasured here.\n")
    (tmp_path / "experiments" / "after.md").write_text("## Generators\n")
    (tmp_path / "experiments" / "withdrawn.yaml").write_text(
        "withdrawn:\n- {what: adding, figure: '0.0107', because: no memory is needed, instead: a.yaml}\n"
    )
    text = publishing.index(tmp_path / "experiments")
    assert text.startswith("# Results\n\nMeasured here.\n\n## What was not shown\n")
    assert "| table-1 | A paper, Table 1 | 0 | 1 | 2 | 0 | 2 | 0 | 3 | 30 | 6.00 | 0123456 |" in text
    assert "![Two layers](experiments/table-1.svg)" in text
    assert "[table-1-laptop](experiments/table-1-laptop.md)" in text
    assert "\n## Two layers\n" in text
    assert "\n## Two layers (profile laptop)\n" in text
    assert "| adding | 0.0107 | no memory is needed | a.yaml |" in text
    assert text.endswith("## Generators\n")


def test_the_list_names_the_whole_commit_of_the_arms(tmp_path: Path) -> None:
    """A commit of a tree with changes is none that anybody could check out."""
    origin = Origin("2026-11-20", "fedcba9876+changes")
    arms = (replace(BOTH.arms[0], origin=origin), *BOTH.arms[1:])
    publishing.publish(replace(BOTH, arms=arms), tmp_path)
    assert "| 6.00 | fedcba9+changes, 0123456 |" in publishing.index(tmp_path)
    assert "| complete | 10 | 60 s | 2.00 | – | 2026-11-20 | fedcba9+changes |" in experiment_page.markdown(
        replace(BOTH, arms=arms)
    )


def test_the_page_tells_what_ran_the_arms_from_what_wrote_the_page() -> None:
    """A page may be written at a later commit, and of arms that other machines have run."""
    here, there = Origin("2026-11-20", "aaaa", MACHINE), Origin("2026-11-21", "bbbb", "1 GPU")
    written = "| page written | 2026-11-22 |"
    of_one = experiment_page.markdown(
        replace(BOTH, arms=tuple(replace(arm, origin=here) for arm in BOTH.arms))
    )
    assert "| arms began | 2026-11-20 at commit aaaa on 2 cores, no GPU |" in of_one
    first, *others = BOTH.arms
    arms = (replace(first, origin=there), *(replace(arm, origin=here) for arm in others))
    of_two = experiment_page.markdown(replace(BOTH, arms=arms))
    assert "| rotrnn began | 2026-11-21 at commit bbbb on 1 GPU |" in of_two
    assert "| lru, s5 began | 2026-11-20 at commit aaaa on 2 cores, no GPU |" in of_two
    assert written in of_one
    assert written in of_two


def test_versions_are_those_that_arms_ran_with_and_not_those_of_the_writer() -> None:
    """`results_of` was written under jax 0.10.2; an arm may have run years before, or elsewhere."""
    older, newer = (("jax", "0.9.0"), ("numpy", "2.0.0")), (("jax", "0.11.0"),)
    first = BOTH.arms[0]
    ran = [replace(arm, origin=Origin("2026-11-20", "aaaa", MACHINE, older)) for arm in BOTH.arms]
    assert "| arms ran with | jax 0.9.0, numpy 2.0.0 |" in experiment_page.markdown(
        replace(BOTH, arms=tuple(ran))
    )
    apart = replace(first, origin=Origin("2026-11-20", "aaaa", MACHINE, newer))
    text = experiment_page.markdown(replace(BOTH, arms=(apart, *ran[1:])))
    assert "| rotrnn ran with | jax 0.11.0 |" in text
    assert "| lru, s5 ran with | jax 0.9.0, numpy 2.0.0 |" in text
    unknown = experiment_page.markdown(BOTH)
    assert "| arms ran with | versions that were not recorded |" in unknown
    assert "0.10.2" not in text + unknown


def test_origins_survive_their_json(tmp_path: Path) -> None:
    origin = Origin("2026-11-20", "aaaa", MACHINE, (("jax", "0.9.0"),))
    kept = replace(BOTH, arms=(replace(BOTH.arms[0], origin=origin, parameters=4_321), *BOTH.arms[1:]))
    assert experiment_results.read(publishing.publish(kept, tmp_path)[0]) == kept


def test_the_sizes_of_networks_stand_beside_their_values(tmp_path: Path) -> None:
    sized = replace(BOTH.arms[0], parameters=14_650, network="14,650 parameters, a state of 64 numbers")
    kept = replace(BOTH, arms=(sized, *BOTH.arms[1:]))
    publishing.publish(kept, tmp_path)
    for text in (experiment_page.markdown(kept), experiment_page.page(kept), publishing.index(tmp_path)):
        assert "14,650" in text
    assert "| rotrnn | rotrnn on listops | 14,650 | 0.61 (" in experiment_page.markdown(kept)
    assert "| lru | lru on listops | – | 0.51 (" in experiment_page.markdown(kept)
    assert "a state of 64 numbers" in experiment_page.markdown(kept)


def test_what_is_not_shown_is_printed(tmp_path: Path) -> None:
    told = replace(BOTH, not_shown="Other <sizes>.")
    publishing.publish(told, tmp_path)
    assert "- Not shown: Other \\<sizes>." in experiment_page.markdown(told)
    assert "Not shown: Other &lt;sizes&gt;." in experiment_page.page(told)
    assert "\nNot shown: Other \\<sizes>.\n" in publishing.index(tmp_path)


def test_pages_of_published_results_are_written_anew(tmp_path: Path) -> None:
    data, text = publishing.publish(BOTH, tmp_path)
    text.write_text("an older page")
    picture_file = data.with_suffix(".svg")
    picture_file.unlink()
    publishing.refresh(tmp_path)
    assert text.read_text() == experiment_page.markdown(BOTH)
    assert picture_file.read_text() == picture.svg(BOTH)


BOUND = StatedFigure(at_least=0.55)

HYPOTHESES = results_of(
    replace(
        arm("rotrnn", *[0.60, 0.61, 0.62, 0.6, 0.61] * 2, published=BOUND, scored=True),
        hypothesis=True,
        size="1 block",
    ),
    replace(
        arm("lru", *[0.50, 0.51, 0.52, 0.5, 0.51] * 2, published=BOUND, scored=True),
        hypothesis=True,
        size="1 block",
    ),
    replace(
        arm("s5", *[0.4, 0.6, 0.8, 0.3, 0.9] * 2, published=BOUND, scored=True),
        hypothesis=True,
        size="1 block",
    ),
    claims=(
        OrderClaim("rotrnn", "lru", True),
        OrderClaim("lru", "rotrnn", True),
        OrderClaim("s5", "lru", True),
    ),
    profile="laptop",
)


def test_hypotheses_are_confirmed_or_refuted_at_their_size() -> None:
    outcomes = [verdict.outcome for verdict in (*HYPOTHESES.verdicts.values(), *HYPOTHESES.orders)]
    assert outcomes == ["confirmed", "refuted", "undetermined"] * 2
    text = experiment_page.markdown(HYPOTHESES)
    assert "not comparable" not in text
    assert (
        "- The file's own hypotheses, from no paper: 2 confirmed, 2 refuted, 2 undetermined. Tested at the"
        " size of the profile laptop." in text
    )
    assert "- Networks and training: 1 block." in text
    assert "would be, in 80 % of cases, at the size of the profile laptop" in text


def test_undetermined_claims_are_counted_apart(
    tmp_path: Path,
) -> None:
    """Of the published kind and of hypotheses, in the summary, in the cards and in the list of results."""
    claims = (
        OrderClaim("rotrnn", "lru"),
        OrderClaim("lru", "rotrnn"),
        OrderClaim("s5", "lru"),
        OrderClaim("s5", "rotrnn", True),
    )
    mixed = results_of(
        arm("rotrnn", *[0.60, 0.61, 0.62, 0.6, 0.61] * 2, scored=True),
        arm("lru", *[0.50, 0.51, 0.52, 0.5, 0.51] * 2, scored=True),
        arm("s5", *[0.4, 0.6, 0.8, 0.3, 0.9] * 2, scored=True),
        claims=claims,
    )
    assert [verdict.outcome for verdict in mixed.orders] == [
        "reproduced",
        "not reproduced",
        "undetermined",
        "undetermined",
    ]
    text = experiment_page.markdown(mixed)
    assert "claims: 2 reproduced, 2 not reproduced, 0 not comparable, 2 undetermined." in text
    assert "from no paper: 0 confirmed, 0 refuted, 1 undetermined." in text
    publishing.publish(mixed, tmp_path)
    open_ones, shown, cells = (
        line for line in publishing.index(tmp_path).splitlines() if line.startswith("| table-1")
    )
    assert open_ones == (
        "| table-1 | benchmarks | 5 | 7 | not reproduced (2), no difference is established (2), seeds or"
        " noise lie across (1) |"
    )
    assert shown == "| table-1 | benchmarks | 2 | 7 | The first \\<layer> is better. |"
    counted = "| undetermined | not comparable | not reproduced | refuted | reproduced | confirmed |"
    assert counted in publishing.index(tmp_path)
    assert [cell.strip() for cell in cells.split("|")[3:9]] == ["3", "0", "2", "0", "2", "0"]


def test_nothing_is_said_to_be_printed_by_a_paper_that_prints_nothing() -> None:
    arms = tuple(replace(arm, published=None) for arm in HYPOTHESES.arms)
    text = experiment_page.markdown(replace(HYPOTHESES, arms=arms))
    assert (
        "| R | 0.61 (interval 0.6 to 0.62) | 0.51 (interval 0.5 to 0.52) | 0.6 (interval 0.3 to 0.9) |"
        in text
    )
    assert "As the paper prints it" not in text + experiment_page.markdown(HYPOTHESES)
    assert "Measured, then stated." in experiment_page.markdown(HYPOTHESES)


def test_a_control_within_noise_is_marked() -> None:
    doubted, control = (
        replace(BOTH.arms[0], chance=0.6),
        arm("none", *[0.6, 0.61, 0.6, 0.62, 0.61] * 2, scored=True),
    )
    text = experiment_page.markdown(replace(BOTH, arms=(doubted, *BOTH.arms[1:], control)))
    assert "| 0.61 (interval 0.6 to 0.62) (not shown to beat none) | 10 | 10 | 0.608 | 0.62 | 0.6 |" in text


def test_values_at_longer_sequences_have_a_table(tmp_path: Path) -> None:
    lengths = {"x1": (0.9, 0.9), "x2": (0.8, 0.8), "x10": (0.5,)}
    longer = replace(BOTH.arms[0], lengths=lengths, lengths_metric="test/accuracy")
    some = replace(BOTH, arms=(longer, *BOTH.arms[1:]))
    for text in (
        experiment_page.markdown(some),
        publishing.index(publishing.publish(some, tmp_path)[0].parent),
    ):
        assert "| arm | x1 | x2 | x10 |" in text
        assert "Median of test/accuracy over seeds" in text
        assert "| rotrnn | 0.9 (2 equal seeds) | 0.8 (2 equal seeds) | 0.5 (one seed) |" in text
    assert "By length" not in experiment_page.markdown(BOTH)


def test_the_picture_is_well_formed_and_has_every_seed() -> None:
    some = replace(BOTH, arms=(replace(BOTH.arms[0], chance=0.1), *BOTH.arms[1:], arm("empty")))
    root = ElementTree.fromstring(picture.svg(some))
    circles = root.findall("{http://www.w3.org/2000/svg}circle")
    assert len(circles) == 30
    places = [float(circle.attrib["cx"]) for circle in circles]
    assert places[:3] == sorted(places[:3])
    assert all(picture.LEFT < place < picture.WIDTH - picture.RIGHT for place in places)
    assert "A paper" not in picture.svg(some)
    assert picture.svg(results_of(arm("empty"))) == ""


def test_norms_are_collected_kept_and_drawn_from_step_0(tmp_path: Path) -> None:
    """A head, its closed form and the whole state of each layer, as trials reported them."""
    history = sweeps.history()
    of_norms = replace(experiment(), metric="hidden_norm/head/layer_*", reduction="drift")
    collected_arm = collected(of_norms, of_norms.arms[0], history)
    (seed,) = collected_arm.seeds
    rows = history.reports[seed.trial]
    names = [(of, layer) for of in ("head", "expected", "state") for layer in (0, 1)]
    assert [(curve.of, curve.layer) for curve in collected_arm.norms] == names
    for curve in collected_arm.norms:
        name = f"{curve.of}/layer_{curve.layer}"
        assert list(curve.steps) == [0, *(row.step for row in rows)]
        reported = [rows[0].metrics[f"initial_hidden_norm/{name}"]]
        reported += [row.metrics[f"hidden_norm/{name}"] for row in rows]
        assert list(curve.values) == pytest.approx(reported, rel=1e-5)
    assert collected(experiment(), experiment().arms[0], history).norms == ()

    both = replace(BOTH, arms=(replace(BOTH.arms[0], norms=collected_arm.norms), *BOTH.arms[1:]))
    data, text = publishing.publish(both, tmp_path)
    assert experiment_results.read(data).arms[0].norms == collected_arm.norms
    root = ElementTree.fromstring(data.with_suffix(".svg").read_text())
    lines = root.findall("{http://www.w3.org/2000/svg}polyline")
    assert len(lines) == 6
    assert ["stroke-dasharray" in line.attrib for line in lines] == [False, False, True, True, False, False]
    height = float(root.attrib["height"])
    for line in lines:
        points = [tuple(map(float, pair.split(","))) for pair in line.attrib["points"].split()]
        assert len(points) == len(rows) + 1
        assert all(0 < x < picture.WIDTH and 0 < y < height for x, y in points)
    head = np.mean([curve.values[-1] for curve in collected_arm.norms if curve.of == "head"])
    assert "| rotrnn | a head | 2 | 0.5 (0.5 to 0.5) |" in text.read_text()
    assert f"| {head:.4g} (" in text.read_text()
    assert "Norms of hidden states by layer" in experiment_page.page(both)
    assert "Norms of hidden states" not in experiment_page.page(BOTH)


def test_values_of_many_sizes_have_a_logarithmic_axis() -> None:
    small = results_of(arm("a", 1e-5, 1e-3, 1e-1, published=None))
    root = ElementTree.fromstring(picture.svg(small))
    places = [float(circle.attrib["cx"]) for circle in root.findall("{http://www.w3.org/2000/svg}circle")]
    assert places[1] - places[0] == pytest.approx(places[2] - places[1], abs=0.2)


def test_a_list_of_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="must be a folder of published results"):
        publishing.index(tmp_path / "no")


def test_an_arm_is_collected_from_the_rows_of_its_sweep() -> None:
    """The chosen trial has the test value; its trials, data and time are counted from the rows."""
    history = sweeps.history()
    result = collected(experiment(), experiment().arms[0], history)
    chosen = max((trial for trial in history.trials if trial.state == "COMPLETE"), key=lambda t: t.value or 0)
    assert [(seed.trial, seed.seed) for seed in result.seeds] == [(chosen.key, chosen.seed)]
    assert result.values == [history.evaluations[chosen.key][-1].metrics["test/accuracy"]]
    assert len(result.seeds[0].steps) == len(result.seeds[0].curve) > 1
    assert (result.trials, result.data_digest) == (len(history.trials), history.sweep.data_digest)
    assert 0 < result.wall_seconds <= result.core_seconds
    assert result.gpu_seconds == 0
    document = {**history.sweep.document, "resources": {"cpu": 1.0, "gpu": 0.5}}
    shared = replace(history, sweep=replace(history.sweep, document=document))
    assert collected(experiment(), experiment().arms[0], shared).gpu_seconds == result.core_seconds / 2
    assert result.origin is not None
    assert result.origin.machine == ""


def test_confirmations_are_the_seeds_of_a_search() -> None:
    """The best of several trials was chosen with its seed, so it is none of them; scores are compared."""
    wanted = experiment()
    history = confirmed.history([0.6, 0.7, 0.8])
    result = collected(wanted, wanted.arms[0], history)
    assert result.values == pytest.approx([0.6, 0.7, 0.8])
    sample = result.sample("test/accuracy")
    assert sample.scores is not None
    assert sample.scores.mean(axis=1) == pytest.approx([0.6, 0.7, 0.8])


def test_the_interval_of_an_arm_has_the_noise_of_its_examples(tmp_path: Path) -> None:
    """It is wider than that over seeds which agree, and kept with the results."""
    history, wanted = confirmed.history([0.92, 0.9225, 0.92, 0.9225, 0.92]), experiment()
    found = collected(wanted, wanted.arms[0], history)
    ends = interval_of(found.sample("test/accuracy"))
    assert ends is not None
    assert ends[0] < 0.9 < 0.92 < ends[1]
    tested = replace(found, published=StatedFigure(at_least=0.9), hypothesis=True, obstacle="")
    luck = results_of(replace(tested, interval=ends))
    sure = results_of(replace(tested, published=StatedFigure(at_least=0.8)))
    assert [each.verdicts[found.name].outcome for each in (luck, sure)] == ["undetermined", "confirmed"]
    assert experiment_results.read(publishing.publish(luck, tmp_path)[0]) == luck
    assert interval_of(found.sample("test/loss")) is None


def of_lengths(shares: list[float], facts: dict[str, object] | None = None) -> History:
    """Return a sweep whose confirmations were also tested on sequences of twice and four times the length."""
    history = confirmed.history(shares)
    evaluations = {
        key: [
            replace(row, metrics={**row.metrics, "test/accuracy_x2": 0.4, "test/accuracy_x4": 0.3})
            for row in rows
        ]
        for key, rows in history.evaluations.items()
    }
    sweep = replace(history.sweep, facts={**history.sweep.facts, **(facts or {})})
    return replace(history, evaluations=evaluations, sweep=sweep)


def test_longer_sequences_have_values_and_curves() -> None:
    """Curves are those of validation, which has no longer sequences."""
    wanted, history = experiment("test/accuracy_x4"), of_lengths([0.6, 0.7])
    reports = {trial.key: history.reports[sweeps.trial(7).key] for trial in history.trials}
    result = collected(wanted, wanted.arms[0], replace(history, reports=reports))
    assert result.values == [0.3, 0.3]
    assert result.lengths == {
        "x1": (pytest.approx(0.6), pytest.approx(0.7)),
        "x2": (0.4, 0.4),
        "x4": (0.3, 0.3),
    }
    assert result.lengths_metric == "test/accuracy"
    assert all(len(seed.curve) > 1 for seed in result.seeds)
    assert collected(wanted, wanted.arms[0], confirmed.history([0.6])).lengths == {}


def test_values_at_longer_sequences_are_of_the_metric_that_is_compared() -> None:
    """The search chose by another one, the loss."""
    wanted = experiment("test/accuracy_x4")
    history = of_lengths([0.6, 0.7], {"metric": "val/loss"})
    result = collected(wanted, wanted.arms[0], history)
    assert result.lengths_metric == "test/accuracy"
    assert result.lengths["x4"] == (0.3, 0.3)


def with_control(*shares: float) -> tuple[ArmResult, ArmResult]:
    """Return the arm of a sweep with a seed for each share, and that of the layer `none`, near 0.41."""
    wanted, facts = experiment(), {"chance": {"test": 0.42}}
    none = of_lengths([0.4, 0.42, 0.41, 0.41], facts)
    document = none.sweep.document
    model = {**document["model"], "layer": "none"}
    none = replace(none, sweep=replace(none.sweep, document={**document, "model": model}))
    own = collected(wanted, replace(wanted.arms[0], name="own"), of_lengths(list(shares), facts))
    return own, collected(wanted, replace(wanted.arms[0], name="none"), none)


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        ((0.8, 0.81, 0.79, 0.8), ()),
        ((0.8, 0.81, 0.79), ("none",)),  # beside four, one of 35 exchanges goes as far
        ((0.4, 0.43, 0.41), ("chance", "none")),
        ((0.2, 0.21, 0.19), ("chance", "none")),  # established to be worse
        ((0.8,), ("none",)),  # a single seed is compared with no other arm
        ((0.3,), ("chance", "none")),
    ],
)
def test_a_result_that_is_not_better_than_a_control_is_doubted(
    shares: tuple[float, ...], expected: tuple[str, ...]
) -> None:
    arms = with_control(*shares)
    assert arms[0].chance == 0.42
    assert doubts(results_of(*arms), arms[0]) == expected
    assert doubts(results_of(*arms), arms[1]) == ("chance",)


def test_equal_seeds_at_chance_are_doubted_and_those_above_are_not() -> None:
    """A network that always gives the most frequent answer has exactly that score with every seed."""
    at, above = (replace(arm("a", *[value] * 3), chance=0.5) for value in (0.5, 1.0))
    assert doubts(results_of(at), at) == ("chance",)
    assert doubts(results_of(above), above) == ()


def test_chance_is_that_of_the_metric_that_training_optimises() -> None:
    wanted, facts = experiment("val/loss"), {"chance": {"test": 0.42}}
    assert collected(wanted, wanted.arms[0], of_lengths([0.4], facts)).chance is None


def test_an_arm_has_the_commit_the_hardware_and_the_versions_that_ran_it() -> None:
    history = sweeps.history()
    facts = {**history.sweep.facts, "versions": {"jax": "0.9.0"}, "hardware": ["1 GPU", "2 cores"]}
    history = replace(history, sweep=replace(history.sweep, facts=facts))
    result = collected(experiment(), experiment().arms[0], history)
    assert result.origin is not None
    assert result.origin.machine == "1 GPU, then 2 cores"
    assert result.origin.commit == history.sweep.facts["git_commit"]
    assert result.origin.versions == (("jax", "0.9.0"),)


def test_an_arm_has_the_size_that_its_chosen_trial_reported() -> None:
    history = sweeps.history()
    counted = {
        "parameters": 14_650,
        "layer_parameters": 9_000,
        "recurrent_parameters": 4_000,
        "state_floats": 128,
    }

    def with_size(key: str, more: int) -> list[ReportRecord]:
        first, *others = history.reports[key]
        sizes = {f"size/{name}": float(value + more) for name, value in counted.items()}
        return [replace(first, metrics={**first.metrics, **sizes}), *others]

    (chosen,) = collected(experiment(), experiment().arms[0], history).seeds
    other = next(key for key in history.reports if key != chosen.trial and history.reports[key])
    reports = {**history.reports, chosen.trial: with_size(chosen.trial, 0), other: with_size(other, 1)}
    result = collected(experiment(), experiment().arms[0], replace(history, reports=reports))
    assert result.parameters == 14_650
    assert result.network.startswith("14,650 parameters (9,000 in the layers, 4,000 recurrent)")


def test_a_hypothesis_has_no_obstacle() -> None:
    wanted = experiment(profile="laptop")
    supposed = replace(wanted.arms[0], hypothesis=True, departure="a subset")
    assert collected(wanted, supposed, sweeps.history()).obstacle == ""


def test_a_reported_metric_is_reduced() -> None:
    norms = experiment("hidden_norm/head/layer_*", "drift")
    result = collected(norms, norms.arms[0], sweeps.history())
    assert len(result.values) == 1
    assert 0 < result.values[0] < 1


@pytest.mark.parametrize(
    ("changes", "facts", "departure", "reason"),
    [
        (
            ("depth 2 instead of 6",),
            {"comparable": True},
            "",
            "with the profile laptop, depth 2 instead of 6",
        ),
        ((), {"comparable": False, "note": "a subset"}, "", "a subset"),
        ((), {"comparable": False}, "", "the data are not the published ones"),
        ((), {"comparable": True}, "another optimiser", "another optimiser"),
        ((), {"comparable": True}, "", ""),
        (
            ("length 256 instead of 4,000", "steps 100 instead of 50,000"),
            {"comparable": False, "note": "length 256 instead of 4,000; no steps of AAN"},
            "another optimiser",
            "another optimiser; length 256 instead of 4,000; no steps of AAN; "
            "with the profile laptop, steps 100 instead of 50,000",
        ),
    ],
)
def test_every_reason_that_forbids_a_comparison_is_named(
    changes: tuple[str, ...], facts: dict[str, object], departure: str, reason: str
) -> None:
    history = sweeps.history()
    history = replace(
        history, sweep=replace(history.sweep, facts={**history.sweep.facts, "note": "", **facts})
    )
    wanted = experiment(profile="laptop" if changes else None)
    departing = replace(wanted.arms[0], departure=departure, changes=changes)
    assert collected(wanted, departing, history).obstacle == reason


def test_wall_time_counts_overlapping_attempts_once() -> None:
    assert covered([(0, 10), (5, 12), (6, 7), (20, 21)]) == 13
    assert covered([]) == 0


def test_numbers_on_the_page_are_read_from_the_results_alone() -> None:
    other = replace(BOTH, arms=(arm("rotrnn", *[0.1] * 10, scored=True), *BOTH.arms[1:]))
    lines = experiment_page.markdown(other).splitlines()
    assert re.search("not reproduced", next(line for line in lines if line.startswith("| rotrnn | rotrnn")))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((), "–"),
        ((0.5,), "0.5 (one seed)"),
        ((0.475, 0.475), "0.475 (2 equal seeds)"),
        ((1.0, 2.0, 3.0), "2 (1 to 3)"),
        ((1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0), "5 (interval 2 to 8)"),
    ],
)
def test_a_median_stands_with_its_uncertainty(values: tuple[float, ...], expected: str) -> None:
    """A single seed does not look like a median, and two equal ones do not look like certainty."""
    assert experiment_page.median_of(values) == expected


def test_seeds_that_solve_a_task_are_counted() -> None:
    """With an exact interval of the share of all trainings that solve it."""
    arms = (arm("rotrnn", 1.0, 0.99, 0.95, 0.92, 0.1), arm("lru", 0.1), arm("new"))
    text = experiment_page.markdown(replace(results_of(*arms), solved=0.9))
    assert "A seed solves the task with at least 0.9." in text
    assert "| rotrnn | 4 of 5 seeds | 28 % to 99 % |" in text
    assert "| lru | 0 of 1 seed | 0 % to 98 % |" in text
    assert "| new | – | – |" in text
    assert "Solved" not in experiment_page.markdown(results_of(*arms))
    loss = replace(results_of(*arms), solved=0.5, maximize=False)
    assert "| rotrnn | 1 of 5 seeds | 1 % to 72 % |" in experiment_page.markdown(loss)


UNABLE = StatedFigure(at_most=0.9)


@pytest.mark.parametrize(
    ("control", "negative", "reason"),
    [
        ([0.99] * 10, 0.1, ""),
        ([0.99] * 7 + [0.3] * 3, 0.1, "the positive control attention is not shown to solve the task"),
        ([0.99] * 10, 0.99, "the negative control none solves the task"),
    ],
)
def test_inability_and_order_count_only_where_controls_hold(
    tmp_path: Path, control: list[float], negative: float, reason: str
) -> None:
    """A task that nothing learns at this size shows nothing about one layer, nor that another is better."""
    tested = replace(arm("lru", *[0.2] * 10, published=UNABLE, scored=True), hypothesis=True)
    failed = replace(tested, name="failed", published=StatedFigure(at_least=0.9))
    able = replace(tested, name="able", published=StatedFigure(at_least=0.1))
    elsewhere = replace(tested, name="elsewhere", data_digest="abcd")
    best = replace(arm("gru", *[0.5] * 10, published=None, scored=True), hypothesis=True)
    arms = (
        arm("attention", *control, published=None, scored=True),
        arm("none", *[negative] * 10, published=None, scored=True),
    )
    stated = replace(
        results_of(
            tested, failed, able, elsewhere, best, *arms, claims=(OrderClaim("gru", "lru", hypothesis=True),)
        ),
        solved=0.9,
        positive=("attention",),
        negative=("none",),
    )
    nothing = f"undetermined: this size shows nothing: {reason}"
    found = {name: verdict.phrase for name, verdict in stated.verdicts.items()}
    assert found["lru"].startswith(nothing if reason else "confirmed: median 0.2")
    assert found["failed"].startswith(nothing if reason else "refuted: median 0.2")
    assert stated.orders[0].phrase.startswith(nothing if reason else "confirmed: gru is better")
    assert stated.verdicts["able"].outcome == "confirmed"
    assert found["elsewhere"] == "undetermined: this size shows nothing: no positive control"
    text = experiment_page.markdown(stated)
    shown = f"- This size shows nothing: {reason}. It concerns lru, failed, able, gru, attention, none, and"
    assert (shown in text) == bool(reason)
    assert replace(stated, positive=None).verdicts["elsewhere"].outcome == "confirmed"
    assert experiment_results.read(publishing.publish(stated, tmp_path)[0]) == stated


def _hypotheses(*names: str) -> tuple[ArmResult, ...]:
    return tuple(
        replace(arm(name, *[0.99] * 5, published=StatedFigure(at_least=0.9)), hypothesis=True)
        for name in names
    )


def test_a_family_is_corrected_and_says_how_large_it_is(tmp_path: Path) -> None:
    """Five of five seeds decide one bound alone, and none of four."""
    four = replace(results_of(*_hypotheses("a1", "a2", "b1", "b2")), metric="test/accuracy_x4")
    assert four.verdicts["a1"].phrase == (
        "undetermined: median 0.99 (5 seeds, from 0.99 to 0.99) against at least 0.9; p = 0.031, 0.12"
        " corrected for 4 comparisons; fewer than 7 seeds cannot decide, at the size of the file"
    )
    assert "- Comparisons in a family: 4. Corrected by Holm's method" in experiment_page.markdown(four)
    one = replace(four, families={"first": ("a1",), "rest of a": ("a2",)})
    assert [one.verdicts[name].outcome for name in ("a1", "a2", "b1")] == ["confirmed"] * 2 + ["undetermined"]
    assert "p = 0.031, at the size of the file" in one.verdicts["a1"].phrase
    assert "family: first: 1, rest of a: 1, all others: 2." in experiment_page.markdown(one)
    assert experiment_results.read(publishing.publish(one, tmp_path)[0]) == one


def test_a_claim_belongs_to_the_family_of_both_its_arms() -> None:
    """What no paper's arm can be compared with is no comparison; the better one of two such arms is."""
    claims = (OrderClaim("rotrnn", "lru"), OrderClaim("rotrnn", "s5"))
    some = replace(BOTH, claims=claims, orderings=(None, None), families={"pair": ("rotrnn", "lru")})
    assert some.family_sizes == {"pair": 3, "": 1}
    found = replace(some, orderings=tuple(map(some.measured, claims)))
    assert [each.comparisons for each in found.orderings if each] == [3, 1]
    assert found.orders[0].phrase == (
        "reproduced: rotrnn is better; p = 0.0001, 0.0003 corrected for 3 comparisons"
    )


def test_results_from_before_the_rules_are_judged_again_and_say_so(tmp_path: Path) -> None:
    old = replace(BOTH, orderings=(None, None))
    data, text = publishing.publish(old, tmp_path)
    publishing.refresh(tmp_path)
    assert experiment_results.read(data) == BOTH
    again = (
        f"- Judged again by the rules of {RULES}, from the values recorded until 2026-11-22; no arm was run"
    )
    assert again in text.read_text()
    new = replace(BOTH, circumstances=replace(BOTH.circumstances, date=RULES))
    assert "Judged again" not in experiment_page.markdown(new)


def test_the_list_counts_identities_toys_and_benchmarks_apart_and_what_was_not_shown_first(
    tmp_path: Path,
) -> None:
    def of(about: str) -> ExperimentResults:
        arms = tuple(replace(each, about=about) for each in BOTH.arms)
        return replace(BOTH, name=re.sub(r"\W+", "-", about), arms=arms)

    kinds = {"measure:error(depth=2)": "identities", "lru on mqar": "toys", "lru on text": "benchmarks"}
    for about, kind in kinds.items():
        assert of(about).kind == kind
        publishing.publish(of(about), tmp_path)
    text = publishing.index(tmp_path)
    for kind in kinds.values():
        assert f"| {kind} | 1 | 0 | 1 | 2 | 0 | 2 | 0 |" in text
    places = [
        text.index(f"\n{title}\n")
        for title in ("## What was not shown", "## What was shown", "## Counts", "### Identities")
    ]
    assert places == sorted(places)
    assert "| lru-on-mqar | toys | 3 | 5 | not reproduced (2), other data, size or settings than" in text
    assert "| lru-on-mqar | toys | 2 | 5 | The first \\<layer> is better. |" in text
    nothing = replace(of("lru on mqar"), arms=(), claims=(), orderings=())
    assert nothing.causes() == {}
