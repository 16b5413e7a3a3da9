# SPDX-License-Identifier: Apache-2.0
"""The rules by which urunc 0.8.0 takes or refuses an image, in our own words, and the command line that it makes."""

from __future__ import annotations

import base64
import json
import posixpath
import re
from collections.abc import Mapping, Sequence

PREFIX = "com.urunc.unikernel."
#: Pairs of monitor and guest that it starts, of those that concern Linux.
MONITORS = ("qemu", "firecracker", "cloud-hypervisor")
REQUIRED = ("unikernelType", "hypervisor", "binary")
PATHS = ("binary", "initrd", "block")
_PATH = re.compile(r"[A-Za-z0-9._/-]{1,4096}")
#: Names that urunc knows; containerd hands on no other of its prefix.
KNOWN = (*REQUIRED, *PATHS[1:], "unikernelVersion", "blkMntPoint", "mountRootfs")


def faults(annotations: Mapping[str, str]) -> list[str]:
    """What urunc would refuse in an image's annotations."""
    told = {name.removeprefix(PREFIX): value for name, value in annotations.items() if name.startswith(PREFIX)}
    found = [f"{name} is missing" for name in REQUIRED if not told.get(name)]
    found += [f"{name} is unknown" for name in told if name not in KNOWN]
    if told.get("unikernelType") != "linux" or told.get("hypervisor") not in MONITORS:
        found.append("monitor and guest are no pair")
    for name in (*PATHS, "blkMntPoint"):
        value = told.get(name, "")
        if not value:
            continue
        clean = posixpath.normpath(value) == value and not value.startswith(("..", "-")) and value != "."
        if not _PATH.fullmatch(value) or not clean or (value == "/" and name in PATHS):
            found.append(f"{name} is no clean path")
    if told.get("mountRootfs", "") not in ("", "1", "0", "t", "f", "T", "F", "true", "false", "True", "False"):
        found.append("mountRootfs is no boolean")
    return found


def decoded(urunc_json: bytes) -> dict[str, str]:
    """The annotations that urunc reads from /urunc.json."""
    return {name: base64.b64decode(value, validate=True).decode() for name, value in json.loads(urunc_json).items()}


def command_line(argv: Sequence[str], env: Sequence[str], address: str = "", gateway: str = "", mask: str = "") -> str:
    """The kernel's command line for a machine whose root is a block image."""
    words = ["panic=-1", "console=ttyS0", "root=/dev/vda", "rw"]
    if address:
        words.append(f"ip={address}::{gateway}:{mask}:urunc:eth0:off")
    return " ".join([*words, *env, f"init={argv[0]} -- {' '.join(argv[1:])}"])
