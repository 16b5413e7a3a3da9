# SPDX-License-Identifier: Apache-2.0
"""Advice fits the machine at hand: for each machine of tests/data/profiles what must be named, and what must not."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from vmtailor.analysis.bootlog import machine_facts, silences
from vmtailor.analysis.changes.change_catalogue import catalogue
from vmtailor.analysis.changes.remedy_audience import Condition, any_met, condition_of
from vmtailor.analysis.timeline.boot_timeline import analyze
from vmtailor.model.boots.timeline import MachineInfo, MachineKind

PROFILES = Path(__file__).resolve().parents[1] / "data" / "profiles"
EXPECTED: dict[str, dict[str, Any]] = tomllib.loads((PROFILES / "expected.toml").read_text())


def test_each_log_has_its_row() -> None:
    assert {path.stem for path in PROFILES.glob("*.log")} == set(EXPECTED)
    assert len(EXPECTED) >= 12
    known = {entry.id for entry in catalogue()}
    assert not {id for row in EXPECTED.values() for id in (*row["must"], *row["must_not"])} - known


@pytest.mark.parametrize("name", EXPECTED)
def test_the_machine_is_recognised(name: str) -> None:
    machine = analyze([PROFILES / f"{name}.log"]).machine
    row = EXPECTED[name]
    assert (machine.kind, machine.hypervisor, machine.cpus) == (row["kind"], row.get("hypervisor"), row["cpus"])


@pytest.mark.parametrize("name", EXPECTED)
def test_its_remedies(name: str) -> None:
    timeline = analyze([PROFILES / f"{name}.log"])
    named = {remedy.id: remedy for remedy in timeline.advice if remedy.applies}
    row = EXPECTED[name]
    assert not set(row["must"]) - set(named)
    assert not set(row["must_not"]) & set(named), {id: named[id].seen for id in row["must_not"] if id in named}
    for id, most in row.get("most_us", {}).items():
        saving = named[id].saving_us
        assert saving is not None and 0 < saving <= most
    shown = timeline.shown_us
    assert shown is not None
    for remedy in named.values():
        assert remedy.saving_us is None or remedy.saving_us < shown  # never all of it
        for phase in timeline.phases:
            if remedy.saving_us and phase.start_us is not None and phase.end_us is not None:
                assert remedy.saving_us != phase.end_us - phase.start_us  # nor a whole phase


def test_a_way_is_for_machines_that_have_what_it_presumes() -> None:
    board = {r.id: r for r in analyze([PROFILES / "board-imx.log"]).advice}
    steps = [step for remedy in board.values() for step in remedy.change]
    assert not [step for step in steps if "microvm" in step or "VIRTIO" in step or "vda" in step]
    laptop = [step for r in analyze([PROFILES / "laptop.log"]).advice for step in r.change]
    assert not [step for step in laptop if "-machine" in step or "virtio" in step.lower()]


def test_boards_are_told_what_others_measured() -> None:
    named = {r.id: r for r in analyze([PROFILES / "board-imx.log"]).advice}
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
