# SPDX-License-Identifier: Apache-2.0
"""Check what works on this host: outside programs and their versions, space, packaged kernels, our own native parts,
KVM; for fit, or for `run` alone."""

from __future__ import annotations

import glob
import platform
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from vmtailor.base import figures, natives, package_manager, process
from vmtailor.base.cache import store
from vmtailor.base.errors import VmtailorError
from vmtailor.base.files import toml_files
from vmtailor.base.notation import version_key
from vmtailor.drivers.distribution import packaged_baseline, selection
from vmtailor.drivers.distribution.distribution import Distribution
from vmtailor.drivers.monitors import lab_folder, monitors
from vmtailor.model.architecture import every, of_host
from vmtailor.model.checks import Check, HostPurpose, Need, State

#: Bytes free in the cache that a first fit needs: packages, debug symbols, kernel source, build tree, images.
CACHE_BYTES = 12_000_000_000
#: Checks that lack their answer: state, found and fix.
_SPACE = partial(Check, name="space in the cache", need=Need.REQUIRED, why="packages, source, builds")
_BASELINE = partial(Check, name="baseline kernel", need=Need.REQUIRED, why="packaged with debug symbols and source")
_GUEST_PROGRAMS = partial(
    Check, name="guest programs", need=Need.REQUIRED, why="runs as PID 1 in every machine", runs=True
)
_PLUGIN = partial(Check, name="counting plugin", need=Need.REQUIRED, why="counts instructions inside QEMU")


@dataclass(frozen=True)
class Tool:
    """One row of data/tools.toml, which says what the fields mean, or of a monitor's own row. `processor`: the other
    processor, by name, that only images for it need this tool for; empty for tools of this host's own. `emulates`: it
    starts machines."""

    name: str
    package: str
    need: Need
    why: str
    program: str = ""
    file: tuple[str, ...] = ()
    version: tuple[str, ...] = ()
    minimum: str = ""
    runs: bool = False
    processor: str = ""
    emulates: bool = False


def tools() -> tuple[Tool, ...]:
    """Return the table of outside tools for this host's processor. Its machines' emulator is required, and its compiler
    is no cross compiler."""
    own = {row.name for row in every() if row.is_host}
    table, of_monitors = (
        toml_files.own_table("tools")["tool"],
        [one for each in monitors.every() for one in each.row.tool],
    )
    return tuple(
        Tool(
            name=row["name"],
            package=row["package"],
            need=Need.REQUIRED if row.get("machines") in own else Need(row["need"]),
            why=row["why"],
            program=row.get("program", ""),
            file=tuple(row.get("file", ())),
            version=tuple(row.get("version", ())),
            minimum=row.get("minimum", ""),
            runs=row.get("runs", False) or row.get("machines") in own or row in of_monitors,
            emulates="machines" in row,
            processor=next((row[key] for key in ("machines", "cross") if key in row and row[key] not in own), ""),
        )
        for row in (*table, *of_monitors)
        if row.get("cross") not in own
    )


def check_tool(tool: Tool) -> Check:
    """Look for one tool, and ask it for its version where the table says how."""
    state, found = _look_for(tool)
    fix = "" if state is State.OK else package_manager.install_command(tool.package)
    return Check(
        name=tool.name, state=state, need=tool.need, found=found, why=tool.why, fix=fix, package=tool.package,
        runs=tool.runs,
    )  # fmt: skip


def _look_for(tool: Tool) -> tuple[State, str]:
    """Return the state of a tool, and its version or its path."""
    if tool.file:
        found = next((path for pattern in tool.file for path in sorted(glob.glob(pattern))), None)  # noqa: PTH207
        return (State.OK, found) if found else (State.MISSING, "not found")
    try:
        path = process.require_tool(tool.program, tool.package)
    except VmtailorError:
        return State.MISSING, "not found"
    if not tool.version:
        return State.OK, path
    version = _ask_version(path, tool.version)
    if version and tool.minimum and version_key(version) < version_key(tool.minimum):
        return State.OLD, f"{version}, at least {tool.minimum} is needed"
    return State.OK, version or "version not known"


def _ask_version(path: str, arguments: Sequence[str]) -> str:
    try:
        finished = process.run([path, *arguments], timeout_s=20, ok=range(256))
    except VmtailorError:
        return ""
    return parse_version(finished.text + "\n" + finished.error_text)


def parse_version(text: str) -> str:
    """Return the first version number in what a program printed; empty when there is none."""
    found = re.search(r"(?<![\d.])\d+(?:\.\d+)+", text)
    return found[0] if found else ""


def check_python() -> Check:
    """Check the version of Python that runs us; the package's own metadata refuses an older one."""
    return Check(
        name="Python", state=State.OK, need=Need.REQUIRED, found=platform.python_version(), why="runs vmtailor",
        runs=True,
    )  # fmt: skip


def check_processor(name: str, purpose: HostPurpose) -> Check:
    """Check what images for another processor need here: its emulator and, for more than `run`, its cross compiler."""
    asked = [tool for tool in tools() if tool.processor == name and (purpose is not HostPurpose.RUN or tool.emulates)]
    absent = [tool for tool in asked if _look_for(tool)[0] is not State.OK]
    found = Check(
        name=f"{name} images", state=State.OK, need=Need.OPTIONAL, found="all of their tools",
        why="emulates their processor" + ("" if purpose is HostPurpose.RUN else ", compiles for it"), runs=True,
    )  # fmt: skip
    if absent:
        fix = package_manager.install_command(*dict.fromkeys(tool.package for tool in absent))
        return replace(found, state=State.MISSING, found=f"no {', no '.join(tool.name for tool in absent)}", fix=fix)
    if purpose is not HostPurpose.RUN and (lacking := natives.lacking(name)):
        fix = "make the wheel where their cross compiler is installed, and install it again"
        return replace(found, state=State.MISSING, found=f"this installation lacks {lacking}", fix=fix)
    return found


def check_space(folder: Path | None = None, needed: int = CACHE_BYTES) -> Check:
    """Check the free space where the cache is, or will be. `needed` in bytes."""
    folder = folder or store.cache_root()
    there = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(there).free
    found = _SPACE(state=State.OK, found=f"{figures.file_bytes(free)} free in {there}")
    if free >= needed:
        return found
    fix = f"a first fit needs about {figures.file_bytes(needed)}: free some, or set XDG_CACHE_HOME"
    return replace(found, state=State.LIMITED, fix=fix)


def check_packages(distribution: Distribution | None = None) -> Check:
    """Check that the distribution (this host's) packages a kernel with debug symbols and source of one version."""
    asked = distribution or selection.of_host()
    if why := asked.lacking():
        how = (
            "give fit --source TARBALL --baseline-config /boot/config-RELEASE: the baseline is compiled once from that "
            "(slower, same result)"
        )
        return _BASELINE(state=State.LIMITED, found=why, fix=how)
    try:
        kernels = packaged_baseline.ordered(asked, asked.kernels(of_host()))
    except VmtailorError as error:
        return _BASELINE(state=State.MISSING, found=error.message, fix=error.hint)
    if not kernels:
        return _BASELINE(state=State.MISSING, found="none in the package lists", fix=f"as root: {asked.refresh}")
    chosen = packaged_baseline.select(asked, of_host(), kernels=kernels)
    newest = {kernel.series: kernel.version for kernel in reversed(kernels)}
    others = [version for series, version in newest.items() if series != chosen.series]
    also = f" (also {', '.join(others)})" if others else ""
    return _BASELINE(state=State.OK, found=chosen.version + also)


def check_natives() -> tuple[Check, ...]:
    """Check our own native parts; in a development tree they are made now when they are not there."""
    try:
        found = natives.locate()
    except VmtailorError as error:
        return (_GUEST_PROGRAMS(state=State.MISSING, found=error.message, fix=error.hint),)
    programs = _GUEST_PROGRAMS(state=State.OK, found=str(found.folder))
    if built := [str(api) for api in natives.PLUGIN_APIS if found.plugin(api).is_file()]:
        return programs, _PLUGIN(state=State.OK, found=f"built for plugin interface {' and '.join(built)}")
    fix = f"install vmtailor again with a C compiler at hand: {package_manager.install_command('gcc', 'make')}"
    return programs, _PLUGIN(state=State.MISSING, found="not built", fix=fix)


def check_all(purpose: HostPurpose) -> tuple[Check, ...]:
    """Run every check of a purpose, in the order in which a person would fix them. Monitors may start guests, so they
    come last.

    Each other processor is one check; for development, each of its tools is."""
    found = [check_python(), *(check_tool(tool) for tool in tools() if _is_for(tool, purpose))]
    found += check_natives()
    if purpose is not HostPurpose.RUN:
        found += [check_packages(), check_space()]
    if purpose is not HostPurpose.DEVELOPMENT:
        found += [check_processor(name, purpose) for name in others()]
    found += [check for monitor in monitors.every() for check in monitor.checks()]
    found += lab_folder.checks()
    return tuple(check for check in found if check.runs or purpose is not HostPurpose.RUN)


def others() -> tuple[str, ...]:
    """Return the names of the other processors that there are tools for."""
    return tuple(dict.fromkeys(tool.processor for tool in tools() if tool.processor))


def _is_for(tool: Tool, purpose: HostPurpose) -> bool:
    if purpose is HostPurpose.DEVELOPMENT:
        return True
    return not tool.processor and tool.need in (Need.REQUIRED, Need.OPTIONAL)
