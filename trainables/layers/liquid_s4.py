"""Liquid-S4: S4 that also reads products of its latest inputs."""

from __future__ import annotations

from functools import partial
from typing import TypeAlias

import jax
from flax import nnx
from jax import Array
from jax import numpy as jnp

from trainables.layers.layer import Bounds, Layer
from trainables.layers.s4 import S4, StateSpace, driven_state, free_response, free_state, kernel
from trainables.layers.s4d import causal_convolution
from trainables.settings import EVEN, STEPS, Count, LayerSettings, Option, divisible

State: TypeAlias = tuple[Array, Array]
"""S4's states, complex (D, N/2), and the inputs of the latest P - 1 steps, (P - 1, D)."""


class LiquidS4(S4):
    """S4 and, for each order p = 2..P, a response to the products v_t = u_t u_{t-1} .. u_{t-p+1}.

    With S4's discrete A and B, and B^p entry by entry in the basis of Lambda:

        kb:  y_t = S4's + sum_p sum_j 2 Re(C A^j B^p) v_{t-j},  so x_t = A x_{t-1} + B u_t + sum_p B^p v_t
        pb:  y_t = S4's + sum_p 2 Re(C B^p) v_t,  which is kb with 1 for A and without the sum over time

    These are the terms of x_t = (A + B u_t) x_{t-1} + B u_t whose inputs follow one another. Parameters are
    those of S4.

    Versions of the published code depart from this, and from the paper. One multiplies combinations of p of
    the last few inputs of the sequence and adds L of these products reversed in time: an output depends on
    later inputs, so the layer cannot run step by step. Another multiplies a product by itself one step
    before, so that order 3 is u_t u_{t-1}^2 u_{t-2}, has B times the sum of B's entries for B^2, and leaves P
    P* out of the discrete B. Here both kernels are causal.

    Source: Hasani et al., Liquid structural state-space models, 2022, equations 5-11 and appendix A and
    table S1 (orders 2, 3, 5 and 6); raminmh/liquid-s4 (PB in all published runs).
    """

    settings = LayerSettings(
        summary="Liquid-S4: S4 with kernels on products of the latest inputs.",
        options={
            "order": Option(2, "Largest number P of inputs in a product.", choices=(2, 3, 4, 5, 6)),
            "kernel": Option(
                "pb", "Response to products: kb decays as S4's, pb is immediate.", choices=("pb", "kb")
            ),
            "copies": Option(1, "Copies of Lambda, P and B that the channels share.", at_least=1),
            "algorithm": Option(
                "auto",
                "Kernel by frequencies and Fourier convolution (auto), or one step after the other.",
                choices=("auto", "convolution", "sequential"),
            ),
        },
        ranges={"dt_init": STEPS},
        needs=(EVEN, divisible("d_model", "copies")),
        parameters=Count(
            ("d_model", "d_state", "bidirectional", "copies"),
            lambda d, n, both, k: 3 * k * n + (1 + both) * n * d + 2 * d,
        ),
    )

    def __init__(
        self,
        d_model: int,
        d_state: int,
        *,
        rngs: nnx.Rngs,
        dt_init: Bounds = settings.default("dt_init"),
        order: int = settings.default("order"),
        kernel: str = settings.default("kernel"),
        copies: int = settings.default("copies"),
        bidirectional: bool = False,
        algorithm: str = settings.default("algorithm"),
    ) -> None:
        """Draw the parameters as S4 does.

        Args:
            d_model: Width D.
            d_state: States N a channel; N/2 are stored.
            rngs: Source of randomness; its keys may be traced.
            dt_init: Range of the steps, log-uniform; may be traced.
            order: Largest number P of inputs in a product.
            kernel: "pb" or "kb".
            copies: Number of copies of Lambda, P and B.
            bidirectional: Whether the layer also reads the sequence backwards, with a read-out of its own.
            algorithm: "convolution" ("auto") or "sequential".

        Raises:
            Refusal: N is odd, or D is not a multiple of `copies`.
        """
        super().__init__(
            d_model,
            d_state,
            rngs=rngs,
            dt_init=dt_init,
            copies=copies,
            bidirectional=bidirectional,
            algorithm=algorithm,
        )
        self.order, self.decays = order, kernel == "kb"

    def respond(self, coefficients: StateSpace, inputs: Array, *, backward: bool) -> tuple[Array, State]:
        """Return the outputs (L, D), and the states, which are computed only if they are used."""
        outputs, states = super().respond(coefficients, inputs, backward=backward)
        if self.algorithm == "sequential":
            return outputs, states
        products = self._products(self.initial_state()[1], inputs)
        return outputs + self._responses(coefficients, coefficients.readout(backward), products), states

    def respond_from(
        self, coefficients: StateSpace, state: State, inputs: Array
    ) -> tuple[Array, State, State]:
        """Return the outputs (L, D) from an initial state, all states, and the last state."""
        if self.algorithm == "sequential":
            return Layer.respond_from(self, coefficients, state, inputs)
        (memory, before), out, length = state, coefficients.readout(False), len(inputs)
        states = jax.lax.scan(partial(self.advance, coefficients), state, inputs)[1]
        products = self._products(before, inputs)
        outputs = S4.respond(self, coefficients, inputs, backward=False)[0]
        outputs += free_response(coefficients, out, memory, length)
        outputs += self._responses(coefficients, out, products)
        last = free_state(coefficients, memory, length)
        last += driven_state(coefficients, coefficients.held(coefficients.into), inputs)
        if self.decays:
            driven = jax.vmap(partial(driven_state, coefficients))
            last += jnp.sum(driven(self._powers(coefficients), products), axis=0)
        return outputs, states, (last, jnp.concatenate([before, inputs])[length:])

    def _responses(self, coefficients: StateSpace, out: Array, products: Array) -> Array:
        """Return the responses (L, D) to the products of orders 2..P, (P - 1, L, D)."""
        if not self.decays:
            return at_once(self._powers(coefficients), out, products)

        def decaying(power: Array, rows: Array) -> Array:
            # The kernel discretises its B, so it is given the one that becomes this power.
            into = power / coefficients.step - coefficients.slope(power) / 2
            return causal_convolution(kernel(coefficients._replace(into=into), out, len(rows)), rows)

        return jnp.sum(jax.vmap(decaying)(self._powers(coefficients), products), axis=0)

    def read(self, coefficients: StateSpace, states: tuple[Array, Array], *, backward: bool) -> Array:
        """Return the outputs (L, D) of states (L, D, N/2) and products (L, P - 1, D)."""
        memory, products = states
        outputs = super().read(coefficients, memory, backward=backward)
        if self.decays:
            return outputs
        out = coefficients.readout(backward)
        return outputs + at_once(self._powers(coefficients), out, products.swapaxes(0, 1))

    def real(self, states: tuple[Array, Array]) -> Array:
        """Return real and imaginary parts of S4's states, (L, D * N)."""
        return super().real(states[0])

    def initial_state(self) -> State:
        """Return zero states, and zeros for the inputs before the first."""
        return super().initial_state(), jnp.zeros((self.order - 1, len(self.D)))

    def advance(self, coefficients: StateSpace, state: State, inputs: Array) -> tuple[State, State]:
        """Return the next state, and the row of S4's states and of the products (P - 1, D)."""
        memory, before = state
        products = self._products(before, inputs[None])[:, 0]
        memory = super().advance(coefficients, memory, inputs)[0]
        if self.decays:
            memory += jnp.sum(self._powers(coefficients) * products[:, :, None], axis=0)
        return (memory, jnp.concatenate([before, inputs[None]])[1:]), (memory, products)

    def _powers(self, coefficients: StateSpace) -> Array:
        """Return B^p of the discrete B for p = 2..P, complex (P - 1, D, N/2)."""
        into = coefficients.held(coefficients.into)
        return jnp.stack([into**power for power in range(2, self.order + 1)])

    def _products(self, before: Array, rows: Array) -> Array:
        """Return the products of orders 2..P, (P - 1, L, D), of rows (L, D) and the P - 1 before them."""
        whole, products = jnp.concatenate([before, rows]), [rows]
        for start in reversed(range(self.order - 1)):
            products.append(products[-1] * whole[start : start + len(rows)])
        return jnp.stack(products[1:])


def at_once(powers: Array, out: Array, products: Array) -> Array:
    """Return sum_p 2 Re(C B^p) v, (L, D), for B^p (P - 1, D, N/2), C (D, N/2) and v (P - 1, L, D)."""
    weights = 2 * jnp.sum((out * powers).real, axis=-1)
    return jnp.einsum("pd,pld->ld", weights, products)
