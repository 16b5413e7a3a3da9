# SPDX-License-Identifier: Apache-2.0
"""The messages that mark the stretches of a boot: where one begins, what ends it, and when, on the kernel's clock.

Most are found by their first word, so that a long log stays cheap."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import msgspec

from vmtailor.analysis.bootlog.boot_record import LATE_US, MAX_MESSAGES, Observed, architecture
from vmtailor.analysis.bootlog.log_lines import decode
from vmtailor.analysis.bootlog.stamps import HostClock, strip_stamp
from vmtailor.base.files.toml_files import own_table
from vmtailor.model.boots.timeline import PhaseName, PhaseSpan, WarningCode

#: A clock that goes back further than this starts anew.
BACKWARDS_US = 1_000_000
#: A clock that went back starts anew where it is not further than this.
BEGINNING_US = 100_000
#: Beginnings of messages of firmware and of loaders.
FIRMWARE = (
    b"SeaBIOS", b"BdsDxe", b"NOTICE:  BL", b"OpenSBI v", b"UEFI firmware", b"EDK II", b"coreboot-",
)  # fmt: skip
LOADERS = (
    b"U-Boot", b"SPL", b"GRUB", b"Welcome to GRUB", b"SYSLINUX", b"ISOLINUX", b"systemd-boot", b"Barebox", b"barebox 2",
    b"iPXE ", b"Hit any key to stop autoboot", b"## Loading ", b"## Flattened", b"I> MB1", b"welcome to lk",
)  # fmt: skip
#: The first of these messages after a machine's reset.
AFTER_RESET = (
    b"U-Boot SPL 2", b"U-Boot TPL 2", b"U-Boot 2", b"SeaBIOS (version", b"NOTICE:  BL1", b"NOTICE:  BL2", b"OpenSBI v",
    b"barebox 2", b"coreboot-",
)  # fmt: skip
HANDED_OVER = (b"Starting kernel", b"EFI stub: Booting Linux", b"EFI stub: Exiting boot")


_CLOCKS = {name: re.compile(text.encode()) for name, text in own_table("boot_clocks").items()}


def sets_clock(before: bytes, message: bytes) -> bool:
    """Return whether a jump of the clock between two lines is where a clock starts."""
    before, message = strip_stamp(before), strip_stamp(message)
    early = _CLOCKS["early"].match(message) is not None and _CLOCKS["set"].search(before) is not None
    return early or _CLOCKS["runs"].search(message) is not None


def version_of(message: bytes) -> str | None:
    """Return the version that a kernel's first line names."""
    match = _VERSION.match(message)
    return decode(match[1], 120) if match else None


def starts_kernel(message: bytes) -> bool:
    """Return whether a message is one of a kernel's first."""
    return message.startswith((b"Linux version", b"Booting Linux on physical CPU"))


def looks_reset(observed: Observed, message: bytes) -> bool:
    """Return whether the machine may have been reset: it says what it says first, and a kernel ran before. Firmware
    that a running kernel calls (coreboot's `smm`) says it, too."""
    return message.startswith(AFTER_RESET) and observed.kernel_seen and not _within_kernel(message)


def looks_second(observed: Observed, message: bytes) -> bool:
    """Return whether a message without a stamp names a kernel, and one was named before."""
    return bool(observed.version) and message.startswith(b"Linux version ")


def looks_anew(last_us: int, at_us: int, message: bytes, *, merged: bool) -> bool:
    """Return whether the clock goes back so far that another boot may begin. `merged`: the lines are of several
    writers, each late in its way, so that this alone says nothing."""
    return last_us - at_us > BACKWARDS_US and (not merged or starts_kernel(message) or at_us < BEGINNING_US)


def is_firmware(message: bytes) -> bool:
    """Return whether only firmware or a loader says this, and no kernel runs then."""
    return message.startswith((*LOADERS, *FIRMWARE, *HANDED_OVER)) and not _within_kernel(message)


def _within_kernel(message: bytes) -> bool:
    return message.startswith(b"coreboot-") and b" smm starting" in message[:200]


_SHUTDOWN = re.compile(
    rb"reboot: (?:Restarting|Power down|System halted|machine restart)|Restarting system|Power down\.|System halted"
    rb"|kexec(?:_core)?: Starting new kernel|Starting new kernel"
    rb"|(?:systemd(?:-shutdown)?(?:\[1\])?: )(?:Rebooting\.|Powering off\.|Shutting down\.)"
    rb"|(?:systemd(?:-shutdown)?(?:\[1\])?: )Sending SIGTERM to remaining"
    rb"|systemd-journald\[\d+\]: Journal stopped"
    rb"|(?:systemd\[1\]: |\[  OK  \] )?Reached target (?:\S+ - )?(?:(?:System )?(?:Reboot|Power[- ]Off|Halt|Shutdown)"
    rb"|(?:reboot|poweroff|halt|shutdown)\.target)"
)


def is_shutdown(message: bytes) -> bool:
    """Return whether a message says that the machine goes down or starts again, or that another kernel takes over."""
    return _SHUTDOWN.match(message) is not None


def is_handover(message: bytes) -> bool:
    """Return whether a loader says that it starts the kernel."""
    return message.startswith(HANDED_OVER)


def is_loader(message: bytes) -> bool:
    """Return whether firmware or a loader says this."""
    return message.startswith((*LOADERS, *FIRMWARE))


_UNITS_US = {
    "y": 31_557_600_000_000,
    "year": 31_557_600_000_000,
    "month": 2_629_800_000_000,
    "w": 604_800_000_000,
    "week": 604_800_000_000,
    "d": 86_400_000_000,
    "day": 86_400_000_000,
    "h": 3_600_000_000,
    "min": 60_000_000,
    "s": 1_000_000,
    "ms": 1000,
    "us": 1,
    "μs": 1,
    "µs": 1,
    "ns": 0.001,
}
_PART = re.compile(r"(\d{1,12})(?:\.(\d{1,9}))?(years?|months?|weeks?|days?|min|ms|us|μs|µs|ns|[ywdhs])(?![a-zA-Zµμ])")
#: Ten units are known, and each stands once.
SPAN = r"(?:\d{1,12}(?:\.\d{1,9})?(?:years?|months?|weeks?|days?|min|ms|us|μs|µs|ns|[ywdhs])(?: |(?=\W|$))){1,10}"
_STARTUP = "Startup finished in "
_TOTAL = re.compile(r" = (" + SPAN + r")")
_TERM = re.compile(r"(" + SPAN + r")\s{0,8}\((firmware|loader|kernel|initrd|userspace)\)")
_REACHED = re.compile(r"(?<!\S)(\S+\.target) reached after (" + SPAN + r")\s{0,8}in userspace")
#: Longer spans are no boot's: 30 years.
MOST_US = 1_000_000_000_000_000
#: Name of that line as a source.
STARTUP = "systemd: 'Startup finished'"
_ORDER = (PhaseName.FIRMWARE, PhaseName.LOADER, PhaseName.KERNEL, PhaseName.INITRD, PhaseName.USERSPACE)


def parse_span(text: str) -> int | None:
    """Return systemd's time span (`1min 9.6s`, `882ms`) in microseconds, or None."""
    total, end = 0, 0
    text = text.strip()
    for part in _PART.finditer(text):
        if text[end : part.start()].strip():
            return None
        end = part.end()
        scale = _UNITS_US[part[3].rstrip("s") if len(part[3]) > 2 and part[3].endswith("s") else part[3]]
        fraction = int(part[2]) * scale / 10 ** len(part[2]) if part[2] else 0
        total += round(int(part[1]) * scale + fraction)
    return total if end and end == len(text) and total < MOST_US else None


def parse_startup_line(text: str) -> list[PhaseSpan]:
    """Return `Startup finished in 2.093s (kernel) + … (userspace) = …` as phases, kernel at 0. Empty when it is not
    one."""
    terms = text.partition(_STARTUP)[2].partition("=")[0]
    found = {name: parse_span(span) for span, name in _TERM.findall(terms)}
    spans = {name: us for name, us in found.items() if us is not None}
    at = -spans.get("firmware", 0) - spans.get("loader", 0)
    phases: list[PhaseSpan] = []
    for name in _ORDER:
        if name in spans:
            phases.append(PhaseSpan(str(name), at, at + spans[name], STARTUP))
            at += spans[name]
    # A container has user space alone, and its service manager gives one figure without a name.
    alone = None if phases else parse_span(text.partition(_STARTUP)[2].rstrip(". \n"))
    return [PhaseSpan(PhaseName.USERSPACE.value, 0, alone, STARTUP)] if alone else phases


def is_whole(line: str) -> bool:
    """Return whether a `Startup finished` line has its total: mail programs wrap it."""
    return "(" not in line or " = " in line


def read_startup(observed: Observed, line: str) -> bool:
    """Take one of the two lines of `systemd-analyze time`, wherever it is printed. False when it is neither."""
    if "Startup finished in" in line:
        phases = parse_startup_line(line)
        have = [p for p in observed.phases if p.source == STARTUP]
        # A repeated line that now has its rest says more.
        if not observed.phases or (have and len(phases) > len(have) == len(observed.phases)):
            observed.phases[:] = phases
            observed.printed_total_us = None
        if phases and observed.printed_total_us is None and phases == observed.phases:
            total = _TOTAL.search(line)
            observed.printed_total_us = parse_span(total[1]) if total else None
        return True
    reached = _REACHED.search(line)
    if not reached:
        return False
    after = parse_span(reached[2])
    begun = next((p.start_us for p in observed.phases if p.name == PhaseName.USERSPACE), None)
    if after is not None and begun is not None:
        observed.mark(f"target:{reached[1]}", begun + after, f"{reached[1]} reached (systemd-analyze)")
    return True


Handler = Callable[[Observed, int | None, bytes], None]

_VERSION = re.compile(rb"Linux version (\S{1,120})(.*)", re.S)
_SWITCHED = re.compile(
    rb"(?:[Ss]witched to|[Ss]witching to) (?:clocksource|high resolution mode using clocksource) (\S{1,60})"
)
_SYSTEMD_RUNS = re.compile(rb"systemd \d.* running in (?:test )?system(?: test)? mode")
_ARCH_WORD = re.compile(rb"Detected architecture ([\w-]{1,30})")
_VIRT_WORD = re.compile(rb"Detected virtualization ([\w-]{1,30})")
_DROPPED = re.compile(rb"\*\* ?\d+ printk messages dropped")
_RUN = re.compile(rb"Run (\S{1,200}) as init process")
#: First program of an initial RAM disk: its /init, or our collector, which then becomes /init.
INITRD_PROGRAMS = ("/init", "/bootchart-vt")
LOGIN = re.compile(rb"^[\w.() -]{0,80}login: ?$")

#: Targets at which a system counts as started, by their names and by the descriptions that older versions print.
TARGETS = ("graphical.target", "Graphical Interface", "multi-user.target", "Multi-User System")


def _version(observed: Observed, at_us: int | None, message: bytes) -> None:
    match = _VERSION.match(message)
    if not match:
        return
    observed.version = decode(match[1], 120)
    observed.first_line_seen = True
    observed.mark("kernel-first-line", at_us, "'Linux version' line")


def _booting(observed: Observed, at_us: int | None, message: bytes) -> None:
    if message.startswith(b"Booting Linux on physical CPU"):
        observed.first_line_seen = True
        observed.mark("kernel-first-line", at_us, "'Booting Linux' line")


def _command_line(observed: Observed, at_us: int | None, message: bytes) -> None:
    before, found, words = message.partition(b"ommand line: ")
    if found and len(before) < 9:
        observed.command_line = decode(words.strip(), 4096)


def _kernel(observed: Observed, at_us: int | None, message: bytes) -> None:
    if message.startswith(b"Kernel command line"):
        _command_line(observed, at_us, message)
    elif message.startswith(b"Kernel panic - not syncing"):
        observed.mark("panic", at_us, decode(message, 200))
        observed.warn(WarningCode.CRASHED, f"the boot ended in a crash: {decode(message, 200)}")


def _fault(observed: Observed, at_us: int | None, message: bytes) -> None:
    if message.startswith(
        (b"BUG: ", b"Oops", b"Internal error: Oops", b"general protection fault", b"Unable to handle kernel")
    ):
        observed.warn(WarningCode.CRASHED, f"the kernel reported a fault: {decode(message, 160)}")


def _clocksource(observed: Observed, at_us: int | None, message: bytes) -> None:
    match = _SWITCHED.search(message)
    if match:
        if observed.clocksource_switch_us is None:
            observed.clocksource_switch_us = at_us
        observed.clocksource = decode(match[1], 60)


def _freeing(observed: Observed, at_us: int | None, message: bytes) -> None:
    if message.startswith((b"Freeing unused kernel", b"Freeing init memory")):
        observed.mark("freed", at_us, f"'{decode(message, 60)}'")
    elif message.startswith(b"Freeing initrd memory"):
        observed.mark("initrd-freed", at_us, "'Freeing initrd memory'")


def _run(observed: Observed, at_us: int | None, message: bytes) -> None:
    match = _RUN.match(message)
    if match:
        program = decode(match[1], 200)
        observed.mark(
            "run-initrd" if program in INITRD_PROGRAMS else "run-init",
            at_us,
            f"'Run {program} as init process'",
            last=True,
        )
        observed.mark("run-any", at_us, f"'Run {program} as init process'")


def _hypervisor(observed: Observed, at_us: int | None, message: bytes) -> None:
    if message.startswith(b"Hypervisor detected: "):
        observed.hypervisor = decode(message[21:], 60)


def _dropped(observed: Observed, at_us: int | None, message: bytes) -> None:
    if _DROPPED.match(message):
        observed.warn(WarningCode.MESSAGES_DROPPED, f"the kernel's buffer overflowed: {decode(message, 60)}")


#: Marks with which a system is up: a service manager that comes after them is executed anew.
_UP = ("finished", "login", "cloud-init-finished", *(f"unit-up:{name}" for name in TARGETS))


def _may_follow(observed: Observed) -> bool:
    """Return whether a second systemd can be that of the root file system: the first ran in the initial RAM disk, or
    something else says that the root was switched, and the system was not up yet. Elsewhere it is executed anew."""
    if not observed.marks.keys().isdisjoint(_UP):
        return False
    signs = ("systemd-initrd", "switch-root", "switch-root-after", "run-init")
    return not observed.marks.keys().isdisjoint(signs)


def _systemd(observed: Observed, at_us: int | None, message: bytes) -> None:
    text = message.partition(b": ")[2]
    observed.mark("systemd-line", at_us, "systemd's first line")
    if text.startswith(b"Startup finished in "):
        line = decode(text)
        if parse_startup_line(line):
            read_startup(observed, line)
            observed.mark("finished", at_us, "systemd's 'Startup finished'")
    elif text.startswith(b"systemd ") and _SYSTEMD_RUNS.match(text):
        again = "systemd-first" in observed.marks
        if not again or _may_follow(observed):
            how = "systemd's first line" if not again else "the first line of the second systemd"
            observed.mark("systemd", at_us, how, last=True)
        observed.mark("systemd-first", at_us, "systemd's first line")
    elif text.startswith(b"Running in init"):
        observed.mark("systemd-initrd", at_us, "systemd: running in the initial RAM disk")
    elif text.startswith(b"Switching root"):
        observed.mark("switch-root", at_us, "'Switching root'")
    elif text.startswith((b"Starting Switch Root", b"Starting initrd-switch-root.service")):
        _switches(observed, at_us, "'Starting Switch Root'")
    elif text.startswith(b"Detected "):
        arch, virtual = _ARCH_WORD.match(text), _VIRT_WORD.match(text)
        if arch:
            observed.arch = architecture(decode(arch[1], 30))
        elif virtual and observed.hypervisor is None:
            observed.hypervisor = decode(virtual[1], 30)
    elif is_shutdown(message):
        observed.closing = True
    else:
        _unit(observed, at_us, text)


_VERBS = (
    b"Starting ",
    b"Mounting ",
    b"Activating swap ",
    b"Started ",
    b"Finished ",
    b"Mounted ",
    b"Reached target ",
    b"Activated swap ",
)
_STARTED = re.compile(
    rb"(Starting|Mounting|Activating swap|Started|Finished|Mounted|Reached target|Activated swap) (.{1,200}?)\.{0,3}$"
)


def _switches(observed: Observed, at_us: int | None, how: str) -> None:
    """Note that the root is being switched. Without a stamp it is by the next line that has one."""
    if at_us is None:
        observed.pending.setdefault("switch-root-after", f"{how}, which has no stamp: the next line that has one")
    else:
        observed.mark("switch-root-after", at_us, how)


def take_pending(observed: Observed, at_us: int) -> None:
    """Mark what was said without a stamp, at the first stamp after it."""
    for name, how in observed.pending.items():
        observed.mark(name, at_us, how)
    observed.pending.clear()


#: Words of a first journal at the switch of the root, and of systemd on a console when a system starts.
_JOURNAL_ENDS = re.compile(rb"systemd-journald\[\d+\]: Received SIGTERM from PID 1 \(")
_WELCOME = re.compile(rb"Welcome to (.{1,120}?)!?\s*$")
_OF_INITRD = (b"dracut", b"nitramfs", b"nitrd", b"Initrd")


def switches_root(observed: Observed, at_us: int | None, message: bytes) -> None:
    """Note signs of a switched root that are no line of systemd itself: it ends the first journal; its console shows
    `Starting Switch Root`, or a second welcome."""
    if message.startswith(b"systemd-journald[") and _JOURNAL_ENDS.match(message):
        _switches(observed, at_us, "the first journal is ended by PID 1")
    elif message.lstrip().startswith((b"Starting Switch Root", b"Starting initrd-switch-root")):
        _switches(observed, at_us, "'Starting Switch Root'")
    elif message.startswith(b"Welcome to ") and (match := _WELCOME.match(message)):
        if any(word in match[1] for word in _OF_INITRD):
            observed.in_initrd = True
        elif observed.in_initrd:
            _switches(observed, at_us, "the second 'Welcome to'")


def _unit(observed: Observed, at_us: int | None, text: bytes) -> None:
    if at_us is None or not text.startswith(_VERBS):
        return
    match = _STARTED.match(text)
    if not match:
        return
    verb, what = match[1], decode(match[2], 200).partition(" - ")[0]
    if verb in (b"Starting", b"Mounting", b"Activating swap"):
        observed.mark(f"unit-starts:{what}", at_us, "")
    else:
        observed.mark(f"unit-up:{what}", at_us, "")


def _loader(observed: Observed, at_us: int | None, message: bytes) -> None:
    if message.startswith(LOADERS):
        observed.mark("loader", at_us, f"'{decode(message, 60)}'")
    elif message.startswith(FIRMWARE):
        observed.mark("firmware", at_us, f"'{decode(message, 60)}'")
    elif message.startswith(HANDED_OVER):
        observed.mark("kernel-handed-over", at_us, f"'{decode(message, 60)}'", last=True)
    else:
        return
    if not observed.kernel_seen:
        observed.loader = True


def _cloud_init(observed: Observed, at_us: int | None, message: bytes) -> None:
    if b" finished at " in message and b"Up " in message:
        observed.mark("cloud-init-finished", at_us, "cloud-init's 'finished' line")


def _over(observed: Observed, at_us: int | None, message: bytes) -> None:
    observed.closing = observed.closing or is_shutdown(message)


def _target(observed: Observed, at_us: int | None, message: bytes) -> None:
    # systemd writes `[  OK  ] Reached target …` straight to a serial console.
    if b"Reached target" in message:
        _over(observed, at_us, message)
        _unit(observed, at_us, message[message.index(b"Reached target") :])


#: First word of a message → what it means. Looked up once a line.
HANDLERS: dict[bytes, Handler] = {
    b"Linux": _version,
    b"Booting": _booting,
    b"Command": _command_line,
    b"Kernel": _kernel,
    b"clocksource:": _clocksource,
    b"Switched": _clocksource,
    b"Switching": _clocksource,
    b"Freeing": _freeing,
    b"Run": _run,
    b"Hypervisor": _hypervisor,
    b"**": _dropped,
    b"systemd[1]:": _systemd,
    b"systemd:": _systemd,
    b"BUG:": _fault,
    b"Oops:": _fault,
    b"Oops": _fault,
    b"Internal": _fault,
    b"general": _fault,
    b"Unable": _fault,
    b"U-Boot": _loader,
    b"SPL": _loader,
    b"GRUB": _loader,
    b"Welcome": _loader,
    b"SYSLINUX": _loader,
    b"ISOLINUX": _loader,
    b"systemd-boot": _loader,
    b"SeaBIOS": _loader,
    b"BdsDxe:": _loader,
    b"NOTICE:": _loader,
    b"OpenSBI": _loader,
    b"UEFI": _loader,
    b"Starting": _loader,
    b"EDK": _loader,
    b"barebox": _loader,
    b"Barebox": _loader,
    b"iPXE": _loader,
    b"Hit": _loader,
    b"##": _loader,
    b"I>": _loader,
    b"welcome": _loader,
    b"EFI": _loader,
    b"Cloud-init": _cloud_init,
    b"[": _target,
    b"reboot:": _over,
    b"Restarting": _over,
    b"kexec_core:": _over,
    b"kexec:": _over,
    b"systemd-shutdown[1]:": _over,
}


def handler_of(message: bytes) -> Handler | None:
    """Return the function that reads a message; None where it marks nothing. coreboot's first word has its version."""
    return HANDLERS.get(message.partition(b" ")[0]) or (_loader if message.startswith(b"coreboot-") else None)


def mark_ending(observed: Observed, at_us: int | None, message: bytes) -> bool:
    """Mark a message that is known by its end. False when it is none of them."""
    if message.endswith((b"login:", b"login: ")) and LOGIN.match(message):
        observed.mark("login", at_us, "login prompt")
    elif message.endswith(b": Journal started") and message.startswith(b"systemd-journal"):
        observed.mark("journal-started", at_us, "journald's first line")
    elif message.endswith(b": Journal stopped") and is_shutdown(message):
        observed.closing = True
    elif message.startswith(b"cloud-init[") and b" finished at " in message:
        observed.mark("cloud-init-finished", at_us, "cloud-init's 'finished' line")
    else:
        return False
    return True


#: Lines of a job of continuous integration from before it starts a machine: GitLab's, GitHub's, Jenkins', pytest.
_JOB = re.compile(
    rb"section_(?:start|end):\d{1,12}:|Running with gitlab-runner |##\[\w{1,20}\]|Current runner version: |Started by "
    rb"|\[Pipeline\] |=+ test session starts"
)


def of_machine(early: Sequence[tuple[int, bytes]]) -> Sequence[tuple[int, bytes]]:
    """Return the lines before a kernel's that are of its machine: all from the firmware's first on. A job's log has
    none before the first of firmware or loader; any other capture begins when the machine does."""
    first = next((number for number, (_, message) in enumerate(early) if is_loader(message)), len(early))
    of_job = any(_JOB.match(message) for _, message in early[:first])
    by_firmware = first < len(early) and early[first][1].startswith(FIRMWARE)
    return early[first:] if of_job or by_firmware else early


def place_early(observed: Observed, early: Sequence[tuple[int, bytes]], clock: HostClock) -> int:
    """Put lines of firmware and loader, captured with the host's clock, before the kernel's zero; without a kernel the
    first of them is it. Returns the moment of the last."""
    alone = clock.offset_us is None
    if clock.offset_us is None:
        clock.offset_us = early[0][0]
        observed.relative = True
    first, last = early[0][0] - clock.offset_us, early[-1][0] - clock.offset_us
    observed.mark("capture", first, "first line of the serial capture")
    for host_us, message in early:
        handler = handler_of(message)
        if handler is not None:
            handler(observed, host_us - clock.offset_us, message)
        elif message.endswith((b"login:", b"login: ")) and LOGIN.match(message):
            observed.mark("login", host_us - clock.offset_us, "login prompt")
    early_messages = [(host_us - clock.offset_us, decode(message)) for host_us, message in early[:MAX_MESSAGES]]
    observed.messages = [*early_messages, *observed.messages][: 2 * MAX_MESSAGES]
    if alone and observed.first_us is None:
        observed.first_us, observed.last_us = first, last
    return last


def without_arrivals(observed: Observed) -> None:
    """Take back what a journal on the wall clock says of the time before it ran: those lines carry the moment at which
    it read them. What came later is put on the kernel's clock where systemd says how long all took."""
    started, finished = observed.marks.get("journal-started"), observed.marks.get("finished")
    begun = min((p.start_us or 0 for p in observed.phases), default=0)
    over = max((p.end_us or 0 for p in observed.phases), default=0)
    if observed.printed_total_us is not None:
        over = observed.printed_total_us + begun
    shift = over - finished[0] if finished and over else None

    def real(at_us: int | None) -> int | None:
        known = started and shift is not None and at_us is not None and at_us > started[0]
        return at_us + shift if known and at_us is not None and shift is not None else None

    moved = {name: (real(at_us), how) for name, (at_us, how) in observed.marks.items()}
    observed.marks = {name: (at_us, how) for name, (at_us, how) in moved.items() if at_us is not None}
    observed.rough_us = {at for at_us in observed.rough_us if (at := real(at_us)) is not None}
    observed.gaps = [
        msgspec.structs.replace(gap, start_us=gap.start_us + shift, end_us=gap.end_us + shift)
        for gap in observed.gaps
        if shift is not None and real(gap.start_us) is not None
    ]
    for call in observed.initcalls:
        call.start_us = call.end_us = call.base_us = None
    for probe in observed.probes:
        probe.end_us = None
    observed.messages = [(real(at_us), text) for at_us, text in observed.messages]
    observed.arrived, observed.clocksource_switch_us = True, None
    observed.warn(
        WarningCode.ARRIVAL_TIMES,
        "early lines carry the time at which the journal read them, not when they were said: how long the kernel took "
        "is not in this log (journalctl -o short-monotonic has it)",
    )


#: systemd's sum and the stamp of the line that gives it differ by no more, where both count on one clock.
SAME_CLOCK_US = 3_000_000


def on_systemds_clock(observed: Observed) -> None:
    """Put a log whose stamps count from before the kernel (a virtual machine's may be its host's) on the clock by which
    systemd counted its phases. Both show the moment at which all had started."""
    finished = observed.marks.get("finished")
    over = max((p.end_us for p in observed.phases if p.source == STARTUP and p.end_us is not None), default=None)
    if finished is None or over is None or observed.arrived or finished[0] - over <= SAME_CLOCK_US:
        return
    kernel = any(p.name == PhaseName.KERNEL for p in observed.phases)
    late = observed.clock_from_us is not None or (observed.first_us or 0) > LATE_US
    if not kernel or not late:
        return
    observed.warn(
        WarningCode.CLOCK_STARTS_LATE,
        f"the log's stamps are {(finished[0] - over) / 1e6:.3f} s ahead of systemd's clock: it had finished at "
        f"{over / 1e6:.3f} s, in a line that is stamped {finished[0] / 1e6:.3f} s; times count on systemd's",
    )
    shift_log(observed, over - finished[0])


def shift_log(observed: Observed, by_us: int) -> None:
    """Move all that a log's stamps tell on another clock; phases that systemd reported stay."""

    def moved(at_us: int | None) -> int | None:
        return None if at_us is None else at_us + by_us

    observed.marks = {name: (at_us + by_us, how) for name, (at_us, how) in observed.marks.items()}
    observed.rough_us = {at_us + by_us for at_us in observed.rough_us}
    observed.gaps = [
        msgspec.structs.replace(gap, start_us=gap.start_us + by_us, end_us=gap.end_us + by_us) for gap in observed.gaps
    ]
    for call in observed.initcalls:
        call.start_us, call.end_us, call.base_us = moved(call.start_us), moved(call.end_us), moved(call.base_us)
    for probe in observed.probes:
        probe.end_us = moved(probe.end_us)
    observed.messages = [(moved(at_us), text) for at_us, text in observed.messages]
    observed.printed = [(at_us + by_us, characters) for at_us, characters in observed.printed]
    observed.first_us, observed.last_us = moved(observed.first_us), moved(observed.last_us)
    observed.clocksource_switch_us = moved(observed.clocksource_switch_us)
    observed.clock_from_us = observed.clock_set_us = None


def place_loader(observed: Observed, loader: Observed, first_us: int, last_us: int) -> None:
    """Put what was read of a loader, on its own clock, before the kernel's zero: it ended there, as far as is known."""
    observed.loader, observed.lines, observed.characters = True, loader.lines, loader.characters
    for name, (at_us, how) in loader.marks.items():
        observed.mark(name, at_us - last_us, how)
    if "firmware" not in observed.marks:
        observed.mark("loader", first_us - last_us, "the first stamp of the loader's own clock", last=True)
    observed.messages = [(None if at is None else at - last_us, text) for at, text in loader.messages]
