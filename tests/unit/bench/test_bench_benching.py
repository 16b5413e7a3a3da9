# SPDX-License-Identifier: Apache-2.0
"""A benchmark from outside, with a scope that is none: what is refused on the way, and what the run's end becomes."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.fakes import tars
from tests.fakes.bundle_data import write_bundle
from tests.fakes.hostile_bundles import own_cache
from tests.unit.bench.test_bench_verb import results

from vmtailor.base.cache.store import Store
from vmtailor.base.errors import ExitCode, HostError, UserInputError
from vmtailor.base.files import records
from vmtailor.bench.model.job import BenchJob
from vmtailor.bench.model.results import BenchResults, SuiteName
from vmtailor.bench.run import image_machine, launch
from vmtailor.bench.run.launch import bench
from vmtailor.drivers.monitors import monitors
from vmtailor.drivers.monitors.monitor import KvmState, KvmVerdict
from vmtailor.model.image import Image, ImageConfig

__all__ = ["own_cache"]
PROGRAM = ("bench/bench", b"program")


def image_of(folder: Path, *files: tuple[str, bytes]) -> Image:
    archive = folder / "rootfs.tar"
    archive.write_bytes(tars.tar_of(*(tars.file(name, data) for name, data in files)))
    return Image("oci:mine", "sha256:0", ImageConfig("amd64"), str(archive), "ab" * 32, 1, 0)


class Bench:
    """What a benchmark is begun with. `ends`: the shell's program in place of the scope's."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.image, self.ends = folder, image_of(folder, PROGRAM), "exit 0"
        (folder / "scope").mkdir()
        self.out, self.store = folder / "b.json", Store(folder / "c")
        self.job = BenchJob(
            (SuiteName.STARTUP,), ("native",), (1,), 10, False, 7, out=str(self.out), reference="oci:mine"
        )
        monkeypatch.setattr(monitors.usual(), "kvm", lambda: KvmVerdict(KvmState.ABSENT, "no device"))
        monkeypatch.setattr(launch, "require_root", lambda: None)
        monkeypatch.setattr(launch, "fetch", lambda *_: self.image)
        monkeypatch.setattr(launch, "held", self._held)

    @contextlib.contextmanager
    def _held(self) -> Iterator[Any]:
        yield SimpleNamespace(folder=self.folder / "scope", words=lambda: ["sh", "-c", self.ends, "--"])


@pytest.fixture
def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, monkeypatch)


def test_what_the_file_then_holds_is_returned(begun: Bench) -> None:
    done = begun.folder / "done.json"
    records.save(results(), done)
    begun.ends = shlex.join(["cp", str(done), str(begun.out)])
    assert bench(begun.job, begun.store) == results()
    job = records.load(BenchJob, begun.folder / "scope/job.json")
    assert (job.seed, job.out, job.folder) == (7, str(begun.out), str(begun.folder / "scope"))
    assert job.image_digest == "sha256:0" and job.image_archive == "" and not job.kvm


@pytest.mark.parametrize(
    ("ends", "error", "words"),
    [
        (f"exit {int(ExitCode.USER_INPUT)}", UserInputError, "nothing was measured"),
        ("exit 3", HostError, "the run ended with 3"),
        ("exit 1", HostError, "the run ended with 1"),
        ("kill -9 $$", HostError, "the run ended with -9"),
    ],
)
def test_a_run_that_ends_otherwise_says_so(begun: Bench, ends: str, error: type[Exception], words: str) -> None:
    records.save(results(), begun.out)  # what is there is not taken for what was measured
    begun.ends = ends
    with pytest.raises(error, match=words):
        bench(begun.job, begun.store)


def test_a_run_goes_on_with_the_seed_of_its_results_unless_another_is_asked_for(begun: Bench) -> None:
    out = begun.out
    one = results().runs[0]
    assert {launch.seed_of(None, out) for _ in range(3)} != {launch.seed_of(None, out)}  # a new one each time
    records.save(BenchResults("0", (replace(one, seed=5), replace(one, seed=4711, quick=False))), out)
    assert launch.seed_of(None, out) == 4711 and launch.seed_of(0, out) == 0
    records.save(BenchResults("0"), out)
    assert 0 <= launch.seed_of(None, out) < 1 << 31


def test_results_where_the_run_does_not_see_them_are_refused_before_anything(begun: Bench) -> None:
    with pytest.raises(UserInputError, match="the results would lie below /dev/shm"):
        bench(replace(begun.job, out="/dev/shm/b.json"), begun.store)
    assert not list((begun.folder / "scope").iterdir()) and not Path("/dev/shm/b.json").exists()


def test_an_image_without_the_benchmarks_program_is_refused(begun: Bench) -> None:
    begun.image = image_of(begun.folder, ("bin/sh", b"program"), ("bench/bench", b""))
    with pytest.raises(UserInputError, match="oci:mine has no /bench/bench") as refused:
        bench(begun.job, begun.store)
    assert "make bench-image" in refused.value.hint


def test_an_image_that_cannot_be_packed_for_engines_is_refused_and_packed_once_where_it_can(
    begun: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    skopeo = begun.folder / "skopeo"
    skopeo.write_text('#!/bin/sh\necho "$3: no such tag" >&2; exit 1\n')
    skopeo.chmod(0o755)
    monkeypatch.setattr(launch, "require_tool", lambda _: str(skopeo))
    on, store = ("native", "docker"), begun.store
    with pytest.raises(UserInputError, match="oci:mine cannot be packed for engines") as refused:
        bench(replace(begun.job, runtimes=on), store)
    assert refused.value.details == "oci:mine: no such tag"
    assert launch.packed(("native",), "oci:mine", begun.image, store) == ""  # which no engine loads
    skopeo.write_text('#!/bin/sh\nfile=${4#docker-archive:}; echo "$3 $4" >"${file%:bench:1}"\n')
    packed = Path(launch.packed(on, "mine", begun.image, store))
    assert packed.name == "image.tar" and packed.read_text().startswith("oci:mine docker-archive:")
    skopeo.unlink()
    assert launch.packed(on, "oci:mine", begun.image, store) == str(packed)


def test_two_bundles_of_one_name_are_refused(tmp_path: Path, own_cache: Store) -> None:
    names = [f"vm:{write_bundle(tmp_path / folder / 'mine')}" for folder in ("a", "b")]
    image_machine.check(names)
    with pytest.raises(UserInputError, match="two bundles' folders have one name"):
        image_machine.ready(names, "oci:mine", own_cache)
    (found,) = image_machine.ready([names[0], names[0]], "oci:mine", own_cache)  # the same one twice is one
    assert found.name == "vm:mine" and found.folder == str(tmp_path / "a/mine")
