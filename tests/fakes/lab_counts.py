# SPDX-License-Identifier: Apache-2.0
"""Counters as the plugin leaves them of a lab and its guest, and the end of KVM's trace."""

from __future__ import annotations

import numpy as np

from vmtailor.model.boots.counters import Blocks, Counters, GuestTotals, SpanReached, Stretch, Totals

#: Three blocks of the host's kernel; the second clears memory.
VADDR = np.array([0x100, 0x204, 0x300], np.uint64)
NONE = np.empty(0, np.uint64)
BLOCKS = Blocks(
    vaddr=VADDR, insns=NONE.astype(np.uint32), size=NONE.astype(np.uint32), early=NONE.astype(np.bool_),
    ports=NONE.astype(np.uint16), lengths_at=NONE.astype(np.uint32), lengths=NONE.astype(np.uint8),
)  # fmt: skip


def at(user: int, kernel: int, guest_kernel: int = 0, guest_user: int = 0, entries: int = 0) -> Totals:
    return Totals(user=user, kernel=kernel, guest=GuestTotals(kernel=guest_kernel, user=guest_user, entries=entries))


def counters(marks: dict[str, Totals], spans: list[tuple[str, Totals]] = []) -> Counters:  # noqa: B006
    stretches, before = [], "reset"
    for name, totals in marks.items():
        executed = np.array([1, len(name), 1], np.uint64)
        numbers = np.arange(3, dtype=np.uint32)
        stretches.append(
            Stretch(
                begin=before, end=name, at_end=totals, owners=(), devices=(), block=numbers, entries=executed,
                executed=executed,
            )
        )  # fmt: skip
        before = name
    reached = tuple(SpanReached(name, totals) for name, totals in spans)
    return Counters(
        exact=True, complete=True, devices=True, blocks=BLOCKS, stretches=tuple(stretches), spans=reached, guests=True
    )


MARKS = {
    "machine": at(1, 1),  # the lab tried KVM itself: that is no part of the monitor
    "monitor": at(10, 100),
    "entered": at(15, 130),
    "init": at(20, 160, guest_kernel=50, entries=3),
    "ready": at(25, 200, guest_kernel=80, guest_user=7, entries=5),
    "gone": at(30, 260, guest_kernel=90, guest_user=9, entries=6),
}

#: Behind the events of a trace that lost none.
STATISTICS = b"entries: 8\noverrun: 0\ncommit overrun: 0\ndropped events: 0\nread events: 0\nend\n"
