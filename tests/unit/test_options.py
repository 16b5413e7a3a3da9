# SPDX-License-Identifier: Apache-2.0
"""The table of options: each one is refused where it does not apply, and is in the key where a result depends on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import Field, fields, replace
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args, get_type_hints

import pytest

from vmtailor.base.cache.store import Store
from vmtailor.base.errors import UserInputError
from vmtailor.drivers.kernel.make import Toolchain
from vmtailor.model.option import OptionSubject, given, refuse, result_key, row_of, unkeyed
from vmtailor.pipeline import fit, keys
from vmtailor.pipeline.options import FitOptions

FIT_FIELDS = pytest.mark.parametrize("one", fields(FitOptions), ids=lambda one: one.name)
KINDS = pytest.mark.parametrize("kind", OptionSubject, ids=lambda kind: kind.name)


def options(tmp_path: Path) -> FitOptions:
    return FitOptions("oci:x", tmp_path, store=Store(tmp_path / "cache"))


def another(one: Field[Any], value: Any, tmp_path: Path) -> Any:
    """Return a value of the field's type that is not this one."""
    hint = get_type_hints(FitOptions)[one.name]
    kinds = {kind for kind in (hint, *get_args(hint)) if isinstance(kind, type)}
    simple: dict[type, Any] = {str: "another", Path: tmp_path / "another", Store: Store(tmp_path / "another")}
    if kinds & {bool, int}:
        return not value if bool in kinds else (value or 0) + 1
    if found := kinds & simple.keys():
        return simple[found.pop()]
    if one.name == "distribution":
        return SimpleNamespace(name="none")
    if enums := [kind for kind in kinds if issubclass(kind, Enum)]:
        return next(member for member in enums[0] if member is not value)
    return ("another",)


@FIT_FIELDS
def test_a_result_of_fit_depends_on_an_option_or_the_table_says_why_not(one: Field[Any], tmp_path: Path) -> None:
    assert "option" in one.metadata or "unkeyed" in one.metadata, "made by `option` or `internal`"
    reason = unkeyed(one)
    assert reason == "" or len(reason.split()) >= 4
    before = options(tmp_path)
    after = replace(before, **{one.name: another(one, getattr(before, one.name), tmp_path)})
    assert (result_key(after) != result_key(before)) is (reason == "")


@pytest.fixture
def key_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[FitOptions], str]:
    """The key of a fit with these options, with everything else as it was."""
    monkeypatch.setattr(keys, "code", lambda: "same")
    monkeypatch.setattr(Toolchain, "of", lambda *_: SimpleNamespace(describe=lambda: "same"))

    def key(asked: FitOptions) -> str:
        source = SimpleNamespace(digest="same")
        more = {"trace_key": lambda: "same", "identity": "same", "description": b"same", "row": "same"}
        subject: Any = SimpleNamespace(options=asked, source=source, **more)
        return fit.fit_key(subject)

    return key


@pytest.mark.parametrize(
    "one", [one for one in fields(FitOptions) if not unkeyed(one) and one.name != "architecture"], ids=lambda o: o.name
)
def test_the_key_of_a_fit_has_every_option_that_it_depends_on(
    one: Field[Any], key_of: Callable[[FitOptions], str], tmp_path: Path
) -> None:
    before = options(tmp_path)
    after = replace(before, **{one.name: another(one, getattr(before, one.name), tmp_path)})
    assert key_of(after) != key_of(before)
    assert key_of(before) == key_of(options(tmp_path))


@KINDS
@FIT_FIELDS
def test_an_option_of_fit_is_accepted_or_refused_by_its_name(
    one: Field[Any], kind: OptionSubject, tmp_path: Path
) -> None:
    row = row_of(one)
    before = options(tmp_path)
    asked = replace(before, **{one.name: another(one, getattr(before, one.name), tmp_path)})
    if row is None or kind in row.subjects:
        refuse(asked, kind, "oci:x")
        return
    spelled = f"--no-{row.name[2:]}" if one.default is True else row.name
    with pytest.raises(UserInputError, match=f"^{spelled}\\b.*: not for {kind.phrase}, and oci:x is one$") as error:
        refuse(asked, kind, "oci:x")
    assert error.value.hint
    assert [words.split()[0] for _, words in given(asked)] == ["--out", spelled]


def test_what_only_one_kind_has_a_use_for_is_what_it_was() -> None:
    """The table's own words, once more: what an option applies to changes on purpose, and here too."""
    only = {
        kind: {row.name for one in fields(FitOptions) if (row := row_of(one)) and kind not in row.subjects}
        for kind in OptionSubject
    }
    images = {"--kernel", "--baseline-config", "--root", "--margin", "--price-margins", "--terminal", "--entrypoint"}
    assert only[OptionSubject.TREE] == {*images, "--cmd", "--privileged"}
    assert only[OptionSubject.DISK] == {*only[OptionSubject.TREE], "--authfile", "--max-image-size"}
    assert only[OptionSubject.IMAGE] == {"--units", "--mask", "--try", "--try-file"}


def test_what_no_result_of_fit_depends_on_is_what_it_was() -> None:
    assert {one.name for one in fields(FitOptions) if unkeyed(one)} == {
        *("reference", "out", "exercise_file", "memory_asked", "kernel", "source", "baseline_config"),
        *("authfile", "max_image_bytes", "command", "store", "distribution"),
    }
