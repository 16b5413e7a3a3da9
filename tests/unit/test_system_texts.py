# SPDX-License-Identifier: Apache-2.0
"""What a system's files say: loaders, fstab, os-release, units; and paths that lead in circles or nowhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes.systems import BLS_ENTRY, BOOT_UUID, GRUB_CFG, RELEASE, ROOT_UUID, elf

from vmtailor.analysis.systems import init_units, kernels, loaders, mounts
from vmtailor.analysis.systems.describe import describe
from vmtailor.analysis.systems.root import RootTree
from vmtailor.base.errors import UserInputError
from vmtailor.drivers.disks import partitions
from vmtailor.model.systems.system import EnabledUnit, Init, InitKind, Mount, OsRelease, Partition, SubjectKind
from vmtailor.model.systems.tree import Node, NodeKind


class Tree:
    """A tree in memory: path → content, or `-> TARGET`."""

    def __init__(self, files: Mapping[str, str | bytes]) -> None:
        self._data = {path: text.encode() if isinstance(text, str) else text for path, text in files.items()}

    def folders(self, paths: Sequence[str]) -> Mapping[str, Mapping[str, Node]]:
        found: dict[str, dict[str, Node]] = {}
        for path, data in self._data.items():
            parts = path.strip("/").split("/")
            for depth, name in enumerate(parts):
                above = "/" + "/".join(parts[:depth])
                last = depth == len(parts) - 1
                kind = NodeKind.FOLDER if not last else NodeKind.LINK if data[:3] == b"-> " else NodeKind.FILE
                found.setdefault(above, {})[name] = Node(kind, len(data) if kind is NodeKind.FILE else 0)
        return {path: found[path] for path in paths if path in found}

    def targets(self, paths: Sequence[str]) -> Mapping[str, str]:
        return {path: self._data[path][3:].decode() for path in paths if path in self._data}

    def read(self, path: str, most: int) -> bytes:
        return self._data.get(path, b"")[: most + 1]

    def begin(self, path: str, count: int) -> bytes:
        return self._data.get(path, b"")[:count]


# --- paths ---


@pytest.mark.parametrize(
    ("path", "real"),
    [
        ("/a/file", "/a/file"), ("a//./file", "/a/file"), ("/link/file", "/a/file"), ("/a/../../../a/file", "/a/file"),
        ("/a/up", "/a"), ("/circle", ""), ("/out", "/a/file"), ("/nowhere", ""), ("/a/file/below", ""), ("/", "/"),
        ("/chain0", "/a/file"), ("/long0", ""),
    ],
)  # fmt: skip
def test_paths_are_resolved_inside(path: str, real: str) -> None:
    chain = {f"/chain{n}": f"-> /chain{n + 1}" for n in range(20)} | {"/chain20": "-> a/file"}
    long = {f"/long{n}": f"-> /long{n + 1}" for n in range(60)} | {"/long60": "-> a/file"}
    files = {"/a/file": "x", "/link": "-> a", "/a/up": "-> ..//a", "/circle": "-> circle", "/out": "-> ../../a/file"}
    assert RootTree(Tree({**files, **chain, **long})).resolve(path) == real


@pytest.mark.lengthy
@pytest.mark.attack
def test_a_walk_of_a_tree_without_end_ends() -> None:
    class Endless(Tree):
        def folders(self, paths: Sequence[str]) -> Mapping[str, Mapping[str, Node]]:
            return {path: {str(n): Node(NodeKind.FOLDER) for n in range(10)} for path in paths}

    assert 1000 < sum(1 for _ in RootTree(Endless({})).walk("/")) <= 50_000


# --- loaders ---


def test_grubs_entries_and_the_one_that_starts() -> None:
    found = loaders.parse_grub(GRUB_CFG, "/boot/grub/grub.cfg", {})
    assert [(one.title, one.chosen) for one in found] == [("Made-up GNU/Linux", True), ("rescue", False)]
    assert found[0].kernel == f"/boot/vmlinuz-{RELEASE}" and found[0].initrd == (f"/boot/initrd.img-{RELEASE}",)
    assert found[0].words == (f"root=UUID={ROOT_UUID}", "ro", "quiet")


@pytest.mark.parametrize(
    ("default", "environment", "title"),
    [
        ('set default="1>0"', {}, "rescue"), ('set default="1"', {}, "rescue"),
        ('set default="Advanced options>rescue"', {}, "rescue"), ('set default="simple"', {}, "Made-up GNU/Linux"),
        ('set default="${saved_entry}"', {"saved_entry": "1>0"}, "rescue"), ("", {}, "Made-up GNU/Linux"),
        ('set default="no such"', {}, "Made-up GNU/Linux"),
        # What was saved once means nothing where the configuration does not ask for it.
        ('set default="0"', {"saved_entry": "1>0"}, "Made-up GNU/Linux"),
        ("", {"saved_entry": "1>0"}, "Made-up GNU/Linux"),
    ],
)  # fmt: skip
def test_the_default_is_a_number_a_title_or_an_id(default: str, environment: dict[str, str], title: str) -> None:
    text = GRUB_CFG.replace('set default="0"', default)
    (chosen,) = [one.title for one in loaders.parse_grub(text, "x", environment) if one.chosen]
    assert chosen == title


def test_paths_of_a_boot_partition_are_below_boot() -> None:
    text = "menuentry 'x' {\n linux (hd0,gpt2)/vmlinuz root=/dev/vda2 $tuned\n initrd /a /b\n}\n"
    (entry,) = loaders.parse_grub(text, "x", {"tuned": "a=1 b"}, "/boot")
    assert (entry.kernel, entry.initrd) == ("/boot/vmlinuz", ("/boot/a", "/boot/b"))
    assert entry.words == ("root=/dev/vda2", "a=1", "b")


def test_entries_of_the_specification_newest_first() -> None:
    older = BLS_ENTRY.replace(RELEASE, "6.1.0-10-made-up"), BLS_ENTRY
    files = {"/e/b.conf": older[1], "/e/a.conf": older[0], "/e/none.conf": "title nothing\n"}
    found = loaders.parse_bls(files, {"tuned": ""}, "/boot")
    assert [(one.kernel, one.chosen) for one in found] == [
        ("/boot/vmlinuz-6.1.0-10-made-up", True), (f"/boot/vmlinuz-{RELEASE}", False)
    ]  # fmt: skip
    (saved,) = [one for one in loaders.parse_bls(files, {"saved_entry": "b"}) if one.chosen]
    assert saved.kernel == f"/vmlinuz-{RELEASE}"


@given(st.text(), st.text())
def test_no_text_of_a_loader_hurts(text: str, more: str) -> None:
    for entries in (
        loaders.parse_grub(f"menuentry '{more}' {{\nlinux /{text}\n}}\n{text}", "x", loaders.parse_grubenv(more)),
        loaders.parse_bls({"a": f"linux {text}\n{more}"}, {}),
    ):
        assert sum(one.chosen for one in entries) == (1 if entries else 0)


# --- mounts, os-release, tables ---


def test_fstab_as_it_is_written() -> None:
    text = "# x\n\nLABEL=a\\040b /data\\040x ext4\nhalf\n/swap none swap sw,pri=1 0 0\n"
    assert mounts.parse_fstab(text) == (
        Mount("LABEL=a b", "/data x", "ext4", ("defaults",)), Mount("/swap", "none", "swap", ("sw", "pri=1"))
    )  # fmt: skip


def test_os_release_as_a_shell_reads_it() -> None:
    text = 'ID=x\nVERSION_ID=\'1.2\'\nNAME="A \\"b\\""\n#ID=y\nBROKEN=\'x\n'
    assert mounts.parse_os_release(text) == OsRelease("x", "1.2", "", 'A "b"')


@pytest.mark.parametrize(
    ("device", "is_it"),
    [
        (f"UUID={BOOT_UUID}", True), (f'UUID="{BOOT_UUID.upper()}"', True), ("UUID=", False), ("LABEL=boot", True),
        ("PARTUUID=ab-02", True), ("/dev/vda2", True), ("/dev/nvme0n1p2", True), ("/dev/sda12", False),
        ("/dev/vda", False),
        (f"/dev/disk/by-uuid/{BOOT_UUID}", True), ("/dev/mapper/x", False),
    ],
)  # fmt: skip
def test_devices_and_partitions(device: str, is_it: bool) -> None:
    part = Partition(2, 0, 0, uuid=BOOT_UUID, label="boot", partition_uuid="ab-02")
    assert mounts.names_partition(device, part) is is_it


@given(st.binary())
def test_no_answer_about_a_table_hurts(data: bytes) -> None:
    with pytest.raises(UserInputError, match="damaged partition table"):
        partitions.parse(b'{"partitiontable":' + data, 1 << 30, "x")


def table(*rows: tuple[int, int, str]) -> bytes:
    parts = ",".join(
        f'{{"node":"/x/disk{n}","start":{start},"size":{size},"type":"{kind}"}}'
        for n, (start, size, kind) in enumerate(rows, 1)
    )
    return f'{{"partitiontable":{{"label":"dos","id":"0xAB","device":"/x/disk","partitions":[{parts}]}}}}'.encode()


def test_partitions_with_their_places_and_names() -> None:
    found = partitions.parse(table((2048, 8, "83"), (4096, 100, "5"), (4100, 10, "83")), 1 << 30, "x")
    assert [(one.number, one.start_bytes, one.size_bytes) for one in found] == [(1, 1 << 20, 4096), (3, 2099200, 5120)]
    assert found[0].partition_uuid == "ab-01"


@pytest.mark.parametrize("rows", [[(0, 8, "83")], [(8, 1 << 40, "83")], [(8, -1, "83")], [(8, 8, "83"), (12, 8, "83")]])
def test_partitions_that_cannot_be(rows: list[tuple[int, int, str]]) -> None:
    with pytest.raises(UserInputError, match=r"reaches beyond the disk|overlap"):
        partitions.parse(table(*rows), 1 << 30, "x")


# --- inits and units ---


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        ({"/sbin/init": "-> /lib/systemd/systemd", "/lib/systemd/systemd": elf()}, InitKind.SYSTEMD),
        ({"/sbin/init": "-> ../bin/busybox", "/bin/busybox": elf()}, InitKind.BUSYBOX),
        ({"/sbin/init": elf() + b"/etc/inittab"}, InitKind.SYSVINIT),
        ({"/sbin/init": elf() + b"/etc/inittab BusyBox v1.36.1"}, InitKind.BUSYBOX),
        ({"/sbin/init": elf() + b"/etc/inittab", "/sbin/openrc": elf()}, InitKind.OPENRC),
        ({"/sbin/init": "#!/bin/sh\n"}, InitKind.SCRIPT), ({"/bin/init": elf()}, InitKind.OTHER),
    ],
)  # fmt: skip
def test_inits_by_what_they_are(files: dict[str, str | bytes], kind: InitKind) -> None:
    found = init_units.find_init(RootTree(Tree(files)))
    assert found is not None and found.kind is kind


def test_a_shell_of_busybox_is_no_init_whatever_else_the_program_is() -> None:
    program = elf() + b"/etc/inittab BusyBox v1.36.1"
    tree = Tree({"/bin/sh": program, "/sbin/init": program, "/usr/bin/own": elf() + b"/etc/inittab"})
    root = RootTree(tree)
    assert [init_units.is_init(root, path) for path in ("/bin/sh", "/sbin/init", "/usr/bin/own")] == [False, True, True]


def test_run_levels_of_other_inits() -> None:
    init = Init("/sbin/init", "/sbin/init", InitKind.SYSVINIT)
    tree = Tree({"/etc/rc2.d/S01ssh": "-> ../init.d/ssh", "/etc/rc2.d/K01x": "", "/etc/inittab": "id:2:initdefault:\n"})
    assert init_units.enabled(RootTree(tree), init) == ((EnabledUnit("ssh", "run level 2"),), (), "run level 2")
    runlevels = RootTree(Tree({"/etc/runlevels/default/sshd": "-> /etc/init.d/sshd"}))
    assert init_units.enabled(runlevels, init)[0] == (EnabledUnit("sshd", "default"),)


def test_what_an_initial_ram_disk_wants_is_not_of_the_system() -> None:
    init = Init("/sbin/init", "/lib/systemd/systemd", InitKind.SYSTEMD)
    wanted = {"/lib/systemd/system/initrd.target.wants/a.service": "-> ../a.service"}
    assert init_units.enabled(RootTree(Tree(wanted)), init)[0] == ()


def test_a_script_as_init_is_of_its_interpreters_processor() -> None:
    files: dict[str, str | bytes] = {"/sbin/init": "#!/bin/sh -e\n", "/bin/sh": "-> dash", "/bin/dash": elf()}
    assert describe(RootTree(Tree(files)), "x", SubjectKind.ROOT).architecture == "x86_64"
    with pytest.raises(UserInputError, match="is not a program that a kernel could start"):
        describe(RootTree(Tree({"/sbin/init": "#!/bin/gone\n"})), "x", SubjectKind.ROOT)
    with pytest.raises(UserInputError, match="a system for 386, 32 bits"):
        describe(RootTree(Tree({"/sbin/init": elf(3, 32)})), "x", SubjectKind.ROOT)


def test_the_newest_kernel_starts_where_no_loader_says() -> None:
    root = RootTree(Tree({"/boot/vmlinuz-6.1.0-9": "k", "/boot/vmlinuz-6.1.0-10": "k", "/lib/modules/6.2.0/x": "m"}))
    found = kernels.installed(root)
    assert [one.release for one in found] == ["6.1.0-9", "6.1.0-10", "6.2.0"]
    assert kernels.starting(root, found, ()) == "6.1.0-10"
