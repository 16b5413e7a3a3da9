# SPDX-License-Identifier: Apache-2.0
"""How much of the host one image may take, and the words that refuse more."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from vmtailor.base.errors import HostError
from vmtailor.drivers.image import allowance
from vmtailor.drivers.image.allowance import Allowance, ImageLimits, Room, TooLarge, require_room, too_many

GIB, MIB = 1 << 30, 1 << 20


def free(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=size))


def test_an_image_has_16_gib_where_the_disk_has_twice_as_much(monkeypatch: pytest.MonkeyPatch) -> None:
    for size, most in ((32 * GIB, 16 * GIB), (32 * GIB - 1, 2 * GIB), (0, 2 * GIB)):
        free(monkeypatch, size)
        found = ImageLimits.for_disk(Path())
        assert (found.unpacked_bytes, found.entries) == (most, most // 4096)
    assert ImageLimits() == ImageLimits(16 * GIB // 4096, 16 * GIB, 512 * MIB)
    assert ImageLimits.of_size(100).entries == 1


def test_content_is_counted_up_to_the_limit_and_no_further() -> None:
    spent = Allowance(ImageLimits.of_size(GIB))
    spent.spend(GIB - 1, "the layer x")
    spent.spend(1, "the layer y")
    with pytest.raises(TooLarge) as error:
        spent.spend(1, "the layer z")
    assert error.value.message == "the layer z unpacks to more than 1G; the limit for an image is 1G"
    assert error.value.hint == "if you trust it, raise the limit: --max-image-size 2G"


def test_too_many_entries_are_refused_with_the_limit_that_allows_them() -> None:
    error = too_many("the image x", ImageLimits.of_size(2 * GIB))
    assert error.message == "the image x has more than 524288 entries; the limit for an image is 2G"
    assert error.hint.endswith("--max-image-size 4G")


def test_the_disk_keeps_a_reserve_once_an_image_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    free(monkeypatch, 80 * MIB)
    require_room(Path("/cache"), 16 * MIB)
    require_room(Path("/cache"), 16 * MIB - 1)
    free(monkeypatch, 80 * MIB - 1)
    require_room(Path("/cache"), 16 * MIB - 1)
    with pytest.raises(HostError, match=r"^no space is left for the image in /cache: 83\.9\sMB are free$"):
        require_room(Path("/cache"), 16 * MIB)
    free(monkeypatch, 1000)
    require_room(Path("/cache"), 1000)
    with pytest.raises(HostError):
        require_room(Path("/cache"), 1001)


def test_the_disk_is_looked_at_each_16_mib(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[tuple[Path, int]] = []
    monkeypatch.setattr(allowance, "require_room", lambda folder, size: looks.append((folder, size)))
    room = Room(Path("/cache"))
    for size, seen in ((16 * MIB - 1, 0), (1, 1), (16 * MIB - 1, 1), (2, 2), (17 * MIB, 3)):
        room.take(size)
        assert looks == [(Path("/cache"), 16 * MIB)] * seen
