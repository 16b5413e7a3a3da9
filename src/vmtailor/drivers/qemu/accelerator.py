# SPDX-License-Identifier: Apache-2.0
"""Which accelerator a machine gets where nobody says: KVM where it works, which is remembered until the host
restarts. That it does not is asked each time: a user joins a group, a busy host is late."""

from __future__ import annotations

import contextlib
from pathlib import Path

from vmtailor.base.cache.store import Store
from vmtailor.base.errors import HostError
from vmtailor.base.files.regular_files import write_atomic
from vmtailor.drivers.qemu import kvm
from vmtailor.model.architecture import named
from vmtailor.model.machine import Accelerator


def best_accelerator(architecture: str, store: Store | None = None) -> Accelerator:
    """KVM where a guest of this host's own architecture really runs under it."""
    if not named(architecture).is_host or not kvm.DEVICE.exists():
        return Accelerator.TCG
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    state = ""
    # Where the cache cannot be used, it is asked each time.
    with contextlib.suppress(OSError, HostError):
        state = ((store or Store()).root / "kvm" / boot).read_text()
    works = kvm.KvmState.WORKS.value
    if state != works:
        state = kvm.kvm_works().state.value
        if state == works:
            with contextlib.suppress(OSError, HostError):
                write_atomic((store or Store()).folder("kvm") / boot, state.encode(), private=True)
    return Accelerator.KVM if state == works else Accelerator.TCG
