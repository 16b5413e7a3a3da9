# SPDX-License-Identifier: Apache-2.0
"""A system with an init of its own fitted for real: systemd on a disk, from packages, on its own kernel and on the one
that fits it."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.fakes.program import finish, run_program, started
from tests.system.conftest import EXAMPLES

from vmtailor.base.files import records
from vmtailor.model.bundle import Bundle
from vmtailor.model.fit_run import FitRun

pytestmark = pytest.mark.system

EXERCISE = EXAMPLES / "small-system" / "exercise.toml"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("systems")


@pytest.fixture(scope="module")
def disk(folder: Path) -> Path:
    disk = folder / "small.raw"
    subprocess.run([sys.executable, str(EXAMPLES / "build.py"), "small-system", str(disk)], check=True)
    return disk


#: A unit of the system's, which starts nothing here.
UNIT = "/etc/systemd/system/scratch.service"
LESS = "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/usr/bin/busybox true\n"


def fit(folder: Path, disk: Path, out: str, *more: str, env: Mapping[str, str] | None = None) -> dict[str, Any]:
    """What it printed; its bundle is `out`, and the disk stays as it is."""
    before = hashlib.sha256(disk.read_bytes()).hexdigest()
    words: tuple[str | Path, ...] = ("fit", f"disk:{disk}", "-x", EXERCISE, "--memory", "512M", "--repeat", "1", *more)
    ended = run_program(folder, *words, "-o", folder / out, "--json", timeout_s=3600, env=env)
    assert ended.code == 0, ended.stderr
    assert not ended.left_over and not ended.left_files
    assert hashlib.sha256(disk.read_bytes()).hexdigest() == before
    found: dict[str, Any] = msgspec.json.decode(ended.stdout)
    return found


@pytest.fixture(scope="module")
def fitted(folder: Path, disk: Path) -> dict[str, Any]:
    return fit(folder, disk, "bundle")


@pytest.fixture(scope="module")
def tuned(fitted: dict[str, Any], folder: Path, disk: Path) -> list[dict[str, Any]]:
    """What was tried beside the kernel, in a fit of the same system."""
    (folder / "less.service").write_text(LESS)
    tried = ("--try", "rcu-expedited", "--try-file", f"{UNIT}={folder / 'less.service'}")
    found: list[dict[str, Any]] = fit(folder, disk, "tuned", *tried)["tuned"]
    return found


def test_it_is_verified_and_its_kernel_is_small(fitted: dict[str, Any], folder: Path) -> None:
    assert fitted["verified"] and fitted["proof"] == "exercised with load" and not fitted["unexplained"]
    before, after = fitted["baseline"], fitted["tailored"]
    assert after["symbols_prompted"] < before["symbols_prompted"] / 3
    assert after["init_instructions_net"] < before["init_instructions_net"] / 3
    assert after["ready_virtual_us"] < before["ready_virtual_us"]
    assert after["min_memory_bytes"] < before["min_memory_bytes"] - (20 << 20)
    run = records.load(FitRun, folder / "bundle" / "run.json")
    assert run.system is not None and run.system.init.kind == "systemd"
    # Nothing leads into its root but the kernel itself. (MODULES is there, because systemd itself loads some.)
    names = {one.id for one in run.plan.symbols if one.is_kept}
    assert "BLK_DEV_INITRD" not in names and "EXT4_FS" in names
    assert not [one.id for one in run.plan.symbols if one.setting.value == "m"]


@pytest.mark.slow
def test_what_was_named_beside_the_kernel_is_tried_and_kept_where_it_is_faster(
    tuned: list[dict[str, Any]], folder: Path
) -> None:
    row = next(one for one in tuned if one["change"] == "rcu-expedited")
    assert row["measured_s"] is not None
    assert row["settings"] == ["rcupdate.rcu_expedited=1"]
    in_vain = ("no difference", "slower", "cannot be told from chance")
    assert row["measured_s"] < 0 if row["kept"] else row["outcome"] in in_vain
    words = records.load(Bundle, folder / "tuned" / "bundle.json").words
    assert (row["settings"][0] in words) is row["kept"]
    ended = run_program(folder / "why", "explain", folder / "tuned", "rcu-expedited", "--json", timeout_s=120)
    assert ended.code == 0 and (msgspec.json.decode(ended.stdout)["standing"] == "in") is row["kept"]


@pytest.mark.slow
def test_a_file_of_the_disk_is_tried_on_a_copy_that_the_bundle_has_where_it_is_faster(
    tuned: list[dict[str, Any]], folder: Path, disk: Path
) -> None:
    row = next(one for one in tuned if one["change"] == f"file:{UNIT}")
    assert row["measured_s"] is not None and row["settings"] == [f"{UNIT}, of {len(LESS)} bytes"]
    for image, less in ((folder / "tuned" / "disk.raw", row["kept"]), (disk, False)):
        said = subprocess.run(["debugfs", "-R", f"cat {UNIT}", str(image)], check=True, capture_output=True).stdout
        assert (said.decode() == LESS) is less


def test_why_a_symbol_is_in_is_told_by_the_line_that_asked(fitted: dict[str, Any], folder: Path) -> None:
    ended = run_program(folder, "explain", folder / "bundle", "CGROUPS", "--json", timeout_s=120)
    found = msgspec.json.decode(ended.stdout)
    assert ended.code == 0 and found["standing"] == "in"
    assert any(reason["cause"] == "demanded" and reason["line"] for reason in found["reasons"])


def test_a_second_fit_finds_all_of_it(
    fitted: dict[str, Any], folder: Path, disk: Path, no_builds: dict[str, str]
) -> None:
    assert fit(folder, disk, "again", env=no_builds)["tailored"] == fitted["tailored"]
    assert (folder / "again" / "disk.raw").stat().st_blocks <= disk.stat().st_blocks + 64


def test_the_bundle_starts_with_its_console_and_keeps_what_it_writes_when_asked(
    fitted: dict[str, Any], folder: Path
) -> None:
    bundle = folder / "bundle"
    with started(folder / "run", "run", "--keep-state", bundle) as running:
        running.wait_for("A web server", 900.0, where=running.out)
        running.process.terminate()
        ended = finish(running, 60.0)
    assert ended.code == 0 and not ended.left_over and not ended.left_files
    assert (bundle / "state.raw").is_file()


def test_the_proof_holds_on_its_disk_and_not_on_one_whose_server_is_broken(
    fitted: dict[str, Any], folder: Path, disk: Path
) -> None:
    ended = run_program(folder / "verify", "verify", folder / "bundle", timeout_s=1800)
    assert ended.code == 0 and "the system works" in ended.stdout and not ended.left_over and not ended.left_files
    broken = folder / "broken.raw"
    shutil.copyfile(disk, broken)
    subprocess.run(["debugfs", "-w", "-R", "rm /srv/www/index.html", str(broken)], check=True, capture_output=True)
    before = hashlib.sha256(broken.read_bytes()).hexdigest()
    ended = run_program(folder / "broken", "verify", folder / "bundle", "--disk", broken, "--json", timeout_s=1800)
    found = msgspec.json.decode(ended.stdout)
    assert ended.code == 1 and "broken.raw" in ended.stderr and not ended.left_over and not ended.left_files
    assert not found["verified"] and any("GET :80/" in text for text in found["failures"])
    assert hashlib.sha256(broken.read_bytes()).hexdigest() == before


def test_a_verb_for_containers_says_so(fitted: dict[str, Any], folder: Path) -> None:
    ended = run_program(folder / "boot", "boot", folder / "bundle", timeout_s=120)
    assert ended.code == 2 and "system with an init of its own" in ended.stderr


def test_the_bundle_is_planned_again_from_what_is_in_it(
    fitted: dict[str, Any], folder: Path, no_builds: dict[str, str]
) -> None:
    found = {}
    for name, words in (("same", ()), ("more", ("--keep", "MINIX_FS"))):
        ended = run_program(
            folder / name, "refit", folder / "bundle", "--dry-run", "--json", *words, timeout_s=600, env=no_builds
        )
        assert ended.code == 0, ended.stderr
        found[name] = msgspec.json.decode(ended.stdout)
    assert found["same"]["comes"] == found["same"]["goes"] == found["same"]["altered"] == []
    assert "MINIX_FS" in {one["symbol"] for one in found["more"]["comes"]}
