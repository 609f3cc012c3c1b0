"""Each kind of target receives a message; a restricted one reaches no command and no private network."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from orchestrator.driver import notice_targets
from orchestrator.driver.notice_targets import (
    LONGEST_TARGET,
    SMTP,
    check_target,
    is_public,
    public_address,
    sender,
    sentence,
    shown,
)
from orchestrator.errors import BadInput, NotAllowed
from tests.programs import smtp_server

BEST = {"event": "best", "sweep": "s-1", "trial": "s-1-4", "metric": "val/<!channel>", "value": 0.75}


@pytest.fixture
def posted() -> Iterator[tuple[int, list[dict[str, object]]]]:
    """Yield the port of a server, and the list of the documents that are posted to it."""
    received: list[dict[str, object]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port, received
        server.shutdown()
        thread.join()


def test_a_chat_receives_a_sentence_without_mentions(posted: tuple[int, list[dict[str, object]]]) -> None:
    """The name of a metric is the user's: `<!channel>` would notify everybody in a chat of Slack."""
    port, received = posted
    sender(f"slack+http://127.0.0.1:{port}/hook")(BEST)
    assert received == [{"text": "s-1: trial s-1-4 has the new best val/&lt;!channel&gt;, 0.75."}]


def test_an_e_mail_has_the_sentence_and_the_message(monkeypatch: pytest.MonkeyPatch) -> None:
    with smtp_server.serving() as box:
        monkeypatch.setenv(SMTP, f"smtp://127.0.0.1:{box.port}")
        sender("mailto:ada@example.org")(
            {"event": "parked", "sweep": "s-1", "cause": "a\r\nBcc: eve@x\x1b[2J"}
        )
    [mail] = box.messages
    assert box.recipients == [["ada@example.org"]]
    assert mail["To"] == "ada@example.org"
    assert mail["Bcc"] is None
    assert mail["Subject"].startswith("s-1 is parked after repeated crashes: a  Bcc: eve@x [2J.")
    assert '"event": "parked"' in mail.get_content()


def test_an_e_mail_without_a_server_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SMTP, raising=False)
    with pytest.raises(BadInput, match=f"{SMTP} must name the e-mail server"):
        sender("mailto:ada@example.org")(BEST)


@pytest.mark.parametrize(
    "target",
    ["./notify.sh", "http://example.org/x", "slack+http://example.org", "file:///etc/passwd", "curl x"],
)
def test_over_http_a_target_is_neither_a_command_nor_without_tls(target: str) -> None:
    check_target(target, restricted=False)
    with pytest.raises(NotAllowed):
        check_target(target, restricted=True)


@pytest.mark.parametrize(
    "target",
    [
        "mailto:ada",
        "mailto:a@b,c@d",
        "mailto:a@b\nBcc: c@d",
        "https://",
        "https://[::1",
        "https://h:x/",
        "https://h h",
    ],
)
def test_a_target_without_a_form_is_refused(target: str) -> None:
    with pytest.raises(BadInput):
        check_target(target, restricted=True)


def test_a_target_has_a_longest_length() -> None:
    with pytest.raises(BadInput, match="at most 2,000"):
        check_target("https://example.org/" + "x" * LONGEST_TARGET, restricted=False)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("93.184.215.14", True),
        ("2606:2800:21f:cb07:6820:80da:af6b:8b2c", True),
        *((private, False) for private in ("127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "0.0.0.0")),
        *((private, False) for private in ("169.254.169.254", "100.64.0.1", "224.0.0.1", "255.255.255.255")),
        *((private, False) for private in ("::1", "::", "fe80::1", "fe80::1%eth0", "fd00::1", "ff02::1")),
        *((private, False) for private in ("::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1")),
        *((private, False) for private in ("2002:7f00:1::1", "2001:db8::1", "localhost")),
    ],
)
def test_which_addresses_are_public(address: str, expected: bool) -> None:
    assert is_public(address) is expected


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.1", "2130706433", "0x7f000001", "::1"])
def test_a_restricted_target_reaches_no_private_network(host: str) -> None:
    """A real listener sees no connection, in whatever form its address is written."""
    with pytest.raises(OSError, match="private network"):
        public_address(host, 443)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.settimeout(0.2)
        name = f"[{host}]" if ":" in host else host
        send = sender(f"https://{name}:{listener.getsockname()[1]}/hook", restricted=True)
        with pytest.raises(OSError, match="private network"):
            send(BEST)
        with pytest.raises(TimeoutError):
            listener.accept()


def test_every_event_has_a_sentence_of_one_line() -> None:
    hostile = "x\ny\u202e\x1b[2J"
    every = [
        {**BEST, "metric": hostile},
        {"event": "failed", "sweep": hostile, "failed": 2, "trials": 9},
        {"event": "stuck", "sweep": "s", "trials": [hostile, "s-2"]},
        {"event": "parked", "sweep": "s", "cause": hostile},
        {"event": "ended", "sweep": hostile, "exit": 0, "result": "complete"},
        {"event": "quota", "owner": hostile, "used_gpu_hours": 9.5, "gpu_hours": 10.0},
    ]
    assert {message["event"] for message in every} == notice_targets.EVENTS.keys()
    assert all(sentence(message).isprintable() for message in every)


def test_a_target_is_shown_without_its_secret() -> None:
    assert (
        shown("slack+https://me:pw@hooks.example.org/T0/secret?x=1") == "slack+https://hooks.example.org/..."
    )
    assert shown("mailto:ada@example.org") == "mailto:ada@example.org"
    assert shown("./notify.sh --token secret") == "./notify.sh"
