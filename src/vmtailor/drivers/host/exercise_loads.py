# SPDX-License-Identifier: Apache-2.0
"""The steps of an exercise file that are loads: `peak`, `surf` and `rate`."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import TypeVar

from vmtailor.base.files.digests import SHA256
from vmtailor.drivers.host.exercise_table import ExerciseTable
from vmtailor.drivers.image.documents import shown
from vmtailor.model.exercise import StepKind
from vmtailor.model.load import (
    AT_ONCE_MAX,
    CALLS_MAX,
    PAGES_MAX,
    RATE_MAX,
    SESSIONS_MAX,
    Arrivals,
    Load,
    LoadPage,
    LoadProtocol,
)

TIMEOUT_S, LIMIT_S = 10.0, 600.0
#: Connections of an open loop, where the file names none.
RATE_AT_ONCE = 256
#: A pause of somebody who reads a page.
PAUSE_S = (0.5, 3.0)
#: Bytes of a text that is looked for, or sent.
TEXT_BYTES = 65_535

E = TypeVar("E", bound=StrEnum)


def read(kind: StepKind, table: ExerciseTable) -> Load:
    """Return the load in a table whose `kind` was read; its `port` is left. Raises UserInputError naming the key."""
    protocol = _choice(table, "protocol", LoadProtocol, LoadProtocol.HTTP)
    if protocol is LoadProtocol.COMMAND and table.has("keep_alive"):
        raise table.wrong("keep_alive", "is of connections, and a command has none")
    many = kind is StepKind.SURF
    pages = _pages(table, protocol) if many else (_page(table, protocol, table.table("expect")),)
    timeout_s, limit_s = table.seconds("timeout_s", TIMEOUT_S), table.seconds("limit_s", LIMIT_S)
    made = {StepKind.PEAK: _peak, StepKind.SURF: _surf, StepKind.RATE: _rate}[kind](table, pages)
    return replace(made, protocol=protocol, timeout_s=timeout_s, limit_s=limit_s)


def _peak(table: ExerciseTable, pages: tuple[LoadPage, ...]) -> Load:
    return Load(
        pages,
        at_once=_needed(table, "at_once", AT_ONCE_MAX),
        sessions=_needed(table, "requests", SESSIONS_MAX),
        keep_alive=table.flag("keep_alive", False),
    )


def _surf(table: ExerciseTable, pages: tuple[LoadPage, ...]) -> Load:
    users = _needed(table, "users", AT_ONCE_MAX)
    return Load(
        pages,
        at_once=users,
        sessions=table.whole("sessions", 1, SESSIONS_MAX, users) or users,
        calls=len(pages),
        keep_alive=table.flag("keep_alive", True),
        pause_s=table.span("pause_s", PAUSE_S),
        seed=table.whole("seed", 0, 2**63 - 1, 1) or 0,
    )


def _rate(table: ExerciseTable, pages: tuple[LoadPage, ...]) -> Load:
    least, most = table.number("from", 0.01, RATE_MAX), table.number("to", 0.01, RATE_MAX)
    rate = table.number("rate", 0.01, RATE_MAX)
    if (rate is None) is (least is None) or (least is None) is not (most is None):
        raise table.wrong("rate", "is one rate, or `from` and `to` those of a sweep: give one of the two")
    if least is not None and most is not None and most < least:
        raise table.wrong("to", f"is {most:g}, less than `from`")
    calls = table.whole("calls", 1, CALLS_MAX, 1) or 1
    return Load(
        pages,
        at_once=table.whole("at_once", 1, AT_ONCE_MAX, RATE_AT_ONCE) or RATE_AT_ONCE,
        calls=calls,
        keep_alive=table.flag("keep_alive", calls > 1),
        seed=table.whole("seed", 0, 2**63 - 1, 1) or 0,
        rate=rate if rate is not None else least,
        to_rate=most,
        seconds=table.seconds("seconds", 1.0),
        step=table.number("step", 1.01, 10.0, 1.25) or 1.25,
        arrivals=_choice(table, "arrivals", Arrivals, Arrivals.EVEN),
    )


def _needed(table: ExerciseTable, key: str, most: int) -> int:
    found = table.whole(key, 1, most)
    if found is None:
        raise table.wrong(key, "is missing")
    return found


def _choice(table: ExerciseTable, key: str, kind: type[E], default: E) -> E:
    value = table.text(key, default.value)
    if value not in set(kind):
        raise table.wrong(key, f"must be one of {', '.join(kind)}, not {shown(value)}")
    return kind(str(value))


def _pages(table: ExerciseTable, protocol: LoadProtocol) -> tuple[LoadPage, ...]:
    found = table.tables("pages")
    if not 1 <= len(found) <= PAGES_MAX:
        raise table.wrong("pages", f'must be 1 to {PAGES_MAX} tables, such as {{ path = "/" }}')
    pages = []
    for one in found:
        pages.append(_page(one, protocol, one))
        one.end()
    return tuple(pages)


def _page(table: ExerciseTable, protocol: LoadProtocol, expect: ExerciseTable | None) -> LoadPage:
    """Return a request from its table, and the right answer from `expect`, which may be the same one."""
    right = expect or ExerciseTable(table.origin, f"{table.where}.expect", {})
    if protocol is LoadProtocol.REDIS:
        page = LoadPage(command=table.argv("command"), contains=_text(right, "contains"), answer=_text(right, "answer"))
    elif protocol is LoadProtocol.COMMAND:
        page = LoadPage(
            command=table.argv(), status=right.whole("exit_code", 0, 255, 0), contains=_text(right, "contains"),
            answer=_text(right, "stdout"), sha256=_sha256(right),
        )  # fmt: skip
    else:
        page = _http_page(table, right)
    if right is not table:
        right.end()
    return page


def _http_page(table: ExerciseTable, right: ExerciseTable) -> LoadPage:
    method, path = table.request()
    status, contains = right.whole("status", 100, 599, 200), _text(right, "contains")
    return LoadPage(path, method, status=status, contains=contains, sha256=_sha256(right))


def _sha256(right: ExerciseTable) -> str | None:
    found = right.text("sha256")
    if found is not None and not SHA256.fullmatch(found):
        raise right.wrong("sha256", "must be 64 hexadecimal digits in lower case")
    return found


def _text(table: ExerciseTable, key: str) -> str | None:
    found = table.text(key)
    if found is not None and len(found.encode()) > TEXT_BYTES:
        raise table.wrong(key, f"is longer than the {TEXT_BYTES} bytes that are looked for")
    return found
