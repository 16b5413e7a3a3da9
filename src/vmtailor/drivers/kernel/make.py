# SPDX-License-Identifier: Apache-2.0
"""The kernel's own make: configure exactly as asked, compile the same bytes everywhere, tell the progress."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vmtailor.base import figures, process, processor_times
from vmtailor.base.cache.store import cache_root
from vmtailor.base.disk_full import disk_full_is_a_host_error, no_space, says_full
from vmtailor.base.errors import BuildError, HostError, UserInputError
from vmtailor.base.files import dot_config
from vmtailor.base.files.regular_files import write_atomic
from vmtailor.base.progress import ProgressStep, step
from vmtailor.model.architecture import Architecture
from vmtailor.model.kernel import Configured, LostSymbol


def lost(wanted: Mapping[str, str], resolved: Mapping[str, str]) -> tuple[LostSymbol, ...]:
    """Return the symbols that did not resolve as requested, in the order requested. A symbol that .config does not name
    is `n`. A symbol asked for as a module and built in, because another one selects it, is not lost."""
    return tuple(
        LostSymbol(name, value, resolved.get(name, "n"))
        for name, value in wanted.items()
        if not _same(value, resolved.get(name, "n"))
    )


def _same(one: str, other: str) -> bool:
    if one == other or (one, other) == ("m", "y"):
        return True
    try:
        return int(one, 0) == int(other, 0)
    except ValueError:
        # An empty string and a string symbol that is out of sight are the same to the code.
        return {one, other} == {"", "n"}


#: Weight of a compiler run beyond its source's size, in bytes of source: mostly headers.
HEADERS = 40_000
#: Lines that come so soon one after the other, in seconds, were for something that the compiler's cache had. It takes a
#: few: of two compilers that run at a time, both may end in one moment.
HIT_S, HIT_LINES = 0.15, 4
#: Objects that tell how much the cache has just now.
WINDOW = 30
#: Seconds before which nothing is promised.
FIRST_S = 10.0
#: Seconds after the last object, for linking, checking and packing.
LINK_S = 5.0
#: Seconds over which the processor time that is given just now is measured, and those between two looks.
SHARE_S, LOOK_S = 60.0, 5.0
#: Other work is believed to take no more than this: of ten seconds, nine.
MOST_SLOWER = 10.0

_OBJECT = re.compile(r"^  (?:CC|AS)(?: \[M\])? +(\S+)\.o$")
#: Lines of make for programs of the host, whose time belongs to none of the kernel's objects.
_HOST = re.compile(r"^  HOST(?:CC|LD) +(\S+)")


class Remaining:
    """Counts objects, and says how many are left. `weights`: object without its ending → weight, of all objects to
    come. Tools of the host take time, and are not among them. Without weights, `expected` objects are to come."""

    def __init__(self, weights: Mapping[str, float], expected: int = 0) -> None:
        self._weights = dict(weights)
        self._known = bool(weights)
        self.expected = max(1, len(weights) or expected)
        self._left = sum(weights.values()) if weights else float(self.expected * HEADERS)
        self._all = self._left
        self.done = 0
        self._started_s: float | None = None
        self._last_s = 0.0
        self._times: deque[float] = deque(maxlen=HIT_LINES)
        self._last = (0.0, False)  # weight of what is compiled just now, and whether it is among those to come
        self._seconds = {True: 0.0, False: 0.0}  # whether the cache had it → what that took
        self._weighed = {True: 0.0, False: 0.0}
        self._recent: deque[tuple[bool, float]] = deque(maxlen=WINDOW)
        self._given: deque[tuple[float, float]] = deque()  # seconds since the start, processor seconds given until then
        self._first_given: tuple[float, float] | None = None

    @property
    def share(self) -> float:
        """Return the share that is done, from 0 to 1."""
        return 1 - max(0.0, self._left) / self._all

    def see(self, line: str, now_s: float) -> bool:
        """Take a line of make into account, seen `now_s` seconds after the start; whether it was for an object that was
        to come. The line comes when a compiler starts: what came before is what took the time since."""
        match = _OBJECT.match(line) or _HOST.match(line)
        if match is None:
            return False
        counts = not match[0].startswith("  HOST") and (match[1] in self._weights or not self._known)
        weight = self._weights.pop(match[1], float(HEADERS))
        if self._started_s is None:
            self._started_s = now_s
        else:
            self._times.append(now_s - self._last_s)
            self._finish(now_s - self._last_s)
        self._last_s, self._last = now_s, (weight, counts)
        self.done += counts
        return counts

    def _finish(self, took_s: float) -> None:
        weight, counted = self._last
        hit = len(self._times) == HIT_LINES and sum(self._times) < HIT_LINES * HIT_S
        self._seconds[hit] += took_s
        self._weighed[hit] += weight
        if counted:
            self._recent.append((hit, weight))
            self._left -= weight

    def give(self, now_s: float, processor_s: float) -> None:
        """Take into account that the compilers had so much processor time by now: other work takes some of it away."""
        self._first_given = self._first_given or (now_s, processor_s)
        self._given.append((now_s, processor_s))
        while len(self._given) > 2 and now_s - self._given[1][0] >= SHARE_S:
            self._given.popleft()

    def _slower(self) -> float:
        """Return how much less processor time a second gives now than it gave on the whole: 2 is half of it."""
        if self._first_given is None or self._given[-1][0] - self._given[0][0] < SHARE_S / 2:
            return 1.0
        (last_s, last), (begin_s, begin), (first_s, first) = self._given[-1], self._given[0], self._first_given
        overall, now = (last - first) / (last_s - first_s), (last - begin) / (last_s - begin_s)
        return min(MOST_SLOWER, max(1 / MOST_SLOWER, overall / now)) if now > 0 and overall > 0 else 1.0

    @property
    def seconds_left(self) -> float | None:
        """Return the seconds that are left after the last line, or None while that cannot be told."""
        if self._started_s is None or self._last_s - self._started_s < FIRST_S or self._left <= 0 or not self._recent:
            return None
        hits = sum(weight for hit, weight in self._recent if hit) / sum(weight for _, weight in self._recent)
        pace = {hit: self._seconds[hit] / weight if weight else 0.0 for hit, weight in self._weighed.items()}
        return self._left * (hits * pace[True] + (1 - hits) * pace[False]) * self._slower() + LINK_S


#: Seconds a whole compile may take; a distribution's configuration on two slow cores takes hours.
COMPILE_TIMEOUT_S = 6 * 3600.0
#: The words for make in errors.
_BUILD = "the kernel build"
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
    """The compiler and its options. `arch`: make's ARCH. `cc` is used through ccache where there is one; `cross` is a
    prefix (`NAME-linux-gnu-`). `debug`: with debug information, which changes no instruction and no address.
    `packages`: those that compiler and linker are from, for hints. `flags`: given to the compiler after the kernel's
    own. `llvm`: the suffix of LLVM's programs (`-19`), which then make all of the kernel; empty for gcc and binutils.
    """

    arch: str
    cc: str = "gcc"
    cross: str = ""
    ccache: bool = field(default_factory=lambda: shutil.which("ccache") is not None)
    debug: bool = False
    packages: tuple[str, str] = ("gcc", "binutils")
    flags: tuple[str, ...] = ()
    llvm: str = ""

    @classmethod
    def of(cls, architecture: Architecture, *, debug: bool = False, flags: tuple[str, ...] = ()) -> Toolchain:
        """Return the toolchain for an architecture on this host. `CC=clang-VERSION` among the flags chooses LLVM's."""
        kernel = architecture.kernel
        if llvm := llvm_of(flags):
            flags = tuple(one for one in flags if not one.startswith(CLANG))
            packages = (f"clang{llvm}", f"lld{llvm}")
            return cls(kernel.arch, f"clang{llvm}", debug=debug, packages=packages, flags=flags, llvm=llvm)
        if architecture.is_host:
            return cls(kernel.arch, debug=debug, flags=flags)
        compiler, *more = kernel.cross_packages
        packages = (compiler, (more or [compiler])[0])
        return cls(kernel.arch, cross=kernel.cross, debug=debug, packages=packages, flags=flags)

    @property
    def programs(self) -> tuple[str, str]:
        """Return the names of the compiler and the linker."""
        return (self.cc, f"ld.lld{self.llvm}") if self.llvm else (self.cross + self.cc, self.cross + "ld")

    def variables(self) -> list[str]:
        """Return the words for make."""
        prefix = "ccache " if self.ccache else ""
        words = [f"ARCH={self.arch}", f"CC={prefix}{self.cross}{self.cc}", f"HOSTCC={prefix}gcc"]
        words += [f"CROSS_COMPILE={self.cross}"] if self.cross else []
        words += [f"LLVM={self.llvm}"] if self.llvm else []
        flags = [*(["-g"] if self.debug else []), *self.flags]
        words += [f"KCFLAGS={' '.join(flags)}"] if flags else []
        return [*words, "KAFLAGS=-g"] if self.debug else words

    def describe(self) -> str:
        """Return name and version of compiler and linker, as they print them. Raises HostError when there is none."""
        return ", ".join(
            process.run([process.require_tool(name, package), "--version"], timeout_s=30).text.splitlines()[0]
            for name, package in zip(self.programs, self.packages, strict=True)
        )


#: The word among a kernel's flags that chooses another compiler than gcc; its version follows.
CLANG = "CC=clang"


def llvm_of(flags: Iterable[str]) -> str:
    """Return the suffix of LLVM's programs (`-19`) that flags choose; empty where they choose none."""
    return next((flag.removeprefix(CLANG) for flag in flags if flag.startswith(CLANG)), "")


def environment() -> dict[str, str]:
    """Return the environment of make and ccache: a fixed date, user, host and build number, so that equal inputs give
    equal bytes."""
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
    """Return the command line of make."""
    return ["make", "-C", str(source), f"O={build_dir}", f"-j{jobs}", *toolchain.variables(), *targets]


def configure(source: Path, build_dir: Path, fragment: Iterable[tuple[str, str]], toolchain: Toolchain) -> Configured:
    """Resolve `allnoconfig` plus `fragment` (names without CONFIG_; y, m, n, numbers, strings) in `build_dir`.

    `lost` in the result lists what did not resolve as asked; nothing is compiled before it is empty (`compile_kernel`).
    Raises BuildError when kconfig itself fails.
    """
    wanted = dict(fragment)
    wanted_file = build_dir / "wanted.config"
    write_atomic(wanted_file, dot_config.render(wanted).encode(), private=True)
    env = environment() | {"KCONFIG_ALLCONFIG": str(wanted_file)}
    symbols = _resolve(source, build_dir, "allnoconfig", toolchain, env)
    return _configured(source, build_dir, symbols, lost(wanted, symbols))


def configure_file(source: Path, build_dir: Path, config_file: Path, toolchain: Toolchain) -> Configured:
    """Bring a complete .config from elsewhere up to this source by `olddefconfig`. Losses are not counted: such a file
    names symbols of another version."""
    try:
        text = config_file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserInputError(f"the configuration {config_file} cannot be read: {error}") from error
    write_atomic(build_dir / ".config", text.encode(), private=True)
    symbols = _resolve(source, build_dir, "olddefconfig", toolchain, environment())
    return _configured(source, build_dir, symbols, ())


def _resolve(
    source: Path, build_dir: Path, target: str, toolchain: Toolchain, env: Mapping[str, str]
) -> dict[str, str]:
    _require_toolchain(toolchain)
    try:
        process.run(make_argv(source, build_dir, toolchain, [target]), timeout_s=900, env=env, umask=UMASK, name=_BUILD)
    except process.CommandFailed as error:
        raise BuildError(
            "the kernel's own configuration step failed",
            hint="vmtailor doctor lists what a kernel build needs (flex, bison, gcc, make)",
            details=error.details,
        ) from error
    return dot_config.parse((build_dir / ".config").read_text("utf-8"))


def _configured(source: Path, build_dir: Path, symbols: Mapping[str, str], lost: tuple[LostSymbol, ...]) -> Configured:
    kept = tuple((name, value) for name, value in symbols.items() if value != "n")
    return Configured(
        build_dir=str(build_dir), source_dir=str(source), config=str(build_dir / ".config"), symbols=kept, lost=lost
    )


def compile_kernel(
    configured: Configured,
    targets: Sequence[str],
    toolchain: Toolchain,
    title: str = "compiling the kernel",
    sources: Iterable[str] = (),
    held: Sequence[int] = (),
) -> CompiledKernel:
    """Compile the targets (`vmlinux`, `modules`) of a configured folder. `sources`: the files that the configuration
    compiles, without their endings, as far as the caller knows them: by these the time left is told. `held`:
    descriptors of locks, which a compile holds that outlives us.

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
    looked_s = 0.0

    def seen(line: str) -> None:
        nonlocal looked_s
        now_s = time.monotonic() - started
        if now_s - looked_s >= LOOK_S:
            looked_s = now_s
            progress.give(now_s, processor_times.below(os.getpid(), "make"))
        _show(progress, line, now_s, shown)

    with step(title) as shown, disk_full_is_a_host_error(build_dir):
        try:
            process.run(
                argv,
                timeout_s=COMPILE_TIMEOUT_S,
                env=environment(),
                umask=UMASK,
                name=_BUILD,
                on_line=seen,
                pass_fds=held,
            )
        except process.CommandFailed as error:
            raise _compile_error(error) from error
    seconds = time.monotonic() - started
    _remember_objects(build_dir, configured.total_y, _objects_in(build_dir))
    return CompiledKernel(build_dir, progress.done, seconds, toolchain.describe())


@dataclass(frozen=True)
class CompiledKernel:
    """The result of a compile. The files are at the places of the kernel's make, below `build_dir`."""

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
    """Return the release that `uname -r` will print for the kernel in this folder."""
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
    """Return the weight of each object that make will compile; objects that are there and not stale have none."""
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
    """Return the number of objects that make has left in the folder."""
    return sum(1 for _, _, names in os.walk(build_dir) for name in names if name.endswith(".o"))


def _stale(build_dir: Path, symbols: Mapping[str, str]) -> set[str]:
    """Return the objects of an earlier build that depend on a symbol whose value is another one now, without their
    endings: each object's `.cmd` file names the symbols that its sources ask for."""
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
    write_atomic(path, json.dumps([*seen, [total_y, objects]][-50:]).encode(), private=True)


def _compile_error(error: process.CommandFailed) -> BuildError | HostError:
    output = error.finished.error_text + "\n" + error.finished.text
    lines = [line for line in output.splitlines() if _ERROR.search(line)]
    if any(says_full(line) for line in lines):
        return no_space(f"for {_BUILD}")
    return BuildError(
        "the kernel does not compile in this configuration",
        hint="the lines below are the compiler's; the build folder is kept",
        details="\n".join(lines[:12]) or output[-2000:],
    )


def _require_toolchain(toolchain: Toolchain) -> None:
    for tool, package in (("make", "make"), ("flex", "flex"), ("bison", "bison"), ("bc", "bc"), ("ld", "binutils")):
        process.require_tool(tool, package)
    if toolchain.llvm:
        process.require_tool(f"llvm-ar{toolchain.llvm}", f"llvm{toolchain.llvm}")
    for tool, package in zip(toolchain.programs, toolchain.packages, strict=True):
        process.require_tool(tool, package)
