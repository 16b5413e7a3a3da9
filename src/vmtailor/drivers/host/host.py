# SPDX-License-Identifier: Apache-2.0
"""Check what works on this host: outside programs and their versions, space, packaged kernels, our own native parts,
KVM."""

from __future__ import annotations

import glob
import os
import platform
import re
import shutil
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib import resources
from pathlib import Path

from vmtailor.base import figures, natives, package_manager, process
from vmtailor.base.cache import store
from vmtailor.base.errors import VmtailorError
from vmtailor.base.notation import version_key
from vmtailor.drivers.distribution import packaged_baseline, selection
from vmtailor.drivers.distribution.distribution import Distribution
from vmtailor.drivers.qemu import confinement, kvm, net_guard, qemu_program
from vmtailor.drivers.qemu.confinement import Confinement, Root
from vmtailor.drivers.qemu.kvm import KvmState, KvmVerdict
from vmtailor.model.architecture import every, of_host

#: Bytes free in the cache that a first fit needs: packages, debug symbols, kernel source, build tree, images.
CACHE_BYTES = 12_000_000_000


class Need(StrEnum):
    """`required`: fit does not work without it. `development`: for the tests of vmtailor itself."""

    REQUIRED = "required"
    OPTIONAL = "optional"
    DEVELOPMENT = "development"


class State(StrEnum):
    """`old`: there, and too old. `limited`: it works another way, slower or with less."""

    OK = "ok"
    MISSING = "missing"
    OLD = "old"
    LIMITED = "limited"


@dataclass(frozen=True)
class Tool:
    """One row of data/tools.toml, which says what the fields mean."""

    name: str
    package: str
    need: Need
    why: str
    program: str = ""
    file: tuple[str, ...] = ()
    version: tuple[str, ...] = ()
    minimum: str = ""


@dataclass(frozen=True)
class Check:
    """The result of one check. `fix` says what to do where the state is not ok; `package` is the package that helps."""

    name: str
    state: State
    need: Need
    found: str
    why: str
    fix: str = ""
    package: str = ""

    @property
    def blocks(self) -> bool:
        """Return whether fit cannot work on this host before this is fixed."""
        return self.need is Need.REQUIRED and self.state in (State.MISSING, State.OLD)


def tools() -> tuple[Tool, ...]:
    """Return the table of outside tools for this host's processor. Its machines' emulator is required, and its compiler
    is no cross compiler."""
    own = {row.name for row in every() if row.is_host}
    table = tomllib.loads(resources.files("vmtailor").joinpath("data", "tools.toml").read_text("utf-8"))
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
        )
        for row in table["tool"]
        if row.get("cross") not in own
    )


def check_tool(tool: Tool) -> Check:
    """Look for one tool, and ask it for its version where the table says how."""

    def result(state: State, found: str) -> Check:
        fix = "" if state is State.OK else package_manager.install_command(tool.package)
        return Check(
            name=tool.name, state=state, need=tool.need, found=found, why=tool.why, fix=fix, package=tool.package
        )

    if tool.file:
        found = next((path for pattern in tool.file for path in sorted(glob.glob(pattern))), None)  # noqa: PTH207
        return result(State.OK, found) if found else result(State.MISSING, "not found")
    try:
        path = process.require_tool(tool.program, tool.package)
    except VmtailorError:
        return result(State.MISSING, "not found")
    if not tool.version:
        return result(State.OK, path)
    version = _ask_version(path, tool.version)
    if not version:
        return result(State.OK, "version not known")
    if tool.minimum and version_key(version) < version_key(tool.minimum):
        return result(State.OLD, f"{version}, at least {tool.minimum} is needed")
    return result(State.OK, version)


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
        name="Python", state=State.OK, need=Need.REQUIRED, found=platform.python_version(), why="runs vmtailor"
    )


def check_qemu_plugins() -> Check:
    """Check that QEMU was built with its plugin interface, in a version that loads our plugin."""

    def result(state: State, found: str, fix: str = "") -> Check:
        return Check(
            name="QEMU plugins",
            state=state,
            need=Need.REQUIRED,
            found=found,
            why="counts instructions on the exact clock",
            fix=fix,
        )

    try:
        return result(State.OK, f"interface {qemu_program.plugin_api(of_host().name)}")
    except VmtailorError as error:
        return result(State.MISSING, error.message, error.hint)


def check_space(folder: Path | None = None, needed: int = CACHE_BYTES) -> Check:
    """Free space where the cache is, or will be. `needed` in bytes."""
    folder = folder or store.cache_root()
    there = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(there).free
    state = State.OK if free >= needed else State.LIMITED
    fix = (
        ""
        if state is State.OK
        else f"a first fit needs about {figures.file_bytes(needed)}: free some, or set XDG_CACHE_HOME"
    )
    return Check(
        name="space in the cache",
        state=state,
        need=Need.REQUIRED,
        found=f"{figures.file_bytes(free)} free in {there}",
        why="packages, source, builds",
        fix=fix,
    )


def check_packages(distribution: Distribution | None = None) -> Check:
    """Check that the distribution (this host's) packages a kernel with debug symbols and source of one version."""
    asked = distribution or selection.of_host()

    def result(state: State, found: str, fix: str = "") -> Check:
        return Check(
            name="baseline kernel",
            state=state,
            need=Need.REQUIRED,
            found=found,
            why="packaged with debug symbols and source",
            fix=fix,
        )

    if why := asked.lacking():
        how = (
            "give fit --source TARBALL --baseline-config /boot/config-RELEASE: the baseline is compiled once from that "
            "(slower, same result)"
        )
        return result(State.LIMITED, why, how)
    try:
        kernels = packaged_baseline.ordered(asked, asked.kernels(of_host()))
    except VmtailorError as error:
        return result(State.MISSING, error.message, error.hint)
    if not kernels:
        return result(State.MISSING, "none in the package lists", f"as root: {asked.refresh}")
    chosen = packaged_baseline.select(asked, of_host(), kernels=kernels)
    newest = {kernel.series: kernel.version for kernel in reversed(kernels)}
    others = [version for series, version in newest.items() if series != chosen.series]
    also = f" (also {', '.join(others)})" if others else ""
    return result(State.OK, chosen.version + also)


def check_natives() -> tuple[Check, ...]:
    """Our own native parts; in a development tree they are made now when they are not there."""
    why = "runs as PID 1 in every machine"
    try:
        found = natives.locate()
    except VmtailorError as error:
        return (
            Check(
                name="guest programs",
                state=State.MISSING,
                need=Need.REQUIRED,
                found=error.message,
                why=why,
                fix=error.hint,
            ),
        )
    programs = Check(name="guest programs", state=State.OK, need=Need.REQUIRED, found=str(found.folder), why=why)
    built = [str(api) for api in natives.PLUGIN_APIS if found.plugin(api).is_file()]
    fix = (
        ""
        if built
        else f"install vmtailor again with a C compiler at hand: {package_manager.install_command('gcc', 'make')}"
    )
    there = f"built for plugin interface {' and '.join(built)}" if built else "not built"
    state = State.OK if built else State.MISSING
    return (
        programs,
        Check(
            name="counting plugin",
            state=state,
            need=Need.REQUIRED,
            found=there,
            why="counts instructions inside QEMU",
            fix=fix,
        ),
    )


def check_net_guard() -> Check:
    """Check that the guard stands between QEMU and its network."""

    def result(state: State, found: str, fix: str = "") -> Check:
        return Check(
            name="network guard",
            state=state,
            need=Need.OPTIONAL,
            found=found,
            why="keeps guests from this host's loopback",
            fix=fix,
        )

    try:
        net_guard.require(qemu_program.installed(of_host().name).program)
    except VmtailorError as error:
        return result(
            State.LIMITED, error.message, f"until then `run` needs --no-outbound or --host-loopback: {error.hint}"
        )
    return result(State.OK, "stands in QEMU")


def check_kvm(probe: Callable[[], KvmVerdict] = kvm.kvm_works) -> Check:
    """Start a small guest under KVM, with a deadline: the device can be there, open, and hang."""

    def result(state: State, found: str, fix: str = "") -> Check:
        return Check(
            name="KVM", state=state, need=Need.OPTIONAL, found=found, why="runs machines at full speed", fix=fix
        )

    slower = "machines run under emulation, slower; the exact figures come from there anyway"
    try:
        verdict = probe()
    except VmtailorError as error:
        return result(State.LIMITED, f"not tried: {error.message}", slower)
    if verdict.works:
        return result(State.OK, f"a small guest ran in {figures.microseconds(verdict.seconds * 1e6)}")
    if verdict.state is KvmState.FORBIDDEN:
        slower = f"join the group kvm; until then {slower}"
    return result(State.LIMITED, verdict.reason, slower)


def check_confinement(
    ask: Callable[[], Confinement] = lambda: confinement.of(qemu_program.installed(of_host().name)),
) -> tuple[Check, ...]:
    """Check QEMU's rights, and the files that it sees. It runs with less where more cannot be had."""

    def result(name: str, state: State, found: str, why: str, fix: str = "") -> Check:
        return Check(name=name, state=state, need=Need.OPTIONAL, found=found, why=why, fix=fix)

    whose, sees = "a guest that breaks out of QEMU has no more", "hides the host's files from QEMU"
    try:
        how = ask()
    except VmtailorError as error:
        return (result("QEMU's user", State.LIMITED, f"not tried: {error.message}", whose),)
    words = "; ".join(how.lacking)
    refused = f": {words}" if words else ""
    if how.stranger:
        user = result("QEMU's user", State.OK, "one of its own, without capabilities", whose)
    elif os.geteuid() != 0:
        user = result("QEMU's user", State.OK, f"yours ({os.geteuid()}), without capabilities", whose)
    else:
        fix = "run vmtailor as an ordinary user, or where root can become another one"
        user = result("QEMU's user", State.LIMITED, f"root{refused}", whose, fix)
    if how.root is not Root.SHARED:
        kind = "a mount namespace" if how.root is Root.MOUNT else "a user and a mount namespace"
        files = result("QEMU's files", State.OK, f"its machine's alone, in {kind}", sees)
    else:
        reader = "everybody" if how.stranger else "you"
        fix = "allow user namespaces (sysctl user.max_user_namespaces, AppArmor), or CAP_SYS_ADMIN for root"
        files = result("QEMU's files", State.LIMITED, f"all that {reader} may read{refused}", sees, fix)
    privileges = result("QEMU's privileges", State.OK, "no new ones (no_new_privs)", "no set-user-ID program helps it")
    return (user, files, privileges)


def check_all(development: bool) -> tuple[Check, ...]:
    """Run every check, in the order in which a person would fix them. KVM starts a guest, so it comes last."""
    found = [check_python()]
    found += [check_tool(tool) for tool in tools() if development or tool.need is not Need.DEVELOPMENT]
    found += [check_qemu_plugins(), *check_natives(), check_net_guard(), check_packages(), check_space()]
    return (*found, *check_confinement(), check_kvm())
