"""What every request handler of one service shares."""

from __future__ import annotations

import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Annotated

from fastapi import Depends, Request

from orchestrator.api.local import LocalBackend
from orchestrator.api.serving import Rounds
from orchestrator.api.workspace import Workspace
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.people.users import User, sessions, users_by_digest
from orchestrator.ledger.sweeps.index import known_sweeps
from orchestrator.web.checking import CheckLimits
from orchestrator.web.feeds import Feeds
from orchestrator.web.limits import RateLimit, Turns
from orchestrator.web.overviews import Overviews
from orchestrator.web.problems import NotFound
from orchestrator.web.snapshots import Snapshots

SUBMISSIONS_A_MINUTE = 10
"""Submissions of one user a minute, with extensions and retries: each is validated and starts a driver."""

VALIDATIONS_A_MINUTE = 30
"""Files of one user a minute that are checked without being submitted."""

CHECKS_AT_ONCE = 3
"""Users whose files are checked at once, one of each, in a process of its own."""

CHECKS_WAITING = 2
"""Files of a user that may wait for their check besides the one that is checked."""

KEY_SECONDS = 900.0
"""How long the key of a new service is valid."""

BAD_TOKENS_A_MINUTE = 5
"""Requests with a wrong token from one address a minute."""


class OneTimeKey:
    """A key that signs one browser in, within `KEY_SECONDS`: the account that runs the service receives it.

    Args:
        user: in whose name; becomes an admin if there is no such user.
        clock: returns seconds of a clock that never goes back.
    """

    def __init__(self, user: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.user, self.text = user, secrets.token_urlsafe(32)
        self._clock, self._ends = clock, clock() + KEY_SECONDS
        self._lock, self._used = threading.Lock(), False

    def take(self, given: str) -> bool:
        """Return True if this is the key, for the first time and in time."""
        with self._lock:
            if self._used or self._clock() > self._ends:
                return False
            self._used = secrets.compare_digest(given.encode(), self.text.encode())
            return self._used


@dataclass(frozen=True)
class Site:
    """The state of one HTTP server.

    Attributes:
        workspace: the folders of the service.
        hosts: names under which browsers reach the server, in lower case and without ports.
        secure: whether browsers reach it over TLS.
        plugins: whether submitted files may name what other installed packages have added.
        rounds: of the supervision beside the server, or None if there is none.
        key: signs the account that runs the service in, once; None without.
        snapshots: what was read of the ledger.
        overviews: the rows of the list of sweeps.
        submissions: allowance of each user.
        validations: allowance of each user.
        bad_tokens: allowance of each address.
        checks: whose file is checked next.
        check_limits: what the process of each check may use.
        feeds: what watchers receive.
        streams: how many streams of events each user has open.
    """

    workspace: Workspace
    hosts: frozenset[str] = frozenset({"127.0.0.1", "localhost", "[::1]"})
    secure: bool = False
    plugins: bool = False
    rounds: Rounds | None = None
    key: OneTimeKey | None = None
    snapshots: Snapshots = field(default_factory=partial(Snapshots, time.monotonic))
    overviews: Overviews = field(default_factory=Overviews)
    submissions: RateLimit = field(default_factory=partial(RateLimit, SUBMISSIONS_A_MINUTE, time.monotonic))
    validations: RateLimit = field(default_factory=partial(RateLimit, VALIDATIONS_A_MINUTE, time.monotonic))
    bad_tokens: RateLimit = field(default_factory=partial(RateLimit, BAD_TOKENS_A_MINUTE, time.monotonic))
    checks: Turns = field(default_factory=partial(Turns, CHECKS_AT_ONCE, CHECKS_WAITING))
    check_limits: CheckLimits = field(default_factory=CheckLimits)
    feeds: Feeds = field(default_factory=Feeds)
    streams: Counter[str] = field(default_factory=Counter)

    @cached_property
    def backend(self) -> LocalBackend:
        """Return the client of the ledger of the service."""
        return LocalBackend(self.workspace.paths.root, self.workspace.data)

    @contextmanager
    def ledger(self) -> Iterator[Ledger]:
        """Open the ledger for the length of a `with` block; the service may replace its file at any time."""
        with self.workspace.ledger(create=True) as ledger:
            yield ledger

    def users(self) -> dict[str, User]:
        """Return all users by the digest of their token, as they were at most a second ago."""

        def read() -> dict[str, User]:
            with self.ledger() as ledger:
                return users_by_digest(ledger)

        return self.snapshots.get("users", read)

    def sessions(self) -> dict[str, tuple[str, float]]:
        """Return what `orchestrator.ledger.people.users.sessions` does, as it was at most a second ago."""

        def read() -> dict[str, tuple[str, float]]:
            with self.ledger() as ledger:
                return sessions(ledger)

        return self.snapshots.get("sessions", read)

    def known(self) -> dict[str, str | None]:
        """Return the owner of every sweep by its id; None for a sweep that was not submitted."""

        def read() -> dict[str, str | None]:
            with self.ledger() as ledger:
                return {sweep_id: found.owner for sweep_id, found in known_sweeps(ledger).items()}

        return self.snapshots.get("owners", read)

    def owner(self, sweep_id: str) -> str | None:
        """Return the owner of a sweep, or None if it was not submitted.

        Raises:
            NotFound: there is no such sweep.
        """
        owners = self.known()
        if sweep_id not in owners:
            remedy = "/api/v1/sweeps lists all sweeps."
            raise NotFound("sweep", "must be the whole id of a sweep", repr(sweep_id), remedy)
        return owners[sweep_id]


def _site(request: Request) -> Site:
    site: Site = request.app.state.site
    return site


Here = Annotated[Site, Depends(_site)]
"""The parameter through which a request handler receives the `Site`."""
