# SPDX-License-Identifier: Apache-2.0
"""A bundle's kernel in other forms, each made once and kept by content."""

from __future__ import annotations

import shutil
from pathlib import Path

from vmtailor.analysis.ksource import foreign_config
from vmtailor.base.cache.store import Store, digest
from vmtailor.base.files import dot_config
from vmtailor.base.files.digests import sha256_of
from vmtailor.base.progress import step
from vmtailor.drivers.host.bundle_folder import BundleFolder
from vmtailor.drivers.kernel import boot_image, kernel_forms, make
from vmtailor.drivers.kernel.kernel_forms import KernelForm
from vmtailor.model.architecture import named
from vmtailor.pipeline import bundle_kernel
from vmtailor.stages import kernel_plan as planning

# Part of every key: raise it when the steps to a form change.
_RULES = "1"
_KIND = "kernel-form"


def made(files: BundleFolder, name: str, store: Store) -> Path:
    """Return a bundle's kernel in a form, its file called as that form is. The kernel in it is the bundle's own file,
    whose digest was checked; only boot code around it is compiled, with the bundle's source.

    Raises UserInputError for a form that its processor does not have, or without the source; HostError without a
    program; BuildError when the boot code does not compile."""
    form = kernel_forms.form(name, files.bundle.architecture)
    file = form.file_name(files.bundle.architecture)
    if form.program:
        return _packed(files, form, file, store)
    source = bundle_kernel.source_of(files, store)
    toolchain = make.Toolchain.of(named(files.bundle.architecture))
    row, kernel = kernel_forms.boot_code(files.bundle.architecture), files.kernel
    key = digest(
        _RULES, sha256_of(kernel), digest(files.symbols), source.digest, dot_config.render(files.config),
        repr(form), repr(row), toolchain.describe(), *toolchain.variables(),
    )  # fmt: skip

    def fill(folder: Path) -> None:
        kconfig = planning.read_tree(
            source.path, source.version, source.digest, store, architecture=files.bundle.architecture
        ).kconfig
        config = foreign_config.harmless(kconfig, files.config, str(files.path / files.bundle.kernel_config))
        work = folder / "build"
        work.mkdir()
        with step(f"the kernel as {file}: its boot code is compiled"):
            image = boot_image.build(
                row, form.boot_code, kernel.read_bytes(), files.symbols, config, source.path, work, toolchain
            )
        image.rename(folder / file)
        shutil.rmtree(work)

    return store.get(_KIND, key, fill) / file


def _packed(files: BundleFolder, form: KernelForm, file: str, store: Store) -> Path:
    kernel = files.kernel
    key = digest(_RULES, sha256_of(kernel), repr(form))
    return store.get(_KIND, key, lambda folder: kernel_forms.pack(form, kernel, folder / file)) / file
