# SPDX-License-Identifier: Apache-2.0
"""A bundle in use: what `run` starts, what its boots are given, and what is known of its kernel. Nothing is booted."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.fakes import kernel_tree
from tests.fakes.bundle_data import EXERCISE, SOURCE_DIGEST, write_bundle
from tests.fakes.fit_run_data import fit_run

from vmtailor.base.cache.store import Store
from vmtailor.base.errors import GuestError, UserInputError
from vmtailor.base.files import records
from vmtailor.base.natives import Natives
from vmtailor.booting import bundle_booter, system_console
from vmtailor.booting.bundle_booter import BundleBooter
from vmtailor.booting.fitted_machine import Chosen
from vmtailor.booting.run_orders import RunOrders
from vmtailor.drivers.distribution import packaged_baseline
from vmtailor.drivers.host import bundle_folder, tty
from vmtailor.drivers.host.bundle_folder import BundleFolder, seal
from vmtailor.drivers.kernel.kernel_source import SourceTree
from vmtailor.drivers.monitors import monitors
from vmtailor.drivers.monitors.supervised_start import RUN_VOLUME, SupervisedStart
from vmtailor.model.boots.boot import Boot, Outcome
from vmtailor.model.boots.ending import Gathered
from vmtailor.model.boots.workload import FIXED_KEY, NETWORK, Exercised, Run, Terminal
from vmtailor.model.bundle import SYSTEM, Bundle
from vmtailor.model.guest_mounts import Share
from vmtailor.model.image import ImageConfig, Port
from vmtailor.model.machine import Accelerator, Clock, Disk, DiskFormat, DiskMode, Machine, PublishedPort
from vmtailor.pipeline import bundle_boots, bundle_kernel, machine_run, run_ports
from vmtailor.pipeline.change_means import KernelRequest
from vmtailor.pipeline.machine_run import RunOptions, run, run_of
from vmtailor.stages import build, debug_kernel
from vmtailor.stages import kernel_plan as planning
from vmtailor.stages.boot import boot_attribution
from vmtailor.stages.boot.boot_attribution import Known

pytestmark = pytest.mark.usefixtures("own_cache")
PORT = PublishedPort("127.0.0.1", 8080, 80)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_bundle(
        tmp_path / "bundle", cpus=4, memory_bytes=64 << 20,
        image=ImageConfig("amd64", entrypoint=("/entry",), exposed_ports=(Port(80),)),
    )  # fmt: skip


# ---- run


def noting(seen: list[Any], answer: object) -> Callable[..., Any]:
    """Return a function that notes what it is given, and gives this answer."""

    def noted(*given: Any) -> Any:
        seen.append(given)
        return answer

    return noted


class Started(Exception):
    """The machine that would have been started, with all that is given to whoever relays it."""

    def __init__(self, machine: Machine, *given: Any) -> None:
        self.machine, self.given = machine, given


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine gets as far as its start."""

    def started(*given: Any, **named: Any) -> Any:
        raise Started(*given, *named.values())

    asked: list[Machine] = []

    def supervised(machine: Machine, shares: tuple[Share, ...] = ()) -> SupervisedStart:
        asked.append(machine)
        return SupervisedStart(("launch",), "qemu")

    def ordered(*given: Any, **named: Any) -> Any:
        raise Started(asked[-1], RunOrders(*given, **named))

    monkeypatch.setattr(monitors.usual(), "supervised", supervised)
    monkeypatch.setattr(machine_run, "RunOrders", ordered)
    monkeypatch.setattr(system_console, "attached", started)
    monkeypatch.setattr(run_ports, "chosen", lambda ports: ports)


def start(options: RunOptions) -> Started:
    with pytest.raises(Started) as caught:
        run(replace(options, accelerator=options.accelerator or Accelerator.TCG))
    return caught.value


@pytest.mark.usefixtures("starts")
def test_run_starts_the_bundles_machine_as_it_is(folder: Path) -> None:
    started = start(RunOptions(folder))
    assert started.machine == Machine(
        board="microvm", memory_bytes=64 << 20, kernel=str(folder / "vmlinux"),
        words=("root=/dev/vda", "quiet", "clearcpuid=141", "VT_RUN=1"),
        disks=(Disk(str(folder / "root.erofs")), Disk(RUN_VOLUME, mode=DiskMode.WRITTEN)),
        network=True, cpus=4, cpu_model="max", clock=Clock.WALL,
        outbound=True, architecture="x86_64",
    )  # fmt: skip
    orders = started.given[0]
    assert (orders.stop_signal, orders.grace_s, orders.start_s) == (15, 10.0, 120.0)
    assert not (orders.interactive or orders.terminal or orders.once_up or orders.told)


@pytest.mark.usefixtures("starts")
def test_run_starts_the_machine_as_it_was_asked_for(folder: Path) -> None:
    asked = RunOptions(
        folder, ("x",), (PORT,), memory_bytes=48 << 20, cpus=2, accelerator=Accelerator.KVM, outbound=False,
        stop_signal="INT", stop_timeout_s=math.inf, interactive=True, terminal=True,
    )  # fmt: skip
    started = start(asked)
    machine = started.machine
    assert (machine.memory_bytes, machine.cpus, machine.ports) == (48 << 20, 2, (PORT,))
    assert (machine.accelerator, machine.cpu_model, machine.outbound) == (Accelerator.KVM, "host", False)
    assert machine.words == ("root=/dev/vda", "quiet", "VT_RUN=1")  # KVM needs no words for mistakes of the emulator
    assert start(replace(asked, outbound=True, host_loopback=True)).machine.host_loopback
    wishes = started.given[0]
    assert (wishes.stop_signal, wishes.grace_s, wishes.start_s) == (2, math.inf, 120.0)
    assert wishes.interactive and wishes.terminal and not wishes.told


@pytest.mark.usefixtures("starts")
def test_less_memory_than_was_ever_enough_is_waited_for_less(folder: Path) -> None:
    found = fit_run()
    records.save(replace(found, tailored=replace(found.tailored, min_memory_bytes=27 << 20)), folder / "run.json")
    seal(folder, records.load(Bundle, folder / "bundle.json"))
    assert start(RunOptions(folder, memory_bytes=20 << 20)).given[0].start_s == 30.0
    assert start(RunOptions(folder, memory_bytes=27 << 20)).given[0].start_s == 120.0


@pytest.mark.usefixtures("starts")
def test_a_system_is_started_with_its_console_and_its_ports(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / SYSTEM).write_text("{}")
    (folder / "disk.qcow2").write_text("disk")
    made = records.load(Bundle, folder / "bundle.json")
    seal(folder, replace(made, root="disk.qcow2", image=None))
    free = PublishedPort("127.0.0.1", 0, 80)
    monkeypatch.setattr(run_ports, "chosen", lambda ports: (PORT,) if ports == (free,) else ())
    started = start(RunOptions(folder, ports=(free,), interactive=True))
    disk = Disk(str(folder / "disk.qcow2"), DiskFormat.QCOW2, DiskMode.OVERLAID)
    assert (started.machine.disks, started.machine.ports, started.given[1]) == ((disk,), (PORT,), True)
    assert "8080" in capsys.readouterr().err
    kept = Disk(str(folder / "state.qcow2"), DiskFormat.QCOW2, DiskMode.WRITTEN)

    @contextlib.contextmanager
    def state(files: BundleFolder) -> Iterator[Disk]:
        assert files.path == folder
        yield kept

    monkeypatch.setattr(machine_run, "kept_state", state)
    assert start(RunOptions(folder, keep_state=True)).machine.disks == (kept,)


IMAGE = ImageConfig("amd64", entrypoint=("/entry",), cmd=("default",))


@pytest.mark.parametrize(
    ("entrypoint", "command", "argv"),
    [
        (None, (), None),
        (None, ("x", "y"), ("/entry", "x", "y")),
        ("/other", (), ("/other",)),
        ("/other", ("x",), ("/other", "x")),
        ("", (), ("default",)),
        ("", ("x",), ("x",)),
    ],
)
def test_the_command_of_a_run(entrypoint: str | None, command: tuple[str, ...], argv: tuple[str, ...] | None) -> None:
    assert run_of(RunOptions(Path(), command, entrypoint=entrypoint), IMAGE, False).argv == argv


@pytest.mark.parametrize("entrypoint", [None, ""])
def test_a_run_of_nothing_is_refused(entrypoint: str | None) -> None:
    with pytest.raises(UserInputError, match="no command to run") as error:
        run_of(RunOptions(Path(), entrypoint=entrypoint), ImageConfig("amd64"), False)
    assert "--entrypoint" in error.value.hint
    assert run_of(RunOptions(Path(), ("x",), entrypoint=entrypoint), ImageConfig("amd64"), False).argv == ("x",)


def test_the_orders_of_a_run_are_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tty, "size", lambda: (24, 80))
    (tmp_path / "env").write_text("A=file\nB=file\n")
    asked = RunOptions(
        Path(), env=("A=1",), env_files=(tmp_path / "env",), user="web", cwd="/w", hostname="h", interactive=True,
        terminal=True, privileged=False,
    )  # fmt: skip
    found = run_of(asked, IMAGE, True, True)
    assert dict(found.env) == {"A": "1", "B": "file"}
    assert (found.user, found.cwd, found.hostname, found.stdin) == ("web", "/w", "h", True)
    assert (found.terminal, found.network, found.privileged) == (Terminal(24, 80), NETWORK, False)
    plain = run_of(RunOptions(Path()), IMAGE, False, True)
    assert (plain.env, plain.user, plain.cwd, plain.hostname, plain.stdin) == ((), None, None, None, False)
    assert (plain.terminal, plain.network, plain.privileged) == (None, None, True)
    assert not run_of(RunOptions(Path()), IMAGE, False).privileged


def test_what_a_bundle_does_not_take_is_refused_with_its_name(folder: Path) -> None:
    with pytest.raises(UserInputError) as error:
        run(RunOptions(folder, keep_state=True))
    assert error.value.message == f"--keep-state does not go with {folder}, the bundle of a container"


# ---- boots


@pytest.fixture
def booted(folder: Path, tmp_path: Path) -> bundle_boots.Booted:
    return bundle_boots.prepare(folder, Chosen(memory_bytes=48 << 20), 9.0, Natives(tmp_path), Store())


def boots_with(
    monkeypatch: pytest.MonkeyPatch, counters: object, console: bytes = b"", instructions: int | None = 5
) -> list[tuple[Any, ...]]:
    seen: list[tuple[Any, ...]] = []

    def boot(
        machine: Machine, workload: Any, scratch: Path, *, counting: Any, on_progress: Any
    ) -> tuple[Boot, Gathered]:
        seen.append((machine, workload, scratch, counting, on_progress))
        gathered = replace(cast("Any", GATHERED), console=console, counters=counters)
        return Boot(Outcome.READY, (), 1.0, instructions=instructions, kernel_warnings=("w",)), gathered

    monkeypatch.setattr(bundle_booter, "boot", boot)
    return seen


GATHERED = Gathered(cast("Any", None), 0.0)


def test_a_bundle_is_booted_with_its_exercise_and_the_same_bytes(booted: bundle_boots.Booted) -> None:
    assert booted.workload == Exercised(Run(exercise=EXERCISE, key=FIXED_KEY), 9.0)
    assert booted.machine.memory_bytes == 48 << 20 and booted.machine.words[-1] == "printk.time=1"


def test_boots_of_a_bundle_count_on_the_instruction_clock_alone(
    booted: bundle_boots.Booted, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    marked: Any = SimpleNamespace(at=lambda name: 1 if name == "init" else None)
    seen = boots_with(monkeypatch, marked, b"calling  0xffffffff81000000 @ 1\n\xff")
    heard: list[float] = []
    found, gathered = booted.booter(booted.machine, booted.workload, tmp_path, on_progress=heard.append)
    assert found.kernel_warnings == ("w",) and gathered.counters is marked
    assert "\ufffd" in gathered.console.decode()
    assert seen[0] == (booted.machine, booted.workload, tmp_path, None, heard.append)
    booted.booter(booted.on(Clock.INSTRUCTIONS).machine, booted.workload, tmp_path)
    counting = seen[1][3]
    assert counting.natives == booted.natives and counting.config.architecture == "x86_64"
    assert counting.table is not None and counting.config.devices
    boots_with(monkeypatch, SimpleNamespace(at=lambda name: None))
    found, _ = booted.booter(booted.machine, booted.workload, tmp_path)
    assert found.kernel_warnings == ("w", bundle_booter.OTHER_INIT)


def test_a_recompiled_kernel_is_read_with_the_table_beside_it(booted: bundle_boots.Booted, tmp_path: Path) -> None:
    booter = BundleBooter(booted.loaded, booted.natives)
    other = tmp_path / "other"
    other.mkdir()
    (other / "System.map").write_text("ffffffff81000000 T _text\nffffffff81000040 T another\n")
    own = booter.table(str(booted.loaded.kernel))
    found = booter.table(str(other / "vmlinux"))
    assert "another" in found.addresses and "another" not in own.addresses
    (other / "System.map").unlink()
    assert booter.table(str(other / "vmlinux")) is found


def test_a_bundles_machine_has_a_kernel_and_no_words_for_its_monitor(booted: bundle_boots.Booted) -> None:
    assert bundle_booter.kernel_of(booted.machine) == str(booted.loaded.kernel)
    for wrong in ({"kernel": None}, {"extras": ("-x",)}, {"firmware": "other"}):
        with pytest.raises(UserInputError, match="a bundle's machine"):
            bundle_booter.kernel_of(replace(booted.machine, **cast("Any", wrong)))


def test_a_counted_boot_keeps_its_console_and_says_where_it_is(
    booted: bundle_boots.Booted, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    counters: Any = SimpleNamespace(at=lambda name: 1)
    seen = boots_with(monkeypatch, counters, b"hello")
    out = tmp_path / "out"
    assert bundle_boots.counted(booted, out) is counters
    assert seen[0][0].clock is Clock.INSTRUCTIONS and (out / "attribution" / "console.log").read_bytes() == b"hello"
    for what, ran in ((None, 5), (counters, None)):
        boots_with(monkeypatch, what, instructions=ran)
        with pytest.raises(GuestError, match="the kernel did not reach init") as error:
            bundle_boots.counted(booted, out)
        assert error.value.hint == f"its console: {out}/attribution/console.log"


def test_the_cost_of_a_boot_is_kept_beside_its_console(
    booted: bundle_boots.Booted, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    known, cost = object(), object()
    asked: list[Any] = []
    saved: list[Any] = []
    monkeypatch.setattr(bundle_boots, "counted", lambda subject, out: ("counts", out))
    monkeypatch.setattr(bundle_kernel, "known", lambda loaded, store: known)
    monkeypatch.setattr(boot_attribution, "cost_of", noting(asked, cost))
    monkeypatch.setattr(records, "save", lambda record, path: saved.append((record, path)))
    assert bundle_boots.attribute(booted, tmp_path) is cost
    assert asked == [(("counts", tmp_path), known, booted.store)]
    assert saved == [(cost, tmp_path / boot_attribution.RECORD)]


# ---- its kernel


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> SourceTree:
    """The tiny tree is the source that the bundle's kernel was compiled from."""
    tree = SourceTree(kernel_tree.SOURCE, SOURCE_DIGEST)
    monkeypatch.setattr(bundle_kernel, "source_of", lambda loaded, store: tree)
    return tree


def test_what_is_known_of_a_bundles_kernel(folder: Path, source: SourceTree, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "config").write_text("CONFIG_NET=y\n# CONFIG_INET is not set\n")
    seal(folder, replace(records.load(Bundle, folder / "bundle.json"), architecture="arm64", machine="virt"))
    loaded, store = bundle_folder.load(folder), Store()
    asked: list[Any] = []

    def read_tree(*given: Any, architecture: str, llvm: Any = None) -> Any:
        asked.append((*given, architecture))
        return kernel_tree.read_tree()

    monkeypatch.setattr(planning, "read_tree", read_tree)
    made = SimpleNamespace(vmlinux=Path("/vmlinux"), system_map=Path("/moved"))
    compiled: list[Any] = []
    ready: list[Any] = []
    monkeypatch.setattr(debug_kernel, "provide", noting(compiled, made))
    monkeypatch.setattr(debug_kernel, "cached", lambda *given: made if given in ready else None)
    assert bundle_kernel.known(loaded, store, only_cached=True) is None and not compiled
    found = bundle_kernel.known(loaded, store)
    assert found is not None
    assert found == Known(
        release="6.12.7", version="6.12.7", system_map=found.system_map, vmlinux=Path("/vmlinux"), source=source.path,
        source_digest=source.digest, config=found.config, architecture="arm64", moved=Path("/moved"),
    )  # fmt: skip
    assert found.system_map.read_bytes() == loaded.symbols and found.system_map.name == "System.map"
    assert "CONFIG_NET=y" in found.config.read_text()
    assert asked == [(source.path, source.version, source.digest, store, "arm64")]
    assert compiled == [(found.config, found.system_map, source.path, source.digest, store, "arm64", (), ())]
    assert bundle_kernel.known(loaded, store, only_cached=True) is None
    ready.append((found.config, found.system_map, SOURCE_DIGEST, store, "arm64", (), ()))
    assert bundle_kernel.known(loaded, store, only_cached=True) == found and len(asked) == 1


def test_a_kernel_with_other_values_is_compiled_from_the_plan(
    folder: Path, source: SourceTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    has = {"EXPERT": "y", "NET": "y", "INET": "y", "IPV6": "y"}
    (folder / "config").write_text("".join(f"CONFIG_{name}={value}\n" for name, value in has.items()))
    plan = replace(fit_run().plan, fragment=tuple(has.items()))
    records.save(plan, folder / "plan.json")
    seal(folder, records.load(Bundle, folder / "bundle.json"))
    asked: list[Any] = []

    def read_tree(*given: Any, architecture: str, llvm: Any = None) -> Any:
        asked.append((*given, architecture))
        return kernel_tree.read_tree()

    monkeypatch.setattr(planning, "read_tree", read_tree)
    built: list[Any] = []
    monkeypatch.setattr(build, "build_kernel", noting(built, SimpleNamespace(image="/vmlinux")))
    store = Store()
    rebuild = bundle_kernel.Rebuilder(bundle_folder.load(folder), store)
    assert rebuild(KernelRequest({"INET": "n"})) == Path("/vmlinux")
    made, *rest = built[0]
    assert dict(made.fragment)["NET"] == "y" and "IPV6" not in dict(made.fragment) and made.changes == ()
    assert rest == [source.path, source.digest, store] and made.kernel_version == plan.kernel_version
    assert rebuild.fallen == {(("INET", "n"),): ("IPV6",)}
    rebuild(KernelRequest({"IPV6": "n"}))
    assert asked == [(source.path, source.version, source.digest, store, "x86_64")] and len(built) == 2
    assert rebuild(KernelRequest({"NET": "y"})) == folder / "vmlinux" and len(built) == 2


NAMED = ("kernel source", f"6.12.7, {SOURCE_DIGEST}")


@pytest.mark.parametrize("sources", [(), (("image", NAMED[1]),), (("kernel source", "6.12.7, ../x"),), (NAMED, NAMED)])
def test_a_source_that_is_no_digest_is_not_looked_for(tmp_path: Path, sources: tuple[tuple[str, str], ...]) -> None:
    loaded = bundle_folder.load(write_bundle(tmp_path / "other", sources=sources))
    with pytest.raises(UserInputError, match="does not say which source") as error:
        bundle_kernel.source_digest(loaded)
    assert error.value.hint == "fit the image again on this host"


def test_a_source_that_is_not_here_is_fetched_or_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded, store = bundle_folder.load(folder), Store()
    assert bundle_kernel.source_digest(loaded) == SOURCE_DIGEST
    assert bundle_kernel.source_at_hand(loaded, store) is None
    given: list[Any] = []
    kernel = SimpleNamespace(source_dir="/fetched", source_digest=SOURCE_DIGEST)
    monkeypatch.setattr(packaged_baseline, "provide", noting(given, kernel))
    distribution = cast("Any", object())
    assert bundle_kernel.source_of(loaded, store, distribution) == SourceTree(Path("/fetched"), SOURCE_DIGEST)
    (words,) = given
    assert (words[0], words[1].name, *words[2:]) == (distribution, "x86_64", store, "6.12.7")
    kernel.source_digest = "00" * 32
    with pytest.raises(UserInputError, match=r"was compiled from \(6\.12\.7\) is not at hand"):
        bundle_kernel.source_of(loaded, store, distribution)
