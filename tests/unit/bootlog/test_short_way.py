# SPDX-License-Identifier: Apache-2.0
"""The short ways that a long log takes give what the long way gives."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from vmtailor.analysis.bootlog.boot_record import Observed
from vmtailor.analysis.bootlog.kernel_messages import KernelLog

_TEXTS = st.sampled_from(
    (
        b"calling  a_init+0x0/0x1f0 @ 1",
        b"initcall a_init+0x0/0x1f0 returned 0 after 12 usecs",
        b"calling  a_init+0x0/0x1f0 [mod_a] @ 77",
        b"initcall a_init+0x0/0x1f0 [mod_a] returned -19 after 3 usecs",
        b"calling  b_init+0x0/0x10 @ 1",
        b"initcall b_init+0x0/0x10 returned 0 after 900",
        b"initcall b_init+0x0/0x10 returned 0 after 900 usecs",
        b"probe of device returned 0 after 5 usecs",
        b"an ordinary message",
        b"entering initcall level: late",
        b"two ran together [    0.000200] initcall b_init+0x0/0x10 returned 0 after 900 usecs",
    )
)
_LINES = st.lists(st.tuples(st.integers(-300, 1500), _TEXTS, st.booleans()), max_size=40)


class _Long(KernelLog):
    def _pair(self, line: bytes, following: bytes) -> bool:
        return False

    def _step(self, line: bytes) -> bool:
        return False


def _read(kind: type[KernelLog], lines: list[bytes]) -> Observed:
    log = kind("a log", [b"[    0.000000] Linux version 6.12.1"] * 20)
    log.feed(lines)
    return log.finish()


#: Lines that follow each other closely for longer than between two notes of how much was printed.
_CLOSE = [(900, b"calling  a_init+0x0/0x1f0 @ 1", True)] * 24


@settings(max_examples=300, deadline=None)
@given(_LINES)
@example(_CLOSE)
def test_the_short_way_gives_what_the_long_way_gives(steps: list[tuple[int, bytes, bool]]) -> None:
    lines, now = [], 1_000_000
    for step, text, stamped in steps:
        now = max(0, now + step)
        lines.append(b"[%5d.%06d] %s" % (now // 10**6, now % 10**6, text) if stamped else text)
    assert _read(KernelLog, lines) == _read(_Long, lines)
