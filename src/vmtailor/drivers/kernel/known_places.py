# SPDX-License-Identifier: Apache-2.0
"""Remember where the instructions of a baseline stand in the source, as far as earlier images executed them."""

from __future__ import annotations

import contextlib
import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vmtailor.base.cache.store import Store, locked
from vmtailor.base.files.regular_files import write_atomic

KIND = "places"
_FILE = "places.npz"
#: Function, file and symbol.
Place = tuple[str, str, str]


class KnownPlaces:
    """Address → place, in the cache under `key`. A file that cannot be read counts as not known; one that cannot be
    written is found again by the next run."""

    def __init__(self, store: Store, key: str) -> None:
        self._store = store
        self._key = key
        self._all = self._read()

    @property
    def places(self) -> dict[int, Place]:
        """Return the addresses that have a place."""
        return {address: place for address, place in self._all.items() if place is not None}

    def without(self, addresses: NDArray[np.uint64]) -> list[int]:
        """Return those of the addresses that nothing is known of."""
        return [address for address in addresses.tolist() if address not in self._all]

    def add(self, found: Mapping[int, Place | None]) -> None:
        """Keep what was found; None for an address that stands nowhere in the source. Others may add at the same
        time."""
        if not found:
            return
        with contextlib.suppress(OSError), locked(self._store.folder("locks") / f"{KIND}-{self._key[:40]}"):
            known = {**self._read(), **found}
            numbers: dict[Place | None, int] = {None: 0}
            index = [numbers.setdefault(place, len(numbers)) for place in known.values()]
            names = json.dumps([list(place) for place in numbers if place is not None]).encode()
            data = io.BytesIO()
            np.savez(
                data,
                addresses=np.fromiter(known, np.uint64, len(known)),
                index=np.array(index, np.uint32),
                names=np.frombuffer(names, np.uint8),
            )
            self._store.folder(KIND, self._key[:40])
            write_atomic(self._path, data.getvalue(), private=True)

    @property
    def _path(self) -> Path:
        return self._store.path(KIND, self._key) / _FILE

    def _read(self) -> dict[int, Place | None]:
        if not self._store.has(KIND, self._key):
            return {}
        try:
            with self._path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
                texts = json.loads(file["names"].tobytes())
                names: list[Place | None] = [None, *((str(f), str(p), str(s)) for f, p, s in texts)]
                pairs = zip(file["addresses"].tolist(), file["index"].tolist(), strict=True)
                return {address: names[number] for address, number in pairs}
        except (OSError, EOFError, ValueError, KeyError, IndexError, TypeError, zipfile.BadZipFile):
            return {}
