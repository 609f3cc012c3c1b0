"""Many trials in one compiled program: `Engine` holds K slots of one static choice on one device."""

from trainables.engine.engine import Engine
from trainables.engine.report import TrainReport

__all__ = ["Engine", "TrainReport"]
