# SPDX-License-Identifier: Apache-2.0
"""`vmtailor generate`: files for other programs, made from a named machine."""

from __future__ import annotations

import os
import shutil
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from vmtailor.base import output
from vmtailor.drivers.host import user_folders
from vmtailor.drivers.host.machine_folders import MachineFolder, MachineFolders
from vmtailor.model.kept_machine import RestartWhen, parse_restart
from vmtailor.model.option import Option
from vmtailor.model.option_rows import MACHINE


class GeneratedKind(StrEnum):
    SYSTEMD = "systemd"


def generate(
    kind: Annotated[GeneratedKind, Option(name="KIND", type=GeneratedKind, help="Make this: systemd, a unit.")],
    name: Annotated[str, MACHINE],
) -> None:
    """Print a unit with which systemd starts a named machine, also after a restart of the host.

    Put it into ~/.config/systemd/user, or as root into /etc/systemd/system, and enable it with systemctl."""
    del kind
    output.lines(unit(MachineFolders().find(name)))


def unit(folder: MachineFolder) -> str:
    """Return the text of a unit."""
    record = folder.record
    program = _program()
    grace_s = record.stop_timeout_s
    stop_s = "infinity" if grace_s is None or grace_s < 0 else f"{round(grace_s) + 15}"
    when = parse_restart(record.restart).when
    restart = {RestartWhen.NO: "no", RestartWhen.ON_FAILURE: "on-failure"}.get(when, "always")
    lines = [
        f"# vmtailor-{record.name}.service, by: vmtailor generate systemd {record.name}",
        "[Unit]",
        f"Description={_escaped(f'vmtailor machine {record.name} ({record.image})')}",
        "Wants=network-online.target",
        "After=network-online.target",
        "",
        "[Service]",
        "Type=exec",
        f"Environment=XDG_STATE_HOME={_quoted(str(user_folders.state_home().parent))}",
        f"ExecStart={program} start --attach {record.id}",
        f"ExecStop={program} stop {record.id}",
        f"Restart={restart}",
        f"TimeoutStopSec={stop_s}",
        "KillMode=mixed",
        "",
        "[Install]",
        f"WantedBy={'multi-user.target' if os.geteuid() == 0 else 'default.target'}",
    ]
    return "\n".join(lines) + "\n"


def _program() -> str:
    """Return the words that start this program."""
    called = shutil.which(sys.argv[0])
    if called is not None and Path(called).name == "vmtailor":
        return _quoted(str(Path(called).absolute()))
    return f"{_quoted(sys.executable)} -m vmtailor"


def _escaped(text: str) -> str:
    """Return text in which systemd reads no specifier, on one line."""
    return "".join(c if c.isprintable() else "?" for c in text).replace("\\", "\\\\").replace("%", "%%")


def _quoted(text: str) -> str:
    safe = _escaped(text).replace("$", "$$").replace('"', '\\"')
    return safe if safe == text and " " not in text else f'"{safe}"'
