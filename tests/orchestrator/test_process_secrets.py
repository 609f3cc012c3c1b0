"""What other processes of the same user can read of the secrets of a process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator import process_secrets

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
from orchestrator import process_secrets
if sys.argv[1] == "begin":
    process_secrets.begin()
    process_secrets.begin()  # a second time changes nothing
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
    "notify",
    "https://hook/canary-target",
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
    assert seen.count("canary") == 3 + 4


def test_a_process_conceals_the_secrets_that_it_was_started_with() -> None:
    answer = printed("begin", {**SECRETS, **OPEN})
    environment, words = answer["seen"]  # type: ignore[misc]
    assert "canary" not in str(answer["seen"])
    assert {"OPEN=http://host/x", f"SOME_TOKEN={'*' * 12}", "EMPTY_PASSWORD="} <= set(environment)
    hidden = ["--notify", "*" * 25, f"--notify={'*' * 11}", "*" * 24, "notify", "*" * 26, "last", ""]
    assert words[-len(hidden) :] == hidden
    assert answer["arguments"][1:] == ["begin", *ARGUMENTS]  # type: ignore[index]
    for known in (answer["environment"], answer["library"]):
        assert {**SECRETS, **OPEN}.items() <= known.items()  # type: ignore[attr-defined]


def test_a_process_receives_secrets_through_its_standard_input() -> None:
    environment, line = process_secrets.parted({**SECRETS, **OPEN})
    assert environment == {**OPEN, process_secrets.HANDED: "1"}
    answer = printed("begin", environment, line)
    assert "canary" not in str(answer["seen"])
    assert {**SECRETS, **OPEN}.items() <= answer["environment"].items()  # type: ignore[attr-defined]
    assert process_secrets.HANDED not in answer["environment"]  # type: ignore[operator]
    assert answer["rest"] == "the rest"


PASSED = {
    "HOME": "/home/ada",
    "LC_ALL": "C.UTF-8",
    "CUDA_VISIBLE_DEVICES": "GPU-5fe0a1b2-c3d4",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
    "OMP_NUM_THREADS": "1",
    "HF_HOME": "somewhere/else",
    "WANDB_MODE": "offline-for-now",
    "TOKENIZER": "bert-base-uncased",
    "TOKENIZERS_PARALLELISM": "false",
    "MAX_TOKENS": "2048",
    "N_TOKENS": "131072",
    "MY_FLAG": "true",
    "MY_WORD": "small",
    "MY_DATA": "/tmp/to-be-made",
    "MY_PATHS": "/tmp:/usr/share",
    "https_proxy": "http://proxy:3128",
    "AWS_REGION": "eu-central-1",
    "SWEEP_ROOT": "somewhere/else",
}
LEFT_OUT = {
    "AWS_ACCESS_KEY_ID": "AKIA-of-somebody",
    "AWS_SECRET_ACCESS_KEY": "/canary+in/base64",
    "HF_TOKEN": "hf_canary-of-a-hub",
    "WANDB_API_KEY": "canary-of-runs",
    "MLFLOW_TRACKING_PASSWORD": "canary-of-mlflow",
    "MLFLOW_TRACKING_USERNAME": "ada-lovelace",
    "DB_PASSWORD": "short",
    "TEAM_CHAT": "https://hooks.example.org/services/T0/B0/canary",
    "QUEUE": "amqp://host/x?password=canary",
    "DATABASE_URL": "postgresql://host/x?sslpassword=canary",
    "NAMED_LIKE_NOTHING": "canary-of-no-name",
    "SSH_AUTH_SOCK": "/tmp/agent",
    "JWT": "eyJh.eyJz.SflK",
}


def test_a_trial_has_what_training_needs_and_what_is_plainly_no_secret() -> None:
    of_processes = {
        "PWD": "/tmp",
        "OLDPWD": "/tmp",
        "SHLVL": "1",
        "COLUMNS": "80",
        "LINES": "24",
        "_": "/bin/sh",
    }
    everything = {**PASSED, **LEFT_OUT, **of_processes}
    assert process_secrets.of_trials(everything) == PASSED
    assert process_secrets.left_out(everything) == sorted(LEFT_OUT)


def test_addresses_lose_their_users() -> None:
    given = {"DATABASE_URL": "postgresql://me:canary@host/x", "HTTPS_PROXY": "http://me:canary@proxy:1"}
    assert process_secrets.of_trials(given) == {
        "DATABASE_URL": "postgresql://host/x",
        "HTTPS_PROXY": "http://proxy:1",
    }


def test_a_user_names_what_a_trial_is_to_have() -> None:
    """None of the service's own variables, which a sweep does not need."""
    asked = {**LEFT_OUT, "SWEEP_TOKEN": "canary-of-the-service", "RAY_AUTH_TOKEN": "canary-of-ray"}
    asked["SWEEP_VARIABLES"] = "HF_TOKEN, NOT_SET,SWEEP_TOKEN,RAY_AUTH_TOKEN"
    assert process_secrets.asked_for(asked) == {"HF_TOKEN": LEFT_OUT["HF_TOKEN"]}
    assert "HF_TOKEN" not in process_secrets.left_out(asked)
