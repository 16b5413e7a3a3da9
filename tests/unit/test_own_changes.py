# SPDX-License-Identifier: Apache-2.0
"""Changes that a user spells out for --try: what they set on a machine and on a bundle, and how wrong ones are
refused."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path

import pytest

from vmtailor.analysis.changes import choice, own_changes
from vmtailor.analysis.guests.machine_variants import USUAL
from vmtailor.base.errors import UserInputError
from vmtailor.model.change import ChangeKind, Setting
from vmtailor.model.machine import Machine
from vmtailor.model.option import Option
from vmtailor.model.option_rows import TRY
from vmtailor.pipeline.change_means import LINES, ONE_LINE, SET, Means, applied

MACHINE = replace(USUAL, kernel="/k", words=("root=/dev/vda", "audit=1", "systemd.mask=cron.service"))
SYSTEM, CONTAINER = Means(Path(), Path(), services=True), Means(Path(), Path(), tuned=True)


def on_machine(*names: str) -> Machine:
    return applied([one.change for one in choice.for_machine(names)], MACHINE, SYSTEM)[0]


def on_bundle(*names: str) -> Machine:
    return applied([one.change for one in choice.for_bundle(names, "6.12")], MACHINE, CONTAINER)[0]


@pytest.mark.parametrize(
    ("typed", "word"),
    [
        ("audit=0", "audit=0"),
        ("nosmt", "nosmt"),
        ("8250.nr_uarts=2", "8250.nr_uarts=2"),
        ("modprobe.blacklist=floppy,parport", "modprobe.blacklist=floppy,parport"),
        ("word:auditt", "auditt"),
        ("word:TERM=linux", "TERM=linux"),
        ("word:a=1+2", "a=1+2"),
        ("libata.force=1:disable", "libata.force=1:disable"),
        ("sysctl:vm.swappiness=10", "sysctl.vm.swappiness=10"),
        ("sysctl.vm.swappiness=10", "sysctl.vm.swappiness=10"),
        ("unit:-foo.service", "systemd.mask=foo.service"),
        ("unit:-getty@tty1.service", "systemd.mask=getty@tty1.service"),
        ("systemd.mask=foo.service", "systemd.mask=foo.service"),
    ],
)
def test_words_settings_and_units_of_a_machine(typed: str, word: str) -> None:
    (one,) = choice.for_machine([typed])
    assert one.change.id == typed.replace("systemd.mask=", "unit:-").removeprefix("word:")
    words = on_machine(typed).words
    assert word in words and "root=/dev/vda" in words
    assert "systemd.mask=cron.service" in words, "another mask stays"
    assert ("audit=1" in words) is not typed.startswith("audit")


@pytest.mark.parametrize("typed", ["audit=0", "nosmt", "modprobe.blacklist=floppy", "word:x", "sysctl.vm.swappiness=1"])
def test_words_of_a_bundle(typed: str) -> None:
    assert on_bundle(typed).words[-1] == typed.removeprefix("word:")


def test_settings_of_a_running_kernel() -> None:
    queue = Setting(ChangeKind.RUNTIME, "/sys/block/vda/queue/scheduler", "none")
    (typed,), (of_catalogue,) = choice.for_bundle(["disk:scheduler=none"], "6.12"), choice.for_machine(["io-scheduler"])
    assert typed.change.settings == of_catalogue.change.settings == (queue,)
    told = on_bundle("disk:scheduler=none", "sysctl:vm.swappiness=10").words[-1]
    assert told == f"{SET}=/sys/block/vda/queue/scheduler=none;/proc/sys/vm/swappiness=10"
    (word,) = [one for one in on_machine("disk:scheduler=none").words if one.startswith("systemd.set_credential")]
    assert word == f'{ONE_LINE}w /sys/block/vda/queue/scheduler - - - - none"'
    words = on_machine("disk:scheduler=none+disk:read_ahead_kb=8", "/proc/sys/vm/swappiness=10").words
    (word,) = [one for one in words if one.startswith("systemd.set_credential")]
    lines = base64.b64decode(word.removeprefix(LINES)).decode()
    assert lines == (
        "w /sys/block/vda/queue/scheduler - - - - none\n"
        "w /sys/block/vda/queue/read_ahead_kb - - - - 8\n"
        "w /proc/sys/vm/swappiness - - - - 10\n"
    )
    assert not set(" \n\"'") & set(word)


def test_a_setting_through_systemd_is_taken_back() -> None:
    changes = [one.change for one in choice.for_machine(["disk:scheduler=none", "disk:nr_requests=64"])]
    both, (first, second) = applied(changes, MACHINE, SYSTEM)
    one, _ = applied([second.back], both, SYSTEM)
    assert one == applied(changes[:1], MACHINE, SYSTEM)[0]
    assert applied([first.back], one, SYSTEM)[0] == MACHINE
    again, (over,) = applied([choice.for_machine(["disk:scheduler=bfq"])[0].change], both, SYSTEM)
    assert over.setting.before == "none" and again != both
    with pytest.raises(UserInputError, match="not in base64"):
        applied(changes, replace(MACHINE, words=(f"{LINES}?",)), SYSTEM)
    for name in ("/sys/../etc/passwd=1", "/sys/x=a\nb"):
        with pytest.raises(UserInputError, match=r"no setting of the kernel|cannot be written"):
            on_machine(name)


@pytest.mark.parametrize(
    ("typed", "why", "hint"),
    [
        ("config:USB=n", "needs another kernel", "--drop USB"),
        ("AUDIT=n", "needs another kernel", "vmtailor boot BUNDLE --try AUDIT=n"),
        ("config:nothing", "needs another kernel", "vmtailor fit"),
        ("kernel:6.1", "no trial", "--kernel FILE"),
        ("unit:+foo.service", "no unit to mask", "unit:-rsyslog.service"),
        ("unit:-*.service", "no unit to mask", "unit:-"),
        ("sysctl:vm.swappiness", "no setting with a value", "vm.swappiness=10"),
        ("sysctl:a=b c", "no spaces", ""),
        ("disk:../x=1", "no setting of a disk", "disk:scheduler=none"),
        ("word:a b", "no change", "kernel word"),
        ("audit=", "no change", "kernel word"),
        ("sysctl.vm.swappiness", "no change", "sysctl:NAME=VALUE"),
        ("sysctl.=1", "no change", "sysctl:NAME=VALUE"),
        ("a\nb=1", "no change", "kernel word"),
        ("io-schedulers", "no change", "did you mean io-scheduler?"),
        ("usb-lat", "no change", "word:usb-lat"),
    ],
)
def test_what_cannot_be_tried_on_a_machine(typed: str, why: str, hint: str) -> None:
    with pytest.raises(UserInputError, match=why) as refused:
        choice.for_machine([typed])
    assert hint in refused.value.hint


@pytest.mark.parametrize(
    ("typed", "why", "hint"),
    [
        ("kernel:6.1", "no trial", "vmtailor refit BUNDLE --kernel 6.1"),
        ("unit:-foo.service", "has no units", ""),
        ("config:usb", "names no symbol", "config:USB=n"),
        ("crypto-selftest", "no change", "did you mean crypto-selftests?"),
    ],
)
def test_what_cannot_be_tried_on_a_bundle(typed: str, why: str, hint: str) -> None:
    with pytest.raises(UserInputError, match=why) as refused:
        choice.for_bundle([typed], "6.12")
    assert hint in refused.value.hint


def test_symbols_of_a_bundle_have_a_long_form() -> None:
    assert choice.for_bundle(["config:USB=n"], "6.12") == choice.for_bundle(["USB=n"], "6.12")
    (both,) = choice.for_bundle(["config:USB=n+audit=0"], "6.12")
    assert [one.change.id for one in both.parts] == ["USB=n", "audit=0"]
    assert own_changes.symbol("config:CONFIG_USB=n") == "CONFIG_USB=n"


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (["audit,rsyslog"], ("audit", "rsyslog")),
        (["random-trust,SLAB_FREELIST_RANDOM=n"], ("random-trust", "SLAB_FREELIST_RANDOM=n")),
        (["AUDIT=n,USB=n", "cc:-O3,audit"], ("AUDIT=n", "USB=n", "cc:-O3", "audit")),
        (["sysctl.vm.swappiness=1,audit"], ("sysctl.vm.swappiness=1", "audit")),
        (["modprobe.blacklist=a,b", "audit"], ("modprobe.blacklist=a,b", "audit")),
        (["word:x=1,2", "disk:scheduler=none"], ("word:x=1,2", "disk:scheduler=none")),
        (["audit,ipv6.disable=1"], ("audit", "ipv6.disable=1")),
    ],
)
def test_a_value_of_the_users_own_may_hold_commas(given: list[str], found: tuple[str, ...]) -> None:
    row: Option = TRY
    assert row.value(given) == found


def test_settings_and_units_go_into_a_systems_fit_and_other_words_do_not() -> None:
    names = [one.change.id for one in choice.for_system(["audit+unit:-foo.service", "sysctl:vm.swappiness=10"])]
    assert names == ["audit+unit:-foo.service", "sysctl:vm.swappiness=10"]
    for wrong in ("audit=0", "init=/bin/sh", "audit+systemd.unit=x"):
        with pytest.raises(UserInputError, match="on a fitted system") as refused:
            choice.for_system([wrong])
        assert "vmtailor boot DISK" in refused.value.hint
    with pytest.raises(UserInputError, match="only words and units"):
        choice.for_system(["disk:scheduler=none"])
    with pytest.raises(UserInputError, match="with a sound card"):
        choice.for_system(["sound"])
