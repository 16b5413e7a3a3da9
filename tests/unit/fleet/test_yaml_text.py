# SPDX-License-Identifier: Apache-2.0
"""YAML of strangers: scalars as YAML 1.2 has them, nothing twice, and neither depth nor aliases hurt."""

from __future__ import annotations

import contextlib
import json
import time

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from vmtailor.base.errors import UserInputError
from vmtailor.fleet.lists import yaml_text

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**12), 10**12)
    | st.text(st.characters(exclude_categories=["C"]), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("abcxyz", min_size=1, max_size=4), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(plain)
def test_what_the_library_writes_is_read_as_it_was(value: object) -> None:
    expected = [] if value is None else [value]
    assert yaml_text.documents(yaml.safe_dump(value), "x") == expected
    assert yaml_text.documents(yaml.safe_dump([value]), "x") == [[value]]
    assert yaml_text.documents(json.dumps({"a": value}, indent="\t"), "x") == [{"a": value}]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("80:80", "80:80"),
        ("2001-12-14", "2001-12-14"),
        ("yes", "yes"),
        ("on", "on"),
        ("010", 10),
        ("0x10", 16),
        ("0o17", 15),
        ("1_000", "1_000"),
        ("true", True),
        ("False", False),
        ("~", None),
        ("", None),
        ("null", None),
        ("1.5", 1.5),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("-7", -7),
        ("'7'", "7"),
        ("!!str 7", "7"),
    ],
)
def test_scalars_are_those_of_yaml_1_2(text: str, value: object) -> None:
    assert yaml_text.documents(f"a: {text}\n", "x") == [{"a": value}]


def test_aliases_and_merges_are_written_out() -> None:
    text = "x: &a {b: 1, c: 2}\ny: {<<: *a, c: 3}\nz: *a\n"
    assert yaml_text.documents(text, "x") == [{"x": {"b": 1, "c": 2}, "y": {"b": 1, "c": 3}, "z": {"b": 1, "c": 2}}]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: 1\nb: 2\na: 3", "'a' stands twice, line 3"),
        ('{"a": 1, "a": 2}', "'a' stands twice"),
        ("a: &x [*x]", "of what it stands in itself"),
        ("[" * 5000, "nested too deep"),
        ("a: " + "{a: " * 70, "too deep"),
        ('{"a":' * 70 + "1" + "}" * 70, "too deep"),
        ("!!python/object/apply:os.system [x]", "not YAML"),
        ("? [1]\n: 2", "unhashable"),
        ("a: *b", "undefined alias"),
        ("\ta: b", "not YAML"),
        ("a: " + "9" * 40, ""),
    ],
)
@pytest.mark.attack
def test_what_is_wrong_is_refused_in_words(text: str, says: str) -> None:
    if not says:
        assert yaml_text.documents(text, "x")
        return
    with pytest.raises(UserInputError, match=says):
        yaml_text.documents(text, "x")


@pytest.mark.attack
@pytest.mark.parametrize("merge", [False, True])
def test_aliases_of_aliases_are_counted_before_they_are_made(merge: bool) -> None:
    lines = ["a0: &a0 {x0: 1, x1: 1}" if merge else "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    for number in range(1, 30):
        many = ", ".join([f"*a{number - 1}"] * 9)
        lines.append(f"a{number}: &a{number} " + (f"{{<<: [{many}]}}" if merge else f"[{many}]"))
    before = time.monotonic()
    with pytest.raises(UserInputError, match="more than 1000000 values"):
        yaml_text.documents("\n".join(lines), "x")
    assert time.monotonic() - before < 2


@pytest.mark.attack
def test_a_message_never_quotes_the_line() -> None:
    with pytest.raises(UserInputError) as caught:
        yaml_text.documents("a: 1\npassword: hunter2: hunter3\n", "x")
    assert "hunter" not in caught.value.message
    assert "line 2" in caught.value.message


@pytest.mark.attack
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(UserInputError):
        yaml_text.documents(text, "x")
