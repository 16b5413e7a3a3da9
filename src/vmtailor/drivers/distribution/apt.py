# SPDX-License-Identifier: Apache-2.0
"""Debian's package tools, used without root: what is packaged, download one version."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from vmtailor.base import figures, process
from vmtailor.base.cache.store import Store
from vmtailor.base.errors import HostError
from vmtailor.base.files.digests import sha256_of
from vmtailor.base.progress import step
from vmtailor.drivers.distribution.apt_lists import HOST, REFRESH, Lists
from vmtailor.drivers.distribution.debian_packages import Package, parse_stanzas

_INSTALLED = re.compile(r"^Inst (\S+) \((\S+) ", re.MULTILINE)
#: Seconds without one more byte after which a download is given up.
STALL_S = 120.0


def packaged(pattern: str, lists: Lists = HOST) -> tuple[Package, ...]:
    """Return all versions of the packages whose names match a regular expression, as the apt lists know them.

    Raises HostError when the host has no apt, and when its lists are empty."""
    apt_cache = [process.require_tool("apt-cache", "apt"), *lists.options]
    found = process.run([*apt_cache, "search", "--names-only", pattern], timeout_s=120).text
    names = [line.split(" ")[0] for line in found.splitlines() if line]
    if names:
        return parse_stanzas(process.run([*apt_cache, "show", *names], timeout_s=120).text)
    if not process.run([*apt_cache, "search", "--names-only", "^linux-"], timeout_s=120).stdout.strip():
        raise HostError(
            "the package lists of apt are empty", hint=f"as root, run: {REFRESH} (then start vmtailor again)"
        )
    return ()


def with_what_it_needs(name: str, lists: Lists) -> tuple[Package, ...]:
    """Return a package and all that it depends on, as apt would install them where nothing is installed.

    Raises HostError when apt cannot say."""
    apt_get = [process.require_tool("apt-get", "apt"), *lists.options]
    asked = [*apt_get, "-qq", "--yes", "-o", "APT::Install-Recommends=false", "--simulate", "install", name]
    try:
        simulated = process.run(asked, timeout_s=120).text
    except process.CommandFailed as error:
        raise HostError(
            f"the package {name} is not available for {lists.architecture}", details=error.details
        ) from error
    wanted = _INSTALLED.findall(simulated)
    apt_cache = process.require_tool("apt-cache", "apt")
    named = [f"{package}={version}" for package, version in wanted]
    found = parse_stanzas(process.run([apt_cache, *lists.options, "show", *named], timeout_s=120).text) if named else ()
    return tuple(one for one in found if (one.name, one.version) in set(wanted))


def download(package: Package, store: Store, lists: Lists = HOST) -> Path:
    """Return the package's .deb in the cache, fetched when it is not there yet and checked against its SHA-256."""

    def fill(folder: Path) -> None:
        with step(f"downloading {package} ({figures.file_bytes(package.size_bytes)})") as progress:
            # The sandbox user of apt cannot write to a folder of ours; run as root it would only warn about that.
            argv = [
                "apt-get",
                *lists.options,
                "-o",
                "APT::Sandbox::User=root",
                "-o",
                "Dpkg::Use-Pty=0",
                "-q",
                "download",
            ]
            _watched([*argv, f"{package.name}={package.version}"], folder, package, progress.update)
        debs = list(folder.glob("*.deb"))
        if len(debs) != 1 or sha256_of(debs[0]) != package.sha256:
            raise HostError(
                f"the download of {package} does not match the checksum in the package lists",
                hint=f"run: {REFRESH}, then try again",
            )
        debs[0].rename(folder / "package.deb")

    return store.get("packages", package.sha256, fill) / "package.deb"


def _watched(argv: Sequence[str], folder: Path, package: Package, update: Callable[[float, float], None]) -> None:
    log_path = folder / "apt.log"
    seen, seen_at = -1, time.monotonic()
    with log_path.open("wb") as log, process.spawn(argv, cwd=folder, stdout=log, stderr=log) as running:
        while True:
            try:
                code = running.wait(0.5)
                break
            except subprocess.TimeoutExpired:
                have = _fetched(folder)
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
        raise HostError(f"apt-get could not download {package}", hint=f"run: {REFRESH}, then try again", details=tail)


def _fetched(folder: Path) -> int:
    """Return bytes of what was fetched so far. apt renames its files meanwhile."""
    found = 0
    for entry in os.scandir(folder):
        if entry.name.endswith((".deb", ".FAILED")):
            with contextlib.suppress(FileNotFoundError):
                found += entry.stat().st_size
    return found
