"""The checkpoint store: on a shared disk, and on S3 with a real server over HTTP."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from orchestrator.errors import BadInput, NoStore
from orchestrator.storage import store
from orchestrator.storage.paths import Paths, checkpoint_stem
from tests.s3 import bucket
from trainables import checkpoint
from trainables.errors import DamagedCheckpoint

LEDGER, TRIAL = "0123456789ab", ("sweep", "sweep-0")


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """Run an S3 server; return the URL of a folder in a bucket."""
    with bucket() as url:
        yield url


@pytest.fixture(params=["file", "s3"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Paths:
    url = f"file://{tmp_path}/shared" if request.param == "file" else request.getfixturevalue("s3")
    return Paths(tmp_path / "mlruns", store=f"{url}/{request.node.name[:20]}")


def saved(where: Paths, attempt: int = 1, value: float = 6.0) -> checkpoint.Saved:
    """Save a checkpoint of step 10 on this machine's disk."""
    stem = where.trial_checkpoints(*TRIAL) / checkpoint_stem(10, attempt)
    return checkpoint.save(stem, {"w": np.arange(value)}, {"step": 10})


def url_of(where: Paths) -> str:
    url = where.stored(LEDGER, *TRIAL)
    assert url is not None
    return url


def test_another_machine_fetches_a_kept_checkpoint(where: Paths, tmp_path: Path) -> None:
    """It downloads the checkpoint to its own root, whatever path is recorded, and compares every byte."""
    kept = saved(where)
    store.keep(kept.folder, url_of(where))
    elsewhere = Paths(tmp_path / "another", store=where.store)
    folder = store.at_hand(elsewhere, LEDGER, *TRIAL, str(kept.folder), kept.digest)
    assert folder == tmp_path / "another" / "checkpoints" / "sweep" / "sweep-0" / kept.folder.name
    arrays, facts = checkpoint.load(folder, kept.digest)
    assert arrays["w"].tolist() == [0, 1, 2, 3, 4, 5]
    assert facts == {"step": 10}
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_a_local_copy_that_vanishes_before_it_is_read_is_downloaded_again(
    where: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, read, reads = saved(where), checkpoint.load, []
    store.keep(kept.folder, url_of(where))

    def vanishing(folder: Path, digest: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        reads.append(folder)
        if len(reads) == 1:
            shutil.rmtree(folder)
        return read(folder, digest)

    monkeypatch.setattr(checkpoint, "load", vanishing)
    arrays, facts = store.load(kept.folder, url_of(where), kept.digest)
    assert len(reads) == 2
    assert arrays["w"].tolist() == [0, 1, 2, 3, 4, 5]
    assert facts == {"step": 10}


def test_a_checkpoint_is_on_this_machine_or_in_the_store(where: Paths, tmp_path: Path) -> None:
    """Another machine reaches it once it is uploaded, and only with the store's address."""
    folder = saved(where).folder
    elsewhere, recorded = Paths(tmp_path / "another", store=where.store), (LEDGER, *TRIAL, str(folder))
    assert store.holds(where, *recorded)
    assert not store.holds(elsewhere, *recorded)
    store.keep(folder, url_of(where))
    assert store.holds(elsewhere, *recorded)
    shutil.rmtree(folder)
    assert not store.holds(Paths(tmp_path / "another"), *recorded)


def test_other_content_on_this_machine_is_not_taken_for_the_recorded_checkpoint(where: Paths) -> None:
    """A damaged copy is downloaded again."""
    kept = saved(where)
    store.keep(kept.folder, url_of(where))
    (kept.folder / checkpoint.MANIFEST).write_text("{}")
    store.fetch(kept.folder, url_of(where), kept.digest)
    assert checkpoint.is_whole(kept.folder, kept.digest)


def test_other_content_in_the_store_is_not_taken_for_the_recorded_checkpoint(where: Paths) -> None:
    kept, other = saved(where), saved(where, value=7.0)
    shutil.rmtree(kept.folder)
    other.folder.rename(kept.folder)
    store.keep(kept.folder, url_of(where))
    shutil.rmtree(kept.folder)
    store.fetch(kept.folder, url_of(where), kept.digest)
    with pytest.raises(DamagedCheckpoint):
        checkpoint.load(kept.folder, kept.digest)


def test_a_copy_for_another_trial_needs_no_file_of_the_donor_on_this_machine(where: Paths) -> None:
    """A worker of the donor may delete its local files at any moment."""
    donor = saved(where)
    store.keep(donor.folder, url_of(where))
    shutil.rmtree(donor.folder)
    heir = where.trial_checkpoints("sweep", "sweep-1") / checkpoint_stem(10, 2)
    urls = url_of(where), where.stored(LEDGER, "sweep", "sweep-1")
    copied = store.copy(donor.folder, heir, donor.digest, "sweep-1", urls)
    store.fetch(copied.folder, str(urls[1]), copied.digest)
    _, facts = checkpoint.load(copied.folder, copied.digest)
    assert facts == {"step": 10, "trial": "sweep-1", "copied_from": None}
    assert sum(file.stat().st_size for file in copied.folder.iterdir()) == copied.bytes


def test_a_copy_of_what_is_no_longer_the_recorded_checkpoint_is_refused(where: Paths) -> None:
    donor = saved(where)
    store.keep(donor.folder, url_of(where))
    heir = where.trial_checkpoints("sweep", "sweep-1") / checkpoint_stem(10, 2)
    urls = url_of(where), where.stored(LEDGER, "sweep", "sweep-1")
    with pytest.raises(DamagedCheckpoint, match="must have SHA-256"):
        store.copy(donor.folder, heir, "0" * 64, "sweep-1", urls)


def test_a_copy_without_a_store_is_whole(tmp_path: Path) -> None:
    where = Paths(tmp_path)
    donor, heir = saved(where), where.trial_checkpoints("sweep", "sweep-1") / checkpoint_stem(10, 2)
    copied = store.copy(donor.folder, heir, donor.digest, "sweep-1", (None, None))
    assert checkpoint.is_whole(copied.folder, copied.digest)


def test_two_ledgers_in_one_store_do_not_meet(where: Paths, tmp_path: Path) -> None:
    """Equal search spaces give equal names; a deletion by one ledger leaves the other's files."""
    kept = saved(where)
    other = where.stored("ba9876543210", *TRIAL)
    assert other is not None
    for url in (url_of(where), other):
        store.keep(kept.folder, url)
    store.delete(f"{other}/{kept.folder.name}")
    shutil.rmtree(kept.folder)
    store.fetch(kept.folder, url_of(where), kept.digest)
    assert checkpoint.is_whole(kept.folder, kept.digest)


def test_the_store_lists_the_checkpoints_of_a_sweep(where: Paths) -> None:
    """The list gives the size and the age of each checkpoint."""
    first, second = saved(where, 1), saved(where, 2, value=7.0)
    sweep = url_of(where).rpartition("/")[0]
    assert store.stored(sweep) == []
    for written in (first, second):
        store.keep(written.folder, url_of(where))
    listed = store.stored(sweep)
    urls = [f"{url_of(where)}/{written.folder.name}" for written in (first, second)]
    assert [entry.url for entry in listed] == urls
    assert [entry.bytes for entry in listed] == [first.bytes, second.bytes]
    assert all(-5 < entry.age < 60 for entry in listed)


def test_a_store_answers_a_probe_or_does_not(where: Paths, tmp_path: Path) -> None:
    """A probe leaves nothing behind."""
    assert store.answers(str(where.store))
    assert not store.answers("file:///proc/none")
    assert store.has_space(tmp_path)
    assert not store.has_space(tmp_path / "gone")


def test_an_incomplete_upload_is_not_a_checkpoint(where: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that dies between arrays and manifest leaves no checkpoint to resume from."""
    kept = saved(where)
    monkeypatch.setattr(store, "FILES", store.FILES[:1])
    store.keep(kept.folder, url_of(where))
    monkeypatch.undo()
    shutil.rmtree(kept.folder)
    store.fetch(kept.folder, url_of(where), kept.digest)
    with pytest.raises(DamagedCheckpoint):
        checkpoint.load(kept.folder, kept.digest)
    assert list(kept.folder.parent.iterdir()) == []


def test_a_deleted_checkpoint_is_gone_and_can_be_deleted_again(where: Paths) -> None:
    kept = saved(where)
    store.keep(kept.folder, url_of(where))
    for _ in range(2):
        store.delete(f"{url_of(where)}/{kept.folder.name}")
    shutil.rmtree(kept.folder)
    store.fetch(kept.folder, url_of(where), kept.digest)
    assert not kept.folder.exists()


def test_an_unreachable_store_is_refused_by_name(tmp_path: Path) -> None:
    where = Paths(tmp_path / "mlruns", store="file:///proc/none")
    folder = saved(where).folder
    with pytest.raises(NoStore, match="file:///proc/none"):
        store.keep(folder, url_of(where))


@pytest.mark.parametrize("url", ["/shared/sweeps", "s3://key:secret@bucket/sweeps", "nothing://bucket"])
def test_a_url_that_cannot_be_a_store_is_refused_at_once(url: str) -> None:
    with pytest.raises(BadInput, match="SWEEP_CHECKPOINTS") as refused:
        store.check(url)
    assert "secret" not in refused.value.got
