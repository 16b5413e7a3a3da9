# SPDX-License-Identifier: Apache-2.0
"""The kernel that a system's fit starts from: its own, as the distribution packages it with symbols and source. Where
no package has it, one is compiled once from a source that the user gives and the system's own configuration."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from vmtailor.base.errors import HostError, UserInputError
from vmtailor.base.files import dot_config, temporary
from vmtailor.base.files.regular_files import write_atomic
from vmtailor.base.text import is_number
from vmtailor.drivers.distribution import packaged_baseline
from vmtailor.drivers.kernel import compiled_baseline, kernel_source
from vmtailor.drivers.kernel.kernel_source import SourceTree
from vmtailor.model.architecture import Architecture
from vmtailor.model.kernel import KernelBaseline
from vmtailor.pipeline.options import FitOptions
from vmtailor.pipeline.systems import inputs
from vmtailor.pipeline.systems.system_plan import CONFIG_BYTES
from vmtailor.stages.system_files import OpenedSystem

_SOURCE = "give the source of that version, as its maker publishes it: --source TARBALL"


@dataclass(frozen=True)
class OwnBaseline:
    """The baseline's kernel. `file`: what the machine is started with: the system's own file, or the compiled one."""

    kernel: KernelBaseline
    file: Path


def provide(options: FitOptions, found: OpenedSystem, taken: Path, architecture: Architecture) -> OwnBaseline:
    """Return the kernel of a system's baseline. `taken`: the folder with the system's own kernel.

    Raises UserInputError for a kernel that no package has and no source is given for, HostError for the host's lists,
    BuildError where it does not compile."""
    own = taken / inputs.KERNEL
    try:
        kernel = packaged_baseline.provide(options.distribution, architecture, options.store, found.subject.kernel)
        inputs.require_same(own, Path(kernel.vmlinuz), found.subject)
    except UserInputError as error:
        if options.source is None:
            raise UserInputError(error.message, hint=f"{error.hint}; or {_SOURCE}") from error
    except HostError:  # what is packaged, and cannot be fetched now, is not compiled instead
        if options.source is None or not options.distribution.lacking():
            raise
    else:
        return OwnBaseline(kernel, own)
    compiled = _compiled(options, options.source, found, architecture)
    return OwnBaseline(compiled, Path(compiled.vmlinuz))


def _compiled(options: FitOptions, source: str, found: OpenedSystem, architecture: Architecture) -> KernelBaseline:
    """Compile the system's kernel again, with debug information. Its name is the one that the system's modules have."""
    subject, installed = found.subject, found.subject.installed
    if installed is None or not installed.config:
        raise UserInputError(
            f"{subject.reference} has no configuration of its kernel {subject.kernel} in /boot or beside its modules",
            hint="without it, nobody knows what kernel is to be compiled: install the configuration there",
        )
    tree = kernel_source.provide(options.store, source)
    name = named(tree, subject.kernel)
    symbols = dot_config.parse_strictly(
        found.root.read(installed.config, CONFIG_BYTES), f"{installed.config} of {subject.reference}"
    )
    with temporary.held_folder() as folder:
        config = folder / "config"
        write_atomic(config, dot_config.render(symbols | name).encode(), private=True)
        return compiled_baseline.provide(options.store, source, config, architecture=architecture.name)


def named(tree: SourceTree, release: str) -> dict[str, str]:
    """Return the symbols that give a kernel of this source the name of a release, which the system's modules ask for.
    Raises UserInputError where the release is none of that version."""
    own = tree.version + kernel_source.extra_version_of(tree.path)
    rest = release.removeprefix(own)
    if not release.startswith(own) or is_number(rest[:1]):
        raise UserInputError(f"the source is Linux {own}, and the system's kernel is {release}", hint=_SOURCE)
    return {"LOCALVERSION": rest, "LOCALVERSION_AUTO": "n"}
