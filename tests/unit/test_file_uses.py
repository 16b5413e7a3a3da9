# SPDX-License-Identifier: Apache-2.0
"""Which files were opened."""

from __future__ import annotations

from vmtailor.analysis.demands.file_uses import of_events, untouched
from vmtailor.model.syscalls import SyscallEvent
from vmtailor.model.trace import FileUse


def call(name: str, *args: str, error: str = "") -> SyscallEvent:
    return SyscallEvent(1, 2, "t", name, args, -1 if error else 3, error, 0.0)


def test_openings_are_counted_by_path() -> None:
    uses = of_events(
        [
            call("openat", "AT_FDCWD", '"/etc/x"', "O_RDONLY"),
            call("openat", "AT_FDCWD", '"/etc/x"', "O_WRONLY|O_CREAT", "0600", error="EACCES"),
            call("execve", '"/bin/sh"', '["sh"]', "0x1"),
            call("stat", '"/etc/y"', "0x1"),
        ]
    )
    assert uses == (FileUse("/bin/sh", 1, 0, False), FileUse("/etc/x", 2, 1, True))


def test_what_was_never_touched_is_named_largest_first() -> None:
    files = {"/usr/lib/a": 10, "/b": 5, "/c": 50}
    uses = [FileUse("/lib/a", 1, 0, False), FileUse("/c", 1, 1, False)]
    found = untouched(files, lambda path: path.replace("/lib/", "/usr/lib/"), uses, [80, 443], {80})
    assert (found.files_total, found.files_opened) == (3, 1)
    assert found.never_opened == ("/c", "/b")
    assert found.ports_never_answered == (443,)
