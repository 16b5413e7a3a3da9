# SPDX-License-Identifier: Apache-2.0
"""Signs of the catalogue: what each kind finds in a boot, the saving that follows, and the hot spots it explains."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from vmtailor.analysis.changes import advice
from vmtailor.analysis.changes.change_catalogue import KnownChange, Match, Way, read
from vmtailor.analysis.changes.remedy_audience import Audience, Condition
from vmtailor.base.errors import VmtailorError
from vmtailor.model.boots.timeline import (
    ConsoleCost,
    Deferral,
    GapSpan,
    Hotspot,
    Initcall,
    KernelInfo,
    MachineInfo,
    Module,
    PhaseSpan,
    Probe,
    Remedy,
    Timeline,
    UnitSpan,
    UseSample,
)
from vmtailor.model.change import ChangeKind

BOOT = Timeline(
    KernelInfo("6.1", "x86_64", "root=/dev/vda audit=1"),
    phases=(PhaseSpan("kernel", 1000, 901_000, "log"), PhaseSpan("initrd", 901_000, None, "log")),
    initcalls=[
        Initcall("a_init", None, 1, 0, 5000, 4000, "reported", 5000, 0, path="critical"),
        Initcall("b_init", None, 1, 0, 3000, 3000, "reported", 3000, 0, path="beside"),
        Initcall("quick_init", None, 1, 0, 199, 199, "reported", 199, 0, path="critical"),
    ],
    probes=[
        Probe("0:1", "0:1", None, 1, 0, 900, 800, "reported", 900, -19, path="critical"),
        Probe("0:2", "0:2", None, 1, 0, 700, 600, "reported", 700, 0, path="critical"),
        Probe("0:3", "0:3", None, 1, 0, 700, 199, "reported", 700, 0, path="critical"),
    ],
    units=[
        UnitSpan("a.service", 0, 50_000, 50_000, 20_000, "reported", True, 30_000),
        UnitSpan("b.service", 0, 10_000, 10_000, 7000, "reported", False),
        UnitSpan("c.service", 0, 10_000, 10_000, 6000, "reported"),
    ],
    deferrals=(Deferral("1-0", 3, 9000, 0, None, 2000), Deferral("1-1", 1, 10, 0, None)),
    modules=(Module("drm", 0, 8000), Module("none", 0, None)),
    gaps=(
        GapSpan(100_000, 190_000, "x starts", "y", "kernel", "", "", "critical", True, 80_000),
        GapSpan(200_000, 290_000, "w starts", "y", "kernel", "", "", "unknown", True, 70_000),
        GapSpan(300_000, 390_000, "p", "q", "kernel", "dhcp", "waiting for an address", "critical", False, 60_000),
        GapSpan(400_000, 490_000, "initcall x_init returned", "q", "kernel", "", "", "critical", True, 50_000),
    ),
    hotspots=(Hotspot("console", "printing to the console", 87_000, None, None),),
    samples=(UseSample(0), UseSample(1_000_000, waiting=0.5), UseSample(3_000_000, waiting=0.25), UseSample(4_000_000)),
    console=ConsoleCost(10, 1000, 87.0, 87_000, "the log"),
    config={"AUDIT": "y", "HZ": "250", "NR_CPUS": "64"},
    machine=MachineInfo(hypervisor="kvm", cpus=2),
    shown_us=901_000,
)
MESSAGES: Sequence[tuple[int | None, str]] = (
    (1000, "Linux version 6.1"),
    (None, "no stamp begins"),
    (20_000, "test begins"),
    (25_000, "test ends"),
    (800_000, "random: crng init done"),
    (810_000, "test ends"),
)


def entry(*matches: Match, **more: Any) -> KnownChange:
    fields: dict[str, Any] = {
        "id": "x", "title": "X", "looks": "l", "costs": "it costs", "risk": "r", "processors": (),
        "saving": "exclusive", "confidence": "high", "judged_on": "",
        "from_version": "", "until_version": "", "gone": "", "ways": (),
        "unless": (), "trials": (),
    }  # fmt: skip
    return KnownChange(**{**fields, **more}, matches=matches)


def sign(kind: str, pattern: str = ".*", min_us: int = 0, to: str = "", value: str = "") -> Match:
    ends, held = (re.compile(one) if one else None for one in (to, value))
    return Match(kind, re.compile(pattern), min_us, ends, held)


def advised(monkeypatch: pytest.MonkeyPatch, *entries: KnownChange, boot: Timeline = BOOT) -> tuple[Remedy, ...]:
    monkeypatch.setattr(advice, "catalogue", lambda: entries)
    return advice.advise(boot, MESSAGES).advice


@pytest.mark.parametrize(
    ("match", "seen", "saving"),
    [
        (sign("initcall", "[a-z]*_init"), ("initcall a_init", "initcall b_init"), 4000),
        (sign("initcall", "a_ini"), (), None),
        (sign("initcall", ".*", 5000), ("initcall a_init",), 4000),
        (sign("initcall", ".*", 5001), (), None),
        (sign("probe", "0:.*"), ("probe 0:1", "probe 0:2"), 1400),
        (sign("probe", "0:.*", 601), ("probe 0:1",), 800),
        (sign("absent-probe"), ("probe 0:1 returned -19",), 800),
        (sign("absent-probe", ".*", 801), (), None),
        (sign("deferral", ".*", 11), ("probe 1-0 put off 3 times",), 7000),
        (sign("module", "drm"), ("module drm",), 0),
        (sign("module", "drm", 8001), (), None),
        # On the path a unit costs what the path waited for it; beside it nothing; elsewhere its own time.
        (sign("unit", "a.*"), ("unit a.service",), 30_000),
        (sign("unit", "b.*"), ("unit b.service",), 0),
        (sign("unit", "c.*"), ("unit c.service",), 6000),
        (sign("unit", ".*", 10_001), ("unit a.service",), 30_000),
        (sign("gap", "starts$"), ("silence after 'x starts'", "silence after 'w starts'"), 80_000),
        (sign("gap", "w starts"), ("silence after 'w starts'",), None),  # the boot may not have waited for it
        (sign("gap", "x starts", 80_001), (), None),
        (sign("gap", "returned|^p$"), (), None),  # an initcall was over, and a stretch is not silent
        (sign("silence", "dhcp"), ("waiting for an address, after 'p'",), 60_000),
        (sign("silence", "dhcp", 60_001), (), None),
        (sign("silence", ""), (), None),
        (sign("message", "crng"), ("message 'random: crng init done'",), None),
        (sign("message", "test"), ("message 'test begins'",), None),
        (sign("late-message", "crng", 799_000), ("message 'random: crng init done' at 0.800 s",), None),
        (sign("late-message", "crng", 799_001), (), None),
        (sign("span", "begins", 0, "ends"), ("from 'test begins' to 'test ends'",), 5000),
        (sign("span", "begins", 5001, "ends"), (), None),
        (sign("config", "AUDIT|HZ"), ("CONFIG_AUDIT=y", "CONFIG_HZ=250"), None),
        (sign("config", "NR_CPUS", 0, "", r"\d\d\d"), (), None),
        (sign("config", "NR_CPUS", 0, "", r"\d\d"), ("CONFIG_NR_CPUS=64",), None),
        (sign("config-unset", "SOUND"), ("CONFIG_SOUND is not set",), None),
        (sign("config-unset", "AUDIT"), (), None),
        (sign("command-line", "audit=1"), ("command line",), None),
        (sign("command-line", "^audit"), (), None),
        (sign("arch", "x86_64"), ("architecture",), None),
        (sign("arch", "x86"), (), None),
        (sign("phase", "kernel"), ("phase kernel",), 900_000),
        (sign("phase", "initrd"), ("phase initrd",), None),
        (sign("phase-length", "kernel", 900_000), ("phase kernel",), 900_000),
        (sign("phase-length", "kernel", 900_001), (), None),
        (sign("phase-length", "initrd"), (), None),
        (sign("phase", "loader"), (), None),
        (sign("console"), ("console-inflated figures",), None),
        (sign("waiting", ".*", 1_000_000), ("the processors waited for disks during 1.0 s",), None),
        (sign("waiting", ".*", 1_000_001), (), None),
    ],
)
def test_what_a_sign_finds(
    monkeypatch: pytest.MonkeyPatch, match: Match, seen: tuple[str, ...], saving: int | None
) -> None:
    found = advised(monkeypatch, entry(match))
    assert [one.seen for one in found] == ([seen] if seen else [])
    assert [one.saving_us for one in found] == ([saving] if seen else [])


def test_without_a_command_line_no_word_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    bare = msgspec.structs.replace(BOOT, kernel=KernelInfo(), config={})
    for match in (sign("command-line", "."), sign("config-unset", "SOUND"), sign("arch")):
        assert advised(monkeypatch, entry(match), boot=bare) == ()


@pytest.mark.parametrize(
    ("saving", "us"),
    [("exclusive", 4000), ("console", 87_000), ("printing", 87_000), ("none", None), ("phase-part", None),
     ("phase-over", None), ("gap", 4000)],
)  # fmt: skip
def test_how_a_saving_is_worked_out(monkeypatch: pytest.MonkeyPatch, saving: str, us: int | None) -> None:
    assert [one.saving_us for one in advised(monkeypatch, entry(sign("initcall"), saving=saving))] == [us]


def test_what_printing_costs_is_the_larger_of_two_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    long = entry(sign("phase", "kernel"), saving="printing")
    assert advised(monkeypatch, long)[0].saving_us == 900_000
    unknown = msgspec.structs.replace(BOOT, console=None)
    assert advised(monkeypatch, entry(sign("console"), saving="console"), boot=unknown)[0].saving_us is None
    # Nothing saves more than the boot that the files show.
    short = msgspec.structs.replace(BOOT, shown_us=50_000)
    assert advised(monkeypatch, long, boot=short)[0].saving_us == 50_000


def test_a_remedy_says_all_that_its_file_does(monkeypatch: pytest.MonkeyPatch) -> None:
    ways = (
        Way(ChangeKind.CONFIG, "A=n"),
        Way(ChangeKind.COMMAND_LINE, "a=0", "6.2"),
        Way(ChangeKind.COMMAND_LINE, "a=off", "", "6.2"),
        Way(ChangeKind.UNIT, "not here", needs=(Condition(virtual=False),)),
    )
    one = entry(sign("initcall", "a_init"), ways=ways, published=("who: 3 ms",), judged_on="median")
    (found,) = advised(monkeypatch, one)
    assert found == Remedy(
        id="x", title="X", applies=True, saving_us=4000, confidence="high", why="it costs; judge it on the median",
        change=("configuration: A=n", "command line: a=off"), risk="r", seen=("initcall a_init",),
        published=("who: 3 ms",),
    )  # fmt: skip
    (beside,) = advised(monkeypatch, entry(sign("initcall", "b_init"), judged_on="median"))
    assert (beside.saving_us, beside.confidence) == (0, "low") and beside.why.startswith(
        "it costs; here it runs beside"
    )
    (later,) = advised(monkeypatch, entry(sign("initcall"), from_version="6.2"))
    assert (later.applies, later.saving_us, later.why) == (False, None, "it needs kernel 6.2 or later")
    (gone,) = advised(monkeypatch, entry(sign("initcall"), until_version="6.1", gone="it is the default"))
    assert (gone.applies, gone.why) == (False, "it is the default")


def test_only_what_fits_the_machine_is_advised_and_the_largest_saving_stands_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = advised(
        monkeypatch,
        entry(sign("message", "crng"), id="no-figure"),
        entry(sign("initcall"), id="other-processor", processors=("arm64",)),
        entry(sign("initcall"), id="other-machine", audience=Audience((Condition(virtual=False),))),
        entry(
            sign("initcall"), id="more-cpus", audience=Audience((Condition(cpus_at_least=3), Condition(cpus_at_most=1)))
        ),
        entry(sign("initcall"), id="taken-already", unless=(sign("command-line", "audit=1"),)),
        entry(sign("phase", "kernel"), id="gone", until_version="5.0"),
        entry(sign("initcall", "a_init"), id="small", processors=("arm64", "x86_64")),
        entry(sign("module"), id="nothing"),
        entry(
            sign("unit", "a.*"),
            id="large",
            audience=Audience((Condition(cpus_at_least=2, cpus_at_most=2, hypervisors=("kvm",)),)),
        ),
    )
    assert [(one.id, one.saving_us) for one in found] == [
        ("large", 30_000), ("small", 4000), ("nothing", 0), ("no-figure", None), ("gone", None),
    ]  # fmt: skip


def test_only_signs_that_a_remedy_may_speak_of_count(monkeypatch: pytest.MonkeyPatch) -> None:
    never = Audience((Condition(virtual=True),), (Condition(sign=re.compile("begins$|unit b|a_init|1-0|x starts")),))
    ways = tuple(
        Way(ChangeKind.UNIT, word, needs=(Condition(sign=re.compile(word)),)) for word in ("message", "ends", "unit a")
    )
    found = advised(
        monkeypatch,
        entry(sign("message", "test"), id="message", audience=never, ways=ways),
        entry(sign("unit"), id="unit", audience=never, ways=ways),
        entry(sign("initcall"), id="initcall", audience=never),
        entry(sign("deferral", ".*", 11), id="deferral", audience=never),
        entry(sign("gap", "starts$"), sign("gap", "^w"), id="gap", audience=never),
        entry(sign("unit", ".*", 0), id="on-the-path", saving="unit"),
    )
    assert {one.id: one.seen for one in found} == {
        "message": ("message 'test ends'",),
        "unit": ("unit a.service", "unit c.service"),
        "initcall": ("initcall b_init",),
        "gap": ("silence after 'w starts'",),
        "on-the-path": ("unit a.service", "unit b.service", "unit c.service"),
    }
    assert {one.id: one.change for one in found if one.change} == {
        "message": ("unit: message", "unit: ends"),
        "unit": ("unit: unit a",),
    }


def test_a_unit_counts_in_its_phase_and_on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    phases = (PhaseSpan("initrd", 1000, 500_000, "log"), PhaseSpan("userspace", 500_000, None, "log"))
    units = [
        UnitSpan("early.device", 1000, 400_000, 399_000, 399_000, "reported"),
        UnitSpan("late.device", 500_000, 900_000, 400_000, 400_000, "reported", False),
        UnitSpan("unknown.device", None, None, 400_000, 400_000, "reported"),
    ]
    boot = msgspec.structs.replace(BOOT, phases=phases, units=units)
    for match, seen in (
        (Match("unit", re.compile(".*"), phase="initrd"), ("unit early.device",)),
        (Match("unit", re.compile(".*"), phase="userspace"), ()),  # its end is not known
        (Match("unit", re.compile(".*"), phase="loader"), ()),
        (Match("unit", re.compile(".*"), beside=False), ("unit early.device", "unit unknown.device")),
    ):
        assert [one.seen for one in advised(monkeypatch, entry(match), boot=boot)] == ([seen] if seen else []), match


def test_a_silence_counts_by_the_message_that_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind, pattern, end, counts in (
        ("gap", "x starts", "^y", True),
        ("gap", "x starts", "^z", False),
        ("silence", "dhcp", "^q", True),
        ("silence", "dhcp", "^y", False),
    ):
        assert bool(advised(monkeypatch, entry(sign(kind, pattern, 0, end)))) is counts


def test_a_silence_of_two_signs_counts_once_and_has_the_ways_of_both(monkeypatch: pytest.MonkeyPatch) -> None:
    gap = GapSpan(300_000, 390_000, "p", "q", "kernel", "dhcp", "waiting for an address", "critical", True, 60_000)
    ways = tuple(
        Way(ChangeKind.UNIT, word, needs=(Condition(sign=re.compile(word)),)) for word in ("^gap p", "^silence dhcp")
    )
    boot = msgspec.structs.replace(BOOT, gaps=(gap,))
    (found,) = advised(monkeypatch, entry(sign("gap", "p"), sign("silence", "dhcp"), ways=ways), boot=boot)
    assert (found.saving_us, found.change) == (60_000, ("unit: ^gap p", "unit: ^silence dhcp"))


def test_few_signs_are_named_and_each_once(monkeypatch: pytest.MonkeyPatch) -> None:
    many = msgspec.structs.replace(BOOT, config={f"C{n}": "y" for n in range(20)})
    (found,) = advised(monkeypatch, entry(sign("config"), sign("config")), boot=many)
    assert found.seen == tuple(f"CONFIG_C{n}=y" for n in range(8))
    # One silence that two signs find is one saving.
    (twice,) = advised(monkeypatch, entry(sign("gap", "x starts"), sign("gap", "^x")))
    assert twice.saving_us == 80_000


def test_hot_spots_name_the_remedies_that_concern_them(monkeypatch: pytest.MonkeyPatch) -> None:
    spots = (
        Hotspot("initcall", "a_init [mod]", 4000, None, None, duration_us=5000),
        Hotspot("initcall", "quick_init", 10, None, None),
        Hotspot("probe", "0:1", 800, None, None),
        Hotspot("unit", "a.service", 20_000, None, None),
        Hotspot("gap", "waiting for an address", 60_000, None, None),
        Hotspot("gap", "after: x starts", 80_000, None, None),
        Hotspot("gap", "after: initcall x_init returned", 50_000, None, None),
        Hotspot("console", "printing to the console", 87_000, None, None),
    )
    entries = (
        entry(sign("initcall", "[a-z]+_init", 100), id="call"),
        entry(sign("initcall", "a_init", 5001), sign("message", "crng"), id="too-long"),
        entry(sign("initcall", ".*"), id="any"),
        entry(sign("absent-probe", "0:1"), id="absent"),
        entry(sign("probe", "0:1"), id="probe"),
        entry(sign("unit", r"a\.service"), id="unit"),
        entry(sign("silence", "dhcp"), id="silence"),
        entry(sign("gap", "starts"), id="gap"),
        entry(sign("gap", "."), id="every-gap"),
        entry(sign("console", "console"), id="console"),
        entry(sign("initcall", "a_init"), id="gone", until_version="5.0"),
    )
    monkeypatch.setattr(advice, "catalogue", lambda: entries)
    found = advice.advise(msgspec.structs.replace(BOOT, hotspots=spots), MESSAGES).hotspots
    assert {one.name: one.advice for one in found} == {
        "a_init [mod]": ("call",),
        "quick_init": (),
        "0:1": ("probe",),
        "a.service": ("unit",),
        "waiting for an address": ("silence",),  # a stretch is not silent, so the other did not count it
        "after: x starts": ("gap", "every-gap"),
        "after: initcall x_init returned": (),
        "printing to the console": ("console",),
    }


WHOLE = """
id = "x"
title = "X"
looks = "l"
costs = "c"
risk = "r"
processors = ["x86_64"]
saving = "gap"
confidence = "low"
judged_on = "median"
from_version = "4.1"
until_version = "6.2"
gone = "it is the default"
published = ["who: 3 ms"]
seen = [{ hypervisor=true, laptop=false, fips = true, cpus_at_least = 2, cpus_at_most = 8, lacks = "x", arch="arm" }]
never = [{ phone = true, sign = "^unit " }]
way = [{ kind = "config", what = "A=n", from_version = "4.2", until_version = "6.1", needs = { hypervisor = "kvm" } }]
unless = [{ kind = "config", pattern = "A", value = "n" }]
match = [{ kind = "span", pattern = "b", to = "e", min_us = 5 }, { kind = "console", pattern = "." }]

[[trial]]
id = "y"
does = "it is off"
processors = ["x86_64"]
command-line = { a = "0", quiet = true, b = false }
timeline = { units = ["u"], advice = true }
cost = { files = ["f"], share = 0.5 }
"""


def test_a_file_of_the_catalogue_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text(WHOLE)
    found = read(path)
    assert (found.id, found.title, found.looks, found.costs, found.risk) == ("x", "X", "l", "c", "r")
    assert (found.processors, found.saving, found.confidence, found.judged_on) == (("x86_64",), "gap", "low", "median")
    assert (found.from_version, found.until_version, found.gone) == ("4.1", "6.2", "it is the default")
    assert found.published == ("who: 3 ms",)
    assert found.audience.seen == (
        Condition(virtual=True, no_kinds=("laptop",), cpus_at_least=2, cpus_at_most=8, has=("fips",), lacks=("x",),
              arch=("arm",)),
    )  # fmt: skip
    assert found.audience.seen[0].words() == (
        "a virtual machine; no laptop; at least 2 CPUs; at most 8 CPUs; seen: fips; not seen: x; processors arm"
    )
    assert found.audience.never == (Condition(kinds=("phone",), sign=re.compile("^unit ")),)
    assert found.audience.never[0].words() == "a phone; the sign is `^unit `"
    assert found.ways == (Way(ChangeKind.CONFIG, "A=n", "4.2", "6.1", (Condition(hypervisors=("kvm",)),)),)
    (unless,), (span, console) = found.unless, found.matches
    assert (unless.kind, unless.pattern, unless.value) == ("config", re.compile("A"), re.compile("n"))
    assert (span.kind, span.pattern, span.to, span.min_us) == ("span", re.compile("b"), re.compile("e"), 5)
    assert (console.min_us, console.to, console.value) == (0, None, None)
    (trial,) = found.trials
    assert (trial.change.id, trial.change.does, trial.advice, trial.processors) == ("y", "it is off", "x", ("x86_64",))
    assert [(one.kind, one.name, one.value) for one in trial.change.settings] == [
        (ChangeKind.COMMAND_LINE, "a", "0"),
        (ChangeKind.COMMAND_LINE, "quiet", ""),
        (ChangeKind.COMMAND_LINE, "b", None),
    ]
    (reason,) = trial.change.reasons
    assert (reason.reference, reason.text) == ("advice:x", "X")
    assert (trial.timeline.units, trial.timeline.advice, trial.timeline.console) == (("u",), True, False)
    assert (trial.cost.files, trial.cost.share, trial.cost.helpers) == (("f",), 0.5, "")
    for optional in ("judged_on", "from_version", "until_version", "gone", "published", "unless"):
        text = "\n".join(line for line in WHOLE.splitlines() if not line.startswith(f"{optional} ="))
        path.write_text(text)
        assert not getattr(read(path), optional)
    path.write_text(WHOLE.replace(', from_version = "4.2", until_version = "6.1", needs = { hypervisor = "kvm" }', ""))
    assert read(path).ways == (Way(ChangeKind.CONFIG, "A=n"),)
    path.write_text(WHOLE.replace('kind = "console"', 'kind = "conso1e"'))
    with pytest.raises(VmtailorError, match="unknown kind of match 'conso1e'"):
        read(path)
