# SPDX-License-Identifier: Apache-2.0
"""Our reading of a kernel tree against the kernel's own make, and of debug information against the real tools.

The trees are those of every packaged series that a baseline can be of, or `$VMTAILOR_TEST_SOURCE`.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tests.packaged_series import each_series, packaged_source

from vmtailor.analysis.changes import change_catalogue, symbol_catalogue
from vmtailor.analysis.changes.symbol_catalogue import Situation
from vmtailor.analysis.cost.plugin_counts import ACTIVITIES
from vmtailor.analysis.demands import demand_rules
from vmtailor.analysis.ksource import facts as ksource_facts
from vmtailor.analysis.ksource.closure import close
from vmtailor.analysis.ksource.expr import FALSE
from vmtailor.analysis.ksource.facts import Facts
from vmtailor.analysis.ksource.kbuild import symbol_of_module
from vmtailor.analysis.ksource.kconfig import Kconfig
from vmtailor.base.files import dot_config
from vmtailor.base.notation import version_key
from vmtailor.base.process import run
from vmtailor.drivers.kernel import compiled_baseline, make
from vmtailor.drivers.kernel.kconfig_shell import KconfigShell, kernel_version
from vmtailor.drivers.kernel.symbolizer import parse_addr2line, symbolize
from vmtailor.model.architecture import presumed
from vmtailor.model.plan import RootFormat

KINDS = presumed().board_names

pytestmark = pytest.mark.contract

FRAGMENTS = {
    # (Without 64BIT, make sets a member of a choice with a hidden prompt, kconfiglib none: a case we never have.)
    "plain": [("64BIT", "y")],
    "expert": [("64BIT", "y"), ("EXPERT", "y")],
    "network": [("64BIT", "y"), ("EXPERT", "y"), ("NET", "y"), ("INET", "y"), ("IPV6", "y"), ("UNIX", "y")],
    "choices": [("64BIT", "y"), ("HZ_1000", "y"), ("PREEMPT", "y"), ("CC_OPTIMIZE_FOR_SIZE", "y"), ("KERNEL_LZ4", "y")],
    "modules": [
        ("64BIT", "y"),
        ("MODULES", "y"),
        ("BLOCK", "y"),
        ("EXT4_FS", "m"),
        ("NET", "y"),
        ("INET", "y"),
        ("IPV6", "m"),
    ],
    "numbers": [
        ("64BIT", "y"),
        ("EXPERT", "y"),
        ("SMP", "y"),
        ("NR_CPUS", "4"),
        ("PRINTK", "y"),
        ("LOG_BUF_SHIFT", "14"),
    ],
    "lost": [("64BIT", "y"), ("INET", "y"), ("VIRTIO_NET", "y"), ("NO_SUCH_SYMBOL", "y")],
}


#: The least that a distribution may give: nothing at all, and one that says no where it can.
POOR = {
    "nothing": "",
    "no to all": "".join(
        f"# CONFIG_{name} is not set\n"
        for name in ("BLOCK", "NET", "TTY", "SHMEM", "DEBUG_KERNEL", "PRINTK", "BINFMT_ELF")
    )
    + "CONFIG_EXPERT=y\n",
}


@pytest.fixture(scope="module", params=each_series())
def source(request: pytest.FixtureRequest) -> Path:
    given = os.environ.get("VMTAILOR_TEST_SOURCE")
    if given:
        tree = Path(given)
        if not kernel_version(tree).startswith(f"{request.param}."):
            pytest.skip(f"{given} is of another series")
        return tree
    return packaged_source(request.param)


@pytest.fixture(scope="module")
def kconfig(source: Path) -> Kconfig:
    shell = KconfigShell(source)
    return Kconfig(shell.env, shell)


@pytest.fixture(scope="module")
def facts(source: Path) -> Facts:
    return ksource_facts.collect(kernel_version(source), ksource_facts.reader(source), ksource_facts.c_files(source))


def make_config(source: Path, folder: Path, fragment: list[tuple[str, str]]) -> dict[str, str]:
    (folder / "fragment").write_text(dot_config.render(dict(fragment)))
    env = {**os.environ, "KCONFIG_ALLCONFIG": str(folder / "fragment")}
    run(["make", "-C", str(source), f"O={folder}", "allnoconfig"], timeout_s=300, env=env)
    made = dot_config.parse((folder / ".config").read_text())
    return {name: value for name, value in made.items() if value not in ("n", "")}


@pytest.mark.parametrize("name", FRAGMENTS)
def test_what_was_parsed_before_resolves_as_what_is_parsed(kconfig: Kconfig, name: str) -> None:
    restored = Kconfig.restored(kconfig.to_bytes())
    assert restored.resolve(FRAGMENTS[name]) == kconfig.resolve(FRAGMENTS[name])
    assert restored.resolve_over_defaults(FRAGMENTS[name]) == kconfig.resolve_over_defaults(FRAGMENTS[name])


def test_a_fragment_over_defaults_resolves_as_make_does(source: Path, kconfig: Kconfig, tmp_path: Path) -> None:
    fragment = [("NET", "y"), ("INET", "y"), ("BPF_EVENTS", "y"), ("EPOLL", "n"), ("BRIDGE", "m")]
    (tmp_path / ".config").write_text(dot_config.render(dict(fragment)))
    run(["make", "-C", str(source), f"O={tmp_path}", "olddefconfig"], timeout_s=300)
    made = dot_config.parse((tmp_path / ".config").read_text())
    found = kconfig.resolve_over_defaults(fragment).enabled
    assert found == {name for name, value in made.items() if value in ("y", "m") and kconfig.is_switch(name)}


@pytest.mark.parametrize("name", FRAGMENTS)
def test_fragments_resolve_as_make_resolves_them(source: Path, kconfig: Kconfig, tmp_path: Path, name: str) -> None:
    found = kconfig.resolve(FRAGMENTS[name])
    made = make_config(source, tmp_path, FRAGMENTS[name])
    # Compared whole, numbers and strings too: what make writes must be ours, and the switches must be the same set.
    assert {n: v for n, v in made.items() if found.values.get(n) != v} == {}
    assert {n for n, v in made.items() if v in ("y", "m")} == found.enabled
    assert {item.name for item in found.lost} == {n for n, v in FRAGMENTS[name] if made.get(n, "n") != v}


@pytest.mark.parametrize("name", POOR)
def test_a_poor_configuration_becomes_a_baseline(source: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "poor").write_text(POOR[name])
    toolchain = make.Toolchain.of(presumed())
    configured = compiled_baseline.configure(source, tmp_path / "o", tmp_path / "poor", toolchain, presumed())
    symbols = dict(configured.symbols)
    assert {symbols[name] for name in ("EROFS_FS", "OVERLAY_FS", "VIRTIO_BLK", "VIRTIO_NET")} == {"m"}
    assert {symbols[name] for name in ("DEBUG_INFO", "PROC_FS", "SERIAL_8250_CONSOLE")} == {"y"}


@pytest.mark.parametrize("machine", KINDS)
@pytest.mark.parametrize("root", list(RootFormat))
def test_the_catalogue_resolves_on_this_tree(kconfig: Kconfig, source: Path, machine: str, root: RootFormat) -> None:
    situation = Situation(machine, root, kernel_version(source), network=True, terminal=True)
    entries = symbol_catalogue.load().chosen(situation)
    wanted = {name: value for e in entries for name, value in e.symbols if value != "n" or kconfig.known(name)}
    optional = {name for e in entries if e.if_possible for name, _ in e.symbols}
    lost = [item for item in close(kconfig, wanted.items()).lost if item.name not in optional]
    assert lost == [], "\n".join(map(str, lost))


def test_rules_and_catalogue_name_symbols_that_exist(kconfig: Kconfig, source: Path) -> None:
    version = kernel_version(source)
    rules = demand_rules.load().for_kernel(version)
    named = {(r.id, s) for r in rules.calls for s in r.symbols} | {(r.id, s) for r in rules.paths for s in r.symbols}
    for machine in KINDS:
        situation = Situation(machine, RootFormat.EROFS, version, cpus=2, network=True, terminal=True)
        named |= {
            (e.reference, s)
            for e in symbol_catalogue.load().chosen(situation)
            if not e.if_possible
            for s, _ in e.symbols
        }
    assert {(where, s) for where, s in named if not kconfig.known(s)} == set()


@pytest.mark.parametrize(
    ("path", "condition"),
    [
        ("fs/eventpoll.c", "EPOLL"),
        ("net/ipv4/tcp.c", "NET && INET"),
        ("fs/erofs/xattr.c", "EROFS_FS && EROFS_FS_XATTR"),
        ("kernel/sched/membarrier.c", "MEMBARRIER"),
        ("mm/shmem.c", "1"),
        ("arch/x86/kernel/kvm.c", "KVM_GUEST"),
        ("fs/9p/vfs_super.c", "9P_FS"),
    ],
)
def test_conditions_of_known_files(facts: Facts, path: str, condition: str) -> None:
    assert str(facts.file_condition(path)) == condition


def test_every_system_call_of_the_table_is_found(facts: Facts) -> None:
    missing = {n for n, entry in facts.table.items() if entry != "ni_syscall" and not facts.places("syscall", entry)}
    assert missing <= {"lookup_dcookie"}, "which has its name in the table only, in 6.1"
    assert len(facts.table) > 300


@pytest.mark.parametrize(
    ("kind", "name", "condition"),
    [
        ("family", "INET6", "NET && IPV6"),
        ("netlink", "ROUTE", "NET"),
        ("filesystem", "overlay", "OVERLAY_FS"),
        ("proc", "self/smaps", "PROC_FS && PROC_PAGE_MONITOR"),
        ("device", "net/tun", "TUN"),
        ("device", "null", "1"),
        ("algorithm", "hmac", "CRYPTO_HMAC"),
    ],
)
def test_names_of_the_source(facts: Facts, kind: str, name: str, condition: str) -> None:
    assert str(facts.condition(kind, name)) == condition


@pytest.mark.parametrize(
    ("module", "symbol"),
    [("crypto/af_alg", "CRYPTO_USER_API"), ("net/ipv4/tcp_bbr", "TCP_CONG_BBR"), ("net/sctp/sctp", "IP_SCTP"),
     ("fs/xfs/xfs", "XFS_FS"), ("net/tls/tls", "TLS"), ("net/ipv4/nowhere", None)],
)  # fmt: skip
def test_the_symbol_of_a_module(source: Path, module: str, symbol: str | None) -> None:
    assert symbol_of_module(module, ksource_facts.reader(source)) == symbol


def grep(pattern: str, source: Path, *folders: str) -> list[str]:
    argv = ["grep", "-rhoE", pattern, "--include=*.c", *folders]
    return subprocess.run(argv, cwd=source, capture_output=True, text=True, check=True).stdout.splitlines()


def test_what_trials_count_and_leave_out_is_in_the_source(source: Path) -> None:
    """A word of `initcall_blacklist=` that names nothing is taken in silence, and so is an activity without an end."""
    ends = {function for both in ACTIVITIES.values() for function in both}
    assert {line.rstrip("(") for line in grep(rf"\b({'|'.join(ends)})\(", source, "crypto", "kernel")} == ends
    if version_key(kernel_version(source)) >= (6, 12):  # older ones lack some initcalls
        initcalls = {line.partition("(")[2].rstrip(")") for line in grep(r"^[a-z_]*init[a-z_]*\(\w+\)", source, ".")}
        settings = [setting for one in change_catalogue.candidates() for setting in one.change.settings]
        lists = [setting.value or "" for setting in settings if setting.name == "initcall_blacklist"]
        left_out = {name for names in lists for name in names.split(",")}
        assert len(left_out) > 8
        assert left_out <= initcalls


def test_no_condition_of_a_file_is_impossible(facts: Facts) -> None:
    assert [p for p in facts.files if facts.file_condition(p + ".c") == FALSE] == []


PROGRAM = """\
static inline __attribute__((always_inline)) int inner(int x) { return x * 3 + 1; }
int outer(int x)
{
    volatile int y = inner(x);
    return y;
}
int main(void) { return outer(2); }
"""


def test_inlined_frames_of_a_real_program(tmp_path: Path) -> None:
    (tmp_path / "p.c").write_text(PROGRAM)
    run(["gcc", "-g", "-O1", "-no-pie", "-o", str(tmp_path / "p"), str(tmp_path / "p.c")], timeout_s=60)
    symbols = run(["nm", str(tmp_path / "p")], timeout_s=60).text
    start = next(int(line.split()[0], 16) for line in symbols.splitlines() if line.endswith(" outer"))
    found = symbolize(tmp_path / "p", range(start, start + 24))
    stacks = {tuple(f.function for f in frames) for frames in found.values()}
    assert ("inner", "outer") in stacks and ("outer",) in stacks
    assert all(f.file.endswith("p.c") and f.line > 0 for frames in found.values() for f in frames)
    other = subprocess.run(
        ["addr2line", "-a", "-f", "-i", "-e", tmp_path / "p", *(hex(a) for a in found)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert {a: [f.function for f in frames] for a, frames in parse_addr2line(other.stdout)} == {
        a: [f.function for f in frames] for a, frames in found.items()
    }


def test_sections_of_a_relocatable_file(tmp_path: Path) -> None:
    (tmp_path / "p.c").write_text(PROGRAM)
    run(["gcc", "-g", "-O1", "-c", "-o", str(tmp_path / "p.o"), str(tmp_path / "p.c")], timeout_s=60)
    found = symbolize(tmp_path / "p.o", [0], section=".text")
    assert found[0][-1].function == "outer"
