# SPDX-License-Identifier: Apache-2.0
"""The results of a `fit`: both sides measured, the trials on the way, and all that the report shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from vmtailor.base.files.records import Older
from vmtailor.model.boots.boot import FunctionCost, PhaseCounts
from vmtailor.model.boots.boot_cost import MemoryUse
from vmtailor.model.boots.load_result import LoadResult
from vmtailor.model.change import Change
from vmtailor.model.exercise import Exercise, Proof
from vmtailor.model.image import ImageConfig
from vmtailor.model.kernel import FoundKernel
from vmtailor.model.margin import MarginPrice
from vmtailor.model.plan import Plan
from vmtailor.model.reach import Lack
from vmtailor.model.syscalls import Absence, CallSummary, FailedCall
from vmtailor.model.systems.kept_changes import Tuning
from vmtailor.model.systems.system import System
from vmtailor.model.systems.units import UnitChoice
from vmtailor.model.trial import Trial


@dataclass(frozen=True)
class EmulationLoop:
    """A loop that costs only under emulation, counted apart: instructions executed in it on the way to init."""

    name: str
    instructions: int
    reason: str


@dataclass(frozen=True)
class Side:
    """One machine's figures. Instructions are executed guest instructions since kernel entry (`reset_*`: since reset);
    `virtual_us` adds the waits; `wall_us` is host time since the VMM started, under `wall_conditions`.

    A figure that could not be taken is None, and a warning says why. `spread` is (max - min) / median over the boots,
    by figure; 0.0 means that all boots agreed to the instruction."""

    name: str
    kernel: str
    kernel_file: str
    symbols_y: int
    symbols_prompted: int
    kernel_bytes: int
    kernel_compressed_bytes: int
    boots: int
    init_instructions: int | None = None
    init_instructions_net: int | None = None
    reset_instructions: int | None = None
    reset_instructions_net: int | None = None
    ready_instructions: int | None = None
    init_virtual_us: float | None = None
    ready_virtual_us: float | None = None
    device_accesses: int | None = None  # port and memory-mapped, kernel entry to ready
    requests: int = 0
    request_kernel_instructions: float | None = None
    request_user_instructions: float | None = None
    min_memory_bytes: int | None = None
    init_wall_us: float | None = None
    ready_wall_us: float | None = None
    phases: tuple[PhaseCounts, ...] = ()
    functions: tuple[FunctionCost, ...] = ()  # the most expensive ones
    subsystems: tuple[tuple[str, int], ...] = ()  # folder of the source tree → instructions on the way to ready
    initcalls: tuple[tuple[str, int], ...] = ()  # initcall → instructions, itself and what it called
    symbol_costs: tuple[tuple[str, int], ...] = ()  # configuration symbol → instructions on the way to ready
    loops: tuple[EmulationLoop, ...] = ()
    spread: tuple[tuple[str, float], ...] = ()
    conditions: tuple[tuple[str, str], ...] = ()
    wall_conditions: tuple[tuple[str, str], ...] = ()
    device_accesses_net: int | None = None  # without those of the named loops
    memory: MemoryUse | None = None  # of the machine with the least memory
    loads: tuple[LoadResult, ...] = ()  # of the first boot on the instruction clock


@dataclass(frozen=True)
class Warning:
    """Doubt as a value: a code that can be looked up in the docs, and a sentence with advice."""

    code: str
    text: str


#: The code of the warning that a kernel's source is patched.
PATCHED = "patched"


@dataclass(frozen=True)
class Untouched:
    """The parts of the image that the exercise never touched."""

    files_total: int
    files_opened: int
    never_opened: tuple[str, ...]  # the largest first, at most 200
    ports_never_answered: tuple[int, ...]


@dataclass(frozen=True)
class Part:
    """One part of what no single change accounts for: instructions from kernel entry to init, net, on both sides.
    `functions` are those that changed most, each with by how much: less is negative."""

    name: str
    before: int
    after: int
    functions: tuple[tuple[str, int], ...] = ()


def _undressed(old: dict[str, Any]) -> dict[str, Any]:
    """Return the document of a record, with the ports of a system in their own field, and without its image."""
    if old.get("system") is None:
        return old
    image = old.get("image")
    ports = image.get("exposed_ports") if isinstance(image, dict) else ()
    numbers = [one.get("number") for one in ports if isinstance(one, dict)] if isinstance(ports, list) else []
    return {**old, "image": None, "system_ports": numbers}


# vmtailor/fit-run/1: a ledger of its own kind of rows; trials named symbols.
# vmtailor/fit-run/2: `ledger` and `trials` hold changes; `remainder`.
# vmtailor/fit-run/3: without `others`, which was always empty.
# vmtailor/fit-run/4: `absent`.
# vmtailor/fit-run/5: `proof`, `prices`, `lacks`, `found_kernel`.
# vmtailor/fit-run/6: `system`.
# vmtailor/fit-run/7: `units`.
# vmtailor/fit-run/8: `tuned`.
# vmtailor/fit-run/9: a system has no `image`, which held its processor and ports; `system_ports`.
@dataclass(frozen=True)
class FitRun:
    """All results of a run of `fit`; the report, `explain` and `fit --json` are views of it.

    `ledger`: the changes that were measured as one. The first is the kernel file's, before the kernel runs; the others
    go folder by folder of the source tree and add up to the difference in instructions to init, net. What they do
    beyond what is expected of their symbols is the `remainder`. `absent`: what is not there, and harmlessly so.

    `proof` says what `verified` is worth. `prices`: one for each choice of margins, the smallest first. `lacks`: what
    the image could ask for and this kernel has not, the nearest first. `found_kernel`: where the kernel came from.
    `image`: None for a system with an init of its own, which is `system`; `system_ports`: TCP ports of its exercise.
    `units`: what became of its units, where that is systemd; `tuned`: of changes beside its kernel, where some were
    named."""

    SCHEMA: ClassVar[str] = "vmtailor/fit-run/9"
    OLDER: ClassVar[Older] = {"vmtailor/fit-run/8": _undressed}

    version: str
    command: str
    bundle: str
    reference: str
    image_digest: str
    image: ImageConfig | None
    exercise: Exercise
    plan: Plan
    baseline: Side
    tailored: Side
    verified: bool
    degraded: tuple[FailedCall, ...]
    trials: tuple[Trial, ...]
    ledger: tuple[Change, ...]
    unexplained: tuple[str, ...]
    untouched: Untouched
    calls: tuple[CallSummary, ...]
    warnings: tuple[Warning, ...]
    stage_seconds: tuple[tuple[str, float], ...]
    sources: tuple[tuple[str, str], ...]  # kernel source, image, tools: name → version and origin
    proof: Proof
    remainder: tuple[Part, ...] = ()
    absent: tuple[Absence, ...] = ()
    prices: tuple[MarginPrice, ...] = ()
    lacks: tuple[Lack, ...] = ()
    found_kernel: FoundKernel | None = None
    system: System | None = None
    units: UnitChoice | None = None
    tuned: Tuning | None = None
    system_ports: tuple[int, ...] = ()

    @property
    def tcp_ports(self) -> tuple[int, ...]:
        """Return the TCP ports that the image exposes, or that the exercise of the system asks."""
        if self.image is None:
            return self.system_ports
        return tuple(port.number for port in self.image.exposed_ports if port.protocol == "tcp")
