# SPDX-License-Identifier: Apache-2.0
"""The surroundings of a container that the options of `run` ask for, and whether a bundle can give them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from vmtailor.base.errors import HostError, UserInputError
from vmtailor.drivers.guest import guest_surroundings
from vmtailor.drivers.host.bundle_folder import BundleFolder
from vmtailor.model import run_values
from vmtailor.model.boots.surroundings import USUAL, GuestSurroundings
from vmtailor.pipeline.run_network import RunNetwork


def host_lines(hosts: Iterable[tuple[str, str]], network: RunNetwork) -> tuple[str, ...]:
    """Return lines of /etc/hosts for names and addresses. Raises UserInputError for a host-gateway where no network
    leads to this host."""
    return tuple(_host_line(name, address, network) for name, address in hosts)


def _host_line(name: str, address: str, network: RunNetwork) -> str:
    if address == run_values.HOST_GATEWAY:
        if not network.gateway:
            raise UserInputError(
                f"--add-host {name}:{address} needs a network that leads to this host",
                hint="leave it out, or leave --network out",
            )
        address = network.gateway
    return f"{address}\t{name}"


def resolver_lines(
    servers: Sequence[str], domains: Sequence[str], options: Sequence[str], network: RunNetwork
) -> tuple[str, ...]:
    """Return lines of /etc/resolv.conf; none where init writes the usual ones."""
    if not (servers or domains or options or network.tap):
        return ()
    searched = [domain for domain in domains if domain != "."]
    lines = [f"nameserver {server}" for server in servers or network.servers]
    lines += [f"search {' '.join(searched)}"] if searched else []
    return (*lines, *([f"options {' '.join(options)}"] if options else ()))


def require_able(files: BundleFolder, asked: GuestSurroundings, dropped: Sequence[str]) -> None:
    """Raise UserInputError for surroundings that the bundle's init or kernel cannot give. `dropped`: capabilities to
    take away."""
    if asked == USUAL:
        return
    if not guest_surroundings.known(files.init, asked):
        raise UserInputError(
            "this bundle was fitted by a version of vmtailor that could not do this",
            hint="fit the image again: its kernel comes out of the cache",
        )
    needs = (
        ("--tmpfs", asked.tmpfs, "TMPFS"),
        ("--shm-size", asked.shm_bytes, "TMPFS"),
        ("--cap-drop", dropped, "MULTIUSER"),
        ("--group-add", asked.groups, "MULTIUSER"),
        ("--sysctl", asked.sysctls, "PROC_SYSCTL"),
        ("--oom-score-adj", asked.oom_score_adj is not None, "PROC_FS"),
    )
    for option, wanted, symbol in needs:
        if wanted and files.config.get(symbol) != "y":
            raise UserInputError(
                f"{option} needs {symbol}, which this bundle's kernel lacks",
                hint=f"fit the image again with --keep {symbol}",
            )


def bind_to(cpus: frozenset[int] | None) -> None:
    """Bind this process, and the machine that it starts, to CPUs of this host. Raises HostError where they are not
    there to be had."""
    if cpus is None:
        return
    try:
        os.sched_setaffinity(0, cpus)
        there = os.sched_getaffinity(0)
    except OSError:
        there = set()
    if there != cpus:
        had = ",".join(map(str, sorted(os.sched_getaffinity(0))))
        raise HostError(
            f"--cpuset-cpus {','.join(map(str, sorted(cpus)))}: not all of these CPUs are available",
            hint=f"this process may run on {had}",
        )
