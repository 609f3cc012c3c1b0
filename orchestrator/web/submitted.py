"""What a file that arrives over HTTP may make the service do.

A search-space file holds no path, no address and no code. What remains is refused here unless the service
allows it: names that other installed packages have added, whose code then runs as the service, and sizes that
no sweep needs.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from orchestrator.api.sweep import Sweep
from orchestrator.config.networks import layers
from orchestrator.config.strategy import SAMPLERS, SCHEDULERS, most_trials
from orchestrator.config.sweep_config import SweepConfig
from orchestrator.errors import BadInput
from orchestrator.web.problems import NotAllowed
from orchestrator.web.site import Site
from trainables.layers import LAYERS
from trainables.registry import Registry
from trainables.tasks import TASKS

MOST_TRIALS = 100_000
"""Most trials of a sweep that is submitted over HTTP."""


def sweep_of(
    site: Site, name: str, text: str, *, profile: str | None, overrides: Sequence[str], new: bool
) -> Sweep:
    """Return the sweep of a search-space file that was sent.

    Args:
        site: that received it.
        name: name of the sweep, a slug.
        text: of the file.
        profile: as in `Sweep.load`.
        overrides: as in `Sweep.load`.
        new: as in `Sweep.load`.

    Raises:
        BadInput: the file is wrong, or asks for too much.
        NotAllowed: the file names what another installed package has added.
    """
    workspace = site.workspace
    with tempfile.TemporaryDirectory(prefix="sweep-") as folder:
        file = Path(folder, f"{name}.yaml")
        file.write_text(text, encoding="utf-8")
        try:
            sweep = Sweep.load(
                file,
                profile=profile,
                overrides=overrides,
                new=new,
                root=workspace.paths.root,
                data=workspace.data,
            )
        except BadInput as refusal:
            where = refusal.where.replace(f"{folder}/", "")
            raise BadInput(where, refusal.must, refusal.got, refusal.remedy) from None
    if sweep.specification.trainable is not None:
        must = "must be left out of a file that is sent over HTTP: its code would run as the service"
        remedy = "Run `sweep submit` on the machine of the service."
        raise NotAllowed("trainable", must, sweep.specification.subject, remedy)
    _check_size(sweep.specification)
    if not site.plugins:
        check_own(sweep.specification)
    return sweep


def _check_size(specification: SweepConfig) -> None:
    trials = most_trials(specification.document())
    if trials > MOST_TRIALS:
        must = f"must be at most {MOST_TRIALS:,} trials"
        raise BadInput("budget.trials", must, f"{trials:,}", "Split the search into several sweeps.")


def check_own(specification: SweepConfig) -> None:
    """Check that every name of a specification is one of this package.

    Raises:
        NotAllowed: another installed package has added one; its code would run as the service.
    """
    for where, registry, name in _names(specification):
        package = registry.package(name)
        if package is not None:
            must = "must be a name of this package"
            remedy = "Ask an admin to start `serve` with `--allow-plugins`."
            raise NotAllowed(where, must, f"{name}, which {package} has added", remedy)


def _names(specification: SweepConfig) -> Iterator[tuple[str, Registry[Any], str]]:
    yield "task", TASKS, specification.task
    yield "sampler", SAMPLERS, specification.sampler.name
    yield "scheduler", SCHEDULERS, specification.scheduler.name
    for layer in layers(specification):
        yield "model.layer", LAYERS, layer
