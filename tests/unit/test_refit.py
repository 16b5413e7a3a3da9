# SPDX-License-Identifier: Apache-2.0
"""`refit`: what is taken of a bundle that may be a stranger's, and what differs between two plans."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.bundle_data import EXERCISE, bundle, trace_record, write_bundle
from tests.fakes.fit_run_data import fit_run
from tests.fakes.started import Start

from vmtailor.analysis.changes import plan_summary
from vmtailor.analysis.demands.demand import Demand
from vmtailor.analysis.demands.refusals import Refused
from vmtailor.base.cache.store import Store
from vmtailor.base.errors import UserInputError
from vmtailor.base.files import records
from vmtailor.base.terminal import TerminalConsole
from vmtailor.cli import refit as refit_verb
from vmtailor.cli.fit_record import TraceLines
from vmtailor.cli.tables import refused_table
from vmtailor.drivers.host import bundle_folder
from vmtailor.drivers.host.bundle_folder import seal
from vmtailor.model.change import Cause, Change, ChangeKind, Reason, Setting, symbol
from vmtailor.model.evidence import Evidence, EvidenceKind, Strength
from vmtailor.model.exercise import StepKind
from vmtailor.model.image import Image, ImageConfig
from vmtailor.model.syscalls import ObservedCall, ObservedRun
from vmtailor.model.trace import ModuleRequest
from vmtailor.pipeline import second_fit
from vmtailor.pipeline.options import FitOptions
from vmtailor.pipeline.run_watch import WatchedRun
from vmtailor.pipeline.second_fit import RefitRequest
from vmtailor.stages import image_fetch as image_stage
from vmtailor.stages.image_fetch import kept_for

pytestmark = pytest.mark.usefixtures("own_cache")

CALL = ObservedCall("flock", ("3</x>", "LOCK_EX"), "/x, LOCK_EX", "ENOSYS", 4, "sh", "")
SEEN = ObservedRun("oci:x", "sha256:0", "6.12.7", "5a" * 32, (CALL,))
EVIL = "\x1b[31mred\x1b[0m\r\n[bold]x\u202e"


def reason(text: str = "why") -> Reason:
    return Reason(Cause.DEMANDED, "observed:1", text)


class Reached(Exception):
    """What a refit was about to begin with."""

    def __init__(self, options: FitOptions, exercise: Any) -> None:
        self.options, self.exercise = options, exercise


@pytest.fixture
def reaches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Image, kernel and source are there; the inputs are as far as a refit gets."""

    def assembled(options: FitOptions, image: Image, exercise: Any, kernel: Any, source: Any) -> None:
        raise Reached(options, exercise)

    image = Image("oci:x", "sha256:0", ImageConfig("amd64"), "a", "", 0, 0)
    monkeypatch.setattr(image_stage, "kept_for", lambda files, store: image)
    monkeypatch.setattr(second_fit, "_kernel", lambda loaded, trace, options: (None, None))
    monkeypatch.setattr(second_fit, "assembled", assembled)


def begins_with(folder: Path, **more: Any) -> Reached:
    options = FitOptions("", folder.with_name("out"), **more.pop("options", {}))
    with pytest.raises(Reached) as caught, second_fit.prepare(RefitRequest(folder, options, **more)):
        pass
    return caught.value


@pytest.mark.attack
@pytest.mark.usefixtures("reaches")
def test_programs_of_the_host_that_a_bundle_names_are_left_out(tmp_path: Path) -> None:
    made = write_bundle(tmp_path / "b")
    kinds = {step.kind for step in begins_with(made).exercise.load}
    assert kinds == {StepKind.HTTP, StepKind.TCP}
    assert begins_with(made, trust_host_commands=True).exercise == EXERCISE


@pytest.mark.usefixtures("reaches")
def test_what_the_bundle_was_fitted_with_stands(tmp_path: Path) -> None:
    made = write_bundle(tmp_path / "b", memory_bytes=48 << 20, privileged=True)
    plan = fit_run().plan
    kept = symbol("SYSVIPC", "y", Reason(Cause.POLICY, "user:keep", "the user keeps it"))
    dropped = symbol("AIO", "n", Reason(Cause.POLICY, "user:drop", "the user drops it"), before="y")
    changes = [change for change in plan.changes if change.id not in ("SYSVIPC", "AIO")]
    records.save(replace(plan, changes=(*changes, kept, dropped)), made / "plan.json")
    seal(made, bundle(memory_bytes=48 << 20, privileged=True))
    found = begins_with(made, options={"keep": ("EPOLL",)}).options
    assert (found.keep, found.drop) == (("SYSVIPC=y", "EPOLL"), ("AIO",))
    assert (found.memory_bytes, found.privileged, found.machine) == (48 << 20, True, "microvm")
    other = begins_with(made, options={"keep": ("AIO",), "drop": ("CONFIG_SYSVIPC",)}).options
    assert (other.keep, other.drop) == (("AIO",), ("CONFIG_SYSVIPC",))


@pytest.mark.attack
@pytest.mark.parametrize(
    ("written", "says"),
    [
        (records.to_bytes(replace(SEEN, image_digest="sha256:1", image_reference=EVIL)), "another image"),
        (b"{}", "schema"), (b'{"schema": "vmtailor/observed/1"}', "damaged"), (b"\xff", "damaged"),
        (None, "no such file"),
    ],
)  # fmt: skip
def test_what_was_seen_elsewhere_is_refused(tmp_path: Path, start: Start, written: bytes | None, says: str) -> None:
    file = tmp_path / "o.json"
    if written is not None:
        file.write_bytes(written)
    code, out, err = start("refit", write_bundle(tmp_path / "b"), "--observed", file, "--dry-run")
    assert (code, out) == (2, "") and says in err and "\x1b[31mred" not in err and "\u202e" not in err


def test_an_image_that_is_gone_is_named(tmp_path: Path, start: Start) -> None:
    code, _, err = start("refit", write_bundle(tmp_path / "b"), "--dry-run")
    assert code == 2 and "not in the cache" in err


@pytest.mark.attack
def test_an_image_is_taken_by_its_digest_from_the_cache_only(tmp_path: Path) -> None:
    """The bundle's record of its image is the author's word: neither its path nor its name is followed."""
    store, key = Store(), "ab" * 20
    kept = Image("oci:x", "sha256:0", ImageConfig("amd64"), "flat.tar", "77", 1, 1)
    for archive, digest, found in (
        (f"/elsewhere/{key}/flat.tar", "sha256:0", True),
        (f"/elsewhere/{key}/flat.tar", "sha256:1", False),
        ("/elsewhere/../../x/flat.tar", "sha256:0", False),
        ("/etc/passwd", "sha256:0", False),
    ):
        folder = tmp_path / digest.replace(":", "") / archive.replace("/", "_")
        made = write_bundle(folder)
        records.save(replace(kept, archive=archive), made / "image.json")
        seal(made, bundle(image_digest=digest))
        if not store.has("image", key):
            store.get("image", key, lambda into: records.save(kept, into / "image.json"))
        image = kept_for(bundle_folder.load(made, store), store)
        assert (image is not None) is found
        assert image is None or Path(image.archive) == (store.path("image", key) / "flat.tar").absolute()


@pytest.mark.attack
@pytest.mark.usefixtures("reaches")
def test_modules_of_a_trace_have_names_that_modules_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(second_fit, "assembled", lambda *given: None)
    trace = trace_record(modules_requested=(ModuleRequest("x", "x", "../../etc/x"),))
    made = write_bundle(tmp_path / "b", trace=trace)
    request = RefitRequest(made, FitOptions("", tmp_path / "out"))
    with pytest.raises(UserInputError, match="module"), second_fit.prepare(request):
        pass


def test_a_reason_quotes_what_was_seen(tmp_path: Path) -> None:
    lines = TraceLines(tmp_path)
    assert lines.quote("observed:1") is None
    records.save(SEEN, tmp_path / "observed.json")
    assert lines.quote("observed:1") == "flock(3</x>, LOCK_EX) = -1 ENOSYS (sh, 4 times)"
    assert lines.quote("observed:2") is None and lines.quote("observed:0") is None


# ---- the difference


def plan_of(values: Mapping[str, str], *words: str) -> Any:
    changes = tuple(symbol(name, value, reason(), before="y") for name, value in values.items())
    said = tuple(Change(word, "", (Setting(ChangeKind.COMMAND_LINE, word, ""),), (reason(),)) for word in words)
    return replace(fit_run().plan, changes=(*changes, *said), prompted_y=len(values))


def test_the_difference_of_two_plans() -> None:
    before = plan_of({"A": "y", "B": "y", "C": "n", "LOG": "12"}, "quiet", "old")
    after = plan_of({"A": "y", "B": "n", "C": "y", "LOG": "14"}, "quiet", "new")
    found = plan_summary.between(before, after)
    assert [c.id for c in found.comes] == ["C"] and [c.id for c in found.goes] == ["B"]
    assert [(one.name, one.before, one.after.value) for one in found.altered] == [("LOG", "12", "14")]
    assert [w.id for w in found.words_come] == ["new"] and [w.id for w in found.words_go] == ["old"]
    assert found and not plan_summary.between(before, before)


@pytest.mark.attack
def test_a_strangers_plan_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    before = plan_of({EVIL: "y"}, EVIL)
    after = replace(plan_of({"C": "y"}), changes=(symbol("C", "y", reason(EVIL)),))
    prepared = second_fit.Replanned(None, before, after, None, (), ())  # type: ignore[arg-type]
    refit_verb.show(prepared, TerminalConsole())
    json.dumps(refit_verb.document(prepared))
    said = capsys.readouterr().out
    assert "red" in said and "\x1b[31m" not in said and "\r" not in said and "\u202e" not in said


@pytest.mark.attack
def test_what_a_guest_says_cannot_steer_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call = ObservedCall(EVIL, (EVIL,), EVIL * 200, EVIL, 7, EVIL, EVIL)
    evidence = Evidence(EvidenceKind.SYSCALL, EVIL, Strength.DEMANDED, "observed:1")
    many = (Refused(call, (Demand(evidence, ("FLOCK",), EVIL),)), *(Refused(call, ()),) * 9000)
    refused_table.show(WatchedRun(replace(SEEN, untold=3, whole=False), many, False), tmp_path, None)
    said = capsys.readouterr().err
    assert "FLOCK" in said and "--keep FLOCK" in said and "more" in said
    assert "\x1b" not in said and "\r" not in said and "\u202e" not in said
    assert len(said) < 100_000
