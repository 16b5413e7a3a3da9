# SPDX-License-Identifier: Apache-2.0
"""Python's search for objects in circles, which is put off where a million objects are made that live to the end."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def no_collections() -> Iterator[None]:
    """Put the search off for the time of a block; it may be put off already."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
