"""Preview of a sweep before it starts: the code that its trials run, and the sizes of its networks.

Another process counts the networks, because a driver does not import JAX.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from orchestrator import process_secrets
from orchestrator.config.imports.argparse_draft import options_of
from orchestrator.config.sweep_config import SweepConfig
from orchestrator.config.trainable import Trainable
from orchestrator.errors import BadInput, Unfinished
from orchestrator.placeholders import ARGUMENTS, NAME, names_in
from orchestrator.scripts.script_process import line_by_hand
from orchestrator.training import costs
from orchestrator.training.process import worker_environment
from trainables.cost import Cost
from trainables.data.task import Signature
from trainables.sources import parsed, source_of, text_of
from trainables.trial import ScriptSettings, TrialSettings

_PLAIN = re.compile(r"[^\s'\"\\$`|&;<>()*?]+")
"""Pattern of words that need no quotes."""


def runs(trainable: Trainable, searched: Collection[str]) -> list[str]:
    """Return lines that describe the code of a trial."""
    if isinstance(trainable.target, tuple):
        return list(_command(trainable, trainable.target, searched))
    return list(_reference(trainable, trainable.target, searched))


def _command(trainable: Trainable, words: Sequence[str], searched: Collection[str]) -> Iterator[str]:
    if trainable.shell:
        yield from f"/bin/sh -c {shlex.quote(words[0])}".splitlines()
        yield "by a shell, for which every value of a placeholder is quoted"
    else:
        line = " ".join(word if _PLAIN.fullmatch(word) else shlex.quote(word) for word in words)
        yield from line.splitlines()
        yield "without a shell: each word is one argument"
        yield f"program: {_program(words[0], trainable.folder)}"
    placed = sorted(names_in(words, shell=trainable.shell))
    has_all = ARGUMENTS in placed and ARGUMENTS not in searched
    own = [f"{{{name}}}" for name in placed if name not in (*searched, ARGUMENTS)]
    if has_all:
        yield f"{{{ARGUMENTS}}} stands for {' '.join(f'--{name}=...' for name in sorted(searched))}"
    if drawn := [f"{{{name}}}" for name in placed if name in searched]:
        yield f"placeholders of hyperparameters: {', '.join(drawn)}"
    if own:
        yield f"placeholders of the trial: {', '.join(own)}"
    if not has_all and (others := [name for name in searched if name not in placed]):
        yield f"only in the file SWEEP_PARAMS and in variables SWEEP_PARAM_...: {', '.join(others)}"
    yield f"in {trainable.folder}"
    yield from _warnings(trainable, words, searched if has_all else ())


def _warnings(trainable: Trainable, words: Sequence[str], in_args: Collection[str]) -> Iterator[str]:
    """Yield warnings about values that a script's options would misread, if its source declares them.

    Args:
        trainable: A command.
        words: Words of the command.
        in_args: Hyperparameters that `{args}` stands for.
    """
    scripts = (Path(trainable.folder, word) for word in words if word.endswith(".py") and "{" not in word)
    script = next((file for file in scripts if file.is_file()), None)
    try:
        options = options_of(text_of(script), script.name) if script is not None else []
    except (BadInput, OSError, SyntaxError, ValueError):
        return
    kinds = {option.flag: option.kind for option in options}
    given = [(f"--{name}", name) for name in sorted(in_args)]
    for flag, name in (*given, *_SET_BY_WORDS.findall(" ".join(words))):
        if kinds.get(flag) == "bool":
            text = f"{{?{name}: {flag}=True}}"
            yield f'warning: {flag} has type=bool, which reads "False" as true: write "{text}"'
        elif flag not in kinds and (right := flag.replace("_", "-")) in kinds:
            yield f"warning: the script has {right}, not {flag}: write {right}={{{name}}}"


_SET_BY_WORDS = re.compile(rf"(?<!\S)(--?[A-Za-z][\w.-]*)[= ]\{{({NAME})(?::[^{{}}]*)?\}}(?!\S)")
"""Pattern of an option with a placeholder as its value, in one word or two."""


def by_hand(sweep: SweepConfig) -> str | None:
    """Return the command of the largest trial as a line for a shell, or None without a command."""
    if sweep.trainable is None or sweep.trainable.kind != "command":
        return None
    params = sweep.largest()
    settings = sweep.settings(params, sweep.trial_seed(0, params))
    assert isinstance(settings, ScriptSettings)
    return line_by_hand(settings)


def _program(word: str, folder: str) -> str:
    if "{" in word:
        return "named by a placeholder"
    # A relative path with a folder is below the working folder, where the process starts.
    found = shutil.which(str(Path(folder, word)) if "/" in word else word)
    return found or "looked for on the machine that runs the trial"


def _reference(trainable: Trainable, reference: str, searched: Collection[str]) -> Iterator[str]:
    module, _, name = reference.partition(":")
    file = source_of(module, Path(trainable.folder))
    is_readable = file is not None and file.suffix == ".py"
    node = _defined(file, name) if file is not None and is_readable else None
    line = f", line {node.lineno}" if node is not None else ""
    where = f"{file}{line}" if file is not None else f"module {module}"
    if trainable.kind == "function":
        yield f"{name}(trial) of {where}"
        yield f"in a process of its own: {sys.executable}"
    else:
        bases = ", ".join(ast.unparse(base) for base in node.bases) if isinstance(node, ast.ClassDef) else ""
        yield f"class {name}({bases}) of {where}, in the slots of an engine"
        if isinstance(node, ast.ClassDef):
            methods = [one.name for one in node.body if isinstance(one, ast.FunctionDef)]
            yield f"functions that it defines: {', '.join(methods) or 'none'}"
        free = [one for one in searched if one in trainable.free]
        static = [one for one in searched if one not in trainable.free]
        yield f"traced numbers, of which another value compiles nothing: {', '.join(free) or 'none'}"
        compiled = "arguments of __init__, of which another value is another program"
        yield f"{compiled}: {', '.join(static) or 'none'}"
    yield f"in {trainable.folder}"


def _defined(file: Path, name: str) -> ast.FunctionDef | ast.ClassDef | None:
    """Return the definition of a name at the top level of a file, or None if it is bound in another way."""
    body = parsed(text_of(file), str(file)).body
    defined = (
        node for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name
    )
    return next(defined, None)


_MODULE = costs.__name__


def counted(settings: Sequence[TrialSettings], signature: Signature, *, work: bool = False) -> list[Cost]:
    """Return the size of each network; nothing is written.

    Args:
        settings: Settings of the trials.
        signature: Signature of their task.
        work: Whether to count the FLOPs of a training step too, which compiles each network.

    Raises:
        BadInput: A network cannot be built.
        Refusal: The process has answered for other trials.
        Unfinished: The process was killed by a signal, or has run out of memory.
    """
    named = {str(number): one for number, one in enumerate(settings)}
    document = {
        "settings": {name: asdict(one) for name, one in named.items()},
        "signature": asdict(signature),
        "compiled": work,
    }
    environment = {**os.environ, **worker_environment(0)}
    done = process_secrets.run_module(_MODULE, environment=environment, given=document)
    if done.returncode != 0:
        _check_end(done)
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise BadInput("model", f"cannot be built: {lines[-1]}", "", "Change its options.")
    answer = json.loads(done.stdout)
    costs.check_names(answer, named)
    return [Cost.from_document(answer[name]) for name in named]


def _check_end(done: subprocess.CompletedProcess[str]) -> None:
    if done.returncode < 0:
        got = signal.Signals(-done.returncode).name
    elif "MemoryError" in done.stderr:
        got = "too little memory"
    else:
        return
    must = "cannot be counted, because the counting process was killed"
    raise Unfinished("model", must, got, "Search fewer networks, or allow more memory or time.")
