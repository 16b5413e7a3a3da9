# SPDX-License-Identifier: Apache-2.0
"""What an image could ask for becomes symbols by the same facts and rules as what was demanded."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

import pytest
from tests.fakes.kernel_tree import read_facts

from vmtailor.analysis.demands import demand_rules
from vmtailor.analysis.ksource.facts import Facts
from vmtailor.analysis.reach.reach_symbols import of_reach
from vmtailor.model.evidence import EvidenceKind, Strength
from vmtailor.model.reach import Ask, Nearness, Reach, ReachedFile

FACTS = read_facts()
RULES = demand_rules.load()
EVERYTHING = {s for text in FACTS.files.values() for s in text.replace("(", " ").replace(")", " ").split()} | {
    "MULTIUSER", "PROC_EXTRA", "MEMBARRIER", "POSIX_TIMERS", "FILE_LOCKING", "BINFMT_SCRIPT", "BINFMT_ELF",
    "IA32_EMULATION", "TCP_CONG_ADVANCED", "TCP_CONG_BBR", "IP_MULTICAST", "TLS", "PROC_FS", "TMPFS_XATTR",
}  # fmt: skip
SYSCALL, FLAG, SOCKET, OPTION = (
    EvidenceKind.SYSCALL, EvidenceKind.FLAG, EvidenceKind.SOCKET, EvidenceKind.SOCKET_OPTION,
)  # fmt: skip


def symbols_of(ask: Ask, facts: Facts, rules: demand_rules.Rules, baseline: Set[str]) -> tuple[str, ...]:
    """What one ask takes, of a file that asks for nothing else."""
    found = of_reach(Reach((ReachedFile("/usr/bin/one", Nearness.OPENED, (ask,)),)), facts, rules, baseline)
    return found[0].symbols if found else ()


@pytest.mark.parametrize(
    ("ask", "symbols"),
    [
        (Ask(SYSCALL, "futex", "futex"), {"FUTEX"}),
        (Ask(SYSCALL, "read", "read"), set()),
        (Ask(SYSCALL, "no_such_call", "no_such_call"), set()),
        (Ask(SYSCALL, "fcntl", "fcntl"), set()),
        (Ask(FLAG, "fcntl(F_SETLK)", "fcntl", "F_SETLK"), {"FILE_LOCKING"}),
        (Ask(FLAG, "fcntl(F_SETFL)", "fcntl", "F_SETFL"), set()),
        (Ask(EvidenceKind.CREDENTIAL, "setuid", "setuid"), {"MULTIUSER"}),
        (Ask(EvidenceKind.CREDENTIAL, "setuid"), {"MULTIUSER"}),
        (Ask(EvidenceKind.CREDENTIAL, "file capabilities"), {"MULTIUSER"}),
        (Ask(SYSCALL, "chown", "chown"), set()),
        (Ask(SOCKET, "AF_UNIX", "socket", "AF_UNIX"), {"NET", "UNIX"}),
        (Ask(SOCKET, "AF_LOCAL", "socket", "AF_LOCAL"), {"NET", "UNIX"}),
        (Ask(OPTION, "setsockopt(TCP_ULP)", "setsockopt", "TCP_ULP"), set()),
        (Ask(OPTION, "setsockopt(TCP_ULP)", "setsockopt", 'TCP_ULP, "tls"'), {"TLS"}),
        (Ask(OPTION, "setsockopt(IP_ADD_MEMBERSHIP)", "setsockopt", "IP_ADD_MEMBERSHIP"), {"IP_MULTICAST"}),
        (Ask(FLAG, "setxattr", "setxattr", '"trusted.x"'), {"TMPFS_XATTR"}),
        (Ask(EvidenceKind.BINARY_FORMAT, "#!"), {"BINFMT_SCRIPT"}),
        (Ask(EvidenceKind.BINARY_FORMAT, "ELF32"), {"IA32_EMULATION"}),
        (Ask(EvidenceKind.PSEUDO_FILE, "/proc/self/status"), {"PROC_FS"}),
        (Ask(EvidenceKind.PSEUDO_FILE, "/dev/nothing"), set()),
    ],
)
def test_asks_take_symbols(ask: Ask, symbols: set[str]) -> None:
    assert set(symbols_of(ask, FACTS, RULES, EVERYTHING)) == symbols


def test_calls_that_programs_do_without_take_nothing() -> None:
    """Placing memory in nodes would bring NUMA, and SMP with it, to a machine of one node."""

    def reached(call: str) -> tuple[str, ...]:
        return symbols_of(Ask(SYSCALL, call, call), facts, RULES, EVERYTHING)

    facts = replace(FACTS, table=FACTS.table | dict.fromkeys(("mbind", "get_mempolicy", "other"), "futex"))
    assert (reached("mbind"), reached("get_mempolicy"), reached("other")) == ((), (), ("FUTEX",))


def test_what_libraries_name_and_do_without_takes_nothing() -> None:
    """A look at a security module, or at the program that loads modules, is no reason for one; /proc/self/status is."""
    pseudo = EvidenceKind.PSEUDO_FILE
    named = ("/sys/kernel/security/apparmor/features", "/proc/sys/kernel/modprobe", "/dev/hwrng", "/proc/self/status")
    everything = EVERYTHING | {"SECURITY_APPARMOR", "SECURITYFS", "SYSFS", "MODULES", "HW_RANDOM"}
    found = [symbols_of(Ask(pseudo, path, by=f'names "{path}"'), FACTS, RULES, everything) for path in named]
    assert found == [(), (), (), ("PROC_FS",)]


def test_what_the_baseline_has_not_is_not_asked_for() -> None:
    assert symbols_of(Ask(SYSCALL, "futex", "futex"), FACTS, RULES, set()) == ()
    flag = Ask(FLAG, "fcntl(F_SETLK)", "fcntl", "F_SETLK")
    assert symbols_of(flag, FACTS, RULES, EVERYTHING - {"FILE_LOCKING"}) == ()
    assert symbols_of(Ask(EvidenceKind.BINARY_FORMAT, "#!"), FACTS, RULES, set()) == ()


def test_each_symbol_has_its_file_and_a_sentence() -> None:
    program = ReachedFile(
        "/usr/bin/tool",
        Nearness.OPENED,
        (
            Ask(SYSCALL, "futex", "futex", by="imports pthread_join"),
            Ask(SYSCALL, "read", "read", by="imports read"),
            Ask(FLAG, "fcntl(F_SETLK)", "fcntl", "F_SETLK", 'names "F_SETLK"'),
        ),
    )
    script = ReachedFile(
        "/usr/bin/s", Nearness.LED_TO, (Ask(EvidenceKind.BINARY_FORMAT, "#!", by="is a script"),), "/usr/bin/tool"
    )
    found = of_reach(Reach((program, script)), FACTS, RULES, EVERYTHING)
    assert [(r.symbols, r.text) for r in found] == [
        (("FUTEX",), "tool imports pthread_join, which leads to futex"),
        (("FILE_LOCKING",), 'tool names "F_SETLK": fcntl(F_SETLK)'),
        (("BINFMT_SCRIPT",), "s is a script"),
    ]
    assert found[0].evidence.strength is Strength.REACHABLE
    assert found[2].evidence.where == found[2].reference == "image:/usr/bin/s"
