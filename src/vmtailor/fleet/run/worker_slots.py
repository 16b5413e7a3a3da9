# SPDX-License-Identifier: Apache-2.0
"""The slots of one host: processes that are kept alive as long as this one wants them."""

from __future__ import annotations

import contextlib
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from vmtailor.base import process
from vmtailor.base.errors import ExitCode, HostError
from vmtailor.base.text import plain
from vmtailor.fleet.model.addresses import Address
from vmtailor.fleet.run.certificates import Certificates

PROGRAM = (sys.executable, "-P", "-m", "vmtailor.fleet.run.worker_slot")
#: Seconds until a slot that died is started again; deaths of one slot within so many seconds, each, that are too many.
_AGAIN_S, _SOON_S, _MOST_SOON = 1.0, 20.0, 5
#: Bytes of a slot's last words.
_WORDS = 2000
#: Between a slot's name, how often it was started, and the digest of its host's tools.
STARTS_MARK, DIGEST_MARK = "~", "#"


def host_name() -> str:
    """Return this host's name, for the names of its slots."""
    return plain(platform.node())[:60] or "host"


@dataclass(eq=False)
class _Slot:
    number: int
    process: subprocess.Popen[bytes]
    held: contextlib.ExitStack
    began: float
    starts: int = 1
    soon: int = 0
    died: float = 0.0


class WorkerSlots:
    """Slots that were started, each with a log in `folder`. `digest`: of the tools of this host."""

    def __init__(
        self, scheduler: Address, shown: Certificates, folder: Path, digest: str, program: Sequence[str] = PROGRAM
    ) -> None:
        self._scheduler, self._shown, self._folder, self._digest = scheduler, shown, folder, digest
        self._program = program
        self._slots: list[_Slot] = []

    def start(self, count: int) -> None:
        """Start so many."""
        for number in range(len(self._slots), len(self._slots) + count):
            started, held = self._started(number, 1)
            self._slots.append(_Slot(number, started, held, time.monotonic()))

    def _log(self, number: int) -> Path:
        return self._folder / f"slot-{number}.log"

    def _started(self, number: int, starts: int) -> tuple[subprocess.Popen[bytes], contextlib.ExitStack]:
        name = f"{host_name()}-{os.getpid()}-{number}{STARTS_MARK}{starts}{DIGEST_MARK}{self._digest[:16]}"
        argv = [*self._program, self._scheduler.text, str(self._shown.folder), name]
        held = contextlib.ExitStack()
        log = held.enter_context(self._log(number).open("wb"))
        return held.enter_context(process.spawn(argv, stdout=log, stderr=log)), held

    def keep(self) -> None:
        """Start again what died. Raises HostError where a slot dies again and again, or finds no scheduler."""
        now = time.monotonic()
        for slot in self._slots:
            if slot.process.poll() is None:
                continue
            if not slot.died:
                slot.died = now
                slot.soon = slot.soon + 1 if now - slot.began < _SOON_S else 0
            words = self._words(slot.number)
            if slot.process.returncode in (0, ExitCode.HOST) or slot.soon >= _MOST_SOON:
                gone = "its scheduler is gone" if slot.process.returncode == 0 else "it cannot be started"
                raise HostError(
                    f"a worker of {self._scheduler.text} ended: {words or gone}", hint="start the scheduler again"
                )
            if now - slot.died >= _AGAIN_S:
                slot.held.close()
                slot.starts += 1
                slot.process, slot.held = self._started(slot.number, slot.starts)
                slot.began, slot.died = now, 0.0

    def _words(self, number: int) -> str:
        with contextlib.suppress(OSError):
            lines = self._log(number).read_bytes()[-_WORDS:].decode("utf-8", "replace").strip().splitlines()
            return plain(lines[-1].removeprefix("error: ")) if lines else ""
        return ""

    def end(self) -> None:
        """End all, at once."""
        for slot in self._slots:
            with contextlib.suppress(ProcessLookupError):
                slot.process.terminate()
        for slot in self._slots:
            slot.held.close()


@contextlib.contextmanager
def started(slots: WorkerSlots, count: int) -> Iterator[WorkerSlots]:
    """Keep so many slots while the block runs."""
    try:
        slots.start(count)
        yield slots
    finally:
        slots.end()
