"""The gated layers against float64 loops, and what each of them promises."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import numpy as np
import pytest
import scipy.linalg
from flax import nnx
from jax import Array
from jax import numpy as jnp

from tests.trainables.layers import gated_reference
from tests.trainables.layers.cases import apart, build, exact, sequence
from tests.trainables.layers.graded import check
from trainables.errors import Refusal
from trainables.layers import LAYERS
from trainables.layers.rg_lru import joined

CASES = [
    ("gru", {}),
    ("min_gru", {}),
    ("rot_gated", {}),
    ("rot_gated", {"start": "learned"}),
    pytest.param("rot_gated", {"d_state": 6, "heads": 2}, marks=pytest.mark.slow),
    ("rg_lru", {}),
    ("rg_lru", {"complex": True}),
    ("urnn", {}),
]


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(("name", "options"), CASES)
def test_loop(name: str, options: dict[str, Any]) -> None:
    """Outputs, norms of states and gradients equal those of a float64 loop, over more than one chunk."""
    check(name, getattr(gated_reference, name), **options)


@pytest.mark.slow
def test_pd_ssm() -> None:
    """The same of PD-SSM, whose one-hot columns have the gradient of their softmax."""
    check("pd_ssm", gated_reference.PDSSM())


@pytest.mark.slow
@pytest.mark.parametrize("signed", [False, True])
def test_s6(signed: bool) -> None:
    """The same of Mamba's mixer."""
    check("s6", partial(gated_reference.s6, signed=signed), d_state=4, signed=signed)


@pytest.mark.slow
@pytest.mark.parametrize("context", [20, pytest.param(2048, marks=pytest.mark.slow)])
def test_attention(context: int) -> None:
    """The same of attention, with a context shorter or longer than the sequence."""
    check(
        "attention", partial(gated_reference.attention, heads=2, context=context), length=150, context=context
    )


DELTA: list[Any] = [
    ("delta_net", {"algorithm": "sequential"}, {}),
    ("delta_net", {"algorithm": "chunked", "signed": True}, {"signed": True}),
    ("gated_delta_net", {"algorithm": "chunked"}, {}),
    ("delta_product", {"algorithm": "chunked", "householders": 3, "signed": True}, {"signed": True, "J": 3}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "options", "of_reference"), DELTA)
def test_delta_rule(name: str, options: dict[str, Any], of_reference: dict[str, Any]) -> None:
    """The same of the delta rule, whose loop multiplies by 1 - beta k k^T; chunks are exact."""
    check(name, partial(gated_reference.delta_net, **of_reference), **options)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["delta_net", "gated_delta_net", "delta_product"])
def test_a_delta_rule_has_one_head_unless_a_file_names_more(name: str) -> None:
    """Any width will do then, and the rule is faster than its loop; see decision 10."""
    make: Any = LAYERS[name]
    layer = make(d_model=5, d_state=7, rngs=nnx.Rngs(0))
    assert layer.initial_state()[1].shape == (1, 7, 5)
    assert layer(sequence(9)[:, :1] * jnp.ones(5)).shape == (9, 5)


@pytest.mark.parametrize(("platform", "steps"), [("cpu", 32), ("gpu", 64)])
def test_chunks_of_the_delta_rule_are_the_measured_ones(
    platform: str, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GPU starts fewer kernels for longer chunks; a row of two steps counts twice."""
    monkeypatch.setattr(jax, "default_backend", lambda: platform)
    assert build("delta_net").chunk_size == steps
    assert build("delta_product", householders=2).chunk_size == steps // 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["rg_lru", *(pytest.param(n, marks=pytest.mark.slow) for n in ("min_gru", "rot_gated"))]
)
def test_chunks_of_another_length_change_nothing(name: str) -> None:
    """A layer for one sequence has longer chunks than one for 32, with the same outputs and gradients."""
    layer, u = build(name), sequence(200)
    graphs = [nnx.split(layer.over(batch)) for batch in (1, 32)]

    def graded(graph: Any, parameters: Any, u: Array) -> Any:
        return jax.value_and_grad(
            lambda *given: jnp.sum(jnp.sin(nnx.merge(graph, given[0])(given[1]))), (0, 1)
        )(parameters, u)

    one, other = (jax.jit(partial(graded, graph))(parameters, u) for graph, parameters in graphs)
    for some, others in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert apart(some, others) < 1e-5


READ_OUT = {"C": (4, 16), "D": (4,)}
OF_DELTA_NET = {
    **{"W_q": (16, 4), "W_k": (16, 4), "W_v": (4, 4), "conv_q": (16, 4), "conv_k": (16, 4), "conv_v": (4, 4)},
    **{"W_beta": (2, 4), "norm": (2,), "out_proj": (4, 4)},
}
OF_ROTRNN = {"theta": (4, 2), "gamma_log": (4,), "M": (4, 4, 4), "B": (4, 4, 4), **READ_OUT}
OF_S4 = {"log_Lambda_re": (1, 8), "Lambda_im": (1, 8), "P": (1, 2, 8), "B": (1, 2, 8), "C": (4, 2, 8)}
Shapes = dict[str, tuple[int, ...]]
OF_RG_LRU: Shapes = {
    **{"B": (16, 4), "W_a": (4, 4, 4), "W_x": (4, 4, 4), "b_a": (16,), "b_x": (16,), "Lambda": (16,)},
    **READ_OUT,
}
SHAPES: dict[str, Shapes] = {
    "gru": {"W": (3, 16, 4), "U": (3, 16, 16), "b": (3, 16), **READ_OUT},
    "min_gru": {"W_z": (16, 4), "W_h": (16, 4), **READ_OUT},
    "rot_gated": {**OF_ROTRNN, "W_theta": (4, 2, 4), "W_gamma": (4, 4), "b_gamma": (4,)},
    "rg_lru": OF_RG_LRU,
    "s6": {
        **{"in_proj": (16, 4), "conv": (8, 4), "conv_bias": (8,), "x_proj": (33, 8), "dt_proj": (8, 1)},
        **{"dt_bias": (8,), "A_log": (8, 16), "D": (8,), "out_proj": (4, 8)},
    },
    "delta_net": OF_DELTA_NET,
    "gated_delta_net": {**OF_DELTA_NET, "W_alpha": (2, 4), "dt_bias": (2,), "A_log": (2,), "W_g": (4, 4)},
    "delta_product": {
        **OF_DELTA_NET,
        **{"W_k": (2, 16, 4), "W_v": (2, 4, 4), "conv_k": (2, 16, 4), "conv_v": (2, 4, 4)},
        **{"W_beta": (2, 1, 4), "norm": (4,)},
    },
    "s4": {**OF_S4, "log_step": (4,), "D": (4,)},
    "liquid_s4": {**OF_S4, "log_step": (4,), "D": (4,)},
    "urnn": {
        **{"theta": (3, 16), "v_re": (2, 16), "v_im": (2, 16), "b": (16,), "V_re": (16, 4), "V_im": (16, 4)},
        **{"h0_re": (16,), "h0_im": (16,), "C": (4, 32), "D": (4,)},
    },
    "attention": {"W_q": (16, 4), "W_k": (16, 4), "W_v": (4, 4), "out_proj": (4, 4)},
    "none": {"D": (4,)},
}
"""Of a model of width 4 with 16 states; `OPTIONS` has the numbers of heads."""


OF_COMPLEX: Shapes = {**OF_RG_LRU, "theta": (16,), "C_im": (4, 16)}
OF_OPTIONS: list[tuple[str, dict[str, Any], Shapes]] = [
    ("rg_lru", {"complex": True}, OF_COMPLEX),
    (
        *("rg_lru", {"complex": True, "bidirectional": True}),
        {**OF_COMPLEX, "C_backward": (4, 16), "C_backward_im": (4, 16)},
    ),
]
"""With options that add parameters."""


@pytest.mark.parametrize(
    ("name", "options", "shapes"), [*((name, {}, shapes) for name, shapes in SHAPES.items()), *OF_OPTIONS]
)
def test_parameters_can_be_set_from_outside(name: str, options: dict[str, Any], shapes: Shapes) -> None:
    """Names and shapes are those that docs/layers.md refers to, so that weights of other programs fit."""
    drawn = jax.eval_shape(lambda: nnx.to_pure_dict(nnx.state(build(name, **options), nnx.Param)))
    assert {path: value.shape for path, value in drawn.items()} == shapes


@pytest.mark.slow
def test_rot_gated_is_rotrnn_without_its_gates() -> None:
    """With W_theta, W_gamma and b_gamma at zero it is RotRNN but for rounding; heads have 5 channels."""
    sizes = {"d_state": 10, "heads": 2}
    plain, gated = build("rotrnn", **sizes), build("rot_gated", **sizes)
    for name in ("theta", "gamma_log", "M", "B", "C", "D"):
        getattr(gated, name)[...] = getattr(plain, name)[...]
    for name in ("W_theta", "W_gamma", "b_gamma"):
        getattr(gated, name)[...] = jnp.zeros_like(getattr(gated, name)[...])
    u = sequence(200)
    (outputs, states), (expected, expected_states) = jax.jit(lambda u: (gated.run(u), plain.run(u)))(u)
    assert apart(outputs, expected) < 1e-6
    assert apart(states, expected_states) < 1e-6


@pytest.mark.slow
def test_rot_gated_keeps_the_norm_while_decays_ignore_the_input() -> None:
    """E ||x_t||^2 tends to one a head, with decays that differ and angles that vary, but W_gamma at zero."""
    layer = build("rot_gated", d_model=8, d_state=32, heads=8)
    layer.b_gamma[...] = jnp.linspace(-1, 1, 8)
    layer.W_theta[...] = 2 * layer.W_theta[...]
    u = jnp.asarray(np.random.default_rng(0).standard_normal((200, 300, 8)), jnp.float32)
    states = jax.jit(jax.vmap(layer.run))(u)[1]
    power = jnp.mean(jnp.sum(states[:, -1].reshape(200, 2, 8, 2) ** 2, axis=(1, 3)), axis=0)
    np.testing.assert_allclose(power, 1, atol=0.12)


@pytest.mark.slow
def test_rot_gated_leaves_the_norm_where_decays_depend_on_the_input() -> None:
    """With W_gamma, xi_t and u_t are dependent: E ||x_t||^2 is not one, and is what float64 integrals say.

    Of n sequences the mean of ||x_t||^2 lies within five of its standard deviations of the expectation.
    """
    layer, steps, count = build("rot_gated", d_model=8, d_state=32, heads=8), 60, 2000
    layer.W_gamma[...] = jnp.asarray(np.random.default_rng(3).standard_normal((8, 8)), jnp.float32)
    layer.W_theta[...] = jnp.zeros_like(layer.W_theta[...])
    u = np.random.default_rng(0).standard_normal((count, steps, 8), np.float32)
    last = jax.jit(jax.vmap(lambda u: layer.run(u)[1][-1]))(jnp.asarray(u))
    powers = np.sum(np.asarray(last, np.float64).reshape(count, 2, 8, 2) ** 2, axis=(1, 3))
    expected = _expected_power(exact(layer), steps)
    deviation = np.std(powers, axis=0) / count**0.5
    assert np.all(np.abs(powers.mean(axis=0) - expected) < 5 * deviation)
    assert np.max(np.abs(powers.mean(axis=0) - 1) / deviation) > 5


def _expected_power(p: dict[str, Any], steps: int) -> Any:
    """Return E ||x_t||^2 of every head for independent u ~ N(0, 1), with W_theta = 0.

    gamma_t and xi_t depend on s = w . u alone, so that u = s w / |w|^2 plus an independent rest, and all
    expectations are integrals over s.
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(200)
    weights = weights / weights.sum()
    powers = []
    for h, (w, into) in enumerate(zip(p["W_gamma"], p["B"], strict=True)):
        basis, turn = scipy.linalg.expm(p["M"][h] - p["M"][h].T), np.eye(len(into))
        for i, angle in enumerate(p["theta"][h]):
            cos, sin = np.cos(angle), np.sin(angle)
            turn[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = [[cos, -sin], [sin, cos]]
        transition, square = basis @ turn @ basis.T, w @ w
        along = into @ w / np.linalg.norm(into)
        s = nodes * square**0.5
        gamma = np.exp(-np.exp(p["gamma_log"][h] + s + p["b_gamma"][h]))
        xi = np.sqrt(1 - gamma**2)
        share = along @ along / square
        taken = weights @ (xi**2 * s**2) / square * share + weights @ xi**2 * (1 - share)
        mean, power = np.zeros(len(into)), 0.0
        for _ in range(steps):
            moved = transition @ mean
            power = weights @ gamma**2 * power + 2 * (weights @ (gamma * xi * s)) / square * moved @ along
            power += taken
            mean = weights @ gamma * moved + weights @ (xi * s) / square * along
        powers.append(power)
    return np.array(powers)


@pytest.mark.slow
def test_rot_gated_starts_as_documented() -> None:
    """A learned start has norm 1 a head and changes no other parameter; angles vary by one radian."""
    sizes = {"d_model": 64, "d_state": 512, "heads": 32}
    plain, started = build("rot_gated", **sizes), build("rot_gated", start="learned", **sizes)
    arrays = exact(started)
    start = arrays.pop("x0")
    for name, array in exact(plain).items():
        np.testing.assert_array_equal(arrays.pop(name), array)
    assert not arrays
    assert np.mean(np.sum(start**2, axis=1)) == pytest.approx(1, abs=0.2)
    assert np.linalg.norm(np.asarray(started.initial_state())) == pytest.approx(
        np.linalg.norm(start), rel=1e-5
    )
    assert not np.any(plain.initial_state())
    angles = exact(plain)["W_theta"] @ np.random.default_rng(0).standard_normal((64, 100))
    assert np.std(angles) == pytest.approx(1, abs=0.05)


@pytest.mark.slow
def test_rot_gated_steps_from_its_learned_start() -> None:
    """A step at a time from the learned state gives the outputs of the whole sequence."""
    layer, u = build("rot_gated", start="learned", d_state=10, heads=2), sequence(6)
    whole, (steps, none) = jax.jit(
        lambda u: (layer(u), [jax.lax.scan(layer.step, start, u)[1] for start in _starts(layer)])
    )(u)
    assert apart(steps, whole) < 1e-5
    assert apart(none, whole) > 0.01


def _starts(layer: Any) -> tuple[Any, Any]:
    return layer.initial_state(), jnp.zeros_like(layer.initial_state())


@pytest.mark.slow
def test_rot_gated_survives_any_input() -> None:
    """Decays that under- or overflow are 0 or 1; nothing is nan, nor are gradients."""
    layer = build("rot_gated")
    layer.W_gamma[...] = jnp.ones_like(layer.W_gamma[...])
    graded = jax.jit(jax.value_and_grad(lambda u: jnp.sum(layer(u) ** 2)))
    for scale in (1e2, -1e2):
        value, gradient = graded(jnp.full((20, 4), scale))
        assert np.isfinite(value)
        assert np.isfinite(gradient).all()


@pytest.mark.slow
def test_min_gru_keeps_states_positive() -> None:
    assert float(jnp.min(build("min_gru").run(sequence(50))[1])) > 0


@pytest.mark.slow
def test_rg_lru_starts_with_slow_decays() -> None:
    """exp(-softplus(Lambda)) lies on the ring of `r_init`; a half-open gate decays by its fourth power."""
    slow = np.exp(-np.log1p(np.exp(exact(build("rg_lru", d_state=512, heads=8))["Lambda"])))
    assert 0.9 < slow.min() < 0.905
    assert 0.997 < slow.max() < 0.999


def test_rg_lru_can_start_from_the_papers_decays() -> None:
    """An open gate decays by 0.9 to 0.999 in the paper, by 0.43 to 0.992 in the code and by default."""
    eighth = 1 / 8
    papers = build("rg_lru", d_state=512, heads=8, r_init=(0.9**eighth, 0.999**eighth))
    decays, default = (
        np.exp(-8 * np.log1p(np.exp(exact(layer)["Lambda"])))
        for layer in (papers, build("rg_lru", d_state=512, heads=8))
    )
    assert 0.9 < decays.min() < 0.902
    assert 0.997 < decays.max() < 0.999
    assert 0.43 < default.min() < 0.45
    assert default.max() < 0.992


@pytest.mark.parametrize(("heads", "size", "groups"), [(16, 8, 2), (3, 40, 3), (6, 20, 2), (1, 100, 1)])
def test_blocks_are_joined(heads: int, size: int, groups: int) -> None:
    """Joined blocks multiply as the blocks do, as few and as wide as 64 channels allow."""
    draw = np.random.default_rng(0)
    blocks, x = draw.standard_normal((heads, size, size)), draw.standard_normal((heads, size))
    wide = np.asarray(joined(jnp.asarray(blocks, jnp.float32)))
    assert len(wide) == groups
    actual = np.einsum("gij,gj->gi", wide, x.reshape(groups, -1)).reshape(heads, size)
    np.testing.assert_allclose(actual, np.einsum("hij,hj->hi", blocks, x), rtol=1e-4, atol=1e-4)


def test_rg_lru_needs_equal_heads() -> None:
    with pytest.raises(Refusal, match="multiple of heads"):
        build("rg_lru", d_state=10, heads=4)
