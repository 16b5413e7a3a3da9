# SPDX-License-Identifier: Apache-2.0
"""A second start with kept orders: which starts may be kept, and what makes the long way necessary."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from vmtailor.base.cache.store import Store
from vmtailor.cli import quick_start
from vmtailor.cli.quick_start import QuickStart, plain
from vmtailor.model.option import rows_of
from vmtailor.pipeline.kept_run import KeptOptions
from vmtailor.pipeline.machine_run import RunOptions


def parts(*words: str) -> list[str] | None:
    found = plain(["run", *words])
    return None if found is None else found.parts[found.parts.index("--") + 1 :]


def test_the_options_of_a_kept_start_are_those_of_run() -> None:
    rows = (*rows_of(RunOptions), *rows_of(KeptOptions))
    known = {name: row for _, row in rows for name in (row.name, row.short) if name}
    flags = {name.replace("--no-", "--") for name in (*quick_start.FLAGS, *quick_start.DETACH)} - {"-it", "-ti"}
    values = {*quick_start.VALUES, *quick_start.NAMED_VALUES}
    assert flags | values <= known.keys()
    assert all(known[name].type is bool for name in flags)
    assert not any(known[name].type is bool for name in values)


@pytest.mark.parametrize(
    "words",
    [
        ("/b",),
        ("-i", "--rm", "/b", "sh", "-c", "x"),
        ("-e", "A=1", "--env=B=2", "-w", "/w", "--user=me", "/b"),
        ("-p", "8080:80", "-p", "0.0.0.0:53:53/udp", "/b"),
    ],
)
def test_plain_starts(words: tuple[str, ...]) -> None:
    assert parts(*words) is not None


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("-i",),
        ("-e",),
        ("-e", "=x", "/b"),
        ("-e=A=1", "/b"),
        ("--env-file", "f", "/b"),
        ("--name", "x", "/b"),
        ("-d", "--cidfile", "x", "/b"),
        ("-v", "/x:/y", "/b"),
        ("--explain-failures", "/b"),
        ("-p", "80", "/b"),  # a free port is chosen
        ("-p", "0:80", "/b"),
        ("-p", "8000-8002:80-82", "/b"),
        ("--", "/b"),
        ("/b\0", "x"),
    ],
)
def test_starts_that_go_the_long_way(words: tuple[str, ...]) -> None:
    assert parts(*words) is None


@pytest.mark.parametrize("options", [("-it",), ("-i", "-t"), ("--tty", "--interactive")])
def test_a_terminal_that_is_not_there_is_told_the_long_way(options: tuple[str, ...]) -> None:
    reader, writer = os.pipe()
    saved = os.dup(0)
    try:
        os.dup2(reader, 0)
        assert parts(*options, "/b") is None
    finally:
        os.dup2(saved, 0)
        for descriptor in (saved, reader, writer):
            os.close(descriptor)


@pytest.mark.attack
def test_what_is_kept_knows_names_of_variables_and_never_their_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OURS", "secret-2")
    found = plain(["run", "-e", "A=secret-1", "-e", "OURS", "-e", "NOT_SET", "/b"])
    assert found is not None and found.variables == ["A=secret-1", "OURS=secret-2"]
    assert "secret" not in "".join(found.parts)


def test_starts_that_differ_have_places_that_differ(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = [
        ["run", "/b"], ["run", "/c"], ["run", "/b", "x"], ["run", "-i", "/b"], ["run", "-w", "/w", "/b"],
        ["run", "-p", "1:2", "/b"], ["run", "/b", "-w", "/w"],
    ]  # fmt: skip

    def places() -> list[str]:
        return [start.path() for words in asked if (start := plain(words)) is not None]

    before = places()
    assert len(set(before)) == len(asked)
    monkeypatch.setenv("VMTAILOR_QEMU_ARM64", "/other")
    monkeypatch.chdir(tmp_path)
    assert not set(before) & set(places())
    one, other = plain(["run", "b"]), plain(["run", str(tmp_path / "b")])
    assert one is not None and other is not None and one.path() == other.path()


# --- what is kept


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A bundle's folder, as the test's user has it, whose files are old enough to be remembered."""
    made = tmp_path / "bundle"
    made.mkdir(mode=0o755)
    for name in ("supervisor", "kernel", "record"):
        (made / name).write_bytes(b"x" * 100)
    return made


class Executed(Exception):
    """The supervisor that would have been started, with its orders."""


@pytest.fixture(autouse=True)
def executed(monkeypatch: pytest.MonkeyPatch) -> None:
    def execv(path: str, argv: list[str]) -> None:
        with os.fdopen(int(argv[1]), "rb") as file:
            raise Executed(path, file.read())

    monkeypatch.setattr(os, "execv", execv)
    monkeypatch.setattr(quick_start, "SETTLED_S", 0.0)


def start() -> QuickStart:
    found = plain(["run", "-e", "A=1", "/b"])
    assert found is not None
    return found


def keep(folder: Path, holds_s: float = 60.0) -> Path:
    files = [str(folder / name) for name in ("kernel", "record")]
    quick_start.keep(start(), lambda: b"vmtailor 1\0arg x\0", files, str(folder / "supervisor"), holds_s)
    return Path(start().path())


def follows() -> bool:
    try:
        quick_start.follow(start())
    except Executed:
        return True
    return False


def test_kept_orders_are_followed_with_what_is_of_this_start(folder: Path) -> None:
    assert not follows()
    path = keep(folder)
    assert path.stat().st_mode & 0o777 == 0o600 and path.parent == Store().root / quick_start.KIND
    assert b"A=1" not in path.read_bytes()
    with pytest.raises(Executed) as caught:
        quick_start.follow(start())
    supervisor, orders = caught.value.args
    assert supervisor == str(folder / "supervisor")
    assert orders.startswith(b"vmtailor 1\0arg x\0run env A=1\0otherwise ") and orders.endswith(b"\0otherwise /b\0")


def test_a_pulled_bundles_digest_is_said_first_and_it_counts_as_used(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pulled = start()
    pulled.said, pulled.entry = "bundle docker://x@sha256:0", str(folder)
    os.utime(folder, (1, 1))
    quick_start.keep(pulled, lambda: b"vmtailor 1\0", [str(folder / "kernel")], str(folder / "supervisor"), 60.0)
    assert follows() and capfd.readouterr().err == "bundle docker://x@sha256:0\n"
    assert folder.stat().st_mtime > 1
    keep(folder)
    assert follows() and capfd.readouterr().err == ""


def touched(path: Path) -> None:
    os.utime(path, (1, 1))


def replaced(path: Path) -> None:
    path.with_suffix(".new").write_bytes(path.read_bytes())
    path.with_suffix(".new").rename(path)


def written(path: Path) -> None:
    before = path.stat()
    path.write_bytes(b"y" * 100)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # what no program can set back is the time of change


@pytest.mark.attack
@pytest.mark.parametrize("name", ["supervisor", "kernel", "record"])
@pytest.mark.parametrize("change", [touched, replaced, written, Path.unlink])
def test_a_file_that_has_changed_goes_the_long_way(folder: Path, name: str, change: object) -> None:
    keep(folder)
    assert follows()
    time.sleep(0.02)  # more than a tick of the clock of changes
    assert callable(change)
    change(folder / name)
    assert not follows()


@pytest.mark.attack
@pytest.mark.parametrize("mode", [0o775, 0o757, 0o777])
def test_a_folder_that_others_can_write_goes_the_long_way(folder: Path, mode: int) -> None:
    keep(folder)
    folder.chmod(mode)
    assert not follows()
    path = Path(start().path())
    path.unlink()
    assert not keep(folder).exists()
    folder.chmod(0o1777)  # sticky: others can remove nothing that is not theirs
    assert keep(folder).exists() and follows()


@pytest.mark.attack
def test_a_file_or_folder_of_another_user_goes_the_long_way(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(folder)
    ours = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: ours + 1)
    # Root's own files are trusted by all; the kept orders themselves must be the user's.
    assert not follows()


@pytest.mark.attack
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_kept_orders_that_others_can_touch_are_not_followed(folder: Path, mode: int) -> None:
    keep(folder).chmod(mode)
    assert not follows()


@pytest.mark.attack
def test_kept_orders_behind_a_link_are_not_followed(folder: Path, tmp_path: Path) -> None:
    path = keep(folder)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert not follows()


@pytest.mark.attack
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0",
        b"vmtailor-start 2\0",
        b"vmtailor-start 2\0" + b"9999999999\0orders\0x",
        b"vmtailor-start 1\0" + b"9999999999\0\0\0x\0orders\0x",
    ],
)
def test_kept_orders_that_are_damaged_are_not_followed(folder: Path, data: bytes) -> None:
    keep(folder).write_bytes(data)
    assert not follows()


def test_orders_hold_for_a_while_only(folder: Path) -> None:
    keep(folder, holds_s=-1.0)
    assert not follows()


def test_a_file_that_has_just_been_changed_is_not_remembered(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quick_start, "SETTLED_S", 1000.0)
    assert not keep(folder).exists()


def test_so_many_starts_are_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quick_start, "MOST_KEPT", 3)
    path = keep(folder)
    for number in range(5):
        (path.parent / f"{number}").write_bytes(b"")
        os.utime(path.parent / f"{number}", (number, number))
    keep(folder)
    assert sorted(one.name for one in path.parent.iterdir()) == sorted(["4", path.name])
