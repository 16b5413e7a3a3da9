# SPDX-License-Identifier: Apache-2.0
"""Certificates of a fleet: made once, for each part its own, and nobody else is heard."""

from __future__ import annotations

import datetime
import shutil
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from vmtailor.base.errors import UserInputError
from vmtailor.fleet.run import certificates
from vmtailor.fleet.run.certificates import AUTHORITY, AUTHORITY_KEY, Certificates, FleetPart, files_of


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return certificates.make(tmp_path_factory.mktemp("fleet") / "c", names=("fleet.example", "10.0.0.1"))


def loaded(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def shake(listener: Certificates, listens: FleetPart, caller: Certificates, calls: FleetPart) -> None:
    """Let two parts shake hands as the engine has them do. Raises ssl.SSLError where one does not trust the other."""
    one = listener.security().get_listen_args(listens)["ssl_context"]
    two = caller.security().get_connection_args(calls)["ssl_context"]
    to, fro = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (two.wrap_bio(fro, to), one.wrap_bio(to, fro, server_side=True))
    for _ in range(5):
        for end in ends:
            try:
                end.do_handshake()
                end.read(1)
            except ssl.SSLWantReadError:
                pass


def test_each_part_has_its_own_and_keys_are_the_owners_alone(made: Certificates) -> None:
    assert certificates.found(made.folder) == made
    assert made.folder.stat().st_mode & 0o777 == 0o700
    for name in (AUTHORITY_KEY, *(files_of(part)[1] for part in FleetPart)):
        assert (made.folder / name).stat().st_mode & 0o777 == 0o600
    assert len({(made.folder / files_of(part)[1]).read_bytes() for part in FleetPart}) == 3
    ends = certificates.ends(made.folder) - datetime.datetime.now(datetime.UTC)
    assert 823 < ends.days < 826


def test_names_are_in_what_listens(made: Certificates) -> None:
    for part in (FleetPart.SCHEDULER, FleetPart.WORKER):
        names = loaded(made.folder / files_of(part)[0]).extensions.get_extension_for_class(x509.SubjectAlternativeName)
        assert names.value.get_values_for_type(x509.DNSName) == ["fleet.example"]
        assert [str(one) for one in names.value.get_values_for_type(x509.IPAddress)] == ["10.0.0.1"]
    client = loaded(made.folder / files_of(FleetPart.CLIENT)[0])
    uses = client.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(uses) == [ExtendedKeyUsageOID.CLIENT_AUTH]


@pytest.mark.parametrize("calls", FleetPart)
@pytest.mark.parametrize("listens", [FleetPart.SCHEDULER, FleetPart.WORKER])
def test_parts_of_one_fleet_hear_each_other(made: Certificates, listens: FleetPart, calls: FleetPart) -> None:
    shake(made, listens, made, calls)


@pytest.mark.attack
def test_nobody_else_is_heard(made: Certificates, tmp_path: Path) -> None:
    other = certificates.make(tmp_path / "other")
    for listener, caller in ((made, other), (other, made)):
        with pytest.raises(ssl.SSLError):
            shake(listener, FleetPart.SCHEDULER, caller, FleetPart.WORKER)
    client = tmp_path / "client"
    client.mkdir()
    for name in (AUTHORITY, *files_of(FleetPart.CLIENT)):
        shutil.copy(made.folder / name, client)
    with pytest.raises(ssl.SSLError):  # a client's certificate cannot be shown by what listens
        shake(certificates.found(client), FleetPart.SCHEDULER, made, FleetPart.WORKER)


def test_one_part_is_enough_for_its_machine(made: Certificates, tmp_path: Path) -> None:
    for name in (AUTHORITY, *files_of(FleetPart.WORKER)):
        shutil.copy(made.folder / name, tmp_path)
    found = certificates.found(tmp_path)
    assert found.parts == (FleetPart.WORKER,)
    shake(made, FleetPart.SCHEDULER, found, FleetPart.WORKER)


def test_nothing_is_written_over(made: Certificates, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in made.folder.iterdir()}
    with pytest.raises(UserInputError, match="is there"):
        certificates.make(made.folder)
    assert {path: path.read_bytes() for path in made.folder.iterdir()} == before
    (tmp_path / files_of(FleetPart.CLIENT)[1]).write_text("mine")
    with pytest.raises(UserInputError, match=r"client-key\.pem is there"):
        certificates.make(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["client-key.pem"]


@pytest.mark.parametrize("name", ["", "a b", "x" * 300, "ü", "a/b"])
def test_a_name_that_no_host_has_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserInputError, match="is no name of a host"):
        certificates.make(tmp_path / "c", names=(name,))
    assert not (tmp_path / "c").exists()


def test_certificates_that_cannot_be_used(made: Certificates, tmp_path: Path) -> None:
    with pytest.raises(UserInputError, match="certificate"):
        certificates.found(tmp_path)
    old = certificates.make(tmp_path / "old", days=-1 / 48).folder
    with pytest.raises(UserInputError, match=f"ran out on {datetime.datetime.now(datetime.UTC):%Y}"):
        certificates.found(old)
    folder = tmp_path / "c"
    shutil.copytree(made.folder, folder)
    (folder / files_of(FleetPart.WORKER)[1]).chmod(0o644)
    with pytest.raises(UserInputError, match="others can read"):
        certificates.found(folder)
    (folder / files_of(FleetPart.WORKER)[1]).unlink()
    with pytest.raises(UserInputError, match=r"worker-key\.pem"):
        certificates.found(folder)
    shutil.copy(certificates.make(tmp_path / "other").folder / files_of(FleetPart.SCHEDULER)[0], folder)
    with pytest.raises(UserInputError, match=r"scheduler\.pem is not signed by the ca\.pem"):
        certificates.found(folder)
    (folder / AUTHORITY).write_text("none")
    with pytest.raises(UserInputError, match="is no certificate"):
        certificates.found(folder)
    for part in FleetPart:
        (old / files_of(part)[0]).unlink()
    shutil.copy(made.folder / AUTHORITY, old)
    with pytest.raises(UserInputError, match=r"has none of scheduler\.pem"):
        certificates.found(old)
