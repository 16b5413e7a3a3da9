# SPDX-License-Identifier: Apache-2.0
"""Stage build, for looking inside: the same kernel once more, with debug information. No configuration is changed, and
the result is used only when every function lies where it lies in the kernel that is booted."""

from __future__ import annotations

import shutil
from pathlib import Path

from vmtailor.base.cache.store import Store, digest, locked
from vmtailor.base.errors import BuildError, HostError
from vmtailor.drivers.kernel import kbuild
from vmtailor.model.architecture import named, presumed

# Part of every key: raise it when the steps change.
_LAYOUT = "1"
VMLINUX = "vmlinux"


def key_of(config: Path, system_map: Path, source_digest: str, toolchain: kbuild.Toolchain) -> str:
    """What the debug kernel depends on."""
    return digest(_LAYOUT, source_digest, toolchain.describe(), *toolchain.variables(), config, system_map)


def cached(
    config: Path, system_map: Path, source_digest: str, store: Store, architecture: str | None = None
) -> Path | None:
    """The kernel with debug information where it has been compiled already."""
    key = key_of(config, system_map, source_digest, _toolchain(architecture))
    return store.path("kernel-symbols", key) / VMLINUX if store.has("kernel-symbols", key) else None


def _toolchain(architecture: str | None) -> kbuild.Toolchain:
    return kbuild.Toolchain.of(presumed() if architecture is None else named(architecture), debug=True)


def provide(
    config: Path, system_map: Path, source_dir: Path, source_digest: str, store: Store, architecture: str | None = None
) -> Path:
    """Compile a kernel's own configuration with debug information, or find it in the cache.

    It takes as long as the kernel itself did at first. Raises HostError when this compiler makes another kernel of it,
    BuildError when it does not compile."""
    toolchain = _toolchain(architecture)
    work = store.root / "kernel-build" / digest(source_digest, toolchain.describe(), *toolchain.variables())[:16]

    def fill(folder: Path) -> None:
        store.folder("kernel-build")
        store.used(work)
        with locked(work.with_suffix(".lock")):
            configured = kbuild.configure_file(source_dir, work, config, toolchain)
            title = "compiling the kernel once more, with debug information"
            compiled = kbuild.compile_kernel(configured, ("vmlinux",), toolchain, title=title)
            require_same(system_map, compiled.system_map)
            shutil.copyfile(compiled.vmlinux, folder / VMLINUX)

    return store.get("kernel-symbols", key_of(config, system_map, source_digest, toolchain), fill) / VMLINUX


def functions(system_map: Path) -> dict[str, list[str]]:
    """Address → names of the functions there."""
    found: dict[str, list[str]] = {}
    for line in system_map.read_text("ascii", "replace").splitlines():
        at, kind, name = (*line.split(" ", 2), "", "")[:3]
        if kind in ("t", "T", "w", "W"):
            found.setdefault(at, []).append(name)
    return {at: sorted(names) for at, names in found.items()}


def require_same(wanted: Path, got: Path) -> None:
    """Raise HostError unless both tables have every function of the first at the same address."""
    mine, theirs = functions(wanted), functions(got)
    if not mine or not theirs:
        raise BuildError(f"{wanted if not mine else got} names no functions")
    moved = [names[0] for at, names in mine.items() if theirs.get(at) != names]
    if moved:
        raise HostError(
            f"compiled here, {len(moved)} of {len(mine)} functions lie elsewhere than in the bundle's kernel, such as "
            f"{moved[0]}: it was made by another compiler",
            hint="fit the image again on this host",
        )
