# SPDX-License-Identifier: Apache-2.0
"""Entry points: found as the kernel would find them, and what interprets them too."""

from __future__ import annotations

import subprocess
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes.tars import directory, file, layers_of, symlink, tar_of

from vmtailor.base.errors import UserInputError
from vmtailor.base.files.elf import interpreter_of
from vmtailor.drivers.image.entry_point import check_entry_point, strangers
from vmtailor.drivers.image.layers import Layer, merge, read_tree
from vmtailor.model.image import Image, ImageConfig


def checked(folder: Path, argv: tuple[str, ...], *entries: tuple[tarfile.TarInfo, bytes], **config: Any) -> str:
    archive = folder / "flat.tar"
    merge(layers_of(folder, [tar_of(*entries)]), archive)
    image = Image("oci:x", "sha256:0", ImageConfig("amd64", cmd=argv, **config), str(archive), "0", 1, 1)
    return check_entry_point(read_tree([Layer(archive, "flat")]), image)


def program(name: str, data: bytes = b"\x7fELF") -> tuple[tarfile.TarInfo, bytes]:
    return file(name, data, mode=0o755)


def test_found_through_path_working_directory_and_links(tmp_path: Path) -> None:
    tree = (program("usr/bin/a"), symlink("bin", "/usr/bin"), symlink("usr/bin/b", "../../bin/a"), directory("srv"))
    path = (("PATH", "/none:/bin"),)
    assert checked(tmp_path, ("b",), *tree, env=path) == "/bin/b"
    assert checked(tmp_path, ("a",), *tree) == "/usr/bin/a"
    assert checked(tmp_path, ("./a",), *tree, working_dir="/usr/bin") == "/usr/bin/./a"
    assert checked(tmp_path, ("../bin/a",), *tree, working_dir="/srv") == "/srv/../bin/a"
    assert checked(tmp_path, ("a",), *tree, env=(("PATH", ""),), working_dir="/bin") == "/bin/a"


def test_the_first_that_can_be_executed_counts(tmp_path: Path) -> None:
    tree = (file("one/a", mode=0o644), directory("two/a"), program("three/a"))
    assert checked(tmp_path, ("a",), *tree, env=(("PATH", "/one:/two:/three"),)) == "/three/a"
    with pytest.raises(UserInputError, match="is a directory"):
        checked(tmp_path, ("a",), *tree, env=(("PATH", "/one:/two"),))


def for_machine(number: int) -> bytes:
    return b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x02\x00" + number.to_bytes(2, "little") + bytes(44)


def test_a_program_of_another_processor_is_named(tmp_path: Path) -> None:
    """A mixed image: the program that is started, or what interprets it, is not for what the image says."""
    for number in (62, 3):  # of 32 bits, too
        assert checked(tmp_path, ("/a",), program("a", for_machine(number))) == "/a"
    with pytest.raises(UserInputError, match="'/a' of oci:x is a program for arm64, in an image for x86-64") as caught:
        checked(tmp_path, ("/a",), program("a", for_machine(183)))
    assert "--arch" in caught.value.hint
    with pytest.raises(UserInputError, match="'/b' of oci:x is a program for machine 22 of ELF"):
        checked(tmp_path, ("/a",), program("a", b"#!/b\n"), program("b", for_machine(22)))


def test_programs_of_other_processors_are_found_wherever_they_are(tmp_path: Path) -> None:
    """Those that machines are fitted for; neither objects, nor firmware, nor what is no program at all."""
    others = ["usr/lib/x86_64-linux-gnu/libold.so", "opt/tool"]
    entries = (
        program("a", for_machine(183)),
        *(file(name, for_machine(62)) for name in others),
        file("lib/firmware/dsp", for_machine(164)),
        file("lib/bpf", for_machine(247)),
        file("src/a.o", for_machine(62)[:16] + b"\x01\x00" + for_machine(62)[18:]),
        file("short", b"\x7fELF\x02"),
        file("text", b"x" * 64),
        symlink("link", "opt/tool"),
    )
    archive = tmp_path / "flat.tar"
    merge(layers_of(tmp_path, [tar_of(*entries)]), archive)
    tree = read_tree([Layer(archive, "flat")])
    image = Image("oci:x", "sha256:0", ImageConfig("arm64"), str(archive), "0", 1, 1)
    assert strangers(tree, image) == tuple((f"/{name}", "x86-64") for name in sorted(others))
    assert strangers(tree, replace(image, config=ImageConfig("amd64"))) == (("/a", "arm64"),)
    assert strangers(tree, replace(image, config=ImageConfig("pdp11"))) == ()


@pytest.mark.parametrize(
    ("data", "needs"),
    [(b"#!/bin/bash\necho", "/bin/bash"), (b"#! /usr/bin/env  python3\n", "/usr/bin/env"), (b"#!bin/sh", "bin/sh")],
)
def test_scripts_need_their_interpreter(tmp_path: Path, data: bytes, needs: str) -> None:
    assert interpreter_of(data) == needs
    with pytest.raises(UserInputError, match=f"'{needs}'.*is not in the image"):
        checked(tmp_path, ("/run.sh",), program("run.sh", data))
    with pytest.raises(UserInputError, match=f"'{needs}'.*is a directory"):
        checked(tmp_path, ("/run.sh",), program("run.sh", data), directory(needs.lstrip("/")))
    assert checked(tmp_path, ("/run.sh",), program("run.sh", data), program(needs.lstrip("/"))) == "/run.sh"


def test_dynamic_programs_need_their_loader(tmp_path: Path) -> None:
    source = tmp_path / "p.c"
    source.write_text("int main(void) { return 0; }\n")
    for flags, dynamic in (([], True), (["-static"], False)):
        subprocess.run(["cc", *flags, "-o", str(tmp_path / "p"), str(source)], check=True)
        data = (tmp_path / "p").read_bytes()
        loader = interpreter_of(data[:8192])
        assert (loader is not None) == dynamic
        if loader is None:
            assert checked(tmp_path, ("/p",), program("p", data)) == "/p"
        else:
            with pytest.raises(UserInputError, match="ld-linux"):
                checked(tmp_path, ("/p",), program("p", data))
            assert checked(tmp_path, ("/p",), program("p", data), program(loader.lstrip("/"))) == "/p"


@given(st.binary(max_size=200), st.sampled_from([b"", b"#!", b"\x7fELF\x02\x01", b"\x7fELF\x01\x02"]))
def test_any_bytes_name_an_interpreter_or_none(data: bytes, start: bytes) -> None:
    found = interpreter_of(start + data)
    assert found is None or found
