# SPDX-License-Identifier: Apache-2.0
"""The surroundings of a container in one run, where they are to be other than container engines make them by
default."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tmpfs:
    """A memory file system. `flags`: of mount(2). `options`: the file system's own, such as `size=64m,mode=0700`."""

    path: str
    flags: int
    options: str = ""


@dataclass(frozen=True)
class Limit:
    """A resource limit. `resource`: its number in setrlimit(2). -1 stands for no limit."""

    resource: int
    soft: int
    hard: int


@dataclass(frozen=True, kw_only=True)
class GuestSurroundings:
    """None and empty keep what engines do. `read_only`: the root. `shm_bytes`: of /dev/shm, at most. `domain`: the NIS
    domain name. `rights`: the capabilities of the container's root, a bit each. `hosts`, `resolver`: lines of
    /etc/hosts and /etc/resolv.conf. `groups`: further ones of the user, names or numbers. `sysctls`: paths below
    /proc/sys, with their values. `layer`: the number of a disk that keeps what is written, and the options of its
    mount."""

    read_only: bool = False
    no_new_privileges: bool = False
    shm_bytes: int | None = None
    domain: str | None = None
    oom_score_adj: int | None = None
    rights: int | None = None
    layer: str | None = None
    hosts: tuple[str, ...] = ()
    resolver: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    limits: tuple[Limit, ...] = ()
    tmpfs: tuple[Tmpfs, ...] = ()
    sysctls: tuple[tuple[str, str], ...] = ()


#: The surroundings that engines give when they are asked for none.
USUAL = GuestSurroundings()
