# SPDX-License-Identifier: Apache-2.0
"""Decide where one boot ends and the next begins, and where a loader hands over to the kernel."""

from __future__ import annotations

from vmtailor.analysis.bootlog.boot_record import Observed

#: A clock that goes back further than this starts anew.
BACKWARDS_US = 1_000_000
#: A clock that went back starts anew where it is not further than this.
BEGINNING_US = 100_000
#: How firmware, and how loaders begin what they say.
FIRMWARE = (
    b"SeaBIOS", b"BdsDxe", b"NOTICE:  BL", b"OpenSBI v", b"UEFI firmware", b"EDK II", b"coreboot-",
)  # fmt: skip
LOADERS = (
    b"U-Boot", b"SPL", b"GRUB", b"Welcome to GRUB", b"SYSLINUX", b"ISOLINUX", b"systemd-boot", b"Barebox", b"barebox 2",
    b"iPXE ", b"Hit any key to stop autoboot", b"## Loading ", b"## Flattened", b"I> MB1", b"welcome to lk",
)  # fmt: skip
#: Of these the first that a machine says after its reset.
AFTER_RESET = (
    b"U-Boot SPL 2", b"U-Boot TPL 2", b"U-Boot 2", b"SeaBIOS (version", b"NOTICE:  BL1", b"NOTICE:  BL2", b"OpenSBI v",
    b"barebox 2", b"coreboot-",
)  # fmt: skip
HANDED_OVER = (b"Starting kernel", b"EFI stub: Booting Linux", b"EFI stub: Exiting boot")


def starts_kernel(message: bytes) -> bool:
    """Return whether a message is one of a kernel's first."""
    return message.startswith((b"Linux version", b"Booting Linux on physical CPU"))


def is_reset(observed: Observed, message: bytes) -> bool:
    """Return whether the machine was reset: it says what it says first, and a kernel ran before."""
    return message.startswith(AFTER_RESET) and observed.kernel_seen


def is_second_kernel(observed: Observed, message: bytes) -> bool:
    """Return whether a message without a stamp names a kernel, and one was named before."""
    return bool(observed.version) and message.startswith(b"Linux version ")


def starts_anew(last_us: int, at_us: int, message: bytes) -> bool:
    """Return whether the clock goes back because another boot begins."""
    return last_us - at_us > BACKWARDS_US and (starts_kernel(message) or at_us < BEGINNING_US)


def is_handover(message: bytes) -> bool:
    """Return whether a loader says that it starts the kernel."""
    return message.startswith(HANDED_OVER)


def is_loader(message: bytes) -> bool:
    """Return whether firmware or a loader says this."""
    return message.startswith((*LOADERS, *FIRMWARE))
