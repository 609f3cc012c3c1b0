"""Routes that validate, submit and change sweeps; each change and its audit entry share a transaction.

A search-space file is the `text` of a JSON body, or the whole body in YAML (RFC 9512); every other key of the
JSON body is then a query parameter.

    curl -H "Content-Type: application/yaml" --data-binary @small.yaml .../api/v1/sweeps?name=small

Source: The Idempotency-Key HTTP Header Field, draft-ietf-httpapi-idempotency-key-header-07, section 2.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.datastructures import Headers
from fastapi.routing import APIRoute
from pydantic import Field

from orchestrator.api import priorities, serving, templates
from orchestrator.api.loaded_sweep import LoadedSweep
from orchestrator.api.local import check_retry, settings_row
from orchestrator.client.answers import (
    Stopped,
    Submitted,
    SweepSettings,
    TriedNext,
)
from orchestrator.client.statuses import Status
from orchestrator.config.sections import SLUG
from orchestrator.errors import BadInput, Busy, TooManyRequests
from orchestrator.ledger.people import idempotency
from orchestrator.ledger.people.audit import Asked
from orchestrator.ledger.people.idempotency import Known, RequestKey
from orchestrator.ledger.people.user_records import Note, User
from orchestrator.ledger.queue import submissions
from orchestrator.ledger.sweeps.records import trial_key, trial_label
from orchestrator.web.access import SignedIn
from orchestrator.web.app_state import SUBMISSIONS_A_MINUTE, VALIDATIONS_A_MINUTE, App, AppState
from orchestrator.web.check_process import check_own
from orchestrator.web.file_checks import SentFile, Validated, checked_sweep, validated
from orchestrator.web.http_errors import UnknownMediaType
from orchestrator.web.paging import MOST_WHOLE
from orchestrator.web.sweep_routes import SweepId
from orchestrator.web.trial_routes import Number, TrialRole
from orchestrator.web.user_routes import Body

YAML, JSON = "application/yaml", "application/json"

_IDEMPOTENCY_KEY = "Idempotency-Key"

Key = Annotated[
    str | None,
    Header(
        alias=_IDEMPOTENCY_KEY,
        min_length=1,
        max_length=200,
        description="The same request with the same key within a day returns the first answer.",
    ),
]
IfMatch = Annotated[
    str | None,
    Header(alias="If-Match", max_length=1_000, description="`revision` of the sweep as it was read, or `*`."),
]


class File(Body):
    """Search-space file."""

    name: Annotated[str, Field(pattern=SLUG, description="Name of the sweep, as the stem of a file.")]
    text: Annotated[str, Field(min_length=1, description="The file, in YAML.")]
    profile: Annotated[
        str | None, Field(max_length=64, description="Profile of the file; `full` for none.")
    ] = "auto"
    overrides: Annotated[tuple[str, ...], Field(max_length=100, description="`key=value` each.")] = ()


class Submit(File):
    """Search-space file to run."""

    new: Annotated[bool, Field(description="Run another sweep of the same file.")] = False


class Validate(File):
    """Search-space file to check."""

    sizes: Annotated[bool, Field(description="Count the sizes of its networks, which takes seconds.")] = False


class NoImprovement(Body):
    """Trials without an improvement that end the search, and the smallest improvement that counts."""

    trials: Annotated[int, Field(ge=1, le=MOST_WHOLE)]
    by: Annotated[float, Field(ge=0)] = 0.0


class Extend(Body):
    """Larger budget."""

    trials: Annotated[int | None, Field(le=MOST_WHOLE, description="Number of search trials.")] = None
    hours: Annotated[float | None, Field(description="Wall-clock hours.")] = None
    gpu_hours: Annotated[float | None, Field(description="GPU-hours.")] = None
    target: float | None = None
    no_improvement: NoImprovement | None = None
    failures: Annotated[int | None, Field(ge=1, le=MOST_WHOLE)] = None
    steps: Annotated[
        int | None, Field(ge=1, le=MOST_WHOLE, description="Steps to which the best trials continue.")
    ] = None
    top: Annotated[int | None, Field(ge=1, le=1000, description="Number of these trials; 1 if left out.")] = (
        None
    )


class TrySetting(Body):
    """Setting to try next."""

    params: Annotated[
        dict[str, Any],
        Field(min_length=1, max_length=100, description="Values of some or all searched hyperparameters."),
    ]


class NoteBody(Body):
    """Changes of a note; what is left out stays as it is."""

    text: Annotated[str | None, Field(max_length=100_000, description="Markdown; '' removes the text.")] = (
        None
    )
    add: Annotated[tuple[str, ...], Field(max_length=100, description="Tags to add.")] = ()
    remove: Annotated[tuple[str, ...], Field(max_length=100, description="Tags to remove.")] = ()
    favourite: bool | None = None


class ShelfBody(Body):
    """Whether a sweep is archived or deleted."""

    shelf: Annotated[
        Literal["archived", "deleted"] | None, Field(description="null brings the sweep back into lists.")
    ]


class Priority(Body):
    """Changes of a sweep's class, and of its weight relative to the owner's other sweeps."""

    priority_class: Literal["urgent", "normal", "idle"] | None = None
    weight: Annotated[float | None, Field(description="Greater than 0, and at most 10,000.")] = None


@dataclass(frozen=True)
class Example:
    """Search-space file to begin with."""

    name: str
    text: str


class FileRoute(APIRoute):
    """Route that reads a search-space file, in JSON or in YAML."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler, which receives a YAML body as the same request in JSON."""
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind == YAML:
                return await handler(_in_json(request, await request.body()))
            if kind == JSON:
                return await handler(request)
            must, remedy = f"must be {JSON} or {YAML}", "Name the format of the body."
            raise UnknownMediaType("Content-Type", must, kind or "nothing", remedy)

        return handle


def _in_json(request: Request, content: bytes) -> Request:
    try:
        body: dict[str, Any] = {**request.query_params, "text": content.decode("utf-8-sig")}
    except UnicodeDecodeError as error:
        got = f"another byte at {error.start}"
        raise BadInput("body", "must be UTF-8", got, "Save it as UTF-8.") from None
    if "text" in request.query_params:
        must, remedy = "must be omitted if the body is YAML", "Send it as the body."
        raise BadInput("query.text", must, "", remedy)
    if overrides := request.query_params.getlist("overrides"):
        body["overrides"] = overrides
    translated = json.dumps(body).encode()
    headers = Headers(request.headers).mutablecopy()
    headers["content-type"], headers["content-length"] = JSON, str(len(translated))

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": translated, "more_body": False}

    return Request({**request.scope, "headers": headers.raw}, receive)


def _yaml_request(switch: str) -> dict[str, Any]:
    """Return the OpenAPI description of a YAML body; `switch` is the boolean key of the JSON body."""
    note = f"Only with a body in {YAML}: the key of the JSON body."
    parameters: Mapping[str, tuple[Mapping[str, Any], str]] = {
        "name": ({"type": "string"}, " Required then."),
        "profile": ({"type": "string", "default": "auto"}, ""),
        "overrides": ({"type": "array", "items": {"type": "string"}}, " Can be repeated."),
        switch: ({"type": "boolean", "default": False}, ""),
    }
    text = {"schema": {"type": "string", "description": "The search-space file."}}
    return {
        "requestBody": {"content": {YAML: text}},
        "parameters": [
            {"name": name, "in": "query", "required": False, "schema": schema, "description": note + more}
            for name, (schema, more) in parameters.items()
        ],
    }


ROUTER = APIRouter()
FILES = APIRouter(route_class=FileRoute)


@ROUTER.get("/example")
def example(
    name: Annotated[str | None, Query(max_length=64, description="Name of a shipped file.")] = None,
) -> Example:
    """Show a shipped search-space file, or a small one that runs on every machine."""
    if name is None:
        return Example(templates.EXAMPLE_NAME, templates.EXAMPLE)
    return Example(name, templates.search_space(name))


@FILES.post("/validate", openapi_extra=_yaml_request("sizes"))
def validate(app: App, user: SignedIn, body: Validate) -> Validated:
    """Check a search-space file; nothing is submitted.

    With `application/yaml`, the body is the file itself.
    """
    if not app.validations.take(user.name):
        must = f"is limited to {VALIDATIONS_A_MINUTE} files a minute"
        raise TooManyRequests("validate", must, "", "Wait a minute.")
    return validated(app, _sent(body), user.name, sizes=body.sizes)


@FILES.post("/sweeps", status_code=202, openapi_extra=_yaml_request("new"))
def submit(app: App, user: SignedIn, body: Submit, key: Key = None) -> Submitted:
    """Submit a search-space file; repeating it with the same `Idempotency-Key` returns the first answer.

    With `application/yaml`, the body is the file itself.
    """

    def change(request: RequestKey | None) -> Submitted:
        _take_submission(app, user)
        asked = Asked(user.name, "submit", body.name, {"new": body.new}, request)
        sweep, warnings = checked_sweep(app, _sent(body, new=body.new), user.name)
        given = {"new": body.new, "only_own": user.role != "admin"}
        return _submitted(app, sweep, user.name, warnings, **given, asked=asked)

    return _once(app, user, key, "submit", body, change)


@ROUTER.post("/sweeps/{sweep_id}/stop", status_code=202)
def stop(app: App, user: SignedIn, sweep_id: SweepId) -> Stopped:
    """Save every trial of a sweep and stop it until it is resumed."""
    stopped = app.backend.stop(sweep_id, asked=Asked(user.name, "stop", sweep_id))
    app.changed(sweep_id)
    return stopped


@ROUTER.post("/sweeps/{sweep_id}/trials/{number}/stop", status_code=202)
def stop_trial(
    app: App, user: SignedIn, sweep_id: SweepId, number: Number, role: TrialRole = "search"
) -> Stopped:
    """Save a trial and end it; its place goes to the next trial."""
    label = trial_label(trial_key(sweep_id, number, role))
    stopped = app.backend.stop(sweep_id, label, asked=Asked(user.name, "stop", sweep_id, {"trial": label}))
    app.changed(sweep_id)
    return stopped


@ROUTER.post("/sweeps/{sweep_id}/trials/{number}/resume", status_code=202)
def resume_trial(
    app: App, user: SignedIn, sweep_id: SweepId, number: Number, role: TrialRole = "search"
) -> SweepSettings:
    """Exempt a trial from early stopping, so that it runs to its last step, also if it is paused."""
    label = trial_label(trial_key(sweep_id, number, role))
    asked = Asked(user.name, "resume", sweep_id, {"trial": label})
    chosen = app.backend.resume(sweep_id, label, asked=asked)
    app.changed(sweep_id)
    return chosen


@ROUTER.post("/sweeps/{sweep_id}/try", status_code=202)
def try_setting(app: App, user: SignedIn, sweep_id: SweepId, body: TrySetting) -> TriedNext:
    """Ask an unfinished sweep to try a setting next; the sampler completes what it leaves out."""
    asked = Asked(user.name, "try", sweep_id, {"params": body.params})
    answer = app.backend.try_setting(sweep_id, body.params, asked=asked)
    app.changed(sweep_id)
    return answer


@ROUTER.put("/sweeps/{sweep_id}/shelf")
def shelve(app: App, user: SignedIn, sweep_id: SweepId, body: ShelfBody) -> Status:
    """Archive or delete a sweep that is neither queued nor running, or undo that.

    A garbage collection on the machine of the service removes a deleted sweep.
    """
    answer = app.backend.shelve(sweep_id, body.shelf, actor=user.name)
    app.changed(sweep_id)
    return answer


@ROUTER.patch("/sweeps/{sweep_id}/note")
def note_sweep(app: App, user: SignedIn, sweep_id: SweepId, body: NoteBody) -> Note:
    """Change the note, the tags or the mark of a sweep, in any state."""
    answer = app.backend.note(sweep_id, actor=user.name, **body.model_dump())
    app.changed(sweep_id)
    return answer


@ROUTER.patch("/sweeps/{sweep_id}/trials/{number}/note")
def note_trial(
    app: App, user: SignedIn, sweep_id: SweepId, number: Number, body: NoteBody, role: TrialRole = "search"
) -> Note:
    """Change the note, the tags or the mark of a trial, in any state."""
    label = trial_label(trial_key(sweep_id, number, role))
    answer = app.backend.note(sweep_id, label, actor=user.name, **body.model_dump())
    app.changed(sweep_id)
    return answer


@ROUTER.post("/sweeps/{sweep_id}/resume", status_code=202)
def resume(app: App, user: SignedIn, sweep_id: SweepId) -> SweepSettings:
    """Queue a stopped or parked sweep again, or let its driver continue."""
    _take_submission(app, user)
    _check_code(app, user, _found(app, sweep_id))
    asked = Asked(user.name, "resume", sweep_id)
    _, chosen = priorities.resume(sweep_id, asked=asked, root=app.workspace.paths.root)
    app.changed(sweep_id)
    return settings_row(sweep_id, chosen)


@ROUTER.post("/sweeps/{sweep_id}/extend", status_code=202)
def extend(app: App, user: SignedIn, sweep_id: SweepId, body: Extend, key: Key = None) -> Submitted:
    """Queue a finished sweep again with a larger budget.

    Repeating the request with the same `Idempotency-Key` returns the first answer.
    """

    def change(request: RequestKey | None) -> Submitted:
        _take_submission(app, user)
        budget = body.model_dump(exclude_none=True)
        asked = Asked(user.name, "extend", sweep_id, budget, request)
        return _again(app, user, _found(app, sweep_id).extended(**budget), asked)

    return _once(app, user, key, f"extend {sweep_id}", body, change)


@ROUTER.post("/sweeps/{sweep_id}/retry", status_code=202)
def retry(app: App, user: SignedIn, sweep_id: SweepId, key: Key = None) -> Submitted:
    """Queue a stopped sweep again, or the failed trials of a finished one.

    Repeating the request with the same `Idempotency-Key` returns the first answer.
    """

    def change(request: RequestKey | None) -> Submitted:
        _take_submission(app, user)
        selected = _found(app, sweep_id)
        check_retry(selected)
        asked = Asked(user.name, "retry", sweep_id, request=request)
        return _again(app, user, selected, asked, options={serving.RETRY_FAILED: True})

    return _once(app, user, key, f"retry {sweep_id}", None, change)


@ROUTER.patch("/sweeps/{sweep_id}")
def set_priority(
    app: App,
    user: SignedIn,
    sweep_id: SweepId,
    body: Priority,
    response: Response,
    revision: IfMatch = None,
) -> SweepSettings:
    """Set the class and the weight of a sweep; class `urgent` requires an admin.

    With `If-Match`, nothing is changed if the sweep has another `revision` (412).
    """
    changes = body.model_dump(exclude_none=True)
    accepted = None if revision is None or revision.strip() == "*" else _tags(revision)
    _, chosen = priorities.change(
        sweep_id,
        **changes,
        revisions=accepted,
        asked=Asked(user.name, "priority", sweep_id, changes),
        root=app.workspace.paths.root,
    )
    app.changed(sweep_id)
    response.headers["ETag"] = f'"{chosen.revision}"'
    return settings_row(sweep_id, chosen)


def _tags(header: str) -> frozenset[str]:
    """Return the entity tags of a header without their quotes."""
    return frozenset(part.strip().removeprefix("W/").strip('"') for part in header.split(","))


def _once(
    app: AppState,
    user: User,
    key: str | None,
    what: str,
    body: Body | None,
    change: Callable[[RequestKey | None], Submitted],
) -> Submitted:
    """Make a change, or return the answer to an earlier request of the user with the same key.

    `change` stores its answer in its own transaction. A refused change does not use its key.
    """
    if key is None:
        return change(None)
    digest = digest_of(what, body)
    with app.ledger() as ledger:
        request = idempotency.begin(ledger, user.name, key, digest)
    if isinstance(request, Known):
        if request.digest != digest:
            must = "was used for a different request"
            raise BadInput(_IDEMPOTENCY_KEY, must, "", "Choose another key.")
        if request.answer is None:
            must = "belongs to a request that is still running"
            raise Busy(_IDEMPOTENCY_KEY, must, "", "Send the request again in a few seconds.")
        return Submitted(**request.answer)
    try:
        return change(request)
    except BaseException:
        with app.ledger() as ledger:
            idempotency.forget(ledger, request)
        raise


def digest_of(what: str, body: Body | None) -> str:
    """Return a digest that is equal for equal requests."""
    return hashlib.sha256(f"{what}\n{body.model_dump_json() if body else ''}".encode()).hexdigest()


def _sent(body: File, *, new: bool = False) -> SentFile:
    return SentFile(body.name, body.text, body.profile, body.overrides, new)


def _take_submission(app: AppState, user: User) -> None:
    if not app.submissions.take(user.name):
        must = f"must not exceed {SUBMISSIONS_A_MINUTE} a minute"
        raise TooManyRequests("submissions", must, "", "Wait a minute.")


def _check_code(app: AppState, user: User, sweep: LoadedSweep) -> str:
    """Check that the service may run the code of a sweep; return the owner of the sweep."""
    owner = app.owner(sweep.id) or user.name
    check_own(sweep.specification, owner, plugins=app.plugins)
    return owner


def _found(app: AppState, sweep_id: str) -> LoadedSweep:
    return LoadedSweep.find(sweep_id, root=app.workspace.paths.root, data=app.workspace.data)


def _again(app: AppState, user: User, sweep: LoadedSweep, asked: Asked, **arguments: Any) -> Submitted:
    """Queue an ended sweep again, in the name of its owner."""
    owner = _check_code(app, user, sweep)
    return _submitted(app, sweep, owner, only_ended=True, asked=asked, **arguments)


def _submitted(
    app: AppState, sweep: LoadedSweep, owner: str, warnings: Sequence[str] = (), **arguments: Any
) -> Submitted:
    submission, added = serving.submit(sweep, owner=owner, warnings=warnings, **arguments)
    app.cache.clear()
    return Submitted(**submissions.answer_of(submission, warnings, added=added))
