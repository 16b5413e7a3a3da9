# SPDX-License-Identifier: Apache-2.0
"""Take the fingerprint of this host's tools: vmtailor, compiler and linker, makers of file systems, the emulator with
its firmware, our native parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from vmtailor import __version__
from vmtailor.base import natives
from vmtailor.base.errors import HostError
from vmtailor.base.files import own_code
from vmtailor.base.files.digests import sha256_of
from vmtailor.base.natives import Natives
from vmtailor.drivers.kernel import make
from vmtailor.drivers.monitors import monitors
from vmtailor.drivers.rootfs import rootfs
from vmtailor.model.architecture import Architecture, of_host
from vmtailor.model.host_fingerprint import ABSENT, Fingerprint
from vmtailor.model.plan import ImageRoot, RootFormat

#: Letters of a digest that are shown: enough to tell two apart.
_SHOWN = 16


def fingerprint(parts: Natives | None = None) -> Fingerprint:
    """Return the fingerprint of this host, for machines of its own processor. The tools are asked each time: another
    version may have been installed since. `parts`: the native parts; by default those of this installation.

    A tool that is missing is said to be. Raises HostError where the native parts cannot be made."""
    own = of_host()
    parts = parts or natives.locate()
    return Fingerprint(own.name, tuple(_tools(own, parts)))


def _tools(own: Architecture, parts: Natives) -> Iterator[tuple[str, str]]:
    toolchain = make.Toolchain.of(own)
    yield "vmtailor", f"{__version__} ({own_code.digest_of_all()[:_SHOWN]})"
    yield "compiler and linker", _said(toolchain.describe)
    yield "ccache", "used" if toolchain.ccache else "not used"
    for form in ImageRoot:
        yield f"maker of {form}", _said(partial(rootfs.identity, RootFormat(form)))
    yield from _emulator(own, parts)
    for path in _native_files(parts):
        yield f"native {path.name}", sha256_of(path)[:_SHOWN]


def _emulator(own: Architecture, parts: Natives) -> Iterator[tuple[str, str]]:
    """Yield the emulator's version, then its files by their content: our plugin, and the firmware that guests run."""
    monitor = monitors.usual()
    try:
        identity = monitor.identity(own.name, parts)
    except HostError:
        identity = (ABSENT,)
    for one in identity:
        if isinstance(one, Path):
            yield f"{monitor.row.title} {one.name}", sha256_of(one)[:_SHOWN]
        else:
            yield monitor.row.title, one


def _said(ask: Callable[[], str]) -> str:
    try:
        return ask()
    except HostError:
        return ABSENT


def _native_files(parts: Natives) -> Iterator[Path]:
    """Yield what runs in guests and counts them, by name. The programs around a machine change no result."""
    yield from (parts.init, parts.stage1, parts.client, parts.load_client, parts.builtin, parts.attendant)
    yield from (parts.sampler, parts.collector, parts.small_init)
