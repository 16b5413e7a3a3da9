# SPDX-License-Identifier: Apache-2.0
"""`run -d` and `start` the quick way: a machine is what it would be the long way, or nothing is left of it."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.started import Start
from tests.fakes.supervisor import Supervisor, made, pairs_of
from tests.unit.kept.test_kept_layer import ABLE, KERNEL, changed
from tests.unit.kept.test_kept_run import Became, bundle, no_supervisor

from vmtailor.base.files import records
from vmtailor.cli import quick_machine, run_anew
from vmtailor.cli.quick_start import plain
from vmtailor.drivers.host import machine_folders
from vmtailor.drivers.host.machine_folders import MachineFolder, MachineFolders
from vmtailor.model.kept_machine import KeptMachine, RestartPolicy, RestartWhen
from vmtailor.model.machine import Accelerator, PublishedPort
from vmtailor.pipeline import kept_start
from vmtailor.pipeline.kept_run import KeptOptions
from vmtailor.pipeline.kept_start import LikeStart
from vmtailor.pipeline.machine_run import RunOptions

__all__ = ["bundle", "no_supervisor"]  # fixtures
KEPT = KeptOptions(detach=True, name="web", labels=(("a", "b"),), restart=RestartPolicy(RestartWhen.ALWAYS))
WORDS = ["run", "-d", "--name", "web", "/b"]


class Executed(Exception):
    """The supervisor that would have been started."""

    def __init__(self, path: str, argv: list[str]) -> None:
        self.program = path
        with os.fdopen(int(argv[1]), "rb") as file:
            self.text = file.read()
        self.pairs = pairs_of(self.text.removeprefix(b"vmtailor 1\0"))


@pytest.fixture(autouse=True)
def executed(monkeypatch: pytest.MonkeyPatch) -> None:
    def execv(path: str, argv: list[str]) -> None:
        raise Executed(path, argv)

    monkeypatch.setattr(os, "execv", execv)


def long_way(bundle: Path, kept: KeptOptions = KEPT, **more: Any) -> tuple[list[tuple[str, str]], list[LikeStart]]:
    """The supervisor's orders, and what is kept of the start."""
    starts: list[LikeStart] = []
    options = RunOptions(bundle, accelerator=Accelerator.TCG, outbound=False, **more)
    with pytest.raises(Became) as caught:
        kept_start.run_kept(options, kept, keep=starts.append)
    return caught.value.pairs, starts


def kept_of(start: LikeStart) -> bytes:
    return quick_machine.template(records.to_bytes(start.record), start.note, start.make_disk, start.orders)


def quick_way(kept: bytes, name: str, *variables: str) -> list[tuple[str, str]]:
    with pytest.raises(Executed) as caught:
        quick_machine.follow(kept, "/supervise", name, list(variables), WORDS)
    assert caught.value.program == "/supervise"
    return caught.value.pairs


def apart(pairs: list[tuple[str, str]], folder: MachineFolder) -> set[tuple[str, str]]:
    """Orders without what makes machines differ."""
    return {
        (key, value.replace(folder.record.id, "ID").replace("=2", "=1")) for key, value in pairs if key != "otherwise"
    }


@pytest.mark.parametrize("config", [KERNEL, ""])
def test_both_ways_make_the_same_machine(
    bundle: Path, config: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    changed(bundle, config, ABLE)
    monkeypatch.setenv("SECRET", "s")
    ports = (PublishedPort("127.0.0.1", 18080, 80),)
    first, (start,) = long_way(bundle, env=("A=1", "B=1"), ports=ports, command=("x",))
    said = capsys.readouterr().err
    kept = kept_of(start)
    assert b"A=1" not in kept and b"B=1" not in kept  # values of variables are kept with the machine alone
    second = quick_way(kept, "other", "A=0", "A=2", "B=2")
    assert capsys.readouterr().err == said.replace("web ", "other ")
    folders = MachineFolders()
    one, other = folders.find("web"), folders.find("other")
    assert apart(first, one) == apart(second, other)
    assert [value for key, value in second if key == "otherwise"][-len(WORDS) - 2 :] == [
        "--undo", other.record.id, *WORDS,
    ]  # fmt: skip
    texts = [(folder.path / machine_folders.RECORD).read_text() for folder in (one, other)]
    both = [json.loads(text.replace('"A=2"', '"A=1"').replace('"B=2"', '"B=1"')) for text in texts]
    for document in both:
        assert document.pop("id") and document.pop("name") and document.pop("created")[-1] == "Z"
        document["env"] = [[name, value.replace("2", "1")] for name, value in document["env"]]
    assert both[0] == both[1] and len(texts[0]) == len(texts[1]) - 2
    for name in (machine_folders.RECORD, machine_folders.ORDERS, *((machine_folders.LAYER,) if config else ())):
        assert (other.path / name).stat().st_mode & 0o777 == 0o600
    orders = [(folder.path / machine_folders.ORDERS).read_bytes() for folder in (one, other)]
    assert apart(pairs_of(orders[0]), one) == apart(pairs_of(orders[1]), other)
    if other.layer is not None and one.layer is not None:
        assert other.layer.stat().st_size == one.layer.stat().st_size
    run_anew.undo(other.record.id)
    assert [folder.record.name for folder in folders.every()] == ["web"]


def test_starts_that_hold_for_no_other(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert long_way(bundle, replace(KEPT, id_file=tmp_path / "id"))[1] == []
    assert long_way(bundle, replace(KEPT, name="b2"), env_files=(tmp_path / "file",))[1] == []
    assert long_way(bundle, replace(KEPT, name="b3"), ports=(PublishedPort("127.0.0.1", 0, 80),))[1] == []


def test_a_drawn_name(bundle: Path) -> None:
    quick_way(kept_of(long_way(bundle)[1][0]), "")
    assert len(MachineFolders().every()) == 2


def test_what_cannot_be_goes_the_long_way_and_leaves_nothing(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start = long_way(changed(bundle, KERNEL, ABLE))[1][0]
    whole = kept_of(start)
    record = records.to_bytes(start.record)
    damaged = records.to_bytes(replace(start.record, id="x" * 64))
    for kept, name, variables in (
        (whole, "web", ()),  # the name is taken
        (b"", "new", ()),
        (whole.replace(b"record ", b"record x"), "new", ()),
        (quick_machine.template(damaged, "", (), start.orders), "new", ()),
        (quick_machine.template(record, "", ("/bin/false",), start.orders), "new", ()),
        (quick_machine.template(record, "", ("/nowhere",), start.orders), "new", ()),
        (whole, "new", ("A=\udc80",)),
    ):
        quick_machine.follow(kept, "/supervise", name, list(variables), WORDS)
    folders = MachineFolders()
    assert [folder.record.name for folder in folders.every()] == ["web"] and len(list(folders.names.iterdir())) == 1
    assert len(list(folders.machines.iterdir())) == 1

    def fails(path: str, argv: list[str]) -> None:
        raise OSError

    monkeypatch.setattr(os, "execv", fails)
    quick_machine.follow(whole, "/supervise", "new", [], WORDS)
    assert len(list(folders.machines.iterdir())) == 1


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("run", "-d", "/b"), ""), (("run", "--detach", "--name", "web", "/b"), "web"),
        (("run", "-d", "--name=web", "-l", "a=b", "--restart", "always", "/b", "x"), "web"), (("run", "/b"), None),
    ],
)  # fmt: skip
def test_words_that_name_a_machine(words: tuple[str, ...], name: str | None) -> None:
    found = plain(list(words))
    assert found is not None and found.name == name


@pytest.mark.parametrize("words", [("--name", "web"), ("-l", "a"), ("--restart", "no"), ("-d", "--cidfile", "x")])
def test_words_that_go_the_long_way(words: tuple[str, ...]) -> None:
    assert plain(["run", *words, "/b"]) is None


def test_the_name_is_no_part_of_what_is_kept() -> None:
    one, other, third = (plain(["run", "-d", *more, "/b"]) for more in (("--name", "x1"), ("--name", "x2"), ("--rm",)))
    assert one is not None and other is not None and third is not None
    assert one.path() == other.path() != third.path()
    assert [quick_machine.is_name(text) for text in ("web", "w", "-web", "a/b", "..", "wéb", "a" * 129, "")] == [
        True, *[False] * 7,
    ]  # fmt: skip


# --- start


@pytest.fixture
def folder(tmp_path: Path) -> MachineFolder:
    """A machine whose supervisor notes its orders, and ends with the status in a file."""
    program = tmp_path / "supervise"
    program.write_text(
        f"#!/bin/sh\ncat /proc/self/fd/$1 > {tmp_path}/orders; echo said >&2; exit $(cat {tmp_path}/status)\n"
    )
    program.chmod(0o755)
    (tmp_path / "status").write_text("0")
    found = made("web")
    orders = found.path / machine_folders.ORDERS
    orders.write_bytes(b"vmtailor 1\0arg %s/launch\0" % os.fsencode(tmp_path))
    orders.chmod(0o600)
    return found


def started(capfd: pytest.CaptureFixture[str]) -> tuple[int | None, str, str]:
    """The exit code, or None where it goes the long way."""
    try:
        quick_machine.start("web")
    except SystemExit as end:
        assert isinstance(end.code, int)
        return end.code, *capfd.readouterr()
    return None, *capfd.readouterr()


def test_start_follows_the_orders_in_the_folder(
    folder: MachineFolder, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert started(capfd) == (0, "web\n", "")
    pairs = pairs_of((tmp_path / "orders").read_bytes())
    assert pairs[1:] == [
        ("arg", f"{tmp_path}/launch"), ("state", str(folder.path)), ("runtime", str(folder.runtime)), ("detached", "1"),
    ]  # fmt: skip
    assert folder.runtime.stat().st_mode & 0o777 == 0o700


def test_start_tells_of_a_machine_that_is_not_up(
    folder: MachineFolder, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["vmtailor", "start", "web"])
    (tmp_path / "status").write_text("125")
    code, out, err = started(capfd)
    assert (code, out) == (1, "") and "web could not be started" in err and "said" in err and "inspect web" in err
    (tmp_path / "status").write_text("200")
    assert started(capfd) == (None, "", "")


def test_what_is_not_as_expected_is_started_the_long_way(
    folder: MachineFolder, capfd: pytest.CaptureFixture[str]
) -> None:
    orders = folder.path / machine_folders.ORDERS
    good = orders.read_bytes()
    with Supervisor(folder):
        assert started(capfd)[0] is None  # it runs
    for text in (b"", b"vmtailor 1\0", good[:-1], good.replace(b"arg /", b"arg ./")):
        orders.write_bytes(text)
        assert started(capfd)[0] is None
    orders.write_bytes(good)
    orders.chmod(0o644)
    assert started(capfd)[0] is None
    orders.chmod(0o600)
    records.save(replace(folder.record, remove=True), folder.path / machine_folders.RECORD, private=True)
    assert started(capfd)[0] is None
    records.save(folder.record, folder.path / machine_folders.RECORD, private=True)
    assert started(capfd)[0] == 0
    link = MachineFolders().names / "web"
    link.unlink()
    assert started(capfd)[0] is None
    link.symlink_to("../../elsewhere")
    assert started(capfd)[0] is None


def test_a_record_that_was_saved_is_read_as_any(bundle: Path) -> None:
    """It is written by another way than records are, so it is read as they are."""
    quick_way(kept_of(long_way(bundle)[1][0]), "other", "A=ü")
    path = MachineFolders().find("other").path / machine_folders.RECORD
    found = records.load(KeptMachine, path)
    assert dict(found.env)["A"] == "ü" and found.options["env"] == ["A=ü"]
    assert found.created.endswith("Z") and len(found.created) == len(machine_folders.now())


def test_a_machine_that_was_started_the_quick_way_is_listed(call: Start, bundle: Path) -> None:
    quick_way(kept_of(long_way(bundle)[1][0]), "other")
    assert "other" in call("ps", "-a")[1] and json.loads(call("inspect", "other")[1])[0]["Name"] == "/other"
