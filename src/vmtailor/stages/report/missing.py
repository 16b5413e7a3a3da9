# SPDX-License-Identifier: Apache-2.0
"""Why a figure is not there, in one line: computed from what the record has, so that no figure is silent."""

from __future__ import annotations

from vmtailor.model.fit import Side

#: Figures of a side that may be None.
FIGURES = (
    "init_instructions", "init_instructions_net", "reset_instructions", "reset_instructions_net", "ready_instructions",
    "init_virtual_us", "ready_virtual_us", "device_accesses", "device_accesses_net", "request_kernel_instructions",
    "request_user_instructions", "min_memory_bytes", "memory", "init_wall_us", "ready_wall_us",
)  # fmt: skip


#: How the names of figures begin → why such a one is not there though boots were measured.
_REASONS = (
    ("request_", "not counted: the exercise gives the container no request inside the guest"),
    ("ready_", "not reached: a program that runs to its end never gets ready"),
    ("min_memory_", "not searched: no boot with less memory was tried"),
    ("memory", "not known: the guest's own account of its memory could not be read"),
    ("device_", "not counted: accesses to devices are counted by QEMU's plugin, which was not there"),
    ("", "not reached: no counted boot came so far"),
)


def why(side: Side, figure: str) -> str:
    """Why a side has no such figure; empty where it has it."""
    if getattr(side, figure) is not None:
        return ""
    if not side.boots:
        return "not measured: the tailored machine is not verified, and a figure of it would say nothing"
    return next(reason for start, reason in _REASONS if figure.startswith(start))


def of(side: Side) -> dict[str, str]:
    """Every figure that is not there → why."""
    return {figure: reason for figure in FIGURES if (reason := why(side, figure))}
