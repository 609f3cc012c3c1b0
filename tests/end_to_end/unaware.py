"""Fit a line by gradient descent: a script with options, which was not written to be swept."""

import argparse
import json
import random
import time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.05)
parser.add_argument("--epochs", type=int, default=8)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--pause", type=float, default=0.0)
parser.add_argument("--out", default=".")
parser.add_argument("--resume", default=None)
options = parser.parse_args()

points = [(x / 10, 3 * x / 10 - 1) for x in range(-10, 11)]
state = {"epoch": 0, "slope": 0.0, "offset": 0.0}
if options.resume:
    state = json.loads(Path(options.resume).read_text())
for epoch in range(state["epoch"] + 1, options.epochs + 1):
    for x, y in random.Random(f"{options.seed}/{epoch}").sample(points, len(points)):
        error = state["slope"] * x + state["offset"] - y
        state["slope"] -= options.lr * error * x
        state["offset"] -= options.lr * error
    time.sleep(options.pause)
    state["epoch"] = epoch
    Path(options.out, f"epoch-{epoch}.json").write_text(json.dumps(state))
    loss = sum((state["slope"] * x + state["offset"] - y) ** 2 for x, y in points) / len(points)
    print(f"epoch {epoch}: val loss {loss:.9g}")  # noqa: T201 - how it shows its progress
