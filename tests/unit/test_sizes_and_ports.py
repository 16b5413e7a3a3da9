# SPDX-License-Identifier: Apache-2.0
"""What people write on the command line: sizes, variables, commands."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmtailor.base.errors import UserInputError
from vmtailor.model.boots.workload import NETWORK
from vmtailor.model.image import ImageConfig
from vmtailor.model.option_values import parse_memory
from vmtailor.pipeline.machine_run import RunOptions, run_of

IMAGE = ImageConfig("amd64", entrypoint=("/entry",), cmd=("image", "words"))


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("256M", 256 << 20),
        ("64", 64 << 20),
        ("1G", 1 << 30),
        ("1 GiB", 1 << 30),
        ("8192k", 8 << 20),
        (" 9mb ", 9 << 20),
        ("64m", 64 << 20),
        ("1g", 1 << 30),
        ("134217728b", 128 << 20),
        ("134217728", 128 << 20),
        ("1.5G", 3 << 29),
        ("0.3g", 307 << 20),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_memory(text) == size


@pytest.mark.parametrize(
    "text", ["", "M", "-1M", "1.5", "1.G", ".5G", "256X", "7M", "1025G", "0x10", "1 2", "256M\n256M"]
)
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(UserInputError) as caught:
        parse_memory(text)
    assert caught.value.hint


@given(st.text(max_size=20))
def test_any_text_is_a_size_or_an_error_for_a_person(text: str) -> None:
    try:
        size = parse_memory(text)
    except UserInputError:
        return
    assert 8 << 20 <= size <= 1 << 40


@pytest.mark.parametrize(
    ("command", "entrypoint", "argv"),
    [
        ((), None, None),
        (("other",), None, ("/entry", "other")),
        ((), "/bin/sh", ("/bin/sh",)),
        (("-c", "ls"), "/bin/sh", ("/bin/sh", "-c", "ls")),
        ((), "", ("image", "words")),
        (("given", "word"), "", ("given", "word")),
    ],
)
def test_what_is_executed(command: tuple[str, ...], entrypoint: str | None, argv: tuple[str, ...] | None) -> None:
    run = run_of(RunOptions(Path("b"), command=command, entrypoint=entrypoint), IMAGE, network=False)
    assert run.argv == argv
    assert run.network is None and run.terminal is None and not run.stdin


def test_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSED_ON", "from outside")
    monkeypatch.delenv("NOT_SET", raising=False)
    options = RunOptions(Path("b"), env=("A=1", "B=", "C=x=y", "PASSED_ON", "NOT_SET"))
    run = run_of(options, IMAGE, network=True)
    assert run.env == (("A", "1"), ("B", ""), ("C", "x=y"), ("PASSED_ON", "from outside"))
    assert run.network == NETWORK
    with pytest.raises(UserInputError):
        run_of(RunOptions(Path("b"), env=("=1",)), IMAGE, network=True)


def test_nothing_to_execute_is_an_error() -> None:
    from pathlib import Path

    for image, entrypoint in ((ImageConfig("amd64", entrypoint=("/entry",)), ""), (ImageConfig("amd64"), None)):
        with pytest.raises(UserInputError, match="no command"):
            run_of(RunOptions(Path("b"), entrypoint=entrypoint), image, network=False)


@pytest.mark.parametrize("fitted", [False, True])
@pytest.mark.parametrize("asked", [None, False, True])
def test_a_container_is_privileged_as_it_was_fitted_unless_told_otherwise(fitted: bool, asked: bool | None) -> None:
    run = run_of(RunOptions(Path("b"), privileged=asked), IMAGE, network=False, privileged=fitted)
    assert run.privileged is (fitted if asked is None else asked)
