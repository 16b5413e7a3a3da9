# SPDX-License-Identifier: Apache-2.0
"""What QEMU says for itself is read from a file that it goes on writing."""

from __future__ import annotations

import os
import tempfile
from typing import IO, Any, cast

from vmtailor.drivers.monitors.running_machine import Lines, RunningMachine

NOT_ASKED = cast("Any", None)


def machine(errors: IO[bytes]) -> RunningMachine:
    """A machine of which only the words are asked."""
    return RunningMachine(NOT_ASKED, Lines(NOT_ASKED), "qemu", errors)


def test_where_qemu_writes_next_is_left_as_it_is() -> None:
    with tempfile.TemporaryFile() as errors:
        os.write(errors.fileno(), b"  first\n")
        os.lseek(errors.fileno(), 3, os.SEEK_SET)  # the place is shared: as if QEMU were in the midst of it
        assert machine(errors).stderr() == "first"
        assert os.lseek(errors.fileno(), 0, os.SEEK_CUR) == 3


def test_of_much_the_end_is_told() -> None:
    with tempfile.TemporaryFile() as errors:
        os.write(errors.fileno(), b"x" * 100_000 + b" the reason \xff\n")
        said = machine(errors).stderr()
        assert said.endswith(" the reason \ufffd") and len(said) < 10_000
