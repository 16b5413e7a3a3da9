# SPDX-License-Identifier: Apache-2.0
"""The type of the fixture `start`: the program within the test's own process, as a user would start it, but fast."""

from __future__ import annotations

from collections.abc import Callable

#: (exit code, standard output, standard error)
Ended = tuple[int, str, str]
Start = Callable[..., Ended]
