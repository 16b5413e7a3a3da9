# SPDX-License-Identifier: Apache-2.0
"""Does by the pipeline what an order asks of this host: a part of a fit, or the verification of a bundle."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vmtailor.fleet.model.orders import Job, Order, RunOutcome, TaskAnswer
from vmtailor.model.fit_run import FitRun
from vmtailor.model.machine import Clock
from vmtailor.pipeline import fit_parts, reverify
from vmtailor.pipeline.options import FitOptions
from vmtailor.pipeline.reverify import VerifyRequest

#: Failures that an answer tells, at most.
MOST_FAILURES = 3


@dataclass(frozen=True)
class Variables:
    """Variables of a container. `secret`: names of those whose values are known to this process."""

    plain: tuple[tuple[str, str], ...] = ()
    secret: tuple[str, ...] = ()


def done(order: Order, folder: Path, authfile: Path | None, variables: Variables = Variables()) -> TaskAnswer:
    """Do what is ordered. `folder`: for the exercise's file. `authfile`: credentials of registries. Raises what `fit`
    and `verify` raise."""
    if order.job is Job.VERIFY:
        return _verified(order, variables)
    options = options_of(order, folder, authfile, variables)
    end = fit_parts.do(order.part, options, place=bool(order.out))
    told = _told(end.run) if end.run is not None else TaskAnswer(RunOutcome.DONE)
    return replace(told, keys=tuple(end.keys.items()), spare=end.spare, fit_key=end.fit_key)


def options_of(
    order: Order, folder: Path, authfile: Path | None, variables: Variables = Variables()
) -> FitOptions:  # fmt: skip
    """Return the options of a fit, as the command line would make them: only what the entry names is asked for."""
    entry = order.entry
    asked: dict[str, Any] = {
        "reference": entry.pinned,
        "architecture": entry.architecture,
        "machine": entry.machine,
        "memory_bytes": entry.memory_bytes,
        "cpus": entry.cpus,
        "kernel": entry.kernel or None,
        "keep": entry.keep,
        "drop": entry.drop,
        "margins": entry.margins,
        "entrypoint": entry.entrypoint,
        "cmd": entry.cmd,
        "privileged": entry.privileged,
        "authfile": authfile,
        "boots": order.boots,
        "env": variables.plain,
        "secret_env": variables.secret,
    }
    if entry.exercise:
        asked["exercise_file"] = folder / "exercise.toml"
        asked["exercise_file"].write_text(entry.exercise)
    given = {name: value for name, value in asked.items() if value or name == "margins"}
    if entry.margins is None:
        del given["margins"]
    if order.out:
        given["out"] = Path(order.out)
    return FitOptions(
        **given, command=order.command, memory_asked=entry.memory_bytes is not None, asked=frozenset(given)
    )


def _told(run: FitRun) -> TaskAnswer:
    """Return what is told of a finished fit."""
    figures = {
        "kernel_bytes": run.tailored.kernel_bytes,
        "baseline_kernel_bytes": run.baseline.kernel_bytes,
        "init_instructions": run.tailored.init_instructions_net,
        "baseline_init_instructions": run.baseline.init_instructions_net,
        "min_memory_bytes": run.tailored.min_memory_bytes,
        "symbols": run.plan.prompted_y,
    }
    failures = run.trials[-1].failures if run.trials and not run.verified else ()
    return TaskAnswer(
        RunOutcome.DONE,
        verified=run.verified,
        figures=tuple((name, value) for name, value in figures.items() if value is not None),
        says="" if run.verified else "; ".join(failures[:MOST_FAILURES]) or "it does not work in its machine",
        hint="" if run.verified else "its report has every trial",
    )


def _verified(order: Order, variables: Variables) -> TaskAnswer:
    asked = VerifyRequest(Path(order.out), Clock.INSTRUCTIONS, env=variables.plain, secret_env=variables.secret)
    prepared = reverify.prepare(asked)
    found = reverify.verify_prepared(prepared)
    return TaskAnswer(RunOutcome.DONE, verified=found.passed, says="; ".join(found.failures[:MOST_FAILURES]))
