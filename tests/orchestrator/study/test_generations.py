"""The state of CMA-ES goes through JSON and back, and nothing that somebody else has pickled is ever read."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path

import cmaes
import numpy as np
import pytest

from orchestrator.errors import Damaged
from orchestrator.study.generations import from_plain, to_plain


def _written(optimizer: object) -> dict[str, object]:
    """Return attributes as Optuna writes them: hexadecimal, in pieces."""
    text = pickle.dumps(optimizer).hex()
    return {
        f"cma:optimizer:{k}": text[start : start + 500] for k, start in enumerate(range(0, len(text), 500))
    }


def test_an_optimizer_goes_on_where_it_was() -> None:
    optimizer = cmaes.CMA(np.zeros(3), 1.3, seed=5)
    optimizer.tell([(point, float(point @ point)) for point in (optimizer.ask() for _ in range(7))])
    stored = json.loads(json.dumps(to_plain({**_written(optimizer), "cma:generation": 1})))
    assert stored["cma:generation"] == 1
    assert set(stored) == {"cma:generation", "optimizer"}
    again = pickle.loads(bytes.fromhex(str(from_plain(stored)["cma:optimizer:0"])))
    assert again.generation == optimizer.generation
    again._rng, optimizer._rng = np.random.RandomState(1), np.random.RandomState(1)
    assert (again.ask() == optimizer.ask()).all()


class Evil:
    """What a hostile pickle would run."""

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return (Path.write_text, (Path("pwned"), "pwned"))


@pytest.mark.parametrize(
    "name", ["cma:optimizer:0", "sepcma:optimizer:0", "cmawm:optimizer", "cma:optimizer:x"]
)
def test_a_planted_pickle_is_refused(name: str) -> None:
    """Optuna would unpickle whatever begins like its own attribute."""
    with pytest.raises(Damaged, match="must be plain JSON, no pickle"):
        from_plain({name: pickle.dumps(Evil()).hex()})
