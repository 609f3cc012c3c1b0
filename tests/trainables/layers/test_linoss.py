"""LinOSS against its equations, solved densely in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.trainables.layers.cases import Floats, build, exact
from tests.trainables.layers.graded import check


def _solved(discretisation: str) -> Any:
    """Return the loop that solves both equations of a step at once, for velocities and then positions."""

    def loop(p: Any, u: Floats) -> tuple[Floats, Floats]:
        count = len(p["A"])
        one, stiffness = np.eye(count), np.diag(np.maximum(p["A"], 0))
        step = np.diag(1 / (1 + np.exp(-p["step_logit"])))
        implicit = discretisation == "im"
        # now (z, y)_t = before (z, y)_{t-1} + force
        now = np.block([[one, step @ stiffness if implicit else 0 * one], [-step, one]])
        before = np.block([[one, 0 * one if implicit else -step @ stiffness], [0 * one, one]])
        state, states = np.zeros(2 * count), []
        for row in u:
            force = np.concatenate([step @ p["B"] @ row, np.zeros(count)])
            state = np.linalg.solve(now, before @ state + force)
            states.append(state)
        return np.array(states)[:, count:] @ p["C"].T + u * p["D"], np.array(states)

    return loop


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("algorithm", ["sequential", "associative"])
@pytest.mark.parametrize("discretisation", ["im", "imex"])
def test_loop(discretisation: str, algorithm: str) -> None:
    """Outputs, norms of states and gradients equal those of both equations, solved in float64."""
    check("linoss", _solved(discretisation), discretisation=discretisation, algorithm=algorithm)


@pytest.mark.parametrize(("discretisation", "other"), [("im", "imex"), ("imex", "im")])
def test_the_discretisations_differ(discretisation: str, other: str) -> None:
    """The loop of one discretisation does not pass for the other."""
    with pytest.raises(AssertionError):
        check("linoss", _solved(other), discretisation=discretisation)


@pytest.mark.parametrize(("discretisation", "energy"), [("im", False), ("imex", True)])
def test_eigenvalues_are_those_of_the_paper(discretisation: str, energy: bool) -> None:
    """Moduli are 1 / sqrt(1 + step^2 A) for the implicit form and 1 for the other."""
    layer: Any = build("linoss", discretisation=discretisation)
    p = exact(layer)
    transition = np.asarray(layer.coefficients()[0], np.float64)
    step = 1 / (1 + np.exp(-p["step_logit"]))
    for k, expected in enumerate(1 / np.sqrt(1 + step**2 * p["A"])):
        moduli = np.abs(np.linalg.eigvals(transition[:, :, k]))
        np.testing.assert_allclose(moduli, 1 if energy else expected, rtol=1e-6)


def test_a_negative_stiffness_is_zero() -> None:
    """The oscillator becomes a free particle: its position grows, and no gradient moves its stiffness."""
    layer: Any = build("linoss", d_model=1, d_state=2, discretisation="imex")
    layer.A[...] = -np.ones(1, np.float32)
    np.testing.assert_array_equal(np.asarray(layer.coefficients()[0])[0, :, 0], [1, 0])
