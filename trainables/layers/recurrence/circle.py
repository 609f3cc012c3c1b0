"""Cosine and sine of many angles at once.

XLA for CPU computes them element by element, as slowly as sixteen exponentials each: in a layer whose angles
depend on the input, longer than the recurrence itself. Here they are polynomials, which it vectorises.

An angle is k quarter turns and a rest r. k pi / 2 is subtracted in four parts, the first three of 12 bits, so
that their products with k < 2^10 are exact and r keeps its digits even next to a multiple of pi / 2.

Source: Cody and Waite, Software manual for the elementary functions, 1980, chapter 8 (reduction); Moshier,
Cephes mathematical library, sinf and cosf (polynomials).
"""

from __future__ import annotations

import jax
from jax import Array
from jax import numpy as jnp

Pair = tuple[Array, Array]
"""Cosine and sine."""

LARGEST = 1024.0
"""Angles up to here, in radians, are reduced by `_QUARTER`; larger ones are left to XLA."""

_QUARTER = tuple(
    float.fromhex(part) for part in ("0x1.92p+0", "0x1.fb4p-12", "0x1.444p-24", "0x1.68c234p-39")
)
"""pi / 2 in four parts."""

_SINE = (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
_COSINE = (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)


@jax.custom_jvp
def cosine_sine(angle: Array) -> Pair:
    """Return the cosine and the sine of every angle, in radians.

    On a CPU float32 answers are within 2 units in the last place of the exact ones, or 1e-7.
    """
    if angle.dtype != jnp.float32 or jax.default_backend() != "cpu":
        return jnp.cos(angle), jnp.sin(angle)
    return _with_large(angle, _of_moderate(angle))


@cosine_sine.defjvp
def _jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Pair, Pair]:
    (angle,), (along,) = primals, tangents
    cosine, sine = cosine_sine(angle)
    return (cosine, sine), (-sine * along, cosine * along)


def _of_moderate(angle: Array) -> Pair:
    """Return cosine and sine of angles up to `LARGEST`."""
    quarters = jnp.round(angle * (2 / jnp.pi))
    rest = angle
    for part in _QUARTER:
        rest -= quarters * part
    power = rest * rest
    sine = rest + rest * power * jnp.polyval(jnp.array(_SINE), power)
    cosine = 1 - 0.5 * power + power * power * jnp.polyval(jnp.array(_COSINE), power)
    turned = quarters.astype(jnp.int32)
    is_odd = (turned & 1) == 1
    return (
        jnp.where(is_odd, sine, cosine) * (1 - ((turned + 1) & 2)),
        jnp.where(is_odd, cosine, sine) * (1 - (turned & 2)),
    )


def _with_large(angle: Array, moderate: Pair) -> Pair:
    """Return the pair with XLA's own answers to angles beyond `LARGEST`, if there are any.

    This is a loop instead of a `cond`: under `vmap`, a `cond` always computes both sides, while a loop runs
    only as long as an element of the batch needs it and leaves the others unchanged. The angles change inside
    the loop, because XLA would otherwise move the work out of it.
    """

    def large(angle: Array) -> Array:
        return jnp.abs(angle) > LARGEST

    def once(carry: tuple[Array, Pair]) -> tuple[Array, Pair]:
        angle, (cosine, sine) = carry
        exact = jnp.where(large(angle), jnp.cos(angle), cosine), jnp.where(large(angle), jnp.sin(angle), sine)
        return jnp.where(large(angle), 0, angle), exact

    return jax.lax.while_loop(lambda carry: jnp.any(large(carry[0])), once, (angle, moderate))[1]
