# SPDX-License-Identifier: Apache-2.0
"""What can be tried on a bundle, how it is made, and that a kernel is the same before its addresses are believed."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.fakes.boot_data import GATHERED
from tests.fakes.kernel_tree import read_kconfig
from tests.unit.test_boot_bundle import write_bundle

from vmtailor.analysis.changes import choice
from vmtailor.analysis.changes.change_catalogue import Candidate
from vmtailor.analysis.cost.loops import LoopNames
from vmtailor.analysis.guests.machine_variants import USUAL
from vmtailor.base.errors import HostError, UserInputError
from vmtailor.base.figures import NARROW_SPACE
from vmtailor.base.files import records
from vmtailor.base.terminal import TerminalConsole
from vmtailor.booting.booter import OnProgress
from vmtailor.cli.boots import boot_bundle, boot_machine, boot_requests
from vmtailor.cli.tables.cost_table import show_cost
from vmtailor.drivers.host import bundle_folder
from vmtailor.model.boots.boot import Boot, Milestone, Outcome
from vmtailor.model.boots.boot_cost import BootCost, CostOfFunction
from vmtailor.model.boots.ending import Gathered
from vmtailor.model.boots.series import BootSeries, JudgedBy
from vmtailor.model.boots.workload import FIXED_KEY, Exercised, Run, Workload
from vmtailor.model.change import Change, ChangeKind, Figure, Verdict, exact
from vmtailor.model.machine import Accelerator, Clock, Machine
from vmtailor.pipeline import boot_trials, bundle_kernel, machine_testbed
from vmtailor.pipeline.change_means import KernelRequest, Means, Rebuild, applied
from vmtailor.pipeline.machine_testbed import MachineTestbed
from vmtailor.pipeline.options import BootOptions
from vmtailor.stages import debug_kernel

VM = replace(
    USUAL,
    board="microvm",
    memory_bytes=64 << 20,
    kernel="/bundle/vmlinux",
    words=("quiet",),
    network=False,
    entropy=False,
)


def no_build(asked: KernelRequest) -> Path:
    raise AssertionError("nothing was to be compiled")


def config(one: Candidate) -> tuple[tuple[str, str | None], ...]:
    return tuple((s.name, s.value) for s in one.change.settings if s.kind is ChangeKind.CONFIG)


def change(chosen: Sequence[Candidate], vm: Machine, rebuild: Rebuild) -> Machine:
    return boot_trials.make_on_bundle([one.change for one in chosen], vm, Means(Path(), Path(), rebuild))[0]


def test_choosing() -> None:
    (symbol,) = choice.for_bundle(["CONFIG_AUDIT=n"], "6.12")
    assert (symbol.change.id, config(symbol), symbol.cost.symbols) == ("AUDIT=n", (("AUDIT", "n"),), ("AUDIT",))
    both = choice.for_bundle(["audit", "audit/configuration", "legacy-ptys/configuration", "LOG_BUF_SHIFT=14"], "6.12")
    assert [(r.change.id, config(r)) for r in both] == [
        ("audit", ()),
        ("audit/configuration", (("AUDIT", "n"),)),
        ("legacy-ptys/configuration", (("LEGACY_PTYS", "n"),)),
        ("LOG_BUF_SHIFT=14", (("LOG_BUF_SHIFT", "14"),)),
    ]
    assert both[3].cost.symbols == ()
    assert [one.advice for one in both] == ["audit", "audit", "legacy-ptys", ""]
    (joined,) = choice.for_bundle(["AUDIT=n+IPV6=n+random-trust"], "6.12")
    changes = tuple(config(part) for part in joined.parts)
    assert changes == ((("AUDIT", "n"),), (("IPV6", "n"),), ())
    everything = choice.for_bundle(["all"], "6.12")
    kinds = {
        setting.kind
        for one in everything
        for setting in one.change.settings
        if not choice.obstacle(one.change) and not one.hardware
    }
    assert kinds == {ChangeKind.COMMAND_LINE, ChangeKind.MACHINE, ChangeKind.RUNTIME}
    # What is not tried says why: no units, another kernel, no trial at all.
    by_id = {one.change.id: one.change for one in everything}
    assert "no units" in choice.obstacle(by_id["cron"]) and choice.obstacle(by_id["firmware"])
    assert "compiles another kernel" in choice.impossible(by_id["nfc"])
    assert choice.impossible(by_id["u-boot-lean"]) and not choice.impossible(by_id["audit"])
    assert config(choice.for_bundle(["nfc"], "6.12")[0]) == (("NFC", "n"),)
    # A way of the catalogue that is prose, or of another kernel, is none.
    assert config(choice.for_bundle(["crypto-selftests/configuration"], "6.18")[0]) == (("CRYPTO_SELFTESTS", "n"),)
    for name in ("no/thing", "kernel-debug/configuration", "=n", "audit="):
        with pytest.raises(UserInputError, match="can be tried on a bundle") as caught:
            choice.for_bundle([name], "6.12")
        assert "SYMBOL=VALUE" in caught.value.hint


def test_changes_are_made_on_the_machine() -> None:
    asked: list[dict[str, str]] = []

    def rebuild(request: KernelRequest) -> Path:
        assert not request.flags and not request.patches
        asked.append(dict(request.symbols))
        return Path("/other/vmlinux")

    chosen = choice.for_bundle(["random-trust", "AUDIT=n", "IPV6=n"], "6.12")
    changed = change(chosen, VM, rebuild)
    together = change(choice.for_bundle(["random-trust+AUDIT=n+IPV6=n"], "6.12"), VM, rebuild)
    assert together == changed and asked == [{"AUDIT": "n", "IPV6": "n"}] * 2
    words = tuple(str(setting) for setting in chosen[0].change.settings)
    assert changed.kernel == "/other/vmlinux" and changed.words == (*VM.words, *words)
    assert change(choice.for_bundle(["memory"], "6.12"), VM, no_build) == VM
    means = Means(Path(), Path(), rebuild, {"AUDIT": "y"})
    _, made = boot_trials.make_on_bundle([one.change for one in chosen], VM, means)
    assert [s.before for one in made for s in one.settings if s.kind is ChangeKind.CONFIG] == ["y", "n"]
    assert made[1].back.setting.value == "y"
    for name, why in (("cron", "no units"), ("initrd-small", "RAM disk"), ("firmware", "further options")):
        with pytest.raises(UserInputError, match=why):
            change(choice.for_bundle([name], "6.12"), VM, no_build)
    q35 = replace(USUAL, board="q35", kernel="/k")
    with pytest.raises(UserInputError, match="--machine microvm"):
        change(choice.for_bundle(["pci-or-mmio"], "6.12"), q35, no_build)
    with pytest.raises(UserInputError, match="on a container's bundle only"):
        applied([chosen[1].change], replace(USUAL, kernel="/k"), Means(Path(), Path()))


def test_what_is_for_other_processors_is_refused_by_name() -> None:
    arm64 = replace(VM, board="virt", architecture="arm64", kernel="/bundle/Image")
    names = ("input-probes", "rtc-setup", "pci-or-mmio", "firmware", "kvm-guest/configuration", "input-probes+IPV6=n")
    for name in names:
        change(choice.for_bundle(["random-trust"], "6.12"), arm64, no_build)
        id = name.partition("/")[0].partition("+")[0]
        with pytest.raises(UserInputError, match=rf"^{id} is for x86_64, .*this machine is of arm64"):
            change(choice.for_bundle([name], "6.12"), arm64, no_build)
    assert change(choice.for_bundle(["input-probes"], "6.12"), VM, no_build) != VM
    assert change(choice.for_bundle(["rcu-expedited"], "6.12"), arm64, no_build) != arm64
    # Of all, each that is not for it is left out with its name; the rest can be made.
    left_out = [
        one.advice
        for one in choice.for_bundle(["all"], "6.12")
        if (why := choice.not_for(one.change, "arm64")) and why.startswith(f"{one.advice} is for ")
    ]
    assert {"input-probes", "rtc-setup", "pci-or-mmio"} <= set(left_out)
    assert not {"random-trust", "rcu-expedited", "ipv6", "console-quiet"} & set(left_out)


def test_a_configuration_changed_takes_along_what_depends_on_it() -> None:
    kconfig = read_kconfig()
    fragment = {"EXPERT": "y", "NET": "y", "INET": "y", "IPV6": "y"}
    made, fallen = bundle_kernel.changed(kconfig, fragment, {"INET": "n"}, {})
    assert "IPV6" in fallen and "IPV6" not in dict(made) and dict(made)["NET"] == "y"
    values = kconfig.resolve(made).values
    assert "INET" not in values and values["NET"] == "y"
    made, fallen = bundle_kernel.changed(kconfig, {"EXPERT": "y"}, {"IPV6": "y"}, {})
    assert not fallen and {"NET": "y", "INET": "y", "IPV6": "y"}.items() <= dict(made).items()
    with pytest.raises(UserInputError, match="no configuration symbol NOTHING"):
        bundle_kernel.changed(kconfig, fragment, {"NOTHING": "y"}, {})
    with pytest.raises(UserInputError, match="cannot have DEBUG_BASE"):  # EXPERT selects it
        bundle_kernel.changed(kconfig, fragment, {"DEBUG_BASE": "n"}, {})


def test_a_kernel_like_the_bundles_own_is_not_compiled(tmp_path: Path) -> None:
    write_bundle(tmp_path, "CONFIG_NET=y\n# CONFIG_AUDIT is not set\n")
    loaded = bundle_folder.load_container(tmp_path)
    rebuild = bundle_kernel.Rebuilder(loaded, NoStore(tmp_path))  # type: ignore[arg-type]
    assert rebuild(KernelRequest({"AUDIT": "n", "NET": "y"})) == loaded.kernel


class NoStore:
    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, kind: str, key: str) -> Path:
        raise AssertionError(f"{kind} was asked for")


MAP = "ffffffff81000000 T _text\nffffffff81000000 T startup_64\nffffffff81000100 t one\nffffffff82000000 D data\n"


def test_a_kernel_with_other_functions_is_another_kernel(tmp_path: Path) -> None:
    mine, same, moved, other = (tmp_path / name for name in ("mine", "same", "moved", "other"))
    mine.write_text(MAP)
    same.write_text(MAP.replace("82000000 D", "82000040 D") + "ffffffff83000000 N debug\n")
    moved.write_text(MAP.replace("81000100 t one", "81000110 t one"))
    other.write_text(MAP.replace("t one", "t one.isra.0"))
    assert debug_kernel.require_alike(mine, same) is True
    assert debug_kernel.require_alike(mine, moved) is False
    with pytest.raises(HostError, match=r"1 of 3 .* such as one"):
        debug_kernel.require_alike(mine, other)
    (tmp_path / "empty").write_text("")
    with pytest.raises(Exception, match="names no functions"):
        debug_kernel.require_alike(mine, tmp_path / "empty")


def test_trials_on_a_bench(tmp_path: Path) -> None:
    """Two changes that save, one that breaks the exercise, one that cannot be made; together they save less."""
    cost = {(): 100, ("a",): 90, ("b",): 80, ("a", "b"): 75, ("c",): 10}

    def make(wanted: Sequence[Change], vm: Machine) -> tuple[Machine, tuple[Change, ...]]:
        if wanted[0].id == "d":
            raise UserInputError("not here")
        return replace(USUAL, kernel="/k", words=tuple(one.id for one in wanted)), tuple(wanted)

    def boot(
        machine: Machine, workload: Workload, scratch: Path, *, on_progress: OnProgress | None = None
    ) -> tuple[Boot, Gathered]:
        assert on_progress is not None
        on_progress(1.0)
        outcome = Outcome.WRONG if machine.words == ("c",) else Outcome.READY
        marks = (Milestone("ready", wall_s=1.0),)
        return Boot(outcome, marks, 1.0, instructions=cost[machine.words]), GATHERED

    def on_boot(variant: str, number: int, seconds: float) -> None:
        booted.append(variant)

    booted: list[str] = []
    expected = (exact(Figure.INIT_INSTRUCTIONS, -10.0, "a table"),)
    wanted = [Change(name, name, (), expected=expected if name in "ad" else ()) for name in "abcd"]

    def tried() -> BootSeries:
        base = replace(USUAL, kernel="/k")
        work = Exercised(Run(key=FIXED_KEY), 1.0)
        bench = MachineTestbed("x", base, work, tmp_path, boot, make, 1, JudgedBy.INSTRUCTIONS, on_boot)
        return machine_testbed.tried(bench, wanted)

    found = tried()
    by_id = {one.id: one for one in found.trials}
    assert [(by_id[n].measured[0].value, by_id[n].verdict) for n in "ab"] == [
        (-10, Verdict.BETTER), (-20, Verdict.BETTER),
    ]  # fmt: skip
    assert by_id["a"].expected == expected and by_id["c"].verdict is Verdict.WORSE and by_id["c"].problem == "wrong: "
    assert by_id["d"].problem == "not here" and by_id["d"].expected == () and by_id["d"].measured == ()
    assert by_id["together"].measured[0].value == -25 and found.interaction == -5
    assert booted == ["base", "a", "b", "c", "base", "together", "together"]
    assert tried() == found and len(booted) == 7  # all of it was there
    (tmp_path / "boots.json").write_bytes(records.to_bytes(replace(found, boots=found.boots[1:])))
    assert tried().trials == found.trials and booted[7:] == ["base"]  # what a run lacks, and no more


def test_options_without_a_meaning_are_refused_and_not_passed_over() -> None:
    bundle = Path("b")
    asked = BootOptions(subject=bundle, kernel=Path("k"), disks=(Path("d"),), ready="tcp:80")
    with pytest.raises(UserInputError, match=r"^--kernel, --disk, --ready do not go with b, a bundle with a kernel"):
        boot_bundle.boot_bundle(asked, bundle)
    with pytest.raises(UserInputError, match=r"^--judge cpu, --requests do not go with a boot of .* with --exercise"):
        boot_machine.boot_system(BootOptions(judged_by=JudgedBy.CPU, requests=Path("r")), Path("x"))
    asked = BootOptions(times=1, clock=Clock.INSTRUCTIONS, accelerator=Accelerator.KVM)
    with pytest.raises(UserInputError, match=r"^--repeat, --clock instructions, --accelerator kvm do not go with"):
        boot_requests.boot_requests(asked, Path("r"))
    with pytest.raises(UserInputError, match="--initrd needs --kernel"):
        boot_machine.boot_system(BootOptions(subject=bundle, initrd=Path("i")), Path("x"))


def test_loops_of_emulation_are_named_apart() -> None:
    functions = (
        CostOfFunction("setup_boot_APIC_clock", "arch/x86/kernel/apic/apic.c", "", 90_000_000),
        CostOfFunction("x", "kernel/x.c", "X", 6_000_000),
        CostOfFunction("y", "kernel/y.c", "", 4_000_000),
    )
    cost = BootCost("6.12", 100_000_000, 0, 0, 0, 0, functions, (), ())
    text = io.StringIO()
    loops = (LoopNames("APIC", ("setup_boot_APIC_clock",), "emulated"),)
    show_cost(cost, Path("out"), TerminalConsole(file=text, width=120, highlight=False), loops)
    lines = text.getvalue().replace(NARROW_SPACE, " ").splitlines()
    assert any("10.0 M of them net of loops that only emulation causes (setup_boot_APIC_clock)" in one for one in lines)
    assert any(one.split()[:1] == ["x"] and "60 %" in one for one in lines)  # its share of what counts
    assert any("loops that only emulation causes" in one and "90.0 M" in one and "90 %" in one for one in lines)
    assert any("total" in one and "100.0 M" in one for one in lines)
