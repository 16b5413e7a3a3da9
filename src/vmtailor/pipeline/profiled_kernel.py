# SPDX-License-Identifier: Apache-2.0
"""Kernels that are compiled by a profile: a kernel with debug information is booted under the load, and the counts of
its blocks become the profile that clang compiles the plan by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from vmtailor.analysis.cost import block_ranges
from vmtailor.analysis.cost.plugin_counts import SymbolTable
from vmtailor.base.cache.store import Store, digest
from vmtailor.base.errors import BuildError, UserInputError
from vmtailor.base.natives import Natives
from vmtailor.base.progress import step
from vmtailor.booting.bundle_booter import ExercisedBooter
from vmtailor.drivers.kernel import load_profile, make
from vmtailor.drivers.kernel.kernel_source import SourceTree
from vmtailor.model.boots.boot import Boot, Outcome
from vmtailor.model.boots.counters import Counters
from vmtailor.model.boots.workload import Exercised
from vmtailor.model.machine import Clock, Machine
from vmtailor.model.plan import Plan
from vmtailor.pipeline import keys
from vmtailor.pipeline.change_means import KernelRequest
from vmtailor.stages import build

# Part of every key: raise it when other counts become the profile.
_LAYOUT = "1"


@dataclass(frozen=True)
class CountedLoad:
    """A load that a kernel can be booted under. `key`: gives everything but the kernel that such a boot depends on.
    `boot`: boots a kernel with everything counted."""

    key: Callable[[], str]
    boot: Callable[[Path], tuple[Boot, Counters | None]]


def named(
    asked: KernelRequest, planned: Callable[[KernelRequest], tuple[Plan, SourceTree]], store: Store,
    load: CountedLoad | None,
) -> KernelRequest:  # fmt: skip
    """Return a request with the profile of the load named by its digest, where it asks for one. `planned` gives the
    plan of a request, and the source. Raises as `digest_for`, and UserInputError where there is no load."""
    if asked.flags.get(load_profile.FLAG) != load_profile.LOAD:
        return asked
    if load is None:
        raise UserInputError("a profile is made of a load, and this exercise has none", hint="--exercise FILE with one")
    plain, source = planned(replace(asked, flags={**asked.flags, load_profile.FLAG: None}))
    sha256 = digest_for(plain, source, store, load)
    return replace(asked, flags={**asked.flags, load_profile.FLAG: sha256})


def counted_load(
    booter: ExercisedBooter, machine: Machine, workload: Exercised, natives: Natives, scratch: Path
) -> CountedLoad | None:
    """Return the load of a machine's exercise; None where it has none."""
    exercise = workload.run.exercise
    if exercise is None or not exercise.load:
        return None
    machine = replace(machine, clock=Clock.INSTRUCTIONS)

    def boot(kernel: Path) -> tuple[Boot, Counters | None]:
        found, gathered = booter(replace(machine, kernel=str(kernel)), workload, scratch)
        return found, gathered.counters

    return CountedLoad(lambda: keys.of_run(block_ranges, machine, exercise, natives), boot)


def counting(plan: Plan) -> make.Toolchain:
    """Return the toolchain of the kernel whose blocks are counted: a plan's own, with debug information."""
    own = build.toolchain_of(plan)
    return replace(own, debug=True, flags=(*own.flags, load_profile.COUNTED))


def digest_for(plan: Plan, source: SourceTree, store: Store, load: CountedLoad) -> str:
    """Return the digest of the profile that a load gives of a plan's kernel. The cache keeps the kernel that is
    compiled for it, and the profile.

    Raises UserInputError for another compiler than clang and without llvm-profgen, BuildError for a kernel that does
    not compile, a boot that did not pass and a load without a profile."""
    llvm = make.llvm_of(plan.flags)
    load_profile.require_program(llvm)
    toolchain = counting(plan)

    def fill(folder: Path) -> None:
        with step("the kernel with debug information, whose blocks are counted"):
            kernel = build.build_kernel(plan, source.path, source.digest, store, toolchain=toolchain)
        with step("the load, counted by block"):
            boot, counters = load.boot(Path(kernel.image))
            if boot.outcome is not Outcome.READY or counters is None:
                raise BuildError(f"the boot for the profile did not pass: {boot.problem or boot.outcome}")
        with step("the profile of the load"):
            table = SymbolTable.parse(Path(kernel.system_map).read_text("ascii", "replace"), plan.architecture)
            ranges = block_ranges.of_load(counters, table)
            data = load_profile.symbolized(ranges, build.with_debug_information(kernel), llvm)
        (folder / load_profile.FILE).write_bytes(data)

    key = digest(_LAYOUT, build.kernel_key(plan, source.digest, toolchain), load.key())
    folder = store.get(load_profile.KIND, key, fill)
    return load_profile.keep((folder / load_profile.FILE).read_bytes(), store)
