# SPDX-License-Identifier: Apache-2.0
"""`run`: one start of a bundle, with the caller's terminal, signals and ports."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from vmtailor.analysis.demands.degradation import NORMAL
from vmtailor.base.errors import GuestError, UserInputError
from vmtailor.base.files import temporary
from vmtailor.base.output import note
from vmtailor.base.text import plural
from vmtailor.booting import run_orders, run_verdict, system_console
from vmtailor.booting.fitted_machine import Chosen, machine_of
from vmtailor.booting.run_end import RunEnd
from vmtailor.booting.run_orders import RunOrders
from vmtailor.booting.run_verdict import Memory
from vmtailor.booting.run_volume import with_run, with_tools
from vmtailor.drivers.guest import guest_volume
from vmtailor.drivers.host import bundle_folder, tty
from vmtailor.drivers.host.bundle_folder import BundleFolder
from vmtailor.drivers.host.caught_signals import caught
from vmtailor.drivers.host.kept_state import kept_state
from vmtailor.drivers.monitors import monitors
from vmtailor.drivers.monitors.monitor import KVM_DEVICE
from vmtailor.drivers.monitors.supervised_start import RUN_VOLUME, FileHandover, SupervisedStart
from vmtailor.model import option_values, run_rows, run_values
from vmtailor.model.architecture import named
from vmtailor.model.boots.surroundings import GuestSurroundings, Limit, Tmpfs
from vmtailor.model.boots.workload import Run, Terminal
from vmtailor.model.bundle import INIT, RECORD, RUN
from vmtailor.model.guest_mounts import MountKind
from vmtailor.model.image import ImageConfig, Port
from vmtailor.model.machine import Accelerator, Disk, DiskMode, Machine, PublishedPort, TalkLine
from vmtailor.model.option import Option, OptionSubject, Suggests, option, refuse
from vmtailor.model.option_rows import ACCELERATOR, MEMORY
from vmtailor.pipeline import (
    kept_layer,
    mount_words,
    run_environment,
    run_forwards,
    run_mounts,
    run_network,
    run_ports,
    run_surroundings,
)
from vmtailor.pipeline.mount_words import WantedMount
from vmtailor.pipeline.run_network import RunNetwork

#: Seconds between the stop signal and the end of the machine, as container engines wait.
STOP_S = 10.0
#: Seconds within which init must have spoken: a kernel that goes astray says nothing, and would be waited for for ever.
START_S = 120.0
#: Seconds for a start with less memory than the exercise ever passed in: most kernels are silent then.
START_TOO_LITTLE_S = 30.0


#: Seconds in which a guest whose container is killed writes to its disks what it holds.
FLUSH_S = 5.0
#: Seconds for which the orders of a start hold for others; the second one where KVM did not work this time.
LONG_S, SHORT_S = 7 * 86400.0, 3600.0
#: The program that words the end of a supervised run.
EXPLAINER = "vmtailor.cli.run_end"
#: Memory that a virtio line takes in the guest: QEMU's transport gives each queue 1,024 places, and the kernel's driver
#: fills those of two queues with a page each.
LINE_BYTES = 10 << 20
#: From here on it is given without asking how much the container needs.
LINE_FROM_BYTES = 128 << 20
CONTAINERS = frozenset({OptionSubject.CONTAINER})


@dataclass(frozen=True)
class RunOptions:
    """The differences of a run from the image's configuration. Empty or None keeps the image's value, but an
    `entrypoint` of "" removes its entry point. `env`: entries NAME=VALUE or NAME; `env_files` hold such lines, and come
    first. `stop_timeout_s` may be infinite. `keep_state`: files that a system with an init of its own writes are
    kept."""

    bundle: Path = option(
        Option(
            name="BUNDLE", type=Path, metavar="IMAGE|BUNDLE", suggests=Suggests.IMAGES,
            help="Start this image (docker://NAME, oci:DIR, …), or this bundle that `fit` wrote.",
        )
    )  # fmt: skip
    command: tuple[str, ...] = option(
        Option(name="COMMAND", many=True, subjects=CONTAINERS, help="Run this command instead of the image's."), ()
    )
    ports: tuple[PublishedPort, ...] = option(
        Option(
            name="--publish", short="-p", many=True, read=run_ports.parse_all,
            help="Open a host port, on 127.0.0.1 unless one is given: 8080:80, 80 (a free port), 80-82:80-82, "
            "53:53/udp, 0.0.0.0:8080:80. Repeat it for more.",
        ),
        (),
    )  # fmt: skip
    env: tuple[str, ...] = option(
        Option(
            name="--env", short="-e", many=True, subjects=CONTAINERS,
            help="Set a variable: NAME=VALUE, or NAME to pass it on. Repeat it for more.",
        ),
        (),
    )  # fmt: skip
    env_files: tuple[Path, ...] = option(
        Option(
            name="--env-file", type=Path, many=True, subjects=CONTAINERS,
            help="Read variables from this file; --env wins over it. Repeat it for more.",
        ),
        (),
    )  # fmt: skip
    user: str | None = option(
        Option(name="--user", short="-u", subjects=CONTAINERS, help="Run as this user and group, names or numbers."),
        None,
    )
    cwd: str | None = option(
        Option(
            name="--workdir", short="-w", read=run_values.working_folder, subjects=CONTAINERS,
            help="Start in this working directory.",
        ),
        None,
    )  # fmt: skip
    hostname: str | None = option(
        Option(name="--hostname", short="-h", subjects=CONTAINERS, help="Give the guest this host name."), None
    )
    entrypoint: str | None = option(
        Option(
            name="--entrypoint", subjects=CONTAINERS,
            help='Start this program instead of the image\'s entry point; "" for none.',
        ),
        None,
    )  # fmt: skip
    interactive: bool = option(
        Option(name="--interactive", short="-i", type=bool, help="Pass standard input on."), False
    )
    terminal: bool = option(Option(name="--tty", short="-t", type=bool, help="Give the container a terminal."), False)
    attach: tuple[str, ...] = option(
        Option(
            name="--attach", short="-a", many=True, metavar="STREAM", read=option_values.parse_streams,
            subjects=CONTAINERS,
            help="Attach this stream alone: stdin, stdout or stderr. Repeat it for more. Default: all.",
        ),
        (),
    )  # fmt: skip
    stop_signal: str | None = option(
        Option(
            name="--stop-signal",
            suggests=Suggests.SIGNALS,
            subjects=CONTAINERS,
            help="Stop the container by this signal.",
        ),
        None,
    )
    stop_timeout_s: float | None = option(
        Option(
            name="--stop-timeout", type=int, least=-1, read=option_values.stop_seconds, subjects=CONTAINERS,
            help="End the machine if the container has not stopped after this many seconds (10); -1 waits for ever.",
        ),
        None,
    )  # fmt: skip
    rm: bool = option(Option(name="--rm", type=bool, help="Remove a machine that has a name when it has ended."), False)
    init: bool = option(
        Option(name="--init", type=bool, help="Run the container's program below an init: it is not PID 1."), False
    )
    memory_bytes: int | None = option(MEMORY, None)
    cpus: int | None = option(
        Option(
            name="--cpus", read=option_values.parse_cpus,
            help="Give the machine this many CPUs, at most as many as the bundle was fitted to.",
        ),
        None,
    )  # fmt: skip
    accelerator: Accelerator | None = option(ACCELERATOR, None)
    outbound: bool = option(
        Option(
            name="--outbound", type=bool,
            help="Let the guest open connections to the world, but not to this host's loopback.",
        ),
        True,
    )  # fmt: skip
    host_loopback: bool = option(
        Option(
            name="--host-loopback",
            type=bool,
            help="Let the guest also reach servers on 127.0.0.1 of this host, as 10.0.2.2.",
        ),
        False,
    )
    privileged: bool | None = option(
        Option(
            name="--privileged", type=bool, subjects=CONTAINERS,
            help="Let root in the container do everything. Default: as it was fitted.",
        ),
        None,
    )  # fmt: skip
    pid: str | None = option(
        Option(
            name="--pid", suggests=("host",), read=option_values.parse_pid, subjects=CONTAINERS,
            help="Take only `host`: the container's program is not PID 1, even if it insists.",
        ),
        None,
    )  # fmt: skip
    volumes: tuple[WantedMount, ...] = option(
        Option(
            name="--volume", short="-v", many=True, metavar="SOURCE:PATH[:ro]", read=mount_words.parse_volumes,
            suggests=Suggests.MOUNTS, subjects=CONTAINERS,
            help="Mount a folder or file of the host at PATH, or the volume of this name. Repeat it for more.",
        ),
        (),
    )  # fmt: skip
    mounts: tuple[WantedMount, ...] = option(
        Option(
            name="--mount", many=True, metavar="type=…,src=…,dst=…", read=mount_words.parse_mounts, subjects=CONTAINERS,
            suggests=("type=bind,", "type=volume,", "type=tmpfs,"),
            help="Mount a folder or file (type=bind), a volume, or memory (type=tmpfs). Repeat it for more.",
        ),
        (),
    )  # fmt: skip
    read_only: bool = option(run_rows.READ_ONLY, False)
    tmpfs: tuple[Tmpfs, ...] = option(run_rows.TMPFS, ())
    shm_bytes: int | None = option(run_rows.SHM_SIZE, None)
    hosts: tuple[tuple[str, str], ...] = option(run_rows.ADD_HOST, ())
    dns: tuple[str, ...] = option(run_rows.DNS, ())
    dns_search: tuple[str, ...] = option(run_rows.DNS_SEARCH, ())
    dns_options: tuple[str, ...] = option(run_rows.DNS_OPTION, ())
    cap_add: tuple[str, ...] = option(run_rows.CAP_ADD, ())
    cap_drop: tuple[str, ...] = option(run_rows.CAP_DROP, ())
    groups: tuple[str, ...] = option(run_rows.GROUP_ADD, ())
    limits: tuple[Limit, ...] = option(run_rows.ULIMIT, ())
    sysctls: tuple[tuple[str, str], ...] = option(run_rows.SYSCTL, ())
    oom_score_adj: int | None = option(run_rows.OOM_SCORE_ADJ, None)
    domain: str | None = option(run_rows.DOMAINNAME, None)
    security: bool = option(run_rows.SECURITY_OPT, False)
    publish_all: bool = option(run_rows.PUBLISH_ALL, False)
    expose: tuple[Port, ...] = option(run_rows.EXPOSE, ())
    network: str | None = option(run_rows.NETWORK, None)
    mac: str | None = option(run_rows.MAC_ADDRESS, None)
    ip: str | None = option(run_rows.IP, None)
    ip6: str | None = option(run_rows.IP6, None)
    host_cpus: frozenset[int] | None = option(run_rows.CPUSET_CPUS, None)
    keep_state: bool = option(
        Option(
            name="--keep-state", type=bool, subjects=frozenset({OptionSubject.SYSTEM}),
            help="Keep what a system writes in the bundle's folder, for later starts with --keep-state.",
            hint="leave it out: a container's root is the same at each start",
        ),
        False,
    )  # fmt: skip
    explain_failures: bool = option(
        Option(
            name="--explain-failures", type=bool, subjects=CONTAINERS,
            help="Print at the end what the kernel refused and the baseline would have given. System calls take far "
            "longer.",
        ),
        False,
    )  # fmt: skip
    observed: Path | None = option(
        Option(
            name="--observed", type=Path, subjects=CONTAINERS,
            help="Write refused calls to this file, for `refit --observed`; slow like --explain-failures.",
        ),
        None,
    )  # fmt: skip

    @property
    def watched(self) -> bool:
        """Return whether calls that the kernel refuses are reported."""
        return self.explain_failures or self.observed is not None

    @property
    def wanted_mounts(self) -> tuple[WantedMount, ...]:
        """Return the mounts of both spellings."""
        return (*self.volumes, *self.mounts)


@dataclass(frozen=True)
class Watching:
    """A watch over refused calls. `tools`: the tracer's volume. `told`: a descriptor that takes what init tells of
    them. `out`: a file for them, or None."""

    tools: Path
    told: int
    out: Path | None = None


@dataclass(frozen=True)
class EndContext:
    """All that an end is worded with, besides its record. `bundle`: its folder. `memory_bytes`: the machine's;
    `chosen`: by the caller. `command`: the monitor's, for people. `told` and `out`: of a watched run, as `Watching` has
    them; 0 and empty elsewhere. `behind`: the folder of the image's fit that goes on meanwhile; empty for none."""

    bundle: str
    memory_bytes: int
    chosen: bool
    command: str = ""
    told: int = 0
    out: str = ""
    behind: str = ""

    @property
    def memory(self) -> Memory:
        """Return the machine's memory. Whether it is enough is checked only when the caller chose it."""
        if self.chosen:
            return run_verdict.memory_of(Path(self.bundle), self.memory_bytes)
        return Memory(self.memory_bytes, None)


def run_of(options: RunOptions, image: ImageConfig, network: bool, privileged: bool = False, six: bool = False) -> Run:
    """Return the orders to init for this start. `network`: the machine can have one; `six`: and an address of IPv6 in
    it; `privileged`: the container's default when the options do not say. Raises UserInputError when there is nothing
    to execute, and for surroundings that cannot be."""
    rows, columns = tty.size()
    reached = run_network.chosen(options.network, options.ip, network, options.ip6, six)
    return Run(
        argv=_argv(options, image),
        env=run_environment.variables(options.env_files, options.env),
        user=options.user,
        cwd=options.cwd,
        hostname=options.hostname,
        terminal=Terminal(rows, columns) if options.terminal else None,
        stdin=options.interactive,
        network=reached.guest,
        network6=reached.guest6,
        privileged=privileged if options.privileged is None else options.privileged,
        surroundings=_surroundings(options, reached),
    )


def _surroundings(options: RunOptions, network: RunNetwork) -> GuestSurroundings:
    """Return what surrounds the container. Raises UserInputError for a host-gateway where there is no network."""
    tweaked = options.cap_add or options.cap_drop
    return GuestSurroundings(
        read_only=options.read_only,
        no_new_privileges=options.security,
        shm_bytes=options.shm_bytes,
        domain=options.domain,
        oom_score_adj=options.oom_score_adj,
        rights=run_values.rights(options.cap_add, options.cap_drop) if tweaked else None,
        hosts=run_surroundings.host_lines(options.hosts, network),
        resolver=run_surroundings.resolver_lines(options.dns, options.dns_search, options.dns_options, network),
        groups=options.groups,
        limits=options.limits,
        tmpfs=options.tmpfs,
        sysctls=options.sysctls,
    )


def _argv(options: RunOptions, image: ImageConfig) -> tuple[str, ...] | None:
    """Return the command to execute; None for the image's own."""
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


def command_of(options: RunOptions, image: ImageConfig) -> tuple[str, ...]:
    """Return the command that a run executes. Raises UserInputError when there is none."""
    argv = _argv(options, image)
    return image.argv if argv is None else argv


def require_meant(options: RunOptions, files: BundleFolder) -> None:
    """Raise UserInputError for options that do not apply to a bundle of this kind, and for features that its machine
    lacks."""
    bundle = files.bundle
    refuse(options, OptionSubject.SYSTEM if files.is_system else OptionSubject.CONTAINER, options.bundle)
    noun = "system" if files.is_system else "image"
    run_network.require_ports(options.network, options.ports or options.publish_all, options.outbound)
    if (options.ports or options.publish_all) and not bundle.network:
        raise UserInputError(
            "this machine has no network device, so no port can be published",
            hint=f"fit the {noun} with --keep VIRTIO_NET",
        )
    if options.cpus is not None and options.cpus > bundle.cpus and not files.is_fitted:
        raise UserInputError(
            f"this family kernel is for {plural(bundle.cpus, 'CPU')}",
            hint=f"vmtailor family build --cpus {options.cpus} makes one for more; the next run takes it",
        )
    if options.cpus is not None and options.cpus > bundle.cpus:
        raise UserInputError(
            f"the bundle was fitted to {plural(bundle.cpus, 'CPU')}, and its kernel has no more",
            hint=f"fit the {noun} with --cpus {options.cpus}",
        )
    run_network.require_six(options.ip6, files)
    run_mounts.require_meant(options.wanted_mounts, files)


def run(
    options: RunOptions,
    watching: Watching | None = None,
    made: Callable[[RunOrders], None] = lambda orders: None,
    behind: Path | None = None,
) -> int:
    """Run a system's machine to its end, and return 0; or become the supervisor of a container's machine, which exits
    with the container's status. `made` gets the supervisor's orders before. `behind`: the folder of a fit that goes on
    meanwhile, of which the end tells.

    Raises GuestError when the system's kernel gave up. Raises UserInputError for options that do not apply to this
    bundle; HostError when the host failed."""
    tty.require_streams()
    bundle = bundle_folder.load(options.bundle)
    if not bundle.is_system:
        orders, _ = orders_of(options, watching, bundle, behind)
        made(orders)
        run_orders.become(orders)
    require_meant(options, bundle)
    run_surroundings.bind_to(options.host_cpus)
    run_forwards.require_none(options.ports)
    published = run_ports.chosen(options.ports)
    return _system(options, bundle, published, run_ports.announced(options.ports, published))


def orders_of(
    options: RunOptions,
    watching: Watching | None = None,
    files: BundleFolder | None = None,
    behind: Path | None = None,
    layer: Path | None = None,
) -> tuple[RunOrders, EndContext]:
    """Return the orders of a container's supervisor, and what its end is worded with. `behind`: as in `run`. `layer`: a
    disk for what the container writes; without one that is in memory. Raises UserInputError for options that do not
    apply to this bundle, HostError when the host lacks something."""
    files = files or bundle_folder.load(options.bundle)
    require_meant(options, files)
    temporary.require_usable()
    run_surroundings.bind_to(options.host_cpus)
    asked = options.ports
    if options.publish_all:
        asked = run_network.with_exposed(asked, (*files.image.config.exposed_ports, *options.expose))
    published = run_ports.chosen(asked)
    run, as_asked = _run_of(options, files)
    of_qemu, beside = run_forwards.opened(published, to_six=run.network6 is not None)
    machine = run_network.with_network(replace(_machine(options, files), ports=of_qemu), run, options.network)
    machine = replace(machine, line=_line(files, machine))
    run = replace(run, virtio_line=machine.line is TalkLine.VIRTIO)
    # Behind the root, init's orders, and the tracer.
    first = len(machine.disks) + (1 if watching is None else 2)
    folders, why = run_mounts.way_of_folders(files) if options.wanted_mounts else (MountKind.FOLDER, "")
    mounted = run_mounts.held(options.wanted_mounts, first, folders)
    if mounted.shares and why:
        note(f"folders are mounted by 9p, for {why}")
    if layer is not None:
        number = first + len(mounted.disks)
        run = replace(run, surroundings=kept_layer.given(run.surroundings, number))
        mounted = replace(mounted, disks=(*mounted.disks, Disk(str(layer), mode=DiskMode.WRITTEN)))
    if mounted.disks:
        run = replace(run, surroundings=kept_layer.written_soon(run.surroundings, files))
    others = first + int(machine.network) + (machine.line is TalkLine.VIRTIO)
    run_mounts.require_room(mounted, machine.hardware.bus, others)
    run = replace(run, mounts=mounted.orders)
    machine = with_run(machine, RUN_VOLUME)
    if watching is not None:
        run = replace(run, tracer=guest_volume.REFUSED_OPTIONS, quiet=tuple(sorted(NORMAL)))
        machine = with_tools(machine, watching.tools)
    machine = replace(machine, disks=(*machine.disks, *mounted.disks))
    start = monitors.of(machine).supervised(machine, mounted.shares)
    start = replace(start, inherited=(*start.inherited, *mounted.locks))
    # What was said, chosen or found for this start alone holds for no other.
    holds = as_asked and watching is None and not options.env_files and published == options.ports
    holds = holds and not start.inherited and not beside and not options.wanted_mounts
    sure = machine.accelerator is Accelerator.KVM or not KVM_DEVICE.exists() or options.accelerator is not None
    context = EndContext(
        bundle=str(files.path),
        memory_bytes=options.memory_bytes or files.bundle.memory_bytes,
        chosen=options.memory_bytes is not None,
        command=start.command,
        told=watching.told if watching is not None else 0,
        out=str(watching.out) if watching is not None and watching.out is not None else "",
        behind="" if behind is None else str(behind),
    )
    image = files.image.config
    orders = RunOrders(
        start=start,
        volume=tuple(guest_volume.run_records(replace(run, env=()))),
        variables=run.env,
        stop_signal=guest_volume.signal_number(options.stop_signal or image.stop_signal or "SIGTERM"),
        grace_s=STOP_S if options.stop_timeout_s is None else options.stop_timeout_s,
        flush_s=FLUSH_S if mounted.disks else 0.0,
        start_s=START_TOO_LITTLE_S if context.memory.too_little else START_S,
        interactive=options.interactive,
        terminal=options.terminal,
        attached=options.attach or option_values.STREAMS,
        once_up=run_ports.announced(asked, published),
        told=context.told,
        explained=behind is not None,
        builtins=guest_volume.can_start_further(files.init),
        beside=beside,
        of_files=_of_files(files, start) if holds else (),
        holds_s=LONG_S if sure else SHORT_S,
        explain=(sys.executable, "-P", "-m", EXPLAINER, json.dumps(asdict(context))),
    )
    return orders, context


def ended(end: RunEnd, context: EndContext) -> int:
    """Return the exit status of a run that has ended, and print what is to be said of it. Raises GuestError when the
    machine ended before the container had a status, HostError when the host failed."""
    verdict = run_verdict.verdict(end, context.command, context.memory)
    for line in verdict.words:
        note(f"vmtailor: {line}")
    if context.behind:
        from vmtailor.pipeline import fit_behind  # other ends do without it

        note(fit_behind.told(Path(context.behind)) or "the fit was stopped")
    if verdict.error is not None:
        raise verdict.error
    return verdict.status


def _of_files(files: BundleFolder, start: SupervisedStart) -> tuple[str, ...]:
    """Return the files that orders were made from: those of the bundle that were read, and all of the monitor."""
    read = (RECORD, *(name for name in (INIT, files.bundle.kernel_config, RUN) if files.lists(name)))
    # What is written is never as it was.
    written = {one.path for one in start.files if one.use is FileHandover.WRITE}
    kept = (one.path for one in start.files if one.path not in written)
    found = (*(str(files.path / name) for name in read), *kept, *start.programs)
    return tuple(path for path in found if Path(path).is_file())


def _run_of(options: RunOptions, files: BundleFolder) -> tuple[Run, bool]:
    """Return the orders of init, and whether nothing had to be said of them."""
    bundle, image = files.bundle, files.image.config
    six = bundle.network and run_network.may_have_six(files)
    run = run_of(options, image, bundle.network, bundle.privileged, six)
    run_surroundings.require_able(files, run.surroundings, options.cap_drop)
    if files.may_be_pid_one and (options.pid is not None or options.init):
        return replace(run, pid_one=False), True
    if _misses_pid_one(files, image if run.argv is None else replace(image, entrypoint=run.argv, cmd=())):
        note(
            f"{(run.argv or image.argv)[0]} must be PID 1, which this kernel cannot do: fit the image "
            "again with --keep PID_NS"
        )
        return run, False
    return run, True


def _misses_pid_one(files: BundleFolder, image: ImageConfig) -> bool:
    """Return whether a command insists on being PID 1, and the bundle's init or kernel cannot do that."""
    return image.insists_on_pid_one and not (files.may_be_pid_one and files.config.get("PID_NS") == "y")


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
            note(f"{system_console.LEAVE_NAME} ends the machine")
        with caught() as signals:
            finished = system_console.attached(machine, signals, interactive=interactive)
    if finished.lost:
        raise GuestError(
            f"the system is lost: {finished.lost}", hint=f"vmtailor explain {files.path} --failure 'MESSAGE'"
        )
    if finished.end.returncode and not finished.left:
        raise GuestError(
            f"{finished.end.monitor} ended with status {finished.end.returncode}", details=finished.end.stderr
        )
    return 0


def _machine(options: RunOptions, files: BundleFolder) -> Machine:
    """Return the bundle's machine as the caller wants it, all but the run volume."""
    architecture = files.bundle.architecture
    accelerator = options.accelerator or monitors.usual().best_accelerator(architecture)
    words = named(architecture).emulator.run_words if accelerator is Accelerator.TCG else ()
    machine = machine_of(files, Chosen(accelerator=accelerator, memory_bytes=options.memory_bytes, append=words))
    return replace(
        machine,
        cpus=options.cpus or machine.cpus,
        outbound=options.outbound,
        host_loopback=options.host_loopback,
        mac=options.mac or machine.mac,
    )


def _line(files: BundleFolder, machine: Machine) -> TalkLine:
    """Return the virtio line where the bundle's init, its kernel and the monitor have it, and the machine's memory has
    room for it."""
    given = monitors.of(machine).row.gives.virtio_line
    able = given and guest_volume.may_talk_on_port(files.init) and files.lists(files.bundle.kernel_config)
    able = able and files.config.get("VIRTIO_CONSOLE") == "y" and _has_room(files, machine.memory_bytes)
    return TalkLine.VIRTIO if able else TalkLine.SERIAL


def _has_room(files: BundleFolder, has_bytes: int) -> bool:
    if has_bytes >= LINE_FROM_BYTES:
        return True
    least = run_verdict.memory_of(files.path, has_bytes).least_bytes
    return least is not None and has_bytes >= least + LINE_BYTES
