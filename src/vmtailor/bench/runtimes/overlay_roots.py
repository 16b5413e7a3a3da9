# SPDX-License-Identifier: Apache-2.0
"""Root directories of instances: the image's files below, the instance's own writes above, as engines do it."""

from __future__ import annotations

import contextlib
import json
import shutil
import stat
from pathlib import Path
from typing import Any

from vmtailor.base.errors import HostError
from vmtailor.base.process import CommandFailed, run
from vmtailor.bench.model.instance import InstanceSpec
from vmtailor.bench.runtimes.instance_cgroups import PERIOD_US
from vmtailor.model.image import DEFAULT_PATH

_MOUNT_S = 20.0
#: Capabilities that container engines leave to root, as the image specification's tools give them by default.
CAPABILITIES = (
    "CAP_AUDIT_WRITE", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_MKNOD",
    "CAP_NET_BIND_SERVICE", "CAP_NET_RAW", "CAP_SETFCAP", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID", "CAP_SYS_CHROOT",
)  # fmt: skip
_MOUNTS = (
    ("/proc", "proc", "proc", ()),
    ("/dev", "tmpfs", "tmpfs", ("nosuid", "strictatime", "mode=755", "size=65536k")),
    ("/dev/pts", "devpts", "devpts", ("nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620")),
    ("/dev/shm", "tmpfs", "shm", ("nosuid", "noexec", "nodev", "mode=1777", "size=65536k")),
    ("/sys", "sysfs", "sysfs", ("nosuid", "noexec", "nodev", "ro")),
    ("/sys/fs/cgroup", "cgroup", "cgroup", ("nosuid", "noexec", "nodev", "relatime", "ro")),
)
#: Files of the kernel that engines hide from containers, and those that they make read-only.
_MASKED = (
    "/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/sched_debug", "/proc/scsi",
    "/proc/timer_list", "/proc/timer_stats", "/sys/firmware",
)  # fmt: skip
_READ_ONLY = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")


class Overlay:
    """One instance's root, mounted at `root`. `folder`: of the instance."""

    def __init__(self, folder: Path, tree: Path, *, bundle: bool = False) -> None:
        self._folder = folder
        self._tree = tree
        self.root = folder / ("rootfs" if bundle else "root")
        self._mounted: list[Path] = []

    def mount(self, spec: InstanceSpec, *, kernel: bool) -> None:
        """Mount it. With `kernel`, it has the host's /proc, /sys and /dev in it, and the volumes, which nothing else
        mounts. Raises CommandFailed, HostError."""
        for path in (self.root, self._folder / "upper", self._folder / "work"):
            path.mkdir(parents=True, exist_ok=True)
        options = f"lowerdir={self._tree},upperdir={self._folder}/upper,workdir={self._folder}/work"
        self._mount("-t", "overlay", "-o", options, "overlay", at=self.root)
        if kernel:
            for name in ("proc", "sys", "dev"):
                self._mount("--rbind", f"/{name}", at=self.folder(name))
            for volume in spec.volumes:
                self._mount("--bind", volume.source, at=self.folder(volume.target))

    def folder(self, name: str) -> Path:
        """Return a folder of the root, made where the image lacks it. Raises HostError for anything else of the image's
        there: through a link of it, a mount would land in a folder of this host."""
        target = self.root
        for part in Path(name.lstrip("/")).parts:
            target /= part
            with contextlib.suppress(FileExistsError):
                target.mkdir()
            if not stat.S_ISDIR(target.lstat().st_mode):
                raise HostError(
                    f"nothing can be mounted on {name} of the image: it is a link or a file",
                    hint="measure another image, or leave this way to run it out",
                )
        return target

    def _mount(self, *words: str, at: Path) -> None:
        run(["mount", *words, str(at)], timeout_s=_MOUNT_S)
        self._mounted.append(at)

    def unmount(self) -> None:
        """Unmount it, and remove what was written."""
        for path in reversed(self._mounted):
            with contextlib.suppress(CommandFailed):
                run(["umount", "--lazy", "--recursive", str(path)], timeout_s=_MOUNT_S)
        self._mounted.clear()
        shutil.rmtree(self._folder, ignore_errors=True)


def bundle_config(spec: InstanceSpec) -> dict[str, Any]:
    """Return config.json of an OCI bundle: the isolation that engines give by default, with the instance's limits."""
    limits = spec.limits
    resources: dict[str, Any] = {"devices": [{"allow": False, "access": "rwm"}]}  # but those that all runtimes give
    if limits.memory_bytes is not None:
        resources["memory"] = {"limit": limits.memory_bytes, "swap": limits.memory_bytes}
    if limits.cpus is not None:
        resources["cpu"] = {"quota": round(limits.cpus * PERIOD_US), "period": PERIOD_US}
    if limits.cpuset is not None:
        resources.setdefault("cpu", {})["cpus"] = limits.cpuset
    if limits.pids is not None:
        resources["pids"] = {"limit": limits.pids}
    if limits.write is not None:
        device = {"major": limits.write.major, "minor": limits.write.minor, "rate": limits.write.bytes_s}
        resources["blockIO"] = {"throttleWriteBpsDevice": [device]}
    network = {"type": "network", **({"path": spec.network} if spec.network else {})}
    sets = {name: list(CAPABILITIES) for name in ("bounding", "effective", "permitted")}
    return {
        "ociVersion": "1.0.2",
        "process": {
            "terminal": False,
            "user": {"uid": 0, "gid": 0},
            "args": list(spec.command),
            "env": [f"PATH={DEFAULT_PATH}"],
            "cwd": "/",
            "capabilities": sets,
            "noNewPrivileges": False,
        },
        "root": {"path": "rootfs", "readonly": False},
        "hostname": "bench",
        "mounts": [
            *({"destination": d, "type": t, "source": s, "options": list(o)} for d, t, s, o in _MOUNTS),
            *(
                {"destination": v.target, "type": "bind", "source": v.source, "options": ["rbind", "rw"]}
                for v in spec.volumes
            ),
        ],
        "linux": {
            "cgroupsPath": f"/{spec.name}",
            "resources": resources,
            "namespaces": [*({"type": kind} for kind in ("pid", "ipc", "uts", "mount", "cgroup")), network],
            "maskedPaths": list(_MASKED),
            "readonlyPaths": list(_READ_ONLY),
        },
    }


def write_bundle(folder: Path, spec: InstanceSpec) -> None:
    """Write config.json into a bundle's folder."""
    (folder / "config.json").write_text(json.dumps(bundle_config(spec), indent=1))
