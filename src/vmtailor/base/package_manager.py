# SPDX-License-Identifier: Apache-2.0
"""Name the commands with which this host installs packages, for hints. data/distributions.toml has the commands."""

from __future__ import annotations

import platform
from functools import cache

from vmtailor.base.files import toml_files


@cache
def host_ids() -> tuple[str, ...]:
    """Return the names of this host's distribution, and then of those that it is like: `ubuntu`, `debian`. The result
    is empty when os-release names none."""
    try:
        facts = platform.freedesktop_os_release()
    except OSError:
        return ()
    return (facts.get("ID", ""), *facts.get("ID_LIKE", "").split())


def install_command(*packages: str, ids: tuple[str, ...] | None = None, sure: bool = False) -> str:
    """Return the command that installs packages on this host, or on one that calls itself `ids`. Packages are named as
    in data/tools.toml. `sure`: the command does not ask back. A sentence is returned where the host's command is not
    known."""
    table = toml_files.own_table("distributions")
    names = " ".join(packages)
    for name in host_ids() if ids is None else ids:
        for row in table["distribution"]:
            if name in row["ids"]:
                return f"{row['install_unasked'] if sure else row['install']} {names}"
    return f"install {names} ({table['names']} names) with this host's package manager"
