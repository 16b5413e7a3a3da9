# SPDX-License-Identifier: Apache-2.0
"""A guest's line: two pipes.

A socket would not do. QEMU writes byte by byte, and in a Unix socket each byte takes a buffer of its own: after some
three hundred the guest would wait for its reader. On the instruction clock the host's load would then change the
figures, and the guest's time limits would pass while it waits. A pipe packs the bytes, and holds a megabyte."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
from types import TracebackType

#: Bytes that the guest may be ahead of its reader; the most that a user without privileges gets.
PIPE_BYTES = 1 << 20
#: Bytes of what was read last that are kept for error messages.
TAIL_BYTES = 65536


class SerialLine:
    """Our end of the line. `fileno()` is for reading, `write_fileno()` for writing; both are non-blocking.

    `guest_in` and `guest_out` are the ends that the monitor gets; call `started()` once it has them."""

    def __init__(self) -> None:
        self.tail = bytearray()
        self.heard = False
        self._in, self.guest_out = os.pipe()
        self.guest_in, self._out = os.pipe()
        with contextlib.suppress(OSError):
            fcntl.fcntl(self._in, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        os.set_blocking(self._in, False)
        os.set_blocking(self._out, False)
        self._theirs_open = True

    def started(self) -> None:
        """Close our copies of the monitor's ends, which it has, so that we hear when it ends."""
        if self._theirs_open:
            self._theirs_open = False
            os.close(self.guest_in)
            os.close(self.guest_out)

    def close(self) -> None:
        self.started()
        for descriptor in (self._in, self._out):
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def __enter__(self) -> SerialLine:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def fileno(self) -> int:
        return self._in

    def write_fileno(self) -> int:
        return self._out

    def wait_readable(self, timeout_s: float) -> bool:
        """Wait, and return True once there is something to read, or the line's end."""
        return bool(select.select([self._in], [], [], timeout_s)[0])

    def recv(self, size: int, /) -> bytes:
        """Return what is there, at most `size` bytes; empty at the line's end. Raises BlockingIOError when nothing
        is."""
        data = os.read(self._in, size)
        self.heard = self.heard or bool(data)
        self.tail += data
        del self.tail[:-TAIL_BYTES]
        return data

    def send(self, data: bytes, /) -> int:
        """Send what fits; returns how many bytes. Raises BlockingIOError when none did, OSError when the monitor is
        gone."""
        return os.write(self._out, data)


class PortLine(SerialLine):
    """Our end of a virtio port, on which nothing is text."""

    def recv(self, size: int, /) -> bytes:
        """Return what is there, as a serial line does; no tail of it is kept."""
        data = os.read(self._in, size)
        self.heard = self.heard or bool(data)
        return data
