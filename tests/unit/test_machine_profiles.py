# SPDX-License-Identifier: Apache-2.0
"""Advice fits the machine at hand: for each machine of tests/data/profiles what must be named, and what must not."""

from __future__ import annotations

import functools
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from vmtailor.analysis.bootlog import machine_facts, silences
from vmtailor.analysis.changes.change_catalogue import KnownChange, catalogue, is_for
from vmtailor.analysis.changes.remedy_audience import Condition, any_met, condition_of
from vmtailor.analysis.timeline.boot_timeline import analyze
from vmtailor.model.boots.timeline import MachineInfo, MachineKind, Timeline

PROFILES = Path(__file__).resolve().parents[1] / "data" / "profiles"
EXPECTED: dict[str, dict[str, Any]] = tomllib.loads((PROFILES / "expected.toml").read_text())


#: What lists durations alone.
WITHOUT_CLOCK = {"encrypted-laptop"}
LOGS = {path.stem: path for path in (*PROFILES.glob("*.log"), *PROFILES.glob("*.svg"))}


@functools.cache
def profile(name: str) -> Timeline:
    return analyze([LOGS[name]])


def test_each_log_has_its_row() -> None:
    assert set(LOGS) == set(EXPECTED)
    assert len(EXPECTED) >= 24
    known = {entry.id for entry in catalogue()}
    named = ("must", "must_not", "named", "may")
    assert not {id for row in EXPECTED.values() for which in named for id in row[which]} - known


def test_each_remedy_says_what_must_be_seen_and_what_it_is_never_said_to() -> None:
    assert len(catalogue()) == 77
    for entry in catalogue():
        assert entry.audience.seen and entry.audience.never, entry.id
        assert all(one.words() for one in (*entry.audience.seen, *entry.audience.never)), entry.id


@pytest.mark.parametrize("entry", catalogue(), ids=lambda entry: entry.id)
def test_the_machines_that_a_remedy_may_be_said_to(entry: KnownChange) -> None:
    """A condition that every machine meets, or none, proves nothing."""
    may = {name for name, row in EXPECTED.items() if entry.id in row["may"]}
    assert 0 < len(may) < len(EXPECTED)
    for name in EXPECTED:
        machine, arch = profile(name).machine, profile(name).kernel.arch
        reached = is_for(entry, arch) and entry.audience.reaches(machine, arch)
        assert reached == (name in may), (name, machine.has)


@pytest.mark.parametrize("name", EXPECTED)
def test_the_machine_is_recognised(name: str) -> None:
    machine, row = profile(name).machine, EXPECTED[name]
    wanted = (row.get("kind"), row.get("hypervisor"), row.get("cpus"))
    assert (machine.kind, machine.hypervisor, machine.cpus) == wanted


@pytest.mark.parametrize("name", EXPECTED)
def test_its_remedies(name: str) -> None:
    timeline = profile(name)
    named = {remedy.id: remedy for remedy in timeline.advice if remedy.applies}
    row = EXPECTED[name]
    assert sorted(named) == row["named"], {id: one.seen for id, one in named.items()}
    assert not set(row["named"]) - set(row["may"])
    assert not set(row["must"]) - set(named)
    assert not set(row["must_not"]) & set(named), {id: named[id].seen for id in row["must_not"] if id in named}
    for id, most in row.get("most_us", {}).items():
        saving = named[id].saving_us
        assert saving is not None and 0 < saving <= most
    shown = timeline.shown_us
    assert shown is not None or name in WITHOUT_CLOCK
    for remedy in named.values():
        assert remedy.saving_us is None or (shown is not None and remedy.saving_us < shown)  # never all of it
        for phase in timeline.phases:
            if remedy.saving_us and phase.start_us is not None and phase.end_us is not None:
                assert remedy.saving_us != phase.end_us - phase.start_us  # nor a whole phase


def test_a_way_is_for_machines_that_have_what_it_presumes() -> None:
    board = {r.id: r for r in profile("board-imx").advice}
    steps = [step for remedy in board.values() for step in remedy.change]
    assert not [step for step in steps if "microvm" in step or "VIRTIO" in step or "vda" in step]
    laptop = [step for r in profile("laptop").advice for step in r.change]
    assert not [step for step in laptop if "-machine" in step or "virtio" in step.lower()]


#: Words that stand for one kind of machine, and the profiles that are of it.
WORDS = {
    "vda": {"home-vm"},
    "VIRTIO_BLK": {"home-vm"},
    "microvm": {"home-vm", "encrypted"},
    "-smp": set(),
    "-m SIZE": set(),
    "NoCloud": set(),
    "tune2fs": set(),
    "[ Ec2 ]": {"cloud-vm"},
    "mmcblk": {"board-bone", "board-imx", "board-pi"},
    "VM's settings": {"vmware", "virtualbox", "hyper-v"},
    "GRUB_TIMEOUT": {"desktop", "raid", "home-vm", "hyper-v"},
    "SPL_OS_BOOT": {"board-imx"},
}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_way_uses_the_words_of_this_machine(name: str) -> None:
    steps = [step for remedy in profile(name).advice for step in remedy.change]
    for word, machines in WORDS.items():
        assert name in machines or not [step for step in steps if word in step], word


def remedies(*signs: str, machine: MachineInfo, arch: str | None = None) -> dict[str, set[str]]:
    """Return, for each sign, the remedies that may speak of it on a machine."""
    return {
        sign: {
            entry.id
            for entry in catalogue()
            if entry.audience.reaches(machine, arch) and entry.audience.hears(sign, machine, arch)
        }
        for sign in signs
    }


STARTING = """
    dracut-initqueue.service systemd-cryptsetup@luks.service plymouth-switch-root.service dbus-broker.service
    initrd-switch-root.service dracut-mount.service clevis-luks-askpass.service ostree-prepare-root.service
    systemd-repart.service lvm2-activation-early.service zfs-import-cache.service mdadm-last-resort@md0.service
    systemd-udev-settle.service systemd-journald.service user@0.service -.mount boot-efi.mount sysroot.mount
    sshd.service waagent.service cloud-init.service NetworkManager.service systemd-hibernate-resume.service
"""


@pytest.mark.parametrize("unit", STARTING.split())
def test_what_starts_the_machine_or_leads_to_it_is_never_called_slow(unit: str) -> None:
    on = MachineInfo(has=("systemd",))
    assert "slow-units" not in remedies(f"unit {unit}", machine=on)[f"unit {unit}"]


@pytest.mark.parametrize(
    "unit", ["mysql.service", "snapd.seeded.service", "srv-data.mount", "swapfile.swap", "app@1.service"]
)
def test_a_service_of_the_user_is_called_slow(unit: str) -> None:
    on = MachineInfo(has=("systemd",))
    assert "slow-units" in remedies(f"unit {unit}", machine=on)[f"unit {unit}"]
    assert (
        "slow-units"
        not in remedies(f"unit {unit}", machine=MachineInfo(MachineKind.PHONE, has=("systemd",)))[f"unit {unit}"]
    )


@pytest.mark.parametrize(
    ("has", "kept", "other"),
    [
        ("xfs", "init_xfs_fs", "init_btrfs_fs"),
        ("btrfs", "init_btrfs_fs", "init_xfs_fs"),
        ("f2fs", "init_f2fs_fs", "init_nfs_fs"),
        ("fat", "init_vfat_fs", "init_ntfs_fs"),
        ("flash-fs", "ubifs_init", "init_xfs_fs"),
        ("nfs", "init_sunrpc", "init_xfs_fs"),
        ("systemd", "init_autofs_fs", "init_xfs_fs"),
    ],
)
def test_a_file_system_in_use_is_not_to_be_left_out(has: str, kept: str, other: str) -> None:
    found = remedies(f"initcall {kept}", f"initcall {other}", machine=MachineInfo(has=(has,)))
    assert "filesystems" not in found[f"initcall {kept}"] and "filesystems" in found[f"initcall {other}"]


def test_a_disk_that_user_space_waits_for_is_not_the_root(tmp_path: Path) -> None:
    """The initial RAM disk waits for the root's; once the root is there, a unit of a disk is another's."""
    rows = [
        {"name": "dev-sdb1.device", "activated": 14_000_000, "activating": 10_000_000, "time": 4_000_000},
        {"name": "dev-sda2.device", "activated": 5_000_000, "activating": 3_000_000, "time": 2_000_000},
    ]
    for row in rows:
        row.update({"deactivated": 0, "deactivating": 0})
    phases = "Startup finished in 2.000s (kernel) + 6.000s (initrd) + 20.000s (userspace) = 28.000s\n"
    (tmp_path / "time.txt").write_text(phases)
    (tmp_path / "plot.json").write_text(json.dumps(rows))
    (found,) = [r for r in analyze([tmp_path / "time.txt", tmp_path / "plot.json"]).advice if r.id == "root-wait"]
    assert found.seen == ("unit dev-sda2.device",)


PANIC = "[    9.000000] Kernel panic - not syncing: VFS: Unable to mount root fs on unknown-block(1,0)\n"


def test_a_boot_that_ended_in_a_panic_gets_no_remedies(tmp_path: Path) -> None:
    text = LOGS["network-root"].read_text()
    (tmp_path / "good.log").write_text(text)
    (tmp_path / "bad.log").write_text(text[: text.index("[    6.900000]")] + PANIC)
    assert analyze([tmp_path / "good.log"]).advice
    assert analyze([tmp_path / "bad.log"]).advice == ()
    # After a fault a boot may go on.
    oops = "[    6.850000] Internal error: Oops: 17 [#1] SMP ARM\n"
    (tmp_path / "oops.log").write_text(text.replace("[    6.900000]", f"{oops}[    6.900000]"))
    assert analyze([tmp_path / "oops.log"]).advice


@pytest.mark.parametrize(
    ("disk", "lines", "names"),
    [
        ("fixed delay", "", True),
        ("limit of an initial RAM disk", "[    0.500000] Trying to unpack rootfs image as initramfs...\n", False),
    ],
)
def test_rootdelay_is_a_wait_for_the_kernel_alone(tmp_path: Path, disk: str, lines: str, names: bool) -> None:
    log = (
        "[    0.000000] Linux version 6.1.9 (gcc) #1 SMP\n"
        "[    0.000000] Command line: root=/dev/sda1 rootdelay=20\n"
        f"{lines}[   20.500000] EXT4-fs (sda1): mounted filesystem with ordered data mode.\n"
        "[   20.600000] Run /sbin/init as init process\n"
    )
    (tmp_path / "log").write_text(log)
    assert ("root-wait" in {r.id for r in analyze([tmp_path / "log"]).advice}) is names, disk


@pytest.mark.parametrize(
    "down", ["SATA link up 6.0 Gbps (SStatus 133 SControl 300)", "SATA link down (SStatus 0 SControl 300)"]
)
def test_a_port_with_a_disk_is_not_unused(tmp_path: Path, down: str) -> None:
    log = LOGS["desktop"].read_text().replace("SATA link down (SStatus 0 SControl 300)", down)
    (tmp_path / "log").write_text(log)
    assert ("ata-ports" in {r.id for r in analyze([tmp_path / "log"]).advice}) is ("down" in down)


def test_a_policy_that_writes_records_is_no_reason_to_leave_out_auditing(tmp_path: Path) -> None:
    """A record of another kind is one, wherever it stands; a policy that is seen closes the remedy."""
    begin = "[    0.000000] Linux version 6.1.9 (gcc) #1 SMP\n"
    loaded = "[    1.000000] audit: type=1404 audit(1.0:2): enforcing=1 old_enforcing=0 auid=4294967295\n"
    started = "[    2.000000] audit: type=1130 audit(2.0:3): pid=1 uid=0 auid=4294967295 msg='unit=x'\n"
    for text, named in ((loaded, False), (started, True), (loaded + started, False)):
        (tmp_path / "log").write_text(begin + text)
        assert ("audit" in {r.id for r in analyze([tmp_path / "log"]).advice}) is named, text
    assert "audit" not in remedies("message audit: type=1400 a", machine=MachineInfo())["message audit: type=1400 a"]


def test_boards_are_told_what_others_measured() -> None:
    named = {r.id: r for r in profile("board-imx").advice}
    assert any("NXP" in text for text in named["u-boot-delay"].published)
    assert any("bootlin" in text for text in named["u-boot-lean"].published)


def test_the_words_of_needs_are_words_of_facts() -> None:
    words, hypervisors = machine_facts.values_of("has"), machine_facts.values_of("hypervisor")
    for entry in catalogue():
        for need in (*entry.audience.seen, *entry.audience.never, *(one for way in entry.ways for one in way.needs)):
            assert not {*need.has, *need.lacks} - words, entry.id
            assert not set(need.hypervisors) - hypervisors, entry.id
            assert need.words()
        for match in entry.matches:
            if match.kind == "silence":
                assert any(match.pattern.fullmatch(id) for id in silences.ids()), entry.id


def test_needs() -> None:
    vm = MachineInfo(MachineKind.VIRTUAL, "kvm", cpus=2, has=("grub",))
    board, unknown = MachineInfo(MachineKind.BOARD, cpus=1, has=("fips",)), MachineInfo()
    cases: list[tuple[dict[str, Any], tuple[bool, bool, bool]]] = [
        ({"hypervisor": "kvm"}, (True, False, False)),
        ({"hypervisor": ["xen", "kvm"]}, (True, False, False)),
        ({"hypervisor": True}, (True, False, False)),
        ({"hypervisor": False}, (False, True, True)),
        ({"board": False}, (True, False, True)),
        ({"board": True}, (False, True, False)),
        ({"board": True, "laptop": True}, (False, True, False)),
        ({"fips": False}, (True, False, True)),
        ({"fips": True}, (False, True, False)),
        ({"cpus_at_most": 1}, (False, True, False)),
        ({"cpus_at_least": 2}, (True, False, False)),
        ({"has": ["grub"]}, (True, False, False)),
        ({"lacks": "grub"}, (False, True, True)),
        ({"arch": ["riscv64"]}, (False, False, True)),
    ]
    for raw, wanted in cases:
        need = condition_of(raw)
        assert (need.met(vm, "arm64"), need.met(board, "arm64"), need.met(unknown, None)) == wanted, raw
    assert any_met((), vm, None)
    assert any_met((Condition(virtual=False), Condition(has=("grub",))), vm, None)


@pytest.mark.parametrize("raw", [{"bord": False}, {"board": "no"}, {"has": 3}, {"cpus_at_most": "1"}, {}, {"sign": 1}])
def test_needs_that_are_wrong_are_refused(raw: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError)):
        condition_of(raw)
