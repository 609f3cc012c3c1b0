"""A command that looks for secrets in the processes of its sweep."""

import contextlib
import json
import os
import pathlib
import time

import sweep_client

words = json.loads(pathlib.Path("words.json").read_text())


def texts(process):
    for name in ("environ", "cmdline"):
        with contextlib.suppress(OSError):  # it has ended
            yield (process / name).read_bytes().decode(errors="replace")


def look():
    seen = {}
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        text = "".join(texts(process))
        found = [word for word in words["secrets"] if word in text]
        if found or words["mark"] in text:
            seen[process.name] = [text.replace("\0", " "), found]
    return seen


def parents():
    above, last = [], os.getpid()
    while last > 1:
        above.append(last)
        last = int(pathlib.Path(f"/proc/{last}/stat").read_text().rpartition(")")[2].split()[1])
    return above


seen = look()
while not all(any(part in text for text, _ in seen.values()) for part in words["awaited"]):
    time.sleep(0.2)
    seen = look()
answer = {"seen": seen, "parents": parents(), "own": dict(os.environ)}
pathlib.Path("seen.json").write_text(json.dumps(answer))
sweep_client.trial().report(1, {"val/loss": 1.0})
