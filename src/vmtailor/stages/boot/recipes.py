# SPDX-License-Identifier: Apache-2.0
"""How a change of the catalogue is made on a machine (data/trials.toml), and what its saving is read from."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from vmtailor.base.errors import UserInputError
from vmtailor.drivers.rootfs import small_initrd
from vmtailor.model.boot_cost import BootCost
from vmtailor.model.machine import Machine
from vmtailor.model.timeline import PhaseName, Timeline

#: So many rows are named for a prediction.
MOST_NAMED = 6
LISTED = "module_blacklist"
#: Instructions to look up one initcall's name: counted with a list that names none, 6.12 with 170,000 symbols.
NAME_LOOKUP = 3_200
FILE = Path(__file__).resolve().parents[2] / "data" / "trials.toml"


@dataclass(frozen=True)
class Expect:
    """Where the saving is read from in a timeline: names of rows, as whole patterns."""

    processes: tuple[str, ...] = ()
    units: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    initcalls: tuple[str, ...] = ()
    console: bool = False
    initrd: bool = False
    advice: bool = False


@dataclass(frozen=True)
class Counts:
    """Where the saving in instructions is read from in a boot's cost, as whole patterns: functions themselves by
    their `symbols`,
    `files` or names (`functions`), each once; `initcalls` with all they called."""

    symbols: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()
    initcalls: tuple[str, ...] = ()
    helpers: str = ""  # programs that the kernel starts before init (modprobe): "all", or those "for tests"
    share: float = 1.0  # so much of all that


@dataclass(frozen=True)
class Recipe:
    """One change that can be tried. `advice` is the id of its entry in the catalogue. `config`: symbols and values of
    another kernel, which only a bundle has the means to compile."""

    id: str
    advice: str
    does: str
    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    mask: tuple[str, ...] = ()
    kind: str | None = None
    memory_mib: int = 0
    cpu: str = ""
    machine: tuple[str, ...] = ()
    initrd: str = ""
    qemu: tuple[str, ...] = ()
    config: tuple[tuple[str, str], ...] = ()
    expect: Expect = Expect()
    counts: Counts = Counts()
    parts: tuple[Recipe, ...] = ()  # several changes that are tried as one; it has nothing of its own then


@functools.cache
def recipes() -> tuple[Recipe, ...]:
    """All changes that can be tried on a machine with an init of its own."""
    found = []
    for raw in tomllib.loads(FILE.read_text("utf-8"))["trial"]:
        expect = msgspec.convert(raw.pop("expect", {}), Expect)
        counts = msgspec.convert(raw.pop("counts", {}), Counts)
        values = {k: tuple(v) if isinstance(v, list) else v for k, v in raw.items()}
        found.append(Recipe(**{"advice": raw["id"], **values}, expect=expect, counts=counts))
    return tuple(found)


def choose(wanted: Sequence[str]) -> tuple[Recipe, ...]:
    """Recipes by their own id or that of their advice; `all` for every one; several joined by `+` are tried as one
    change. Raises UserInputError for one that is not there."""
    chosen: dict[str, Recipe] = {}
    for name in wanted:
        if "+" in name:
            chosen[name] = joined(name, choose)
            continue
        found = [r for r in recipes() if name in ("all", r.id, r.advice)]
        if not found:
            ids = ", ".join(r.id for r in recipes())
            raise UserInputError(f"no change {name!r} can be tried on a machine", hint=f"there are: {ids}")
        chosen.update((r.id, r) for r in found)
    return tuple(chosen.values())


def joined(name: str, choose_: Callable[[Sequence[str]], tuple[Recipe, ...]]) -> Recipe:
    """One change of several: of `a+b`, each as `choose_` finds it."""
    parts = choose_([part.strip() for part in name.split("+") if part.strip()])
    return parts[0] if len(parts) == 1 else Recipe(name, "", "; ".join(part.does for part in parts), parts=parts)


def single(wanted: Iterable[Recipe]) -> tuple[Recipe, ...]:
    """Each change by itself."""
    return tuple(one for recipe in wanted for one in (recipe.parts or (recipe,)))


def apply(recipe: Recipe, vm: Machine, folder: Path, small_init: Path) -> Machine:
    """The machine with a single change made; the same machine where it changes nothing. Raises UserInputError where it
    cannot be made."""
    if recipe.config:
        raise UserInputError("another kernel configuration can be tried on a bundle only")
    if (recipe.add or recipe.mask or recipe.remove or recipe.initrd) and vm.kernel is None:
        raise UserInputError("the command line and initial RAM disk can be changed only with --kernel")
    kept = tuple(word for word in vm.append if not any(re.fullmatch(p, word) for p in recipe.remove))
    words = (*recipe.add, *(f"systemd.mask={unit}" for unit in recipe.mask))
    changed = replace(
        vm,
        append=_joined(kept, words),
        kind=recipe.kind or vm.kind,
        cpu_model=f"{vm.cpu_model},{recipe.cpu}" if recipe.cpu else vm.cpu_model,
        machine_options=(*vm.machine_options, *recipe.machine),
        memory_bytes=min(vm.memory_bytes, recipe.memory_mib << 20) if recipe.memory_mib else vm.memory_bytes,
        options=(*vm.options, *recipe.qemu),
    )
    if recipe.initrd == "small":
        if vm.initrd is None or not vm.disks:
            raise UserInputError("there is no initial RAM disk to rebuild")
        folder.mkdir(parents=True, exist_ok=True)
        out = (folder / "initrd-small").absolute()
        small_initrd.rebuild(Path(vm.initrd), vm.disks[0], small_init, out)
        changed = replace(changed, initrd=str(out))
    return changed


def _joined(kept: tuple[str, ...], words: tuple[str, ...]) -> tuple[str, ...]:
    """The command line with more words. Of `module_blacklist=` the kernel takes only the last, so its lists become
    one."""
    found = list(kept)
    for word in words:
        name, _, value = word.partition("=")
        place = next((i for i, w in enumerate(found) if name == LISTED and w.startswith(f"{LISTED}=")), None)
        if place is not None:
            found[place] = f"{found[place]},{value}"
        elif word not in found:
            found.append(word)
    return tuple(found)


def merge(recipes_: Iterable[Recipe], vm: Machine, folder: Path, small_init: Path) -> Machine:
    """The machine with several changes made, one after the other."""
    for recipe in single(recipes_):
        vm = apply(recipe, vm, folder, small_init)
    return vm


def expected_s(recipe: Recipe, timeline: Timeline) -> tuple[float | None, str]:
    """The saving to expect, in seconds of the timeline's clock, and what it was read from; None where nothing tells."""
    if recipe.parts:
        return _sum([expected_s(part, timeline) for part in recipe.parts])
    us, seen = 0, []
    rows: list[tuple[tuple[str, ...], Iterable[tuple[str, int | None]]]] = [
        (recipe.expect.processes, ((p.name, p.exclusive_us) for p in timeline.processes if not p.observer)),
        (recipe.expect.units, ((u.name, u.exclusive_us) for u in timeline.units)),
        (recipe.expect.initcalls, ((c.name, c.exclusive_us) for c in timeline.initcalls if c.module is None)),
        (recipe.expect.modules, ((c.module or "", c.exclusive_us) for c in timeline.initcalls)),
    ]
    for patterns, items in rows:
        if not patterns:
            continue
        wanted = re.compile("|".join(patterns))
        for name, cost in items:
            if cost is not None and wanted.fullmatch(name):
                us += cost
                seen.append(name)
    if recipe.expect.console and timeline.console is not None and timeline.console.cost_us is not None:
        us += timeline.console.cost_us
        seen.append("console")
    if recipe.expect.initrd:
        phase = timeline.phase(PhaseName.INITRD)
        if phase is not None and phase.start_us is not None and phase.end_us is not None:
            us += phase.end_us - phase.start_us
            seen.append("phase initrd")
    if recipe.expect.advice:
        for remedy in timeline.advice:
            if remedy.id == recipe.advice and remedy.applies and remedy.saving_us is not None:
                us += remedy.saving_us
                seen += list(remedy.seen)
    return (us / 1e6, ", ".join(dict.fromkeys(seen))) if seen else (None, "")


def _sum(parts: Sequence[tuple[float | None, str]]) -> tuple[float | None, str]:
    """What parts are expected to save together, where all tell."""
    known = [saving for saving, _ in parts if saving is not None]
    sources = ", ".join(dict.fromkeys(source for _, source in parts if source))
    return (sum(known) if len(known) == len(parts) else None), sources


def expected_instructions(recipe: Recipe, cost: BootCost) -> tuple[float | None, str]:
    """The saving to expect, in instructions from kernel entry to init, and what it was read from; None where nothing
    tells. With `initcall_blacklist=` the kernel looks up the name of every initcall, which is taken off."""
    saving, source = _sum([_saved(part, cost) for part in single([recipe])])
    words = [word for part in single([recipe]) for word in part.add]
    if saving is not None and any(word.startswith("initcall_blacklist=") for word in words):
        saving -= NAME_LOOKUP * len(cost.initcalls)
    return saving, source


def _saved(recipe: Recipe, cost: BootCost) -> tuple[float | None, str]:
    wanted, total, seen = recipe.counts, 0, []
    for row in cost.functions:  # dearest first
        keys = ((wanted.symbols, row.symbol), (wanted.files, row.file), (wanted.functions, row.function))
        if any(patterns and re.fullmatch("|".join(patterns), key) for patterns, key in keys):
            total += row.instructions
            seen.append(row.function)
    for call in cost.initcalls:
        if wanted.initcalls and re.fullmatch("|".join(wanted.initcalls), call.name):
            total += call.instructions
            seen.append(call.name)
    helpers = {"": 0, "all": cost.helpers.count, "for tests": cost.helpers.for_tests}[wanted.helpers]
    if helpers:
        total += helpers * cost.helpers.each
        seen.insert(0, f"{helpers} helpers")
    named = list(dict.fromkeys(seen))
    rest = f" and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
    return (total * wanted.share, ", ".join(named[:MOST_NAMED]) + rest) if seen else (None, "")
