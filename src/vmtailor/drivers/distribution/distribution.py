# SPDX-License-Identifier: Apache-2.0
"""The interface of a distribution: the kernels that it packages, and the parts of one that a baseline needs.

docs/how-to/add-a-distribution.md says how another one is added."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Protocol

from vmtailor.base.cache.store import Store
from vmtailor.drivers.kernel.kernel_source import SourceTree
from vmtailor.model.architecture import Architecture


class PackagedKernel(Protocol):
    """A kernel that can be a baseline: image, debug information and source are packaged in one version.

    The methods return files of the cache; each raises HostError for lists, network and disk."""

    @property
    def series(self) -> str:
        """Return the series it belongs to: 6.12."""

    @property
    def version(self) -> str:
        """Return upstream's version, as the source's Makefile has it: 6.12.117."""

    @property
    def release(self) -> str:
        """Return the release that `uname -r` prints."""

    @property
    def package_version(self) -> str:
        """Return the distribution's version, which `Distribution.version_key` orders."""

    @property
    def prerelease(self) -> bool:
        """Return whether it precedes the first release of its series. It is taken when it is asked for, or alone."""

    @property
    def packages(self) -> tuple[str, ...]:
        """Return the packages of image and debug information with their versions, for the record; the image's first."""

    @property
    def source_package(self) -> str:
        """Return the package of the source with its version, for the record."""

    def image(self, store: Store) -> Path:
        """Return a folder with `vmlinuz`, `config`, and `modules/` (the release's tree, modules uncompressed)."""

    def debug(self, store: Store) -> Path:
        """Return a folder with `vmlinux`, which has debug information, and `System.map`."""

    def debug_modules(self, store: Store, names: Collection[str]) -> Path:
        """Return a folder with these modules and their debug information; dash and underscore are the same in a
        name."""

    def source(self, store: Store) -> SourceTree:
        """Return the source that it was compiled from, the distribution's patches applied."""


class Distribution(Protocol):
    """A distribution's packages, as this host can have them without root."""

    @property
    def name(self) -> str:
        """Return its ID in os-release."""

    @property
    def refresh(self) -> str:
        """Return the command that refreshes the package lists, as root; empty when there is none."""

    def lacking(self) -> str:
        """Return why this host can have no packaged kernel at all; empty when its lists can be asked."""

    def state(self, architecture: Architecture) -> str:
        """Return a word that changes with the packages of an architecture. It is asked at every start, so it takes no
        time."""

    def kernels(self, architecture: Architecture) -> Sequence[PackagedKernel]:
        """Return all kernels of an architecture that can be a baseline, whatever their series, in any order.

        Raises HostError when the host cannot tell."""

    def program(self, architecture: Architecture, package: str, name: str, store: Store) -> Path:
        """Return a folder with one program of a package of that architecture, by its name. Its `lib` has the shared
        libraries of all packages that it depends on, by the names of their files. Nothing of it is run.

        Raises HostError when it cannot be had."""

    def version_key(self, version: str) -> Any:
        """Return a key that orders package versions as the distribution does. Raises ValueError for a text that is no
        version."""
