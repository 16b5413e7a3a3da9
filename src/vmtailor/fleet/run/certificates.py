# SPDX-License-Identifier: Apache-2.0
"""Certificates of one fleet. Its scheduler, its workers and its clients hold the same key, and believe no other: each
of them may run programs at the others."""

from __future__ import annotations

import datetime
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vmtailor.base.errors import UserInputError
from vmtailor.base.files.regular_files import read_regular, write_atomic

if TYPE_CHECKING:
    from distributed import Security

#: Files of a folder of certificates.
CERTIFICATE, KEY = "fleet.pem", "fleet-key.pem"
#: Days for which a certificate is made.
DAYS = 825
_MOST_BYTES = 1 << 16
_HINT = "vmtailor fleet certificates DIR makes one"


@dataclass(frozen=True)
class Certificates:
    """A folder with the certificate of a fleet and its key, which exist."""

    folder: Path

    def security(self) -> Security:
        """Return them as the engine takes them: nothing goes unencrypted, and nobody without the key is heard."""
        from distributed import Security

        certificate, key = str(self.folder / CERTIFICATE), str(self.folder / KEY)
        return Security(
            require_encryption=True, tls_ca_file=certificate,
            tls_client_cert=certificate, tls_client_key=key,
            tls_scheduler_cert=certificate, tls_scheduler_key=key,
            tls_worker_cert=certificate, tls_worker_key=key,
        )  # fmt: skip


def found(folder: Path) -> Certificates:
    """Return the certificates of a folder. Raises UserInputError where they are missing, damaged or run out, or where
    others can read the key."""
    from cryptography import x509

    data = read_regular(folder / CERTIFICATE, "the certificate", _MOST_BYTES, hint=_HINT)
    read_regular(folder / KEY, "the key", _MOST_BYTES, hint=_HINT)
    if (folder / KEY).stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise UserInputError(f"others can read {folder / KEY}", hint=f"chmod 600 {folder / KEY}")
    try:
        ends = x509.load_pem_x509_certificate(data).not_valid_after_utc
    except ValueError as error:
        raise UserInputError(f"{folder / CERTIFICATE} is no certificate", hint=_HINT) from error
    if ends < datetime.datetime.now(datetime.UTC):
        raise UserInputError(f"{folder / CERTIFICATE} ran out on {ends:%Y-%m-%d}", hint=_HINT)
    return Certificates(folder)


def make(folder: Path, days: float = DAYS) -> Certificates:
    """Write a new certificate and its key into a folder, which is made. Raises UserInputError where one is there."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    for name in (CERTIFICATE, KEY):
        if os.path.lexists(folder / name):
            raise UserInputError(f"{folder / name} is there", hint="name another folder, or remove it")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "vmtailor-fleet")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))  # clocks of machines differ
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    encoding, none = serialization.Encoding.PEM, serialization.NoEncryption()
    write_atomic(
        folder / KEY, key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, none), private=True
    )  # fmt: skip
    write_atomic(folder / CERTIFICATE, certificate.public_bytes(encoding))
    return Certificates(folder)
