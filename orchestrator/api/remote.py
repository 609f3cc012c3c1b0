"""Sweeps of a service that is reached over HTTP: the Python API without the service's machine.

service = Sweep.connect("https://sweeps.example.org")
sweep = service.submit("search_spaces/listops.yaml", key="monday")
sweep.follow(print)
sweep.trials                      # one mapping a trial
"""

from __future__ import annotations

import http.client
import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from orchestrator.api.live import LiveSweep
from orchestrator.api.users import DAYS
from orchestrator.api.workspace import check_output, key_named
from orchestrator.config.yaml_reader import read_text
from orchestrator.errors import BadInput, NoServer, Refusal
from orchestrator.ledger.keys import is_confirmation, sweep_id_of, trial_label

TOKEN = "SWEEP_TOKEN"
"""Environment variable: the token of the user, as `sweep user add` has printed it."""

TIMEOUT_SECONDS = 150.0
"""Longest wait for an answer: a busy service takes two minutes at most to check a file."""

LOOK_SECONDS = 1.0
"""Time between two looks at a sweep that is followed."""

PAGE = 1_000
"""Rows that are asked for at once."""

_ADDRESS = "Check the address: what answers there must be started by `serve --http`."

_ENDED = frozenset({"COMPLETE", "FAILED", "INTERRUPTED", "PARKED"})
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})

Show = Callable[[str], None]
"""Receives text as a driver prints it."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirection: the token would be sent along."""

    def redirect_request(self, *arguments: Any) -> None:
        """Return None, so that the answer is an error."""
        return None


@dataclass(frozen=True)
class RemoteService:
    """A service that is reached over HTTP.

    Attributes:
        url: address of its HTTP server.
        token: of the user.
    """

    url: str
    token: str = field(repr=False)

    @classmethod
    def at(cls, url: str, token: str | None = None) -> RemoteService:
        """Return the service at an address; nothing is sent yet.

        Args:
            url: address of its HTTP server, such as `https://sweeps.example.org`.
            token: of the user; if None, `SWEEP_TOKEN`.

        Raises:
            BadInput: the address would send the token over a network without TLS, or there is no token.
        """
        parts = urlsplit(url)
        is_near = parts.hostname in _LOOPBACK
        if not parts.hostname or not (parts.scheme == "https" or (parts.scheme == "http" and is_near)):
            must = "must begin with https://, or with http:// for this machine"
            raise BadInput("--server", must, url, "Write an address such as https://sweeps.example.org.")
        known = token or os.environ.get(TOKEN)
        if not known:
            remedy = "An admin gets one with `sweep user add NAME`."
            raise BadInput(TOKEN, "must be the token of a user", "nothing", remedy)
        return cls(url.rstrip("/"), known)

    def submit(
        self,
        path: str | Path,
        *,
        profile: str | None = "auto",
        overrides: Sequence[str] = (),
        new: bool = False,
        key: str | None = None,
    ) -> RemoteSweep:
        """Submit a search-space file, and return its sweep.

        Args:
            path: the file, on this machine.
            profile: as in `Sweep.load`.
            overrides: as in `Sweep.load`.
            new: run another sweep of the same file.
            key: identifies the submission, so that repeating it adds nothing; None for no key.

        Raises:
            BadInput: the file is wrong, or the user may not submit it.
            NoServer: the server does not answer.
        """
        body = {**_file(path, profile, overrides), "new": new}
        return RemoteSweep(self, self.call("POST", "/sweeps", body, _keyed(key))["id"])

    def validate(
        self, path: str | Path, *, profile: str | None = "auto", overrides: Sequence[str] = ()
    ) -> Mapping[str, Any]:
        """Check a search-space file, and return what would run there; nothing is submitted.

        Args:
            path: the file, on this machine.
            profile: as in `Sweep.load`.
            overrides: as in `Sweep.load`.

        Raises:
            BadInput: the file is wrong, or the user may not submit any.
            NoServer: the server does not answer.
        """
        answer = self.call("POST", "/validate", {**_file(path, profile, overrides), "sizes": True})
        if answer["refusals"]:
            raise BadInput.of_all(answer["refusals"])
        plan: Mapping[str, Any] = answer["plan"]
        return plan

    def sweep(self, sweep_id: str) -> RemoteSweep:
        """Return a sweep of the service.

        Raises:
            BadInput: there is no sweep of this id.
            NoServer: the server does not answer.
        """
        found = RemoteSweep(self, sweep_id)
        found.status()
        return found

    def sweeps(self) -> list[Mapping[str, Any]]:
        """Return the sweeps of the service, the newest first."""
        return list(self._pages("/sweeps", "sweeps"))

    def trial(self, name: str) -> Mapping[str, Any]:
        """Return what the service knows of a trial.

        Args:
            name: the key of the trial, as the leaderboard shows it, or a number of the newest sweep.

        Raises:
            BadInput: there is no such trial.
            NoServer: the server does not answer.
        """
        return self.call("GET", _trial_path(self._key(name)))

    def trial_log(self, name: str, show: Show) -> None:
        """Show what the workers of a trial have printed on the service's machine; raises like `trial`."""
        path, _, role = _trial_path(self._key(name)).partition("?")
        position, size = 0, 1
        while position < size:
            part = self.call("GET", f"{path}/log?{'&'.join(filter(None, (f'start={position}', role)))}")
            show(part["text"])
            position, size = int(part["end"]), int(part["size"])

    def _key(self, name: str) -> str:
        """Return the key of the trial that a person names."""
        return key_named([str(sweep["id"]) for sweep in reversed(self.sweeps())], name)

    def quota(self, owner: str) -> Mapping[str, Any]:
        """Return an owner's `weight`, `share`, `gpu_hours`, `used_gpu_hours` and `sweeps`.

        Raises:
            BadInput: nothing knows the owner.
            NoServer: the server does not answer.
        """
        return self.call("GET", f"/quotas/{quote(owner, safe='')}")

    def set_quota(self, owner: str, *, new: bool = False, **changes: float) -> None:
        """Change what is given of an owner's `weight`, `share`, `gpu_hours` and `sweeps`, as an admin.

        Args:
            owner: in whose name sweeps run.
            new: whether the owner may be one who is no user and has no sweep yet.
            **changes: as in `orchestrator.api.queue.quota`.

        Raises:
            BadInput: a number is out of its range, nothing knows the owner, or the user is no admin.
            NoServer: the server does not answer.
        """
        self.call("PATCH", f"/quotas/{quote(owner, safe='')}", {**changes, "new": new})

    def queue(self) -> Sequence[Mapping[str, Any]]:
        """Return what runs, what waits, and why."""
        entries: Sequence[Mapping[str, Any]] = self.call("GET", "/queue")["queue"]
        return entries

    def users(self) -> Sequence[Mapping[str, Any]]:
        """Return all users by name, without their tokens; for admins only.

        Raises:
            BadInput: the user is no admin.
            NoServer: the server does not answer.
        """
        rows: Sequence[Mapping[str, Any]] = self.call("GET", "/users")["users"]
        return rows

    def add_user(self, name: str, role: str = "member", *, days: float | None = DAYS) -> Mapping[str, Any]:
        """Add a user, as an admin; return the user, with the `token`, which cannot be read again.

        If the answer is lost, so is the token: revoke the user and add it again.

        Args:
            name: lower-case letters, digits, `.`, `_` and `-`; the user's sweeps run in this name.
            role: `viewer`, `member` or `admin`.
            days: after which the token expires; None for a token that does not.

        Raises:
            BadInput: the name, the role or the days are not valid, the user has a valid token, or who asks is
                no admin.
            NoServer: the server does not answer.
        """
        return self.call("POST", "/users", {"name": name, "role": role, "days": days})

    def revoke_user(self, name: str) -> Mapping[str, Any]:
        """Revoke the token of a user at once, as an admin; return the user.

        Raises:
            BadInput: there is no such user, or who asks is no admin.
            NoServer: the server does not answer.
        """
        return self.call("DELETE", f"/users/{quote(name, safe='')}")

    def audit_log(self, limit: int = 100) -> Iterator[Mapping[str, Any]]:
        """Yield the newest entries of the audit log, the newest first; for admins only.

        Args:
            limit: most entries.

        Raises:
            BadInput: the user is no admin.
            NoServer: the server does not answer.
        """
        before: Mapping[str, int] = {}
        while limit > 0:
            asked = min(limit, PAGE)
            page = self.call("GET", f"/audit?{urlencode({'limit': asked, **before})}")["audit"]
            yield from page
            if len(page) < asked:
                return
            limit -= asked
            before = {"before": page[-1]["seq"]}

    def call(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """Send one request to the API, and return the document of the answer.

        Args:
            method: of HTTP.
            path: below `/api/v1`.
            body: plain JSON values, or None.
            headers: further headers.

        Raises:
            BadInput: the service refuses the request.
            NoServer: the server does not answer, or not as a service.
        """
        content = self._answer(method, path, body, headers or {})
        try:
            document = json.loads(content)
        except ValueError:
            document = None
        if not isinstance(document, dict):
            begin = content[:60].decode(errors="replace")
            raise _silent(self.url, f"an answer that is no JSON object: {begin!r}", _ADDRESS)
        return document

    def read(self, path: str) -> bytes:
        """Return what the API answers to a GET request, as it is; raises like `call`."""
        return self._answer("GET", path, None, {})

    def _pages(self, path: str, name: str) -> Iterator[Mapping[str, Any]]:
        offset, total = 0, 1
        while offset < total:
            page = self.call("GET", f"{path}?{urlencode({'offset': offset, 'limit': PAGE})}")
            yield from page[name]
            offset, total = offset + PAGE, page["total"]

    def _answer(self, method: str, path: str, body: object, headers: Mapping[str, str]) -> bytes:
        """Send one request, and return the body of the answer; raises like `call`."""
        sent = None if body is None else json.dumps(body).encode()
        own = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json", **headers}
        request = urllib.request.Request(f"{self.url}/api/v1{path}", sent, own, method=method)
        handlers: list[urllib.request.BaseHandler] = [_NoRedirect()]
        if urlsplit(self.url).hostname in _LOOPBACK:
            handlers.append(urllib.request.ProxyHandler({}))
        try:
            with urllib.request.build_opener(*handlers).open(request, timeout=TIMEOUT_SECONDS) as answer:
                content: bytes = answer.read()
        except urllib.error.HTTPError as error:
            with error:
                raise _refusal(self.url, error) from None
        except OSError as error:  # also when the connection ends before the answer begins
            raise _silent(self.url, str(getattr(error, "reason", error))) from None
        except http.client.IncompleteRead:
            raise _silent(self.url, "an answer that ends too early") from None
        except http.client.BadStatusLine as error:
            got = f"an answer that is no HTTP: {str(error).strip()[:60]!r}"
            raise _silent(self.url, got, _ADDRESS) from None
        except http.client.HTTPException as error:
            raise _silent(self.url, str(error) or type(error).__name__, _ADDRESS) from None
        return content


@dataclass(frozen=True)
class RemoteSweep:
    """A sweep of a service that is reached over HTTP. Its methods raise like `RemoteService.call`.

    Attributes:
        service: of the sweep.
        id: of the sweep.
    """

    service: RemoteService
    id: str

    def status(self) -> Mapping[str, Any]:
        """Return the state of the sweep, its progress, its failures and its file."""
        return self._call("GET")

    @property
    def state(self) -> str:
        """Return the state of the sweep."""
        return str(self.status()["state"])

    def live(self) -> LiveSweep:
        """Return what the sweep does now: its running trials, its best values, its place in the queue."""
        return LiveSweep.of(self._call("GET", "/live"))

    @property
    def trials(self) -> list[Mapping[str, Any]]:
        """Return one mapping a trial, by number."""
        return list(self.service._pages(f"{self._path}/trials", "trials"))

    def curves(
        self, metric: str | None = None, *, trials: int = 50, points: int = 1_000
    ) -> Mapping[str, Any]:
        """Return the learning curves of the running and of the best trials.

        Args:
            metric: what the sweep optimises, if None.
            trials: most curves, up to 50.
            points: most points of a curve, up to 1,000.
        """
        query: dict[str, Any] = {"trials": trials, "points": points}
        return self._call("GET", f"/curves?{urlencode(query | ({'metric': metric} if metric else {}))}")

    def stop(self) -> None:
        """Ask the driver of the sweep to save every trial and end."""
        self._call("POST", "/stop")

    def pause(self) -> None:
        """Have the driver of the sweep save every trial and leave its place until `resume`."""
        self._call("PATCH", "", {"paused": True})

    def resume(self) -> None:
        """Queue the sweep again after `pause` or `stop`, or let its driver go on if it has not left."""
        self._call("POST", "/resume")

    def extend(self, *, key: str | None = None, **budget: float | str) -> None:
        """Go on with the sweep once it has ended, with another budget.

        Args:
            key: identifies the request, so that repeating it adds nothing; None for no key.
            **budget: of `trials`, `hours` and `gpu_hours`, what is to change.
        """
        self._call("POST", "/extend", budget, key)

    def retry(self, *, key: str | None = None) -> None:
        """Run the sweep again if it was stopped, or its failed trials if it is finished.

        Args:
            key: identifies the request, so that repeating it adds nothing; None for no key.
        """
        self._call("POST", "/retry", key=key)

    def release(self) -> None:
        """Queue the sweep again after it was parked."""
        self._call("POST", "/release")

    def move(self, priority_class: str, *, weight: float = 1.0) -> None:
        """Set the class of the sweep, and its weight among its owner's sweeps."""
        self._call("PATCH", "", {"priority_class": priority_class, "weight": weight})

    def report(self, file: str | Path) -> None:
        """Write the report of the sweep as it stands to a file, one HTML page.

        Raises:
            BadInput: the folder of the file does not exist, or there is no such sweep.
            NoServer: the server does not answer.
        """
        check_output(Path(file))
        Path(file).write_bytes(self.service.read(f"{self._path}/report"))

    def follow(self, show: Show, *, start: int | None = 0) -> str:
        """Show what the drivers of the sweep print until it has ended; return its last state.

        Args:
            show: receives what is printed.
            start: position in the log to begin at, in bytes; None for its end.
        """
        position = start
        while True:
            state = self.state  # before the log is read, so that nothing printed before the end is missed
            position = self._show(show, position)
            if state in _ENDED:
                return state
            time.sleep(LOOK_SECONDS)

    def _show(self, show: Show, position: int | None) -> int | None:
        while True:
            query = "" if position is None else f"?{urlencode({'start': position})}"
            try:
                part = self._call("GET", f"/log{query}")
            except BadInput as refusal:
                if refusal.where == "log":  # no driver has begun yet
                    return position
                raise
            if part["text"]:
                show(part["text"])
            position = int(part["end"])
            if position >= part["size"]:
                return position

    @property
    def _path(self) -> str:
        return f"/sweeps/{quote(self.id, safe='')}"

    def _call(
        self, method: str, path: str = "", body: object = None, key: str | None = None
    ) -> dict[str, Any]:
        return self.service.call(method, f"{self._path}{path}", body, _keyed(key))


def _file(path: str | Path, profile: str | None, overrides: Sequence[str]) -> dict[str, Any]:
    """Return a search-space file of this machine as the API takes it."""
    file = Path(path)
    return {"name": file.stem, "text": read_text(file), "profile": profile, "overrides": list(overrides)}


def _trial_path(key: str) -> str:
    """Return the path of the trial with a key."""
    label = trial_label(key)
    number = label.removeprefix("c")
    if not number.isdigit() or not sweep_id_of(key):
        remedy = "The leaderboard and the page show the keys."
        raise BadInput(key, "must be the key of a trial, such as `listops-7`", "something else", remedy)
    role = "?role=confirmation" if is_confirmation(key) else ""
    return f"/sweeps/{quote(sweep_id_of(key), safe='')}/trials/{number}{role}"


def _keyed(key: str | None) -> dict[str, str]:
    return {} if key is None else {"Idempotency-Key": key}


def _refusal(url: str, error: urllib.error.HTTPError) -> Refusal:
    """Return the refusal of a problem document, with its own four parts."""
    try:
        document = json.loads(error.read())
        names = ("where", "must", "got", "remedy")
        mistakes = [{name: str(one[name]) for name in names} for one in (document, *document.get("more", ()))]
    except (ValueError, KeyError, TypeError, OSError, http.client.HTTPException):
        return _silent(url, f"{error.code} {error.reason}")
    kind = NoServer if error.code >= HTTPStatus.INTERNAL_SERVER_ERROR else BadInput
    refusal = kind(**mistakes[0])
    refusal.more = [kind(**further) for further in mistakes[1:]]
    return refusal


def _silent(url: str, got: str, remedy: str = "Try again, or start `serve --http`.") -> NoServer:
    return NoServer(url, "must be the HTTP server of a service", got, remedy)
