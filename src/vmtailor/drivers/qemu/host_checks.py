# SPDX-License-Identifier: Apache-2.0
"""Checks that `doctor` makes of QEMU on this host, besides its programs: plugins, the network's guard, its confinement,
KVM."""

from __future__ import annotations

import os
from collections.abc import Callable

from vmtailor.base import figures
from vmtailor.base.errors import VmtailorError
from vmtailor.drivers.confinement import confinement
from vmtailor.drivers.confinement.confinement import Confinement, Root
from vmtailor.drivers.monitors.monitor import KvmState, KvmVerdict
from vmtailor.drivers.qemu import kvm, net_guard, qemu_program
from vmtailor.model.architecture import of_host
from vmtailor.model.checks import Check, Need, State


def every() -> tuple[Check, ...]:
    """Return every check, in the order in which a person would mend them; KVM starts a guest, so it comes last."""
    return (check_qemu_plugins(), check_net_guard(), *check_confinement(), check_kvm())


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
