# SPDX-License-Identifier: Apache-2.0
"""The catalogue of remedies: complete, documented, and matched for the right boots only."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.bootlog.reading import timeline_of

from vmtailor.analysis.changes.change_catalogue import catalogue, in_range, read
from vmtailor.base.errors import VmtailorError
from vmtailor.model import architecture
from vmtailor.model.boots.timeline import Remedy
from vmtailor.model.change import ChangeKind

DOCS = Path(__file__).resolve().parents[2] / "docs" / "reference" / "advice.md"

#: What the catalogue must hold, by the words of its users.
WANTED = {
    "initrd-none",
    "initrd-small",
    "input-probes",
    "console-quiet",
    "fewer-uarts",
    "virtio-console",
    "rtc-setup",
    "rtc-edge",
    "deferred-struct-pages",
    "orc-sort",
    "orc-lookups",
    "crypto-selftests",
    "self-tests",
    "tracing-init",
    "lsm",
    "audit",
    "usb",
    "sound",
    "parallel-port",
    "floppy",
    "wireless",
    "bluetooth",
    "nfc",
    "filesystems",
    "netfilter",
    "pci-or-mmio",
    "static-address",
    "kvm-guest",
    "one-cpu",
    "random-trust",
    "virtio-rng",
    "image-compression",
    "uevent-helper",
    "rcu-expedited",
    "async-probing",
    "modules-unused",
    "grub-wait",
    "cloud-init-fwcfg",
    "cloud-init-none",
    "slow-units",
    "generators",
    "io-scheduler",
}


def remedies(folder: Path, *texts: str) -> dict[str, Remedy]:
    return {r.id: r for r in timeline_of(folder, *texts).advice}


def boot(calls: str = "", version: str = "6.12.1", line: str = "quiet") -> str:
    return (
        f"[    0.000000] Linux version {version} (gcc) #1 SMP\n[    0.000000] Kernel command line: {line}\n"
        f"[    0.000000] DMI: QEMU Standard PC (Q35 + ICH9, 2009)\n[    0.000000] Hypervisor detected: KVM\n"
        f"[    0.000000] kvm-clock: Using msrs 4b564d01 and 4b564d00\n[    0.050000] smp: Brought up 1 node, 2 CPUs\n"
        f"[    0.100000] clocksource: Switched to clocksource tsc\n{calls}[    2.000000] Run /sbin/init as init "
        f"process\n"
    )


def initcall(name: str, us: int, at: int = 1_000_000, task: int = 1) -> str:
    return (
        f"[{at / 1e6:12.6f}] calling  {name}+0x0/0x10 @ {task}\n"
        f"[{(at + us + 20) / 1e6:12.6f}] initcall {name}+0x0/0x10 returned 0 after {us} usecs\n"
    )


def test_the_catalogue_is_complete() -> None:
    assert {entry.id for entry in catalogue()} >= WANTED


def test_every_entry_is_documented() -> None:
    text = DOCS.read_text()
    missing = [entry.id for entry in catalogue() if f"## {entry.title}\n" not in text or f"`{entry.id}`" not in text]
    assert not missing, f"run tools/advice_reference.py: {missing}"


#: Processors that machines are not fitted for, and whose logs are read.
READ_ONLY = {"i686", "arm", "mips", "riscv64", "loongarch64", "powerpc64le", "s390x"}
#: What is a PC's alone.
OF_PCS = {"rtc-edge", "firmware", "kvm-guest", "orc-sort", "parallel-bringup", "pci-or-mmio"}


def test_every_entry_says_for_which_processors_it_is_and_so_do_the_docs() -> None:
    text = DOCS.read_text()
    for entry in catalogue():
        for names in (entry.processors, *(one.processors for one in entry.trials)):
            assert set(names) <= {*architecture.names(), *READ_ONLY}, entry.id
        section = text.partition(f"## {entry.title}\n")[2].partition("\n## ")[0]
        assert f"- **Processors:** {', '.join(entry.processors) or 'all'}" in section, entry.id
    assert {
        entry.id
        for entry in catalogue()
        if set(entry.processors) - {"x86_64", "i686"} == set() != set(entry.processors)
    } == OF_PCS
    for name in ("input-probes", "floppy", "parallel-port", "orc-lookups"):
        assert "arm64" not in next(entry.processors for entry in catalogue() if entry.id == name), name


@pytest.mark.parametrize(("arch", "named"), [("x86", True), ("arm64", False)])
def test_a_remedy_for_other_processors_is_not_named(tmp_path: Path, arch: str, named: bool) -> None:
    config = (
        f"#\n# Automatically generated file; DO NOT EDIT.\n# Linux/{arch} 5.5.19 Kernel "
        "Configuration\n#\nCONFIG_UNWINDER_ORC=y\nCONFIG_IPV6=y\n"
    )
    found = remedies(tmp_path, boot(initcall("inet6_init", 50_000), version="5.5.19"), config)
    assert ("orc-sort" in found) == named and "ipv6" in found


@pytest.mark.parametrize(
    ("name", "id"),
    [
        ("i8042_init", "input-probes"),
        ("serial8250_init", "fewer-uarts"),
        ("cmos_init", "rtc-setup"),
        ("parport_pc_init", "parallel-port"),
        ("floppy_module_init", "floppy"),
        ("event_trace_self_tests_init", "tracing-init"),
        ("aes_init", "crypto-selftests"),
        ("usb_init", "usb"),
        ("alsa_sound_init", "sound"),
        ("bt_init", "bluetooth"),
        ("cfg80211_init", "wireless"),
        ("init_sel_fs", "lsm"),
        ("audit_init", "audit"),
        ("init_btrfs_fs", "filesystems"),
        ("ip_tables_init", "netfilter"),
        ("pci_subsys_init", "pci-or-mmio"),
        ("ip_auto_config", "static-address"),
        ("nfc_init", "nfc"),
        ("pty_init", "legacy-ptys"),
        ("brd_init", "ram-disks"),
        ("inet6_init", "ipv6"),
        ("init_kprobe_trace", "tracing-init"),
    ],
)
def test_a_slow_initcall_names_its_remedy_and_saving(tmp_path: Path, name: str, id: str) -> None:
    found = remedies(tmp_path, boot(initcall(name, 50_000)))
    assert found[id].applies
    assert found[id].saving_us == 50_000
    assert found[id].change


def test_a_quick_boot_needs_no_advice(tmp_path: Path) -> None:
    found = remedies(tmp_path, boot(initcall("i8042_init", 30) + initcall("usb_init", 20, 1_100_000)))
    assert not {id for id, remedy in found.items() if remedy.saving_us}


def test_what_runs_beside_gains_nothing(tmp_path: Path) -> None:
    found = remedies(tmp_path, boot(initcall("psmouse_init", 650_000, task=77)))
    remedy = found["input-probes"]
    assert (remedy.saving_us, remedy.confidence) == (0, "low")
    assert "beside" in remedy.why


def test_a_remedy_that_is_taken_already_is_not_named(tmp_path: Path) -> None:
    assert "crypto-selftests" not in remedies(
        tmp_path, boot(initcall("aes_init", 50_000), line="quiet cryptomgr.notests")
    )


@pytest.mark.parametrize(
    ("version", "word"), [("6.1.0", "CRYPTO_MANAGER_DISABLE_TESTS=y"), ("6.16.0", "CRYPTO_SELFTESTS=n")]
)
def test_changes_fit_the_kernel(tmp_path: Path, version: str, word: str) -> None:
    steps = " ".join(remedies(tmp_path, boot(initcall("aes_init", 50_000), version))["crypto-selftests"].change)
    assert word in steps
    assert ("CRYPTO_SELFTESTS" in steps) != ("CRYPTO_MANAGER_DISABLE_TESTS" in steps)


@pytest.mark.parametrize(
    ("version", "applies"), [("4.19.0", True), ("5.5.19", True), ("5.6.0", False), ("6.12.117", False)]
)
def test_what_no_longer_applies_says_so(tmp_path: Path, version: str, applies: bool) -> None:
    config = (
        f"#\n# Automatically generated file; DO NOT EDIT.\n# Linux/x86 {version} Kernel "
        "Configuration\n#\nCONFIG_UNWINDER_ORC=y\n"
    )
    remedy = remedies(tmp_path, boot(version=version), config)["orc-sort"]
    assert remedy.applies is applies
    assert applies or "5.6" in remedy.why


def test_a_second_lost_to_the_clock_chip(tmp_path: Path) -> None:
    edge = "[    0.500000] rtc_cmos rtc_cmos: setting system clock to 2010-01-01\n[    1.500000] next\n"
    assert remedies(tmp_path, boot(edge, "2.6.32"))["rtc-edge"].applies
    assert not remedies(tmp_path, boot(edge, "6.12.0"))["rtc-edge"].applies


def test_versions() -> None:
    assert in_range("6.12.117+deb13-cloud-amd64", "6.12.117", "6.12.118")
    assert in_range("next-2024", "99", "")
    assert in_range("6.9", "4.19", "6.10")
    assert not in_range("6.10", "", "6.10")
    assert in_range(None, "99", "")


GOOD = """id = "x"
title = "X"
looks = "l"
costs = "c"
risk = "r"
processors = "all"
saving = "none"
confidence = "low"

[[seen]]
has = ["systemd"]

[[never]]
sign = "^unit dbus"

[[way]]
kind = "unit"
what = "w"

[[match]]
kind = "console"
pattern = "."

[[trial]]
does = "masks x"

[trial.unit]
"x.service" = "masked"

[trial.runtime]
"vm.swappiness" = "1"
"""


def test_a_file_says_how_its_change_is_recognised_and_tried(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text(GOOD)
    found = read(path)
    (one,) = found.trials
    assert found.processors == one.processors == ()
    assert one.change.id == one.advice == found.id == "x" and found.ways[0].kind is ChangeKind.UNIT
    assert [(s.kind, s.name, s.value) for s in one.change.settings] == [
        (ChangeKind.UNIT, "x.service", "masked"), (ChangeKind.RUNTIME, "vm.swappiness", "1"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("[trial.unit]", "[trial.unknown]"),  # no kind of change
        ('kind = "unit"', 'kind = "command line"'),
        ('[trial.unit]\n"x.service" = "masked"\n\n[trial.runtime]\n"vm.swappiness" = "1"\n', ""),  # it sets nothing
        ('"vm.swappiness" = "1"', '"vm.swappiness" = 1'),  # a number is no text
        ('does = "masks x"\n', ""),
        ('id = "x"', 'id = "y"'),
        ('saving = "none"', 'saving = "much"'),
        ('processors = "all"\n', ""),  # each says for which it is
        ('[[seen]]\nhas = ["systemd"]\n', ""),  # nor without what must be seen
        ('[[never]]\nsign = "^unit dbus"\n', ""),
        ('has = ["systemd"]', ""),
        ('sign = "^unit dbus"', "sign = 3"),
        ('processors = "all"', "processors = []"),
        ('processors = "all"', 'processors = "x86_64"'),
        ('does = "masks x"\n', 'does = "masks x"\nprocessors = [64]\n'),
    ],
)
def test_a_file_that_is_wrong_is_named(before: str, after: str, tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    assert before in GOOD
    path.write_text(GOOD.replace(before, after))
    with pytest.raises(VmtailorError, match=r"x\.toml is wrong"):
        read(path)


def test_a_probe_that_was_put_off_beside_the_boot_saves_nothing(tmp_path: Path) -> None:
    rows = {
        task: remedies(
            tmp_path,
            boot(f"[    1.500000][   T{task}] probe of 1-0:1.0 returned -517 after 400000 usecs\n").replace(
                "] ", "][    T1] "
            ).replace(f"[   T{task}][    T1]", f"[   T{task}]"),
        )["deferred-probes"]
        for task in (25, 1)
    }  # fmt: skip
    assert not rows[25].saving_us and rows[25].confidence == "low" and "beside the boot" in rows[25].why
    assert rows[1].saving_us == 400_000


def test_late_is_late_since_the_kernel_began(tmp_path: Path) -> None:
    """Clocks of boards count from their firmware's start."""
    for done, named in ((516.1, False), (519.5, True)):
        log = (
            "[  515.700000] Booting Linux on physical CPU 0x0\n[  515.700000] Linux version 6.6.1 (gcc) #1\n"
            "[  515.710000] Machine model: A Board\n[  515.720000] Kernel command line: quiet\n"
            f"[  {done:.6f}] random: crng init done\n[  520.000000] Run /sbin/init as init process\n"
        )
        assert ("hw-random" in remedies(tmp_path, log)) is named
