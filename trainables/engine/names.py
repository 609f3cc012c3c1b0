"""A slot's trained state as the named arrays of a checkpoint, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax import Array
from jax import numpy as jnp

from trainables.engine.packing import Packing
from trainables.engine.state import Trained
from trainables.errors import Refusal
from trainables.optim import Moments

_PACKED = ("params", "stats", "moments/mu", "moments/nu")


@dataclass(frozen=True)
class Names:
    """Names such as `params/blocks/0/layer/theta`, `moments/mu/head/kernel`, `step`."""

    params: Packing
    stats: Packing

    def apart(self, trained: Trained) -> dict[str, np.ndarray]:
        """Return the arrays by name, on the host."""
        host = jax.device_get(trained)
        arrays = {"step": host.step, "moments/count": host.moments.count}
        vectors = host.params, host.stats, host.moments.mu, host.moments.nu
        for group, vector in zip(_PACKED, vectors, strict=True):
            arrays |= {f"{group}/{name}": part for name, part in self._packing(group).split(vector).items()}
        return {name: np.array(array) for name, array in arrays.items()}

    def together(self, arrays: Mapping[str, np.ndarray]) -> Trained:
        """Return the state that `apart` took apart.

        Raises:
            Refusal: if names, shapes or types are not those of the model.
        """
        self._check(arrays)
        params, stats, mu, nu = (self._vector(group, arrays) for group in _PACKED)
        moments = Moments(count=jnp.asarray(arrays["moments/count"]), mu=mu, nu=nu)
        return Trained(params=params, stats=stats, moments=moments, step=jnp.asarray(arrays["step"]))

    def _vector(self, group: str, arrays: Mapping[str, np.ndarray]) -> Array:
        parts = [np.ravel(arrays[f"{group}/{name}"]) for name in self._packing(group).names]
        return jnp.asarray(np.concatenate(parts))

    def _packing(self, group: str) -> Packing:
        return self.stats if group == "stats" else self.params

    def _check(self, arrays: Mapping[str, np.ndarray]) -> None:
        wanted: dict[str, Any] = {"step": ((), np.int32), "moments/count": ((), np.int32)}
        for group in _PACKED:
            packing = self._packing(group)
            for name, shape in zip(packing.names, packing.shapes, strict=True):
                wanted[f"{group}/{name}"] = (shape, np.float32)
        if odd := sorted(wanted.keys() ^ arrays.keys()):
            side = "in the checkpoint" if odd[0] in arrays else "in the model"
            raise _misfit("its arrays must be those of the model", f"{odd[0]} only {side}")
        for name, (shape, kind) in wanted.items():
            found = arrays[name]
            if (found.shape, found.dtype) != (shape, kind):
                raise _misfit(f"{name} must be {np.dtype(kind)} {shape}", f"{found.dtype} {found.shape}")


def _misfit(must: str, got: str) -> Refusal:
    return Refusal("checkpoint", must, got, "Use a checkpoint of the same task, layer, depth and widths.")
