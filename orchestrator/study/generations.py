"""The state of CMA-ES between generations, as plain JSON in the ledger.

Optuna keeps it pickled among a trial's attributes, and unpickles whatever it finds there. Nothing pickled is
ever read from disk: what this process has pickled is turned into numbers before it is stored, and back when a
study is rebuilt, and a stored attribute that Optuna would unpickle is refused.
"""

from __future__ import annotations

import importlib

# Optuna's own form of the state; only what this process has pickled is unpickled.
import pickle
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from orchestrator.errors import Damaged

_PIECE = re.compile(r"(?:cma|cmawm):optimizer:(\d+)")
_STORED = "optimizer"
_CLASSES = ("CMA", "CMAwM")
_DTYPES = ("float64", "int64", "bool")


def to_plain(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Return a trial's attributes, just written by this process, with any optimizer as plain JSON."""
    pieces = {int(found[1]): name for name in attrs if (found := _PIECE.fullmatch(name))}
    plain = {name: value for name, value in attrs.items() if name not in pieces.values()}
    if pieces:
        pickled = bytes.fromhex("".join(attrs[pieces[index]] for index in sorted(pieces)))
        plain[_STORED] = {"key": pieces[0].rpartition(":")[0], "state": _encode(pickle.loads(pickled))}
    return plain


def from_plain(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Return stored attributes as Optuna expects them.

    Raises:
        Damaged: one of them is an optimizer that somebody else has pickled.
    """
    full = {name: value for name, value in attrs.items() if name != _STORED}
    if planted := [name for name in full if f":{_STORED}" in name]:
        remedy = "Run `recover` to rebuild the ledger from its backup."
        raise Damaged("ledger, attributes of a trial", "must be plain JSON, no pickle", planted[0], remedy)
    if _STORED in attrs:
        stored = attrs[_STORED]
        full[f"{stored['key']}:0"] = pickle.dumps(_decode(stored["state"])).hex()
    return full


def _encode(value: Any) -> Any:
    if type(value).__name__ in _CLASSES:
        return {"class": type(value).__name__, "state": _encode(value.__getstate__())}
    if isinstance(value, np.ndarray | np.generic):
        return {"dtype": value.dtype.name, "shape": list(value.shape), "values": value.ravel().tolist()}
    if isinstance(value, dict):
        return {"fields": {name: _encode(each) for name, each in value.items()}}
    assert value is None or isinstance(value, bool | int | float), f"{type(value)} in an optimizer's state"
    return value


def _decode(plain: Any) -> Any:
    if not isinstance(plain, dict):
        return plain
    if "class" in plain:
        # cmaes is an extra: only a sweep that uses it needs it.
        kind = getattr(importlib.import_module("cmaes"), _CLASSES[_CLASSES.index(plain["class"])])
        optimizer = kind.__new__(kind)
        # As pickle does: a class without a method for it takes the state as its attributes.
        restore = getattr(optimizer, "__setstate__", optimizer.__dict__.update)
        restore(_decode(plain["state"]))
        return optimizer
    if "fields" in plain:
        return {name: _decode(each) for name, each in plain["fields"].items()}
    dtype = np.dtype(_DTYPES[_DTYPES.index(plain["dtype"])])
    array = np.array(plain["values"], dtype).reshape(plain["shape"])
    return array if plain["shape"] else array[()]
