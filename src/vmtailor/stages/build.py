# SPDX-License-Identifier: Apache-2.0
"""Stage build, the kernel part: a plan and a source become the kernel file that is booted."""

from __future__ import annotations

import lzma
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from vmtailor.base import process
from vmtailor.base.cache import core_bookings
from vmtailor.base.cache.core_bookings import CoreShare
from vmtailor.base.cache.store import Store, digest, locked
from vmtailor.base.errors import BuildError
from vmtailor.base.files import records
from vmtailor.base.files.digests import sha256_of
from vmtailor.drivers.kernel import build_folder, compiler_flags, elf_pack, kernel_patches, load_profile, make
from vmtailor.model.architecture import Architecture, Packing, named
from vmtailor.model.kernel import Configured, KernelFiles, KernelInputs
from vmtailor.model.plan import Plan

# Part of every key: raise it when the steps from configuration to files change.
_LAYOUT = "4"
_RECORD = "kernel.json"
#: Names of kernels in the cache.
KIND = "kernel"
#: Beside a kernel: what it was compiled from.
INPUTS = "inputs.json"
#: Files beside it that say when and for whom it was made, or from what.
NOTES = (_RECORD, INPUTS, "uses.json")
_DEBUG = "vmlinux.debug"


def kernel_key(plan: Plan, source_digest: str, toolchain: make.Toolchain) -> str:
    """Return the digest of everything that a kernel's bytes depend on: source, configuration, compiler."""
    return keyed(inputs_of(plan, source_digest), toolchain)


def key_of(inputs: KernelInputs) -> str:
    """Return the digest of everything that a kernel's bytes depend on, with this host's compiler. Raises UserInputError
    for flags that no kernel may have."""
    return keyed(inputs, toolchain_of(inputs))


def keyed(inputs: KernelInputs, toolchain: make.Toolchain) -> str:
    """Return the digest of everything that a kernel's bytes depend on, with a toolchain."""
    fragment = [f"{name}={value}" for name, value in sorted(inputs.fragment)]
    patches = [f"patch {sha256}" for _, sha256 in inputs.patches]
    return digest(_LAYOUT, inputs.source_digest, toolchain.describe(), *toolchain.variables(), *fragment, *patches)


def inputs_of(plan: Plan, source_digest: str) -> KernelInputs:
    """Return what a plan's kernel is compiled from."""
    return KernelInputs(
        architecture=plan.architecture,
        kernel_version=plan.kernel_version,
        source_digest=source_digest,
        fragment=plan.fragment,
        flags=plan.flags,
        patches=plan.patches,
    )


def toolchain_of(plan: Plan | KernelInputs) -> make.Toolchain:
    """Return the toolchain of a plan's kernel, with its flags. Raises UserInputError for flags that none may have."""
    compiler_flags.require_allowed(plan.flags)
    return make.Toolchain.of(named(plan.architecture), flags=plan.flags)


def cached(plan: Plan, source_digest: str, store: Store) -> KernelFiles | None:
    """Return the kernel of a plan if the cache has it."""
    key = kernel_key(plan, source_digest, toolchain_of(plan))
    if not store.bring(KIND, key):
        return None
    folder = store.path(KIND, key)
    return located(records.load(KernelFiles, folder / _RECORD), folder)


def build_kernel(
    plan: Plan,
    source_dir: Path,
    source_digest: str,
    store: Store,
    *,
    toolchain: make.Toolchain | None = None,
    explain: Mapping[str, str] | None = None,
    sources: Iterable[str] = (),
) -> KernelFiles:
    """Compile the planned configuration, or find it in the cache.

    All kernels of one source and compiler are compiled in one folder, so that a repair compiles only what a few symbols
    change. `explain` may give, for a symbol, the dependency that loses it: it is quoted when that happens. `sources`:
    the files that the plan compiles, without their endings, for the time left.
    Raises BuildError for lost symbols and compile errors; an interrupted compile goes on at the next call.
    """
    row = named(plan.architecture)
    toolchain = toolchain or toolchain_of(plan)
    work = build_folder.of(store, source_digest, toolchain, plan.patches)

    def fill(folder: Path) -> None:
        store.folder("kernel-build")
        store.used(work)
        with locked(work.with_suffix(".lock"), "a kernel of this source") as lock, core_bookings.booked(CoreShare.ALL):
            kernel_patches.lay(plan.patches, source_dir, work)
            load_profile.lay(toolchain.flags, store, work)
            configured = make.configure(source_dir, work, plan.fragment, toolchain)
            require_nothing_lost(configured, explain or {})
            compiled = make.compile_kernel(configured, (row.kernel.target,), toolchain, sources=sources, held=(lock,))
            files = collect(row, configured, compiled, folder, unplanned(plan, configured))
            if toolchain.debug:
                shutil.copyfile(compiled.vmlinux, folder / _DEBUG)
        records.save(files, folder / _RECORD)
        if not toolchain.debug:  # those are no inputs of a plan
            records.save(inputs_of(plan, source_digest), folder / INPUTS)

    folder = store.get(KIND, kernel_key(plan, source_digest, toolchain), fill)
    return located(records.load(KernelFiles, folder / _RECORD), folder)


def compile_again(inputs: KernelInputs, source_dir: Path, folder: Path, store: Store) -> KernelFiles:
    """Compile a kernel from its inputs into `folder`, whatever the cache has; `store` takes the work. Raises as
    `build_kernel`, and UserInputError for inputs that no plan has."""
    row, toolchain = named(inputs.architecture), toolchain_of(inputs)
    work = build_folder.of(store, inputs.source_digest, toolchain, inputs.patches)
    store.folder("kernel-build")
    kernel_patches.lay(inputs.patches, source_dir, work)
    load_profile.lay(inputs.flags, store, work)
    configured = make.configure(source_dir, work, inputs.fragment, toolchain)
    require_nothing_lost(configured, {})
    return collect(row, configured, make.compile_kernel(configured, (row.kernel.target,), toolchain), folder)


def with_debug_information(kernel: KernelFiles) -> Path:
    """Return the file with debug information of a kernel that was built by a toolchain that makes it."""
    return Path(kernel.image).with_name(_DEBUG)


def require_nothing_lost(configured: Configured, explain: Mapping[str, str]) -> None:
    """Raise BuildError naming every symbol that did not resolve as planned, with its dependency where it is known."""
    if not configured.lost:
        return
    lines = [
        f"{one.name}: planned {one.wanted}, resolved to {one.got}"
        + (f" ({explain[one.name]})" if one.name in explain else "")
        for one in configured.lost
    ]
    raise BuildError(
        f"{len(lines)} planned symbol(s) were lost when the configuration was resolved",
        hint="a dependency is missing in the plan, or the source is of another version than the one planned for",
        details="\n".join(lines),
    )


def unplanned(plan: Plan, configured: Configured) -> tuple[str, ...]:
    """Return symbols that are in the kernel although the plan does not have them: facts and kernel disagree. Empty for
    a plan without symbols. A planned module that built-in code selects counts as planned."""
    planned = {symbol.id: symbol.value for symbol in plan.symbols}
    if not planned:
        return ()
    foreseen = {("y", "y"), ("m", "m"), ("m", "y")}
    return tuple(
        name for name, value in configured.symbols if value in ("y", "m") and (planned.get(name), value) not in foreseen
    )


def collect(
    row: Architecture,
    configured: Configured,
    compiled: make.CompiledKernel,
    folder: Path,
    unplanned_symbols: tuple[str, ...] = (),
) -> KernelFiles:
    """Copy the finished files out of the build folder: the kernel (an ELF file without symbols and padding), .config,
    System.map."""
    made = compiled.build_dir / row.kernel.file
    image = folder / made.name
    if row.kernel.packing is Packing.ELF:
        elf_pack.pack(made, image, row.kernel.load_at)
    else:
        shutil.copyfile(made, image)
    shutil.copyfile(configured.config, folder / "config")
    shutil.copyfile(compiled.system_map, folder / "System.map")
    return KernelFiles(
        release=make.release(Path(configured.source_dir), compiled.build_dir, make.Toolchain.of(row)),
        image=str(image),
        image_bytes=image.stat().st_size,
        zstd_bytes=_zstd_bytes(image),
        packed_bytes=packed_bytes(row, image),
        config=str(folder / "config"),
        system_map=str(folder / "System.map"),
        sha256=sha256_of(image),
        compiler=compiled.compiler,
        objects_compiled=compiled.objects,
        seconds=compiled.seconds,
        unplanned=unplanned_symbols,
    )


def located(files: KernelFiles, folder: Path) -> KernelFiles:
    """Return the record with its paths in `folder`, because a cache may have been moved since it was written."""
    return replace(
        files,
        image=str(folder / Path(files.image).name),
        config=str(folder / "config"),
        system_map=str(folder / "System.map"),
    )


#: Dictionary that the kernel's build gives xz for an image (scripts/xz_wrap.sh), beside the filter for branches.
_XZ_DICTIONARY = 32 << 20


def packed_bytes(row: Architecture, image: Path) -> int:
    """Return the size of a file when it is packed with xz as the kernel's own build does."""
    filters = [{"id": row.kernel.xz_filter}] if row.kernel.xz_filter else []
    packing = {"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": _XZ_DICTIONARY}
    return len(lzma.compress(image.read_bytes(), check=lzma.CHECK_CRC32, filters=[*filters, packing]))


def _zstd_bytes(path: Path) -> int | None:
    if shutil.which("zstd") is None:
        return None
    return len(process.run(["zstd", "-19", "-q", "-c", str(path)], timeout_s=300).stdout)
