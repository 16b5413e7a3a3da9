# SPDX-License-Identifier: Apache-2.0
"""The scripts for all shells, and where each looks for its own."""

from __future__ import annotations

from vmtailor.cli.shells import bash, fish, zsh
from vmtailor.cli.shells.words import all_words

#: Path of each shell's script below /usr, /usr/local or a virtual environment.
PLACES = {
    "bash": "share/bash-completion/completions/vmtailor",
    "zsh": "share/zsh/site-functions/_vmtailor",
    "fish": "share/fish/vendor_completions.d/vmtailor.fish",
}
_MADE = {"bash": bash.script, "zsh": zsh.script, "fish": fish.script}


def script(shell: str) -> str:
    """Return the script of a shell: bash, zsh or fish."""
    return _MADE[shell](all_words())
