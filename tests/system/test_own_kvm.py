# SPDX-License-Identifier: Apache-2.0
"""vmtailor on a host where KVM works: an emulated one, since QEMU emulates AMD's SVM (tests/guests/kvm_host).

The host is made of the distribution's packages, and vmtailor is installed from a wheel of this tree. It is booted once,
and uses vmtailor as a person would; each test looks at one use."""

from __future__ import annotations

import json
import py_compile
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from tests.fakes import systems
from tests.fakes.program import run_program
from tests.system.conftest import FIT_S, Fitted, layout_of, with_image

from vmtailor.base.cache.store import Store, digest
from vmtailor.drivers.guest import guest_programs
from vmtailor.drivers.monitors import monitors
from vmtailor.drivers.monitors.monitor import Wants
from vmtailor.model.architecture import named, presumed_name
from vmtailor.model.boots.ending import End
from vmtailor.model.machine import Clock, Disk, Machine
from vmtailor.pipeline.systems import inputs, subjects

pytestmark = [pytest.mark.system, pytest.mark.slow]
TREE = Path(__file__).parents[2]
GUESTS = TREE / "tests" / "guests"
DESCRIPTION = GUESTS / "kvm_host"
MADE = TREE / "build" / "kvm-host"
#: The version of Python, here and there, as folders are called.
PYTHON = f"python3.{sys.version_info.minor}"
#: Where the second disk is mounted.
PLACE = "mnt"
#: What of Python's own library nothing here loads.
LEFT_OUT = {"test", "tests", "idlelib", "lib2to3", "tkinter", "ensurepip"}
#: Seconds of one boot, on a busy host, and those in which no use ends if the guest of one hangs.
ALL_S, SILENT_S = 3000.0, 480.0
MARK = "kvm-host "


def kept(name: str, key: str) -> Path | None:
    """A folder to fill with what is made of the same things each time; None where it is filled."""
    folder = MADE / name
    known = folder / "key"
    if known.is_file() and known.read_text() == key:
        return None
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def made_host() -> Path:
    """The folder with the host's disk, and the kernel and the initial RAM disk that start it."""
    folder, key = MADE / "host", digest(*sorted(DESCRIPTION.iterdir()), TREE / "examples" / "build.py")
    if (new := kept("host", key)) is not None:
        disk = new / "disk.raw"
        build: list[str | Path] = [sys.executable, TREE / "examples" / "build.py", DESCRIPTION, disk]
        subprocess.run(build, check=True, stdout=subprocess.PIPE, timeout=900)
        with subjects.opened(f"{subjects.DISK}{disk}", Store()) as found:
            taken = inputs.taken_out(found, guest_programs.of(found.subject.architecture), Store())
            for name in (inputs.KERNEL, inputs.INITRD):
                shutil.copyfile(taken / name, new / name)
        systems.tool("debugfs", "-R", f"rdump /usr/lib/{PYTHON} {new}", disk)
        assert (new / PYTHON).is_dir(), f"the distribution's Python is not {PYTHON}, which runs these tests"
        (new / "key").write_text(key)
    return folder


def installed(host: Path) -> Path:
    """The folder with vmtailor, from a wheel, and the libraries that it uses, with all of Python compiled."""
    made_of = [
        path
        for name in ("bin", "src", "native", "docs", "LICENSES", "tools")
        for path in sorted((TREE / name).rglob("*"))
    ]
    made_of = [path for path in made_of if path.is_file() and not {"_native", "__pycache__"} & set(path.parts)]
    made_of += [TREE / name for name in ("pyproject.toml", "setup.py", "README.md", "CHANGELOG.md", "LICENSE")]
    key = digest(*made_of, TREE / "requirements.lock", *sorted((host / PYTHON).glob("*.py")), sys.version)
    if (new := kept("installed", key)) is not None:
        packages = new / "packages"
        pip: list[str | Path] = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
        source = new / "source"
        for path in made_of:
            (source / path.relative_to(TREE)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, source / path.relative_to(TREE))
        wheel: list[str | Path] = [*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", new, source]
        subprocess.run(wheel, check=True, timeout=1800)
        install: list[str | Path] = [*pip, "install", "--no-deps", "--no-index", "--no-compile", "--target", packages]
        subprocess.run([*install, *new.glob("*.whl")], check=True, timeout=600)
        shutil.rmtree(source)
        copy_libraries(packages)
        compile_all(host / PYTHON, f"usr/lib/{PYTHON}", new / "bytecode")
        compile_all(packages, f"{PLACE}/packages", new / "bytecode")
        (new / "key").write_text(key)
    return MADE / "installed"


def copy_libraries(out: Path) -> None:
    """The libraries that are locked, as they are installed here."""
    for name in re.findall(r"^([\w.-]+)==", (TREE / "requirements.lock").read_text(), re.MULTILINE):
        for file in metadata.files(name) or ():
            if ".." not in file.parts and file.suffix != ".pyc" and not LEFT_OUT & set(file.parts):
                (out / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file.locate(), out / file)


def compile_all(source: Path, place: str, out: Path) -> None:
    """Compile what Python looks for below its cache prefix `out`: in the emulated host it takes minutes."""
    for path in source.rglob("*.py"):
        file = path.relative_to(source)
        if not LEFT_OUT & set(file.parts):
            py_compile.compile(
                str(path), str(out / place / file.parent / f"{file.stem}.{sys.implementation.cache_tag}.pyc"),
                f"/{place}/{file}", quiet=2, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
            )  # fmt: skip


def seen(bundles: dict[str, Path], images: dict[str, Path], folder: Path) -> dict[str, dict[str, Any]]:
    """Boot the host with these bundles and images, and return how each use ended, by its name.

    QEMU's SVM keeps the number of an interrupt that it gave to a guest, and may give it again, whether the guest takes
    interrupts or not. A guest that holds a lock then hangs, and spins so slowly that no limit of this host's own clock
    is ever over. So a boot in which nothing ends any more is begun again, once, with the uses that are left."""
    host = made_host()
    content = folder / "content"
    shutil.copytree(installed(host), content, ignore=shutil.ignore_patterns("*.whl", "key"))
    shutil.copy(DESCRIPTION / "steps.py", content / "steps.py")
    shutil.copy(host / inputs.KERNEL, content / "kernel")
    for kind, known in (("bundles", bundles), ("images", images)):
        for name, one in known.items():
            shutil.copytree(one, content / kind / name)
    found: dict[str, dict[str, Any]] = {}
    for _ in range(2):
        (content / "done").write_text("".join(f"{name}\n" for name in found))
        disk = systems.ext4(folder / "content.raw", content, size_mib=600)
        end, text = booted(machine_of(host, disk))
        lines = (line.removeprefix(MARK) for line in text.splitlines() if line.startswith(f"{MARK}{{"))
        found |= {str(use["use"]): use for use in map(json.loads, lines)}
        disk.unlink()
        if end.returncode == 0:
            break
    shutil.rmtree(content)
    assert end.returncode == 0, f"{end.stderr}\n{text[-4000:]}"
    return found


def booted(machine: Machine) -> tuple[End, str]:
    """Boot the host until it ends, or nothing comes any more; return how it ended, and its console."""
    console = bytearray()
    with monitors.of(machine).start(machine, Wants()) as running:
        before = -1
        while running.running and before != (before := len(console)) and running.left(ALL_S) > 0:
            end = running.run(running.elapsed_s + SILENT_S, console.extend)
    return end, console.decode("utf-8", "replace")


@pytest.fixture(scope="module")
def processors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle fitted to two processors, whose kernel is compiled on a fresh machine."""
    folder = tmp_path_factory.mktemp("processors")
    image, exercise = layout_of(GUESTS / "processors", folder), GUESTS / "processors" / "exercise.toml"
    fit = ("fit", f"oci:{image}", "--exercise", exercise, "--cpus", "2", "-o", folder / "bundle")
    ended = run_program(folder, *fit, timeout_s=FIT_S)
    assert ended.code == 0, ended.stderr
    return folder / "bundle"


@pytest.fixture(scope="module")
def uses(
    lighttpd: Fitted, hello: Path, talker: Path, processors: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("kvm-host")
    bench = with_image(lighttpd.bundle, GUESTS / "bencher", folder, network=False)
    bundles = {"lighttpd": lighttpd.bundle, "hello": hello, "talker": talker, "processors": processors, "bench": bench}
    return seen(bundles, {"bench": folder / "layout"}, folder)


def machine_of(host: Path, content: Path) -> Machine:
    """The host's machine: as the lab's own (drivers/lab), whose clock follows instructions as long as it does not
    wait."""
    row = named(presumed_name())
    words = ("root=/dev/vda", "rootfstype=ext4", "ro", "init=/sbin/init", "loglevel=1", "panic=-1", "mitigations=off")
    return Machine(
        board=row.board_names[0], memory_bytes=2 << 30, kernel=str(host / inputs.KERNEL),
        initrd=str(host / inputs.INITRD), acpi=True, cpu_model=row.emulator.lab_cpu, clock=Clock.WALL,
        words=(*words, "cryptomgr.notests", f"console={row.kernel.console}", *row.kernel.words),
        disks=(Disk(str(host / "disk.raw")), Disk(str(content))), architecture=row.name,
        extras=("-icount", "shift=0,sleep=on"),
    )  # fmt: skip


def use(uses: dict[str, dict[str, Any]], name: str, code: int) -> dict[str, Any]:
    """One use, which ended with this status and left nothing."""
    found = uses[name]
    assert found["code"] == code, f"{name}: {found['code']}\n{found['stdout']}\n{found['stderr']}"
    assert found["left"] == [] and found["files"] == []
    return found


def test_doctor_says_that_kvm_works(uses: dict[str, dict[str, Any]]) -> None:
    checks = json.loads(use(uses, "doctor", 0)["stdout"])["checks"]
    states = {check["name"]: check["state"] for check in checks}
    assert {"KVM", "QEMU's user", "QEMU's files", "network guard"} <= {
        name for name, state in states.items() if state == "ok"
    }


def test_a_container_runs_to_its_end(uses: dict[str, dict[str, Any]]) -> None:
    found = use(uses, "hello", 3)
    assert (found["stdout"], found["stderr"]) == ("Hello from a machine made to measure.\n", "")


def test_a_container_is_observed(uses: dict[str, dict[str, Any]]) -> None:
    assert "nothing was refused" in use(uses, "observed", 3)["stderr"]


def test_a_server_answers_through_its_port_and_ctrl_c_ends_it(uses: dict[str, dict[str, Any]]) -> None:
    found = use(uses, "served", 0)
    assert "<html" in found["answer"].lower()
    assert any("-accel kvm" in line for line in found["at_work"])


def test_an_exported_machine_starts_without_vmtailor(uses: dict[str, dict[str, Any]]) -> None:
    found = use(uses, "exported", 0)
    said = "Hello from a machine made to measure.\r\nvmtailor: the container ended with status 3\r\n"
    shown = found["stdout"].replace("\r\n", "\n").removesuffix("reboot: Restarting system\n")
    assert shown == said.replace("\r\n", "\n") and "-accel kvm" in found["stderr"]


def test_a_guest_that_powers_off_is_seen(uses: dict[str, dict[str, Any]]) -> None:
    assert "the container ended the machine" in use(uses, "powers off", 125)["stderr"]


def test_two_processors(uses: dict[str, dict[str, Any]]) -> None:
    (found,) = json.loads(use(uses, "two processors", 0)["stdout"])["boots"]
    assert found["boot"]["outcome"] == "ready"


@pytest.mark.parametrize("count", [1, 2])
def test_a_kernel_that_was_fitted_to_two_processors_runs_on_as_many_as_are_asked_for(
    uses: dict[str, dict[str, Any]], count: int
) -> None:
    said = use(uses, f"on {count}", 0)["stdout"]
    assert said == "".join(f"processor {number}\n" for number in range(count))


def test_boots_are_timed(uses: dict[str, dict[str, Any]]) -> None:
    boots = json.loads(use(uses, "booted", 0)["stdout"])["boots"]
    assert [found["boot"]["outcome"] for found in boots] == ["ready", "ready"]


def test_a_bundle_is_verified_on_the_wall_clock(uses: dict[str, dict[str, Any]]) -> None:
    found = json.loads(use(uses, "verified", 0)["stdout"])
    assert found["verified"] and not found["failures"]


def test_a_machine_is_timed_beside_the_host(uses: dict[str, dict[str, Any]]) -> None:
    (run,) = json.loads(use(uses, "benched", 0)["stdout"])["runs"]
    assert run["host"]["kvm"]
    known = {one["runtime"]: one for one in run["identities"]}
    assert {name: one["problem"] for name, one in known.items()} == {"native": "", "vm:bench": ""}
    assert known["vm:bench"]["own_kernel"] and not known["native"]["own_kernel"]
    assert not [trial["failure"] for trial in run["trials"] if trial["failure"]]
    timed = [trial for trial in run["trials"] if trial["block"] > 0]
    assert sorted(trial["runtime"] for trial in timed) == ["native", "native", "vm:bench", "vm:bench"]
    for trial in timed:
        figures = {figure["name"]: figure["value"] for figure in trial["figures"]}
        first = figures["program started" if trial["runtime"] == "vm:bench" else "own report"]
        assert 0 < first <= figures["exit"]
