# SPDX-License-Identifier: Apache-2.0
"""Bundles of systems: `run` starts them, verbs for containers refuse them, and options of the one mean nothing to the
other."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.bundle_data import bundle, write_bundle

from vmtailor.base.errors import GuestError, UserInputError
from vmtailor.base.files import digests, holes
from vmtailor.booting import system_console
from vmtailor.booting.system_console import Finished
from vmtailor.drivers.host import bundle_folder, kept_state
from vmtailor.drivers.host.bundle_folder import is_system, seal
from vmtailor.drivers.host.caught_signals import CaughtSignals
from vmtailor.model.boots.ending import End, Ending
from vmtailor.model.boots.system_exercise import SystemExercise, SystemReady, SystemReadyKind
from vmtailor.model.bundle import SYSTEM
from vmtailor.model.machine import Accelerator, DiskMode, Machine
from vmtailor.model.systems.system import Init, InitKind
from vmtailor.model.systems.units import UnitsMode
from vmtailor.pipeline import bundle_files
from vmtailor.pipeline.machine_run import RunOptions, run
from vmtailor.pipeline.options import FitOptions
from vmtailor.pipeline.subject import UsersDisk
from vmtailor.pipeline.systems import inputs


@pytest.fixture
def system(tmp_path: Path) -> Path:
    folder = write_bundle(tmp_path / "bundle")
    (folder / SYSTEM).write_text("{}")
    (folder / "disk.raw").write_bytes(b"disk" * 256)
    seal(folder, bundle(root="disk.raw", image=None))
    return folder


class Started:
    """Stands for the machine: notes what it was, and writes to its disk where that is kept."""

    def __init__(self, lost: str = "", left: bool = False, code: int = 0) -> None:
        self.machine: Machine | None = None
        self.finished = Finished(End(Ending.EXITED, "qemu", "", "words", 1.0, code), left, lost)

    def __call__(self, machine: Machine, signals: CaughtSignals, *, interactive: bool) -> Finished:
        self.machine = machine
        disk = machine.disks[0]
        if disk.mode is DiskMode.WRITTEN:
            Path(disk.path).write_bytes(Path(disk.path).read_bytes() + b"written")
        return self.finished


def options(folder: Path, **other: object) -> RunOptions:
    return RunOptions(folder, accelerator=Accelerator.TCG, **other)  # type: ignore[arg-type]


def test_what_a_system_writes_is_thrown_away_or_kept_beside_its_disk(
    system: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = Started()
    monkeypatch.setattr(system_console, "attached", started)
    before = (system / "disk.raw").read_bytes()
    assert is_system(system) and run(options(system)) == 0
    assert started.machine is not None and started.machine.disks[0].mode is DiskMode.OVERLAID
    assert not (system / "state.raw").exists()
    run(options(system, keep_state=True))
    run(options(system, keep_state=True))
    assert (system / "state.raw").read_bytes() == before + b"written" * 2
    assert (system / "disk.raw").read_bytes() == before
    run(options(system))  # what is kept changes nothing of the bundle


def test_two_machines_do_not_write_to_one_disk(system: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def again(machine: Machine, signals: CaughtSignals, *, interactive: bool) -> Finished:
        with pytest.raises(UserInputError, match="in use by a running machine"):
            run(options(system, keep_state=True))
        return Started().finished

    monkeypatch.setattr(system_console, "attached", again)
    assert run(options(system, keep_state=True)) == 0


def test_of_two_first_starts_at_once_one_makes_the_disk_and_the_other_finds_it(
    system: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one was to make it, too, and waited for the first, which ran meanwhile."""
    monkeypatch.setattr(system_console, "attached", Started())
    copy = holes.copy_with_holes
    copied: list[Path] = []

    def slowly(source: Path, target: Path) -> None:
        copied.append(target)
        other = threading.Thread(target=kept_state._first_state, args=(system, source, system / "state.raw"))
        if len(copied) == 1:
            other.start()
            waiting.append(other)
        copy(source, target)

    waiting: list[threading.Thread] = []
    monkeypatch.setattr(kept_state, "copy_with_holes", slowly)
    (system / ".state.raw-new").write_text("of a start that was killed")
    assert run(options(system, keep_state=True)) == 0
    waiting[0].join(10)
    assert len(copied) == 1 and (system / "state.raw").read_bytes().endswith(b"written")
    assert not (system / ".state.raw-new").exists()


def test_a_system_that_is_lost_is_an_error_and_one_that_was_left_is_none(
    system: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system_console, "attached", Started(lost="the kernel panicked"))
    with pytest.raises(GuestError, match="the kernel panicked"):
        run(options(system))
    monkeypatch.setattr(system_console, "attached", Started(code=1))
    with pytest.raises(GuestError, match="status 1"):
        run(options(system))
    monkeypatch.setattr(system_console, "attached", Started(left=True, code=-15))
    assert run(options(system)) == 0


def test_what_only_containers_have_is_refused_by_name(system: Path) -> None:
    with pytest.raises(UserInputError, match=r"COMMAND, --user do not go with .*, the bundle of a system"):
        run(options(system, command=("sh",), user="0"))
    with pytest.raises(UserInputError, match="1 CPU"):
        run(options(system, cpus=2))


def test_verbs_for_containers_refuse_a_systems_bundle(system: Path, tmp_path: Path) -> None:
    with pytest.raises(UserInputError, match="the bundle of a system with an init of its own"):
        bundle_folder.load_container(system)
    container = write_bundle(tmp_path / "container")
    assert not is_system(container) and not is_system(tmp_path / "nothing")
    with pytest.raises(UserInputError, match=r"--keep-state does not go with .*, the bundle of a container"):
        run(options(container, keep_state=True))


def test_options_of_images_mean_nothing_for_a_system(tmp_path: Path) -> None:
    given = FitOptions("disk:x", tmp_path, kernel="6.1", privileged=True)
    with pytest.raises(UserInputError, match="--kernel, --privileged do not go with disk:x, a disk of a system"):
        inputs.refuse_for_images(given)
    with pytest.raises(UserInputError, match="needs an exercise that says what it is for") as error:
        inputs.refuse_for_images(FitOptions("disk:x", tmp_path))
    assert "--exercise" in (error.value.hint or "")
    inputs.refuse_for_images(FitOptions("disk:x", tmp_path, exercise_file=tmp_path / "x.toml", machine="q35"))
    for_systems = FitOptions("disk:x", tmp_path, tmp_path / "x.toml", units=UnitsMode.TRIM, mask=("ssh.service",))
    inputs.refuse_for_images(for_systems)


@pytest.mark.parametrize(
    ("given", "words"), [({"mask": ("a",)}, "--mask is for systemd"), ({"units": UnitsMode.TRIM}, "--units is for")]
)
def test_an_init_without_units_has_none_to_mask(given: dict[str, Any], words: str, tmp_path: Path) -> None:
    options = FitOptions("disk:x", tmp_path, **given)
    with pytest.raises(UserInputError, match=f"{words}.*, and the init of disk:x is /bin/busybox"):
        inputs.refuse_units(options, Init("/sbin/init", "/bin/busybox", InitKind.BUSYBOX))
    inputs.refuse_units(options, Init("/sbin/init", "/lib/systemd/systemd", InitKind.SYSTEMD))
    inputs.refuse_units(FitOptions("disk:x", tmp_path), Init("/sbin/init", "/bin/busybox", InitKind.BUSYBOX))


@pytest.mark.attack
def test_what_a_system_keeps_is_written_to_the_bundles_own_file_only(
    system: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stranger's bundle can bring a link, or a second name of a file: the machine would write to what it leads to."""
    started = Started()
    monkeypatch.setattr(system_console, "attached", started)
    precious = tmp_path / "precious"
    precious.write_bytes(b"mine")
    state = system / "state.raw"
    for make in (state.symlink_to, state.hardlink_to):
        make(precious)
        with pytest.raises(UserInputError, match=r"state\.raw (is a symbolic link|has another name)"):
            run(options(system, keep_state=True))
        state.unlink()
    state.symlink_to(tmp_path / "not there yet")
    with pytest.raises(UserInputError, match="a symbolic link"):
        run(options(system, keep_state=True))
    assert started.machine is None and precious.read_bytes() == b"mine"
    assert not (tmp_path / "not there yet").exists()


def test_a_new_fit_does_not_throw_away_what_a_system_keeps(
    system: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system_console, "attached", Started())
    bundle_files.require_writable(system)
    run(options(system, keep_state=True))
    with pytest.raises(UserInputError, match=r"keeps what its system wrote \(state\.raw\)"):
        bundle_files.require_writable(system)


def test_a_disk_that_changed_while_it_was_fitted_makes_no_bundle(
    system: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old bundle stays."""
    made, disk = write_bundle(tmp_path / "made"), tmp_path / "disk.raw"
    disk.write_bytes(b"what was fitted")
    users = UsersDisk("disk.raw", disk, digests.sha256_of(disk))
    bundle_files.place(made, tmp_path / "out", "fit", users)
    assert (tmp_path / "out" / "disk.raw").read_bytes() == b"what was fitted"
    disk.write_bytes(b"what a machine wrote meanwhile")
    with pytest.raises(UserInputError, match="changed while it was fitted"):
        bundle_files.place(made, tmp_path / "out", "fit", users)
    assert (tmp_path / "out" / "disk.raw").read_bytes() == b"what was fitted"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["bundle", "disk.raw", "made", "out"]


def test_a_ready_that_the_host_must_see_is_refused() -> None:
    log = SystemExercise("x.toml", SystemReady(SystemReadyKind.LOG, pattern="up"))
    with pytest.raises(UserInputError, match=r"x\.toml: ready by a line of the console"):
        inputs.refuse_console(log)
    inputs.refuse_console(SystemExercise("x.toml", SystemReady(SystemReadyKind.UNIT, unit="a.target")))
