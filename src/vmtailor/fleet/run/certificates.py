# SPDX-License-Identifier: Apache-2.0
"""Certificates of one fleet: an authority of its own, and a certificate for each part. Whoever is not signed by the
authority is not heard: each part may run programs at the others."""

from __future__ import annotations

import datetime
import ipaddress
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from vmtailor.base.errors import UserInputError
from vmtailor.base.files.regular_files import make_folder, read_regular, write_atomic
from vmtailor.drivers.image.documents import shown

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from distributed import Security


class FleetPart(StrEnum):
    """A part of a fleet that has a certificate."""

    SCHEDULER = "scheduler"
    WORKER = "worker"
    CLIENT = "client"


#: The authority's certificate, which every part needs, and its key, which none needs.
AUTHORITY, AUTHORITY_KEY = "ca.pem", "ca-key.pem"
#: Days for which certificates are made, and the most that may be asked for.
DAYS, DAYS_MAX = 825, 3650
#: Names of hosts in a certificate, and characters of one, at most.
_NAMES_MAX, _LONGEST = 100, 253
_MOST_BYTES = 1 << 16
_HINT = "vmtailor fleet certificates DIR makes one"


def files_of(part: FleetPart) -> tuple[str, str]:
    """Return the names of a part's certificate and of its key."""
    return f"{part}.pem", f"{part}-key.pem"


@dataclass(frozen=True)
class Certificates:
    """A folder with certificates, which exist. `parts`: those whose certificate and key are there."""

    folder: Path
    parts: tuple[FleetPart, ...] = tuple(FleetPart)

    def security(self) -> Security:
        """Return them as the engine takes them: nothing goes unencrypted, and nobody is heard whom the authority has
        not signed. A part that is not there shows the certificate of one that is."""
        from distributed import Security

        shown_by = {part: files_of(part if part in self.parts else self.parts[0]) for part in FleetPart}
        pairs = {
            f"tls_{part}_{kind}": str(self.folder / name)
            for part, names in shown_by.items()
            for kind, name in zip(("cert", "key"), names, strict=True)
        }
        return Security(require_encryption=True, tls_ca_file=str(self.folder / AUTHORITY), **pairs)


def found(folder: Path) -> Certificates:
    """Return the certificates of a folder. Raises UserInputError where they are missing, damaged, of another authority
    or run out, or where others can read a key."""
    authority = _certificate(folder / AUTHORITY)
    parts = tuple(part for part in FleetPart if os.path.lexists(folder / files_of(part)[0]))
    if not parts:
        named = ", ".join(files_of(part)[0] for part in FleetPart)
        raise UserInputError(f"{folder} has none of {named}", hint=_HINT)
    for part in parts:
        name, key = files_of(part)
        _require_signed(folder / name, _certificate(folder / name), authority)
        _require_own(folder / key)
    return Certificates(folder, parts)


def ends(folder: Path) -> datetime.datetime:
    """Return when the authority's certificate of a folder runs out."""
    return _certificate(folder / AUTHORITY).not_valid_after_utc


def _certificate(path: Path) -> x509.Certificate:
    from cryptography import x509

    data = read_regular(path, "the certificate", _MOST_BYTES, hint=_HINT)
    try:
        certificate = x509.load_pem_x509_certificate(data)
        end = certificate.not_valid_after_utc
    except ValueError as error:
        raise UserInputError(f"{path} is no certificate", hint=_HINT) from error
    if end < datetime.datetime.now(datetime.UTC):
        raise UserInputError(f"{path} ran out on {end:%Y-%m-%d}", hint=_HINT)
    return certificate


def _require_signed(path: Path, certificate: x509.Certificate, authority: x509.Certificate) -> None:
    from cryptography.exceptions import InvalidSignature

    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature) as error:
        raise UserInputError(
            f"{path} is not signed by the {AUTHORITY} beside it", hint="take both from one run of fleet certificates"
        ) from error


def _require_own(key: Path) -> None:
    read_regular(key, "the key", _MOST_BYTES, hint=_HINT)
    if key.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise UserInputError(f"others can read {key}", hint=f"chmod 600 {key}")


def make(folder: Path, days: float = DAYS, names: Sequence[str] = ()) -> Certificates:
    """Write an authority, a certificate for each part and their keys into a folder, which is made. `names`: hosts and
    addresses that the scheduler's and the workers' certificates hold. Raises UserInputError where a file is there, and
    for a name that no host has."""
    if len(names) > _NAMES_MAX:
        raise UserInputError(f"{len(names)} names are more than the {_NAMES_MAX} that a certificate gets", hint=_HINT)
    for name in (AUTHORITY, AUTHORITY_KEY, *(name for part in FleetPart for name in files_of(part))):
        if os.path.lexists(folder / name):
            raise UserInputError(f"{folder / name} is there", hint="name another folder, or remove it")
    asked = [_host(name) for name in names]
    make_folder(folder)
    folder.chmod(0o700)
    key, authority = _authority(days)
    _write_key(folder / AUTHORITY_KEY, key)
    _write_certificate(folder / AUTHORITY, authority)
    for part in FleetPart:
        _make_part(folder, part, key, authority, asked)
    return Certificates(folder)


def _host(name: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        pass
    letters = name.replace("-", "").replace(".", "").removeprefix("*")
    if not name or len(name) > _LONGEST or not letters.isascii() or not letters.isalnum():
        raise UserInputError(
            f"{shown(name, 60)} is no name of a host", hint="a name such as fleet.example, or an address"
        )
    return x509.DNSName(name)


def _authority(days: float) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.UTC)
    usage = x509.KeyUsage(
        digital_signature=False, content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    made = (
        _builder("vmtailor-fleet", now, now + datetime.timedelta(days=days))
        .issuer_name(_subject("vmtailor-fleet"))
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return key, made


def _subject(name: str) -> x509.Name:
    from cryptography import x509

    return x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, name)])


def _builder(name: str, now: datetime.datetime, end: datetime.datetime) -> x509.CertificateBuilder:
    from cryptography import x509

    return (
        x509.CertificateBuilder()
        .subject_name(_subject(name))
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))  # clocks of machines differ
        .not_valid_after(end)
    )


def _make_part(
    folder: Path,
    part: FleetPart,
    signer: ec.EllipticCurvePrivateKey,
    authority: x509.Certificate,
    names: Sequence[x509.GeneralName],
) -> None:
    """Write a part's certificate and key. A client's certificate cannot be shown by what listens."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID

    key = ec.generate_private_key(ec.SECP256R1())
    listens = part is not FleetPart.CLIENT
    uses = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if listens else [])]
    builder = (
        _builder(f"vmtailor-fleet-{part}", datetime.datetime.now(datetime.UTC), authority.not_valid_after_utc)
        .issuer_name(authority.subject)
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
    )  # fmt: skip
    if names and listens:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    name, key_name = files_of(part)
    _write_key(folder / key_name, key)
    _write_certificate(folder / name, builder.sign(signer, hashes.SHA256()))


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    from cryptography.hazmat.primitives import serialization

    form = serialization.PrivateFormat.PKCS8
    data = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    write_atomic(path, data, private=True)


def _write_certificate(path: Path, certificate: x509.Certificate) -> None:
    from cryptography.hazmat.primitives import serialization

    write_atomic(path, certificate.public_bytes(serialization.Encoding.PEM))
