# SPDX-License-Identifier: Apache-2.0
"""`vmtailor verify`: verify a bundle or a work folder again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import msgspec

from vmtailor.base import output
from vmtailor.base.errors import AnswerNo
from vmtailor.base.text import plural
from vmtailor.base.verb_end import EndVerdict, NextCommand, VerbEnd, show_end
from vmtailor.cli.unsafe_bundle import show_patches
from vmtailor.drivers.host.bundle_folder import BundleFolder
from vmtailor.model.exercise import Proof
from vmtailor.model.option_rows import JSON
from vmtailor.pipeline import bundle_reference, monitor_choice, reverify
from vmtailor.pipeline.reverify import PreparedVerify, SavedSystem, VerifyRequest
from vmtailor.pipeline.work_files import is_work_folder
from vmtailor.stages.report import mark_of


@dataclass(frozen=True)
class _Words:
    """`works`, `fails`: the ends of sentences; `hint` where it fails."""

    works: str
    fails: str
    hint: str


def verify(request: VerifyRequest, json: Annotated[bool, JSON] = False) -> None:
    """Verify a bundle again on this host: run its exercise, and compare with its trace. In a work folder, verify the
    kernel that was built there. A system can be verified on another disk."""
    request = replace(request, bundle=bundle_reference.local(request.bundle))
    prepared = reverify.prepare(request)
    for command in prepared.subject.runs:
        output.note(f"will be run on this host: {command}")
    if isinstance(prepared.subject.files, BundleFolder):
        show_patches(prepared.subject.files.bundle)
    choice = prepared.choice
    if choice is not None:
        monitor_choice.say(choice)
    elif prepared.clock is not request.clock:
        output.note("on the wall clock: programs of this host drive the system")
    found, words = reverify.verify_prepared(prepared), _words(prepared)
    for one in found.absent:
        output.note(f"absent, and harmless: {one.call.name}({one.call.arguments}): {one.reason}")
    if found.races:
        output.note(f"said in one of two runs only, so a race decides it: {'; '.join(found.races)}")
    if found.varying:
        output.note(f"not compared, since it differs from run to run by itself: {'; '.join(found.varying)}")
    without = _without(found.skipped, asked=request.trust_host_commands or request.exercise is not None)
    if json:
        document = {
            "schema": found.SCHEMA,
            "verified": found.passed,
            "proof": prepared.subject.proof.value,
            **({"on": choice.monitor} if choice is not None else {}),
            **msgspec.to_builtins(found),
        }
        output.document(document)
    elif found.passed:
        proof = prepared.subject.proof
        show_end(
            VerbEnd(
                verdict=EndVerdict(mark_of(proof), proof.headline, f"{words.works}{without}"),
                commands=_next(request.bundle, elsewhere=choice is not None),
            )
        )
    if not found.passed:
        raise AnswerNo(f"{words.fails}{without}", hint=words.hint, details=found.evidence)


def _next(folder: Path, *, elsewhere: bool = False) -> tuple[NextCommand, ...]:
    """Return the commands after a verification that passed. `elsewhere`: on a monitor that the user chose."""
    if is_work_folder(folder):
        return (NextCommand("Measure both machines", ("vmtailor", "measure", str(folder))),)
    start = NextCommand("Start it", ("vmtailor", "run", str(folder)))
    page = NextCommand("See it beside other monitors", ("vmtailor", "report", str(folder)))
    return (start, page) if elsewhere else (start,)


def _words(prepared: PreparedVerify) -> _Words:
    """Return the words for a verdict, by what was verified."""
    request, subject = prepared.request, prepared.subject
    bundle = request.bundle
    keep = "vmtailor plan --keep SYMBOL keeps what it lacks" if is_work_folder(bundle) else ""
    if isinstance(subject, SavedSystem):
        where = f"{bundle}" if request.disk is None else f"{bundle} on the disk {request.disk}"
        return _Words(
            f"the system works in {where}, nothing newly fails", f"the system does not work in {where}",
            keep or f"vmtailor explain {bundle} --failure 'MESSAGE' names the symbol; or fit the system again",
        )  # fmt: skip
    does = "works" if subject.proof in (Proof.LOAD, Proof.ENDED) else "starts"
    where = f"{bundle}" if prepared.choice is None else f"{bundle} on {prepared.choice.words}"
    return _Words(
        f"the container {does} in {where}, no call newly fails",
        f"the container does not work in {where}",
        keep or "fit the image again",
    )


def _without(skipped: tuple[str, ...], asked: bool) -> str:
    """Return the end of a verdict, which names the programs that did not run. `asked`: the user wanted them run."""
    if not skipped:
        return ""
    way = "the machine publishes no port" if asked else "--exercise FILE or --trust-host-commands runs them"
    programs = plural(len(skipped), "program")
    return f"; without {programs} that the bundle would run on this host: {'; '.join(skipped)} ({way})"
