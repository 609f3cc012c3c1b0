"""What other processes of the same user can read of the secrets of a process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator import concealment

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux shows the environment of a process"
)

SECRETS = {
    "SOME_TOKEN": "canary-token",
    "DATABASE": "postgresql://me:canary-database@host/x",
    "TEAM_WEBHOOK": "http://hook/canary-webhook",
    "EMPTY_PASSWORD": "",
}
OPEN = {"OPEN": "http://host/x", "PYTHONPATH": str(Path.cwd())}
PRINT = """
import ctypes, json, os, sys
from pathlib import Path
from orchestrator import concealment
if sys.argv[1] == "begin":
    concealment.begin()
    concealment.begin()  # a second time changes nothing
libc = ctypes.CDLL(None)
libc.getenv.restype = ctypes.c_char_p
print(json.dumps({
    "environment": dict(os.environ),
    "library": {name: (libc.getenv(name.encode()) or b"").decode() for name in os.environ},
    "arguments": sys.argv,
    "seen": [Path(f"/proc/self/{file}").read_text().split(chr(0)) for file in ("environ", "cmdline")],
    "rest": sys.stdin.read(),
}))
"""
ARGUMENTS = [
    "--notify",
    "http://hook/canary-notify",
    "--notify=mail canary",
    "--at=db://me:canary@host",
    "last",
]


def printed(verb: str, environment: dict[str, str], line: bytes = b"") -> dict[str, object]:
    """Return what a process prints that begins or does not, and what /proc shows of it."""
    done = subprocess.run(
        [sys.executable, "-c", PRINT, verb, *ARGUMENTS],
        input=line + b"the rest",
        env=environment,
        capture_output=True,
        check=True,
    )
    answer: dict[str, object] = json.loads(done.stdout)
    return answer


def test_a_process_that_conceals_nothing_shows_everything() -> None:
    """The other tests look where secrets would be."""
    seen = str(printed("", {**SECRETS, **OPEN})["seen"])
    assert seen.count("canary") == 3 + 3


def test_a_process_conceals_the_secrets_that_it_was_started_with() -> None:
    answer = printed("begin", {**SECRETS, **OPEN})
    environment, words = answer["seen"]  # type: ignore[misc]
    assert "canary" not in str(answer["seen"])
    assert {"OPEN=http://host/x", f"SOME_TOKEN={'*' * 12}", "EMPTY_PASSWORD="} <= set(environment)
    hidden = ["--notify", "*" * 25, f"--notify={'*' * 11}", "*" * 24, "last", ""]
    assert words[-len(hidden) :] == hidden
    assert answer["arguments"][1:] == ["begin", *ARGUMENTS]  # type: ignore[index]
    for known in (answer["environment"], answer["library"]):
        assert {**SECRETS, **OPEN}.items() <= known.items()  # type: ignore[attr-defined]


def test_a_process_receives_secrets_through_its_standard_input() -> None:
    environment, line = concealment.parted({**SECRETS, **OPEN})
    assert environment == {**OPEN, concealment.HANDED: "1"}
    answer = printed("begin", environment, line)
    assert "canary" not in str(answer["seen"])
    assert {**SECRETS, **OPEN}.items() <= answer["environment"].items()  # type: ignore[attr-defined]
    assert concealment.HANDED not in answer["environment"]  # type: ignore[operator]
    assert answer["rest"] == "the rest"
