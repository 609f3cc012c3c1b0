"""The forms that the gated layers are measured against give the same outputs."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import pytest

from benchmarks.gated_layers import FORMS, RULES, forms, rule_arguments
from benchmarks.printed_gated import PRINTED
from tests.trainables.layers.cases import apart, build, sequence


@pytest.mark.parametrize("name", ["rg_lru", pytest.param("min_gru", marks=pytest.mark.slow), "rot_gated"])
def test_forms_agree(name: str) -> None:
    """Each form has its own rounding and, in the first steps of minGRU's logarithms, cancellation."""
    layer, u, has = build(name), sequence(9), forms(name)
    answers: dict[str, Any] = jax.jit(lambda u: {form: FORMS[form](name, layer, u) for form in has})(u)
    assert set(answers) == {"ours", "scan", "associative", *PRINTED}
    for form, outputs in answers.items():
        assert apart(outputs, answers["ours"]) < 2e-5, form


@pytest.mark.slow
def test_delta_rules_agree() -> None:
    """The chunked delta rule and its loops, alone and in the layer."""
    arguments = rule_arguments(40, 1)
    alone = [jax.jit(rule)(*arguments) for rule in RULES.values()]
    layer, u = build("delta_net"), sequence(9)
    within = [jax.jit(partial(FORMS[form], "delta_net", layer))(u) for form in forms("delta_net")]
    for answers in (alone, within):
        for others in answers[1:]:
            assert apart(others, answers[0]) < 1e-5
