# SPDX-License-Identifier: Apache-2.0
"""Exercises from the probes and ports of a Kubernetes container."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from vmtailor.base.text import is_number, plain
from vmtailor.drivers.image.documents import shown
from vmtailor.fleet.lists import exercise_draft
from vmtailor.fleet.lists.exercise_draft import ExerciseDraft
from vmtailor.fleet.model.entry import Meaningless

#: Probes, first the one that says best when a container is ready.
_PROBES = ("readinessProbe", "startupProbe", "livenessProbe")
_HEADERS = "an exercise sends no headers of its own"
_STATUS = "any status from 200 to 399 is good there, and 200 alone in an exercise"
#: Kubernetes' defaults for a probe.
_PERIOD_S, _FAILURES = 10, 3


def ports_of(container: dict[str, Any], dropped: list[Meaningless]) -> dict[str, int]:
    """Return the TCP ports of a container by name; one without a name has its number for it."""
    found: dict[str, int] = {}
    for one in container.get("ports") or []:
        number, protocol = one.get("containerPort"), one.get("protocol") or "TCP"
        if not isinstance(number, int) or not 0 < number < 65536:
            dropped.append(Meaningless("ports", f"{shown(number, 20)} is no port"))
        elif protocol != "TCP":
            dropped.append(Meaningless(f"ports {number}/{plain(str(protocol))[:10]}", "an exercise speaks TCP alone"))
        else:
            found[str(one.get("name") or number)] = number
    return found


def draft(container: dict[str, Any], ports: dict[str, int], dropped: list[Meaningless]) -> ExerciseDraft:
    """Return the exercise of a container that runs on: ready as its probes say, or once its first port accepts
    connections; the load asks for the pages of its probes."""
    made = ExerciseDraft()
    for name in _PROBES:
        probe = container.get(name)
        if not isinstance(probe, dict):
            continue
        steps = list(_steps(name, probe, ports, dropped))
        if steps and not made.ready:
            made.ready = dict(steps[0])
            made.patient(_patience(container, probe))
        for step in steps:
            # A check that is asked again says no more than it said once.
            if step["kind"] != "command" and (step["kind"] != "tcp" or step != made.ready):
                made.add_load({key: value for key, value in step.items() if key != "timeout_s"})
    if any(step.get("kind") == "http" for step in (made.ready or {}, *made.load)):
        dropped.append(Meaningless("httpGet", _STATUS))
    if not made.ready and ports:
        made.wait_for_ports(list(dict.fromkeys(ports.values())))
    return made


def _patience(container: dict[str, Any], probe: dict[str, Any]) -> float:
    startup = container.get("startupProbe")
    spans = [_longest(one) for one in (probe, startup) if isinstance(one, dict)]
    return float(sum(spans))


def _longest(probe: dict[str, Any]) -> int:
    """Return the seconds after which Kubernetes gives a probe up."""
    delay, period = probe.get("initialDelaySeconds") or 0, probe.get("periodSeconds") or _PERIOD_S
    failures = probe.get("failureThreshold") or _FAILURES
    numbers = [one for one in (delay, period, failures) if isinstance(one, int) and one >= 0]
    return delay + period * failures if len(numbers) == 3 else 0


def _steps(
    name: str, probe: dict[str, Any], ports: dict[str, int], dropped: list[Meaningless]
) -> Iterator[dict[str, Any]]:
    command = (probe.get("exec") or {}).get("command")
    if command:
        yield exercise_draft.command([str(word) for word in command])
    if probe.get("tcpSocket"):
        port = _port(probe["tcpSocket"].get("port"), ports)
        if port:
            yield exercise_draft.tcp(port)
        else:
            dropped.append(Meaningless(f"{name}.tcpSocket", "no port of the container has this name"))
    if probe.get("httpGet"):
        yield from _page(f"{name}.httpGet", probe["httpGet"], ports, dropped)
    if probe.get("grpc"):
        dropped.append(Meaningless(f"{name}.grpc", "an exercise does not speak gRPC: it connects to the port alone"))
        port = _port(probe["grpc"].get("port"), ports)
        if port:
            yield exercise_draft.tcp(port)


def _page(
    where: str, asked: dict[str, Any], ports: dict[str, int], dropped: list[Meaningless]
) -> Iterator[dict[str, Any]]:
    port, path = _port(asked.get("port"), ports), str(asked.get("path") or "/")
    if asked.get("httpHeaders"):
        dropped.append(Meaningless(f"{where}.httpHeaders", _HEADERS))
    if asked.get("host"):
        dropped.append(Meaningless(f"{where}.host", "an exercise asks the container itself"))
    if not port:
        dropped.append(Meaningless(where, "no port of the container has this name"))
    elif str(asked.get("scheme") or "HTTP").upper() != "HTTP":
        dropped.append(Meaningless(where, "an exercise does not speak TLS: it connects to the port alone"))
        yield exercise_draft.tcp(port)
    else:
        path = path if path.startswith("/") else f"/{path}"
        if exercise_draft.is_path(path):
            yield exercise_draft.http(port, path)
        else:
            dropped.append(Meaningless(where, "its path has blanks or control characters"))
            yield exercise_draft.tcp(port)


def _port(value: Any, ports: dict[str, int]) -> int:
    """Return a port that a probe names by number or name; 0 where there is none."""
    text = str(value)
    if is_number(text) and len(text) < 6:
        return int(text) if 0 < int(text) < 65536 else 0
    return ports.get(text, 0)
