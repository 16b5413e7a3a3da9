# SPDX-License-Identifier: Apache-2.0
"""Explain why something is in a fitted machine, or out: from the record of a fit, the catalogue, and the rules of
demand."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from vmtailor.analysis.changes.plan_summary import cause_of
from vmtailor.analysis.changes.symbol_catalogue import Catalogue, CatalogueEntry, of_margin
from vmtailor.analysis.demands.demand_rules import Rules
from vmtailor.base import figures, near_names
from vmtailor.base.text import plural
from vmtailor.model.architecture import named, names
from vmtailor.model.change import Cause, Change, Figure, Reason
from vmtailor.model.evidence import Evidence, EvidenceKind
from vmtailor.model.fit_run import FitRun
from vmtailor.model.margin import Margin
from vmtailor.model.reach import Nearness


class NameKind(StrEnum):
    SYMBOL = "symbol"
    INITCALL = "initcall"
    FUNCTION = "function"
    CALL = "system call"
    WORD = "command-line word"
    FILE = "file"
    UNIT = "unit"
    CHANGE = "change"


class Standing(StrEnum):
    """`off`: the plan sets it to n for a reason. `out`: nothing asked for it."""

    IN = "in"
    OFF = "off"
    OUT = "out"


@dataclass(frozen=True)
class Explained:
    """`chain` leads from a dependency to a direct cause, each with its reason. `brings_in`: what would change an out
    to an in. `facts`: (name, value) that belong to it. `related`: other names worth asking about."""

    what: str
    kind: NameKind
    standing: Standing
    summary: str
    reasons: tuple[Reason, ...] = ()
    chain: tuple[tuple[str, Reason], ...] = ()
    brings_in: tuple[str, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    related: tuple[str, ...] = ()


def answer(run: FitRun, what: str, catalogue: Catalogue, rules: Rules) -> Explained | None:
    """Explain one name; None when no record has it (see `nearest`). Symbols come with and without CONFIG_."""
    name = what.removeprefix("CONFIG_")
    symbol = run.plan.symbol(name) or run.plan.symbol(name.upper())
    if symbol is not None:
        return _kept(run, symbol) if symbol.is_kept else _set(run, symbol, catalogue, rules)
    gone = next((row for row in run.plan.gone if row.id in (name, name.upper())), None)
    if gone is not None:
        return _left_out(run, gone, catalogue, rules)
    never = _never(run, name) or _never(run, name.upper())
    if never is not None:
        return never
    found = _word(run, what) or _initcall(run, what) or _call(run, what) or _function(run, what)
    return found or (_file(run, what) if "/" in what else None)


def nearest(run: FitRun, what: str, most: int = 5) -> tuple[str, ...]:
    """Return names of the record that are spelled like `what`, best first."""
    names = {name.casefold(): name for name in _names(run)}
    wanted = what.removeprefix("CONFIG_").casefold()
    close = near_names.nearest(wanted, names, most)
    within = [key for key in sorted(names) if wanted and wanted in key and key not in close]
    return tuple(names[key] for key in [*close, *within][:most])


def _names(run: FitRun) -> Iterable[str]:
    yield from (symbol.id for symbol in run.plan.symbols)
    yield from (row.id for row in run.plan.gone)
    for side in (run.baseline, run.tailored):
        yield from (name for name, _ in side.initcalls)
        yield from (row.function for row in side.functions)
    yield from (call.name for call in run.calls)
    yield from (word.id for word in run.plan.words)


# ---- symbols


def chain(run: FitRun, symbol: Change) -> tuple[tuple[str, Reason], ...]:
    """Return the shortest way from a symbol that is only a dependency to one with a direct cause, itself first."""
    by_name = {c.id: c for c in run.plan.symbols}
    ways: list[tuple[tuple[str, Reason], ...]] = [((symbol.id, reason),) for reason in symbol.reasons]
    seen = {symbol.id}
    while ways:
        longer = []
        for way in ways:
            _, reason = way[-1]
            if reason.cause is not Cause.DEPENDENCY:
                return way
            parent = by_name.get(reason.reference.removeprefix("symbol:"))
            if parent is not None and parent.id not in seen:
                seen.add(parent.id)
                longer += [(*way, (parent.id, further)) for further in parent.reasons]
        ways = longer
    return ()


def _kept(run: FitRun, symbol: Change) -> Explained:
    cause = cause_of(symbol)
    way = chain(run, symbol) if cause is Cause.DEPENDENCY else ()
    how = "built in" if symbol.value == "y" else "a module"
    summary = f"{symbol.id} is in ({how}): {cause.value if cause else 'no reason is on record'}"
    if not symbol.setting.chosen:
        summary += "; it has no prompt, other symbols switch it"
    return Explained(
        what=symbol.id,
        kind=NameKind.SYMBOL,
        standing=Standing.IN,
        summary=summary,
        reasons=symbol.reasons,
        chain=way,
        facts=_costs(run, symbol.id),
        related=_held(run, symbol.id),
    )


def _set(run: FitRun, symbol: Change, catalogue: Catalogue, rules: Rules) -> Explained:
    if symbol.value == "n":
        summary = f"{symbol.id} is switched off"
        ways = _ways_in(run, symbol.id, catalogue, rules)
        return Explained(
            what=symbol.id,
            kind=NameKind.SYMBOL,
            standing=Standing.OFF,
            summary=summary,
            reasons=symbol.reasons,
            brings_in=ways,
            facts=_costs(run, symbol.id),
        )
    return Explained(
        what=symbol.id,
        kind=NameKind.SYMBOL,
        standing=Standing.IN,
        summary=f"{symbol.id} is set to {symbol.value}",
        reasons=symbol.reasons,
    )


def _left_out(run: FitRun, row: Change, catalogue: Catalogue, rules: Rules) -> Explained:
    instructions = row.saves(Figure.TRACE_INSTRUCTIONS)
    if instructions or row.evidence:
        ran = f"its code ran on the baseline ({figures.grouped(instructions)} instructions)"
        summary = f"{row.id} is out: {ran}, but nothing asked for it by name"
    else:
        summary = f"{row.id} is out: it is in the baseline, and nothing ever used it"
    seen = tuple(("ran", f"{e.kind} {e.key} ({e.where}){_count(e)}") for e in row.evidence)
    ways = _ways_in(run, row.id, catalogue, rules)
    why = _why_left_out(run, row.id)
    told = (("as protection", why),) if why else ()
    facts = (*told, *seen, *_costs(run, row.id))
    return Explained(
        what=row.id,
        kind=NameKind.SYMBOL,
        standing=Standing.OUT,
        summary=summary,
        brings_in=ways,
        facts=facts,
    )


def _why_left_out(run: FitRun, name: str) -> str:
    """Why kernels of the family are without a protection; empty where its data does not say, or nothing is known of
    the family: the record may be somebody else's."""
    if run.plan.architecture not in names():
        return ""
    return next((one.reason for one in named(run.plan.architecture).left_out if name in one.symbols), "")


def _never(run: FitRun, name: str) -> Explained | None:
    """Return a protection that the baseline has not either, because its family has none, or no symbol for it."""
    why = _why_left_out(run, name)
    if not why:
        return None
    title = named(run.plan.architecture).title
    return Explained(name, NameKind.SYMBOL, Standing.OUT, f"{name} is out, for all kernels of {title}: {why}")


def _count(evidence: Evidence) -> str:
    """Return how often a piece of evidence was seen; for code, how many instructions were executed."""
    if evidence.kind is EvidenceKind.CODE:
        return f", {plural(evidence.count, 'instruction')}"
    return f", {evidence.count} times" if evidence.count > 1 else ""


def _costs(run: FitRun, name: str) -> tuple[tuple[str, str], ...]:
    found = []
    for side in (run.baseline, run.tailored):
        cost = dict(side.symbol_costs).get(name)
        if cost is not None:
            found.append((f"{side.name}, kernel entry to ready", f"{figures.grouped(cost)} instructions"))
    return tuple(found)


def _held(run: FitRun, name: str, most: int = 12) -> tuple[str, ...]:
    """Return symbols that are kept, or kept too, because of this one."""
    reference = f"symbol:{name}"
    return tuple(c.id for c in run.plan.symbols if any(r.reference == reference for r in c.reasons))[:most]


def _ways_in(run: FitRun, name: str, catalogue: Catalogue, rules: Rules) -> tuple[str, ...]:
    """Return the ways to bring a symbol in. Requests that ask for it come first, those that this container already
    calls before others; entries of the catalogue whose conditions do not hold follow."""
    ways = []
    held = rules.for_kernel(run.plan.kernel_version)
    made = {call.name for call in run.calls}
    for rule in sorted((r for r in held.calls if name in r.symbols), key=lambda r: not made.intersection(r.calls)):
        with_what = f" with {' or '.join(rule.words)}" if rule.words else ""
        calls = [call for call in rule.calls if call in made] or rule.calls
        already = ", which it makes already," if made.intersection(calls) else ""
        ways.append(f"the container calls {', '.join(calls)}{already}{with_what}, and gets it ({rule.reason})")
    for path in held.paths:
        if name in path.symbols:
            ways.append(f"the container uses {', '.join(path.paths)} ({path.reason})")
    for entry in catalogue.entries:
        if any(symbol == name and value != "n" for symbol, value in entry.symbols):
            ways.append(f"{entry.reference}{_conditions(entry)}: {entry.reason}")
    for margin in Margin:
        for entry in of_margin(margin).entries:
            if any(symbol == name for symbol, _ in entry.symbols):
                ways.append(f"--margin {margin}: {entry.reason} [{entry.reference}]")
    for lack in run.lacks:
        if name in lack.symbols:
            near = "--margin reachable" if lack.nearness is not Nearness.IN_IMAGE else "no margin"
            ways.append(
                f"{near}, as {', '.join(lack.files[:1])} could ask for {', '.join(lack.keys)} ({lack.nearness})"
            )
    if not ways:
        ways.append("an exercise in which the container asks for it: by a call, a file, a device or a module")
    ways.append(f"your word: vmtailor fit … --keep {name}")
    return tuple(ways)


def _conditions(entry: CatalogueEntry) -> str:
    when = entry.when
    words = [
        *(f"machine {name}" for name in when.machine),
        *(f"root {name}" for name in when.root),
        *([f"kernel {when.kernel}"] if when.kernel else []),
        *([f"cpus {when.cpus}"] if when.cpus else []),
        *(
            f"{'with' if value else 'without'} {name}"
            for name, value in (
                ("network", when.network),
                ("terminal", when.terminal),
                ("writable root", when.writable),
            )
            if value is not None
        ),
    ]
    return f" (when: {', '.join(words)})" if words else ""


# ---- everything else


def _word(run: FitRun, what: str) -> Explained | None:
    found = next((w for w in run.plan.words if what in (w.id, w.setting.name)), None)
    if found is None:
        return None
    return Explained(
        what=found.id,
        kind=NameKind.WORD,
        standing=Standing.IN,
        summary=f"{found.id} is on the kernel command line",
        reasons=found.reasons,
    )


def _initcall(run: FitRun, what: str) -> Explained | None:
    before, after = dict(run.baseline.initcalls).get(what), dict(run.tailored.initcalls).get(what)
    if before is None and after is None:
        return None
    facts = tuple(
        (side, f"{figures.grouped(cost)} instructions, with what it called")
        for side, cost in (("baseline", before), ("tailored", after))
        if cost is not None
    )
    related = _mentions(run, what)
    if after is None:
        summary = f"the initcall {what} is out: it ran on the baseline, and its code is not in the tailored kernel"
        return Explained(what, NameKind.INITCALL, Standing.OUT, summary, facts=facts, related=related)
    return Explained(
        what, NameKind.INITCALL, Standing.IN, f"the initcall {what} is in, and runs", facts=facts, related=related
    )


def _function(run: FitRun, what: str) -> Explained | None:
    facts = tuple(
        (f"{side.name}, {row.phase}", f"{figures.grouped(row.instructions)} instructions")
        for side in (run.baseline, run.tailored)
        for row in side.functions
        if row.function == what
    )
    if not facts:
        return None
    there = any(row.function == what for row in run.tailored.functions)
    where = (
        "is in, and ran" if there else "ran on the baseline, and is not among what the tailored kernel spends most on"
    )
    standing = Standing.IN if there else Standing.OUT
    return Explained(
        what, NameKind.FUNCTION, standing, f"the function {what} {where}", facts=facts, related=_mentions(run, what)
    )


def _call(run: FitRun, what: str) -> Explained | None:
    calls = [call for call in run.calls if call.name == what]
    reasons = tuple(
        (symbol.id, reason)
        for symbol in run.plan.symbols
        for reason in symbol.reasons
        if reason.cause is Cause.DEMANDED and _has_word(reason.text, what)
    )
    if not calls and not reasons:
        return None
    facts = [
        (call.task, f"{call.count} calls" + "".join(f", {n} {error}" for error, n in call.errors)) for call in calls
    ]
    if reasons:
        names = ", ".join(dict.fromkeys(name for name, _ in reasons))
        summary = f"the container calls {what}, which keeps {names}"
    else:
        summary = f"the container calls {what}; no symbol is kept for this call alone"
    related = tuple(dict.fromkeys(name for name, _ in reasons))
    return Explained(
        what=what,
        kind=NameKind.CALL,
        standing=Standing.IN,
        summary=summary,
        reasons=tuple(r for _, r in reasons),
        facts=tuple(facts),
        related=related,
    )


def _file(run: FitRun, what: str) -> Explained | None:
    if what in run.untouched.never_opened:
        summary = f"{what} is in the root file system; the exercise never opened it"
        return Explained(what, NameKind.FILE, Standing.IN, summary)
    reasons = tuple(
        (symbol.id, reason) for symbol in run.plan.symbols for reason in symbol.reasons if _has_word(reason.text, what)
    )
    if reasons:
        names = ", ".join(dict.fromkeys(name for name, _ in reasons))
        return Explained(
            what=what,
            kind=NameKind.FILE,
            standing=Standing.IN,
            summary=f"{what} keeps {names}",
            reasons=tuple(r for _, r in reasons),
        )
    out = [
        (row.id, e)
        for row in run.plan.gone
        for e in row.evidence
        if what in (e.key, e.detail.rpartition(":")[0], e.detail)
    ]
    if out:
        names = ", ".join(dict.fromkeys(name for name, _ in out))
        facts = tuple((name, f"{e.kind} {e.key} ({e.where})") for name, e in out)
        return Explained(what, NameKind.FILE, Standing.OUT, f"{what} ran, and was left out with {names}", facts=facts)
    costs = tuple(
        (side.name, f"{figures.grouped(cost)} instructions below {folder}, kernel entry to ready")
        for side in (run.baseline, run.tailored)
        for folder, cost in side.subsystems
        if what.rstrip("/") == folder or what.startswith(f"{folder}/")
    )
    if costs:
        there = any(name == run.tailored.name for name, _ in costs)
        where = (
            "code of this folder runs in the tailored kernel"
            if there
            else "no code of this folder runs in the tailored kernel"
        )
        return Explained(what, NameKind.FILE, Standing.IN if there else Standing.OUT, where, facts=costs)
    return None


def _mentions(run: FitRun, what: str) -> tuple[str, ...]:
    """Return symbols whose evidence or reasons name a function."""
    kept = (c.id for c in run.plan.symbols if any(_has_word(r.text, what) for r in c.reasons))
    gone = (row.id for row in run.plan.gone if any(e.key == what or _has_word(e.detail, what) for e in row.evidence))
    return tuple(dict.fromkeys((*kept, *gone)))


def _has_word(text: str, word: str) -> bool:
    return re.search(rf"(?<![\w/.]){re.escape(word)}(?![\w/])", text) is not None
