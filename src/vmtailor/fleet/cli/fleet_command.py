# SPDX-License-Identifier: Apache-2.0
"""`vmtailor fleet`: many images on many machines."""

from __future__ import annotations

import os
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from vmtailor.base import near_names, output
from vmtailor.base.cache import remote
from vmtailor.base.errors import UserInputError
from vmtailor.base.text import plain
from vmtailor.fleet.cli import audit as audit_action
from vmtailor.fleet.manifests.manifest_wishes import ManifestWishes
from vmtailor.fleet.model import addresses, kernel_groups
from vmtailor.fleet.run import certificates as certificate_files
from vmtailor.fleet.run import clusters, engine_extra
from vmtailor.model import option_values
from vmtailor.model.option import Option
from vmtailor.model.option_rows import CPUS, DRY_RUN, JSON, MEMORY, REMOTE_CACHE, REPEAT
from vmtailor.pipeline import shared_results

#: The size of a fleet, unless somebody says another.
_USUAL = ManifestWishes()


class FleetAction(StrEnum):
    LIST = "list"
    FIT = "fit"
    VERIFY = "verify"
    REFIT = "refit"
    STATUS = "status"
    WORKER = "worker"
    SCHEDULER = "scheduler"
    CERTIFICATES = "certificates"
    MANIFEST = "manifest"
    AUDIT = "audit"


_CLUSTER = frozenset({"--on", "--certificates", "--remote-cache", "--failed-only", "--json"})
#: The subject of each action in words, and the options that it takes.
TAKES: dict[FleetAction, tuple[str, frozenset[str]]] = {
    FleetAction.LIST: ("a list of images", frozenset({"--json"})),
    FleetAction.FIT: ("a list of images", _CLUSTER | {"--out", "--authfile", "--repeat", "--secrets"}),
    FleetAction.VERIFY: ("the folder of a fleet", (_CLUSTER - {"--certificates"}) | {"--secrets"}),
    FleetAction.REFIT: (
        "the folder of a fleet",
        (_CLUSTER - {"--failed-only"}) | {"--kernel", "--kernels", "--dry-run", "--authfile", "--repeat", "--secrets"},
    ),
    FleetAction.STATUS: ("the folder of a fleet", frozenset({"--json"})),
    FleetAction.WORKER: (
        "the address of a scheduler",
        frozenset({"--slots", "--certificates", "--remote-cache", "--secrets"}),
    ),
    FleetAction.SCHEDULER: ("", frozenset({"--listen", "--certificates"})),
    FleetAction.CERTIFICATES: ("a folder for them", frozenset({"--san", "--days"})),
    FleetAction.MANIFEST: (
        "what is to start it: kubernetes, slurm or systemd",
        frozenset(
            {
                "--out",
                "--certificates",
                "--remote-cache",
                "--slots",
                "--name",
                "--image",
                "--workers",
                "--cpus",
                "--memory",
                "--disk-size",
                "--limit",
            }
        ),
    ),
    FleetAction.AUDIT: ("", frozenset({"--sample", "--remote-cache", "--json"})),
}


def _action(text: str) -> FleetAction:
    if text not in set(FleetAction):
        known = near_names.or_else(text, FleetAction, f"choose {', '.join(FleetAction)}")
        raise UserInputError(f"vmtailor fleet has no action '{plain(text)[:40]}'", hint=known)
    return FleetAction(text)


def fleet(
    action: Annotated[
        FleetAction,
        Option(
            name="ACTION", read=_action, suggests=tuple(FleetAction),
            help="Choose list, fit, verify, refit, status, worker, scheduler, certificates, manifest or audit.",
        ),
    ],
    what: Annotated[
        str | None,
        Option(
            name="WHAT",
            help="Name a list (list, fit), a fleet's folder (verify, refit, status), a scheduler's address (worker), a "
            "new folder (certificates), or what starts it (manifest).",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        Option(
            name="--out", short="-o", type=Path,
            help="Write the bundles, their record and their page here, or a manifest's files.",
        ),
    ] = None,
    on: Annotated[
        str | None,
        Option(
            name="--on", metavar="CLUSTER",
            help="Work on local:N, N slots of this host, or on the scheduler at tls://HOST:PORT. Default: local:1.",
        ),
    ] = None,
    failed_only: Annotated[
        bool, Option(name="--failed-only", type=bool, help="Work on those alone that have failed.")
    ] = False,
    kernel: Annotated[
        str | None, Option(name="--kernel", help="Fit again on this kernel: a series such as 6.1, or a release.")
    ] = None,
    kernels: Annotated[
        str | int | None,
        Option(
            name="--kernels", metavar="EACH|AUTO|N", read=kernel_groups.parse_kernels,
            help="Let finished images share kernels: N of them; auto: where nobody pays more than 1 %; each: none.",
        ),
    ] = None,
    repeat: Annotated[int | None, REPEAT] = None,
    dry_run: Annotated[bool, DRY_RUN] = False,
    slots: Annotated[
        int | None,
        Option(
            name="--slots", type=int, least=1, most=clusters.MOST_SLOTS, help="Do so many tasks at a time. Default: 1."
        ),
    ] = None,
    listen: Annotated[
        str | None, Option(name="--listen", metavar="ADDRESS", help="Listen here. Default: tls://127.0.0.1:8786.")
    ] = None,
    certificates: Annotated[
        Path | None,
        Option(name="--certificates", type=Path, metavar="DIR", help="Prove who we are by this fleet's certificates."),
    ] = None,
    authfile: Annotated[
        Path | None,
        Option(name="--authfile", type=Path, help="Give workers the credentials of registries in this file."),
    ] = None,
    secrets: Annotated[
        Path | None,
        Option(
            name="--secrets", type=Path, metavar="DIR",
            help="Look here, on this host, for values of variables that a list only names: DIR/SECRET/KEY, or a file "
            "of variables.",
        ),
    ] = None,
    sample: Annotated[
        float | None,
        Option(
            name="--sample", metavar="PERCENT", read=audit_action.read_share,
            help="With audit, compile this share of the kernels again, and at least one. Default: 5%.",
        ),
    ] = None,
    san: Annotated[
        tuple[str, ...],
        Option(
            name="--san", many=True, metavar="HOST",
            help="Put this name or address of a host into the certificates of what listens. Repeat it for more.",
        ),
    ] = (),
    days: Annotated[
        int | None,
        Option(
            name="--days", type=int, least=1, most=certificate_files.DAYS_MAX,
            help=f"Make certificates for this many days. Default: {certificate_files.DAYS}.",
        ),
    ] = None,
    name: Annotated[
        str | None, Option(name="--name", help=f"Begin the names of all parts with this. Default: {_USUAL.name}.")
    ] = None,
    image: Annotated[
        str | None,
        Option(name="--image", metavar="REFERENCE", help="Take vmtailor's own image from there: REGISTRY/NAME:TAG."),
    ] = None,
    workers: Annotated[
        int | None,
        Option(
            name="--workers", type=int, least=1, most=1000,
            help=f"Start this many workers. Default: {_USUAL.workers}.",
        ),
    ] = None,
    cpus: Annotated[int | None, replace(CPUS, help=f"Give each worker this many CPUs. Default: {_USUAL.cpus}.")] = None,
    memory: Annotated[int | None, replace(MEMORY, help="Give each worker this memory. Default: 8G.")] = None,
    disk_size: Annotated[
        int | None,
        Option(
            name="--disk-size", read=option_values.parse_room,
            help="Give the cache of each worker this room, such as 100G. Default: 60G.",
        ),
    ] = None,
    limit: Annotated[
        float | None,
        Option(
            name="--limit", metavar="TIME", read=option_values.parse_duration,
            help="End scheduler and workers after this time, such as 8h. Default: 12h.",
        ),
    ] = None,
    remote_cache: Annotated[str, REMOTE_CACHE] = "",
    json: Annotated[bool, JSON] = False,
) -> None:  # fmt: skip
    """Fit many images on many machines, and keep their bundles up to date.

    fit and refit go on from what is done: finished images are left, and finished stages are found in the caches."""
    engine_extra.require()
    given = {
        "--out": out, "--on": on, "--failed-only": failed_only, "--kernel": kernel,
        "--kernels": kernels, "--dry-run": dry_run,
        "--slots": slots, "--listen": listen, "--certificates": certificates, "--authfile": authfile,
        "--secrets": secrets,
        "--remote-cache": remote_cache, "--san": san, "--days": days, "--name": name, "--image": image,
        "--workers": workers, "--cpus": cpus, "--memory": memory, "--disk-size": disk_size, "--limit": limit,
        "--json": json, "--repeat": repeat, "--sample": sample is not None,
    }  # fmt: skip
    _require_taken(action, what, [name for name, value in given.items() if value])
    if action is FleetAction.MANIFEST:
        from vmtailor.fleet.cli import manifest_command

        asked_for: dict[str, Any] = {
            "name": name, "image": image, "workers": workers, "cpus": cpus, "memory_bytes": memory,
            "disk_bytes": disk_size, "limit_s": limit, "slots": slots, "cache_url": remote_cache,
            "certificates": None if certificates is None else str(certificates),
        }  # fmt: skip
        wishes = ManifestWishes(**{key: value for key, value in asked_for.items() if value is not None})
        return manifest_command.show(what or "", wishes, out)
    shared_results.begin(remote_cache)
    if action is FleetAction.LIST:
        from vmtailor.fleet.cli import list_command

        list_command.show(Path(what or ""), json=json)
    elif action is FleetAction.CERTIFICATES:
        made = certificate_files.make(Path(what or ""), days or certificate_files.DAYS, san)
        output.say(
            f"{made.folder}: good until {certificate_files.ends(made.folder):%Y-%m-%d}; keep ca-key.pem to yourself"
        )
    elif action is FleetAction.AUDIT:
        url = remote_cache or os.environ.get(remote.VARIABLE)
        if not url:
            raise UserInputError("fleet audit needs a remote cache (--remote-cache URL)", hint="vmtailor fleet --help")
        audit_action.audit(url, audit_action.SHARE if sample is None else sample, json=json)
    elif action is FleetAction.SCHEDULER:
        from vmtailor.fleet.run import scheduler

        at = addresses.parse(listen or addresses.Address(addresses.LOOPBACK).text)
        scheduler.serve(at, certificate_files.found(_certificates(action, certificates)), output.say)
    elif action is FleetAction.WORKER:
        from vmtailor.fleet.cli import fleet_worker

        fleet_worker.work(what or "", _certificates(action, certificates), slots or 1, secrets)
    else:
        from vmtailor.fleet.cli import fleet_work

        asked = fleet_work.WorkOptions(
            on=on or clusters.USUAL, certificates=certificates, authfile=authfile, failed_only=failed_only,
            dry_run=dry_run, kernel=kernel or "", json=json, repeat=repeat, kernels=kernels,
            secrets=secrets,
        )  # fmt: skip
        folder = Path(what or "")
        if action is FleetAction.FIT:
            if out is None:
                raise UserInputError("fleet fit needs -o DIR", hint=f"vmtailor fleet fit {folder} -o DIR")
            fleet_work.fit(folder, out, asked)
        else:
            {
                FleetAction.VERIFY: fleet_work.verify,
                FleetAction.REFIT: fleet_work.refit,
                FleetAction.STATUS: fleet_work.status,
            }[action](folder, asked)


def _require_taken(action: FleetAction, what: str | None, given: list[str]) -> None:
    """Raise UserInputError for options that an action does not take, and without what it is about."""
    about, takes = TAKES[action]
    for name in given:
        if name not in takes:
            raise UserInputError(f"fleet {action} has no {name}", hint="leave it out")
    if about and not what:
        raise UserInputError(f"fleet {action} needs {about}", hint="vmtailor fleet --help")
    if what and not about:
        hint = "--listen says where it listens" if action is FleetAction.SCHEDULER else "leave it out"
        raise UserInputError(f"fleet {action} takes no WHAT", hint=hint)


def _certificates(action: FleetAction, folder: Path | None) -> Path:
    if folder is None:
        raise UserInputError(f"fleet {action} needs --certificates", hint="vmtailor fleet certificates DIR makes them")
    return folder
