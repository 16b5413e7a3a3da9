# SPDX-License-Identifier: Apache-2.0
"""The units of a running system, as `systemctl show` tells of them: what each needs, what starts it, how long its start
took."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from vmtailor.base.text import is_number
from vmtailor.model.systems.units import PROPERTIES

#: A system is untrusted: most units, and most names of one, that are read.
_MOST, _MOST_NAMES = 5000, 2000


@dataclass(frozen=True)
class Unit:
    """`requires`: with Requisite= and BindsTo=. `listens`: addresses of a socket. `started`: it left the inactive
    state since the system started; `start_s`: seconds from there until it was active, where it got so."""

    name: str
    names: frozenset[str]
    file: str
    active: bool
    started: bool
    start_s: float | None
    requires: tuple[str, ...] = ()
    wants: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    triggered_by: tuple[str, ...] = ()
    listens: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        return self.name.rpartition(".")[2]


@dataclass(frozen=True)
class UnitGraph:
    """All units by name. `cut`: the text ended within a unit, or there were too many."""

    units: Mapping[str, Unit]
    cut: bool

    def find(self, name: str) -> Unit | None:
        """Return a unit by its name or one of its further ones."""
        return self.units.get(name) or next((one for one in self.units.values() if name in one.names), None)


def parse(text: str, most_bytes: int) -> UnitGraph:
    """Read the output of `systemctl show`: `Property=value` lines, an empty line between two units; what is none is
    passed over. `most_bytes`: so long a text was cut off, and its last unit is left out."""
    cut = len(text.encode("utf-8", "replace")) >= most_bytes
    blocks = text.split("\n\n")
    if cut:
        blocks = blocks[:-1]
    units = {one.name: one for block in blocks[:_MOST] for one in _unit(block)}
    return UnitGraph(units, cut or len(blocks) > _MOST)


def _unit(block: str) -> Iterator[Unit]:
    found: dict[str, list[str]] = {}
    for line in block.splitlines():
        key, equal, value = line.partition("=")
        if equal and key in PROPERTIES:
            found.setdefault(key, []).append(value)

    def names(*keys: str) -> tuple[str, ...]:
        every = [name for key in keys for value in found.get(key, []) for name in value.split()]
        return tuple(dict.fromkeys(every))[:_MOST_NAMES]

    name = "".join(found.get("Id", [])[:1]).strip()
    if not name or "." not in name or names("LoadState") != ("loaded",):
        return
    left, reached = (_number(names(key)) for key in PROPERTIES[-2:])
    yield Unit(
        name=name,
        names=frozenset(names("Names")),
        file="".join(found.get("FragmentPath", [])[:1]).strip(),
        active=names("ActiveState") == ("active",),
        started=left > 0,
        start_s=(reached - left) / 1e6 if reached >= left > 0 else None,
        requires=names("Requires", "Requisite", "BindsTo"),
        wants=names("Wants"),
        after=names("After"),
        triggered_by=names("TriggeredBy"),
        listens=tuple(value.rpartition(" (")[0] or value for value in found.get("Listen", [])[:_MOST_NAMES]),
    )


def _number(words: tuple[str, ...]) -> int:
    return int(words[0]) if len(words) == 1 and is_number(words[0]) and len(words[0]) < 20 else 0
