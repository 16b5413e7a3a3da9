# SPDX-License-Identifier: Apache-2.0
"""Whole outputs of verbs, from records made by hand: each table as it stands on a terminal, each JSON document as
scripts read it (tests/data/screens)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.fakes.fit_run_data import fit_run

from vmtailor.analysis.changes import symbol_catalogue
from vmtailor.analysis.comparison.budgets import Judged, parse_budget
from vmtailor.analysis.comparison.judged_document import Document
from vmtailor.analysis.cost.attribution import AttributedCost
from vmtailor.analysis.demands import demand_rules
from vmtailor.analysis.explain import answers
from vmtailor.analysis.explain.answers import Explained, NameKind, Standing
from vmtailor.base.cache import entries as caches
from vmtailor.base.cache.entries import CacheEntry
from vmtailor.base.cache.store import Store
from vmtailor.base.errors import AnswerNo
from vmtailor.base.files import records
from vmtailor.base.terminal import TerminalConsole
from vmtailor.cli import analyze, cache, compare, doctor, explain, gate, refit, show, stages, verify
from vmtailor.cli.boots import boot_requests
from vmtailor.cli.fit_record import TraceLines
from vmtailor.cli.tables import call_tables
from vmtailor.model.boots import comparison as compared
from vmtailor.model.boots import timeline as boots
from vmtailor.model.boots.boot import Phase
from vmtailor.model.change import Cause, Change, ChangeKind, Reason, Setting, symbol
from vmtailor.model.checks import Check, Need, State
from vmtailor.model.exercise import Proof
from vmtailor.model.kernel import KernelUse, KernelUses
from vmtailor.model.machine import Clock
from vmtailor.model.margin import Margin
from vmtailor.model.plan import Plan
from vmtailor.model.syscalls import Absence, FailedCall, SyscallEvent
from vmtailor.model.systems import system as parts
from vmtailor.model.trace import FileUse
from vmtailor.model.trial import Verification
from vmtailor.model.watched.system_trace import LoadedFor, ModuleLoad
from vmtailor.pipeline import reverify, work_stages
from vmtailor.pipeline.reverify import PreparedVerify, SavedContainer, SavedSystem, VerifyRequest
from vmtailor.pipeline.second_fit import Replanned

SCREENS = Path(__file__).parent.parent / "data" / "screens"
Screen = Callable[[str], None]


@pytest.fixture
def screen(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Screen:
    """Holds what was printed, on 120 columns, against a file of tests/data/screens."""
    monkeypatch.setenv("COLUMNS", "120")

    def same(name: str) -> None:
        said = "".join(f"{line.rstrip()}\n" for line in capsys.readouterr().out.splitlines())
        assert said == (SCREENS / name).read_text()

    return same


def same_document(found: Any, name: str) -> None:
    assert json.loads(json.dumps(found)) == json.loads((SCREENS / name).read_text())


# ---- refit


def word(name: str, value: str, *reasons: Reason) -> Change:
    return Change(name, "", (Setting(ChangeKind.COMMAND_LINE, name, value),), reasons)


def planned(version: str, prompted: int, *changes: Change) -> Plan:
    return replace(fit_run().plan, kernel_version=version, prompted_y=prompted, total_y=90, changes=changes)


QUIET = word("quiet", "", Reason(Cause.POLICY, "policy:quiet", "each character costs"))
BEFORE = planned(
    "6.12.7", 40,
    symbol("AIO", "y", Reason(Cause.DEMANDED, "trace:requests:9", "the container called io_setup")),
    symbol("LOG_BUF_SHIFT", "12", Reason(Cause.POLICY, "policy:log", "a short log")),
    symbol("CRC32", "y", chosen=False),
    QUIET, word("old", ""),
)  # fmt: skip
AFTER = planned(
    "6.12.9", 41,
    symbol(
        "FUSE_FS", "m", Reason(Cause.DEPENDENCY, "symbol:X", "X needs it"),
        Reason(Cause.DEMANDED, "observed:1", "mount was refused"),
    ),
    symbol("EPOLL", "y"),
    symbol("LOG_BUF_SHIFT", "14", Reason(Cause.PLATFORM, "platform:log", "a long log")),
    symbol("XARRAY", "y", Reason(Cause.DEPENDENCY, "symbol:FUSE_FS", "it selects it"), chosen=False),
    QUIET, word("mitigations", "off", Reason(Cause.POLICY, "user:words", "the user asked for it")),
)  # fmt: skip


def replanned(before: Plan, after: Plan) -> Replanned:
    return Replanned(None, before, after, None, (), ())  # type: ignore[arg-type]


def test_refit_shows_how_the_plan_changes(screen: Screen) -> None:
    found = replanned(BEFORE, AFTER)
    same_document(refit.document(found), "refit.json")
    refit.show(found, TerminalConsole())
    screen("refit.txt")


def test_refit_says_that_nothing_changes(screen: Screen) -> None:
    refit.show(replanned(BEFORE, replace(BEFORE, kernel_version="6.12.8")), TerminalConsole())
    screen("refit-same.txt")


# ---- doctor

CHECKS = (
    Check("qemu", State.OK, Need.REQUIRED, "9.2", "runs the machines", runs=True),
    Check("flex", State.MISSING, Need.REQUIRED, "not found", "compiles", "apt-get install flex", "flex"),
    Check("erofs", State.OLD, Need.OPTIONAL, "1.3", "makes roots", "apt-get install erofs-utils", "erofs-utils"),
    Check("clang", State.MISSING, Need.DEVELOPMENT, "not found", "formats", "apt-get install clang", "clang"),
    Check("space", State.LIMITED, Need.REQUIRED, "3 GB", "a kernel takes 10 GB", "free some"),
    Check("pytest", State.OK, Need.DEVELOPMENT, "8", "tests"),
)


def test_doctor_says_what_to_install(screen: Screen) -> None:
    same_document(doctor.document(CHECKS), "doctor.json")
    doctor.show(CHECKS, TerminalConsole())
    screen("doctor.txt")


def test_doctor_leaves_out_what_works_is_for_on_a_narrow_terminal(screen: Screen) -> None:
    assert doctor.document(CHECKS[:1])["works"] is True
    doctor.show((CHECKS[0], CHECKS[5]), TerminalConsole(width=100))
    screen("doctor-narrow.txt")


# ---- gate


def test_gate_shows_each_budget_with_its_figure(screen: Screen) -> None:
    gate._show_document("judged", Document(Path("run.json"), "5a" * 32, {}, (("vmtailor", "0.2.0"), ("image", "x"))))
    gate._show_document("reference", Document(Path("logs"), "", {}, ()))
    gate._show(
        [
            Judged(parse_budget("kernel_us <= 500ms"), 400_000.0, 500_000.0, True),
            Judged(parse_budget("init_instructions <= +1% of old.json"), 31_000_000.0, 30_000_000.0, False),
            Judged(parse_budget("ready_s_p50 <= 2s"), None, 2.0, False, "there is none"),
        ]
    )
    screen("gate.txt")


# ---- cache


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A cache whose folder has the same name everywhere: one kernel serves eight images, the other one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(caches, "now_s", lambda: 1_000_000.0)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=5_000_000_000))
    store = Store(Path("kept"))
    images = tuple(
        KernelUse(f"oci:image-{number}", f"sha256:{number}", (Margin.REACHABLE,) if number % 2 else ())
        for number in range(8)
    )
    for key, uses in (
        ("ab" * 20, KernelUses("6.12.7", "x86_64", 240, 700, 4_200_000, images, more=3)),
        ("cd" * 20, KernelUses("6.1.9", "arm64", 200, 650, 3_100_000, images[:1])),
    ):
        folder = store.folder("kernel", key)
        records.save(uses, folder / "uses.json")
    return store


def entry(kind: str, name: str, size: int, days_ago: float) -> CacheEntry:
    return CacheEntry(kind, name, Path("kept") / kind / name, size, 1_000_000.0 - 86_400 * days_ago)


ENTRIES = (
    entry("kernel", "one", 1_000_000, 3), entry("kernel", "two", 2_000_000, 1.5), entry("trace", "three", 9_000_000, 5),
    entry("unknown", "four", 10, 0.000_001_43),
)  # fmt: skip


def test_cache_shows_its_kinds_and_the_kernels_that_images_share(kept: Store, screen: Screen) -> None:
    cache._show(kept, ENTRIES)
    cache._show_family(kept)
    screen("cache.txt")


@pytest.mark.parametrize("removed", [True, False])
def test_the_document_of_the_cache(kept: Store, removed: bool) -> None:
    found = cache._document(kept, ENTRIES, ENTRIES[:2], ENTRIES[:1], (17,), removed)
    gone = found.pop("removed" if removed else "surplus")
    assert gone == [{"kind": "kernel", "name": "one", "bytes": 1_000_000, "used": 740_800.0}]
    same_document(found, "cache.json")


# ---- compare


def row(kind: str, name: str, **more: Any) -> compared.Row:
    plain: dict[str, Any] = {
        "occurrence": 1, "before": 1000.0, "after": 3000.0, "change": 2000.0, "low": None, "high": None, "p": None,
        "verdict": "slower",
    }  # fmt: skip
    return compared.Row(kind, name, **(plain | more))


COMPARED = compared.Comparison(
    compared.ComparedSide("old", 5, "6.12.7", "quiet"),
    compared.ComparedSide("new", 0, None, None),
    phases=(
        row("phase", "kernel", low=1500.0, high=2500.0, verdict="slower"),
        row("phase", "userspace", before=None, change=None, verdict="new"),
    ),
    items=(
        row("initcall", "a_init", occurrence=2, verdict="slower"),
        row("initcall", "b_init", after=400.4, change=-599.6, low=-700.0, high=-500.0, verdict="faster"),
        row("initcall", "c_init", after=None, change=None, verdict="gone"),
        row("initcall", "d_init", verdict="in some boots", boots=(2, 0), of=(5, 5)),
        row("initcall", "e_init", verdict="in some boots", boots=(2, 1), of=(5, 4)),
        row("initcall", "f_init", verdict="undecided", direction="slower", moved=True),
        row("initcall", "g_init", verdict="below threshold", direction="faster"),
        row("initcall", "h_init", verdict="moved", before_path="critical", after_path="beside"),
        row("figure", "kernel to init", unit="instructions", verdict="slower"),
        row("figure", "kernel file", unit="bytes", after=500.0, change=-500.0, verdict="faster"),
        row("figure", "bytes read", unit="bytes", verdict="undecided"),
        row(
            "figure", "ready", verdict="undecided",
            before_modes=(compared.RowMode(900.0, 2), compared.RowMode(1100.0, 3)),
        ),
        row("initcall", "i_init", change=0.0, after=1000.0, verdict="same"),
    ),
    config=(
        compared.ConfigChange("SMP", "y", None), compared.ConfigChange("HZ", "100", "250"),
        *(compared.ConfigChange(f"S{number}", None, "m") for number in range(3)),
    ),
    warnings=(boots.Warn("several-boots", "the log holds 2 boots"),),
)  # fmt: skip


def test_compare_shows_each_verdict_in_words(screen: Screen) -> None:
    compare._show(COMPARED, 30, True)
    screen("compare-all.txt")
    compare._show(COMPARED, 5, False)
    screen("compare.txt")


def test_compare_says_that_nothing_changed(screen: Screen) -> None:
    nothing = row("initcall", "a_init", change=0.0, after=1000.0, verdict="same")
    side = compared.ComparedSide("a", 1, "6.1", None)
    compare._show(compared.Comparison(side, side, (), (nothing,), (), (), 0.1, 2500.0), 30, False)
    screen("compare-same.txt")


def test_compare_sets_processors_side_by_side(screen: Screen) -> None:
    found = compared.ProcessorsCompared(
        (
            compared.Platform("fit-x86", "x86_64", "microvm", "6.12.7", True),
            compared.Platform("fit-arm", "arm64", "virt", "6.12.7", False),
            compared.Platform("fit-other", "unheard-of", "board", "6.1", True),
        ),
        (
            compared.PlatformFigure("kernel to init", "instructions", (28_500_000.0, 30_000_000.0, None)),
            compared.PlatformFigure("kernel file", "bytes", (4_200_000.0, 5_000_000.0, 6.0)),
            compared.PlatformFigure("least memory", "bytes", (float(20 << 20), float(24 << 20), None)),
            compared.PlatformFigure("symbols with a prompt", "", (240.0, 250.0, 1.0)),
        ),
        200,
        (
            compared.PlatformSymbol("PVH", ("y", None, None), "the machine starts by it"),
            compared.PlatformSymbol("ARM_GIC", (None, "y", None), ""),
            compared.PlatformSymbol("PCI", (None, "y", "y"), "the machine has a bus"),
        ),
    )
    compare._show_processors(found, TerminalConsole(), 1)
    screen("compare-processors.txt")


# ---- analyze

TIMELINE = boots.Timeline(
    kernel=boots.KernelInfo("6.12.7", "x86_64", "console=ttyS0 quiet", "KVM"),
    machine=boots.MachineInfo("virtual", "KVM", "microvm", cpus=2),
    phases=(
        boots.PhaseSpan("firmware", -300_000, -200_000, "loader"),
        boots.PhaseSpan("loader", -200_000, 0, "loader"),
        boots.PhaseSpan("kernel", 0, 1_000_000, "init was started"),
        boots.PhaseSpan("userspace", 1_000_000, None, "no end"),
        boots.PhaseSpan("ready", 2_000_000, 2_000_000, "login"),
    ),
    initcalls=[boots.Initcall("a_init", None, 1, 0, 5, 5, None, 5, 0)],
    units=[boots.UnitSpan("a.service", 0, 1, 1, 1, None)] * 2,
    hotspots=(
        boots.Hotspot("initcall", "a_init", 500_000, 0.5, 0.25, ("one-cpu", "usb"), 0, 3, "critical", 600_000),
        boots.Hotspot("gap", "x" * 80, 250_000, 0.25, None, (), 0, None, "beside", 250_000, times=4),
        boots.Hotspot("unit", "a.service", 100, None, None),
    ),
    advice=(
        boots.Remedy("one-cpu", "Use one CPU", True, 40_000, "high", "it waits", ("cpus=1", "SMP=n"), "slower"),
        boots.Remedy("usb", "Leave USB out", False, None, "low", "this kernel has none", ("USB=n",), ""),
    ),
    warnings=(boots.Warn("clock-jumps", "the clock jumps by 3 s"),),
    files=(boots.SourceFile("boot.log", "kernel log"), boots.SourceFile("plot.svg", "bootchart")),
    kernel_us=1_000_000, total_us=2_300_000, shown_us=2_300_000, shown_end_us=2_000_000,
)  # fmt: skip


@pytest.mark.parametrize("columns", [80, 120])
def test_analyze_shows_where_the_time_went(columns: int, screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    analyze.show_timeline(TIMELINE, 2)
    screen(f"analyze-{columns}.txt")


def test_analyze_of_a_log_that_says_little(screen: Screen) -> None:
    phases = (boots.PhaseSpan("kernel", 0, None, "no end"),)
    machine = boots.MachineInfo(kind="board", cpus=1)
    analyze.show_timeline(
        boots.Timeline(boots.KernelInfo(), phases, machine=machine, shown_us=70_000, shown_end_us=70_000)
    )
    analyze.show_timeline(boots.Timeline(boots.KernelInfo("6.1")))
    screen("analyze-little.txt")


# ---- show

SYSTEM = parts.System(
    "disk:x.img", parts.SubjectKind.DISK, "x86_64", parts.OsRelease("debian", "12", "bookworm", "Debian 12"),
    parts.Init("/sbin/init", "/lib/systemd/systemd", parts.InitKind.SYSTEMD), "6.1.0-1",
    (
        parts.InstalledKernel("6.1.0-1", "/boot/k", 8_000_000, "/boot/c", "/boot/i", 30_000_000, 900, 70_000_000),
        parts.InstalledKernel("6.0.0-9"),
    ),
    (
        parts.LoaderEntry("Debian", "/boot/k", ("/boot/i",), ("root=UUID=1", "ro", "quiet"), "grub.cfg", True),
        parts.LoaderEntry("Rescue", "/boot/k", (), ("single",), "grub.cfg"),
    ),
    (parts.Mount("UUID=1", "/", "ext4", ("ro", "noatime")),),
    tuple(parts.EnabledUnit(f"unit-{number}.service", "multi-user.target") for number in range(14)),
    masked=("a.service", "b.timer"), default_target="multi-user.target",
    disk=parts.DiskLayout(
        "qcow2", 2_000_000_000, parts.TableKind.GPT,
        (
            parts.Partition(1, 0, 100_000_000, content="vfat", label="EFI"),
            parts.Partition(2, 0, 200_000_000, content="ext4"),
            parts.Partition(3, 0, 1_700_000_000),
        ),
        root=3, boot=2, firmware=("bios", "uefi"),
    ),
    notes=("it was not shut down",),
)  # fmt: skip


@pytest.mark.parametrize("everything", [False, True])
def test_show_prints_the_parts_of_a_system(everything: bool, screen: Screen) -> None:
    show.show_parts(SYSTEM, TerminalConsole(), everything=everything)
    screen(f"show-{'all' if everything else 'parts'}.txt")


def test_show_of_a_bare_system(screen: Screen) -> None:
    init = parts.Init("/init", "/init", parts.InitKind.SCRIPT)
    bare = replace(
        SYSTEM, os=parts.OsRelease("alpine"), init=init, kernel="", kernels=(), entries=(), mounts=(), units=(),
        masked=(), default_target="", notes=(), disk=parts.DiskLayout("raw", 64_000_000, parts.TableKind.NONE, ()),
    )  # fmt: skip
    show.show_parts(bare, TerminalConsole())
    show.show_parts(replace(bare, os=parts.OsRelease(), disk=None), TerminalConsole())
    screen("show-bare.txt")


# ---- trace and plan


def call(name: str, pid: int, seconds: float, error: str = "", *args: str) -> SyscallEvent:
    return SyscallEvent(1, pid, f"task-{pid}", name, args, 0, error, seconds)


CALLS = (
    call("read", 7, 0.000_001, "", "3", '"a"'), call("read", 7, 0.000_004, "EAGAIN", "3", '"b"'),
    call("read", 7, 0.000_004, "EAGAIN", "3", '"c"'), call("open", 7, 0.5, "ENOENT", '"/x"'), call("exit", 9, 0.0),
)  # fmt: skip


@pytest.mark.parametrize("part", [call_tables.Show.SYSCALLS, call_tables.Show.TASKS])
def test_trace_shows_calls_by_name_and_by_task(part: call_tables.Show, screen: Screen) -> None:
    rows = stages._rows(part, CALLS, ())
    call_tables.print_rows(rows, False)
    screen(f"trace-{part}.txt")
    same_document(rows, f"trace-{part}.json")


def test_plan_shows_each_chosen_symbol_with_its_first_reason(
    screen: Screen, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = replace(AFTER, given_up=("X was given up",))
    monkeypatch.setattr(stages, "_folder_of", lambda *_: Path("FOLDER"))
    monkeypatch.setattr(work_stages, "plan", lambda *_: made)
    stages.plan(None)  # type: ignore[arg-type]
    screen("plan.txt")
    stages.plan(None, tmp_path / "plan.json")  # type: ignore[arg-type]
    assert records.load(Plan, tmp_path / "plan.json") == made


FILES = (FileUse("/etc/passwd", 3, 0, False), FileUse("/var/log/x", 1, 2, True))


def test_trace_shows_files_as_rows(screen: Screen) -> None:
    call_tables.print_rows(stages._rows(call_tables.Show.FILES, (), FILES), False)
    call_tables.print_rows([], False)
    screen("trace-files.txt")
    call_tables.print_rows(stages._rows(call_tables.Show.FILES, (), FILES), True)
    screen("trace-files.json")


def test_trace_shows_what_ran_by_phase_the_dearest_first(screen: Screen) -> None:
    rows = (
        AttributedCost(Phase.INIT, "f", "f.c", "F", 10), AttributedCost(Phase.KERNEL, "g", "g.c", "", 5),
        AttributedCost(Phase.INIT, "h", "h.c", "H", 900),
    )  # fmt: skip
    call_tables.print_rows(stages._coverage(cast("Any", SimpleNamespace(costs=SimpleNamespace(rows=rows)))), False)
    assert stages._coverage(cast("Any", SimpleNamespace(costs=None))) == []
    screen("trace-coverage.txt")


# ---- verify


def test_the_words_of_verify_say_what_was_verified_and_where(tmp_path: Path) -> None:
    def words(proof: Proof | None, bundle: Path = Path("b"), disk: Path | None = None) -> tuple[str, str, str]:
        some, exercise = cast("Any", None), cast("Any", SimpleNamespace(proof=proof))
        container = SavedContainer(some, some, True, "x86_64", some, exercise, some)
        subject = SavedSystem(some, some, some, some, some, "") if proof is None else container
        found = verify._words(PreparedVerify(VerifyRequest(bundle, Clock.WALL, disk=disk), subject, Store(tmp_path)))
        return found.works, found.fails, found.hint

    again = "fit the image again"
    fails = "the container does not work in b"
    for proof in (Proof.LOAD, Proof.ENDED):
        assert words(proof) == ("the container works in b, no call newly fails", fails, again)
    assert words(Proof.STARTED) == ("the container starts in b, no call newly fails", fails, again)
    explained = "vmtailor explain b --failure 'MESSAGE' names the symbol; or fit the system again"
    assert words(None) == ("the system works in b, nothing newly fails", "the system does not work in b", explained)
    assert words(None, disk=Path("d"))[1] == "the system does not work in b on the disk d"
    (tmp_path / "work.json").write_text("{}")
    assert words(Proof.LOAD, tmp_path)[2] == "vmtailor plan --keep SYMBOL keeps what it lacks"
    assert words(None, tmp_path)[2] == "vmtailor plan --keep SYMBOL keeps what it lacks"


def test_verify_names_the_programs_that_did_not_run() -> None:
    assert verify._without((), asked=True) == ""
    left = "; without 2 programs that the bundle would run on this host: sh -c x; curl"
    assert verify._without(("sh -c x", "curl"), asked=False).startswith(f"{left} (--exercise FILE")
    assert verify._without(("sh -c x", "curl"), asked=True) == f"{left} (the machine publishes no port)"


def test_verify_names_what_is_absent_and_harmless(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    some = cast("Any", None)
    exercise = cast("Any", SimpleNamespace(proof=Proof.LOAD))
    request = VerifyRequest(Path("b"))
    subject = SavedContainer(some, some, True, "x86_64", some, exercise, some, ("sh -c x",), ("curl",))
    absent = Absence(FailedCall("mount", "/x", "ENODEV", 1), "x", "systems do without")
    found = Verification((), absent=(absent,), skipped=("curl",))
    monkeypatch.setattr(reverify, "prepare", lambda _: PreparedVerify(request, subject, Store(tmp_path)))
    monkeypatch.setattr(reverify, "verify_prepared", lambda _: found)
    verify.verify(request)
    out, err = capsys.readouterr()
    first, *rest = out.splitlines()
    assert first.startswith("✓ verified with load: the container works in b, no call newly fails; without 1 program")
    assert rest[-2:] == ["Start it:", "  vmtailor run b"]
    (tmp_path / "work.json").touch()
    (after,) = verify._next(tmp_path)
    assert after.words == ("vmtailor", "measure", str(tmp_path))
    assert err.splitlines() == [
        "will be run on this host: sh -c x",
        "absent, and harmless: mount(/x): systems do without",
    ]
    verify.verify(request, json=True)
    document = json.loads(capsys.readouterr().out)
    assert (document["schema"], document["verified"], document["proof"]) == (
        "vmtailor/verification/5", True, "exercised with load",
    )  # fmt: skip
    found = Verification(("it is silent",), evidence="last words")
    with pytest.raises(AnswerNo, match=r"the container does not work in b$") as error:
        verify.verify(request)
    assert (error.value.hint, error.value.details) == ("fit the image again", "last words")


# ---- explain


def test_explain_shows_all_symbols_by_cause(screen: Screen) -> None:
    run = replace(fit_run(), unexplained=("MYSTERY",))
    explain.overview(run, Path("b"), TerminalConsole())
    screen("explain-overview.txt")
    same_document(explain.overview_document(run), "explain-overview.json")


@pytest.mark.parametrize("name", ["EPOLL", "BLOCK", "SHMEM"])
def test_explain_says_why_a_symbol_is_in(name: str, screen: Screen, tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_text('{"requests_file": "log"}')
    (tmp_path / "log").write_text("\n" * 411 + "7 epoll_create1(EPOLL_CLOEXEC) = 5")
    found = answers.answer(fit_run(), name, symbol_catalogue.load(), demand_rules.load())
    assert found is not None
    explain.show(found, TraceLines(tmp_path), TerminalConsole())
    screen(f"explain-{name}.txt")


def test_explain_shows_the_facts_and_the_ways_in_of_what_is_out(screen: Screen, tmp_path: Path) -> None:
    demanded = Reason(Cause.DEMANDED, "trace:requests:1", "the container called mount")
    found = Explained(
        "FUSE_FS", NameKind.SYMBOL, Standing.OUT, "FUSE_FS is out: nothing asked for it",
        reasons=(demanded,), chain=(("A", Reason(Cause.DEPENDENCY, "symbol:B", "B depends on it")), ("B", demanded)),
        facts=(("prompt", "FUSE support"), ("ran", "nothing of it")),
        brings_in=("your word: --keep FUSE_FS", "a program that mounts"), related=("VIRTIO_FS", "CUSE"),
    )  # fmt: skip
    explain.show(found, TraceLines(tmp_path), TerminalConsole())
    explain.show(replace(found, standing=Standing.OFF, chain=found.chain[:1]), TraceLines(tmp_path), TerminalConsole())
    screen("explain-out.txt")


# ---- boot --requests


def test_boot_says_what_was_loaded_for_whom_and_what_was_planned(screen: Screen) -> None:
    loads = (
        ModuleLoad("fuse", "fs/fuse/fuse.ko", LoadedFor.REQUEST, "fs-fuse", "snapd", 4),
        ModuleLoad("virtio_net", "drivers/net/virtio_net.ko", LoadedFor.DEVICE, "virtio:d1", "", 2),
    )  # fmt: skip
    seen = SimpleNamespace(calls=1_234_567, processes=1, guest_seconds=20.5, whole=False, skipped=2)
    boot = SimpleNamespace(failures=("x",), problem="never ready")
    record = SimpleNamespace(
        figures=seen, plain_seconds=3.0, events=False, loads=loads, boot=boot, requests_file="requests.strace",
        kernel_programs=(SimpleNamespace(path="/sbin/modprobe", count=3),),
    )  # fmt: skip
    told = cast("Any", record)
    boot_requests.show(told, Path("out"), TerminalConsole())
    boot_requests.show_plan(None, told, Path("out"), TerminalConsole())
    good = cast("Any", SimpleNamespace(**{**vars(record), "boot": SimpleNamespace(failures=())}))
    boot_requests.show_plan(None, good, Path("out"), TerminalConsole())
    boot_requests.show_plan(AFTER, good, Path("out"), TerminalConsole())
    screen("boot-requests.txt")
