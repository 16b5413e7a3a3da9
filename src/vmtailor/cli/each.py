# SPDX-License-Identifier: Apache-2.0
"""Verbs that take several machines: an error of one is told, and the others go on."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from vmtailor.base import terminal
from vmtailor.base.errors import ExitCode, VmtailorError


class Failures:
    """Errors of some of several machines."""

    def __init__(self) -> None:
        self._failed = False

    def add(self, error: VmtailorError) -> None:
        """Tell an error, and go on."""
        self._failed = True
        terminal.show_error(error)

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """Tell an error of the block, and go on behind it."""
        try:
            yield
        except VmtailorError as error:
            self.add(error)

    def leave(self) -> None:
        """End the program with status 1 where there was an error."""
        if self._failed:
            sys.exit(ExitCode.NO)
