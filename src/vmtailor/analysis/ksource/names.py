# SPDX-License-Identifier: Apache-2.0
"""Names by which programs ask a kernel for things, and where the source defines them: textual search, no compiler.

Each finder gets the text of one C file, and yields (name, offset into the text).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

Found = Iterator[tuple[str, int]]

_SYSCALL = re.compile(r"^[ \t]*SYSCALL_DEFINE[0-6]\(\s*(\w+)", re.M)
_STRUCT = r"struct {}\s+\w++(?:\[[^\]]{{0,200}}\])?\s*+(?:__\w++\s*+)*+=\s*\{{"
_FAMILY_START = re.compile(_STRUCT.format("net_proto_family"))
_FAMILY = re.compile(r"\.family\s*=\s*[PA]F_(\w+)")
_FS_START = re.compile(_STRUCT.format("file_system_type"))
_FS_ALIAS = re.compile(r'MODULE_ALIAS_FS\(\s*"([^"]+)"\s*\)')
_FIELD_NAME = re.compile(r'\.name\s*=\s*"([^"]+)"')
_NETLINK = re.compile(r"\bnetlink_kernel_create\([^,()]+,\s*NETLINK_(\w+)\s*,")
_PROTOSW = re.compile(
    r"\.type\s*=\s*SOCK_(\w+)\s*,\s*\.protocol\s*=\s*(?:IPPROTO_)?(\w+)"
)  # within struct inet_protosw, and the table of net/ipv4/af_inet.c
_PROC = re.compile(
    r'\bproc_(?:create(?:_\w+)?|mkdir(?:_\w+)?|symlink|net_mkdir)\(\s*(?:net,\s*)?"([^"\n]+)"\s*,([^;]{0,200})', re.S
)
_PROC_BASE = re.compile(r'^[ \t]*(?:REG|DIR|ONE|LNK|NOD|ATTR)\((?:"[^"]*",\s*)?"([^"]+)"', re.M)
_CTL_TABLE = re.compile(r"struct ctl_table\s+(\w+)\s*\[[^\]]{0,200}\]\s*+(?:__\w++\s*+)*+=\s*\{")
_PROCNAME = re.compile(r'\.procname\s*=\s*"([^"]+)"')
_REGISTER = re.compile(r'\bregister_(?:net_)?sysctl(?:_init|_sz)?\(\s*(?:&?[\w.>-]+,\s*)?"([^"]+)"\s*,\s*&?(\w+)')
_MISC_START = re.compile(_STRUCT.format("miscdevice"))
_NODE_NAME = re.compile(r'\.nodename\s*=\s*"([^"]+)"')
_DEVNAME = re.compile(r'MODULE_ALIAS\(\s*"devname:([^"]+)"\s*\)')
_DEVLIST = re.compile(r'^[ \t]*\[\w+\]\s*=\s*\{\s*"(\w+)"\s*,[^}]{0,300}&\w+_fops', re.M)
_ALGORITHM = re.compile(r'^MODULE_ALIAS_CRYPTO\("([^"]+)"\)', re.M)
_BUS_START = re.compile(_STRUCT.format("bus_type").replace(r"\w++", r"(\w++)", 1))
_SUBSYS = re.compile(r"\bsubsys_(?:system|virtual)_register\(\s*&(\w+)")
_CLASS_START = re.compile(_STRUCT.format("class"))
_CLASS = re.compile(r'\bclass_create\(\s*(?:THIS_MODULE,\s*)?"([^"\n/]+)"')
_KOBJECT = re.compile(r'\b(?:kobject|kset)_create_and_add\(\s*"([^"\n/]+)"\s*,([^;]{0,120})\)', re.S)
_MOUNT_POINT = re.compile(r'\bsysfs_create_mount_point\(\s*(\w+_kobj)\s*,\s*"([^"\n/]+)"')
_KOBJ_GROUP = re.compile(r"\bsysfs_create_group\(\s*(\w+_kobj)\s*,\s*&(\w+)")
_GROUP_START = re.compile(_STRUCT.format("attribute_group").replace(r"\w++", r"(\w++)", 1))
#: Folders of /sys that are the parents of others, by the kernel's names.
_SYS_FOLDERS = {
    "kernel_kobj": "kernel/", "mm_kobj": "kernel/mm/", "fs_kobj": "fs/", "power_kobj": "power/",
    "firmware_kobj": "firmware/", "hypervisor_kobj": "hypervisor/", "NULL": "",
}  # fmt: skip
#: Characters in which the end of a definition is looked for.
_LONGEST_BODY = 200_000
_INCLUDED = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"([\w./-]+\.c)"', re.M)


def _body(text: str, start: int) -> str:
    """Return the text from `start` to the `};` in the first column that ends a definition."""
    end = text.find("\n}", start, start + _LONGEST_BODY)
    return text[start : end if end > 0 else start + 2000]


def _inside(text: str, start: re.Pattern[str], field: re.Pattern[str]) -> Found:
    for match in start.finditer(text):
        inner = field.search(_body(text, match.end()))
        if inner:
            yield inner.group(1), match.start()


def syscalls(text: str) -> Found:
    """Yield the system calls that SYSCALL_DEFINEn(name, …) defines."""
    return ((m.group(1), m.start()) for m in _SYSCALL.finditer(text))


def families(text: str) -> Found:
    """Socket families, without PF_."""
    return _inside(text, _FAMILY_START, _FAMILY)


def netlink(text: str) -> Found:
    """Netlink protocols, without NETLINK_."""
    return ((m.group(1), m.start()) for m in _NETLINK.finditer(text))


def protocols(text: str) -> Found:
    """Yield protocols of the internet families, such as `STREAM/TCP`."""
    if "inet_protosw" in text:
        for match in _PROTOSW.finditer(text):
            yield f"{match.group(1)}/{match.group(2)}", match.start()


def filesystems(text: str) -> Found:
    """Yield names of file systems that can be mounted."""
    yield from _inside(text, _FS_START, _FIELD_NAME)
    for match in _FS_ALIAS.finditer(text):
        yield match.group(1), match.start()


def proc_entries(text: str) -> Found:
    """Yield entries of /proc, as paths below it: `meminfo`, `net/tcp`, `self/…` for those of a process."""
    for match in _PROC.finditer(text):
        call, rest = match.group(0), match.group(2)
        under_net = "proc_create_net" in call or "proc_net" in rest.split(";", 1)[0]
        name = match.group(1)
        yield (f"net/{name}" if under_net and not name.startswith("net/") else name), match.start()
    if "tgid_base_stuff" in text:
        for match in _PROC_BASE.finditer(text):
            yield f"self/{match.group(1)}", match.start()


def sysctls(text: str) -> Found:
    """Yield entries of /proc/sys: with their folder where the registration in the same file says it, else `*/name`."""
    if ".procname" not in text:
        return
    folders: dict[str, set[str]] = {}
    for match in _REGISTER.finditer(text):
        folders.setdefault(match.group(2), set()).add(match.group(1))
    for table in _CTL_TABLE.finditer(text):
        body = _body(text, table.end())
        for name in _PROCNAME.finditer(body):
            for folder in sorted(folders.get(table.group(1), {"*"})):
                yield f"{folder}/{name.group(1)}", table.end() + name.start()


def device_nodes(text: str) -> Found:
    """Yield nodes of /dev that character drivers name, below it."""
    for match in _MISC_START.finditer(text):
        body = _body(text, match.end())
        name = _NODE_NAME.search(body) or _FIELD_NAME.search(body)
        if name:
            yield name.group(1), match.start()
    for match in _DEVNAME.finditer(text):
        yield match.group(1), match.start()
    if "devlist[]" in text:
        for match in _DEVLIST.finditer(text):
            yield match.group(1), match.start()


def sys_entries(text: str) -> Found:
    """Yield folders of /sys that have a fixed place, as paths below it: `devices/system/node`, `class/net`,
    `kernel/mm/transparent_hugepage`."""
    systems = {match.group(1) for match in _SUBSYS.finditer(text)}
    for match in _BUS_START.finditer(text):
        name = _FIELD_NAME.search(_body(text, match.end()))
        if name:
            yield f"bus/{name.group(1)}", match.start()
            if match.group(1) in systems:
                yield f"devices/system/{name.group(1)}", match.start()
    for start in _CLASS_START.finditer(text):
        name = _FIELD_NAME.search(_body(text, start.end()))
        if name:
            yield f"class/{name.group(1)}", start.start()
    for made in _CLASS.finditer(text):
        yield f"class/{made.group(1)}", made.start()
    for made in _KOBJECT.finditer(text):
        folder = _SYS_FOLDERS.get(made.group(2).split(",")[-1].strip())
        if folder is not None:
            yield f"{folder}{made.group(1)}", made.start()
    for made in _MOUNT_POINT.finditer(text):
        if made.group(1) in _SYS_FOLDERS:
            yield f"{_SYS_FOLDERS[made.group(1)]}{made.group(2)}", made.start()
    groups = {made.group(2): made.group(1) for made in _KOBJ_GROUP.finditer(text)}
    for match in _GROUP_START.finditer(text):
        name = _FIELD_NAME.search(_body(text, match.end()))
        folder = _SYS_FOLDERS.get(groups.get(match.group(1), ""))
        if name and folder is not None:
            yield f"{folder}{name.group(1)}", match.start()


def algorithms(text: str) -> Found:
    """Return ciphers, hashes and templates by the names that they are asked for by: `sha256`, `hmac`."""
    return ((m.group(1), m.start()) for m in _ALGORITHM.finditer(text))


def included_sources(text: str) -> Found:
    """Return C files that are included into another: their condition is that of the file that includes them."""
    return ((m.group(1), m.start()) for m in _INCLUDED.finditer(text))


@dataclass(frozen=True)
class Finder:
    """A kind of name, how to find it, and a word without which a file has none (for speed)."""

    kind: str
    find: Callable[[str], Found]
    hints: tuple[str, ...]


FINDERS = (
    Finder("syscall", syscalls, ("SYSCALL_DEFINE",)),
    Finder("family", families, ("net_proto_family",)),
    Finder("netlink", netlink, ("netlink_kernel_create(",)),
    Finder("protocol", protocols, ("inet_protosw",)),
    Finder("filesystem", filesystems, ("file_system_type", "MODULE_ALIAS_FS")),
    Finder("proc", proc_entries, ("proc_create", "proc_mkdir", "proc_symlink", "proc_net_mkdir", "tgid_base_stuff")),
    Finder("sysctl", sysctls, (".procname",)),
    Finder("algorithm", algorithms, ("MODULE_ALIAS_CRYPTO(",)),
    Finder(
        "sysfs",
        sys_entries,
        ("struct bus_type", "struct class", "class_create(", "_create_and_add(", "sysfs_create_"),
    ),
    Finder("device", device_nodes, ("struct miscdevice", "devname:", "devlist[]")),
)
