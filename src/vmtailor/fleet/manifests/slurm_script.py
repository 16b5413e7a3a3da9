# SPDX-License-Identifier: Apache-2.0
"""A fleet in Slurm: one script for sbatch, an array whose first task is the scheduler. Apptainer runs the image, as
clusters without Docker have it."""

from __future__ import annotations

import math

from vmtailor.fleet.manifests.manifest_text import filled
from vmtailor.fleet.manifests.manifest_wishes import MEBIBYTE, ManifestWishes
from vmtailor.fleet.model.addresses import PORT

CERTIFICATES = "/certificates"
#: Stands for the scheduler's address, which is known once it runs.
_ADDRESS = "ADDRESS"
#: Seconds that a worker waits for the scheduler's task to start.
WAIT_S = 3600


def files(wishes: ManifestWishes) -> dict[str, str]:
    """Return the script of a fleet, by its name."""
    words = wishes.worker(_ADDRESS, CERTIFICATES)
    at = words.index(_ADDRESS)
    return {
        f"{wishes.name}.sh": filled(
            "slurm.sh", wishes=wishes, port=PORT, wait_s=WAIT_S,
            memory_mib=math.ceil(wishes.memory_bytes / MEBIBYTE), disk_mib=math.ceil(wishes.disk_bytes / MEBIBYTE),
            minutes=math.ceil(wishes.limit_s / 60), scheduler=wishes.scheduler(f"tls://0.0.0.0:{PORT}", CERTIFICATES),
            worker_begin=words[:at], worker_end=words[at + 1 :],
        )
    }  # fmt: skip
