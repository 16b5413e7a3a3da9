# SPDX-License-Identifier: Apache-2.0
"""Find the symbols that a request asks for by its name: a system call, a socket family, a pseudo-file. The source's
facts tell; where they do not, the rules of data/demand do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from vmtailor.analysis.demands import harmless_absences
from vmtailor.analysis.demands.demand_rules import Rules
from vmtailor.analysis.ksource.expr import Enabled, Expr, asked_for, disjunction
from vmtailor.analysis.ksource.facts import Facts

_PROCESS = re.compile(r"/proc/(?:\d+|self|thread-self)(?:/task/\d+)?(?=/|\Z)")
#: A family's other names, without AF_.
_SAME_FAMILY = {"LOCAL": "UNIX", "FILE": "UNIX", "ROUTE": "NETLINK"}
#: Calls that change who a process is.
CREDENTIALS = frozenset({
    "setuid", "setgid", "setreuid", "setregid", "setresuid", "setresgid", "setfsuid", "setfsgid", "setgroups", "capset",
})  # fmt: skip


def family_name(word: str) -> str:
    """Return a family as the source has it: without AF_ or PF_, and by one name."""
    family = word.removeprefix("AF_").removeprefix("PF_")
    return _SAME_FAMILY.get(family, family)


@dataclass(frozen=True)
class AskedSymbols:
    """`rules`: those of the kernel's version. `baseline`: symbols that are set in the kernel traced, with y or m; no
    other is ever asked for where facts tell it."""

    facts: Facts
    rules: Rules
    baseline: Enabled

    def least(self, condition: Expr | None) -> tuple[str, ...]:
        return () if condition is None else asked_for(condition, self.baseline)

    def call(self, name: str) -> tuple[str, ...]:
        if harmless_absences.call_is_not_demanded(name):
            return ()
        known = self.facts.syscall(name)
        return self.least(known[0]) if known else ()

    def family(self, family: str) -> tuple[str, ...]:
        """`family`: without AF_."""
        return self.least(self.facts.condition("family", family))

    def protocol(self, family: str, name: str) -> tuple[str, ...]:
        """Return what a protocol of a family needs beyond the family. `name`: `STREAM/TCP`, or a netlink protocol's."""
        kind = "netlink" if family == "NETLINK" else "protocol"
        have = self.family(family)
        return tuple(s for s in self.least(self.facts.condition(kind, name)) if s not in have and s != "IPV6")

    def named(self, kind: str, name: str) -> tuple[str, ...]:
        return self.least(self.facts.condition(kind, name))

    def path(self, path: str) -> Iterator[tuple[str, tuple[str, ...], str]]:
        """Yield key, symbols and reason of each way in which a path below /proc, /sys or /dev is told."""
        general = _PROCESS.sub("/proc/self", path)
        if harmless_absences.is_not_demanded(path):
            return
        for rule in self.rules.paths:
            if rule.covers(path) or rule.covers(general):
                yield f"{rule.id} {general}", rule.symbols, rule.reason
        wanted = self.least(self._defined(general))
        if wanted:
            yield general, wanted, ""

    def _defined(self, path: str) -> Expr | None:
        """Return the condition of the code that makes a pseudo-file, where the source names it."""
        parts = path.strip("/").split("/")
        if parts[0] == "dev" and len(parts) > 1:
            return self.facts.condition("device", "/".join(parts[1:]))
        if parts[:2] == ["proc", "sys"]:
            exact = self.facts.condition("sysctl", "/".join(parts[2:]))
            any_folder = self.facts.condition("sysctl", f"*/{parts[-1]}") if len(parts) > 3 else None
            both = [c for c in (exact, any_folder) if c is not None]
            return disjunction(*both) if both else self.facts.file_condition("fs/proc/proc_sysctl.c")
        if parts[0] == "sys":
            places = ("/".join(parts[1:length]) for length in range(len(parts), 1, -1))
            return next((c for name in places if (c := self.facts.condition("sysfs", name)) is not None), None)
        if parts[0] != "proc":
            return None
        rest = parts[1:]
        if rest[:2] == ["self", "net"]:
            rest = rest[1:]
        for length in range(len(rest), 0, -1):
            found = self.facts.condition("proc", "/".join(rest[:length]))
            if found is not None:
                return found
        return None
