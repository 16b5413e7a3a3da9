# SPDX-License-Identifier: Apache-2.0
"""`vmtailor generate`: files for other programs, made from a named machine."""

from __future__ import annotations

import os
import re
import shutil
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from vmtailor.base import output
from vmtailor.base.errors import UserInputError
from vmtailor.base.text import plain
from vmtailor.drivers.host import user_folders
from vmtailor.drivers.host.machine_folders import MachineFolder, MachineFolders
from vmtailor.model.kept_machine import RestartWhen, parse_restart
from vmtailor.model.option import Option
from vmtailor.model.option_rows import MACHINE

_ARGUMENTS_ONLY = frozenset("'\"\\$")
_PLAIN = re.compile(r"[A-Za-z0-9_./:=+,@-]*")


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
    """Return the text of a unit. Raises UserInputError for paths that systemd does not take."""
    record = folder.record
    program = _program()
    of_host = os.geteuid() == 0
    grace_s = record.stop_timeout_s
    stop_s = "infinity" if grace_s is None or grace_s < 0 else f"{round(grace_s) + 15}"
    # The supervisor starts it again by itself; systemd, where the supervisor was killed, and without a number of times.
    policy = parse_restart(record.restart)
    limited = policy.when is RestartWhen.ON_FAILURE and policy.most > 0
    restart = {RestartWhen.NO: "no", RestartWhen.ON_FAILURE: "on-abnormal" if limited else "on-failure"}
    online = ["Wants=network-online.target", "After=network-online.target"]
    lines = [
        f"# vmtailor-{record.name}.service, by: vmtailor generate systemd {record.name}",
        "[Unit]",
        f"Description={_description(f'vmtailor machine {record.name} ({record.image})')}",
        *(online if of_host else []),  # the manager of a user has no such target
        "",
        "[Service]",
        "Type=exec",
        f"Environment={_word(f'XDG_STATE_HOME={user_folders.state_home().parent}')}",
        f"ExecStartPre={program} stop {record.id}",
        f"ExecStart={program} start --attach {record.id}",
        f"ExecStop={program} stop {record.id}",
        f"Restart={restart.get(policy.when, 'always')}",
        f"TimeoutStartSec={stop_s}",
        f"TimeoutStopSec={stop_s}",
        "KillMode=mixed",
        "",
        "[Install]",
        f"WantedBy={'multi-user.target' if of_host else 'default.target'}",
    ]
    return "\n".join(lines) + "\n"


def _program() -> str:
    """Return the words that start this program. Raises UserInputError for a path that systemd does not take."""
    called = shutil.which(sys.argv[0])
    if called is not None and Path(called).name == "vmtailor":
        return _executable(str(Path(called).absolute()))
    return f"{_executable(sys.executable)} -m vmtailor"


def _executable(path: str) -> str:
    """Return the word, or words, that execute a program: systemd takes some characters in arguments alone, where it
    reads `$`."""
    return _word(path) if set(path).isdisjoint(_ARGUMENTS_ONLY) else f"/usr/bin/env {_word(path.replace('$', '$$'))}"


def _description(text: str) -> str:
    """Return text in which systemd reads no specifier and no line that goes on, on one line."""
    return "".join(c if c.isprintable() else "?" for c in text).replace("\\", "/").replace("%", "%%")


def _word(text: str) -> str:
    """Return a path or variable as one word: systemd takes quotes, escapes of C and specifiers out again. Raises
    UserInputError for what no word holds."""
    if not text.isprintable():
        raise UserInputError(
            f"systemd takes no path with control characters or of another encoding: {plain(text[:200])}",
            hint="move what the path leads to, or set XDG_STATE_HOME",
        )
    safe = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return safe if _PLAIN.fullmatch(safe) else f'"{safe}"'
