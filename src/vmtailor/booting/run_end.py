# SPDX-License-Identifier: Apache-2.0
"""The end of a supervised run, as the supervisor (native/supervise/end.c) records it. A guest's words are in it, so
anything may be there. Only the supervisor writes its keys."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from vmtailor.base.errors import VmtailorError
from vmtailor.base.text import is_number
from vmtailor.model.guest import GuestNote, GuestReport

_HEAD = b"vmtailor 1\0"


class Finish(StrEnum):
    """The end of a relay."""

    CLOSED = "closed"  # the machine has ended, or its init has said all
    FAREWELL = "farewell"  # the kernel was made to halt, power off or start again, not by init
    HALTED = "halted"  # the same, without a word of the kernel
    KILLED = "killed"  # the grace period is over, or it was asked twice
    NOT_STARTED = "not started"  # init has not spoken in time


@dataclass(frozen=True)
class RunEnd:
    """The end of a run. `heard`: something came on the serial line; `listening`: the machine's init has spoken.
    `farewell`: the kernel's last words when it was made to end. `said`: the end of what the monitor said; `status`: the
    monitor's, negative for a signal, None where it did not end by itself. `failed`: streams that could not be written,
    each with its errno."""

    finish: Finish
    report: GuestReport = field(default_factory=GuestReport)
    heard: bool = False
    listening: bool = False
    farewell: str = ""
    elapsed_s: float = 0.0
    said: str = ""
    status: int | None = None
    failed: tuple[tuple[str, int], ...] = ()


def parse(data: bytes) -> RunEnd:
    """Return the end that a supervisor recorded. Raises VmtailorError for what is no such record."""
    if not data.startswith(_HEAD) or not data.endswith(b"\0"):
        raise VmtailorError("the supervisor left no record of the end", details=repr(data[:200]))
    found: dict[str, list[str]] = {}
    for record in data[len(_HEAD) : -1].decode("utf-8", "replace").split("\0"):
        key, _, value = record.partition(" ")
        found.setdefault(key, []).append(value)

    def text(key: str) -> str:
        return found.get(key, [""])[0]

    def number(key: str) -> int | None:
        value = text(key)
        return int(value) if is_number(value.removeprefix("-")) and len(value) < 20 else None

    fatal = GuestNote(text("fatal-symbol"), text("fatal").rstrip("\n")) if "fatal" in found else None
    notes = (note.partition(" ") for note in found.get("note", ()))
    report = GuestReport(
        notes=tuple(GuestNote(symbol, words.rstrip("\n")) for symbol, _, words in notes),
        fatal=fatal,
        exit_code=number("exit"),
        signal=number("signal") or 0,
        exit_reason=text("reason").strip(),
        files=(("kernel-log", text("kernel-log")),) if "kernel-log" in found else (),
        console=text("console"),
    )
    streams = (("standard output", number("failed-stdout")), ("standard error", number("failed-stderr")))
    return RunEnd(
        finish=Finish(text("finish")),
        report=report,
        heard=number("heard") == 1,
        listening=number("listening") == 1,
        farewell=text("farewell"),
        elapsed_s=(number("elapsed-ms") or 0) / 1000,
        said=text("monitor-said").strip(),
        status=number("monitor-status"),
        failed=tuple((name, error) for name, error in streams if error),
    )
