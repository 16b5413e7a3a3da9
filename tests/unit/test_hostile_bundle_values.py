# SPDX-License-Identifier: Apache-2.0
"""The values of a hostile bundle's record reach QEMU and the guest checked, or not at all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes.bundle_data import bundle, trace_record, write_bundle
from tests.fakes.verbs import verify_verb

from vmtailor.base import natives
from vmtailor.base.errors import UserInputError, VmtailorError
from vmtailor.drivers.host import bundle_folder, bundle_values
from vmtailor.drivers.host.bundle_folder import seal
from vmtailor.model.bundle import BundleFile
from vmtailor.model.exercise import Exercise, Expect, Ready, ReadyKind, Step, StepKind
from vmtailor.model.image import ImageConfig, Port
from vmtailor.model.machine import Accelerator, Clock
from vmtailor.pipeline import reverify
from vmtailor.stages.verify import Target

pytestmark = [pytest.mark.attack, pytest.mark.usefixtures("own_cache")]


@pytest.mark.parametrize(
    "values",
    [
        {"memory_bytes": 1 << 60}, {"memory_bytes": 0}, {"memory_bytes": -1}, {"memory_bytes": 4096},
        {"cpus": 0}, {"cpus": -1}, {"cpus": 1 << 40},
        {"words": ("quiet\n-device foo",)}, {"words": ("a b",)}, {"words": ("",)}, {"words": ("\x1b[31m",)},
        {"words": ("x" * 600,)}, {"words": ("x" * 100,) * 40}, {"words": ("a\0b",)}, {"words": ("ü",)},
        {"kernel_version": "6.12\n"}, {"kernel_version": "../6.12"}, {"kernel_version": ""},
        {"kernel_version": "6.12 \x1b"}, {"kernel_version": "x" * 1000},
        {"image": ImageConfig("amd64", exposed_ports=(Port(0),))},
        {"image": ImageConfig("amd64", exposed_ports=(Port(1 << 70),))},
        {"image": ImageConfig("amd64", stop_signal="SIGNOTHING")},
    ],
)  # fmt: skip
def test_a_machine_that_no_fit_makes_is_refused(tmp_path: Path, values: dict[str, Any]) -> None:
    with pytest.raises(UserInputError):
        bundle_values.require_machine(bundle(**values), tmp_path)
    try:
        write_bundle(tmp_path, **values)
    except (VmtailorError, OverflowError, ValueError):
        return  # it cannot even be written
    with pytest.raises(UserInputError):
        bundle_folder.load(tmp_path)


@pytest.mark.parametrize("digest", ["", "0" * 63, "G" * 64, "A" * 64])
def test_a_digest_that_is_none(tmp_path: Path, digest: str) -> None:
    with pytest.raises(UserInputError, match="digest of x"):
        bundle_values.require_machine(bundle(files=(BundleFile("x", 0, digest),)), tmp_path)
    twice = (BundleFile("x", 0, "0" * 64), BundleFile("x", 0, "1" * 64))
    with pytest.raises(UserInputError, match="twice"):
        bundle_values.require_machine(bundle(files=twice), tmp_path)


def test_cpu_models() -> None:
    where = Path("trace.json")
    for model in ("max", "host", "Skylake-Client-v4", "qemu64,+avx,-x2apic,invtsc=on"):
        assert bundle_values.require_cpu_model(model, where) == model
    for model in ("", "max,", "max,vendor=\x1b[31m", "max -device x", "max,x=/etc/passwd", "max,x=on,", "-device", "?"):
        with pytest.raises(UserInputError, match="no CPU model"):
            bundle_values.require_cpu_model(model, where)


def test_the_cpu_model_of_a_trace_is_checked(tmp_path: Path, verified: list[Target]) -> None:
    write_bundle(tmp_path, trace=trace_record(cpu_model="max,file=/etc/passwd"))
    with pytest.raises(UserInputError, match="no CPU model"):
        verify_verb(tmp_path)
    assert not verified


@pytest.mark.parametrize("seconds", [float("inf"), float("nan"), -1.0, 1e300])
def test_a_baseline_that_took_for_ever_gives_no_time(tmp_path: Path, seconds: float, verified: list[Target]) -> None:
    with pytest.raises(UserInputError):
        bundle_values.require_cpu_s(seconds, tmp_path)
    if seconds == 1e300:  # the others are no JSON
        write_bundle(tmp_path, trace=trace_record(requests_cpu_s=seconds))
        with pytest.raises(UserInputError, match="no boot takes"):
            verify_verb(tmp_path)
        assert not verified
    bundle_values.require_cpu_s(None, tmp_path)


TCP = Step(StepKind.TCP, port=80)


@pytest.mark.parametrize(
    "exercise",
    [
        Exercise("x", Ready(ReadyKind.TCP, TCP, timeout_s=1e300)),
        Exercise("x", Ready(ReadyKind.TCP, TCP, timeout_s=float("inf"))),
        Exercise("x", Ready(ReadyKind.TCP, TCP, timeout_s=float("nan"))),
        Exercise("x", Ready(ReadyKind.TCP, TCP, timeout_s=-1)),
        Exercise("x", Ready(ReadyKind.TCP, TCP), stop_timeout_s=0),
        Exercise("x", Ready(ReadyKind.TCP)),
        Exercise("x", Ready(ReadyKind.EXIT, TCP)),
        Exercise("x", Ready(ReadyKind.COMMAND, Step(StepKind.HOST_COMMAND, argv=("id",)))),
        Exercise("x", Ready(ReadyKind.EXIT), stop_signal="SIG\n"),
        Exercise("x", Ready(ReadyKind.EXIT), expect=Expect(exit_code=256)),
        Exercise("x", Ready(ReadyKind.EXIT), expect=Expect(sha256="x")),
        Exercise("x", Ready(ReadyKind.EXIT), load=(TCP,) * 10_001),
        *(
            Exercise("x", Ready(ReadyKind.EXIT), load=(step,))
            for step in (
                replace(TCP, port=0), replace(TCP, port=65536), replace(TCP, repeat=0), replace(TCP, repeat=10**9),
                Step(StepKind.HTTP, port=80, path="/ HTTP/1.1\r\nHost: evil"), Step(StepKind.HTTP, port=80, path="x"),
                Step(StepKind.HTTP, port=80, method="GET /\r\n"), Step(StepKind.COMMAND),
                Step(StepKind.COMMAND, argv=("",)),
                Step(StepKind.COMMAND, argv=("a\0b",)), replace(TCP, expect=Expect(status=1)),
                replace(TCP, expect=Expect(contains="\0")),
            )
        ),
    ],
)  # fmt: skip
def test_an_exercise_that_no_file_could_say_is_refused(tmp_path: Path, exercise: Exercise) -> None:
    with pytest.raises(UserInputError):
        bundle_values.require_exercise(exercise, tmp_path)


def test_hostile_symbols_and_inits(tmp_path: Path) -> None:
    for table in ("../x\n", "ffffffff81000000 T a b\n", "ffffffff81000000 t __initcall__kmod_x__1_2_x\x0bmark 0\n",
                  "f" * 40 + " T x\n", "ffffffff81000000 T x"):  # fmt: skip
        write_bundle(tmp_path)
        (tmp_path / "System.map").write_text(table)
        seal(tmp_path, bundle())
        with pytest.raises(UserInputError, match="not a table of symbols"):
            _ = bundle_folder.load_container(tmp_path).symbols
    for init in (b"\x7fELF\x02\x01", b"\x7fELF\x02\x01" + b"\xff" * 200, b"\x7fELF\x02\x01" + bytes(58) + b"\xff" * 64):
        assert natives.mark_addresses(init) == {}
    real = natives.locate().init.read_bytes()
    forged = real.replace(b"vt_mark_ready\0", b"vt_mark_r \nx\0\0")
    assert forged != real and set(natives.mark_addresses(real)) - set(natives.mark_addresses(forged)) == {"ready"}


@given(st.binary(max_size=300))
def test_any_init_has_marks_or_none(tail: bytes) -> None:
    assert set(natives.mark_addresses(b"\x7fELF\x02\x01" + tail)) <= set(natives.MARKS)


def test_nothing_is_asked_under_kvm_on_the_instruction_clock(tmp_path: Path) -> None:
    request = reverify.VerifyRequest(write_bundle(tmp_path), Clock.INSTRUCTIONS, Accelerator.KVM)
    with pytest.raises(UserInputError, match="under TCG only"):
        reverify.prepare(request)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"machine": "microvm,accel=kvm"}, "has no machine 'microvm,accel=kvm'"),
        ({"machine": "\x1b[31mq35"}, "has no machine"),
        ({"machine": ""}, "has no machine ''"),
        ({"architecture": "../../etc/passwd"}, "no architecture '../../etc/passwd' is known"),
        ({"architecture": "x" * 10_000}, "no architecture 'xxx"),
        ({"architecture": "\x1b[31m"}, "no architecture"),
    ],
)
def test_a_machine_that_no_architecture_has_is_refused(tmp_path: Path, other: dict[str, Any], words: str) -> None:
    """Both are names that are looked up; neither becomes an argument of QEMU's, or a path."""
    with pytest.raises(UserInputError) as caught:
        bundle_folder.load(write_bundle(tmp_path, **other))
    assert words in caught.value.message and "\x1b" not in caught.value.message
    assert len(caught.value.message) < 1000
