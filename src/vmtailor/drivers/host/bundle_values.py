# SPDX-License-Identifier: Apache-2.0
"""Checks of the values in a bundle's records. A fit writes no others; records by somebody else are refused with the
reason.

These values become arguments of QEMU, words of the kernel's command line, parts of requests and deadlines."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from pathlib import Path

from vmtailor.base.errors import UserInputError
from vmtailor.base.files import plain_files
from vmtailor.base.files.digests import SHA256
from vmtailor.base.text import plain
from vmtailor.drivers.guest.guest_volume import signal_number
from vmtailor.model.architecture import Architecture, named
from vmtailor.model.boots.system_exercise import SAYS_MAX, SAYS_NAME, UNIT, SystemExercise, SystemReadyKind
from vmtailor.model.bundle import Bundle
from vmtailor.model.exercise import LOADS, Exercise, Expect, ReadyKind, Step, StepKind
from vmtailor.model.image import ImageConfig
from vmtailor.model.load import AT_ONCE_MAX, CALLS_MAX, PAGES_MAX, RATE_MAX, SESSIONS_MAX, Load, LoadProtocol
from vmtailor.model.trace import Trace
from vmtailor.model.watched.system_trace import SystemTrace

#: Bytes of memory that a machine can have, and its CPUs: what `fit` takes.
MEMORY_BYTES = range(8 << 20, (1 << 40) + 1)
CPUS = range(1, 65)
#: Bytes that a start may add to a command line.
ADDED_WORDS_BYTES = 512
MOST_SECONDS = 86400.0
MOST_REPEATS = 1_000_000
MOST_STEPS = 10_000
_WORD = re.compile(r"[!-~]{1,512}")
#: A word with spaces between its quotes, as the kernel reads it: a system's only, such as `dm-mod.create="…"`.
_QUOTED_WORD = re.compile(r'[A-Za-z0-9_.-]{1,64}="[ !#-~]{1,1400}"')
_VERSION = re.compile(r"\d{1,4}(?:\.\d{1,6}){1,2}(?:[-+.~][A-Za-z0-9.+~-]{1,64})?")
_CPU_MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}(?:,(?:[+-][a-z0-9._-]{1,64}|[a-z0-9._-]{1,64}=(?:on|off)))*")
_MODULE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]{0,255}")
_METHOD = re.compile(r"[A-Z]{1,16}")
_PATH = re.compile(r"/[!-~]{0,8192}")


def _wrong(where: Path, what: str) -> UserInputError:
    return UserInputError(f"{where}: {what}", hint="no fit writes this; get the bundle again, or fit the image again")


def require_machine(bundle: Bundle, where: Path) -> None:
    """Raise UserInputError unless a bundle's record asks for a machine that a fit could have made, and names files of
    its own folder only."""
    for name in (bundle.kernel, bundle.kernel_config, bundle.system_map, bundle.root):
        plain_files.require_name(name, where)
    for one in bundle.files:
        plain_files.require_name(one.name, where)
        if not SHA256.fullmatch(one.sha256) or one.bytes < 0:
            raise _wrong(where, f"the digest of {one.name} is none")
    if len({one.name for one in bundle.files}) != len(bundle.files):
        raise _wrong(where, "a file is listed twice")
    if bundle.patches:
        from vmtailor.drivers.kernel import kernel_patches  # what starts other bundles does without it

        kernel_patches.require_ours(bundle.patches, str(where))
    require_hardware(
        where,
        architecture=bundle.architecture,
        board=bundle.machine,
        cpus=bundle.cpus,
        memory_bytes=bundle.memory_bytes,
        kernel_version=bundle.kernel_version,
        words=bundle.words,
        image=bundle.image,
    )


def require_hardware(
    where: Path,
    *,
    architecture: str,
    board: str,
    cpus: int,
    memory_bytes: int,
    kernel_version: str,
    words: tuple[str, ...],
    image: ImageConfig | None,
) -> None:
    """Raise UserInputError unless a fit could have made a machine of these values. `image`: None for a system."""
    if memory_bytes not in MEMORY_BYTES:
        raise _wrong(where, f"a machine cannot have {memory_bytes} bytes of memory")
    if cpus not in CPUS:
        raise _wrong(where, f"a machine cannot have {cpus} CPUs")
    for word in words:
        if not (_WORD.fullmatch(word) or (image is None and _QUOTED_WORD.fullmatch(word))):
            raise _wrong(where, f"'{plain(word[:80])}' is no word of a kernel command line")
    most = _row_of(architecture, board, where).kernel.command_line_bytes - ADDED_WORDS_BYTES
    if len(" ".join(words)) > most:
        raise _wrong(where, f"the kernel command line is longer than {most} bytes")
    if not _VERSION.fullmatch(kernel_version):
        raise _wrong(where, f"'{plain(kernel_version[:80])}' is not a kernel version")
    if image is None:
        return
    for port in image.exposed_ports:
        if not 0 < port.number < 65536:
            raise _wrong(where, f"{port.number} is not a port")
    signal_number(image.stop_signal or "SIGTERM")


def _row_of(name: str, board: str, where: Path) -> Architecture:
    """Return the architecture of this name, which has such a machine."""
    try:
        architecture = named(name)
        architecture.board_named(board)
    except UserInputError as error:
        raise UserInputError(f"{where}: {plain(error.message)}", hint=error.hint) from error
    return architecture


def require_cpu_model(text: str, where: Path) -> str:
    """Return a CPU model with features switched on or off. Raises UserInputError for anything else."""
    if not _CPU_MODEL.fullmatch(text):
        raise _wrong(where, f"'{plain(text[:80])}' is no CPU model")
    return text


def require_exercise(exercise: Exercise, where: Path) -> None:
    """Raise UserInputError unless an exercise file could have said this (docs/reference/exercise.md)."""
    ready = exercise.ready
    for seconds in (ready.timeout_s, exercise.stop_timeout_s):
        if not math.isfinite(seconds) or not 0 < seconds <= MOST_SECONDS:
            raise _wrong(where, f"{seconds} is not a number of seconds to wait")
    if (ready.step is None) is not (ready.kind is ReadyKind.EXIT):
        raise _wrong(where, "the check for ready does not say what to ask, or asks at the program's end")
    if ready.step is not None and ready.step.kind is StepKind.HOST_COMMAND:
        raise _wrong(where, "a program on the host cannot say that the container is ready")
    if len(exercise.load) > MOST_STEPS:
        raise _wrong(where, f"the load has more than {MOST_STEPS} steps")
    for step in ([ready.step] if ready.step else []) + list(exercise.load):
        _require_step(step, where)
    _require_expect(exercise.expect, where)
    if exercise.stop_signal:
        signal_number(exercise.stop_signal)


def require_system_exercise(exercise: SystemExercise, where: Path) -> None:
    """Raise UserInputError unless the exercise file of a system could have said this. A line of the console, which no
    fit is ready by, is refused: its pattern would be applied to whatever the guest prints."""
    ready = exercise.ready
    if ready.kind is SystemReadyKind.LOG:
        raise _wrong(where, "the system is ready by a line of its console")
    if ready.kind is SystemReadyKind.UNIT and not UNIT.fullmatch(ready.unit):
        raise _wrong(where, f"'{plain(ready.unit[:80])}' is no unit")
    if ready.kind is not SystemReadyKind.UNIT and ready.step is None:
        raise _wrong(where, "the check for ready does not say what to ask")
    require_exercise(exercise.inside(), where)
    if not math.isfinite(exercise.step_timeout_s) or not 0 < exercise.step_timeout_s <= MOST_SECONDS:
        raise _wrong(where, f"{exercise.step_timeout_s} is not a number of seconds to wait")
    if any(not 0 < port < 65536 for port in exercise.ports):
        raise _wrong(where, "a port is out of range")
    if not exercise.stop or not exercise.stop[0]:
        raise _wrong(where, "nothing shuts the system down")
    _require_clean(exercise.stop, where)
    if len(exercise.says) > SAYS_MAX:
        raise _wrong(where, f"the system is asked {len(exercise.says)} things of itself")
    for one in exercise.says:
        if not SAYS_NAME.fullmatch(one.name) or not one.argv or not one.argv[0]:
            raise _wrong(where, f"'{plain(one.name[:80])}' is nothing to ask a system")
        _require_clean(one.argv, where)


def require_trace(trace: Trace, where: Path) -> None:
    """Raise UserInputError unless a trace could have said this."""
    require_cpu_model(trace.cpu_model, where)
    require_cpu_s(trace.requests_cpu_s, where)
    if not math.isfinite(trace.requests_boot.seconds):
        raise _wrong(where, "the boot took no number of seconds")
    _require_modules((word for one in trace.modules_requested for word in (one.module, one.path)), where)


def require_system_trace(trace: SystemTrace, where: Path) -> None:
    """Raise UserInputError unless the trace of a system could have said this: its modules lead to files of the kernel's
    source."""
    _require_modules((word for one in trace.loads for word in (one.module, one.path) if word), where)


def _require_modules(names: Iterable[str], where: Path) -> None:
    if any(not _MODULE.fullmatch(name) or ".." in name for name in names):
        raise _wrong(where, "a module that was asked for has a name that none has")


def require_cpu_s(seconds: float | None, where: Path) -> None:
    """Raise UserInputError unless a boot could have taken so much processor time: a bundle's is given as much again."""
    if seconds is not None and not (math.isfinite(seconds) and 0 <= seconds <= MOST_SECONDS):
        raise _wrong(where, f"no boot takes {seconds} s of processor time")


def _require_step(step: Step, where: Path) -> None:
    runs_commands = step.load is not None and step.load.protocol is LoadProtocol.COMMAND
    asks_port = step.kind in (StepKind.HTTP, StepKind.TCP, *LOADS) and not runs_commands
    if not (0 < step.port < 65536 if asks_port else 0 <= step.port < 65536):
        raise _wrong(where, f"{step.port} is not a port")
    if not 0 < step.repeat <= MOST_REPEATS:
        raise _wrong(where, f"a step cannot be repeated {step.repeat} times")
    if not _METHOD.fullmatch(step.method) or not _PATH.fullmatch(step.path):
        raise _wrong(where, f"'{plain((step.method + ' ' + step.path)[:80])}' is no request")
    if (step.load is None) is (step.kind in LOADS):
        raise _wrong(where, "a step is a load by its kind alone, or by its requests alone")
    if step.load is not None:
        _require_load(step, step.load, where)
    elif not asks_port and (not step.argv or not step.argv[0]):
        raise _wrong(where, "a command names no program")
    _require_clean(step.argv, where)
    _require_expect(step.expect, where)


def _require_load(step: Step, load: Load, where: Path) -> None:
    """Raise UserInputError unless an exercise file could have asked for this load."""
    seconds = (load.timeout_s, load.limit_s, load.seconds)
    if not all(math.isfinite(one) and 0 < one <= MOST_SECONDS for one in seconds):
        raise _wrong(where, "a load has a time that is no number of seconds")
    if not all(math.isfinite(one) and 0 <= one <= MOST_SECONDS for one in load.pause_s):
        raise _wrong(where, "a pause is no number of seconds")
    rates = [rate for rate in (load.rate, load.to_rate) if rate is not None]
    if any(not math.isfinite(rate) or not 0 < rate <= RATE_MAX for rate in rates) or not 1 < load.step <= 10:
        raise _wrong(where, "no load has such a rate")
    numbers = ((load.at_once, AT_ONCE_MAX), (load.calls, CALLS_MAX), (len(load.pages), PAGES_MAX))
    if (
        any(not 0 < number <= most for number, most in numbers)
        or not 0 <= load.seed < 2**63
        or load.sessions > SESSIONS_MAX
    ):
        raise _wrong(where, "a load asks for too many requests, or for none")
    if (step.kind is StepKind.RATE) is (load.rate is None) or (load.rate is None and load.sessions < 1):
        raise _wrong(where, "a load names neither a rate nor a number of sessions")
    for page in load.pages:
        if not _METHOD.fullmatch(page.method) or not _PATH.fullmatch(page.path):
            raise _wrong(where, f"'{plain(page.title[:80])}' is no request")
        if load.protocol is not LoadProtocol.HTTP and (not page.command or not page.command[0]):
            raise _wrong(where, "a command names no program")
        _require_clean(page.command, where)
        _require_expect(Expect(page.status, contains=page.contains, stdout=page.answer, sha256=page.sha256), where)


def _require_expect(expect: Expect, where: Path) -> None:
    if expect.sha256 is not None and not SHA256.fullmatch(expect.sha256.lower()):
        raise _wrong(where, "an expected sha256 is none")
    if expect.status is not None and not 100 <= expect.status <= 599:
        raise _wrong(where, f"{expect.status} is no HTTP status")
    if expect.exit_code is not None and not 0 <= expect.exit_code <= 255:
        raise _wrong(where, f"{expect.exit_code} is no exit code")
    _require_clean([text for text in (expect.stdout, expect.contains) if text is not None], where)


def _require_clean(texts: Iterable[str], where: Path) -> None:
    if any("\0" in text for text in texts):
        raise _wrong(where, "a text holds a NUL")
