# SPDX-License-Identifier: Apache-2.0
"""Files of a machine, handed to a QEMU that may open next to nothing itself.

Disks and the plugin's output are opened by us and inherited. What QEMU insists on opening by a name (kernel, initial
RAM disk, firmware, plugin) is copied: into its own root directory, or into memory where it has none. A QEMU that is not
shut in gets the names as they are."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from vmtailor.base.errors import HostError, UserInputError
from vmtailor.base.files import temporary
from vmtailor.drivers.confinement import confinement
from vmtailor.drivers.confinement.confinement import Confinement, Root
from vmtailor.drivers.host import tap
from vmtailor.drivers.monitors.supervised_start import FIRST_FILE, MEMORY, RUN_VOLUME, FileHandover, ProgramFile
from vmtailor.drivers.qemu import descriptor_sets, qemu_program
from vmtailor.drivers.qemu.plugin import Plugin
from vmtailor.drivers.qemu.qemu_program import Qemu
from vmtailor.drivers.shares import file_servers
from vmtailor.model.guest_mounts import MountKind, Share

#: Devices that QEMU opens in any machine.
_DEVICES = ("/dev/null", "/dev/urandom")
_KVM = "/dev/kvm"
#: Folder of the copies in QEMU's own root.
_FOLDER = "/machine"
#: Folder of what QEMU itself shares with its guest.
_SHARED = "/shared"
#: Folder of QEMU's temporary files.
_OVERLAYS = "/var/tmp"
#: Names the resolver for the guest's network.
_RESOLVER = Path("/etc/resolv.conf")
#: QEMU's own threads, which the plugin watches (native/tcg-plugin/settle.c); the launcher becomes QEMU.
_THREADS = "/proc/self/task"
#: Names the library that the dynamic linker loads first.
_PRELOAD = "LD_PRELOAD"
_READ_WRITE = os.O_RDWR | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_CLOEXEC


@dataclass(frozen=True)
class Wanted:
    """The needs of a machine on the host. `named`: files that QEMU opens by name: what it is called there → its path.
    `disks`: path → whether it is written. `overlays`: disks are written into temporary files. `low_ports`: it binds
    ports below 1024. `tap`: a TAP device that is its network. `variables`: of its environment, besides what every QEMU
    sees; a library that it is to load first (LD_PRELOAD) is a file that it opens by name. `shares`: of the host's
    files, by servers that start before it."""

    named: Mapping[str, str] = field(default_factory=dict)
    disks: Mapping[str, bool] = field(default_factory=dict)
    plugin: Plugin | None = None
    overlays: bool = False
    kvm: bool = False
    outbound: bool = False
    low_ports: bool = False
    tap: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    shares: tuple[Share, ...] = ()

    @property
    def files(self) -> tuple[str, ...]:
        """Return what must be there before anything starts."""
        return (*self.named.values(), *self.disks)


@dataclass
class Handed:
    """The files as QEMU gets them, and the words of its launcher. `names`: path → what QEMU calls it, where that is not
    the same. `sets`: descriptors and the numbers of QEMU's descriptor sets that they are in; `descriptors`: all that
    are inherited, that of `tap` too. `servers`: the words before the launcher that start file servers; `shares`: the
    descriptors by which they are reached, each with its tag. `folders`: places of what QEMU serves itself, each with
    its tag."""

    launcher: list[str]
    environment: dict[str, str]
    names: dict[str, str] = field(default_factory=dict)
    sets: list[tuple[int, int]] = field(default_factory=list)
    descriptors: list[int] = field(default_factory=list)
    tap: int | None = None
    servers: list[str] = field(default_factory=list)
    shares: list[tuple[int, str]] = field(default_factory=list)
    folders: list[tuple[str, str]] = field(default_factory=list)
    _overlays: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def argv(self, command: list[str]) -> list[str]:
        """Return the command as it is started."""
        return [*self.servers, *self.launcher, "--", *command]

    def give(self, path: str, name: str, *descriptors: int) -> None:
        """Let QEMU inherit a file's descriptors, and call the file by a name."""
        self.names[path] = name
        self.descriptors += descriptors

    def settled(self) -> None:
        """Remove the place for temporary files: QEMU runs, and has opened what it needs."""
        self._overlays.close()


@contextlib.contextmanager
def handed(wanted: Wanted, qemu: Qemu, how: Confinement | None = None) -> Iterator[Handed]:
    """Open and name everything. Raises UserInputError when a file cannot be opened."""
    how = how or confinement.of(qemu)
    launcher = [str(confinement.launcher()), "parent", str(os.getpid()), *how.words]
    made = Handed(launcher, {**qemu_program.environment(), **wanted.variables})
    with contextlib.ExitStack() as stack:
        stack.callback(made.settled)
        if wanted.tap:
            made.tap = tap.opened(wanted.tap)
            stack.callback(os.close, made.tap)
            made.descriptors.append(made.tap)
        _give_all(made, _Opened(stack), wanted, qemu, how)
        if wanted.plugin is not None and not how.by_path:
            _give_plugin(made, stack, how, wanted.plugin)
        if wanted.shares:
            _give_shares(made, _Opened(stack), wanted.shares, how)
        yield made


def listed(wanted: Wanted, qemu: Qemu) -> tuple[Handed, tuple[ProgramFile, ...]]:
    """Name everything for a supervisor, which opens it: return what QEMU gets, and the files. The launcher's words are
    without those about its parent."""
    how = confinement.of(qemu)
    made = Handed([str(confinement.launcher()), *how.words], {**qemu_program.environment(), **wanted.variables})
    if wanted.tap:
        made.tap = tap.opened(wanted.tap)
        made.descriptors.append(made.tap)
    files = _Listed()
    if wanted.shares:
        _give_shares(made, files, wanted.shares, how)
    if made.servers:
        # The supervisor tells the servers' starter of their parent, which tells the launcher.
        made.servers = [made.servers[0], *made.servers[3:]]
        made.launcher[1:1] = ["parent", "0"]
    _give_all(made, files, wanted, qemu, how)
    if how.by_path:
        # QEMU opens them itself; the supervisor only looks whether those that are only read are what they were.
        read = (path for path in wanted.files if not wanted.disks.get(path))
        files.found += [ProgramFile(-1, FileHandover.READ, path) for path in read]
        made.names[RUN_VOLUME] = f"/proc/self/fd/{MEMORY}"
    return made, tuple(files.found)


class _Source(Protocol):
    """Gives the descriptors that QEMU inherits."""

    def open(self, path: str, flags: int) -> int:
        """Return the descriptor of a file."""

    def copy(self, path: str) -> int:
        """Return the descriptor of a copy that whoever inherits it may open again."""


class _Opened:
    """Opens files in this process, until the stack is left."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self._stack = stack

    def open(self, path: str, flags: int) -> int:
        return _open(self._stack, path, flags)

    def copy(self, path: str) -> int:
        return _in_memory(self._stack, _open(self._stack, path, _READ))


class _Listed:
    """Numbers files that a supervisor opens."""

    def __init__(self) -> None:
        self.found: list[ProgramFile] = []

    def open(self, path: str, flags: int) -> int:
        if path == RUN_VOLUME:
            return MEMORY if flags == _READ_WRITE else MEMORY + 1
        return self._add(FileHandover.WRITE if flags == _READ_WRITE else FileHandover.READ, path)

    def copy(self, path: str) -> int:
        return self._add(FileHandover.COPY, path)

    def _add(self, use: FileHandover, path: str) -> int:
        self.found.append(ProgramFile(FIRST_FILE + len(self.found), use, path))
        return self.found[-1].number


def _give_all(made: Handed, source: _Source, wanted: Wanted, qemu: Qemu, how: Confinement) -> None:
    if not how.by_path:
        _give_rights(made, wanted, how)
        for called, path in wanted.named.items():
            _give_copy(made, source, how, called, path)
        for path, written in wanted.disks.items():
            _give_disk(made, source, path, written)
        if library := wanted.variables.get(_PRELOAD):
            _give_copy(made, source, how, "preloaded.so", library)
            made.environment[_PRELOAD] = made.names[library]
        if wanted.overlays:
            _give_place(made, how)
    if how.root is not Root.SHARED:
        _show_host(made, wanted, qemu)


def _give_rights(made: Handed, wanted: Wanted, how: Confinement) -> None:
    if not how.stranger:
        return
    if wanted.low_ports:
        made.launcher.append("low-ports")
    if wanted.kvm:
        with contextlib.suppress(OSError):
            device = Path(_KVM).stat()
            if device.st_gid != 0 and device.st_mode & 0o060 == 0o060:
                made.launcher += ["group", str(device.st_gid)]


def _show_host(made: Handed, wanted: Wanted, qemu: Qemu) -> None:
    for path in qemu.needs or ():
        made.launcher += ["show", path]
    for device in (*_DEVICES, *((_KVM,) if wanted.kvm else ())):
        if Path(device).exists():
            made.launcher += ["device", device]
    if wanted.outbound and _RESOLVER.is_file():
        made.launcher += ["show", str(_RESOLVER)]
    if wanted.plugin is not None:
        made.launcher += ["show", _THREADS]


def _open(stack: contextlib.ExitStack, path: str, flags: int) -> int:
    try:
        number = os.open(path, flags, 0o600)
    except OSError as error:
        raise UserInputError(
            f"{path} cannot be opened: {os.strerror(error.errno or 0).lower()}",
            hint="the machine cannot be booted without it",
        ) from error
    stack.callback(os.close, number)
    return number


def _give_disk(made: Handed, source: _Source, path: str, written: bool) -> None:
    """Give a descriptor set, from which QEMU takes the files that it asks for. A writable disk is first opened for
    reading, too."""
    opened = [source.open(path, flags) for flags in ((_READ, _READ_WRITE) if written else (_READ,))]
    made.sets += [(number, opened[0]) for number in opened]
    made.give(path, descriptor_sets.path(opened[0]), *opened)


def _give_copy(made: Handed, source: _Source, how: Confinement, called: str, path: str) -> None:
    if how.root is Root.SHARED:
        number = source.copy(path)
        name = f"/proc/self/fd/{number}"
    else:
        number = source.open(path, _READ)
        name = f"{_FOLDER}/{called}"
        made.launcher += ["copy", str(number), name]
    made.give(path, name, number)


def _in_memory(stack: contextlib.ExitStack, source: int) -> int:
    """Return a copy that whoever inherits it may open again."""
    number = os.memfd_create("vmtailor")
    stack.callback(os.close, number)
    os.fchmod(number, 0o555)
    while os.sendfile(number, source, None, 1 << 30):  # None: from where it stands
        pass
    return number


def _give_plugin(made: Handed, stack: contextlib.ExitStack, how: Confinement, plugin: Plugin) -> None:
    source = _Opened(stack)
    _give_copy(made, source, how, "plugin.so", str(plugin.library))
    _give_copy(made, source, how, "plugin.conf", str(plugin.config))
    if plugin.functions is not None:
        _give_copy(made, source, how, "plugin.functions", str(plugin.functions))
    number = _open(stack, str(plugin.out), _READ_WRITE | os.O_CREAT | os.O_TRUNC)
    stack.callback(_unlink_if_empty, plugin.out)
    made.give(str(plugin.out), f"fd:{number}", number)


def _give_shares(made: Handed, source: _Source, shares: tuple[Share, ...], how: Confinement) -> None:
    """Have a server started for each share, or have QEMU serve it. A server's connection takes the place of a
    descriptor that leads nowhere. Raises HostError for a QEMU that would see more than it serves."""
    own = [share for share in shares if share.by is MountKind.FOLDER_9P]
    served = [share for share in shares if share not in own]
    if served:
        numbers = [source.open(os.devnull, _READ) for _ in served]
        made.servers = file_servers.words(served, numbers)
        made.descriptors += numbers
        made.shares = [(number, share.tag) for number, share in zip(numbers, served, strict=True)]
    if own and how.root is Root.SHARED:
        raise HostError(
            f"QEMU cannot be shut in with the folders that it serves: {', '.join(how.lacking) or 'no namespaces'}",
            hint="install virtiofsd and fit the image with --keep folders, or run without -v",
        )
    if own:
        # What it exports is a folder, in which a file alone lies.
        made.folders = [(f"{_SHARED}/{share.tag}", share.tag) for share in own]
        places = [
            f"{place}/file" if share.single_file else place
            for (place, _), share in zip(made.folders, own, strict=True)
        ]  # fmt: skip
        made.launcher += file_servers.in_monitor(own, places)


def _unlink_if_empty(path: Path) -> None:
    """Remove the file of a QEMU that wrote nothing."""
    with contextlib.suppress(FileNotFoundError):
        if path.stat().st_size == 0:
            path.unlink()


def _give_place(made: Handed, how: Confinement) -> None:
    """Give a folder on a disk for temporary files: the user's choice, or QEMU's own default."""
    chosen = Path(os.environ.get("TMPDIR") or _OVERLAYS)
    if chosen == Path("/tmp"):  # often in memory: QEMU does not take it either
        chosen = Path(_OVERLAYS)
    where = chosen if chosen.is_dir() else Path(tempfile.gettempdir())
    folder = made._overlays.enter_context(temporary.held_folder(where.absolute())) / "overlays"
    folder.mkdir(mode=stat.S_IRWXU)
    if how.root is Root.SHARED:
        made.launcher += ["work", str(folder)]
        made.environment["TMPDIR"] = "."
    else:
        made.launcher += ["place", str(folder), _OVERLAYS]
        made.environment["TMPDIR"] = _OVERLAYS
