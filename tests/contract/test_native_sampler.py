# SPDX-License-Identifier: Apache-2.0
"""The sampler, under the sanitizers, on this host and on control groups that the test makes: its lines are what the
reader takes, containers are found by the names that engines give them, and nothing in the tree breaks it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tests.fakes.sanitized import compiled

from vmtailor.analysis.watches.sample_text import Sample, SampleReader
from vmtailor.model.machine_watch import WatchedKind

pytestmark = pytest.mark.contract
ONE, TWO, THREE, FOUR = (letter * 64 for letter in "abcd")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled("sanitized-sampler", tmp_path_factory.mktemp("native"))


def sampled(program: Path, folder: Path, count: int = 2) -> tuple[list[Sample], SampleReader, bytes]:
    done = subprocess.run(
        [program, "sample", "10", str(count)], cwd=folder, capture_output=True, timeout=60, check=False
    )
    said = done.stderr.decode("utf-8", "replace")
    assert done.returncode == 0 and "Sanitizer" not in said and "runtime error" not in said, said[-3000:]
    reader = SampleReader()
    return reader.feed(done.stdout), reader, done.stdout


def group(folder: Path, path: str, pid: int | str = "", **files: str) -> None:
    place = folder / "groups" / path
    place.mkdir(parents=True, exist_ok=True)
    usual = {
        "cpu.stat": "usage_usec 3000\nuser_usec 1000\nsystem_usec 2000\nnr_periods 0\nthrottled_usec 7\n",
        "memory.current": "1048576\n",
        "memory.stat": "anon 4096\nfile 8192\nkernel 12288\ninactive_file 16384\n",
        "io.stat": "254:0 rbytes=10 wbytes=20 rios=1 wios=2 dbytes=0 dios=0\n8:0 rbytes=5 wbytes=6 rios=3 wios=4\n",
        "pids.current": "3\n",
        "cgroup.procs": f"{pid}\n" if pid else "",
    }
    for name, text in (usual | {key.replace("_", "."): text for key, text in files.items()}).items():
        (place / name).write_text(text)


def tree(folder: Path) -> None:
    (folder / "groups").mkdir()
    (folder / "groups" / "cgroup.stat").write_text("nr_descendants 5\nnr_dying_descendants 0\n")


def test_this_hosts_figures_are_what_the_reader_takes(program: Path, tmp_path: Path) -> None:
    samples, reader, said = sampled(program, tmp_path, 3)
    assert len(samples) == 3 and reader.damaged == 0, said.decode()[:2000]
    first, _, last = samples
    values = last.values
    with Path("/proc/meminfo").open() as file:
        assert values[WatchedKind.MACHINE, "", "memory_total_bytes"] == 1024 * int(file.readline().split()[1])
    assert last.monotonic_ns - first.monotonic_ns >= 20_000_000
    assert {name for kind, name, _ in values if kind is WatchedKind.PROCESSOR} >= {"0"}
    assert ("lo" in {name for kind, name, _ in values if kind is WatchedKind.INTERFACE}) is Path(
        "/sys/class/net/lo"
    ).exists()
    grown = sum(values[WatchedKind.MACHINE, "", f"cpu_{mode}_us"] for mode in ("user", "system", "idle"))
    assert grown > 0


def test_containers_are_found_by_the_names_that_engines_give(program: Path, tmp_path: Path) -> None:
    tree(tmp_path)
    group(tmp_path, f"system.slice/docker-{ONE}.scope", os.getpid())
    group(tmp_path, f"machine.slice/libpod-{TWO}.scope")
    group(tmp_path, f"machine.slice/libpod-{TWO}.scope/container", os.getpid())
    group(tmp_path, f"machine.slice/libpod-conmon-{THREE}.scope", os.getpid())
    group(tmp_path, f"kubepods.slice/kubepods-pod1.slice/cri-containerd-{FOUR}.scope", os.getpid())
    group(tmp_path, f"docker/{THREE}", os.getpid())
    group(tmp_path, "lxc.payload.box", os.getpid())
    group(tmp_path, "system.slice/ssh.service", os.getpid())
    samples, reader, said = sampled(program, tmp_path)
    assert reader.damaged == 0, said.decode()[-2000:]
    assert {one.id: one.engine for one in reader.containers.values()} == {
        "a" * 12: "docker", "b" * 12: "libpod", "c" * 12: "-", "d" * 12: "cri-containerd", "box": "lxc",
    }  # fmt: skip
    command = Path("/proc/self/comm").read_text().strip()
    assert reader.containers["a" * 12].command == command and reader.containers["b" * 12].command == command
    found = {figure: value for (kind, name, figure), value in samples[-1].values.items() if name == "a" * 12 and kind}
    # On this host's own network nothing is counted as the container's.
    assert found == {
        "cpu_us": 3000, "cpu_user_us": 1000, "cpu_system_us": 2000, "throttled_us": 7, "memory_bytes": 1 << 20,
        "memory_anon_bytes": 4096, "memory_file_bytes": 8192, "memory_inactive_file_bytes": 16384,
        "memory_kernel_bytes": 12288, "tasks": 3, "read_bytes": 15, "written_bytes": 26, "reads": 4, "writes": 6,
    }  # fmt: skip


def test_a_container_that_comes_and_one_that_goes_are_noticed(program: Path, tmp_path: Path) -> None:
    tree(tmp_path)
    group(tmp_path, f"docker/{ONE}", os.getpid())
    with subprocess.Popen([program, "sample", "50", "0"], cwd=tmp_path, stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        reader, samples = SampleReader(), list[Sample]()

        def until(wanted: set[str]) -> None:
            for _ in range(200):
                samples.extend(reader.feed(os.read(running.stdout.fileno(), 65536)))  # type: ignore[union-attr]
                if samples and {n for kind, n, _ in samples[-1].values if kind is WatchedKind.CONTAINER} == wanted:
                    return
            raise AssertionError(samples[-1])

        until({"a" * 12})
        group(tmp_path, f"docker/{TWO}", os.getpid())
        (tmp_path / "groups" / "cgroup.stat").write_text("nr_descendants 6\nnr_dying_descendants 0\n")
        until({"a" * 12, "b" * 12})
        # No count tells of what comes and goes in the same moment: the tree is walked again by and by.
        for file in (tmp_path / "groups" / "docker" / ONE).iterdir():
            file.unlink()
        (tmp_path / "groups" / "docker" / ONE).rmdir()
        until({"b" * 12})
        running.kill()


@pytest.mark.attack
def test_nothing_in_the_tree_breaks_it(program: Path, tmp_path: Path) -> None:
    tree(tmp_path)
    group(
        tmp_path, f"docker/{ONE}", os.getpid(), cpu_stat="usage_usec\nuser_usec 99999999999999999999999\n" + "x" * 70000
    )
    group(tmp_path, f"docker/{TWO}", "-1", io_stat=" rbytes= wbytes=x rios=-1\n", memory_current="")
    group(tmp_path, "lxc.payload.a b\nend\x1b[31m", os.getpid())
    deep = "/".join("d" * 100 for _ in range(12))
    group(tmp_path, f"{deep}/docker-{THREE}.scope", os.getpid())
    for number in range(200):
        group(tmp_path, f"docker/{number:012x}{0:052x}", os.getpid())
    samples, _, said = sampled(program, tmp_path)
    assert len(samples) == 2 and b"\x1b" not in said
    names = {name for kind, name, _ in samples[-1].values if kind is WatchedKind.CONTAINER}
    assert 100 < len(names) <= 128
    assert all(len(line) < 512 for line in said.split(b"\n"))


def test_wrong_words_are_refused(program: Path, tmp_path: Path) -> None:
    for words in (["sample", "0", "1"], ["sample", "x", "1"], ["sample", "10"], ["other", "10", "1"]):
        assert subprocess.run([program, *words], cwd=tmp_path, capture_output=True, check=False).returncode == 2
