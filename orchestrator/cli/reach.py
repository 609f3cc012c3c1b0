"""Which verbs reach a service over HTTP, and what would be right instead of the others.

A command that names a service, by `--server` or by SWEEP_URL, must never act on the ledger of this machine: a
person would take the answer for that of the service. So every verb is in one of three tables. An option that
would have no effect over HTTP is refused too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from orchestrator.errors import BadInput, redacted

OPTION = "--server"

URL = "SWEEP_URL"
"""Environment variable: address of the service. `--root` and `--here` go before it."""

OVER_HTTP: Mapping[str, frozenset[str]] = {
    "run": frozenset({"--profile", "--set", "--new", "--plain"}),
    "resume": frozenset({"--extend", "--key"}),
    "retry-failed": frozenset({"--key"}),
    "stop": frozenset(),
    "follow": frozenset({"--plain"}),
    "submit": frozenset({"--profile", "--set", "--new", "--key"}),
    "pause": frozenset(),
    "release": frozenset(),
    "list": frozenset({"--json"}),
    "status": frozenset({"--watch", "--plain", "--json"}),
    "show": frozenset({"--json"}),
    "logs": frozenset(),
    "queue": frozenset({"--json"}),
    "move": frozenset({"--weight"}),
    "validate": frozenset({"--profile", "--set", "--json"}),
    "report": frozenset({"--output"}),
    "quota": frozenset({"--weight", "--share", "--gpu-hours", "--sweeps", "--new"}),
    "user add": frozenset({"--role", "--days"}),
    "user list": frozenset({"--json"}),
    "user revoke": frozenset(),
    "user log": frozenset({"--limit", "--json"}),
}
"""The verbs that reach a service, those of a group in two words, and the options that work there."""

_THERE = "Run it on the machine of the service."

HERE: Mapping[str, str] = {
    "experiment": "Run it on the machine of the service, or `submit` the files of its arms.",
    "compare": _THERE,
    "evaluate": _THERE,
    "export": _THERE,
    "export-study": _THERE,
    "export-tensorboard": _THERE,
    "ui": "Open the page, which links to MLflow.",
    "check": _THERE,
    "gc": _THERE,
    "recover": _THERE,
}
"""The verbs that read or change a ledger on this machine only, and what would be right for a service."""

ALONE: Mapping[str, str] = {
    "init": "It writes files on this machine.",
    "import": "It writes a file on this machine.",
    "serve": "It is the service.",
    "data": "It manages the data sets of this machine.",
    "cluster": "It prepares machines from this one.",
}
"""The verbs that ask no ledger about sweeps, so that SWEEP_URL does not matter to them, and what they do."""

_GROUPS = frozenset(verb.split()[0] for verb in OVER_HTTP if " " in verb)

_LOCAL = frozenset({"--root", "--here"})


def with_server(words: Sequence[str], url: str | None) -> list[str]:
    """Return a command line with the service that it is to reach, once it may be run.

    Args:
        words: of the command line, the verb first.
        url: SWEEP_URL, or None.

    Raises:
        BadInput: a service is named, and the verb or one of its options does not reach it.
    """
    if not words or words[0].startswith("-") or "--help" in words:
        return list(words)
    verb, options = _verb(words), _options(words)
    if verb in _GROUPS:
        return list(words)  # it says itself which verb is missing or unknown
    named = options.get(OPTION)
    if named is None and url and verb not in ALONE and _LOCAL.isdisjoint(options):
        options, named = {**options, OPTION: url}, url
        after = len(verb.split())
        words = [*words[:after], f"{OPTION}={url}", *words[after:]]
        where = URL
    else:
        where = OPTION
    if named is None:
        return list(words)
    if verb not in OVER_HTTP:
        _refuse(verb, where, named)
    if idle := sorted(options.keys() - OVER_HTTP[verb] - {OPTION}):
        must = f"must be left out of `{verb}` where {where} is given"
        remedy = f"Leave it out, or {_without(where)}."
        raise BadInput(idle[0], must, f"{where} {redacted(named)}", remedy)
    return list(words)


def _verb(words: Sequence[str]) -> str:
    """Return the verb of a command line, with both words if it belongs to a group that reaches a service."""
    pair = " ".join(words[:2])
    return pair if pair in OVER_HTTP else words[0]


def _refuse(verb: str, where: str, named: str) -> None:
    if verb in ALONE:
        raise BadInput(where, f"must be left out of `{verb}`", redacted(named), ALONE[verb])
    must = f"must not be given to `{verb}`, which knows the ledger of this machine only"
    remedy = HERE.get(verb, "`--help` lists the verbs.")
    raise BadInput(where, must, redacted(named), f"{remedy} For this machine, {_without(where)}.")


def _without(where: str) -> str:
    return "leave out `--server`" if where == OPTION else f"unset {URL}, or give `--root`"


def _options(words: Sequence[str]) -> dict[str, str]:
    """Return the long options of a command line with their values; a switch has the word after it."""
    before = words[: words.index("--")] if "--" in words else words
    found: dict[str, str] = {}
    for number, word in enumerate(before):
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            found[name] = value if equals else next(iter(before[number + 1 :]), "")
    return found
