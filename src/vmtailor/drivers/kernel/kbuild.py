# SPDX-License-Identifier: Apache-2.0
"""The kernel's own make: configure exactly as asked, compile the same bytes everywhere, say how far it has come.

Everything happens in a build folder (`O=`); the source is never written to. A build folder may be used again with
another configuration, and then only what that changes is compiled; an interrupted compile goes on where it stopped.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vmtailor.base import process
from vmtailor.base.cache.store import cache_root, disk_full_is_a_host_error
from vmtailor.base.errors import BuildError, HostError, UserInputError
from vmtailor.base.files import dot_config, records
from vmtailor.base.progress import ProgressStep, step
from vmtailor.base.words import figures
from vmtailor.drivers.kernel.compile_time import HEADERS, Remaining
from vmtailor.drivers.kernel.lost import lost
from vmtailor.model.architecture import Architecture
from vmtailor.model.kernel import Configured, LostSymbol

#: Seconds a whole compile may take; a distribution's configuration on two slow cores takes hours.
COMPILE_TIMEOUT_S = 6 * 3600.0
#: Under which make and ccache work: build folders are in the cache, which is its owner's alone.
UMASK = 0o077

#: Beside the build folders: [symbols set, objects in the folder] of finished builds.
_SEEN_OBJECTS = ".objects-in-folder.json"
_ASKED = re.compile(rb"include/config/(\w+)\)")
_ERROR = re.compile(
    r"(: (fatal )?error: |^make(\[\d+\])?: \*\*\* |undefined reference|: Error: |No space left on device)"
)


@dataclass(frozen=True)
class Toolchain:
    """What compiles. `arch`: make's ARCH. `cc` is used through ccache where there is one; `cross` is a prefix
    (`NAME-linux-gnu-`). `debug`: with debug information, which changes no instruction and no address."""

    arch: str
    cc: str = "gcc"
    cross: str = ""
    ccache: bool = field(default_factory=lambda: shutil.which("ccache") is not None)
    debug: bool = False

    @classmethod
    def of(cls, row: Architecture, *, debug: bool = False) -> Toolchain:
        """What compiles for an architecture on this host."""
        return cls(row.kernel.arch, cross="" if row.is_host else row.kernel.cross, debug=debug)

    def variables(self) -> list[str]:
        """The words for make."""
        prefix = "ccache " if self.ccache else ""
        words = [f"ARCH={self.arch}", f"CC={prefix}{self.cross}{self.cc}", f"HOSTCC={prefix}gcc"]
        words += [f"CROSS_COMPILE={self.cross}"] if self.cross else []
        return [*words, "KCFLAGS=-g", "KAFLAGS=-g"] if self.debug else words

    def describe(self) -> str:
        """Name and version of compiler and linker, as they say themselves. Raises HostError when there is none."""
        return ", ".join(
            process.run(
                [process.require_tool(self.cross + name, package), "--version"], timeout_s=30
            ).text.splitlines()[0]
            for name, package in ((self.cc, "gcc"), ("ld", "binutils"))
        )


def environment() -> dict[str, str]:
    """What make and ccache see: a fixed date, user, host and build number, so that equal inputs give equal bytes."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR", "XDG_CACHE_HOME") if name in os.environ}
    return kept | {
        "LC_ALL": "C",
        "KBUILD_BUILD_TIMESTAMP": "Thu Jan  1 00:00:00 UTC 2026",
        "KBUILD_BUILD_USER": "vmtailor",
        "KBUILD_BUILD_HOST": "vmtailor",
        "KBUILD_BUILD_VERSION": "1",
        "SOURCE_DATE_EPOCH": "1767225600",
        "CCACHE_DIR": str(cache_root() / "ccache"),
        # Build folders beside each other share results: the source's path is the same for all, the folder's own is not
        # hashed. No CCACHE_BASEDIR: it would make the source's path relative before the compiler sees it, so that the
        # kernel's -fmacro-prefix-map no longer matches, and paths end up in the kernel.
        "CCACHE_NOHASHDIR": "1",
        # vmtailor's own object files are never older than their sources; their times need no second look.
        "CCACHE_SLOPPINESS": "time_macros,include_file_mtime,include_file_ctime",
        "CCACHE_MAXSIZE": "5G",
        "CCACHE_UMASK": f"{UMASK:03o}",
    }


def make_argv(source: Path, build_dir: Path, toolchain: Toolchain, targets: Sequence[str], jobs: int = 1) -> list[str]:
    """The command line of make."""
    return ["make", "-C", str(source), f"O={build_dir}", f"-j{jobs}", *toolchain.variables(), *targets]


def configure(source: Path, build_dir: Path, fragment: Iterable[tuple[str, str]], toolchain: Toolchain) -> Configured:
    """`allnoconfig` plus `fragment` (names without CONFIG_; y, m, n, numbers, strings) resolved in `build_dir`.

    `lost` in the result lists what did not resolve as asked; nothing is compiled before it is empty (`compile_kernel`).
    Raises BuildError when kconfig itself fails.
    """
    wanted = dict(fragment)
    wanted_file = build_dir / "wanted.config"
    records.write_atomic(wanted_file, dot_config.render(wanted).encode(), private=True)
    env = environment() | {"KCONFIG_ALLCONFIG": str(wanted_file)}
    symbols = _resolve(source, build_dir, "allnoconfig", toolchain, env)
    return _configured(source, build_dir, symbols, lost(wanted, symbols))


def configure_file(source: Path, build_dir: Path, config_file: Path, toolchain: Toolchain) -> Configured:
    """A complete .config from elsewhere, brought up to this source by `olddefconfig`. Losses are not counted: such a
    file names symbols of another version."""
    try:
        text = config_file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserInputError(f"the configuration {config_file} cannot be read: {error}") from error
    records.write_atomic(build_dir / ".config", text.encode(), private=True)
    symbols = _resolve(source, build_dir, "olddefconfig", toolchain, environment())
    return _configured(source, build_dir, symbols, ())


def _resolve(
    source: Path, build_dir: Path, target: str, toolchain: Toolchain, env: Mapping[str, str]
) -> dict[str, str]:
    _require_toolchain(toolchain)
    try:
        process.run(make_argv(source, build_dir, toolchain, [target]), timeout_s=900, env=env, umask=UMASK)
    except process.CommandFailed as error:
        raise BuildError(
            "the kernel's own configuration step failed",
            hint="vmtailor doctor lists what a kernel build needs (flex, bison, gcc, make)",
            details=error.details,
        ) from error
    return dot_config.parse((build_dir / ".config").read_text("utf-8"))


def _configured(source: Path, build_dir: Path, symbols: Mapping[str, str], lost: tuple[LostSymbol, ...]) -> Configured:
    kept = tuple((name, value) for name, value in symbols.items() if value != "n")
    return Configured(str(build_dir), str(source), str(build_dir / ".config"), kept, lost)


def compile_kernel(
    configured: Configured,
    targets: Sequence[str],
    toolchain: Toolchain,
    title: str = "compiling the kernel",
    sources: Iterable[str] = (),
) -> CompiledKernel:
    """Compile the targets (`vmlinux`, `modules`) of a configured folder. `sources`: the files that the configuration
    compiles, without their endings, as far as the caller knows them: by these the time left is told.

    Raises BuildError for lost symbols and for compile errors, whose lines are in `details`.
    """
    if configured.lost:
        raise BuildError(
            "the configuration did not resolve as requested: "
            + ", ".join(f"{one.name}={one.wanted} became {one.got}" for one in configured.lost)
        )
    build_dir = Path(configured.build_dir)
    jobs = len(os.sched_getaffinity(0))
    argv = make_argv(Path(configured.source_dir), build_dir, toolchain, targets, jobs)
    stale = _stale(build_dir, dict(configured.symbols))
    expected = _expected_objects(build_dir, configured.total_y) - _objects_in(build_dir) + len(stale)
    progress = Remaining(_weights(Path(configured.source_dir), build_dir, sources, stale), expected)
    started = time.monotonic()
    with step(title) as shown, disk_full_is_a_host_error(build_dir):
        try:
            process.run(
                argv,
                timeout_s=COMPILE_TIMEOUT_S,
                env=environment(),
                umask=UMASK,
                on_line=lambda line: _show(progress, line, time.monotonic() - started, shown),
            )
        except process.CommandFailed as error:
            raise _compile_error(error) from error
    seconds = time.monotonic() - started
    _remember_objects(build_dir, configured.total_y, _objects_in(build_dir))
    return CompiledKernel(build_dir, progress.done, seconds, toolchain.describe())


@dataclass(frozen=True)
class CompiledKernel:
    """What a compile did. The files are where the kernel's make puts them, below `build_dir`."""

    build_dir: Path
    objects: int
    seconds: float
    compiler: str

    @property
    def vmlinux(self) -> Path:
        return self.build_dir / "vmlinux"

    @property
    def system_map(self) -> Path:
        return self.build_dir / "System.map"


def release(source: Path, build_dir: Path, toolchain: Toolchain) -> str:
    """What `uname -r` will say of the kernel in this folder."""
    name = build_dir / "include/config/kernel.release"
    if name.exists():
        return name.read_text().strip()
    argv = make_argv(source, build_dir, toolchain, ["-s", "kernelrelease"])
    return process.run(argv, timeout_s=300, env=environment()).text.strip()


def _show(progress: Remaining, line: str, now_s: float, shown: ProgressStep) -> None:
    """Take a line of make into account. Where more is compiled than was expected no time is promised."""
    if not progress.see(line, now_s):
        return
    if progress.done > progress.expected:
        shown.update(99.0, 100.0, f"{progress.done} objects, more than the {progress.expected} expected")
        return
    left = progress.seconds_left
    time_left = f", about {figures.seconds(round(left))} left" if left is not None else ""
    shown.update(99.0 * progress.share, 100.0, f"{progress.done} of about {progress.expected} objects{time_left}")


def _weights(source: Path, build_dir: Path, names: Iterable[str], stale: Collection[str]) -> dict[str, float]:
    """What each object weighs that make will compile: those that are there and not stale are not."""
    found: dict[str, float] = {}
    for name in names:
        if name in stale or not (build_dir / f"{name}.o").exists():
            size = _size(source / f"{name}.c") or _size(source / f"{name}.S")
            if size:
                found[name] = size + HEADERS
    return found


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _objects_in(build_dir: Path) -> int:
    """How many objects make has left in the folder."""
    return sum(1 for _, _, names in os.walk(build_dir) for name in names if name.endswith(".o"))


def _stale(build_dir: Path, symbols: Mapping[str, str]) -> set[str]:
    """The objects of an earlier build that depend on a symbol whose value is another one now, without their endings:
    each object's `.cmd` file names the symbols that its sources ask for."""
    try:
        before = dot_config.parse((build_dir / "include/config/auto.conf").read_text())
    except OSError:
        return set()
    names = {name for name in before.keys() | symbols.keys() if before.get(name, "n") != symbols.get(name, "n")}
    changed = {name.encode() for name in names}
    stale = set()
    for folder, _, files in os.walk(build_dir):
        for name in files:
            if name.endswith(".o.cmd"):
                path = Path(folder, name)
                if not changed.isdisjoint(_ASKED.findall(path.read_bytes())):
                    stale.add(str(path.parent.relative_to(build_dir) / name[1:].removesuffix(".o.cmd")))
    return stale


def _expected_objects(build_dir: Path, total_y: int) -> int:
    try:
        seen = json.loads((build_dir.parent / _SEEN_OBJECTS).read_text())
        nearest = min(seen, key=lambda pair: abs(pair[0] - total_y))
        return max(1, int(nearest[1] * (total_y / nearest[0])))
    except (OSError, ValueError, LookupError, TypeError, ZeroDivisionError):
        # Folders of allnoconfig with 520 symbols hold 830 to 1,200 objects, with 1,335 symbols 2,600.
        return max(1, int(2 * total_y))


def _remember_objects(build_dir: Path, total_y: int, objects: int) -> None:
    path = build_dir.parent / _SEEN_OBJECTS
    try:
        seen = [pair for pair in json.loads(path.read_text()) if pair[0] != total_y]
    except (OSError, ValueError, LookupError, TypeError):
        seen = []
    records.write_atomic(path, json.dumps([*seen, [total_y, objects]][-50:]).encode(), private=True)


def _compile_error(error: process.CommandFailed) -> BuildError | HostError:
    output = error.finished.error_text + "\n" + error.finished.text
    lines = [line for line in output.splitlines() if _ERROR.search(line)]
    if any("No space left on device" in line for line in lines):
        return HostError("no space is left for the kernel build", hint="free some, or set XDG_CACHE_HOME elsewhere")
    return BuildError(
        "the kernel does not compile in this configuration",
        hint="the lines below are the compiler's; the build folder is kept",
        details="\n".join(lines[:12]) or output[-2000:],
    )


def _require_toolchain(toolchain: Toolchain) -> None:
    for tool, package in (("make", "make"), ("flex", "flex"), ("bison", "bison"), ("bc", "bc"), ("ld", "binutils")):
        process.require_tool(tool, package)
    process.require_tool(toolchain.cross + toolchain.cc, "gcc")
