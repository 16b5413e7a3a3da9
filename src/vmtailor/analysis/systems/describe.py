# SPDX-License-Identifier: Apache-2.0
"""A system's tree → what is known of it."""

from __future__ import annotations

from collections.abc import Sequence

from vmtailor.analysis.systems import init_units, kernels, loaders, mounts
from vmtailor.analysis.systems.root import RootTree
from vmtailor.base.errors import UserInputError
from vmtailor.base.files.elf import NoElf, identity
from vmtailor.base.text import plain
from vmtailor.model.architecture import every
from vmtailor.model.systems.system import DiskLayout, LoaderEntry, SubjectKind, System
from vmtailor.model.systems.tree import NodeKind

_GRUB = ("/boot/grub/grub.cfg", "/boot/grub2/grub.cfg")
_GRUBENV = ("/boot/grub/grubenv", "/boot/grub2/grubenv")
_BLS = "/loader/entries"
_OS_RELEASE = ("/etc/os-release", "/usr/lib/os-release")
#: Times that a script's first line is followed to its interpreter, at most.
_INTERPRETERS = 4
#: Bytes of a program that tell its processor, or what interprets it.
_HEAD_BYTES = 256


def describe(
    root: RootTree,
    reference: str,
    kind: SubjectKind,
    *,
    disk: DiskLayout | None = None,
    identity_text: str = "",
    init: str = "",
    efi: str = "",
    notes: Sequence[str] = (),
) -> System:
    """Everything that the files say. `init`: the program to start, where the user or an image names one. `efi`: the
    folder of the EFI system partition. Raises
    UserInputError: no init, or one for a processor that nothing is known of."""
    entries = loader_entries(root, "/boot" if disk is not None and disk.boot else "", efi)
    chosen = next((entry for entry in entries if entry.chosen), None)
    words = chosen.words if chosen is not None else ()
    named = init or next((word.partition("=")[2] for word in reversed(words) if word.startswith("init=")), "")
    found = init_units.find_init(root, named)
    if found is None:
        raise UserInputError(
            f"{reference} has no init: {named or 'none of /sbin/init, /etc/init and /bin/init'} is a program in it",
            hint="an image of a program, without an init, is fitted as it is: vmtailor fit IMAGE",
        )
    architecture = processor_of(root, found.program, reference)
    installed = kernels.installed(root)
    started, masked, target = init_units.enabled(root, found)
    text = next((text for path in _OS_RELEASE if (text := root.text(path))), "")
    return System(
        reference=reference, kind=kind, architecture=architecture, os=mounts.parse_os_release(text), init=found,
        kernel=kernels.starting(root, installed, entries), kernels=installed, entries=entries,
        mounts=mounts.parse_fstab(root.text("/etc/fstab")), units=started, masked=masked, default_target=target,
        disk=disk, identity=identity_text, notes=tuple(notes),
    )  # fmt: skip


def loader_entries(root: RootTree, boot_prefix: str, efi: str = "") -> tuple[LoaderEntry, ...]:
    """Return the entries of the loaders that are there; GRUB's file has the last word on which starts. `efi`: the
    folder of the EFI system partition, where systemd-boot has its entries."""
    environment: dict[str, str] = {}
    for path in _GRUBENV:
        environment |= loaders.parse_grubenv(root.text(path))
    for path in _GRUB:
        if found := loaders.parse_grub(root.text(path), path, environment, boot_prefix):
            return tuple(found)
    if found := loaders.parse_bls(_bls_files(root, "/boot"), environment, boot_prefix):
        return tuple(found)
    return tuple(loaders.parse_bls(_bls_files(root, efi), environment, efi)) if efi else ()


def _bls_files(root: RootTree, top: str) -> dict[str, str]:
    """Return the texts of the entries below a folder, by path."""
    folder = f"{top}{_BLS}"
    return {
        f"{folder}/{name}": root.text(f"{folder}/{name}")
        for name, node in sorted(root.names(folder).items())[: loaders.MOST_ENTRIES]
        if name.endswith(".conf") and node.kind is NodeKind.FILE
    }


def processor_of(root: RootTree, program: str, reference: str) -> str:
    """Return the architecture that a program is for, by its name; that of its interpreter for a script.

    Raises UserInputError for one that nothing is known of."""
    path = program
    for _ in range(_INTERPRETERS):
        head = root.begin(path, _HEAD_BYTES)
        if head.startswith(b"#!"):
            words = head[2:].split(b"\n", 1)[0].split()
            path = root.resolve(words[0].decode("utf-8", "replace")) if words else ""
            continue
        try:
            found = identity(head)
        except NoElf:
            break
        row = next((one for one in every() if one.runs_whole(found.machine, found.bits, found.little)), None)
        if row is None:
            raise UserInputError(
                f"{reference} is a system for {_machine_name(found.machine, found.bits, found.little)}",
                hint=f"systems that can be booted are for {', '.join(one.title for one in every())}",
            )
        return row.name
    raise UserInputError(
        f"{reference}: {plain(program)[:200]} is not a program that a kernel could start as its init",
        hint="a script needs an interpreter that is there; name another init with --init",
    )


def _machine_name(number: int, bits: int, little: bool) -> str:
    from elftools.elf.enums import ENUM_E_MACHINE  # late: the library takes 50 ms

    name = next((key for key, value in ENUM_E_MACHINE.items() if value == number and key.startswith("EM_")), "")
    order = "" if little else ", big-endian"
    return f"{name.removeprefix('EM_') or f'ELF machine {number}'}, {bits} bits{order}"
