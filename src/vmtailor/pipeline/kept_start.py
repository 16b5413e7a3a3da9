# SPDX-License-Identifier: Apache-2.0
"""Start named machines: at first by `run`, and again by `start`.

A machine's folder has the orders of its supervisor, with what each file was when it was checked. As long as nothing has
changed, a start is one more supervisor with these orders; otherwise they are made anew from the machine's record."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from vmtailor.base import output, process
from vmtailor.base.errors import AnswerNo, HostError, UserInputError, VmtailorError
from vmtailor.base.files.regular_files import write_atomic
from vmtailor.base.text import plain
from vmtailor.booting import control_relay, run_orders
from vmtailor.booting.control_relay import ControlWishes
from vmtailor.booting.run_orders import RunOrders
from vmtailor.drivers.guest import guest_volume
from vmtailor.drivers.host import bundle_folder, machine_folders, tty, user_folders
from vmtailor.drivers.host.bundle_folder import BundleFolder
from vmtailor.drivers.host.machine_folders import MachineFolder, MachineFolders
from vmtailor.drivers.shares import ext4_disks
from vmtailor.model import option_values
from vmtailor.model.image import HealthCheck
from vmtailor.model.kept_machine import KeptMachine
from vmtailor.model.option import OptionSubject, refuse
from vmtailor.pipeline import image_bundle, kept_layer, kept_run
from vmtailor.pipeline.kept_run import KeptOptions
from vmtailor.pipeline.machine_control import MachineOutcome
from vmtailor.pipeline.machine_run import RunOptions, orders_of

#: Exit status of a supervisor that found a file changed, and has started nothing.
DECLINED = 200
#: Seconds for a machine to be up, beyond which it is not waited for.
_UP_S = 180.0
_VERSION = b"vmtailor 1\0"
#: The most that orders are.
_MOST_ORDERS = 64 << 20
#: Records that a start adds: they begin a supervisor that outlives its caller.
_DETACHED = [("detached", "1")]


@dataclass(frozen=True, kw_only=True)
class LikeStart:
    """The start of a machine, for others like it. `record` and `orders` are without variables of -e; `note`: a line
    that was said, without the name; `make_disk`: the command that makes the disk of what it writes, without its path.
    `of_files` and `holds_s`: as RunOrders has them."""

    record: KeptMachine
    orders: bytes
    note: str
    make_disk: tuple[str, ...]
    of_files: tuple[str, ...]
    holds_s: float


def run_kept(
    options: RunOptions,
    kept: KeptOptions,
    *,
    placed: bool = False,
    keep: Callable[[LikeStart], None] = lambda like: None,
) -> int:
    """Make a machine with a name, and become its supervisor, which prints the identifier of a machine in the
    background. A machine that the caller may leave is joined; then returns the status. `placed`: the bundle lies in the
    cache, which may be pruned; so it is put beside what the machine keeps. `keep` gets a start in the background that
    holds for others. Raises UserInputError, HostError."""
    tty.require_streams()
    wishes = _wishes(options.interactive, options.terminal, options.attach, kept.detach_keys, proxy=kept.sig_proxy)
    kept_run.require_together(options, kept)
    files = bundle_folder.load(options.bundle)
    refuse(kept, OptionSubject.SYSTEM if files.is_system else OptionSubject.CONTAINER, options.bundle)
    if kept.id_file is not None and os.path.lexists(kept.id_file):
        raise UserInputError(f"{kept.id_file} exists already", hint="remove it, or name another with --cidfile")
    if kept.health_command is not None and not guest_volume.can_start_further(files.init):
        raise UserInputError(
            "the init of this bundle is too old for health checks", hint=f"vmtailor refit {options.bundle} renews it"
        )
    record, settled = kept_run.record_of(options, kept, files)
    folders = MachineFolders()
    if placed:
        settled = replace(settled, bundle=folders.machines / record.id / machine_folders.BUNDLE)
        record = replace(record, bundle=str(settled.bundle), options=kept_run.saved_options(settled))
    folder = folders.create(record)
    try:
        kept_layer.make(folder)
        if kept.id_file is not None:
            kept_run.write_id(kept.id_file, record.id)
        if placed:
            image_bundle.placed(files.path, settled.bundle)
        orders = _orders(folder, settled, bundle_folder.load(settled.bundle) if placed else files)
        _save(folder, orders)
    except BaseException:
        folders.remove(folder)
        raise
    said = ""
    if record.layer_lacks and not options.rm and not options.read_only:
        fit = f"vmtailor fit {record.image} --keep volumes makes one that can"
        helps = fit if placed else kept_layer.lacks(files)[1]
        said = f"keeps what it writes in memory, until it stops: {record.layer_lacks}; {helps}"
        output.note(f"vmtailor: {folder.record.name} {said}")
    # Free ports, and values of variables, are of one start.
    if not (placed or kept.id_file or kept.label_files or options.env_files) and settled.ports == options.ports:
        bare, _ = kept_run.record_of(replace(options, env=()), kept, files)
        keep(orders.like(replace(bare, id=record.id, name=folder.record.name), plain(said), folder))
    if kept_run.is_joined(options, kept):
        return _joined(folder, orders, wishes)
    more = [*_DETACHED, ("start-print", record.id)] if kept.detach else []
    more += [(f"no-{name}", "1") for name in option_values.STREAMS if options.attach and name not in options.attach]
    run_orders.become(_with(folder, orders, more))


def _wishes(
    interactive: bool, terminal: bool, streams: Sequence[str], keys: str | None, *, proxy: bool
) -> ControlWishes:
    """Return what the caller who joins a machine wants of it; no streams are all. Raises UserInputError for keys that
    are none."""
    attached = streams or option_values.STREAMS
    return ControlWishes(
        stdin=interactive and "stdin" in attached,
        terminal=terminal,
        keys=control_relay.parse_keys(control_relay.DETACH_KEYS if keys is None else keys),
        proxy=proxy,
        out="stdout" in attached,
        err="stderr" in attached,
        leaves=tuple(attached) == ("stdin",),
    )


def _joined(folder: MachineFolder, orders: _Orders, wishes: ControlWishes) -> int:
    """Start a machine in the background, and join it before it says a word; returns its status, and 0 where the caller
    has left it. Raises HostError."""
    number = run_orders.in_memory(_with(folder, orders, [*_DETACHED, ("awaits", "1")]))
    argv = [str(run_orders.program()), str(number)]
    passed = (number, *orders.inherited)
    try:
        with process.spawn(argv, stdin=None, stdout=None, stderr=None, pass_fds=passed) as started:
            status = started.wait(_UP_S)
    finally:
        os.close(number)
    if status == DECLINED:
        raise HostError("a file of the bundle has changed while it was started", hint="repeat the command")
    if status:
        return status
    ended = control_relay.session(folder, "attach", [("stdin", str(int(wishes.stdin)))], wishes)
    if ended is None and wishes.leaves:
        output.say(folder.record.id)
    return ended or 0


@dataclass(frozen=True)
class _Orders:
    """Orders of a machine, without what is of one start. `inherited`: descriptors of ours that the supervisor is to
    have; orders with some are good for one start. `made`: what they were made from, where they are new, and `more` what
    was added."""

    text: bytes
    inherited: tuple[int, ...] = ()
    made: RunOrders | None = None
    more: bytes = b""

    def like(self, record: KeptMachine, note: str, folder: MachineFolder) -> LikeStart:
        """Return the start, for others like it; it holds for none where nothing says how long."""
        assert self.made is not None
        return LikeStart(
            record=record,
            orders=self.made.text(known=True, variables=False) + self.more,
            note=note,
            make_disk=ext4_disks.command() if folder.layer is not None else (),
            of_files=self.made.of_files,
            holds_s=self.made.holds_s,
        )


def _orders(folder: MachineFolder, options: RunOptions, files: BundleFolder) -> _Orders:
    """Return the orders of a machine."""
    record = folder.record
    orders, _ = orders_of(replace(options, attach=()), None, files, layer=folder.layer)
    orders = replace(orders, once_up="")
    more = [("restart", record.restart)]
    if guest_volume.can_start_further(files.init):
        more += _health(record.health)
    added = guest_volume.records(more).removeprefix(_VERSION)
    return _Orders(orders.text(known=True) + added, orders.inherited, orders, added)


def _health(check: HealthCheck | None) -> list[tuple[str, str]]:
    if check is None:
        return []
    times = (("interval", check.interval_s), ("timeout", check.timeout_s), ("start", check.start_period_s))
    return [
        *(("health", word) for word in check.argv),
        *((f"health-{name}-ms", str(max(0, round(1000 * seconds)))) for name, seconds in times),
        ("health-retries", str(check.retries)),
    ]


def _save(folder: MachineFolder, orders: _Orders) -> None:
    path = folder.path / machine_folders.ORDERS
    if orders.inherited:
        path.unlink(missing_ok=True)
    else:
        write_atomic(path, orders.text, private=True)


def _with(folder: MachineFolder, orders: _Orders, more: Sequence[tuple[str, str]]) -> bytes:
    """Return orders with the places of a machine, and what is of one start."""
    for descriptor in orders.inherited:
        os.set_inheritable(descriptor, True)
    runtime = user_folders.runtime_home() / folder.record.id  # ours now, wherever it was before
    user_folders.private(runtime.parent)
    user_folders.private(runtime)
    places = [("state", str(folder.path)), ("runtime", str(runtime))]
    return orders.text + guest_volume.records([*places, *more]).removeprefix(_VERSION)


def _saved(folder: MachineFolder) -> _Orders | None:
    """Return the orders of a machine; None where there are none that could be followed."""
    found = machine_folders.bytes_of(folder.path, machine_folders.ORDERS, _MOST_ORDERS)
    whole = found is not None and found.startswith(_VERSION) and found.endswith(b"\0")
    return _Orders(found) if found is not None and whole else None


def _anew(folder: MachineFolder) -> _Orders:
    """Return orders that are made from a machine's record, and keep them. Raises UserInputError, HostError."""
    record = folder.record
    files = bundle_folder.load(Path(record.bundle))
    if f"sha256:{files.record_sha256}" != record.bundle_digest:
        raise UserInputError(
            f"the bundle {record.bundle} is not the one that {record.name} was made from",
            hint=f"vmtailor rm {record.name}, and run it again",
        )
    orders = _orders(folder, kept_run.loaded_options(record), files)
    _save(folder, orders)
    return orders


def start_here(folder: MachineFolder, *, interactive: bool = False, keys: str | None = None, proxy: bool = True) -> int:
    """Become the supervisor of a machine, in the foreground; or join one that the caller may leave, by keys or because
    signals are not passed on (`proxy`), and return its status. Raises AnswerNo for one that runs, UserInputError,
    HostError."""
    tty.require_streams()
    if folder.alive:
        name = folder.record.name
        raise AnswerNo(f"the machine {name} runs already", hint=f"vmtailor attach {name}")
    record = folder.record
    stdin = interactive and record.interactive
    if stdin and record.terminal and not os.isatty(0):
        raise UserInputError("standard input is not a terminal", hint="leave -i out, or run it from a terminal")
    if (stdin and record.terminal) or keys is not None or not proxy:
        wishes = _wishes(stdin, record.terminal, (), keys, proxy=proxy)
        return _joined(folder, _anew(folder), wishes)
    more = [("interactive", str(int(stdin)))]
    # In the foreground it is made anew: there is nobody to come back to when a file has changed.
    run_orders.become(_with(folder, _anew(folder), more))


def start_all(words: Sequence[str], folders: MachineFolders) -> Iterator[MachineOutcome]:
    """Start machines in the background, all at the same time; yields an outcome for each once it is up."""
    with ExitStack() as stack:
        begun: list[tuple[str, _Start | VmtailorError | None]] = []
        for word in words:
            try:
                folder = folders.find(word)
                begun.append((word, None if folder.alive else _Start(folder, stack)))
            except VmtailorError as error:
                begun.append((word, error))
        for word, start in begun:
            yield MachineOutcome(word, start.error() if isinstance(start, _Start) else start)


class _Start:
    """One start in the background."""

    def __init__(self, folder: MachineFolder, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        orders = _saved(folder)
        self._made = orders is None
        self._process = self._begin(_anew(folder) if orders is None else orders)

    def _begin(self, orders: _Orders) -> subprocess.Popen[bytes]:
        self._said: IO[bytes] = self._stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
        number = run_orders.in_memory(_with(self._folder, orders, _DETACHED))
        self._stack.callback(os.close, number)
        argv = [str(run_orders.program()), str(number)]
        return self._stack.enter_context(process.spawn(argv, stderr=self._said, pass_fds=(number, *orders.inherited)))

    def error(self) -> VmtailorError | None:
        """Return the error of a start; None once the machine is up."""
        try:
            self._wait()
        except VmtailorError as error:
            return error
        return None

    def _wait(self) -> None:
        """Wait until the machine is up. Raises AnswerNo with the words of a start that failed, HostError."""
        name = self._folder.record.name
        try:
            status = self._process.wait(_UP_S)
            if status == DECLINED and not self._made:
                self._made = True
                self._process = self._begin(_anew(self._folder))
                status = self._process.wait(_UP_S)
        except subprocess.TimeoutExpired as error:
            raise HostError(f"{name} is not up after {_UP_S:.0f} s", hint=f"vmtailor logs {name}") from error
        if status:
            self._said.seek(0)
            words = self._said.read(_MOST_ORDERS).decode("utf-8", "replace").strip()
            raise AnswerNo(f"{name} could not be started", hint=f"vmtailor inspect {name}", details=words)
