# SPDX-License-Identifier: Apache-2.0
"""Find the machine that a log is of: hypervisor, board, processor, and what its boot does, by data/boot_facts.toml.

No sign decides alone against stronger ones: each speaks for or against values with a weight, and the sums are compared.
A value that is not ahead of every other is not given."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from vmtailor.analysis.bootlog.boot_record import Observed, architecture
from vmtailor.base.bounded_patterns import bounded
from vmtailor.base.errors import VmtailorError
from vmtailor.base.text import is_number
from vmtailor.model.architecture import every
from vmtailor.model.boots.timeline import MachineInfo, MachineKind, WarningCode

#: Messages looked at: what a machine is, it says early.
MOST_MESSAGES = 6000
MOST_CPUS = 100_000
#: The sum from which a value counts, and the weight of a sign that gives none.
LEAST = 2
#: Weight of a message that only kernels of one family print, and of a compiler's name, which tells what it is for.
_PRINTED, _COMPILED = 4, 4
#: A hypervisor that has no name: it says nothing against one that has.
_ANY = "other"
#: Lines that are kept for one value.
_MOST_SEEN = 3
#: How a line begins that says what was decided before.
_DECIDED = "identity: "
#: systemd's and the kernel's words for a hypervisor that is none.
NOT_ONE = ("none", "bare hardware")
#: Identities in the order in which they are decided: later ones may look at earlier ones.
_IDENTITIES = ("hypervisor", "cloud", "kind", "arch")
_SINGLE = (*_IDENTITIES, "model", "processor", "cpus")


@dataclass(frozen=True)
class Fact:
    """One sign. `subject` is a field of MachineInfo, or `arch`. `value` is empty for a sign that only speaks against
    others."""

    subject: str
    value: str
    pattern: re.Pattern[str]
    weight: int = LEAST
    against: Mapping[str, int] = field(default_factory=dict)


@dataclass
class _Sums:
    """The values of one subject: sums of weights, and lines that they rest on."""

    weights: dict[str, int] = field(default_factory=dict)
    lines: dict[str, list[str]] = field(default_factory=dict)

    def add(self, value: str, weight: int, line: str) -> None:
        self.weights[value] = self.weights.get(value, 0) + weight
        kept = self.lines.setdefault(value, [])
        if weight > 0 and len(kept) < _MOST_SEEN and line not in kept and not line.startswith(_DECIDED):
            kept.append(line)

    def lose(self, value: str, weight: int) -> None:
        self.weights[value] = self.weights.get(value, 0) - weight

    def enough(self) -> list[str]:
        """Return the values that count, the greatest sum first."""
        known = [value for value, weight in self.weights.items() if weight >= LEAST]
        return sorted(known, key=lambda value: -self.weights[value])

    def ahead(self) -> str | None:
        """Return the value whose sum is above every other; None where there is none."""
        first, second, *_ = (*self.enough(), None, None)
        tied = first is not None and second is not None and self.weights[first] == self.weights[second]
        return None if tied else first


@dataclass(frozen=True)
class Identified:
    """A machine, and its processor's family; `unclear` says which signs contradict each other with equal weight."""

    machine: MachineInfo
    arch: str | None
    unclear: tuple[str, ...] = ()


@functools.cache
def _table() -> dict[str, Any]:
    return tomllib.loads((resources.files("vmtailor") / "data" / "boot_facts.toml").read_text("utf-8"))


@functools.cache
def known_facts() -> tuple[Fact, ...]:
    """Return all facts, in the file's order, then those of processor families. Raises VmtailorError when the file,
    which is ours, is malformed."""
    try:
        facts = tuple(_fact(row) for row in _table()["fact"])
        if wrong := {f.subject for f in facts} - {*_SINGLE, "has"}:
            raise ValueError(f"unknown {', '.join(wrong)}")
    except (KeyError, ValueError, TypeError, AttributeError, re.error) as error:
        raise VmtailorError(f"the table of boot facts is wrong: {error}") from error
    return (*facts, *_family_facts())


def _fact(row: dict[str, Any]) -> Fact:
    value, weight, against = row.get("value", ""), row.get("weight", LEAST), row.get("against", {})
    if not isinstance(weight, int) or not isinstance(against, dict) or not (value or against):
        raise ValueError(f"a sign of {row['is']} says nothing")
    pattern = re.compile(bounded(str(row["pattern"])), re.M)
    return Fact(subject=str(row["is"]), value=str(value), pattern=pattern, weight=weight, against=against)


def _family_facts() -> Iterator[Fact]:
    """Yield the signs that data/architectures gives of each family, and those of compilers' names."""
    for row in every():
        words = "|".join(map(re.escape, (*row.log.signs, *(("Command line: ",) if row.log.bare_command_line else ()))))
        if words:
            yield Fact("arch", row.name, re.compile(f"^({words})", re.M), _PRINTED)
    compilers = "|".join((*(word for row in every() for word in row.log.compilers), *_COMPILERS))
    pattern = rf"^Linux version [^\n]{{0,300}}?\b({compilers})-[\w-]{{0,30}}linux"
    yield Fact("arch", r"\1", re.compile(pattern, re.M), _COMPILED)


#: First words of compilers' names, beside those of families that have a file.
_COMPILERS = (
    "aarch64", "arm", "riscv64", "riscv32", "powerpc64le", "powerpc64", "powerpc", "s390x", r"mips\w{0,10}",
    "loongarch64", "sparc64", "alpha", r"hppa\d{0,2}", "sh4", "m68k", "microblaze", "xtensa", "ia64",
)  # fmt: skip


def values_of(subject: str) -> frozenset[str]:
    """Return the values that facts can give a field: the words in which changes say what they need."""
    return frozenset(fact.value for fact in known_facts() if fact.subject == subject and fact.value)


def identify(observed: Observed) -> Identified:
    """Return the machine and its processor's family, from everything that was read of its boot."""
    text = "\n".join(_lines(observed))
    sums = {subject: _sums(subject, text) for subject in _SINGLE if subject not in _IDENTITIES}
    for subject in _IDENTITIES:
        sums[subject] = _sums(subject, text)
        if value := sums[subject].ahead():
            text += f"\n{_DECIDED}{subject} {value}"
    one = {subject: found.ahead() for subject, found in sums.items()}
    has = _sums("has", text)
    words = tuple(dict.fromkeys(f.value for f in known_facts() if f.subject == "has" and f.value in has.enough()))
    if one["hypervisor"]:
        sums["kind"], one["kind"] = _Sums(), MachineKind.VIRTUAL.value
    digits = one["cpus"] or ""
    cpus = int(digits) if is_number(digits) and len(digits) < 9 and 0 < int(digits) < MOST_CPUS else None
    machine = MachineInfo(
        kind=one["kind"],
        hypervisor=one["hypervisor"],
        model=one["model"],
        processor=one["processor"],
        cpus=cpus,
        has=words,
        seen=(*_seen(sums), *(f"{word}: {line}" for word in words for line in has.lines[word][:1])),
        cloud=one["cloud"],
    )
    return Identified(machine, one["arch"], tuple(_unclear(sums)))


def _sums(subject: str, text: str) -> _Sums:
    found = _Sums()
    for fact in known_facts():
        if fact.subject != subject:
            continue
        match = fact.pattern.search(text)
        if match is None:
            continue
        if fact.value:
            value = match.expand(fact.value).strip()
            value = {"arch": architecture, "cloud": str.lower}.get(subject, str)(value)
            found.add(value, fact.weight, _line_at(text, match.start()))
        for other, weight in fact.against.items():
            found.lose(other, weight)
    return found


def _seen(sums: Mapping[str, _Sums]) -> Iterator[str]:
    """Yield the lines that each value rests on, and for identities one line of each value that lost."""
    for subject in _SINGLE:
        found = sums[subject]
        chosen, most = found.ahead(), _MOST_SEEN if subject in _IDENTITIES else 1
        if chosen is not None:
            yield from (f"{subject}: {line}" for line in found.lines[chosen][:most])
        if subject in _IDENTITIES:
            for value, lines in found.lines.items():
                if lines and value not in (chosen, _ANY):
                    yield f"{subject}, not {value}: {lines[0]}"


def _unclear(sums: Mapping[str, _Sums]) -> Iterator[str]:
    for subject in _IDENTITIES:
        found = sums[subject]
        enough = found.enough()
        if len(enough) > 1 and found.ahead() is None:
            first, second = enough[:2]
            yield (
                f"{_SPOKEN[subject]} is unknown: '{found.lines[first][0]}' says {first}, "
                f"'{found.lines[second][0]}' says {second}"
            )


_SPOKEN = {
    "hypervisor": "the hypervisor",
    "cloud": "the cloud",
    "kind": "the kind of machine",
    "arch": "the processor's family",
}


def warn_of(observed: Observed, found: Identified) -> None:
    """Add a warning for each identity whose signs contradict each other with equal weight."""
    for text in found.unclear:
        observed.warn(WarningCode.IDENTITY_UNCLEAR, text)


def _lines(observed: Observed) -> Iterable[str]:
    if observed.command_line:
        yield f"command line: {observed.command_line}"
    for unit in observed.units[:MOST_MESSAGES]:
        yield f"unit: {unit.name}"
    for _, message in observed.messages[:MOST_MESSAGES]:
        yield message
    if observed.hypervisor and observed.hypervisor not in NOT_ONE:
        yield f"named: {observed.hypervisor.lower()}"
    if observed.version:
        yield f"version: {observed.version}"
    if observed.arch:
        yield f"architecture: {observed.arch}"
    if observed.config:
        options = (name for name in _table()["family_options"] if observed.config.get(name) == "y")
        yield " ".join(("configured:", *options))


def _line_at(text: str, at: int) -> str:
    begin = text.rfind("\n", 0, at) + 1
    end = text.find("\n", at)
    return text[begin : end if end >= 0 else len(text)].strip()[:120]
