# SPDX-License-Identifier: Apache-2.0
"""`vmtailor boot`: what does not go together is refused in words before a machine starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.fakes.started import Start

from vmtailor.base.errors import UserInputError
from vmtailor.booting import series_run
from vmtailor.cli.boots import boot_machine
from vmtailor.pipeline.options import BootOptions


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("empty.raw",), "empty.raw has no boot loader"),
        (("disk:empty.raw",), "empty.raw has no boot loader"),
        (("unsigned.raw", "--disk", "loader.raw"), "unsigned.raw has no boot loader"),
        (("loader.raw", "--append", "quiet"), "--append needs --kernel"),
        (("loader.raw", "--attribute"), "--attribute needs --kernel"),
    ],
)
def test_what_needs_a_kernel_or_a_loader_says_so(
    words: tuple[str, ...], says: str, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*_: Any, **__: Any) -> None:
        pytest.fail("a machine was started")

    monkeypatch.setattr(series_run, "run", run)
    monkeypatch.chdir(tmp_path)
    for name, sector in {
        "empty.raw": bytes(510) + b"\x55\xaa",  # a table of partitions, and nobody to read it
        "unsigned.raw": b"\xeb" * 512,
        "loader.raw": b"\xeb" * 510 + b"\x55\xaa",
    }.items():
        (tmp_path / name).write_bytes(sector + bytes(4096 - len(sector)))
    code, out, err = start("boot", *words, "-o", tmp_path / "out")
    assert (code, out) == (2, "") and says in " ".join(err.split())
    assert not (tmp_path / "out").exists()


def test_a_kernel_that_is_missing_or_empty_starts_no_machine(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "short").write_bytes(b"x")
    assert boot_machine.existing(tmp_path / "short") == str(tmp_path / "short") and boot_machine.existing(None) is None
    for name, says in (("none", "does not exist"), ("empty", "is empty"), ("", "does not exist or is not a file")):
        with pytest.raises(UserInputError, match=says):
            boot_machine.existing(tmp_path / name)


@pytest.mark.parametrize("text", ["", "=", "name", "name=", "=pattern", "name=("])
def test_a_mark_has_a_name_and_a_pattern(text: str) -> None:
    with pytest.raises(UserInputError, match="--mark"):
        boot_machine.workload_of(BootOptions(ready="login", marks=(text,)))
