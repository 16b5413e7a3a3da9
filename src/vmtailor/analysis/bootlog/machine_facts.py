# SPDX-License-Identifier: Apache-2.0
"""Find the machine that a log is of: hypervisor, board, processor, and what its boot does, by data/boot_facts.toml."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources

from vmtailor.analysis.bootlog.boot_record import Observed
from vmtailor.base.bounded_patterns import bounded
from vmtailor.base.errors import VmtailorError
from vmtailor.base.text import is_number
from vmtailor.model.boots.timeline import MachineInfo, MachineKind

#: Messages looked at: what a machine is, it says early.
MOST_MESSAGES = 6000
MOST_CPUS = 100_000
#: systemd's and the kernel's words for a hypervisor that is none.
NOT_ONE = ("none", "bare hardware")
_SINGLE = frozenset({"hypervisor", "kind", "model", "processor", "cpus"})


@dataclass(frozen=True)
class Fact:
    """One sign. `subject` is a field of MachineInfo."""

    subject: str
    value: str
    pattern: re.Pattern[str]


@functools.cache
def known_facts() -> tuple[Fact, ...]:
    """Return all facts, in the file's order. Raises VmtailorError when the file, which is ours, is malformed."""
    try:
        text = (resources.files("vmtailor") / "data" / "boot_facts.toml").read_text("utf-8")
        facts = tuple(
            Fact(f["is"], f["value"], re.compile(bounded(f["pattern"]), re.M)) for f in tomllib.loads(text)["fact"]
        )
        if wrong := {f.subject for f in facts} - _SINGLE - {"has"}:
            raise ValueError(f"unknown {', '.join(wrong)}")
    except (KeyError, ValueError, re.error) as error:
        raise VmtailorError(f"the table of boot facts is wrong: {error}") from error
    return facts


def values_of(subject: str) -> frozenset[str]:
    """Return the values that facts can give a field: the words in which changes say what they need."""
    return frozenset(fact.value for fact in known_facts() if fact.subject == subject)


def machine_of(observed: Observed) -> MachineInfo:
    """Return the machine, from everything that was read of its boot."""
    text = "\n".join(_lines(observed))
    one: dict[str, str] = {}
    has: list[str] = []
    seen: list[str] = []
    for fact in known_facts():
        if fact.subject in one or fact.value in has:
            continue
        match = fact.pattern.search(text)
        if match is None:
            continue
        value = match.expand(fact.value).strip()
        if fact.subject == "has":
            has.append(value)
        else:
            one[fact.subject] = value
        seen.append(f"{value if fact.subject == 'has' else fact.subject}: {_line_at(text, match.start())}")
    kind = MachineKind.VIRTUAL.value if "hypervisor" in one else one.get("kind")
    digits = one.get("cpus", "")
    cpus = int(digits) if is_number(digits) and len(digits) < 9 and 0 < int(digits) < MOST_CPUS else None
    return MachineInfo(
        kind=kind,
        hypervisor=one.get("hypervisor"),
        model=one.get("model"),
        processor=one.get("processor"),
        cpus=cpus,
        has=tuple(has),
        seen=tuple(seen),
    )


def _lines(observed: Observed) -> Iterable[str]:
    if observed.command_line:
        yield f"command line: {observed.command_line}"
    if observed.hypervisor and observed.hypervisor not in NOT_ONE:
        yield f"systemd[1]: Detected virtualization {observed.hypervisor.lower()}"
    for unit in observed.units[:MOST_MESSAGES]:
        yield f"unit: {unit.name}"
    for _, message in observed.messages[:MOST_MESSAGES]:
        yield message


def _line_at(text: str, at: int) -> str:
    begin = text.rfind("\n", 0, at) + 1
    end = text.find("\n", at)
    return text[begin : end if end >= 0 else len(text)].strip()[:120]
