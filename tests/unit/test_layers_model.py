# SPDX-License-Identifier: Apache-2.0
"""Merging layers against a model of the rules on plain dictionaries, over layers that hypothesis makes up.

Nothing here stands below a symbolic link; tests/unit/test_layers.py has those cases."""

from __future__ import annotations

import tarfile
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.fakes.tars import directory, file, hardlink, layers_of, read_flat, symlink, tar_of

from vmtailor.drivers.image.layers import merge

Op = tuple[str, str, str]
Entry = tuple[tarfile.TarInfo, bytes]
What = tuple[str, str]

PATHS = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=3).map("/".join)
KINDS = st.sampled_from(["file", "file", "directory", "symlink", "hardlink", "whiteout", "opaque"])
LAYER = st.lists(st.tuples(KINDS, PATHS, PATHS), max_size=8)
DIRECTORY: What = ("directory", "")


class Model:
    """path → kind and content, or target. `layer` applies what makes sense of a layer, and returns it as entries."""

    def __init__(self) -> None:
        self.tree: dict[str, What] = {}
        self.serial = 0

    def is_plain(self, path: str) -> bool:
        """Whether every parent of a path is a directory, or nothing yet."""
        return all(self.tree.get(str(p), DIRECTORY) == DIRECTORY for p in PurePosixPath(path).parents[:-1])

    def remove(self, path: str, *, itself: bool = True) -> None:
        for name in [n for n in self.tree if n.startswith(f"{path}/") or (itself and n == path)]:
            del self.tree[name]

    def put(self, path: str, what: What) -> None:
        for parent in reversed(PurePosixPath(path).parents[:-1]):
            self.tree.setdefault(str(parent), DIRECTORY)
        if what != DIRECTORY or self.tree.get(path) != DIRECTORY:
            self.remove(path)
            self.tree[path] = what

    def layer(self, ops: list[Op]) -> list[Entry]:
        marks = [(kind, path) for kind, path, _ in ops if kind in ("whiteout", "opaque") and self.is_plain(path)]
        marks = [(k, p) for k, p in marks if k == "whiteout" or self.tree.get(p, DIRECTORY) == DIRECTORY]
        for kind, path in marks:
            self.remove(path, itself=kind == "whiteout")
        entries = [entry for op in ops if self.is_plain(op[1]) for entry in self._entry(*op)]
        # Whiteouts may stand anywhere in their layer: here they come last.
        return entries + [self._mark(kind, PurePosixPath(path)) for kind, path in marks]

    @staticmethod
    def _mark(kind: str, path: PurePosixPath) -> Entry:
        return file(str(path / ".wh..wh..opq" if kind == "opaque" else path.parent / f".wh.{path.name}"))

    def _entry(self, kind: str, path: str, other: str) -> list[Entry]:
        self.serial += 1
        text = str(self.serial)
        made: Entry
        if kind == "file":
            what, made = ("file", text), file(path, text.encode())
        elif kind == "directory":
            what, made = DIRECTORY, directory(path)
        elif kind == "symlink":
            what, made = ("symlink", text), symlink(path, text)
        elif kind == "hardlink" and self.is_plain(other) and self.tree.get(other, DIRECTORY)[0] == "file":
            if path.startswith(other):
                return []
            what, made = self.tree[other], hardlink(path, other)
        else:
            return []
        self.put(path, what)
        return [made]


@pytest.mark.lengthy
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(LAYER, min_size=1, max_size=4))
def test_merging_agrees_with_a_simple_model(tmp_path: Path, plan: list[list[Op]]) -> None:
    model = Model()
    merge(layers_of(tmp_path, [tar_of(*model.layer(ops)) for ops in plan]), tmp_path / "flat")
    flat = read_flat(tmp_path / "flat")
    found: dict[str, What] = {}
    for name, (info, data) in flat.items():
        if info.islnk():
            found[name] = ("file", flat[info.linkname][1].decode())
        elif info.isdir():
            found[name] = DIRECTORY
        else:
            found[name] = ("symlink", info.linkname) if info.issym() else ("file", data.decode())
    del found["."]
    assert found == model.tree
