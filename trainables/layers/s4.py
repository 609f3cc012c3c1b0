"""S4: a state-space model for every channel whose transition is diagonal plus an outer product."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from flax import nnx
from jax import Array
from jax import numpy as jnp

from trainables.errors import Refusal
from trainables.layers.layer import Bounds, Layer, log_between, normal
from trainables.layers.s4d import causal_convolution
from trainables.layers.state_space import normal_hippo
from trainables.settings import EVEN, STEPS, Count, LayerSettings, Option, divisible

EXACT = jax.lax.Precision.HIGHEST


class StateSpace(NamedTuple):
    """The system x' = (Lambda - P P*) x + B u of every channel, complex (D, N/2), one of each conjugate pair.

    Attributes:
        eigenvalues: Lambda.
        low_rank: P.
        into: B.
        step: Step sizes of the discretisation, (D, 1).
        out: C.
        out_backward: Read-out of the reverse direction; None in a causal layer.
    """

    eigenvalues: Array
    low_rank: Array
    into: Array
    step: Array
    out: Array
    out_backward: Array | None

    def readout(self, backward: bool) -> Array:
        """Return C of one direction."""
        weights = self.out_backward if backward else self.out
        assert weights is not None
        return weights

    def slope(self, state: Array) -> Array:
        """Return (Lambda - P P*) x of states x (D, N/2)."""
        return self.eigenvalues * state - self.low_rank * _paired(self.low_rank.conj() * state)

    def held(self, slope: Array) -> Array:
        """Return dt (1 - A dt/2)^-1 f for f (D, N/2), by the formula of Sherman, Morrison and Woodbury."""
        solve = 1 / (1 / self.step - self.eigenvalues / 2)
        solved, correction = solve * slope, solve * self.low_rank
        across = self.low_rank.conj() / 2
        share = _paired(across * solved) / (1 + _paired(across * correction))
        return solved - correction * share


def _paired(terms: Array) -> Array:
    """Return the sum over states and their conjugates, (D, 1)."""
    return 2 * jnp.sum(terms.real, axis=-1, keepdims=True)


class S4(Layer):
    """x' = (Lambda - P P*) x + B u_d, y_d = 2 Re(C_d x) + D_d u_d in every channel d, bilinear in time.

    Parameters, for N/2 stored states and K copies of (Lambda, P, B), which channel d shares with all channels
    of the same d mod K: log_Lambda_re, Lambda_im (K, N/2) with Lambda = -exp(log_Lambda_re) + i Lambda_im;
    P, B (K, 2, N/2) and C (D, 2, N/2), planes of real and imaginary parts; log_step (D,), D (D,); C_backward
    if bidirectional.

    The kernel is the Fourier transform of its values at the roots of unity w,

        dt (r_CB - q r_CP r_PB / (1 + q r_PP)),  q = (1 + w) dt/2,
        r_xy = sum_n x_n y_n / (1 - w - q Lambda_n) over all states and their conjugates,

    with C (1 - A^L) for C and P* for the left P: the published 2 / (1 + w) is multiplied out,
    because it is infinite at w = -1. The published code trains C (1 - A^L), which ties a model to one length
    L; here C is trained, and 1 - A^L computed by doubling.

    Source: Gu, Goel and Re, Efficiently modeling long sequences with structured state spaces, 2022, section 3
    and appendix C; state-spaces/s4 (initial values; B's imaginary parts within 2).
    """

    settings = LayerSettings(
        summary="S4: a diagonal plus low-rank state-space model of N states a channel, N/2 stored.",
        options={
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
    in_pairs = True
    recurrent = frozenset({"log_Lambda_re", "Lambda_im", "P", "B", "log_step"})

    def __init__(
        self,
        d_model: int,
        d_state: int,
        *,
        rngs: nnx.Rngs,
        dt_init: Bounds = settings.default("dt_init"),
        copies: int = settings.default("copies"),
        bidirectional: bool = False,
        algorithm: str = settings.default("algorithm"),
    ) -> None:
        """Start from HiPPO-LegS as the published code does; draw C, D and the steps.

        Args:
            d_model: Width D.
            d_state: States N a channel; N/2 are stored.
            rngs: Source of randomness; its keys may be traced.
            dt_init: Range of the steps, log-uniform; may be traced.
            copies: Number K of copies of Lambda, P and B.
            bidirectional: Whether the layer also reads the sequence backwards, with a read-out of its own.
            algorithm: "convolution" ("auto") or "sequential".

        Raises:
            Refusal: N is odd, or D is not a multiple of K.
        """
        _check_sizes(d_model, d_state, copies)
        self.bidirectional, self.algorithm = bidirectional, algorithm
        stored = d_state // 2
        eigenvalues, low_rank, into = hippo_legs(d_state)
        self.log_Lambda_re = nnx.Param(_copied(np.log(-eigenvalues.real), copies))
        self.Lambda_im = nnx.Param(_copied(eigenvalues.imag, copies))
        self.P = nnx.Param(_copied(np.stack([low_rank.real, low_rank.imag]), copies))
        self.B = nnx.Param(_copied(np.stack([into.real, into.imag]), copies))
        self.C = nnx.Param(normal(rngs.params(), (d_model, 2, stored), 0.5))
        if bidirectional:
            self.C_backward = nnx.Param(normal(rngs.params(), (d_model, 2, stored), 0.5))
        self.log_step = nnx.Param(log_between(rngs.params(), (d_model,), dt_init))
        self.D = nnx.Param(normal(rngs.params(), (d_model,)))

    def coefficients(self) -> StateSpace:
        """Return the system of every channel."""
        eigenvalues = jax.lax.complex(-jnp.exp(self.log_Lambda_re[...]), self.Lambda_im[...])
        repeats = (len(self.D) // len(eigenvalues), 1)
        return StateSpace(
            eigenvalues=jnp.tile(eigenvalues, repeats),
            low_rank=jnp.tile(_complex(self.P[...]), repeats),
            into=jnp.tile(_complex(self.B[...]), repeats),
            step=jnp.exp(self.log_step[...])[:, None],
            out=_complex(self.C[...]),
            out_backward=_complex(self.C_backward[...]) if self.bidirectional else None,
        )

    def respond(self, coefficients: StateSpace, inputs: Array, *, backward: bool) -> tuple[Array, Any]:
        """Return 2 Re(C x), (L, D), and the states, which are computed only if they are used."""
        if self.algorithm == "sequential":
            return super().respond(coefficients, inputs, backward=backward)
        response = kernel(coefficients, coefficients.readout(backward), len(inputs))
        return causal_convolution(response, inputs), self.states(coefficients, inputs)

    def states(self, coefficients: StateSpace, inputs: Array) -> Any:
        """Return the stored states, complex (L, D, N/2)."""
        return jax.lax.scan(partial(self.advance, coefficients), self.initial_state(), inputs)[1]

    def respond_from(self, coefficients: StateSpace, state: Any, inputs: Array) -> tuple[Array, Any, Any]:
        """Return the outputs (L, D) from an initial state, all states, and the last state.

        A convolution is completed by two matrix products: the response of every step to the first state, and
        the contribution of every input to the last state. All sequences share their matrices.
        """
        outputs, states, last = super().respond_from(coefficients, state, inputs)
        if self.algorithm == "sequential":
            return outputs, states, last
        outputs = self.respond(coefficients, inputs, backward=False)[0]
        outputs += free_response(coefficients, coefficients.readout(False), state, len(inputs))
        left = coefficients.held(coefficients.into)
        return (
            outputs,
            states,
            free_state(coefficients, state, len(inputs)) + driven_state(coefficients, left, inputs),
        )

    def read(self, coefficients: StateSpace, states: Any, *, backward: bool) -> Array:
        """Return 2 Re(C x), (L, D), for states (L, D, N/2)."""
        return 2 * jnp.sum((coefficients.readout(backward) * states).real, axis=-1)

    def real(self, states: Any) -> Array:
        """Return real and imaginary parts, (L, D * N)."""
        return super().real(jnp.concatenate([states.real, states.imag], axis=-1))

    def initial_state(self) -> Any:
        """Return the zero state, complex (D, N/2)."""
        return jnp.zeros((len(self.C), self.C.shape[-1]), jnp.complex64)

    def advance(self, coefficients: StateSpace, state: Any, inputs: Array) -> tuple[Any, Any]:
        """Return the next state, which is also the row of `states`, in O(N) a channel."""
        # The change of a step, not the step itself: with short steps its digits would be lost.
        slope = coefficients.slope(state) + coefficients.into * inputs[:, None]
        state = state + coefficients.held(slope)
        return state, state


def _check_sizes(d_model: int, d_state: int, copies: int) -> None:
    if d_state % 2 or d_state < 2:
        raise Refusal("S4: d_state", "must be even", str(d_state), "States come in pairs.")
    if copies < 1 or d_model % copies:
        raise Refusal(
            "S4: copies",
            "d_model must be a multiple of copies",
            f"d_model={d_model}, copies={copies}",
            "Take 1, or as many copies as channels.",
        )


def _copied(values: Any, copies: int) -> Array:
    return jnp.tile(jnp.asarray(values, jnp.float32), (copies, *(1 for _ in values.shape)))


def _complex(planes: Array) -> Array:
    return jax.lax.complex(planes[..., 0, :], planes[..., 1, :])


def hippo_legs(size: int) -> tuple[Any, Any, Any]:
    """Return Lambda, P and B of HiPPO-LegS of an even size N in the basis of its normal part, (N/2,) each."""
    eigenvalues, vectors = normal_hippo(size)
    n = np.arange(size)
    turned = vectors.conj().T
    into = turned @ np.sqrt(2 * n + 1)
    return eigenvalues, turned @ np.sqrt(n + 0.5), into.real + 1j * np.clip(into.imag, -2, 2)


def kernel(system: StateSpace, out: Array, length: int) -> Array:
    """Return 2 Re(C A^t B) of the discretised system for t = 0 .. L - 1.

    Args:
        system: StateSpace of every channel.
        out: C, (D, N/2).
        length: L.

    Returns:
        (L, D).
    """
    doublings = max(1, (length - 1).bit_length())
    of_ends = _without_tail(system, out, doublings)
    angles = 2 * np.pi * np.arange((1 << doublings) // 2 + 1) / (1 << doublings)
    roots = np.exp(-1j * angles)
    # 1 - w without the difference's loss of digits.
    below = jnp.asarray(
        2 * np.sin(angles / 2) * (np.sin(angles / 2) + 1j * np.cos(angles / 2)), jnp.complex64
    )
    at_roots = jax.checkpoint(jax.vmap(partial(_transform, below, jnp.asarray(1 + roots, jnp.complex64))))
    values = at_roots(system.eigenvalues, system.low_rank, system.into, of_ends, system.step)
    return jnp.fft.irfft(values, 1 << doublings)[:, :length].T


def _transform(
    below: Array, above: Array, eigenvalues: Array, low_rank: Array, into: Array, out: Array, step: Array
) -> Array:
    """Return one channel's kernel at the roots w, (F,), for below = 1 - w and above = 1 + w."""
    weight = above * (step / 2)
    pairs = jnp.stack([out * into, out * low_rank, low_rank.conj() * into, low_rank.conj() * low_rank])
    one, other = (
        jnp.matmul(terms, 1 / (below - weight * poles[:, None]), precision=jax.lax.Precision.HIGHEST)
        for terms, poles in ((pairs, eigenvalues), (pairs.conj(), eigenvalues.conj()))
    )
    of_input, of_low_rank, into_low_rank, along = one + other
    return step * (of_input - weight * of_low_rank * into_low_rank / (1 + weight * along))


def free_response(system: StateSpace, out: Array, state: Array, length: int) -> Array:
    """Return 2 Re(C A^t x) for t = 1 .. L, (L, D), for C and x (D, N/2)."""
    row = 2 * jnp.concatenate([out.real, -out.imag], axis=-1)
    changes = _changes(system, length)
    first = row + jnp.einsum("dft,dt->df", changes[0], row, precision=EXACT)
    rows = _multiplied("ldt,dft->ldf", first, changes, length)
    return jnp.einsum("ldf,df->ld", rows, _real(state), precision=EXACT)


def free_state(system: StateSpace, state: Array, length: int) -> Array:
    """Return A^L x for x (D, N/2)."""
    real = _real(state)
    for place, change in enumerate(_changes(system, length + 1)):
        if length >> place & 1:
            real += jnp.einsum("df,dft->dt", real, change, precision=EXACT)
    return _complexes(real)


def driven_state(system: StateSpace, into: Array, inputs: Array) -> Array:
    """Return sum_k A^(L - 1 - k) b u_k, complex (D, N/2), for the discrete b (D, N/2) and u (L, D)."""
    rows = _multiplied("ldf,dft->ldt", _real(into), _changes(system, len(inputs)), len(inputs))
    return _complexes(jnp.einsum("ldn,ld->dn", rows[::-1], inputs, precision=EXACT))


def _multiplied(product: str, first: Array, changes: Sequence[Array], length: int) -> Array:
    """Return a row (D, N) and its products with A, A^2, .. A^(L - 1), (L, D, N), by doubling."""
    rows = first[None]
    for change in changes:
        rows = jnp.concatenate([rows, rows + jnp.einsum(product, rows, change, precision=EXACT)])
    return rows[:length]


def _changes(system: StateSpace, length: int) -> list[Array]:
    """Return A^m - 1 for the powers of two m below L, at least for 1: (D, from, to) on (Re x, Im x).

    Powers of A lie close to 1, so A^m - 1 is doubled instead: (1 + X)^2 - 1 = 2 X + X^2.
    """
    stored = system.into.shape[-1]
    units = jnp.concatenate([jnp.eye(stored), 1j * jnp.eye(stored)]).astype(jnp.complex64)
    moved = jax.vmap(lambda unit: system.held(system.slope(jnp.broadcast_to(unit, system.into.shape))))(units)
    changes = [jnp.concatenate([moved.real, moved.imag], axis=-1).transpose(1, 0, 2)]
    for _ in range((length - 1).bit_length() - 1):
        change = changes[-1]
        changes.append(2 * change + jnp.matmul(change, change, precision=EXACT))
    return changes


def _real(state: Array) -> Array:
    return jnp.concatenate([state.real, state.imag], axis=-1)


def _complexes(real: Array) -> Array:
    return jax.lax.complex(*jnp.split(real, 2, axis=-1))


def _without_tail(system: StateSpace, out: Array, doublings: int) -> Array:
    """Return C (1 - A^L) for L = 2^doublings, (D, N/2).

    A acts on real and imaginary parts as a real matrix (N, N). Its powers lie close to 1, so A^m - 1 is
    doubled instead: (1 + X)^2 - 1 = 2 X + X^2.
    """
    stored = out.shape[-1]
    units = jnp.concatenate([jnp.eye(stored), 1j * jnp.eye(stored)]).astype(jnp.complex64)
    moved = jax.vmap(lambda unit: system.held(system.slope(jnp.broadcast_to(unit, out.shape))))(units)
    matrix = jnp.concatenate([moved.real, moved.imag], axis=-1).transpose(1, 0, 2)  # (D, from, to)

    def double(x: Array, _: None) -> tuple[Array, None]:
        return 2 * x + jnp.matmul(x, x, precision=jax.lax.Precision.HIGHEST), None

    change = jax.lax.scan(double, matrix, length=doublings)[0]
    # 2 Re(C x) is a row of real numbers (Re C, -Im C) on (Re x, Im x).
    row = jnp.concatenate([out.real, -out.imag], axis=-1)
    row = -jnp.einsum("dft,dt->df", change, row, precision=jax.lax.Precision.HIGHEST)
    return jax.lax.complex(row[:, :stored], -row[:, stored:])
