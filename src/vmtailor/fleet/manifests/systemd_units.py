# SPDX-License-Identifier: Apache-2.0
"""A fleet on a few machines with systemd: a unit for the scheduler, and a template for workers. podman runs the
image."""

from __future__ import annotations

from vmtailor.base import notation
from vmtailor.fleet.manifests.manifest_text import filled
from vmtailor.fleet.manifests.manifest_wishes import SCHEDULER_CPUS, SCHEDULER_MEMORY, ManifestWishes
from vmtailor.fleet.model.addresses import PORT

CERTIFICATES = "/certificates"
#: Words before a container's own: it lives in the unit's cgroup, whose limits hold for it, and has the host's network.
PODMAN = (
    "/usr/bin/podman",
    "run",
    "--rm",
    "--replace",
    "--cgroups=split",
    "--network=host",
    "--log-driver=passthrough",
)
#: Ends a part in time, with a status of its own: what systemd itself ends in time is started again.
TIMEOUT = ("/usr/bin/timeout", "--kill-after=60")


def files(wishes: ManifestWishes) -> dict[str, str]:
    """Return the units of a fleet, by their names."""
    limit_s = round(wishes.limit_s)
    before = [word for word in PODMAN if word != "--replace"]
    limited = [*TIMEOUT, str(limit_s), *PODMAN]
    return {
        f"{wishes.name}-scheduler.service": filled(
            "scheduler.service", wishes=wishes, podman=limited, cpus=SCHEDULER_CPUS,
            memory_bytes=SCHEDULER_MEMORY, words=wishes.scheduler(f"tls://0.0.0.0:{PORT}", CERTIFICATES),
        ),
        f"{wishes.name}-worker@.service": filled(
            "worker.service", wishes=wishes, podman=limited, before=before,
            disk=notation.size_text(wishes.disk_bytes), words=wishes.worker(f"tls://%i:{PORT}", CERTIFICATES),
        ),
    }  # fmt: skip
