"""Conceals secrets of a process from other processes of the same user, which can read /proc.

Linux shows the environment and the arguments with which a process was started while it runs, whatever it has
changed since. A trial's code runs as the same user and could read there the passwords of the driver, of the
service and of the process that delivers to MLflow. Each of these processes therefore overwrites its own
secrets when it starts, and sends them to its children through a pipe, as the first line of their standard
input. The memory of the process stays readable, as that of any process of the user.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

_USER_OF_URL = re.compile(r"(?<=://)[^/?#\s]*@")
_NAMED_SECRET = re.compile(
    r"SECRET|TOKEN|PASS(W|PHRASE|$)|_PWD$|CREDENTIAL|KEYS?$|WEBHOOK|CONNECTION_STRING|^SWEEP_(NOTIFY(_\w+)?|SMTP)$",
    re.IGNORECASE,
)
_NAMED_SETTING = re.compile(
    r"TOKENIZER|(MAX|MIN|NUM|N|NEW|TOTAL|CONTEXT|SPECIAL|STOP|PAD|BATCH)_(\w+_)?TOKENS$|(BY|COM)PASS$"
    r"|(PRIMARY|FOREIGN|SORT|HOT|CACHE|PARTITION)_?KEYS?$|(MON|DON)KEYS?$",
    re.IGNORECASE,
)
"""Pattern of harmless names that contain a word of `_NAMED_SECRET`."""
_PLAIN = re.compile(
    r"true|false|yes|no|on|off|none|null|auto|[-+]?\d{1,6}|[-+]?\d{0,6}\.\d{1,6}(e[-+]?\d{1,3})?",
    re.IGNORECASE,
)
_NAMED_PATH = re.compile(r"(PATH|FILE|DIR|FOLDER)$", re.IGNORECASE)
SHORTEST = 8
"""Minimum length of a secret; redacting shorter values would change ordinary words."""


def redacted(text: str, secrets: Sequence[str] | None = None) -> str:
    """Return a text without secrets, and without the users and passwords of addresses.

    Example:

        redacted("postgresql://ada:secret@host/sweeps")  # "postgresql://host/sweeps"

    Args:
        text: Text to show or store.
        secrets: Result of `secrets_of_environment`, to redact many texts; None to look them up.
    """
    for secret in secrets_of_environment() if secrets is None else secrets:
        text = text.replace(secret, "***")
    return _USER_OF_URL.sub("", text)


def secrets_of_environment() -> list[str]:
    """Return the values of variables that are named like a secret, except for paths."""
    named = [(name, os.environ.get(name, "")) for name in os.environ if is_named_secret(name)]
    long = [(name, value) for name, value in named if len(value) >= SHORTEST]
    return [value for name, value in long if not is_plain(value) and not _is_path(name, value)]


@cache  # called with every name of the environment for every event and log line
def is_named_secret(name: str) -> bool:
    """Return True if a variable with this name contains a secret, unless its value is plain."""
    return bool(_NAMED_SECRET.search(name)) and not _NAMED_SETTING.search(name)


def is_plain(value: str) -> bool:
    """Return True if a value is a flag or a short number, and therefore not a secret, whatever its name."""
    return bool(_PLAIN.fullmatch(value))


def _is_path(name: str, value: str) -> bool:
    # A secret in base64 can also begin with a slash.
    return bool(_NAMED_PATH.search(name)) or (value.startswith("/") and Path(value).exists())


HANDED = "SWEEP_SECRETS"
"""Environment variable of a process that reads more variables, as JSON, from the first line of standard
input."""

NOTIFY = "--notify"
"""Option with a secret value, because anyone with the address of a webhook can post messages."""

_BEFORE_TARGET = frozenset({NOTIFY.encode(), b"notify"})
"""Words of a command line before the target of notifications: the option, and the verb."""

VARIABLES = "SWEEP_VARIABLES"
"""Environment variable: comma-separated names of further variables for trials."""

LEFT_OUT = "SWEEP_LEFT_OUT"
"""Environment variable of a worker: names of the driver's variables that were not passed on to it."""

OWN = ("RAY_", "SWEEP_", "TUNE_")
"""Prefixes of the service's own variables."""

_OF_ANOTHER_PROCESS = frozenset({"PWD", "OLDPWD", "SHLVL", "COLUMNS", "LINES", "_", "PYTHONSAFEPATH"})
"""Variables that describe a process itself: its folder, its terminal, its program, its path."""

_OF_TRAINING = re.compile(
    # of an account and its programs
    r"PATH|HOME|USER|LOGNAME|SHELL|LANG(UAGE)?|LC_\w+|TZ|TERM|TMPDIR|TEMP|TMP|HOSTNAME|DISPLAY|CI|LOG_?LEVEL"
    r"|(NO|FORCE|CLICOLOR|COLOR)_?(COLOR|TERM|FORCE)|TTY_\w+|MPL\w+|TQDM_\w+|XDG_(CACHE|CONFIG|DATA|STATE)_HOME"
    r"|PYTHON\w*|VIRTUAL_ENV\w*|CONDA_\w+|PYENV_\w+|UV_\w+|LD_\w+|DYLD_\w+|GLIBC_\w+|MALLOC_\w+"
    # of devices and of libraries that compute
    r"|(CUDA|CUDNN|CUBLAS|NVIDIA|ROCR|ROCM|HIP|HSA|GPU|TPU|LIBTPU|XLA|JAX|JAXLIB|FLAX|ORBAX|TF|KERAS|TORCH|TORCHINDUCTOR"
    r"|PYTORCH|TRITON|NCCL|GLOO|UCX|OMPI|PMI|OMP|GOMP|KMP|MKL|OPENBLAS|BLIS|VECLIB|NUMEXPR|NUMBA|ACCELERATE|DEEPSPEED"
    r"|SLURM|HYDRA|PL|LIGHTNING)_\w+|RANK|WORLD_SIZE|LOCAL_\w+|MASTER_(ADDR|PORT)"
    # of libraries of models, data and results
    r"|(HF|HUGGINGFACE|TRANSFORMERS|DATASETS|DIFFUSERS|TOKENIZERS|WANDB|MLFLOW)_\w+|TOKENIZER"
    # of networks and stores
    r"|(HTTPS?|FTP|ALL|NO)_PROXY|DATABASE(_URL)?|AWS_(DEFAULT_)?(REGION|PROFILE)|AWS_ENDPOINT_URL(_\w+)?",
    re.IGNORECASE,
)
"""Pattern of variables that training may need and that contain no secret, unless they are named like one."""

_OF_ACCESS = re.compile(
    r"MLFLOW_TRACKING_(USERNAME|AUTH)|WANDB_API\w*|SLURM_JWT|SSH_\w+|GPG_\w+|KRB5\w+|DBUS_\w+|XAUTHORITY",
    re.IGNORECASE,
)
"""Pattern of variables that give access to other systems, such as the socket of an agent."""

_SECRET_OF_QUERY = re.compile(r"://\S*[?&;]\w*(token|key|secret|pass|pwd|sig|auth|cred)\w*=", re.IGNORECASE)

_BLOCKS = {"arguments": (45, 46), "environment": (47, 48)}
"""Fields of /proc/self/stat, after the name of the program, with the start and the end of each block."""


def is_secret(name: str, value: str) -> bool:
    """Return True if a variable contains a secret, by its name or as an address with a user or a password.

    A flag or a short number, such as the value of `MAX_TOKENS`, is not secret.
    """
    named = is_named_secret(name) and not is_plain(value)
    return named or redacted(value, secrets=()) != value or bool(_SECRET_OF_QUERY.search(value))


def of_trials(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables without secrets that a trial may have; `left_out` names the others.

    They are those that training is known to need, those of the service, and those with a harmless value: a
    flag, a number, a value too short for a secret, a path. Addresses lose their users and passwords.
    """
    names = environment.keys() - _OF_ANOTHER_PROCESS
    open_ = {name: redacted(environment[name], secrets=()) for name in names}
    return {name: value for name, value in open_.items() if _is_open(name, value)}


def _is_open(name: str, value: str) -> bool:
    if is_secret(name, value) or _OF_ACCESS.fullmatch(name):
        return False
    known = name.startswith(OWN) or bool(_OF_TRAINING.fullmatch(name))
    return known or is_plain(value) or len(value) < SHORTEST or _is_existing_path(value)


def _is_existing_path(value: str) -> bool:
    """Return True if a value is one or several paths in folders that exist."""
    paths = [Path(path) for path in value.split(os.pathsep)]
    # A secret in base64 may begin with a slash, but its part before the next slash is not a folder.
    folders = [path if path.parent == Path("/") else path.parent for path in paths]
    try:
        return all(folder.is_absolute() and folder.is_dir() for folder in folders)
    except OSError:
        return False  # not accessible, or too long for a path


def asked_for(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that `VARIABLES` names, except for the service's own."""
    names = [name.strip() for name in environment.get(VARIABLES, "").split(",")]
    return {name: environment[name] for name in names if name in environment and not name.startswith(OWN)}


def left_out(environment: Mapping[str, str]) -> list[str]:
    """Return the names of the variables that a trial does not get, except for those of the service."""
    given = of_trials(environment).keys() | asked_for(environment).keys() | _OF_ANOTHER_PROCESS
    return sorted(name for name in environment.keys() - given if not name.startswith(OWN))


def left_out_notice(further: Iterable[str]) -> str:
    """Return a line for the log of a trial with the variables that its process does not get, or ''.

    Args:
        further: Names of variables of this process that the trial does not get.
    """
    of_driver = {name for name in os.environ.get(LEFT_OUT, "").split(",") if name} - os.environ.keys()
    names = ",".join(sorted(of_driver | {*further}))
    passes = f"{VARIABLES}=NAME,... passes those that it names"
    return f"not passed on, since they may hold secrets: {names}; {passes}" if names else ""


def parted(environment: Mapping[str, str]) -> tuple[dict[str, str], bytes]:
    """Separate the secrets from the environment of a new process, which must call `begin` first.

    Args:
        environment: All variables of the process.

    Returns:
        The environment to start it with, and the bytes to write to its standard input first.
    """
    secret = {name: value for name, value in environment.items() if is_secret(name, value)}
    return {**without_secrets(environment), HANDED: "1"}, json.dumps(secret).encode() + b"\n"


def run_module(
    module: str,
    *words: str,
    environment: Mapping[str, str],
    given: object = None,
    timeout: float | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run an own module in another process, which must call `begin` first; return its output.

    Args:
        module: Name of the module.
        words: Arguments without secrets.
        environment: All variables of the process.
        given: Document for its standard input, as JSON; None for none.
        timeout: Seconds after which the process is killed; None for no limit.

    Raises:
        subprocess.TimeoutExpired: The process has taken longer.
    """
    variables, secrets = parted(environment)
    return subprocess.run(
        [sys.executable, "-m", module, *words],
        input=secrets.decode() + ("" if given is None else json.dumps(given)),
        env=variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
    )


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables without secrets."""
    return {name: value for name, value in environment.items() if not is_secret(name, value)}


def begin() -> None:
    """Read the variables that the parent of this process sends, and conceal all secrets.

    Call this before anything reads standard input.
    """
    if os.environ.pop(HANDED, None) is not None:
        os.environ.update(json.loads(_first_line()))
    conceal()


def conceal() -> None:
    """Overwrite the secrets in the variables and arguments with which this process was started.

    `os.environ`, `getenv` and `sys.argv` do not change. Does nothing without /proc.
    """
    if sys.platform != "linux":
        return
    for name, value in os.environ.items():
        if is_secret(name, value):
            os.environ[name] = value  # copies it out of the block, for libraries that call `getenv`
    fields = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    for kind, (first, last) in _BLOCKS.items():
        start, end = int(fields[first]), int(fields[last])
        block = ctypes.string_at(start, end - start) if start else b""
        words = block.split(b"\0")
        spans = _secret_variables(words) if kind == "environment" else _secret_arguments(words)
        offsets = [0]
        for word in words:
            offsets.append(offsets[-1] + len(word) + 1)
        for index, skipped in spans:
            ctypes.memset(start + offsets[index] + skipped, ord("*"), len(words[index]) - skipped)


def _secret_variables(words: Sequence[bytes]) -> Iterator[tuple[int, int]]:
    """Yield the index of each word with a secret, and the number of its first bytes that are not secret."""
    for index, word in enumerate(words):
        name, equals, value = word.partition(b"=")
        if equals and is_secret(os.fsdecode(name), os.fsdecode(value)):
            yield index, len(name) + 1


def _secret_arguments(words: Sequence[bytes]) -> Iterator[tuple[int, int]]:
    for index, word in enumerate(words):
        text = os.fsdecode(word)
        if text.startswith(f"{NOTIFY}="):
            yield index, len(NOTIFY) + 1
        elif (index > 0 and words[index - 1] in _BEFORE_TARGET) or redacted(text, secrets=()) != text:
            yield index, 0


def _first_line() -> bytes:
    """Read one line of standard input, and nothing after it."""
    line = b""
    while not line.endswith(b"\n"):
        more = os.read(0, 1)
        if not more:
            raise EOFError(f"standard input has ended before the line that {HANDED} announces")
        line += more
    return line
