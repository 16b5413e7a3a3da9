# SPDX-License-Identifier: Apache-2.0
"""`run`: one start of a bundle, with the caller's terminal, signals and ports."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from vmtailor.base.errors import UserInputError
from vmtailor.base.files import temporary
from vmtailor.base.words.text import plural
from vmtailor.booting import run_ending
from vmtailor.booting.relay import RelayOptions, relayed
from vmtailor.booting.run_ending import Memory
from vmtailor.drivers.guest import guest_volume
from vmtailor.drivers.host import terminal
from vmtailor.drivers.host.caught_signals import caught
from vmtailor.drivers.monitors import registry
from vmtailor.model.boots.workload import NETWORK, Run, Terminal
from vmtailor.model.bundle import Bundle
from vmtailor.model.image import ImageConfig
from vmtailor.model.machine import Accelerator, Machine, PublishedPort
from vmtailor.pipeline.bundles import load_bundle, machine_of
from vmtailor.pipeline.running import ports, variables

if TYPE_CHECKING:  # a run that is not watched loads none of what explains
    from vmtailor.pipeline.running.watching import Watch

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
    `stop_timeout_s` may be infinite. `keep_state`: what a system with an init of its own writes is kept."""

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


def run_of(options: RunOptions, image: ImageConfig, network: bool, privileged: bool = False) -> Run:
    """What init is told for this start. `privileged`: whether the container is so where the options do not say. Raises
    UserInputError when there is nothing to execute."""
    rows, columns = terminal.size()
    return Run(
        argv=_argv(options, image),
        env=variables.variables(options.env_files, options.env),
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


def run_bundle(options: RunOptions, watch: Watch | None = None) -> int:
    """Run to the end; returns the container's exit status. `watch` is told what is refused. Raises GuestError when the
    machine ended before the container had one, HostError when the host could not do its part."""
    terminal.require_streams()
    bundle = load_bundle(options.bundle)
    if options.keep_state:
        raise UserInputError(
            "--keep-state is for systems with an init of their own", hint="a container's root is the same at each start"
        )
    if options.ports and not bundle.network:
        raise UserInputError(
            "this machine has no network device, so no port can be published",
            hint="the image exposes no port; fit it with --keep VIRTIO_NET",
        )
    published = ports.chosen(options.ports)
    run = run_of(options, bundle.image, bundle.network, bundle.privileged)
    wishes, memory = _wishes(options, bundle), _memory(options, bundle)
    if memory.too_little:
        wishes = replace(wishes, start_s=START_TOO_LITTLE_S)
    wishes = replace(wishes, once_up=ports.announced(options.ports, published))
    wishes = replace(wishes, observer=watch.observer if watch is not None else None)
    machine = replace(_machine(options, bundle), ports=published)
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


def _machine(options: RunOptions, bundle: Bundle) -> Machine:
    """The bundle's machine as the caller wants it, all but the run volume."""
    if options.cpus is not None and options.cpus > bundle.cpus:
        raise UserInputError(
            f"the bundle was fitted to {plural(bundle.cpus, 'CPU')}, and its kernel has no more",
            hint=f"fit the image with --cpus {options.cpus}",
        )
    accelerator = options.accelerator or registry.usual().best_accelerator(bundle.architecture)
    machine = machine_of(options.bundle, bundle, accelerator=accelerator, memory_bytes=options.memory_bytes)
    return replace(
        machine,
        cpus=options.cpus or machine.cpus,
        network=bundle.network,
        outbound=options.outbound,
        host_loopback=options.host_loopback,
    )


def _wishes(options: RunOptions, bundle: Bundle) -> RelayOptions:
    return RelayOptions(
        stop_signal=guest_volume.signal_number(options.stop_signal or bundle.image.stop_signal or "SIGTERM"),
        grace_s=STOP_S if options.stop_timeout_s is None else options.stop_timeout_s,
        start_s=START_S,
        interactive=options.interactive,
        terminal=options.terminal,
    )


def _memory(options: RunOptions, bundle: Bundle) -> Memory:
    """Whether it is enough need only be asked where the caller chose it."""
    if options.memory_bytes is None:
        return Memory(bundle.memory_bytes, None)
    return run_ending.memory_of(options.bundle, options.memory_bytes)
