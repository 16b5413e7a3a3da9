# SPDX-License-Identifier: Apache-2.0
"""`vmtailor fleet fit`, `verify`, `refit` and `status`."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from vmtailor.base import output
from vmtailor.base.errors import AnswerNo, UserInputError
from vmtailor.base.terminal import TerminalConsole
from vmtailor.base.text import plural
from vmtailor.drivers.host import bundle_folder
from vmtailor.drivers.host.fingerprint import fingerprint
from vmtailor.fleet.cli import fleet_view
from vmtailor.fleet.cli.fleet_view import FleetView
from vmtailor.fleet.lists import lists
from vmtailor.fleet.model.entry import FleetEntry, ValueFrom
from vmtailor.fleet.model.fleet_record import FleetImage, FleetRecord, ImageStanding
from vmtailor.fleet.model.orders import Job
from vmtailor.fleet.pages import fleet_page
from vmtailor.fleet.run import clusters, fleet_folder, fleet_run, login, shared_kernels, worker_values
from vmtailor.fleet.run.fleet_run import FleetJob
from vmtailor.fleet.run.task_runner import Hidden
from vmtailor.model.bundle import RECORD


@dataclass(frozen=True)
class WorkOptions:
    """The options of a fleet's work, as they were given."""

    on: str
    certificates: Path | None
    authfile: Path | None
    failed_only: bool
    dry_run: bool
    kernel: str
    json: bool
    repeat: int | None = None
    kernels: str | int | None = None
    secrets: Path | None = None

    def job(self, job: Job, folder: Path, list_path: str, entries: Sequence[FleetEntry], **more: Any) -> FleetJob:
        """Return a job on the cluster that is asked for."""
        if self.secrets is not None:  # slots of this host inherit it
            if clusters.parse(self.on).address is not None:
                raise UserInputError("--secrets names a folder of this host", hint="give it to fleet worker, there")
            os.environ[worker_values.FOLDER] = str(worker_values.required(self.secrets))
        left = {one.entry.name for one in more["kept"]}
        wanted = [one for one in entries if one.name not in left]
        return FleetJob(
            job=job, path=folder, list_path=list_path, entries=entries, place=clusters.parse(self.on),
            certificates=self.certificates, needed=login.read(self.authfile), command=_command(), boots=self.repeat,
            variables=_variables(Path(list_path), wanted), **more,
        )  # fmt: skip


def _variables(path: Path, entries: Sequence[FleetEntry]) -> dict[str, Hidden]:
    """Return the values that a list has for these entries, as JSON. Raises UserInputError where it has them no more."""
    asking = [one for one in entries if any(row.source is ValueFrom.LIST for row in one.environment)]
    if not asking:
        return {}
    found = lists.read(path)
    values = {}
    for one in asking:
        entry = found.named(one.name)
        known = lists.values_of(found, entry) if entry is not None else {}
        for row in one.environment:
            if row.source is ValueFrom.LIST and row.name not in known:
                raise UserInputError(
                    f"{one.name}: {path} has no value of {row.name} any more", hint=f"vmtailor fleet fit {path}"
                )
        values[one.name] = Hidden(msgspec.json.encode(known).decode())
    return values


def fit(path: Path, out: Path, asked: WorkOptions) -> None:
    """Fit the images of a list, but those that are done."""
    found = lists.read(path)
    for one in (*found.no_meaning, *(row for entry in found.entries for row in entry.no_meaning)):
        output.note(f"without meaning for a fit: {one.key}: {one.why}")
    _fit(fleet_folder.begun(out), found.path, found.entries, asked)


def _fit(folder: Path, list_path: str, entries: Sequence[FleetEntry], asked: WorkOptions) -> None:
    known, tools = fleet_folder.read(folder), fingerprint()
    kept = fleet_folder.kept_images(entries, known, folder, tools.digest, failed_only=asked.failed_only)
    _run(asked.job(Job.FIT, folder, list_path, entries, kept=kept, tools=tools), asked)


def verify(folder: Path, asked: WorkOptions) -> None:
    """Verify the bundles of a fleet again."""
    known = fleet_folder.required(folder)
    if clusters.parse(asked.on).address is not None:
        raise UserInputError(
            "the bundles lie on this host, and a worker elsewhere does not see them", hint="--on local:N"
        )
    kept = [one for one in known.images if one.standing is not ImageStanding.DONE]
    if asked.failed_only:
        kept += [one for one in known.images if one not in kept and one.verified_again is not False]
    entries = [one.entry for one in known.images]
    job = asked.job(
        Job.VERIFY, folder, known.list_path, entries, kept=kept, tools=fingerprint(), before=known
    )  # fmt: skip
    _run(job, asked)


def refit(folder: Path, asked: WorkOptions) -> None:
    """Say which bundles need another fit, and why; then fit these."""
    known, tools = fleet_folder.required(folder), fingerprint()
    if asked.kernels is not None and asked.kernel:
        raise UserInputError(
            "--kernels joins the kernels of bundles that are done, and --kernel asks for others",
            hint=f"vmtailor fleet refit {folder} --kernel {asked.kernel} first, then --kernels",
        )
    shared = None if asked.kernels is None else shared_kernels.of_folder(folder, known, asked.kernels)
    for line in shared.lines() if shared is not None else ():
        output.note(line)
    keep = shared.keep if shared is not None else {}
    entries = [
        replace(
            one.entry,
            kernel=asked.kernel or one.entry.kernel,
            keep=tuple(dict.fromkeys((*one.entry.keep, *keep.get(one.entry.name, ())))),
        )
        for one in known.images
    ]
    needs = {}
    for one in known.images:
        joins = shared.why(one.entry.name) if shared is not None else ""
        if why := joins or _needs(one, folder, known, tools.digest, asked):
            needs[one.entry.name] = why
    for name, why in needs.items():
        output.note(f"{name} needs a fit: {why}")
    if not needs:
        output.note("no bundle needs another fit")
    if asked.dry_run:
        return
    kept = [
        replace(one, entry=entry)
        for one, entry in zip(known.images, entries, strict=True)
        if one.entry.name not in needs
    ]
    _run(asked.job(Job.FIT, folder, known.list_path, entries, kept=kept, tools=tools), asked)


def _needs(one: FleetImage, folder: Path, known: FleetRecord, tools: str, asked: WorkOptions) -> str:
    """Return why a bundle needs another fit; empty for one that does not."""
    if one.standing is not ImageStanding.DONE:
        return "it failed" if one.standing is ImageStanding.FAILED else "it was never finished"
    bundle = folder / one.entry.name
    if not (bundle / RECORD).is_file():
        return "its bundle is gone"
    if one.verified_again is False:
        return "it did not work when it was verified again"
    version = bundle_folder.load(bundle).bundle.kernel_version
    if asked.kernel and not f"{version}.".startswith(f"{asked.kernel}."):
        return f"its kernel is {version}, {asked.kernel} is asked for"
    by_tag = not one.entry.digest and "@sha256:" not in one.entry.reference
    newer = "its reference has no digest, and may name another image now" if by_tag else ""
    return newer if known.tools == tools else "the tools of this host are not those that it was made with"


def _run(job: FleetJob, asked: WorkOptions) -> None:
    try:
        record = fleet_run.run(job, FleetView())
    except KeyboardInterrupt:
        output.note(f"{job.path} keeps what is done; the same command goes on from there")
        raise
    finally:
        if (kept := fleet_folder.read(job.path)) is not None:
            fleet_page.write(kept, job.path)
    _end(record, job.path, json=asked.json)


def status(folder: Path, asked: WorkOptions) -> None:
    """Show the record of a fleet."""
    _end(fleet_folder.required(folder), folder, json=asked.json)


def _end(record: FleetRecord, folder: Path, *, json: bool) -> None:
    if json:
        output.document(_document(record))
    else:
        TerminalConsole().print(fleet_view.table(record))
    bad = [one for one in record.images if one.standing is not ImageStanding.DONE or one.verified_again is False]
    if bad:
        names = ", ".join(one.entry.name for one in bad[:5]) + (", …" if len(bad) > 5 else "")
        raise AnswerNo(
            f"{plural(len(bad), 'image')} of {len(record.images)} without a machine that works: {names}",
            hint=f"vmtailor fleet status {folder} says why; --failed-only tries these again",
        )
    output.note(f"✓ {plural(len(record.images), 'bundle')} in {folder}")


def _document(record: FleetRecord) -> dict[str, Any]:
    return {"schema": record.SCHEMA, **msgspec.to_builtins(record)}


def _command() -> str:
    return shlex.join(["vmtailor", *sys.argv[1:]]).encode("utf-8", "replace").decode()
