# SPDX-License-Identifier: Apache-2.0
"""Lists from what `docker compose config` prints: each service with an image is an entry."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from vmtailor.base.errors import UserInputError
from vmtailor.base.text import is_number, plain, shell_words
from vmtailor.drivers.image.documents import shown
from vmtailor.drivers.image.signals import name_of
from vmtailor.fleet.lists import dropped_keys, exercise_draft, list_exercises, list_text
from vmtailor.fleet.lists.exercise_draft import ExerciseDraft
from vmtailor.fleet.lists.list_text import ListText
from vmtailor.fleet.lists.sizes import SizeError, cpus_of, memory_of, span_of
from vmtailor.fleet.model.entry import FleetEntry, FleetList, ListForm, Meaningless, ValueFrom, Variable
from vmtailor.model import architecture

RESOLVE = "docker compose config > resolved.yaml prints the file with all of it in place: give that one"
#: A variable that is not filled in; a dollar sign of the text is written twice in resolved files.
_UNRESOLVED = re.compile(r"(?<!\$)(?:\$\$)*+\$(?:\{|[A-Za-z_])")
#: Keys of a service that are read here.
_READ = frozenset(
    {"image", "build", "command", "entrypoint", "environment", "ports", "expose", "healthcheck", "mem_limit", "cpus",
     "deploy", "platform", "privileged", "stop_signal", "stop_grace_period", "secrets", "networks", "extends"}
)  # fmt: skip
_FILE_READ = frozenset({"services", "include"})


def read(whole: ListText, documents: list[Any]) -> FleetList:
    """Return the list in a resolved Compose file. Raises UserInputError: a file that is not resolved, or a service
    that makes no sense."""
    origin = whole.path
    if len(documents) != 1 or not isinstance(documents[0], dict):
        raise UserInputError(f"{origin} is no Compose file: it is not one document", hint=RESOLVE)
    document = documents[0]
    if document.get("include"):
        raise UserInputError(f"{origin} includes other files, which are not read", hint=RESOLVE)
    services = _mapping(document.get("services"), f"{origin}: services")
    entries = tuple(_entry(name, service, whole) for name, service in services.items() if not _provided(service))
    list_text.require_few(len(entries), origin)
    list_text.require_apart([(one.name, f"the service {one.name}") for one in entries], origin)
    dropped = tuple(dropped_keys.of("compose", "file", document, _FILE_READ))
    return FleetList(path=origin, form=ListForm.COMPOSE, sha256=whole.sha256, entries=entries, no_meaning=dropped)


def values_of(documents: list[Any], name: str) -> dict[str, str]:
    """Return the values of the variables that a resolved file holds for a service. They are for its container alone,
    never for a record, a log or a page."""
    return dict(_pairs(documents[0]["services"][name], ""))


def _provided(service: Any) -> bool:
    return isinstance(service, dict) and bool(service.get("provider")) and "image" not in service


def _entry(name: Any, found: Any, whole: ListText) -> FleetEntry:
    where = f"{whole.path}: the service {shown(name, 60)}"
    service = _mapping(found, where)
    list_text.require_name(name if isinstance(name, str) else "", whole.path)
    _require_resolved(service, where)
    image = service.get("image")
    if not isinstance(image, str) or not image:
        if service.get("build"):
            raise UserInputError(
                f"{where} is built here, and has no image", hint="build it, and give it the name in image:"
            )
        raise UserInputError(f"{where} has no image", hint="vmtailor fleet list shows what is read of a file")
    reference = list_text.reference_of(image, whole.folder, where)
    dropped: list[Meaningless] = list(dropped_keys.of("compose", "service", service, _READ))
    dropped += _networks(service)
    draft, ports = ExerciseDraft(), _ports(service, where, dropped)
    _health(_mapping(service.get("healthcheck"), f"{where}: healthcheck"), where, draft)
    if not draft.ready and ports:
        draft.wait_for_ports(ports)
    _stop(service, draft, dropped)
    exercise = draft.text()
    list_exercises.require_sound(exercise, f"{where}, as an exercise")
    memory, cpus = _resources(service, where, dropped)
    return FleetEntry(
        name=name,
        reference=reference,
        digest=list_text.digest_of(reference),
        exercise=exercise,
        exercise_origin=f"the service {name}",
        architecture=_platform(service.get("platform"), dropped),
        memory_bytes=memory,
        cpus=cpus,
        entrypoint=_words(service.get("entrypoint"), f"{where}: entrypoint"),
        cmd=_words(service.get("command"), f"{where}: command"),
        privileged=service.get("privileged") is True,
        environment=tuple(_variables(service, where)),
        ports=ports,
        secrets=tuple(_names(service.get("secrets"), "source")),
        no_meaning=tuple(dropped),
    )


def _require_resolved(service: Mapping[str, Any], where: str) -> None:
    if service.get("extends"):
        raise UserInputError(f"{where} extends another service, which is not read", hint=RESOLVE)
    for text in _texts(service):
        if _UNRESOLVED.search(text):
            raise UserInputError(f"{where} has a variable that is not filled in", hint=RESOLVE)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _texts(inner)


def _mapping(value: Any, where: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise UserInputError(f"{where} must be a table, not {shown(value, 0)}", hint=RESOLVE)
    return value


def _plain(text: str) -> str:
    """Return a text of a resolved file as its container gets it."""
    return text.replace("$$", "$")


def _words(value: Any, where: str) -> tuple[str, ...] | None:
    if value is None:
        return None
    if isinstance(value, str):
        return tuple(shell_words(_plain(value)))
    if not isinstance(value, list) or not all(isinstance(word, str | int | float) for word in value):
        raise UserInputError(f"{where} must be a list of words", hint=RESOLVE)
    return tuple(_plain(str(word)) for word in value)


# ---- the environment: names here, values for who asks


def _pairs(service: Mapping[str, Any], where: str) -> Iterator[tuple[str, str]]:
    found = service.get("environment")
    if isinstance(found, list):
        found = dict(str(one).partition("=")[::2] for one in found if "=" in str(one))
    for name, value in _mapping(found, f"{where}: environment").items():
        if value is not None:
            yield str(name), _plain(str(value).lower() if isinstance(value, bool) else str(value))


def _variables(service: Mapping[str, Any], where: str) -> Iterator[Variable]:
    for name, _ in _pairs(service, where):
        yield Variable(plain(name), ValueFrom.LIST)
    files = service.get("env_file")
    for one in files if isinstance(files, list) else [files]:
        path = one.get("path") if isinstance(one, dict) else one
        if isinstance(path, str):
            needed = not isinstance(one, dict) or one.get("required") is not False
            yield Variable("*", ValueFrom.FILE, plain(path)[:200], optional=not needed)


def _names(value: Any, key: str) -> Iterator[str]:
    for one in value if isinstance(value, list) else []:
        name = one.get(key) if isinstance(one, dict) else one
        if isinstance(name, str):
            yield plain(name)[:200]


# ---- ports and checks


def _ports(service: Mapping[str, Any], where: str, dropped: list[Meaningless]) -> tuple[int, ...]:
    """Return the TCP ports of the container that a service publishes, then those that it names."""
    found: list[int] = []
    for key in ("ports", "expose"):
        listed = service.get(key)
        for one in listed if isinstance(listed, list) else []:
            port, protocol = _port(one)
            if port == 0:
                raise UserInputError(f"{where}: {key} has {shown(one, 40)}, which is no port", hint=RESOLVE)
            if protocol != "tcp":
                dropped.append(Meaningless(f"{key} {port}/{plain(protocol)[:10]}", "an exercise speaks TCP alone"))
            elif port not in found:
                found.append(port)
    return tuple(found)


def _port(one: Any) -> tuple[int, str]:
    """Return a port of the container and its protocol; of a range the first. 0: it is none."""
    if isinstance(one, dict):
        target, protocol = one.get("target"), str(one.get("protocol") or "tcp")
    else:
        before, _, protocol = str(one).partition("/")
        target, protocol = before.rpartition(":")[2].partition("-")[0], protocol or "tcp"
    text = str(target)
    number = int(text) if is_number(text) and len(text) < 6 else 0
    return (number if number < 65536 else 0), protocol


def _health(check: Mapping[str, Any], where: str, draft: ExerciseDraft) -> None:
    test = check.get("test")
    if not test or check.get("disable") is True:
        return
    if isinstance(test, str):
        test = ["CMD-SHELL", test]
    words = [_plain(str(word)) for word in test] if isinstance(test, list) else [""]
    if words[0] == "NONE":
        return
    if words[0] not in ("CMD", "CMD-SHELL") or len(words) < 2 or not words[1]:
        raise UserInputError(
            f"{where}: healthcheck has {shown(words[0], 40)}, which begins no check", hint="CMD, CMD-SHELL or NONE"
        )
    argv = words[1:] if words[0] == "CMD" else ["/bin/sh", "-c", words[1]]
    draft.ready = exercise_draft.command(argv)
    page = exercise_draft.asked_page(argv)
    if page is not None:
        draft.add_load(page)
    try:
        spans = {key: span_of(check.get(key), default) for key, default in _SPANS.items()}
        retries = int(check.get("retries") or 3)
    except (SizeError, ValueError, TypeError, OverflowError):
        raise UserInputError(f"{where}: healthcheck has a span of time that is none", hint=RESOLVE) from None
    draft.patient(spans["start_period"] + max(retries, 1) * (spans["interval"] + spans["timeout"]))


#: Seconds of a check where a file names none.
_SPANS = {"start_period": 0.0, "interval": 30.0, "timeout": 30.0}


def _stop(service: Mapping[str, Any], draft: ExerciseDraft, dropped: list[Meaningless]) -> None:
    signal = service.get("stop_signal")
    if isinstance(signal, str) and signal:
        known = name_of(signal)
        if known is None:
            dropped.append(Meaningless("stop_signal", f"{shown(signal, 40)} is no signal"))
        else:
            draft.stop["signal"] = known
    try:
        grace = span_of(service.get("stop_grace_period"), 0.0)
    except SizeError as error:
        dropped.append(Meaningless("stop_grace_period", str(error)))
        return
    if grace > 0:
        draft.stop["timeout_s"] = min(grace, exercise_draft.LONGEST_S)


# ---- the machine


def _resources(service: Mapping[str, Any], where: str, dropped: list[Meaningless]) -> tuple[int | None, int | None]:
    """Return memory and processors: what limits them, or else what is reserved."""
    deploy = _mapping(service.get("deploy"), f"{where}: deploy")
    resources = _mapping(deploy.get("resources"), f"{where}: deploy.resources")
    limits, reserved = (
        _mapping(resources.get(key), f"{where}: deploy.resources.{key}") for key in ("limits", "reservations")
    )
    dropped += dropped_keys.of("compose", "deploy", deploy, {"resources"}, "deploy.")
    for key, part in (("limits", limits), ("reservations", reserved)):
        dropped += dropped_keys.of("compose", "resources", part, {"memory", "cpus"}, f"deploy.resources.{key}.")
    memory = service.get("mem_limit") or limits.get("memory") or reserved.get("memory")
    cpus = service.get("cpus") or limits.get("cpus") or reserved.get("cpus")
    return _taken(memory_of, memory, "memory", dropped), _taken(cpus_of, cpus, "cpus", dropped)


def _taken(read: Any, value: Any, key: str, dropped: list[Meaningless]) -> int | None:
    if value in (None, "", 0, "0"):
        return None
    try:
        found: int = read(value)
        return found
    except SizeError as error:
        dropped.append(Meaningless(key, str(error)))
        return None


def _platform(value: Any, dropped: list[Meaningless]) -> str:
    if not isinstance(value, str) or not value:
        return ""
    system, _, processor = value.partition("/")
    row = architecture.of_image(architecture.image_name(processor.partition("/")[0]))
    if system != "linux" or row is None:
        known = ", ".join(f"linux/{one.image}" for one in architecture.every())
        dropped.append(Meaningless("platform", f"no machine is known for {shown(value, 40)}; known: {known}"))
        return ""
    return row.name


def _networks(service: Mapping[str, Any]) -> Iterator[Meaningless]:
    names = list(_names(list(service.get("networks") or []), "name"))
    if names not in ([], ["default"]):
        yield Meaningless("networks", "a fit's machine has its own network")
