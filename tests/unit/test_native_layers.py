# SPDX-License-Identifier: Apache-2.0
"""The C code's house: who may include whom, that nobody does so in a circle, and where a processor may be named."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from vmtailor.base.natives import SOURCES

#: Folders, each of which may take from those before it, and from itself.
LAYERS = (
    "arch", "common", "init/base", "init/settings", "init/machine", "init/container", "init/exercise", "init",
)  # fmt: skip
#: Programs of one folder each, with the layers they take from.
PROGRAMS = {
    # Init's exercise without its container: what that asks of one is the attendant's own.
    "attendant": {"arch", "common", "init/base", "init/settings", "init/machine", "init/container", "init/exercise"},
    "builtin": {"common", "init/base", "sampler"},
    "sampler": {"common"},
    "client": {"common"},
    "load-client": {"common"},
    "stage1": {"common"},
    "collector": {"arch"},
    "small-init": {"common"},
    "launch": set[str](),
    "supervise": {"common"},
    "serve": {"launch"},
    "forward": set[str](),
    "guard": set[str](),
    "scope": set[str](),
    "enter": set[str](),
    "krun-start": set[str](),
    "begin": {"arch"},
}

#: QEMU's plugins, which are no programs.
PLUGINS = {"call-plugin": {"tcg-plugin"}}

_INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
#: A function of another file that is declared by hand instead of by including its header.
_DECLARED = re.compile(
    r"^(?!static|typedef|struct|enum|#|extern struct)[A-Za-z_][^;{}()]*\([^{};]*\)[^{};]*;$", re.MULTILINE
)
_PROCESSOR = re.compile(
    r"x86|amd64|i386|ia32|aarch64|arm64|cntvct|mips|riscv|rdtsc|tty(?:S|AMA)[0-9]|__asm__ volatile\(\"[^/]",
    re.IGNORECASE,
)


def sources(*suffixes: str) -> Iterator[Path]:
    return (path for path in sorted(SOURCES.rglob("*")) if path.suffix in suffixes and path.is_file())


def place(path: Path) -> str:
    return path.relative_to(SOURCES).as_posix()


def meant(path: Path, name: str) -> str:
    """The file that an include of `path` means: beside it, or from the root of native/."""
    if name == "arch.h":
        return "arch/x86_64/arch.h"
    beside = path.parent / name
    found = beside if beside.is_file() else SOURCES / name
    assert found.is_file(), f"{place(path)} includes {name}"
    return place(found)


def includes() -> dict[str, set[str]]:
    """Rooms (a source with its header) that a room includes."""
    found: dict[str, set[str]] = {}
    for path in sources(".c", ".h"):
        room = found.setdefault(place(path.with_suffix("")), set())
        room |= {meant(path, name).rpartition(".")[0] for name in _INCLUDE.findall(path.read_text())}
    return {room: others - {room} for room, others in found.items()}


def circle(graph: dict[str, set[str]]) -> list[str]:
    """Rooms of which none can come last: each includes another of them."""
    left = dict(graph)
    while free := [room for room, others in left.items() if not others & left.keys()]:
        for room in free:
            del left[room]
    return sorted(left)


def folder(room: str) -> str:
    parent = room.rpartition("/")[0]
    return parent if parent in LAYERS else room.partition("/")[0]


def declared_by_hand(text: str) -> list[str]:
    """Functions that a source declares and does not define."""
    names = [re.findall(r"(\w+)\(", found)[0] for found in _DECLARED.findall(text)]
    return [name for name in names if not re.search(rf"^\w[^;{{}}\n]*\b{name}\([^;{{}}]*\)\s*\{{", text, re.MULTILINE)]


def test_no_files_include_each_other_in_a_circle() -> None:
    assert circle(includes()) == []


def test_a_circle_would_be_seen() -> None:
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}, "e": set()}) == ["a", "b", "c", "d"]


def test_each_folder_takes_only_from_what_lies_below_it() -> None:
    wrong = []
    for room, others in includes().items():
        own = folder(room)
        below = set(LAYERS[: LAYERS.index(own)]) if own in LAYERS else {**PROGRAMS, **PLUGINS}.get(own, set())
        if own != "tests":
            wrong += [f"{room} -> {other}" for other in others if folder(other) not in below | {own}]
    assert wrong == []


def test_nobody_declares_anothers_function_by_hand() -> None:
    assert {place(path): found for path in sources(".c") if (found := declared_by_hand(path.read_text()))} == {}


def test_each_header_declares_what_its_own_source_defines() -> None:
    elsewhere = {}
    for path in sources(".h"):
        source = path.with_suffix(".c")
        text = path.read_text() + (source.read_text() if source.is_file() else "")
        if path.name != "qemu_api.h" and (found := declared_by_hand(text)):
            elsewhere[place(path)] = found
    assert elsewhere == {}


@pytest.mark.parametrize("text", ["void fatal(const char *why);", "_Noreturn void fatal(const char *a,\n    int b);"])
def test_a_declaration_by_hand_would_be_seen(text: str) -> None:
    assert declared_by_hand(f"#include <a.h>\n\n{text}\n") == ["fatal"]
    assert declared_by_hand(f"{text}\n\n{text[:-1]} {{\n}}\n") == []


def test_only_arch_names_a_processor() -> None:
    named = [
        f"{place(path)}: {found}"
        for path in sources(".c", ".h", ".S")
        if not place(path).startswith("arch/")
        for found in _PROCESSOR.findall(path.read_text())
    ]
    assert named == []


def test_every_program_has_a_folder_of_its_own() -> None:
    mains = [place(path.parent) for path in sources(".c") if re.search(r"^int main\(", path.read_text(), re.MULTILINE)]
    assert sorted(set(mains)) == sorted([*PROGRAMS, "init", "tests"])
    assert [one for one in mains if one != "tests"] == sorted([*PROGRAMS, "init"])
