# SPDX-License-Identifier: Apache-2.0
"""Profiles that clang compiles a kernel by: made by llvm-profgen from counts of blocks, and kept by their digest.

`-fprofile-sample-use=SHA256` is the flag. Kernels are compiled in the folder where a file of that name is laid, so the
flag names the content, and no path. `-fprofile-sample-use=load` asks for the profile of the load that is tried."""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

from vmtailor.base import process
from vmtailor.base.cache.store import Store, writing
from vmtailor.base.errors import BuildError, HostError, UserInputError
from vmtailor.base.files.digests import SHA256, sha256_of
from vmtailor.base.files.regular_files import write_atomic
from vmtailor.base.text import plain

#: The flag, its value before there is a profile, and the flag of the kernel whose blocks are counted.
FLAG, LOAD, COUNTED = "-fprofile-sample-use", "load", "-fdebug-info-for-profiling"
#: The kind of profiles in the cache, and the name of each file there.
KIND, FILE = "kernel-profile", "load.profile"
#: Most bytes of a profile. That of a whole load has less than one MB.
MOST_BYTES = 32 << 20
_PROFGEN_S = 600.0
#: A line of a profile: a function with all of its samples and its entries; a source line with its samples, and with
#: what was called there or the function that is inlined. clang takes other formats, too: they are refused.
_NAME, _NUMBER = rb"[\w.$]{1,1000}", rb"[0-9]{1,20}"
_FUNCTION = re.compile(rb"%b:%b:%b" % (_NAME, _NUMBER, _NUMBER))
_LINE = re.compile(
    rb" {1,64}%b(?:\.%b)?: (?:%b(?: %b:%b){0,200}|%b:%b)" % (_NUMBER, _NUMBER, _NUMBER, _NAME, _NUMBER, _NAME, _NUMBER)
)


def digest_of(flags: Sequence[str]) -> str | None:
    """Return the digest of the profile among a kernel's flags; None for a kernel without one. Raises UserInputError for
    a profile that is not made yet."""
    value = next((flag.partition("=")[2] for flag in flags if flag.startswith(f"{FLAG}=")), None)
    if value is not None and not SHA256.fullmatch(value):
        raise UserInputError(
            f"{FLAG}={plain(value[:64])} names no profile by its digest", hint="--try clang-profile makes one"
        )
    return value


def require_program(llvm: str) -> str:
    """Return the path of llvm-profgen of LLVM's suffix. Raises UserInputError where it is not installed, and for
    another compiler than clang: the trial is then left out, and others go on."""
    if not llvm:
        raise UserInputError("a profile of the load is for clang, and this kernel is compiled by gcc")
    try:
        return process.require_tool(f"llvm-profgen{llvm}", f"llvm{llvm}")
    except HostError as error:
        raise UserInputError(error.message, hint=error.hint) from error


def symbolized(ranges: str, vmlinux: Path, llvm: str) -> bytes:
    """Return the profile, by function and line, of counts by address (analysis/cost/block_ranges.py) in a kernel with
    debug information. Raises UserInputError without llvm-profgen, BuildError when nothing of the counts is in the
    kernel."""
    program = require_program(llvm)
    if not ranges:
        raise BuildError("the boot counted no code of the kernel in its load, so there is no profile")
    with tempfile.TemporaryDirectory(prefix="vmtailor-profile-") as name:
        raw, out = Path(name) / "ranges", Path(name) / "profile"
        raw.write_text(ranges)
        argv = [program, "--format=text", "--use-offset=0", f"--unsymbolized-profile={raw}", f"--binary={vmlinux}"]
        try:
            done = process.run([*argv, f"--output={out}"], timeout_s=_PROFGEN_S)
        except process.CommandFailed as error:
            raise _no_profile(error.finished.error_text, name) from error
        data = out.read_bytes() if out.is_file() else b""
    if not is_profile(data):
        raise _no_profile(done.error_text, name)
    return data


def is_profile(data: bytes) -> bool:
    """Return whether bytes are a profile as text, of one function or more."""
    lines = data.split(b"\n")
    return bool(_FUNCTION.fullmatch(lines[0])) and all(
        _LINE.fullmatch(line) or _FUNCTION.fullmatch(line) or not line for line in lines
    )


def _no_profile(said: str, folder: str) -> BuildError:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    told = f": {plain(lines[0].replace(folder, '')[:200])}" if lines else ""
    return BuildError(f"llvm-profgen made no profile of the load's counts{told}")


def keep(data: bytes, store: Store) -> str:
    """Keep a profile in the cache, and return its digest."""
    sha256 = hashlib.sha256(data).hexdigest()
    store.get(KIND, sha256, writing({FILE: data}))
    return sha256


def kept(sha256: str, store: Store) -> Path:
    """Return the file of a profile. Raises UserInputError when the cache has none of this digest."""
    path = store.path(KIND, sha256) / FILE
    if not store.has(KIND, sha256) or sha256_of(path) != sha256:
        raise UserInputError(
            f"the profile {sha256[:16]} that a kernel is compiled by is not at hand",
            hint="try clang-profile again, which makes it from a boot under the load",
        )
    return path


def lay(flags: Sequence[str], store: Store, build_dir: Path) -> None:
    """Put the profile that flags name into the folder that is compiled in. Raises UserInputError when it is not at
    hand."""
    sha256 = digest_of(flags)
    if sha256 is None or (build_dir / sha256).is_file():
        return
    data = kept(sha256, store).read_bytes()
    build_dir.mkdir(parents=True, exist_ok=True)
    write_atomic(build_dir / sha256, data, private=True)
