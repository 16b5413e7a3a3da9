# SPDX-License-Identifier: Apache-2.0
"""The family of kernels: which images each serves, said once, bounded, and by several processes at a time."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.fakes.started import Start

from vmtailor.base.cache.store import Store
from vmtailor.drivers.kernel import kernel_uses
from vmtailor.model.kernel import KernelUse, KernelUses
from vmtailor.model.margin import Margin

KERNEL = KernelUses("6.12.117", "x86_64", 145, 547, 5_230_000)
KEY = "ab" * 32


def use(name: str) -> KernelUse:
    return KernelUse(f"oci:{name}", f"sha256:{name}", (Margin.SERVER,))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    found = Store(tmp_path / "cache" / "vmtailor")
    found.get("kernel", KEY, lambda folder: (folder / "vmlinux").touch())
    return found


def test_a_kernel_remembers_whom_it_serves(store: Store) -> None:
    assert kernel_uses.uses_of(store, KEY) is None and not list(kernel_uses.members(store))
    for name in ("python", "nginx", "python"):
        found = kernel_uses.note(store, KEY, KERNEL, use(name))
    assert [one.reference for one in found.images] == ["oci:python", "oci:nginx"]
    assert kernel_uses.uses_of(store, KEY) == found
    assert list(kernel_uses.members(store)) == [(KEY[:40], found)]
    assert (store.path("kernel", KEY) / kernel_uses.RECORD).stat().st_mode & 0o777 == 0o600


def test_of_many_images_the_first_and_the_last_are_named(store: Store) -> None:
    for number in range(kernel_uses.MOST_IMAGES + 6):
        found = kernel_uses.note(store, KEY, KERNEL, use(str(number)))
    assert len(found.images) == kernel_uses.MOST_IMAGES and found.more == 6
    assert found.images[0] == use("0") and found.images[-1] == use(str(kernel_uses.MOST_IMAGES + 5))


def test_none_is_lost_where_several_write(store: Store) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: kernel_uses.note(store, KEY, KERNEL, use(str(number))), range(40)))
    found = kernel_uses.uses_of(store, KEY)
    assert found is not None and {one.reference for one in found.images} == {f"oci:{n}" for n in range(40)}


@pytest.mark.parametrize("data", [b"", b"{", b'{"schema": "vmtailor/kernel-uses/0"}', b"\xff"])
def test_a_damaged_record_is_none(store: Store, data: bytes) -> None:
    (store.path("kernel", KEY) / kernel_uses.RECORD).write_bytes(data)
    assert kernel_uses.uses_of(store, KEY) is None and not list(kernel_uses.members(store))
    assert kernel_uses.note(store, KEY, KERNEL, use("a")).images == (use("a"),)


def test_a_kernel_that_is_gone_is_not_made_again(store: Store) -> None:
    found = kernel_uses.note(store, "cd" * 32, KERNEL, use("a"))
    assert not found.images and not store.path("kernel", "cd" * 32).exists()


def test_cache_lists_the_family(store: Store, start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("python", "nginx\x1b[31m"):
        kernel_uses.note(store, KEY, KERNEL, use(name))
    code, said, _ = start("cache")
    assert code == 0 and KEY[:12] in said and "oci:python" in said and "1 kernel for 2 images" in said
    assert "\x1b" not in said and "x0a" not in said
    code, said, _ = start("cache", "--json")
    (row,) = json.loads(said)["kernels"]
    assert row["digest"] == KEY[:40] and row["images"][0] == {
        "reference": "oci:python", "digest": "sha256:python", "margin": "server",
    }  # fmt: skip
