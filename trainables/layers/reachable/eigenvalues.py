"""The spectrum of a real system as N free real numbers, or N/2.

    unit      theta          exp(+-i theta): modulus 1
    standard  alpha, beta    alpha +- i beta
    hinge     alpha, omega   alpha +- i omega where omega < 0, else alpha and alpha + omega: two real
                             eigenvalues can become a pair and the other way round

Source: LDStack, figure 1 and section 10.5.1.
"""

from __future__ import annotations

import jax
import numpy as np
from jax import Array
from jax import numpy as jnp
from numpy.typing import NDArray

from trainables.layers.recurrence import conjugate, planar

PARAMETERS = {"unit": ("theta",), "standard": ("alpha", "beta"), "hinge": ("alpha", "omega")}
"""Names of the parameters of each kind, (N/2,) each."""


def spectrum(kind: str, *parameters: Array) -> Array:
    """Return one eigenvalue of every pair and then, for "hinge", the others too.

    Args:
        kind: a name of `PARAMETERS`.
        parameters: those of the kind, (N/2,) each.

    Returns:
        Planes (2, N/2) of numbers whose conjugates are the other half; for "hinge" planes (2, N).
    """
    if kind == "unit":
        return planar(jnp.cos(parameters[0]), jnp.sin(parameters[0]))
    if kind == "standard":
        return planar(*parameters)
    alpha, omega = parameters
    up, down = jax.nn.relu(omega), jax.nn.relu(-omega)
    return jnp.concatenate([planar(alpha, down), planar(alpha + up, -down)], axis=1)


def whole_spectrum(kind: str, *parameters: Array) -> Array:
    """Return all eigenvalues, planes (2, N): each number of the first half, then its partner."""
    found = spectrum(kind, *parameters)
    return found if kind == "hinge" else jnp.concatenate([found, conjugate(found)], axis=1)


def initial_parameters(kind: str, key: Array, pairs: int, systems: int) -> tuple[Array, ...]:
    """Draw the parameters of several systems, one after the other.

    "unit" draws angles uniformly. The others start from the roots of random monic polynomials, which lie near
    the unit circle; NumPy finds them on the host. Roots outside are reflected into it, for no power of them
    may overflow. "standard" draws until no root is real, for its shape holds pairs alone.

    Args:
        kind: a name of `PARAMETERS`.
        key: may be traced.
        pairs: of eigenvalues a system.
        systems: how many.

    Returns:
        The parameters, (systems * pairs,) each.
    """
    if kind == "unit":
        return (jax.random.uniform(key, (systems * pairs,), minval=-2 * jnp.pi, maxval=2 * jnp.pi),)
    shape = jax.ShapeDtypeStruct((2, systems * pairs), jnp.float32)

    def draw(seed: NDArray[np.uint32]) -> NDArray[np.float32]:
        generator = np.random.default_rng(np.asarray(seed))
        found = [_roots(kind, generator, pairs) for _ in range(systems)]
        return np.concatenate(found, axis=1).astype(np.float32)

    drawn = jax.pure_callback(draw, shape, jax.random.bits(key, (2,)), vmap_method="sequential")
    return drawn[0], drawn[1]


def _roots(kind: str, generator: np.random.Generator, pairs: int) -> NDArray[np.float64]:
    """Return (2, pairs) parameters of the roots of one random monic polynomial of degree 2 * pairs."""
    while True:
        degree = 2 * pairs
        roots = np.roots(np.r_[1, generator.normal(size=degree) / degree**0.5])
        roots = np.where(abs(roots) > 1, 1 / roots.conj(), roots)
        upper, real = roots[roots.imag > 0], np.sort(roots[roots.imag == 0].real)
        if kind == "hinge":
            gaps = real[1::2] - real[0::2]
            return np.array([np.r_[upper.real, real[0::2]], np.r_[-upper.imag, gaps]])
        if len(upper) == pairs:
            return np.array([upper.real, upper.imag])
