# SPDX-License-Identifier: Apache-2.0
"""`vmtailor completions`: the file with which a shell completes words."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from vmtailor.base import output
from vmtailor.model.option import Option


class Shell(StrEnum):
    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completions(
    shell: Annotated[Shell, Option(name="SHELL", type=Shell, help="Print it for this shell: bash, zsh or fish.")],
) -> None:
    """Print the file with which a shell completes the words of vmtailor.

    `vmtailor help complete-words` says where to put it. With it, the shell completes without starting vmtailor."""
    from vmtailor.cli.shells import scripts  # loads every verb

    output.lines(scripts.script(shell.value))
