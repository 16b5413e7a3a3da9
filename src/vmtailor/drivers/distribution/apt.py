# SPDX-License-Identifier: Apache-2.0
"""Debian's package tools, used without root: what is packaged, download one version, stream files out of it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import subprocess
import tarfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from vmtailor.base import process
from vmtailor.base.errors import HostError, UserInputError
from vmtailor.base.progress import step
from vmtailor.base.store import Store

#: Seconds without one more byte after which a download is given up.
STALL_S = 120.0


@dataclass(frozen=True)
class Package:
    """One version of a binary package, as the package lists describe it."""

    name: str
    version: str
    architecture: str
    size_bytes: int
    sha256: str

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


def parse_stanzas(text: str) -> tuple[Package, ...]:
    """Read the output of `apt-cache show`. Stanzas that lack a field, or name one twice strangely, are passed over."""
    packages = []
    for stanza in text.split("\n\n"):
        fields = {}
        for line in stanza.splitlines():
            key, colon, value = line.partition(": ")
            if colon and not line.startswith(" "):
                fields[key] = value.strip()
        with contextlib.suppress(KeyError, ValueError):
            package = Package(
                fields["Package"],
                fields["Version"],
                fields["Architecture"],
                int(fields["Size"]),
                fields["SHA256"].lower(),
            )
            if len(package.sha256) == 64:
                packages.append(package)
    return tuple(packages)


def packaged(pattern: str) -> tuple[Package, ...]:
    """All versions of the packages whose names match a regular expression, as the apt lists know them.

    Raises HostError when the host has no apt, and when its lists are empty.
    """
    apt_cache = process.require_tool("apt-cache", "apt")
    found = process.run([apt_cache, "search", "--names-only", pattern], timeout_s=120).text
    names = [line.split(" ")[0] for line in found.splitlines() if line]
    if names:
        return parse_stanzas(process.run([apt_cache, "show", *names], timeout_s=120).text)
    if not process.run([apt_cache, "search", "--names-only", "^linux-"], timeout_s=120).stdout.strip():
        raise HostError(
            "the package lists of apt are empty", hint="as root, run: apt-get update (then start vmtailor again)"
        )
    return ()


def state(lists: Path = Path("/var/lib/apt/lists")) -> str:
    """A word that changes when the package lists do."""
    try:
        entries = sorted((entry.name, entry.stat().st_mtime_ns, entry.stat().st_size) for entry in os.scandir(lists))
    except OSError:
        return "no lists"
    return repr(entries)


def download(package: Package, store: Store) -> Path:
    """The package's .deb in the cache, fetched when it is not there yet and checked against its SHA-256."""

    def fill(folder: Path) -> None:
        with step(f"downloading {package} ({package.size_bytes / 1e6:.0f} MB)") as progress:
            # The sandbox user of apt cannot write to a folder of ours; run as root it would only warn about that.
            argv = ["apt-get", "-o", "APT::Sandbox::User=root", "-o", "Dpkg::Use-Pty=0", "-q", "download"]
            _watched([*argv, f"{package.name}={package.version}"], folder, package, progress.update)
        debs = list(folder.glob("*.deb"))
        if len(debs) != 1 or digest_of_file(debs[0]) != package.sha256:
            raise HostError(
                f"the download of {package} does not match the checksum in the package lists",
                hint="run: apt-get update, then try again",
            )
        debs[0].rename(folder / "package.deb")

    return store.get("packages", package.sha256, fill) / "package.deb"


def digest_of_file(path: Path) -> str:
    """Plain hex SHA-256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _watched(argv: Sequence[str], folder: Path, package: Package, update: Callable[[float, float], None]) -> None:
    log_path = folder / "apt.log"
    seen, seen_at = -1, time.monotonic()
    with log_path.open("wb") as log, process.spawn(argv, cwd=folder, stdout=log, stderr=log) as running:
        while True:
            try:
                code = running.wait(0.5)
                break
            except subprocess.TimeoutExpired:
                have = sum(
                    entry.stat().st_size for entry in os.scandir(folder) if entry.name.endswith((".deb", ".FAILED"))
                )
                update(float(have), float(package.size_bytes))
                if have != seen:
                    seen, seen_at = have, time.monotonic()
                if time.monotonic() - seen_at > STALL_S:
                    raise HostError(
                        f"the download of {package} stalled", hint="check the network, then try again"
                    ) from None
    tail = log_path.read_bytes()[-2000:].decode("utf-8", "replace").strip()
    log_path.unlink()
    if code != 0:
        raise HostError(
            f"apt-get could not download {package}", hint="run: apt-get update, then try again", details=tail
        )


@contextlib.contextmanager
def opened(deb: Path) -> Iterator[tarfile.TarFile]:
    """The files of a .deb as a stream: read the members in their order, nothing is unpacked that is not asked for."""
    dpkg_deb = process.require_tool("dpkg-deb", "dpkg")
    with process.spawn([dpkg_deb, "--fsys-tarfile", str(deb)], stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        try:
            with tarfile.open(fileobj=running.stdout, mode="r|") as archive:
                yield archive
        except tarfile.TarError as error:
            raise HostError(f"{deb} is damaged: {error}", hint=f"delete {deb.parent}, then try again") from error


def extract(
    deb: Path, place: Callable[[str], Path | None], *, on_bytes: Callable[[int], None] | None = None
) -> tuple[Path, ...]:
    """Write the regular files of a .deb for which `place(name)` gives a path. Names come without the leading `./`."""
    written = []
    with opened(deb) as archive:
        for member in archive:
            if on_bytes is not None:
                on_bytes(archive.offset)
            target = place(member.name.removeprefix("./")) if member.isfile() else None
            if target is None:
                continue
            source = archive.extractfile(member)
            assert source is not None
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("wb") as file:
                while chunk := source.read(1 << 20):
                    file.write(chunk)
            written.append(target)
    return tuple(written)


def version_key(version: str) -> tuple[int, ...]:
    """An order for upstream kernel versions with Debian revisions (6.12.117-1~deb12u1): its numbers, left to right."""
    numbers = tuple(int(part) for part in re.findall(r"\d+", version))
    if not numbers:
        raise UserInputError(
            f"'{version}' is not a kernel version", hint="give a series (6.12) or a version (6.12.117)"
        )
    return numbers
