# SPDX-License-Identifier: Apache-2.0
"""The attendant's disk: a shell of ours that drives a system with an init of its own, and is no part of it
(native/attendant). The kernel is told to start from it; it mounts the system's root, and becomes the system's init."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vmtailor.base.natives import Natives
from vmtailor.drivers.guest.guest_volume import exercise_records, records
from vmtailor.drivers.rootfs import xfs_volume
from vmtailor.drivers.rootfs.rootfs import Extra, ExtraKind, build
from vmtailor.model.boots.system_exercise import ASKED, Saying, SystemExercise, SystemReadyKind
from vmtailor.model.plan import RootFormat
from vmtailor.model.systems.units import PROPERTIES

#: The program on the disk that the kernel starts.
PROGRAM = "/attendant"
#: Folders to which the system's own initial RAM disk moves its mounts, and on which it mounts the root.
_FOLDERS = ("dev", "proc", "sys", "run", "root")


@dataclass(frozen=True)
class SystemRoot:
    """The place of a system in its machine, as the kernel would mount it without us. `init`: what is started there."""

    device: str
    type: str = "ext4"
    writable: bool = False
    init: str = "/sbin/init"


#: Commands for systemd's units, and for errors and warnings in its log. Other inits have no such commands,
#: and send nothing.
FAILED_UNITS = Saying("failed-units", ("systemctl", "--failed", "--plain", "--no-legend", "--no-pager", "--full"))
ERRORS = Saying("errors", ("journalctl", "--boot", "--priority=err", "--no-pager", "--output=cat", "--lines=2000"))
WARNINGS = replace(ERRORS, name="warnings", argv=(*ERRORS.argv[:2], "--priority=warning", *ERRORS.argv[3:]))
#: All of its units, with what each needs.
UNITS = Saying("units", ("systemctl", "show", "--no-pager", f"--property={','.join(PROPERTIES)}", "*"))
#: The modules that are loaded, and where they lie.
MODULES = Saying("modules", ("cat", "/proc/modules"))
#: Reports that every run of an exercise is asked for.
USUAL = (FAILED_UNITS, ERRORS, WARNINGS, UNITS)
#: Bytes of what one command says that are sent; the rest is cut off.
MOST_SAID = 256 << 10


def write(
    out: Path,
    natives: Natives,
    root: SystemRoot,
    exercise: SystemExercise,
    key: bytes,
    sayings: Sequence[Saying] = USUAL,
    sample_ms: int = 0,
) -> None:
    """Write the disk, with the file system that the system's own root asks of the kernel anyway: ext4 or XFS. Readable
    by its owner only, since the key is in it. `sayings`: asked before those of the exercise. `sample_ms`: between two
    samples of the system's figures; 0 for none. Raises HostError where a tool is missing."""
    asked = (replace(one, name=f"{ASKED}{one.name}") for one in exercise.says)
    entries = [
        *(Extra(name, ExtraKind.DIRECTORY, mode=0o755) for name in _FOLDERS),
        Extra("attendant", data=natives.attendant, mode=0o755),
        Extra("client", data=natives.client, mode=0o755),
        Extra("system", data=f"{root.device} {root.type} {'rw' if root.writable else 'ro'} {root.init}\n".encode()),
        Extra("config", data=config_bytes(exercise, key, sample_ms), mode=0o600),
        Extra("reports", data=_reports((*sayings, *asked))),
    ]
    if sample_ms:
        entries.append(Extra("sampler", data=natives.sampler, mode=0o755))
    if root.type == RootFormat.XFS:
        xfs_volume.write(out, entries)
    else:
        build(None, out, RootFormat.EXT4, entries)
    out.chmod(0o600)


def config_bytes(exercise: SystemExercise, key: bytes, sample_ms: int = 0) -> bytes:
    """Return what the attendant is told. Raises UserInputError for a NUL in a word."""
    pairs = [("key", key.hex())]
    pairs += [("arg", word) for word in exercise.stop]
    if exercise.host_steps or exercise.ready.kind is SystemReadyKind.LOG:
        pairs.append(("hold", "1"))
    if sample_ms:
        pairs.append(("sample-ms", str(sample_ms)))
    return records([*pairs, *_patient(exercise_records(exercise.inside()), exercise.step_timeout_s)])


def _patient(pairs: Iterable[tuple[str, str]], timeout_s: float) -> Iterable[tuple[str, str]]:
    """Yield steps with the time that each has."""
    for key, value in pairs:
        yield key, value
        if key in ("ready", "step"):
            yield ".timeout-ms", str(round(timeout_s * 1000))


def _reports(sayings: Sequence[Saying]) -> bytes:
    out = bytearray()
    for one in sayings:
        out += f"name {one.name}\0".encode()
        for word in one.argv:
            out += f"arg {word}\0".encode()
        if one.errors:
            out += b"errors\0"
    return bytes(out)
