"""S5: one diagonal state-space model with many inputs and outputs, in conjugate pairs."""

from __future__ import annotations

import jax
import numpy as np
from flax import nnx
from jax import Array
from jax import numpy as jnp

from trainables.errors import Refusal
from trainables.layers.layer import Bounds, DiagonalLayer, Folded, complex_normal, log_between, normal
from trainables.layers.recurrence import planar, times
from trainables.layers.recurrence.planar import rows
from trainables.layers.state_space import DISCRETISATIONS, normal_hippo
from trainables.settings import (
    ACTIVATIONS,
    ALGORITHM,
    DISCRETISATION,
    STEPS,
    Count,
    LayerSettings,
    Need,
    Option,
)

LECUN = nnx.initializers.lecun_normal()
TRUNCATED = nnx.initializers.lecun_normal(batch_axis=0)


class S5(DiagonalLayer):
    """x' = Lambda x + B u, y = 2 Re(C x) + D u, discretised by learned steps; one state of each pair.

    Parameters, for P/2 stored states: Lambda_re, Lambda_im, log_step (P/2,), B_re, B_im (P/2, D), C_re, C_im
    (D, P/2), D (D,); C_backward_re, C_backward_im if bidirectional. B and C are in the basis of the
    eigenvectors. Steps are exp(log_step).

    Source: S5, sections 3-4 and appendix B.
    """

    settings = LayerSettings(
        summary="S5: one diagonal state-space model of P states, P/2 stored (S5, section 3).",
        options={
            "blocks": Option(1, "Copies J of HiPPO-N that the transition starts from.", at_least=1),
            "discretisation": DISCRETISATION,
            "readout_init": Option(
                "lecun_normal",
                "Distribution of C.",
                choices=("lecun_normal", "trunc_standard_normal", "complex_normal"),
            ),
            "clip_eigenvalues": Option(False, "Keep real parts of the eigenvalues below -1e-4."),
            "algorithm": ALGORITHM,
            "activations": ACTIVATIONS,
        },
        ranges={"dt_init": STEPS},
        needs=(
            Need(
                ("d_state", "blocks"),
                lambda n, j: n % (2 * j) == 0,
                "d_state must be divisible by 2 * blocks",
            ),
        ),
        parameters=Count(
            ("d_model", "d_state", "bidirectional"),
            lambda d, p, both: p // 2 * (3 + (4 + 2 * both) * d) + d,
        ),
    )
    in_pairs = True
    recurrent = frozenset({"Lambda_re", "Lambda_im", "log_step", "B_re", "B_im"})

    def __init__(
        self,
        d_model: int,
        d_state: int,
        *,
        rngs: nnx.Rngs,
        dt_init: Bounds = settings.default("dt_init"),
        blocks: int = settings.default("blocks"),
        discretisation: str = settings.default("discretisation"),
        readout_init: str = settings.default("readout_init"),
        clip_eigenvalues: bool = settings.default("clip_eigenvalues"),
        bidirectional: bool = False,
        algorithm: str = settings.default("algorithm"),
        activations: str = settings.default("activations"),
    ) -> None:
        """Draw the parameters as the paper does.

        Args:
            d_model: Width D.
            d_state: States P; P/2 are stored.
            rngs: Source of randomness; its keys may be traced.
            dt_init: Range of the steps, log-uniform; may be traced.
            blocks: Number J of copies of HiPPO-N of size P/J that the transition starts from.
            discretisation: "zoh" or "bilinear".
            readout_init: Distribution of C: "lecun_normal" or "trunc_standard_normal" before the change to
                the basis of the eigenvectors, or "complex_normal" in that basis.
            clip_eigenvalues: Keep the real parts of the eigenvalues below -1e-4.
            bidirectional: Whether the layer also reads the sequence backwards, with a read-out of its own.
            algorithm: Algorithm of the recurrence, a name of `recurrence.ALGORITHMS`, or "auto".
            activations: Type of the recurrence's inputs and states.

        Raises:
            Refusal: P is not a multiple of 2 J.
        """
        _check_blocks(d_state, blocks)
        self.bidirectional, self.algorithm, self.activations = bidirectional, algorithm, activations
        self.discretisation, self.clip_eigenvalues = discretisation, clip_eigenvalues
        eigenvalues, vectors = normal_hippo(d_state // blocks)
        self.Lambda_re = nnx.Param(jnp.tile(jnp.asarray(eigenvalues.real, jnp.float32), blocks))
        self.Lambda_im = nnx.Param(jnp.tile(jnp.asarray(eigenvalues.imag, jnp.float32), blocks))
        self.log_step = nnx.Param(log_between(rngs.params(), (d_state // 2,), dt_init))
        basis = np.kron(np.eye(blocks), vectors)
        self.B_re, self.B_im = _parts(_turned(basis.conj().T, LECUN(rngs.params(), (d_state, d_model))))
        self.C_re, self.C_im = _readout(rngs, readout_init, basis, d_model)
        if bidirectional:
            self.C_backward_re, self.C_backward_im = _readout(rngs, readout_init, basis, d_model)
        self.D = nnx.Param(normal(rngs.params(), (d_model,)))

    @property
    def may_grow(self) -> bool:
        """Return True if training may move eigenvalues outside the unit circle: unless they are clipped."""
        return not self.clip_eigenvalues

    def coefficients(self) -> Folded:
        """Return the discretised recurrence of the P/2 stored states; the read-out counts each twice."""
        re = self.Lambda_re[...]
        eigenvalues = planar(jnp.minimum(re, -1e-4) if self.clip_eigenvalues else re, self.Lambda_im[...])
        decay, factor = DISCRETISATIONS[self.discretisation](eigenvalues, jnp.exp(self.log_step[...]))
        columns = times(factor, planar(self.B_re[...].T, self.B_im[...].T))
        return Folded(
            decay=decay,
            into=columns.reshape(len(columns), -1).T,
            out=2 * rows(self.C_re[...].T, -self.C_im[...].T),
            out_backward=2 * rows(self.C_backward_re[...].T, -self.C_backward_im[...].T)
            if self.bidirectional
            else None,
        )


def _check_blocks(d_state: int, blocks: int) -> None:
    if blocks < 1 or d_state % (2 * blocks):
        raise Refusal(
            "S5: blocks",
            "d_state must be a multiple of 2 * blocks",
            f"d_state={d_state}, blocks={blocks}",
            "Choose blocks such that each holds an even number of states.",
        )


def _readout(rngs: nnx.Rngs, kind: str, basis: np.ndarray, d_model: int) -> tuple[nnx.Param, nnx.Param]:
    size, stored = basis.shape
    if kind == "complex_normal":
        return complex_normal(rngs, (d_model, stored), 0.5)
    drawn = (LECUN if kind == "lecun_normal" else TRUNCATED)(rngs.params(), (d_model, size, 2))
    return _parts(_turned(jax.lax.complex(drawn[..., 0], drawn[..., 1]), basis))


def _turned(a: Array | np.ndarray, b: Array | np.ndarray) -> Array:
    return jnp.matmul(jnp.asarray(a, jnp.complex64), jnp.asarray(b, jnp.complex64))


def _parts(a: Array) -> tuple[nnx.Param, nnx.Param]:
    return nnx.Param(a.real), nnx.Param(a.imag)
