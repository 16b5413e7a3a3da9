# SPDX-License-Identifier: Apache-2.0
"""The commands by which `analyze` tries its advice, and what `explain` says of a remedy."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from vmtailor.analysis.changes import choice, trial_command
from vmtailor.analysis.changes.change_catalogue import catalogue
from vmtailor.analysis.changes.trial_command import BootOrigin
from vmtailor.analysis.timeline.boot_json import from_json
from vmtailor.base.files import records
from vmtailor.cli.analyze import analyze
from vmtailor.cli.boots import booted_log
from vmtailor.cli.explain import explain
from vmtailor.drivers.guest.ready import parse_signal
from vmtailor.model.boots.boot import Boot, Outcome
from vmtailor.model.boots.series import RECORD, BootSeries, SeriesBoot, Variant
from vmtailor.model.boots.timeline import KernelInfo, Remedy, Timeline
from vmtailor.model.machine import Machine

LOG = (
    "[    0.000000] Linux version 6.12.1 (x) #1 SMP\n[    0.000000] Command line: root=/dev/vda quiet\n"
    "[    0.000000] Hypervisor detected: KVM\n[    0.000000] DMI: QEMU Standard PC (Q35 + ICH9, 2009)\n"
    "[    0.500000] initcall inet6_init+0x0/0x1 returned 0 after 40000 usecs\n"
    "[    0.900000] Floppy drive(s): fd0 is 1.44M\n[    2.900000] random: crng init done\n"
    "[    3.000000] Run /sbin/init as init process\n"
)


def advised(*ids: str, arch: str = "x86_64", applies: bool = True) -> Timeline:
    rows = tuple(Remedy(name, name, applies, None, "low", "", (), "") for name in ids)
    return Timeline(KernelInfo("6.12", arch), advice=rows)


def words(timeline: Timeline, booted: BootOrigin | None = None) -> list[str]:
    return [shlex.join(one.words) for one in trial_command.commands(timeline, booted)]


def test_a_log_alone_has_a_placeholder_for_the_disk() -> None:
    direct = "--kernel FILE --initrd FILE --append WORDS"
    assert words(advised("ipv6", "sound", "u-boot-lean")) == [f"vmtailor boot DISK --try ipv6,sound {direct}"]
    assert words(advised("memory")) == ["vmtailor boot DISK --try memory"]
    assert words(advised("nfc", "ipv6", "wireless")) == [
        f"vmtailor boot DISK --try ipv6 {direct}",
        "vmtailor boot BUNDLE --try nfc,wireless",
    ]
    for nothing in (advised("u-boot-lean"), advised("ipv6", applies=False), advised("unknown"), advised()):
        assert words(nothing) == []


def test_trials_for_other_processors_are_not_named() -> None:
    assert words(advised("hw-random", arch="x86_64")) == [] and words(advised("hw-random", arch="arm64")) != []


def test_a_kept_boot_is_named() -> None:
    disk = BootOrigin("my disk.raw", False, ("--kernel", "k"))
    assert words(advised("ipv6", "nfc"), disk) == ["vmtailor boot 'my disk.raw' --try ipv6 --kernel k"]
    bundle = BootOrigin("demo", True)
    assert words(advised("ipv6", "nfc", "slow-units", "floppy"), bundle) == ["vmtailor boot demo --try ipv6,nfc"]


def test_every_command_names_what_can_be_chosen() -> None:
    ids = [entry.id for entry in catalogue()]
    for arch in ("x86_64", "arm64"):
        for command in trial_command.commands(advised(*ids, arch=arch), None):
            names = command.words[command.words.index("--try") + 1].split(",")
            assert names and (
                choice.for_machine(names) if "DISK" in command.words else choice.for_bundle(names, "6.12")
            )


def series(folder: Path, subject: str) -> Path:
    machine = Machine(
        "microvm", 1 << 30, kernel="/k z", initrd="/i", words=("root=/dev/vda", "quiet"), architecture="x86_64"
    )
    record = BootSeries(
        "1", subject, parse_signal("ssh"), 1.0, (Variant("base", machine, ""),),
        (SeriesBoot("base", 1, "base-1", Boot(Outcome.READY, (), 1.0)),),
    )  # fmt: skip
    (folder / "base-1").mkdir(parents=True)
    records.save(record, folder / RECORD)
    (folder / "base-1" / "console.log").write_text(LOG)
    return folder / "base-1" / "console.log"


def test_the_record_beside_a_log_tells_the_machine(tmp_path: Path) -> None:
    found = booted_log.booted(series(tmp_path, "/d.raw"))
    assert found == BootOrigin(
        "/d.raw", False,
        (
            "--ready", "ssh:22", "--machine", "microvm", "--kernel", "/k z", "--initrd", "/i",
            "--append", "root=/dev/vda quiet",
        ),
    )  # fmt: skip
    other = tmp_path / "other" / "dmesg"
    assert booted_log.booted(series(tmp_path / "option", "--qemu=-drive")) is None
    assert booted_log.booted(other) is None and booted_log.booted(Path("-")) is None
    (tmp_path / RECORD).write_text("{")
    assert booted_log.booted(tmp_path / "base-1" / "console.log") is None


def test_a_bundles_record_names_the_bundle(tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    (bundle / "bundle.json").write_text("{}")
    assert booted_log.booted(series(tmp_path, str(bundle))) == BootOrigin(str(bundle), True)


def test_analyze_ends_with_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "dmesg"
    log.write_text(LOG)
    analyze([log])
    assert "vmtailor boot DISK --try " in (said := capsys.readouterr().out)
    assert "floppy" in said.partition("--try ")[2] and "ipv6" in said.partition("--try ")[2]
    kept = series(tmp_path, "/d.raw")
    analyze([kept])
    assert "vmtailor boot /d.raw --try " in capsys.readouterr().out
    analyze([kept], json=True)
    (told,) = json.loads(document := capsys.readouterr().out)["tries"]
    assert told["command"].startswith("vmtailor boot /d.raw --try ") and told["does"] == "Try what would help"
    assert from_json(document.encode(), "x").advice  # which follow from it, so that they are not read again
    analyze([log], out=tmp_path / "page.html")
    assert "<code>vmtailor boot DISK --try " in (tmp_path / "page.html").read_text()


def test_explain_says_how_a_remedy_is_tried_or_why_not(capsys: pytest.CaptureFixture[str]) -> None:
    for entry in catalogue():
        explain(Path(entry.id))
        said = " ".join(capsys.readouterr().out.split())
        assert entry.title in said
        assert (" ".join(entry.untried.split()) if entry.untried else f"--try {entry.trials[0].change.id}") in said, (
            entry.id
        )
    explain(Path("floppy-away"), json=True)
    document = json.loads(capsys.readouterr().out)
    assert (document["what"], document["kind"], document["untried"]) == ("floppy-away", "remedy", "")
    assert document["trials"][1] == {
        "id": "floppy-away", "does": "the floppy controller is taken out of the machine", "hardware": ["floppy"],
    }  # fmt: skip
