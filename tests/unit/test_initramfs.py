# SPDX-License-Identifier: Apache-2.0
"""Initial RAM disks: the archive's bytes, and modules in an order that loads."""

from __future__ import annotations

import gzip
import lzma
import struct
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from vmtailor.base.errors import HostError
from vmtailor.drivers.rootfs.initramfs import (
    WANTED,
    baseline_initramfs,
    cpio,
    directory,
    file,
    load_order,
    module_info,
    node,
    providers,
    requested,
    wanted_by,
)
from vmtailor.model.architecture import presumed
from vmtailor.model.plan import ImageRoot, RootFormat

KINDS = presumed().board_names


def module(**info: str) -> bytes:
    """The least ELF file that has a .modinfo section."""
    data = b"".join(f"{key}={value}".encode() + b"\0" for key, value in info.items())
    names = b"\0.modinfo\0.shstrtab\0"
    head = 64
    tables = head + len(data) + len(names)
    sections = [(0, 0, 0, 0), (1, 1, head, len(data)), (10, 3, head + len(data), len(names))]
    table = b"".join(
        struct.pack("<IIQQQQIIQQ", name, kind, 0, 0, at, size, 0, 0, 1, 0) for name, kind, at, size in sections
    )
    elf = (
        b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 1, 62, 1, 0, 0, tables, 0, 64, 0, 0, 64, 3, 2)
    )
    return elf + data + names + table


def parse(archive: bytes) -> list[tuple[str, int, bytes, int]]:
    """Name, mode, data, device minor of each member, read by the format's own rules."""
    at = 0
    found: list[tuple[str, int, bytes, int]] = []
    while True:
        assert archive[at : at + 6] == b"070701"
        fields = [int(archive[at + 6 + 8 * i : at + 14 + 8 * i], 16) for i in range(13)]
        size, name_size = fields[6], fields[11]
        name = archive[at + 110 : at + 110 + name_size - 1].decode()
        at = (at + 110 + name_size + 3) // 4 * 4
        if name == "TRAILER!!!":
            return found
        found.append((name, fields[1], archive[at : at + size], fields[10]))
        at = (at + size + 3) // 4 * 4


names = st.text("abcdefghij/.", min_size=1, max_size=30)


@given(st.lists(st.tuples(names, st.binary(max_size=50))))
def test_what_goes_in_comes_out(items: list[tuple[str, bytes]]) -> None:
    archive = cpio([file(name, data) for name, data in items])
    assert [(name, data) for name, _, data, _ in parse(archive)] == items
    assert len(archive) % 512 == 0


def test_kinds_of_members() -> None:
    members = parse(cpio([directory("d"), node("d/console", 5, 1), file("f", b"x", 0o755)]))
    assert [(name, oct(mode), data, minor) for name, mode, data, minor in members] == [
        ("d", "0o40755", b"", 0),
        ("d/console", "0o20600", b"", 1),
        ("f", "0o100755", b"x", 0),
    ]


def tree(folder: Path) -> Path:
    modules = folder / "6.12.0"
    for path, data in {
        "net/virtio_net.ko.xz": lzma.compress(module(name="virtio_net", depends="net_failover")),
        "net/net_failover.ko": module(name="net_failover", depends="failover"),
        "net/failover.ko.gz": gzip.compress(module(name="failover", depends="")),
        "fs/overlay.ko": module(name="overlay", depends=""),
        "x/a-b.ko": module(name="a_b", depends="c_d,failover"),
        "x/c-d.ko": module(name="c_d", depends="a_b"),
    }.items():
        (modules / "kernel" / path).parent.mkdir(parents=True, exist_ok=True)
        (modules / "kernel" / path).write_bytes(data)
    return modules


def test_a_module_comes_after_what_it_needs(tmp_path: Path) -> None:
    order = [name for name, _ in load_order(tree(tmp_path), ["overlay", "virtio_net", "not_there"])]
    assert order == ["overlay", "failover", "net_failover", "virtio_net"]


def test_dashes_and_circles_do_no_harm(tmp_path: Path) -> None:
    assert [name for name, _ in load_order(tree(tmp_path), ["a-b"])] == ["c_d", "failover", "a_b"]


@pytest.mark.parametrize(
    ("built_in", "expected"),
    [
        (b"other.alias=crc32\0", ["sums_generic", "libsums", "fs_ext9"]),
        (b"sums.license=GPL\0sums.alias=crypto-sums\0", ["libsums", "fs_ext9"]),
        (None, ["libsums", "fs_ext9"]),
    ],
)
def test_what_a_module_asks_for_by_an_alias_comes_first(
    built_in: bytes | None, expected: list[str], tmp_path: Path
) -> None:
    """Unless the kernel has it built in, or does not say what it has."""
    modules = tree(tmp_path)
    for path, data in {
        "fs/fs_ext9.ko": module(name="fs_ext9", depends="libsums"),
        "lib/libsums.ko": module(name="libsums", depends="", softdep="pre: crypto-sums post: overlay"),
        "crypto/sums-generic.ko": module(name="sums_generic", depends="", alias="crypto-sums"),
    }.items():
        (modules / "kernel" / path).parent.mkdir(exist_ok=True)
        (modules / "kernel" / path).write_bytes(data)
    if built_in is not None:
        (modules / "modules.builtin.modinfo").write_bytes(built_in)
    assert [name for name, _ in load_order(modules, ["fs_ext9"])] == expected


@pytest.mark.parametrize("sized", [True, False])
def test_modules_are_unpacked_from_zstd(tmp_path: Path, sized: bool) -> None:
    """As Arch Linux has them."""
    modules = tree(tmp_path)
    plain = module(name="packed", depends="")
    packed = zstandard.ZstdCompressor(write_content_size=sized).compress(plain)
    (modules / "kernel/fs/packed.ko.zst").write_bytes(packed)
    assert load_order(modules, ["packed"]) == [("packed", plain)]


def test_a_damaged_or_unknown_module_is_said(tmp_path: Path) -> None:
    modules = tree(tmp_path)
    (modules / "kernel/fs/bad.ko.xz").write_bytes(b"no xz")
    (modules / "kernel/fs/odd.ko.zst").write_bytes(b"?")
    for name in ("bad", "odd"):
        with pytest.raises(HostError):
            load_order(modules, [name])


@given(st.binary(max_size=300))
def test_any_bytes_as_a_module(data: bytes) -> None:
    assert module_info(data, "depends") == []
    assert isinstance(module_info(module()[:64] + data, "depends"), list)


def test_what_the_kernel_asked_for_is_found_by_name_and_alias(tmp_path: Path) -> None:
    log = "<6>[1.0] vmtailor: module requested: net-pf-17\n<6>vmtailor: module requested: overlay\n" * 2
    assert requested(log) == ("net-pf-17", "overlay")
    modules = tree(tmp_path)
    packet = module(name="af_packet", alias="net-pf-17")
    (modules / "kernel/net/af_packet.ko").write_bytes(packet)
    found = {one.request: (one.module, one.path) for one in providers(modules, requested(log))}
    assert found == {"net-pf-17": ("af_packet", "net/af_packet"), "overlay": ("overlay", "fs/overlay")}
    assert providers(modules, ["net-pf-1"]) == ()


@pytest.mark.parametrize("machine", KINDS)
@pytest.mark.parametrize("root", [RootFormat(one) for one in ImageRoot])
def test_what_one_machine_wants_is_among_all_that_any_wants(machine: str, root: RootFormat) -> None:
    wanted = wanted_by(presumed().board_named(machine), root, network=True)
    assert set(wanted) < set(WANTED)
    assert set(wanted) - set(wanted_by(presumed().board_named(machine), root)) == {"virtio_net"}


def test_the_baselines_disk(tmp_path: Path) -> None:
    stage1 = tmp_path / "stage1"
    stage1.write_bytes(b"program")
    modules = tree(tmp_path)
    for out in ("one", "two"):
        inside = baseline_initramfs(tmp_path / out, stage1=stage1, modules=modules, wanted=("virtio_net",))
        assert inside == ("failover", "net_failover", "virtio_net")
    data = (tmp_path / "one").read_bytes()
    assert data == (tmp_path / "two").read_bytes()
    members = {name: content for name, _, content, _ in parse(data)}
    assert members["modules/list"] == b"failover.ko\nnet_failover.ko\nvirtio_net.ko\n"
    assert module_info(members["modules/failover.ko"], "name") == ["failover"]
    assert members["init"] == b"program"
