# SPDX-License-Identifier: Apache-2.0
"""The log of `strace -f -q -ttt -T -y -s 64 -o FILE` → events. The log comes from a guest: anything may be in it.

Lines that cannot be understood are passed over and counted; a last line that was torn off is no error.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from vmtailor.model.syscalls import FORKS, CallSummary, SyscallEvent

#: A line: process, its name (with -Y), second, and the rest.
LINE = re.compile(r"(\d{1,10})(?:<((?:[^<>\\]|\\.)*)>)?\s+(\d{1,12}\.\d{1,9})\s(.*)\Z", re.S)
_CALL = re.compile(r"(\w+)\(")
RESUMED = re.compile(r"<\.\.\. (\w+) resumed>\s?")
UNFINISHED = " <unfinished ...>"
_RESULT = re.compile(
    r"\s*=\s(?P<value>0x[0-9a-f]{1,16}|-?\d{1,20}|\?)(?!\w)(?:<(?:[^>\\]|\\.)*+>)?(?:\s(?P<error>E[A-Z0-9_]+))?",
    re.S,
)
#: How long a call took, at the end of its line.
_SECONDS = re.compile(r"\s<(\d{1,12}\.\d{1,9})>")
#: Characters that split an argument list or begin a string in it.
_SPECIAL = re.compile(r'["<()\[\]{},]|/\*')
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.S)
#: Descriptors with a > inside: sockets <TCP:[1->2]>, <UNIX-STREAM:[3->4,"/path"]>, devices </dev/null<char 1:3>>.
_SOCKET = re.compile(r'<[\w-]+:\[(?:[^][<>"-]|->?|"[^"\\]*+(?:\\.[^"\\]*+)*+"|\[[^][<>"]*\])*+\]>', re.S)
_DEVICE = re.compile(r"<(?:char|block) \d+:\d+$")
_DEVICE_NUMBER = re.compile(r"<(?:char|block) \d+:\d+>$")
_MAX_LINE = 65536


@dataclass(frozen=True)
class CallLog:
    """All calls in the order in which they began. `skipped`: how many lines were not understood."""

    events: tuple[SyscallEvent, ...]
    skipped: int


def split_arguments(text: str, start: int = 0) -> tuple[list[str], int]:
    """Split the arguments from `start` on at top-level commas; also the index after their bracket (-1: none)."""
    parts: list[str] = []
    depth = 0
    begin = index = start
    length, last_angle = len(text), text.rfind(">")
    while (found := _SPECIAL.search(text, index)) is not None:
        index = found.start()
        char = text[index]
        if char == '"':
            index = _after_string(text, index)
            continue
        if char == "<" and 0 < index < last_angle and (text[index - 1].isalnum() or text[index - 1] == "_"):
            index = _after_angle(text, index)
            continue
        if char == "/":  # a comment
            end = text.find("*/", index + 2)
            index = length if end < 0 else end + 2
            continue
        if char in "([{":
            depth += 1
        elif char in ")]}":
            if depth == 0:
                last = text[begin:index].strip()
                return ([*parts, last] if last or parts else parts), index + 1
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[begin:index].strip())
            begin = index + 1
        index += 1
    last = text[begin:].strip()
    return ([*parts, last] if last or parts else parts), -1


def _after_string(text: str, start: int) -> int:
    whole = _STRING.match(text, start)
    return whole.end() if whole is not None else len(text)


def _after_angle(text: str, start: int) -> int:
    """After `</path>`; a shift such as `1<<3` and a sign that is never closed are stepped over."""
    if text.startswith("<<", start):
        return start + 2
    socket = _SOCKET.match(text, start)
    if socket is not None:
        return socket.end()
    end = text.find(">", start)
    if end < 0:
        return start + 1
    if text.startswith(">", end + 1) and _DEVICE.search(text, start, end):
        return end + 2
    return end + 1


def unquote(argument: str) -> str:
    """`"/etc/passwd"` → /etc/passwd, escapes read; an argument without quotes stays as it is."""
    return _unescaped(argument[1 : _after_string(argument, 0) - 1]) if argument.startswith('"') else argument


def _unescaped(text: str) -> str:
    """Text with its escapes read: each is a byte, and bytes are UTF-8, others as surrogates, as file names are."""
    if "\\" not in text:
        return text

    def plain(match: re.Match[str]) -> str:
        body = match.group(1)
        if body[0] in "01234567":
            return chr(int(body, 8) & 0xFF)
        if body[0] == "x" and len(body) > 1:
            return chr(int(body[1:], 16))
        return {"n": "\n", "t": "\t", "r": "\r", "v": "\v", "f": "\f"}.get(body, body)

    found = re.sub(r"\\([0-7]{1,3}|x[0-9a-fA-F]{1,2}|.)", plain, text, flags=re.S)
    try:
        return found.encode("latin-1").decode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # characters that were none of bytes
        return found


def descriptor_path(argument: str) -> str:
    """`3</etc/passwd>` → /etc/passwd; empty when the tracer printed no path."""
    match = re.match(r"(?:-?\d+|AT_FDCWD)<(.*)>(?:\(deleted\))?\Z", argument, re.S)
    return _unescaped(_DEVICE_NUMBER.sub("", match.group(1))) if match else ""


def whole_call(text: str, line: int, pid: int, task: str = "", phase: str = "") -> SyscallEvent | None:
    """Return a call that has returned, `name(arguments) = result`; None for any other line."""
    head = _CALL.match(text)
    arguments, end = split_arguments(text, head.end()) if head else ([], -1)
    result = _RESULT.match(text, end) if end >= 0 else None
    if head is None or result is None:
        return None
    value = result["value"]
    number = None if value == "?" else int(value, 0) if value.startswith("0x") else int(value)
    line_text = text.rstrip()
    took = _SECONDS.fullmatch(line_text, max(result.end(), line_text.rfind("<") - 1))
    return SyscallEvent(
        line=line,
        pid=pid,
        task=task,
        name=head.group(1),
        args=tuple(arguments),
        result=number,
        error=result["error"] or "",
        seconds=float(took[1]) if took else 0.0,
        phase=phase,
    )


@dataclass
class _Pending:
    line: int
    time: float
    text: str


class _Parser:
    def __init__(self, phases: Sequence[tuple[str, float]]) -> None:
        self._names = [name for name, _ in phases]
        self._starts = [start for _, start in phases]
        self._events: list[SyscallEvent | None] = []
        self._pending: dict[int, tuple[int, _Pending]] = {}  # pid → (slot in events, what there is)
        self._skipped = 0

    def line(self, number: int, text: str) -> None:
        match = LINE.match(text)
        if match is None or len(text) > _MAX_LINE:
            self._skipped += 1
            return
        pid, time, rest = int(match.group(1)), float(match.group(3)), match.group(4)
        if rest.startswith(("---", "+++")):  # a signal; the end of a process
            return
        resumed = RESUMED.match(rest)
        if resumed:
            slot, begun = self._pending.pop(pid, (-1, _Pending(number, time, f"{resumed.group(1)}(")))
            if not begun.text.startswith(f"{resumed.group(1)}("):
                self._skipped += 1
                return
            self._whole(pid, _Pending(begun.line, begun.time, begun.text + rest[resumed.end() :]), slot)
        elif rest.endswith(UNFINISHED):
            self._events.append(None)
            self._pending[pid] = (len(self._events) - 1, _Pending(number, time, rest.removesuffix(UNFINISHED)))
        else:
            self._whole(pid, _Pending(number, time, rest), -1)

    def _whole(self, pid: int, call: _Pending, slot: int) -> None:
        event = whole_call(call.text, call.line, pid, phase=self._phase(call.time))
        if event is None:
            self._skipped += 1
            return
        if slot < 0:
            self._events.append(event)
        else:
            self._events[slot] = event

    def _phase(self, time: float) -> str:
        return self._names[max(0, bisect_right(self._starts, time) - 1)] if self._names else ""

    def finish(self) -> CallLog:
        for pid, (slot, call) in self._pending.items():  # calls that never returned
            head = _CALL.match(call.text)
            if head:
                arguments, _ = split_arguments(call.text, head.end())
                name, phase = head.group(1), self._phase(call.time)
                self._events[slot] = SyscallEvent(
                    line=call.line,
                    pid=pid,
                    task="",
                    name=name,
                    args=tuple(arguments),
                    result=None,
                    error="",
                    seconds=0.0,
                    phase=phase,
                )
        events = name_tasks(e for e in self._events if e is not None)
        return CallLog(tuple(events), self._skipped)


def parse_line(text: str) -> SyscallEvent | None:
    """Return one line that is a whole call; its task is the name that the tracer gives (-Y), or the process. None for
    all else."""
    match = LINE.match(text)
    events = parse(text.encode("utf-8", "replace")).events if match is not None and "\n" not in text else ()
    if match is None or len(events) != 1 or events[0].result is None:
        return None
    return replace(
        events[0], task=unquote(f'"{match.group(2)}"')[:15] if match.group(2) else f"process {events[0].pid}"
    )


def parse(data: bytes, phases: Sequence[tuple[str, float]] = ()) -> CallLog:
    """Read a whole log; what follows the first NUL byte (the rest of a raw disk) is ignored.

    `phases`: (name, second of the guest's clock at which it begins), in order; what is earlier counts to the first.
    """
    parser = _Parser(phases)
    for number, line in enumerate(data.partition(b"\0")[0].decode("utf-8", "replace").split("\n"), 1):
        if line:
            parser.line(number, line)
    return parser.finish()


def name_tasks(events: Iterable[SyscallEvent]) -> list[SyscallEvent]:
    """Give every event the name of its task: the program executed last, or what the task called itself."""
    listed = list(events)
    parent = {e.result: e.pid for e in listed if e.name in FORKS and e.result is not None and e.result > 0}
    names: dict[int, str] = {}

    def name_of(pid: int) -> str:
        for _ in range(64):
            if pid in names or pid not in parent:
                break
            pid = parent[pid]
        return names.get(pid, str(pid))

    named = []
    for event in listed:
        if event.result == 0 and event.name in ("execve", "execveat"):
            program = event.args[0 if event.name == "execve" else 1] if len(event.args) > 1 else ""
            names[event.pid] = unquote(program).rpartition("/")[2][:15] or str(event.pid)
        elif event.name == "prctl" and event.result == 0 and event.args[:1] == ("PR_SET_NAME",) and len(event.args) > 1:
            names[event.pid] = unquote(event.args[1])[:15]
        elif event.pid not in names:
            names[event.pid] = name_of(event.pid)
        named.append(replace(event, task=names[event.pid]))
    return named


def summarise(events: Iterable[SyscallEvent]) -> tuple[CallSummary, ...]:
    """Return one row per task and call, by task, then by count. Events are read once, and none is kept."""
    groups: dict[tuple[str, str], _Calls] = {}
    for event in events:
        key = (event.task, event.name)
        if key not in groups:
            groups[key] = _Calls(dict(enumerate(event.args)))
        groups[key].add(event)
    rows = (calls.summary(task, name) for (task, name), calls in groups.items())
    return tuple(sorted(rows, key=lambda r: (r.task, -r.count, r.name)))


@dataclass
class _Calls:
    """The calls of one name by one task. `constant`: index → the argument that all have had there."""

    constant: dict[int, str]
    count: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    total_s: float = 0.0
    min_s: float = math.inf
    max_s: float = -math.inf

    def add(self, event: SyscallEvent) -> None:
        self.count += 1
        self.total_s += event.seconds
        self.min_s, self.max_s = min(self.min_s, event.seconds), max(self.max_s, event.seconds)
        if event.error:
            self.errors[event.error] += 1
        given = event.args
        self.constant = {i: value for i, value in self.constant.items() if i < len(given) and given[i] == value}

    def summary(self, task: str, name: str) -> CallSummary:
        return CallSummary(
            task=task,
            name=name,
            count=self.count,
            errors=tuple(sorted(self.errors.items())),
            min_s=self.min_s,
            mean_s=self.total_s / self.count,
            max_s=self.max_s,
            constant_args=tuple(self.constant.items()),
        )
