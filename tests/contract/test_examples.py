# SPDX-License-Identifier: Apache-2.0
"""The example images: built from packages without root, the same each time, and fit for the image stage."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from tests.fakes.tars import read_flat

from vmtailor.base.cache.store import Store
from vmtailor.base.process import run
from vmtailor.drivers.image.entry_point import machine_of
from vmtailor.drivers.image.image_packages import read_inventory
from vmtailor.model.architecture import Architecture, every, of_host
from vmtailor.model.exercise import ReadyKind
from vmtailor.stages.exercise_file import load
from vmtailor.stages.image_fetch import ImageOptions, fetch

pytestmark = [
    pytest.mark.contract,
    pytest.mark.skipif(not Path("/usr/bin/apt-get").exists(), reason="made from Debian's packages"),
]

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = sorted(path.parent.name for path in EXAMPLES.glob("*/image.toml"))


def build(name: str, out: Path, cache: Path, *more: str) -> Path:
    run([sys.executable, str(EXAMPLES / "build.py"), name, str(out), "--cache", str(cache), *more], timeout_s=600)
    return out


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Packages are fetched once for all tests, and once for all runs where the machine says where."""
    told = os.environ.get("VMTAILOR_PACKAGE_CACHE")
    return Path(told) if told else tmp_path_factory.mktemp("packages")


@pytest.mark.parametrize("name", NAMES)
def test_an_example(name: str, tmp_path: Path, cache: Path) -> None:
    layout = build(name, tmp_path / name, cache)
    image = fetch(f"oci:{layout}", Store(tmp_path / "cache"))
    exercise = load(EXAMPLES / name / "exercise.toml", image)
    assert exercise.ready.kind in set(ReadyKind)
    with (EXAMPLES / name / "image.toml").open("rb") as file:
        spec = tomllib.load(file)
    assert image.config.health_check is not None or "Healthcheck" not in spec["config"]
    installed = {package.name for package in read_inventory(Path(image.archive)).packages}
    assert installed >= set(spec.get("packages", ()))
    assert image.unpacked_bytes < 60_000_000
    flat = read_flat(Path(image.archive))
    for item in spec.get("file", ()):
        info = flat[item["path"].lstrip("/")][0]
        assert (info.uid, info.gid) == (item.get("uid", 0), item.get("gid", 0))
    # A package's licence travels with it.
    if installed:
        assert any(path.startswith("usr/share/doc/") and path.endswith("/copyright") for path in flat)


@pytest.mark.parametrize("row", [row for row in every() if not row.is_host], ids=lambda row: row.name)
@pytest.mark.parametrize(
    "name", [name if name == "lighttpd" else pytest.param(name, marks=pytest.mark.slow) for name in NAMES]
)
def test_an_example_for_another_processor(
    name: str, row: Architecture, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """From that processor's packages, without running a program of it: all that is executed is for it."""
    if shutil.which(f"{row.kernel.cross}gcc") is None:
        pytest.skip(f"no compiler of {row.title} is here")
    packages = tmp_path_factory.getbasetemp() / f"packages-{row.name}"
    layout = build(name, tmp_path / name, packages, "--arch", row.name)
    image = fetch(f"oci:{layout}", Store(tmp_path / "cache"), ImageOptions(architecture=row.image))
    assert image.config.architecture == row.image
    with (EXAMPLES / name / "image.toml").open("rb") as file:
        spec = tomllib.load(file)
    installed = {package.name: package for package in read_inventory(Path(image.archive)).packages}
    assert installed.keys() >= set(spec.get("packages", ()))
    machines = [machine_of(data[:64]) for info, data in read_flat(Path(image.archive)).values() if info.isreg()]
    found = {number for number in machines if number is not None}
    assert found and found <= set(row.elf), found


def test_two_builds_give_the_same_bytes(tmp_path: Path, cache: Path) -> None:
    name = max(NAMES, key=lambda name: (EXAMPLES / name / "image.toml").read_text().count("[[file]]"))
    first, second = (build(name, tmp_path / where, cache) for where in ("one", "two"))
    compare = subprocess.run(["diff", "--recursive", str(first), str(second)], check=False)
    assert compare.returncode == 0


def test_a_disk_does_not_tell_when_it_was_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is made of the same disk is found in the cache."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    (tmp_path / "a file").write_text("x")
    archive = tmp_path / "layer.tar"
    subprocess.run(["tar", "-cf", archive, "-C", tmp_path, "--owner=0", "--group=0", "a file"], check=True)
    importlib.import_module("disk").pack([archive], tmp_path / "disk.raw", "2M")
    for path in ("/", "/a file"):
        said = subprocess.run(
            ["debugfs", "-R", f'stat "{path}"', tmp_path / "disk.raw"], capture_output=True, check=True
        )
        changed = [line for line in said.stdout.decode().splitlines() if "ctime: 0x" in line]
        assert len(changed) == 1 and f"ctime: {1735689600:#010x}" in changed[0], said


def test_kernels_of_this_host_are_those_that_vmtailor_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    """`{flavour}` in the name of a package, for which nothing of vmtailor is asked where no processor is named."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    build_py = importlib.import_module("build")
    assert build_py.target_of(None).flavour == of_host().packages.flavour
    assert build_py.target_of(of_host().name) == build_py.target_of(None)


def test_packages_that_only_some_processors_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    build_py = importlib.import_module("build")
    spec = {"packages": ["crun", "linux-image-*-{flavour}"], "only": {"amd64": ["runsc"], "arm64": ["runsc"]}}

    def asked(image: str) -> list[str]:
        found: list[str] = build_py.packages_of(spec, build_py.Target(image, flavour="cloud"))
        return found

    assert asked("amd64") == asked("arm64") == ["crun", "linux-image-*-cloud", "runsc"]
    assert asked("mips64le") == ["crun", "linux-image-*-cloud"]


def test_a_folder_without_a_description(tmp_path: Path) -> None:
    finished = run(
        [sys.executable, str(EXAMPLES / "build.py"), str(tmp_path), str(tmp_path / "out")], timeout_s=60, ok=(2,)
    )
    assert "no image.toml" in finished.error_text
    assert not (tmp_path / "out").exists()
