# SPDX-License-Identifier: Apache-2.0
"""Exercises, from a TOML file (docs/reference/exercise.md), or derived from the image's configuration."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from vmtailor.base.errors import UserInputError
from vmtailor.base.files.digests import SHA256
from vmtailor.base.files.regular_files import read_regular
from vmtailor.base.text import plain
from vmtailor.drivers.host import exercise_loads
from vmtailor.drivers.host.exercise_table import EXAMPLE, ExerciseTable
from vmtailor.drivers.image.documents import shown
from vmtailor.drivers.image.signals import name_of
from vmtailor.model.boots.system_exercise import READY_TIMEOUT_S as SYSTEM_READY_TIMEOUT_S
from vmtailor.model.boots.system_exercise import (
    SAYS_MAX,
    SAYS_NAME,
    STEP_TIMEOUT_S,
    STOP,
    UNIT,
    Saying,
    SystemExercise,
    SystemReady,
    SystemReadyKind,
)
from vmtailor.model.boots.system_exercise import STOP_TIMEOUT_S as SYSTEM_STOP_TIMEOUT_S
from vmtailor.model.exercise import HOST_PORT, LOADS, Exercise, Expect, Ready, ReadyKind, Step, StepKind
from vmtailor.model.image import Image
from vmtailor.model.load import LoadProtocol

E = TypeVar("E", Exercise, SystemExercise)

#: Ready kind that stands for the image's own health check.
HEALTHCHECK = "healthcheck"
READY_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 10.0
REPEAT_MAX = 1_000_000
#: Bytes of a file, steps of a load, and bytes of one text that init looks for in an answer.
FILE_BYTES = 1 << 20
STEPS_MAX = 256
CONTAINS_BYTES = 65_535
#: Parts of a dotted key: reading one with thousands of them takes hours.
_KEY_PARTS = 100
#: Exposed ports that are asked without an exercise; a range may name thousands.
PORTS_MAX = 16

_LONG_KEY = re.compile(rf"(?:(?<![\w-])[\w-]++\s*+\.\s*+){{{_KEY_PARTS}}}")


def load(path: Path, image: Image) -> Exercise:
    """Read an exercise file for an image. Raises UserInputError naming file and key."""
    return parse(_document(path), image, path.name)


def load_system(path: Path) -> SystemExercise:
    """Read an exercise file for a system with an init of its own. Raises UserInputError naming file and key."""
    return parse_system(_document(path), path.name)


def _document(path: Path) -> dict[str, Any]:
    data = read_regular(path, "the exercise", FILE_BYTES, hint=EXAMPLE)
    try:
        return decoded(data)
    except RecursionError:
        raise UserInputError(f"{path} is not TOML that can be read: it is nested too deep", hint=EXAMPLE) from None
    except ValueError as error:  # of TOML, of UTF-8, or a number of thousands of digits
        raise UserInputError(f"{path} is not TOML: {str(error)[:300]}", hint=EXAMPLE) from error


def decoded(data: bytes) -> dict[str, Any]:
    """Return TOML of somebody whom nobody knows as tables. Raises ValueError, and RecursionError where it is nested too
    deep."""
    text = data.decode()
    if _LONG_KEY.search(re.sub("[\"']", "", text)):
        raise ValueError(f"a key has more than {_KEY_PARTS} parts")
    return tomllib.loads(text)


def parse(document: Mapping[str, Any], image: Image, origin: str) -> Exercise:
    """Return the exercise in a parsed TOML file. Raises UserInputError naming the key."""
    top = ExerciseTable(origin, "", dict(document))
    ready_table = top.table("ready")
    ready = _ready(ready_table, image) if ready_table else derive(image).ready
    load = top.tables("load")
    if len(load) > STEPS_MAX:
        raise top.wrong("load", f"has {len(load)} steps; at most {STEPS_MAX} can be driven")
    load_steps = tuple(_step(table) for table in load)
    expect_table = top.table("expect")
    expect = _expect(expect_table, ("exit_code", "stdout", "contains", "sha256")) if expect_table else Expect()
    stop = top.table("stop") or ExerciseTable(origin, "stop", {})
    stop_signal = stop.text("signal", "") or ""
    if stop_signal:
        name = name_of(stop_signal)
        if name is None:
            raise stop.wrong("signal", f"is {shown(stop_signal, 40)}, which is not a signal")
        stop_signal = name
    stop_timeout_s = stop.seconds("timeout_s", STOP_TIMEOUT_S)
    stop.end()
    top.end()
    _require_host_ports(top, load_steps, image)
    if ready.kind == ReadyKind.EXIT and load_steps:
        raise top.wrong("load", "has steps, but the program runs to its end: there is nothing left to drive")
    return Exercise(
        origin=origin,
        ready=ready,
        load=load_steps,
        expect=expect,
        stop_signal=stop_signal,
        stop_timeout_s=stop_timeout_s,
    )


def parse_system(document: Mapping[str, Any], origin: str) -> SystemExercise:
    """Return a system's exercise in a parsed TOML file. Raises UserInputError naming the key."""
    top = ExerciseTable(origin, "", dict(document))
    ready_table = top.table("ready")
    if ready_table is None:
        raise top.wrong("ready", "is missing: when does the system count as ready?")
    ready = _system_ready(ready_table)
    tables = top.tables("load")
    if len(tables) > STEPS_MAX:
        raise top.wrong("load", f"has {len(tables)} steps; at most {STEPS_MAX} can be driven")
    steps = tuple(_step(table) for table in tables)
    if any(step.load is not None for step in steps):
        raise top.wrong("load", "has a step of many requests at once, which only containers are driven by")
    ports = top.numbers("ports", 1, 65535, PORTS_MAX)
    step_timeout_s = top.seconds("step_timeout_s", STEP_TIMEOUT_S)
    stop = top.table("stop") or ExerciseTable(origin, "stop", {})
    command = stop.argv() if stop.has("argv") else STOP
    stop_timeout_s = stop.seconds("timeout_s", SYSTEM_STOP_TIMEOUT_S)
    stop.end()
    says = _says(top)
    top.end()
    for number, step in enumerate(steps, 1):
        asked = {int(found) for word in step.argv for found in HOST_PORT.findall(word)}
        if step.kind is StepKind.HOST_COMMAND and not asked <= set(ports):
            missing = ", ".join(map(str, sorted(asked - set(ports))))
            raise top.wrong(f"load[{number}].argv", f"asks for port {missing}, which `ports` does not name")
    return SystemExercise(
        origin=origin,
        ready=ready,
        load=steps,
        ports=ports,
        step_timeout_s=step_timeout_s,
        stop=command,
        stop_timeout_s=stop_timeout_s,
        says=says,
    )


def _says(top: ExerciseTable) -> tuple[Saying, ...]:
    """Return the commands that ask the system about itself."""
    found: list[Saying] = []
    tables = top.tables("says")
    if len(tables) > SAYS_MAX:
        raise top.wrong("says", f"asks {len(tables)} things; at most {SAYS_MAX} can be asked")
    for table in tables:
        name = table.text("name") or ""
        if not SAYS_NAME.fullmatch(name):
            raise table.wrong("name", f"must be a word in lower case, such as engine, not {shown(name, 60)}")
        if any(one.name == name for one in found):
            raise table.wrong("name", f"is {name}, as another one's")
        found.append(Saying(name, table.argv(), errors=True))
        table.end()
    return tuple(found)


def _system_ready(table: ExerciseTable) -> SystemReady:
    kind = table.text("kind")
    if kind not in set(SystemReadyKind):
        raise table.wrong("kind", f"must be one of {', '.join(SystemReadyKind)}, not {shown(kind)}")
    timeout_s = table.seconds("timeout_s", SYSTEM_READY_TIMEOUT_S)
    step, unit, pattern = _ready_step(table, kind), "", ""
    if kind == SystemReadyKind.UNIT:
        unit = table.text("unit") or ""
        if not UNIT.fullmatch(unit):
            raise table.wrong("unit", f"must be the name of a unit, such as multi-user.target, not {shown(unit, 60)}")
    elif step is None:
        pattern = table.text("pattern") or ""
        try:
            re.compile(pattern)
        except re.error as error:
            raise table.wrong("pattern", f"is not a regular expression: {error}") from error
        if not pattern:
            raise table.wrong("pattern", "is missing")
    table.end()
    return SystemReady(kind=SystemReadyKind(kind), step=step, unit=unit, pattern=pattern, timeout_s=timeout_s)


def _require_host_ports(top: ExerciseTable, steps: Sequence[Step], image: Image) -> None:
    """Require that a command on the host uses a port that leads into the machine, and no other."""
    exposed = {port.number for port in image.config.exposed_ports if port.protocol == "tcp"}
    for number, step in enumerate(steps, 1):
        if step.kind is not StepKind.HOST_COMMAND:
            continue
        if not exposed:
            raise top.wrong(
                f"load[{number}]", "is a command on the host, but the image exposes no TCP port to reach it by"
            )
        for port in (int(found) for word in step.argv for found in HOST_PORT.findall(word)):
            if port not in exposed:
                raise top.wrong(f"load[{number}].argv", f"asks for port {port}, which the image does not expose")


def _ready(table: ExerciseTable, image: Image) -> Ready:
    kind = table.text("kind")
    kinds = [HEALTHCHECK, *ReadyKind]
    if kind not in kinds:
        raise table.wrong("kind", f"must be one of {', '.join(kinds)}, not {shown(kind)}")
    timeout_s = table.seconds("timeout_s", READY_TIMEOUT_S)
    if kind == HEALTHCHECK:
        derived = _from_health_check(image)
        if derived is None:
            raise table.wrong("kind", f"is healthcheck, but {image.reference} has none")
        table.end()
        return Ready(ReadyKind.COMMAND, derived, timeout_s)
    step = _ready_step(table, kind)
    table.end()
    return Ready(ReadyKind(str(kind)), step, timeout_s)


def _ready_step(table: ExerciseTable, kind: str | None) -> Step | None:
    """Return the step that succeeds once a container or a system is ready; None for the other kinds of ready."""
    if kind == StepKind.COMMAND:
        expect = _expect(table, ("exit_code", "stdout", "contains"), exit_code=0, ended=False)
        return Step(StepKind.COMMAND, argv=table.argv(), expect=expect)
    if kind == StepKind.TCP:
        return Step(StepKind.TCP, port=_port(table))
    if kind == StepKind.HTTP:
        return _http(table, _expect(table, ("status", "contains"), status=200, ended=False))
    return None


def _port(table: ExerciseTable) -> int:
    port = table.whole("port", 1, 65535)
    if port is None:
        raise table.wrong("port", "is missing")
    return port


def _http(table: ExerciseTable, expect: Expect, repeat: int = 1) -> Step:
    method, path = table.request()
    return Step(StepKind.HTTP, port=_port(table), method=method, path=path, repeat=repeat, expect=expect)


def _step(table: ExerciseTable) -> Step:
    kind = table.text("kind")
    if kind not in set(StepKind):
        raise table.wrong("kind", f"must be one of {', '.join(StepKind)}, not {shown(kind)}")
    if kind in LOADS:
        # A command has no port, and one that is named is an unknown key.
        load = exercise_loads.read(StepKind(str(kind)), table)
        port = 0 if load.protocol is LoadProtocol.COMMAND else _port(table)
        step = Step(StepKind(str(kind)), port=port, load=load)
        table.end()
        return step
    repeat = table.whole("repeat", 1, REPEAT_MAX, 1) or 1
    inner = table.table("expect") or ExerciseTable(table.origin, f"{table.where}.expect", {})
    if kind == StepKind.HTTP:
        step = _http(table, _expect(inner, ("status", "contains", "sha256"), status=200), repeat)
    elif kind == StepKind.TCP:
        step = Step(StepKind.TCP, port=_port(table), repeat=repeat, expect=_expect(inner, ()))
    else:
        expect = _expect(inner, ("exit_code", "stdout", "contains", "sha256"), exit_code=0)
        step = Step(StepKind(str(kind)), argv=table.argv(), repeat=repeat, expect=expect)
    table.end()
    return step


def _expect(
    table: ExerciseTable,
    keys: tuple[str, ...],
    *,
    status: int | None = None,
    exit_code: int | None = None,
    ended: bool = True,
) -> Expect:
    readers: dict[str, Callable[[], Any]] = {
        "status": lambda: table.whole("status", 100, 599, status),
        "exit_code": lambda: table.whole("exit_code", 0, 255, exit_code),
        "stdout": lambda: table.text("stdout"),
        "contains": lambda: table.text("contains"),
        "sha256": lambda: table.text("sha256"),
    }
    values = {key: readers[key]() for key in keys}
    if len((values.get("contains") or "").encode()) > CONTAINS_BYTES:
        raise table.wrong("contains", f"is longer than the {CONTAINS_BYTES} bytes that are looked for")
    if values.get("sha256") is not None and not SHA256.fullmatch(values["sha256"]):
        raise table.wrong("sha256", "must be 64 hexadecimal digits in lower case")
    if ended:
        table.end()
    return Expect(**values)


def _from_health_check(image: Image) -> Step | None:
    check = image.config.health_check
    if check is None:
        return None
    return Step(StepKind.COMMAND, argv=check.argv, expect=Expect(exit_code=0))


def derive(image: Image) -> Exercise:
    """Return the exercise of an image that came without one. Its health check passes; otherwise its first exposed TCP
    port accepts a connection, and so do the others; otherwise it runs to its end, as it did on the baseline."""
    step = _from_health_check(image)
    if step is not None:
        return Exercise(HEALTHCHECK, Ready(ReadyKind.COMMAND, step, READY_TIMEOUT_S), (step,))
    ports = [port.number for port in image.config.exposed_ports if port.protocol == "tcp"]
    if ports:
        first, *others = (Step(StepKind.TCP, port=port) for port in ports[:PORTS_MAX])
        return Exercise("ports", Ready(ReadyKind.TCP, first, READY_TIMEOUT_S), tuple(others))
    return Exercise("run-to-end", Ready(ReadyKind.EXIT, None, READY_TIMEOUT_S))


def in_guest(exercise: E) -> E:
    """Return what of an exercise happens in the guest, and through its published ports: all but programs of the
    host."""
    return replace(exercise, load=tuple(step for step in exercise.load if step.kind is not StepKind.HOST_COMMAND))


def host_commands(exercise: Exercise | SystemExercise) -> tuple[str, ...]:
    """Return the programs of the host that an exercise asks for, each as a shell would be told, fit for a terminal."""
    return tuple(plain(shlex.join(step.argv)) for step in exercise.load if step.kind is StepKind.HOST_COMMAND)
