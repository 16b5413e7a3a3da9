# SPDX-License-Identifier: Apache-2.0
"""Package lists of another architecture: of the host's own repositories, in the cache, fetched once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from vmtailor.base.cache.store import Store
from vmtailor.base.errors import HostError
from vmtailor.drivers.distribution import apt_lists
from vmtailor.drivers.distribution.apt_lists import PackageSource, sources
from vmtailor.model.architecture import named

TARGETS = """Debian|http://mirror.test/debian/|bookworm|main
Debian|http://mirror.test/debian/|bookworm-updates|main
Debian|http://mirror.test/debian/|bookworm|main
Debian|http://mirror.test/debian-security/|bookworm-security|main
Somebody|http://elsewhere.test/|stable|main
Debian|http://mirror.test/ odd|bookworm|main
Debian|http://mirror.test/debian/|book[worm|main
"""


def test_the_hosts_own_repositories_of_its_distribution_are_asked() -> None:
    found = sources(TARGETS, ())
    assert [one.codename for one in found] == ["bookworm", "bookworm-updates", "bookworm-security"]
    assert found == sources(TARGETS, ("trixie", "bookworm"))
    assert found[2] == PackageSource("http://mirror.test/debian-security/", "bookworm-security", "main")


def test_an_architecture_of_another_release_is_asked_of_that() -> None:
    found = sources(TARGETS, ("trixie",))
    assert [one.codename for one in found] == ["trixie", "trixie-updates", "trixie-security"]
    line = found[2].line("riscv64")
    assert line.startswith("deb [arch=riscv64") and line.endswith(
        "] http://mirror.test/debian-security/ trixie-security main\n"
    )


@pytest.fixture
def apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host with lists, and an apt-get that writes down what it is asked."""
    bin_folder, host_lists = tmp_path / "bin", tmp_path / "lists"
    host_lists.mkdir()
    (host_lists / "Packages").write_text("")
    os.utime(host_lists / "Packages", (1, 1))
    monkeypatch.setattr(apt_lists, "_HOST_LISTS", host_lists)
    (tmp_path / "targets").write_text(TARGETS)
    asked = tmp_path / "asked"
    bin_folder.mkdir()
    program = bin_folder / "apt-get"
    program.write_text(
        f'#!/bin/sh\ncase "$*" in *indextargets*) cat {tmp_path}/targets;; '
        f'*) echo "$*" >>{asked}; test ! -e {tmp_path}/broken || exit 100\n'
        f"for d in {tmp_path}/cache/package-lists/*/lists; do touch $d/x_Packages; done;; esac\n",
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_folder}:{os.environ['PATH']}")
    return tmp_path


def test_they_are_fetched_once_and_again_when_the_hosts_are_newer(apt: Path) -> None:
    row, store = named("arm64"), Store(apt / "cache")
    lists = apt_lists.of(row, store)
    assert lists.folder is not None and lists.folder.is_relative_to(store.root)
    assert (lists.folder / "sources.list").read_text().count("arch=arm64") == 3
    assert f"Dir::State::Lists={lists.folder}/lists" in lists.options
    asked = apt / "asked"
    assert len(asked.read_text().splitlines()) == 1 and "update" in asked.read_text()
    before = apt_lists.of(row, store).state()
    assert len(asked.read_text().splitlines()) == 1
    os.utime(apt / "lists" / "Packages")
    os.utime(lists.folder / "fetched", (2, 2))
    assert apt_lists.of(row, store).state() != before
    assert len(asked.read_text().splitlines()) == 2


def test_lists_that_are_there_in_part_are_used_and_it_is_said(apt: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Mirrors are renewed list by list."""
    lists = apt_lists.known(named("arm64"), Store(apt / "cache"))
    assert lists.folder is not None
    (lists.folder / "lists").mkdir()
    (lists.folder / "lists" / "mirror.test_debian_dists_bookworm_main_binary-arm64_Packages").touch()
    (apt / "broken").touch()
    assert apt_lists.of(named("arm64"), Store(apt / "cache")) == lists
    assert "some package lists of arm64 could not be fetched" in capsys.readouterr().err


def test_lists_that_cannot_be_fetched_say_so(apt: Path) -> None:
    (apt / "broken").touch()
    with pytest.raises(HostError, match="the package lists of arm64 cannot be fetched"):
        apt_lists.of(named("arm64"), Store(apt / "cache"))
    (apt / "targets").write_text("Somebody|http://elsewhere.test/|stable|main\n")
    with pytest.raises(HostError, match="name no repository of Debian's to fetch those of arm64 from"):
        apt_lists.of(named("arm64"), Store(apt / "cache"))


def test_the_hosts_own_architecture_has_the_hosts_own_lists(apt: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    assert apt_lists.of(named("x86_64"), Store(apt / "cache")) is apt_lists.HOST
    assert apt_lists.HOST.options == []
