"""The tasks that a search-space file can name, one class each."""

from __future__ import annotations

from trainables.data.task import Task
from trainables.registry import Registry


def _task(entry: object) -> Task:
    if not (isinstance(entry, type) and issubclass(entry, Task)):
        raise TypeError("it must be a subclass of trainables.data.task.Task")
    return entry()


TASKS: Registry[Task] = Registry(
    {
        "listops": "trainables.tasks.listops:ListOps",
        "text": "trainables.tasks.text:Text",
        "retrieval": "trainables.tasks.retrieval:Retrieval",
        "image": "trainables.tasks.image:Image",
        "pathfinder": "trainables.tasks.pathfinder.pathfinder:Pathfinder",
        "pathfinder16": "trainables.tasks.pathfinder.pathfinder:Pathfinder16",
        "pathx": "trainables.tasks.pathfinder.pathfinder:PathX",
        "speech_commands": "trainables.tasks.speech_commands:SpeechCommands",
        "smnist": "trainables.tasks.mnist:SequentialMnist",
        "psmnist": "trainables.tasks.mnist:PermutedMnist",
        "copy": "trainables.tasks.copy:Copy",
        "adding": "trainables.tasks.adding:Adding",
        "parity": "trainables.tasks.parity:Parity",
        "modular": "trainables.tasks.modular:Modular",
        "group_words": "trainables.tasks.group_words:GroupWords",
        "mqar": "trainables.tasks.mqar:Mqar",
        "selective_copy": "trainables.tasks.selective_copy:SelectiveCopy",
        "induction": "trainables.tasks.induction:Induction",
        "char_lm": "trainables.tasks.char_lm:CharLm",
    },
    "trainables.tasks",
    _task,
)
"""Tasks by name, those of installed packages included; a task is imported when its name is used."""
