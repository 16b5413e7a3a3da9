# SPDX-License-Identifier: Apache-2.0
"""`vmtailor exec` and `attach`: programs in a named machine, with the caller's streams."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, NoReturn

from vmtailor.base.errors import UserInputError
from vmtailor.base.text import plain
from vmtailor.booting import control_relay
from vmtailor.booting.control_relay import DETACH_KEYS as USUAL_KEYS
from vmtailor.booting.control_relay import ControlWishes
from vmtailor.drivers.host import control_socket, tty
from vmtailor.drivers.host.control_socket import NotRunning
from vmtailor.drivers.host.machine_folders import MachineFolder, MachineFolders
from vmtailor.model.option import Option
from vmtailor.model.option_rows import DETACH_KEYS, MACHINE, SIG_PROXY
from vmtailor.pipeline import run_environment


def exec(
    name: Annotated[str, MACHINE],
    command: Annotated[tuple[str, ...], Option(name="COMMAND", many=True, help="Run this command.")] = (),
    interactive: Annotated[
        bool, Option(name="--interactive", short="-i", type=bool, help="Pass standard input on.")
    ] = False,
    terminal: Annotated[bool, Option(name="--tty", short="-t", type=bool, help="Give the command a terminal.")] = False,
    detach: Annotated[
        bool, Option(name="--detach", short="-d", type=bool, help="Start it, and do not wait for its end.")
    ] = False,
    env: Annotated[
        tuple[str, ...],
        Option(
            name="--env", short="-e", many=True,
            help="Set a variable: NAME=VALUE, or NAME to pass it on. Repeat it for more.",
        ),
    ] = (),
    env_files: Annotated[
        tuple[Path, ...],
        Option(name="--env-file", type=Path, many=True, help="Read variables from this file. Repeat it for more."),
    ] = (),
    user: Annotated[
        str | None, Option(name="--user", short="-u", help="Run as this user and group, names or numbers.")
    ] = None,
    cwd: Annotated[str | None, Option(name="--workdir", short="-w", help="Start in this working directory.")] = None,
    privileged: Annotated[
        bool, Option(name="--privileged", type=bool, help="Let root do everything in this command.")
    ] = False,
    detach_keys: Annotated[str, DETACH_KEYS] = USUAL_KEYS,
) -> None:  # fmt: skip
    """Run a command in a named machine, beside its container's program. Exits with the command's status; 126 when it
    cannot be executed, 127 when it is not found, 1 when there is no such machine or it does not run.

    Options stand before NAME. Signals are passed on to the command; a second Ctrl-C leaves it."""
    if not command:
        raise UserInputError("there is no command to run", hint=f"name one behind {plain(name[:80])}")
    if terminal and interactive and not detach and not os.isatty(0):
        raise UserInputError("standard input is not a terminal", hint="leave -t out, or run it from a terminal")
    tty.require_streams()
    pairs = [("arg", word) for word in command]
    pairs += [("env", f"{key}={value}") for key, value in run_environment.variables(env_files, env)]
    pairs += [(key, value) for key, value in (("user", user), ("cwd", cwd)) if value is not None]
    flags = (
        ("terminal", terminal),
        ("stdin", interactive and not detach),
        ("privileged", privileged),
        ("detach", detach),
    )
    pairs += [(key, "1") for key, wanted in flags if wanted]
    if terminal:
        rows, columns = tty.size()
        pairs += [("rows", str(rows)), ("cols", str(columns))]
    folder = MachineFolders().find(name)
    if detach:
        control_socket.answer(folder, "exec", pairs)
        return
    wishes = ControlWishes(stdin=interactive, terminal=terminal, keys=control_relay.parse_keys(detach_keys))
    _relay(folder, "exec", pairs, wishes)


def attach(
    name: Annotated[str, MACHINE],
    no_stdin: Annotated[
        bool, Option(name="--no-stdin", type=bool, help="Keep standard input from the container.")
    ] = False,
    detach_keys: Annotated[str, DETACH_KEYS] = USUAL_KEYS,
    sig_proxy: Annotated[bool, SIG_PROXY] = True,
) -> None:
    """Attach standard input, output and error to a named machine's container. Exits with its status, or 0 when it was
    left.

    `attach` shows output from now on; `logs` has the earlier output. The detach keys leave a container that has a
    terminal and standard input, and the machine goes on. Ctrl-C and other signals go to the container."""
    tty.require_streams()
    folder = MachineFolders().find(name)
    record = folder.record
    stdin = record.interactive and not no_stdin
    if record.terminal and stdin and not os.isatty(0):
        raise UserInputError("standard input is not a terminal", hint="--no-stdin, or run it from a terminal")
    if not folder.state().running:
        raise NotRunning(folder)
    wishes = ControlWishes(
        stdin=stdin, terminal=record.terminal, keys=control_relay.parse_keys(detach_keys), proxy=sig_proxy
    )
    _relay(folder, "attach", [("stdin", str(int(stdin)))], wishes)


def _relay(folder: MachineFolder, verb: str, pairs: list[tuple[str, str]], wishes: ControlWishes) -> NoReturn:
    """Relay a session to its end, and exit with the status of its program."""
    sys.exit(control_relay.session(folder, verb, pairs, wishes) or 0)
