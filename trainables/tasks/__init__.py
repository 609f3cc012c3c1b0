"""The tasks by name; one file each."""

from __future__ import annotations

from trainables.tasks.base import Task
from trainables.tasks.listops import ListOps
from trainables.tasks.retrieval import Retrieval

TASKS: dict[str, Task] = {task.name: task for task in (ListOps(), Retrieval())}
