"""A stand-in for `nvidia-smi`: an executable that answers from two files, which a test writes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from orchestrator.machines import devices

PROGRAM = """#!/bin/sh
case "$*" in
  "--query-gpu=index,uuid --format=csv,noheader,nounits") exec cat {folder}/gpus ;;
  "--query-compute-apps=gpu_uuid,pid,used_memory --format=csv,noheader,nounits") exec cat {folder}/uses ;;
esac
echo "Field \\"$1\\" is not a valid field to query." >&2
exit 2
"""


class Nvidia:
    """GPUs of a machine that has none.

    Args:
        folder: Folder for the program and its answers.
        patch: Puts the program on the `PATH` of this process and its children.
    """

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        folder.mkdir()
        self.program = folder / "nvidia-smi"
        self.program.write_text(PROGRAM.format(folder=folder))
        self.program.chmod(0o755)
        patch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        patch.setenv("SWEEP_DEVICE_LOCKS", str(folder.with_name("locks")))
        patch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        patch.delenv("SWEEP_HOST_DEVICES", raising=False)
        patch.setattr(devices, "HANDOVER_SECONDS", 0.0)  # what has a GPU in a test does not leave
        self.has("GPU-a", "GPU-b")
        self.runs()

    def has(self, *uuids: str) -> None:
        """Let the machine have these GPUs."""
        lines = [f"{index}, {uuid}\n" for index, uuid in enumerate(uuids)]
        (self._folder / "gpus").write_text("".join(lines))

    def runs(self, *uses: tuple[str, int]) -> None:
        """Let processes compute on GPUs.

        Args:
            uses: UUID of a GPU, and a process.
        """
        lines = [f"{uuid}, {pid}, 512\n" for uuid, pid in uses]
        (self._folder / "uses").write_text("".join(lines))
