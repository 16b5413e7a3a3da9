# SPDX-License-Identifier: Apache-2.0
"""The subject: what is fitted. An OCI image, merged into one flat archive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from vmtailor.base.files.portable import FileName
from vmtailor.base.files.records import Older

#: PATH of a container whose image does not say.
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class HealthCheck:
    """HEALTHCHECK of the image. `argv` is what to run in the guest (CMD-SHELL already became `/bin/sh -c`)."""

    argv: tuple[str, ...]
    interval_s: float = 30.0
    timeout_s: float = 30.0
    start_period_s: float = 0.0
    retries: int = 3


@dataclass(frozen=True)
class Port:
    """An exposed port. `protocol` is tcp, udp or sctp."""

    number: int
    protocol: str = "tcp"


#: Programs by name that are made to be PID 1: inits of systems, s6-overlay's among them, and those of containers.
PID_ONE = frozenset({"init", "linuxrc", "systemd", "runit-init", "s6-svscan", "tini", "tini-static", "catatonit"})


def insists_on_pid_one(argv: Sequence[str]) -> bool:
    """Return whether a command is a program that refuses, or complains, where it is not PID 1."""
    names = [word.rpartition("/")[2] for word in argv[:2]]
    return bool(names) and (names[0] in PID_ONE or names == ["busybox", "init"])


@dataclass(frozen=True)
class ImageConfig:
    """The image configuration, read whole. Lists keep their order; `user` is as written (`name`, `uid:gid`, …)."""

    architecture: str
    os: str = "linux"
    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    working_dir: str = "/"
    user: str = ""
    exposed_ports: tuple[Port, ...] = ()
    volumes: tuple[str, ...] = ()
    stop_signal: str = "SIGTERM"
    health_check: HealthCheck | None = None
    labels: tuple[tuple[str, str], ...] = ()

    @property
    def argv(self) -> tuple[str, ...]:
        """Return the command that is executed: entry point followed by command."""
        return self.entrypoint + self.cmd

    @property
    def insists_on_pid_one(self) -> bool:
        """Return whether the command is a program that refuses, or complains, where it is not PID 1."""
        return insists_on_pid_one(self.argv)


# vmtailor/image/1: with `kind`, which was always the same.
# vmtailor/image/2: without it.
# vmtailor/image/3: with `ignored`.
@dataclass(frozen=True)
class Image:
    """A fetched image. `archive` is a flat, uncompressed pax tar: the merged root file system.
    `ignored`: what the image says and engines pass over, each with why."""

    SCHEMA: ClassVar[str] = "vmtailor/image/3"
    OLDER: ClassVar[Older] = {"vmtailor/image/2": dict}

    reference: str
    digest: str  # sha256:… of the manifest; of the flat archive for a plain directory
    config: ImageConfig
    archive: FileName
    archive_sha256: str
    entries: int
    unpacked_bytes: int
    ignored: tuple[str, ...] = ()
