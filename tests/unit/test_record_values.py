# SPDX-License-Identifier: Apache-2.0
"""Values of a bundle's records: each limit from both sides, and the words by which what lies beyond is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.bundle_data import EXERCISE, bundle, trace_record, write_bundle
from tests.fakes.fit_run_data import fit_run

from vmtailor.base.cache.store import Store
from vmtailor.base.errors import UserInputError
from vmtailor.base.files import records
from vmtailor.drivers.host import bundle_folder
from vmtailor.drivers.host.bundle_folder import MOST_INIT_BYTES, BundleFolder, seal
from vmtailor.drivers.host.bundle_values import (
    require_cpu_s,
    require_exercise,
    require_machine,
    require_system_exercise,
    require_trace,
)
from vmtailor.model.boots.system_exercise import Saying, SystemExercise, SystemReady, SystemReadyKind
from vmtailor.model.bundle import BundleFile
from vmtailor.model.exercise import Expect, Ready, ReadyKind, Step, StepKind
from vmtailor.model.image import ImageConfig, Port
from vmtailor.model.trace import ModuleRequest
from vmtailor.pipeline.work_files import WorkFolder

WHERE = Path("/b/record.json")


def refused(check: Callable[[Any, Path], object], record: Any, words: str) -> None:
    """Hold that a record is refused with the record's name, these words, and a way out."""
    with pytest.raises(UserInputError) as error:
        check(record, WHERE)
    assert error.value.message == f"{WHERE}: {words}"
    assert error.value.hint == "no fit writes this; get the bundle again, or fit the image again"


# ---- machines

LINE = 2048 - 512


@pytest.mark.parametrize(
    "good",
    [
        {"memory_bytes": 8 << 20}, {"memory_bytes": 1 << 40}, {"cpus": 1}, {"cpus": 64},
        {"words": ("x" * 512,)}, {"words": ("x" * 511, "x" * 511, "x" * 512)}, {"words": ()},
        {"kernel_version": "6.12"}, {"kernel_version": "6.12.7-rc1+deb13~1"},
        {"image": ImageConfig("amd64", exposed_ports=(Port(1), Port(65535)), stop_signal="")}, {"image": None},
        {"image": None, "words": ("quiet", 'dm-mod.create="vg-a,LVM-x,,rw,0 8 linear /dev/vda3 2048"')},
        {"files": (BundleFile("a", 0, "0" * 64), BundleFile("b/c", 1 << 50, "f" * 64))},
    ],
)  # fmt: skip
def test_a_machine_at_its_limits(good: dict[str, Any]) -> None:
    require_machine(bundle(**good), WHERE)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"memory_bytes": (8 << 20) - 1}, "a machine cannot have 8388607 bytes of memory"),
        ({"memory_bytes": (1 << 40) + 1}, "a machine cannot have 1099511627777 bytes of memory"),
        ({"cpus": 0}, "a machine cannot have 0 CPUs"),
        ({"cpus": 65}, "a machine cannot have 65 CPUs"),
        ({"words": ("quiet", "x" * 513)}, f"'{'x' * 80}' is no word of a kernel command line"),
        ({"words": ('a="b c"',)}, "'a=\"b c\"' is no word of a kernel command line"),
        ({"image": None, "words": ('a="b" c="d"',)}, '\'a="b" c="d"\' is no word of a kernel command line'),
        ({"image": None, "words": ('a="b c',)}, "'a=\"b c' is no word of a kernel command line"),
        (
            {"words": ("x" * 512, "x" * 511, "x" * 512)},
            f"the kernel command line is longer than {LINE} bytes",
        ),
        ({"kernel_version": "6"}, "'6' is not a kernel version"),
        ({"image": ImageConfig("amd64", exposed_ports=(Port(65536),))}, "65536 is not a port"),
        ({"image": ImageConfig("amd64", exposed_ports=(Port(80), Port(0)))}, "0 is not a port"),
        ({"files": (BundleFile("a", -1, "0" * 64),)}, "the digest of a is none"),
        ({"files": (BundleFile("a", 1, "0" * 64),) * 2}, "a file is listed twice"),
    ],
)
def test_a_machine_beyond_its_limits_is_refused_in_words(wrong: dict[str, Any], words: str) -> None:
    refused(require_machine, bundle(**wrong), words)


# ---- exercises of containers

READY = "the check for ready does not say what to ask, or asks at the program's end"
TCP = Step(StepKind.TCP, port=80)
HTTP = Step(StepKind.HTTP, port=80)
RUN = Step(StepKind.COMMAND, argv=("/x",))
EXIT = Ready(ReadyKind.EXIT)


def asking(step: Step) -> Any:
    return replace(EXERCISE, load=(step,))


@pytest.mark.parametrize(
    "good",
    [
        replace(EXERCISE, ready=Ready(ReadyKind.TCP, TCP, 86400.0), stop_timeout_s=0.001),
        replace(EXERCISE, ready=EXIT, stop_signal="TERM"),
        replace(EXERCISE, load=(TCP,) * 10_000),
        asking(replace(TCP, port=1, repeat=1)), asking(replace(HTTP, port=65535, repeat=1_000_000)),
        asking(replace(RUN, port=0)), asking(replace(RUN, port=65535)),
        asking(replace(HTTP, method="A" * 16, path="/" + "x" * 8192)),
        asking(replace(HTTP, expect=Expect(sha256="AB" * 32, status=100))),
        asking(replace(HTTP, expect=Expect(status=599, stdout="", contains="x"))),
        asking(replace(RUN, expect=Expect(exit_code=255))), replace(EXERCISE, expect=Expect(exit_code=0)),
    ],
)  # fmt: skip
def test_an_exercise_at_its_limits(good: Any) -> None:
    require_exercise(good, WHERE)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (replace(EXERCISE, ready=Ready(ReadyKind.TCP, TCP, 86400.5)), "86400.5 is not a number of seconds to wait"),
        (replace(EXERCISE, stop_timeout_s=0.0), "0.0 is not a number of seconds to wait"),
        (replace(EXERCISE, ready=Ready(ReadyKind.TCP)), READY),
        (replace(EXERCISE, ready=Ready(ReadyKind.EXIT, TCP)), READY),
        (
            replace(EXERCISE, ready=Ready(ReadyKind.COMMAND, Step(StepKind.HOST_COMMAND, argv=("x",)))),
            "a program on the host cannot say that the container is ready",
        ),
        (replace(EXERCISE, load=(TCP,) * 10_001), "the load has more than 10000 steps"),
        (asking(replace(TCP, port=0)), "0 is not a port"),
        (asking(replace(HTTP, port=65536)), "65536 is not a port"),
        (asking(replace(RUN, port=-1)), "-1 is not a port"),
        (asking(replace(TCP, repeat=0)), "a step cannot be repeated 0 times"),
        (asking(replace(TCP, repeat=1_000_001)), "a step cannot be repeated 1000001 times"),
        (asking(replace(HTTP, method="get")), "'get /' is no request"),
        (asking(replace(HTTP, path="x")), "'GET x' is no request"),
        (asking(replace(RUN, argv=())), "a command names no program"),
        (asking(replace(RUN, argv=("",))), "a command names no program"),
        (asking(replace(RUN, argv=("a", "b\0"))), "a text holds a NUL"),
        (asking(replace(HTTP, expect=Expect(status=99))), "99 is no HTTP status"),
        (asking(replace(HTTP, expect=Expect(status=600))), "600 is no HTTP status"),
        (asking(replace(HTTP, expect=Expect(sha256="0" * 63))), "an expected sha256 is none"),
        (replace(EXERCISE, expect=Expect(exit_code=-1)), "-1 is no exit code"),
        (replace(EXERCISE, expect=Expect(exit_code=256)), "256 is no exit code"),
        (replace(EXERCISE, expect=Expect(stdout="\0")), "a text holds a NUL"),
        (replace(EXERCISE, expect=Expect(contains="\0")), "a text holds a NUL"),
    ],
)  # fmt: skip
def test_an_exercise_beyond_its_limits_is_refused_in_words(wrong: Any, words: str) -> None:
    refused(require_exercise, wrong, words)


# ---- exercises of systems

UNIT = SystemReady(SystemReadyKind.UNIT, unit="docker.service")
SYSTEM = SystemExercise(
    "x.toml", UNIT, (RUN,), ports=(1, 65535), step_timeout_s=86400.0, says=(Saying("a", ("x",)),) * 8
)


def test_a_system_exercise_at_its_limits() -> None:
    require_system_exercise(SYSTEM, WHERE)
    for kind, step in ((SystemReadyKind.TCP, TCP), (SystemReadyKind.HTTP, HTTP), (SystemReadyKind.COMMAND, RUN)):
        require_system_exercise(replace(SYSTEM, ready=SystemReady(kind, step), stop=("x", "")), WHERE)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"ready": SystemReady(SystemReadyKind.LOG, pattern="x")}, "the system is ready by a line of its console"),
        ({"ready": replace(UNIT, unit="--now")}, "'--now' is no unit"),
        ({"ready": SystemReady(SystemReadyKind.HTTP)}, "the check for ready does not say what to ask"),
        ({"step_timeout_s": 86400.5}, "86400.5 is not a number of seconds to wait"),
        ({"step_timeout_s": 0.0}, "0.0 is not a number of seconds to wait"),
        ({"step_timeout_s": float("inf")}, "inf is not a number of seconds to wait"),
        ({"stop_timeout_s": 0.0}, "0.0 is not a number of seconds to wait"),
        ({"ports": (80, 65536)}, "a port is out of range"),
        ({"ports": (0,)}, "a port is out of range"),
        ({"stop": ()}, "nothing shuts the system down"),
        ({"stop": ("", "x")}, "nothing shuts the system down"),
        ({"stop": ("x", "\0")}, "a text holds a NUL"),
        ({"says": (Saying("a", ("x",)),) * 9}, "the system is asked 9 things of itself"),
        ({"says": (Saying("A", ("x",)),)}, "'A' is nothing to ask a system"),
        ({"says": (Saying("a", ("",)),)}, "'a' is nothing to ask a system"),
        ({"says": (Saying("a", ("x", "\0")),)}, "a text holds a NUL"),
        ({"load": (replace(RUN, repeat=0),)}, "a step cannot be repeated 0 times"),
    ],
)
def test_a_system_exercise_beyond_its_limits_is_refused_in_words(wrong: dict[str, Any], words: str) -> None:
    refused(require_system_exercise, replace(SYSTEM, **wrong), words)


# ---- traces


def test_a_trace_at_its_limits_and_beyond() -> None:
    module = ModuleRequest("fs-fuse", "fuse", "fs/fuse/fuse")
    require_trace(trace_record(requests_cpu_s=86400.0, modules_requested=(module,)), WHERE)
    require_trace(trace_record(requests_cpu_s=0.0), WHERE)
    require_cpu_s(None, WHERE)
    late = replace(trace_record().requests_boot, seconds=float("inf"))
    named = "a module that was asked for has a name that none has"
    for wrong, words in (
        ({"requests_cpu_s": 86400.5}, "no boot takes 86400.5 s of processor time"),
        ({"requests_cpu_s": -0.5}, "no boot takes -0.5 s of processor time"),
        ({"cpu_model": "max,x"}, "'max,x' is no CPU model"),
        ({"requests_boot": late}, "the boot took no number of seconds"),
        ({"modules_requested": (replace(module, module="a b"),)}, named),
        ({"modules_requested": (replace(module, path="fs/../x"),)}, named),
        ({"modules_requested": (module, replace(module, path="/x"))}, named),
    ):
        refused(require_trace, trace_record(**wrong), words)


# ---- files


@pytest.fixture
def opened(tmp_path: Path) -> BundleFolder:
    return bundle_folder.load(write_bundle(tmp_path / "made"), Store(tmp_path / "cache"))


@pytest.mark.parametrize(
    ("name", "record", "read", "words"),
    [
        ("exercise.json", asking(replace(TCP, port=0)), lambda files: files.exercise, "0 is not a port"),
        (
            "trace/trace.json", trace_record(cpu_model="max,x"), lambda files: files.trace, "'max,x' is no CPU model",
        ),
        (
            "system-exercise.json", replace(SYSTEM, stop=()), lambda files: files.system_exercise,
            "nothing shuts the system down",
        ),
    ],
)  # fmt: skip
def test_a_wrong_value_is_told_with_the_file_that_has_it(
    opened: BundleFolder, name: str, record: Any, read: Callable[[BundleFolder], Any], words: str
) -> None:
    records.save(record, opened.path / name)
    sealed = seal(opened.path, opened.bundle)
    with pytest.raises(UserInputError) as error:
        read(BundleFolder(opened.path, sealed, opened.store))
    assert error.value.message == f"{opened.path / name}: {words}"


def test_a_file_that_is_missing_is_told_with_what_writes_it(opened: BundleFolder, tmp_path: Path) -> None:
    again = "get the bundle again, or fit the image again"
    for name, stage in (("verification.json", "verify"), ("plan.json", "plan"), ("unheard-of", "fit")):
        error = opened.lacks(name)
        assert error.message == f"the record of {opened.path} lists no {name}: vmtailor {stage} writes it"
        assert error.hint == again
    work = WorkFolder(tmp_path / "work", opened.store)
    error = work.lacks("kernel.json")
    assert error.message == f"{tmp_path / 'work'} has no kernel.json: vmtailor build writes it"
    assert error.hint == f"vmtailor build {tmp_path / 'work'}"
    assert work.hint("trace/trace.json") == f"vmtailor trace IMAGE -o {tmp_path / 'work'}"
    (opened.path / "config").write_text("CONFIG_X=y\n")
    with pytest.raises(UserInputError, match=r"config is not the file that the bundle was made with") as caught:
        _ = opened.config
    assert caught.value.hint == again


def test_an_init_is_read_up_to_its_limit(opened: BundleFolder) -> None:
    for size, fits in ((4 << 20, True), ((4 << 20) + 1, False)):
        with (opened.path / "init").open("wb") as file:
            file.truncate(size)
        files = BundleFolder(opened.path, seal(opened.path, opened.bundle), opened.store)
        if fits:
            assert len(files.init) == size == MOST_INIT_BYTES
        else:
            with pytest.raises(UserInputError, match=r"init is larger than 4\sMiB"):
                _ = files.init


def test_a_bundle_without_an_init_says_nothing_of_its_marks(opened: BundleFolder) -> None:
    assert opened.init == b"" and opened.init_marks == {}
    (opened.path / "init").unlink()
    older = BundleFolder(opened.path, seal(opened.path, opened.bundle), opened.store)
    assert older.init == b"" and older.init_marks is None and older.baseline_config is None
    (opened.path / "baseline.config").write_text("CONFIG_SMP=y\n")
    newer = BundleFolder(opened.path, seal(opened.path, opened.bundle), opened.store)
    assert newer.baseline_config == {"SMP": "y"}


def test_what_others_may_change_is_copied_and_what_changed_meanwhile_is_refused(opened: BundleFolder) -> None:
    assert opened.file("vmlinux") == opened.path / "vmlinux"
    opened.path.chmod(0o777)
    copy = opened.file("vmlinux")
    assert not copy.is_relative_to(opened.path) and copy.read_bytes() == (opened.path / "vmlinux").read_bytes()
    with pytest.raises(UserInputError, match="its content differs"):
        opened._copy("root.erofs", "00" * 32)


def test_the_seal_lists_all_files_but_the_record_and_the_page(tmp_path: Path) -> None:
    folder = write_bundle(tmp_path / "made")
    (folder / "report.html").write_text("page")
    records.save(fit_run(), folder / "run.json")
    names = {one.name for one in seal(folder, bundle()).files}
    assert names == {
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
    } - {"bundle.json", "report.html"}  # fmt: skip
    assert re.fullmatch(r"[0-9a-f]{64}", bundle_folder.load(folder, Store(tmp_path)).listed("run.json").sha256)
