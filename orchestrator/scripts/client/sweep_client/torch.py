"""Checkpoints of PyTorch training that resume exactly.

trial = sweep_client.trial()
sweep_client.torch.checkpoint(trial.start, model=model, optimizer=optimizer)  # restores
for step in range(trial.start, trial.steps):
    ...
    saved = sweep_client.torch.checkpoint(step + 1, model=model, optimizer=optimizer)
    if not trial.report(step + 1, {"val/loss": loss}, checkpoint=saved):
        break
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed

import sweep_client

FILE = "torch.pt"
"""File in the folder of a checkpoint, which `torch.load` reads with `weights_only`."""


def checkpoint(step: int, **parts: Any) -> Path:
    """Save the state of a training, or restore it at the step at which the trial resumes.

    Beside the parts, the checkpoint has the random states of PyTorch, CUDA, NumPy and Python. With
    `torch.distributed`, all processes must call this. Models, optimisers and schedulers are those of the
    process of rank 0, which saves them once. Random states and all other parts are kept for each rank.
    Sharded models are not supported.

    Args:
        step: Number of completed steps.
        parts: Objects with `state_dict` and `load_state_dict`, random generators, or data loaders, of which
            the generator and the sampler are saved if they have a state. The same names on every call.

    Returns:
        The folder to report as the checkpoint; after restoring, that from which the trial resumes.

    Raises:
        TypeError: A part has no state.
        ValueError: The checkpoint has other parts, or was saved by another number of processes.
    """
    trial = sweep_client.current()
    if trial.resume is not None and step == trial.start:
        _restore(trial.resume, parts)
        return trial.resume
    folder = trial.folder / "checkpoint"
    shared = {name: part.state_dict() for name, part in parts.items() if _is_shared(part)}
    own = {name: _state(name, part) for name, part in parts.items() if not _is_shared(part)}
    ranks = _gathered({"parts": own, "random": _random_states()})
    if _rank() == 0:
        folder.mkdir(exist_ok=True)
        torch.save({"shared": shared, "ranks": ranks}, folder / FILE)
    return folder


def _restore(folder: Path, parts: dict[str, Any]) -> None:
    saved = torch.load(folder / FILE, map_location="cpu", weights_only=True)
    if len(saved["ranks"]) != _size():
        text = "the checkpoint was saved by {} processes, not {}"
        raise ValueError(text.format(len(saved["ranks"]), _size()))
    rank = saved["ranks"][_rank()]
    kept = {*saved["shared"], *rank["parts"]}
    if kept != parts.keys():
        raise ValueError(f"the checkpoint has {', '.join(sorted(kept))}, not {', '.join(sorted(parts))}")
    for name, part in parts.items():
        if _is_shared(part):
            part.load_state_dict(saved["shared"][name])
        else:
            _load(part, rank["parts"][name])
    _set_random_states(rank["random"])  # last, because loading may draw numbers


def _is_shared(part: Any) -> bool:
    """Return True for a part that is equal on all ranks."""
    kinds = (torch.nn.Module, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler)
    return isinstance(part, kinds)


def _state(name: str, part: Any) -> Any:
    if callable(getattr(part, "state_dict", None)) and callable(getattr(part, "load_state_dict", None)):
        return part.state_dict()
    if isinstance(part, torch.Generator):
        return part.get_state()
    if isinstance(part, random.Random):
        return part.getstate()
    if hasattr(part, "bit_generator"):
        return _plain(part.bit_generator.state)
    if isinstance(part, torch.utils.data.DataLoader):
        return {each: _state(f"{name}.{each}", getattr(part, each)) for each in _stateful(part)}
    raise TypeError(f"{name} must have a state_dict, or be a random generator or a data loader, not {part!r}")


def _load(part: Any, state: Any) -> None:
    if callable(getattr(part, "state_dict", None)):
        part.load_state_dict(state)
    elif isinstance(part, torch.Generator):
        part.set_state(state)
    elif isinstance(part, random.Random):
        part.setstate(state)
    elif hasattr(part, "bit_generator"):
        part.bit_generator.state = _arrays(state)
    else:
        for each in _stateful(part):
            _load(getattr(part, each), state[each])


def _stateful(loader: Any) -> list[str]:
    """Return the attributes of a data loader that have a state."""
    has_state = [
        name for name in ("sampler", "batch_sampler") if hasattr(getattr(loader, name, None), "state_dict")
    ]
    return has_state + (["generator"] if loader.generator is not None else [])


def _random_states() -> dict[str, Any]:
    states: dict[str, Any] = {"torch": torch.get_rng_state(), "python": random.getstate()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state_all()
    if "numpy" in sys.modules:
        states["numpy"] = _plain(sys.modules["numpy"].random.get_state(legacy=False))
    return states


def _set_random_states(states: dict[str, Any]) -> None:
    torch.set_rng_state(states["torch"])
    random.setstate(states["python"])
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(states["cuda"])
    if "numpy" in states:
        import numpy

        numpy.random.set_state(_arrays(states["numpy"]))


def _plain(state: Any) -> Any:
    """Return a state of NumPy with lists in the place of arrays, as `weights_only` requires."""
    if isinstance(state, dict):
        return {name: _plain(value) for name, value in state.items()}
    return {"array": state.tolist(), "type": str(state.dtype)} if hasattr(state, "tolist") else state


def _arrays(state: Any) -> Any:
    import numpy

    if isinstance(state, dict) and state.keys() == {"array", "type"}:
        return numpy.asarray(state["array"], dtype=state["type"])
    return {name: _arrays(value) for name, value in state.items()} if isinstance(state, dict) else state


def _is_distributed() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def _rank() -> int:
    return torch.distributed.get_rank() if _is_distributed() else 0


def _size() -> int:
    return torch.distributed.get_world_size() if _is_distributed() else 1


def _gathered(state: Any) -> list[Any]:
    """Return the states of all ranks."""
    if not _is_distributed():
        return [state]
    states: list[Any] = [None] * _size()
    torch.distributed.all_gather_object(states, state)
    return states
