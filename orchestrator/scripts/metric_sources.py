"""Reports from the existing output of a script: printed lines, files, or its calls of MLflow."""

from __future__ import annotations

import csv
import json
import math
import os
import re
import shutil
import struct
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from hmac import compare_digest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit
from uuid import uuid4

from orchestrator.assignment import Logged
from orchestrator.scripts.mlflow_artifacts import MOST_ARTIFACTS, MlflowArtifacts, check_name
from orchestrator.scripts.reported_folder import own_file
from trainables.errors import Refusal

STEP = "step"
"""Name of the pattern of the step, and of the column of the step unless the file names another."""

LOOK_SECONDS = 0.05
"""Shortest time between two looks at a file."""

LONGEST_READ = 4 << 20
"""Largest number of bytes that one look reads of a file, and maximum length of a line or a record."""

MOST_PENDING = 1_000
"""Largest number of steps whose metrics wait for the metrics of the objective."""

MOST_FILES = 1_000
"""Largest number of event files that are read."""

SETTLING_SECONDS = 0.2
"""Time without a call of MLflow after which the metrics of the newest step are complete."""

MOST_NAMES, LONGEST_NAME = 2_000, 250
"""Largest number and length of the names of metrics that a script may log with MLflow; an attempt records
fewer."""

MOST_TEXTS, LONGEST_TEXT = 200, 8_000
"""Largest number of parameters, and of tags, that an attempt keeps, and the length at which each is cut."""

SILENT_SECONDS = 10.0
"""Time limit for a connection to `MlflowCalls` that sends nothing."""


class MetricSource(ABC):
    """Source of the reports of a script."""

    variables: Mapping[str, str] = {}
    """Environment variables of the script."""

    def print(self, lines: str) -> None:  # noqa: B027 - most sources ignore it
        """Take lines that the script has printed; another thread calls this."""

    def logged(self) -> Logged | None:
        """Return what was logged besides metrics since the last call, or None."""
        return None

    def close(self) -> None:  # noqa: B027 - most sources hold nothing
        """Release what the source holds, after the end of the script."""

    @abstractmethod
    def reports(self, *, ended: bool) -> list[bytes]:
        """Return the new reports, a line of JSON each.

        Args:
            ended: Whether the script has ended, so that nothing follows.

        Raises:
            Refusal: A value is not a number, or a step does not grow.
        """


class PendingMetrics:
    """Metrics by step, until those of a step are complete.

    A report has the metrics of its step, and those of earlier steps that no report had.

    Args:
        needed: Metrics without which a step has no report.
        awaited: Metrics for which the newest step waits until a later one begins or the script ends; None
            if they are not known, so that it always waits.
    """

    def __init__(self, needed: Collection[str], awaited: Collection[str] | None) -> None:
        self._needed = frozenset(needed)
        self._awaited = None if awaited is None else frozenset(awaited) | self._needed
        self._pending: dict[int, dict[str, float]] = {}
        self.last = -1

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Add metrics of a step."""
        self._pending.setdefault(step, {}).update(values)
        while len(self._pending) > MOST_PENDING:
            first, second, *_ = sorted(self._pending)
            self._pending[second] = {**self._pending.pop(first), **self._pending[second]}

    def complete(self, *, ended: bool) -> Iterator[bytes]:
        """Yield the reports of the complete steps in order."""
        for step in sorted(self._pending):
            names = self._pending[step].keys()
            is_whole = ended or step < max(self._pending)
            is_whole = is_whole or (self._awaited is not None and self._awaited <= names)
            if step > self.last and self._needed <= names and is_whole:
                earlier = sorted(other for other in self._pending if other <= step)
                metrics = {name: value for at in earlier for name, value in self._pending.pop(at).items()}
                self.last = step
                yield json.dumps({"step": step, "metrics": metrics}).encode()


class PrintedMetrics(MetricSource):
    """Metrics in the lines that a script prints.

    Args:
        patterns: Regular expression by metric, whose group is the value. That of `step` gives the step.
        needed: Metrics without which a step has no report.
        interval: Steps between two reports of a script that prints no step.
    """

    def __init__(self, patterns: Mapping[str, str], needed: Collection[str], interval: int) -> None:
        self._patterns = {name: re.compile(pattern) for name, pattern in patterns.items()}
        self._interval = interval
        self._found: deque[dict[str, str]] = deque()
        self._pending = PendingMetrics(needed, patterns.keys() - {STEP})
        self._step = None if STEP in patterns else interval

    def print(self, lines: str) -> None:
        """Store the matches of the patterns in lines."""
        for line in lines.split("\n"):
            matches = {name: pattern.search(line) for name, pattern in self._patterns.items()}
            if found := {name: match[1] for name, match in matches.items() if match is not None}:
                self._found.append(found)

    def reports(self, *, ended: bool) -> list[bytes]:
        """Return the reports of the steps that are complete."""
        lines: list[bytes] = []
        while self._found:
            values = {name: _value(name, text) for name, text in self._found.popleft().items()}
            if STEP in values:
                self._step = _whole(values.pop(STEP))
                if self._step < self._pending.last:
                    must = f"a printed step must not be before step {self._pending.last}"
                    raise _refused(must, str(self._step))
            if self._step is not None:
                self._pending.add(self._step, values)
            lines += self._advanced(ended=False)
        return lines + self._advanced(ended=ended)

    def _advanced(self, *, ended: bool) -> list[bytes]:
        lines = list(self._pending.complete(ended=ended))
        if lines and STEP not in self._patterns:
            self._step = self._pending.last + self._interval
        return lines


def _value(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        must = f"the group of the pattern of {name} must match a number"
        raise _refused(must, f"{text!r:.80}") from None


def _whole(value: float) -> int:
    if not math.isfinite(value) or value != int(value):
        raise _refused("a printed step must be a whole number", str(value))
    return int(value)


def _refused(must: str, got: str) -> Refusal:
    return Refusal("trainable.metrics", must, got, "Correct it: docs/trainables.md.")


class MetricTable(MetricSource):
    """Metrics in a CSV file with a header, or in a file with a JSON object a line, which grows.

    A file that is written again, as a CSV file is for a new column, is read again.

    Args:
        file: Path of the file, which need not exist yet.
        step: Name of the column of the step.
        needed: Metrics without which a step has no report.
    """

    def __init__(self, file: Path, step: str, needed: Collection[str]) -> None:
        self._file, self._step = file, step
        self._pending = PendingMetrics(needed, needed)
        self._offset, self._header, self._looked_at = 0, b"", 0.0
        self._is_behind = False

    def reports(self, *, ended: bool) -> list[bytes]:
        """Return the reports of rows that were added, at most `LONGEST_READ` bytes of the file at a time."""
        now = time.monotonic()
        if not ended and not self._is_behind and now - self._looked_at < LOOK_SECONDS:
            return []
        self._looked_at = now
        while True:
            self._read()
            found = list(self._pending.complete(ended=ended and not self._is_behind))
            if found or not (ended and self._is_behind):  # at the end, no report means that nothing follows
                return found

    def _read(self) -> None:
        for row in self._rows():
            numbers = {name: number for name, value in row.items() if (number := _number(value)) is not None}
            step = numbers.pop(self._step, None)
            if step is not None and step == int(step) >= self._pending.last:
                self._pending.add(int(step), numbers)

    def _rows(self) -> Iterator[Mapping[str, object]]:
        lines = self._new_lines()
        if self._file.suffix != ".csv":
            for line in lines:
                with suppress(ValueError):
                    row = json.loads(line)
                    if isinstance(row, dict):
                        yield row
            return
        names = next(csv.reader([self._header.decode("utf-8", "replace")]), [])
        for cells in csv.reader(line.decode("utf-8", "replace") for line in lines):
            yield dict(zip(names, cells, strict=False))

    def _new_lines(self) -> list[bytes]:
        """Return the next complete lines, without the header of a CSV file."""
        self._is_behind = False
        try:
            with own_file(self._file, os.O_RDONLY) as file:
                header = file.readline(LONGEST_READ)
                if not header.endswith(b"\n"):
                    return []
                if header != self._header or os.fstat(file.fileno()).st_size < self._offset:
                    self._header = header
                    self._offset = len(header) if self._file.suffix == ".csv" else 0
                file.seek(self._offset)
                text = file.read(LONGEST_READ)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _refused("the metrics file must be a regular file of the script", str(error)) from error
        whole = text[: text.rfind(b"\n") + 1]
        self._is_behind = len(text) == LONGEST_READ
        if self._is_behind and not whole:
            raise _refused(f"a line of {self._file.name} must be shorter", f"{LONGEST_READ} bytes")
        self._offset += len(whole)
        return whole.split(b"\n")[:-1]


def _number(value: object) -> float | None:
    """Return a cell as a number, or None if it is empty, a text or a flag."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


class EventFiles(MetricSource):
    """Scalars in TensorBoard's event files below a folder.

    A scalar of a subfolder has the name `<subfolder>/<tag>`.

    Args:
        folder: Folder of the event files, which need not exist yet.
        needed: Metrics without which a step has no report.
    """

    def __init__(self, folder: Path, needed: Collection[str]) -> None:
        self._folder = folder
        self._pending = PendingMetrics(needed, needed)
        self._offsets: dict[Path, int] = {}
        self._looked_at = 0.0

    def reports(self, *, ended: bool) -> list[bytes]:
        """Return the reports of the events that were added."""
        now = time.monotonic()
        if not ended and now - self._looked_at < LOOK_SECONDS:
            return []
        self._looked_at = now
        for path, _, names in os.walk(self._folder):
            for name in sorted(name for name in names if "tfevents" in name):
                file = Path(path, name)
                if file in self._offsets or len(self._offsets) < MOST_FILES:
                    self._read(file, file.parent.relative_to(self._folder))
        return list(self._pending.complete(ended=ended))

    def _read(self, file: Path, below: Path) -> None:
        with suppress(FileNotFoundError):
            for record in self._records(file):
                step, scalars = scalars_of(record)
                named = {(below / tag).as_posix(): value for tag, value in scalars.items()}
                if named and step >= self._pending.last:
                    self._pending.add(step, named)

    def _records(self, file: Path) -> Iterator[bytes]:
        """Yield the complete records since the last look.

        A record is its length in 8 bytes, a checksum of 4, its bytes, and a checksum of 4.
        Source: TensorFlow, tensorflow/core/lib/io/record_writer.h.
        """
        with own_file(file, os.O_RDONLY) as opened:
            size = os.fstat(opened.fileno()).st_size
            at = self._offsets.get(file, 0)
            at = at if at <= size else 0  # another writer has begun the file again in the same second
            while at + 12 <= size:
                opened.seek(at)
                (length,) = struct.unpack("<Q", opened.read(12)[:8])
                if at + length + 16 > size:
                    break
                at += length + 16
                self._offsets[file] = at
                if length <= LONGEST_READ:
                    yield opened.read(length)


def scalars_of(event: bytes) -> tuple[int, dict[str, float]]:
    """Return the step and the scalars by tag of an event, as Protocol Buffers encode it.

    Raises:
        Refusal: It is not an event.
    Source: TensorFlow, tensorflow/core/util/event.proto, framework/summary.proto and tensor.proto.
    """
    step, scalars = 0, {}
    try:
        for number, value in _fields(event):
            if number == 2 and isinstance(value, int):
                step = value
            elif number == 5 and isinstance(value, bytes):
                for _, each in _fields(value):
                    fields = dict(_fields(each)) if isinstance(each, bytes) else {}
                    number_of = _scalar(fields)
                    tag = fields.get(1)
                    if number_of is not None and isinstance(tag, bytes):
                        scalars[tag.decode("utf-8", "replace")] = number_of
    except (IndexError, struct.error, ValueError) as error:
        raise _refused("must name a folder with TensorBoard's event files", str(error)) from error
    return step, scalars


def _scalar(fields: Mapping[int, int | bytes]) -> float | None:
    """Return the number of a summary's value, or None if it is an image, a text or an array."""
    simple, tensor = fields.get(2), fields.get(8)
    if isinstance(simple, bytes) and len(simple) == 4:
        return float(struct.unpack("<f", simple)[0])
    if not isinstance(tensor, bytes):
        return None
    inner = dict(_fields(tensor))
    form, size, own = {1: ("<f", 4, 5), 2: ("<d", 8, 6)}.get(int(inner.get(1) or 0), ("", 0, 0))
    content = inner.get(4) or inner.get(own)
    is_one = isinstance(content, bytes) and 0 < size == len(content)
    return float(struct.unpack(form, content)[0]) if is_one else None  # type: ignore[arg-type]


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the numbers and the values of a message's fields: integers of type 0, bytes of the others."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        if key & 7 == 0:
            value, at = _varint(message, at)
            yield key >> 3, value
            continue
        if key & 7 == 2:
            size, at = _varint(message, at)
        else:
            size = {1: 8, 5: 4}[key & 7] if key & 7 in (1, 5) else _unknown(key)
        if at + size > len(message):
            raise ValueError("a field is longer than its message")
        yield key >> 3, message[at : at + size]
        at += size


def _unknown(key: int) -> int:
    raise ValueError(f"unknown type {key & 7} of a field")


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """Return the integer at a place, of at most ten bytes, and the position after it."""
    value, shift = 0, 0
    while shift < 70:
        byte = message[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
    raise ValueError("an integer has more than ten bytes")


class MlflowCalls(MetricSource):
    """Metrics that a script logs with a client of MLflow, in any language.

    A server on this machine answers the calls of MLflow's REST API that carry its token, which only the
    environment of the script holds. It knows one experiment and one run: every experiment and every run that
    the script creates are these. An answer waits for nothing. Parameters, tags, artifacts and models are kept
    for the run of the trial; the files of a model are artifacts in a folder with the name of the model.

    Args:
        artifacts: Folder of the artifacts, on the disk of the results.
        needed: Metrics without which a step has no report.

    Source: MLflow, docs/api_reference/source/rest-api.rst.
    """

    def __init__(self, artifacts: Path, needed: Collection[str]) -> None:
        self.run, self.token = uuid4().hex, uuid4().hex
        self._needed = frozenset(needed)
        self._pending = PendingMetrics(needed, None)
        self._latest: dict[str, int] = {}
        self._repeated: set[int] = set()
        self._texts, self._new_texts = Logged(), Logged()
        self.artifacts = MlflowArtifacts(artifacts)
        self._models: dict[str, str] = {}
        self._logged_at = 0.0
        self._lock = threading.Lock()
        place = f"mlflow-artifacts:/{self.run}"
        info: dict[str, Any] = {
            "run_id": self.run,
            "run_uuid": self.run,
            "experiment_id": "0",
            "run_name": "trial",
        }
        info |= {"status": "RUNNING", "lifecycle_stage": "active", "artifact_uri": place}
        info |= {"start_time": round(1000 * time.time()), "end_time": 0}
        run = {"run": {"info": info, "data": {}}}
        experiment = {"experiment_id": "0", "name": "sweep", "lifecycle_stage": "active"}
        experiment |= {"artifact_location": place}
        self.answers: Final[Mapping[str, Mapping[str, Any]]] = {
            "runs/get": run,
            "runs/create": run,
            "runs/update": {"run_info": info},
            "experiments/create": {"experiment_id": "0"},
            "experiments/get": {"experiment": experiment},
            "experiments/get-by-name": {"experiment": experiment},
        }
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Call", (_MlflowCall,), {"source": self}))
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="calls of MLflow", daemon=True
        )
        self._thread.start()
        without_proxy = ",".join(filter(None, ("127.0.0.1", os.environ.get("NO_PROXY"))))
        self.variables = {
            "MLFLOW_TRACKING_URI": f"http://127.0.0.1:{self._server.server_port}",
            "MLFLOW_RUN_ID": self.run,
            "MLFLOW_TRACKING_TOKEN": self.token,
            "NO_PROXY": without_proxy,
            "no_proxy": without_proxy,
        }

    def log(self, metrics: Collection[Mapping[str, Any]]) -> None:
        """Take metrics of a call, each with a key, a value and a step; the first one of a step counts.

        Raises:
            ValueError: A value or a step is not a number, or a name is too long.
        """
        found = [(str(one["key"]), int(one.get("step") or 0), float(one["value"])) for one in metrics]
        if max((len(name) for name, _, _ in found), default=0) > LONGEST_NAME:
            raise ValueError(f"the name of a metric must have at most {LONGEST_NAME} characters")
        with self._lock:
            for name, step, value in found:
                if not (name in self._latest or name in self._needed or len(self._latest) < MOST_NAMES):
                    continue
                if step > self._latest.get(name, -1):
                    self._latest[name] = step
                    self._pending.add(step, {name: value})
                    self._logged_at = time.monotonic()
                elif name in self._needed:
                    self._repeated.add(step)

    def log_texts(
        self, parameters: Collection[Mapping[str, Any]], tags: Collection[Mapping[str, Any]]
    ) -> None:
        """Take parameters and tags of a call, each with a key and a value.

        The first value of a parameter counts, and the last one of a tag. MLflow's own tags, which begin with
        `mlflow.`, are those of the trial.

        Raises:
            ValueError: A parameter has another value already, or a name is too long.
        """
        named = [(str(one["key"]), str(one["value"])[:LONGEST_TEXT]) for one in parameters]
        tagged = [(str(one["key"]), str(one["value"])[:LONGEST_TEXT]) for one in tags]
        if max((len(name) for name, _ in (*named, *tagged)), default=0) > LONGEST_NAME:
            raise ValueError(f"a parameter and a tag must have a name of at most {LONGEST_NAME} characters")
        with self._lock:
            known = self._texts
            for name, value in named:
                if known.parameters.get(name, value) != value:
                    must = f"the parameter {name} must keep its value {known.parameters[name]!r:.80}"
                    raise ValueError(f"{must} (got {value!r:.80})")
                if name not in known.parameters and len(known.parameters) < MOST_TEXTS:
                    known.parameters[name] = self._new_texts.parameters[name] = value
            for name, value in tagged:
                if name.startswith("mlflow.") or known.tags.get(name) == value:
                    continue
                if name in known.tags or len(known.tags) < MOST_TEXTS:
                    known.tags[name] = self._new_texts.tags[name] = value

    def model(self, name: str) -> Mapping[str, Any]:
        """Return the description of a model, whose files are artifacts in the folder of its name.

        Raises:
            ValueError: The name is invalid, or there are too many models.
        """
        check_name(name)
        with self._lock:
            if name not in self._models and len(self._models) == MOST_ARTIFACTS:
                raise ValueError(f"a trial must log at most {MOST_ARTIFACTS} models")
            known = self._models.setdefault(name, f"m-{uuid4().hex}")
        info = {"model_id": known, "experiment_id": "0", "name": name, "source_run_id": self.run}
        info |= {"artifact_uri": f"mlflow-artifacts:/{self.run}/{name}", "status": "LOGGED_MODEL_READY"}
        return {"model": {"info": info}}

    def answer(self, call: str) -> Mapping[str, Any] | None:
        """Return the answer to a call, such as `runs/get`, or None if it has none."""
        if call.startswith("logged-models/"):
            wanted = call.split("/")[1]
            return next(
                (self.model(name) for name, known in [*self._models.items()] if known == wanted), None
            )
        return self.answers.get(call)

    def logged(self) -> Logged | None:
        """Return what was logged since the last call besides metrics, or None."""
        with self._lock:
            new, self._new_texts = self._new_texts, Logged()
        files = {name: str(self.artifacts.kept(name)) for name in self.artifacts.take()}
        new = replace(new, files=files, left_out=self.artifacts.left_out())
        return new if new != Logged() else None

    def reports(self, *, ended: bool) -> list[bytes]:
        """Return the reports of the steps that are complete, and an empty one of a step that was repeated."""
        with self._lock:
            is_quiet = time.monotonic() - self._logged_at > SETTLING_SECONDS
            lines = list(self._pending.complete(ended=ended or is_quiet))
            last = self._pending.last
            if last in self._repeated:
                lines.append(json.dumps({"step": last, "metrics": {}}).encode())
            self._repeated = {step for step in self._repeated if step > last}
        return lines

    def close(self) -> None:
        """Stop the server."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self.artifacts.close()


_ARTIFACTS = "/mlflow-artifacts/artifacts"
"""End of the address of artifacts, before their run and their names."""

_INVALID = (ValueError, TypeError, KeyError, AttributeError, OverflowError)
"""Errors of a call that is not as MLflow defines it."""


class _MlflowCall(BaseHTTPRequestHandler):
    """A call of MLflow's REST API."""

    source: MlflowCalls
    timeout = SILENT_SECONDS
    wbufsize = -1  # headers and body in one packet

    def do_GET(self) -> None:
        """Answer a question."""
        if not self._has_token():
            return
        call, query = self._call(), urlsplit(self.path).query
        if _ARTIFACTS in self.path:
            self._answer_artifact(parse_qs(query).get("path", [""])[0])
        elif call.startswith("runs/") and self.source.run not in query:
            self._answer(404, {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "no such run"})
        elif (answer := self.source.answer(call)) is not None:
            self._answer(200, answer)
        else:
            message = "not kept, because the trial takes its reports from metrics logged to MLflow"
            self._answer(404, {"error_code": "ENDPOINT_NOT_FOUND", "message": message})

    def do_POST(self) -> None:
        """Take metrics, parameters, tags and models; accept anything else."""
        if not self._has_token():
            return
        call = self._call()
        try:
            size = int(self.headers.get("Content-Length") or 0)
            if size > LONGEST_READ:
                raise ValueError(f"a call must be shorter than {LONGEST_READ} bytes")
            document = json.loads(self.rfile.read(size) or b"{}")
            answer = self.source.answer(call)
            if call == "runs/create":
                self.source.log_texts((), document.get("tags") or ())
            elif call == "logged-models":
                answer = self.source.model(str(document.get("name") or "model"))
            elif self.source.run in (document.get("run_id"), document.get("run_uuid")):
                self._take(call, document)
        except _INVALID as error:
            self._refuse(error)
        else:
            self._answer(200, answer or {})

    def do_PUT(self) -> None:
        """Take a file that is an artifact of the run."""
        if not self._has_token():
            return
        unread = 0
        try:
            size = unread = max(int(self.headers.get("Content-Length") or 0), 0)
            if self.headers.get("Transfer-Encoding"):  # as clients send an empty file
                if int(self.rfile.readline(LONGEST_NAME), 16):
                    raise ValueError("an artifact must come with its Content-Length")
                self.rfile.readline(LONGEST_NAME)
            check_name(name := self._artifact())
            unread = 0
            self.source.artifacts.write(name, self.rfile, size)
        except (*_INVALID, OSError) as error:
            self.rfile.read(min(unread, LONGEST_READ))  # so that a client that still sends gets the answer
            self._refuse(error)
        else:
            self._answer(200, {})

    def _has_token(self) -> bool:
        """Refuse a call without the token of the script."""
        given = self.headers.get("Authorization") or ""
        if compare_digest(given.encode(), f"Bearer {self.source.token}".encode()):
            return True
        message = "must come from the script of the trial, with its MLFLOW_TRACKING_TOKEN"
        self._answer(401, {"error_code": "UNAUTHENTICATED", "message": message})
        return False

    def _artifact(self, path: str | None = None) -> str:
        """Return the name of the artifact that the call names, or `path`; '' for all artifacts.

        Raises:
            ValueError: It belongs to another run.
        """
        if path is None:
            path = unquote(urlsplit(self.path).path).partition(_ARTIFACTS)[2].removeprefix("/")
        run, _, name = path.partition("/")
        if run != self.source.run:
            raise ValueError(f"an artifact must be one of the run of the trial (got {path!r:.80})")
        return name

    def _answer_artifact(self, listed: str) -> None:
        """Answer with a file, or with the entries of a folder if `listed` names one."""
        artifacts = self.source.artifacts
        try:
            if listed:
                entries = sorted(artifacts.entries(self._artifact(listed)).items())
                folders = [{"path": name, "is_dir": True} for name, size in entries if size is None]
                files = [
                    {"path": name, "is_dir": False, "file_size": size}
                    for name, size in entries
                    if size is not None
                ]
                return self._answer(200, {"files": [*folders, *files]})
            path = artifacts.find(name := self._artifact())
            if path is None:
                message = f"no artifact {name!r:.80} was logged by this attempt"
                return self._answer(404, {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": message})
            with path.open("rb") as file:
                self.send_response(200)
                self.send_header("Content-Length", str(os.fstat(file.fileno()).st_size))
                self.end_headers()
                shutil.copyfileobj(file, self.wfile)
        except (ValueError, OSError) as error:
            self._refuse(error)

    def _refuse(self, error: Exception) -> None:
        self._answer(400, {"error_code": "INVALID_PARAMETER_VALUE", "message": str(error)})

    def _take(self, call: str, document: Mapping[str, Any]) -> None:
        if call == "runs/log-metric":
            self.source.log([document])
        elif call == "runs/log-parameter":
            self.source.log_texts([document], ())
        elif call == "runs/set-tag":
            self.source.log_texts((), [document])
        elif call == "runs/log-batch":
            self.source.log_texts(document.get("params") or (), document.get("tags") or ())
            self.source.log(document.get("metrics") or ())

    do_PATCH = do_POST  # noqa: N815 - the name that the base class calls

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""

    def _call(self) -> str:
        """Return the name of the call, such as `runs/log-metric` of `/api/2.0/mlflow/runs/log-metric`."""
        return urlsplit(self.path).path.partition("/mlflow/")[2]

    def _answer(self, status: int, document: Mapping[str, Any]) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def source_of_metrics(
    metrics: Mapping[str, str], folder: Path, kept: Path, needed: Collection[str], interval: int
) -> MetricSource:
    """Return the source of the reports of a script.

    Args:
        metrics: Section `trainable.metrics` with its placeholders replaced.
        folder: Working folder of the script.
        kept: Folder of the artifacts that the script logs with MLflow.
        needed: Metrics without which a step has no report: objectives and constrained ones.
        interval: Steps between two reports.
    """
    if "file" in metrics:
        return MetricTable(folder / metrics["file"], metrics.get(STEP, STEP), needed)
    if "source" in metrics:
        return MlflowCalls(kept, needed)
    if "tensorboard" in metrics:
        return EventFiles(folder / metrics["tensorboard"], needed)
    return PrintedMetrics(metrics, needed, interval)
