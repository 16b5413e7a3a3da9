# SPDX-License-Identifier: Apache-2.0
"""vmtailor in a container: podman builds the Containerfile, and the image runs a bundle without privileges or devices.

The base is made of Debian's packages, once for this tree (build/container). As root: a mount namespace
gives crun a hierarchy of cgroups that it takes."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.system,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="a container is built in a mount namespace, which is root's to make"),
    pytest.mark.skipif(
        None in (shutil.which("podman"), shutil.which("mmdebstrap")), reason="make test-all installs podman, mmdebstrap"
    ),
]
TREE = Path(__file__).parents[2]
MADE = TREE / "build" / "container"
BASE, BUILT = "localhost/vmtailor-base", "localhost/vmtailor-tested"
#: Limits that a user without further rights may set.
SETTINGS = '[containers]\ndefault_ulimits = ["nofile=1024:4096", "nproc=1024:4096"]\ncgroups = "disabled"\n'
#: The host's ways to reach packages, where it has such.
CERTIFICATES, PIP = "/etc/ssl/certs/ca-certificates.crt", "/etc/pip.conf"
_INSIDE = 'mount --make-rprivate / && mount -t cgroup2 none /sys/fs/cgroup && exec "$@"'


def podman(*words: str | Path, limit_s: float = 120.0) -> subprocess.CompletedProcess[bytes]:
    """podman in a mount namespace of its own, with its storage below build/."""
    (MADE / "containers.conf").write_text(SETTINGS)
    storage = ("--root", MADE / "storage", "--runroot", MADE / "run", "--storage-driver", "overlay")
    return subprocess.run(
        ["unshare", "--mount", "sh", "-c", _INSIDE, "sh", "podman", *storage, "--cgroup-manager", "cgroupfs", *words],
        capture_output=True, timeout=limit_s, check=False,
        env={**os.environ, "CONTAINERS_CONF": str(MADE / "containers.conf")},
    )  # fmt: skip


@pytest.fixture(scope="module")
def image() -> str:
    """The image of vmtailor, built from a clone of this tree."""
    MADE.mkdir(parents=True, exist_ok=True)
    if podman("image", "exists", BASE).returncode != 0:
        archive = MADE / "root.tar"
        subprocess.run(["mmdebstrap", "--variant=minbase", "--quiet", "bookworm", archive], check=True, timeout=900)
        done = podman("import", archive, BASE, limit_s=300)
        assert done.returncode == 0, done.stderr.decode()
        archive.unlink()
    source = MADE / "source"
    shutil.rmtree(source, ignore_errors=True)
    subprocess.run(["git", "clone", "--quiet", "--depth", "1", f"file://{TREE}", source], check=True, timeout=120)
    # What names files of the host gets them under names that no package writes to.
    ways = [f"--volume={path}:{path}:ro" for path in sorted(Path("/etc/apt/apt.conf.d").glob("99*"))]
    if Path(PIP).exists():
        own = MADE / "pip.conf"
        own.write_text(Path(PIP).read_text().replace(CERTIFICATES, "/opt/certificates.crt"))
        ways += [f"--volume={own}:{PIP}:ro", f"--volume={CERTIFICATES}:/opt/certificates.crt:ro"]
    build = ("build", "--isolation", "chroot", "--network", "host", "--build-arg", f"BASE={BASE}", *ways)
    done = podman(*build, "-t", BUILT, source, limit_s=1200)
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    return BUILT


def test_the_container_says_that_run_works_in_it(image: str) -> None:
    done = podman("run", "--rm", "--network", "none", image, "doctor", "--run")
    assert done.returncode == 0 and "run works on this host" in done.stdout.decode() + done.stderr.decode()


def test_a_bundle_runs_in_the_container(image: str, hello: Path) -> None:
    done = podman("run", "--rm", "--network", "none", f"--volume={hello}:/bundle:ro", image, "run", "--rm", "/bundle")
    assert (done.returncode, done.stdout) == (3, b"Hello from a machine made to measure.\n"), done.stderr
