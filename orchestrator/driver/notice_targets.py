"""Targets of notifications: a URL, a chat, an e-mail address or a command.

    https://example.org/hook           JSON by POST
    slack+https://hooks.example.org/x  JSON of the form {"text": ...} by POST, as Slack and Mattermost read it
    mailto:ada@example.org             e-mail by the server that SWEEP_SMTP names
    ./notify.sh --to ada               a command, which reads JSON from its standard input

A target that a user has set over HTTP is restricted: the service must not run the user's commands, and must
not reach addresses for the user that the user cannot reach.
"""

from __future__ import annotations

import http.client
import ipaddress
import json
import os
import re
import shlex
import smtplib
import socket
import ssl
import subprocess
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from email.message import EmailMessage
from typing import Any
from urllib.parse import unquote, urlsplit

from orchestrator.errors import BadInput, NotAllowed

SMTP = "SWEEP_SMTP"
"""Environment variable with the e-mail server: `smtp://[USER:PASSWORD@]HOST[:PORT]`, or `smtps://...`."""

TIMEOUT_SECONDS = 10.0
"""Longest duration of one message."""

LONGEST_TARGET = 2_000

Message = dict[str, Any]
"""A JSON object; its `event` is one of `EVENTS`."""

EVENTS: Mapping[str, str] = {
    "best": "{sweep}: trial {trial} has the new best {metric}, {value:.6g}.",
    "failed": "{sweep}: {failed} of {trials} trials have failed.",
    "stuck": "{sweep}: trials {trials} have not reported for much longer than usual.",
    "parked": "{sweep} is parked after repeated crashes: {cause}. `sweep resume {sweep}` starts it again.",
    "ended": "{sweep} has ended: {result}.",
    "quota": "{owner} has used {used_gpu_hours:.1f} of {gpu_hours:g} GPU-hours this week.",
}
"""Sentence of each event, with the fields of its message."""


@dataclass(frozen=True)
class NoticeSetting:
    """A target of notifications.

    Attributes:
        target: Target in one of the forms of this module.
        events: Names of the events to send; all if empty.
        restricted: Whether it was set over HTTP, so that the service runs no command for it and connects to
            public addresses only.
        name: Name in `notify:` of search-space files; the target then gets notices of their sweeps only.
    """

    target: str
    events: Sequence[str] = ()
    restricted: bool = False
    name: str = ""

    def wants(self, event: str) -> bool:
        """Return True if the target receives an event."""
        return not self.events or event in self.events


_ADDRESS = re.compile(r"[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*")
_WEB = ("http", "https", "slack+http", "slack+https")
_OTHER_NETWORKS = tuple(map(ipaddress.ip_network, ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16")))
"""Networks whose addresses contain an IPv4 address, which may be private (RFC 6052, RFC 8215, RFC 3056)."""


def sender(target: str, *, restricted: bool = False) -> Callable[[Message], None]:
    """Return a function that sends a message to a target.

    If the message cannot be sent, it raises OSError, HTTPException, SMTPException, SubprocessError or
    BadInput.

    Args:
        target: The target.
        restricted: Whether commands are refused, and URLs other than https on public networks.

    Raises:
        BadInput: The target has none of the forms.
        NotAllowed: The target is restricted.
    """
    scheme, _, rest = target.partition(":")
    if scheme in _WEB:
        return _web_sender(target, restricted=restricted)
    if scheme == "mailto":
        if not _ADDRESS.fullmatch(rest):
            must = "must be mailto: and one address"
            raise BadInput("target", must, target[:80], "For example mailto:ada@example.org.")
        return lambda message: _mail(rest, message)
    if restricted:
        must = "must be an https, slack+https or mailto address: a command would run as the service"
        remedy = "Run `sweep notify` on the machine of the service to set a command."
        raise NotAllowed("target", must, shown(target), remedy)
    words = _words(target)
    return lambda message: _run(words, message)


def check_target(target: str, *, restricted: bool) -> None:
    """Check a target that a user sets.

    Raises:
        BadInput: The target is too long or has none of the forms.
        NotAllowed: The target is restricted.
    """
    if len(target) > LONGEST_TARGET or not target.isprintable():
        must = f"must have at most {LONGEST_TARGET:,} printable characters"
        raise BadInput("target", must, f"{len(target):,}", "Shorten it.")
    sender(target, restricted=restricted)


def shown(target: str) -> str:
    """Return a target without its secret: the host of a URL, an e-mail address, the program of a command."""
    parts = target.partition(":")
    if parts[0] in _WEB:
        return f"{parts[0]}://{urlsplit(target).hostname}/..."
    return target if parts[0] == "mailto" else target.split(maxsplit=1)[0]


def sentence(message: Message) -> str:
    """Return a message as one line of text."""
    fields = {
        name: ", ".join(map(str, value)) if isinstance(value, list) else value
        for name, value in message.items()
    }
    line = EVENTS[str(message["event"])].format_map(fields)
    return "".join(mark if mark.isprintable() else " " for mark in line)


def _words(target: str) -> list[str]:
    try:
        words, got = shlex.split(target), target or "nothing"
    except ValueError as error:
        words, got = [], f"{target} ({error})"
    if not words:
        must = "must be a URL, a mailto address or a command"
        raise BadInput("--notify", must, got, "For example --notify mailto:me@example.org.")
    return words


def _web_sender(target: str, *, restricted: bool) -> Callable[[Message], None]:
    is_chat = target.startswith("slack+")
    address = target.removeprefix("slack+")
    try:
        parts = urlsplit(address)
        is_url = bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_url = False
    if not is_url or not address.isprintable() or " " in address:
        must = "must be a URL with a host"
        raise BadInput("target", must, target[:80], "For example https://example.org/hook.")
    if restricted and parts.scheme != "https":
        remedy = "Write https, or set it on the machine of the service."
        raise NotAllowed("target", "must use https over HTTP", shown(target), remedy)

    def send(message: Message) -> None:
        document = {"text": _for_chat(sentence(message))} if is_chat else message
        _post(address, json.dumps(document).encode(), restricted=restricted)

    return send


def _for_chat(text: str) -> str:
    """Return a text in which Slack finds no mention, such as `<!channel>`, and no link."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _post(address: str, content: bytes, *, restricted: bool) -> None:
    request = urllib.request.Request(address, content, {"Content-Type": "application/json"})
    opener = urllib.request.build_opener(
        *([_PublicHandler(), _NoRedirection(), urllib.request.ProxyHandler({})] if restricted else [])
    )
    with opener.open(request, timeout=TIMEOUT_SECONDS):
        pass


class _NoRedirection(urllib.request.HTTPRedirectHandler):
    """Handler that refuses redirections, which could lead to a private network."""

    def redirect_request(self, *arguments: Any) -> None:
        """Return None, which makes the answer an error."""
        return None


class _PublicHandler(urllib.request.HTTPSHandler):
    """Handler that connects to public addresses only."""

    def https_open(self, request: urllib.request.Request) -> Any:
        """Open a connection."""
        return self.do_open(_PublicConnection, request, context=ssl.create_default_context())


class _PublicConnection(http.client.HTTPSConnection):
    """Connection to the address that was checked, so that a name cannot resolve to another one meanwhile."""

    def connect(self) -> None:
        """Connect.

        Raises:
            OSError: The name does not resolve, has a private address, or does not answer.
        """
        address = public_address(self.host, self.port)
        raw = socket.create_connection(address, self.timeout)
        try:
            self.sock = self._context.wrap_socket(raw, server_hostname=self.host)  # type: ignore[attr-defined]
        except BaseException:
            raw.close()
            raise


def public_address(host: str, port: int) -> tuple[str, int]:
    """Return an address of a host, all of whose addresses are public.

    Args:
        host: Name or address.
        port: Port.

    Raises:
        OSError: The name does not resolve, or one of its addresses is private.
    """
    found = {str(entry[4][0]) for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
    if not found or not all(map(is_public, found)):
        raise OSError("the host has an address on a private network")
    return sorted(found, key=lambda one: ":" in one)[0], port


def is_public(address: str) -> bool:
    """Return True if an IP address is reached over the internet, and belongs to one machine."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    is_other = any(found in network for network in _OTHER_NETWORKS if network.version == found.version)
    return found.is_global and not (found.is_multicast or found.is_reserved or is_other)


def _mail(to: str, message: Message) -> None:
    """Send a message by e-mail; a password is sent over TLS only."""
    parts = urlsplit(os.environ.get(SMTP, ""))
    if parts.scheme not in {"smtp", "smtps"} or not parts.hostname:
        must = "must name the e-mail server of the service"
        raise BadInput(SMTP, must, "", "For example smtps://USER:PASSWORD@mail.example.org.")
    user = unquote(parts.username or "")
    mail = EmailMessage()
    mail["Subject"] = sentence(message)[:200]
    mail["From"] = user if _ADDRESS.fullmatch(user) else f"sweep@{socket.getfqdn()}"
    mail["To"] = to
    mail.set_content(f"{sentence(message)}\n\n{json.dumps(message, indent=2)}\n")
    kind = smtplib.SMTP_SSL if parts.scheme == "smtps" else smtplib.SMTP
    with kind(parts.hostname, parts.port or 0, timeout=TIMEOUT_SECONDS) as server:
        if user:
            if parts.scheme == "smtp":
                server.starttls(context=ssl.create_default_context())
            server.login(user, unquote(parts.password or ""))
        server.send_message(mail)


def _run(words: list[str], message: Message) -> None:
    content = json.dumps(message).encode()
    subprocess.run(words, input=content, check=True, capture_output=True, timeout=TIMEOUT_SECONDS)
