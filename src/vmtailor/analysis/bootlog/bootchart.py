# SPDX-License-Identifier: Apache-2.0
"""Read bootcharts: samples of /proc taken while user space starts, in a folder or an archive, and drawings of them.

Each log of samples is blocks of a time in hundredths of a second since the kernel started, lines, and a blank line.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from vmtailor.analysis.bootlog import archive, kernel_messages
from vmtailor.analysis.bootlog.boot_record import Observed, RawCall, architecture
from vmtailor.analysis.bootlog.log_lines import Content, decode, in_pieces, printable
from vmtailor.analysis.bootlog.machine_facts import identify
from vmtailor.base.text import is_number
from vmtailor.model.boots.timeline import DurationSource, PhaseName, PhaseSpan, Process, UseSample, WarningCode

MEMBERS = frozenset(
    {
        "header",
        "proc_stat.log",
        "proc_ps.log",
        "proc_diskstats.log",
        "taskstats.log",
        "kernel_pacct",
        "dmesg",
        "cmdline2.log",
        "paternity.log",
    }
)
#: bootchart counts in USER_HZ, which is 100 on every architecture that it ran on.
JIFFY_US = 10_000
MAX_PROCESSES = 200_000
_PS = re.compile(rb"(\d{1,10}) \((.*)\) (\S) (-?\d{1,10}) (.*)", re.S)
_HEADER_BYTES = 65_536
_HEADER = re.compile(rb"version ?= ?\d[^\n]{0,20}\n")
#: Names of processor families as `uname -m` prints them: a word with a figure in it, or one of these.
_MACHINE = re.compile(r"(?=\w{2,20}$)(?:\w{0,19}\d\w{0,19}|arm|alpha|mips|mipsel|parisc|ppc|ppcle|sparc)")
_DISK = re.compile(rb"(?:[hsv]d[a-z]+|xvd[a-z]+|nvme\d+n\d+|mmcblk\d+|dasd[a-z]+)$")


@dataclass
class _Seen:
    name: str
    ppid: int | None
    start: int
    last: int
    cpu_last: float
    blocked: int = 0  # jiffies before samples that saw it wait for a disk
    delayed: float = 0.0  # jiffies of such waits that the kernel counted


def is_bootchart(names: Mapping[str, bytes]) -> bool:
    """Return whether these members make a bootchart."""
    return bool({"proc_ps.log", "taskstats.log", "proc_stat.log"} & set(names))


def blocks(data: bytes) -> Iterator[tuple[int, list[bytes]]]:
    """Yield (time in jiffies, lines) of each block. A block without a time is dropped; a truncated last one is kept as
    far as it goes."""
    for block in data.replace(b"\r\n", b"\n").split(b"\n\n"):
        lines = block.strip(b"\n").split(b"\n")
        if lines and is_number(lines[0].strip()) and len(lines[0]) < 12:
            yield int(lines[0]), lines[1:]


def read_tar(content: Content) -> Observed | None:
    """Read a tar archive; None where no bootchart is in it."""
    told = archive.Chunks()
    members = dict(archive.tar_members(content.stream(), MEMBERS, told))
    if told.cut:
        content.cut = f"{told.cut}: what was before is read"
    return read(content.path, members) if is_bootchart(members) else None


def read(path: str, members: Mapping[str, bytes]) -> Observed:
    """Read the members of one bootchart."""
    modern = bool({"taskstats.log", "cmdline2.log", "paternity.log"} & set(members))
    observed = Observed(path, "bootchart2" if modern else "bootchart")
    _header(observed, members.get("header", b""))
    period = _processes(observed, members)
    _samples(observed, members)
    if members.get("dmesg"):
        _kernel_log(observed, path, members["dmesg"])
    if members.get("kernel_pacct"):
        _accounting(observed, members["kernel_pacct"], members.get("proc_stat.log", b""))
    for name in ("proc_stat.log", "proc_diskstats.log"):
        for at, _ in blocks(members.get(name, b"")):
            period = (min(period[0], at), max(period[1], at)) if period else (at, at)
    if period is None:
        observed.warn(WarningCode.NOTHING_FOUND, "the chart has no samples")
        return observed
    start, end = period
    observed.phases.append(
        PhaseSpan(
            PhaseName.USERSPACE,
            start * JIFFY_US,
            end * JIFFY_US,
            "first and last sample of the collector, which stops when it sees the boot done",
        )
    )
    if start * JIFFY_US > 0:
        observed.warn(
            WarningCode.COLLECTOR_LATE,
            f"the collector's first sample is at {start / 100:.2f} s: what user space did before was not seen",
        )
    return observed


def _header(observed: Observed, data: bytes) -> None:
    values: dict[str, str] = {}
    for line in data[:_HEADER_BYTES].split(b"\n"):
        key, found, value = line.partition(b"=")
        if found:
            values.setdefault(decode(key.strip(), 60), decode(value.strip(), 4096))
    _uname(observed, values.get("system.uname", ""), values.get("system.cpu", ""))
    options = values.get("system.kernel.options")
    if options:
        observed.command_line = options


def _uname(observed: Observed, uname: str, cpu: str) -> None:
    """Take the kernel's version and its architecture. Collectors write `uname -a` there, or /proc/version, which does
    not name the architecture: then the processor tells."""
    words = uname.split()
    if len(words) < 3 or words[0] != "Linux":
        return
    if words[1] == "version":
        observed.version = words[2]
        observed.arch = identify(Observed("", messages=[(None, f"CPU: {cpu}")])).arch if cpu else None
        return
    observed.version = words[1 if is_number(words[1][:1]) else 2]
    machine = next((word for word in reversed(words) if word != "GNU/Linux"), "")
    observed.arch = architecture(machine) if _MACHINE.fullmatch(machine) else None


def is_header(content: Content) -> bool:
    """Return whether a file is the header of a bootchart by itself."""
    return _HEADER.match(content.clean) is not None and b"\nsystem.uname" in content.clean[:_HEADER_BYTES]


def read_header(content: Content) -> Observed | None:
    """Read the header of a bootchart by itself: the kernel, and no times."""
    observed = Observed(content.path)
    _header(observed, content.data)
    observed.warn(WarningCode.NOTHING_FOUND, "the header of a bootchart names the machine, and times nothing")
    return observed


def _processes(observed: Observed, members: Mapping[str, bytes]) -> tuple[int, int] | None:
    """Fill in processes. Returns the time of the first and the last sample, in jiffies."""
    seen: dict[tuple[int, int], _Seen] = {}
    odd = 0
    period: tuple[int, int] | None = None
    for at, lines in blocks(members.get("proc_ps.log", b"")):
        since = at - period[1] if period else 0
        period = (period[0] if period else at, at)
        for line in lines:
            match = _PS.match(line)
            if not match or len(rest := match[5].split()) < 18:
                odd += 1
                continue
            figures = (rest[9], rest[10], rest[17])
            if not all(is_number(figure) and len(figure) < 12 for figure in figures):
                odd += 1
                continue
            cpu, start = float(int(figures[0]) + int(figures[1])), int(figures[2])
            one = _note(seen, int(match[1]), match[2], ppid=int(match[4]), start=start, at=at, cpu=cpu)
            if one is not None:
                one.blocked += min(since, at - one.start) if match[3] == b"D" else 0
                one.delayed = max(one.delayed, _delayed(rest))
    for at, lines in blocks(members.get("taskstats.log", b"")):
        period = (min(period[0], at) if period else at, max(period[1], at) if period else at)
        for line in lines:
            words = line.split(b" ")
            if len(words) != 6 or not all(
                is_number(w) and len(w) < 18 for w in (words[0], words[1], words[3], words[4], words[5])
            ):
                odd += bool(line.strip())
                continue
            one = _note(
                seen,
                int(words[0]),
                words[2].strip(b"()"),
                ppid=int(words[1]),
                start=None,
                at=at,
                cpu=int(words[3]) / 1e7,
            )
            if one is not None:
                one.delayed = max(one.delayed, int(words[4]) / 1e7)
    if odd:
        observed.warn(WarningCode.DAMAGED_LINES, f"{odd} lines of process samples could not be read")
    observed.processes.extend(_rows(seen, period[0] if period else 0))
    if period and seen:
        observed.charted_total_us = (period[1] - min(one.start for one in seen.values())) * JIFFY_US
    return period


def _note(
    seen: dict[tuple[int, int], _Seen], pid: int, raw: bytes, *, ppid: int, start: int | None, at: int, cpu: float
) -> _Seen | None:
    """Note one sample of a process. taskstats says no start (None): there a process is told by its pid alone. None
    where there are too many."""
    key = (pid, -1 if start is None else start)
    if start is not None and key not in seen:
        key = next(((pid, near) for near in (start - 1, start + 1) if (pid, near) in seen), key)
    old = seen.get(key)
    if old is None:
        if len(seen) >= MAX_PROCESSES:
            return None
        old = seen[key] = _Seen(
            name=decode(raw, 120), ppid=ppid, start=at if start is None else min(start, at), last=at, cpu_last=cpu
        )
        return old
    old.name, old.ppid, old.last, old.cpu_last = decode(raw, 120), ppid, at, max(cpu, old.cpu_last)
    return old


def _delayed(rest: list[bytes]) -> float:
    """Return the 42nd field of /proc/PID/stat, where the kernel has it: jiffies that it waited for disks."""
    figure = rest[37] if len(rest) > 37 else b""
    return float(int(figure)) if is_number(figure) and len(figure) < 12 else 0.0


def _observers(seen: Mapping[tuple[int, int], _Seen], first: int) -> set[int]:
    """Return process ids of the collector: by its name, or a shell that began with the first sample and starts one
    helper after another."""
    children: dict[int, int] = {}
    for one in seen.values():
        if one.last - one.start <= 100 and one.ppid:
            children[one.ppid] = children.get(one.ppid, 0) + 1
    found = {pid for (pid, _), one in seen.items() if "bootchart" in one.name}
    found |= {
        pid for (pid, _), one in seen.items() if pid > 1 and abs(one.start - first) <= 2 and children.get(pid, 0) >= 10
    }
    return found | {pid for (pid, _), one in seen.items() if one.ppid in found}


def _rows(seen: Mapping[tuple[int, int], _Seen], first: int) -> Iterator[Process]:
    observers = _observers(seen, first)
    counted = any(one.delayed for one in seen.values())  # kernels may have it switched off
    for (pid, _), one in seen.items():
        end = max(one.last, one.start)
        yield Process(
            name=one.name,
            pid=pid,
            ppid=one.ppid,
            start_us=one.start * JIFFY_US,
            end_us=end * JIFFY_US,
            duration_us=(end - one.start) * JIFFY_US,
            exclusive_us=round(one.cpu_last * JIFFY_US),
            duration_source=DurationSource.SAMPLES.value,
            observer=pid in observers,
            waiting_us=round((one.delayed if counted else one.blocked) * JIFFY_US),
        )


def _numbers(words: list[bytes]) -> list[int]:
    return [int(word) for word in words if is_number(word) and len(word) < 14]


def _samples(observed: Observed, members: Mapping[str, bytes]) -> None:
    rows: dict[int, UseSample] = {}
    before: list[int] | None = None
    for at, lines in blocks(members.get("proc_stat.log", b"")):
        times = _numbers(lines[0].split()[1:]) if lines and lines[0].startswith(b"cpu") else []
        if len(times) < 4:
            continue
        times += [0] * (7 - len(times))
        if before is not None:
            step = [max(0, new - old) for new, old in zip(times, before, strict=False)]
            total = sum(step[:7])
            if total > 0:
                rows[at] = UseSample(
                    at * JIFFY_US,
                    round((step[0] + step[1]) / total, 4),
                    round((step[2] + step[5] + step[6]) / total, 4),
                    round(step[4] / total, 4),
                )
        before = times
    disks: tuple[int, int, int, int] | None = None
    for at, lines in blocks(members.get("proc_diskstats.log", b"")):
        read = written = busy = 0
        for line in lines:
            words = line.split()
            if len(words) >= 14 and _DISK.match(words[2]):
                values = _numbers(words[3:14])
                if len(values) == 11:
                    read, written, busy = read + values[2], written + values[6], busy + values[9]
        if disks is not None and at > disks[0]:
            seconds = (at - disks[0]) / 100
            near = min(rows, key=lambda t: abs(t - at), default=None) if rows else None
            use = rows.get(near) if near is not None and abs(near - at) <= 10 else None
            rows[near if use is not None and near is not None else at] = UseSample(
                at_us=use.at_us if use else at * JIFFY_US,
                user=use.user if use else None,
                system=use.system if use else None,
                waiting=use.waiting if use else None,
                disk_read_bps=round(max(0, read - disks[1]) * 512 / seconds),
                disk_write_bps=round(max(0, written - disks[2]) * 512 / seconds),
                disk_busy=round(min(1.0, max(0, busy - disks[3]) / 1000 / seconds), 4),
            )
        disks = (at, read, written, busy)
    observed.samples.extend(rows[at] for at in sorted(rows))


def _kernel_log(observed: Observed, path: str, data: bytes) -> None:
    log = kernel_messages.read(Content(path, in_pieces(data)))
    if not log.stamped:
        return
    for name in (
        "initcalls",
        "probes",
        "messages",
        "gaps",
        "lines",
        "characters",
        "clocksource_switch_us",
        "first_us",
        "last_us",
        "first_line_seen",
        "stamped",
        "kernel_log",
    ):
        setattr(observed, name, getattr(log, name))
    observed.marks.update(log.marks)
    observed.warnings.extend(log.warnings)
    observed.version, observed.arch = observed.version or log.version, observed.arch or log.arch
    observed.command_line = observed.command_line or log.command_line


def _compact(value: int) -> int:
    """Decode a comp_t of process accounting: 13 bits of mantissa, 3 of a base-8 exponent."""
    return int((value & 0x1FFF) << (3 * (value >> 13)))


def _accounting(observed: Observed, data: bytes, stat: bytes) -> None:
    """Version 3 of the kernel's accounting: processes too short for any sample. Their start is known to a second
    only."""
    boot = re.search(rb"^btime (\d{1,12})", stat, re.M)
    known = {process.pid for process in observed.processes}
    for offset in range(0, min(len(data), 64 * MAX_PROCESSES) - 63, 64):
        version, pid, ppid, begun, elapsed, user, system, comm = struct.unpack_from("<xB14x3IfHH12x16s", data, offset)
        if version != 3 or pid in known:
            continue
        known.add(pid)
        start = (begun - int(boot[1])) * 1_000_000 if boot and begun >= int(boot[1]) else None
        took = round(elapsed * JIFFY_US) if 0 <= elapsed < 1e9 else None
        cpu = (_compact(user) + _compact(system)) * JIFFY_US
        observed.processes.append(
            Process(
                name=decode(comm.rstrip(b"\0")),
                pid=pid,
                ppid=ppid,
                start_us=start,
                end_us=None,
                duration_us=took,
                exclusive_us=cpu,
                duration_source=DurationSource.REPORTED.value,
            )
        )


_N = r"(-?\d{1,9}(?:\.\d{1,6})?)"
_SCALE = re.compile(rf'<!-- x="{_N}" y="{_N}" -->')
_LOG_START = re.compile(r"Log start time: (\d{1,6}\.\d{1,6})s")
_IDLE = re.compile(r"Idle time: (\d{1,6}(?:\.\d{1,6})?)(ms|s)<")
_SYSTEM = re.compile(r">System: Linux (\S{1,120}) (?:[^<\n]{0,400} )?([^<\s]{1,60})</text>")
_OPTIONS = re.compile(r">Boot options: ([^<>]{1,4096})</text>")
_COMMENT = re.compile(r"<!-- (.{0,200}?) \[(\d{1,10})\] ppid=(\d{1,10}) runtime=(\d{1,12}\.\d{1,6})ms -->")
_BAR = re.compile(rf'<rect class="(ps|krnl)" x="{_N}" y="{_N}" width="{_N}" height="{_N}"')
_INITCALL = re.compile(rf'<text x="{_N}" y="{_N}">([\w.$]{{1,200}}) <tspan class="run">{_N}(ms|s)</tspan>')


def read_drawing(content: Content) -> Observed:
    """Read the drawing. Times are as exact as its pixels; processor times are those written in it."""
    observed, text = Observed(content.path), content.drawing
    scale_match = _SCALE.search(text)
    scale = float(scale_match[1]) if scale_match and float(scale_match[1]) > 0.001 else 100.0
    start_match, system, options = _LOG_START.search(text), _SYSTEM.search(text), _OPTIONS.search(text)
    zero = round(float(start_match[1]) * 1e6) if start_match else 0
    if system:
        observed.version, observed.arch = system[1], architecture(system[2])
    if options:
        observed.command_line = printable(options[1].strip(), 4096)
    last = _drawn_processes(observed, text, scale, zero)
    _drawn_initcalls(observed, text)
    idle = _IDLE.search(text)
    if idle:
        end = zero + round(float(idle[1]) * (1e3 if idle[2] == "ms" else 1e6))
        observed.phases.append(
            PhaseSpan(PhaseName.USERSPACE, zero, end, "log start to the moment the chart calls idle")
        )
    elif last is not None:
        observed.phases.append(
            PhaseSpan(PhaseName.USERSPACE, zero, last, "first and last sample; the chart saw no idle moment")
        )
    return observed


def _drawn_processes(observed: Observed, text: str, scale: float, zero: int) -> int | None:
    """Yield the processes of a chart. A comment names each; unless it was filtered out, its bar stands before the next
    comment."""
    comments = list(_COMMENT.finditer(text))
    last: int | None = None
    for n, comment in enumerate(comments):
        end = comments[n + 1].start() if n + 1 < len(comments) else len(text)
        bar = _BAR.search(text, comment.end(), min(end, comment.end() + 4000))
        cpu = round(float(comment[4]) * 1000)
        start = stop = None
        if bar and bar[1] == "ps":
            start = zero + round(float(bar[2]) / scale * 1e6)
            stop = start + round(float(bar[4]) / scale * 1e6)
            last = max(last or stop, stop)
        name = printable(comment[1], 120)
        observed.processes.append(
            Process(
                name=name,
                pid=int(comment[2]),
                ppid=int(comment[3]),
                start_us=start,
                end_us=stop,
                duration_us=stop - start if start is not None and stop is not None else None,
                exclusive_us=cpu,
                duration_source=DurationSource.DRAWING.value if start is not None else None,
                observer="bootchart" in name,
            )
        )
    return last


def _drawn_initcalls(observed: Observed, text: str) -> None:
    """Yield initcalls that were longer than the chart's limit. Their place is drawn only relative to the chart, so only
    their length is taken."""
    for _, _, name, figure, unit in _INITCALL.findall(text):
        took = round(float(figure) * (1e3 if unit == "ms" else 1e6))
        observed.initcalls.append(
            RawCall(
                name=printable(name, 200),
                module=None,
                start_us=None,
                end_us=None,
                reported_us=took,
                returned=0,
                task=None,
                level=None,
                asynchronous=False,
                finished=True,
            )
        )
