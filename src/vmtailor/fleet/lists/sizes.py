# SPDX-License-Identifier: Apache-2.0
"""Amounts of memory, processors and time as Compose and Kubernetes write them."""

from __future__ import annotations

import math
import re
from decimal import Decimal, InvalidOperation
from typing import Any

from vmtailor.base import notation
from vmtailor.base.errors import UserInputError
from vmtailor.drivers.image.documents import shown
from vmtailor.model.option_rows import CPUS
from vmtailor.model.option_values import parse_duration

#: Memory that a fit's machine can have.
LEAST_MEMORY, MOST_MEMORY = 8 << 20, 1 << 40
_MOST_CPUS = int(CPUS.most or 64)
#: Suffixes of Kubernetes' quantities: powers of 10, of 1000 and of 1024.
_SUFFIXES = {
    "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1),
    **{one: Decimal(1000) ** power for power, one in enumerate("kMGTPE", 1)},
    **{f"{one}i": Decimal(1024) ** power for power, one in enumerate("KMGTPE", 1)},
}  # fmt: skip
_QUANTITY = re.compile(
    r"([+-]?[0-9]{0,24}(?:\.[0-9]{0,24})?(?:[eE][+-]?[0-9]{1,2}(?![0-9A-Za-z]))?)([A-Za-z]{0,2})", re.ASCII
)


class SizeError(Exception):
    """A size that a machine cannot have; its text says why."""


def memory_of(value: Any) -> int:
    """Return the bytes of `512m`, `1gb`, 536870912, as Compose reads them. Raises SizeError."""
    size = value if isinstance(value, int) else notation.parse_docker_size(str(value)[:40])
    return _memory(size, value)


def memory_quantity(value: Any) -> int:
    """Return the bytes of `512Mi`, `1G`, `1e9`, as Kubernetes reads them. Raises SizeError."""
    number = quantity(value)
    return _memory(None if number is None else int(number), value)


def cpus_of(value: Any) -> int:
    """Return the processors of `0.5`, 2, `1500m`: the next whole number, at most what a machine has. Raises
    SizeError."""
    number = quantity(value)
    if number is None or number <= 0:
        raise SizeError(f"{shown(value, 40)} is no number of processors")
    whole = math.ceil(number)
    if whole > _MOST_CPUS:
        raise SizeError(f"a machine has at most {_MOST_CPUS} processors")
    return whole


def quantity(value: Any) -> Decimal | None:
    """Return a quantity of Kubernetes, `100m`, `1.5Gi`, `2e3`, 4; None for another value."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    match = _QUANTITY.fullmatch(str(value)[:60])
    if match is None or match[2] not in _SUFFIXES:
        return None
    try:
        return Decimal(match[1]) * _SUFFIXES[match[2]]
    except InvalidOperation:
        return None


def span_of(value: Any, default: float) -> float:
    """Return the seconds of `1m30s`; of a number as it is; `default` where there is none. Raises SizeError."""
    if value is None or value == "":
        return default
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e9:
        return float(value)
    try:
        return parse_duration(str(value)[:40])
    except UserInputError as error:
        raise SizeError(error.message) from error


def _memory(size: int | None, value: Any) -> int:
    if size is None or isinstance(value, bool):
        raise SizeError(f"{shown(value, 40)} is no amount of memory")
    if not LEAST_MEMORY <= size <= MOST_MEMORY:
        raise SizeError(
            f"a machine has from {notation.size_text(LEAST_MEMORY)} to {notation.size_text(MOST_MEMORY)} of memory"
        )
    return size
