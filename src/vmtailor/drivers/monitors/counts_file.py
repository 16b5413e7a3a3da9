# SPDX-License-Identifier: Apache-2.0
"""File of counts, as a counter of instructions leaves it.

It is `VTCOUNT2`, then chunks (plugin_chunks.py):

    ARCH MODE OWNR MRKN SPNN DEVN
           `count` strings, each ended by a zero byte: the architecture; the mode and whether devices are counted; names
           of owners, marks, spans, memory-mapped devices (DEVN stands near the end)
    BLCK   blocks translated since the last BLCK: vaddr u64, instructions u32, bytes u32, class u16 (0 early or
           firmware, 1 kernel), port instructions u16, place of its first instruction's length u32
    LENS   lengths of those blocks' instructions, one byte each
    SPAN   passages of spans: span u64, totals
    STEP   a stretch that ended: mark i64 (-1: QEMU's end), totals, owners u32, devices u32, rows u32, 0 u32; owners ×
           (kernel u64, user u64); devices × u64; rows × (block u64, entries u64, executed u64), all since the last STEP
    VIRT   behind a STEP, where the guest of a hypervisor within the machine is counted apart: its totals
    VSPN   behind a SPAN, likewise, for each of its passages
    END.   nothing; its absence says that QEMU died

totals: early, kernel, user instructions, port accesses, memory-mapped accesses, five u64, since reset.
A guest's: early, kernel, user instructions, entries, four u64, since reset; the other totals are then without them.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from vmtailor.base.errors import UserInputError
from vmtailor.drivers.monitors import plugin_chunks
from vmtailor.model.architecture import presumed_name
from vmtailor.model.boots.counters import (
    END_MARK,
    Blocks,
    Counters,
    CountingMode,
    GuestTotals,
    OwnerCounts,
    SpanReached,
    Stretch,
    Totals,
)

MAGIC = b"VTCOUNT2"
_STEP = struct.Struct("<q5Q4I")
_GUEST = struct.Struct("<4Q")
_BLOCK = np.dtype(
    [("vaddr", "<u8"), ("insns", "<u4"), ("size", "<u4"), ("kind", "<u2"), ("ports", "<u2"), ("lengths_at", "<u4")]
)
_ROW = np.dtype([("block", "<u8"), ("entries", "<u8"), ("executed", "<u8")])
_SPAN = np.dtype([("span", "<u8"), ("totals", "<u8", (5,))])


def read(path: Path) -> Counters:
    """Read the plugin's file. Raises UserInputError when it is missing or damaged; a file that lacks its end is read as
    far as it goes, and says so (`complete`)."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise UserInputError(f"the plugin left no file {path}", hint="QEMU's own messages say why") from None
    return parse(data, str(path))


def parse(data: bytes, origin: str = "counts") -> Counters:
    """Read counts as `read` does, from bytes."""
    reader = _Reader()
    return plugin_chunks.read(data, MAGIC, origin, reader.take, reader.finish)


@dataclass
class _Step:
    mark: int
    totals: Totals
    owners: np.ndarray
    devices: np.ndarray
    rows: np.ndarray


_Passage = tuple[int, Totals]  # the span's number


@dataclass
class _Reader:
    names: dict[bytes, list[str]] = field(default_factory=dict)
    blocks: list[np.ndarray] = field(default_factory=list)
    lengths: list[np.ndarray] = field(default_factory=list)
    spans: list[_Passage] = field(default_factory=list)
    steps: list[_Step] = field(default_factory=list)
    guests: bool = False
    complete: bool = False

    def take(self, tag: bytes, count: int, payload: memoryview) -> None:
        if tag in (b"ARCH", b"MODE", b"OWNR", b"MRKN", b"SPNN", b"DEVN"):
            self.names[tag] = plugin_chunks.texts(payload, count)
        elif tag == b"BLCK":
            self.blocks.append(np.frombuffer(payload, _BLOCK))
        elif tag == b"LENS":
            self.lengths.append(np.frombuffer(payload, np.uint8))
        elif tag == b"SPAN":
            rows = np.frombuffer(payload, _SPAN)
            for span, totals in zip(rows["span"].tolist(), rows["totals"].tolist(), strict=True):
                early, kernel, user, ports, mmio = totals
                self.spans.append((span, Totals(early=early, kernel=kernel, user=user, ports=ports, mmio=mmio)))
        elif tag == b"STEP":
            self.steps.append(_step(payload))
        elif tag in (b"VIRT", b"VSPN"):
            self.guests = True
            self.take_guest(tag, [GuestTotals(*row) for row in _GUEST.iter_unpack(payload)])
        elif tag == b"END.":
            self.complete = True
        else:
            raise ValueError(f"unknown chunk {tag!r}")

    def take_guest(self, tag: bytes, guests: list[GuestTotals]) -> None:
        """Complete the stretch, or the passages of spans, that were read last."""
        if tag == b"VIRT":
            (guest,) = guests
            self.steps[-1].totals = replace(self.steps[-1].totals, guest=guest)
            return
        begin = len(self.spans) - len(guests)
        if begin < 0:
            raise ValueError("a guest's totals without a passage")
        for i, guest in enumerate(guests, begin):
            self.spans[i] = (self.spans[i][0], replace(self.spans[i][1], guest=guest))

    def finish(self) -> Counters:
        table = np.concatenate([np.empty(0, _BLOCK), *self.blocks])
        lengths = np.concatenate([np.empty(0, np.uint8), *self.lengths])
        if len(table) and (table["lengths_at"].astype(np.int64) + table["insns"]).max() > len(lengths):
            raise ValueError("instruction lengths are missing")
        blocks = Blocks(
            vaddr=table["vaddr"],
            insns=table["insns"],
            size=table["size"],
            early=table["kind"] == 0,
            ports=table["ports"],
            lengths_at=table["lengths_at"],
            lengths=lengths,
        )
        names, stretches, begin = self.names.get(b"MRKN", []), [], "reset"
        for step in self.steps:
            stretches.append(self._stretch(step, begin, names, len(blocks)))
            begin = stretches[-1].end
        spans = self.names.get(b"SPNN", [])
        reached = tuple(SpanReached(spans[span], at) for span, at in self.spans)
        mode, devices = self.names.get(b"MODE", ["", ""])
        exact = mode == CountingMode.COUNTS
        (architecture,) = self.names.get(b"ARCH", [presumed_name()])
        return Counters(
            exact=exact,
            complete=self.complete,
            devices=devices == "on",
            blocks=blocks,
            stretches=tuple(stretches),
            spans=reached,
            architecture=architecture,
            guests=self.guests,
        )

    def _stretch(self, step: _Step, begin: str, marks: list[str], blocks: int) -> Stretch:
        owner_names, device_names = self.names.get(b"OWNR", []), self.names.get(b"DEVN", [])
        if len(step.rows) and step.rows["block"].max() >= blocks:
            raise ValueError("a count of an unknown block")
        return Stretch(
            begin=begin,
            end=END_MARK if step.mark < 0 else marks[step.mark],
            at_end=step.totals,
            owners=tuple(
                OwnerCounts(name, int(pair[0]), int(pair[1]))
                for name, pair in zip(owner_names, step.owners, strict=True)
            ),
            devices=tuple(
                (device_names[i] if i < len(device_names) else f"device {i}", int(count))
                for i, count in enumerate(step.devices)
            ),
            block=step.rows["block"].astype(np.uint32),
            entries=step.rows["entries"],
            executed=step.rows["executed"],
        )


def _step(payload: memoryview) -> _Step:
    mark, *rest = _STEP.unpack_from(payload)
    totals, (owners, devices, rows, _) = rest[:5], rest[5:]
    at_devices = _STEP.size + owners * 16
    at_rows = at_devices + devices * 8
    if len(payload) != at_rows + rows * _ROW.itemsize:
        raise ValueError("a stretch of the wrong size")
    return _Step(
        mark=mark,
        totals=Totals(*totals),
        owners=np.frombuffer(payload[_STEP.size : at_devices], "<u8").reshape(owners, 2),
        devices=np.frombuffer(payload[at_devices:at_rows], "<u8"),
        rows=np.frombuffer(payload[at_rows:], _ROW),
    )
