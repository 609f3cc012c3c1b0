"""The driver's wish that every trial of its sweep stops, where workers on any host can see it."""

from __future__ import annotations

from ray.experimental.internal_kv import (
    _internal_kv_del,
    _internal_kv_exists,
    _internal_kv_initialized,
    _internal_kv_put,
)


def wish(sweep_id: str) -> None:
    """Ask the workers of a sweep to save and leave."""
    _internal_kv_put(_key(sweep_id), b"")


def forget(sweep_id: str) -> None:
    """Withdraw the wish."""
    _internal_kv_del(_key(sweep_id))


def wished(sweep_id: str) -> bool:
    """Tell whether the workers of a sweep are to save and leave."""
    return _internal_kv_initialized() and bool(_internal_kv_exists(_key(sweep_id)))


def _key(sweep_id: str) -> bytes:
    return f"sweep-stop-{sweep_id}".encode()
