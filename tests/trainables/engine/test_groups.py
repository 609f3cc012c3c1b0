"""The groups of the optimiser are those of S5's released program and of the RotRNN authors' fork of it."""

from __future__ import annotations

import numpy as np
import pytest
from jax import numpy as jnp

from tests.trainables.toy import toy_data, toy_trial
from trainables.engine.network import NetworkProgram
from trainables.errors import Refusal
from trainables.optim import Rates, transformation, updated

S5_PROGRAM = {
    "rotrnn": {
        "standard": {"gamma_log": "ssm", "B": "ssm"},
        "BandCdecay": {"gamma_log": "ssm", "B": "none"},
        "BfastandCdecay": {"gamma_log": "ssm"},
        "noBCdecay": dict.fromkeys(("gamma_log", "B", "C", "C_backward", "D"), "ssm"),
    },
    "lru": {
        "standard": dict.fromkeys(("nu_log", "theta_log", "gamma_log", "B_re", "B_im"), "ssm"),
        "BandCdecay": {
            **dict.fromkeys(("nu_log", "theta_log", "gamma_log"), "ssm"),
            **dict.fromkeys(("B_re", "B_im"), "none"),
        },
        "BfastandCdecay": dict.fromkeys(("nu_log", "theta_log", "gamma_log"), "ssm"),
    },
    "s5": {
        "standard": dict.fromkeys(("Lambda_re", "Lambda_im", "log_step", "B_re", "B_im"), "ssm"),
        "dt_global": dict.fromkeys(("Lambda_re", "Lambda_im", "B_re", "B_im"), "ssm"),
        "BfastandCdecay": dict.fromkeys(("Lambda_re", "Lambda_im", "log_step"), "ssm"),
        "noBCdecay": dict.fromkeys(
            (
                *("Lambda_re", "Lambda_im", "log_step", "B_re", "B_im"),
                *("C_re", "C_im", "C_backward_re", "C_backward_im", "D"),
            ),
            "ssm",
        ),
    },
}
"""Groups of S5's program and its fork by layer, configuration and parameter, written from their lists: `ssm`
has the recurrent rate and no decay, `none` the recurrent rate and decay. All others are `regular`."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layer", "groups"), [(layer, groups) for layer, each in S5_PROGRAM.items() for groups in each]
)
def test_groups_are_those_of_the_released_program(layer: str, groups: str) -> None:
    """One update with the gradient 0 shows the decay of each parameter, one of the constant 1 its rate."""
    network = {"layer": layer, "options": {"heads": 2} if layer == "rotrnn" else {}}
    trial = toy_trial(model=network, groups=groups, optimizer="adamw")
    packing = NetworkProgram.of(trial, toy_data().signature, toy_data().train).layout.params
    rates = Rates(jnp.float32(1e-2), jnp.float32(3e-3), jnp.float32(0.5))

    def moved(gradient: float) -> dict[str, np.ndarray]:
        start = jnp.ones(packing.size)
        moments = transformation("adamw").init(start)
        after, _ = updated(start, gradient * start, moments, packing.groups, rates, "adamw")
        return {name: np.asarray(1 - part) for name, part in packing.split(after).items()}

    expected = {
        "regular": (0.005, 0.015),
        "ssm": (0.0, 0.003),
        "none": (0.0015, 0.0045),
    }
    for name, decay, step in ((name, part, moved(1.0)[name]) for name, part in moved(0.0).items()):
        is_of_layer = "layer" in name.split("/")
        group = (
            S5_PROGRAM[layer][groups].get(name.rpartition("/")[2], "regular") if is_of_layer else "regular"
        )
        np.testing.assert_allclose(decay, expected[group][0], atol=1e-6, err_msg=name)
        np.testing.assert_allclose(step, expected[group][1], atol=1e-6, err_msg=name)


def test_groups_of_other_layers_are_refused() -> None:
    """S4D's parameters have other names: its eigenvalues would get the general rate without a word."""
    trial = toy_trial(model={"layer": "s4d", "options": {}}, groups="standard")
    with pytest.raises(Refusal, match="rotrnn, lru, s5"):
        NetworkProgram.of(trial, toy_data().signature, toy_data().train)
