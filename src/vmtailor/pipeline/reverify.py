# SPDX-License-Identifier: Apache-2.0
"""`verify`: a bundle verified again, from what is in it, on this host."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from vmtailor.base import natives as native_parts
from vmtailor.base import records
from vmtailor.base.errors import UserInputError
from vmtailor.base.store import Store
from vmtailor.model.exercise import Exercise
from vmtailor.model.machine import Accelerator, Clock
from vmtailor.model.trace import Trace
from vmtailor.pipeline.bundles import load_bundle, machine_of
from vmtailor.pipeline.ground import scratch_of, tools_volume
from vmtailor.pipeline.running import best_accelerator
from vmtailor.stages import trace, verify
from vmtailor.stages.verify import Target, Verification


def verify_bundle(
    folder: Path, clock: Clock, accelerator: Accelerator | None = None, store: Store | None = None
) -> Verification:
    """The exercise on the bundle's machine, compared with the trace in the bundle. On the wall clock under KVM where
    it works; the instruction clock is always TCG."""
    store = store or Store()
    bundle = load_bundle(folder)
    traced = folder / "trace"
    if not (traced / trace.RECORD).is_file():
        raise UserInputError(f"the bundle {folder} holds no trace to compare with", hint="fit the image again")
    record = records.load(Trace, traced / trace.RECORD)
    if clock is Clock.INSTRUCTIONS:
        if accelerator is Accelerator.KVM:
            raise UserInputError("the instruction clock runs under TCG only", hint="use --clock wall with KVM")
        accelerator = Accelerator.TCG
    machine = machine_of(folder, bundle, accelerator=accelerator or best_accelerator(store))
    machine = replace(
        machine, clock=clock, cpu_model=record.cpu_model if clock is Clock.INSTRUCTIONS else machine.cpu_model
    )
    target = Target(
        machine=machine,
        image=bundle.image,
        exercise=records.load(Exercise, folder / "exercise.json"),
        natives=native_parts.locate(),
        tools=tools_volume(store, bundle.root_format),
        network=bundle.network,
    )
    return verify.verify(target, record, trace.read_log(traced, record).events, scratch_of(store))
