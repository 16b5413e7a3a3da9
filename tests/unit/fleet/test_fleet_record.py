# SPDX-License-Identifier: Apache-2.0
"""The record of a fleet, its page, and what a second run of the command leaves."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from vmtailor import __version__
from vmtailor.base.errors import UserInputError
from vmtailor.base.files import records
from vmtailor.fleet.cli import fleet_view
from vmtailor.fleet.cli.fleet_view import FleetView
from vmtailor.fleet.model.entry import FleetEntry
from vmtailor.fleet.model.fleet_record import LOGS, RECORD, FleetImage, FleetRecord, ImageStanding, PartRun
from vmtailor.fleet.model.orders import Job, Order, RunOutcome, TaskAnswer
from vmtailor.fleet.pages import fleet_page
from vmtailor.fleet.run import entry_fit, fleet_folder, login
from vmtailor.fleet.run.fleet_folder import FleetFolder
from vmtailor.fleet.run.graph import SINGLE, Graph
from vmtailor.fleet.run.task_runner import Hidden
from vmtailor.model.fit_part import FitPart
from vmtailor.model.margin import Margin

ENTRY = FleetEntry("web", "docker://web")


def image(name: str, standing: ImageStanding = ImageStanding.DONE, **more: object) -> FleetImage:
    return FleetImage(FleetEntry(name, f"docker://{name}"), standing, **more)  # type: ignore[arg-type]


def record_of(*images: FleetImage) -> FleetRecord:
    return FleetRecord("list.toml", __version__, "tools", images)


def bundle_in(folder: Path, name: str) -> None:
    (folder / name).mkdir(parents=True)
    (folder / name / "bundle.json").write_text("{}")


def test_the_record_comes_back_as_it_was(tmp_path: Path) -> None:
    one = record_of(image("a", parts=(PartRun("trace", 1.5, "w"),), figures=(("symbols", 3),)), image("b"))
    records.save(one, tmp_path / RECORD)
    assert fleet_folder.read(tmp_path) == one
    assert fleet_folder.required(tmp_path) == one
    assert one.named("b") == one.images[1]
    assert one.named("c") is None
    assert one.all_done


def test_orders_and_answers_come_back_as_they_were() -> None:
    order = Order(Job.FIT, FitPart.KERNEL, ENTRY, out="/x", command="vmtailor fleet", limit_s=3.0)
    assert records.from_bytes(Order, records.to_bytes(order)) == order
    answer = TaskAnswer(
        RunOutcome.DONE, ((FitPart.KERNEL, "k"),), (FitPart.MEASURE,), True, (("symbols", 1),), "s", "h", "l", 1.0
    )
    assert records.from_bytes(TaskAnswer, records.to_bytes(answer)) == answer


def test_the_same_command_again_works_on_what_is_left(tmp_path: Path) -> None:
    for name in ("done", "other", "failed"):
        bundle_in(tmp_path, name)
    known = record_of(
        image("done"),
        image("other"),
        image("failed", ImageStanding.FAILED),
        image("waiting", ImageStanding.WAITING),
        image("gone"),
    )
    entries = [one.entry for one in known.images]
    entries[1] = replace(entries[1], priority=2)

    def kept(**more: object) -> list[str]:
        found = fleet_folder.kept_images(entries, known, tmp_path, **{"tools": "tools", **more})  # type: ignore[arg-type]
        return [one.entry.name for one in found]

    assert kept() == ["done"]
    assert kept(tools="others") == []
    assert kept(failed_only=True) == ["done", "other", "waiting", "gone"]
    assert fleet_folder.kept_images(entries, None, tmp_path, "tools") == []


def test_a_folder_of_something_else_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserInputError, match="is not empty"):
        fleet_folder.begun(tmp_path)
    with pytest.raises(UserInputError, match="is no folder"):
        fleet_folder.begun(tmp_path / "file")
    with pytest.raises(UserInputError, match="is not the folder of a fleet"):
        fleet_folder.required(tmp_path)
    assert fleet_folder.begun(tmp_path / "new" / "one").is_dir()


def test_a_failure_is_on_record_with_the_end_of_its_log(tmp_path: Path) -> None:
    work = Graph([ENTRY, FleetEntry("other", "docker://other")])
    folder = FleetFolder(tmp_path, "list", "tools", [], work)
    task = work.next_for("w", ["w"], 0.0)
    assert task is not None
    work.ended(task, TaskAnswer(RunOutcome.FAILED, says="not there", hint="look", log="its last words"))
    folder.save(now=True)
    found = fleet_folder.required(tmp_path).images[0]
    assert (found.standing, found.failed_in, found.says) == (ImageStanding.FAILED, "prepare", "not there")
    assert (tmp_path / found.log).read_text() == "its last words"
    assert found.log == f"{LOGS}/web-prepare.log"


def test_a_verdict_goes_into_the_record_of_the_fit(tmp_path: Path) -> None:
    before = record_of(image("web", kernel="k"), image("other", kernel="k"))
    work = Graph([one.entry for one in before.images], SINGLE)
    folder = FleetFolder(tmp_path, "list", "tools", [], work, before)
    for verified in (True, False):
        task = work.next_for("w", ["w"], 0.0)
        assert task is not None
        work.ended(task, TaskAnswer(RunOutcome.DONE, verified=verified, says="" if verified else "it crashed"))
    found = folder.record()
    assert [one.verified_again for one in found.images] == [True, False]
    assert [one.kernel for one in found.images] == ["k", "k"]
    assert found.images[1].says == "it crashed"
    assert not found.all_done


def test_the_page_has_images_kernels_and_failures_and_takes_them_as_text(tmp_path: Path) -> None:
    bundle_in(tmp_path, "a")
    (tmp_path / "a" / "report.html").write_text("")
    known = record_of(
        image("a", kernel="k" * 64, figures=(("kernel_bytes", 5_000_000), ("init_instructions", 12_000_000))),
        image("b", kernel="k" * 64),
        image("<bad>", ImageStanding.FAILED, failed_in="trace", says="<script>", hint="look", log="logs/x"),
    )
    page = fleet_page.page(known, tmp_path)
    assert '<a href="a/report.html">a</a>' in page
    assert "a, b" in page
    assert "&lt;script&gt;" in page
    assert "<bad>" not in page
    assert "1 of 3 images" not in page
    assert "2 of 3 images have a machine that works" in page
    assert fleet_page.write(known, tmp_path).read_text() == page


def test_the_view_says_what_ends_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    work, view = Graph([ENTRY]), FleetView(live=False)
    view.show(work, (), record_of(image("web", ImageStanding.WAITING)))
    view.show(work, (), record_of(image("web", ImageStanding.FAILED, says="not there")))
    said = capsys.readouterr().err
    assert "0 of 1 image done; 0 tasks running on 0 slots, 1 waiting" in said
    assert "✗ web: not there" in said
    FleetView(live=True).show(work, (), record_of(image("web", ImageStanding.WAITING)))
    assert "1 waiting" in capsys.readouterr().err


def test_the_table_of_a_fleet_has_a_row_for_each_image() -> None:
    assert fleet_view.table(record_of(image("a"), image("b", ImageStanding.FAILED))).row_count == 2


def test_an_entry_asks_for_what_it_names_alone(tmp_path: Path) -> None:
    found = entry_fit.options_of(Order(Job.FIT, FitPart.TRACE, ENTRY), tmp_path, None)
    assert found.asked == frozenset({"reference"})
    assert (found.reference, found.margins, found.memory_asked) == ("docker://web", None, False)
    entry = replace(
        ENTRY, exercise="x = 1\n", margins=(), memory_bytes=1 << 28, kernel="6.1", keep=("A=y",), cmd=("run",)
    )
    found = entry_fit.options_of(
        Order(Job.FIT, FitPart.SEAL, entry, out="/o", command="c"), tmp_path, tmp_path / "auth"
    )
    assert (found.margins, found.memory_bytes, found.kernel, found.cmd) == ((), 1 << 28, "6.1", ("run",))
    assert (found.out, found.command, found.authfile) == (Path("/o"), "c", tmp_path / "auth")
    assert found.exercise_file is not None
    assert found.exercise_file.read_text() == "x = 1\n"
    with_margin = entry_fit.options_of(
        Order(Job.FIT, FitPart.PLAN, replace(ENTRY, margins=(Margin.SERVER,))), tmp_path, None
    )
    assert with_margin.margins == (Margin.SERVER,)


def test_credentials_are_passed_on_and_each_secret_in_them_is_known(tmp_path: Path) -> None:
    file = tmp_path / "auth.json"
    file.write_text(json.dumps({"auths": {"r": {"auth": "dXNlcjpjYW5hcnk5OQ=="}}}))
    found = login.read(file)
    assert Hidden("canary99") in found.secrets
    assert Hidden("dXNlcjpjYW5hcnk5OQ==") in found.secrets
    assert found.login == Hidden(file.read_text())
    assert "canary99" not in repr(found)
    file.write_text("[]")
    with pytest.raises(UserInputError, match="holds no credentials"):
        login.read(file)
    assert login.read(None).login is None
