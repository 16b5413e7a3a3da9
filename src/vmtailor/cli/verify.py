# SPDX-License-Identifier: Apache-2.0
"""`vmtailor verify`: what is in a bundle, or in a work folder, proven again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import msgspec

from vmtailor.base import output
from vmtailor.base.errors import AnswerNo
from vmtailor.base.words.text import plural
from vmtailor.model.exercise import Proof
from vmtailor.model.option_rows import JSON
from vmtailor.model.trial import Verification
from vmtailor.pipeline import reverify
from vmtailor.pipeline.reverify import VerifyRequest
from vmtailor.pipeline.systems import reverifying
from vmtailor.pipeline.systems.running import is_system
from vmtailor.pipeline.work_folder import resuming
from vmtailor.pipeline.work_folder.content import is_work_folder


@dataclass(frozen=True)
class _Verdict:
    """What was found, and the words for it. `works`, `fails`: the ends of sentences; `hint` where it fails."""

    found: Verification
    proof: Proof
    works: str
    fails: str
    hint: str


def verify(request: VerifyRequest, json: Annotated[bool, JSON] = False) -> None:
    """Repeat the verification of a bundle, here: the exercise, compared with the trace that is in it. In a work folder,
    verify the kernel that was built there. Of a system, on its own disk or another one."""
    bundle = request.bundle
    verdict = _system(request) if not is_work_folder(bundle) and is_system(bundle) else _container(request)
    found = verdict.found
    for one in found.absent:
        output.note(f"absent, and harmless: {one.call.name}({one.call.arguments}): {one.reason}")
    without = _without(found.skipped, asked=request.trust_host_commands or request.exercise is not None)
    if json:
        document = {
            "schema": found.SCHEMA,
            "verified": found.passed,
            "proof": verdict.proof.value,
            **msgspec.to_builtins(found),
        }
        output.document(document)
    elif found.passed:
        output.say(f"{verdict.proof.headline}: {verdict.works}{without}")
    if not found.passed:
        raise AnswerNo(f"{verdict.fails}{without}", hint=verdict.hint, details=found.evidence)


def _container(request: VerifyRequest) -> _Verdict:
    """The container of a bundle or a work folder."""
    bundle = request.bundle
    working = is_work_folder(bundle)
    prepared = resuming.prepare_verify(request) if working else reverify.prepare(request)
    _tell(prepared.runs)
    found = resuming.verify(prepared) if working else reverify.verify_prepared(prepared)
    proof = prepared.exercise.proof
    does = "works" if proof in (Proof.LOAD, Proof.ENDED) else "starts"
    hint = "vmtailor plan --keep SYMBOL keeps what it lacks" if working else "fit the image again"
    return _Verdict(
        found, proof, f"the container {does} in {bundle}, no call newly fails",
        f"the container does not work in {bundle}", hint,
    )  # fmt: skip


def _system(request: VerifyRequest) -> _Verdict:
    """The system of a bundle, on its own disk or another one."""
    prepared = reverifying.prepare(request)
    _tell(prepared.runs)
    if prepared.clock is not request.clock:
        output.note("on the wall clock: programs of this host drive the system")
    found = reverifying.verify_prepared(prepared)
    where = f"{request.bundle}" if request.disk is None else f"{request.bundle} on the disk {request.disk}"
    hint = f"vmtailor explain {request.bundle} --failure 'MESSAGE' names the symbol; or fit the system again"
    return _Verdict(
        found, prepared.exercise.inside().proof, f"the system works in {where}, nothing newly fails",
        f"the system does not work in {where}", hint,
    )  # fmt: skip


def _tell(runs: tuple[str, ...]) -> None:
    for command in runs:
        output.note(f"will be run on this host: {command}")


def _without(skipped: tuple[str, ...], asked: bool) -> str:
    """What a verdict is without, for its end. `asked`: the user wanted it."""
    if not skipped:
        return ""
    way = "the machine publishes no port" if asked else "--exercise FILE or --trust-host-commands runs them"
    programs = plural(len(skipped), "program")
    return f"; without {programs} that the bundle would run on this host: {'; '.join(skipped)} ({way})"
