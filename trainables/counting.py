"""The arithmetic and the memory traffic of a training step, by XLA's cost analysis of the compiled program.

XLA counts the body of a loop once, however often it runs. A recurrence is such a loop, so each loop whose
length is known when it is traced is compiled by itself too, and counted as often as it runs. The squarings of
`rotation`, whose number depends on the parameters, count once.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
from jax import numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, jaxpr_as_fun

from trainables.cost import Cost
from trainables.data.task import Signature
from trainables.engine.network import NetworkProgram, Sequences
from trainables.engine.state import SlotState
from trainables.layers import LAYERS
from trainables.trial import TrialSettings

ALGORITHM = "sequential"
"""Algorithm that is counted for layers with several ones; the choice of `auto` depends on the device."""

UNOPTIMISED: dict[str, Any] = {"xla_backend_optimization_level": 0}
"""Options of XLA that turn off the optimisation of machine code, which never runs; kernels are the same."""


@dataclass(frozen=True)
class Work:
    """The work of a program: floating-point operations, and bytes that its kernels read and write."""

    flops: float
    bytes: float

    def __add__(self, other: Work) -> Work:
        return Work(self.flops + other.flops, self.bytes + other.bytes)

    def __mul__(self, times: int) -> Work:
        return Work(self.flops * times, self.bytes * times)


class Loop(NamedTuple):
    """A loop of known length: its body, its length, and the arguments of the body that it carries."""

    body: ClosedJaxpr
    times: int
    carried: tuple[int, ...]


def cost(settings: TrialSettings, signature: Signature, *, compiled: bool = False) -> Cost:
    """Return the cost of the static choice of a trial.

    Args:
        settings: Settings of any trial of the static choice.
        signature: Signature of its task.
        compiled: Whether to count the arithmetic and the memory traffic of a training step too, for which the
            step is compiled for this process's device, with the algorithm `ALGORITHM` and unpadded sequences.
    """
    key = settings.static(), signature
    if key not in _SIZES:
        _SIZES[key] = _program(settings, signature).cost()
    if not compiled:
        return _SIZES[key]
    if key not in _WORK:
        _WORK[key] = _work_of_a_step(_program(_sequential(settings), signature))
    return replace(_SIZES[key], flops=_WORK[key].flops, bytes=_WORK[key].bytes)


_SIZES: dict[Hashable, Cost] = {}
_WORK: dict[Hashable, Work] = {}


def _program(settings: TrialSettings, signature: Signature) -> NetworkProgram:
    return NetworkProgram(settings, signature, padded=False, evaluated=settings.training.batch_size)


def _sequential(settings: TrialSettings) -> TrialSettings:
    model = settings.model
    option = LAYERS.settings(model.layer).options.get("algorithm")
    if option is None or option.choices is None or ALGORITHM not in option.choices:
        return settings
    return replace(settings, model=replace(model, options={**model.options, "algorithm": ALGORITHM}))


def _work_of_a_step(program: NetworkProgram) -> Work:
    def step(slot: SlotState, train: Sequences) -> SlotState:
        return program.step(slot, train, jnp.arange(program.batch))[0]

    traced = jax.jit(step).trace(program.shapes(), _examples(program))
    return work(traced.jaxpr)


def _examples(program: NetworkProgram) -> Sequences:
    """Return the shapes of the examples of one step."""
    signature = program.signature
    rows = program.batch
    towers = () if signature.towers == 1 else (signature.towers,)
    features = () if signature.vocabulary else (signature.features,)
    per_step = (signature.length,) if signature.output == "steps" else ()

    def zeros() -> Sequences:
        return Sequences(
            jnp.zeros(
                (rows, *towers, signature.length, *features), "uint8" if signature.vocabulary else "float32"
            ),
            jnp.zeros((rows, *towers), "int32"),
            jnp.zeros((rows, *per_step), "float32" if signature.output == "value" else "int32"),
        )

    return jax.eval_shape(zeros)


def work(program: ClosedJaxpr) -> Work:
    """Return the work of one run of a traced program, with loops multiplied by their lengths."""
    return _counted(program, (), {})


def _counted(program: ClosedJaxpr, donated: tuple[int, ...], known: dict[str, tuple[Work, Work]]) -> Work:
    """Return the work of a program."""
    total = _counted_by_xla(program, donated)
    for body, times, carried in loops(program.jaxpr):
        text = str(body)
        if text not in known:
            known[text] = _counted_by_xla(body, carried), _counted(body, carried, known)
        once, run = known[text]
        total = total + run * times + once * -1
    return total


def _counted_by_xla(program: ClosedJaxpr, donated: tuple[int, ...]) -> Work:
    arguments = [jax.ShapeDtypeStruct(value.shape, value.dtype) for value in program.in_avals]
    jitted = jax.jit(jaxpr_as_fun(program), donate_argnums=donated)
    analysis = jitted.lower(*arguments).compile(compiler_options=UNOPTIMISED).cost_analysis()
    assert analysis is not None, "XLA counts every program of a CPU or a GPU"
    return Work(float(analysis.get("flops", 0.0)), float(analysis.get("bytes accessed", 0.0)))


def loops(program: Jaxpr) -> Iterator[Loop]:
    """Yield the loops of known length in a program, but not those inside another loop."""
    for equation in program.eqns:
        name, params = equation.primitive.name, equation.params
        if name == "scan":
            yield Loop(params["jaxpr"], params["length"], _carried_by(equation))
        elif name == "while":
            first = params["body_nconsts"]
            start = equation.invars[params["cond_nconsts"] + first :]
            carried = tuple(range(first, first + len(start)))
            yield Loop(params["body_jaxpr"], _times(start), carried)
        else:
            for value in params.values():
                yield from _loops_of_parameter(value)


def _carried_by(scan: JaxprEqn) -> tuple[int, ...]:
    """Return the carried inputs of the body of a scan, which follow constants and precede slices.

    The parameters with their numbers have different names in JAX 0.10 and 0.11. Slices are therefore
    recognised by having one axis less than their arrays.
    """
    body: ClosedJaxpr = scan.params["jaxpr"]

    def whole(outside: Sequence[Any], inside: Sequence[Any]) -> int:
        return sum(outer.aval.ndim == inner.ndim for outer, inner in zip(outside, inside, strict=True))

    carried = whole(scan.outvars, body.out_avals)
    first = whole(scan.invars, body.in_avals) - carried
    return tuple(range(first, first + carried))


def _loops_of_parameter(value: Any) -> Iterator[Loop]:
    if isinstance(value, ClosedJaxpr):
        yield from loops(value.jaxpr)
    elif isinstance(value, Jaxpr):
        yield from loops(value)
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _loops_of_parameter(item)


def _times(start: list[Any]) -> int:
    """Return the length of a loop that counts between two literals; 1 if it is unknown.

    `fori_loop` carries its index and its end first.
    """
    low, high = start[:2] if len(start) > 1 else (None, None)
    return int(high.val) - int(low.val) if isinstance(low, Literal) and isinstance(high, Literal) else 1
