# SPDX-License-Identifier: Apache-2.0
"""Images of processors that this host lacks something for, mixed images, and CPUs that nobody emulates: one clear
message that names what is wrong or missing, before anything begins."""

from __future__ import annotations

import os
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.program import Ended, assert_clear, run_program
from tests.fakes.tars import file, tar_of, write_layout

from vmtailor.base import natives
from vmtailor.base.errors import HostError
from vmtailor.model.architecture import Architecture, every

pytestmark = pytest.mark.contract

CONFIG: dict[str, Any] = {"Entrypoint": ["/prog"], "Env": ["PATH=/"]}
OTHERS = [row for row in every() if not row.is_host]
HOST = next((row for row in every() if row.is_host), OTHERS[0])


def program(row: Architecture) -> bytes:
    """A static program of a processor, as far as its header goes."""
    ident = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    return struct.pack("<16sHHIQQQIHHHHHH", ident, 2, row.elf[0], 1, 0x10000, 64, 0, 0, 64, 56, 0, 64, 0, 0)


def image(folder: Path, *architectures: str, of: Architecture = HOST) -> str:
    """An image for these architectures, with a program of `of`, whatever the image says."""
    tar = tar_of(file("prog", program(of), mode=0o755))
    return f"oci:{write_layout(folder / 'layout', [tar], CONFIG, architectures)}"


def fit(folder: Path, reference: str, *options: str, **env: str) -> Ended:
    ended = run_program(folder, "fit", reference, "-o", folder / "bundle", *options, env=env)
    assert not (folder / "bundle").exists()
    return ended


def path_without(folder: Path, *names: str) -> str:
    """A PATH with all programs of this host but those."""
    folder.mkdir()
    for place in (*os.environ["PATH"].split(":"), "/usr/sbin", "/sbin"):
        for program in Path(place).iterdir() if Path(place).is_dir() else ():
            if program.name not in names and not (folder / program.name).exists():
                (folder / program.name).symlink_to(program)
    return str(folder)


@pytest.mark.parametrize("row", OTHERS, ids=lambda row: row.name)
def test_an_emulator_that_is_missing(row: Architecture, tmp_path: Path) -> None:
    path = path_without(tmp_path / "bin", row.emulator.program)
    ended = fit(tmp_path, image(tmp_path, row.image, of=row), PATH=path)
    assert_clear(ended, 3, row.emulator.program, f"apt-get install {row.emulator.package}")


@pytest.mark.parametrize("row", OTHERS, ids=lambda row: row.name)
def test_a_cross_compiler_that_is_missing(row: Architecture, tmp_path: Path) -> None:
    if shutil.which(row.emulator.program) is None:
        pytest.skip(f"{row.emulator.program} is not here")
    path = path_without(tmp_path / "bin", f"{row.kernel.cross}gcc")
    ended = fit(tmp_path, image(tmp_path, row.image, of=row), PATH=path)
    assert_clear(ended, 3, f"{row.kernel.cross}gcc", f"apt-get install {row.kernel.cross_packages[0]}")


@pytest.mark.parametrize("row", OTHERS, ids=lambda row: row.name)
def test_a_c_library_that_is_missing(row: Architecture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cross compiler is there, and finds no header: what its packages are is said, the library among them."""
    compiler = shutil.which(f"{row.kernel.cross}gcc")
    if compiler is None:
        pytest.skip(f"no compiler of {row.title} is here")
    alone = tmp_path / "bin" / f"{row.kernel.cross}gcc"
    alone.parent.mkdir()
    alone.write_text(f'#!/bin/sh\nexec {compiler} -nostdinc "$@"\n')
    alone.chmod(0o755)
    monkeypatch.setenv("PATH", f"{alone.parent}:{os.environ['PATH']}")
    there = natives.locate()
    monkeypatch.setattr(natives, "locate", lambda: there)
    monkeypatch.setattr(natives, "FOLDER", tmp_path / "made")
    (tmp_path / "made" / row.name).mkdir(parents=True)
    with pytest.raises(HostError, match="could not be compiled") as caught:
        natives.for_guests(row.name, f"{row.kernel.cross}gcc", row.kernel.cross_packages)
    assert caught.value.exit_code == 3
    library = next(name for name in row.kernel.cross_packages if name.startswith("libc6-dev-"))
    assert "apt-get install" in caught.value.hint and library in caught.value.hint
    assert "No such file or directory" in caught.value.details


@pytest.mark.parametrize("row", OTHERS, ids=lambda row: row.name)
def test_a_program_of_another_processor_in_an_image(row: Architecture, tmp_path: Path) -> None:
    assert_clear(fit(tmp_path, image(tmp_path, row.image)), 2, "/prog", HOST.title, f"in an image for {row.title}")


@pytest.mark.parametrize("row", OTHERS, ids=lambda row: row.name)
def test_a_library_of_another_processor_somewhere_in_an_image(row: Architecture, tmp_path: Path) -> None:
    """What is never started is a warning, with the file, each time; it is no reason to refuse the image. (What ends the
    fit here is a CPU that there is not.)"""
    if shutil.which(row.emulator.program) is None or shutil.which(f"{row.kernel.cross}gcc") is None:
        pytest.skip(f"no emulator or compiler of {row.title} is here")
    tar = tar_of(file("prog", program(row), mode=0o755), file("usr/lib/old.so", program(HOST)))
    reference = f"oci:{write_layout(tmp_path / 'layout', [tar], CONFIG, (row.image,))}"
    cache = str(tmp_path / "cache")
    for _ in range(2):
        ended = fit(tmp_path, reference, "--cpu-model", "abacus", XDG_CACHE_HOME=cache)
        assert_clear(ended, 2, "emulates no CPU 'abacus'")
        said = " ".join(ended.stderr.split())
        assert f"is for {row.title}, and /usr/lib/old.so ({HOST.title}) would not start there" in said
        assert "/prog" not in said


@pytest.mark.parametrize("row", OTHERS, ids=lambda row: row.name)
def test_packages_that_are_missing(row: Architecture, tmp_path: Path) -> None:
    """A mirror without this processor's packages."""
    for needed in (row.emulator.program, f"{row.kernel.cross}gcc", "apt-get"):
        if shutil.which(needed) is None:
            pytest.skip(f"{needed} is not here")
    path = path_without(tmp_path / "bin", "apt-get")
    script = tmp_path / "bin" / "apt-get"
    script.write_text(
        '#!/bin/sh\ncase " $* " in *" update "*) echo "E: 404 Not Found" >&2; exit 100;; esac\n'
        f'exec {shutil.which("apt-get")} "$@"\n'
    )
    script.chmod(0o755)
    ended = fit(tmp_path, image(tmp_path, row.image, of=row), PATH=path, XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert_clear(ended, 3, f"the package lists of {row.title} cannot be fetched", "have this architecture")


def test_an_architecture_that_is_not_in_the_index(tmp_path: Path) -> None:
    asked = OTHERS[0]
    ended = fit(tmp_path, image(tmp_path, HOST.image, "s390x"), "--arch", asked.name)
    assert_clear(ended, 2, f"no image for the architecture {asked.image}", "--arch")


@pytest.mark.parametrize("model", ["abacus", "host", "max,abacus=on"])
def test_a_cpu_that_is_not_emulated(model: str, tmp_path: Path) -> None:
    ended = fit(tmp_path, image(tmp_path, HOST.image), "--cpu-model", model)
    assert_clear(ended, 2, f"emulates no CPU '{model}'", HOST.board_names[0], HOST.emulator.cpu_model)


def test_a_cpu_that_a_machine_does_not_take(tmp_path: Path) -> None:
    """One that the emulator has, for other machines."""
    row = next((row for row in OTHERS if row.board[0].installed_mib), None)
    if row is None or shutil.which(row.emulator.program) is None or shutil.which(f"{row.kernel.cross}gcc") is None:
        pytest.skip("no such machine is known, or its emulator is not here")
    ended = fit(tmp_path, image(tmp_path, row.image, of=row), "--cpu-model", "max")
    assert_clear(ended, 2, "emulates no CPU 'max'", row.board_names[0], row.emulator.cpu_model)
