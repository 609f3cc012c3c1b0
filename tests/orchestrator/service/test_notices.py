"""The service tells owners what has changed, once for each change, without waiting for their targets."""

from __future__ import annotations

import json
import stat
import time
import typing
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.config.sections import NoticeEvent
from orchestrator.driver.notice_targets import EVENTS, NoticeSetting
from orchestrator.driver.notifications import Seen
from orchestrator.errors import BadInput, Exit, NotAllowed, NotFound, OverQuota
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.queue import submissions
from orchestrator.ledger.queue.submissions import (
    SubmissionEnd,
    SubmissionRequest,
    SubmissionState,
    change_rows,
)
from orchestrator.ledger.sweeps.records import ReportRecord
from orchestrator.service import notice_list, notices
from orchestrator.service.notice_list import MOST_TARGETS, of_file
from orchestrator.service.notices import (
    Notices,
    Standing,
    SweepNotices,
    is_stuck,
    messages,
    quota_message,
)
from orchestrator.sharing.pool_rows import Owner
from orchestrator.sharing.usage import week_of
from orchestrator.storage.paths import Paths
from orchestrator.system import System
from tests import sweeps

WAIT_SECONDS = 60.0
RUNNING = SubmissionEnd("s", "ada", "STARTED", 1, None, None)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def reports(*times: float, attempt: str = "s-0.1") -> list[ReportRecord]:
    return [ReportRecord("s-0", step, attempt, {}, at) for step, at in enumerate(times)]


def test_a_trial_is_stuck_after_several_of_its_own_intervals() -> None:
    assert not is_stuck(reports(0.0, 100.0, 180.0), 680.0)
    assert is_stuck(reports(0.0, 100.0, 180.0), 681.0)
    assert not is_stuck(reports(0.0, 1.0, 2.0), 62.0), "short intervals have a floor"
    assert is_stuck(reports(0.0, 1.0, 2.0), 62.1)
    assert not is_stuck(reports(0.0), 1e9), "one report shows no interval"


def test_the_wait_between_two_attempts_is_no_interval() -> None:
    own = reports(1000.0, 1010.0, attempt="s-0.2")
    assert is_stuck([*reports(0.0, 10.0), *own], 1071.0)


def test_a_quota_is_nearly_spent_from_nine_tenths_of_its_week_on() -> None:
    now = 1e9
    owner = Owner("ada", most_gpu_hours=10.0, week=week_of(now), week_gpu_seconds=9 * 3600)
    assert quota_message(owner, now) == {
        "event": "quota",
        "owner": "ada",
        "used_gpu_hours": 9.0,
        "gpu_hours": 10.0,
    }
    assert quota_message(replace(owner, week_gpu_seconds=9 * 3600 - 1), now) is None
    assert quota_message(replace(owner, week=week_of(now) - 1), now) is None
    assert quota_message(replace(owner, most_gpu_hours=None), now) is None


def test_each_change_is_one_message() -> None:
    first = Standing(RUNNING, "loss", Seen("s-0", 0.5, 0, 8))
    later = Standing(RUNNING, "loss", Seen("s-1", 0.25, 2, 8, frozenset({"s-3"})))
    assert messages(first, first) == []
    assert [each["event"] for each in messages(first, later)] == ["best", "failed", "stuck"]
    assert messages(later, later) == []
    ended = replace(later, submission=RUNNING._replace(state="ENDED", code=3))
    assert messages(later, ended) == [{"event": "ended", "sweep": "s", "exit": 3, "result": "some_failed"}]
    assert messages(ended, ended) == []
    parked = replace(later, submission=RUNNING._replace(state="PARKED", cause="boom"))
    assert messages(later, parked) == [{"event": "parked", "sweep": "s", "cause": "boom"}]


def test_a_sweep_that_has_ended_between_two_looks_is_told_at_once() -> None:
    ended = Standing(RUNNING._replace(state="ENDED", code=2), "", Seen())
    assert [each["event"] for each in messages(None, ended)] == ["ended"]


def test_a_sweep_that_was_not_read_before_repeats_no_old_value() -> None:
    unread = Standing(RUNNING._replace(state="ENDED", code=0), "", None)
    assert messages(unread, Standing(RUNNING, "loss", Seen("s-1", 0.25, 0, 8))) == []


# ------------------------------------------------------------------ the file of targets


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "notices.json"


def test_targets_are_kept_by_owner_in_a_private_file(file: Path) -> None:
    chat = NoticeSetting("https://example.org/secret", ("best",), restricted=True)
    mail = NoticeSetting("mailto:ada@example.org")
    notice_list.add(file, "ada", chat)
    assert notice_list.add(file, "ada", mail) == [chat, mail]
    notice_list.add(file, "bob", mail)
    assert notice_list.targets(file) == {"ada": [chat, mail], "bob": [mail]}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    changed = replace(chat, events=())
    assert notice_list.add(file, "ada", changed) == [mail, changed]
    assert notice_list.remove(file, "ada", 1) == [changed]
    assert notice_list.remove(file, "ada", 1) == []
    assert notice_list.targets(file) == {"bob": [mail]}


def test_a_wrong_target_changes_nothing(file: Path) -> None:
    for wrong, error in (
        (NoticeSetting("mailto:ada"), BadInput),
        (NoticeSetting("mailto:ada@example.org", ("bset",)), BadInput),
        (NoticeSetting("./run.sh", restricted=True), NotAllowed),
    ):
        with pytest.raises(error):
            notice_list.add(file, "ada", wrong)
    with pytest.raises(NotFound, match="there is none"):
        notice_list.remove(file, "ada", 1)
    assert not file.exists()


def test_an_owner_has_a_bounded_number_of_targets_and_writers_wait_for_each_other(file: Path) -> None:
    def add(number: int) -> None:
        notice_list.add(file, "ada", NoticeSetting(f"mailto:ada{number}@example.org"))

    with ThreadPoolExecutor(MOST_TARGETS) as pool:
        list(pool.map(add, range(MOST_TARGETS)))
    assert len(notice_list.targets(file)["ada"]) == MOST_TARGETS
    with pytest.raises(OverQuota):
        add(MOST_TARGETS)


def test_a_name_stands_for_one_target_of_its_owner(file: Path) -> None:
    first = NoticeSetting("https://example.org/a", name="team")
    notice_list.add(file, "ada", first)
    second = NoticeSetting("https://example.org/b", restricted=True, name="team")
    assert notice_list.add(file, "ada", second) == [second]
    unnamed = NoticeSetting("https://example.org/b")
    assert notice_list.add(file, "ada", unnamed) == [second, unnamed]
    for name in ("a b", "mailto:ada@example.org", 65 * "a"):
        with pytest.raises(BadInput, match="must be letters"):
            notice_list.add(file, "ada", NoticeSetting("mailto:ada@example.org", name=name))


def test_a_file_names_targets_of_its_owner_and_never_those_of_the_service() -> None:
    team = NoticeSetting("https://example.org/a", ("ended",), restricted=True, name="team")
    wanted = {"team": (), "mailto:ada@example.org": ("best",), "my-own": (), "other": ()}
    variables = {"SWEEP_NOTIFY_MY_OWN": "https://example.org/own"}
    found, unknown = of_file(wanted, [team, NoticeSetting("mailto:x@example.org")], variables)
    assert found == [
        replace(team, events=()),
        NoticeSetting("mailto:ada@example.org", ("best",)),
        NoticeSetting("https://example.org/own", name="my-own"),
    ]
    assert found[0].restricted, "a target that was set over HTTP stays on public networks"
    assert unknown == ["other"]
    assert of_file(wanted, [team])[1] == ["my-own", "other"]


def test_a_file_may_ask_for_every_event_that_there_is() -> None:
    assert set(typing.get_args(NoticeEvent)) == set(EVENTS)


# ------------------------------------------------------------------ the thread


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    """Return a root whose ledger holds a sweep with three trials."""
    return sweeps.filled(tmp_path / "mlruns", [sweeps.trial(number) for number in range(3)])


@pytest.fixture
def ledger(paths: Paths) -> Iterator[Ledger]:
    with closing(Ledger.open(paths.ledger_url)) as opened:
        yield opened


def put(
    ledger: Ledger,
    state: SubmissionState,
    code: int | None = None,
    sweep_id: str = sweeps.SWEEP_ID,
    **sections: object,
) -> None:
    """Let the sweep of Ada be in a state."""
    order = SubmissionRequest("ada", {"name": "retrieval", **sections}, "", {}, None, "c0ffee")
    entry, _ = submissions.submit(ledger, order, lambda is_known: sweep_id)
    change_rows(ledger, lambda change: change.replace(replace(entry, state=state, code=code)))


def test_owners_hear_of_their_own_sweeps_and_a_lost_target_delays_no_other(
    paths: Paths, ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two targets of Ada one does not exist, and Bob's receives nothing."""
    monkeypatch.setattr(notices, "LOOK_SECONDS", 0.05)
    heard, other = tmp_path / "heard", tmp_path / "other"
    notice_list.add(paths.notices, "ada", NoticeSetting("no-such-command"))
    notice_list.add(paths.notices, "ada", NoticeSetting(f"tee -a {heard}", ("ended", "best")))
    notice_list.add(paths.notices, "bob", NoticeSetting(f"tee -a {other}"))
    put(ledger, "STARTED")
    said: list[str] = []
    with closing(Notices(paths, System(), said.append)) as sending:
        sending.start()
        wait_for(lambda: "ada" in sending._before)
        put(ledger, "ENDED", 0)
        wait_for(lambda: heard.exists() and heard.read_text().endswith("}"))
        wait_for(lambda: bool(said))
    document: dict[str, Any] = json.loads(heard.read_text())
    assert document == {"event": "ended", "sweep": sweeps.SWEEP_ID, "exit": 0, "result": "complete"}
    assert said == ["ada, no-such-command: --notify: a message could not be sent (FileNotFoundError)."]
    assert not other.exists()


def test_a_sweep_of_a_new_submission_is_told_from_its_first_value_on(
    paths: Paths, ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notices, "LOOK_SECONDS", 0.05)
    heard = tmp_path / "heard"
    notice_list.add(paths.notices, "ada", NoticeSetting(f"tee -a {heard}", ("best",)))
    with closing(Notices(paths, System(), print)) as sending:
        sending.start()
        wait_for(lambda: "ada" in sending._before)
        put(ledger, "STARTED")
        wait_for(lambda: heard.exists() and heard.read_text().endswith("}"))
    message = json.loads(heard.read_text())
    assert (message["event"], message["metric"], message["trial"]) == (
        "best",
        "val/accuracy",
        f"{sweeps.SWEEP_ID}-2",
    )


def lines_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().replace("}{", "}\n{").splitlines()]


def test_the_targets_that_a_file_names_hear_of_its_sweep_alone(
    paths: Paths, ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notices, "LOOK_SECONDS", 0.05)
    team, closed, bob = tmp_path / "team", tmp_path / "closed", tmp_path / "bob"
    notice_list.add(paths.notices, "ada", NoticeSetting(f"tee -a {team}", name="team"))
    notice_list.add(paths.notices, "ada", NoticeSetting(f"tee -a {closed}", name="closed"))
    notice_list.add(paths.notices, "bob", NoticeSetting(f"tee -a {bob}", name="theirs"))
    monkeypatch.setenv("SWEEP_NOTIFY_OPERATOR", f"tee -a {closed}")
    named = {"team": ["ended"], "theirs": "all", "operator": "all"}
    other = f"{sweeps.SWEEP_ID}-other"
    said: list[str] = []
    with closing(Notices(paths, System(), said.append)) as sending:
        sending.start()
        wait_for(lambda: "ada" in sending._before)
        put(ledger, "STARTED", notify=named)
        put(ledger, "STARTED", sweep_id=other)
        wait_for(lambda: sweeps.SWEEP_ID in sending._before["ada"])
        put(ledger, "ENDED", 0, sweep_id=other)
        put(ledger, "ENDED", 3, notify=named)
        wait_for(lambda: team.exists() and team.read_text().endswith("}"))
        wait_for(lambda: len(said) == 2)
    ended = {"event": "ended", "sweep": sweeps.SWEEP_ID, "exit": 3, "result": "some_failed"}
    assert lines_of(team) == [ended]
    assert not closed.exists()
    assert not bob.exists()
    assert [line.partition(": notify: ")[2] for line in said] == [
        "ada has no target `theirs`, which hears nothing.",
        "ada has no target `operator`, which hears nothing.",
    ]


def test_a_driver_tells_of_stuck_trials_and_the_quota_too(
    paths: Paths, ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = tmp_path / "heard"
    monkeypatch.setattr(notices, "_is_silent", lambda ledger, trial, now: trial.number == 1)
    settings = [NoticeSetting(f"tee -a {heard}"), NoticeSetting(f"tee -a {tmp_path / 'few'}", ("best",))]
    with closing(SweepNotices(paths, System(), print, sweeps.SWEEP_ID, "ada", settings)) as sending:
        sending._before = replace(sending._before, seen=Seen())
        sending.start()
        sending.end(Exit.RESUMABLE)
    events = [message["event"] for message in lines_of(heard)]
    assert events == ["best", "stuck", "ended"]
    assert [message["event"] for message in lines_of(tmp_path / "few")] == ["best"]
    with pytest.raises(BadInput, match="must be mailto"):
        SweepNotices(paths, System(), print, sweeps.SWEEP_ID, "ada", [NoticeSetting("mailto:ada")])
