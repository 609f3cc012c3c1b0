"""A GPU belongs to one Ray of one user; locks and processes are real, `nvidia-smi` is a stand-in."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from orchestrator.errors import NoCluster
from orchestrator.machines import devices, joining
from orchestrator.machines.devices import (
    Gpu,
    Grant,
    described,
    granted,
    has_locks,
    has_more,
    visible,
    wanted,
)
from orchestrator.machines.hardware import Hardware, Node
from orchestrator.machines.head import Head, running, runtime_folder
from orchestrator.schedule import environment
from tests.orchestrator.machines.nvidia import Nvidia

TWO = Hardware(cpus=1, gpus=2)
NOBODY = 65534
GPUS = [Gpu("0", "GPU-ab"), Gpu("1", "GPU-cd")]


@pytest.fixture
def nvidia(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Nvidia:
    """Give this process two GPUs, which nobody uses."""
    return Nvidia(tmp_path / "nvidia", monkeypatch)


@pytest.fixture
def stranger() -> Iterator[int]:
    """Yield the id of a process of another user."""
    if os.geteuid():
        yield 1
        return
    process = subprocess.Popen(["sleep", "600"], user=NOBODY)
    yield process.pid
    process.kill()
    process.wait()


@contextmanager
def locked_by_another(user: int | None = None) -> Iterator[int]:
    """Let a child lock all free GPUs within a `with` block; yield its process id.

    Args:
        user: User of the child; None for that of this process.
    """
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        try:
            if user is not None:
                os.setuid(user)
            os.umask(0o077)
            with granted(TWO):
                os.write(writing, b"locked")
                time.sleep(600)
        finally:
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading, "rb") as told:
        assert told.read(6) == b"locked"
        try:
            yield child
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def granted_now() -> tuple[str, ...]:
    with granted(TWO) as grant:
        return grant.uuids


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        (None, ["GPU-ab", "GPU-cd"]),
        ("1, 0", ["GPU-cd", "GPU-ab"]),
        ("GPU-c,0", ["GPU-cd", "GPU-ab"]),
        ("0,7,1", ["GPU-ab"]),
        ("0,-1,1", ["GPU-ab"]),
        ("1,GPU-cd", ["GPU-cd"]),
        ("MIG-12,1", ["MIG-12", "GPU-cd"]),
        ("", []),
    ],
)
def test_the_visible_gpus_are_those_that_cuda_shows(names: str | None, chosen: list[str]) -> None:
    assert [gpu.uuid for gpu in visible(GPUS, names)] == chosen


def test_gpus_that_nobody_uses_are_granted(nvidia: Nvidia) -> None:
    assert granted_now() == ("GPU-a", "GPU-b")
    assert granted_now() == ("GPU-a", "GPU-b"), "the locks end with the block"


def test_a_gpu_on_which_another_user_computes_is_left_to_that_user(nvidia: Nvidia, stranger: int) -> None:
    nvidia.runs(("GPU-a", stranger), ("GPU-b", os.getpid()))
    assert granted_now() == ("GPU-b",), "the own programs of a user do not count"


def test_without_a_free_gpu_the_refusal_names_who_has_each(nvidia: Nvidia, stranger: int) -> None:
    nvidia.runs(("GPU-a", stranger), ("GPU-b", stranger))
    with pytest.raises(NoCluster) as refusal, granted(TWO):
        pass
    assert f"process {stranger} (" in str(refusal.value)
    assert "GPU 0 (GPU-a) is used by" in str(refusal.value)
    assert "GPU 1 (GPU-b) is used by" in str(refusal.value)
    if not os.geteuid():
        assert "nobody: process" in str(refusal.value)
        assert "(sleep 600)" in str(refusal.value)


def test_a_process_that_has_just_ended_keeps_no_gpu(nvidia: Nvidia, monkeypatch: pytest.MonkeyPatch) -> None:
    """`nvidia-smi` may name it for a moment longer."""
    ended = subprocess.Popen(["true"])
    ended.wait()
    nvidia.runs(("GPU-a", ended.pid))
    monkeypatch.setattr(devices.time, "sleep", lambda seconds: nvidia.runs())
    assert granted_now() == ("GPU-a", "GPU-b")


def test_a_process_that_is_not_visible_keeps_its_gpu(nvidia: Nvidia) -> None:
    """It runs in another container."""
    unused = 2**22 + 1  # above the highest process id of Linux
    nvidia.runs(("GPU-a", unused))
    assert granted_now() == ("GPU-b",)


def test_what_the_driver_of_the_gpus_cannot_tell_is_no_process(nvidia: Nvidia) -> None:
    (nvidia.program.parent / "uses").write_text("GPU-a, [N/A], [N/A]\n\n")
    assert granted_now() == ("GPU-a", "GPU-b")


def test_two_rays_of_one_user_never_have_the_same_gpu(nvidia: Nvidia) -> None:
    with locked_by_another() as other:
        with pytest.raises(NoCluster, match=rf"GPU 0 \(GPU-a\) is used by .*: process {other} \("):
            granted_now()
        nvidia.has("GPU-a", "GPU-b", "GPU-c")
        assert granted_now() == ("GPU-c",)
    assert granted_now() == ("GPU-a", "GPU-b", "GPU-c"), "a killed process holds no lock"


def test_who_finds_every_gpu_taken_asks_for_one_and_gets_it_from_a_ray_that_is_unused(
    nvidia: Nvidia, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "HANDOVER_SECONDS", 60.0)
    assert not wanted(("GPU-a", "GPU-b"))
    reading, writing = os.pipe()
    if (keeper := os.fork()) == 0:
        try:
            with granted(TWO) as grant:
                os.write(writing, b"locked")
                while not wanted(grant.uuids):
                    time.sleep(0.05)
        finally:
            os._exit(0)
    assert os.read(reading, 6) == b"locked"
    assert granted_now() == ("GPU-a", "GPU-b")
    os.waitpid(keeper, 0)
    assert not wanted(("GPU-a", "GPU-b")), "the request ends with the wait"
    assert not wanted(())


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user")
def test_two_users_never_have_the_same_gpu(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other user has created the folder and the files, under a strict umask."""
    temporary.chmod(0o1777)
    Nvidia(temporary / "nvidia", monkeypatch)
    with locked_by_another(NOBODY) as other:
        assert (temporary / "locks" / "GPU-a").stat().st_uid == NOBODY
        with pytest.raises(NoCluster, match=f"is used by nobody: process {other}"):
            granted_now()
    assert granted_now() == ("GPU-a", "GPU-b")


def test_a_child_that_inherits_the_files_holds_the_locks(nvidia: Nvidia) -> None:
    """As the head of a Ray does, after the driver that has started it."""
    with granted(TWO) as grant:
        head = subprocess.Popen(["sleep", "600"], pass_fds=grant.descriptors)
        grant.name(head.pid)
    with pytest.raises(NoCluster, match=rf"process {head.pid} \(sleep 600\)"):
        granted_now()
    folder = os.open(os.environ["SWEEP_DEVICE_LOCKS"], os.O_RDONLY)
    with pytest.raises(BlockingIOError):  # as `systemd-tmpfiles` tries before it deletes old files
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(folder)
    head.kill()
    head.wait()
    assert granted_now() == ("GPU-a", "GPU-b")


def test_a_grant_survives_the_command_line() -> None:
    grant = Grant(("GPU-a", "GPU-b"), (4, 5), 3)
    assert Grant.parsed(grant.text) == grant
    assert Grant.parsed(Grant().text) == Grant()


def test_a_ray_lacks_a_gpu_only_if_one_is_free(nvidia: Nvidia, stranger: int) -> None:
    nvidia.runs(("GPU-b", stranger))
    with granted(TWO) as grant:
        assert grant.uuids == ("GPU-a",)
        assert not has_more(grant.uuids, TWO)
        nvidia.runs()
        assert has_more(grant.uuids, TWO)
    assert not has_more(("GPU-a", "GPU-b"), TWO), "it has all"
    assert not has_more((), TWO), "its GPUs are not locked"


def test_a_machine_without_nvidias_gpus_has_no_locks(nvidia: Nvidia, monkeypatch: pytest.MonkeyPatch) -> None:
    assert has_locks(TWO)
    assert not has_locks(Hardware(cpus=1, gpus=0))
    monkeypatch.setenv("SWEEP_HOST_DEVICES", "2")
    assert not has_locks(TWO)
    with granted(TWO) as grant:
        assert grant == Grant()


@pytest.mark.parametrize(
    ("program", "known"),
    [
        ("printf 'NVIDIA H200\\nNVIDIA H200\\n'", "8 cores, 2 NVIDIA H200s"),
        ("printf 'NVIDIA H200\\nNVIDIA A100\\n'", "8 cores, 2 GPUs"),
        ("exit 9", "8 cores, 2 GPUs"),
    ],
)
def test_gpus_of_one_model_are_described_by_it(nvidia: Nvidia, program: str, known: str) -> None:
    nvidia.program.write_text(f"#!/bin/sh\n{program}\n")
    assert described(Hardware(cpus=8, gpus=2)).startswith(f"{known}, ")


def test_hardware_without_gpus_and_that_of_a_cluster_is_described(nvidia: Nvidia) -> None:
    assert described(Hardware(cpus=1, gpus=0)).startswith("1 core, no GPU, ")
    nodes = Hardware.of([Node(4, 0), Node(16, 8)])
    assert described(nodes) == "a cluster of 2 nodes, of up to 16 cores, 8 GPUs"


def test_a_driver_of_the_gpus_that_does_not_answer_is_named(nvidia: Nvidia) -> None:
    nvidia.program.write_text("#!/bin/sh\nexit 9\n")
    with pytest.raises(NoCluster, match=r"`nvidia-smi` does not answer.*exit status 9"):
        granted_now()


@pytest.mark.parametrize("content", ["12; rm -rf", "9" * 20, "\x1b[2J", ""])
def test_what_another_user_writes_into_a_lock_is_not_trusted(nvidia: Nvidia, content: str) -> None:
    with locked_by_another():
        (Path(os.environ["SWEEP_DEVICE_LOCKS"]) / "GPU-a").write_text(content)
        with pytest.raises(NoCluster) as refusal:
            granted_now()
    line = str(refusal.value)
    assert "GPU 0 (GPU-a) is used by another" in line
    assert line.isprintable()


def test_a_folder_that_others_could_have_prepared_is_refused(nvidia: Nvidia, tmp_path: Path) -> None:
    folder = Path(os.environ["SWEEP_DEVICE_LOCKS"])
    folder.mkdir(mode=0o755)
    with pytest.raises(NoCluster, match="mode 755"):
        granted_now()
    folder.chmod(0o1777)
    (tmp_path / "target").write_text("kept")
    (folder / "GPU-a").symlink_to(tmp_path / "target")
    with pytest.raises(NoCluster, match="symbolic links"):
        granted_now()
    assert (tmp_path / "target").read_text() == "kept"
    (folder / "GPU-a").unlink()
    os.mkfifo(folder / "GPU-a")
    with pytest.raises(NoCluster, match="not a regular file"):
        granted_now()


@pytest.mark.end_to_end
@pytest.mark.ray
@pytest.mark.slow
def test_a_ray_has_the_free_gpus_until_it_ends(
    nvidia: Nvidia, stranger: int, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One GPU is another user's. A second Ray of this user is refused, until the head is killed."""
    nvidia.runs(("GPU-a", stranger))
    monkeypatch.setenv("SWEEP_RAY_LINGER", "0")
    monkeypatch.setenv("SWEEP_RUNTIME", str(temporary / "1"))
    with joining.joined(TWO, environment.of_head()) as head:
        assert head.devices == ("GPU-b",)
        assert Head.read(runtime_folder()) == head
        assert environment_of(head.pid)["CUDA_VISIBLE_DEVICES"] == "GPU-b"
        monkeypatch.setenv("SWEEP_RUNTIME", str(temporary / "2"))
        with (
            pytest.raises(NoCluster, match=rf"GPU-b\) is used by .*process {head.pid} \("),
            joining.joined(TWO, environment.of_head()),
        ):
            pass
        os.kill(head.pid, signal.SIGKILL)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            try:
                assert granted_now() == ("GPU-b",)
                break
            except NoCluster:
                time.sleep(0.1)
        else:
            pytest.fail("the lock outlives the head")
        monkeypatch.setenv("SWEEP_RUNTIME", str(temporary / "1"))
    assert running(runtime_folder()) is None


@pytest.mark.end_to_end
@pytest.mark.ray
@pytest.mark.slow
def test_an_unused_ray_ends_at_once_if_another_one_needs_its_gpu(
    nvidia: Nvidia, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would stay for ten minutes otherwise."""
    monkeypatch.setattr(devices, "HANDOVER_SECONDS", 60.0)
    monkeypatch.setenv("SWEEP_RAY_LINGER", "600")
    monkeypatch.setenv("SWEEP_RUNTIME", str(temporary / "1"))
    with joining.joined(TWO, environment.of_head()) as first:
        assert first.devices == ("GPU-a", "GPU-b")
    assert first.lives()
    monkeypatch.setenv("SWEEP_RUNTIME", str(temporary / "2"))
    with joining.joined(TWO, environment.of_head()) as second:
        assert second.devices == first.devices
        assert not first.lives()
    joining.end_shared_ray()


@pytest.mark.end_to_end
@pytest.mark.ray
@pytest.mark.slow
def test_a_ray_of_trials_without_gpus_starts_where_all_gpus_are_taken(
    nvidia: Nvidia, stranger: int, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sees no GPU; further sweeps without GPUs join it, and one with GPUs gets a Ray of its own later."""
    nvidia.runs(("GPU-a", stranger), ("GPU-b", stranger))
    monkeypatch.setenv("SWEEP_RAY_LINGER", "60")
    monkeypatch.setenv("SWEEP_RUNTIME", str(temporary))
    with pytest.raises(NoCluster, match="one must be free"), joining.joined(TWO, environment.of_head()):
        pass
    with joining.joined(TWO, environment.of_head(), needs_gpu=False) as head:
        assert environment_of(head.pid)["CUDA_VISIBLE_DEVICES"] == ""
        assert "--num-gpus=0" in Path(f"/proc/{head.pid}/cmdline").read_text().split("\0")
        with joining.joined(TWO, environment.of_head(), needs_gpu=False) as same:
            assert same == head
        with pytest.raises(NoCluster, match="gpus 0"), joining.joined(TWO, environment.of_head()):
            pass
    nvidia.runs(("GPU-a", stranger))
    with joining.joined(TWO, environment.of_head()) as other:
        assert other.devices == ("GPU-b",)
    joining.end_shared_ray()


def environment_of(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    return dict(line.split("=", 1) for line in lines if "=" in line)
