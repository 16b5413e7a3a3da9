# SPDX-License-Identifier: Apache-2.0
"""Find the files that a trace opened, and those of the image that it never did."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping

from vmtailor.analysis.demands.call_paths import paths
from vmtailor.model.fit_run import Untouched
from vmtailor.model.syscalls import SyscallEvent
from vmtailor.model.trace import FileUse

#: Calls that open or execute a file.
_OPENING = frozenset(("open", "openat", "openat2", "creat", "execve", "execveat"))
_WRITING = ("O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC")
#: Number of never opened files that a report names.
MOST_NAMED = 200


def of_events(events: Iterable[SyscallEvent]) -> tuple[FileUse, ...]:
    """Return every path that was opened or executed, by path."""
    found: dict[str, list[int]] = {}
    for event in events:
        if event.name not in _OPENING:
            continue
        writing = event.name == "creat" or any(word in argument for argument in event.args for word in _WRITING)
        for path in paths(event)[:1]:
            row = found.setdefault(path, [0, 0, 0])
            row[0] += 1
            row[1] += bool(event.error)
            row[2] += writing
    return tuple(
        FileUse(path, opened, failed, bool(writing)) for path, (opened, failed, writing) in sorted(found.items())
    )


def untouched(
    files: Mapping[str, int],
    resolve: Callable[[str], str],
    uses: Iterable[FileUse],
    ports: Iterable[int],
    answered: Container[int],
) -> Untouched:
    """Return the files and ports of the image that the exercise never touched.

    `files`: regular files of the image, absolute path → bytes; `resolve` follows its links; `ports`: exposed ones;
    `answered`: those that answered."""
    opened = {resolve(use.path) for use in uses if use.opened > use.failed}
    never = [path for path in files if path not in opened]
    never.sort(key=lambda path: (-files[path], path))
    return Untouched(
        files_total=len(files),
        files_opened=len(files) - len(never),
        never_opened=tuple(never[:MOST_NAMED]),
        ports_never_answered=tuple(port for port in ports if port not in answered),
    )
