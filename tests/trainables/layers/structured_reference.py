"""S4 and Liquid-S4 as float64 loops with dense matrices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from tests.trainables.layers.cases import Floats


class Discrete(NamedTuple):
    """One channel's system on states and their conjugates: the transition, B, and C."""

    transition: Any
    into: Any
    out: Any


def systems(p: Mapping[str, Floats]) -> Iterator[Discrete]:
    """Yield every channel's system, bilinear in time."""
    eigenvalues = -np.exp(p["log_Lambda_re"]) + 1j * p["Lambda_im"]
    low_rank, into, out = (p[name][:, 0] + 1j * p[name][:, 1] for name in ("P", "B", "C"))
    for channel, step in enumerate(np.exp(p["log_step"])):
        copy = channel % len(eigenvalues)
        column = _whole(low_rank[copy])
        matrix = np.diag(_whole(eigenvalues[copy])) - np.outer(column, column.conj())
        one = np.eye(len(matrix))
        half = np.linalg.inv(one - step / 2 * matrix)
        yield Discrete(
            half @ (one + step / 2 * matrix), half @ (step * _whole(into[copy])), _whole(out[channel])
        )


def _whole(half: Any) -> Any:
    return np.concatenate([half, half.conj()])


def s4(p: Mapping[str, Floats], u: Floats, *, order: int = 1, decays: bool = False) -> tuple[Any, Any]:
    """Return outputs (L, D), and the states, (L, D, N); from order 2 on, of Liquid-S4."""
    outputs, states = np.zeros(u.shape), []
    for channel, system in enumerate(systems(p)):
        state, rows = np.zeros_like(system.into), []
        for t, value in enumerate(u[:, channel]):
            powers = sum(
                (
                    system.into**several * np.prod(u[t - several + 1 : t + 1, channel])
                    for several in range(2, order + 1)
                    if several <= t + 1
                ),
                np.zeros_like(system.into),
            )
            state = system.transition @ state + system.into * value + decays * powers
            outputs[t, channel] = (system.out @ (state + (not decays) * powers)).real + p["D"][
                channel
            ] * value
            rows.append(state)
        states.append(rows)
    return outputs, np.asarray(states).transpose(1, 0, 2)
