# SPDX-License-Identifier: Apache-2.0
"""Stage build, with debug information: compile the same kernel once more. No configuration changes, and the result is
used only if it has the functions of the booted kernel. A compiler may place code elsewhere beside debug information;
then only whole functions are counted."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from vmtailor.analysis.cost import counterparts
from vmtailor.base.cache.store import Store, digest, locked
from vmtailor.base.errors import BuildError, HostError
from vmtailor.drivers.kernel import build_folder, compiler_flags, kernel_patches, load_profile, make
from vmtailor.model.architecture import named, presumed

# Part of every key: raise it when the steps change.
_LAYOUT = "2"
#: Patches of the source, each an id with its digest.
Patches = tuple[tuple[str, str], ...]
_VMLINUX, _MOVED = "vmlinux", "System.map"


@dataclass(frozen=True)
class DebugKernel:
    """A kernel with debug information, in `vmlinux`. `system_map`: its table of symbols if functions lie elsewhere than
    in the booted kernel; None if each lies at the same address."""

    vmlinux: Path
    system_map: Path | None

    @classmethod
    def at(cls, folder: Path) -> DebugKernel:
        table = folder / _MOVED
        return cls(folder / _VMLINUX, table if table.is_file() else None)


def key_of(config: Path, system_map: Path, source_digest: str, toolchain: make.Toolchain, patches: Patches = ()) -> str:
    """Return the digest of everything that the debug kernel depends on."""
    laid = [f"patch {sha256}" for _, sha256 in patches]
    return digest(_LAYOUT, source_digest, toolchain.describe(), *toolchain.variables(), config, system_map, *laid)


def cached(
    config: Path, system_map: Path, source_digest: str, store: Store, architecture: str | None = None,
    flags: tuple[str, ...] = (), patches: Patches = (),
) -> DebugKernel | None:  # fmt: skip
    """Return the kernel with debug information if it has been compiled already."""
    key = key_of(config, system_map, source_digest, _toolchain(architecture, flags), patches)
    return DebugKernel.at(store.path("kernel-symbols", key)) if store.has("kernel-symbols", key) else None


def _toolchain(architecture: str | None, flags: tuple[str, ...]) -> make.Toolchain:
    compiler_flags.require_allowed(flags)
    return make.Toolchain.of(presumed() if architecture is None else named(architecture), debug=True, flags=flags)


def provide(
    config: Path, system_map: Path, source_dir: Path, source_digest: str, store: Store,
    architecture: str | None = None, flags: tuple[str, ...] = (), patches: Patches = (),
) -> DebugKernel:  # fmt: skip
    """Compile a kernel's own configuration, with its flags and patches, with debug information, or find it in the
    cache.

    It takes as long as the kernel itself did at first. Raises HostError when this compiler makes another kernel of it,
    BuildError when it does not compile."""
    toolchain = _toolchain(architecture, flags)
    work = build_folder.of(store, source_digest, toolchain, patches)

    def fill(folder: Path) -> None:
        store.folder("kernel-build")
        store.used(work)
        with locked(work.with_suffix(".lock"), "a kernel of this source"):
            kernel_patches.lay(patches, source_dir, work)
            load_profile.lay(flags, store, work)
            configured = make.configure_file(source_dir, work, config, toolchain)
            title = "compiling the kernel once more, with debug information"
            compiled = make.compile_kernel(configured, ("vmlinux",), toolchain, title=title)
            if not require_alike(system_map, compiled.system_map):
                shutil.copyfile(compiled.system_map, folder / _MOVED)
            shutil.copyfile(compiled.vmlinux, folder / _VMLINUX)

    key = key_of(config, system_map, source_digest, toolchain, patches)
    return DebugKernel.at(store.get("kernel-symbols", key, fill))


def require_alike(wanted: Path, got: Path) -> bool:
    """Require every function of the first table at the same address in the second. Raise HostError unless they have
    at least the same functions, by name."""
    mine, theirs = (counterparts.functions(path.read_text("ascii", "replace")) for path in (wanted, got))
    if not mine or not theirs:
        raise BuildError(f"{wanted if not mine else got} names no functions")
    _, lacking = counterparts.counterparts(mine, theirs)
    if lacking:
        raise HostError(
            f"compiled here, {len(lacking)} of {len(mine)} functions are not those of the bundle's kernel, such as "
            f"{lacking[0]}: it was made by another compiler",
            hint="fit the image again on this host",
        )
    return set(mine) <= set(theirs)
