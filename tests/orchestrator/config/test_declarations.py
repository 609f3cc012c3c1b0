"""Declarations of samplers and schedulers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError, create_model

from orchestrator.config import strategy
from orchestrator.config.declarations import Setting
from orchestrator.config.sections import validated
from orchestrator.config.strategy import SAMPLERS, SCHEDULERS, options_section
from trainables.declare import source

REGISTERED = [("sampler", SAMPLERS, name) for name in SAMPLERS]
REGISTERED += [("scheduler", SCHEDULERS, name) for name in SCHEDULERS]


@pytest.mark.parametrize(("kind", "registry", "name"), REGISTERED)
def test_the_class_declares_what_is_read(kind: str, registry: Any, name: str) -> None:
    assert registry.settings(name) == registry[name].settings
    assert registry.settings(name).summary.endswith((".", "set"))


@pytest.mark.parametrize(("kind", "registry", "name"), REGISTERED)
def test_the_defaults_keep_the_rules(kind: str, registry: Any, name: str) -> None:
    settings = registry.settings(name)
    required = {key: option.example for key, option in settings.options.items() if option.default is ...}
    options = validated(options_section(kind, name), required).model_dump(mode="json")
    assert set(settings.options) <= set(options)
    for need in settings.needs:
        assert need.holds(*(options[option] for option in need.of)), need.must


def test_the_generated_module_is_that_of_the_classes() -> None:
    file = Path(strategy.__file__).with_name("declared.py")
    assert file.read_text("utf-8") == source([SAMPLERS, SCHEDULERS]), "See trainables/declare.py."


def test_reading_imports_neither_optuna_nor_ray() -> None:
    code = (
        "import sys\n"
        "from orchestrator.config.strategy import SAMPLERS, SCHEDULERS\n"
        "for registry in (SAMPLERS, SCHEDULERS):\n"
        "    for name in registry:\n"
        "        registry.settings(name)\n"
        "print({'optuna', 'ray', 'orchestrator.study', 'orchestrator.schedule'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize(
    ("option", "right", "wrong"),
    [
        (Setting("whole", "", 1, at_least=0, at_most=2), 2, 3),
        (Setting("number", "", 1.0, above=0, below=2), 1.5, 2),
        (Setting("flag", "", True), False, 0),
        (Setting("word", "", "a", choices=("a", "b")), "b", "c"),
        (Setting("words", "", example=["a"], at_least=1, at_most=2), ["a", "b"], []),
        (Setting("pair", "", (0.1, 0.2)), [1, 2], [1]),
        (Setting("whole", "", None, example=3, optional=True), None, "x"),
    ],
)
def test_an_option_is_checked_by_its_kind_and_bounds(option: Setting, right: Any, wrong: Any) -> None:
    model = create_model("Options", value=option.field())
    assert model.model_validate({"value": right}).model_dump(mode="json")["value"] == right
    with pytest.raises(ValidationError):
        model.model_validate({"value": wrong})
