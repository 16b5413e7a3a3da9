# SPDX-License-Identifier: Apache-2.0
"""Hold requests against a kernel: which symbol answers, whether it is set, what is in the way, what helps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from vmtailor.analysis.explain.lookup import KnownSource, Provider, Question, find
from vmtailor.analysis.ksource.closure import close
from vmtailor.analysis.ksource.expr import And, Constant, Equals, Expr, Not, Or, asked_for, symbols, truth
from vmtailor.analysis.ksource.expr import Symbol as SymbolExpr
from vmtailor.analysis.ksource.expr_text import parse
from vmtailor.analysis.ksource.kconfig import Kconfig
from vmtailor.model.change import Figure
from vmtailor.model.plan import Plan

#: Findings whose dependencies are worked out: each takes up to a second.
_MOST_CLOSED = 3


class Has(StrEnum):
    """`always`: every kernel of this tree. `module`: a module, to be loaded. `never`: this tree cannot."""

    ALWAYS = "always"
    BUILT_IN = "built in"
    MODULE = "module"
    OUT = "out"


@dataclass(frozen=True)
class AskedKernel:
    """The kernel that is asked: symbols with value y or m. `fragment`: what configures it; `plan`: of a bundle.

    `dropped`: symbols that its configuration sets, and kconfig does not, each with the reason. `note`: says so where
    the configuration is only a part of one. Without a name no kernel is asked, only the source."""

    name: str
    values: Mapping[str, str]
    fragment: tuple[tuple[str, str], ...] = ()
    plan: Plan | None = None
    dropped: Mapping[str, str] = field(default_factory=dict)
    note: str = ""

    @classmethod
    def of_plan(cls, plan: Plan) -> AskedKernel:
        values = {c.id: c.setting.value or "" for c in plan.symbols if c.setting.value in ("y", "m")}
        return cls("the tailored kernel", values, plan.fragment, plan)

    @classmethod
    def of_config(
        cls, name: str, symbols: Mapping[str, str], kconfig: Kconfig | None = None, *, same_source: bool = True
    ) -> AskedKernel:
        """Return the kernel of a .config. A symbol without a prompt, or an unset one, counts as nobody's choice.

        `kconfig`: of the source. With it, a fragment is resolved as `make olddefconfig` does. A whole configuration
        stays as it is, without what kconfig would drop; with another source than its own (`same_source`), wholly."""
        dropped: dict[str, str] = {}
        note = ""
        if kconfig is not None and is_fragment(symbols, kconfig):
            resolved = kconfig.resolve_over_defaults(symbols.items())
            dropped = {lost.name: lost.expression for lost in resolved.lost if lost.got in ("", "n")}
            note = f"{name} is a fragment: it was looked at as `make olddefconfig` completes it"
            symbols = resolved.values
        elif kconfig is not None and same_source:
            dropped = {one: f"depends on {text}" for one, text in kconfig.unmet(symbols).items()}
        values = {n: v for n, v in symbols.items() if v in ("y", "m") and n not in dropped}
        chosen = tuple((n, v) for n, v in symbols.items() if v != "n" and n not in dropped)
        return cls(name, values, chosen, dropped=dropped, note=note)

    @classmethod
    def of_source(cls) -> AskedKernel:
        """Return no kernel at all: whoever asks wants to know what a kernel needs."""
        return cls("", {})


#: Symbols without a prompt that a file has to have to be a whole configuration: fragments have few or none.
_LEAST_DERIVED = 20


def is_fragment(symbols: Mapping[str, str], kconfig: Kconfig) -> bool:
    """Return whether a configuration is only a part of one: without the symbols that kconfig itself adds."""
    derived = sum(value in ("y", "m") and kconfig.known(n) and not kconfig.prompted(n) for n, value in symbols.items())
    return derived < _LEAST_DERIVED


@dataclass(frozen=True)
class Finding:
    """One answer. `symbol`: the one to look at, empty where none decides. `missing`: all that the condition wants and
    the kernel has not, `symbol` first. `in_the_way`: dependencies that are not met, in words. `also`: what else has to
    be set. `ran`: instructions of its code on the baseline, None where nothing is on record. `selected_by`: for a
    symbol without a prompt, those with one that select it."""

    ask: Question
    symbol: str
    has: Has
    condition: str
    place: str
    missing: tuple[str, ...] = ()
    why: str = ""
    in_the_way: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    possible: bool = True
    prompt: str = ""
    ran: int | None = None
    selected_by: tuple[str, ...] = ()
    settings: tuple[tuple[str, str], ...] = field(default=())


def needed(expression: Expr, values: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return the symbols to set beside `values` to make it true, the shortest way; None where no setting makes it
    true."""
    if isinstance(expression, SymbolExpr):
        return () if expression.name in values else (expression.name,)
    if isinstance(expression, Equals):
        return () if values.get(expression.name) == expression.value else (expression.name,)
    if isinstance(expression, Constant):
        return None if expression.value is False else ()
    if isinstance(expression, Not):
        return None if truth(expression, values) is False else ()
    ways = [needed(operand, values) for operand in expression.operands]
    if isinstance(expression, Or):
        possible = [way for way in ways if way is not None]
        return min(possible, key=lambda way: (len(way), sum(map(len, way)))) if possible else None
    assert isinstance(expression, And)
    return None if None in ways else tuple(dict.fromkeys(name for way in ways for name in way or ()))


def main_symbol(names: Sequence[str], kconfig: Kconfig | None) -> str:
    """Return the most special of some symbols: none of the others depends on it. If there are several, one with a
    prompt is taken, and of those the last: the source's own order goes from folders to lines."""
    if not names:
        return ""
    if kconfig is None:
        return names[-1]
    here = [n for n in names if kconfig.known(n)] or list(names)
    below = {name: _depends(name, kconfig) for name in here}
    special = [n for n in here if not any(n in below[other] for other in here if other != n)] or here
    return ([n for n in special if kconfig.prompted(n)] or special)[-1]


def _depends(name: str, kconfig: Kconfig) -> set[str]:
    """Return all symbols that one depends on, directly or not."""
    found: set[str] = set()
    pending = [name]
    while pending and len(found) < 2000:
        one = pending.pop()
        if kconfig.known(one):
            more = set(kconfig.depends_on(one)) - found
            if not kconfig.prompted(one):  # it needs what those need that select it
                more |= {n for by in kconfig.selectors(one) for n in kconfig.depends_on(by)} - found
            found |= more
            pending += more
    return found - {name}


def findings(
    asks: Iterable[Question], known: KnownSource, target: AskedKernel, most: int = 8, closed: int = _MOST_CLOSED
) -> tuple[Finding, ...]:
    """Return the answers to all requests, those that the kernel lacks first; one for each symbol. `closed`: for how
    many of them dependencies are worked out."""
    found: dict[tuple[str, Has], Finding] = {}
    for ask in asks:
        for candidate in find(ask, known):
            one = _stand(candidate, known, target)
            if one is not None:
                found.setdefault((one.symbol, one.has) if one.symbol else (candidate.place, one.has), one)
    order = [Has.OUT, Has.MODULE, Has.BUILT_IN, Has.ALWAYS]
    ranked = sorted(found.values(), key=lambda f: order.index(f.has))[:most]
    return tuple(
        _closed(one, known.kconfig, target) if n < closed and known.kconfig is not None else one
        for n, one in enumerate(ranked)
    )


def _stand(candidate: Provider, known: KnownSource, target: AskedKernel) -> Finding | None:
    missing = needed(candidate.condition, target.values)
    if missing is None:
        return None
    text = str(candidate.condition)
    if missing:
        symbol = main_symbol(missing, known.kconfig)
        rest = tuple(name for name in missing if name != symbol)
        row = next((r for r in target.plan.gone if r.id == symbol), None) if target.plan is not None else None
        ran = row.saves(Figure.TRACE_INSTRUCTIONS) if row is not None else None
        return Finding(
            ask=candidate.ask,
            symbol=symbol,
            has=Has.OUT,
            condition=text,
            place=candidate.place,
            missing=(symbol, *rest),
            why=_why_out(symbol, target),
            ran=ran,
            selected_by=_selectors(symbol, known.kconfig),
            prompt=known.kconfig.prompt(symbol) if known.kconfig is not None else "",
        )
    wanted = asked_for(candidate.condition, target.values)
    symbol = main_symbol(wanted, known.kconfig)
    if not symbol:
        return Finding(ask=candidate.ask, symbol="", has=Has.ALWAYS, condition=text, place=candidate.place)
    modules = [name for name in wanted if target.values.get(name) == "m"]
    has = Has.MODULE if modules else Has.BUILT_IN
    return Finding(
        ask=candidate.ask, symbol=modules[-1] if modules else symbol, has=has, condition=text, place=candidate.place
    )


def _selectors(symbol: str, kconfig: Kconfig | None) -> tuple[str, ...]:
    if kconfig is None or not kconfig.known(symbol) or kconfig.prompted(symbol):
        return ()
    return tuple(name for name in kconfig.selectors(symbol) if kconfig.prompted(name))


def _why_out(symbol: str, target: AskedKernel) -> str:
    if symbol in target.dropped:
        return f"{target.name} sets it, and kconfig drops it: {target.dropped[symbol]}"
    if not target.name:
        return ""
    if target.plan is None:
        return f"{target.name} does not set it"
    return _why_not_planned(symbol, target.plan)


def _why_not_planned(symbol: str, plan: Plan) -> str:
    change = plan.symbol(symbol)
    if change is not None and change.reasons:
        return f"switched off: {change.reasons[0].text} ({change.reasons[0].reference})"
    row = next((r for r in plan.gone if r.id == symbol), None)
    if row is None:
        return "not in the baseline either, so nothing there can have used it"
    if row.evidence:
        return "its code ran on the baseline, but nothing asked for it by name"
    return "in the baseline, and nothing in the exercise used it"


def _closed(finding: Finding, kconfig: Kconfig | None, target: AskedKernel) -> Finding:
    """Return the finding with what its dependencies ask for."""
    if kconfig is None or finding.has is not Has.OUT or not kconfig.known(finding.symbol):
        return finding
    base = [(n, v) for n, v in target.fragment if kconfig.prompted(n) and n not in finding.missing]
    if target.plan is None:  # what its numbers and strings are does not matter, and `n` was never asked for
        base = [(n, v) for n, v in base if v in ("y", "m")]
    # The symbol alone, if what it brings along is enough; else all that the condition names.
    for names in ((finding.symbol,), finding.missing):
        wanted = [(name, "y") for name in names]
        before = kconfig.lost([*base, *wanted])
        closure = close(kconfig, [*base, *wanted], baseline=target.plan.baseline if target.plan is not None else {})
        kconfig.apply(closure.fragment)
        condition = parse(finding.condition)
        after = {name: value for name in symbols(condition) if (value := kconfig.value(name)) in ("y", "m")}
        if truth(condition, after) is not False:
            break
    way = tuple(str(lost) for lost in before if lost.name in finding.missing)
    lost = {item.name for item in closure.lost}
    added = [(a.name, a.value) for a in closure.added if kconfig.prompted(a.name)]
    settings = [(n, v) for n, v in wanted if kconfig.prompted(n)]
    more = dict.fromkeys(name for name, _ in (*settings, *added) if name != finding.symbol)
    return replace(
        finding,
        in_the_way=way,
        also=tuple(more),
        possible=finding.symbol not in lost,
        settings=tuple(dict.fromkeys((*settings, *added))),
    )


class Presence(StrEnum):
    """`needed`: no kernel was asked. `unsure`: the message does not say what was asked for; the answers are guesses.
    `printed`: no failure, but lines that a kernel prints."""

    MISSING = "missing"
    NEEDED = "needed"
    UNSURE = "unsure"
    MODULE = "module"
    PRESENT = "present"
    NOT_KERNEL = "not the kernel"
    PRINTED = "printed"
    UNKNOWN = "unknown"


def verdict(found: Sequence[Finding], not_kernel: str, *, sure: bool = True, asked: bool = True) -> Presence:
    """Return what all answers amount to. `sure`: the message says what was asked for; `asked`: of a kernel."""
    if not_kernel:
        return Presence.NOT_KERNEL
    if not found:
        return Presence.UNKNOWN
    if not sure:
        return Presence.UNSURE
    if not asked and found[0].has is Has.OUT:
        return Presence.NEEDED
    return {Has.OUT: Presence.MISSING, Has.MODULE: Presence.MODULE}.get(found[0].has, Presence.PRESENT)


def by_error(name: str, known: KnownSource) -> tuple[Question, ...]:
    """Return the requests that an error stands for when nothing else is known. They are all calls, families, protocols
    or file systems of a tree, to be held against a configuration."""
    if name == "ENOSYS":
        return tuple(Question("call", call) for call in known.facts.table)
    kinds = {
        "EAFNOSUPPORT": ("family",), "EPROTONOSUPPORT": ("netlink", "protocol"), "ESOCKTNOSUPPORT": ("protocol",),
        "ENODEV": ("filesystem", "device"), "ENOPROTOOPT": ("ulp",), "EOPNOTSUPP": ("link", "rules", "qdisc"),
        "ENOENT": ("device",), "ENXIO": ("device",),
    }.get(name, ())  # fmt: skip
    return tuple(
        Question(kind, entry)
        for kind in kinds
        for entry in (*known.facts.names.get(kind, {}), *known.asked.names.get(kind, {}))
    )


def lacking(
    asks: Iterable[Question], known: KnownSource, target: AskedKernel, most: int = 200
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return symbols that a kernel lacks, each with what it would answer, those with most first."""
    found: dict[str, list[str]] = {}
    for ask in asks:
        for candidate in find(ask, known)[:1]:
            missing = needed(candidate.condition, target.values)
            if missing:
                found.setdefault(main_symbol(missing, known.kconfig), []).append(str(ask))
    ranked = sorted(found.items(), key=lambda item: -len(item[1]))[:most]
    return tuple((symbol, tuple(dict.fromkeys(names))) for symbol, names in ranked)
