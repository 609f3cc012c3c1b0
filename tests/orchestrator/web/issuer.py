"""Providers of OpenID Connect: a real one, and an issuer that answers what no proper provider does."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey

Claims = dict[str, Any]


@dataclass
class Issuer:
    """State of an issuer.

    Attributes:
        address: Issuer and address of the server.
        key: Key that signs ID tokens.
        published: Keys that the issuer publishes; `key` alone if None.
        algorithm: Algorithm of the signature.
        changed: Changes the claims of the next ID tokens.
    """

    address: str
    key: Any = field(default_factory=lambda: RSAKey.generate_key(2048, auto_kid=True))
    published: KeySet | None = None
    algorithm: str = "RS256"
    changed: Callable[[Claims], Claims] = lambda claims: claims
    _codes: dict[str, tuple[Claims, str, str]] = field(default_factory=dict)

    def approve(self, address: str, **claims: Any) -> str:
        """Return the code for an authorization request, as if a person had signed in and agreed."""
        given = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
        assert given["response_type"] == "code"
        assert given["code_challenge_method"] == "S256"
        now = int(time.time())
        own = {"iss": self.address, "aud": given["client_id"], "iat": now, "exp": now + 300}
        code = secrets.token_urlsafe(16)
        named = {**own, "nonce": given["nonce"], **claims}
        self._codes[code] = (named, given["code_challenge"], given["redirect_uri"])
        return code

    def token(self, form: Mapping[str, str]) -> tuple[int, dict[str, Any]]:
        """Answer the request for a token; a code works once, with its verifier and its address."""
        claims, challenge, redirect = self._codes.pop(form["code"], ({}, "", ""))
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        is_own = _base64(digest).decode() == challenge
        if not claims or not is_own or form.get("redirect_uri") != redirect:
            return 400, {"error": "invalid_grant"}
        id_token = self._signed(self.changed(claims))
        return 200, {"access_token": "a", "token_type": "Bearer", "expires_in": 300, "id_token": id_token}

    def _signed(self, claims: Claims) -> str:
        """Sign claims; `none` and `HS256`, with the public key as the secret, as an attacker would."""
        header = {"alg": self.algorithm, "kid": self.key.kid}
        if self.algorithm == "RS256":
            return jwt.encode(header, claims, self.key)
        signed = b".".join(_base64(json.dumps(part).encode()) for part in (header, claims))
        mac = hmac.digest(self.key.as_pem(private=False), signed, "sha256")
        return (signed + b"." + (_base64(mac) if self.algorithm == "HS256" else b"")).decode()

    def document(self, path: str) -> dict[str, Any]:
        """Return a published document."""
        if path == "/keys":
            return dict((self.published or KeySet([self.key])).as_dict(private=False))
        return {
            "issuer": self.address,
            "authorization_endpoint": f"{self.address}/authorize",
            "token_endpoint": f"{self.address}/token",
            "jwks_uri": f"{self.address}/keys",
            "id_token_signing_alg_values_supported": ["none", "HS256", "RS256"],
        }


def _base64(content: bytes) -> bytes:
    return base64.urlsafe_b64encode(content).rstrip(b"=")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextmanager
def real_provider(
    person: Mapping[str, Any], host: str = "127.0.0.1", *, registered: bool = True
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Run oidc-provider-mock, which requires nonces, for a `with` block; yield the issuer and the process.

    Args:
        person: Claims of a person who may sign in.
        host: Name of this machine in the issuer.
        registered: Whether it knows registered clients only.
    """
    port = free_port()
    options = ["-r", str(registered).lower(), "-n", "true", "--user-claims", json.dumps(person)]
    command = [sys.executable, "-m", "oidc_provider_mock", "-p", str(port), *options]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            until = time.monotonic() + 60.0
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
                except OSError:
                    assert time.monotonic() < until
                    time.sleep(0.1)
            yield f"http://{host}:{port}", process
        finally:
            process.kill()


@contextmanager
def issuing() -> Iterator[Issuer]:
    """Run an issuer for a `with` block."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(200, issuer.document(self.path))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            self._answer(*issuer.token({name: values[0] for name, values in parse_qs(body).items()}))

        def _answer(self, status: int, document: Mapping[str, Any]) -> None:
            body = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *words: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        issuer = Issuer(f"http://127.0.0.1:{server.server_address[1]}")
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield issuer
        server.shutdown()
        thread.join()
