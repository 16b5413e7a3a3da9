# SPDX-License-Identifier: Apache-2.0
"""`family build`: a kernel with the margin `server`, and what `run` needs of any image's kernel, planned without a
trace and compiled once."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from vmtailor import __version__
from vmtailor.analysis.demands import demand_rules
from vmtailor.analysis.demands.demand import Demands
from vmtailor.analysis.guests import machine_variants
from vmtailor.base.cache.store import Store
from vmtailor.base.files import dot_config, records
from vmtailor.base.files.digests import sha256_of
from vmtailor.base.progress import step
from vmtailor.drivers.distribution import packaged_baseline, selection
from vmtailor.drivers.distribution.distribution import Distribution
from vmtailor.drivers.host import family_kernels
from vmtailor.drivers.host.family_kernels import Family
from vmtailor.drivers.kernel.kernel_source import SourceTree
from vmtailor.model.architecture import named
from vmtailor.model.bundle import CONFIG, PLAN, SYSTEM_MAP, BundleFile
from vmtailor.model.evidence import EvidenceKind
from vmtailor.model.family import FamilyKernel
from vmtailor.model.guest_mounts import GROUPS
from vmtailor.model.kernel import KernelFiles
from vmtailor.model.margin import Margin
from vmtailor.model.plan import Plan, RootFormat
from vmtailor.pipeline.image_subject import require_tools
from vmtailor.pipeline.options import IMAGE_MEMORY
from vmtailor.stages import build, kernel_plan
from vmtailor.stages.kernel_plan import KernelTree, Wishes

#: The margins of a family kernel.
MARGINS = (Margin.SERVER,)
#: Symbols beyond its margin: their place among its reasons, the symbols, and the reason.
_BEYOND = (
    ("folders", GROUPS["folders"], "run -v mounts folders of the host"),
    ("volumes", GROUPS["volumes"], "run -v mounts named volumes"),
)
_ACCESS_LISTS = {RootFormat.EROFS: ("EROFS_FS_POSIX_ACL",), RootFormat.EXT4: ("EXT4_FS_POSIX_ACL",)}


@dataclass(frozen=True)
class FamilyWishes:
    """The user's wishes. `kernel`: the packaged kernel whose source is compiled; None for the newest."""

    keep: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    cpus: int = 1
    kernel: str | None = None
    store: Store = field(default_factory=Store)
    distribution: Distribution = field(default_factory=selection.of_host)


def made(architecture: str, wishes: FamilyWishes) -> Family:
    """Return the family kernel of a processor, planned and compiled, or found in the cache. Raises HostError for what
    this host lacks, BuildError, and UserInputError for unknown symbols."""
    row, store = named(architecture), wishes.store
    require_tools(row)
    package = packaged_baseline.select(wishes.distribution, row, wishes.kernel)
    source = package.source(store)
    config = dot_config.parse((package.image(store) / "config").read_text())
    with step("facts of the kernel source"):
        tree = kernel_plan.read_tree(source.path, package.version, source.digest, store, architecture=architecture)
    plan = planned(tree, config, wishes)
    wanted = tree.facts.compiled({change.id: change.value for change in plan.symbols if change.is_kept})
    files = build.build_kernel(plan, source.path, source.digest, store, sources=wanted)
    origin = (*package.packages[:1], package.source_package)
    return _kept(plan, files, source, origin, store)


def planned(tree: KernelTree, config: Mapping[str, str], wishes: FamilyWishes) -> Plan:
    """Return the plan of a family kernel. `config`: of the packaged kernel, name → value."""
    row = named(tree.architecture)
    form = RootFormat(row.kernel.root)
    enabled = {name: value for name, value in config.items() if value in ("y", "m")}
    demands = Demands(tree.facts, demand_rules.load(architecture=row), enabled, lambda path: b"")
    lists = ("access-lists", _ACCESS_LISTS.get(form, ()), "files of an image may have access control lists")
    for key, symbols, text in (*_BEYOND, lists):
        demands.add(EvidenceKind.FLAG, key, symbols, f"family:{key}", text)
    asked = Wishes(
        architecture=row.name,
        machine=row.board_names[0],
        cpus=wishes.cpus,
        root_format=form,
        network=True,
        terminal=True,
        keep=wishes.keep,
        drop=wishes.drop,
        margins=MARGINS,
    )
    return kernel_plan.make_plan(None, demands, tree, config, asked)


def _kept(plan: Plan, files: KernelFiles, source: SourceTree, origin: tuple[str, ...], store: Store) -> Family:
    row = named(plan.architecture)
    kernel = family_kernels.names_of(row.name)[0]
    text = records.to_bytes(plan)
    paths = {kernel: Path(files.image), CONFIG: Path(files.config), SYSTEM_MAP: Path(files.system_map)}
    with step("digests"):
        listed = [BundleFile(name, path.stat().st_size, sha256_of(path)) for name, path in paths.items()]
    listed.append(BundleFile(PLAN, len(text), family_kernels.digest_of(text)))
    record = FamilyKernel(
        architecture=row.name,
        machine=plan.machine,
        cpus=plan.cpus,
        memory_bytes=IMAGE_MEMORY,
        kernel=kernel,
        kernel_version=plan.kernel_version,
        root_format=plan.root_format,
        words=machine_variants.words_of(row, plan.root_format, [word.id for word in plan.words]),
        network=plan.network,
        margins=plan.margins,
        made_for="",
        sources=(
            ("kernel source", f"{plan.kernel_version}, {', '.join(origin)}, {source.digest}"),
            ("compiler", files.compiler),
            ("vmtailor", __version__),
        ),
        files=tuple(listed),
    )

    def write(name: str, path: Path) -> None:
        if name == PLAN:
            path.write_bytes(text)
        else:
            shutil.copyfile(paths[name], path)

    return family_kernels.kept(record, store, write)
