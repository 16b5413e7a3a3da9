# SPDX-License-Identifier: Apache-2.0
"""Published sets of benchmarks, built from the user's source trees: none of them comes with the program."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass
from pathlib import Path

from vmtailor.base.errors import HostError, UserInputError
from vmtailor.base.package_manager import install_command
from vmtailor.base.process import CommandFailed, on_path, require_tool, run
from vmtailor.base.text import plain
from vmtailor.bench.suites.bench_run import BenchRun, BuiltTree

_BUILD_S = 600.0


#: Assignments that let a linker take what several files define once each, as compilers before GCC 10 told it to.
_COMMON = "CFLAGS=-O2 -fcommon"
#: Said by a linker of what several files define.
_SEVERAL = "multiple definition of"


@dataclass(frozen=True)
class Published:
    """A published program: how it is recognised and built. `marks`: files in its folder, of each entry one, which may
    lie in one of `inner`; `steps`: argument lists that build it there; `program`: the file that results; `at`: the
    folder's path in an instance. `generated`: a file that a checkout lacks, and which `generators` make; `common`: the
    step that is given _COMMON where the linker refuses."""

    title: str
    marks: tuple[tuple[str, ...], ...]
    inner: tuple[str, ...]
    steps: tuple[tuple[str, ...], ...]
    program: str
    at: str
    generated: str = ""
    generators: tuple[tuple[str, ...], ...] = ()
    common: int | None = None


UNIXBENCH = Published(
    title="UnixBench", marks=(("Makefile",), ("src",), ("pgms",)), inner=("UnixBench",), steps=(("make", "programs"),),
    program="pgms", at="/unixbench",
)  # fmt: skip
IOZONE = Published(
    title="IOzone", marks=(("makefile",), ("iozone.c",)), inner=("src/current",), steps=(("make", "linux"),),
    program="iozone", at="/iozone", common=0,
)  # fmt: skip
NETPERF = Published(
    title="netperf", marks=(("configure", "configure.ac"), ("src/netperf.c",)), inner=(),
    steps=(("./configure", "--quiet"), ("make",)), program="src/netperf", at="/netperf",
    generated="configure", generators=(("autoreconf", "--install", "--force"),), common=0,
)  # fmt: skip
#: Packages of the programs by which a checkout makes its `configure`.
_AUTOTOOLS = {"autoreconf": "autoconf", "aclocal": "automake", "automake": "automake"}


def check(published: Published, source: Path) -> Path:
    """Return the folder of the program's source: the given one, or one within it. Raises UserInputError."""
    for folder in (source, *(source / name for name in published.inner)):
        if all(any((folder / name).exists() for name in mark) for mark in published.marks):
            return folder
    names = ", ".join(" or ".join(mark) for mark in published.marks)
    raise UserInputError(f"{source} holds no {published.title}", hint=f"name the folder that has {names} in it")


def built(published: Published, source: str, run_: BenchRun) -> BuiltTree:
    """Return the published program, copied into the scope and built there as its documentation says, once a run. Raises
    HostError; the same one again where it could not be built before."""
    known = run_.built.get(published.title)
    if known is None:
        try:
            known = _copied(published, Path(source), run_.folder / published.title.lower())
        except HostError as error:
            known = error
        run_.built[published.title] = known
    if isinstance(known, HostError):
        raise known
    return known


def _copied(published: Published, source: Path, folder: Path) -> BuiltTree:
    """Return the program, built in a copy of its tree; in a new copy, once more, where the linker refuses what earlier
    ones took. Raises HostError."""
    try:
        said = _made(published, source, folder, "")
    except CommandFailed as error:
        if published.common is None or _SEVERAL not in _words_of(error):
            raise _unbuilt(published, error) from error
        shutil.rmtree(folder)
        try:
            said = _made(published, source, folder, _COMMON)
        except CommandFailed as again:
            raise _unbuilt(published, again) from again
    if not (folder / published.program).exists():
        raise HostError(f"{published.title} was built, and has no {published.program}")
    version = run([require_tool("gcc"), "--version"], timeout_s=_BUILD_S)
    return BuiltTree(folder, tree_digest(source), version.text.splitlines()[0][:120], flags_of(said))


def tree_facts(published: Published, source: str, run_: BenchRun, name: str) -> list[tuple[str, str]]:
    """Return the facts of a built tree: its digest, its compiler and its flags, under a name."""
    tree = built(published, source, run_)
    found = [(f"{name} tree", tree.digest), (f"{name} compiler", tree.compiler)]
    return [*found, (f"{name} flags", tree.flags)] if tree.flags else found


def _made(published: Published, source: Path, folder: Path, common: str) -> str:
    """Copy a tree and build it there, `common` added to the step that takes it. Return what the build printed. Raises
    CommandFailed; HostError where it needs programs that are missing."""
    shutil.copytree(source, folder, symlinks=True)
    steps = list(published.steps)
    if common and published.common is not None:
        steps[published.common] = (*steps[published.common], common)
    if published.generated and not (folder / published.generated).exists():
        _require_autotools(published)
        steps = [*published.generators, *steps]
    said = ""
    for words in steps:
        program = words[0] if "/" in words[0] else require_tool(words[0])
        said += run([program, *words[1:]], timeout_s=_BUILD_S, cwd=folder).text
    return said


def _require_autotools(published: Published) -> None:
    """Raise HostError, naming the packages, where a checkout cannot be configured."""
    if missing := sorted({package for name, package in _AUTOTOOLS.items() if on_path(name) is None}):
        raise HostError(
            f"{published.title} is a checkout without {published.generated}, which {' and '.join(missing)} would make",
            hint=f"install them: {install_command(*missing)}; or name a released tree",
        )


def _words_of(error: CommandFailed) -> str:
    return error.finished.text + error.finished.error_text


def _unbuilt(published: Published, error: CommandFailed) -> HostError:
    """Return why a program could not be built: the first line in which a compiler or linker says so."""
    lines = [line.strip() for line in _words_of(error).splitlines() if any(sign in line for sign in _ERRORS)]
    why = f": {plain(lines[0])[:300]}" if lines else ""
    return HostError(
        f"{published.title} could not be built{why}",
        hint="build the tree by hand to see more; an older compiler may take it: CC=gcc-VERSION in its makefile",
        details=error.details[-2000:],
    )


#: Signs of a line that says why a build failed.
_ERRORS = ("error:", _SEVERAL, "undefined reference", "cannot find", "not found", "***")


def flags_of(said: str) -> str:
    """Return the flags of the first compilation in what a build printed, without the names of files; empty where it
    prints none."""
    for line in said.splitlines():
        words = line.split()
        if words and words[0].rpartition("/")[2] in _COMPILERS:
            return plain(" ".join(word for word in words[1:] if word.startswith(_FLAGS)))[:300]
    return ""


_COMPILERS, _FLAGS = ("cc", "gcc", "clang"), ("-O", "-f", "-m", "-D", "-std", "-W", "-g", "-static")


def tree_digest(folder: Path) -> str:
    """Return a digest of the names and contents of all regular files, in order."""
    whole = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()):
        whole.update(f"{path.relative_to(folder)}\0".encode("utf-8", "surrogateescape"))
        whole.update(hashlib.sha256(path.read_bytes()).digest())
    return f"sha256:{whole.hexdigest()}"
