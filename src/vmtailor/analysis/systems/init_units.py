# SPDX-License-Identifier: Apache-2.0
"""Units that start by themselves in a system: those of systemd by their links, services of other inits by theirs."""

from __future__ import annotations

import re

from vmtailor.analysis.systems.root import RootTree
from vmtailor.model.systems.system import EnabledUnit, Init, InitKind
from vmtailor.model.systems.tree import NodeKind

#: Folders of units; the first one wins.
_UNIT_FOLDERS = ("/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")
_INITS = ("/sbin/init", "/usr/sbin/init", "/etc/init", "/bin/init")
_KINDS = (
    (re.compile(r"/systemd$"), InitKind.SYSTEMD), (re.compile(r"/openrc-init$"), InitKind.OPENRC),
    (re.compile(r"/runit(?:-init)?$"), InitKind.RUNIT), (re.compile(r"/busybox[^/]*$"), InitKind.BUSYBOX),
)  # fmt: skip
#: Words by which the program of many names tells itself.
_BUSYBOX = b"BusyBox v"
#: Most bytes of a program that are looked at to tell what it is.
_HEAD = 8 << 20


def find_init(root: RootTree, named: str = "") -> Init | None:
    """Return the program that the kernel starts: the one that is named on its command line, or those that it looks
    for."""
    for path in (named,) if named else _INITS:
        program = root.resolve(path)
        if program and root.is_file(program):
            return Init(path, program, _kind(root, program))
    return None


def is_init(root: RootTree, path: str) -> bool:
    """Return whether a program that is named is an init: one by where the kernel looks for it, or by what it is."""
    found = find_init(root, path)
    known = (InitKind.SYSTEMD, InitKind.OPENRC, InitKind.RUNIT, InitKind.SYSVINIT)
    return found is not None and (path in _INITS or found.kind in known)


def _kind(root: RootTree, program: str) -> InitKind:
    known = next((kind for pattern, kind in _KINDS if pattern.search(program)), None)
    if known is not None:
        return known
    node = root.node(program)
    data = root.read(program, _HEAD) if node is not None and node.size <= _HEAD else b""
    if data.startswith(b"#!"):
        return InitKind.SCRIPT
    if _BUSYBOX in data:  # one of its names, as a hard link or a copy: a shell as well as an init
        return InitKind.BUSYBOX
    if b"/etc/inittab" in data:
        return InitKind.OPENRC if root.is_file("/sbin/openrc") else InitKind.SYSVINIT
    return InitKind.OTHER


def enabled(root: RootTree, init: Init) -> tuple[tuple[EnabledUnit, ...], tuple[str, ...], str]:
    """Return (units that start by themselves, sorted; masked units; the default target or run level)."""
    if init.kind is InitKind.SYSTEMD:
        return _systemd(root)
    found = [*_run_levels(root), *_openrc(root)]
    return tuple(sorted(found, key=lambda u: (u.wanted_by, u.name))), (), _run_level(root)


def _systemd(root: RootTree) -> tuple[tuple[EnabledUnit, ...], tuple[str, ...], str]:
    found: dict[tuple[str, str], EnabledUnit] = {}
    links: dict[str, str] = {}
    for folder in dict.fromkeys(root.resolve(path) for path in _UNIT_FOLDERS):
        if not folder:
            continue
        for path, node in root.walk(folder):
            above, _, name = path.rpartition("/")
            wanted = re.fullmatch(r"([^/]+)\.(?:wants|requires)", above)
            # Units for an initial RAM disk only never start in the system itself.
            ours = wanted is not None and not wanted[1].startswith("initrd")
            if wanted is not None and ours and node.kind in (NodeKind.LINK, NodeKind.FILE):
                found.setdefault((wanted[1], name), EnabledUnit(name, wanted[1]))
            elif not above and node.kind is NodeKind.LINK:
                links.setdefault(name, f"{folder}/{path}")
    root.learn_targets(links.values())
    masked = sorted(name for name, path in links.items() if root.target(path) == "/dev/null")
    default = links.get("default.target", "")
    gone = set(masked)
    units = sorted((u for u in found.values() if u.name not in gone), key=lambda u: (u.wanted_by, u.name))
    return tuple(units), tuple(masked), root.target(default).rpartition("/")[2] if default else ""


def _run_level(root: RootTree) -> str:
    found = re.search(r"^[^#:]{0,4}:(\w):initdefault:", root.text("/etc/inittab"), re.MULTILINE)
    return f"run level {found[1]}" if found else ""


def _run_levels(root: RootTree) -> list[EnabledUnit]:
    found = []
    for level in ("S", "2", "3", "5"):
        for name in root.names(f"/etc/rc{level}.d"):
            if started := re.fullmatch(r"S\d\d(.+)", name):
                found.append(EnabledUnit(started[1], f"run level {level}"))
    return found


def _openrc(root: RootTree) -> list[EnabledUnit]:
    return [
        EnabledUnit(name, level)
        for level, node in root.names("/etc/runlevels").items()
        if node.kind is NodeKind.FOLDER
        for name in root.names(f"/etc/runlevels/{level}")
    ]
