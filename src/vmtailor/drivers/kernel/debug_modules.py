# SPDX-License-Identifier: Apache-2.0
"""Modules of a baseline whose debug information is kept beside vmlinux's."""

from __future__ import annotations

from vmtailor.model.architecture import Architecture

#: What a virtual machine's boot loads, or a container.
DEBUG_MODULES = (
    "virtio_mmio", "virtio_blk", "virtio_net", "virtio_console", "virtio_rng", "net_failover", "failover",
    "erofs", "netfs", "lz4hc_compress", "squashfs", "ext4", "jbd2", "mbcache", "crc16", "crc32c_generic", "libcrc32c",
    "overlay", "af_packet", "unix", "ipv6", "autofs4", "fuse", "tun", "veth", "bridge",
    "binfmt_misc", "dimlib", "crct10dif_common", "crct10dif_generic",
)  # fmt: skip


def debug_modules_of(row: Architecture) -> tuple[str, ...]:
    """The same for one architecture, with those of its own."""
    return (*DEBUG_MODULES, *row.packages.debug_modules)
