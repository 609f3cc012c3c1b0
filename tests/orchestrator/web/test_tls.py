"""Server with a self-signed certificate, and clients with and without it."""

from __future__ import annotations

import datetime
import http.client
import ipaddress
import ssl
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from orchestrator import Sweep
from orchestrator.errors import NoServer
from tests.orchestrator.web import server
from tests.orchestrator.web.server import QUEUED


def certified(folder: Path, names: list[x509.GeneralName]) -> tuple[Path, Path]:
    """Write a self-signed certificate, valid for an hour, and its key; return both files."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "sweeps")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    files = folder / "sweeps.pem", folder / "sweeps.key"
    files[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return files


def test_a_client_needs_the_authority_of_the_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = certified(tmp_path, [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    with server.served(tmp_path / "mlruns", certificate=certificate, key=key) as client:
        assert client.address.startswith("https://127.0.0.1:")
        service = Sweep.connect(client.address, token=client.tokens["ada"])
        monkeypatch.delenv("SSL_CERT_FILE", raising=False)
        with pytest.raises(NoServer, match="certificate verify failed"):
            service.queue()
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert [entry.sweep for entry in service.queue()] == [QUEUED]
        named = client.address.replace("127.0.0.1", "localhost")  # a name that the certificate lacks
        with pytest.raises(NoServer, match="certificate verify failed"):
            Sweep.connect(named, token=client.tokens["ada"]).queue()


def test_a_server_with_tls_answers_nobody_without_it(tmp_path: Path) -> None:
    certificate, key = certified(tmp_path, [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    with server.served(tmp_path / "mlruns", certificate=certificate, key=key) as client:
        with pytest.raises((http.client.HTTPException, ConnectionError)):
            client.send("GET", "/api/v1/healthz")  # without TLS
        trusting = ssl.create_default_context(cafile=str(certificate))
        place = urlsplit(client.address).netloc
        connection = http.client.HTTPSConnection(place, timeout=60, context=trusting)
        connection.request("GET", "/api/v1/healthz")
        answer = connection.getresponse()
        assert answer.status == 200
        assert answer.getheader("Strict-Transport-Security") == "max-age=31536000"
        connection.close()
