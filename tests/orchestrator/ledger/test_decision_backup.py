"""Stop requests, settings to try, classes, weights and quotas are in the backup of a SQLite ledger."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.cli.app import run_command
from orchestrator.errors import Damaged
from orchestrator.ledger.backup import row_folder
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.people.audit import Asked
from orchestrator.ledger.people.notes import NoteChange, change_note, note_of
from orchestrator.ledger.people.shelf import shelve, shelved
from orchestrator.ledger.pool import claims
from orchestrator.ledger.queue import submissions
from orchestrator.ledger.queue.queue_settings import ask_to_stop, asked_to_stop, change_settings
from orchestrator.ledger.queue.submissions import SubmissionRequest
from orchestrator.ledger.queue.trial_requests import ask_about_trial, pending_requests
from orchestrator.ledger.queue.wanted_settings import ask_to_try, wanted_settings
from orchestrator.ledger.sweeps.lease import Lease
from orchestrator.ledger.tables import OWNER
from orchestrator.sharing.pool_rows import UNIT
from orchestrator.upkeep.recovery import recover
from tests.orchestrator.ledger.examples import sweep_record

ODD = "../ada lovelace/\u00e9"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'sweeps.db'}"


def lose_database(ledger: Ledger) -> None:
    ledger.close()
    file = Path(str(ledger.address.database))
    for path in file.parent.glob(f"{file.name}*"):
        path.unlink()


def submit(ledger: Ledger) -> None:
    order = SubmissionRequest("ada", {"name": "a-1"}, "", {}, None, "c0ffee")
    submissions.submit(ledger, order, lambda is_known: "a-1", withdraw=True)


def test_a_rebuilt_ledger_has_every_stop_request_weight_and_quota(url: str) -> None:
    ledger = Ledger.open(url)
    ask_to_stop(ledger, "a-1")
    change_settings(ledger, "a-1", priority_class="urgent", weight=2 * UNIT)
    change_settings(ledger, "a-2", priority_class="idle")
    change_settings(ledger, "a-2", priority_class="normal", weight=3 * UNIT)
    claims.set_owner(ledger, ODD, weight=3 * UNIT, most_share=UNIT // 2)
    claims.set_owner(ledger, "bob", most_gpu_hours=100.0, most_sweeps=3)
    wanted = ask_to_try(ledger, "a-2", {"rate": [1, None]}, Asked("ada", "try", "a-2"))
    note = change_note(ledger, "a-2", "a-2-0", NoteChange("B\u00e9la", ["odd"]), Asked("ada", "note", "a-2"))
    asked = Asked("ada", "stop", "a-2", {"trial": "0"})
    stopped = ask_about_trial(ledger, "a-2-0", "stop", asked)
    shelve(ledger, "a-3", "archived", Asked("ada", "shelve", "a-3"))
    shelves = shelved(ledger)
    owners, classes = claims.owners(ledger), claims.priority_classes(ledger)
    lose_database(ledger)
    with pytest.raises(Damaged, match="is empty, but its backup is not"):
        Ledger.open(url)
    rebuilt = recover(url)
    assert set(rebuilt.decisions) == {
        "stop_request a-1",
        f"wanted_setting {wanted.id}",
        "note a-2-0",
        "trial_request a-2-0",
        "shelf a-3",
        "priority a-1",
        "priority a-2",
        "owner bob",
        f"owner {ODD}",
    }
    again = Ledger.open(url)
    assert asked_to_stop(again, "a-1")
    assert wanted_settings(again, "a-2") == [wanted]
    assert note_of(again, "a-2-0") == note
    assert shelved(again) == shelves
    assert pending_requests(again, "a-2") == (None, [stopped])
    assert claims.owners(again) == owners
    assert owners[ODD].weight == 3 * UNIT
    assert claims.priority_classes(again) == classes == {"a-1": "urgent", "a-2": "normal"}
    again.close()


@pytest.mark.parametrize("how", ["resubmitted", "driven"])
def test_a_stop_request_that_was_withdrawn_does_not_come_back(url: str, how: str) -> None:
    """A person has started the sweep again, in the service or by a driver."""
    ledger = Ledger.open(url)
    submit(ledger)
    ask_to_stop(ledger, "a-1")
    if how == "resubmitted":
        submit(ledger)
    else:
        with Lease(ledger, "a-1") as lease:
            lease.writer.create_sweep(replace(sweep_record(), id="a-1"))
            lease.writer.forget_stop_request()
    lose_database(ledger)
    assert recover(url).decisions == []
    again = Ledger.open(url)
    assert asked_to_stop(again, "a-1") is None
    again.close()


def test_submitting_with_a_known_key_leaves_a_stop_request(url: str) -> None:
    """Nothing is queued again, so that what was stopped stays stopped."""
    ledger = Ledger.open(url)
    order = SubmissionRequest("ada", {"name": "a-1"}, "", {}, "key", "c0ffee")
    submissions.submit(ledger, order, lambda is_known: "a-1")
    ask_to_stop(ledger, "a-1")
    submissions.submit(ledger, order, lambda is_known: "a-2")
    lose_database(ledger)
    assert recover(url).decisions == ["stop_request a-1"]


def test_a_damaged_file_loses_its_own_decision_alone(
    url: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    ledger = Ledger.open(url)
    claims.set_owner(ledger, ODD, weight=3 * UNIT)
    claims.set_owner(ledger, "bob", weight=2 * UNIT)
    [file] = [path for path in row_folder(ledger.address, OWNER).iterdir() if path.stem != "bob"]
    file.write_bytes(file.read_bytes().replace(b"30000", b"90000"))
    lose_database(ledger)
    assert run_command(["recover", "--root", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "owner bob: recovered" in printed
    assert f"owner {ODD}: lost, because its backup is damaged" in printed
