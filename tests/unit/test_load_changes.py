# SPDX-License-Identifier: Apache-2.0
"""Changes under load: what they are judged by, the flags, settings and patches that they make, and what is refused."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.fakes.boot_data import GATHERED
from tests.fakes.fit_run_data import fit_run
from tests.unit.test_boot_bundle import write_bundle

from vmtailor.analysis.changes import choice, load_catalogue
from vmtailor.analysis.changes.change_catalogue import Candidate
from vmtailor.analysis.changes.effects import Samples, TrialRun, judge
from vmtailor.analysis.cost import load_latency
from vmtailor.analysis.guests.machine_variants import USUAL
from vmtailor.base.cache.store import Store
from vmtailor.base.errors import BuildError, UserInputError, VmtailorError
from vmtailor.base.files import records
from vmtailor.base.files.digests import sha256_of
from vmtailor.base.terminal import TerminalConsole
from vmtailor.booting.booter import OnProgress
from vmtailor.cli.tables import series_table
from vmtailor.cli.unsafe_bundle import show_patches
from vmtailor.drivers.host import bundle_folder
from vmtailor.drivers.host.bundle_folder import seal
from vmtailor.drivers.kernel import compiler_flags, kernel_patches
from vmtailor.drivers.kernel.make import Toolchain
from vmtailor.drivers.targets import targets
from vmtailor.drivers.targets.target import ExportWishes
from vmtailor.model.architecture import presumed
from vmtailor.model.boots.boot import Boot, ContainerRun, Milestone, Outcome, Phase, PhaseCounts
from vmtailor.model.boots.ending import Gathered
from vmtailor.model.boots.load_result import Latencies, LoadResult, LoadStage, bucket_of
from vmtailor.model.boots.series import JudgedBy, Under, judging
from vmtailor.model.boots.workload import FIXED_KEY, Exercised, Run, Workload
from vmtailor.model.bundle import RECORD, Bundle
from vmtailor.model.change import Change, ChangeKind, Figure, Setting, Verdict
from vmtailor.model.exercise import Exercise, Ready, ReadyKind, Step, StepKind
from vmtailor.model.load import Load, LoadPage
from vmtailor.model.machine import Clock, Machine
from vmtailor.model.plan import Plan
from vmtailor.model.systems.kept_changes import Tuning
from vmtailor.pipeline import bundle_export, bundle_kernel, image_bundle, image_changes, machine_testbed
from vmtailor.pipeline.change_means import KernelRequest, Means, applied
from vmtailor.pipeline.machine_testbed import MachineTestbed
from vmtailor.stages import build
from vmtailor.stages.report import report_tables

VM = replace(USUAL, board="microvm", kernel="/bundle/vmlinux", words=("quiet",), network=False, entropy=False)


def one(name: str) -> Candidate:
    (found,) = choice.for_bundle([name], "6.12")
    return found


def test_what_is_judged_by_follows_from_what_is_named() -> None:
    kernel, request = JudgedBy.REQUEST_KERNEL, JudgedBy.REQUEST
    assert judging(None, None) == (JudgedBy.READY,)
    assert judging(None, request) == (request,)
    assert judging(Under.LOAD, None) == (kernel,)
    assert judging(Under.BOTH, None) == (JudgedBy.READY, kernel)
    assert judging(Under.BOTH, JudgedBy.INSTRUCTIONS) == (JudgedBy.INSTRUCTIONS, kernel)
    assert judging(Under.BOTH, request) == (JudgedBy.READY, request)
    assert judging(None, JudgedBy.P99) == (JudgedBy.P99,)
    assert judging(Under.BOTH, JudgedBy.P50) == (JudgedBy.READY, JudgedBy.P50)
    for under, by in ((Under.LOAD, JudgedBy.CPU), (Under.BOOT, request)):
        with pytest.raises(UserInputError, match=f"--judge {by} does not go with --under {under}"):
            judging(under, by)


@pytest.mark.parametrize(
    ("boot", "load", "verdict"),
    [
        (-10, -10, Verdict.BETTER), (0, -10, Verdict.BETTER), (-10, 0, Verdict.BETTER), (0, 0, Verdict.SAME),
        (10, -10, Verdict.WORSE), (-10, 10, Verdict.WORSE),
    ],
)  # fmt: skip
def test_under_both_nothing_may_be_worse(boot: int, load: int, verdict: Verdict) -> None:
    def run(first: int, second: int) -> TrialRun:
        figures = ((Figure.INIT_INSTRUCTIONS, first), (Figure.REQUEST_KERNEL, second))
        return TrialRun((), tuple(Samples(figure, (float(value),), True) for figure, value in figures), 2)

    found = judge(Change("x", "", ()), run(100, 100), run(100 + boot, 100 + load))
    assert found.verdict is verdict and [effect.value for effect in found.measured] == [boot, load]


def test_trials_under_load(tmp_path: Path) -> None:
    """The client's own instructions are left out, and a word that means nothing tells what is no saving."""
    kernel = {(): 7100, ("a",): 6500, ("b",): 7090, ("placebo.a=1",): 7085, ("c",): 7200}

    def make(wanted: Sequence[Change], vm: Machine) -> tuple[Machine, tuple[Change, ...]]:
        return replace(vm, words=tuple(change.id for change in wanted)), tuple(wanted)

    def boot(
        machine: Machine, workload: Workload, scratch: Path, *, on_progress: OnProgress | None = None
    ) -> tuple[Boot, Gathered]:
        load = PhaseCounts(Phase.LOAD, kernel.get(machine.words, 7100), 1200, client_kernel=9000, client_user=90000)
        marks = (Milestone("ready", wall_s=1.0, virtual_ns=10**9),)
        run = ContainerRun(requests=100, answers_right=True)
        return Boot(Outcome.READY, marks, 1.0, phases=(load,), container=run), GATHERED

    base = replace(VM, words=(), clock=Clock.INSTRUCTIONS)
    work = Exercised(Run(key=FIXED_KEY), 1.0)
    bench = MachineTestbed("x", base, work, tmp_path, boot, make, 1, JudgedBy.REQUEST_KERNEL)
    found = machine_testbed.tried(bench, [Change(name, name, ()) for name in "abc"])
    by_id = {trial.id: trial for trial in found.trials}
    assert {name: trial.verdict for name, trial in by_id.items()} == {
        "a": Verdict.BETTER, "b": Verdict.SAME, "c": Verdict.WORSE,
    }  # fmt: skip
    saved = by_id["a"].measures(Figure.REQUEST_KERNEL)
    assert saved is not None and saved.value == -6 and saved.unit == "instructions"
    assert found.judged_by is JudgedBy.REQUEST_KERNEL and found.also is None


def latencies(at_us: int, slow_us: int, slow: int) -> Latencies:
    """Return a thousand answers, some of them slow."""
    pairs = ((at_us, 1000 - slow), (slow_us, slow))
    return Latencies(tuple((bucket_of(us * 1000), count) for us, count in pairs), 0, at_us * 1000, slow_us * 1000)


def test_trials_are_judged_by_a_percentile_of_the_load_at_a_rate(tmp_path: Path) -> None:
    """Of a sweep the first rate counts. What differs by less than a bucket of the histogram is the same."""
    slow = {(): 900, ("a",): 700, ("b",): 902, ("c",): 1200}

    def make(wanted: Sequence[Change], vm: Machine) -> tuple[Machine, tuple[Change, ...]]:
        return replace(vm, words=tuple(change.id for change in wanted)), tuple(wanted)

    def boot(
        machine: Machine, workload: Workload, scratch: Path, *, on_progress: OnProgress | None = None
    ) -> tuple[Boot, Gathered]:
        first = LoadStage(2000.0, 1000, 1000, latencies=latencies(100, slow.get(machine.words, 900), 20))
        later = LoadStage(9000.0, 1000, 1000, latencies=latencies(5000, 90_000, 400))
        peak = LoadStage(None, 1000, 1000, latencies=latencies(2000, 3000, 900))
        loads = (LoadResult(0, (peak,)), LoadResult(1, (first, later)))
        marks = (Milestone("ready", wall_s=1.0, virtual_ns=10**9),)
        counts = PhaseCounts(Phase.LOAD, 7100, 1200, client_kernel=9000, client_user=90000)
        run = ContainerRun(requests=3000, answers_right=True, loads=loads)
        return Boot(Outcome.READY, marks, 1.0, phases=(counts,), container=run), GATHERED

    base = replace(VM, words=(), clock=Clock.INSTRUCTIONS)
    work = Exercised(Run(key=FIXED_KEY), 1.0)
    bench = MachineTestbed("x", base, work, tmp_path, boot, make, 1, JudgedBy.P99)
    found = machine_testbed.tried(bench, [Change(name, name, ()) for name in "abc"])
    by_id = {trial.id: trial for trial in found.trials}
    assert {name: trial.verdict for name, trial in by_id.items()} == {
        "a": Verdict.BETTER, "b": Verdict.SAME, "c": Verdict.WORSE,
    }  # fmt: skip
    saved = by_id["a"].measures(Figure.P99)
    assert saved is not None and saved.unit == "s" and saved.value == pytest.approx(-200e-6, rel=0.01)
    # Beside it: the others that so many answers give. 1000 are too few for a p99.9.
    assert by_id["a"].measures(Figure.P50) is not None and by_id["a"].measures(Figure.P999) is None
    written = io.StringIO()
    series_table.show(found, tmp_path, TerminalConsole(width=200, file=written))
    text = written.getvalue()
    assert "savings in µs" in text and "judged by latency under the load's rate, p99 in virtual time" in text
    assert "what is less is no saving" in text


def test_a_percentile_that_the_load_does_not_give_is_refused_in_one_sentence() -> None:
    def asked(by: JudgedBy, *loads: Load) -> None:
        steps = tuple(Step(StepKind.RATE if one.rate else StepKind.PEAK, load=one) for one in loads)
        load_latency.require_enough((by,), Exercise("web.toml", Ready(ReadyKind.TCP), steps))

    page = (LoadPage(),)
    enough = Load(page, rate=1000.0, seconds=1.0)
    asked(JudgedBy.P99, enough)
    asked(JudgedBy.REQUEST)
    asked(JudgedBy.P50, replace(enough, seconds=0.02))
    asked(JudgedBy.P99, replace(enough, seconds=0.5), replace(enough, seconds=0.5, to_rate=9000.0))
    few = r"^--judge p99 needs 1.000 requests at the rate of a load, and web\.toml asks 999 requests$"
    with pytest.raises(UserInputError, match=few) as caught:
        asked(JudgedBy.P99, replace(enough, rate=999.0))
    assert "seconds = 1" in caught.value.hint
    with pytest.raises(UserInputError, match=r"--judge p99\.9 needs 10.000 requests"):
        asked(JudgedBy.P999, enough)
    with pytest.raises(UserInputError, match=r"is of a load at a rate, and the exercise web\.toml has none$"):
        asked(JudgedBy.P50, Load(page, sessions=4000))


def test_every_change_of_the_catalogue_can_be_made_and_says_what_it_costs() -> None:
    asked: list[KernelRequest] = []

    def rebuild(request: KernelRequest) -> Path:
        asked.append(request)
        return Path("/other/vmlinux")

    means = Means(Path(), Path(), rebuild, tuned=True)
    names = [change.id for change in load_catalogue.catalogue()]
    assert len(names) == len(set(names)) >= 25
    for change in load_catalogue.catalogue():
        assert change.candidate.change.does and change.reason
        assert change.proposed or change.gives_up or change.reason
        machine, (made,) = applied([change.candidate.change], VM, means)
        assert machine != VM and made.settings, change.id
    proposed = {found.change.id for found in load_catalogue.named("load")}
    assert {"optimise-more", "no-route-metrics"} <= proposed
    given_up = {"no-mitigations", "no-lsm", "no-init-on-alloc", "no-usercopy-check", "no-stack-end-check"}
    assert not proposed & given_up and given_up <= set(names)
    patches = {c.id for c in load_catalogue.catalogue() if c.candidate.change.settings[0].kind is ChangeKind.PATCH}
    assert len(patches) >= 3 and not patches & proposed
    flags = [request.flags for request in asked if request.flags]
    assert {"-O3": ""} in flags and {"-march": "x86-64-v3"} in flags
    for flags_of in flags:
        compiler_flags.require_allowed([f"{k}={v}" if v else k for k, v in flags_of.items()])


def test_settings_are_one_word_for_init() -> None:
    means = Means(Path(), Path(), tuned=True)
    first, second = one("/proc/sys/vm/swappiness=10"), one("large-windows")
    machine, (done, more) = applied([first.change, second.change], VM, means)
    (word,) = [word for word in machine.words if word.startswith("VT_SET=")]
    assert " " not in word and word.startswith("VT_SET=/proc/sys/vm/swappiness=10;/proc/sys/net/ipv4/tcp_rmem=4096%20")
    again, (other,) = applied([one("/proc/sys/vm/swappiness=20").change], machine, means)
    assert other.setting.before == "10" and sum(word.startswith("VT_SET=") for word in again.words) == 1
    back, _ = applied([more.back, done.back], machine, means)
    assert back.words == VM.words
    with pytest.raises(UserInputError, match="cannot be applied here yet"):
        applied([first.change], VM, Means(Path(), Path()))
    for name, value in (
        ("/proc/sys/../../etc/passwd", "x"),
        ("/etc/passwd", "x"),
        ("/sys/a", "x;/sys/b=y"),
        ("/sys/a", 'a"'),
    ):
        with pytest.raises(UserInputError, match=r"no setting of the kernel|cannot be written"):
            applied([Change("x", "", (Setting(ChangeKind.RUNTIME, name, value),))], VM, means)


@pytest.mark.parametrize(
    "flag",
    ["-fplugin=/tmp/x.so", "-fplugin=x", "-B/tmp", "-specs=x", "@/tmp/x", "-include", "-O3 -B/tmp", "-wrapper", "-I/x",
     "-fprofile-use=/tmp/x", "-O9", "$(touch x)", "-march=native;x", "-Wp,-I/x", ""],
)  # fmt: skip
def test_no_flag_names_a_file_or_a_program(flag: str) -> None:
    with pytest.raises(UserInputError, match="is no compiler flag that can be tried"):
        compiler_flags.require_allowed(["-O3", flag])


def test_flags_come_last_and_are_of_the_toolchains_identity() -> None:
    plain, more = (
        Toolchain("x86_64", ccache=False),
        Toolchain("x86_64", ccache=False, flags=("-O3", "-march=x86-64-v3")),
    )
    assert more.variables() == [*plain.variables(), "KCFLAGS=-O3 -march=x86-64-v3"]
    debug = replace(more, debug=True).variables()
    assert debug[-2:] == ["KCFLAGS=-g -O3 -march=x86-64-v3", "KAFLAGS=-g"]


def test_clang_is_chosen_by_a_word_among_the_flags() -> None:
    family = presumed()
    made = replace(Toolchain.of(family, flags=("CC=clang-19", "-O3")), ccache=True)
    assert made.programs == ("clang-19", "ld.lld-19") and made.packages == ("clang-19", "lld-19")
    words = made.variables()
    assert {"CC=ccache clang-19", "HOSTCC=ccache gcc", "LLVM=-19", "KCFLAGS=-O3"} <= set(words)
    assert not any(word.startswith("LLVM=") for word in Toolchain.of(family).variables())
    compiler_flags.require_allowed(["CC=clang-19", "-O3"])
    for other in ("CC=clang", "CC=clang-19;x", "CC=/tmp/clang-19", "CC=gcc -B/tmp"):
        with pytest.raises(UserInputError, match="is no compiler flag that can be tried"):
            compiler_flags.require_allowed([other])
    (change,) = choice.for_bundle(["clang-thin-lto"], "6.12")
    kinds = {str(setting): setting.kind for setting in change.change.settings}
    assert kinds == {"CC=clang-19": ChangeKind.COMPILER, "LTO_CLANG_THIN=y": ChangeKind.CONFIG}


def test_patches_are_ours_and_change_nothing_but_the_kernel() -> None:
    every = kernel_patches.every()
    assert len(every) >= 3
    for patch in every.values():
        assert patch.files and patch.gives_up and patch.title
        kernel_patches.require_for([(patch.id, patch.sha256)], "6.12.117", "x86_64")
        with pytest.raises(UserInputError, match="is for kernels from"):
            kernel_patches.require_for([(patch.id, patch.sha256)], "6.18", "x86_64")
    for name in (
        "scripts/mod/modpost.c",
        "tools/x.c",
        "certs/x.c",
        "../x.c",
        "/etc/x.c",
        "Makefile",
        "fs/Makefile",
        "x.c",
    ):
        assert kernel_patches.refusal(name), name
    assert not kernel_patches.refusal("fs/namei.c")
    for wanted in (("none-such", "0" * 64), ("one-user", "0" * 64)):
        with pytest.raises(UserInputError, match="which is none of this program's"):
            kernel_patches.require_ours([wanted], "the bundle")
    with pytest.raises(UserInputError, match="there is no patch 'none-such'"):
        applied([Change("x", "", (Setting(ChangeKind.PATCH, "none-such", ""),))], VM, Means(Path(), Path()))


def test_a_patch_is_laid_beside_the_source_and_never_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, source, out = (tmp_path / name for name in ("data", "source", "out"))
    (source / "fs").mkdir(parents=True)
    data.mkdir()
    (source / "fs/a.c").write_text("one\ntwo\nthree\n")
    diff = "SPDX\n\n--- a/fs/a.c\n+++ b/fs/a.c\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n"
    (data / "two.patch").write_text(diff)
    row = 'id = "two"\ntitle = "t"\ngives_up = "g"\nsha256 = "{}"\nprocessors = "all"\n'
    row += 'from_version = "6"\nuntil_version = "7"\n'
    sha256 = sha256_of(data / "two.patch")
    (data / "two.toml").write_text(row.format(sha256))
    monkeypatch.setattr(kernel_patches, "FOLDER", data)
    kernel_patches.every.cache_clear()
    try:
        kernel_patches.lay([("two", sha256)], source, out)
        assert (out / "fs/a.c").read_text() == "one\n2\nthree\n" and "two" in (source / "fs/a.c").read_text()
        before = (out / "fs/a.c").stat().st_mtime_ns
        kernel_patches.lay([("two", sha256)], source, out)
        assert (out / "fs/a.c").stat().st_mtime_ns == before
        (source / "fs/a.c").write_text("one\nother\nthree\n")
        with pytest.raises(BuildError, match="the patch two does not apply to this source"):
            kernel_patches.lay([("two", sha256)], source, tmp_path / "more")
        assert not (tmp_path / "more").exists()
        (data / "two.toml").write_text(row.format("0" * 64))
        kernel_patches.every.cache_clear()
        with pytest.raises(VmtailorError, match="is not the one that two"):
            kernel_patches.every()
    finally:
        kernel_patches.every.cache_clear()


def test_exports_refuse_a_patched_kernel_unless_its_patches_are_named(tmp_path: Path) -> None:
    ours = tuple((name, kernel_patches.every()[name].sha256) for name in ("one-user", "accept4-flags"))
    write_bundle(tmp_path / "b")
    record = records.load(Bundle, tmp_path / "b" / RECORD)
    seal(tmp_path / "b", replace(record, patches=ours))
    files = bundle_folder.load(tmp_path / "b", Store(tmp_path / "cache"))
    chosen = targets.chosen("qemu")
    with pytest.raises(
        UserInputError, match=r"has patches of its source, which are unsafe: one-user, accept4-flags"
    ) as e:
        bundle_export.prepare(files, chosen, ExportWishes())
    assert "--allow-patched one-user --allow-patched accept4-flags" in e.value.hint
    with pytest.raises(UserInputError, match=r"unsafe: accept4-flags$"):
        bundle_export.prepare(files, chosen, ExportWishes(patches=("one-user",)))
    with pytest.raises(UserInputError, match="has no patch another"):
        bundle_export.prepare(files, chosen, ExportWishes(patches=("one-user", "accept4-flags", "another")))
    with pytest.raises(UserInputError, match="is patched, and none that others may be given"):
        image_bundle.of_bundle(files, Store(tmp_path / "cache"))


@pytest.mark.attack
@pytest.mark.parametrize("patch", [("one-user", "0" * 64), ("../../etc/x", "0" * 64), ("\x1b[31m", "")])
def test_a_bundle_that_names_another_patch_is_refused(patch: tuple[str, str], tmp_path: Path) -> None:
    write_bundle(tmp_path / "b")
    record = records.load(Bundle, tmp_path / "b" / RECORD)
    seal(tmp_path / "b", replace(record, patches=(patch,)))
    with pytest.raises(UserInputError, match="which is none of this program's") as caught:
        bundle_folder.load(tmp_path / "b", Store(tmp_path / "cache"))
    assert "\x1b" not in caught.value.message


def test_a_patched_bundle_is_shown_in_red(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    bundle = SimpleNamespace(patches=(("one-user", ""),))
    show_patches(bundle)  # type: ignore[arg-type]
    said = capsys.readouterr().err
    assert "\x1b[1;31munsafe" in said and "protect no file" in said
    show_patches(SimpleNamespace(patches=()))  # type: ignore[arg-type]
    assert capsys.readouterr().err == ""


def test_a_plan_says_what_its_kernel_was_compiled_with() -> None:
    asked = KernelRequest(flags={"-O3": "", "-march": "x86-64-v3"}, patches={"one-user": "1" * 64})
    made = replace(fit_run().plan, changes=())
    first = replace(made, changes=bundle_kernel.compiler_changes(made, asked))
    assert first.flags == ("-O3", "-march=x86-64-v3") and first.patches == (("one-user", "1" * 64),)
    assert build.toolchain_of(first).flags == first.flags
    other = KernelRequest(flags={"-O3": None, "-march": "x86-64-v2", "-O2": ""})
    second = replace(first, changes=bundle_kernel.compiler_changes(first, other))
    assert second.flags == ("-march=x86-64-v2", "-O2") and second.patches == first.patches
    keys = {build.kernel_key(plan, "source", build.toolchain_of(plan)) for plan in (made, first, second)}
    assert len(keys) == 3
    with pytest.raises(UserInputError, match="no compiler flag"):
        build.toolchain_of(replace(made, changes=(Change("x", "", (Setting(ChangeKind.COMPILER, "-B", "/tmp"),)),)))


def test_a_plan_with_flags_settings_and_patches_is_saved_and_reported_in_red() -> None:
    found = fit_run()
    sha256 = kernel_patches.every()["one-user"].sha256
    asked = KernelRequest(flags={"-O3": ""}, patches={"one-user": sha256})
    compiled = bundle_kernel.compiler_changes(found.plan, asked)
    plan = replace(found.plan, changes=(*found.plan.changes, *compiled))
    assert records.from_bytes(Plan, records.to_bytes(plan)) == plan
    assert plan.symbols == found.plan.symbols and plan.words == found.plan.words and plan.gone == found.plan.gone
    told = image_changes.warnings(plan, Tuning())
    lines = report_tables.doubts(replace(found, plan=plan, warnings=told))
    (line,) = [line for line in lines if "unsafe" in line.plain]
    assert line.plain.startswith("unsafe  ") and "one-user" in line.plain
    assert any("red" in str(span.style) for span in line.spans)
