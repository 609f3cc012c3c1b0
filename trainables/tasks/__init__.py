"""The tasks by name; one file each."""

from __future__ import annotations

from trainables.data.task import Task
from trainables.extensions import Registry
from trainables.tasks.adding import Adding
from trainables.tasks.copy import Copy
from trainables.tasks.image import Image
from trainables.tasks.listops import ListOps
from trainables.tasks.pathfinder.task import Pathfinder
from trainables.tasks.pathx import PathX
from trainables.tasks.psmnist import PermutedMnist
from trainables.tasks.retrieval import Retrieval
from trainables.tasks.smnist import SequentialMnist
from trainables.tasks.speech_commands import SpeechCommands
from trainables.tasks.text import Text


def _task(found: object) -> Task:
    if isinstance(found, type) and issubclass(found, Task):
        return found()
    if isinstance(found, Task):
        return found
    raise TypeError("it must be a trainables.data.task.Task")


TASKS: Registry[Task] = Registry(
    {
        task.name: task
        for task in (
            ListOps(),
            Text(),
            Retrieval(),
            Image(),
            Pathfinder(),
            PathX(),
            SpeechCommands(),
            SequentialMnist(),
            PermutedMnist(),
            Copy(),
            Adding(),
        )
    },
    "trainables.tasks",
    _task,
)
"""Every task that a search-space file can name, those of installed packages included."""
