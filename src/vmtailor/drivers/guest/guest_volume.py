# SPDX-License-Identifier: Apache-2.0
"""Orders of init: the image's configuration in the root file system, and the run volume for one run.

Both are records "key value", each ended by a NUL (native/common/records.h), so no value can hold a NUL, and nothing
needs escaping. The run volume is a raw disk: "vtrun LENGTH\\n", then the records, padded to whole sectors.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from vmtailor.base.errors import UserInputError
from vmtailor.base.natives import Natives
from vmtailor.drivers.guest import guest_surroundings, load_words
from vmtailor.drivers.image import signals
from vmtailor.drivers.rootfs.rootfs import Extra, ExtraKind
from vmtailor.model.boots.workload import KEY_BYTES, Run
from vmtailor.model.exercise import Exercise, ReadyKind, Step
from vmtailor.model.image import ImageConfig
from vmtailor.model.load import LoadProtocol

#: Options of the tracer that every call's deciding arguments, result, time of day and time inside need.
TRACER_OPTIONS = ("-D", "-f", "-q", "-ttt", "-T", "-y", "-s", "64")
#: The same for calls that failed, and nothing else, each with its program's name where the kernel tells it: the tracer
#: in a session of its own, so that no key of a terminal reaches it.
REFUSED_OPTIONS = ("-DDD", "-f", "-qq", "-ttt", "-y", "-Y", "-Z", "-e", "signal=none", "-s", "32")
#: Words in an init that can tell refused calls; in those of versions before there are none.
_TELLS_REFUSED = b"\0refused\0"
#: A word in an init that can start further processes.
_STARTS_FURTHER = b"\0builtin\0"
#: Names the record of a mount.
_MOUNT = "mount-at"
#: A word in an init that can talk on a virtio port.
_PORT = b"\0virtio-line\0"
#: Names the record of a step that is a load: of requests to a port, or of commands.
_REQUESTS, _COMMANDS = "requests", "commands"
#: Names the record of the time between two samples.
_SAMPLE = "sample-ms"
_SECTOR = 512


def signal_number(name: str) -> int:
    """Return the number of a stop signal as images write it: `SIGTERM`, `TERM`, `15`, `SIGRTMIN+3`. Raises
    UserInputError."""
    number = signals.number_of(name)
    if number is None:
        raise UserInputError(f"'{name[:40]}' is not a signal", hint="write it as SIGTERM, TERM, 15 or SIGRTMIN+3")
    return number


def may_talk_on_port(init: bytes) -> bool:
    """Return whether an init can talk on a virtio port (`Run.virtio_line`); those of versions before cannot."""
    return _PORT in init


def tells_refused(init: bytes) -> bool:
    """Return whether an init can tell what its kernel refused (`Run.quiet`)."""
    return _TELLS_REFUSED in init


def can_start_further(init: bytes) -> bool:
    """Return whether an init can start further processes in a container that runs; those of versions before cannot."""
    return _STARTS_FURTHER in init


_NET6 = "net6"


def may_have_six(init: bytes) -> bool:
    """Return whether an init can give its machine an address of IPv6; those of versions before cannot."""
    return f"\0{_NET6}\0".encode() in init


#: Of the words with which init mounts by 9p (native/init/container/mounts.c).
_MOUNTS_9P = b"version=9p2000.L"


def can_mount(init: bytes, *, by_9p: bool = False) -> bool:
    """Return whether an init can mount what the user asks for (`Run.mounts`), or folders by 9p; those of versions
    before cannot."""
    return f"\0{_MOUNT}\0".encode() in init and (not by_9p or _MOUNTS_9P in init)


def knows_loads(init: bytes, exercise: Exercise) -> bool:
    """Return whether an init drives the loads of an exercise; those of versions before know single requests alone."""
    protocols = {step.load.protocol for step in exercise.loads if step.load is not None}
    kinds = {_COMMANDS if one is LoadProtocol.COMMAND else _REQUESTS for one in protocols}
    return all(f"\0{kind}\0".encode() in init for kind in kinds)


def takes_samples(init: bytes) -> bool:
    """Return whether an init can have samples of the machine taken (`Run.sample_ms`)."""
    return f"\0{_SAMPLE}\0".encode() in init


def has_dhcp(init: bytes) -> bool:
    """Return whether an init can get the machine's address by DHCP."""
    return b"\0dhcp\0" in init


def has_partitions(init: bytes) -> bool:
    """Return whether an init finds its disks among the partitions of one."""
    return b"\0VT_DISKS\0" in init


def has_plain_console(init: bytes) -> bool:
    """Return whether an init can show on its console what the container writes, and no frames."""
    return b"\0VT_CONSOLE\0" in init


def reads_kernel_word(init: bytes) -> bool:
    """Return whether an init can take its address from the kernel's word `ip=` (`VT_NET=kernel-word-ip`)."""
    return b"\0kernel-word-ip\0" in init


def mounts_root_file(init: bytes) -> bool:
    """Return whether an init can take its root from a file of a shared folder (`VT_ROOTFILE`)."""
    return b"\0VT_ROOTFILE\0" in init


def records(pairs: Iterable[tuple[str, str]]) -> bytes:
    """Return pairs as a text of records. Raises UserInputError for a NUL in a value."""
    out = bytearray(b"vmtailor 1\0")
    for key, value in pairs:
        if "\0" in value:
            raise UserInputError(f"a NUL in {key!r}: {value!r}", hint="no argument, variable or path can hold one")
        out += f"{key} {value}".encode("utf-8", "surrogateescape") + b"\0"
    return bytes(out)


def config_bytes(config: ImageConfig, hostname: str = "vm") -> bytes:
    """Return the content of `/.vmtailor/config`: the image's configuration. Raises UserInputError for a NUL or bad
    signal."""
    return records(
        [
            *(("arg", arg) for arg in config.argv),
            *(("env", f"{name}={value}") for name, value in config.env),
            *(("volume", path) for path in config.volumes),
            ("cwd", config.working_dir or "/"),
            ("user", config.user),
            ("hostname", hostname),
            ("stop", str(signal_number(config.stop_signal or "SIGTERM"))),
            ("pid-one", "1"),
        ]
    )


def root_entries(natives: Natives, config: bytes) -> tuple[Extra, ...]:
    """Return our entries in the root file system: `/.vmtailor` with init, clients, builtins, configuration and mount
    points."""
    base = ".vmtailor"
    return (
        Extra(base, ExtraKind.DIRECTORY, mode=0o711),
        Extra(f"{base}/init", data=natives.init, mode=0o755),
        Extra(f"{base}/client", data=natives.client, mode=0o700),
        Extra(f"{base}/load-client", data=natives.load_client, mode=0o755),
        Extra(f"{base}/builtin", data=natives.builtin, mode=0o700),
        Extra(f"{base}/config", data=config, mode=0o600),
        *(Extra(f"{base}/{name}", ExtraKind.DIRECTORY, mode=0o700) for name in ("rw", "root", "tools")),
    )


def run_bytes(run: Run) -> bytes:
    """Return the content of the run volume. The key comes first: it must lie in the first sector, which init
    overwrites."""
    if len(run.key) != KEY_BYTES:
        raise ValueError(f"a key has {KEY_BYTES} bytes")
    pairs = [("key", run.key.hex()), *run_records(run)]
    if run.terminal is not None:
        pairs += [("rows", str(run.terminal.rows)), ("cols", str(run.terminal.columns))]
    return volume(pairs)


def volume(pairs: Iterable[tuple[str, str]]) -> bytes:
    """Return the content of a run volume with these records: whole sectors."""
    text = records(pairs)
    data = b"vtrun %d\n" % len(text) + text
    return data + bytes(-len(data) % _SECTOR)


def run_records(run: Run) -> list[tuple[str, str]]:
    """Return the records of the run volume, all but the key and the size of a terminal."""
    optional = (
        ("user", run.user), ("cwd", run.cwd), ("hostname", run.hostname), ("net", run.network), (_NET6, run.network6),
    )  # fmt: skip
    pairs: list[tuple[str, str]] = [("arg", arg) for arg in run.argv or ()]
    pairs += [("env", f"{name}={value}") for name, value in run.env]
    pairs += [(key, value) for key, value in optional if value is not None]
    pairs += [("trace", option) for option in run.tracer]
    pairs += [("quiet", error) for error in run.quiet]
    pairs += [("stdin", str(int(run.stdin))), ("hold", str(int(run.hold))), ("grace-ms", str(run.grace_ms))]
    if run.privileged or (run.exercise is not None and run.exercise.privileged):
        pairs.append(("privileged", "1"))
    if run.pid_one is not None:
        pairs.append(("pid-one", str(int(run.pid_one))))
    pairs += [(_MOUNT, mount.record) for mount in run.mounts]
    if run.sample_ms:
        pairs.append((_SAMPLE, str(run.sample_ms)))
    if run.virtio_line:
        pairs.append(("virtio-line", "1"))
    if run.terminal is not None:
        pairs.append(("terminal", "1"))
    if run.exercise is not None:
        pairs += exercise_records(run.exercise)
    stop = run.stop_signal or (run.exercise.stop_signal if run.exercise else "")
    if stop:
        pairs.append(("stop", str(signal_number(stop))))
    pairs += guest_surroundings.pairs(run.surroundings)
    return pairs


def write_run_volume(path: Path, run: Run) -> None:
    """Write the run volume: readable by its owner only, since the key is in it. Its disk must be writable: init
    overwrites the key once it knows it."""
    path.touch(mode=0o600)
    path.write_bytes(run_bytes(run))


def exercise_records(exercise: Exercise) -> list[tuple[str, str]]:
    """Return what drives the load, as records."""
    ready = exercise.ready
    pairs = [
        ("stop-timeout-ms", str(_ms(exercise.stop_timeout_s))),
        ("ready-timeout-ms", str(_ms(ready.timeout_s))),
        ("ready", ready.kind.value),
    ]
    if ready.kind != ReadyKind.EXIT:
        if ready.step is None:
            raise UserInputError(f"the exercise's ready check ({ready.kind}) does not say what to ask")
        pairs += _step_records(ready.step)
    for number, step in enumerate(exercise.guest_steps):
        if step.load is not None:
            kind = _COMMANDS if step.load.protocol is LoadProtocol.COMMAND else _REQUESTS
            pairs += [("step", kind), (".timeout-ms", str(_ms(step.load.limit_s)))]
            pairs += [(".arg", word) for word in load_words.words(step, number)]
        else:
            pairs += [("step", step.kind.value), *_step_records(step)]
    return pairs


def _step_records(step: Step) -> list[tuple[str, str]]:
    expect = step.expect
    pairs = [(".port", str(step.port)), (".repeat", str(step.repeat))]
    if any(c.isspace() or not c.isprintable() for c in step.method + step.path):
        raise UserInputError(f"the request '{step.method} {step.path}' holds a blank or control character")
    pairs += [(".method", step.method), (".path", step.path)]
    pairs += [(".arg", arg) for arg in step.argv]
    sha256 = expect.sha256
    if sha256 is None and expect.stdout is not None:
        sha256 = hashlib.sha256(expect.stdout.encode()).hexdigest()
    if expect.status is not None:
        pairs.append((".status", str(expect.status)))
    if expect.exit_code is not None:
        pairs.append((".exit", str(expect.exit_code)))
    if sha256 is not None:
        pairs.append((".sha256", sha256.lower()))
    if expect.contains is not None:
        pairs.append((".contains", expect.contains))
    return pairs


def _ms(seconds: float) -> int:
    return max(1, min(2**31 - 1, round(seconds * 1000)))
