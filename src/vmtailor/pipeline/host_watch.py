# SPDX-License-Identifier: Apache-2.0
"""Watch this host itself, and the containers that an engine runs on it, by the sampler that machines have."""

from __future__ import annotations

import os
import select
import subprocess
import time

from vmtailor.analysis.watches.columns import WatchColumns
from vmtailor.analysis.watches.sample_text import SampleReader
from vmtailor.base.errors import HostError
from vmtailor.base.process import spawn
from vmtailor.base.text import plain
from vmtailor.drivers.guest import guest_programs
from vmtailor.model.architecture import presumed
from vmtailor.model.machine import Clock
from vmtailor.model.machine_watch import MachineWatch

#: Names this host where a machine is asked for.
HOST = "host:"
#: Seconds beyond its time in which a sample must come; bytes that are read at once; characters of what it says.
_LATE_S, _CHUNK, _MOST_SAID = 30.0, 1 << 16, 300


def watch(every_ms: int, seconds: float) -> MachineWatch:
    """Return the record of this host over so many seconds. It ends early with Ctrl-C. Raises HostError where no sample
    comes."""
    reader, columns, notes = SampleReader(), WatchColumns(), list[str]()
    sampler = (str(guest_programs.of(presumed().name).sampler), "sample", str(every_ms), "0")
    with spawn(sampler, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        until = time.monotonic() + seconds
        try:
            while time.monotonic() < until or not len(columns):
                ready, _, _ = select.select([process.stdout], [], [], every_ms / 1000 + _LATE_S)
                data = os.read(process.stdout.fileno(), _CHUNK) if ready else b""
                if not data:
                    said = (
                        plain(os.read(process.stderr.fileno(), _MOST_SAID).decode("utf-8", "replace").strip())
                        if ready
                        else ""
                    )
                    raise HostError(
                        f"this host takes no samples{f': {said}' if said else ''}", hint="run: vmtailor doctor"
                    )
                for sample in reader.feed(data):
                    columns.add(sample)
        except KeyboardInterrupt:
            if not len(columns):
                raise
            notes.append("the watch was ended by its user")
    if reader.damaged:
        notes.append(f"{reader.damaged} lines of the sampler made no sense")
    return columns.record(
        HOST, Clock.WALL, every_ms, containers=tuple(reader.containers.values()), notes=(*reader.notes, *notes)
    )
