# SPDX-License-Identifier: Apache-2.0
"""Debian's kernels out of its package lists: which there are, and in which order."""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmtailor.base.cache.store import Store
from vmtailor.base.errors import HostError, UserInputError
from vmtailor.drivers.distribution import apt, apt_lists, debian_packages, packaged_baseline
from vmtailor.drivers.distribution.apt_lists import Lists
from vmtailor.drivers.distribution.debian import Debian, DebianKernel, combine
from vmtailor.drivers.distribution.debian_packages import Package, parse_stanzas, upstream_version, version_key
from vmtailor.drivers.distribution.distribution import PackagedKernel
from vmtailor.model.architecture import named


def package(name: str, version: str) -> Package:
    return Package(name, version, 1, "0" * 64)


def trio(release: str, series: str, version: str, without: str = "") -> list[Package]:
    names = {
        "image": f"linux-image-{release}-cloud-amd64-unsigned",
        "debug": f"linux-image-{release}-cloud-amd64-dbg",
        "source": f"linux-source-{series}",
    }
    return [package(name, version) for kind, name in names.items() if kind != without]


AMD64 = named("x86_64")
OLD = trio("6.1.0-56", "6.1", "6.1.192-2") + trio("6.1.0-9", "6.1", "6.1.27-1")
NEW = trio("6.12.9+deb12", "6.12", "6.12.9-1~deb12u1") + trio("6.12.117+deb12", "6.12", "6.12.117-1~deb12u1")
NEXT = trio("6.18.3+deb14", "6.18", "6.18.3-1")
CANDIDATE = trio("6.19-rc1", "6.19", "6.19~rc1-1~exp1")


def select(kernels: tuple[DebianKernel, ...], wanted: str | None = None) -> PackagedKernel:
    return packaged_baseline.select(Debian(), AMD64, wanted, kernels)


@pytest.fixture(autouse=True)
def with_apt(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a host that has apt."""
    monkeypatch.setattr(Debian, "lacking", lambda self: "")


def test_the_newest_is_taken() -> None:
    kernel = select(combine(OLD + NEW, AMD64))
    assert (kernel.version, kernel.release) == ("6.12.117", "6.12.117+deb12-cloud-amd64")
    assert select(combine(OLD, AMD64)).version == "6.1.192"


@pytest.mark.parametrize("without", ["image", "debug", "source"])
def test_an_incomplete_kernel_is_passed_over(without: str) -> None:
    packages = trio("6.12.118+deb12", "6.12", "6.12.118-1", without) + NEW
    assert select(combine(packages, AMD64)).version == "6.12.117"


@pytest.mark.parametrize("called", ["vmlinuz", "vmlinux"])
def test_a_kernel_is_found_in_its_package_packed_or_not(
    called: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (kernel,) = combine(trio("6.12.118+deb12", "6.12", "6.12.118-1"), AMD64)
    names = (f"boot/{called}-{kernel.release}", f"boot/config-{kernel.release}", "boot/vmlinux-other",
             f"usr/lib/modules/{kernel.release}/kernel/a.ko", "lib/modules/other/kernel/b.ko")  # fmt: skip

    def extract(_deb: Path, place: Callable[[str], Path | None]) -> list[Path]:
        found = {name: path for name in names if (path := place(name)) is not None}
        for name, path in found.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(name)
        return list(found.values())

    monkeypatch.setattr(apt, "download", lambda *_: tmp_path / "deb")
    monkeypatch.setattr(debian_packages, "extract", extract)
    folder = kernel.image(Store(tmp_path))
    assert (folder / "vmlinuz").read_text() == names[0] and (folder / "config").is_file()
    assert [path.name for path in folder.rglob("*.ko")] == ["a.ko"]


def test_source_of_another_version_does_not_count() -> None:
    packages = [*trio("6.12.117+deb12", "6.12", "6.12.117-1", "source"), package("linux-source-6.12", "6.12.116-1")]
    assert combine(packages, AMD64) == ()


@pytest.mark.parametrize(
    ("wanted", "version"),
    [("6.1", "6.1.192"), ("6.12", "6.12.117"), ("6.12.9", "6.12.9"), ("6.1.0-9-cloud-amd64", "6.1.27"),
     ("6.1.27-1", "6.1.27")],
)  # fmt: skip
def test_one_kernel_can_be_named(wanted: str, version: str) -> None:
    assert select(combine(OLD + NEW, AMD64), wanted).version == version


def test_what_is_not_there_is_the_users_error_and_names_what_is() -> None:
    with pytest.raises(UserInputError) as caught:
        select(combine(OLD + NEW, AMD64), "5.10")
    assert "6.12.117" in caught.value.hint


def test_nothing_packaged_is_the_hosts_error() -> None:
    with pytest.raises(HostError, match="no cloud kernel"):
        select(())


def test_a_series_is_found_by_the_lists_alone() -> None:
    """No series is named in the program: whatever the distribution packages next can be had, and is the newest."""
    assert {kernel.series for kernel in combine(OLD + NEW + NEXT, AMD64)} == {"6.1", "6.12", "6.18"}
    assert select(combine(OLD + NEW + NEXT, AMD64)).version == "6.18.3"
    assert select(combine(NEXT, AMD64)).version == "6.18.3"
    assert select(combine(OLD + NEW + NEXT, AMD64), "6.12").version == "6.12.117"


def test_a_release_candidate_is_taken_when_it_is_named_or_alone() -> None:
    assert select(combine(NEXT + CANDIDATE, AMD64)).version == "6.18.3"
    for kernel in (select(combine(NEXT + CANDIDATE, AMD64), "6.19"), select(combine(CANDIDATE, AMD64))):
        assert kernel.prerelease and kernel.version == "6.19", "as the Makefile of its source says"


def test_apt_is_asked_for_all_series(monkeypatch: pytest.MonkeyPatch) -> None:
    def packages(pattern: str, lists: Lists) -> tuple[Package, ...]:
        assert lists is apt_lists.HOST
        return tuple(package for package in OLD + NEXT if re.search(pattern, package.name))

    monkeypatch.setattr(apt, "packaged", packages)
    assert {kernel.series for kernel in Debian().kernels(AMD64)} == {"6.1", "6.18"}
    other = replace(AMD64, packages=replace(AMD64.packages, flavour="cloud-arm64"))
    assert Debian().kernels(other) == ()


ASCENDING = ("6.9", "6.12", "6.18~rc1", "6.18~rc1-1~exp1", "6.18", "6.18.1-1~bpo13+1", "6.18.1-1", "6.100", "1:1")


def test_versions_are_ordered_as_by_dpkg() -> None:
    assert sorted((*ASCENDING[4:], *ASCENDING[:4]), key=version_key) == list(ASCENDING)


@pytest.mark.contract
@pytest.mark.skipif(shutil.which("dpkg") is None, reason="dpkg is not here")
def test_dpkg_says_so_too() -> None:
    for lower, higher in itertools.pairwise(ASCENDING):
        subprocess.run(["dpkg", "--compare-versions", lower, "lt", higher], check=True)


def test_upstream_versions() -> None:
    given_and_meant = {"6.12.117-1~deb12u1": "6.12.117", "6.18~rc1-1~exp1": "6.18", "2:6.18.3-1": "6.18.3"}
    assert {version: upstream_version(version) for version in given_and_meant} == given_and_meant


def test_stanzas() -> None:
    text = (
        "Package: a\nVersion: 1-2\nArchitecture: amd64\nSize: 7\nDescription: x\n more: lines\nSHA256: " + "Ab" * 32
        + "\n\nPackage: b\nVersion: 1\n\n" + "Package: c\nVersion: 1\nArchitecture: all\nSize: many\nSHA256: 0\n"
        + "\nPackage: d\nVersion: no version\nArchitecture: all\nSize: 1\nSHA256: " + "0" * 64 + "\n"
    )  # fmt: skip
    assert parse_stanzas(text) == (Package("a", "1-2", 7, "ab" * 32),)


@given(st.text())
def test_any_answer_of_apt_parses(text: str) -> None:
    assert all(len(one.sha256) == 64 for one in parse_stanzas(text))


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 30), st.integers(0, 300)), min_size=2, max_size=5))
def test_versions_sort_by_number(versions: list[tuple[int, int, int]]) -> None:
    texts = ["{}.{}.{}-1~deb12u1".format(*one) for one in sorted(versions)]
    assert sorted(texts, key=version_key) == texts
