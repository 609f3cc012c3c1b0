"""Many trials in one compiled program: `Engine` holds K slots of one static choice on one device."""

from trainables.engine.engine import Engine
from trainables.engine.programs import data_of
from trainables.engine.report import TrainReport
from trainables.engine.size import Size, choose_slots

__all__ = ["Engine", "Size", "TrainReport", "choose_slots", "data_of"]
