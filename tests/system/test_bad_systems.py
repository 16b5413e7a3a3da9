# SPDX-License-Identifier: Apache-2.0
"""Systems and exercises that cannot be fitted, found out by real guests: one clear message, its exit code, nothing left
behind."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.fakes import systems
from tests.fakes.program import Ended, assert_clear, run_program, small_disk

from vmtailor.base.cache.store import Store
from vmtailor.drivers.distribution import packaged_baseline, selection
from vmtailor.model.architecture import presumed
from vmtailor.model.kernel import KernelBaseline

pytestmark = pytest.mark.system

READY = """
[ready]
kind = "http"
port = {port}
timeout_s = {timeout_s}
"""
STEP = """
[[load]]
kind = "command"
argv = {argv}
"""
WORKS = READY.format(port=80, timeout_s=60)


def disk_of(folder: Path, kernel: KernelBaseline, more: str = "") -> Path:
    rc = systems.RC + more
    root = systems.busybox_tree(folder / "root", Path(kernel.vmlinuz), Path(kernel.modules_dir), kernel.release, rc=rc)
    return systems.ext4(folder / "disk.raw", root, size_mib=48)


@pytest.fixture(scope="module")
def kernel() -> KernelBaseline:
    return packaged_baseline.provide(selection.of_host(), presumed(), Store())


def fit(folder: Path, disk: Path, exercise: str, out: Path) -> Ended:
    (folder / "x.toml").write_text(exercise)
    ended = run_program(
        folder / "fit",
        "fit",
        f"disk:{disk}",
        "-x",
        folder / "x.toml",
        "--machine",
        "q35",
        "--memory",
        "256M",
        "-o",
        out,
        timeout_s=900,
    )
    assert not out.exists() and not list(out.parent.glob(f".{out.name}*"))
    return ended


@pytest.mark.parametrize(
    ("rc", "exercise", "said"),
    [
        pytest.param("echo c > /proc/sysrq-trigger\n", WORKS, ("the kernel panicked: sysrq",), id="panics"),
        pytest.param("sleep 9999\n", READY.format(port=80, timeout_s=5), ("did not become ready (http) within 5 s",),
                     id="never ready", marks=pytest.mark.slow),
        pytest.param("reboot -f\n", WORKS, ("the machine ended by itself",), id="starts again and again",
                     marks=pytest.mark.slow),
        pytest.param("", WORKS + STEP.format(argv='["busybox", "nc", "192.0.2.1", "80"]'),
                     ("load step 1 (busybox nc", "reaches nothing outside of its machine"), id="wants a network",
                     marks=pytest.mark.slow),
        pytest.param("", WORKS + '[[says]]\nname = "engine"\nargv = ["docker", "info"]\n',
                     ("engine cannot be asked", "[[says]]"), id="asks what is not there",
                     marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_a_system_that_does_not_work_on_its_own_kernel_is_refused(
    rc: str, exercise: str, said: tuple[str, ...], kernel: KernelBaseline, tmp_path: Path
) -> None:
    disk = disk_of(tmp_path, kernel, rc)
    before = disk.read_bytes()
    assert_clear(fit(tmp_path, disk, exercise, tmp_path / "bundle"), 5, *said)
    assert disk.read_bytes() == before


def test_an_out_without_room_for_the_disks_copy_is_found_before_anything_is_booted(
    kernel: KernelBaseline, tmp_path: Path
) -> None:
    disk = disk_of(tmp_path, kernel)
    with small_disk(tmp_path / "small", "4m") as small:
        ended = fit(tmp_path, disk, WORKS, small / "bundle")
        assert_clear(ended, 3, "no space is left", "-o")
        assert not list(small.iterdir())
    assert "the exercise on" not in ended.stderr


def test_a_system_without_an_init_is_refused_before_anything_is_booted(kernel: KernelBaseline, tmp_path: Path) -> None:
    root = systems.busybox_tree(tmp_path / "root", Path(kernel.vmlinuz), Path(kernel.modules_dir), kernel.release)
    (root / "sbin/init").unlink()
    disk = systems.ext4(tmp_path / "disk.raw", root, size_mib=48)
    assert_clear(fit(tmp_path, disk, WORKS, tmp_path / "bundle"), 2, "init")
