# SPDX-License-Identifier: Apache-2.0
"""The probe of Python's features on this host's own kernel, and the images that are probed: they can be made."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

import pytest

from vmtailor.base.cache.store import Store
from vmtailor.base.process import run
from vmtailor.stages.exercise_file import derive
from vmtailor.stages.image_fetch import fetch

pytestmark = pytest.mark.contract

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
probe = importlib.import_module("bench_margin_probe")
#: What a host may not have, or not allow whoever runs the tests: modules, capabilities, keys of the processor.
MAY_FAIL = {
    "alg_sha256", "call:sctp_socket", "call:mptcp_socket", "vsock_socket", "call:memory_keys", "read/dev/mqueue",
    "call:performance_counters", "call:keyrings", "call:landlock", "call:io_uring", "call:memory_faults_by_hand",
    "call:secret_memory", "call:file_handles", "call:user_namespace", "read/proc/pressure/memory", "tcp_ipv6",
    "call:futexes_waited_for", "locale_and_zones", "access_control_lists", "extended_attributes",
}  # fmt: skip
#: What only root may do.
FOR_ROOT = {
    "packet_socket", "raw_icmp", "links_and_owners", "device_nodes", "change_root", "identities", "identity_of_files",
    "subprocess_of_another_user", "set_user_id_program", "shutil_copy_with_attributes", "proc_of_others",
}  # fmt: skip


def test_the_features_of_python_work_here() -> None:
    """About 10 s."""
    text = run(["/usr/bin/python3", "-c", probe.python_text()], timeout_s=300).text
    features, ended = probe.parse(text)
    assert ended and len(features) >= 300
    assert sum(1 for one in features if not one.name.startswith(("call:", "read/"))) >= 120
    allowed = MAY_FAIL | (FOR_ROOT if os.geteuid() else set())
    bad = {one.name: f"{one.outcome} {one.why}" for one in features if one.outcome != "ok" and one.name not in allowed}
    assert not bad


def test_a_feature_that_hangs_or_dies_does_not_stop_the_others() -> None:
    text = """
@feature
def hangs(): time.sleep(1000)
@feature
def dies(): os.kill(os.getpid(), 9)
@feature
def raises(): raise OSError(38, "no such call")
@feature
def works(): pass
main([])
"""
    frame = (probe.BENCH / "probes/python/features.py").read_text().replace("LIMIT_S = 20.0", "LIMIT_S = 3.0")
    said = run(["/usr/bin/python3", "-c", frame + text], timeout_s=60).text.splitlines()
    assert said == ["hangs hang", "dies fail:status -9", "raises fail:ENOSYS", "works ok", "probe ended"]


@pytest.mark.skipif(not Path("/usr/bin/apt-get").exists(), reason="made from Debian's packages")
@pytest.mark.parametrize("name", ["php-fpm"])
def test_an_image_is_made(name: str, tmp_path: Path) -> None:
    """Some 15 s. Its exercise is derived, so it says which port it serves."""
    told = os.environ.get("VMTAILOR_PACKAGE_CACHE")
    cache = Path(told) if told else tmp_path / "packages"
    layout = tmp_path / name
    argv = [
        sys.executable,
        str(ROOT / "examples/build.py"),
        str(probe.BENCH / name),
        str(layout),
        "--cache",
        str(cache),
    ]
    run(argv, timeout_s=600)
    image = fetch(f"oci:{layout}", Store(tmp_path / "cache"))
    assert derive(image).origin == "ports"
