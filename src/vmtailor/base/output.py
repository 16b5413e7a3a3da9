# SPDX-License-Identifier: Apache-2.0
"""Print lines and documents on standard output and standard error. Only this module and `terminal`, which has colours
and tables, print. No text that they print can steer the terminal.

Output of a container under `vmtailor run` does not come through here: it is passed on as it is."""

from __future__ import annotations

import contextlib
import json
import logging
import select
import sys
from collections.abc import Iterable
from typing import Any, TextIO

from vmtailor.base.text import block, json_plain, plain


def say(text: str) -> None:
    """Print a line on standard output."""
    _write(sys.stdout, f"{plain(text)}\n")


def lines(text: str) -> None:
    """Print text that has its own line ends on standard output."""
    _write(sys.stdout, block(text))


def note(text: str) -> None:
    """Print a line on standard error, at once."""
    _write(sys.stderr, f"{plain(text)}\n")


def document(value: Any) -> None:
    """Print a value as one indented JSON document in UTF-8."""
    json_bytes([json.dumps(value, indent=1, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"])


def json_bytes(parts: Iterable[bytes]) -> None:
    """Print a JSON document that is there as bytes, whole or in pieces; a piece ends between two characters."""
    sys.stdout.flush()
    out = sys.stdout.buffer
    for part in parts:
        out.write(json_plain(part.decode("utf-8", "surrogatepass")).encode())
    out.flush()


def is_unread() -> bool:
    """Return whether nobody reads standard output or standard error any more."""
    poll = select.poll()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or replaced by what is no file
            poll.register(stream.fileno(), 0)
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))


#: Logged messages are for --debug alone. Without a handler, Python prints those that are errors.
logging.getLogger("vmtailor").addHandler(logging.NullHandler())


def debug_log() -> None:
    """Have everything that is logged printed on standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Plain("%(relativeCreated)8.0f ms %(name)s: %(message)s"))
    logging.basicConfig(level=logging.DEBUG, handlers=[handler])


class _Plain(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return block(super().format(record))


def _write(stream: TextIO | None, text: str) -> None:
    if stream is None:  # closed by who started us
        return
    # Characters that the terminal's encoding lacks are shown by number, not as an error.
    encoding = stream.encoding or "utf-8"
    stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
    stream.flush()
