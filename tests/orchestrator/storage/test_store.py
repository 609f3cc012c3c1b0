"""The checkpoint store: on a shared disk, and on S3 with a real server over HTTP."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import boto3
import numpy as np
import pytest
from moto.server import ThreadedMotoServer

from orchestrator.errors import BadInput, NoStore
from orchestrator.storage import store
from orchestrator.storage.paths import Paths
from trainables import checkpoint
from trainables.errors import DamagedCheckpoint

KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """Run an S3 server; return the URL of a bucket."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    before = dict(os.environ)
    os.environ.update({**KEYS, "AWS_ENDPOINT_URL": f"http://{host}:{port}"})
    boto3.client("s3").create_bucket(Bucket="sweeps")
    yield "s3://sweeps/checkpoints"
    os.environ.clear()
    os.environ.update(before)
    server.stop()


@pytest.fixture(params=["file", "s3"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Paths:
    url = f"file://{tmp_path}/shared" if request.param == "file" else request.getfixturevalue("s3")
    return Paths(tmp_path / "mlruns", store=f"{url}/{request.node.name[:20]}")


def saved(where: Paths) -> tuple[Path, str]:
    """Save a checkpoint on this machine's disk; return its folder and its digest."""
    folder = where.trial_checkpoints("sweep", "sweep-0") / "step-000000010"
    manifest = checkpoint.save(folder, {"w": np.arange(6.0)}, {"step": 10})
    return folder, manifest.digest


def url_of(where: Paths) -> str:
    url = where.stored("sweep", "sweep-0")
    assert url is not None
    return url


def test_another_machine_fetches_a_kept_checkpoint(where: Paths, tmp_path: Path) -> None:
    """It fetches to its own root, whatever path is recorded, and compares every byte."""
    folder, digest = saved(where)
    store.keep(folder, url_of(where))
    elsewhere = Paths(tmp_path / "another", store=where.store)
    found = store.at_hand(elsewhere, "sweep", "sweep-0", str(folder))
    assert found == tmp_path / "another" / "checkpoints" / "sweep" / "sweep-0" / folder.name
    arrays, facts = checkpoint.load(found, digest)
    assert arrays["w"].tolist() == [0, 1, 2, 3, 4, 5]
    assert facts == {"step": 10}
    assert [each.name for each in found.parent.iterdir()] == [found.name]


def test_a_checkpoint_is_on_this_machine_or_in_the_store(where: Paths, tmp_path: Path) -> None:
    """Another machine has it once it was uploaded, and only with the store's address."""
    folder, _ = saved(where)
    elsewhere, told = Paths(tmp_path / "another", store=where.store), ("sweep", "sweep-0", str(folder))
    assert store.holds(where, *told)
    assert not store.holds(elsewhere, *told)
    store.keep(folder, url_of(where))
    assert store.holds(elsewhere, *told)
    shutil.rmtree(folder)
    assert not store.holds(Paths(tmp_path / "another"), *told)


def test_an_incomplete_upload_is_no_checkpoint(
    where: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that dies between arrays and manifest leaves no checkpoint to resume from."""
    folder, digest = saved(where)
    monkeypatch.setattr(store, "FILES", store.FILES[:1])
    store.keep(folder, url_of(where))
    monkeypatch.undo()
    shutil.rmtree(folder)
    store.fetch(folder, url_of(where))
    with pytest.raises(DamagedCheckpoint):
        checkpoint.load(folder, digest)
    assert list(folder.parent.iterdir()) == []


def test_a_dropped_checkpoint_is_gone_and_can_be_dropped_again(where: Paths) -> None:
    folder, _ = saved(where)
    store.keep(folder, url_of(where))
    for _ in range(2):
        store.drop(folder, url_of(where))
    shutil.rmtree(folder)
    store.fetch(folder, url_of(where))
    assert not folder.exists()


def test_an_unreachable_store_is_refused_by_name(tmp_path: Path) -> None:
    where = Paths(tmp_path / "mlruns", store="file:///proc/none")
    folder, _ = saved(where)
    with pytest.raises(NoStore, match="file:///proc/none"):
        store.keep(folder, url_of(where))


@pytest.mark.parametrize("url", ["/shared/sweeps", "s3://key:secret@bucket/sweeps", "nothing://bucket"])
def test_a_url_that_is_no_store_is_refused_at_once(url: str) -> None:
    with pytest.raises(BadInput, match="SWEEP_CHECKPOINTS") as refused:
        store.check(url)
    assert "secret" not in refused.value.got
