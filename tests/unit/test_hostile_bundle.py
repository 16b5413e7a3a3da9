# SPDX-License-Identifier: Apache-2.0
"""A bundle made by somebody who means harm: nothing of it starts a program of the host, names a file that is not its
own, or reaches QEMU or make unchecked."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes import bundle_data
from tests.fakes.bundle_data import EXERCISE, bundle, trace_record, write_bundle

from vmtailor.analysis.compare import compare_saved, gate_document
from vmtailor.analysis.ksource import foreign
from vmtailor.analysis.ksource.kconfig import Kconfig
from vmtailor.base import natives, plain_files, records
from vmtailor.base.errors import AnswerNo, UserInputError, VmtailorError
from vmtailor.base.store import Store
from vmtailor.booting import bundle as boot_bundle
from vmtailor.cli import saved, stages
from vmtailor.drivers.host import bundle_folder, bundle_values, content
from vmtailor.drivers.kernel import kconfig_file
from vmtailor.model.bundle import RECORD, Bundle, BundleFile
from vmtailor.model.exercise import Exercise, Expect, Ready, ReadyKind, Step, StepKind
from vmtailor.model.image import ImageConfig, Port
from vmtailor.model.machine import Accelerator, Clock
from vmtailor.pipeline import bundling, rebuilding, reverify
from vmtailor.pipeline.bundles import load_bundle, machine_of
from vmtailor.stages import verify
from vmtailor.stages.verify import Target, Verification

pytestmark = pytest.mark.attack


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    return Store()


def start(folder: Path) -> None:
    """What `run` and `verify` do before QEMU is started."""
    machine_of(folder, load_bundle(folder), accelerator=Accelerator.TCG)


# ---- programs of the host


HOST_COMMAND = "sh -c 'touch /tmp/\\x1b[31mowned {port:80}'"
SAME_EXERCISE = """
[ready]
kind = "tcp"
port = 80
[[load]]
kind = "http"
port = 80
[load.expect]
status = 200
[[load]]
kind = "host-command"
argv = ["my-own-check", "{port:80}"]
[[load]]
kind = "tcp"
port = 80
"""
#: As fit reads it: where a file says nothing, the status is to be 200.
FITTED = replace(
    EXERCISE, load=(replace(EXERCISE.load[0], expect=Expect(status=200)), *EXERCISE.load[1:]), origin="exercise.toml"
)


@pytest.fixture
def verified(monkeypatch: pytest.MonkeyPatch) -> list[Target]:
    """Nothing is booted: what would have been verified."""
    seen: list[Target] = []

    def record(target: Target, *_: object) -> Verification:
        seen.append(target)
        return Verification(("wrong",) if target.image.user == "fail" else ())

    monkeypatch.setattr(verify, "verify", record)
    monkeypatch.setattr(reverify, "tools_volume", lambda store, form: Path("/tools"))
    return seen


def argvs(target: Target) -> list[tuple[str, ...]]:
    return [step.argv for step in target.exercise.load if step.kind is StepKind.HOST_COMMAND]


def test_programs_that_a_bundle_names_are_not_run_and_the_verdict_says_so(
    tmp_path: Path, verified: list[Target], capsys: pytest.CaptureFixture[str]
) -> None:
    stages.verify(write_bundle(tmp_path))
    said = capsys.readouterr()
    assert argvs(verified[0]) == [] and len(verified[0].exercise.load) == 2
    assert f"; without 1 program that the bundle would run on this host: {HOST_COMMAND} " in said.out
    assert "--trust-host-commands" in said.out and said.err == "" and "\x1b" not in said.out
    stages.verify(tmp_path, json=True)
    document = json.loads(capsys.readouterr().out)
    assert document["verified"] is True and document["skipped"] == [HOST_COMMAND]
    assert document["schema"] == "vmtailor/verification/2"
    write_bundle(tmp_path, image=ImageConfig("amd64", user="fail"))
    with pytest.raises(AnswerNo, match="without 1 program"):
        stages.verify(tmp_path)


def test_programs_that_the_user_trusts_are_named_before_they_run(
    tmp_path: Path, verified: list[Target], capsys: pytest.CaptureFixture[str]
) -> None:
    stages.verify(write_bundle(tmp_path), trust_host_commands=True)
    said = capsys.readouterr()
    assert argvs(verified[0]) == [EXERCISE.load[1].argv]
    assert said.err == f"will be run on this host: {HOST_COMMAND}\n" and "without" not in said.out


def test_a_machine_that_publishes_nothing_runs_no_programs(
    tmp_path: Path, verified: list[Target], capsys: pytest.CaptureFixture[str]
) -> None:
    stages.verify(write_bundle(tmp_path, network=False), trust_host_commands=True)
    said = capsys.readouterr()
    assert said.err == "" and "without 1 program" in said.out and "publishes no port" in said.out


def test_the_users_exercise_brings_the_users_programs(
    tmp_path: Path, verified: list[Target], capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text(SAME_EXERCISE)
    stages.verify(write_bundle(tmp_path / "bundle", FITTED), exercise=mine)
    assert argvs(verified[0]) == [("my-own-check", "{port:80}")]
    assert capsys.readouterr().err == "will be run on this host: my-own-check '{port:80}'\n"
    mine.write_text(SAME_EXERCISE.replace("200", "404"))
    with pytest.raises(UserInputError, match="asks the container other things"):
        stages.verify(tmp_path / "bundle", exercise=mine)


# ---- names and kinds of files

NAMES = (
    "/etc/passwd", "../../etc/passwd", "..", ".", "", "trace/../vmlinux", "a/b/c", "./vmlinux", "vmlinux\n",
    "vm\0linux", "\x1b[31mvmlinux", ".hidden", "-kernel", "a,b", "trace/", "x" * 200, "vmlinux ",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("part", ["kernel", "root", "system_map", "kernel_config", "files"])
def test_a_record_names_files_of_its_own_folder_only(tmp_path: Path, part: str, name: str) -> None:
    write_bundle(tmp_path)
    record = records.load(Bundle, tmp_path / RECORD)
    value: Any = (*record.files, BundleFile(name, 0, "0" * 64)) if part == "files" else name
    records.save(replace(record, **{part: value}), tmp_path / RECORD)
    for read in (load_bundle, boot_bundle.load):
        with pytest.raises(UserInputError, match="which is no plain name") as caught:
            read(tmp_path)
        assert not {"\x1b", "\n", "\0"} & set(caught.value.message)


def put(path: Path, kind: str, other: Path) -> None:
    """Something else in the place of a file."""
    path.unlink()
    if kind == "link":
        path.symlink_to(other)
    elif kind == "dangling":
        path.symlink_to(other.with_name("nothing"))
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    else:
        with socket.socket(socket.AF_UNIX) as line:
            line.bind(str(path))


@pytest.mark.parametrize("kind", ["link", "dangling", "fifo", "device", "folder", "socket"])
@pytest.mark.parametrize("name", ["vmlinux", "root.erofs", "bundle.json"])
def test_only_regular_files_are_started(tmp_path: Path, name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever its digest says: the content behind the link is the right one here."""
    monkeypatch.chdir(tmp_path)  # a socket's path is short
    folder = write_bundle(Path("b"))
    other = tmp_path / "other"
    other.write_bytes((folder / name).read_bytes())
    put(folder / name, kind, other)
    with pytest.raises(UserInputError, match="not a regular file"):
        start(folder)


@pytest.mark.parametrize("name", ["exercise.json", "config", "System.map"])
def test_only_regular_files_are_read_by_boot(tmp_path: Path, name: str) -> None:
    for kind in ("link", "fifo", "folder"):
        folder = write_bundle(tmp_path / kind)
        other = tmp_path / f"other-{kind}"
        other.write_bytes((folder / name).read_bytes())
        put(folder / name, kind, other)
        with pytest.raises(UserInputError, match="not a regular file"):
            boot_bundle.load(folder)


@pytest.mark.parametrize("name", ["exercise.json", "trace/trace.json", "trace/requests.strace"])
def test_only_regular_files_are_read_by_verify(tmp_path: Path, name: str, verified: list[Target]) -> None:
    for kind in ("link", "fifo", "folder"):
        folder = write_bundle(tmp_path / kind)
        other = tmp_path / f"other-{kind}"
        other.write_bytes((folder / name).read_bytes())
        put(folder / name, kind, other)
        with pytest.raises(UserInputError, match="not a regular file"):
            stages.verify(folder)
    assert not verified


def test_the_folder_of_the_trace_is_no_link(tmp_path: Path, verified: list[Target]) -> None:
    folder = write_bundle(tmp_path / "bundle")
    (folder / "trace").rename(tmp_path / "elsewhere")
    (folder / "trace").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserInputError, match="cannot be read"):
        stages.verify(folder)
    assert saved.TraceLines(folder).quote("trace:requests:1") is None


def test_a_trace_names_a_log_of_its_own(tmp_path: Path, verified: list[Target]) -> None:
    for name in ("../../../etc/passwd", "/etc/passwd", "../vmlinux", "\x1b[31m"):
        write_bundle(tmp_path, trace=trace_record(requests_file=name))
        with pytest.raises(UserInputError, match="says nothing of its file") as caught:
            stages.verify(tmp_path)
        assert "\x1b" not in caught.value.message
        assert saved.TraceLines(tmp_path).quote("trace:requests:1") is None
    assert not verified


def test_saved_records_are_files_of_their_own_folder(tmp_path: Path) -> None:
    """`report`, `explain`, `gate` and `compare`."""
    folder = write_bundle(tmp_path / "bundle")
    assert saved.load_run(folder) and gate_document.read(folder).metrics and compare_saved.find(folder)
    for kind in ("link", "fifo"):
        other = tmp_path / f"other-{kind}"
        other.write_bytes((write_bundle(folder) / "run.json").read_bytes())
        put(folder / "run.json", kind, other)
        with pytest.raises(UserInputError, match="not a regular file"):
            saved.load_run(folder)
        with pytest.raises(UserInputError, match="not a regular file"):
            gate_document.read(folder)
        assert compare_saved.find(folder) is None
        (folder / "run.json").unlink()
    write_bundle(folder)
    run = saved.load_run(folder)[0]
    for name in ("../vmlinux", "/etc/passwd", "link"):
        (folder / "link").unlink(missing_ok=True)
        (folder / "link").symlink_to("/etc/passwd")
        records.save(replace(run, tailored=replace(run.tailored, kernel_file=name)), folder / "run.json")
        (told,) = [text for key, text in gate_document.read(folder).facts if key == "kernel"]
        assert ("sha256:" in told) is (name == "../vmlinux")  # the one beside the record


def test_a_sparse_record_is_not_read_into_memory(tmp_path: Path) -> None:
    write_bundle(tmp_path)
    with (tmp_path / RECORD).open("r+b") as file:
        file.truncate(1 << 40)
    with pytest.raises(UserInputError, match="larger than 256 MiB"):
        load_bundle(tmp_path)


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"{", b'{"schema":"\xff"}', b'{"schema":"vmtailor/bundle/2","x":' + b"[" * 200_000, b"\0" * 64],
)
def test_a_damaged_record_is_wrong_input(tmp_path: Path, data: bytes) -> None:
    (tmp_path / RECORD).write_bytes(data)
    with pytest.raises(UserInputError):
        load_bundle(tmp_path)


def test_a_wrong_value_is_not_obeyed_by_the_terminal(tmp_path: Path) -> None:
    write_bundle(tmp_path)
    text = (tmp_path / RECORD).read_text().replace('"erofs"', '"\\u001b[31mext4"')
    (tmp_path / RECORD).write_text(text)
    with pytest.raises(UserInputError, match="is damaged") as caught:
        load_bundle(tmp_path)
    assert "\x1b" not in caught.value.message


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"machine": "microvm,accel=kvm"}, "has no machine 'microvm,accel=kvm'"),
        ({"machine": "\x1b[31mq35"}, "has no machine"),
        ({"machine": ""}, "has no machine ''"),
        ({"architecture": "../../etc/passwd"}, "no architecture '../../etc/passwd' is known"),
        ({"architecture": "x" * 10_000}, "no architecture 'xxx"),
        ({"architecture": "\x1b[31m"}, "no architecture"),
    ],
)
def test_a_machine_that_no_architecture_has_is_refused(tmp_path: Path, other: dict[str, str], words: str) -> None:
    """Both are names that are looked up; neither becomes an argument of QEMU's, or a path."""
    with pytest.raises(UserInputError) as caught:
        load_bundle(write_bundle(tmp_path, EXERCISE, None, **other))
    assert words in caught.value.message and "\x1b" not in caught.value.message
    assert len(caught.value.message) < 1000


# ---- digests


def test_a_changed_byte_is_refused_by_the_files_name(tmp_path: Path, verified: list[Target]) -> None:
    for name in ("vmlinux", "root.erofs", "exercise.json", "trace/trace.json", "trace/requests.strace"):
        folder = write_bundle(tmp_path / name.replace("/", "-"))
        stages.verify(folder)
        (folder / name).write_bytes((folder / name).read_bytes() + b" ")
        with pytest.raises(UserInputError, match=f"{name} is not the file that the bundle was made with"):
            stages.verify(folder)
    for name in ("System.map", "config", "init", "exercise.json", "plan.json", "vmlinux", "root.erofs"):
        folder = write_bundle(tmp_path / f"boot-{name}")
        data = bytearray((folder / name).read_bytes() or b"?")
        data[-1] ^= 1
        (folder / name).write_bytes(data)
        with pytest.raises(UserInputError, match=f"{name} is not the file"):
            loaded = boot_bundle.load(folder)
            _ = loaded.kernel, loaded.root, loaded.symbols, loaded.config, loaded.init_marks
            loaded.files.data("plan.json")


def test_a_file_that_the_record_does_not_list_is_not_used(tmp_path: Path) -> None:
    write_bundle(tmp_path)
    (tmp_path / "other").write_bytes(b"x")
    records.save(replace(records.load(Bundle, tmp_path / RECORD), kernel="other"), tmp_path / RECORD)
    with pytest.raises(UserInputError, match="says nothing of its file other"):
        load_bundle(tmp_path)


def test_a_bundle_of_before_there_were_digests_is_to_be_made_again(tmp_path: Path) -> None:
    write_bundle(tmp_path)
    text = (tmp_path / RECORD).read_text().replace("vmtailor/bundle/2", "vmtailor/bundle/1")
    (tmp_path / RECORD).write_text(text)
    with pytest.raises(UserInputError, match="vmtailor/bundle/1") as caught:
        load_bundle(tmp_path)
    assert caught.value.hint == "fit the image again"


def test_a_digest_is_remembered_and_a_time_that_was_set_back_deceives_nobody(
    tmp_path: Path, own_cache: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(content, "SETTLED_S", -1e9)  # as if it had lain there for long
    write_bundle(tmp_path)
    start(tmp_path)
    memos = sorted((own_cache.root / "content").iterdir())
    assert len(memos) == 2
    before = (tmp_path / "vmlinux").stat()
    reading = []
    monkeypatch.setattr(hashlib, "file_digest", lambda *_: reading.append(1))
    start(tmp_path)  # nothing is read again
    assert not reading
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(own_cache.root.parent))
    (tmp_path / "vmlinux").write_bytes(b"kerneL")
    os.utime(tmp_path / "vmlinux", ns=(before.st_atime_ns, before.st_mtime_ns))
    after = (tmp_path / "vmlinux").stat()
    assert (after.st_size, after.st_mtime_ns, after.st_ino) == (before.st_size, before.st_mtime_ns, before.st_ino)
    with pytest.raises(UserInputError, match="vmlinux is not the file"):
        start(tmp_path)


def test_a_file_that_was_just_changed_is_not_remembered(tmp_path: Path, own_cache: Store) -> None:
    start(write_bundle(tmp_path))
    assert not (own_cache.root / "content").exists()


def test_where_others_can_write_the_checked_bytes_are_what_is_started(tmp_path: Path, own_cache: Store) -> None:
    folder = write_bundle(tmp_path / "shared")
    folder.chmod(0o777)
    machine = machine_of(folder, load_bundle(folder), accelerator=Accelerator.TCG)
    assert machine.kernel is not None
    for path in (machine.kernel, machine.disks[0].path):
        assert Path(path).is_relative_to(own_cache.root) and plain_files.ours_alone(Path(path).parent, "file")
    # Exchanged after the check: what was checked is still there.
    (folder / "vmlinux").write_bytes(b"hostil")
    assert Path(machine.kernel).read_bytes() == b"kernel"
    folder.chmod(0o755)
    write_bundle(folder)
    (folder / "vmlinux").chmod(0o664)
    (folder / "vmlinux").write_bytes(b"hostil")
    for _ in range(2):  # whether the right bytes are in the cache already, or not
        with pytest.raises(UserInputError, match="vmlinux is not the file"):
            start(folder)
        shutil.rmtree(own_cache.root / "bundle-files", ignore_errors=True)


def test_a_file_exchanged_while_it_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_cache: Store) -> None:
    folder = write_bundle(tmp_path / "shared")
    folder.chmod(0o777)
    right = {one.name: one.sha256 for one in records.load(Bundle, folder / RECORD).files}
    monkeypatch.setattr(content, "sha256_of", lambda file, store: right["vmlinux"])  # it was right a moment ago
    (folder / "vmlinux").write_bytes(b"hostil")
    with pytest.raises(UserInputError, match="vmlinux is not the file"):
        start(folder)
    assert not list((own_cache.root / "bundle-files").iterdir())


def test_rights_above_a_file_count(tmp_path: Path) -> None:
    folder = write_bundle(tmp_path / "up" / "b")
    assert plain_files.ours_alone(folder, "vmlinux") and plain_files.ours_alone(folder, "trace/trace.json")
    (tmp_path / "up").chmod(0o777)
    assert not plain_files.ours_alone(folder, "vmlinux")
    (tmp_path / "up").chmod(0o777 | stat.S_ISVTX)
    assert plain_files.ours_alone(folder, "vmlinux")
    (folder / "trace").chmod(0o775)
    assert not plain_files.ours_alone(folder, "trace/trace.json") and plain_files.ours_alone(folder, "vmlinux")


def test_a_fits_bundle_is_for_its_owner_to_change_whatever_the_umask(tmp_path: Path) -> None:
    from tests.fakes.fit_run_data import fit_run

    made = write_bundle(tmp_path / "made")
    for path in (made, *made.rglob("*")):
        path.chmod(path.stat().st_mode | 0o022)
    bundling.place(made, tmp_path / "out", fit_run().command)
    start(tmp_path / "out")
    assert plain_files.ours_alone(tmp_path / "out", "trace/trace.json")
    found = records.load(Bundle, tmp_path / "out" / RECORD)
    there = {p.relative_to(tmp_path / "out").as_posix() for p in (tmp_path / "out").rglob("*") if p.is_file()}
    assert {one.name for one in found.files} == there - {RECORD, "report.html"}
    files = bundle_folder.load(tmp_path / "out")
    assert all(files.data(one.name) is not None for one in found.files)


# ---- values


@pytest.mark.parametrize(
    "values",
    [
        {"memory_bytes": 1 << 60}, {"memory_bytes": 0}, {"memory_bytes": -1}, {"memory_bytes": 4096},
        {"cpus": 0}, {"cpus": -1}, {"cpus": 1 << 40},
        {"words": ("quiet\n-device foo",)}, {"words": ("a b",)}, {"words": ("",)}, {"words": ("\x1b[31m",)},
        {"words": ("x" * 600,)}, {"words": ("x" * 100,) * 40}, {"words": ("a\0b",)}, {"words": ("ü",)},
        {"kernel_version": "6.12\n"}, {"kernel_version": "../6.12"}, {"kernel_version": ""},
        {"kernel_version": "6.12 \x1b"}, {"kernel_version": "x" * 1000},
        {"image": ImageConfig("amd64", exposed_ports=(Port(0),))},
        {"image": ImageConfig("amd64", exposed_ports=(Port(1 << 70),))},
        {"image": ImageConfig("amd64", stop_signal="SIGNOTHING")},
    ],
)  # fmt: skip
def test_a_machine_that_no_fit_makes_is_refused(tmp_path: Path, values: dict[str, Any]) -> None:
    with pytest.raises(UserInputError):
        bundle_values.require_machine(bundle(**values), tmp_path)
    try:
        write_bundle(tmp_path, **values)
    except (VmtailorError, OverflowError, ValueError):
        return  # it cannot even be written
    with pytest.raises(UserInputError):
        load_bundle(tmp_path)


@pytest.mark.parametrize("digest", ["", "0" * 63, "G" * 64, "A" * 64])
def test_a_digest_that_is_none(tmp_path: Path, digest: str) -> None:
    with pytest.raises(UserInputError, match="digest of x"):
        bundle_values.require_machine(bundle(files=(BundleFile("x", 0, digest),)), tmp_path)
    twice = (BundleFile("x", 0, "0" * 64), BundleFile("x", 0, "1" * 64))
    with pytest.raises(UserInputError, match="twice"):
        bundle_values.require_machine(bundle(files=twice), tmp_path)


def test_cpu_models() -> None:
    where = Path("trace.json")
    for model in ("max", "host", "Skylake-Client-v4", "qemu64,+avx,-x2apic,invtsc=on"):
        assert bundle_values.require_cpu_model(model, where) == model
    for model in ("", "max,", "max,vendor=\x1b[31m", "max -device x", "max,x=/etc/passwd", "max,x=on,", "-device", "?"):
        with pytest.raises(UserInputError, match="no CPU model"):
            bundle_values.require_cpu_model(model, where)


def test_the_cpu_model_of_a_trace_is_checked(tmp_path: Path, verified: list[Target]) -> None:
    write_bundle(tmp_path, trace=trace_record(cpu_model="max,file=/etc/passwd"))
    with pytest.raises(UserInputError, match="no CPU model"):
        stages.verify(tmp_path)
    assert not verified


TCP = Step(StepKind.TCP, port=80)


@pytest.mark.parametrize(
    "exercise",
    [
        Exercise("x", Ready(ReadyKind.TCP, TCP, timeout_s=1e300)),
        Exercise("x", Ready(ReadyKind.TCP, TCP, timeout_s=float("inf"))),
        Exercise("x", Ready(ReadyKind.TCP, TCP, timeout_s=float("nan"))),
        Exercise("x", Ready(ReadyKind.TCP, TCP, timeout_s=-1)),
        Exercise("x", Ready(ReadyKind.TCP, TCP), stop_timeout_s=0),
        Exercise("x", Ready(ReadyKind.TCP)),
        Exercise("x", Ready(ReadyKind.EXIT, TCP)),
        Exercise("x", Ready(ReadyKind.COMMAND, Step(StepKind.HOST_COMMAND, argv=("id",)))),
        Exercise("x", Ready(ReadyKind.EXIT), stop_signal="SIG\n"),
        Exercise("x", Ready(ReadyKind.EXIT), expect=Expect(exit_code=256)),
        Exercise("x", Ready(ReadyKind.EXIT), expect=Expect(sha256="x")),
        Exercise("x", Ready(ReadyKind.EXIT), load=(TCP,) * 10_001),
        *(
            Exercise("x", Ready(ReadyKind.EXIT), load=(step,))
            for step in (
                replace(TCP, port=0), replace(TCP, port=65536), replace(TCP, repeat=0), replace(TCP, repeat=10**9),
                Step(StepKind.HTTP, port=80, path="/ HTTP/1.1\r\nHost: evil"), Step(StepKind.HTTP, port=80, path="x"),
                Step(StepKind.HTTP, port=80, method="GET /\r\n"), Step(StepKind.COMMAND),
                Step(StepKind.COMMAND, argv=("",)),
                Step(StepKind.COMMAND, argv=("a\0b",)), replace(TCP, expect=Expect(status=1)),
                replace(TCP, expect=Expect(contains="\0")),
            )
        ),
    ],
)  # fmt: skip
def test_an_exercise_that_no_file_could_say_is_refused(tmp_path: Path, exercise: Exercise) -> None:
    with pytest.raises(UserInputError):
        bundle_values.require_exercise(exercise, tmp_path)


def test_hostile_symbols_and_inits(tmp_path: Path) -> None:
    for table in ("../x\n", "ffffffff81000000 T a b\n", "ffffffff81000000 t __initcall__kmod_x__1_2_x\x0bmark 0\n",
                  "f" * 40 + " T x\n", "ffffffff81000000 T x"):  # fmt: skip
        write_bundle(tmp_path)
        (tmp_path / "System.map").write_text(table)
        bundling.seal(tmp_path, bundle())
        with pytest.raises(UserInputError, match="no table of symbols"):
            _ = boot_bundle.load(tmp_path).symbols
    for init in (b"\x7fELF\x02\x01", b"\x7fELF\x02\x01" + b"\xff" * 200, b"\x7fELF\x02\x01" + bytes(58) + b"\xff" * 64):
        assert natives.mark_addresses(init) == {}
    real = natives.locate().init.read_bytes()
    forged = real.replace(b"vt_mark_ready\0", b"vt_mark_r \nx\0\0")
    assert forged != real and set(natives.mark_addresses(real)) - set(natives.mark_addresses(forged)) == {"ready"}


# ---- what make would read


@pytest.mark.parametrize(
    "text",
    [
        "include /etc/passwd\n", "CONFIG_NET=$(shell id)\n", "CONFIG_NET=y\rCONFIG_X=y\n", "CONFIG_NET=y \n",
        'CONFIG_X="a"b"\n', 'CONFIG_X="a\\$b"\n', 'CONFIG_X="a\n', 'CONFIG_X="a\x0bCONFIG_Y=y"\n', "CONFIG_X=\n",
        " CONFIG_X=y\n", "CONFIG_X=y\nCONFIG_X=m\n", "# CONFIG_X is  not set\n", "CONFIG_X-Y=y\n", "CONFIG_X=yes\n",
        "\ufeffCONFIG_X=y\n", "CONFIG_X=1e9\n", "# \x1b[31m\n", "CONFIG_X=y\0\n",
    ],
)  # fmt: skip
def test_a_configuration_is_read_as_kconfig_writes_it_or_not_at_all(text: str) -> None:
    with pytest.raises(UserInputError, match="config"):
        kconfig_file.parse_strictly(text.encode(), "config")


def test_what_kconfig_writes_is_read() -> None:
    text = (
        '#\n# Automatically generated file; DO NOT EDIT.\n#\nCONFIG_CC_VERSION_TEXT="gcc (Debian) 12"\nCONFIG_A=y\n'
        '# CONFIG_B is not set\nCONFIG_C=-5\nCONFIG_D=0xff\nCONFIG_E=""\nCONFIG_F="a\\"b\\\\c$d"\n'
        "\n# General\n# end of x\n"
    )
    found = kconfig_file.parse_strictly(text.encode(), "config")
    assert found == kconfig_file.parse(text)
    assert (found["F"], found["B"], found["E"]) == ('a"b\\c$d', "n", "")
    with pytest.raises(UserInputError, match="UTF-8"):
        kconfig_file.parse_strictly(b"# \xff\n", "config")


KCONFIG = """
config NET
	bool "net"
config SHIFT
	int "shift"
	default 3
config BASE
	hex "base"
	default 0x10
config INITRAMFS_SOURCE
	string "files"
	default ""
config MODULE_SIG_KEY
	string "key"
	default "certs/signing_key.pem"
config LOCALVERSION
	string "local version"
config DEFAULT_HOSTNAME
	string "host name"
	default "(none)"
config CC_VERSION_TEXT
	string
	default "gcc 12"
"""


@pytest.fixture
def kconfig(tmp_path: Path) -> Kconfig:
    (tmp_path / "Kconfig").write_text(KCONFIG)
    return Kconfig({"srctree": str(tmp_path)}, lambda command: "")


def test_harmless_values_are_taken(kconfig: Kconfig) -> None:
    values = {
        "NET": "y", "SHIFT": "17", "BASE": "0x200000", "LOCALVERSION": "-fit", "DEFAULT_HOSTNAME": "box (1)",
        "MODULE_SIG_KEY": "certs/signing_key.pem", "INITRAMFS_SOURCE": "", "CC_VERSION_TEXT": "$(shell id)",
    }  # fmt: skip
    taken = foreign.harmless(kconfig, values, "config")
    # What the tree says itself it says again: not a letter of the bundle's text is given to make.
    assert taken == {name: values[name] for name in ("NET", "SHIFT", "BASE", "LOCALVERSION", "DEFAULT_HOSTNAME")}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("INITRAMFS_SOURCE", "$(shell touch owned)"), ("INITRAMFS_SOURCE", "/etc"), ("INITRAMFS_SOURCE", "; touch x"),
        ("MODULE_SIG_KEY", "pkcs11:id=1"), ("MODULE_SIG_KEY", "/home/me/key.pem"),
        ("LOCALVERSION", "$(shell touch owned)"), ("LOCALVERSION", "`id`"), ("LOCALVERSION", "/../x"),
        ("LOCALVERSION", "-x y"), ("DEFAULT_HOSTNAME", "$(shell id)"), ("DEFAULT_HOSTNAME", "a\nb: ; id"),
        ("DEFAULT_HOSTNAME", "a\\"), ("DEFAULT_HOSTNAME", "a#b"), ("DEFAULT_HOSTNAME", '"'),
        ("NET", "$(shell id)"), ("NET", "yes"), ("NET", ""), ("SHIFT", "1;id"), ("SHIFT", "y"), ("BASE", "0xg"),
        ("BASE", "zz"), ("NO_SUCH_SYMBOL", "y"), ("\x1b[31m", "y"),
    ],
)  # fmt: skip
def test_other_values_are_wrong_input(kconfig: Kconfig, name: str, value: str) -> None:
    with pytest.raises(UserInputError, match=r"^config: ") as caught:
        foreign.harmless(kconfig, {name: value}, "config")
    assert caught.value.message.isprintable()


@pytest.mark.parametrize(
    "said",
    ["../../../../tmp/evil", "/tmp/evil", "", "5a5a", "5A" * 32, bundle_data.SOURCE_DIGEST + "/..", "..", "x" * 64],
)
def test_a_bundle_does_not_choose_whose_makefiles_are_run(tmp_path: Path, said: str) -> None:
    """The digest names a folder of the cache."""
    store = Store(tmp_path / "cache")
    (tmp_path / "cache" / "kernel-source").mkdir(parents=True)
    write_bundle(tmp_path / "b", sources=(("kernel source", f"6.12.7, {said}"),))
    loaded = boot_bundle.load(tmp_path / "b", store)
    for ask in (rebuilding.source_of, rebuilding.known):
        with pytest.raises(UserInputError, match="does not say which source"):
            ask(loaded, store)
    with pytest.raises(UserInputError, match="does not say which source"):
        rebuilding.Rebuilder(loaded, store)({"AUDIT": "y"})


def test_a_source_is_of_the_version_that_the_bundle_says(tmp_path: Path) -> None:
    store = Store(tmp_path / "cache")
    tree = store.path("kernel-source", bundle_data.SOURCE_DIGEST)
    tree.mkdir(parents=True)
    (tree / "Makefile").write_text("VERSION = 6\nPATCHLEVEL = 1\nSUBLEVEL = 7\n")
    with pytest.raises(UserInputError, match=r"is 6\.1\.7, but the kernel of .* is 6\.12\.7"):
        rebuilding.source_of(boot_bundle.load(write_bundle(tmp_path / "b"), store), store)


def test_nothing_is_asked_under_kvm_on_the_instruction_clock(tmp_path: Path) -> None:
    request = reverify.Request(write_bundle(tmp_path), Clock.INSTRUCTIONS, Accelerator.KVM)
    with pytest.raises(UserInputError, match="under TCG only"):
        reverify.prepare(request)


LINES = st.sampled_from(
    (
        "CONFIG_A=y", "# CONFIG_B is not set", 'CONFIG_C="', '"', "\\", "$(shell id)", "=", "\n", "\r", "\x0b",
        "\u2028", "\x85", "0x1f", "-7", "#", "é",
    )
)  # fmt: skip


@given(st.lists(LINES | st.text(max_size=3), max_size=12).map("".join))
def test_what_is_read_strictly_is_read_alike_by_all(text: str) -> None:
    data = text.encode("utf-8", "surrogatepass")
    try:
        found = kconfig_file.parse_strictly(data, "config")
    except UserInputError:
        return
    assert found == kconfig_file.parse(text)
    assert kconfig_file.parse_strictly(kconfig_file.render(found).encode(), "config") == found


@given(st.binary(max_size=300))
def test_any_init_has_marks_or_none(tail: bytes) -> None:
    assert set(natives.mark_addresses(b"\x7fELF\x02\x01" + tail)) <= set(natives.MARKS)
