# SPDX-License-Identifier: Apache-2.0
"""A made-up bundle: whole, sound and sealed, with a kernel that is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.fakes.fit_run_data import fit_run

from vmtailor.base.files import records
from vmtailor.drivers.host.bundle_folder import seal
from vmtailor.model.boots.boot import Boot, ContainerRun, Outcome
from vmtailor.model.bundle import Bundle
from vmtailor.model.exercise import Exercise, Ready, ReadyKind, Step, StepKind
from vmtailor.model.guest import GuestReport
from vmtailor.model.image import ImageConfig, Port
from vmtailor.model.machine import Machine
from vmtailor.model.plan import RootFormat
from vmtailor.model.trace import Trace

SOURCE_DIGEST = "5a" * 32
#: Asks the guest, and a program of the host.
EXERCISE = Exercise(
    "exercise.toml",
    Ready(ReadyKind.TCP, Step(StepKind.TCP, port=80)),
    (
        Step(StepKind.HTTP, port=80),
        Step(StepKind.HOST_COMMAND, argv=("sh", "-c", "touch /tmp/\x1b[31mowned {port:80}")),
        Step(StepKind.TCP, port=80),
    ),
)


def bundle(**other: Any) -> Bundle:
    """The record, without digests."""
    values: dict[str, Any] = {
        "name": "made-up", "image_reference": "oci:x", "image_digest": "sha256:0",
        "image": ImageConfig("amd64", exposed_ports=(Port(80),)), "kernel": "vmlinux", "kernel_version": "6.12.7",
        "kernel_config": "config", "system_map": "System.map", "root": "root.erofs",
        "root_format": RootFormat.EROFS, "machine": "microvm", "cpus": 1, "memory_bytes": 64 << 20,
        "network": True, "words": ("root=/dev/vda", "quiet"),
        "sources": (("kernel source", f"6.12.7, package 6.12.7-1, {SOURCE_DIGEST}"),),
    }  # fmt: skip
    return Bundle(**(values | other))


def trace_record(**other: Any) -> Trace:
    boot = Boot(Outcome.READY, (), 1.0, "qemu", container=ContainerRun(0, True))
    values: dict[str, Any] = {
        "image_digest": "sha256:0", "exercise_origin": "exercise.toml", "kernel_release": "6.12.7",
        "cpu_model": "max", "machine": Machine("microvm", 64 << 20, "k"), "coverage_boot": boot,
        "requests_boot": boot, "requests_report": GuestReport(), "phases": (), "coverage_file": "coverage.counts",
        "requests_file": "requests.strace", "modules": (), "failed_calls": (), "files": (), "kernel_warnings": (),
    }  # fmt: skip
    return Trace(**(values | other))


def write_bundle(folder: Path, exercise: Exercise = EXERCISE, trace: Trace | None = None, **other: Any) -> Path:
    """Write the bundle, with values of its record that are others."""
    (folder / "trace").mkdir(parents=True, exist_ok=True)
    for name, text in {
        "vmlinux": "kernel", "root.erofs": "root" * 128, "config": "CONFIG_NET=y\n", "init": "",
        "System.map": "ffffffff81000000 T _text\n", "trace/requests.strace": "",
    }.items():  # fmt: skip
        (folder / name).write_text(text)
    records.save(exercise, folder / "exercise.json")
    records.save(trace or trace_record(), folder / "trace" / "trace.json")
    records.save(fit_run(), folder / "run.json")
    records.save(fit_run().plan, folder / "plan.json")
    seal(folder, bundle(**other))
    return folder


def exportable(folder: Path, *symbols: str, init: bytes = b"\0VT_CONSOLE\0", **other: Any) -> Path:
    """Write a bundle whose init has a plain console, and whose kernel has these symbols."""
    write_bundle(folder, **other)
    (folder / "init").write_bytes(init)
    (folder / "config").write_text("".join(f"CONFIG_{name}=y\n" for name in dict.fromkeys(symbols)))
    seal(folder, bundle(**other))
    return folder
