"""Private interface of Typer: the check of a value by its type. Checked with Typer 0.29.2.

Typer builds an adapter of pydantic for every parameter, and pydantic takes as long to import as a quarter of
SQLAlchemy. A text, a path and a number that already has its type need none. Other values, such as a number
from the command line, are left to Typer. `tests/orchestrator/cli/test_typer_private.py` fails when these
interfaces change.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer.core
from typer._coercion import TypeDescriptor, build_runtime_param
from typer._param_types import coerce_cli_path

CHECKED_VERSION = "0.29.2"


@dataclass(frozen=True)
class LightCheck:
    """The check of a parameter's values, which builds the adapter of pydantic only for values that need it.

    Attributes:
        descriptor: Type and conditions of the parameter.
    """

    descriptor: TypeDescriptor

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return a value of the command line, the environment or the default, with the parameter's type.

        Raises:
            typer.BadParameter: It does not have this type, or violates a condition.
        """
        kind, given = self.descriptor.annotation, self.descriptor.parameter_info
        is_list = param.multiple or param.nargs == -1
        if given.parser is None and value is not None:
            if not is_list and kind is str and isinstance(value, str):
                return value
            if is_list and kind == list[str] and all(isinstance(one, str) for one in value):
                return list(value)
            if not is_list and kind is Path and given.path_type is None:
                return coerce_cli_path(Path(value), given, path_type=Path, param=param, ctx=ctx)
            if kind in (int, float) and type(value) is kind and not self.descriptor.is_ranged:
                return value
        elif value is None:
            return () if is_list else None
        return build_runtime_param(self.descriptor).coerce(value, param=param, ctx=ctx)


def check_values_lightly() -> None:
    """Let Typer check the values of this process by `LightCheck`."""
    vars(typer.core)["build_runtime_param"] = LightCheck
