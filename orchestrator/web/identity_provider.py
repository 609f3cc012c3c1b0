"""Single sign-on: the provider of OpenID Connect, and what it states about a person.

A sign-on is the authorization code flow with PKCE. Its state, nonce and verifier stay in this process, under
a random key that the browser has in a cookie, and are used once. The ID token comes from the provider itself,
never from a browser, and is verified by joserfc and Authlib: signature, issuer, audience, expiry and nonce.
The keys of the provider are read for every sign-on, so that it may change them at any time.

Source: OpenID Connect Core 1.0, sections 3.1.2 and 3.1.3; RFC 7636 (PKCE); RFC 9700, section 2.1.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import httpx2
from authlib.integrations.base_client import OAuthError
from authlib.integrations.httpx_client import AsyncOAuth2Client
from authlib.oidc.core import CodeIDToken
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet
from joserfc.jws import JWSRegistry

from orchestrator.config.document import Violation
from orchestrator.config.sections import Number, Section, Word, Words, setting, validated
from orchestrator.config.yaml_reader import read_document
from orchestrator.errors import BadInput, NotSignedIn
from orchestrator.ledger.people.user_records import ROLES, Role
from orchestrator.web.http_errors import NoProvider

CALLBACK = "/sign-on/callback"
"""Path to which the provider sends the browser back."""

SIGN_ON_SECONDS = 600.0
"""Time in which a person must sign on at the provider."""

MOST_PENDING = 10_000
"""Number of sign-ons in progress above which the oldest is dropped."""

METADATA_SECONDS = 600.0
"""Age at which the metadata of the provider are read again."""

PATIENCE_SECONDS = 10.0
"""Time in which the provider must answer a request."""

LEEWAY_SECONDS = 60
"""Permitted difference between the clocks of the provider and of this machine."""

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Accepted signatures of ID tokens, all with a key pair: never `none`, and none that a client could make."""

_LOOPBACK_HOSTS = frozenset({"127.0.0.1", "localhost", "::1"})
_ERROR_CODE = re.compile(r"[a-z_]{1,40}")

_log = logging.getLogger(__name__)


class RoleGroups(Section):
    """Groups of the provider by the role that their members have; the most privileged role counts."""

    viewer: Words = setting("Groups whose members may read.", ["everyone"], [])
    member: Words = setting("Groups whose members may also submit sweeps.", ["lab"], [])
    admin: Words = setting("Groups whose members manage all sweeps and users.", ["sweep-admins"], [])

    def role_of(self, groups: frozenset[str]) -> Role | None:
        """Return the most privileged role of a member of some groups, or None."""
        return next((role for role in reversed(ROLES) if groups.intersection(getattr(self, role))), None)


class SignOnFile(Section):
    """The settings file of single sign-on."""

    issuer: Word = setting("Issuer, exactly as the provider states it.", "https://login.example.org")
    client_id: Word = setting("Name by which the provider knows the service.", "sweeps")
    address: Word = setting("Address of the page in browsers, without a path.", "https://sweeps.example.org")
    roles: RoleGroups = setting("Groups by role.", {"member": ["lab"]})
    scopes: Words = setting("Requested scopes, besides `openid`.", ["profile", "groups"], ["profile"])
    name: Word = setting("Claim with the name of the user.", "preferred_username", "preferred_username")
    domain: Word | None = setting("Domain to cut off from names like ada@example.org.", "example.org", None)
    groups: Word = setting("Claim with the groups.", "groups", "groups")
    days: Number = setting("Days after a sign-on until sessions and tokens end.", 7, 7.0, gt=0, le=90)


@dataclass(frozen=True)
class Identity:
    """What the provider states about a person.

    Attributes:
        subject: Issuer and subject, which never change and are never given to another person.
        name: Name of the user.
        role: Role by the groups, or None.
    """

    subject: str
    name: str
    role: Role | None


@dataclass(frozen=True)
class _PendingSignOn:
    expires_at: float
    state: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    nonce: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    verifier: str = field(default_factory=lambda: secrets.token_urlsafe(48))


def read_settings(file: Path) -> SignOnFile:
    """Return the settings of a file.

    Raises:
        BadInput: The file cannot be read, or a value is wrong.
    """
    node, _ = read_document(file)
    with node.pointing():
        settings = validated(SignOnFile, node.plain())
        for key, address in (("issuer", settings.issuer), ("address", settings.address)):
            if not _is_protected(address):
                raise Violation((key,), "must begin with https://", "Only 127.0.0.1 may do without TLS.")
        if urlsplit(settings.address)[2:] != ("", "", ""):
            raise Violation(("address",), "must have no path", "Write `https://sweeps.example.org`.")
        return settings


class IdentityProvider:
    """Provider of OpenID Connect, and the sign-ons in progress. Used by one event loop.

    Args:
        settings: Settings of the service.
        client_secret: Secret of the service at the provider; None for a public client.
        clock: Monotonic clock in seconds.
    """

    def __init__(
        self,
        settings: SignOnFile,
        client_secret: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings
        self._secret, self._clock = client_secret, clock
        self._tls = ssl.create_default_context()
        self._pending: dict[str, _PendingSignOn] = {}
        self._metadata: Mapping[str, Any] = {}
        self._metadata_until = -1.0

    async def begin(self) -> tuple[str, str]:
        """Begin a sign-on; return the address at the provider, and the key that the browser must keep.

        Raises:
            NoProvider: The provider does not answer as it must.
        """
        endpoint = await self._endpoint("authorization_endpoint")
        now, key = self._clock(), secrets.token_urlsafe(32)
        pending = _PendingSignOn(now + SIGN_ON_SECONDS)
        kept = {name: other for name, other in self._pending.items() if other.expires_at > now}
        surplus = max(0, len(kept) + 1 - MOST_PENDING)
        self._pending = {**dict(list(kept.items())[surplus:]), key: pending}
        async with self._client() as client:
            address, _ = client.create_authorization_url(
                endpoint, state=pending.state, nonce=pending.nonce, code_verifier=pending.verifier
            )
        return str(address), key

    async def finish(self, key: str, state: str, code: str, error: str = "") -> Identity:
        """Finish a sign-on with the parameters of the callback.

        Args:
            key: Key of the browser.
            state: State that the provider has sent back.
            code: Authorization code, or ''.
            error: Error code of the provider, or ''.

        Raises:
            NotSignedIn: The browser has begun no such sign-on, or has used it; the provider has refused it;
                or the ID token is not valid.
            NoProvider: The provider does not answer as it must.
        """
        pending = self._pending.get(key)
        is_own = pending is not None and secrets.compare_digest(state.encode(), pending.state.encode())
        if pending is None or not is_own or self._clock() > pending.expires_at:
            must = f"must be that of a sign-on of this browser, unused and begun within {SIGN_ON_SECONDS:g} s"
            raise self._refused("state", must, "another one" if state else "none")
        del self._pending[key]
        if error or not code:
            got = error if _ERROR_CODE.fullmatch(error) else "no authorization code"
            raise self._refused("sign-on", "must be permitted by the provider", got)
        token = await self._token(code, pending.verifier)
        return self._identity(await self._claims(token, pending.nonce))

    async def end_address(self) -> str | None:
        """Return the address at which a browser ends its session at the provider, or None without one.

        Raises:
            NoProvider: The provider does not answer as it must.

        Source: OpenID Connect RP-Initiated Logout 1.0, section 2.
        """
        if "end_session_endpoint" not in await self._read_metadata():
            return None
        endpoint = await self._endpoint("end_session_endpoint")
        page = f"{self.settings.address}/sign-in"
        back = {"client_id": self.settings.client_id, "post_logout_redirect_uri": page}
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(back)}"

    async def _token(self, code: str, verifier: str) -> Mapping[str, Any]:
        """Exchange an authorization code for the tokens of the provider."""
        endpoint = await self._endpoint("token_endpoint")
        try:
            async with self._answering(), self._client() as client:
                found: Mapping[str, Any] = await client.fetch_token(
                    endpoint, grant_type="authorization_code", code=code, code_verifier=verifier
                )
                return found
        except OAuthError as error:
            got = str(error.error) if _ERROR_CODE.fullmatch(str(error.error)) else "an error"
            if got != "invalid_grant":  # which any stranger can cause
                _log.warning("The provider of single sign-on has refused the service: %s", got)
            raise self._refused("code", "must be accepted by the provider", got) from error

    async def _claims(self, token: Mapping[str, Any], nonce: str) -> Mapping[str, Any]:
        """Return the claims of a verified ID token."""
        metadata = await self._read_metadata()
        keys: Any = await self._get(await self._endpoint("jwks_uri"))
        offered = metadata.get("id_token_signing_alg_values_supported", ALGORITHMS[:1])
        registry = JWSRegistry(
            algorithms=[name for name in ALGORITHMS if name in offered], strict_check_header=False
        )
        client_id = self.settings.client_id
        expected = {"iss": self.settings.issuer, "aud": client_id}
        rules: Any = {name: {"essential": True, "value": value} for name, value in expected.items()}
        own = {"nonce": nonce, "client_id": client_id, "access_token": token.get("access_token")}
        try:
            decoded = jwt.decode(str(token["id_token"]), KeySet.import_key_set(keys), registry=registry)
            claims = CodeIDToken(decoded.claims, decoded.header, rules, own)
            claims.validate(leeway=LEEWAY_SECONDS)
        except (JoseError, KeyError, TypeError, ValueError) as error:
            got = str(getattr(error, "description", "") or type(error).__name__)[:200]
            _log.warning("An ID token of single sign-on is not valid: %s", got)
            raise self._refused("ID token", "must be valid, and meant for this sign-on", got) from error
        return claims

    def _identity(self, claims: Mapping[str, Any]) -> Identity:
        settings = self.settings
        name, groups = claims.get(settings.name), claims.get(settings.groups, [])
        if settings.name == "email" and claims.get("email_verified") is not True:
            raise self._refused("claim email", "must be verified by the provider", "one that is not")
        if settings.domain is not None and isinstance(name, str):
            name, _, domain = name.rpartition("@")
            if domain != settings.domain:
                must = f"must end with @{settings.domain}"
                raise self._refused(f"claim {settings.name}", must, repr(domain))
        if not isinstance(name, str) or not claims["sub"]:
            raise self._refused(f"claim {settings.name}", "must be the name of a user", repr(name))
        named = frozenset(map(str, groups if isinstance(groups, list) else [groups]))
        return Identity(f"{settings.issuer} {claims['sub']}", name, settings.roles.role_of(named))

    async def _read_metadata(self) -> Mapping[str, Any]:
        if self._clock() > self._metadata_until:
            found = await self._get(f"{self.settings.issuer.rstrip('/')}/.well-known/openid-configuration")
            if found.get("issuer") != self.settings.issuer:
                raise self._absent(f"another issuer: {found.get('issuer')!r}")
            self._metadata, self._metadata_until = found, self._clock() + METADATA_SECONDS
        return self._metadata

    async def _endpoint(self, name: str) -> str:
        endpoint = (await self._read_metadata()).get(name)
        if not isinstance(endpoint, str) or not _is_protected(endpoint):
            raise self._absent(f"no {name} with https")
        return endpoint

    async def _get(self, address: str) -> dict[str, Any]:
        """Return a public JSON document of the provider."""
        async with self._answering(), self._client() as client:
            answer = await client.request("GET", address, withhold_token=True)
            answer.raise_for_status()
            found = answer.json()
            if not isinstance(found, dict):
                raise ValueError("not a JSON object")
            return found

    def _client(self) -> AsyncOAuth2Client:
        methods = self._metadata.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
        with_secret = "client_secret_basic" if "client_secret_basic" in methods else "client_secret_post"
        return AsyncOAuth2Client(
            self.settings.client_id,
            self._secret,
            "none" if self._secret is None else with_secret,
            scope=" ".join(dict.fromkeys(["openid", *self.settings.scopes])),
            redirect_uri=self.settings.address + CALLBACK,
            code_challenge_method="S256",
            verify=self._tls,
            timeout=PATIENCE_SECONDS,
        )

    @asynccontextmanager
    async def _answering(self) -> AsyncIterator[None]:
        """Refuse the sign-on if the provider fails within an `async with` block."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                yield
        except (httpx2.HTTPError, TimeoutError, ValueError) as error:
            raise self._absent(type(error).__name__) from error

    def _absent(self, got: str) -> NoProvider:
        _log.warning("Single sign-on: %s: %s", self.settings.issuer, got)
        remedy = "Try again later. A token still signs in."
        return NoProvider(self.settings.issuer, "does not answer as an OpenID Connect provider", got, remedy)

    def _refused(self, where: str, must: str, got: str) -> NotSignedIn:
        return NotSignedIn(where, must, got, f"Sign on again at {self.settings.address}/sign-in.")


def check_hosts(settings: SignOnFile, hosts: frozenset[str]) -> None:
    """Check that the server answers at the address to which the provider sends browsers back.

    Raises:
        BadInput: The address is that of another host.
    """
    name = urlsplit(settings.address).hostname or ""
    if not {name, f"[{name}]"} & hosts:
        remedy = f"Add `--host-name {name}`, or correct the address."
        raise BadInput("--oidc: address", "must be an address of the server", settings.address, remedy)


def _is_protected(address: str) -> bool:
    """Return True if an address has TLS or is on this machine."""
    try:
        scheme, host = urlsplit(address).scheme, urlsplit(address).hostname
    except ValueError:
        return False
    return bool(host) and (scheme == "https" or (scheme == "http" and host in _LOOPBACK_HOSTS))
