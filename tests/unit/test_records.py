# SPDX-License-Identifier: Apache-2.0
"""Records survive a round trip, and damaged or foreign ones are refused with a clear error."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmtailor.base.errors import UserInputError
from vmtailor.base.files import records
from vmtailor.model.exercise import Exercise, Expect, Ready, ReadyKind, Step, StepKind
from vmtailor.model.image import HealthCheck, Image, ImageConfig, Port

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
configs = st.builds(
    ImageConfig,
    architecture=text,
    entrypoint=st.lists(text, max_size=3).map(tuple),
    env=st.lists(st.tuples(text, text), max_size=3).map(tuple),
    exposed_ports=st.lists(st.builds(Port, st.integers(1, 65535)), max_size=3).map(tuple),
    health_check=st.none() | st.builds(HealthCheck, argv=st.lists(text, max_size=3).map(tuple)),
)


@given(configs)
def test_an_image_survives_the_round_trip(config: ImageConfig) -> None:
    image = Image("oci:x", "sha256:0", config, "/tmp/a.tar", "0", 1, 2)
    assert records.from_bytes(Image, records.to_bytes(image)) == image


def test_an_exercise_survives_the_round_trip(tmp_path: Path) -> None:
    step = Step(StepKind.HTTP, port=80, repeat=5, expect=Expect(status=200))
    exercise = Exercise("file", Ready(ReadyKind.HTTP, step), (step,), Expect(exit_code=0))
    records.save(exercise, tmp_path / "sub" / "exercise.json")
    assert records.load(Exercise, tmp_path / "sub" / "exercise.json") == exercise
    assert (tmp_path / "sub" / "exercise.json").read_text().splitlines()[1].strip().startswith('"schema"')
    assert [p.name for p in (tmp_path / "sub").iterdir()] == ["exercise.json"]


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"schema": "vmtailor/image/999"}', b'{"schema": 3}', b"\xff\xfe"])
def test_a_damaged_or_foreign_record_is_refused(data: bytes) -> None:
    with pytest.raises(UserInputError):
        records.from_bytes(Image, data)


def test_a_wrong_type_inside_is_refused() -> None:
    with pytest.raises(UserInputError, match="damaged"):
        records.from_bytes(Image, b'{"schema": "vmtailor/image/2", "reference": 7}')
