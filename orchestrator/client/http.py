"""Client backend over HTTP."""

from __future__ import annotations

import http.client
import json
import math
import os
import urllib.error
import urllib.request
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from http import HTTPStatus
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints
from urllib.parse import quote, unquote, urlencode, urlsplit

from orchestrator.client import answers
from orchestrator.client.answers import LogPart, Submitted
from orchestrator.client.names import check_word, key_named, no_sweeps, no_trial, one_of
from orchestrator.client.protocol import CURVE_POINTS, CURVES, DAYS, LOG_BYTES, SQL_ROWS, URL, Backend
from orchestrator.client.statuses import DetailedStatus, Status
from orchestrator.errors import BadInput, NoServer, NotFound, Refusal, from_documents
from orchestrator.ledger.people.user_records import ROLES, AuditEntry, Note, Shelf, User
from orchestrator.ledger.sweeps.pareto import ParetoFront
from orchestrator.ledger.sweeps.records import is_confirmation, sweep_id_of, trial_label
from orchestrator.sharing.pool_rows import CLASSES
from orchestrator.text_file import read_text, shown

TOKEN = "SWEEP_TOKEN"
"""Environment variable with the token that `sweep user add` has printed."""

TIMEOUT_SECONDS = 150.0
"""Longest time to wait for an answer; a busy service needs at most two minutes to check a file."""

PAGE = 1_000
"""Number of rows of a page."""

_ADDRESS = "Check the address of the service, which `serve --http` prints."
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})

Answer = TypeVar("Answer")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Handler that refuses redirections, because the token must not reach other servers."""

    def redirect_request(self, *arguments: Any) -> None:
        """Return None, which makes the answer an error."""
        return None


class ApiBackend(Backend):
    """The client protocol as requests of the HTTP API, which a subclass sends.

    Args:
        url: Address of the API, for errors.
    """

    def __init__(self, url: str) -> None:
        self.url = url

    @abstractmethod
    def _answer(self, method: str, path: str, body: object, headers: Mapping[str, str]) -> bytes:
        """Send one request; return the body of the answer.

        Args:
            method: HTTP method.
            path: Path below `/api/v1`, with the query.
            body: JSON values, or None.
            headers: Further headers.

        Raises:
            Refusal: The service refuses the request, or does not answer.
        """

    def sweeps(
        self,
        *,
        tag: str | None = None,
        task: str | None = None,
        since: float | None = None,
        archived: bool = False,
    ) -> Sequence[Status]:
        """The sweeps that satisfy every given condition, the oldest first."""
        given = {"tag": tag, "task": task, "since": since, "archived": "only" if archived else None}
        return self._listed({name: value for name, value in given.items() if value is not None})

    def _listed(self, wanted: Mapping[str, Any]) -> Sequence[Status]:
        query = urlencode({"descending": "false", **wanted})
        return self._pages(f"/sweeps?{query}", "sweeps", Status)

    def status(self, sweep: str | None = None) -> DetailedStatus:
        return decoded(DetailedStatus, self.call("GET", self._sweep(sweep)))

    def live(self, sweep: str | None = None) -> answers.LiveSweep:
        return decoded(answers.LiveSweep, self.call("GET", f"{self._sweep(sweep)}/live"))

    def changes(self, sweep: str) -> answers.Changes:
        return decoded(answers.Changes, self.call("GET", f"{self._sweep(sweep)}/changes"))

    def pareto(self, sweep: str) -> ParetoFront:
        """The trials of a sweep that no other one dominates in all objectives, and their hypervolume."""
        return decoded(ParetoFront, self.call("GET", f"{self._sweep(sweep)}/pareto"))

    def trials(self, sweep: str) -> Sequence[answers.TrialRow]:
        return self._pages(f"{self._sweep(sweep)}/trials?sort=number", "trials", answers.TrialRow)

    def trial(self, trial: str) -> answers.TrialDocument:
        return decoded(answers.TrialDocument, self.call("GET", self._trial(trial)))

    def reports(self, trial: str) -> Sequence[answers.ReportRow]:
        answer = self.call("GET", self._trial(trial, "/reports"))
        return [decoded(answers.ReportRow, row) for row in answer["reports"]]

    def log(self, sweep: str, start: int | None = None, length: int = LOG_BYTES) -> LogPart:
        position = {} if start is None else {"start": start}
        query = urlencode({**position, "length": length})
        return decoded(LogPart, self.call("GET", f"{self._sweep(sweep)}/log?{query}"))

    def trial_log(self, trial: str, start: int = 0, length: int = LOG_BYTES) -> LogPart:
        path = self._trial(trial, "/log", start=start, length=length)
        try:
            return decoded(LogPart, self.call("GET", path))
        except NotFound as refusal:
            if refusal.where != "log":
                raise
            return LogPart(0, 0, 0, "")

    def curves(
        self,
        sweep: str,
        metric: str | None = None,
        *,
        trials: int = CURVES,
        points: int = CURVE_POINTS,
        chosen: Sequence[int] | None = None,
    ) -> answers.LearningCurves:
        named = [] if metric is None else [("metric", metric)]
        own = [("trial", number) for number in chosen or ()]
        query = urlencode([*named, ("trials", trials), ("points", points), *own])
        return decoded(answers.LearningCurves, self.call("GET", f"{self._sweep(sweep)}/curves?{query}"))

    def result(self, sweep: str) -> answers.SweepAnswer:
        return decoded(answers.SweepAnswer, self.call("GET", f"{self._sweep(sweep)}/result"))

    def analysis(self, sweep: str) -> answers.SweepAnalysis:
        return decoded(answers.SweepAnalysis, self.call("GET", f"{self._sweep(sweep)}/analysis"))

    def compare(
        self, sweeps: Sequence[str], *, tuning: bool = False, page: bool = False
    ) -> answers.ComparedSweeps:
        if not sweeps:
            raise BadInput("sweeps", "must name at least one sweep", "", "`list` shows all sweeps.")
        ids = self._ids()
        given = [("sweep", one_of(ids, name)) for name in sweeps]
        query = urlencode([*given, ("tuning", tuning), ("page", page)])
        return decoded(answers.ComparedSweeps, self.call("GET", f"/compare?{query}"))

    def replay(
        self, sweep: str, schedulers: Sequence[str] = (), workers: Sequence[int] = (), *, draws: int = 1
    ) -> answers.ReplayReport:
        query = urlencode({"scheduler": schedulers, "workers": workers, "draws": draws}, doseq=True)
        return decoded(answers.ReplayReport, self.call("GET", f"{self._sweep(sweep)}/replay?{query}"))

    def sql(self, query: str, *, rows: int = SQL_ROWS) -> answers.QueryAnswer:
        """Query the ledger with one SELECT in SQLite's dialect, as an admin."""
        path = f"/sql?{urlencode({'query': query, 'rows': rows})}"
        return decoded(answers.QueryAnswer, self.call("GET", path))

    def report(self, sweep: str) -> bytes:
        return self._answer("GET", f"{self._sweep(sweep)}/report", None, {})

    def submit(
        self,
        file: str | Path,
        *,
        profile: str | None = "auto",
        overrides: Sequence[str] = (),
        new: bool = False,
        key: str | None = None,
    ) -> Submitted:
        sent = Path(file)
        return self.submit_text(
            sent.stem, read_text(sent), profile=profile, overrides=overrides, new=new, key=key
        )

    def submit_text(
        self,
        name: str,
        text: str,
        *,
        profile: str | None = "auto",
        overrides: Sequence[str] = (),
        new: bool = False,
        key: str | None = None,
    ) -> Submitted:
        """Submit the text of a search-space file.

        Args:
            name: Name of the sweep, as the stem of a file.
            text: Search-space file in YAML.
            profile: Profile of the file, as in `Sweep.load`.
            overrides: Changes to the file, `key=value` each.
            new: Whether to run another sweep of the same file.
            key: Idempotency key; repeating the request with the same key adds nothing.
        """
        body = {**_file(name, text, profile, overrides), "new": new}
        return decoded(Submitted, self.call("POST", "/sweeps", body, key))

    def validate(
        self,
        file: str | Path,
        *,
        profile: str | None = "auto",
        overrides: Sequence[str] = (),
        sizes: bool = True,
    ) -> answers.PlannedSweep:
        sent = Path(file)
        return self.validate_text(
            sent.stem, read_text(sent), profile=profile, overrides=overrides, sizes=sizes
        )

    def validate_text(
        self,
        name: str,
        text: str,
        *,
        profile: str | None = "auto",
        overrides: Sequence[str] = (),
        sizes: bool = True,
    ) -> answers.PlannedSweep:
        """Check the text of a search-space file; nothing is submitted.

        Args:
            name: Name of the sweep, as the stem of a file.
            text: Search-space file in YAML.
            profile: Profile of the file, as in `Sweep.load`.
            overrides: Changes to the file, `key=value` each.
            sizes: Whether to count the parameters of its networks, which takes seconds.
        """
        answer = self.call("POST", "/validate", {**_file(name, text, profile, overrides), "sizes": sizes})
        if answer["refusals"]:
            raise from_documents(answer["refusals"])
        return decoded(answers.PlannedSweep, answer["plan"])

    def stop(self, sweep: str, trial: str | None = None) -> answers.Stopped:
        return decoded(answers.Stopped, self.call("POST", self._of_trial(sweep, trial, "stop")))

    def try_setting(self, sweep: str, params: Mapping[str, Any]) -> answers.TriedNext:
        """Ask an unfinished sweep to try a setting next."""
        answer = self.call("POST", f"{self._sweep(sweep)}/try", {"params": dict(params)})
        return decoded(answers.TriedNext, answer)

    def note(
        self,
        sweep: str,
        trial: str | None = None,
        *,
        text: str | None = None,
        add: Sequence[str] = (),
        remove: Sequence[str] = (),
        favourite: bool | None = None,
    ) -> Note:
        """Change the note, the tags or the mark of a sweep or a trial, in any state, and return them."""
        path = self._of_trial(sweep, trial, "note")
        given = {"text": text, "add": list(add), "remove": list(remove), "favourite": favourite}
        body = {name: value for name, value in given.items() if value not in (None, [])}
        return decoded(Note, self.call("PATCH", path, body))

    def shelve(self, sweep: str, shelf: Shelf | None) -> Status:
        return decoded(Status, self.call("PUT", f"{self._sweep(sweep)}/shelf", {"shelf": shelf}))

    def deletion(self, sweep: str) -> answers.Deletion:
        return decoded(answers.Deletion, self.call("GET", f"{self._sweep(sweep)}/deletion"))

    def disk(self) -> Sequence[answers.DiskUse]:
        return [decoded(answers.DiskUse, row) for row in self.call("GET", "/disk")["disk"]]

    def resume(self, sweep: str, trial: str | None = None) -> answers.SweepSettings:
        return decoded(answers.SweepSettings, self.call("POST", self._of_trial(sweep, trial, "resume")))

    def extend(self, sweep: str, *, key: str | None = None, **budget: Any) -> Submitted:
        return decoded(Submitted, self.call("POST", f"{self._sweep(sweep)}/extend", budget, key))

    def retry(self, sweep: str, *, key: str | None = None) -> Submitted:
        return decoded(Submitted, self.call("POST", f"{self._sweep(sweep)}/retry", None, key))

    def queue(self) -> Sequence[answers.QueuedSweep]:
        return [decoded(answers.QueuedSweep, row) for row in self.call("GET", "/queue")["queue"]]

    def pools(self) -> Sequence[answers.Pool]:
        return [decoded(answers.Pool, row) for row in self.call("GET", "/pool")["pools"]]

    def move(self, sweep: str, priority_class: str, *, weight: float = 1.0) -> answers.SweepSettings:
        check_word("class", priority_class, CLASSES)
        body = {"priority_class": priority_class, "weight": weight}
        return decoded(answers.SweepSettings, self.call("PATCH", self._sweep(sweep), body))

    def quota(self, owner: str) -> answers.QuotaRow:
        return decoded(answers.QuotaRow, self.call("GET", f"/quotas/{quote(owner, safe='')}"))

    def set_quota(
        self,
        owner: str,
        *,
        weight: float | None = None,
        share: float | None = None,
        gpu_hours: float | None = None,
        sweeps: float | None = None,
        new: bool = False,
    ) -> answers.QuotaRow:
        given = {"weight": weight, "share": share, "gpu_hours": gpu_hours, "sweeps": sweeps}
        body = {name: value for name, value in given.items() if value is not None}
        self.call("PATCH", f"/quotas/{quote(owner, safe='')}", {**body, "new": new})
        return self.quota(owner)

    def cost(
        self, prices: str | Path | None = None, *, since: float | None = None
    ) -> Sequence[answers.CostRow]:
        if prices is None:
            return self.cost_at(since=since)
        return self.cost_at(read_text(Path(prices)), since=since, name=shown(Path(prices)))

    def cost_at(
        self, prices: str | None = None, *, since: float | None = None, name: str = "prices"
    ) -> Sequence[answers.CostRow]:
        """Return the hours of sweeps, and their cost at the prices of a text.

        Args:
            prices: YAML text with the price of a GPU-hour by device, and of a core-hour as `CPU`.
            since: Earliest time that counts, seconds since the epoch; None for all.
            name: Name of the text in errors.
        """
        sent = None if prices is None else {"name": name, "text": prices}
        rows = self.call("POST", "/cost", {"prices": sent, "since": since})["cost"]
        return [decoded(answers.CostRow, row) for row in rows]

    def notices(self) -> Sequence[answers.NoticeTarget]:
        return self._targets("GET", "/notices")

    def add_notice(
        self, target: str, events: Sequence[str] = (), name: str = ""
    ) -> Sequence[answers.NoticeTarget]:
        body = {"target": target, "events": list(events), "name": name}
        return self._targets("POST", "/notices", body)

    def remove_notice(self, number: int) -> Sequence[answers.NoticeTarget]:
        return self._targets("DELETE", f"/notices/{number}")

    def _targets(self, method: str, path: str, body: object = None) -> Sequence[answers.NoticeTarget]:
        return [decoded(answers.NoticeTarget, row) for row in self.call(method, path, body)["notices"]]

    def users(self) -> Sequence[User]:
        return [decoded(User, row) for row in self.call("GET", "/users")["users"]]

    def add_user(self, name: str, role: str = "member", *, days: float = DAYS) -> answers.AddedUser:
        check_word("--role", role, ROLES)
        lifetime = None if days == math.inf else days
        added = self.call("POST", "/users", {"name": name, "role": role, "days": lifetime})
        return decoded(answers.AddedUser, added)

    def revoke_user(self, name: str) -> User:
        return decoded(User, self.call("DELETE", f"/users/{quote(name, safe='')}"))

    def audit_log(self, limit: int = 100) -> Sequence[AuditEntry]:
        entries: list[AuditEntry] = []
        while (size := min(limit - len(entries), PAGE)) > 0:
            before = {"before": entries[-1].seq} if entries else {}
            page = self.call("GET", f"/audit?{urlencode({'limit': size, **before})}")["audit"]
            entries += [decoded(AuditEntry, row) for row in page]
            if len(page) < size:
                break
        return entries

    def call(self, method: str, path: str, body: object = None, key: str | None = None) -> dict[str, Any]:
        """Send a request to the API, and return its JSON object.

        Args:
            method: HTTP method.
            path: Path below `/api/v1`.
            body: JSON values, or None.
            key: Idempotency key, or None.

        Raises:
            Refusal: The service refuses the request, with the class of its error.
            NoServer: The server does not answer, or is not a service.
        """
        content = self._answer(method, path, body, {} if key is None else {"Idempotency-Key": key})
        try:
            document = json.loads(content)
        except ValueError:
            document = None
        if not isinstance(document, dict):
            begin = content[:60].decode(errors="replace")
            raise _silent(self.url, f"an answer that is not a JSON object: {begin!r}", _ADDRESS)
        return document

    def _sweep(self, name: str | None) -> str:
        """Return the path of a sweep, or of the newest one."""
        if name is None:
            newest = self.call("GET", "/sweeps?limit=1")["sweeps"]
            if not newest:
                raise no_sweeps()
            return f"/sweeps/{quote(newest[0]['id'], safe='')}"
        ids = self._ids(name) or self._ids()
        return f"/sweeps/{quote(one_of(ids, name), safe='')}"

    def _of_trial(self, sweep: str, trial: str | None, action: str) -> str:
        """Return the path of an action on a sweep, or on one of its trials."""
        path = self._sweep(sweep)
        if trial is None:
            return f"{path}/{action}"
        number = trial.removeprefix("c")
        if not (number.isascii() and number.isdigit()):
            raise no_trial(f"{unquote(path.removeprefix('/sweeps/'))}-{trial}")
        query = "" if number == trial else "?role=confirmation"
        return f"{path}/trials/{number}/{action}{query}"

    def _ids(self, part: str = "") -> list[str]:
        """Return the IDs of the sweeps that contain a text, the oldest first."""
        given = {"descending": "false", "archived": "any"}
        query = urlencode({**given, "name": part[:200]} if part else given)
        return [row.id for row in self._pages(f"/sweeps?{query}", "sweeps", Status)]

    def _trial(self, name: str, below: str = "", **query: int) -> str:
        """Return the path of a trial."""
        rows = [row for row in self._listed({"archived": "any"}) if row.metric is not None]
        begun, archived = [row.id for row in rows], [row.id for row in rows if row.shelf is not None]
        key = key_named(begun, archived, name)
        number = trial_label(key).removeprefix("c")
        if not number.isdigit() or sweep_id_of(key) not in begun:
            raise no_trial(key)
        role = {"role": "confirmation"} if is_confirmation(key) else {}
        path = f"/sweeps/{quote(sweep_id_of(key), safe='')}/trials/{number}{below}"
        return f"{path}?{urlencode({**role, **query})}"

    def _pages(self, path: str, name: str, kind: type[Answer]) -> list[Answer]:
        rows: list[Answer] = []
        total = 1
        while len(rows) < total:
            page = self.call("GET", f"{path}&{urlencode({'offset': len(rows), 'limit': PAGE})}")
            rows += [decoded(kind, row) for row in page[name]]
            total = page["total"] if page[name] else 0
        return rows


class HttpBackend(ApiBackend):
    """The client protocol over HTTP.

    >>> HttpBackend("https://sweeps.example.org").status("listops").state  # doctest: +SKIP
    'RUNNING'

    Args:
        url: Address of the HTTP server, such as `https://sweeps.example.org`.
        token: Token of the user; `SWEEP_TOKEN` if None.

    Raises:
        BadInput: The address requires TLS and does not use it, or the token is missing.
    """

    def __init__(self, url: str, token: str | None = None) -> None:
        parts = urlsplit(url)
        is_near = parts.hostname in _LOOPBACK
        if not parts.hostname or not (parts.scheme == "https" or (parts.scheme == "http" and is_near)):
            must = "must begin with https://, or with http:// for this machine"
            raise BadInput("--server", must, url, "Write an address such as https://sweeps.example.org.")
        known = token or os.environ.get(TOKEN)
        if not known:
            remedy = "An admin creates one with `sweep user add NAME`."
            raise BadInput(TOKEN, "must hold the token of a user", "", remedy)
        super().__init__(url.rstrip("/"))
        self._token = known

    def _answer(self, method: str, path: str, body: object, headers: Mapping[str, str]) -> bytes:
        sent = None if body is None else json.dumps(body).encode()
        own = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json", **headers}
        request = urllib.request.Request(f"{self.url}/api/v1{path}", sent, own, method=method)
        handlers: list[urllib.request.BaseHandler] = [_NoRedirect()]
        if urlsplit(self.url).hostname in _LOOPBACK:
            handlers.append(urllib.request.ProxyHandler({}))
        try:
            with urllib.request.build_opener(*handlers).open(request, timeout=TIMEOUT_SECONDS) as answer:
                content: bytes = answer.read()
        except urllib.error.HTTPError as error:
            with error:
                raise refusal_of(self.url, error.code, error.reason, _body(error)) from None
        except OSError as error:  # also when the connection ends before the answer begins
            raise _silent(self.url, str(getattr(error, "reason", error))) from None
        except http.client.IncompleteRead:
            raise _silent(self.url, "an answer that ends too early") from None
        except http.client.BadStatusLine as error:
            got = f"an answer that is not HTTP: {str(error).strip()[:60]!r}"
            raise _silent(self.url, got, _ADDRESS) from None
        except http.client.HTTPException as error:
            raise _silent(self.url, str(error) or type(error).__name__, _ADDRESS) from None
        return content


class _ClientOnly(type):
    """Metaclass that explains why the rest of `Sweep` is missing."""

    def __getattr__(cls, name: str) -> Any:
        raise AttributeError(
            f"Sweep.{name} needs the ledger, and only the client is installed here: use Sweep.connect(URL), "
            "or install rotrnn-sweeps instead of rotrnn-sweeps-client."
        )


class ClientSweep(metaclass=_ClientOnly):
    """The part of `orchestrator.Sweep` that the client has where it is installed alone.

    >>> ClientSweep.connect("https://sweeps.example.org").status("listops").state  # doctest: +SKIP
    'RUNNING'
    """

    @staticmethod
    def connect(url: str | None = None, token: str | None = None) -> Backend:
        """Return a client of a remote service.

        Args:
            url: Address of its HTTP server, such as `https://sweeps.example.org`; `SWEEP_URL` if None.
            token: Token of the user; `SWEEP_TOKEN` if None.

        Raises:
            BadInput: The address is missing or requires TLS and does not use it, or the token is missing.
        """
        address = url or os.environ.get(URL)
        if not address:
            must = "must name a remote service, because only the client is installed here"
            raise BadInput(URL, must, "", f"Give its URL, or set {URL}.")
        return HttpBackend(address, token)


def decoded(kind: type[Answer], value: Any) -> Answer:
    """Return a dataclass from a JSON object, ignoring fields of later versions.

    >>> decoded(Submitted, {"id": "copying", "state": "QUEUED", "cost": 3})
    Submitted(id='copying', state='QUEUED', added=True, warnings=())

    Args:
        kind: Dataclass, whose fields may be dataclasses, sequences of them, or optional.
        value: JSON object.
    """
    found: Answer = _decoded(kind, value)
    return found


def _decoded(kind: Any, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(kind, type) and is_dataclass(kind):
        hints = _hints(kind)
        return kind(**{name: _decoded(hint, value[name]) for name, hint in hints.items() if name in value})
    inner = [each for each in get_args(kind) if each not in {NoneType, ...}]
    if isinstance(value, list):
        return tuple(_decoded(inner[0] if get_origin(kind) is Sequence else Any, each) for each in value)
    return _decoded(inner[0], value) if len(inner) == 1 else value


@cache
def _hints(kind: Any) -> Mapping[str, Any]:
    hints = get_type_hints(kind)
    return {each.name: hints[each.name] for each in fields(kind)}


def _file(name: str, text: str, profile: str | None, overrides: Sequence[str]) -> dict[str, Any]:
    """Return a search-space file as the body of a request."""
    return {"name": name, "text": text, "profile": profile, "overrides": list(overrides)}


def _body(error: urllib.error.HTTPError) -> bytes:
    """Return the body of a refused request, or nothing if it does not arrive."""
    try:
        return error.read()
    except (OSError, http.client.HTTPException):
        return b""


def refusal_of(url: str, status: int, reason: str, content: bytes) -> Refusal:
    """Return the error of a problem document.

    Args:
        url: Address of the service.
        status: Status of the answer.
        reason: Words after the status.
        content: Body of the answer; anything but a problem document becomes NoServer.
    """
    other = NoServer if status >= HTTPStatus.INTERNAL_SERVER_ERROR else BadInput
    try:
        document = json.loads(content)
        return from_documents((document, *document.get("more", ())), other)
    except (ValueError, KeyError, TypeError, AttributeError):
        return _silent(url, f"{status} {reason}")


def _silent(url: str, got: str, remedy: str = "Try again, or start `serve --http`.") -> NoServer:
    return NoServer(url, "does not answer as the HTTP server of a service", got, remedy)
