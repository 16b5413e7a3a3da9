# SPDX-License-Identifier: Apache-2.0
"""The monitors that there are: one for each row of data/monitors, whose driver is imported when it is first used."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from vmtailor.base.errors import UserInputError
from vmtailor.base.files import toml_files
from vmtailor.drivers.monitors.monitor import Monitor, MonitorRow
from vmtailor.model.machine import LAB, USUAL_MONITOR, Machine

#: The folder of the rows; tests have folders of their own.
FOLDERS: list[Traversable | Path] = [resources.files("vmtailor") / "data" / "monitors"]

#: The driver that starts another monitor in the lab.
_LAB_DRIVER = "vmtailor.drivers.lab.lab_monitor:LabMonitor"
#: Programs that stand in place of the lab's own monitors now: name → path. `lab_programs` alone changes it.
_PROGRAMS: dict[str, Path] = {}


def names() -> tuple[str, ...]:
    """Return the names of all monitors, in order."""
    return tuple(sorted(_files()))


def named(name: str) -> Monitor:
    """Return the monitor of that name, in the lab where the name says so. Raises UserInputError, with those that there
    are."""
    if name.startswith(LAB):
        inner = name.removeprefix(LAB)
        in_lab: Monitor = _driver(_LAB_DRIVER)(named(inner), _PROGRAMS.get(inner))
        return in_lab
    file = _files().get(name)
    if file is None:
        raise UserInputError(f"no monitor '{name[:64]}' is known", hint=f"known: {', '.join(names())}")
    return _made(file.read_text("utf-8"), file.name)


@contextlib.contextmanager
def lab_programs(programs: Mapping[str, Path]) -> Iterator[None]:
    """Have monitors in the lab started by these programs, name → path, in place of the lab's own, within the block."""
    before = dict(_PROGRAMS)
    _PROGRAMS.update(programs)
    try:
        yield
    finally:
        _PROGRAMS.clear()
        _PROGRAMS.update(before)


def of(machine: Machine) -> Monitor:
    """Return the monitor that starts a machine."""
    return named(machine.monitor)


def usual() -> Monitor:
    """Return the monitor of machines that name none."""
    return named(USUAL_MONITOR)


def every() -> tuple[Monitor, ...]:
    """Return all monitors, in the order of their names."""
    return tuple(named(name) for name in names())


def drivers() -> tuple[str, ...]:
    """Return the modules of all monitors' drivers."""
    return tuple(_row(file.read_text("utf-8"), file.name).driver.partition(":")[0] for file in _files().values())


def _files() -> dict[str, Traversable | Path]:
    files = (one for folder in FOLDERS for one in folder.iterdir() if one.name.endswith(".toml"))
    return {one.name.removesuffix(".toml"): one for one in files}


def _row(text: str, origin: str) -> MonitorRow:
    return toml_files.read_strictly(text, MonitorRow, origin)


@cache
def _made(text: str, origin: str) -> Monitor:
    row = _row(text, origin)
    made: Monitor = _driver(row.driver)(row)
    return made


def _driver(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)
