# SPDX-License-Identifier: Apache-2.0
"""The same scripts by podman and by vmtailor: what they print is alike, letter by letter.

Scripts are in tests/data/podman/cases.toml, and what podman printed beside them (tools/podman_cases.py). The kernel is
the one that was fitted to `lighttpd`; for folders and volumes one is compiled that can mount them."""

from __future__ import annotations

import difflib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.fakes.program import argv_of
from tests.system.conftest import Fitted, with_image

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

import podman_cases

pytestmark = pytest.mark.system

BOX = Path(__file__).parents[1] / "guests" / "box"
CASES = podman_cases.cases()
_RECORDED = podman_cases.recorded()


@pytest.fixture(scope="module")
def box(lighttpd: Fitted, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return with_image(lighttpd.bundle, BOX, tmp_path_factory.mktemp("box"), network=False)


@pytest.fixture(scope="module")
def box_with_folders(foldered: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return with_image(foldered, BOX, tmp_path_factory.mktemp("folders"), network=False)


@pytest.mark.parametrize("case", [case for case in CASES if case.quick], ids=lambda case: case.name)
def test_quick(case: podman_cases.Case, box: Path, tmp_path: Path) -> None:
    alike(case, box, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "case", [case for case in CASES if not case.quick and not case.needs], ids=lambda case: case.name
)
def test_all_others(case: podman_cases.Case, box: Path, tmp_path: Path) -> None:
    alike(case, box, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in CASES if case.needs == "folders"], ids=lambda case: case.name)
def test_folders(case: podman_cases.Case, box_with_folders: Path, tmp_path: Path) -> None:
    alike(case, box_with_folders, tmp_path)


def alike(case: podman_cases.Case, bundle: Path, folder: Path) -> None:
    """Run the script, and compare; nothing is left of it."""
    runtime, temporary = folder / "runtime", folder / "tmp"
    runtime.mkdir(mode=0o700)
    temporary.mkdir()
    own = {
        "XDG_STATE_HOME": str(folder / "state"), "XDG_RUNTIME_DIR": str(runtime), "TMPDIR": str(temporary),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }  # fmt: skip
    done = podman_cases.run_script(case, argv_of(), str(bundle), folder / "scripts", own)
    wanted = _RECORDED[case.name] if case.prints is None else case.prints
    assert done.text == wanted, "\n".join(
        (*difflib.unified_diff(wanted.splitlines(), done.text.splitlines(), "podman", "vmtailor"), done.errors)
    )
    machines = folder / "state/vmtailor/machines"
    assert not machines.exists() or not list(machines.iterdir())
    assert not list(temporary.iterdir())


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="podman needs root here")
def test_what_podman_prints_is_what_is_recorded() -> None:
    tool = Path(podman_cases.__file__)
    done = subprocess.run(
        [sys.executable, str(tool), "--check"], capture_output=True, text=True, timeout=1800, check=False
    )
    assert done.returncode == 0, done.stderr
