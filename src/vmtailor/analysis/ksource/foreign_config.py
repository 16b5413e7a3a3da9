# SPDX-License-Identifier: Apache-2.0
"""A kernel configuration that somebody else wrote, before the kernel's own make reads it.

kconfig writes the text of a string symbol into include/config/auto.conf as it is, without quotes, and make reads that
file: `CONFIG_INITRAMFS_SOURCE="$(shell …)"` is a command that runs when usr/ is made, CONFIG_EXTRA_FIRMWARE another.
Others name files of this host that end up in the kernel. So switches and numbers are taken when they are well formed.
Strings are the tree's own: its defaults, and its own text (CC_VERSION_TEXT). Plain text is taken for symbols that the
code only prints or compares, and that no makefile reads."""

from __future__ import annotations

import re
from collections.abc import Mapping

import kconfiglib as k

from vmtailor.analysis.ksource.kconfig import Kconfig
from vmtailor.base.errors import UserInputError
from vmtailor.base.text import plain

#: Text of the kernel's code alone, in Linux 5.10 to 6.18. LOCALVERSION becomes part of a path in makefiles, too.
TEXTS = frozenset(
    {
        "ANDROID_BINDER_DEVICES", "BUILD_SALT", "CMDLINE", "CRYPTO_FIPS_NAME", "CRYPTO_FIPS_VERSION",
        "DEFAULT_HOSTNAME", "DEFAULT_INIT", "EXFAT_DEFAULT_IOCHARSET", "FAT_DEFAULT_IOCHARSET", "LOCALVERSION", "LSM",
        "MAGIC_SYSRQ_SERIAL_SEQUENCE", "MODPROBE_PATH", "NFS_V4_1_IMPLEMENTATION_ID_DOMAIN", "NLS_DEFAULT",
        "PM_STD_PARTITION", "PSTORE_BLK_BLKDEV", "RTC_HCTOSYS_DEVICE", "RTC_SYSTOHC_DEVICE",
        "STATIC_USERMODEHELPER_PATH", "UEVENT_HELPER_PATH",
    }
)  # fmt: skip
#: Nothing that make, a shell or a C string would take for more than a character.
_TEXT = re.compile(r"[A-Za-z0-9 _.,:=/+@%()-]{0,1024}")
_LOCAL_VERSION = re.compile(r"[A-Za-z0-9_.+~-]{0,64}")
_INT = re.compile(r"-?\d{1,20}")
_HEX = re.compile(r"(?:0[xX])?[0-9a-fA-F]{1,16}")


def harmless(kconfig: Kconfig, values: Mapping[str, str], where: str) -> dict[str, str]:
    """Return the part of a foreign configuration (names without CONFIG_ → values) that the make of this tree may read.
    That is switches, numbers and plain text. Strings that the tree sets itself, or that are its defaults, are left out.

    Raises UserInputError, naming the symbol: for one that the tree does not have, for a malformed switch or number, and
    for every other string."""
    taken, strings = {}, {}
    for name, value in values.items():
        symbol = kconfig.symbols.get(name)
        if symbol is None:
            raise _refused(where, name, value, "the kernel's source has no such symbol")
        if symbol.orig_type == k.STRING:
            strings[name] = value
        elif value != "n" and not _fits(symbol.orig_type, value):
            raise _refused(where, name, value, "this is no value that it can have")
        else:
            taken[name] = value
    kconfig.apply(taken.items())
    for name, value in strings.items():
        # `is not set` stands for a string that is out of sight.
        if value in ("", "n") or not kconfig.prompted(name) or value == kconfig.value(name):
            continue
        form = _LOCAL_VERSION if name == "LOCALVERSION" else _TEXT
        if name not in TEXTS or not form.fullmatch(value):
            raise _refused(where, name, value, "make may read such a text, so it is not taken from a bundle")
        taken[name] = value
    return taken


def _fits(kind: int, value: str) -> bool:
    if kind in (k.BOOL, k.TRISTATE):
        return value in ("y", "m")
    form = {k.INT: _INT, k.HEX: _HEX}.get(kind)
    return form is not None and form.fullmatch(value) is not None


def _refused(where: str, name: str, value: str, why: str) -> UserInputError:
    return UserInputError(
        f"{where}: {plain(name)}={plain(value[:120])}: {why}",
        hint="a bundle's kernel is compiled again from what `fit` writes; fit the image again on this host",
    )
