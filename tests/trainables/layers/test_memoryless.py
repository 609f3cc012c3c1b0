"""The control without recurrence."""

from __future__ import annotations

import numpy as np

from tests.trainables.layers.cases import D, build, exact, sequence


def test_each_step_is_answered_by_itself() -> None:
    """Outputs are D u_t; there is no state, and D is the only parameter."""
    layer, u = build("none"), sequence(30)
    p = exact(layer)
    assert {name: value.shape for name, value in p.items()} == {"D": (D,)}
    outputs, states = layer.run(u)
    np.testing.assert_array_equal(outputs, layer.D[...] * u)
    assert states.shape == (30, 0)
