# SPDX-License-Identifier: Apache-2.0
"""Patches of the kernel's source, from this program's own data alone (data/patches): what each says of itself, and how
it is laid over a source.

The source in the cache is never written. `make` finds a C file in the folder that it compiles in before that of the
source, so a patched copy is put there, and that folder is for kernels of exactly these patches."""

from __future__ import annotations

import functools
import re
import shutil
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from vmtailor.base import process
from vmtailor.base.errors import BuildError, UserInputError, VmtailorError
from vmtailor.base.files.digests import sha256_of
from vmtailor.base.files.regular_files import write_atomic
from vmtailor.base.notation import version_key
from vmtailor.base.text import plain

FOLDER = Path(__file__).resolve().parents[2] / "data" / "patches"
#: Folders whose programs run on the host while a kernel is made.
_NOT_IN = ("scripts", "tools", "certs", "usr")
_FILE = re.compile(r"^(?:---|\+\+\+) (?:[ab]/)?([^\t\n]{1,200})", re.M)


@dataclass(frozen=True)
class KernelPatch:
    """One patch. `id` is the name of both its files; `gives_up`: what the kernel no longer does; `sha256`: of the diff.
    `from_version`, `until_version`: kernels that it is for (the last one excluded). `processors`: empty for all.
    `files`: those that it changes."""

    id: str
    title: str
    gives_up: str
    sha256: str
    from_version: str
    until_version: str
    processors: tuple[str, ...]
    files: tuple[str, ...]
    diff: Path


def read(path: Path) -> KernelPatch:
    """Return one patch by its TOML file. Raises VmtailorError when it is not as it must be: it is ours."""
    raw = tomllib.loads(path.read_text("utf-8"))
    diff = path.with_suffix(".patch")
    if raw["id"] != path.stem or sha256_of(diff) != raw["sha256"]:
        raise VmtailorError(f"the patch {path.stem} is not the one that {path.name} describes")
    files = tuple(dict.fromkeys(_FILE.findall(diff.read_text("utf-8"))))
    for name in files:
        if wrong := refusal(name):
            raise VmtailorError(f"the patch {path.stem} {wrong}")
    return KernelPatch(
        id=raw["id"], title=raw["title"], gives_up=raw["gives_up"], sha256=raw["sha256"],
        from_version=raw["from_version"], until_version=raw["until_version"],
        processors=() if raw["processors"] == "all" else tuple(raw["processors"]), files=files, diff=diff,
    )  # fmt: skip


def refusal(name: str) -> str:
    """Return why a patch may not change a file; empty where it may: C of the kernel itself."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or path.parts[0] in _NOT_IN or len(path.parts) < 2:
        return f"changes {plain(name)}, which is not the kernel's own code"
    return "" if path.suffix == ".c" else f"changes {plain(name)}, which is no C file"


@functools.cache
def every() -> dict[str, KernelPatch]:
    """Return all patches, by id."""
    return {path.stem: read(path) for path in sorted(FOLDER.glob("*.toml"))}


def require_ours(wanted: Sequence[tuple[str, str]], where: str) -> None:
    """Raise UserInputError unless each of the patches (id, digest) is one of this program's. `where` names them."""
    for name, sha256 in wanted:
        found = every().get(name)
        if found is None or found.sha256 != sha256:
            raise UserInputError(
                f"{where} names the patch '{plain(name[:64])}', which is none of this program's",
                hint="a bundle with patches starts only with the version that made it; fit the image again",
            )


def require_for(wanted: Sequence[tuple[str, str]], version: str, architecture: str) -> None:
    """Raise UserInputError unless each of the patches is one of ours, and is for this kernel and processor."""
    require_ours(wanted, "the kernel asked for")
    for name, _ in wanted:
        found, key = every()[name], version_key(version)
        if key < version_key(found.from_version) or key >= version_key(found.until_version):
            raise UserInputError(
                f"the patch {name} is for kernels from {found.from_version} until {found.until_version}, and this is "
                f"{version}"
            )
        if found.processors and architecture not in found.processors:
            raise UserInputError(f"the patch {name} is for {', '.join(found.processors)}, not for {architecture}")


def lay(wanted: Sequence[tuple[str, str]], source: Path, build_dir: Path) -> None:
    """Put patched copies of the source's files into the folder that is compiled in. Raises BuildError for a patch that
    does not apply."""
    if not wanted:
        return
    require_ours(wanted, "the kernel asked for")
    program = process.require_tool("patch", "patch")
    with tempfile.TemporaryDirectory(prefix="vmtailor-patch-") as name:
        folder = Path(name)
        files = {file for one, _ in wanted for file in every()[one].files}
        for file in files:
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            if not (source / file).is_file():
                raise BuildError(f"the source has no {file}, which a patch changes")
            shutil.copyfile(source / file, folder / file)
        for one, _ in wanted:
            argv = [program, "-p1", "--batch", "--forward", "--fuzz=0", "--no-backup-if-mismatch", "-d", name]
            try:
                process.run([*argv, "-i", str(every()[one].diff)], timeout_s=60)
            except process.CommandFailed as error:
                said = error.finished.text.strip().splitlines()
                raise BuildError(
                    f"the patch {one} does not apply to this source" + (f": {plain(said[-1][:160])}" if said else ""),
                    hint="leave it out, or use the kernel series that it is for",
                ) from error
        for file in sorted(files):
            laid, there = (folder / file).read_bytes(), build_dir / file
            if not there.is_file() or there.read_bytes() != laid:  # else make compiles it again
                there.parent.mkdir(parents=True, exist_ok=True)
                write_atomic(there, laid, private=True)
