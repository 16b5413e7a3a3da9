# SPDX-License-Identifier: Apache-2.0
"""`run`: one start of a bundle, with the caller's terminal, signals and ports."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from vmtailor.base.errors import GuestError, UserInputError
from vmtailor.base.files import temporary
from vmtailor.base.output import note
from vmtailor.base.text import plural
from vmtailor.booting import console, run_ending
from vmtailor.booting.fitted_machine import Chosen, machine_of
from vmtailor.booting.relay import RelayOptions, relayed
from vmtailor.booting.run_ending import Memory
from vmtailor.drivers.guest import guest_volume
from vmtailor.drivers.host import bundle_folder, tty
from vmtailor.drivers.host.bundle_folder import BundleFolder
from vmtailor.drivers.host.caught_signals import caught
from vmtailor.drivers.host.kept_state import kept_state
from vmtailor.drivers.monitors import monitors
from vmtailor.model.boots.workload import NETWORK, Run, Terminal
from vmtailor.model.bundle import Bundle
from vmtailor.model.image import ImageConfig
from vmtailor.model.machine import Accelerator, Machine, PublishedPort
from vmtailor.pipeline import run_environment, run_ports

if TYPE_CHECKING:  # a run that is not watched loads none of what explains
    from vmtailor.pipeline.run_watch import Watch

#: Seconds between the stop signal and the end of the machine, as container engines wait.
STOP_S = 10.0
#: Seconds within which init must have spoken: a kernel that goes astray says nothing, and would be waited for for ever.
START_S = 120.0
#: The same with less memory than the exercise was ever seen to pass in: most kernels are silent then.
START_TOO_LITTLE_S = 30.0


@dataclass(frozen=True)
class RunOptions:
    """What differs from the image's configuration; empty or None leaves it, but for an `entrypoint` of "", which
    leaves the image's out. `env` entries are NAME=VALUE or NAME; `env_files` hold such lines, and come first.
    `stop_timeout_s` may be infinite. `keep_state`: what a system with an init of its own writes is kept. `watched`:
    what the kernel refuses is told."""

    bundle: Path
    command: tuple[str, ...] = ()
    entrypoint: str | None = None
    ports: tuple[PublishedPort, ...] = ()
    env: tuple[str, ...] = ()
    env_files: tuple[Path, ...] = ()
    user: str | None = None
    cwd: str | None = None
    hostname: str | None = None
    interactive: bool = False
    terminal: bool = False
    memory_bytes: int | None = None
    accelerator: Accelerator | None = None
    outbound: bool = True
    host_loopback: bool = False
    cpus: int | None = None
    stop_signal: str | None = None
    stop_timeout_s: float | None = None
    privileged: bool | None = None
    keep_state: bool = False
    watched: bool = False


def run_of(options: RunOptions, image: ImageConfig, network: bool, privileged: bool = False) -> Run:
    """Return what init is told for this start. `privileged`: whether the container is so where the options do not say.
    Raises UserInputError when there is nothing to execute."""
    rows, columns = tty.size()
    return Run(
        argv=_argv(options, image),
        env=run_environment.variables(options.env_files, options.env),
        user=options.user,
        cwd=options.cwd,
        hostname=options.hostname,
        terminal=Terminal(rows, columns) if options.terminal else None,
        stdin=options.interactive,
        network=NETWORK if network else None,
        privileged=privileged if options.privileged is None else options.privileged,
    )


def _argv(options: RunOptions, image: ImageConfig) -> tuple[str, ...] | None:
    """What is executed; None: what the image says."""
    if options.entrypoint:
        return (options.entrypoint, *options.command)
    if options.entrypoint is None and not options.command:
        argv = None
    elif options.entrypoint is None:
        argv = (*image.entrypoint, *options.command)
    else:  # "" resets the image's
        argv = options.command or image.cmd
    if not (image.argv if argv is None else argv):
        raise UserInputError("there is no command to run", hint="name one behind the bundle, or with --entrypoint")
    return argv


#: What `run` takes for one kind of bundle only: the name of each option, and whether it was given.
CONTAINERS_ONLY: Mapping[str, Callable[[RunOptions], bool]] = {
    "a command": lambda given: bool(given.command),
    "--entrypoint": lambda given: given.entrypoint is not None,
    "--env": lambda given: bool(given.env),
    "--env-file": lambda given: bool(given.env_files),
    "--user": lambda given: given.user is not None,
    "--workdir": lambda given: given.cwd is not None,
    "--hostname": lambda given: given.hostname is not None,
    "--stop-signal": lambda given: given.stop_signal is not None,
    "--stop-timeout": lambda given: given.stop_timeout_s is not None,
    "--privileged": lambda given: given.privileged is not None,
    "--explain-failures and --observed": lambda given: given.watched,
}
SYSTEMS_ONLY: Mapping[str, Callable[[RunOptions], bool]] = {"--keep-state": lambda given: given.keep_state}


def require_meant(options: RunOptions, files: BundleFolder) -> None:
    """Raise UserInputError for options that a bundle of this kind has no use for, and for what its machine lacks."""
    bundle = files.bundle
    others, only, noun = (
        (CONTAINERS_ONLY, "containers", "system") if files.is_system else (SYSTEMS_ONLY, "systems", "image")
    )
    if names := [name for name, given in others.items() if given(options)]:
        what = "a system with an init of its own" if files.is_system else "a container"
        raise UserInputError(f"{', '.join(names)}: of {only} only; {options.bundle} is {what}", hint="leave it out")
    if options.ports and not bundle.network:
        raise UserInputError(
            "this machine has no network device, so no port can be published",
            hint=f"fit the {noun} with --keep VIRTIO_NET",
        )
    if options.cpus is not None and options.cpus > bundle.cpus:
        raise UserInputError(
            f"the bundle was fitted to {plural(bundle.cpus, 'CPU')}, and its kernel has no more",
            hint=f"fit the {noun} with --cpus {options.cpus}",
        )


def run(options: RunOptions, watch: Watch | None = None) -> int:
    """Run a bundle's machine to its end, and return its exit status: the container's, or 0 for a system. `watch` is
    told what is refused.

    Raises GuestError when the machine ended before the container had a status, or the system's kernel gave up;
    UserInputError for options that this bundle has no use for; HostError when the host could not do its part."""
    tty.require_streams()
    bundle = bundle_folder.load(options.bundle)
    require_meant(options, bundle)
    published = run_ports.chosen(options.ports)
    told = run_ports.announced(options.ports, published)
    if bundle.is_system:
        return _system(options, bundle, published, told)
    return _container(options, bundle, published, told, watch)


def _container(
    options: RunOptions, files: BundleFolder, published: tuple[PublishedPort, ...], told: str, watch: Watch | None
) -> int:
    bundle = files.bundle
    run = run_of(options, bundle.image, bundle.network, bundle.privileged)
    memory = _memory(options, bundle)
    wishes = RelayOptions(
        stop_signal=guest_volume.signal_number(options.stop_signal or bundle.image.stop_signal or "SIGTERM"),
        grace_s=STOP_S if options.stop_timeout_s is None else options.stop_timeout_s,
        start_s=START_TOO_LITTLE_S if memory.too_little else START_S,
        interactive=options.interactive,
        terminal=options.terminal,
        once_up=told,
        observer=watch.observer if watch is not None else None,
    )
    machine = replace(_machine(options, files), ports=published)
    temporary.require_usable()
    with caught() as signals:
        with relayed(machine, run, wishes, signals) as relay:
            finish = relay.run()
            if watch is not None:
                watch.began = relay.session.listening
            end = run_ending.verdict(finish, relay.session, relay.running, memory)
        for line in end.words:
            relay.say(line)
        relay.drain()
    error = end.error or (None if end.status else run_ending.require_written(relay.failed()))
    if error is not None:
        raise error
    return end.status


def _system(options: RunOptions, files: BundleFolder, published: tuple[PublishedPort, ...], told: str) -> int:
    """Start a system's machine with its console at this terminal. Its disk is as it was fitted, and what is written to
    it is thrown away; or one of its own that is kept."""
    temporary.require_usable()
    with kept_state(files) if options.keep_state else contextlib.nullcontext(files.root) as disk:
        machine = replace(_machine(options, files), disks=(disk,), ports=published)
        interactive = options.interactive or os.isatty(0)
        if told:
            note(told.rstrip("\n"))
        if os.isatty(0):
            note(f"{console.LEAVE_NAME} ends the machine")
        with caught() as signals:
            finished = console.attached(machine, signals, interactive=interactive)
    if finished.lost:
        raise GuestError(
            f"the system is lost: {finished.lost}", hint=f"vmtailor explain {files.path} --failure 'MESSAGE'"
        )
    if finished.end.returncode and not finished.left:
        raise GuestError(f"QEMU ended with status {finished.end.returncode}", details=finished.end.stderr)
    return 0


def _machine(options: RunOptions, files: BundleFolder) -> Machine:
    """The bundle's machine as the caller wants it, all but the run volume."""
    accelerator = options.accelerator or monitors.usual().best_accelerator(files.bundle.architecture)
    machine = machine_of(files, Chosen(accelerator=accelerator, memory_bytes=options.memory_bytes))
    return replace(
        machine,
        cpus=options.cpus or machine.cpus,
        outbound=options.outbound,
        host_loopback=options.host_loopback,
    )


def _memory(options: RunOptions, bundle: Bundle) -> Memory:
    """Whether it is enough need only be asked where the caller chose it."""
    if options.memory_bytes is None:
        return Memory(bundle.memory_bytes, None)
    return run_ending.memory_of(options.bundle, options.memory_bytes)
