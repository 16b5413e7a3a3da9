# SPDX-License-Identifier: Apache-2.0
"""Flags that a kernel is compiled with beside its own: which may be given, and whether the compiler knows them.

A bundle that somebody else made may name flags, so no flag may name a file or start a program. A profile is
named by its digest (load_profile.py)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from vmtailor.base import process
from vmtailor.base.errors import HostError, UserInputError
from vmtailor.base.text import plain
from vmtailor.drivers.kernel import load_profile, make

#: Optimisation levels, switches and numbers, the processor; no paths, no plugins, nothing for a shell.
_FLAG = re.compile(
    r"-O[0-3sg]|-f(?!plugin)[a-z][a-z0-9-]{0,60}(?:=[0-9]{1,9})?|-m[a-z][a-z0-9-]{0,40}(?:=[a-z0-9-]{1,40})?"
    r"|--param=[a-z][a-z0-9-]{0,60}=[0-9]{1,9}|CC=clang-[1-9][0-9]|-fprofile-sample-use=(?:load|[0-9a-f]{64})"
)
#: Most flags of one kernel.
MOST = 32
#: Words that gcc and clang have for what they do not know.
_UNKNOWN = re.compile(r"(?:error: |unrecognized |unknown |bad value |invalid )[^\n]{0,200}")


def require_allowed(flags: Sequence[str]) -> None:
    """Raise UserInputError for words that are no flag of a compiler, or none that may be given here."""
    if len(flags) > MOST:
        raise UserInputError(f"{len(flags)} compiler flags are more than the {MOST} that a kernel may have")
    for flag in flags:
        if not _FLAG.fullmatch(flag):
            raise UserInputError(
                f"'{plain(flag[:80])}' is no compiler flag that can be tried",
                hint="levels (-O3), switches (-funroll-loops), -march=NAME, --param=NAME=NUMBER, CC=clang-VERSION",
            )


def require_known(flags: Sequence[str], toolchain: make.Toolchain) -> None:
    """Compile an empty file with each flag. Raises UserInputError for the first one that the compiler does not take,
    and where flags choose a compiler that is not installed."""
    require_allowed(flags)
    name = toolchain.programs[0]
    try:
        compiler = process.require_tool(name, toolchain.packages[0])
    except HostError as error:
        if not toolchain.llvm:
            raise
        # A compiler that a change names is that change's matter: others are tried without it.
        raise UserInputError(error.message, hint=error.hint) from error
    if any(one.startswith(load_profile.FLAG) for one in flags):
        load_profile.require_program(toolchain.llvm)
    for flag in (one for one in flags if not one.startswith((make.CLANG, f"{load_profile.FLAG}="))):
        argv = [compiler, "-Werror", flag, "-x", "c", "-c", "-o", "/dev/null", "/dev/null"]
        try:
            process.run(argv, timeout_s=60, env=make.environment())
        except process.CommandFailed as error:
            said = _UNKNOWN.search(error.finished.error_text)
            raise UserInputError(
                f"{name} does not take the flag {flag}" + (f": {plain(said[0])}" if said else ""),
                hint=f"{name} --help=optimizers lists the flags of this compiler",
            ) from error
