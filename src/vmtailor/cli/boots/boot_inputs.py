# SPDX-License-Identifier: Apache-2.0
"""The files of a boot and its wait for "ready", from the options of `vmtailor boot`."""

from __future__ import annotations

import re
from pathlib import Path

from vmtailor.base.errors import UserInputError
from vmtailor.drivers.guest.ready import parse_signal
from vmtailor.model.boots.workload import Nothing, OwnInit, ReadyBy, ReadySignal
from vmtailor.pipeline.options import BootOptions


def signals(asked: BootOptions) -> tuple[ReadySignal, ...]:
    """Return the signal that ends the wait, and others that must come too."""
    return tuple(parse_signal(text) for text in (asked.ready, *asked.also))


def workload_of(asked: BootOptions) -> OwnInit | Nothing:
    """Return the workload of a guest that is only waited for. Raises UserInputError for signals that exclude each
    other."""
    ready, *also = signals(asked)
    if ReadyBy.NOTHING not in {signal.by for signal in (ready, *also)}:
        return OwnInit(ready, asked.timeout_s, tuple(also), tuple(_mark(text) for text in asked.marks))
    if ready.by is not ReadyBy.NOTHING or also or asked.marks:
        raise UserInputError(
            "nothing:SECONDS goes without --also and --mark", hint="leave them out: nothing:SECONDS waits for no signal"
        )
    return Nothing(ready.seconds)


def existing(path: Path | None) -> str | None:
    """Return a file's absolute path. Raises UserInputError when it is missing or empty, since a machine would start
    without it."""
    if path is None:
        return None
    if not path.is_file():
        raise UserInputError(f"{path} does not exist or is not a file", hint="name a file that exists")
    if path.stat().st_size == 0:
        raise UserInputError(f"{path} is empty", hint="check the command that made it")
    return str(path.absolute())


def _mark(text: str) -> tuple[str, re.Pattern[str]]:
    name, found, pattern = text.partition("=")
    try:
        if not found or not name or not pattern:
            raise UserInputError(f"--mark {text!r} is not NAME=REGEX")
        return name, re.compile(pattern)
    except re.error as error:
        raise UserInputError(f"--mark {text!r}: {error}") from error
