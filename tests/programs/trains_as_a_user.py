"""A function that is trained under the account of the user who sent it."""

import json
import os
from pathlib import Path


def attempt(path):
    try:
        with Path(path).open("rb") as file:
            file.read(1)
    except OSError as error:
        return type(error).__name__
    return "read"


def of_root(name):
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if folder.stat().st_uid == 0 and b"orchestrator" in (folder / "cmdline").read_bytes():
                yield str(folder / name)
        except OSError:
            pass


def look(owner, other, ledger):
    named = [other, ledger, "/etc/shadow"]
    named += [path for name in ("environ", "mem", "maps") for path in of_root(name)]
    found = {path: attempt(path) for path in named}
    found["uid"], found["groups"], found["owner"] = os.getuid(), os.getgroups(), owner
    Path("seen.json").write_text(json.dumps(found))


def train(trial):
    look(*Path("arguments").read_text().split())
    (trial.folder / "model").mkdir()
    (trial.folder / "model" / "weights").write_text("1")
    trial.report(2, {"val/loss": 1.0}, checkpoint=trial.folder / "model")


if __name__ == "__main__":
    import sweep_client

    train(sweep_client.trial())
