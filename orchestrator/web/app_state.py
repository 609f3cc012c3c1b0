"""Shared state of the request handlers."""

from __future__ import annotations

import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Annotated, TypeVar

from fastapi import Depends, Request

from orchestrator.api.local import LocalBackend
from orchestrator.api.serving import Rounds
from orchestrator.api.workspace import Workspace
from orchestrator.errors import NotFound
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.people.user_records import User
from orchestrator.ledger.people.users import sessions, users_by_digest
from orchestrator.ledger.sweeps.index import SweepVersion, exact_version, known_sweeps
from orchestrator.web.feeds import Feeds
from orchestrator.web.limited_process import CheckLimits
from orchestrator.web.rate_limits import FairQueue, RateLimit
from orchestrator.web.read_cache import PEOPLE, KeptReports, ReadCache, SweepListCache
from orchestrator.web.request_times import RequestTimes

if TYPE_CHECKING:  # its packages are an extra
    from orchestrator.web.identity_provider import IdentityProvider

Result = TypeVar("Result")

SUBMISSIONS_A_MINUTE = 10
"""Submissions, extensions and retries of a user per minute: each is validated and starts a driver."""

VALIDATIONS_A_MINUTE = 30
"""Files that a user may validate per minute."""

CHECKS_AT_ONCE = 3
"""Number of concurrent file checks and replays, at most one of each user, in separate processes."""

CHECKS_WAITING = 2
"""Number of file checks and replays of a user that may wait while another one runs."""

KEY_SECONDS = 900.0
"""Lifetime of the sign-in key of a new service."""

BAD_TOKENS_A_MINUTE = 5
"""Requests with an invalid token from one address per minute."""

SIGN_ONS_A_MINUTE = 60
"""Sign-ons that one address may begin per minute; a whole institute may have one address."""


class OneTimeKey:
    """Sign-in key that works once, within `KEY_SECONDS`; the service prints it for the account that runs it.

    Args:
        user: Name of the user who signs in with it; added as an admin if unknown.
        clock: Monotonic clock in seconds.
    """

    def __init__(self, user: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.user, self.text = user, secrets.token_urlsafe(32)
        self._clock, self._expires_at = clock, clock() + KEY_SECONDS
        self._lock, self._used = threading.Lock(), False

    def take(self, given: str) -> bool:
        """Return True if this is the key, unused and not expired."""
        with self._lock:
            if self._used or self._clock() > self._expires_at:
                return False
            self._used = secrets.compare_digest(given.encode(), self.text.encode())
            return self._used


@dataclass(frozen=True)
class AppState:
    """State of one HTTP server.

    Attributes:
        workspace: Folders of the service.
        hosts: Host names of the server, in lower case and without ports.
        secure: Whether browsers reach the server over TLS.
        plugins: Whether submitted files may use plugins of other installed packages.
        rounds: Rounds of the supervision in this process, or None without supervision.
        key: Sign-in key for the account that runs the service, or None.
        provider: Provider of single sign-on, or None.
        cache: Cache of ledger reads.
        sweep_list: Cache of the sweep list.
        reports: Files of reports.
        submissions: Rate limit of submissions by user.
        validations: Rate limit of validations by user.
        bad_tokens: Rate limit of invalid tokens by address.
        sign_ons: Rate limit of sign-ons by address.
        checks: Queue of file checks and replays.
        check_limits: Resource limits of a file check or a replay.
        feeds: Event feeds.
        streams: Number of open event streams by user.
        times: Latency of requests.
    """

    workspace: Workspace
    hosts: frozenset[str] = frozenset({"127.0.0.1", "localhost", "[::1]"})
    secure: bool = False
    plugins: bool = False
    rounds: Rounds | None = None
    key: OneTimeKey | None = None
    provider: IdentityProvider | None = None
    cache: ReadCache = field(default_factory=partial(ReadCache, time.monotonic))
    sweep_list: SweepListCache = field(default_factory=SweepListCache)
    reports: KeptReports = field(default_factory=KeptReports)
    submissions: RateLimit = field(default_factory=partial(RateLimit, SUBMISSIONS_A_MINUTE, time.monotonic))
    validations: RateLimit = field(default_factory=partial(RateLimit, VALIDATIONS_A_MINUTE, time.monotonic))
    bad_tokens: RateLimit = field(default_factory=partial(RateLimit, BAD_TOKENS_A_MINUTE, time.monotonic))
    sign_ons: RateLimit = field(default_factory=partial(RateLimit, SIGN_ONS_A_MINUTE, time.monotonic))
    checks: FairQueue = field(default_factory=partial(FairQueue, CHECKS_AT_ONCE, CHECKS_WAITING))
    check_limits: CheckLimits = field(default_factory=CheckLimits)
    feeds: Feeds = field(default_factory=Feeds)
    streams: Counter[str] = field(default_factory=Counter)
    times: RequestTimes = field(default_factory=RequestTimes)

    @cached_property
    def backend(self) -> LocalBackend:
        """Client backend over the ledger of the service."""
        return LocalBackend(self.workspace.paths.root, self.workspace.data)

    @contextmanager
    def ledger(self) -> Iterator[Ledger]:
        """Open the ledger for a `with` block; the service may replace its file at any time."""
        with self.workspace.ledger(create=True) as ledger:
            yield ledger

    def users(self) -> Mapping[str, User]:
        """Return all users by the digest of their token, at most a second old."""
        return self._read("users", users_by_digest)

    def sessions(self) -> Mapping[str, tuple[str, float]]:
        """Return all browser sessions, as `ledger.people.users.sessions`, at most a second old."""
        return self._read("sessions", sessions)

    def owners(self) -> Mapping[str, str | None]:
        """Return the owner of every sweep by ID, at most a second old; None if it was not submitted."""
        return self._read(
            "owners", lambda ledger: {name: found.owner for name, found in known_sweeps(ledger).items()}
        )

    def owner(self, sweep_id: str) -> str | None:
        """Return the owner of a sweep, or None if it was not submitted.

        Raises:
            NotFound: The sweep does not exist.
        """
        owners = self.owners()
        if sweep_id not in owners:
            remedy = "/api/v1/sweeps lists all sweeps."
            raise NotFound("sweep", "must be the whole ID of a sweep", repr(sweep_id), remedy)
        return owners[sweep_id]

    def version(self, sweep_id: str) -> SweepVersion | None:
        """Return the version of the rows of a sweep, or None if the ledger does not count its commits."""
        with self.ledger() as ledger:
            return exact_version(ledger, sweep_id)

    def changed(self, sweep_id: str) -> None:
        """Show a change of a sweep by a user in the next answers."""
        self.sweep_list.forget(sweep_id)
        self.cache.clear(sweep_id)

    def _read(self, key: str, read: Callable[[Ledger], Result]) -> Result:
        def reading() -> Result:
            with self.ledger() as ledger:
                return read(ledger)

        return self.cache.get(key, reading, about=PEOPLE)


async def _state(request: Request) -> AppState:  # otherwise it would run in another thread
    state: AppState = request.app.state.shared
    return state


App = Annotated[AppState, Depends(_state)]
"""Parameter of a request handler: the shared state."""
