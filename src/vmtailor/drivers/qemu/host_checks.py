# SPDX-License-Identifier: Apache-2.0
"""Checks that `doctor` makes of QEMU on this host, besides its programs: plugins, the network's guard, its confinement,
KVM."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

from vmtailor.base import figures
from vmtailor.base.errors import VmtailorError
from vmtailor.drivers.confinement import confinement
from vmtailor.drivers.confinement.confinement import Confinement, Root
from vmtailor.drivers.monitors.monitor import KvmState, KvmVerdict
from vmtailor.drivers.qemu import kvm, net_guard, qemu_program
from vmtailor.model.architecture import of_host
from vmtailor.model.checks import Check, Need, State

#: Checks that lack their answer: state, found and fix.
_PLUGINS = partial(Check, name="QEMU plugins", need=Need.REQUIRED, why="counts instructions on the exact clock")
_GUARD = partial(
    Check, name="network guard", need=Need.OPTIONAL, why="keeps guests from this host's loopback", runs=True
)
_USER = partial(
    Check, name="QEMU's user", need=Need.OPTIONAL, why="a guest that breaks out of QEMU has no more", runs=True
)
_FILES = partial(Check, name="QEMU's files", need=Need.OPTIONAL, why="hides the host's files from QEMU", runs=True)
_PRIVILEGES = partial(
    Check, name="QEMU's privileges", need=Need.OPTIONAL, why="no set-user-ID program helps it", runs=True
)
_KVM = partial(Check, name="KVM", need=Need.OPTIONAL, why="runs machines at full speed", runs=True)


def every() -> tuple[Check, ...]:
    """Return every check, in the order in which a person would fix them. KVM starts a guest, so it comes last."""
    return (check_qemu_plugins(), check_net_guard(), *check_confinement(), check_kvm())


def check_qemu_plugins() -> Check:
    """Check that QEMU was built with its plugin interface, in a version that loads our plugin."""
    try:
        return _PLUGINS(state=State.OK, found=f"interface {qemu_program.plugin_api(of_host().name)}")
    except VmtailorError as error:
        return _PLUGINS(state=State.MISSING, found=error.message, fix=error.hint)


def check_net_guard() -> Check:
    """Check that the guard stands between QEMU and its network."""
    try:
        net_guard.require(qemu_program.installed(of_host().name).program)
    except VmtailorError as error:
        fix = f"until then `run` needs --no-outbound or --host-loopback: {error.hint}"
        return _GUARD(state=State.LIMITED, found=error.message, fix=fix)
    return _GUARD(state=State.OK, found="stands in QEMU")


def check_confinement(
    ask: Callable[[], Confinement] = lambda: confinement.of(qemu_program.installed(of_host().name)),
) -> tuple[Check, ...]:
    """Check QEMU's rights, and the files that it sees. It runs with less where more cannot be had."""
    try:
        how = ask()
    except VmtailorError as error:
        return (_USER(state=State.LIMITED, found=f"not tried: {error.message}"),)
    words = "; ".join(how.lacking)
    refused = f": {words}" if words else ""
    return _user(how, refused), _files(how, refused), _PRIVILEGES(state=State.OK, found="no new ones (no_new_privs)")


def _user(how: Confinement, refused: str) -> Check:
    if how.stranger:
        return _USER(state=State.OK, found="one of its own, without capabilities")
    if os.geteuid() != 0:
        return _USER(state=State.OK, found=f"yours ({os.geteuid()}), without capabilities")
    fix = "run vmtailor as an ordinary user, or where root can become another one"
    return _USER(state=State.LIMITED, found=f"root{refused}", fix=fix)


def _files(how: Confinement, refused: str) -> Check:
    if how.root is not Root.SHARED:
        kind = "a mount namespace" if how.root is Root.MOUNT else "a user and a mount namespace"
        return _FILES(state=State.OK, found=f"its machine's alone, in {kind}")
    reader = "everybody" if how.stranger else "you"
    fix = "allow user namespaces (sysctl user.max_user_namespaces, AppArmor), or CAP_SYS_ADMIN for root"
    return _FILES(state=State.LIMITED, found=f"all that {reader} may read{refused}", fix=fix)


def check_kvm(probe: Callable[[], KvmVerdict] = kvm.kvm_works) -> Check:
    """Start a small guest under KVM, with a deadline: the device can be there, open, and hang."""
    slower = "machines run under emulation, slower; the exact figures come from there anyway"
    try:
        verdict = probe()
    except VmtailorError as error:
        return _KVM(state=State.LIMITED, found=f"not tried: {error.message}", fix=slower)
    if verdict.works:
        return _KVM(state=State.OK, found=f"a small guest ran in {figures.microseconds(verdict.seconds * 1e6)}")
    if verdict.state is KvmState.FORBIDDEN:
        slower = f"join the group kvm; until then {slower}"
    return _KVM(state=State.LIMITED, found=verdict.reason, fix=slower)
