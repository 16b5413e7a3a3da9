# SPDX-License-Identifier: Apache-2.0
"""Names of kernel modules."""

from __future__ import annotations


def module_name(name: str) -> str:
    """A module's name as the kernel has it: virtio_blk may live in virtio-blk.ko. Dash and underscore mean the same to
    the kernel; so in aliases."""
    return name.replace("-", "_")
