# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmtailor.base.errors import HostError, UserInputError
from vmtailor.drivers.distribution import apt
from vmtailor.drivers.distribution.apt import Package
from vmtailor.drivers.distribution.kernel_packages import combine, select


def package(name: str, version: str) -> Package:
    return Package(name, version, "amd64", 1, "0" * 64)


def trio(release: str, series: str, version: str, without: str = "") -> list[Package]:
    names = {
        "image": f"linux-image-{release}-cloud-amd64-unsigned",
        "debug": f"linux-image-{release}-cloud-amd64-dbg",
        "source": f"linux-source-{series}",
    }
    return [package(name, version) for kind, name in names.items() if kind != without]


OLD = trio("6.1.0-56", "6.1", "6.1.192-2") + trio("6.1.0-9", "6.1", "6.1.27-1")
NEW = trio("6.12.9+deb12", "6.12", "6.12.9-1~deb12u1") + trio("6.12.117+deb12", "6.12", "6.12.117-1~deb12u1")


def test_the_newest_of_the_preferred_series_is_taken() -> None:
    kernel = select(combine(OLD + NEW))
    assert (kernel.version, kernel.release) == ("6.12.117", "6.12.117+deb12-cloud-amd64")
    assert select(combine(OLD)).version == "6.1.192"


@pytest.mark.parametrize("without", ["image", "debug", "source"])
def test_an_incomplete_kernel_is_passed_over(without: str) -> None:
    packages = trio("6.12.118+deb12", "6.12", "6.12.118-1", without) + NEW
    assert select(combine(packages)).version == "6.12.117"


def test_source_of_another_version_does_not_count() -> None:
    packages = [*trio("6.12.117+deb12", "6.12", "6.12.117-1", "source"), package("linux-source-6.12", "6.12.116-1")]
    assert combine(packages) == ()


@pytest.mark.parametrize(
    ("wanted", "version"),
    [("6.1", "6.1.192"), ("6.12", "6.12.117"), ("6.12.9", "6.12.9"), ("6.1.0-9-cloud-amd64", "6.1.27"),
     ("6.1.27-1", "6.1.27")],
)  # fmt: skip
def test_one_kernel_can_be_named(wanted: str, version: str) -> None:
    assert select(combine(OLD + NEW), wanted).version == version


def test_what_is_not_there_is_the_users_error_and_names_what_is() -> None:
    with pytest.raises(UserInputError) as caught:
        select(combine(OLD + NEW), "5.10")
    assert "6.12.117" in caught.value.hint


def test_nothing_packaged_is_the_hosts_error() -> None:
    with pytest.raises(HostError, match="no cloud kernel"):
        select(())


def test_a_newer_unknown_series_is_taken_only_when_named() -> None:
    packages = OLD + NEW + trio("6.16.3+deb13", "6.16", "6.16.3-1~bpo13+1")
    assert select(combine(packages)).version == "6.12.117"
    assert select(combine(packages), "6.16").version == "6.16.3"


def test_stanzas() -> None:
    text = (
        "Package: a\nVersion: 1-2\nArchitecture: amd64\nSize: 7\nDescription: x\n more: lines\nSHA256: " + "Ab" * 32
        + "\n\nPackage: b\nVersion: 1\n\n" + "Package: c\nVersion: 1\nArchitecture: all\nSize: many\nSHA256: 0\n"
    )  # fmt: skip
    assert apt.parse_stanzas(text) == (Package("a", "1-2", "amd64", 7, "ab" * 32),)


@given(st.text())
def test_any_answer_of_apt_parses(text: str) -> None:
    assert all(len(one.sha256) == 64 for one in apt.parse_stanzas(text))


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 30), st.integers(0, 300)), min_size=2, max_size=5))
def test_versions_sort_by_number(versions: list[tuple[int, int, int]]) -> None:
    texts = ["{}.{}.{}-1~deb12u1".format(*one) for one in versions]
    assert [apt.version_key(t)[:3] for t in sorted(texts, key=apt.version_key)] == sorted(versions)
