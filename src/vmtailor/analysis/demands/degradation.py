# SPDX-License-Identifier: Apache-2.0
"""Silent degradation: calls that worked on the baseline and fail on the tailored machine, even if the program coped."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from vmtailor.analysis.demands.call_paths import paths as event_paths
from vmtailor.analysis.demands.strace_log import descriptor_path
from vmtailor.model.syscalls import FailedCall, SyscallEvent

#: Errors that a healthy machine has as well, depending on timing and on the other side.
NORMAL = frozenset({
    "EAGAIN", "EINTR", "EINPROGRESS", "EALREADY", "EISCONN", "ENOTCONN", "ECONNRESET", "ECONNREFUSED", "ECONNABORTED",
    "EPIPE", "ECHILD", "ETIMEDOUT", "EADDRINUSE", "ESRCH", "ESPIPE", "EEXIST", "ERESTARTSYS", "ERESTARTNOINTR",
    "ERESTARTNOHAND", "ERESTART_RESTARTBLOCK",
})  # fmt: skip
#: Errors of a kernel that was built without something. These also count for another path, if the same kind of
#: call never failed so on the baseline.
MISSING = frozenset({
    "ENOSYS", "EAFNOSUPPORT", "EPFNOSUPPORT", "EPROTONOSUPPORT", "ESOCKTNOSUPPORT", "ENOPROTOOPT", "EOPNOTSUPP",
    "ENODEV", "ENXIO", "EINVAL", "ENOTTY", "ENOEXEC",
})  # fmt: skip
#: Errors for a path that is missing, or has nothing behind it.
GONE = frozenset({"ENOENT", "ENOTDIR", "ENODEV", "ENXIO"})
_WORD = re.compile(r"[A-Z][A-Z0-9_]*(?:\|[A-Z0-9_]+)*(?:<|\Z)")
_PID = re.compile(r"(?<=/proc/)\d+")
_FAMILY = re.compile(r"sa_family=(AF_\w+)")


def signature(event: SyscallEvent, *, paths: bool = True) -> str:
    """Return the arguments that decide what a call asks for: paths, flags, families, commands; no numbers, no
    addresses."""
    kept = []
    if paths:
        named = event_paths(event) or tuple(descriptor_path(a) for a in event.args[:1])
        kept += [_PID.sub("PID", path) for path in named if path.startswith("/")]
    for argument in event.args:
        if family := _FAMILY.search(argument):
            kept.append(family.group(1))
        elif _WORD.match(argument) and not argument.startswith(("NULL", "AT_FDCWD")):
            kept.append(argument.partition("<")[0])
    return ", ".join(kept)


def _failed(event: SyscallEvent) -> bool:
    # rt_sigreturn gives back the result of the call that the signal interrupted.
    return bool(event.error) and event.name != "rt_sigreturn"


def failed_calls(events: Iterable[SyscallEvent]) -> tuple[FailedCall, ...]:
    """Return all calls that failed, counted by name, deciding arguments and error."""
    found = Counter((e.name, signature(e), e.error) for e in events if _failed(e))
    return tuple(FailedCall(name, arguments, error, n) for (name, arguments, error), n in sorted(found.items()))


def newly_failing(baseline: Iterable[SyscallEvent], tailored: Iterable[SyscallEvent]) -> tuple[FailedCall, ...]:
    """Return calls that fail on the tailored machine, where the same call worked on the baseline.

    `same`: name and deciding arguments. For errors that say "not built in" a call of the same kind on another path is
    enough. A call that failed alike on the baseline, at least once, is none.
    """
    worked: set[tuple[str, str]] = set()
    worked_without_path: set[tuple[str, str]] = set()
    failed: set[tuple[str, str, str]] = set()
    for event in baseline:
        exact, kind = (event.name, signature(event)), (event.name, signature(event, paths=False))
        if _failed(event):
            failed |= {(*exact, event.error), (*kind, event.error)}
        elif event.result is not None:
            worked.add(exact)
            worked_without_path.add(kind)
    found: Counter[tuple[str, str, str]] = Counter()
    for event in tailored:
        if not _failed(event) or event.error in NORMAL:
            continue
        exact, kind = (event.name, signature(event)), (event.name, signature(event, paths=False))
        same = exact in worked and (*exact, event.error) not in failed
        alike = event.error in MISSING and kind in worked_without_path and (*kind, event.error) not in failed
        if same or alike:
            found[(*exact, event.error)] += 1
    return tuple(FailedCall(name, arguments, error, n) for (name, arguments, error), n in sorted(found.items()))
