# SPDX-License-Identifier: Apache-2.0
"""`explain --failure` with lines of a kernel's log: the option and the file that printed each; errors of programs keep
their answers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from vmtailor.analysis.explain.failure import MOST_CHARACTERS, Recognised
from vmtailor.analysis.explain.kernel_lines import PrintedBy, decides, printed_lines
from vmtailor.analysis.explain.lookup import Question
from vmtailor.analysis.explain.presence import AskedKernel, Presence
from vmtailor.base.terminal import TerminalConsole
from vmtailor.cli import explain as verb
from vmtailor.cli import main
from vmtailor.cli.tables.finding_view import LookupAnswer, document, show

DATA = Path(__file__).parents[1] / "data/boot"
NOTHING = Recognised("")


@pytest.mark.parametrize(
    ("message", "option", "source"),
    [
        ("[    1.2] Btrfs loaded, zoned=no", "BTRFS_FS", "fs/btrfs/super.c"),
        ("fuse: init (API version 7.41)", "FUSE_FS", "fs/fuse/inode.c"),
        ("<6>[    2.000001] loop: module loaded", "BLK_DEV_LOOP", "drivers/block/loop.c"),
        ("Nov 29 12:01:02 host kernel: PPP generic driver version 2.4.2", "PPP", "drivers/net/ppp/ppp_generic.c"),
    ],
)
def test_a_line_of_a_kernel_names_its_option_and_file(message: str, option: str, source: str) -> None:
    (found,) = printed_lines(message)
    assert (found.options, found.source) == ((option,), source)
    assert decides((found,), NOTHING)


def test_a_log_that_only_sets_things_up_is_no_failure() -> None:
    """A rule for messages of programs knows `TUN/TAP`, and would answer for the whole log."""
    lines = printed_lines((DATA / "microvm-probes.txt").read_text())
    assert [one.options[0] for one in lines if one.options][-1] == "TUN" and len(lines) == 13
    assert decides(lines, Recognised("tun", "says", (Question("path", "/dev/net/tun"),)))


def test_what_is_recognised_as_a_failure_keeps_its_answer() -> None:
    mounted = PrintedBy("EXT4-fs (vda): no", ("EXT4_FS",), "fs/ext4/super.c", stamped=True)
    asked = Recognised("fs", "says", (Question("filesystem", "ext4"),))
    assert not decides((mounted,), asked)  # a kind of message asks for something
    assert not decides((mounted,), Recognised("error", error="ENODEV"))  # an error of a program
    assert decides(
        (mounted,), Recognised("error", asks=(Question("word", "EXT4"),), sure=False)
    )  # a word, with a stamp
    assert not decides((), NOTHING)
    panic = PrintedBy("VFS: Cannot open root device", (), "init/do_mounts.c", begins=True)
    assert not decides((panic,), asked)


def answer(target: AskedKernel, bundle: str = "") -> LookupAnswer:
    return LookupAnswer(
        question="x",
        target=target,
        verdict=Presence.PRINTED,
        findings=(),
        source="6.12",
        bundle=bundle,
        printed=(PrintedBy("pps_core: registered", ("PPS",), "drivers/pps/pps.c", ("PTP_1588_CLOCK",)),),
    )


def test_a_bundle_says_whether_it_has_the_option_and_how_to_try_without(capsys: pytest.CaptureFixture[str]) -> None:
    has = answer(AskedKernel("the tailored kernel", {"PPS": "y", "PTP_1588_CLOCK": "y"}), "box")
    show(has, TerminalConsole())
    out = capsys.readouterr().out
    assert "PPS prints this line" in out and "the tailored kernel has it" in out
    assert "kept on by PTP_1588_CLOCK" in out and "vmtailor boot box --try PPS=n" in out
    lacks = document(answer(AskedKernel("the tailored kernel", {}), "box"))["printed"]
    assert lacks[0]["has"] is False and lacks[0]["try"] == ""
    assert document(answer(AskedKernel.of_source()))["printed"][0]["has"] is None


def test_without_any_source_the_index_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verb, "newest_source", lambda: None)
    done = CliRunner().invoke(main.app, ["explain", "--json", "--failure", "md: Autodetecting RAID arrays."])
    found = json.loads(done.stdout)
    assert found["verdict"] == "printed" and found["source"] == ""
    assert found["printed"][0]["options"] == ["MD_AUTODETECT"]
    done = CliRunner().invoke(main.app, ["explain", "--failure", "mount: unknown filesystem type 'cifs'"])
    assert done.exit_code != 0


@pytest.mark.attack
def test_of_many_lines_the_first_are_answered() -> None:
    lines = [f"fuse: init (API version 7.{number})" for number in range(60)]
    assert [one.line for one in printed_lines("\n".join(lines))] == lines[:40]
    assert printed_lines("x\n" * (MOST_CHARACTERS // 2) + lines[0]) == ()


@given(st.text(max_size=300))
def test_any_message_may_be_asked(message: str) -> None:
    printed_lines(message)
