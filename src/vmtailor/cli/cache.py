# SPDX-License-Identifier: Apache-2.0
"""`vmtailor cache`: show the cache, and prune it."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Annotated, Any

from vmtailor.base import figures, output
from vmtailor.base.cache import entries as caches
from vmtailor.base.cache.entries import CacheEntry, PruneLimits
from vmtailor.base.cache.store import Store
from vmtailor.base.errors import UserInputError
from vmtailor.base.terminal import Column, Table, TerminalConsole, Text, box, folding
from vmtailor.base.text import plural
from vmtailor.drivers.kernel import kernel_uses
from vmtailor.model.kernel import KernelUses
from vmtailor.model.margin import label
from vmtailor.model.option import Option
from vmtailor.model.option_rows import DRY_RUN, JSON
from vmtailor.model.option_values import parse_age, parse_room

# vmtailor/cache/1: without `kernels`.
CACHE_SCHEMA = "vmtailor/cache/2"

#: Images of a kernel that are named on a terminal.
MOST_IMAGES = 6

#: Each kind of result: its description, and the cost to make it again.
_KINDS = {
    "baselines": "which packages a baseline comes from",
    "bench-archive": "the image of benchmarks, as container engines load it",
    "bundle": "bundles that were pulled",
    "bundle-config": "configurations of others, held against the source",
    "bundle-data": "symbols of bundles' kernels",
    "bundle-references": "which bundle a reference meant",
    "ccache": "the compiler's cache",
    "content": "digests of files",
    "counted": "boots that were counted",
    "errors": "what errors said that did not fit a screen",
    "facts": "what is known of a kernel's source",
    "family": "family kernels",
    "fit": "fitted bundles",
    "fit-behind": "logs of fits behind runs",
    "image": "container images, as one archive each",
    "images": "which image a reference meant",
    "initrd": "initial RAM disks of baselines",
    "kconfig": "symbols of kernel sources, as they were parsed",
    "kconfig-shell": "what the compiler answered Kconfig",
    "kernel": "compiled kernels",
    "kernel-build": "folders in which kernels are compiled",
    "kernel-compiled": "baselines that were compiled",
    "kernel-debug": "symbols of baselines",
    "kernel-debug-modules": "symbols of their modules",
    "kernel-form": "kernels of bundles in other forms",
    "kernel-image": "baselines, with their modules",
    "kernel-profile": "profiles of loads, by which kernels are compiled",
    "kernel-source": "kernel sources",
    "kernel-subsystems": "which subsystems functions of baselines are of",
    "kernel-symbols": "kernels with debug information",
    "kvm": "whether guests run under KVM",
    "packages": "packages of the distribution",
    "places": "where instructions of baselines stand in the source",
    "root": "root file systems",
    "timed": "boots that were timed",
    "tools": "volumes with the tracer",
    "trace": "traces",
    caches.UNFINISHED: "what runs that were killed left half made",
    "unfitted": "bundles of images on family kernels",
    "verification": "verifications that passed",
    "work": "what was read from work folders",
}


def cache(
    older_than: Annotated[
        float | None,
        Option(
            name="--older-than", metavar="AGE", read=parse_age,
            help="Remove what was not used for this long: 12h, 30d, 4w.",
        ),
    ] = None,
    max_size: Annotated[
        int | None,
        Option(
            name="--max-size", metavar="SIZE", read=parse_room,
            help="Remove the least recently used until this much is left: 20G.",
        ),
    ] = None,
    everything: Annotated[bool, Option(name="--all", type=bool, help="Remove everything.")] = False,
    dry_run: Annotated[bool, replace(DRY_RUN, help="Print what would go, and remove nothing.")] = False,
    json: Annotated[bool, JSON] = False,
) -> None:  # fmt: skip
    """Show what the cache holds, and prune it to a limit, except for files that a running vmtailor may use.

    Without a limit nothing is deleted. The list names the kernels that images were fitted with, and the images that
    each serves. All of it can be made again: sources and packages are fetched again, kernels are compiled again.
    Bundles do not need the cache."""
    limits = _limits(older_than, max_size, everything)
    if dry_run and limits is None:
        raise UserInputError("--dry-run needs to know what would be removed", hint="--older-than, --max-size or --all")
    store = Store()
    there = caches.entries(store)
    chosen = caches.surplus(there, limits, caches.now_s()) if limits is not None else ()
    since, running = caches.busy_since(store)
    gone = tuple(e for e in chosen if e.used_s < since) if dry_run else caches.remove(store, chosen)
    if json:
        output.document(_document(store, there, chosen, gone, running, limits is not None and not dry_run))
        return
    left = there if dry_run else tuple(entry for entry in there if entry not in gone)
    _show(store, left)
    _show_family(store)
    if limits is not None:
        output.say(_sentence(gone, dry_run))
        kept = len(chosen) - len(gone)
        if kept:
            numbers = ", ".join(str(number) for number in running)
            why = f"a running vmtailor (process {numbers}) may use them" if running else "they could not be removed"
            output.say(f"{plural(kept, 'result')} stay: {why}")


def _limits(older_than: float | None, max_size: int | None, everything: bool) -> PruneLimits | None:
    if everything:
        return PruneLimits(size_bytes=-1)
    if older_than is None and max_size is None:
        return None
    return PruneLimits(older_than, max_size)


def _sentence(gone: Sequence[CacheEntry], dry_run: bool) -> str:
    size = figures.file_bytes(_bytes(gone))
    return f"{plural(len(gone), 'result')}, {size}: {'would be removed' if dry_run else 'removed'}"


def _bytes(entries: Iterable[CacheEntry]) -> int:
    return sum(entry.size_bytes for entry in entries)


def _kinds(there: Sequence[CacheEntry]) -> list[tuple[str, list[CacheEntry]]]:
    """Return the kinds with their entries, the largest first."""
    kinds = [(kind, list(found)) for kind, found in groupby(there, key=lambda entry: entry.kind)]
    return sorted(kinds, key=lambda one: -_bytes(one[1]))


def _show(store: Store, there: Sequence[CacheEntry]) -> None:
    table = Table(
        Column("kind", footer="all"), "what it is", Column("results", justify="right", footer=str(len(there))),
        Column("size", justify="right", footer=figures.file_bytes(_bytes(there))), Column("last used", justify="right"),
        box=box.SIMPLE_HEAD, show_footer=True,
    )  # fmt: skip
    now = caches.now_s()
    for kind, found in _kinds(there):
        size = figures.file_bytes(_bytes(found))
        table.add_row(kind, _KINDS.get(kind, ""), str(len(found)), size, _ago(now - max(e.used_s for e in found)))
    console = TerminalConsole()
    console.print(table)
    free = figures.file_bytes(shutil.disk_usage(store.root).free) if store.root.is_dir() else figures.NONE
    output.say(f"{store.root}; {free} are free there")


def _show_family(store: Store) -> None:
    """The kernels that images were fitted with, each with the images that it serves."""
    members = tuple(kernel_uses.members(store))
    if not members:
        return
    numbers = (Column(name, overflow="fold", justify="right") for name in ("size", "symbols"))
    table = Table(*folding("kernel", "version"), *numbers, *folding("serves"), box=box.SIMPLE_HEAD)
    for digest, kernel in members:
        named = [f"{one.reference} ({label(one.margins)})" for one in kernel.images[:MOST_IMAGES]]
        left = len(kernel.images) + kernel.more - len(named)
        size = figures.file_bytes(kernel.kernel_bytes)
        first, *others = (*named, *([f"and {left} more"] if left else []))
        table.add_row(digest[:12], Text(kernel.version), size, str(kernel.symbols_prompted), Text(first))
        for other in others:
            table.add_row("", "", "", "", Text(other))
    images = len({one.digest for _, kernel in members for one in kernel.images})
    TerminalConsole().print(table)
    output.say(f"{plural(len(members), 'kernel')} for {plural(images, 'image')}; symbols are those with a prompt")


def _ago(seconds: float) -> str:
    for size, unit in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= size:
            return f"{plural(int(seconds // size), unit)} ago"
    return "now"


def _document(
    store: Store,
    there: Sequence[CacheEntry],
    chosen: Sequence[CacheEntry],
    gone: Sequence[CacheEntry],
    running: Sequence[int],
    removed: bool,
) -> dict[str, Any]:
    """Return the JSON document. `removed`: whether what is `gone` was removed, or only would be."""
    return {
        "schema": CACHE_SCHEMA,
        "folder": str(store.root),
        "bytes": _bytes(there),
        "running": list(running),
        "kinds": [
            {"kind": kind, "what": _KINDS.get(kind, ""), "results": len(found), "bytes": _bytes(found)}
            for kind, found in _kinds(there)
        ],
        "kernels": [_kernel(digest, uses) for digest, uses in kernel_uses.members(store)],
        "results": [_row(entry) for entry in there],
        "removed" if removed else "surplus": [_row(entry) for entry in gone],
        "in_use": [_row(entry) for entry in chosen if entry not in gone],
    }


def _kernel(digest: str, uses: KernelUses) -> dict[str, Any]:
    return {
        "digest": digest,
        "version": uses.version,
        "architecture": uses.architecture,
        "bytes": uses.kernel_bytes,
        "symbols_prompted": uses.symbols_prompted,
        "symbols_y": uses.symbols_y,
        "images": [
            {"reference": one.reference, "digest": one.digest, "margin": label(one.margins)} for one in uses.images
        ],
        "more_images": uses.more,
    }


def _row(entry: CacheEntry) -> dict[str, Any]:
    return {"kind": entry.kind, "name": entry.name, "bytes": entry.size_bytes, "used": round(entry.used_s, 3)}
