"""Rewrite rows of a ledger until it is killed."""

import os
import sys

from orchestrator.ledger import backup, compaction, integrity
from orchestrator.ledger.ledger import Ledger
from tests.orchestrator.ledger.examples import SWEEP_ID

integrity.SHORT_LOG, integrity.LONG_LOG, compaction.ROWS_A_PART = 1000, 0.1, 5
steps = {"write": backup._line, "flush": os.fsync, "rename": backup.Path.replace, "end": backup.Log.replace}


def die_before(*arguments):
    os.kill(os.getpid(), 9)


def die_after(*arguments):
    steps["end"](*arguments)
    os.kill(os.getpid(), 9)


match sys.argv[2]:
    case "write":
        backup._line = die_before
    case "flush":
        os.fsync = die_before
    case "rename":
        backup.Path.replace = die_before
    case "end":
        backup.Log.replace = die_after
integrity.verify(Ledger.open(sys.argv[1]), SWEEP_ID)
