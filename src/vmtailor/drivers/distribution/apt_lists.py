# SPDX-License-Identifier: Apache-2.0
"""Choose the package lists that apt reads: this host's own, or those of another architecture, kept in our cache.

The host's own lists, and what is installed here, are neither read nor changed by apt when it is asked for another
architecture: no root is needed, and no foreign architecture has to be added to the host."""

from __future__ import annotations

import os
import platform
import re
from dataclasses import dataclass
from pathlib import Path

from vmtailor.base import output, process
from vmtailor.base.cache.store import Store, locked
from vmtailor.base.errors import HostError
from vmtailor.base.files import durable
from vmtailor.base.progress import step
from vmtailor.model.architecture import Architecture

#: The command that refreshes the package lists, as root.
REFRESH = "apt-get update"
_HOST_LISTS = Path("/var/lib/apt/lists")
#: The keys that sign the archive. If they are missing, apt's own are tried.
_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_FORMAT = "$(ORIGIN)|$(REPO_URI)|$(CODENAME)|$(COMPONENT)"
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/+-]*")
_URI = re.compile(r"[a-z0-9+.-]+:[!-~]+")
_UPDATE_S = 600.0


@dataclass(frozen=True)
class PackageSource:
    """One line of apt's sources: a repository's address, the code name of what it has (`bookworm-security`), and a
    component."""

    uri: str
    codename: str
    component: str

    @property
    def release(self) -> str:
        """Return the release that it belongs to: `bookworm`."""
        return self.codename.partition("-")[0]

    def of_release(self, release: str) -> PackageSource:
        """Return the source of another release in place of this one's: `bookworm-security` becomes
        `trixie-security`."""
        return PackageSource(self.uri, release + self.codename.removeprefix(self.release), self.component)

    def line(self, architecture: str) -> str:
        """Return the line that apt reads."""
        signed = f" signed-by={_KEYRING}" if _KEYRING.is_file() else ""
        return f"deb [arch={architecture}{signed}] {self.uri} {self.codename} {self.component}\n"


@dataclass(frozen=True)
class Lists:
    """The lists of one architecture. Without a folder: this host's own."""

    architecture: str = ""
    folder: Path | None = None

    @property
    def options(self) -> list[str]:
        """Return the options by which apt reads these lists. Nothing counts as installed in lists of ours."""
        if self.folder is None:
            return []
        told = {
            "APT::Architecture": self.architecture,
            "APT::Architectures": self.architecture,
            "Dir::State": self.folder,
            "Dir::State::Lists": self.folder / "lists",
            "Dir::State::status": self.folder / "status",
            "Dir::State::extended_states": self.folder / "extended_states",
            "Dir::Cache": self.folder / "cache",
            "Dir::Etc::SourceList": self.folder / "sources.list",
            "Dir::Etc::SourceParts": "/dev/null",
            "APT::Sandbox::User": "root",
            "Debug::NoLocking": "1",
            # Icons and descriptions of desktop programs: half of what would be fetched.
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled": "false",
            "Acquire::Languages": "none",
        }
        return [word for name, value in told.items() for word in ("-o", f"{name}={value}")]

    def state(self) -> str:
        """Return a word that changes when the lists do. Ours change with the host's: those are older, and are fetched
        anew."""
        if self.folder is None:
            return _state(_HOST_LISTS)
        return repr((_state(_HOST_LISTS), _state(self.folder / "lists")))


HOST = Lists()


def of(architecture: Architecture, store: Store | None = None) -> Lists:
    """Return the lists of an architecture, fetched where they are not there yet or older than the host's.

    Raises HostError when they cannot be fetched."""
    lists = known(architecture, store)
    if lists.folder is not None:
        with locked(lists.folder / ".lock", "the lists of packages"):
            if not _is_current(lists.folder):
                _fetch(lists, lists.folder, architecture)
    return lists


def known(family: Architecture, store: Store | None = None) -> Lists:
    """Return the lists of an architecture without asking whether they exist. `state` is asked of them at every
    start."""
    architecture = family.packages.architecture
    # Kernels of this host's processor come from the host's own lists, unless they are of another release.
    if platform.machine() in family.hosts and not family.packages.suites:
        return HOST
    name = "-".join((architecture, *family.packages.suites))
    return Lists(architecture, (store or Store()).folder("package-lists", name))


def sources(text: str, suites: tuple[str, ...]) -> tuple[PackageSource, ...]:
    """Return the repositories of Debian's own that a host has (`apt-get indextargets`), of the wanted release. That is
    the host's own where `suites` names none, or names it; otherwise the first of them."""
    found: dict[PackageSource, None] = {}
    for line in text.splitlines():
        origin, *fields = line.split("|")
        if origin != "Debian" or len(fields) != 3:
            continue
        source = PackageSource(*fields)
        if not _URI.fullmatch(source.uri) or not all(map(_WORD.fullmatch, fields[1:])):
            continue
        other = bool(suites) and source.release not in suites
        found.setdefault(source.of_release(suites[0]) if other else source)
    return tuple(found)


def _fetch(lists: Lists, folder: Path, architecture: Architecture) -> None:
    apt_get = process.require_tool("apt-get", "apt")
    asked = [apt_get, "indextargets", "--format", _FORMAT, "Created-By: Packages"]
    there = sources(process.run(asked, timeout_s=120).text, architecture.packages.suites)
    if not there:
        raise HostError(
            f"the host's package lists name no repository of Debian's to fetch those of {architecture.title} from",
            hint=f"as root, run: {REFRESH} (then start vmtailor again)",
        )
    for name in ("lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "status").touch()
    (folder / "sources.list").write_text("".join(source.line(lists.architecture) for source in there))
    with step(
        f"fetching the package lists of {architecture.title} ({', '.join(dict.fromkeys(s.release for s in there))})"
    ):
        update = [apt_get, *lists.options, "-qq", "--error-on=any", "update"]
        finished = process.run(update, timeout_s=_UPDATE_S, ok=(0, 100), name="the package lists of apt")
    # A mirror that is just being renewed has some lists, and not others: what is there can be used.
    if not any("_Packages" in path.name for path in (folder / "lists").iterdir()):
        raise HostError(
            f"the package lists of {architecture.title} cannot be fetched",
            hint="check the network, and that the host's repositories have this architecture",
            details=finished.error_text[-2000:],
        )
    if finished.returncode:
        output.note(
            f"some package lists of {architecture.title} could not be fetched: {finished.error_text.strip()[:300]}"
        )
    durable.settle(folder)  # lists that are cut short would be read as they are
    (folder / "fetched").touch()


def _is_current(folder: Path) -> bool:
    """Return whether these lists were fetched after the host's own were."""
    try:
        fetched = (folder / "fetched").stat().st_mtime
        return all(path.stat().st_mtime <= fetched for path in _HOST_LISTS.iterdir() if path.is_file())
    except OSError:
        return (folder / "fetched").is_file()


def _state(lists: Path) -> str:
    try:
        entries = sorted((entry.name, entry.stat().st_mtime_ns, entry.stat().st_size) for entry in os.scandir(lists))
    except OSError:
        return "no lists"
    return repr(entries)
