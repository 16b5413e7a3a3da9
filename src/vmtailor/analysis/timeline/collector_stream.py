# SPDX-License-Identifier: Apache-2.0
"""Turn what the collector in a guest wrote (native/collector) into the members of a bootchart. The bytes are
untrusted."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from vmtailor.base.text import is_number

#: Fields of /proc/PID/stat that readers of a bootchart expect; the collector sends the first ones.
STAT_FIELDS = 44
MAX_SAMPLES = 100_000
MAX_TASKS = 20_000
MAX_OUT = 512 << 20
_STAT = re.compile(rb"(\d{1,10}) \([^\n]{0,64}\) \S( -?\d{1,20}){10,60}$")


@dataclass
class _State:
    cpus: dict[bytes, bytes] = field(default_factory=dict)
    disks: dict[bytes, bytes] = field(default_factory=dict)
    tasks: dict[int, bytes] = field(default_factory=dict)
    io: dict[int, bytes] = field(default_factory=dict)


def members(stream: bytes, header: Iterable[tuple[str, str]] = ()) -> dict[str, bytes]:
    """Return `proc_stat.log`, `proc_ps.log`, `proc_diskstats.log`, `header`, and `proc_io.log` (bytes read and written
    by process), each sample whole again. Empty when the stream has no sample; damaged lines are left out."""
    state, at, samples, size = _State(), None, 0, 0
    logs: dict[str, list[bytes]] = {
        name: [] for name in ("proc_stat.log", "proc_ps.log", "proc_diskstats.log", "proc_io.log")
    }

    def finish() -> int:
        if at is None:
            return 0
        rows = {
            "proc_stat.log": list(state.cpus.values()),
            "proc_ps.log": [state.tasks[pid] for pid in sorted(state.tasks)],
            "proc_diskstats.log": list(state.disks.values()),
            "proc_io.log": [state.io[pid] for pid in sorted(state.io)],
        }
        written = 0
        for name, lines in rows.items():
            block = b"%d\n%s\n" % (at, b"".join(line + b"\n" for line in lines))
            logs[name].append(block)
            written += len(block)
        return written

    for line in stream.replace(b"\r\n", b"\n").split(b"\n")[:-1]:  # the last line may be cut off
        kind, rest = line[:2], line[2:]
        if kind == b"@ ":
            if not is_number(rest) or len(rest) > 12:
                continue
            size += finish()
            samples += 1
            at = int(rest)
            if samples > MAX_SAMPLES or size > MAX_OUT:
                at = None
                break
        elif at is not None:
            _take(state, kind, rest)
    finish()
    if samples == 0:
        return {}
    text = "".join(f"{_plain(key)} = {_plain(value)}\n" for key, value in header)
    return {"header": text.encode(), **{name: b"".join(blocks) for name, blocks in logs.items()}}


def _take(state: _State, kind: bytes, rest: bytes) -> None:
    words = rest.split()
    if kind == b"c " and rest.startswith(b"cpu") and len(words) > 4 and len(state.cpus) < 4096:
        state.cpus[words[0]] = rest
    elif kind == b"d " and len(words) > 10 and len(state.disks) < 4096:
        state.disks[words[2]] = rest
    elif kind == b"p " and (found := _STAT.match(rest)):
        if len(state.tasks) < MAX_TASKS:
            fields = 2 + len(rest[rest.rindex(b")") + 1 :].split())
            state.tasks[int(found[1])] = rest + b" 0" * (STAT_FIELDS - fields)
    elif kind == b"i " and len(words) == 3 and all(is_number(w) and len(w) < 20 for w in words):
        state.io[int(words[0])] = rest
    elif kind == b"x " and is_number(rest) and len(rest) < 11:
        state.tasks.pop(int(rest), None)
        state.io.pop(int(rest), None)


def _plain(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)
