# SPDX-License-Identifier: Apache-2.0
"""Places of a baseline's code, kept from image to image."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from vmtailor.base.cache.store import Store
from vmtailor.drivers.kernel.known_places import KIND, KnownPlaces, Place

OPEN: Place = ("do_open", "fs/open.c", "")
EPOLL: Place = ("do_epoll", "fs/eventpoll.c", "EPOLL")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "cache")


def asked(*addresses: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    return np.array(addresses, np.uint64)


def test_what_one_image_found_is_known_to_the_next(store: Store) -> None:
    first = KnownPlaces(store, "k")
    assert first.places == {} and first.without(asked(1, 2)) == [1, 2]
    high = 0xFFFFFFFF81000000
    first.add({high: OPEN, 2: EPOLL, 3: None})
    second = KnownPlaces(store, "k")
    assert second.places == {high: OPEN, 2: EPOLL}
    assert second.without(asked(high, 2, 3, 4)) == [4]  # of 3 it is known that it stands nowhere


def test_two_that_add_at_the_same_time_lose_nothing(store: Store) -> None:
    one, other = KnownPlaces(store, "k"), KnownPlaces(store, "k")
    one.add({1: OPEN})
    other.add({2: OPEN})
    assert KnownPlaces(store, "k").places == {1: OPEN, 2: OPEN}


def test_another_baseline_knows_nothing_of_it(store: Store) -> None:
    KnownPlaces(store, "k").add({1: OPEN})
    assert KnownPlaces(store, "l").places == {}


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04", b"nonsense"], ids=["empty", "cut", "nonsense"])
def test_what_cannot_be_read_is_found_again(store: Store, damage: bytes) -> None:
    KnownPlaces(store, "k").add({1: OPEN})
    (file,) = store.path(KIND, "k").iterdir()
    file.write_bytes(damage)
    again = KnownPlaces(store, "k")
    assert again.without(asked(1)) == [1]
    again.add({1: EPOLL})
    assert KnownPlaces(store, "k").places == {1: EPOLL}


def test_a_cut_file_is_found_again(store: Store) -> None:
    KnownPlaces(store, "k").add(dict.fromkeys(range(1000), OPEN))
    (file,) = store.path(KIND, "k").iterdir()
    whole = file.read_bytes()
    for length in range(0, len(whole), 97):
        file.write_bytes(whole[:length])
        assert KnownPlaces(store, "k").without(asked(1)) == [1]
