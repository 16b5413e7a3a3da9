# SPDX-License-Identifier: Apache-2.0
"""The baseline for distributions that do not package a kernel with its debug symbols and source: compiled once.

Slower than unpacking packages (a distribution's configuration takes an hour or more on two cores, and 15 GB), with the
same result: a kernel with its modules, its debug information and its source. The configuration is the distribution's
own (`/boot/config-RELEASE`), or the kernel's defconfig with its fragment for guests.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection
from pathlib import Path

from vmtailor.base import process
from vmtailor.base.cache.store import Store, digest, locked
from vmtailor.base.errors import BuildError, UserInputError
from vmtailor.base.files import dot_config
from vmtailor.base.files.regular_files import write_atomic
from vmtailor.base.notation import module_name
from vmtailor.base.progress import step
from vmtailor.drivers.kernel import kernel_source, make
from vmtailor.drivers.kernel.kernel_source import debug_modules_of
from vmtailor.model.architecture import Architecture, named, presumed
from vmtailor.model.kernel import Configured, KernelBaseline

_LAYOUT = "1"

_DEBUG = ("DEBUG_KERNEL", "DEBUG_INFO_DWARF_TOOLCHAIN_DEFAULT")
_MACHINE = (
    "MODULES", "BLK_DEV_INITRD", "PCI", "TTY", "BLOCK", "BLK_DEV", "NET", "INET", "NETDEVICES", "NET_CORE",
    "VIRTIO_MENU", "VIRTIO_PCI",
)  # fmt: skip
_FILE_SYSTEMS = (
    "MISC_FILESYSTEMS", "EROFS_FS_XATTR", "EROFS_FS_SECURITY", "SQUASHFS_XATTR", "SQUASHFS_ZSTD", "EXT4_FS_SECURITY",
    "SHMEM", "TMPFS", "TMPFS_XATTR", "DEVTMPFS", "PROC_FS", "SYSFS",
)  # fmt: skip
_INIT = ("PRINTK", "BINFMT_ELF", "BINFMT_SCRIPT", "MULTIUSER", "FUTEX", "POSIX_TIMERS", "UNIX98_PTYS")
_MODULES = ("VIRTIO_MMIO", "VIRTIO_BLK", "VIRTIO_NET", "EROFS_FS", "SQUASHFS", "EXT4_FS", "OVERLAY_FS")
_OFF = (
    "DEBUG_INFO_NONE", "DEBUG_INFO_BTF", "DEBUG_INFO_REDUCED", "DEBUG_INFO_SPLIT", "MODULE_SIG", "MODULE_COMPRESS",
    "LOCALVERSION_AUTO",
)  # fmt: skip


def needed(architecture: Architecture) -> dict[str, str]:
    """Return the symbols that a baseline must have: debug information for attribution, the devices and file systems of
    the traced machine, and the needs of our init and the tracer."""
    yes = (*_DEBUG, *_MACHINE, *architecture.kernel.baseline, *_FILE_SYSTEMS, *_INIT)
    return dict.fromkeys(yes, "y") | dict.fromkeys(_MODULES, "m")


def added(architecture: Architecture) -> dict[str, str]:
    """Return the settings laid over any configuration: the fixed ones, no keys that only the distribution has, modules
    as they are."""
    return {
        **dict.fromkeys(("SYSTEM_TRUSTED_KEYS", "SYSTEM_REVOCATION_KEYS"), ""),
        **dict.fromkeys(_OFF, "n"),
        "MODULE_COMPRESS_NONE": "y",  # an answer to a choice in old trees; newer ones have MODULE_COMPRESS alone
        **needed(architecture),
    }


def provide(
    store: Store,
    source: str,
    config_file: Path | None = None,
    *,
    architecture: str | None = None,
) -> KernelBaseline:
    """Compile `source` (a folder, or a tarball with its checksum) as a baseline, or find it in the cache.

    An interrupted compile goes on where it stopped. Raises UserInputError for the source or configuration, BuildError
    when it does not compile, HostError for tools and disk.
    """
    given = dot_config.read(config_file) if config_file is not None else b"defconfig"
    tree = kernel_source.provide(store, source)
    family = presumed() if architecture is None else named(architecture)
    wanted = debug_modules_of(family)
    toolchain = make.Toolchain.of(family)
    key = digest(_LAYOUT, tree.digest, toolchain.describe(), given, dot_config.render(added(family)), *sorted(wanted))
    work = store.root / "kernel-build" / f"baseline-{key[:16]}"

    def fill(folder: Path) -> None:
        store.folder("kernel-build")
        store.used(work)
        with locked(work.with_suffix(".lock"), "a kernel of this source"):
            configured = configure(tree.path, work, config_file, toolchain, family)
            targets = (family.kernel.packaged_target, "modules")
            compiled = make.compile_kernel(
                configured, targets, toolchain, title=f"compiling the baseline {tree.version}"
            )
            _collect(tree.path, compiled, folder, toolchain, family, wanted)

    folder = store.get("kernel-compiled", key, fill)
    release = (folder / "release").read_text().strip()
    return KernelBaseline(
        version=tree.version,
        release=release,
        vmlinuz=str(folder / "vmlinuz"),
        config=str(folder / "config"),
        system_map=str(folder / "System.map"),
        modules_dir=str(folder / "lib/modules" / release),
        debug_vmlinux=str(folder / "vmlinux"),
        debug_modules_dir=str(folder / "debug"),
        source_dir=str(tree.path),
        source_digest=tree.digest,
        origin=(f"compiled from {source}", toolchain.describe()),
    )


def configure(
    source: Path, work: Path, config_file: Path | None, toolchain: make.Toolchain, architecture: Architecture
) -> Configured:
    """Configure a baseline. Raises UserInputError, with the symbols, for a configuration that cannot serve. That is
    better than a guest that cannot mount its root after an hour's compile."""
    configured = make.configure_file(
        source, work, _whole(source, work, config_file, toolchain, architecture), toolchain
    )
    had = {name for name, _ in configured.symbols}
    missing = [name for name in needed(architecture) if name not in had]
    if missing:
        raise UserInputError(
            f"this configuration cannot be a baseline: it does not allow {', '.join(missing)}",
            hint="it switches off what they depend on; give a distribution's configuration, or 'defconfig'",
        )
    return configured


def _whole(
    source: Path, work: Path, config_file: Path | None, toolchain: make.Toolchain, architecture: Architecture
) -> Path:
    """The configuration with what is added laid over it, as a file for olddefconfig."""
    if config_file is not None:
        base = dot_config.parse(dot_config.plain(config_file.read_bytes(), config_file).decode("utf-8", "replace"))
    else:
        try:
            process.run(
                make.make_argv(source, work, toolchain, architecture.kernel.defconfig),
                timeout_s=900,
                env=make.environment(),
                umask=make.UMASK,
            )
        except process.CommandFailed as error:
            raise BuildError("the kernel's own configuration step failed", details=error.details) from error
        base = dot_config.parse((work / ".config").read_text("utf-8"))
    whole = work / "baseline.config"
    write_atomic(whole, dot_config.render(base | added(architecture)).encode(), private=True)
    return whole


def _collect(
    source: Path,
    compiled: make.CompiledKernel,
    folder: Path,
    toolchain: make.Toolchain,
    architecture: Architecture,
    debug_modules: Collection[str],
) -> None:
    """Take what a baseline consists of out of the build folder: files, modules, the same with debug information."""
    work = compiled.build_dir
    shutil.copyfile(work / architecture.kernel.packaged_file, folder / "vmlinuz")
    for name in ("vmlinux", "System.map", ".config"):
        shutil.copyfile(work / name, folder / name.removeprefix("."))
    (folder / "release").write_text(make.release(source, work, toolchain) + "\n")
    wanted = set(map(module_name, debug_modules))
    for module in work.rglob("*.ko"):
        if module_name(module.stem) in wanted:
            target = folder / "debug" / module.relative_to(work)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(module, target)
    argv = make.make_argv(source, work, toolchain, ["modules_install"])
    argv += [f"INSTALL_MOD_PATH={folder}", "INSTALL_MOD_STRIP=1", "DEPMOD=true"]
    with step("collecting the modules of the baseline"):
        try:
            process.run(argv, timeout_s=3600, env=make.environment(), umask=make.UMASK)
        except process.CommandFailed as error:
            raise BuildError("the modules of the baseline could not be installed", details=error.details) from error
    (folder / "debug").mkdir(exist_ok=True)
