# SPDX-License-Identifier: Apache-2.0
"""Tools that read a stranger's disk image run shut in, as QEMU does: they see themselves, their libraries and the
image, have no capabilities, and end at limits of time, memory and output."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from vmtailor.base.process import Meanwhile, ProgramResult, require_tool, run
from vmtailor.drivers.confinement import confinement, program_needs
from vmtailor.drivers.confinement.confinement import Root

#: Seconds of processor time, and bytes of address space, that one call has.
_CPU_S, _MEMORY_BYTES = 300, 4 << 30
#: The environment of these tools.
_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}
_DEVICES = ("/dev/null", "/dev/urandom")
#: Bytes that a tool prints at most which writes its result to a file.
_MOST_WORDS = 16 << 20


def run_shut_in(
    tool: str,
    arguments: Sequence[str],
    *,
    shown: Sequence[Path] = (),
    written: Path | None = None,
    package: str,
    most_bytes: int,
    timeout_s: float,
    stdin_bytes: bytes | None = None,
    ok: Sequence[int] = (0,),
    meanwhile: Meanwhile | None = None,
) -> ProgramResult:
    """Run a tool to its end. `shown`: what it may read, links followed, under these very paths; `written`: a folder
    that it may write to; `most_bytes`: of what it prints, or writes to one file. Raises HostError when it is not
    installed or takes too long, CommandFailed for a status that is not in `ok`; the rest as `run` does."""
    program = str(Path(require_tool(tool, package)).resolve())
    limits = [f"--fsize={most_bytes}", f"--cpu={_CPU_S}", f"--as={_MEMORY_BYTES}", "--core=0"]
    argv = [
        require_tool("prlimit", "util-linux"),
        *limits,
        "--",
        *_launcher(program, shown, written),
        "--",
        program,
        *arguments,
    ]
    return run(
        argv, timeout_s=timeout_s, stdin_bytes=stdin_bytes, env=_ENVIRONMENT, ok=ok, name=tool,
        most_bytes=most_bytes if written is None else min(most_bytes, _MOST_WORDS), meanwhile=meanwhile,
    )  # fmt: skip


def _launcher(program: str, shown: Sequence[Path], written: Path | None) -> list[str]:
    # It stays the user who may read the image: the user of its own that QEMU gets may not.
    how = replace(confinement.available(), stranger=False)
    words = [str(confinement.launcher()), "parent", str(os.getpid()), *how.words]
    if how.root is Root.SHARED:
        return words
    for path in (*_needs(program), *map(str, shown)):
        words += ["show", path]
    for device in _DEVICES:
        words += ["device", device]
    return words if written is None else [*words, "place", str(written), str(written)]


@functools.cache
def _needs(program: str) -> tuple[str, ...]:
    return program_needs.needs(Path(program), program_needs.listed(Path(program)))
