# SPDX-License-Identifier: Apache-2.0
"""Read what a gate judges: a saved document, its figures, and what tells it from any other, so that a log of CI
explains itself."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from vmtailor.analysis.comparison.budgets import metrics_of
from vmtailor.analysis.timeline.boot_json import json_chunks
from vmtailor.analysis.timeline.boot_timeline import analyze
from vmtailor.base.errors import UserInputError
from vmtailor.base.files import plain_files
from vmtailor.base.files.digests import sha256_of, sha256_of_rest
from vmtailor.base.files.regular_files import read_regular
from vmtailor.base.text import plural
from vmtailor.model.boots.series import RECORD as SERIES
from vmtailor.model.boots.series import BootSeries
from vmtailor.model.boots.timeline import WarningCode
from vmtailor.model.bundle import RUN
from vmtailor.model.machine import USUAL_MONITOR
from vmtailor.model.monitor_verdicts import MonitorPlace, MonitorVerdict

#: Looked for in a folder, in this order.
DOCUMENTS = (RUN, SERIES, "boot.json", "report.json", "timeline.json")
#: Longest document of a folder that is read.
MOST_BYTES = 1 << 30
#: The number of saved boots without figures. Without a budget for it, the budget is none.
FAILED = "boots_failed"
#: Figures that are 1 or 0: a boot crashed, or its kernel reported a fault; a fit was verified.
#: Without a budget of its own, no boot may have crashed, and every fit must be verified.
CRASHED, VERIFIED = "crashed", "verified"
#: Limits that hold where no budget names the figure, and the meaning of a broken one.
IMPLIED = {
    FAILED: ("<= 0", "boots that never became ready"),
    CRASHED: ("<= 0", "the boot ended in a crash, so its figures are not those of a boot"),
    VERIFIED: (">= 1", "the exercise did not pass in the machine that was built"),
}
#: Folders are shown by what is in them; of one that holds logs only the names count.
_LOGS = "logs, analysed now"
_BOOTS, _FITS, _TIMELINES = "vmtailor/boots/", "vmtailor/fit-run/", "vmtailor/timeline/"


@dataclass(frozen=True)
class Document:
    """A document that was read. `path` is the file's; `sha256` of its bytes, "" for a folder of logs; `facts`: what it
    is of, as name and text; `warnings`: those of the document, as code and text."""

    path: Path
    sha256: str
    metrics: Mapping[str, list[float]]
    facts: tuple[tuple[str, str], ...]
    warnings: tuple[tuple[str, str], ...] = ()


def read(path: Path, boot: int = 0) -> Document:
    """Read a document, that of saved boots, or a log that is analysed first. `boot` chooses among several in one log: 1
    the first, 0 the last. Raises UserInputError."""
    data = b""
    if path.is_dir():
        # The folder may be a bundle of somebody else: what it holds must be a file, and its own.
        if name := next((name for name in DOCUMENTS if os.path.lexists(path / name)), ""):
            data = plain_files.read(path, name, MOST_BYTES)
            path /= name
    elif path.is_file():
        with path.open("rb") as file:
            head = file.read(4096)
        if head.lstrip()[:1] == b"{":
            data = read_regular(path, "the document", MOST_BYTES)
    if data.lstrip()[:1] == b"{":
        if boot:
            raise UserInputError(f"{path} holds no log of several boots", hint="leave --boot out: it is for logs")
        return of_bytes(data, path)
    timeline = analyze([path], boot, needs_log=True)
    if absent := next((one.text for one in timeline.warnings if one.code == WarningCode.NO_SUCH_BOOT), ""):
        raise UserInputError(f"{path}: {absent}", hint="--boot 1 is the first, and 0 the last")
    content = msgspec.json.decode(b"".join(json_chunks(timeline)))
    digest = sha256_of(path) if path.is_file() else ""
    return _document(content, path, digest, ("document", _LOGS))


def of_bytes(data: bytes, path: Path) -> Document:
    """Return the document that was read from a path. Raises UserInputError for a damaged one."""
    try:
        content = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise UserInputError(f"{path} is damaged: {error}", hint="make it again") from None
    _require_readable(content, path)
    return _document(content, path, hashlib.sha256(data).hexdigest())


def _document(content: Mapping[str, Any], path: Path, sha256: str, *more: tuple[str, str]) -> Document:
    return Document(
        path=path,
        sha256=sha256,
        metrics={**metrics_of(content), **samples(content), **_signs(content)},
        facts=(*more, *facts(content, path.parent)),
        warnings=tuple((_text(one.get("code")), _text(one.get("text"))) for one in _mappings(content.get("warnings"))),
    )


def _signs(content: Mapping[str, Any]) -> dict[str, list[float]]:
    """Return CRASHED of a boot, and VERIFIED of a fit or a verification."""
    found: dict[str, list[float]] = {}
    schema, verified = _text(content.get("schema")), content.get("verified")
    if schema.startswith(_FITS) or isinstance(verified, bool):
        found[VERIFIED] = [float(verified is True)]
    if schema.startswith(_TIMELINES):
        crashed = any(one.get("code") == WarningCode.CRASHED for one in _mappings(content.get("warnings")))
        found[CRASHED] = [float(crashed)]
    return found


def with_monitors(found: Document, later: Sequence[MonitorVerdict]) -> Document:
    """Return the document of a bundle's fit with figures of its monitors: on how many the exercise passed
    (`monitors_passed`) and failed (`monitors_failed`), and of each whether it passed under KVM (`passed_on_NAME`, 1 or
    0). `later`: the verdicts since the fit, whose own is of QEMU."""
    verdicts = {(USUAL_MONITOR, MonitorPlace.EMULATED): found.metrics.get(VERIFIED) == [1.0]}
    verdicts |= {(one.monitor, one.place): one.passed for one in later}
    passed = sum(verdicts.values())
    metrics = {"monitors_passed": [float(passed)], "monitors_failed": [float(len(verdicts) - passed)]}
    under_kvm = [one for one in later if one.place is not MonitorPlace.EMULATED]
    for name in {one.monitor for one in under_kvm}:
        good = any(one.passed for one in under_kvm if one.monitor == name)
        metrics[f"passed_on_{name.replace('-', '_')}"] = [float(good)]
    return replace(found, metrics={**found.metrics, **metrics})


def _require_readable(content: Mapping[str, Any], path: Path) -> None:
    """Raise UserInputError for saved boots of another version, in which the samples stand elsewhere."""
    found = _text(content.get("schema"))
    if found.startswith(_BOOTS) and found not in (BootSeries.SCHEMA, *BootSeries.OLDER):
        raise UserInputError(
            f"{path} has schema {found!r}, this version reads {BootSeries.SCHEMA!r}",
            hint="boot it again with this version of vmtailor",
        )


def facts(content: Mapping[str, Any], folder: Path) -> Iterator[tuple[str, str]]:
    """Yield what tells a document from others: whose it is, which kernel, under which conditions. `folder` may hold the
    files that it names."""
    schema = _text(content.get("schema"))
    yield "schema", schema or "none"
    if schema.startswith(_FITS):
        yield from _of_fit(content, folder)
    elif schema.startswith(_BOOTS):
        yield from _of_boots(content, folder)
    elif schema.startswith(_TIMELINES):
        kernel = content.get("kernel")
        if isinstance(kernel, Mapping):
            yield "kernel", _joined(kernel.get("version"), kernel.get("command_line"))
    if version := _text(content.get("version")):
        yield "vmtailor", version


def _of_fit(content: Mapping[str, Any], folder: Path) -> Iterator[tuple[str, str]]:
    yield "image", _joined(content.get("reference"), content.get("image_digest"))
    yield "fit", _joined(content.get("command"))
    yield "verified", _joined("yes", content.get("proof")) if content.get("verified") is True else "no"
    for pair in _pairs(content.get("sources")):
        if pair[0] in ("kernel source", "compiler"):
            yield pair
    tailored = content.get("tailored")
    name = _text(tailored.get("kernel_file")) if isinstance(tailored, Mapping) else ""
    label = _text(tailored.get("kernel")) if isinstance(tailored, Mapping) else ""
    # A record may have been moved without its kernel, and names no file outside its folder.
    yield "kernel", _joined(label, _digest_beside(folder, Path(name).name) or "its file is not beside the record")


def _digest_beside(folder: Path, name: str) -> str:
    try:
        with plain_files.opened(folder, name) as file:
            return f"sha256:{sha256_of_rest(file)}"
    except UserInputError:
        return ""


def _of_boots(content: Mapping[str, Any], folder: Path) -> Iterator[tuple[str, str]]:
    count = sum(1 for _ in _mappings(content.get("boots")))
    failed = sum(1 for _ in _failed(content))
    told = f"{plural(count, 'boot')}{f', of which {failed} did not come to be ready' if failed else ''}"
    yield "subject", _joined(content.get("subject"), told)
    yield from _pairs(content.get("conditions"))
    machine = next(_mappings(content.get("variants")), {}).get("machine")
    if isinstance(machine, Mapping) and (kernel := _text(machine.get("kernel"))):
        yield "kernel", _joined(kernel, _kernel_beside(kernel, folder))
        words = machine.get("words", machine.get("append"))
        yield "command line", " ".join(str(word) for word in words) if isinstance(words, list) else ""


def _kernel_beside(kernel: str, folder: Path) -> str:
    """Return the digest of a kernel that lies in the folder of the record, or why there is none. A record may be a
    stranger's: nothing else that it names is opened."""
    at, own = (Path(os.path.normpath(path.absolute())) for path in (Path(kernel), folder))
    if at.parent != own:
        return "not read: it is not in the record's folder"
    digest = _digest_beside(folder, at.name)
    return f"sha256:{digest}" if digest else "no longer there"


def samples(content: Mapping[str, Any]) -> dict[str, list[float]]:
    """Return the samples of saved boots of the machine as it was: `ready_s`, each milestone's, and `init_instructions`,
    of those that came to be ready; and how many did not (FAILED)."""
    if not _text(content.get("schema")).startswith(_BOOTS):
        return {}
    found: dict[str, list[float]] = {FAILED: [float(sum(1 for _ in _failed(content)))]}
    base = next(_mappings(content.get("variants")), {})
    machine = base.get("machine")
    exact = isinstance(machine, Mapping) and machine.get("clock") == "instructions"
    for one in _mappings(content.get("boots")):
        boot = one.get("boot")
        if one.get("variant") != base.get("name") or not isinstance(boot, Mapping) or boot.get("outcome") != "ready":
            continue
        if isinstance(boot.get("instructions"), int):
            found.setdefault("init_instructions", []).append(float(boot["instructions"]))
        for mark in _mappings(boot.get("milestones")):
            if isinstance(at := mark.get("virtual_ns" if exact else "wall_s"), (int, float)):
                name = f"{str(mark.get('name')).replace(' ', '_')}_s"
                found.setdefault(name, []).append(at / 1e9 if exact else float(at))
        for name, count in of_monitor(boot).items():
            found.setdefault(name, []).append(float(count))
    return found


def of_monitor(boot: Mapping[str, Any]) -> dict[str, int]:
    """Return the figures of a boot in the lab: `monitor_ready_instructions` and so on for each milestone, counted from
    the exec of the monitor; `exits` until ready, and those of each cause, such as `exits_page_fault`; of a traced boot
    also accesses to each device, such as `accesses_serial_port`."""
    monitor = boot.get("monitor")
    if not isinstance(monitor, Mapping):
        return {}
    found: dict[str, int] = {}
    for mark in _mappings(boot.get("milestones")):
        if isinstance(executed := mark.get("executed"), int):
            found[f"monitor_{str(mark.get('name'))[:64]}_instructions"] = executed
    for cause in _mappings(monitor.get("causes")):
        if isinstance(exits := cause.get("exits"), int):
            found[f"exits_{str(cause.get('cause'))[:64].lower().replace(' ', '_')}"] = exits
    if found:
        found["exits"] = sum(count for name, count in found.items() if name.startswith("exits_"))
    for place in _mappings(monitor.get("places")):
        if isinstance(count := place.get("exits"), int):
            name = f"accesses_{str(place.get('title'))[:64].lower().replace(' ', '_')}"
            found[name] = found.get(name, 0) + count
    return found


def _failed(content: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the boots of the machine as it was that did not come to be ready."""
    base = next(_mappings(content.get("variants")), {})
    for one in _mappings(content.get("boots")):
        boot = one.get("boot")
        if one.get("variant") == base.get("name") and (not isinstance(boot, Mapping) or boot.get("outcome") != "ready"):
            yield one


def _mappings(value: Any) -> Iterator[Mapping[str, Any]]:
    return (one for one in (value if isinstance(value, list) else ()) if isinstance(one, Mapping))


def _pairs(value: Any) -> Iterator[tuple[str, str]]:
    for pair in value if isinstance(value, list) else ():
        if isinstance(pair, list) and len(pair) == 2:
            yield _text(pair[0]), _text(pair[1])


def _joined(*parts: Any) -> str:
    return ", ".join(text for part in parts if (text := _text(part))) or "not said"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
