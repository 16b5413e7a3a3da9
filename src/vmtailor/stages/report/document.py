# SPDX-License-Identifier: Apache-2.0
"""The document that `vmtailor fit --json` prints.

Format 2 (`vmtailor/fit/2`): docs/reference/fit-json.md names each key with its unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vmtailor.analysis.changes.plan_summary import counts
from vmtailor.drivers.monitors import monitor_proof
from vmtailor.model.fit_run import FitRun, Side
from vmtailor.model.kernel import FoundKernel
from vmtailor.model.monitor_verdicts import MonitorVerdict
from vmtailor.model.systems.units import UnitChoice
from vmtailor.model.trial import Purpose
from vmtailor.stages.report import figure_rows, ledger_waterfall, margin_prices, tuned_changes

# vmtailor/fit/1: without `proof`, `margin`, `lacks`, `kernel`.
FIT_SCHEMA = "vmtailor/fit/2"


def fit_document(run: FitRun, later: Sequence[MonitorVerdict] = ()) -> dict[str, Any]:
    """Return the document as plain objects, `schema` first. A figure that could not be taken is None (null). `later`:
    the verdicts since the fit."""
    return {
        "schema": FIT_SCHEMA,
        "bundle": run.bundle,
        "verified": run.verified,
        "proof": run.proof.value,
        "monitors": monitor_proof.document(monitor_proof.verdicts_of(run, later)),
        "degraded": [
            {"name": call.name, "arguments": call.arguments, "error": call.error, "count": call.count}
            for call in run.degraded
        ],
        "absent": [
            {
                "name": one.call.name,
                "arguments": one.call.arguments,
                "error": one.call.error,
                "count": one.call.count,
                "id": one.id,
                "reason": one.reason,
            }
            for one in run.absent
        ],
        "repairs": repairs(run),
        "symbols": {
            **{cause.value: number for cause, number in counts(run.plan.symbols).items()},
            "total_y": run.plan.total_y,
        },
        "unexplained": len(run.unexplained),
        "baseline": _side(run.baseline),
        "tailored": _side(run.tailored),
        "margin": margin_prices.document(run),
        "lacks": margin_prices.lacks_document(run),
        "kernel": _kernel(run.found_kernel),
        "waterfall": ledger_waterfall.document(run),
        "units": _units(run.units),
        "tuned": tuned_changes.document(run),
    }


def _kernel(found: FoundKernel | None) -> dict[str, Any] | None:
    """Return the origin of the kernel: its name in the cache, and the images that it serves."""
    if found is None:
        return None
    return {"cached": found.cached, "made_for": found.made_for, "serves": found.serves, "digest": found.digest}


def _units(found: UnitChoice | None) -> dict[str, Any] | None:
    """Return the decisions about a system's units."""
    if found is None:
        return None
    rows = [
        {"name": one.name, "fate": one.fate.value, "reason": one.reason, "start_s": one.start_s} for one in found.units
    ]
    return {"mode": found.mode.value, "whole": not found.cut, "units": rows}


def repairs(run: FitRun) -> int:
    """Count the trials that put something back."""
    return sum(1 for trial in run.trials if trial.purpose is Purpose.REPAIR)


def _side(side: Side) -> dict[str, Any]:
    return {
        "symbols_y": side.symbols_y,
        "symbols_prompted": side.symbols_prompted,
        "kernel_bytes": side.kernel_bytes,
        "init_instructions": side.init_instructions,
        "init_instructions_net": side.init_instructions_net,
        "ready_instructions": side.ready_instructions,
        "init_virtual_us": side.init_virtual_us,
        "ready_virtual_us": side.ready_virtual_us,
        "device_accesses": side.device_accesses,
        "device_accesses_net": side.device_accesses_net,
        "request_kernel_instructions": side.request_kernel_instructions,
        "min_memory_bytes": side.min_memory_bytes,
        "memory": None if side.memory is None else {part.name: part.bytes for part in side.memory.parts},
        "init_wall_us": side.init_wall_us,
        "unmeasured": figure_rows.missing_of(side),
    }
