# SPDX-License-Identifier: Apache-2.0
"""QEMU's monitor protocol through `qemu.qmp`, which is asynchronous: one small event loop, driven while we ask."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import select
import socket
import time
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, TypeVar

from qemu.qmp import EventListener, QMPClient, Runstate
from qemu.qmp.error import QMPError
from qemu.qmp.qmp_client import ExecuteError

from vmtailor.base.errors import GuestError, HostError

T = TypeVar("T")
#: Seconds between looks whether QEMU still lives while it has not greeted.
_LOOK_S = 0.2
#: Seconds that the event loop is given to take in what has come.
_TURN_S = 0.002


class Qmp:
    """The monitor of one QEMU, on a pair of sockets. `theirs` is the descriptor that QEMU gets; call `started()` once
    it has it. Not for several threads."""

    def __init__(self) -> None:
        self._line, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self.theirs = self._theirs.fileno()
        self._loop = asyncio.new_event_loop()
        self._client = QMPClient("vmtailor")
        self._client.logger = logging.getLogger(__name__)
        self._events = EventListener()
        self._client.register_listener(self._events)

    def __enter__(self) -> Qmp:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with contextlib.suppress(QMPError, OSError, EOFError):
            self._loop.run_until_complete(self._client.disconnect())
        self._loop.close()
        self._theirs.close()
        self._line.close()

    def started(self) -> None:
        """Close our copy of QEMU's end, which it has, so that we hear when it ends."""
        self._theirs.close()

    def accept(self, timeout_s: float, alive: Callable[[], bool], said: Callable[[], str]) -> None:
        """Wait until QEMU greets. Raises HostError when it ends first, or does not greet in time."""
        end = time.monotonic() + timeout_s
        while not select.select([self._line], [], [], _LOOK_S)[0]:
            if not alive() or time.monotonic() > end:
                raise HostError("QEMU did not start", hint="vmtailor doctor checks the host", details=said())
        if not self._line.recv(1, socket.MSG_PEEK):
            raise HostError("QEMU did not start", hint="vmtailor doctor checks the host", details=said())
        try:
            self._run(self._client.connect(self._line), timeout_s)
        except (QMPError, EOFError, TimeoutError) as error:
            raise HostError("QEMU's monitor does not speak QMP", details=str(error)) from error

    def ask(self, what: str, timeout_s: float = 10.0, **arguments: object) -> Any:
        """Execute one command and return its answer. Raises GuestError when QEMU refuses or is gone."""
        try:
            return self._run(self._client.execute(what, arguments or None), timeout_s)
        except ExecuteError as error:
            raise GuestError(f"QEMU refused {what}: {error}") from error
        except (QMPError, EOFError, TimeoutError) as error:
            raise GuestError(f"QEMU does not answer {what}", details=str(error)) from error

    def ask_person(self, line: str) -> str:
        """Execute a line of the monitor for people: what has no command of its own. Raises as `ask` does."""
        return str(self.ask("human-monitor-command", 10.0, **{"command-line": line}))

    def fileno(self) -> int:
        """Return the socket's descriptor: readable when there may be something for `feed`."""
        return self._line.fileno()

    def feed(self) -> bool:
        """Read what is there, for `heard`. False once the line has ended, after which there is nothing to wait for."""
        self._loop.call_later(_TURN_S, self._loop.stop)
        self._loop.run_forever()
        return bool(self._client.runstate is Runstate.RUNNING)

    def heard(self) -> list[str]:
        """Return the names of the events that were read since the last call. Does not wait."""
        return [str(message["event"]) for message in self._events.clear()]

    def _run(self, work: Coroutine[Any, Any, T], timeout_s: float) -> T:
        return self._loop.run_until_complete(asyncio.wait_for(work, timeout_s))
