# SPDX-License-Identifier: Apache-2.0
"""Read the calls that a container was refused in a run, and find those that the baseline would have allowed.

Init sends lines `NUMBER COUNT LINE`: a kind of refused call, with the tracer's line of its first one. `NUMBER COUNT`
says how often by now, `0 COUNT` counts calls of further kinds, and `end` ends. The lines come from a guest: anything
may be in them."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from vmtailor.analysis.demands import strace_log
from vmtailor.analysis.demands.call_paths import paths
from vmtailor.analysis.demands.degradation import GONE, MISSING, signature
from vmtailor.analysis.demands.demand import LOW_PORTS, PSEUDO, Demand, Demands
from vmtailor.model.evidence import EvidenceKind
from vmtailor.model.syscalls import ObservedCall, SyscallEvent

#: Kinds of calls that are kept, and bytes of one line: more than init ever tells.
MOST_KINDS = 8192
MOST_LINE_BYTES = 4096
_MOST_COUNT = 1 << 40
_TOLD = re.compile(rb"(\d{1,10}) (\d{1,10})(?: (.*))?\Z", re.S)

#: Errors with reasons of their own, whatever the kernel has.
_OWN = frozenset({"EBADF", "EFAULT", "ENOMEM", "EMFILE", "ENFILE", "EPERM", "ENOENT", "ENOTDIR", "ENOSPC"})
_OPENS_SOCKET = ("socket", "socketpair")
#: Requests by which programs test for a terminal: "no" is an answer.
_WHETHER_A_TERMINAL = ("TCGETS", "TCGETS2", "TIOCGWINSZ")
_NO_SUCH = frozenset({"ENOENT", "ENOTDIR"})
_PORT = re.compile(r"sin6?_port=htons\((\d{1,5})\)")
#: Below /dev, what comes with a file system. All else are nodes, which init makes, and none that a container lacks.
_MOUNTED = re.compile(r"/dev/(?:pts|ptmx|shm|mqueue)(?:/|\Z)")


class Told:
    """Collects what init tells of one run."""

    def __init__(self) -> None:
        self._rest = b""
        self._events: dict[int, SyscallEvent] = {}
        self._counts: dict[int, int] = {}
        self.untold = 0
        #: True once the last counts have come.
        self.whole = False

    def hear(self, part: bytes) -> None:
        """Take a part of the file, as it comes."""
        *lines, rest = (self._rest + part).split(b"\n")
        self._rest = rest[: MOST_LINE_BYTES + 1]
        for line in lines:
            self._line(line)

    def _line(self, line: bytes) -> None:
        if line == b"end":
            self.whole = True
        told = _TOLD.match(line) if len(line) <= MOST_LINE_BYTES else None
        if told is None:
            return
        number, count = int(told[1]), min(int(told[2]), _MOST_COUNT)
        if number == 0:
            self.untold = max(self.untold, count)
            return
        if told[3] is not None and number not in self._events and len(self._events) < MOST_KINDS:
            event = strace_log.parse_line(told[3].decode("utf-8", "replace"))
            if event is not None and event.error:
                self._events[number] = event
        if number in self._events:
            self._counts[number] = max(count, self._counts.get(number, 0))

    def calls(self) -> tuple[ObservedCall, ...]:
        """Return the kinds of calls, most often refused first."""
        found: dict[tuple[str, ...], ObservedCall] = {}
        for number, event in self._events.items():
            named = paths(event)
            one = ObservedCall(
                name=event.name,
                args=event.args,
                arguments=signature(event),
                error=event.error,
                count=self._counts[number],
                task=event.task,
                path=named[0] if named else "",
            )
            key = (one.name, one.arguments, one.error, one.task)
            before = found.get(key)
            found[key] = one if before is None else replace(before, count=before.count + one.count)
        return tuple(sorted(found.values(), key=lambda c: (-c.count, c.name, c.arguments, c.task)))


@dataclass(frozen=True)
class Refused:
    """A call that was refused. `demands` are what it asks for and the kernel lacks, each with those symbols alone: set
    on the baseline, and not here. Without any, nothing that is known of the source says that the baseline would have
    given it; `also` is then why that is so, where more is known."""

    call: ObservedCall
    demands: tuple[Demand, ...]
    also: str = ""

    @property
    def symbols(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for found in self.demands for name in found.symbols))


def event_of(call: ObservedCall, line: int = 0) -> SyscallEvent:
    """Return the call as the parser of the tracer's log gives it."""
    return SyscallEvent(
        line=line, pid=0, task=call.task, name=call.name, args=call.args, result=-1, error=call.error, seconds=0.0
    )


def judged(
    calls: Sequence[ObservedCall],
    demands: Demands,
    baseline: Mapping[str, str],
    here: Mapping[str, str],
    failed: Collection[tuple[str, str, str]] = (),
) -> tuple[Refused, ...]:
    """Return the refused calls that a kernel's configuration may cause.

    `demands` knows the source; `baseline` and `here` are configurations, name → value. `failed`: what failed alike on
    the baseline while it was traced: name, arguments and error."""
    found = []
    for number, call in enumerate(calls, 1):
        if (call.name, call.arguments, call.error) in failed:
            if speaks_of_kernel(call):
                found.append(Refused(call, (), "it failed on the baseline, too, when that was traced"))
            continue
        lacking = tuple(_lacking(call, demands.alone(event_of(call, number), f"observed:{number}"), baseline, here))
        also = "" if lacking else _otherwise(call, here)
        if lacking or also or speaks_of_kernel(call):
            found.append(Refused(call, lacking, also))
    return tuple(found)


def _otherwise(call: ObservedCall, here: Mapping[str, str]) -> str:
    """Return why a call fails here and not in a container engine, where that is no missing symbol of the call's own."""
    if (call.name, call.error) == ("copy_file_range", "EXDEV"):
        return "the image is a disk and new files lie in memory: it must be copied by read and write"
    port = _PORT.search(", ".join(call.args)) if (call.name, call.error) == ("bind", "EACCES") else None
    if port and int(port[1]) < LOW_PORTS and here.get("PROC_SYSCTL") != "y":
        return "a user may listen below port 1024 where the kernel has /proc/sys: keep PROC_SYSCTL"
    return ""


def _lacking(
    call: ObservedCall, asked: Iterable[Demand], baseline: Mapping[str, str], here: Mapping[str, str]
) -> Iterable[Demand]:
    asked = tuple(asked)
    if call.name in _OPENS_SOCKET and not any(_has_family(one, baseline) for one in asked):
        return  # the family is none that the baseline has, whatever else the call needs
    for one in asked:
        names = tuple(s for s in one.symbols if baseline.get(s) in ("y", "m") and here.get(s) not in ("y", "m"))
        if names and _can_be_why(one.evidence.kind, call):
            yield replace(one, symbols=names)


def _has_family(one: Demand, baseline: Mapping[str, str]) -> bool:
    return one.evidence.kind is EvidenceKind.SOCKET and all(baseline.get(s) in ("y", "m") for s in one.symbols)


def _can_be_why(kind: EvidenceKind, call: ObservedCall) -> bool:
    """Return whether a call can fail with this error because the thing is missing."""
    error = call.error
    if error == "ENOSYS":
        return True  # the whole call is missing, and so is all that it asks for
    rules: dict[EvidenceKind, Callable[[], bool]] = {
        EvidenceKind.SYSCALL: lambda: False,
        EvidenceKind.CREDENTIAL: lambda: False,
        EvidenceKind.SOCKET: lambda: error in MISSING or error == "ENOENT",
        EvidenceKind.PSEUDO_FILE: lambda: error in GONE and not _is_node(call),
        EvidenceKind.BINARY_FORMAT: lambda: error == "ENOEXEC",
        EvidenceKind.FILESYSTEM: lambda: error in ("ENODEV", "EINVAL"),
    }
    rule = rules.get(kind)
    return error not in _OWN if rule is None else rule()


def _is_node(call: ObservedCall) -> bool:
    return call.error in _NO_SUCH and call.path.startswith("/dev/") and not _MOUNTED.match(call.path)


def speaks_of_kernel(call: ObservedCall) -> bool:
    """Return whether the error is one by which kernels say that they lack something."""
    if call.error == "ENOTTY" and any(word in call.args for word in _WHETHER_A_TERMINAL):
        return False
    return call.error in MISSING or (call.error in _NO_SUCH and call.path.startswith(PSEUDO))


def of_observed(calls: Iterable[ObservedCall], demands: Demands, baseline: Mapping[str, str]) -> None:
    """Take into account what was refused in runs: what the baseline would have given, and nothing else."""
    for number, call in enumerate(calls, 1):
        for one in _lacking(call, demands.alone(event_of(call, number), f"observed:{number}"), baseline, {}):
            text = f"seen in a run: {one.text}, which was refused ({call.error})"
            demands.add_found(replace(one, text=text))
