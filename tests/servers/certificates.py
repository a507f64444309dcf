"""A certificate for 127.0.0.1 that signs itself, for servers that some clients reach over TLS only."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Certificate:
    """The two files of a certificate; clients trust it by the environment variable SSL_CERT_FILE."""

    file: Path
    key_file: Path


def private_key() -> tuple[rsa.RSAPrivateKey, bytes]:
    """A new RSA key, and its text."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    form = serialization.PrivateFormat.PKCS8
    return key, key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def self_signed(folder: Path) -> Certificate:
    """A certificate made now, good for a day."""
    key, text = private_key()
    name, now = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")]), datetime.now(UTC)
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    unsigned = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    unsigned = unsigned.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(days=1))
    signed = unsigned.add_extension(names, critical=False).sign(key, hashes.SHA256())
    made = Certificate(folder / "certificate.pem", folder / "key.pem")
    made.file.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    made.key_file.write_bytes(text)
    return made
