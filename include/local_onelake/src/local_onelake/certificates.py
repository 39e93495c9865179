"""Certificates of the local OneLake: a new authority that signs one certificate, and whose key is then forgotten.

Who trusts the authority so trusts this one server, and nobody can sign anything further: not even for the names that
the certificate has, among which are those of Entra and of Fabric's REST.
"""

from __future__ import annotations

import ipaddress
import os
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import attrs
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat
from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12Certificate, serialize_java_truststore
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

NAMES = (
    "localhost",
    "onelake.dfs.fabric.microsoft.com",
    "onelake.blob.fabric.microsoft.com",
    # Those of a region.
    "*.dfs.fabric.microsoft.com",
    "*.blob.fabric.microsoft.com",
    "api.fabric.microsoft.com",
    "api.powerbi.com",
    "login.microsoftonline.com",
)
"""The hosts that the certificate is for, beside 127.0.0.1."""

TRUSTSTORE_PASSWORD = "changeit"  # noqa: S105 - it keeps nothing secret: Java wants one
"""Of the trust store for Java, which holds nothing but the authority's certificate."""

_LIVES = timedelta(days=397)
_RENEWED = timedelta(days=30)
_AUTHORITY, _SERVER, _TRUSTSTORE = "ca.pem", "server.pem", "truststore.p12"


@attrs.frozen
class Certificates:
    """The files of a server, for those who trust it.

    :param authority: the certificate to trust, as PEM.
    :param truststore: the same for Java, as PKCS #12.
    :param context: with which the server answers.
    """

    authority: Path
    truststore: Path
    context: ssl.SSLContext = attrs.field(repr=False, eq=False)


def prepare(directory: Path) -> Certificates:
    """Return the certificates that are kept in a directory; new ones if there are none, or if they end soon.

    :param directory: made if it is not there.
    """
    server, authority, truststore = (directory / name for name in (_SERVER, _AUTHORITY, _TRUSTSTORE))
    if not _good(server) or not authority.exists() or not truststore.exists():
        directory.mkdir(parents=True, exist_ok=True)
        _issue(server, authority, truststore)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server)
    context.set_alpn_protocols(["http/1.1"])
    return Certificates(authority, truststore, context)


def _good(server: Path) -> bool:
    if not server.exists():
        return False
    found = x509.load_pem_x509_certificates(server.read_bytes())[0]
    named = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    ends = found.not_valid_after_utc
    return tuple(named.get_values_for_type(x509.DNSName)) == NAMES and ends > datetime.now(UTC) + _RENEWED


def _issue(server: Path, authority: Path, truststore: Path) -> None:
    signer, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    called = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "A local OneLake, for tests only")])
    root = (
        _certificate(called, called, signer.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .sign(signer, hashes.SHA256())
    )
    names = [x509.DNSName(name) for name in NAMES]
    leaf = (
        _certificate(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAMES[0])]), called, key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.SubjectAlternativeName([*names, x509.IPAddress(ipaddress.IPv4Address("127.0.0.1"))]), critical=False
        )
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        .sign(signer, hashes.SHA256())
    )
    _write(authority, root.public_bytes(Encoding.PEM))
    trusted = [PKCS12Certificate(root, b"local-onelake")]
    _write(truststore, serialize_java_truststore(trusted, BestAvailableEncryption(TRUSTSTORE_PASSWORD.encode())))
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    # The last: what it stands beside is then there.
    _write(server, leaf.public_bytes(Encoding.PEM) + secret, 0o600)


def _certificate(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + _LIVES)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _write(file: Path, content: bytes, mode: int = 0o644) -> None:
    new = file.with_suffix(".new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as out:
        out.write(content)
    new.replace(file)
