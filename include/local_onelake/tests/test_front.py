"""One port for plain HTTP, TLS and tunnels; and the certificates."""

from __future__ import annotations

import socket
import ssl
import stat
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from cryptography import x509

from local_onelake import certificates
from tests.support.onelake import TOKEN, WORKSPACE, OneLake

BEARER = {"Authorization": f"Bearer {TOKEN}"}
WORKSPACES = "/v1/workspaces"


@pytest.fixture(scope="module")
def server() -> Iterator[OneLake]:
    with OneLake(tls=True) as running:
        yield running


def client(server: OneLake, *, proxy: bool = False, trusts: bool = True) -> httpx.Client:
    assert server.certificates is not None
    context = ssl.create_default_context(cafile=str(server.certificates.authority) if trusts else None)
    return httpx.Client(verify=context, proxy=server.url if proxy else None, trust_env=False, headers=BEARER)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_one_port_speaks_with_tls_and_without(server: OneLake, scheme: str) -> None:
    base = server.url.replace("http:", f"{scheme}:")
    with client(server) as asks:
        found = asks.get(f"{base}/api.fabric.microsoft.com{WORKSPACES}").json()["value"]
        assert [workspace["displayName"] for workspace in found] == [WORKSPACE]
        localhost = base.replace("127.0.0.1", "localhost")
        assert asks.get(f"{localhost}/api.fabric.microsoft.com{WORKSPACES}").status_code == 200


@pytest.mark.parametrize(
    "url",
    [
        f"https://api.fabric.microsoft.com{WORKSPACES}",
        "https://onelake.dfs.fabric.microsoft.com/?resource=account",
        "https://westeurope-onelake.dfs.fabric.microsoft.com/?resource=account",
        "https://onelake.blob.fabric.microsoft.com/?comp=list",
        "https://login.microsoftonline.com/tenant/v2.0/.well-known/openid-configuration",
        "http://onelake.dfs.fabric.microsoft.com/?resource=account",
    ],
)
def test_it_is_the_proxy_of_onelakes_own_hosts(server: OneLake, url: str) -> None:
    with client(server, proxy=True) as asks:
        assert asks.get(url).status_code == 200
        # The connection is kept, and serves again.
        assert asks.get(url).status_code == 200


def test_it_is_the_proxy_of_no_other_host(server: OneLake) -> None:
    with client(server, proxy=True) as asks, pytest.raises(httpx.ProxyError, match="403"):
        asks.get("https://example.org/")


def test_who_does_not_trust_the_authority_sends_nothing(server: OneLake) -> None:
    asked = len(server.asked)
    with client(server, proxy=True, trusts=False) as asks, pytest.raises(httpx.ConnectError, match="CERTIFICATE"):
        asks.get(f"https://api.fabric.microsoft.com{WORKSPACES}")
    assert len(server.asked) == asked


@pytest.mark.parametrize(
    "said", [b"CONNECT onelake.dfs.fabric.microsoft.com:443", b"COPY / HTTP/1.1\r\n\r\n", b"\x16", b""]
)
def test_a_client_that_says_half_of_it_and_goes_does_no_harm(server: OneLake, said: bytes) -> None:
    host, _, port = server.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), 5) as half:
        half.sendall(said)
    with client(server, proxy=True) as asks:
        assert asks.get(f"https://api.fabric.microsoft.com{WORKSPACES}").status_code == 200


def test_certificates_are_kept_and_made_anew_before_they_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = certificates.prepare(tmp_path / "tls")
    authority = first.authority.read_bytes()
    assert certificates.prepare(tmp_path / "tls").authority.read_bytes() == authority
    ends = x509.load_pem_x509_certificate(authority).not_valid_after_utc
    monkeypatch.setattr(certificates, "_RENEWED", ends - datetime.now(UTC) + timedelta(days=1))
    assert certificates.prepare(tmp_path / "tls").authority.read_bytes() != authority


def test_the_authoritys_key_is_nowhere_and_the_servers_is_for_its_owner(tmp_path: Path) -> None:
    made = certificates.prepare(tmp_path)
    server = tmp_path / "server.pem"
    assert stat.S_IMODE(server.stat().st_mode) == 0o600
    keys = [file.name for file in tmp_path.iterdir() if b"PRIVATE KEY" in file.read_bytes()]
    assert keys == ["server.pem"]
    root = x509.load_pem_x509_certificate(made.authority.read_bytes())
    (leaf, *_) = x509.load_pem_x509_certificates(server.read_bytes())
    assert leaf.public_key() != root.public_key()
    leaf.verify_directly_issued_by(root)
    assert not leaf.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
