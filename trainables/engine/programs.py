"""The program and the data that an engine needs for the settings of a trial."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trainables.data.task import TaskData
from trainables.engine.custom import CustomProgram
from trainables.engine.network import NetworkProgram
from trainables.engine.slot_program import SlotProgram
from trainables.program import ProgramData, loaded
from trainables.tasks import TASKS
from trainables.trial import ProgramSettings, TrialSettings


def program_of(settings: TrialSettings | ProgramSettings, data: Any) -> SlotProgram:
    """Return the program of a static choice.

    Args:
        settings: Settings of any trial of the static choice.
        data: `TaskData` of a network, `ProgramData` of a user's program.

    Raises:
        Refusal: The user's program cannot be imported or constructed, or does not score every example.
    """
    if isinstance(settings, ProgramSettings):
        return CustomProgram.of(loaded(settings), settings, data)
    return NetworkProgram.of(settings, data.signature, data.train)


def data_of(settings: TrialSettings | ProgramSettings, folder: Path) -> TaskData | ProgramData:
    """Load the data of a trial's task, or of its program.

    Args:
        settings: Settings of the trial.
        folder: Folder of the data sets.

    Raises:
        BadData: The data cannot be read.
    """
    if isinstance(settings, ProgramSettings):
        return ProgramData.of(loaded(settings), folder)
    return TASKS[settings.task].load(settings.task_options, folder)
