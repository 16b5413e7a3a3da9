# SPDX-License-Identifier: Apache-2.0
"""Named machines as documents: rows of `ps` and the answer of `inspect`, with docker's names of fields."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from vmtailor.base import figures
from vmtailor.drivers.host.machine_folders import MachineFolder
from vmtailor.drivers.host.machine_log import stamp_ns
from vmtailor.model.guest_mounts import MountKind
from vmtailor.model.kept_machine import USED_UP, KeptMachine, MachineState, MachineStatus, parse_restart
from vmtailor.model.machine import PublishedPort

#: Columns of `ps`.
COLUMNS = ("ID", "Image", "Command", "RunningFor", "Status", "Ports", "Names")
#: Kinds of mounts in docker's words.
_KINDS: Mapping[str, str] = {MountKind.FOLDER: "bind", MountKind.MEMORY: "tmpfs"}
_NEVER = "0001-01-01T00:00:00Z"
_COMMAND = 20
_SPANS = ((60, "seconds", 1), (3600, "minutes", 60), (48 * 3600, "hours", 3600), (14 * 86400, "days", 86400),
          (60 * 86400, "weeks", 7 * 86400), (730 * 86400, "months", 30 * 86400))  # fmt: skip


def duration(seconds: float) -> str:
    """Return a span of time as container engines say it: `5 minutes`, `About an hour`."""
    whole = max(0, int(seconds))
    exact = {0: "Less than a second", 1: "1 second"}.get(whole)
    if exact is not None:
        return exact
    if 60 <= whole < 120:
        return "About a minute"
    if 3600 <= whole < 7200:
        return "About an hour"
    for limit, unit, size in _SPANS:
        if whole < limit:
            return f"{whole // size} {unit}"
    return f"{whole // (365 * 86400)} years"


def status_words(state: MachineState, now_ns: int) -> str:
    """Return a state as `ps` says it: `Up 5 minutes (healthy)`, `Exited (0) 2 hours ago`."""
    if state.status is MachineStatus.RESTARTING and state.alive:
        return f"Restarting ({state.exit_code}) {_ago(state.finished_ns, now_ns)}"
    if state.running:
        health = {"starting": " (health: starting)", "healthy": " (healthy)", "unhealthy": " (unhealthy)"}
        return f"Up {duration((now_ns - state.started_ns) / 1e9)}{health.get(state.health, '')}"
    if state.status is MachineStatus.EXITED:
        return f"Exited ({state.exit_code}) {_ago(state.finished_ns, now_ns)}".rstrip()
    return "Dead" if state.status is MachineStatus.DEAD else "Created"


def _ago(then_ns: int, now_ns: int) -> str:
    return f"{duration((now_ns - then_ns) / 1e9)} ago" if then_ns else ""


def status_word(state: MachineState) -> str:
    """Return the status as filters take it; a machine that is being stopped still runs."""
    if state.running:
        return "restarting" if state.status is MachineStatus.RESTARTING else "running"
    return str(state.status)


def ports_text(ports: tuple[PublishedPort, ...]) -> str:
    """Return published ports: `127.0.0.1:8080->80/tcp`."""
    return ", ".join(f"{one.host_place}->{one.guest_port}/{one.protocol}" for one in ports)


def row(folder: MachineFolder, state: MachineState, now_ns: int, *, whole: bool = False) -> dict[str, str]:
    """Return the row of a machine. `whole`: nothing is cut."""
    record = folder.record
    command = shlex.join(record.command)
    if not whole and len(command) > _COMMAND:
        command = f"{command[: _COMMAND - 1]}…"
    created_ns = _created_ns(record.created)
    return {
        "ID": record.id if whole else record.short_id,
        "Image": record.image,
        "Command": f'"{command}"',
        "CreatedAt": record.created,
        "RunningFor": f"{duration((now_ns - created_ns) / 1e9)} ago",
        "State": status_word(state),
        "Status": status_words(state, now_ns),
        "Ports": ports_text(record.ports) if state.running else "",
        "Names": record.name,
        "Labels": ",".join(f"{key}={value}" for key, value in record.labels),
        "Size": "in memory" if (taken := folder.layer_taken_bytes()) is None else figures.file_bytes(taken),
    }


def _created_ns(text: str) -> int:
    try:
        return stamp_ns(text)
    except ValueError:
        return 0


def stamp(time_ns: int) -> str:
    """Return real time in ns as RFC 3339; the first moment of all where it is 0."""
    if not 0 < time_ns < 2**33 * 10**9:
        return _NEVER
    whole = datetime.fromtimestamp(time_ns // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{whole}.{time_ns % 10**9:09d}Z"


def document(folder: MachineFolder, state: MachineState) -> dict[str, Any]:
    """Return all that is known of a machine."""
    record = folder.record
    policy = parse_restart(record.restart)
    status: dict[str, Any] = {
        "Status": status_word(state),
        "Running": state.running,
        "Paused": False,
        "Restarting": state.running and state.status is MachineStatus.RESTARTING,
        "OOMKilled": not state.running and USED_UP in state.error,
        "Dead": state.status is MachineStatus.DEAD,
        "Pid": state.pid if state.running else 0,
        "ExitCode": 0 if state.running else state.exit_code,
        "Error": state.error,
        "StartedAt": stamp(state.started_ns),
        "FinishedAt": stamp(0 if state.running else state.finished_ns),
    }
    if record.health is not None:
        status["Health"] = {"Status": state.health}
    ports = _bindings(record.ports)
    return {
        "Id": record.id,
        "Created": record.created,
        "Path": record.command[0] if record.command else "",
        "Args": list(record.command[1:]),
        "State": status,
        "Image": record.image_digest,
        "LogPath": str(folder.path / "log"),
        "Name": f"/{record.name}",
        "RestartCount": state.restarts,
        "HostConfig": {
            "PortBindings": ports,
            "RestartPolicy": {"Name": str(policy.when), "MaximumRetryCount": policy.most},
            "AutoRemove": record.remove,
            "ReadonlyRootfs": record.options.get("read_only", False) is True,
            "Memory": record.memory_bytes,
            "NanoCpus": record.cpus * 10**9,
        },
        "Config": {
            "Hostname": record.hostname,
            "User": record.user,
            "Tty": record.terminal,
            "OpenStdin": record.interactive,
            "Env": [f"{name}={value}" for name, value in record.env],
            "Cmd": list(record.command),
            "Image": record.image,
            "WorkingDir": record.cwd,
            "Labels": dict(record.labels),
            "StopSignal": record.stop_signal,
            "Volumes": {path: {} for path in record.volumes},
        },
        "NetworkSettings": {"Ports": ports if state.running else {}},
        "SizeRw": folder.layer_taken_bytes(),
        "Layer": _layer(folder),
        "Mounts": _mounts(record),
        "Bundle": {"Path": record.bundle, "Digest": record.bundle_digest},
        "Folder": str(folder.path),
    }


def _layer(folder: MachineFolder) -> dict[str, Any]:
    """Return where what the container writes is, and how much it may be."""
    if folder.layer is not None:
        return {"Kept": True, "Path": str(folder.layer), "Limit": folder.record.layer_bytes}
    # A record of a version before says nothing.
    return {"Kept": False, "Why": folder.record.layer_lacks or "it was made by a version that kept nothing"}


def _mounts(record: KeptMachine) -> list[dict[str, Any]]:
    """Return what is mounted, as docker has it; volumes without a name of their own lie in the machine's layer."""
    found: dict[str, dict[str, Any]] = {
        path: {"Type": "volume", "Name": "", "Source": "", "Destination": path, "RW": True} for path in record.volumes
    }
    for one in (*record.options.get("volumes", ()), *record.options.get("mounts", ())):
        if not isinstance(one, dict) or not isinstance(target := one.get("target"), str):
            continue
        kind = _KINDS.get(str(one.get("kind")), "volume")
        source = one.get("source", "")
        found[target] = {
            "Type": kind,
            "Name": source if kind == "volume" else "",
            "Source": source if kind == "bind" else "",
            "Destination": target,
            "RW": not one.get("read_only", False),
        }
    return list(found.values())


def _bindings(ports: tuple[PublishedPort, ...]) -> Mapping[str, Any]:
    found: dict[str, list[dict[str, str]]] = {}
    for one in ports:
        place = {"HostIp": one.host_address, "HostPort": str(one.host_port)}
        found.setdefault(f"{one.guest_port}/{one.protocol}", []).append(place)
    return found
