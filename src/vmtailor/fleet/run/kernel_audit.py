# SPDX-License-Identifier: Apache-2.0
"""Compile kernels of a remote cache again, with nothing but their inputs, and compare the bytes."""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import ClassVar

from vmtailor.base.cache.packed_folder import Unpackable
from vmtailor.base.cache.remote_cache import RemoteCache
from vmtailor.base.cache.store import Store
from vmtailor.base.errors import HostError, VmtailorError
from vmtailor.base.files import records, temporary
from vmtailor.base.text import plain
from vmtailor.drivers.kernel import kept_source
from vmtailor.model.kernel import KernelInputs
from vmtailor.stages import build


class AuditVerdict(StrEnum):
    """The ways in which the audit of a kernel ends."""

    EQUAL = "equal"
    DIFFERENT = "different"
    NOT_TRIED = "not tried"  # this host lacks what it takes


@dataclass(frozen=True)
class AuditedKernel:
    """A kernel that was looked at. `said`: what differs, or why it was not tried."""

    key: str
    verdict: AuditVerdict
    said: str = ""


@dataclass(frozen=True)
class KernelAudit:
    """The audit of a sample. `fingerprint`: of the tools of this host, as the names in the remote cache have it.
    `there`: kernels of that fingerprint."""

    SCHEMA: ClassVar[str] = "vmtailor/kernel-audit/1"

    fingerprint: str
    there: int
    kernels: tuple[AuditedKernel, ...]

    @property
    def passed(self) -> bool:
        """Return whether no kernel differs."""
        return all(one.verdict is not AuditVerdict.DIFFERENT for one in self.kernels)


def sampled(keys: list[str], share: float) -> list[str]:
    """Return a share of the keys, chosen at random, and at least one where there is one."""
    count = min(len(keys), max(1, math.ceil(share * len(keys))))
    return sorted(random.SystemRandom().sample(keys, count))


def audit(remote: RemoteCache, share: float, store: Store, on_kernel: Callable[[AuditedKernel], None]) -> KernelAudit:
    """Compile a share of a remote cache's kernels again, in a cache of their own, and compare all of their files.
    `store`: has their sources. Raises OSError and the errors of `RemoteFiles` where nothing can be read there."""
    keys = [name.removesuffix(".json") for name in remote.open().names(f"{remote.folder}/{build.KIND}")]
    found = []
    for key in sampled(keys, share) if keys else ():
        found.append(_audited(remote, key, store))
        on_kernel(found[-1])
    return KernelAudit(remote.folder.rpartition("/")[2], len(keys), tuple(found))


def _audited(remote: RemoteCache, key: str, store: Store) -> AuditedKernel:
    with temporary.held_folder(store.folder("scratch")) as scratch:
        theirs, ours = scratch / "theirs", scratch / "ours"
        for folder in (theirs, ours):
            folder.mkdir()
        try:
            remote.unpacked(build.KIND, key, theirs)
        except Unpackable as error:
            return AuditedKernel(key, AuditVerdict.DIFFERENT, str(error))
        try:
            inputs = records.load(KernelInputs, theirs / build.INPUTS)
            if build.key_of(inputs)[: len(key)] != key:
                return AuditedKernel(key, AuditVerdict.DIFFERENT, "its inputs are those of another kernel")
            with _fresh(scratch / "cache") as own:
                build.compile_again(inputs, _source(inputs, store), ours, own)
        except VmtailorError as error:
            return AuditedKernel(key, AuditVerdict.NOT_TRIED, error.message)
        return _compared(key, theirs, ours)


def _source(inputs: KernelInputs, store: Store) -> Path:
    found = kept_source.by_digest(inputs.source_digest, store)
    if found is None:
        named = f"{plain(inputs.kernel_version[:40])} ({inputs.source_digest[:12]})"
        raise HostError(f"the source {named} is not in this host's cache")
    return found.path


def _compared(key: str, theirs: Path, ours: Path) -> AuditedKernel:
    names = {one.name for folder in (theirs, ours) for one in folder.iterdir()} - {*build.NOTES}
    if different := [name for name in sorted(names) if _digest(theirs, name) != _digest(ours, name)]:
        return AuditedKernel(key, AuditVerdict.DIFFERENT, f"{' and '.join(map(plain, different))} of other bytes")
    return AuditedKernel(key, AuditVerdict.EQUAL)


def _digest(folder: Path, name: str) -> str:
    path = folder / name
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


@contextlib.contextmanager
def _fresh(folder: Path) -> Iterator[Store]:
    """Give a cache with nothing in it, the compiler's own among it, and no remote one behind it."""
    before = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = str(folder)
    try:
        yield Store(remote=False)
    finally:
        os.environ.pop("XDG_CACHE_HOME")
        if before is not None:
            os.environ["XDG_CACHE_HOME"] = before
