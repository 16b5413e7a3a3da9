# SPDX-License-Identifier: Apache-2.0
"""`run -d` and `start`: what a machine with a name is made of, and what its supervisor is told."""

from __future__ import annotations

import math
import os
import shutil
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NoReturn

import pytest
from tests.fakes.supervisor import Supervisor, made, pairs_of, running

from vmtailor.base.errors import HostError, UserInputError
from vmtailor.base.files import records
from vmtailor.booting import run_orders
from vmtailor.drivers.guest import guest_volume
from vmtailor.drivers.host import bundle_folder, machine_folders
from vmtailor.drivers.host.bundle_folder import seal
from vmtailor.drivers.host.machine_folders import MachineFolders
from vmtailor.drivers.qemu import qemu_program
from vmtailor.model.bundle import INIT, Bundle
from vmtailor.model.image import HealthCheck, Image, ImageConfig
from vmtailor.model.kept_machine import KeptMachine, RestartPolicy, RestartWhen, parse_restart
from vmtailor.model.machine import Accelerator, PublishedPort
from vmtailor.model.option import rows_of
from vmtailor.model.option_values import parse_duration, parse_streams
from vmtailor.model.plan import RootFormat
from vmtailor.pipeline import kept_run, kept_start
from vmtailor.pipeline.kept_run import KeptOptions, health_of, loaded_options, record_of, saved_options
from vmtailor.pipeline.machine_run import RunOptions

FAKE = Path(__file__).parents[2] / "fakes" / "qemu-system"
CHECK = HealthCheck(("/check",), interval_s=7.0)
CONFIG = ImageConfig(
    "amd64", entrypoint=("/x",), cmd=("y",), env=(("A", "0"), ("Z", "1")), labels=(("a", "image"), ("b", "image")),
    health_check=CHECK,
)  # fmt: skip


class Became(Exception):
    """The program would be a supervisor now."""

    def __init__(self, text: bytes) -> None:
        self.pairs = pairs_of(text.removeprefix(b"vmtailor 1\0"))

    def all(self, key: str) -> list[str]:
        return [value for name, value in self.pairs if name == key]


@pytest.fixture(autouse=True)
def no_supervisor(monkeypatch: pytest.MonkeyPatch) -> None:
    def become(text: bytes, kept: tuple[int, ...] = ()) -> NoReturn:
        raise Became(text)

    monkeypatch.setattr(run_orders, "become", become)
    monkeypatch.setenv(qemu_program.BINARY_VARIABLE, str(FAKE))


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    folder = tmp_path / "bundle"
    folder.mkdir()
    (folder / "vmlinux").write_bytes(b"x" * 512)
    (folder / "root").write_bytes(b"x" * 512)
    (folder / INIT).write_bytes(b"\x7fELF\0builtin\0")
    image = Image("oci:x", "sha256:" + "1" * 64, CONFIG, "/none", "", 1, 2)
    records.save(image, folder / "image.json")
    (folder / "config").write_text("CONFIG_PID_NS=y\n")
    record = Bundle(
        name="x", image_reference="oci:x", image_digest="sha256:" + "1" * 64, image=CONFIG, kernel="vmlinux",
        kernel_version="6.12", kernel_config="config", system_map="map", root="root", root_format=RootFormat.EROFS,
        machine="microvm", cpus=1, memory_bytes=64 << 20, network=True, words=(), sources=(),
    )  # fmt: skip
    seal(folder, record)
    return folder


def run(bundle: Path, kept: KeptOptions, **more: Any) -> Became:
    with pytest.raises(Became) as caught:
        kept_start.run_kept(RunOptions(bundle, accelerator=Accelerator.TCG, outbound=False, **more), kept)
    return caught.value


def test_a_machine_in_the_background(bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERE", "h")
    (tmp_path / "env").write_text("A=1\n")
    (tmp_path / "labels").write_text("# no label\n\nb=file\nc\n")
    kept = KeptOptions(
        detach=True, name="web", labels=(("d", "given"),), label_files=(tmp_path / "labels",), id_file=tmp_path / "id",
        restart=RestartPolicy(RestartWhen.ON_FAILURE, 3),
    )  # fmt: skip
    became = run(
        bundle, kept, env=("HERE", "NONE"), env_files=(tmp_path / "env",), ports=(PublishedPort("127.0.0.1", 0, 80),),
        command=("c d",), stop_timeout_s=2.5,
    )  # fmt: skip
    folder = MachineFolders().find("web")
    record = folder.record
    assert (tmp_path / "id").read_text() == record.id == became.all("start-print")[0]
    assert became.all("detached") == ["1"] and became.all("restart") == ["on-failure:3"]
    assert became.all("state") == [str(folder.path)] and became.all("runtime") == [str(folder.runtime)]
    assert became.all("health") == ["/check"] and became.all("health-interval-ms") == ["7000"]
    assert became.all("builtins") == ["1"] and became.all("announce") == [] and became.all("grace-ms") == ["2500"]
    assert [word for word in became.all("run") if word.startswith("env")] == ["env A=1", "env HERE=h"]
    assert record.command == ("/x", "c d") and record.labels == (
        ("a", "image"), ("b", "file"), ("c", ""), ("d", "given")
    )  # fmt: skip
    assert dict(record.env) == {"A": "1", "Z": "1", "HERE": "h"}
    assert record.ports[0].host_port > 0 and record.hostname == "1" * 12 and record.memory_bytes == 64 << 20
    assert folder.path.stat().st_mode & 0o777 == 0o700 == folder.runtime.stat().st_mode & 0o777
    orders = folder.path / machine_folders.ORDERS
    assert orders.stat().st_mode & 0o777 == 0o600 == (folder.path / machine_folders.RECORD).stat().st_mode & 0o777
    # What is kept is without what is of one start.
    kept_pairs = dict(pairs_of(orders.read_bytes().removeprefix(b"vmtailor 1\0")))
    assert not {"detached", "start-print", "state", "runtime"} & kept_pairs.keys()


def test_a_machine_with_a_name_in_the_foreground(bundle: Path) -> None:
    became = run(bundle, KeptOptions(name="web"), rm=True)
    assert became.all("detached") == [] == became.all("start-print") and became.all("state")
    assert MachineFolders().find("web").record.remove


def test_attached_streams_of_a_machine_with_a_name(bundle: Path) -> None:
    became = run(bundle, KeptOptions(name="web"), attach=("stdout",))
    assert (became.all("no-stdin"), became.all("no-stdout"), became.all("no-stderr")) == (["1"], [], ["1"])
    orders = (MachineFolders().find("web").path / machine_folders.ORDERS).read_bytes()
    assert b"no-std" not in orders  # the next start has all


@pytest.mark.parametrize(
    ("kept", "more", "joined"),
    [
        (KeptOptions(name="x"), {"terminal": True, "interactive": True}, True),
        (KeptOptions(name="x"), {"terminal": True}, False),
        (KeptOptions(name="x", detach=True), {"terminal": True, "interactive": True}, False),
        (KeptOptions(detach_keys="a"), {}, True),
        (KeptOptions(detach_keys="a", detach=True), {}, False),
        (KeptOptions(sig_proxy=False), {}, True),
        (KeptOptions(), {"attach": ("stdin",)}, True),
        (KeptOptions(name="x"), {"attach": ("stdin", "stdout")}, False),
    ],
)
def test_a_machine_that_may_be_left_is_joined(kept: KeptOptions, more: dict[str, Any], joined: bool) -> None:
    options = RunOptions(Path("/b"), **more)
    assert kept_run.is_kept(options, kept) and kept_run.is_joined(options, kept) is joined


def test_a_supervisor_that_cannot_be_joined(bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its status is the command's; the one for a file that has changed is an error of ours."""
    program = tmp_path / "supervise"
    program.write_text(f"#!/bin/sh\ncat /proc/self/fd/$1 >{tmp_path}/orders; exit $(cat {tmp_path}/status)\n")
    program.chmod(0o755)
    monkeypatch.setattr(run_orders, "program", lambda: program)
    options = RunOptions(bundle, accelerator=Accelerator.TCG, outbound=False)
    (tmp_path / "status").write_text("125")
    assert kept_start.run_kept(options, KeptOptions(detach_keys="ctrl-x")) == 125
    orders = (tmp_path / "orders").read_bytes()
    assert b"\0detached 1\0awaits 1\0" in orders and b"start-print" not in orders
    (tmp_path / "status").write_text("200")
    with pytest.raises(HostError, match="has changed while it was started"):
        kept_start.run_kept(options, KeptOptions(sig_proxy=False))
    with pytest.raises(UserInputError, match="no key is called 'f1'"):
        kept_start.run_kept(options, KeptOptions(detach_keys="f1"))


@pytest.mark.parametrize(("texts", "streams"), [(["stdin", "STDERR", "stdin"], ("stdin", "stderr")), ([], ())])
def test_streams_by_name(texts: list[str], streams: tuple[str, ...]) -> None:
    assert parse_streams(texts) == streams
    with pytest.raises(UserInputError, match="no stream is called 'all'"):
        parse_streams([*texts, "all"])


def test_what_makes_a_machine_one_that_is_kept() -> None:
    assert not KeptOptions().keeps and not KeptOptions(no_health_check=True).keeps
    assert not kept_run.is_kept(RunOptions(Path("/b"), attach=("stdout",)), KeptOptions())
    assert KeptOptions(detach=True).keeps and KeptOptions(labels=(("a", ""),)).keeps


def test_what_cannot_be_together(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "id").touch()
    always = RestartPolicy(RestartWhen.ALWAYS)
    cases: list[tuple[KeptOptions, dict[str, Any], str]] = [
        (KeptOptions(restart=always), {"rm": True}, "--rm does not go with --restart"),
        (KeptOptions(detach=True), {"attach": ("stdout",)}, "--attach does not go with --detach"),
        (KeptOptions(detach=True), {"observed": Path("x")}, "do not go with a machine that has a name"),
        (KeptOptions(id_file=tmp_path / "id"), {}, "exists already"),
        (KeptOptions(detach=True, no_health_check=True, health_retries=2), {}, "--no-healthcheck"),
        (KeptOptions(label_files=(tmp_path / "none",)), {}, "file of labels"),
    ]
    for kept, more, words in cases:
        with pytest.raises(UserInputError, match=words):
            kept_start.run_kept(RunOptions(bundle, **more), kept)
    run(bundle, KeptOptions(name="web"))
    with pytest.raises(UserInputError, match="the name 'web' is taken"):
        kept_start.run_kept(RunOptions(bundle, outbound=False), KeptOptions(name="web"))
    assert len(MachineFolders().every()) == 1


def test_an_init_of_before_checks_no_health(bundle: Path) -> None:
    (bundle / INIT).write_bytes(b"\x7fELF")
    seal(bundle, records.load(Bundle, bundle / "bundle.json"))
    became = run(bundle, KeptOptions(name="web"))
    assert became.all("health") == [] and became.all("builtins") == ["0"]
    with pytest.raises(UserInputError, match="too old for health checks"):
        kept_start.run_kept(RunOptions(bundle), KeptOptions(health_command="true"))


@pytest.mark.parametrize(
    ("kept", "image", "check"),
    [
        (KeptOptions(), CHECK, CHECK), (KeptOptions(), None, None), (KeptOptions(no_health_check=True), CHECK, None),
        (KeptOptions(health_interval_s=1.0), None, None),
        (KeptOptions(health_interval_s=1.0, health_retries=0), CHECK, HealthCheck(("/check",), interval_s=1.0)),
        (KeptOptions(health_command="a b", health_start_s=2.0), CHECK,
         HealthCheck(("/bin/sh", "-c", "a b"), interval_s=7.0, start_period_s=2.0)),
        (KeptOptions(health_command="a", health_timeout_s=3.0, health_retries=9), None,
         HealthCheck(("/bin/sh", "-c", "a"), timeout_s=3.0, retries=9)),
    ],
)  # fmt: skip
def test_health_checks(kept: KeptOptions, image: HealthCheck | None, check: HealthCheck | None) -> None:
    assert health_of(kept, image) == check


@pytest.mark.parametrize(
    ("text", "policy"),
    [("no", ""), ("", ""), ("always", ""), ("unless-stopped", ""), ("on-failure", ""), ("on-failure:12", "12")],
)
def test_restart_policies(text: str, policy: str) -> None:
    found = parse_restart(text)
    assert str(found.when) == (text.partition(":")[0] or "no") and found.most == int(policy or 0)
    assert parse_restart(str(found)) == found


@pytest.mark.parametrize(
    "text", ["never", "always:3", "on-failure:", "on-failure:x", "on-failure:-1", "on-failure:9999999"]
)
def test_restart_policies_that_are_none(text: str) -> None:
    with pytest.raises(UserInputError):
        parse_restart(text)


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30), ("1m30s", 90), ("500ms", 0.5), ("0", 0), ("1h", 3600), ("1.5s", 1.5)]
)
def test_spans_of_time(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "30", "s", "1s1m", "-1s", "1d", "1e3s"])
def test_spans_of_time_that_are_none(text: str) -> None:
    with pytest.raises(UserInputError):
        parse_duration(text)


def test_options_survive_in_a_record(bundle: Path) -> None:
    options = RunOptions(
        bundle.absolute(), command=("a", "b c"), ports=(PublishedPort("127.0.0.1", 8080, 80),), env=("A=1",), user="7",
        cwd="/srv", hostname="h", entrypoint="", interactive=True, terminal=True, stop_signal="HUP",
        stop_timeout_s=math.inf, rm=True, init=True, memory_bytes=64 << 20, cpus=1, accelerator=Accelerator.TCG,
        outbound=False, host_loopback=True, privileged=True, pid="host",
    )  # fmt: skip
    record, settled = record_of(options, KeptOptions(name="web"), bundle_folder.load(bundle))
    again = records.from_bytes(KeptMachine, records.to_bytes(record))
    assert replace(again, options={}) == replace(record, options={}) and loaded_options(again) == settled == options
    assert record.stop_timeout_s is None
    assert saved_options(RunOptions(bundle)) == {"bundle": str(bundle)}


@pytest.mark.attack
@pytest.mark.parametrize(
    "options", [{}, {"bundle": 3}, {"bundle": "x", "cpus": "many"}, {"bundle": "x", "ports": [{"host_port": {}}]}]
)
def test_a_record_that_does_not_say_how_to_start(options: dict[str, Any]) -> None:
    folder = made("web", options=options)
    with pytest.raises(UserInputError, match="the record of web is damaged"):
        loaded_options(folder.record)


# ---- start


@pytest.fixture
def supervise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A supervisor that notes its orders, and ends with the status that stands in the file `status`, a line for each
    start."""
    program = tmp_path / "supervise"
    program.write_text(
        f"#!/bin/sh\ncat /proc/self/fd/$1 >> {tmp_path}/orders; echo said >&2\n"
        f"status=$(head -n1 {tmp_path}/status); sed -i 1d {tmp_path}/status; exit ${{status:-0}}\n"
    )
    program.chmod(0o755)
    (tmp_path / "status").touch()
    monkeypatch.setattr(run_orders, "program", lambda: program)
    return tmp_path


def started(*words: str) -> list[tuple[str, str]]:
    outcomes = kept_start.start_all(words, MachineFolders())
    return [(one.word, "" if one.error is None else one.error.message) for one in outcomes]


def test_start_follows_the_orders_that_are_there(bundle: Path, supervise: Path) -> None:
    run(bundle, KeptOptions(name="web"))
    shutil.rmtree(bundle)  # nothing of it is looked at: the supervisor does
    assert started("web", "nobody") == [("web", ""), ("nobody", "no machine is called 'nobody'")]
    orders = (supervise / "orders").read_bytes()
    assert orders.endswith(b"\0detached 1\0") and b"start-print" not in orders
    with running("up"):
        assert started("up") == [("up", "")]
    assert (supervise / "orders").read_bytes() == orders


def test_start_makes_orders_anew_when_a_file_has_changed(bundle: Path, supervise: Path) -> None:
    run(bundle, KeptOptions(name="web"), env=("A=1",))
    os.utime(bundle / "vmlinux", (1, 1))
    (supervise / "status").write_text("200\n0\n")
    folder = MachineFolders().find("web")
    before = (folder.path / machine_folders.ORDERS).read_bytes()
    assert started("web") == [("web", "")]
    after = (folder.path / machine_folders.ORDERS).read_bytes()
    assert before != after and (b"run env A=1" in after)
    (supervise / "status").write_text("200\n200\n")
    assert started("web") == [("web", "web could not be started")]


def test_start_tells_why_a_machine_is_not_up(bundle: Path, supervise: Path) -> None:
    run(bundle, KeptOptions(name="web"))
    (supervise / "status").write_text("125\n")
    outcome = next(kept_start.start_all(["web"], MachineFolders()))
    assert outcome.error is not None and outcome.error.details == "said"


def test_a_bundle_that_is_another_one_is_not_started(bundle: Path, supervise: Path) -> None:
    run(bundle, KeptOptions(name="web"))
    (bundle / "vmlinux").write_bytes(b"y" * 512)
    seal(bundle, records.load(Bundle, bundle / "bundle.json"))
    (supervise / "status").write_text("200\n")
    assert "is not the one that web was made from" in started("web")[0][1]


def test_start_in_the_foreground(bundle: Path) -> None:
    run(bundle, KeptOptions(name="web"), interactive=True)
    for interactive in (True, False):
        with pytest.raises(Became) as caught:
            kept_start.start_here(MachineFolders().find("web"), interactive=interactive)
        assert caught.value.all("interactive")[-1] == str(int(interactive)) and caught.value.all("detached") == []
    folder = MachineFolders().find("web")
    with Supervisor(folder), pytest.raises(Exception, match="the machine web runs already"):
        kept_start.start_here(folder)


def test_every_option_of_a_run_is_saved_or_read() -> None:
    """A field that a record forgot would be another machine at the next start."""
    names = {one.name for one, _ in rows_of(RunOptions)}
    assert names == {one.name for one in fields(RunOptions)}
    assert kept_run.saved_options(RunOptions(Path("/b"), user="x")) == {"bundle": "/b", "user": "x"}
    assert guest_volume.can_start_further(b"a\0builtin\0") and not guest_volume.can_start_further(b"a builtin")
