# SPDX-License-Identifier: Apache-2.0
"""What QEMU is handed, by how it is shut in, and what of the host it is shown. Nothing is started."""

from __future__ import annotations

import os
import re
import struct
from pathlib import Path

import pytest

from vmtailor.base import natives
from vmtailor.base.errors import HostError, UserInputError
from vmtailor.drivers.confinement import confinement, program_needs
from vmtailor.drivers.confinement.confinement import PLAIN, Confinement, Root
from vmtailor.drivers.qemu import handover, host_checks
from vmtailor.drivers.qemu.handover import Wanted, handed
from vmtailor.drivers.qemu.plugin import Plugin
from vmtailor.drivers.qemu.qemu_program import Qemu
from vmtailor.drivers.rootfs import boot_disk
from vmtailor.model.checks import State

OWN_ROOT = Confinement(Root.MOUNT, True)
STRANGER = Confinement(Root.SHARED, True, ("make a mount namespace: Operation not permitted",))
QEMU = Qemu("/usr/bin/qemu", (7, 2), True, 1, ("/usr/bin/qemu", "/lib"))


@pytest.fixture
def wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Wanted:
    monkeypatch.setattr(confinement, "launcher", lambda: Path("/launch"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    for name in ("kernel", "disk", "log", "so", "conf"):
        (tmp_path / name).write_text(name)
    plugin = Plugin(tmp_path / "so", tmp_path / "conf", tmp_path / "counts")
    disks = {str(tmp_path / "disk"): False, str(tmp_path / "log"): True}
    return Wanted({"kernel": str(tmp_path / "kernel")}, disks, plugin, overlays=True)


def pairs(words: list[str], name: str) -> list[str]:
    return [words[i + 1] for i, word in enumerate(words) if word == name]


def test_a_qemu_with_a_root_of_its_own_opens_nothing_of_ours_by_its_path(wanted: Wanted, tmp_path: Path) -> None:
    with handed(wanted, QEMU, OWN_ROOT) as given:
        assert given.launcher[:3] == ["/launch", "parent", str(os.getpid())]
        assert given.launcher[3:6] == ["stranger", "root", "mount"]
        assert given.names[str(tmp_path / "kernel")] == "/machine/kernel"
        assert given.names[str(tmp_path / "disk")].startswith("/dev/fdset/")
        assert given.names[str(tmp_path / "counts")].startswith("fd:")
        assert pairs(given.launcher, "show") == ["/usr/bin/qemu", "/lib", "/proc/self/task"]
        assert set(pairs(given.launcher, "copy")) <= {str(number) for number in given.descriptors}
        # One that is read, and one each for reading and for writing the disk that is written.
        assert len(given.sets) == 3 and len({number for _, number in given.sets}) == 2
        assert given.environment["TMPDIR"] == "/var/tmp"
        overlays = Path(pairs(given.launcher, "place")[0])
        assert overlays.is_dir()
        given.settled()
        assert not overlays.parent.exists()
        held = list(given.descriptors)
    assert not any(Path(f"/proc/self/fd/{number}").exists() for number in held)
    assert not (tmp_path / "counts").exists()  # the plugin wrote nothing


def test_a_stranger_among_the_host_s_files_gets_copies_in_memory(wanted: Wanted, tmp_path: Path) -> None:
    with handed(wanted, QEMU, STRANGER) as given:
        name = given.names[str(tmp_path / "kernel")]
        assert name.startswith("/proc/self/fd/") and Path(name).read_text() == "kernel"
        assert Path(name).stat().st_mode & 0o777 == 0o555
        assert not pairs(given.launcher, "show") and pairs(given.launcher, "work")
        assert given.environment["TMPDIR"] == "."


def test_a_qemu_that_is_not_shut_in_gets_its_files_as_they_are(wanted: Wanted) -> None:
    with handed(wanted, QEMU, PLAIN) as given:
        assert (given.names, given.sets, given.descriptors) == ({}, [], [])
        assert given.launcher == ["/launch", "parent", str(os.getpid())]


def test_a_file_that_cannot_be_opened_is_named(wanted: Wanted, tmp_path: Path) -> None:
    (tmp_path / "kernel").unlink()
    with pytest.raises(UserInputError, match="kernel cannot be opened"), handed(wanted, QEMU, OWN_ROOT):
        pass


def test_rights_are_given_only_where_they_are_asked_for(wanted: Wanted) -> None:
    del wanted
    with handed(Wanted(), QEMU, OWN_ROOT) as given:
        assert "low-ports" not in given.launcher and "/dev/kvm" not in given.launcher
        assert str(handover._RESOLVER) not in given.launcher
    with handed(Wanted(low_ports=True, kvm=True, outbound=True), QEMU, OWN_ROOT) as given:
        assert "low-ports" in given.launcher
        assert ("/dev/kvm" in given.launcher) == Path("/dev/kvm").exists()
        assert (str(handover._RESOLVER) in given.launcher) == handover._RESOLVER.is_file()


def test_a_script_in_qemu_s_place_keeps_its_starter_s_files() -> None:
    found = confinement.of(Qemu("/home/me/qemu", (7, 2), True, 1))
    assert found.by_path and found.lacking == ("/home/me/qemu is a script",)


def test_what_qemu_needs_is_named_once_and_never_all_there_is() -> None:
    paths = map(Path, ("/", "/usr/lib", "/usr/lib/qemu", "/lib", "/usr/lib"))
    assert program_needs.outermost(paths) == ("/lib", "/usr/lib")
    listed = "\tlinux-vdso.so.1 (0x00007ffc)\n\tlibz.so.1 => /nix/z/libz.so.1 (0x00007f00)\n\tx => not found\n"
    assert "/nix/z" in program_needs.needs(Path("/nix/qemu/bin/qemu"), listed)


def test_the_linker_of_a_program_tells_its_libraries_without_a_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host need not have the shell that ldd is written for."""
    static = natives.locate().init
    monkeypatch.setenv("PATH", str(tmp_path))
    program = Path("/bin/ls").resolve()
    found = program_needs.listed(program)
    assert re.search(r"libc\.so\S* => /\S+ \(0x", found), found
    assert any(folder in program_needs.needs(program, found) for folder in ("/lib64", "/usr/lib64", "/usr/lib"))
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\n")
    assert program_needs.listed(script) == program_needs.listed(static) == ""


@pytest.mark.attack
def test_a_qcow2_image_that_names_another_file_is_refused(tmp_path: Path) -> None:
    def image(version: int, backing: int, features: int) -> str:
        path = tmp_path / "image"
        path.write_bytes(
            struct.pack(">4sIQ", b"QFI\xfb", version, backing).ljust(72, b"\0") + struct.pack(">Q", features)
        )
        return str(path)

    boot_disk.require_alone(image(3, 0, 1))
    boot_disk.require_alone(image(2, 0, 4))  # version 2 has no features: something else is there
    for hostile in ((2, 512, 0), (3, 512, 0), (3, 0, 4)):
        with pytest.raises(UserInputError, match="depends on another file"):
            boot_disk.require_alone(image(*hostile))


@pytest.mark.parametrize(
    ("how", "user", "files", "words"),
    [
        (OWN_ROOT, State.OK, State.OK, "one of its own"),
        (STRANGER, State.OK, State.LIMITED, "Operation not permitted"),
        (Confinement(Root.USER, False), None, State.OK, "a user and a mount namespace"),
    ],
)
def test_doctor_says_how_qemu_is_shut_in(how: Confinement, user: State | None, files: State, words: str) -> None:
    checks = host_checks.check_confinement(lambda: how)
    assert [check.name for check in checks] == ["QEMU's user", "QEMU's files", "QEMU's privileges"]
    assert user is None or checks[0].state is user
    assert checks[1].state is files and bool(checks[1].fix) == (files is State.LIMITED)
    assert words in " ".join(check.found for check in checks)
    assert not any(check.blocks for check in checks)


def test_doctor_does_not_fail_without_qemu() -> None:
    def ask() -> Confinement:
        raise HostError("no QEMU")

    (check,) = host_checks.check_confinement(ask)
    assert check.state is State.LIMITED and "no QEMU" in check.found
