"""The next driver to start and the next to be preempted: by class, owner, age and share."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.ledger.queue.submissions import ROOM
from orchestrator.service.start_order import (
    DRIVERS_AT_ONCE,
    STARTING_AT_ONCE,
    URGENT_DRIVERS,
    WITHOUT_SHARE_SECONDS,
    Situation,
    claim_of,
    in_turn,
    with_shares,
)
from orchestrator.service.supervision import next_actions
from orchestrator.sharing.pool_rows import CLASSES, UNIT, Owner, PoolNode, PriorityClass, Snapshot, Use
from orchestrator.sharing.usage import week_of
from orchestrator.sharing.view import View
from tests.orchestrator.service.situations import queued, started, submission, sweep
from tests.orchestrator.sharing.worlds import cpu_claim

NOW = 1_000_000.0


def waiting(sweep_id: str, priority_class: PriorityClass = "normal", **changes: Any) -> Situation:
    """Return a submission of a class that waits for its driver."""
    return replace(queued(sweep_id, **changes), priority_class=priority_class)


def driven(sweep_id: str, priority_class: PriorityClass = "normal", **changes: Any) -> Situation:
    """Return a submission of a class whose driver runs."""
    return replace(started(sweep_id, is_driven=True, **changes), priority_class=priority_class)


def starts(*situations: Situation, now: float = NOW, most: int = DRIVERS_AT_ONCE) -> list[str]:
    return [entry.sweep_id for entry in next_actions(situations, now, drivers_at_once=most).starts]


def leaves(*situations: Situation, now: float = NOW, most: int = DRIVERS_AT_ONCE) -> list[str]:
    return list(next_actions(situations, now, drivers_at_once=most).leaving)


ENTRIES = st.lists(
    st.tuples(st.sampled_from(CLASSES), st.sampled_from(["ada", "bob", "cyd"]), st.integers(0, 3)),
    max_size=12,
).map(
    lambda rows: [
        waiting(f"s{number}", kind, owner=owner, at=float(at))
        for number, (kind, owner, at) in enumerate(rows)
    ]
)


@given(ENTRIES, st.lists(st.sampled_from(["ada", "bob"]), max_size=5), st.randoms(use_true_random=False))
def test_the_order_is_total_and_does_not_depend_on_the_order_of_the_rows(
    entries: list[Situation], owners: list[str], chance: random.Random
) -> None:
    running = [driven(f"r{number}", owner=owner) for number, owner in enumerate(owners)]
    ordered = in_turn(entries, running)
    assert sorted(entry.submission.sweep_id for entry in ordered) == sorted(
        entry.submission.sweep_id for entry in entries
    )
    chance.shuffle(entries)
    chance.shuffle(running)
    assert in_turn(entries, running) == ordered
    classes = [CLASSES.index(entry.priority_class) for entry in ordered]
    assert classes == sorted(classes)


@given(ENTRIES)
def test_within_a_class_the_owners_alternate_and_each_owners_oldest_comes_first(
    entries: list[Situation],
) -> None:
    """Before the n-th submission of an owner, every other owner of the class has had at least n - 1."""
    for kind in CLASSES:
        alike = [entry for entry in entries if entry.priority_class == kind]
        ordered = [entry.submission for entry in in_turn(alike, [])]
        own = {owner: [entry for entry in ordered if entry.owner == owner] for owner in ("ada", "bob", "cyd")}
        for mine in own.values():
            assert mine == sorted(mine, key=lambda entry: (entry.at, entry.sweep_id))
            for count, entry in enumerate(mine):
                before = ordered[: ordered.index(entry)]
                for theirs in own.values():
                    assert len([other for other in theirs if other in before]) >= min(count, len(theirs))


def test_an_urgent_submission_starts_before_older_ones() -> None:
    rows = [waiting("idle", "idle", at=0.0), waiting("normal", at=1.0), waiting("urgent", "urgent", at=2.0)]
    assert starts(*rows) == ["urgent", "normal"]


def test_urgent_submissions_have_places_beyond_those_of_the_others() -> None:
    running = [driven(str(number)) for number in range(DRIVERS_AT_ONCE)]
    urgent = [waiting(f"urgent-{number}", "urgent") for number in range(URGENT_DRIVERS + 1)]
    assert starts(*running, waiting("normal"), *urgent) == ["urgent-0", "urgent-1"]
    more = [driven(f"urgent-{number}", "urgent") for number in range(URGENT_DRIVERS)]
    assert starts(*running, *more, urgent[-1]) == [], "and no more than that"


@pytest.mark.parametrize("kind", ["urgent", "normal"])
def test_the_newest_idle_driver_leaves_for_a_submission_of_another_class(kind: PriorityClass) -> None:
    idle = [driven(f"idle-{number}", "idle", at=float(number)) for number in range(3)]
    assert leaves(*idle, waiting("new", kind), most=3) == ["idle-2"]
    assert leaves(*idle, waiting("new", kind), most=4) == [], "there is a free place"
    assert leaves(*idle, waiting("new", "idle"), most=3) == []
    asked = [*idle[:2], replace(idle[2], stopped_by=ROOM)]
    assert leaves(*asked, waiting("new", kind), most=3) == [], "one place is enough"
    assert leaves(*asked, waiting("new", kind), waiting("more"), most=3) == ["idle-1"]


def test_no_normal_driver_leaves_for_an_urgent_submission() -> None:
    assert leaves(*(driven(str(number)) for number in range(3)), waiting("new", "urgent"), most=3) == []


def test_nothing_leaves_while_all_starts_are_paused() -> None:
    rows = [driven("idle", "idle", at=1.0), waiting("new")]
    assert next_actions(rows, NOW, NOW - 1.0, drivers_at_once=1).leaving == ()


@pytest.mark.parametrize("code", [4, 0, None])
def test_a_driver_that_has_made_room_is_queued_again_uncharged(code: int | None) -> None:
    """It exits with 0 if it sees the request before it begins."""
    gone = started("a", code=code, process="dead", stopped_by=ROOM, tries=2, crashes=1)
    [transition] = next_actions([replace(gone, sweep=sweep("INTERRUPTED"))], NOW).transitions
    assert transition.columns == {
        "state": "QUEUED",
        "next_try": NOW,
        "cause": "preempted for other sweeps",
    }


def test_a_crash_while_a_driver_makes_room_is_a_crash() -> None:
    [transition] = next_actions([started("a", code=1, process="dead", stopped_by=ROOM)], NOW).transitions
    assert transition.columns["crashes"] == 1


@settings(max_examples=60, deadline=None)
@given(
    places=st.integers(1, 6),
    idle=st.integers(0, 8),
    normal=st.integers(0, 3),
    urgent=st.integers(1, 4),
    seconds=st.integers(1, 30),
)
def test_no_urgent_submission_waits_behind_an_idle_driver_for_ever(
    places: int, idle: int, normal: int, urgent: int, seconds: int
) -> None:
    """Idle sweeps never end; all others end 100 s after their start. Places are taken within the limits."""
    rows = {f"idle-{number}": waiting(f"idle-{number}", "idle") for number in range(idle)}
    run = _Run(rows, places, seconds)
    for _ in range(200):
        run.poll()
    for kind, number in (("normal", normal), ("urgent", urgent)):
        for index in range(number):
            run.rows[f"{kind}-{index}"] = waiting(f"{kind}-{index}", kind, at=run.now)  # type: ignore[arg-type]
    for _ in range((normal + urgent) * (100 + 2 * seconds + 10)):
        run.poll()
        assert sum(entry.is_driven for entry in run.rows.values()) <= places + URGENT_DRIVERS
    assert run.finished == {f"normal-{index}" for index in range(normal)} | {
        f"urgent-{index}" for index in range(urgent)
    }
    for _ in range(10):
        run.poll()
    running = sum(entry.is_driven for entry in run.rows.values())
    assert running == min(idle, places), "what they have left goes to the idle sweeps again"


class _Run:
    """A service that polls every second, and its drivers, which leave some seconds after they are asked.

    Attributes:
        rows: Situations by sweep.
        finished: Sweeps that have ended.
    """

    def __init__(self, rows: dict[str, Situation], places: int, seconds: int) -> None:
        self.rows, self.now, self.finished = rows, NOW, set[str]()
        self._places, self._seconds = places, seconds
        self._asked: dict[str, float] = {}

    def poll(self) -> None:
        self.now += 1.0
        for sweep_id, entry in list(self.rows.items()):
            self._live(sweep_id, entry)
        actions = next_actions(list(self.rows.values()), self.now, drivers_at_once=self._places)
        for transition in actions.transitions:
            changed = replace(transition.submission, **transition.columns)
            kind = self.rows[changed.sweep_id].priority_class
            self.rows[changed.sweep_id] = Situation(changed, priority_class=kind)
        for start in actions.starts:
            kind = self.rows[start.sweep_id].priority_class
            self.rows[start.sweep_id] = driven(start.sweep_id, kind, at=self.now)
        for sweep_id in actions.leaving:
            assert sweep_id.startswith("idle")
            assert sweep_id not in self._asked
            self._asked[sweep_id] = self.now
            self.rows[sweep_id] = replace(self.rows[sweep_id], stopped_by=ROOM)

    def _live(self, sweep_id: str, entry: Situation) -> None:
        if sweep_id in self._asked and self.now - self._asked[sweep_id] >= self._seconds:
            del self._asked[sweep_id]
            self.rows[sweep_id] = replace(
                entry, is_driven=False, process="dead", submission=replace(entry.submission, code=4)
            )
        elif entry.is_driven and entry.priority_class != "idle":
            assert entry.submission.started_at is not None
            if self.now - entry.submission.started_at >= 100:
                del self.rows[sweep_id]
                self.finished.add(sweep_id)


# ------------------------------------------------------------------ shares


def test_no_driver_starts_while_its_share_is_zero() -> None:
    assert starts(replace(waiting("a"), share=0), replace(waiting("b", at=1.0), share=1)) == ["b"]
    assert starts(replace(waiting("a"), share=None)) == ["a"]


def test_a_driver_without_share_and_report_leaves_after_ten_minutes() -> None:
    late = NOW - WITHOUT_SHARE_SECONDS
    useless = replace(driven("a", at=late), share=0)
    assert leaves(useless) == ["a"]
    for kept in (
        replace(useless, share=1),
        replace(useless, share=None),
        replace(useless, held=1),
        replace(useless, heard_at=late + 1.0),
        replace(useless, stopped_by="node"),
        replace(driven("a", at=late + 1.0), share=0),
        replace(waiting("a"), share=0),
    ):
        assert leaves(kept) == []


DOCUMENT = {"resources": {"cpu": 1.0, "gpu": 0.0}, "budget": {"trials": 8}}


def view(cores: int = 4, devices: int = 0, owners: tuple[Owner, ...] = (), held: int = 4) -> View:
    """Return a pool in which the sweep `a` of ada runs."""
    nodes = (PoolNode("node", cores * UNIT, devices),)
    return View.of(Snapshot(nodes, owners, (cpu_claim("a", "ada", 4),), (Use("a", NOW, held),)), NOW)


def shares(
    *situations: Situation, views: tuple[View, ...], owners: tuple[Owner, ...] = ()
) -> list[int | None]:
    rows = with_shares(situations, views, {owner.name: owner for owner in owners}, NOW)
    return [entry.share for entry in rows]


def test_the_share_of_a_submission_is_what_it_would_get_with_a_driver() -> None:
    running = driven("a", document=DOCUMENT)
    rows = [waiting(f"{owner}-{number}", owner=owner, at=float(number), document=DOCUMENT)
            for owner in ("bob", "cyd") for number in range(2)]  # fmt: skip
    assert shares(running, *rows, views=(view(),)) == [2, 1, 0, 1, 0]
    assert with_shares([running], [view()], {}, NOW)[0].held == 4


def test_a_driver_that_has_not_claimed_yet_counts() -> None:
    running, young = driven("a", document=DOCUMENT), driven("b", owner="bob", document=DOCUMENT)
    more = waiting("c", owner="bob", at=1.0, document=DOCUMENT)
    assert shares(running, young, more, views=(view(2),)) == [1, 1, 0]


def test_nothing_is_known_before_a_driver_of_the_service_claims() -> None:
    """Drivers of another Ray share another pool."""
    assert shares(waiting("b", document=DOCUMENT), views=(view(),)) == [None]


def test_a_sweep_that_fits_no_node_starts_so_that_its_driver_asks_for_one() -> None:
    large = {"resources": {"cpu": 1.0, "gpu": 1.0}, "budget": {"trials": 1}}
    rows = shares(driven("a", document=DOCUMENT), waiting("b", document=large), views=(view(),))
    assert rows == [4, None]


@pytest.mark.parametrize(("week", "share"), [(week_of(NOW), 0), (week_of(NOW) - 1, None)])
def test_a_spent_quota_of_gpu_hours_holds_until_the_week_is_over(week: int, share: int | None) -> None:
    """Although no driver runs that would begin the next week."""
    owner = Owner("ada", most_gpu_hours=1, week=week, week_gpu_seconds=3_600)
    document = {"resources": {"cpu": 1.0, "gpu": 1.0}, "budget": {"trials": 1}}
    assert shares(waiting("b", document=document), views=(), owners=(owner,)) == [share]


@pytest.mark.parametrize(
    ("resources", "slots", "want"),
    [
        ({"gpu": 0.0}, 0, 8),
        ({"gpu": 0.25}, 4, 8),
        ({"gpu": 1.0, "slots": 4, "concurrent": 2}, 4, 2),
        ({"gpu": 1.0, "slots": "auto"}, 1, 8),
    ],
)
def test_a_submission_claims_what_its_file_asks_for(resources: dict[str, Any], slots: int, want: int) -> None:
    document = {"resources": {"cpu": 2.0, **resources}, "budget": {"trials": 8}}
    claim = claim_of(submission("a", document=document), "idle")
    assert (claim.cpu, claim.slots, claim.want) == (2 * UNIT, slots, want)
    assert claim.priority_class == "idle"


def test_at_most_two_start_at_once() -> None:
    assert len(starts(*(waiting(str(number), "urgent") for number in range(9)))) == STARTING_AT_ONCE
