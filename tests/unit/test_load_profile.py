# SPDX-License-Identifier: Apache-2.0
"""Profiles of a load: from counts of blocks to the flag that names them by their digest."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.fakes.fit_run_data import fit_run
from tests.unit.test_boot_bundle import write_bundle

from vmtailor.analysis.cost import block_ranges
from vmtailor.analysis.cost.plugin_counts import SymbolTable
from vmtailor.analysis.guests.machine_variants import USUAL
from vmtailor.base.cache.store import Store
from vmtailor.base.errors import BuildError, UserInputError
from vmtailor.base.files import records
from vmtailor.drivers.host import bundle_folder
from vmtailor.drivers.host.bundle_folder import BundleFolder, seal
from vmtailor.drivers.kernel import compiler_flags, load_profile
from vmtailor.drivers.kernel.kernel_source import SourceTree
from vmtailor.model.boots.boot import Boot, Outcome
from vmtailor.model.boots.counters import Blocks, Counters, Stretch, Totals
from vmtailor.model.bundle import RECORD, Bundle
from vmtailor.model.exercise import Exercise, Ready, ReadyKind, Step, StepKind
from vmtailor.model.load import Load, LoadPage
from vmtailor.model.machine import Disk
from vmtailor.model.plan import Plan
from vmtailor.pipeline import bundle_kernel, image_changes, keys, profiled_kernel
from vmtailor.pipeline.change_means import KernelRequest
from vmtailor.pipeline.profiled_kernel import CountedLoad
from vmtailor.stages import build

TABLE = SymbolTable.parse(
    "ffffffff81000000 T _stext\nffffffff81000100 T read\nffffffff81000200 t write\nffffffff81000300 T _etext\n"
)
PROFILE = b"read:20:5\n 1: 5\n"
SHA256 = hashlib.sha256(PROFILE).hexdigest()


def counters(*stretches: tuple[str, str, dict[int, int]]) -> Counters:
    """Return counts of six blocks: read's first two, the second one again from its middle, early code at an address of
    write's, a module's, and write's first."""
    places = [0x100, 0x108, 0x10B, 0x200, 0x9000000, 0x200]
    insns, lengths = [2, 3, 2, 1, 1, 1], [[3, 5], [3, 1, 2], [1, 2], [4], [4], [2]]
    blocks = Blocks(
        vaddr=np.array([0xFFFFFFFF81000000 + at for at in places], np.uint64),
        insns=np.array(insns, np.uint32),
        size=np.array([sum(one) for one in lengths], np.uint32),
        early=np.array([False, False, False, True, False, False]),
        ports=np.zeros(6, np.uint16),
        lengths_at=np.cumsum([0, *insns[:-1]], dtype=np.uint32),
        lengths=np.array([one for each in lengths for one in each], np.uint8),
    )
    made = []
    for begin, end, entries in stretches:
        numbers = np.array(list(entries), np.uint32)
        times = np.array(list(entries.values()), np.uint64)
        made.append(Stretch(begin, end, Totals(), (), (), numbers, times, times))
    return Counters(True, True, True, blocks, tuple(made), ())


def test_blocks_of_the_load_are_ranges_and_entries_of_functions() -> None:
    """A range ends where its last instruction begins. Boot, end, early code and modules are left out."""
    counted = counters(
        ("ready", "load", {0: 1000, 5: 1000}),
        ("load", "load_end", {0: 7, 1: 6, 2: 1, 3: 50, 4: 60}),
        ("load_end", "", {1: 1000}),
    )
    assert block_ranges.of_load(counted, TABLE) == (
        "3\n"
        "ffffffff81000100-ffffffff81000103:7\n"
        "ffffffff81000108-ffffffff8100010c:6\n"
        "ffffffff8100010b-ffffffff8100010c:1\n"
        "1\n"
        "1->ffffffff81000100:7\n"
    )


def test_equal_ranges_are_added_up_and_no_load_gives_no_profile() -> None:
    twice = counters(("ready", "load", {}), ("load", "entry", {5: 3}), ("entry", "load_end", {5: 4}))
    assert block_ranges.of_load(twice, TABLE).splitlines()[1:] == [
        "ffffffff81000200-ffffffff81000200:7", "1", "1->ffffffff81000200:7",
    ]  # fmt: skip
    assert block_ranges.of_load(counters(("reset", "ready", {0: 9})), TABLE) == ""
    assert block_ranges.of_load(twice, SymbolTable.parse("ffffffff81000200 t write\n")) == ""


def plan_with(**flags: str) -> Plan:
    asked = KernelRequest(flags={"CC": "clang-19", **flags})
    made = replace(fit_run().plan, changes=())
    return replace(made, changes=bundle_kernel.compiler_changes(made, asked))


def test_the_digest_is_of_the_kernels_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vmtailor.drivers.kernel.make.Toolchain.describe", lambda self: "clang 19")
    plans = [plan_with(), *(plan_with(**{load_profile.FLAG: sha256}) for sha256 in (SHA256, "0" * 64))]
    assert len({build.kernel_key(plan, "source", build.toolchain_of(plan)) for plan in plans}) == 3
    assert f"KCFLAGS={load_profile.FLAG}={SHA256}" in build.toolchain_of(plans[1]).variables()
    assert load_profile.digest_of(plans[1].flags) == SHA256 and load_profile.digest_of(plans[0].flags) is None
    assert build.inputs_of(plans[1], "source").flags == ("CC=clang-19", f"{load_profile.FLAG}={SHA256}")


@pytest.mark.attack
@pytest.mark.parametrize("value", ["/etc/passwd", "x", "../" + "0" * 64, "0" * 63, "A" * 64, "0" * 64 + "/x"])
def test_a_profile_is_named_by_nothing_but_a_digest(value: str, tmp_path: Path) -> None:
    with pytest.raises(UserInputError, match="is no compiler flag that can be tried"):
        compiler_flags.require_allowed([f"{load_profile.FLAG}={value}"])
    with pytest.raises(UserInputError, match="names no profile by its digest"):
        load_profile.lay((f"{load_profile.FLAG}={value}",), Store(tmp_path), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_profile_is_laid_by_its_digest_and_only_with_its_content(tmp_path: Path) -> None:
    store, out, flags = Store(tmp_path / "cache"), tmp_path / "out", (f"{load_profile.FLAG}={SHA256}",)
    with pytest.raises(UserInputError, match=f"the profile {SHA256[:16]} that a kernel is compiled by is not at hand"):
        load_profile.lay(flags, store, out)
    assert load_profile.keep(PROFILE, store) == SHA256
    load_profile.lay(flags, store, out)
    assert (out / SHA256).read_bytes() == PROFILE
    load_profile.lay(("-O3",), store, tmp_path / "none")
    assert not (tmp_path / "none").exists()
    load_profile.kept(SHA256, store).write_bytes(PROFILE + b" 2: 9\n")
    with pytest.raises(UserInputError, match="is not at hand"):
        load_profile.lay(flags, store, tmp_path / "other")


class Kernels:
    """In place of compiling and booting: what was done, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.done: list[str] = []
        self.folder = folder
        monkeypatch.setattr("vmtailor.drivers.kernel.make.Toolchain.describe", lambda self: "clang 19")
        monkeypatch.setattr(build, "build_kernel", self.build)
        monkeypatch.setattr(load_profile, "require_program", lambda llvm: "llvm-profgen")
        monkeypatch.setattr(load_profile, "symbolized", self.symbolized)

    def build(self, plan: Plan, *args: Any, toolchain: Any) -> SimpleNamespace:
        self.done.append(f"compiled {' '.join(toolchain.variables())}")
        (self.folder / "System.map").write_text("ffffffff81000000 T _stext\nffffffff81000300 T _etext\n")
        return SimpleNamespace(image=str(self.folder / "vmlinux"), system_map=str(self.folder / "System.map"))

    def symbolized(self, ranges: str, vmlinux: Path, llvm: str) -> bytes:
        self.done.append(f"{vmlinux.name} {llvm} {ranges.splitlines()[1]}")
        return PROFILE


def test_a_profile_is_made_once_for_a_kernel_and_a_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels, outcome = Kernels(monkeypatch, tmp_path), Outcome.TIMEOUT

    def boot(kernel: Path) -> tuple[Boot, Counters]:
        kernels.done.append(f"booted {kernel.name}")
        return Boot(outcome, (), 1.0), counters(("load", "load_end", {0: 7}))

    store, source = Store(tmp_path / "cache"), SourceTree(tmp_path, "source")
    with pytest.raises(BuildError, match="the boot for the profile did not pass"):
        profiled_kernel.digest_for(plan_with(), source, store, CountedLoad(lambda: "load", boot))
    kernels.done.clear()
    outcome = Outcome.READY
    assert profiled_kernel.digest_for(plan_with(), source, store, CountedLoad(lambda: "load", boot)) == SHA256
    compiled, booted, made = kernels.done
    assert "KCFLAGS=-g -fdebug-info-for-profiling" in compiled and booted == "booted vmlinux"
    assert made == "vmlinux.debug -19 ffffffff81000100-ffffffff81000103:7"
    assert load_profile.kept(SHA256, store).read_bytes() == PROFILE
    profiled_kernel.digest_for(plan_with(), source, store, CountedLoad(lambda: "load", boot))
    assert len(kernels.done) == 3
    profiled_kernel.digest_for(plan_with(), source, store, CountedLoad(lambda: "other", boot))
    profiled_kernel.digest_for(plan_with(**{"-O3": ""}), source, store, CountedLoad(lambda: "load", boot))
    assert len(kernels.done) == 9


@pytest.mark.attack
def test_a_bundle_must_have_the_profile_that_its_plan_names(tmp_path: Path) -> None:
    write_bundle(tmp_path / "b")
    record = records.load(Bundle, tmp_path / "b" / RECORD)
    store = Store(tmp_path / "cache")

    def bring(sha256: str) -> None:
        seal(tmp_path / "b", record)
        loaded = bundle_folder.load(tmp_path / "b", store)
        assert isinstance(loaded, BundleFolder)
        bundle_kernel.bring_profile(loaded, plan_with(**{load_profile.FLAG: sha256}), store)

    with pytest.raises(UserInputError, match=f"has not the profile {SHA256[:16]} that its kernel was compiled by"):
        bring(SHA256)
    (tmp_path / "b" / load_profile.FILE).write_bytes(PROFILE)
    bring(SHA256)
    assert load_profile.kept(SHA256, store).read_bytes() == PROFILE
    with pytest.raises(UserInputError, match="has not the profile 0000000000000000"):
        bring("0" * 64)
    binary = b"\xff5FORP42" + bytes(40)
    (tmp_path / "b" / load_profile.FILE).write_bytes(binary)
    with pytest.raises(UserInputError, match="is no profile of a load"):
        bring(hashlib.sha256(binary).hexdigest())


def test_a_host_without_llvm_profgen_compiles_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    load = CountedLoad(lambda: "load", lambda kernel: pytest.fail("booted"))
    with pytest.raises(UserInputError, match="llvm-profgen-19") as caught:
        profiled_kernel.digest_for(plan_with(), SourceTree(tmp_path, "source"), Store(tmp_path / "cache"), load)
    assert "llvm-19" in (caught.value.hint or "") and "\n" not in caught.value.message


def test_a_request_for_a_profile_compiles_by_its_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    planned = SimpleNamespace(changes=())

    def plan(self: Any, request: KernelRequest) -> Any:
        asked.append(dict(request.flags))
        return planned, SimpleNamespace(path=tmp_path, digest="source"), ()

    monkeypatch.setattr(bundle_kernel.Rebuilder, "_planned", plan)
    monkeypatch.setattr(bundle_kernel.Rebuilder, "compiled", {})
    monkeypatch.setattr(profiled_kernel, "digest_for", lambda *args: SHA256)
    monkeypatch.setattr(build, "build_kernel", lambda *args: SimpleNamespace(image="/other/vmlinux"))
    loaded, request = SimpleNamespace(config={}), KernelRequest(flags={"CC": "clang-19", load_profile.FLAG: "load"})
    load = CountedLoad(lambda: "load", lambda kernel: pytest.fail("booted"))
    rebuild = bundle_kernel.Rebuilder(loaded, Store(tmp_path), load)  # type: ignore[arg-type]
    assert rebuild(request) == Path("/other/vmlinux")
    assert asked == [{"CC": "clang-19", load_profile.FLAG: value} for value in (None, SHA256)]
    without = bundle_kernel.Rebuilder(loaded, Store(tmp_path))  # type: ignore[arg-type]
    with pytest.raises(UserInputError, match="a profile is made of a load, and this exercise has none"):
        without(request)


def test_a_fit_counts_the_load_of_its_own_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key of the load names what is on the disk, the exercise and the machine, and no path."""
    loads: list[CountedLoad] = []

    def named(asked: KernelRequest, planned: Any, store: Store, load: CountedLoad) -> KernelRequest:
        loads.append(load)
        return asked

    monkeypatch.setattr(profiled_kernel, "named", named)
    monkeypatch.setattr(keys, "of_run", lambda _judge, machine, exercise, natives: "-".join(
        (keys.of_machine(machine), records.to_bytes(exercise).decode(), str(natives))
    ))  # fmt: skip
    (tmp_path / "kernel").write_text("kernel")
    subject = SimpleNamespace(scratch=tmp_path, store=Store(tmp_path / "cache"), natives="natives")
    wanted = KernelRequest(flags={load_profile.FLAG: load_profile.LOAD})
    once = Exercise("web.toml", Ready(ReadyKind.TCP), (Step(StepKind.PEAK, load=Load((LoadPage(),), sessions=4)),))

    def count(content: str, exercise: Exercise, words: tuple[str, ...] = ()) -> CountedLoad:
        disk = tmp_path / f"root-{len(loads)}"
        disk.write_text(content)
        machine = replace(
            USUAL, board="microvm", kernel=str(tmp_path / "kernel"), words=words, disks=(Disk(str(disk)),)
        )
        fitted = SimpleNamespace(machine=machine)
        changes = image_changes.NamedChanges(SimpleNamespace(subject=subject), fitted, exercise, 1)  # type: ignore[arg-type]
        assert changes._with_profile(KernelRequest(flags={"-O3": ""})).flags == {"-O3": ""}
        changes._with_profile(wanted)
        return loads[-1]

    first = count("root", once)
    assert count("root", once).key() == first.key()
    twice = replace(once, load=(*once.load, *once.load))
    assert (
        len({one.key() for one in (first, count("other", once), count("root", twice), count("root", once, ("a",)))})
        == 4
    )
    assert count("root", replace(once, load=())) is None


@pytest.mark.parametrize(
    "data",
    [b"", b"\n", b"read:20\n", b"read:20:5\n 1: x\n", b"read:20:5\n" + b" " * 65 + b"1: 5\n",
     b"\xff5FORP42" + bytes(40), b" 1: 5\n", b"read:20:5\n 1: 5 call:5 \x00:1\n"],
)  # fmt: skip
@pytest.mark.attack
def test_what_is_no_profile_as_text_is_never_given_to_a_compiler(data: bytes) -> None:
    assert not load_profile.is_profile(data)
    assert load_profile.is_profile(PROFILE + b"write.part.0:9:1\n 3.2: 4 read:4 _x$y:1\n 4: inlined:7\n  1: 7\n")
