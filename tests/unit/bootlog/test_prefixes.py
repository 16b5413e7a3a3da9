# SPDX-License-Identifier: Apache-2.0
"""Text before messages is learned from the log itself: fields of vendors' kernels, words of whoever captured it, days
in any language. And logs that stand within something else."""

from __future__ import annotations

import base64
import json
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.bootlog.reading import DATA, call, codes, timeline_of, times
from tests.unit.bootlog.test_kernel_formats import MESSAGES, lines

from vmtailor.analysis.bootlog import clock_steps, embedded_log, journal, prefixes, stamps
from vmtailor.analysis.bootlog.boot_record import Observed
from vmtailor.analysis.bootlog.log_lines import Content
from vmtailor.analysis.timeline.boot_timeline import analyze

#: Behind the stamp, or within it.
FIELDS = {
    "Rockchip": "[{stamp}]  [0:        swapper:    0] {text}",
    "HiSilicon": "[{stamp}s][pid:1,cpu0,swapper/0]{text}",
    "Exynos": "<6>[{stamp}] I[0:      swapper/0:    1] {text}",
    "a processor and a process": "[{stamp}] (CPU:0-pid:1:swapper/0) {text}",
    "Spreadtrum": "<6>[{stamp}] c0      1 {text}",
    "LG": "<6>[{stamp} / 01-01 00:00:00.529][7] {text}",
    "Qualcomm": "[{stamp}][    T1@C0] {text}",
    "MediaTek, interrupts off": "[{stamp}]-(0)[1:swapper/0]{text}",
    "MediaTek, with the module": "[{stamp}] (0)[1:swapper/0][name:core&]{text}",
    "a level and a task": "[{stamp}] <0>[1, swapper/0] {text}",
}
#: Before the stamp.
CAPTURES = {
    "Python's logging": "INFO:root:[{stamp}] {text}",
    "Python's logging with a time": "2024-01-01 12:00:0{sec},123 DEBUG console: [{stamp}] {text}",
    "pytest's live log": "INFO     console:test_boot.py:12 [{stamp}] {text}",
    "avocado": "2024-01-01 12:00:0{sec},123 ssh              L0123 DEBUG| [{stamp}] {text}",
    "GitLab": "2024-01-01T12:00:0{sec}.{frac:06d}Z 00O [{stamp}] {text}",
    "GitHub": "2024-01-01T12:00:0{sec}.{frac:06d}0Z [{stamp}] {text}",
    "gh run view --log": "build\tRun it\t2024-01-01T12:00:0{sec}.{frac:06d}0Z [{stamp}] {text}",
    "docker compose": "vm-1  | [{stamp}] {text}",
    "kubectl --prefix": "[pod/vm-0/qemu] [{stamp}] {text}",
    "kubectl --prefix --timestamps": "[pod/vm-0/qemu] 2024-01-01T12:00:0{sec}.{frac:06d}000Z [{stamp}] {text}",
    "Jenkins": "[2024-01-01T12:00:0{sec}.123Z] [{stamp}] {text}",
    "openQA": "[2024-01-01T12:00:0{sec}.123456+01:00] [debug] [pid:123] [{stamp}] {text}",
    "systemd-cat": "Mar 06 13:18:0{sec} debian cat[812]: [{stamp}] {text}",
    "a unit's console": "Mar 06 13:18:0{sec} debian qemu-system-x86_64[812]: [{stamp}] {text}",
    "klogd": "Mar 06 13:18:0{sec} debian klogd: [{stamp}] {text}",
    "logger": "2026-03-06T13:18:0{sec}.{frac:06d}+01:00 debian root: [{stamp}] {text}",
    "ts -s %.s": "0{sec}.{frac:06d} [{stamp}] {text}",
    "ts -i": "00:00:0{sec} [{stamp}] {text}",
    "ts, the day first": "23 déc. 22:41:0{sec} [{stamp}] {text}",
    "Go's log": "2024/12/23 22:41:0{sec} [{stamp}] {text}",
    "Tera Term": "[Mon Dec 23 22:41:0{sec}.{frac:06d} 2024] [{stamp}] {text}",
    "tio": "[22:41:0{sec}.{frac:06d}] [{stamp}] {text}",
    "logcat": "12-23 22:41:0{sec}.{frac:06d}     0     0 I KERNEL  : [{stamp}] {text}",
    "a tree": "│   ├─[board] [{stamp}] {text}",
}


@pytest.mark.parametrize("form", [*FIELDS.values(), *CAPTURES.values()], ids=[*FIELDS, *CAPTURES])
def test_what_nearly_all_lines_have_is_no_part_of_a_message(tmp_path: Path, form: str) -> None:
    timeline = timeline_of(tmp_path, lines(form))
    assert call(timeline, "pci_subsys_init").reported_us == 480
    assert (timeline.kernel.version, timeline.kernel.clocksource) == ("6.1.0-9-amd64", "tsc-early")
    assert times(timeline)["kernel"] == (0, 1_200_000)
    assert codes(timeline) == {"phase-open"}
    assert timeline.lines[0].text.startswith("Linux version")


def test_tasks_and_levels_may_be_any(tmp_path: Path) -> None:
    tasks = ["0:        swapper:    0", "1:    kworker/1:1:   37", "2:  kworker/u8:0:  12", "0:      swapper/0:    1"]
    log = "".join(f"[{us / 1e6:12.6f}] [{tasks[n % 4]}] {text}\n" for n, (us, text) in enumerate(MESSAGES))
    assert call(timeline_of(tmp_path, log), "pci_subsys_init").reported_us == 480
    levels = ["DEBUG", "INFO", "WARNING"]
    log = "".join(f"{levels[n % 3]}:vm.console:[{us / 1e6:12.6f}] {text}\n" for n, (us, text) in enumerate(MESSAGES))
    assert call(timeline_of(tmp_path, log), "pci_subsys_init").reported_us == 480


@pytest.mark.parametrize(
    "form", ["INFO:root:{text}", "[vm] {text}", "2024-01-01 12:00:0{sec},123 INFO vm.console: {text}", "vm-1  | {text}"]
)
def test_a_prefix_is_learned_without_any_stamp_of_the_kernel(tmp_path: Path, form: str) -> None:
    timeline = timeline_of(tmp_path, lines(form))
    assert timeline.kernel.version == "6.1.0-9-amd64"
    assert call(timeline, "pci_subsys_init").reported_us == 480


def test_fields_behind_a_long_loader(tmp_path: Path) -> None:
    loader = "U-Boot 2023.01 (Jan 01 2023)\n" + "".join(f"[DEBUG]  PCI: 00:{n:04x} enabled\n" for n in range(900))
    timeline = timeline_of(tmp_path, loader + "Starting kernel ...\n" + lines(FIELDS["Rockchip"]))
    assert call(timeline, "pci_subsys_init").reported_us == 480


def test_fields_behind_a_long_loader_with_stamps(tmp_path: Path) -> None:
    loader = "U-Boot 2023.01 (Jan 01 2023)\n" + "".join(f"[    0.{n:06d}] bank {n}\n" for n in range(900))
    timeline = timeline_of(tmp_path, loader + "Starting kernel ...\n" + lines(FIELDS["Rockchip"]))
    assert call(timeline, "pci_subsys_init").reported_us == 480


def test_an_unknown_prefix_is_said_to_be_looked_for(tmp_path: Path) -> None:
    """A reason states what was looked for: nothing says that a kernel was silent whose lines are only unknown."""
    unknown = "".join(f"[    0.{n:06d}] @{n}#a|k{n}\n" for n in range(40))
    log = "U-Boot 2023.01 (Jan 01 2023)\nStarting kernel ...\n" + unknown
    (told,) = [warning.text for warning in timeline_of(tmp_path, log).warnings if warning.code == "phase-open"]
    assert "no line of the kernel was found" in told and "lines were read; if the kernel's are among them" in told


def test_other_containers_lines_are_none_of_the_machine(tmp_path: Path) -> None:
    log = lines(CAPTURES["docker compose"]).splitlines()
    mixed = "".join(f"{line}\ndb-1  | checkpoint {n}\n" for n, line in enumerate(log))
    assert call(timeline_of(tmp_path, mixed), "pci_subsys_init").reported_us == 480


#: Lines that begin alike of themselves.
NO_PREFIX = {
    "groups without a number": [b"[drm] Initialized", b"[drm] fb0: frame buffer", b"[drm] done"],
    "names of devices": [b"usb 1-1: new high-speed device", b"usb 1-2: new device", b"usb 2-1: config"],
    "few of many": [b"[0] a", b"b", b"c", b"d"],
    "a kernel's words": [b"Linux version 6.1", b"Command line: quiet", b"Freeing unused kernel memory"],
}


@pytest.mark.parametrize("messages", NO_PREFIX.values(), ids=NO_PREFIX)
def test_what_lines_of_a_kernel_have_in_common_stays(messages: list[bytes]) -> None:
    log = [b"[    0.%06d] %s" % (n, message) for n, message in enumerate(messages)]
    assert prefixes.layers_of(log) == prefixes.Layers()
    assert prefixes.layers_of(messages) == prefixes.Layers()


def test_a_journal_keeps_its_programs(tmp_path: Path) -> None:
    log = lines("Mar 06 13:18:0{sec} debian kernel: {text}") + "Mar 06 13:18:09 debian cat[7]: [    9.000000] said\n"
    assert timeline_of(tmp_path, log).files[0].format == "kernel log, journal or syslog (short)"


def test_pieces_of_gitlabs_lines_are_joined(tmp_path: Path) -> None:
    log = (
        "2024-01-01T12:00:00.000000Z 00O Running with gitlab-runner 17.0.0\r\n"
        "2024-01-01T12:00:01.000000Z 00O section_start:1704110401:step_script\r\x1b[0KExecuting\n"
        "2024-01-01T12:00:41.000000Z 01O SeaBIOS (version 1.16.3)\r\n"
        "2024-01-01T12:00:42.000000Z 01O [    0.000000] Linux version 6.6.1 (gcc) #1\r\n"
        "2024-01-01T12:00:42.500000Z 01O [    0.5000\n"
        "2024-01-01T12:00:42.500001Z 01O+00] clocksource: Switched to clocksource t\n"
        "2024-01-01T12:00:42.500002Z 01O+sc\r\n"
        "2024-01-01T12:00:43.000000Z 01O [    1.000000] Run /sbin/init as init process\r\n"
        "2024-01-01T12:00:45.000000Z 01O debian login: \r\n"
        "2024-01-01T12:00:49.000000Z 00O section_start:1704110469:cleanup\r\x1b[0KCleaning up\n"
    )
    timeline = timeline_of(tmp_path, log)
    assert (timeline.kernel.clocksource, timeline.kernel.clocksource_switch_us) == ("tsc", 500_000)
    # What the job did before it started the machine is no part of the boot.
    assert times(timeline)["firmware"] == (-1_000_000, 0)
    assert (timeline.total_us, codes(timeline)) == (4_000_000, {"escapes-removed"})


def test_a_line_of_any_number_of_pieces_has_a_longest_length() -> None:
    stamp = b"2024-01-01T12:00:42.500001Z 01O"
    pieces = [stamp + b" begins", *[stamp + b"+" + b"x" * 100] * 1000]
    whole = stamps.WholeLines(stamps.detect_outer([stamp + b" Linux version 6.6.1"] * 3))
    assert max(map(len, [*whole.joined(pieces), *whole.rest()])) < stamps.MOST_JOINED + 200


def test_a_jobs_own_time_is_no_firmware(tmp_path: Path) -> None:
    log = (
        "2024-01-01T12:00:00.0000000Z ##[group]Run make\n2024-01-01T12:00:30.0000000Z compiled\n"
        "2024-01-01T12:01:00.0000000Z U-Boot 2023.01 (Jan 01 2023)\n2024-01-01T12:01:02.0000000Z Starting kernel ...\n"
        "2024-01-01T12:01:03.0000000Z [    0.000000] Linux version 6.6.1 (gcc) #1\n"
        "2024-01-01T12:01:04.0000000Z [    1.000000] Run /sbin/init as init process\n"
    )
    assert times(timeline_of(tmp_path, log)) == {
        "loader": (-3_000_000, -1_000_000), "kernel": (0, 1_000_000), "userspace": (1_000_000, None),
    }  # fmt: skip


NAMES = [
    row.split("\t") for row in (DATA / "month_names.tsv").read_text("utf-8").splitlines() if not row.startswith("#")
]


@pytest.mark.parametrize(("months", "days"), [row[1:] for row in NAMES], ids=[row[0] for row in NAMES])
def test_days_in_any_language(months: str, days: str) -> None:
    for number, month in enumerate(months.split(",")):
        for day in (1, 9, 10, 31):
            forms = {
                "journal or syslog (short)": f"{month} {day:02d} 22:41:20 host kernel: Linux version 6.1.0 (x)",
                "dmesg -T": f"[{days.split(',')[number % 7]} {month} {day:2d} 22:41:20 2024] Linux version 6.1.0 (x)",
                "serial capture (ts)": f"{month} {day:02d} 22:41:20 Linux version 6.1.0 (x)",
            }
            for name, line in forms.items():
                outer = stamps.detect_outer([line.encode()] * 3)
                assert outer is not None and outer.name == name, line
                match = outer.regex.match(line.encode())
                assert match is not None and match[match.re.groups] == b"Linux version 6.1.0 (x)"
        following = months.split(",")[(number + 1) % 12]
        assert clock_steps.follows(f"{month} 08".encode(), f"{month} 09".encode()) is True
        assert clock_steps.follows(f"{month} 31".encode(), f"{following} 01".encode()) is True
        assert clock_steps.follows(f"{month} 08".encode(), f"{following} 08".encode()) is False


@pytest.mark.parametrize("date", ["дек 23", "11月 05", "févr. 06", "Thg 10 06", "de març 06", "marras 06"])
def test_a_journal_in_any_language_is_a_journal(tmp_path: Path, date: str) -> None:
    timeline = timeline_of(tmp_path, lines(date + " 22:41:2{sec} host kernel: {text}"))
    assert timeline.files[0].format == "kernel log, journal or syslog (short)"
    assert timeline.kernel.version == "6.1.0-9-amd64"
    assert call(timeline, "pci_subsys_init").reported_us == 480


def test_dmesg_in_any_language_with_minutes(tmp_path: Path) -> None:
    log = "[12月23 22:41] Linux version 6.6.1 (gcc) #1\n[  +0.500000] foo: bar\n[  +0.700000] Run /sbin/init as init\n"
    timeline = timeline_of(tmp_path, log.replace("as init", "as init process"))
    assert times(timeline)["kernel"] == (0, 1_200_000)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("Fri 2026-03-06", "Sat 2026-03-07", True), ("2026-12-31", "2027-01-01", True), ("Mar 31", "Mar  1", False),
        ("06 Mar 2026", "07 Mar 2026", True), ("23.12.2024", "24.12.2024", True), ("1970-01-01", "2026-03-06", False),
        ("ก.ค. 31", "ส.ค. 01", True), ("Jan 05", "Feb 01", False), ("Mar  6", "Mar  6", None),
    ],
)  # fmt: skip
def test_a_day_follows_another(before: str, after: str, expected: bool | None) -> None:
    assert clock_steps.follows(before.encode(), after.encode()) is expected


CONSOLE = ("SeaBIOS (version 1.16)\n\nBooting from Hard Disk...\n" + lines("[{stamp}] {text}")).replace("\n", "\r\n")
PACKED = base64.b64encode(CONSOLE.encode()).decode()
WITHIN = {
    "aws": json.dumps({"InstanceId": "i-0", "Timestamp": "2024-01-01T00:00:00+00:00", "Output": CONSOLE}, indent=4),
    "aws --query Output": json.dumps(CONSOLE),
    "aws, cut": json.dumps({"InstanceId": "i-0", "Output": CONSOLE + "[    9.0"}, indent=4)[:-4],
    "aws, base64": json.dumps({"InstanceId": "i-0", "Output": PACKED}),
    "base64": "\n".join(PACKED[at : at + 76] for at in range(0, len(PACKED), 76)) + "\n",
    "XML": f"<?xml version='1.0'?>\n<GetConsoleOutputResponse>\n <output>{PACKED}</output></GetConsoleOutputResponse>",
    "gcloud": json.dumps({"contents": CONSOLE, "kind": "compute#serialPortOutput", "next": "1"}),
    "a list": json.dumps([{"a": {"b": [CONSOLE]}}]),
    "Python's bytes": repr(CONSOLE.encode()),
    "docker's json-file": "".join(
        json.dumps({"log": line + "\r\n", "stream": "stdout", "time": f"2024-01-01T00:00:0{n}.1234Z"}) + "\n"
        for n, line in enumerate(lines("[{stamp}] {text}").splitlines())
    ),
}


@pytest.mark.parametrize("text", WITHIN.values(), ids=WITHIN)
def test_logs_within_something_else(tmp_path: Path, text: str) -> None:
    timeline = timeline_of(tmp_path, text)
    assert call(timeline, "pci_subsys_init").reported_us == 480
    assert times(timeline)["kernel"] == (0, 1_200_000)


def test_the_longest_text_of_a_document_is_its_log(tmp_path: Path) -> None:
    """The first values are looked at, and not the last: a list of many others may follow."""
    other = "no line of a log\n" * 20
    document = json.dumps([{"Tags": [other], "Output": CONSOLE, "Note": other}, [0] * 200_000])
    timeline = timeline_of(tmp_path, document)
    assert (timeline.kernel.version, timeline.files[0].format) == ("6.1.0-9-amd64", "kernel log (JSON)")


def test_base64_of_more_than_is_looked_at_stands_within_xml(tmp_path: Path) -> None:
    long = base64.b64encode(CONSOLE.encode() + b"[    9.000000] said\r\n" * 8000).decode()
    timeline = timeline_of(tmp_path, f"<GetConsoleOutputResponse><output>{long}</output></GetConsoleOutputResponse>")
    assert (timeline.kernel.version, timeline.files[0].format) == ("6.1.0-9-amd64", "kernel log (base64)")


LONG = b"[    0.000000] Linux version 6.1\n" * 10
SHORT_LINES = {
    "many values": (embedded_log.read_document, b"[" + b"0," * (1 << 18) + b"0]"),
    "spaces in base64": (embedded_log.read_base64, base64.b64encode(LONG) + b"QU FB " * (1 << 17)),
    "escaped line ends": (
        embedded_log.read_escaped, rb"\n[    0.000000] Linux version 6.1" * 4 + rb"\n" * (1 << 18),
    ),
    "objects a line": (embedded_log.read_lines, b"{}\n" * (1 << 18)),
    "entries of a journal": (journal.read_json, b"{}\n" * (1 << 18)),
}  # fmt: skip


@pytest.mark.attack
@pytest.mark.parametrize(("read", "log"), SHORT_LINES.values(), ids=SHORT_LINES)
def test_a_log_of_many_short_pieces_takes_little_memory(read: Callable[[Content], Observed | None], log: bytes) -> None:
    """Python's objects for each value, word, escape or line take 30 times as much as its text."""
    content = Content("x", iter([log]))
    tracemalloc.start()
    try:
        read(content)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < (16 << 20)


def test_what_is_not_within(tmp_path: Path) -> None:
    for text in (json.dumps({"Output": "no log\r\n" * 40}), json.dumps(PACKED[:20]), base64.b64encode(b"\0\x01" * 300)):
        assert timeline_of(tmp_path, text).kernel.version is None


CASES = [
    ("Linux version 2.6.29-g46b05b2 (u@h) #28 Thu Nov 17 06:39:36 PST ", "ARMv7 Processor rev 0 (v7l)", "arm"),
    ("Linux version 3.10.0 (u@h) #2 SMP CST 2016", "AArch64 Processor rev 3 (aarch64)", "arm64"),
    ("Linux version 3.10.0 (u@h) #2 SMP CST 2016", "Some Processor", None),
    ("Linux kepler 6.1.0-9 #1 SMP Debian x86_64 GNU/Linux", "", "x86_64"),
    ("Linux 6.1.0-9 #1 SMP Debian aarch64", "", "arm64"),
    ("Linux kepler 6.1.0-9 #1 Thu Nov 17 06:39:36 PST", "", None),
]  # fmt: skip


@pytest.mark.parametrize(("uname", "cpu", "arch"), CASES)
def test_headers_of_bootcharts(tmp_path: Path, uname: str, cpu: str, arch: str | None) -> None:
    header = (
        f"version = 0.8\ntitle = Boot chart\nsystem.uname = {uname}\nsystem.cpu = {cpu}\nsystem.kernel.options = a=1\n"
    )
    alone = timeline_of(tmp_path, header).kernel
    chart = tmp_path / "chart"
    chart.mkdir()
    (chart / "header").write_text(header)
    (chart / "proc_ps.log").write_bytes((DATA / "bootchart" / "proc_ps.log").read_bytes())
    for kernel in (alone, analyze([chart]).kernel):
        assert kernel.version == (uname.split()[2] if "version" in uname else "6.1.0-9")
        assert (kernel.arch, kernel.command_line) == (arch, "a=1")


@given(st.lists(st.binary(max_size=60), max_size=30))
def test_any_lines_have_layers(log: list[bytes]) -> None:
    whole = [line.replace(b"\n", b"") for line in log]
    layers = prefixes.layers_of(whole)
    for line in whole:
        assert line.endswith(prefixes.without(layers.before, line))


@pytest.mark.attack
@pytest.mark.parametrize("piece", [b"[", b"[1]", b"(1", b"a 1 ", b"<1>", b"\xe6\x9c\x88", b"1-1 ", b"Linux version 1 "])
def test_learning_takes_no_more_than_twice_as_long_for_twice_as_much(piece: bytes) -> None:
    def taken(size: int) -> float:
        log = [b"[    0.000000] " + piece * size] * 300 + [piece * size] * 300
        begun = time.process_time()
        prefixes.layers_of(log)
        return time.process_time() - begun

    taken(100)
    assert taken(4000) < 6 * max(taken(1000), 0.02)
