# SPDX-License-Identifier: Apache-2.0
"""`run IMAGE` on kernels that are there already: that of the session's fit stands for a family kernel."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.fakes.program import Ended, argv_of, assert_nothing_left, run_program
from tests.system.conftest import Fitted, layout_of

from vmtailor.base.cache.store import Store
from vmtailor.base.files import dot_config, records
from vmtailor.drivers.distribution import packaged_baseline, selection
from vmtailor.model.architecture import named
from vmtailor.model.plan import Plan
from vmtailor.pipeline import family_build, image_bundle
from vmtailor.pipeline.family_build import FamilyWishes
from vmtailor.stages import kernel_plan

pytestmark = pytest.mark.system

SHELL = Path(__file__).parents[1] / "guests" / "shell"
#: Processor time of a second `run IMAGE` beside its machine, in seconds.
OWN_S = 2.0


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return layout_of(SHELL, tmp_path_factory.mktemp("shell"))


@pytest.fixture(scope="module")
def family(lighttpd: Fitted, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("family")
    ended = run_program(folder, "family", "build", lighttpd.bundle, "-o", f"oci:{folder}/layout")
    assert ended.code == 0, ended.stderr
    return ended.stdout.splitlines()[-1]  # by its digest


def bundles_of(layout: Path) -> list[Path]:
    """The bundles in the cache that were made for an image without a fit."""
    made = (Store().root / image_bundle.KIND).glob("*/image.json")
    return [file.parent for file in made if json.loads(file.read_text())["reference"] == f"oci:{layout}"]


def test_any_image_starts_on_it_and_it_is_said(family: str, shell: Path, tmp_path: Path) -> None:
    def run(*words: str) -> Ended:
        ended = run_program(tmp_path, "run", "--family", family, *words)
        assert_nothing_left(ended)
        assert ended.stderr.startswith("kernel of oci:") and "not fitted: nothing proven for this image" in ended.stderr
        return ended

    ended = run(f"oci:{shell}", "echo to=$USER_OF_IT; exit 3")
    assert (ended.code, ended.stdout) == (3, "to=\n")
    ended = run("-e", "USER_OF_IT=me", f"oci:{shell}", "echo to=$USER_OF_IT")
    assert (ended.code, ended.stdout) == (0, "to=me\n") and len(ended.stderr.splitlines()) == 1
    assert len(bundles_of(shell)) == 1


def test_a_second_run_takes_two_seconds_at_most_and_a_kept_machine_outlives_the_cache(
    family: str, shell: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    words = ("run", "-d", "--name", "kept", "--family", family, f"oci:{shell}", "echo up >> /data/said; cat /data/said")
    # What is detached is waited for by nobody, so that this is the time of vmtailor and its tools alone.
    process = subprocess.Popen(argv_of(*words), stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0 and used.ru_utime + used.ru_stime <= OWN_S
    assert run_program(tmp_path, "wait", "kept").stdout == "0\n"
    for folder in bundles_of(shell):
        shutil.rmtree(folder)
    assert run_program(tmp_path, "start", "kept").code == 0
    assert run_program(tmp_path, "wait", "kept").stdout == "0\n"
    assert run_program(tmp_path, "rm", "kept").code == 0


def test_an_image_that_was_fitted_starts_on_its_own_kernel(lighttpd: Fitted, tmp_path: Path) -> None:
    ended = run_program(tmp_path, "run", f"oci:{lighttpd.layout}", "-v")
    assert (ended.code, ended.stderr) == (0, "") and "lighttpd/" in ended.stdout


def test_the_plan_of_a_family_kernel_has_all_that_the_fits_has(lighttpd: Fitted) -> None:
    """Nothing is compiled: on this tree a plan is made without a trace."""
    wishes, row = FamilyWishes(), named("x86_64")
    kernel = packaged_baseline.provide(selection.of_host(), row, wishes.store)
    tree = kernel_plan.read_tree(
        Path(kernel.source_dir), kernel.version, kernel.source_digest, wishes.store, architecture=row.name
    )
    plan = family_build.planned(tree, dot_config.parse(Path(kernel.config).read_text()), wishes)
    has = {one.id for one in plan.symbols if one.is_kept}
    fitted = records.load(Plan, lighttpd.bundle / "plan.json")
    assert {one.id for one in fitted.symbols if one.is_kept} <= has
    assert {"VIRTIO_FS", "EXT4_FS", "PID_NS", "VIRTIO_CONSOLE", "OVERLAY_FS", "VIRTIO_NET"} <= has
    assert plan.unexplained == () and plan.given_up == () and plan.network
