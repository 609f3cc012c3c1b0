"""Search-space files that are refused, with the message for each."""

# ruff: noqa: E501 - each message is one line, as a user sees it

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from orchestrator.api.templates import write_for_script
from orchestrator.config import load, sections
from orchestrator.config.document import Mistake, flow
from orchestrator.config.yaml_reader import parse_document, parse_number
from orchestrator.errors import BadInput
from tests.orchestrator.config.files import VALID, edited, refused, written
from trainables.sources import digest_of

TRAINABLE = """
trainable: {CODE}
search: {rate: {uniform: [0, 1]}}
training: {steps: 1, interval: 1}
objective: {minimize: loss}
budget: {trials: 1}
"""
UNIFORM = "{uniform: [0.1, 0.9]}"
CHOICE = "choice: [0.99, 0.999]"
RATE = "log_uniform: [1e-5, 1e-2]"
THETA = "theta_init.max: {choice: [pi/10, 2*pi]}"
ASHA = "{asha: {reduction: 4, grace: 0.1}}"

# The text that is replaced in the valid file, its replacement, and the message after the file's name.
CASES = {
    "bound as text": (
        UNIFORM,
        "{uniform: ['0.1', 0.9]}",
        "7: search.gamma_init.min.uniform must be a number (got '0.1'). Remove the quotes.",
    ),
    "on as a flag": (
        "heads: 8,",
        "heads: 8, bidirectional: on,",
        "3: model.bidirectional must be true or false (got 'on'). For example bidirectional: true.",
    ),
    "no as a number": (
        "dropout: 0.1",
        "dropout: no",
        "3: model.dropout must be a number (got 'no'). For example dropout: 0.1.",
    ),
    "octal": (
        "depth: 2",
        "depth: 012",
        "3: model.depth must be a whole number (got '012'). For example depth: 6.",
    ),
    "date": (
        "depth: 2",
        "depth: 2024-01-01",
        "3: model.depth must be a whole number (got '2024-01-01'). For example depth: 6.",
    ),
    "true as a number": (
        "depth: 2",
        "depth: true",
        "3: model.depth must be a whole number (got true). For example depth: 6.",
    ),
    "list as a number": (
        "depth: 2",
        "depth: [2]",
        "3: model.depth must be a whole number (got [2]). For example depth: 6.",
    ),
    "low > high": (
        UNIFORM,
        "{uniform: [0.9, 0.1]}",
        "7: search.gamma_init.min.uniform: low <= high must hold (got [0.9, 0.1]). Write [0.1, 0.9].",
    ),
    "log of zero": (
        "log_uniform: [1e-5",
        "log_uniform: [0",
        "10: search.learning_rate.log_uniform: low > 0 must hold for a logarithm (got [0, 1e-2]). Raise it, or write uniform.",
    ),
    "log of less": (
        "log_uniform: [1e-5",
        "log_uniform: [-1",
        "10: search.learning_rate.log_uniform: low > 0 must hold for a logarithm (got [-1, 1e-2]). Raise it, or write uniform.",
    ),
    "nan": (
        UNIFORM,
        "{uniform: [.nan, 1]}",
        "7: search.gamma_init.min.uniform must be a finite number of 64 bits (got .nan). Write a finite number.",
    ),
    "nan as a word": (
        UNIFORM,
        "{uniform: [nan, 1]}",
        "7: search.gamma_init.min.uniform must be a number (got 'nan'). For example uniform: [0.1, 0.9].",
    ),
    "infinite": (
        RATE,
        "log_uniform: [1e-5, .inf]",
        "10: search.learning_rate.log_uniform must be a finite number of 64 bits (got .inf). Write a finite number.",
    ),
    "overflow": (
        RATE,
        "log_uniform: [1e-5, 1e999]",
        "10: search.learning_rate.log_uniform must be a finite number of 64 bits (got 1e999). Write a finite number.",
    ),
    "one end": (
        UNIFORM,
        "{uniform: [0.1]}",
        "7: search.gamma_init.min.uniform must be a list of two numbers (got [0.1]). For example uniform: [0.1, 0.9].",
    ),
    "three ends": (
        UNIFORM,
        "{uniform: [0.1, 0.2, 0.3]}",
        "7: search.gamma_init.min.uniform must be a list of two numbers (got [0.1, 0.2, 0.3]). For example uniform: [0.1, 0.9].",
    ),
    "no ends": (
        UNIFORM,
        "{uniform: 0.1}",
        "7: search.gamma_init.min.uniform must be a list of two numbers (got 0.1). For example uniform: [0.1, 0.9].",
    ),
    "step 0": (
        UNIFORM,
        "{uniform: [0.1, 0.9], step: 0}",
        "7: search.gamma_init.min.step must be above 0 (got 0). For example step: 0.1.",
    ),
    "step > range": (
        UNIFORM,
        "{uniform: [0.1, 0.9], step: 1}",
        "7: search.gamma_init.min.uniform: step <= high - low must hold (got [0.1, 0.9]). Write a step of at most 0.8.",
    ),
    "int with fractions": (
        THETA,
        "heads: {int: [1.5, 4]}",
        "9: search.heads.int must be a whole number (got 1.5). For example int: [2, 6].",
    ),
    "uniform for whole": (
        THETA,
        "heads: {uniform: [1, 4]}",
        "9: search.heads: heads is a whole number, at least 1 (got `uniform`). Write one of: int, log_int, power_of_two, choice.",
    ),
    "int for real": (
        UNIFORM,
        "{int: [0, 1]}",
        "7: search.gamma_init.min: gamma_init.min is a number between 0 and 1, both excluded (got `int`). Write one of: uniform, log_uniform, normal, log_normal, choice.",
    ),
    "empty choice": (
        CHOICE,
        "choice: []",
        "8: search.gamma_init.max.choice: a choice must have at least one value (got []). Write choice: [a, b].",
    ),
    "duplicate choice": (
        CHOICE,
        "choice: [0.99, 9.9e-1]",
        "8: search.gamma_init.max.choice: the values of a choice must differ (got [0.99, 9.9e-1]). Keep each once.",
    ),
    "mixed choice": (
        CHOICE,
        "choice: [0.99, on]",
        "8: search.gamma_init.max.choice: gamma_init.max must be a number between 0 and 1, both excluded (got on). For example gamma_init.max: 0.999.",
    ),
    "flag beside number": (
        CHOICE,
        "choice: [0.99, true]",
        "8: search.gamma_init.max.choice: gamma_init.max must be a number between 0 and 1, both excluded (got true). For example gamma_init.max: 0.999.",
    ),
    "nested choice": (
        CHOICE,
        "choice: [[0.99], [1]]",
        "8: search.gamma_init.max.choice: gamma_init.max must be a number between 0 and 1, both excluded (got [0.99]). For example gamma_init.max: 0.999.",
    ),
    "no distribution": (
        UNIFORM,
        "{}",
        "7: search.gamma_init.min must have exactly one of uniform, log_uniform, int, log_int, power_of_two, normal, log_normal, choice (got an empty mapping). For example gamma_init.min: {uniform: [0.1, 0.9]}.",
    ),
    "two distributions": (
        UNIFORM,
        "{uniform: [0, 1], choice: [1]}",
        "7: search.gamma_init.min must have exactly one of uniform, log_uniform, int, log_int, power_of_two, normal, log_normal, choice (got {uniform, choice}). For example gamma_init.min: {uniform: [0.1, 0.9]}.",
    ),
    "unknown distribution": (
        UNIFORM,
        "{uniforn: [0.1, 0.9]}",
        "7: search.gamma_init.min.uniforn is not a known key. Did you mean `uniform`?",
    ),
    "a value as search": (
        UNIFORM,
        "0.5",
        "7: search.gamma_init.min must be a mapping (got 0.5). For example gamma_init.min: {choice: [0.5]}.",
    ),
    "values as search": (
        UNIFORM,
        "[0.5, 0.6]",
        "7: search.gamma_init.min must be a mapping (got [0.5, 0.6]). For example gamma_init.min: {choice: [0.5, 0.6]}.",
    ),
    "a word as search": (
        UNIFORM,
        "uniform",
        "7: search.gamma_init.min must be a mapping (got 'uniform'). For example gamma_init.min: {uniform: [0.1, 0.9]}.",
    ),
    "nothing as search": (
        UNIFORM,
        "null",
        "7: search.gamma_init.min must be a mapping (got null). For example gamma_init.min: {uniform: [0.1, 0.9]}.",
    ),
    "a nested name": (
        f"gamma_init.min: {UNIFORM}",
        f"gamma_init: {{min: {UNIFORM}}}",
        "7: search.gamma_init.min is not a known key. Write a nested name with a dot, `gamma_init.min: ...`.",
    ),
    "outside its bounds": (
        UNIFORM,
        "{uniform: [0, 0.9]}",
        "7: search.gamma_init.min.uniform: gamma_init.min must be a number between 0 and 1, both excluded (got 0). For example gamma_init.min: 0.5.",
    ),
    "beyond its bounds": (
        CHOICE,
        "choice: [0.99, 1.1]",
        "8: search.gamma_init.max.choice: gamma_init.max must be a number between 0 and 1, both excluded (got 1.1). For example gamma_init.max: 0.999.",
    ),
    "ends may cross": (
        UNIFORM,
        "{uniform: [0.1, 0.995]}",
        "7: search.gamma_init.min: gamma_init.min < gamma_init.max must hold for every draw (got gamma_init.min up to 0.995 and gamma_init.max from 0.99). Keep gamma_init.min below 0.99, or gamma_init.max above 0.995.",
    ),
    "unknown section": (
        "evaluate:",
        "evalute:",
        "5: evalute is not a known key. Did you mean `evaluate`?",
    ),
    "unknown key of a budget": (
        "budget: {trials: 16}",
        "budget: {trials: 16, kind: 8}",
        "15: budget.kind is not a known key. There are: failures, gpu_hours, hours, no_improvement, target, trials.",
    ),
    "unknown section, of a name that the code has": (
        "evaluate:",
        "first:",
        "5: first is not a known key. There are: budget, confirm, constraints, data, evaluate, known, model, notify, objective, published, repeat, require, resources, sampler, scheduler, search, task, trainable, training, try, warm_start.",
    ),
    "unknown field": (
        "batch_size: 16",
        "batchsize: 16",
        "4: training.batchsize is not a known key. Did you mean `batch_size`?",
    ),
    "unknown layer key": (
        "heads: 8",
        "head: 8",
        "3: model.head is not a key of model or of the layer rotrnn. Did you mean `heads`?",
    ),
    "unknown search": (
        "learning_rate: {log_uniform: [1e-5",
        "lerning_rate: {log_uniform: [1e-5",
        "10: search.lerning_rate is not a hyperparameter of a trial with the layer rotrnn. Did you mean `learning_rate`?",
    ),
    "unsearchable": (
        "learning_rate: {log_uniform: [1e-5, 1e-2]}",
        "steps: {int: [1, 2]}",
        "10: search.steps is not a hyperparameter of a trial with the layer rotrnn. There are: activations, algorithm, basis, batch_size, bidirectional, clip, d_model, d_state, depth, dropout, encoder, gamma_init.max, gamma_init.min, gate, groups, heads, init, label_smoothing, layer, learning_rate, mixing, norm, norm_position, normalisation, optimizer, pooling, recurrent_learning_rate, schedule, seed, short_conv, theta_init.max, theta_init.min, train_gamma, train_theta, warmup, warmup_epochs, weight_decay.",
    ),
    "unknown task": (
        "task: listops",
        "task: listop",
        "1: task must name a task (got 'listop'). Did you mean `listops`?",
    ),
    "unknown layer": (
        "layer: rotrnn",
        "layer: rotnn",
        "3: model.layer must name a layer (got `rotnn`). Did you mean `rotrnn`?",
    ),
    "unknown task option": (
        "{length: 2048}",
        "{lenght: 2048}",
        "2: data.lenght is not an option of listops. Did you mean `length`?",
    ),
    "task option of another type": (
        "{length: 2048}",
        "{length: long}",
        "2: data.length must be a whole number, at least 8 (got 'long'). For example length: 2048.",
    ),
    "task options at odds": (
        "{length: 2048}",
        "{length: 100}",
        "2: data: min_length + 1 < max_length <= length must hold (got min_length=500, max_length=2000, length=100). The published lengths are 500, 2000 and 2048.",
    ),
    "unknown metric": (
        "maximize: val/accuracy",
        "maximize: val/acuracy",
        "12: objective.maximize must be a metric that trials report (got `val/acuracy`). Did you mean `val/accuracy`?",
    ),
    "metric the wrong way": (
        "maximize: val/accuracy",
        "minimize: val/accuracy",
        "12: objective.minimize: val/accuracy is better when it is high (got minimize). Write maximize: val/accuracy.",
    ),
    "no score": (
        "maximize: val/accuracy",
        "minimize: seconds/train",
        "12: objective must include val/accuracy or val/loss (got {minimize}). For example objective: {maximize: val/accuracy}.",
    ),
    "no objective": (
        "{maximize: val/accuracy}",
        "{}",
        "12: objective must include val/accuracy or val/loss (got an empty mapping). For example objective: {maximize: val/accuracy}.",
    ),
    "unknown sampler": (
        "{tpe: {seed: 3}}",
        "tep",
        "13: sampler.tep must name a sampler (got `tep`). Did you mean `tpe`?",
    ),
    "unknown sampler option": (
        "{tpe: {seed: 3}}",
        "{tpe: {sed: 3}}",
        "13: sampler.tpe.sed is not a known key. Did you mean `seed`?",
    ),
    "two samplers": (
        "{tpe: {seed: 3}}",
        "{tpe: {}, gp: {}}",
        "13: sampler must be one name, or {name: {options}} (got {tpe, gp}). Names: tpe, gp, cmaes, qmc, random, grid, nsgaii.",
    ),
    "unknown scheduler": (
        ASHA,
        "{ahsa: {}}",
        "14: scheduler.ahsa must name a scheduler (got `ahsa`). Did you mean `asha`?",
    ),
    "reduction of one": (
        "reduction: 4",
        "reduction: 1",
        "14: scheduler.asha.reduction must be above 1 (got 1). For example reduction: 4.",
    ),
    "grace beyond the end": (
        "grace: 0.1",
        "grace: 1.5",
        "14: scheduler.asha.grace must be at most 1 (got 1.5). For example grace: 0.1.",
    ),
    "trials 0": (
        "trials: 16",
        "trials: 0",
        "15: budget.trials must be at least 1 (got 0). For example trials: 64.",
    ),
    "trials -1": (
        "trials: 16",
        "trials: -1",
        "15: budget.trials must be at least 1 (got -1). For example trials: 64.",
    ),
    "trials 1.5": (
        "trials: 16",
        "trials: 1.5",
        "15: budget.trials must be a whole number (got 1.5). For example trials: 64.",
    ),
    "trials ten": (
        "trials: 16",
        "trials: ten",
        "15: budget.trials must be a whole number (got 'ten'). For example trials: 64.",
    ),
    "trials 10^9": (
        "trials: 16",
        "trials: 1_000_000_000",
        "15: budget.trials must be at most 100_000 (got 1_000_000_000). For example trials: 64.",
    ),
    "interval > steps": (
        "interval: 100",
        "interval: 2000",
        "4: training.interval must be at most training.steps (got 2000 of 1000). Write 1000 or less.",
    ),
    "gpu of no slot": (
        "gpu: 1/8",
        "gpu: 0.3",
        "16: resources.gpu must be 0, 1 or 1/K of a GPU (got 0.3). Write gpu: 1/3.",
    ),
    "slots of no gpu": (
        "gpu: 1/8",
        "gpu: 1/8, slots: auto",
        "16: resources.slots requires gpu: 1, which the slots share (got 'auto'). "
        "Write gpu: 1, or leave it out.",
    ),
    "no slots": (
        "gpu: 1/8",
        "gpu: 1, slots: 0",
        "16: resources.slots must be a whole number from 1 to 256, or auto (got 0). For example slots: auto.",
    ),
    "a long word": (
        "task: listops",
        f"task: {'x' * 251}",
        f"1: task must be at most 250 characters (got '{'x' * 116}...). For example task: retrieval.",
    ),
    "slots by another word": (
        "gpu: 1/8",
        "gpu: 1, slots: many",
        "16: resources.slots must be a whole number from 1 to 256, or auto (got 'many'). For example slots: auto.",
    ),
    "two gpus": (
        "gpu: 1/8",
        "gpu: 2",
        "16: resources.gpu must be at most 1, unless the `trainable` is a function or a command (got 2). Write gpu: 1.",
    ),
    "two nodes": (
        "gpu: 1/8",
        "nodes: 2",
        "16: resources.nodes requires a `trainable` that is a function or a command (got 2). Leave it out.",
    ),
    "no rate": (
        "  learning_rate: {log_uniform: [1e-5, 1e-2]}\n",
        "",
        "4: training.learning_rate must be given here or in search. For example learning_rate: 1e-3.",
    ),
    "heads that do not divide": (
        "heads: 8",
        "heads: 7",
        "3: model.d_state: in the layer rotrnn, d_state must be divisible by heads (got d_state 64, heads 7). Change one of them.",
    ),
    "searched heads that do not divide": (
        THETA,
        "heads: {choice: [8, 16, 24]}",
        "9: search.heads: in the layer rotrnn, d_state must be divisible by heads (got d_state 64, heads 24). Change one of them.",
    ),
    "published outside": (
        "gamma_init.min: 0.5,",
        "gamma_init.min: 0.95,",
        "19: published.values.gamma_init.min must lie in its search, uniform [0.1, 0.9] (got 0.95). Widen the search, or correct the value.",
    ),
    "published of another choice": (
        "theta_init.max: 2*pi,",
        "theta_init.max: pi,",
        "19: published.values.theta_init.max must lie in its search, choice [0.314159, 6.28319] (got pi). Widen the search, or correct the value.",
    ),
    "published value missing": (
        "gamma_init.min: 0.5, ",
        "",
        "19: published.values must give a value for gamma_init.min, which is searched. Add gamma_init.min, or take it out of search.",
    ),
    "published value too many": (
        "gamma_init.min: 0.5,",
        "gamma_init.min: 0.5, dropout: 0.1,",
        "19: published.values.dropout must be searched, and active under these values (got `dropout`). Take it out, or search it.",
    ),
    "published metric": (
        "test/accuracy: 0.611",
        "test/acc: 0.611",
        "21: published.test/acc is not a known key. Did you mean `test/accuracy`?",
    ),
    "published figure": (
        "test/accuracy: 0.611",
        "test/accuracy: high",
        "21: published.test/accuracy must be a number (got 'high'). For example test/accuracy: 0.9.",
    ),
    "nothing given": (
        "training: {steps: 1_000, interval: 100, batch_size: 16}",
        "training:",
        "4: training must be a mapping (got null). For example training: {steps: 50_000, interval: 500}.",
    ),
    "missing field": (
        "steps: 1_000, ",
        "",
        "4: training.steps must be given. For example steps: 50_000.",
    ),
    "missing section": (
        "budget: {trials: 16}\n",
        "",
        "1: budget must be given. For example budget: {trials: 64}.",
    ),
    "condition on nothing": (
        UNIFORM,
        "{uniform: [0.1, 0.9], when: {depht: 2}}",
        "7: search.gamma_init.min.when.depht must name another searched choice, int or power_of_two (got `depht`). There are: gamma_init.max, theta_init.max.",
    ),
    "condition on itself": (
        THETA,
        "heads: {choice: [2, 4], when: {heads: 2}}",
        "9: search.heads.when.heads must name another searched choice, int or power_of_two (got `heads`). There is: gamma_init.max.",
    ),
    "condition on no value": (
        UNIFORM,
        "{uniform: [0.1, 0.9], when: {gamma_init.max: 0.5}}",
        "7: search.gamma_init.min.when.gamma_init.max must be values of gamma_init.max (got 0.5). They are [0.99, 0.999].",
    ),
    "warm start of a path": (
        "resources: {gpu",
        "warm_start: [../../x]\nresources: {gpu",
        "16: warm_start must be letters, digits, - and _, at most 64 (got '../../x'). For example warm_start: [retrieval-laptop-1a2b3c4d].",
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_one_line_that_helps(tmp_path: Path, case: tuple[str, str, str]) -> None:
    """The error names line and key, and says what must hold, what was found and what would be right."""
    old, new, message = case
    assert str(refused(tmp_path, edited(old, new))) == f"{tmp_path / 'space.yaml'}:{message}"


def test_an_endless_choice(tmp_path: Path) -> None:
    """The error quotes the beginning of a long list of values."""
    error = refused(tmp_path, edited(CHOICE, f"choice: [{', '.join(f'{k}e-6' for k in range(1, 1500))}]"))
    assert error.got == "[1e-6, 2e-6, 3e-6, 4e-6, 5e-6, 6e-6, ...]"
    assert "at most 1,000 values" in error.must


@pytest.mark.parametrize("content", [b"", b" \n\n"])
def test_an_empty_file(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "space.yaml"
    file.write_bytes(content)
    with pytest.raises(BadInput, match=r"space\.yaml is empty\. Write its content\."):
        load(file, profile="auto", gpus=1)


@pytest.mark.parametrize(
    ("content", "got"),
    [
        (VALID.encode("utf-16"), "UTF-16"),
        (VALID.encode("utf-16-be"), "a binary file"),
        (b"\x7fELF\x02\x01\x00\x00", "a binary file"),
        (b"task: \xff\xfe\xfd", "the byte 0xff"),
        (b"task: a\n# \x1b[31m", "'\\x1b'"),
        (b"task: a\nmodel:\n\tlayer: x", "'\\t'"),
        (b"#" * 256_001, "256,001"),
    ],
    ids=["utf-16", "utf-16 unmarked", "binary", "latin", "escape", "tab", "long"],
)
def test_files_that_are_not_text(tmp_path: Path, content: bytes, got: str) -> None:
    """The error says what the file is instead."""
    error = refused(tmp_path, content)
    assert error.got == got
    assert error.where.startswith(str(tmp_path / "space.yaml"))


@pytest.mark.parametrize(
    ("old", "new", "must"),
    [
        ("length: 2048", "length: 2048, examples: 4_000_000_000", "at most 100,000,000"),
        ("length: 2048", "length: 2048, held_out: 4_000_000_000", "at most 100,000,000"),
        ("length: 2048", "length: 4_000_000_000", "at most 1,048,576"),
        (
            "length: 2048",
            "length: 1_000_000, examples: 1_000_000",
            "may request at most 4,294,967,296 numbers",
        ),
        ("depth: 2", "depth: 4_000_000_000", "at most 256"),
        ("d_model: 32", "d_model: 4_000_000_000", "at most 65_536"),
        ("d_state: 64", "d_state: 4_000_000_000", "at most 1_048_576"),
        ("heads: 8", "heads: 4_000_000_000", "at most 1,048,576"),
        ("batch_size: 16", "batch_size: 4_000_000_000", "at most 1_048_576"),
        ("gpu: 1/8", "gpu: 1, slots: 4_000_000_000", "from 1 to 256"),
        ("trials: 16", "trials: 4_000_000_000", "at most 100_000"),
        (UNIFORM, "{uniform: [0.1, 0.9], step: 1e-300}", "at most 1,000 steps"),
        (UNIFORM, f"{{choice: [{', '.join(map(str, range(1001)))}]}}", "at most 1,000 values"),
        (
            "objective: {maximize: val/accuracy}",
            f"objective: {{maximize: {['x'] * 30}}}",
            "at most 20 values",
        ),
        ("objective:", f"search2: {[[0] * 70] * 70}\nobjective:", "at most 5,000 keys and values"),
        ("objective:", f"a: {'[' * 9}{']' * 9}\nobjective:", "at most 8 levels"),
        ("objective:", "a: &a [x]\nb: [*a, *a]\nobjective:", "no anchors and no aliases"),
    ],
)
def test_nothing_is_allocated_for_what_is_too_large(tmp_path: Path, old: str, new: str, must: str) -> None:
    """The file is refused at once, in little memory."""
    text = edited(old, new)
    tracemalloc.start()
    try:
        start = time.thread_time()  # threads that earlier tests have left do not count
        error = refused(tmp_path, text)
        seconds, peak = time.thread_time() - start, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert seconds < 2
    assert peak < 50 << 20
    assert must in error.must


def test_code_is_read_up_to_a_limit(tmp_path: Path) -> None:
    """A sparse file as the code of a trainable is not read as a whole, nor is a pipe waited for."""
    with (tmp_path / "net.py").open("wb") as file:
        file.truncate(1 << 40)
    os.mkfifo(tmp_path / "pipe.py")
    text = TRAINABLE.replace("CODE", "program: 'net.py:Net'")
    assert "more than 16,777,216 bytes" in refused(tmp_path, text).got
    assert len(digest_of("net.py:Net", tmp_path)) == 64, "of its first bytes, and not of the pipe"
    for name in ("net.py", "pipe.py"):
        with pytest.raises(BadInput):
            write_for_script(tmp_path / name)


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    """A file of fifty megabytes is refused by its size."""
    path = written(tmp_path)
    with path.open("r+b") as file:
        file.truncate(50_000_000)
    start = time.perf_counter()
    with pytest.raises(BadInput, match=r"at most 256,000 bytes \(got 50,000,000\)"):
        load(path, profile="auto", gpus=1)
    assert time.perf_counter() - start < 1


def test_paths_that_are_not_files(tmp_path: Path) -> None:
    """A missing file, a directory and a pipe are refused with different reasons; the pipe is not read."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop.yaml").symlink_to(tmp_path / "loop.yaml")
    for name, got in (
        ("none.yaml", "does not exist"),
        ("folder", "a directory"),
        ("pipe", "a device or a pipe"),
    ):
        with pytest.raises(BadInput, match=got):
            load(tmp_path / name, profile="auto", gpus=1)
    with pytest.raises(BadInput, match="must be a readable file"):
        load(tmp_path / "loop.yaml", profile="auto", gpus=1)


def test_an_unreadable_file() -> None:
    """The reason is the missing permission; root takes another user id first, since it may read all files."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        path = written(Path(folder))
        path.chmod(0)
        with _without_root_rights(), pytest.raises(BadInput, match="permission denied"):
            load(path, profile="auto", gpus=1)


@contextmanager
def _without_root_rights() -> Iterator[None]:
    """Take an ordinary user id meanwhile, if the process runs as root."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(before)


ALL_WRONG = """\
trainable: {command: [no-such-program, train.py, "{ratee}", '{"a": 1}', "{x.real}"]}
search:
  x: {uniform: [1, 0]}
  y: {int: [1, 2], step: 0.5}
  z: {choice: []}
training: {steps: 2, interval: 5, epochs: 3}
objective: {minimise: val/loss}
scheduler: {asha: {reduction: 0.5}}
sampler: tpee
budget: {trials: 0}
resources: {gpus: 1, memory: -1, cpu: many}
"""
KEYS = """training.epochs objective.minimise resources.gpus budget.trials resources.cpu resources.memory
search.x.uniform search.y.int search.z.choice training.interval trainable.command trainable.command
trainable.command scheduler.asha.reduction sampler.tpee"""


def test_all_mistakes_of_a_file_are_told_at_once(tmp_path: Path) -> None:
    """Each once, with its line, and none that comes from how another one was mended."""
    start = time.process_time()
    error = refused(tmp_path, ALL_WRONG)
    assert time.process_time() - start < 1
    told = [error, *error.more]
    assert sorted(one.where.rpartition(": ")[2] for one in told) == sorted(KEYS.split())
    assert all(one.where.startswith(f"{tmp_path}/space.yaml:") for one in told)
    assert len({str(one) for one in told}) == len(told)


@pytest.mark.parametrize("case", sorted(CASES.keys() - {"no rate", "nothing given"}))
def test_a_single_mistake_is_told_alone(tmp_path: Path, case: str) -> None:
    old, new, _ = CASES[case]
    assert [str(one) for one in refused(tmp_path, edited(old, new)).more] == []


def test_an_example_in_a_message_can_be_written_as_it_stands(tmp_path: Path) -> None:
    error = refused(tmp_path, TRAINABLE.replace("{CODE}", '{command: "python train.py --rate {rate}"}'))
    assert error.remedy == 'For example command: [python, train.py, --lr, "{learning_rate}"].'
    for model in vars(sections).values():
        fields = getattr(model, "model_fields", {}) if isinstance(model, type) else {}
        for name, field in fields.items():
            for example in field.examples or ():
                text = f"{name}: {flow(example)}"
                expected = (
                    parse_number(example) or example.strip('"') if isinstance(example, str) else example
                )
                assert parse_document(text, "example").plain() == {name: expected}


@pytest.mark.parametrize(
    ("code", "section"),
    [
        ("{command: [python]}", "try: [{rate: 3}, {rate: 0.5}]"),
        ("{command: [python], metrics: {loss: 'loss='}}", ""),
    ],
)
def test_a_value_that_was_mended_in_part_is_no_mistake(tmp_path: Path, code: str, section: str) -> None:
    error = refused(tmp_path, TRAINABLE.replace("{CODE}", code) + section)
    assert error.more == (), "what stands in its place is not what the user has written"


def test_a_misspelt_trainable_is_recognised(tmp_path: Path) -> None:
    error = refused(
        tmp_path, TRAINABLE.replace("trainable", "trainabel").replace("{CODE}", "{command: [ls]}")
    )
    assert error.remedy == "Did you mean `trainable`?"


def followed(error: Mistake) -> list[str]:
    """Return the overrides that do what an error says, or none if it names nothing to be written."""
    *above, last = (str(part) for part in error.path if isinstance(part, str))
    key = ".".join((*above, last))
    if match := re.match(r"(?:For example|Write) ([A-Za-z_][\w.]*): (.+?)(?:, or .*)?\.?$", error.remedy):
        written_out = f"{'.'.join((*above, match[1]) if match[1] != above[-1:] else above)}={match[2]}"
        return [f"{key}=null", written_out] if error.got == last else [written_out]
    if match := re.match(r"Write (\[.*\])\.", error.remedy):
        return [f"{key}={match[1]}"]
    if match := re.match(r"Did you mean `(.+)`\?", error.remedy):
        return (
            [f"{key}=null"]
            if error.got == f"`{last}`" or error.must.startswith("is not ")
            else [f"{key}={match[1]}"]
        )
    return [f"{key}=null"] if error.remedy in ("Leave it out.", "Leave the step out.") else []


@pytest.mark.parametrize("case", CASES)
def test_no_remedy_leads_in_a_circle(tmp_path: Path, case: str) -> None:
    """What an error says is done, again and again, until the file is valid or nothing is named."""
    old, new, _ = CASES[case]
    path = written(tmp_path, edited(old, new))
    overrides, told = list[str](), list[tuple[object, str]]()
    for _ in range(8):
        try:
            load(path, profile="auto", gpus=1, overrides=overrides)
        except Mistake as error:
            if (error.path, error.must) in told:
                pytest.fail(f"{error} after {overrides}")
            told.append((error.path, error.must))
            if not error.path or not (further := followed(error)):
                return
            overrides += further
        except BadInput:
            return
        else:
            return
    raise AssertionError(told)


@pytest.mark.slow
def test_mistakes_of_code_are_told_with_those_of_the_file(tmp_path: Path) -> None:
    """The code is read, not run, and nothing of what trials need is imported."""
    (tmp_path / "train.py").write_text("def train(): 1 / 0")
    path = written(
        tmp_path, TRAINABLE.replace("CODE", "function: 'train.py:train'").replace("trials: 1", "trials: 0")
    )
    code = (
        "import sys; from orchestrator.cli.app import run_command;"
        f"print(run_command(['validate', {str(path)!r}]));"
        "print(*{'jax', 'flax', 'ray', 'optuna', 'mlflow'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["2"]
    lines = [line for line in done.stderr.splitlines() if line]
    assert len(lines) == 2
    assert "budget.trials must be at least 1" in lines[0]
    assert "train must take one argument" in lines[1]


def test_loading_needs_none_of_the_heavy_packages(tmp_path: Path) -> None:
    """A file is validated without JAX, Ray, Optuna, MLflow or a database."""
    path = written(tmp_path)
    code = (
        "import sys; from pathlib import Path; from orchestrator.config import load;"
        f"load(Path({str(path)!r}), profile='auto', gpus=0);"
        "print(*{'jax', 'flax', 'ray', 'optuna', 'mlflow', 'sqlalchemy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
