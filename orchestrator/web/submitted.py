"""What a file that arrives over HTTP may make the service do.

A search-space file holds no path, no address and no code. What remains is refused here unless the service
allows it: names that other installed packages have added, whose code then runs as the service, and sizes that
no sweep needs. `orchestrator.web.checking` does that in a process with limits of time and memory.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from orchestrator import process_secrets
from orchestrator.api.local_sweep import Sweep
from orchestrator.config import from_document
from orchestrator.config.sweep_config import SweepConfig
from orchestrator.errors import BadInput
from orchestrator.web import checking
from orchestrator.web.problems import NotAllowed, TooMany
from orchestrator.web.site import Site

_MODULE = "orchestrator.web.checking"

WAIT_SECONDS = 60.0
"""Longest wait for a check to begin."""

_STOPPED = frozenset({-signal.SIGXCPU, -signal.SIGKILL})


@dataclass(frozen=True)
class Sent:
    """A search-space file that was sent.

    Attributes:
        name: of the sweep, a slug.
        text: of the file.
        profile: as in `Sweep.load`.
        overrides: as in `Sweep.load`.
        new: as in `Sweep.load`.
    """

    name: str
    text: str
    profile: str | None = "auto"
    overrides: tuple[str, ...] = ()
    new: bool = False


def sweep_of(site: Site, sent: Sent, owner: str) -> Sweep:
    """Return the sweep of a file.

    Args:
        site: that received the file.
        sent: the file.
        owner: in whose name it is to run.

    Raises:
        BadInput: the file is wrong, or asks for too much.
        NotAllowed: the file names what another installed package has added.
    """
    answer = _checked(site, sent, owner, sizes=None)
    if "refusals" in answer:
        if answer["allowed"]:
            raise BadInput.of_all(answer["refusals"])
        raise NotAllowed(**answer["refusals"][0])
    specification = from_document(answer["document"], sent.text)
    return Sweep.of(specification, site.workspace, automatic=sent.profile == "auto", new=sent.new)


def validated(site: Site, sent: Sent, owner: str, *, sizes: bool) -> dict[str, Any]:
    """Return what a file would run, or why it is refused.

    Args:
        site: that received the file.
        sent: the file.
        owner: in whose name it would run.
        sizes: whether to count the sizes of its networks, which takes seconds.
    """
    try:
        answer = _checked(site, sent, owner, sizes=sizes)
    except BadInput as refusal:
        return {"refusals": [refusal.parts()], "plan": None}
    return {"refusals": answer.get("refusals", []), "plan": answer.get("plan")}


def check_own(site: Site, specification: SweepConfig, owner: str) -> None:
    """Check that a sweep of the ledger runs as this service no code but what the service allows.

    Args:
        site: that was asked to run it.
        specification: of the sweep.
        owner: in whose name it runs.

    Raises:
        NotAllowed: it does.
        BadInput: its code must run as its owner, and cannot.
    """
    try:
        checking.check_own(specification, owner, plugins=site.plugins)
    except checking.ForeignCode as error:
        refusal = error.refusal
        raise NotAllowed(refusal.where, refusal.must, refusal.got, refusal.remedy) from None


def _checked(site: Site, sent: Sent, owner: str, *, sizes: bool | None) -> Mapping[str, Any]:
    """Return what the process of a check answers; `sizes` is None if no plan is asked for."""
    given = {
        **vars(sent),
        "root": str(site.workspace.paths.root),
        "data": str(site.workspace.data),
        "plugins": site.plugins,
        "owner": owner,
        "sizes": sizes,
        "limits": asdict(site.check_limits),
    }
    environment, secrets = process_secrets.parted({**os.environ, "OPENBLAS_NUM_THREADS": "1"})
    with site.checks.turn(owner, WAIT_SECONDS) as granted:
        if not granted:
            must = f"must wait until an earlier file of {owner} or those of others are checked"
            raise TooMany("checks", must, "too many at once", "Wait a minute.")
        try:
            done = subprocess.run(
                [sys.executable, "-m", _MODULE],
                input=secrets.decode() + json.dumps(given),
                env=environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=site.check_limits.seconds,
            )
        except subprocess.TimeoutExpired:
            raise _too_large(site, sent) from None
    if done.returncode in _STOPPED or "MemoryError" in done.stderr:
        raise _too_large(site, sent)
    if done.returncode != 0:
        raise RuntimeError(f"the check of {sent.name} has failed:\n{done.stderr}")
    answer: Mapping[str, Any] = json.loads(done.stdout)
    if "exhausted" in answer:
        raise _too_large(site, sent)
    return answer


def _too_large(site: Site, sent: Sent) -> BadInput:
    limits = site.check_limits
    memory = limits.memory_bytes / 1024**3
    must = f"must be checked within {limits.cpu_seconds} s of a processor and {memory:g} GiB of memory"
    return BadInput(f"{sent.name}.yaml", must, "more", "Search fewer values, or nest them less.")
