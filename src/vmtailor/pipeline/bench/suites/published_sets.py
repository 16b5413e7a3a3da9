# SPDX-License-Identifier: Apache-2.0
"""Published sets of benchmarks, built from trees that the user has: none of them comes with the program."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass
from pathlib import Path

from vmtailor.base.errors import HostError, UserInputError
from vmtailor.base.process import CommandFailed, require_tool, run
from vmtailor.pipeline.bench.bench_run import BenchRun

#: Where an instance finds the published UnixBench.
UNIXBENCH_AT = "/unixbench"
_BUILD_S = 600.0


@dataclass(frozen=True)
class BuiltTree:
    """A tree of our own, built. `digest`: of the files as they were given."""

    folder: Path
    digest: str
    compiler: str


def check_unixbench(source: Path) -> Path:
    """The folder with `Run` and `Makefile`: the one named, or UnixBench in it. Raises UserInputError."""
    for folder in (source, source / "UnixBench"):
        if (folder / "Makefile").is_file() and (folder / "src").is_dir() and (folder / "pgms").is_dir():
            return folder
    raise UserInputError(f"{source} holds no UnixBench", hint="name the folder that has Makefile, src and pgms in it")


def built_unixbench(run_: BenchRun) -> BuiltTree:
    """The published UnixBench, copied into the scope and built there with its own Makefile, once a run. Raises
    HostError."""
    folder = run_.folder / "unixbench"
    source = Path(run_.job.unixbench_source)
    if "unixbench" not in run_.built:
        shutil.copytree(source, folder, symlinks=True)
        run_.built["unixbench"] = BuiltTree(folder, tree_digest(source), _made(folder))
    found = run_.built["unixbench"]
    assert isinstance(found, BuiltTree)
    return found


def _made(folder: Path) -> str:
    try:
        run([require_tool("make"), "-C", str(folder), "programs"], timeout_s=_BUILD_S)
        said = run([require_tool("gcc"), "--version"], timeout_s=_BUILD_S)
    except CommandFailed as error:
        raise HostError("the published UnixBench could not be built", details=error.details[-2000:]) from error
    return said.text.splitlines()[0][:120]


def tree_digest(folder: Path) -> str:
    """Of names and contents of all regular files, in order."""
    whole = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()):
        whole.update(f"{path.relative_to(folder)}\0".encode("utf-8", "surrogateescape"))
        whole.update(hashlib.sha256(path.read_bytes()).digest())
    return f"sha256:{whole.hexdigest()}"
