# SPDX-License-Identifier: Apache-2.0
"""The sizes of a fleet's scheduler and workers, whatever starts them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from vmtailor.base.errors import UserInputError
from vmtailor.drivers.image.documents import shown
from vmtailor.drivers.image.image_reference import image_name

#: Reference of vmtailor's own image, for manifests that name none.
EXAMPLE_IMAGE = "registry.example/vmtailor:latest"
#: The longest time that Slurm and Kubernetes are asked for.
LIMIT_MAX_S = 30 * 86400
MEBIBYTE = 1 << 20
#: Processors and memory of the scheduler, which passes small orders and answers on.
SCHEDULER_CPUS, SCHEDULER_MEMORY = 1, 1 << 30
_NAME = re.compile(r"[a-z](?:[a-z0-9-]{0,38}[a-z0-9])?")


@dataclass(frozen=True)
class ManifestWishes:
    """The size of a fleet. Memory and disk are of each worker, in bytes; `limit_s` is of the whole, in seconds.

    `name` begins the names of all parts. `image`: vmtailor's own, in a registry. `slots`: tasks of a worker at a time.
    `certificates`: their folder, on every machine. `cache_url`: of the remote cache; empty for none."""

    name: str = "vmtailor-fleet"
    image: str = EXAMPLE_IMAGE
    workers: int = 3
    cpus: int = 4
    memory_bytes: int = 8 << 30
    disk_bytes: int = 60 << 30
    limit_s: float = 12 * 3600
    slots: int = 1
    certificates: str = "/etc/vmtailor/fleet"
    cache_url: str = ""

    def __post_init__(self) -> None:
        """Raise UserInputError for what no manifest could hold."""
        if not _NAME.fullmatch(self.name):
            raise UserInputError(
                f"{shown(self.name, 60)} cannot begin the names of a fleet's parts",
                hint="lower case letters, digits and dashes, at most 40; the first is a letter",
            )
        named = self.image.removeprefix("docker://")
        if "/" not in named or not named.isascii() or not image_name(named):
            raise UserInputError(f"{shown(self.image, 80)} is no image in a registry", hint="--image REGISTRY/NAME:TAG")
        if not self.certificates.startswith("/") or not _is_plain(self.certificates):
            raise UserInputError(
                f"{shown(self.certificates, 80)} is no folder that every machine could have", hint="an absolute path"
            )
        if self.cache_url and (not urlsplit(self.cache_url).scheme or not _is_plain(self.cache_url)):
            raise UserInputError(f"{shown(self.cache_url, 80)} is no URL", hint="--remote-cache s3://BUCKET/PREFIX")
        if not 60 <= self.limit_s <= LIMIT_MAX_S:
            raise UserInputError("the limit of a fleet is from a minute to 30 days", hint="--limit 12h")

    @property
    def pulled(self) -> str:
        """Return the image's name without a transport."""
        return self.image.removeprefix("docker://")

    def scheduler(self, listen: str, certificates: str) -> list[str]:
        """Return the words behind `vmtailor` that start the scheduler."""
        return ["fleet", "scheduler", "--listen", listen, "--certificates", certificates]

    def worker(self, scheduler: str, certificates: str) -> list[str]:
        """Return the words behind `vmtailor` that start a worker."""
        cache = ["--remote-cache", self.cache_url] if self.cache_url else []
        return ["fleet", "worker", scheduler, "--certificates", certificates, "--slots", str(self.slots), *cache]


def _is_plain(text: str) -> bool:
    """Return whether a text is of printable ASCII, without what a shell, systemd or YAML would read as something
    else."""
    return text.isascii() and text.isprintable() and not set(text) & set(" \"'\\`$%#;&|<>*?!(){}[]")
