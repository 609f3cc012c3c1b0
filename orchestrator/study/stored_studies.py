"""Studies of others in Optuna's storages, opened for reading only.

Optuna is imported when a storage is opened, because one verb reads studies and files of other tools.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from orchestrator.config.imports.optuna_study import RecordedStudy, StudyTrial
from orchestrator.errors import BadInput
from orchestrator.process_secrets import redacted
from orchestrator.storage.paths import sqlite_url

_SQLITE = "sqlite:///"
_REMEDY = "Name a storage of Optuna, such as sqlite:///study.db."
_MOST_TRIALS = 100_000
_BIGGEST_JOURNAL = 1 << 30


def read_study(source: str, name: str | None) -> RecordedStudy:
    """Return a study of a storage. Nothing is written to it.

    Args:
        source: URL of a database, such as `sqlite:///study.db`, or the path of a SQLite file or a journal.
        name: Name of the study, or None if the storage has one.

    Raises:
        BadInput: The storage cannot be read, or has no such study.
    """
    import optuna

    shown = redacted(source)
    with _readable(shown), opened_storage(source) as storage:
        names = sorted(optuna.get_all_study_names(storage))
        if len(names) != 1 if name is None else name not in names:
            must = (
                "must have one study, or `--study` must name one"
                if name is None
                else f"must have the study {name}"
            )
            raise BadInput(shown, must, ", ".join(names[:8]) or "no studies", "Give `--study NAME`.")
        study = optuna.load_study(study_name=names[0] if name is None else name, storage=storage)
        trials = study.get_trials(deepcopy=False)
        if len(trials) > _MOST_TRIALS:
            raise BadInput(shown, f"must have at most {_MOST_TRIALS:,} trials", f"{len(trials):,}", _REMEDY)
        goals = ["maximize" if one.name == "MAXIMIZE" else "minimize" for one in study.directions]
        return RecordedStudy(
            study.study_name, tuple(goals), tuple(study.metric_names or ()), tuple(map(_trial, trials))
        )


@contextmanager
def opened_storage(source: str) -> Iterator[Any]:
    """Yield a storage of Optuna, of which a file is only read.

    Args:
        source: Source, as in `read_study`.

    Raises:
        BadInput: The file does not exist, or is not a storage of Optuna.
    """
    from optuna.storages import JournalStorage, RDBStorage
    from optuna.storages.journal import JournalFileBackend

    path = _file_of(source)
    if path is None:
        if source.startswith(("redis:", "rediss:")):
            must = "must be a database or a file: Redis keeps pickled objects, which are not read"
            raise BadInput(redacted(source), must, "", "Copy the study with `optuna.copy_study`.")
        if source.startswith("sqlite"):
            raise BadInput(
                redacted(source), "must be sqlite:///PATH, which is opened for reading only", "", _REMEDY
            )
        url = source
    else:
        if not path.is_file():
            raise BadInput(str(path), "must be a file that exists", "", _REMEDY)
        with path.open("rb") as file:
            start = file.read(4096)
        if is_journal(start):
            if path.stat().st_size > _BIGGEST_JOURNAL:
                raise BadInput(str(path), f"must be at most {_BIGGEST_JOURNAL:,} bytes", "", _REMEDY)
            yield JournalStorage(JournalFileBackend(str(path)))
            return
        if not is_sqlite(start):
            raise BadInput(str(path), "must be a SQLite database or a journal of Optuna", "", _REMEDY)
        url = f"{_SQLITE}file:{quote(str(path.absolute()))}?mode=ro&uri=true"
    storage = RDBStorage(url, skip_table_creation=True)
    try:
        yield storage
    finally:
        storage.remove_session()
        storage.engine.dispose()


def url_of(source: str) -> str | None:
    """Return the URL by which a search-space file names a storage, or None if it cannot.

    It names neither a journal nor a password, and no path with characters that a URL quotes.
    """
    path = _file_of(source)
    if path is None:
        return source if redacted(source) == source else None
    url = f"{_SQLITE}{path.absolute()}"
    with path.open("rb") as file:
        return url if is_sqlite(file.read(16)) and url == sqlite_url(path.absolute()) else None


def is_sqlite(start: bytes) -> bool:
    """Return True if a file with these first bytes is a SQLite database."""
    return start.startswith(b"SQLite format 3\0")


def is_journal(start: bytes) -> bool:
    """Return True if a file with these first bytes is a journal of Optuna."""
    return start.startswith(b'{"') and b'"op_code"' in start.partition(b"\n")[0]


@contextmanager
def _readable(shown: str) -> Iterator[None]:
    """Turn the errors of a storage into refusals, without a password."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except BadInput:
        raise
    except ImportError as error:
        remedy = f"pip install {error.name}." if error.name else _REMEDY
        raise BadInput(shown, "needs a driver of its database", redacted(str(error))[:200], remedy) from None
    except Exception as error:  # noqa: BLE001 - whatever the library of a database raises
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        reason = " ".join(redacted(str(cause)).split())[:200] or type(cause).__name__
        raise BadInput(shown, "must be a readable storage of Optuna", reason, _REMEDY) from None


def _file_of(source: str) -> Path | None:
    """Return the path of a storage in a file, or None for another database."""
    if source.startswith(_SQLITE):
        return Path(unquote(source.removeprefix(_SQLITE).partition("?")[0]))
    return None if "://" in source else Path(source)


def _trial(trial: Any) -> StudyTrial:
    values = tuple(trial.values) if trial.state.name == "COMPLETE" else ()
    is_finite = bool(values) and all(map(math.isfinite, values))
    entries = {name: _entry(distribution) for name, distribution in trial.distributions.items()}
    return StudyTrial(
        dict(trial.params), entries, values if is_finite else None, len(trial.intermediate_values)
    )


def _entry(distribution: Any) -> Mapping[str, Any]:
    """Return a distribution of Optuna as an entry of `search`."""
    from optuna.distributions import distribution_to_json

    described = json.loads(distribution_to_json(distribution))
    kind, of = described["name"], described["attributes"]
    if kind == "CategoricalDistribution":
        return {"choice": list(of["choices"])}
    is_whole = kind == "IntDistribution"
    name = ("log_int" if of["log"] else "int") if is_whole else ("log_uniform" if of["log"] else "uniform")
    step = of["step"] if of["step"] not in (None, 1 if is_whole else None) else None
    return {name: [of["low"], of["high"]], **({} if step is None else {"step": step})}
