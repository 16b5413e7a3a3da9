# SPDX-License-Identifier: Apache-2.0
"""How this host installs packages, for hints. data/distributions.toml has the commands."""

from __future__ import annotations

import platform
import tomllib
from functools import cache
from importlib import resources


@cache
def host_ids() -> tuple[str, ...]:
    """What this host's distribution calls itself, and then what it is like: `ubuntu`, `debian`. Empty when it does not
    say (os-release)."""
    try:
        facts = platform.freedesktop_os_release()
    except OSError:
        return ()
    return (facts.get("ID", ""), *facts.get("ID_LIKE", "").split())


def install_command(*packages: str, ids: tuple[str, ...] | None = None, sure: bool = False) -> str:
    """The command that installs packages, which are named as in data/tools.toml, on this host (or on one that calls
    itself `ids`). `sure`: it does not ask back. A sentence where the host's command is not known."""
    table = tomllib.loads(resources.files("vmtailor").joinpath("data", "distributions.toml").read_text("utf-8"))
    names = " ".join(packages)
    for name in host_ids() if ids is None else ids:
        for row in table["distribution"]:
            if name in row["ids"]:
                return f"{row['install_unasked'] if sure else row['install']} {names}"
    return f"install {names} ({table['names']} names) with this host's package manager"
