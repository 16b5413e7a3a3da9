# SPDX-License-Identifier: Apache-2.0
"""Mounts of a run: what the machine shares, its disks, init's orders; and what is refused before it starts."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import cast

import pytest

from vmtailor.base.errors import UserInputError
from vmtailor.drivers.host.bundle_folder import BundleFolder
from vmtailor.drivers.shares import file_servers, volumes
from vmtailor.model.architecture import Bus
from vmtailor.model.guest_mounts import MountKind, Share
from vmtailor.model.machine import Disk
from vmtailor.model.option_values import kept_symbols
from vmtailor.pipeline.mount_words import parse_mounts, parse_volumes
from vmtailor.pipeline.run_mounts import Mounted, held, require_meant, require_room, way_of_folders

INIT = b"\0mount-at\0"
KERNEL = {"FUSE_FS": "y", "VIRTIO_FS": "y", "EXT4_FS": "y", "EXT4_FS_SECURITY": "y"}


class FakeBundle:
    is_fitted = True

    def __init__(self, config: dict[str, str], init: bytes = INIT) -> None:
        self.path, self.config, self.init = Path("/bundles/web"), config, init


def bundle(config: dict[str, str], init: bytes = INIT) -> BundleFolder:
    return cast("BundleFolder", FakeBundle(config, init))


@pytest.fixture(autouse=True)
def has_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_servers, "place", lambda: "/usr/libexec/virtiofsd")


@pytest.fixture
def no_volumes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(volumes, "held", lambda name: (Disk(f"/volumes/{name}"), len(name)))


def test_a_kernel_that_cannot_is_refused_with_the_command_that_makes_one() -> None:
    folder, volume = parse_volumes(["/srv:/a", "data:/b"])
    for config, wanted, lacking, groups in (
        ({}, (folder,), "FUSE_FS, VIRTIO_FS", "folders"),
        ({"FUSE_FS": "y"}, (folder, volume), "VIRTIO_FS, EXT4_FS, EXT4_FS_SECURITY", "folders,volumes"),
        ({**KERNEL, "EXT4_FS": "m"}, (folder, volume), "EXT4_FS", "volumes"),
    ):
        with pytest.raises(UserInputError) as caught:
            require_meant(wanted, bundle(config))
        assert caught.value.message.endswith(f"it lacks {lacking}")
        assert caught.value.hint.startswith(f"vmtailor refit /bundles/web --keep {groups} ")
    require_meant((folder, volume), bundle(KERNEL))
    require_meant(parse_volumes(["/x"]), bundle({}))  # in memory, as all of the root


NINE_P = {"NET_9P": "y", "NET_9P_VIRTIO": "y", "9P_FS": "y"}


@pytest.mark.parametrize(
    ("server", "config", "way"),
    [
        (True, KERNEL, ("virtiofs", "")),
        (True, KERNEL | NINE_P, ("virtiofs", "")),
        (True, NINE_P, ("9p", "the kernel has no VIRTIO_FS")),
        (False, KERNEL | NINE_P, ("9p", "this host has no virtiofsd")),
        (False, KERNEL, ("virtiofs", "")),  # which is refused where it is started, with what to install
    ],
)
def test_folders_are_mounted_by_what_host_and_kernel_have(
    server: bool, config: dict[str, str], way: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_servers, "place", lambda: "/usr/libexec/virtiofsd" if server else None)
    assert way_of_folders(bundle(config)) == way
    require_meant(parse_volumes(["/srv:/a"]), bundle(config, INIT + b"trans=virtio,version=9p2000.L\0"))


def test_a_kernel_for_a_host_without_a_server_has_9p(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_servers, "place", lambda: None)
    with pytest.raises(UserInputError, match=r"it lacks NET_9P, NET_9P_VIRTIO, 9P_FS$") as caught:
        require_meant(parse_volumes(["/srv:/a"]), bundle({}))
    assert "--keep folders-9p " in caught.value.hint
    of_family = bundle({})
    of_family.is_fitted = False  # type: ignore[misc]
    with pytest.raises(UserInputError, match="this family kernel cannot mount folders of the host") as caught:
        require_meant(parse_volumes(["/srv:/a"]), of_family)
    assert caught.value.hint.startswith("vmtailor family build --keep folders-9p makes")
    with pytest.raises(UserInputError, match="too old to mount"):
        require_meant(parse_volumes(["/srv:/a"]), bundle(NINE_P))


@pytest.mark.usefixtures("no_volumes")
def test_orders_and_shares_by_9p(tmp_path: Path) -> None:
    mounted = held(parse_volumes([f"{tmp_path}:/a:ro", "one:/b"]), 2, MountKind.FOLDER_9P)
    assert [order.record for order in mounted.orders] == ["9p ro vtfs0 /a", "ext4 rw,copy 2 /b"]
    assert mounted.shares == (Share("vtfs0", str(tmp_path), read_only=True, by=MountKind.FOLDER_9P),)


def test_the_symbols_of_a_group_are_kept_by_its_name() -> None:
    assert kept_symbols(["A=y,B=0x10,C", "D=n"]) == ("A=y", "B=0x10", "C", "D=n")
    assert kept_symbols(['CMDLINE="a,b"', "E=one,two"]) == ('CMDLINE="a,b"', "E=one,two")
    assert kept_symbols(["folders,ACPI", "volumes"]) == ("FUSE_FS", "VIRTIO_FS", "ACPI", "EXT4_FS", "EXT4_FS_SECURITY")


def test_what_else_no_machine_can_have() -> None:
    with pytest.raises(UserInputError, match="too old to mount"):
        require_meant(parse_volumes(["/a:/b"]), bundle(KERNEL, b"\0mount\0"))
    with pytest.raises(UserInputError, match="two mounts have the same target /b"):
        require_meant(parse_volumes(["/a:/b", "/c:/x/../b/"]), bundle(KERNEL))
    with pytest.raises(UserInputError, match="too many"):
        require_meant(parse_volumes([f"/a:/{number}" for number in range(17)]), bundle(KERNEL))
    shared = Mounted(tuple(Share(f"t{number}", "/a") for number in range(6)))
    with pytest.raises(UserInputError, match="8 places"):
        require_room(shared, Bus.MMIO, 3)
    require_room(shared, Bus.MMIO, 2)
    require_room(shared, Bus.PCI, 30)


@pytest.mark.usefixtures("no_volumes")
def test_inits_orders_come_in_the_order_of_their_depth(tmp_path: Path) -> None:
    file = tmp_path / "x.conf"
    file.touch()
    (tmp_path / "link").symlink_to(tmp_path)
    texts = [f"{file}:/a/b/c:ro", "two:/d:nocopy", f"{tmp_path}/link:/a", "one:/e", "two:/f:ro", "/g/h"]
    wanted = (*parse_volumes(texts), *parse_mounts(["type=tmpfs,dst=/a/b"]))
    mounted = held(wanted, 2)
    assert [order.record for order in mounted.orders] == [
        "ext4 rw 2 /d", "virtiofs rw vtfs0 /a", "ext4 rw,copy 3 /e", "ext4 ro,copy 2 /f",
        "place rw - /g/h", "tmpfs rw - /a/b", "virtiofs ro,file vtfs1 /a/b/c",
    ]  # fmt: skip
    assert mounted.disks == (Disk("/volumes/two"), Disk("/volumes/one")) and mounted.locks == (3, 3)
    # Links are followed here, and the server is given none.
    assert mounted.shares == (
        Share("vtfs0", str(tmp_path)),
        Share("vtfs1", str(file), read_only=True, single_file=True),
    )


def refusal(text: str, *, mount: bool = False) -> str:
    """The words with which a mount is refused."""
    wanted = parse_mounts([text]) if mount else parse_volumes([text])
    with pytest.raises(UserInputError) as caught:
        held(wanted, 2)
    assert caught.value.hint
    return caught.value.message


def test_v_makes_the_folder_that_it_names_and_mount_does_not(tmp_path: Path) -> None:
    mounted = held(parse_volumes([f"{tmp_path}/new/er:/x"]), 2)
    assert mounted.shares[0].path == f"{tmp_path}/new/er" and Path(mounted.shares[0].path).is_dir()
    assert "no such file" in refusal(f"type=bind,src={tmp_path}/no,dst=/x", mount=True)
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    assert "no such file" in refusal(f"{tmp_path}/dangling:/x")
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.attack
def test_neither_devices_nor_the_whole_host_can_be_shared(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "sock"))
        for path in ("/dev/null", tmp_path / "fifo", tmp_path / "sock"):
            assert "neither a folder nor a file" in refusal(f"{path}:/x")
    (tmp_path / "root").symlink_to("/")
    assert "whole root" in refusal(f"{tmp_path}/root:/x")
    (tmp_path / "loop").symlink_to("loop")
    assert refusal(f"{tmp_path}/loop:/x")
