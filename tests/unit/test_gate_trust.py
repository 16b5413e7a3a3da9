# SPDX-License-Identifier: Apache-2.0
"""Answers of `gate`, `compare`, `report` and `explain` on bundles, saved boots and logs that deserve no trust."""

from __future__ import annotations

import hashlib
import io
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from tests.fakes.boot_data import series_boot
from tests.fakes.bundle_data import write_bundle
from tests.fakes.fit_run_data import fit_run
from tests.fakes.hostile_bundles import own_cache
from tests.fakes.started import Start

from vmtailor.analysis.bootlog import archive
from vmtailor.analysis.comparison import judged_document
from vmtailor.analysis.comparison.sides import saved_boots
from vmtailor.analysis.guests.machine_variants import USUAL
from vmtailor.base.files import records
from vmtailor.base.terminal import TerminalConsole
from vmtailor.cli.fit_record import TraceLines, bundle_of
from vmtailor.cli.tables import series_table
from vmtailor.drivers.host.bundle_folder import seal
from vmtailor.model.boots.boot import Outcome
from vmtailor.model.boots.series import BootSeries, Variant
from vmtailor.model.boots.workload import ReadyBy, ReadySignal
from vmtailor.model.bundle import RECORD, Bundle
from vmtailor.model.fit_run import FitRun

__all__ = ["own_cache"]
pytestmark = [pytest.mark.attack, pytest.mark.usefixtures("own_cache")]

KEPT = "init_instructions_net <= 900M"


def edited(folder: Path) -> Path:
    """Change a figure of a bundle's record by hand."""
    file = folder / "run.json"
    run = records.load(FitRun, file)
    records.save(replace(run, tailored=replace(run.tailored, init_instructions_net=1)), file)
    return folder


def test_an_edited_record_is_believed_by_no_verb(start: Start, tmp_path: Path) -> None:
    honest, folder = write_bundle(tmp_path / "honest"), edited(write_bundle(tmp_path / "bundle"))
    (tmp_path / "link.json").symlink_to(folder / "run.json")
    (tmp_path / "folder").symlink_to(folder)
    asked = [
        *(("gate", path, KEPT) for path in (folder, folder / "run.json", tmp_path / "link.json", tmp_path / "folder")),
        ("gate", honest, f"kernel_bytes <= +5% of {folder}"),
        ("compare", honest, folder),
        ("compare", folder / "run.json", honest),
        ("compare", honest, honest, "--after", folder),
        ("report", folder),
        ("report", folder / "run.json", "--json"),
        ("explain", folder),
        ("explain", folder, "NET"),
    ]
    for words in asked:
        code, out, err = start(*words)
        assert code == 2 and "run.json is not the file that the bundle was made with" in err, (words, err)
        assert "kept" not in out
    assert not (folder / "report.html").exists()
    assert start("gate", honest, KEPT)[0] == 0
    assert start("compare", honest, honest)[0] == 0


@pytest.mark.parametrize("name", ["vmlinux", "root.erofs"])
def test_figures_are_not_those_of_an_exchanged_kernel_or_root(start: Start, tmp_path: Path, name: str) -> None:
    folder = write_bundle(tmp_path)
    (folder / name).write_bytes((folder / name).read_bytes()[:-1] + b"?")
    code, out, err = start("gate", folder, KEPT)
    assert code == 2 and f"{name} is not the file" in err and "kept" not in out


def test_a_bundle_without_its_record_of_files_or_with_another_is_refused(start: Start, tmp_path: Path) -> None:
    folder = write_bundle(tmp_path)
    bundle = records.load(Bundle, folder / RECORD)
    without = tuple(one for one in bundle.files if one.name != "run.json")
    records.save(replace(bundle, files=without), folder / RECORD)
    code, _, err = start("gate", folder, KEPT)
    assert code == 2 and "lists no run.json" in err
    (folder / RECORD).write_text("{")
    assert start("gate", folder, KEPT)[0] == 2 and start("compare", folder, folder)[0] == 2


def test_a_record_that_lies_in_no_bundle_is_the_users(tmp_path: Path) -> None:
    records.save(fit_run(), tmp_path / "run.json")
    assert bundle_of(tmp_path) is None and bundle_of(tmp_path / "run.json") is None
    assert bundle_of(tmp_path / "none") is None
    found = bundle_of(write_bundle(tmp_path / "bundle") / "run.json")
    assert found is not None and found.path == tmp_path / "bundle"
    assert bundle_of(tmp_path / "bundle" / "vmlinux") is None


def test_a_changed_trace_is_not_quoted(tmp_path: Path) -> None:
    folder = write_bundle(tmp_path)
    (folder / "trace" / "requests.strace").write_text("open the door\n")
    assert TraceLines(folder).quote("trace:requests:1") is None
    seal(folder, records.load(Bundle, folder / RECORD))
    assert TraceLines(folder).quote("trace:requests:1") == "open the door"


def test_a_fit_that_is_not_verified_breaks_the_gate_unless_a_budget_says_otherwise(
    start: Start, tmp_path: Path
) -> None:
    records.save(replace(fit_run(), verified=False), tmp_path / "run.json")
    for path in (tmp_path, tmp_path / "run.json"):
        code, out, err = start("gate", path, KEPT)
        assert code == 1 and "verified is 0, the limit 1" in err and "the exercise did not pass" in err
        assert "verified: no" in out
    assert start("gate", tmp_path, KEPT, "verified >= 0")[0] == 0
    assert start("gate", tmp_path, "verified == 1")[0] == 1
    # What `fit --json` and `verify --json` print says it, too; and a record that does not say it is none.
    for name, content in (
        ("fit", {"schema": "vmtailor/fit/9", "verified": False, "ready_s": 1}),
        ("verify", {"schema": "vmtailor/verification/3", "verified": False, "ready_s": 1}),
        ("silent", {"schema": "vmtailor/fit-run/9", "ready_s": 1}),
    ):
        file = tmp_path / f"{name}.json"
        file.write_text(json.dumps(content))
        assert start("gate", file, "ready_s <= 2s")[0] == 1, name
    # Nor is a fit that failed a reference.
    good = tmp_path / "good"
    good.mkdir()
    records.save(fit_run(), good / "run.json")
    code, _, err = start("gate", good, f"kernel_bytes <= +5% of {tmp_path / 'run.json'}")
    assert code == 1 and "verified is 0" in err
    assert start("gate", good, f"kernel_bytes <= +5% of {good}")[0] == 0


START = "[    0.000000] Linux version 6.1.0 (gcc) #1\n"
FINE = f"{START}[    1.500000] Run /sbin/init as init process\n"


@pytest.mark.parametrize(
    "line",
    [
        "[    1.200000] Kernel panic - not syncing: Attempted to kill init! exitcode=0x0000000b",
        "[    1.200000] Kernel panic - not syncing: Out of memory: system-wide panic_on_oom is enabled",
        "[    1.200000] Oops: 0002 [#1] SMP",
        "[    1.200000] BUG: unable to handle page fault for address: ffffc90000000000",
        "[    1.200000] Unable to handle kernel NULL pointer dereference at virtual address 0000000000000008",
    ],
)
@pytest.mark.parametrize("as_json", [False, True])
def test_the_figures_of_a_boot_that_crashed_are_none(start: Start, tmp_path: Path, line: str, as_json: bool) -> None:
    log = tmp_path / "boot.log"
    log.write_text(f"{FINE}{line.replace('1.2', '1.9')}\n" if "Oops" in line else f"{START}{line}\n")
    if as_json:
        made = start("analyze", log, "--json")[1]
        log.write_text(made)
    code, out, err = start("gate", log, "kernel_us <= 10s")
    assert code == 1 and "! crashed: " in out, (out, err)
    assert start("gate", log, "kernel_us <= 10s", "crashed <= 1")[1].count("broken") == 0


def test_a_boot_is_chosen_among_several_of_one_log(start: Start, tmp_path: Path) -> None:
    log = tmp_path / "serial.log"
    crash = f"{START}[    2.700000] Kernel panic - not syncing: VFS: Unable to mount root fs\n"
    log.write_text(crash + FINE + FINE.replace("1.5", "3.5"))
    last = "kernel_us == 3.5s"
    for boot, budget, code in ((0, last, 0), (1, "kernel_us <= 3s", 1), (2, "kernel_us == 1.5s", 0), (3, last, 0)):
        done = start("gate", log, budget, "--boot", boot)
        assert done[0] == code and "several-boots: the log holds 3 boots" in " ".join(done[1].split()), done
    code, _, err = start("gate", log, "kernel_us <= 9s", "--boot", 4)
    assert code == 2 and "3 boots, and no boot 4" in err
    assert "no-such-boot" in start("analyze", log, "--boot", 4)[1]
    log.write_text(start("analyze", log, "--json")[1])
    code, _, err = start("gate", log, "kernel_us <= 9s", "--boot", 1)
    assert code == 2 and "holds no log of several boots" in err
    assert start("gate", write_bundle(tmp_path / "bundle"), KEPT, "--boot", 1)[0] == 2


def told_of(folder: Path, kernel: str) -> str:
    content = {
        "schema": "vmtailor/boots/3", "subject": "x", "variants": [{"name": "base", "machine": {"kernel": kernel}}],
        "boots": [{"variant": "base", "boot": {"outcome": "ready", "milestones": []}}],
    }  # fmt: skip
    folder.mkdir(exist_ok=True)
    (folder / "boots.json").write_text(json.dumps(content))
    return dict(judged_document.read(folder).facts)["kernel"]


def test_saved_boots_name_no_file_of_the_host(tmp_path: Path) -> None:
    """A FIFO would be waited for, a device might act, and a digest tells what is in a file."""
    folder, secret = tmp_path / "boots", tmp_path / "secret"
    secret.write_text("secret")
    os.mkfifo(tmp_path / "fifo")
    digest = hashlib.sha256(b"secret").hexdigest()
    for name in ("/proc/kmsg", "/etc/passwd", "/dev/zero", str(tmp_path / "fifo"), str(secret), f"{folder}/../secret",
                 "a\0b", "vmlinux", ""):  # fmt: skip
        told = told_of(folder, name) if name else ""
        assert digest not in told and "sha256:" not in told
        assert not name or told.endswith("it is not in the record's folder")
    (folder / "link").symlink_to(secret)
    os.mkfifo(folder / "fifo")
    for inside in ("link", "fifo", "none"):
        assert told_of(folder, str(folder / inside)).endswith("no longer there")
    (folder / "vmlinux").write_text("secret")
    assert told_of(folder, str(folder / "vmlinux")).endswith(f"sha256:{digest}")
    assert told_of(folder, f"{folder}/x/../vmlinux").endswith(f"sha256:{digest}")


def test_saved_boots_are_regular_files_of_their_folder(tmp_path: Path) -> None:
    def save(folder: Path) -> None:
        boots = (series_boot("base", 1), series_boot("base", 2, Outcome.PANIC, problem="it panicked"))
        ready = ReadySignal(ReadyBy.LOGIN)
        record = BootSeries(
            version="1", subject="vm", ready=ready, timeout_s=1.0, variants=(Variant("base", USUAL, ""),), boots=boots
        )
        for one in boots:
            (folder / one.folder).mkdir(parents=True)
        records.save(record, folder / "boots.json")

    folder, other = tmp_path / "theirs", tmp_path / "mine"
    save(folder)
    save(other)
    for one in (folder, other):
        os.mkfifo(one / "base-1" / "console.log")
    assert saved_boots(folder) == []
    (other / "base-2" / "console.log").write_text("my secret\n")
    (folder / "base-2" / "console.log").symlink_to(other / "base-2" / "console.log")

    def shown(out: Path) -> str:
        text = io.StringIO()
        series_table.show(records.load(BootSeries, out / "boots.json"), out, TerminalConsole(file=text, width=200))
        return text.getvalue()

    assert "my secret" in shown(other) and "my secret" not in shown(folder)
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "boots.json").symlink_to(other / "boots.json")
    assert saved_boots(tmp_path / "linked" / "base") == []


class Waiting(io.RawIOBase):
    """A file of /proc that has said what it has to say, and would wait for more."""

    def __init__(self) -> None:
        super().__init__()
        self.said = [b"[    0.000000] Linux version 6.1.0\n"]

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes | None:
        return self.said.pop() if self.said else None


def test_a_file_that_would_wait_for_more_ends() -> None:
    assert b"".join(archive.decompressed(Waiting())) == b"[    0.000000] Linux version 6.1.0\n"  # type: ignore[arg-type]
