# SPDX-License-Identifier: Apache-2.0
"""The kernel that a system's fit starts from: the packaged one, or one compiled from the source that is given."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.systems.test_system_fitting import SUBJECT

from vmtailor.base.cache.store import Store
from vmtailor.base.errors import HostError, UserInputError
from vmtailor.base.files import dot_config
from vmtailor.drivers.distribution import packaged_baseline
from vmtailor.drivers.kernel import compiled_baseline, kernel_source
from vmtailor.drivers.kernel.kernel_source import SourceTree
from vmtailor.model.architecture import presumed
from vmtailor.model.systems.system import InstalledKernel
from vmtailor.pipeline.options import FitOptions
from vmtailor.pipeline.systems import own_baseline

RELEASE = "6.12.1-4.el9.x86_64"


class Given:
    """A system with a kernel that no package has, and the configurations that were compiled."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.config = b'CONFIG_XFS_FS=m\n# CONFIG_SMP is not set\nCONFIG_LOCALVERSION="-other"\n'
        self.compiled: list[dict[str, str]] = []
        self.release, self.at, self.version = RELEASE, "/boot/config-x", "6.12.1"
        self.source = folder / "linux"
        self.source.mkdir()
        self.store = Store(folder / "cache")
        self.distribution: Any = SimpleNamespace(lacking=lambda: "")

        def packaged(*_: object) -> Any:
            raise UserInputError("no packaged cloud kernel", hint="complete here: none")

        def compile_it(_: Store, source: str, config: Path, *, architecture: str) -> Any:
            assert source == str(self.source) and architecture == presumed().name
            self.compiled.append(dot_config.parse(config.read_text()))
            return SimpleNamespace(vmlinuz="compiled/vmlinuz")

        def tree(*_: object) -> SourceTree:
            major, minor, patch = self.version.split(".")
            (self.source / "Makefile").write_text(
                f"VERSION = {major}\nPATCHLEVEL = {minor}\nSUBLEVEL = {patch}\nEXTRAVERSION =\nNAME = x\n"
            )
            return SourceTree(self.source, "5a")

        monkeypatch.setattr(packaged_baseline, "provide", packaged)
        monkeypatch.setattr(compiled_baseline, "provide", compile_it)
        monkeypatch.setattr(kernel_source, "provide", tree)

    def provided(self, source: bool = True) -> Path:
        subject = replace(SUBJECT, kernel=self.release, kernels=(InstalledKernel(self.release, config=self.at),))
        found: Any = SimpleNamespace(subject=subject, root=SimpleNamespace(read=lambda path, most: self.config))
        options = FitOptions(
            reference="disk:x.raw",
            store=self.store,
            source=str(self.source) if source else None,
            distribution=self.distribution,
        )
        return own_baseline.provide(options, found, self.source, presumed()).file


@pytest.fixture
def given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Given:
    return Given(tmp_path, monkeypatch)


def test_it_is_compiled_from_the_systems_configuration_and_has_its_kernels_name(given: Given) -> None:
    assert given.provided() == Path("compiled/vmlinuz")
    (compiled,) = given.compiled
    assert compiled["LOCALVERSION"] == "-4.el9.x86_64" and compiled["LOCALVERSION_AUTO"] == "n"
    assert (compiled["XFS_FS"], compiled["SMP"]) == ("m", "n")


def test_without_a_source_the_refusal_says_what_to_give(given: Given) -> None:
    with pytest.raises(UserInputError, match="no packaged cloud kernel") as wrong:
        given.provided(source=False)
    assert "--source TARBALL" in wrong.value.hint and "complete here" in wrong.value.hint and not given.compiled


def test_a_package_that_cannot_be_fetched_is_not_compiled_instead(
    given: Given, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*_: object) -> Any:
        raise HostError("the mirror does not answer")

    monkeypatch.setattr(packaged_baseline, "provide", unreachable)
    with pytest.raises(HostError, match="mirror"):
        given.provided()
    monkeypatch.setattr(given.distribution, "lacking", lambda: "this host has no packages")
    assert given.provided() == Path("compiled/vmlinuz")


@pytest.mark.parametrize("release", ["6.12.10-4.el9", "6.1.1", "5.14.0-427.el9"])
def test_a_source_of_another_version_is_refused(release: str, given: Given) -> None:
    given.release = release
    with pytest.raises(UserInputError, match=r"source is Linux 6\.12\.1, and the system's kernel is"):
        given.provided()
    assert not given.compiled


@pytest.mark.parametrize(
    "line", ["CONFIG_A=$(shell touch /tmp/x)", "include /etc/passwd", "CONFIG_XFS_FS=y", 'CONFIG_B="a" # b']
)
def test_a_configuration_that_make_would_read_otherwise_is_refused(line: str, given: Given) -> None:
    given.config += f"{line}\n".encode()
    with pytest.raises(UserInputError, match="line 4"):
        given.provided()
    assert not given.compiled


def test_a_system_without_a_configuration_is_refused(given: Given) -> None:
    given.at = ""
    with pytest.raises(UserInputError, match="has no configuration of its kernel"):
        given.provided()
