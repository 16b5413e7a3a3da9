# SPDX-License-Identifier: Apache-2.0
"""Decide whom a remedy speaks to: what must be seen of a machine and of a sign, and what it is never said to."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vmtailor.base.bounded_patterns import bounded
from vmtailor.model.boots.timeline import MachineInfo, MachineKind

_MACHINES = {str(kind): kind for kind in MachineKind if kind is not MachineKind.VIRTUAL}


@dataclass(frozen=True)
class Condition:
    """Facts, all of which must hold. A wanted fact must be seen in the log; an unwanted one must not.

    `virtual`: a hypervisor is there (or none is). `hypervisors`: it is one of these. `kinds`: the machine is of one of
    these; `no_kinds`: of none of these. `has` and `lacks` are words of data/boot_facts.toml. `arch`: the processor's
    family is one of these, where it is known. `sign`: it holds for signs that this finds, written `KIND NAME` as
    `advice` does (`unit dbus.service`, `silence dhcp: IP-Config: Complete`)."""

    virtual: bool | None = None
    hypervisors: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    no_kinds: tuple[str, ...] = ()
    cpus_at_least: int | None = None
    cpus_at_most: int | None = None
    has: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    arch: tuple[str, ...] = ()
    sign: re.Pattern[str] | None = None

    def met(self, machine: MachineInfo, arch: str | None) -> bool:
        """Return whether this machine meets the conditions, whatever the sign is."""
        virtual = machine.hypervisor is not None
        return all(
            (
                self.virtual is None or self.virtual == virtual,
                not self.hypervisors or machine.hypervisor in self.hypervisors,
                not self.kinds or machine.kind in self.kinds,
                machine.kind not in self.no_kinds,
                self.cpus_at_least is None or (machine.cpus is not None and machine.cpus >= self.cpus_at_least),
                self.cpus_at_most is None or (machine.cpus is not None and machine.cpus <= self.cpus_at_most),
                set(self.has) <= set(machine.has),
                not set(self.lacks) & set(machine.has),
                not self.arch or arch is None or arch in self.arch,
            )
        )

    def of_sign(self, sign: str) -> bool:
        """Return whether it is for a sign."""
        return self.sign is None or self.sign.search(sign) is not None

    def words(self) -> str:
        """Return the conditions as words for a person."""
        parts = []
        if self.virtual is not None:
            parts.append("a virtual machine" if self.virtual else "no virtual machine")
        if self.hypervisors:
            parts.append(f"hypervisor {' or '.join(self.hypervisors)}")
        if self.kinds:
            parts.append(f"a {' or '.join(self.kinds)}")
        if self.no_kinds:
            parts.append(f"no {', no '.join(self.no_kinds)}")
        if self.cpus_at_least is not None:
            parts.append(f"at least {self.cpus_at_least} CPUs")
        if self.cpus_at_most is not None:
            parts.append(f"at most {self.cpus_at_most} CPU{'s' if self.cpus_at_most > 1 else ''}")
        parts += [f"seen: {', '.join(self.has)}"] if self.has else []
        parts += [f"not seen: {', '.join(self.lacks)}"] if self.lacks else []
        parts += [f"processors {', '.join(self.arch)}"] if self.arch else []
        parts += [f"the sign is `{self.sign.pattern}`"] if self.sign else []
        return "; ".join(parts)


@dataclass(frozen=True)
class Audience:
    """The machines and signs that a remedy speaks to: those of one `seen` at least (of all, where none is given), and
    of no `never`."""

    seen: tuple[Condition, ...] = ()
    never: tuple[Condition, ...] = ()

    def reaches(self, machine: MachineInfo, arch: str | None) -> bool:
        """Return whether anything can be said to this machine at all."""
        return any_met(self.seen, machine, arch) and not any(
            one.sign is None and one.met(machine, arch) for one in self.never
        )

    def hears(self, sign: str, machine: MachineInfo, arch: str | None) -> bool:
        """Return whether this sign counts on this machine."""
        return (not self.seen or any(one.met(machine, arch) and one.of_sign(sign) for one in self.seen)) and not any(
            one.met(machine, arch) and one.of_sign(sign) for one in self.never
        )


def condition_of(raw: dict[str, Any]) -> Condition:
    """Return the conditions of a table of data/changes. Its keys: `hypervisor` (true, false, a name or names), a kind
    of machine = true or false, `fips`, `cpus_at_least`, `cpus_at_most`, `has`, `lacks`, `arch`, `sign` (a pattern).
    Raises ValueError for another key or for none, TypeError for a value of another type."""
    raw = dict(raw)
    if not raw:
        raise ValueError("a condition says nothing")
    virtual: bool | None = None
    hypervisors: tuple[str, ...] = ()
    hypervisor = raw.pop("hypervisor", None)
    if isinstance(hypervisor, bool):
        virtual = hypervisor
    elif hypervisor is not None:
        hypervisors = _names(hypervisor)
    kinds = [str(_MACHINES[name]) for name in list(raw) if name in _MACHINES and _flag(raw[name])]
    no_kinds = [str(_MACHINES[name]) for name in list(raw) if name in _MACHINES and not _flag(raw[name])]
    for name in (*kinds, *no_kinds):
        del raw[name]
    has, lacks = list(_names(raw.pop("has", ()))), list(_names(raw.pop("lacks", ())))
    if MachineKind.PHONE in no_kinds and "android" not in lacks:
        lacks.append("android")  # boards run a phone's system as well
    if "fips" in raw:
        (has if _flag(raw.pop("fips")) else lacks).append("fips")
    least, most, arch = raw.pop("cpus_at_least", None), raw.pop("cpus_at_most", None), _names(raw.pop("arch", ()))
    sign = raw.pop("sign", None)
    if raw:
        raise ValueError(f"unknown condition {', '.join(raw)}")
    if not all(isinstance(value, (int, type(None))) for value in (least, most)):
        raise TypeError("a number of CPUs is not a number")
    if not isinstance(sign, (str, type(None))):
        raise TypeError("a sign is no pattern")
    return Condition(
        virtual=virtual,
        hypervisors=hypervisors,
        kinds=tuple(kinds),
        no_kinds=tuple(no_kinds),
        cpus_at_least=least,
        cpus_at_most=most,
        has=tuple(has),
        lacks=tuple(lacks),
        arch=arch,
        sign=re.compile(bounded(sign)) if sign is not None else None,
    )


def any_met(conditions: Sequence[Condition], machine: MachineInfo, arch: str | None) -> bool:
    """Return whether a machine meets one of several; an empty list is met."""
    return not conditions or any(one.met(machine, arch) for one in conditions)


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{value!r} is neither true nor false")
    return value


def _names(value: object) -> tuple[str, ...]:
    names = (value,) if isinstance(value, str) else value
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        raise TypeError(f"{value!r} is neither a word nor a list of words")
    return tuple(names)
