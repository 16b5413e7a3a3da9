# SPDX-License-Identifier: Apache-2.0
"""The command that starts file servers, and QEMU's words for what they serve."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from vmtailor.base import process
from vmtailor.base.errors import HostError
from vmtailor.base.process import ProgramResult
from vmtailor.drivers.confinement import confinement, program_needs
from vmtailor.drivers.confinement.confinement import Confinement, Root
from vmtailor.drivers.qemu import handover, qemu_command
from vmtailor.drivers.qemu.handover import Wanted
from vmtailor.drivers.qemu.qemu_command import Ends
from vmtailor.drivers.qemu.qemu_program import Qemu
from vmtailor.drivers.shares import file_servers
from vmtailor.drivers.shares.file_servers import FileServer, Users
from vmtailor.model.boots.ending import End, Ending
from vmtailor.model.guest_mounts import MountKind, Share
from vmtailor.model.machine import Clock, Disk, Machine, TalkLine

SHARES = (Share("vtfs0", "/srv/a b"), Share("vtfs1", "/etc/x", read_only=True, single_file=True))


def pairs(words: list[str], name: str) -> list[str]:
    return [words[at + 1] for at, word in enumerate(words) if word == name]


def test_each_share_has_a_server_that_is_shown_it_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_servers, "installed", lambda: FileServer("/lib/virtiofsd", True, ("/lib/x", "/lib/y")))
    monkeypatch.setattr(file_servers, "users", lambda: Users("user"))
    words = file_servers.words(SHARES, (7, 8))
    assert words[-1] == "--" and pairs(words, "root") == ["user"]
    assert pairs(words, "show") == ["/lib/x", "/lib/y"] and pairs(words, "device") == ["/dev/null"]
    assert words[-7:-1] == ["folder", "7", "/srv/a b", "file-ro", "8", "/etc/x"]
    command = pairs(words, "arg")
    assert command[0] == "/lib/virtiofsd" and {"--fd=3", "source=/shared", "sandbox=chroot"} <= set(command)
    assert "modcaps=-mknod:-setfcap" in command


def test_a_monitor_that_serves_them_itself_is_shown_them_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """And it has the rights over files that a server has, in the users that a server's would be."""
    monkeypatch.setattr(file_servers, "users", lambda: Users("ids", ("uids", "100000", "65536")))
    words = file_servers.in_monitor(SHARES, ("/shared/vtfs0", "/shared/vtfs1/file"))
    assert words[:4] == ["files", "uids", "100000", "65536"] and words[-2:] == ["show", "/proc/self"]
    assert words[4:-2] == ["folder", "/srv/a b", "/shared/vtfs0", "file-ro", "/etc/x", "/shared/vtfs1/file"]


@pytest.mark.attack
def test_a_monitor_that_sees_the_host_serves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    own = tuple(replace(share, by=MountKind.FOLDER_9P) for share in SHARES)
    script = Qemu("/opt/qemu", (7, 2), sandbox=True, plugin_api=1, needs=None)
    with pytest.raises(
        HostError, match="QEMU cannot be shut in with the folders that it serves: /opt/qemu is a script"
    ):
        handover.listed(Wanted(shares=own), script)


def test_qemu_serves_what_no_server_does() -> None:
    machine = Machine(board="microvm", memory_bytes=256 << 20, kernel="/k", disks=(Disk("/root"),), clock=Clock.WALL)
    argv = qemu_command.command(machine, Ends(folders=(("/shared/vtfs0", "vtfs0"),)))
    words = " ".join(argv)
    assert "-fsdev local,id=vtfs0,path=/shared/vtfs0,security_model=passthrough,multidevs=remap" in words
    assert "-device virtio-9p-device,fsdev=vtfs0,mount_tag=vtfs0,bus=virtio-mmio-bus." in words
    assert "memory-backend" not in words  # nobody else has the guest's memory


@pytest.mark.parametrize(("said", "own"), [("-o source=PATH", True), ("--shared-dir <SHARED_DIR>", False)])
def test_both_servers_are_known_by_their_help(
    said: str, own: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "virtiofsd"
    program.touch()
    ended = ProgramResult(argv=(), returncode=0, stdout=said.encode(), stderr=b"", seconds=0.0)
    monkeypatch.setenv(file_servers.PROGRAM_VARIABLE, str(program))
    monkeypatch.setattr(process, "run", lambda *words, **more: ended)
    monkeypatch.setattr(program_needs, "listed", lambda path: "")
    found = file_servers.installed()
    assert found.own_words is own and ("source=/shared" in found.command) is own
    assert ("--shared-dir=/shared" in found.command) is not own
    assert "mknod" in " ".join(found.command)


def test_a_host_without_a_server_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(file_servers.PROGRAM_VARIABLE, "/nowhere/virtiofsd")
    with pytest.raises(HostError, match="none \\(virtiofsd\\)") as caught:
        file_servers.installed()
    assert "qemu-system-common" in caught.value.hint and "--keep folders-9p" in caught.value.hint


@pytest.mark.attack
def test_no_server_runs_that_cannot_be_shut_in(monkeypatch: pytest.MonkeyPatch) -> None:
    open_to_all = Confinement(Root.SHARED, False, ("make a user namespace: Operation not permitted",))
    monkeypatch.setattr(confinement, "available", lambda: open_to_all)
    with pytest.raises(HostError, match="cannot be shut in on this host: make a user namespace"):
        file_servers.users()


def test_users_by_what_the_host_gives(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tables = {"uids": tmp_path / "subuid", "gids": tmp_path / "subgid"}
    monkeypatch.setattr(file_servers, "_SUBORDINATE", tables)
    monkeypatch.setattr(os, "geteuid", lambda: 4242)
    monkeypatch.setattr(process, "on_path", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(confinement, "available", lambda: Confinement(Root.MOUNT, True))
    assert file_servers.users() == Users("mount")
    monkeypatch.setattr(confinement, "available", lambda: Confinement(Root.USER, False))
    assert file_servers.users() == Users("user")
    for table in tables.values():
        table.write_text("other:1:2\n4242:x:y\n4242:100000:65536\n4242:7:8\n")
    assert file_servers.users() == Users(
        "ids",
        ("uids", "100000", "65536", "gids", "100000", "65536", "mappers", "/usr/bin/newuidmap", "/usr/bin/newgidmap"),
    )
    monkeypatch.setattr(process, "on_path", lambda name: None)
    assert file_servers.users() == Users("user")


def test_a_server_that_died_is_what_a_machine_ended_for() -> None:
    said = "noise\nserve: the file server of /srv ended (signal 9), and the machine with it\nmore"
    end = End(ending=Ending.DIED, command="qemu", console_tail="", stderr=said, seconds=1.0, returncode=-9)
    error = end.error()
    assert error.message == "the file server of /srv ended (signal 9), and the machine with it" and error.hint


def test_qemu_shares_the_guests_memory_with_the_servers() -> None:
    machine = Machine("microvm", 256 << 20, "/k", disks=(Disk("/r"), Disk("/v")), network=True, clock=Clock.WALL)
    argv = qemu_command.command(machine, Ends(shares=((7, "vtfs0"), (8, "vtfs1"))))
    assert pairs(argv, "-machine") == ["microvm,acpi=off,memory-backend=ram"]
    assert pairs(argv, "-object") == ["memory-backend-memfd,id=ram,size=262144K,share=on"]
    assert [one for one in pairs(argv, "-chardev") if "vtfs" in one] == ["socket,id=vtfs0,fd=7", "socket,id=vtfs1,fd=8"]
    # Behind all other devices, so that these stay where they are.
    assert [one for one in pairs(argv, "-device") if "fs" in one] == [
        "vhost-user-fs-device,chardev=vtfs0,tag=vtfs0,bus=virtio-mmio-bus.4",
        "vhost-user-fs-device,chardev=vtfs1,tag=vtfs1,bus=virtio-mmio-bus.3",
    ]
    talking = replace(machine, line=TalkLine.VIRTIO, disks=(Disk("/r"), Disk("/v"), *(Disk(f"/{n}") for n in range(2))))
    placed = " ".join(qemu_command.command(talking, Ends(shares=((7, "vtfs0"), (8, "vtfs1")))))
    places = re.findall(r"virtio-mmio-bus\.([0-9]+)", placed)
    assert sorted(places) == list("01234567")  # the last two places are the shares'
    assert "virtio-mmio.force-legacy=false" in argv  # these servers know no other transports
    of_pci = qemu_command.command(replace(machine, board="q35"), Ends(shares=((7, "vtfs0"),)))
    assert "vhost-user-fs-pci,chardev=vtfs0,tag=vtfs0" in of_pci and "-global" not in of_pci
    assert "memory-backend-memfd" not in " ".join(qemu_command.command(machine))
