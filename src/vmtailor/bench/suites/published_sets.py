# SPDX-License-Identifier: Apache-2.0
"""Published sets of benchmarks, built from the user's source trees: none of them comes with the program."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass
from pathlib import Path

from vmtailor.base.errors import HostError, UserInputError
from vmtailor.base.process import CommandFailed, require_tool, run
from vmtailor.bench.suites.bench_run import BenchRun, BuiltTree

_BUILD_S = 600.0


@dataclass(frozen=True)
class Published:
    """A published program: how it is recognised and built. `marks`: files in its folder, which may lie in one of
    `inner`; `steps`: argument lists that build it there; `program`: the file that results; `at`: the folder's path in
    an instance."""

    title: str
    marks: tuple[str, ...]
    inner: tuple[str, ...]
    steps: tuple[tuple[str, ...], ...]
    program: str
    at: str


UNIXBENCH = Published(
    title="UnixBench", marks=("Makefile", "src", "pgms"), inner=("UnixBench",), steps=(("make", "programs"),),
    program="pgms", at="/unixbench",
)  # fmt: skip
IOZONE = Published(
    title="IOzone", marks=("makefile", "iozone.c"), inner=("src/current",), steps=(("make", "linux"),),
    program="iozone", at="/iozone",
)  # fmt: skip
NETPERF = Published(
    title="netperf", marks=("configure", "src/netperf.c"), inner=(), steps=(("./configure", "--quiet"), ("make",)),
    program="src/netperf", at="/netperf",
)  # fmt: skip


def check(published: Published, source: Path) -> Path:
    """Return the folder of the program's source: the given one, or one within it. Raises UserInputError."""
    for folder in (source, *(source / name for name in published.inner)):
        if all((folder / mark).exists() for mark in published.marks):
            return folder
    raise UserInputError(
        f"{source} holds no {published.title}", hint=f"name the folder that has {', '.join(published.marks)} in it"
    )


def built(published: Published, source: str, run_: BenchRun) -> BuiltTree:
    """Return the published program, copied into the scope and built there as its documentation says, once a run. Raises
    HostError."""
    if published.title not in run_.built:
        folder = run_.folder / published.title.lower()
        shutil.copytree(source, folder, symlinks=True)
        run_.built[published.title] = BuiltTree(folder, tree_digest(Path(source)), _made(published, folder))
    return run_.built[published.title]


def tree_facts(published: Published, source: str, run_: BenchRun, name: str) -> list[tuple[str, str]]:
    """Return the facts of a built tree: its digest and its compiler, under a name."""
    tree = built(published, source, run_)
    return [(f"{name} tree", tree.digest), (f"{name} compiler", tree.compiler)]


def _made(published: Published, folder: Path) -> str:
    try:
        for words in published.steps:
            program = words[0] if "/" in words[0] else require_tool(words[0])
            run([program, *words[1:]], timeout_s=_BUILD_S, cwd=folder)
        said = run([require_tool("gcc"), "--version"], timeout_s=_BUILD_S)
    except CommandFailed as error:
        raise HostError(f"{published.title} could not be built", details=error.details[-2000:]) from error
    if not (folder / published.program).exists():
        raise HostError(f"{published.title} was built, and has no {published.program}")
    return said.text.splitlines()[0][:120]


def tree_digest(folder: Path) -> str:
    """Return a digest of the names and contents of all regular files, in order."""
    whole = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()):
        whole.update(f"{path.relative_to(folder)}\0".encode("utf-8", "surrogateescape"))
        whole.update(hashlib.sha256(path.read_bytes()).digest())
    return f"sha256:{whole.hexdigest()}"
