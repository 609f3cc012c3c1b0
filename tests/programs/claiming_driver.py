"""A driver that claims a share of a pool."""

import json
import random
import sys
import time
from pathlib import Path

from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.pool.claims import Amounts
from tests.orchestrator.ledger.test_claims import NODES, claims

url, sweep, log, seconds = sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4])
chance, held, ledger = random.Random(sweep), 0, Ledger.open(url)
own, end = claims(ledger, sweep, owner=sweep[0]), time.time() + seconds
with Path(log).open("a", buffering=1) as out:
    while time.time() < end:
        granted = own.start(NODES, Amounts(3, held, 0, 0))
        if granted is not None and granted[1]:
            held += 1
            uses, cores = granted[0].uses.values(), granted[0].capacity.cpu
            print(json.dumps([sum(use.trials for use in uses) * 10_000, cores]), file=out)
        elif held and chance.random() < 0.5:
            held -= 1
            own.renew(NODES, Amounts(3, held, 0, 0))
