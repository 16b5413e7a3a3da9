# SPDX-License-Identifier: Apache-2.0
"""The kernels that this host's distribution packages, for tests that hold for every series of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from vmtailor.base.cache.store import Store
from vmtailor.base.errors import VmtailorError
from vmtailor.drivers.distribution import packaged_baseline, selection
from vmtailor.drivers.distribution.distribution import PackagedKernel
from vmtailor.model.architecture import presumed


@cache
def _kernels() -> Sequence[PackagedKernel]:
    distribution = selection.of_host()
    try:
        return packaged_baseline.ordered(distribution, distribution.kernels(presumed()))
    except VmtailorError:  # no lists: the tests of packaged kernels are skipped
        return ()


def packaged_series() -> list[str]:
    """Every series that a baseline can be of, newest first; empty where nothing is packaged."""
    return list(dict.fromkeys(kernel.series for kernel in _kernels()))


def each_series() -> list[Any]:
    """The same as parameters; all but the newest, which fits take, are `slow`."""
    return [
        pytest.param(name, marks=[pytest.mark.slow] if older else []) for older, name in enumerate(packaged_series())
    ]


def packaged_source(series: str) -> Path:
    """The source of the newest kernel of a series, unpacked in the cache."""
    return packaged_baseline.select(selection.of_host(), presumed(), series, _kernels()).source(Store()).path
