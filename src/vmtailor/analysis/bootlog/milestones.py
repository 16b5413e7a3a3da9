# SPDX-License-Identifier: Apache-2.0
"""The messages that mark the stretches of a boot, found by their first word so that a long log stays cheap."""

from __future__ import annotations

import re
from collections.abc import Callable

from vmtailor.analysis.bootlog.boot_record import Observed, architecture
from vmtailor.analysis.bootlog.boundaries import FIRMWARE, HANDED_OVER, LOADERS
from vmtailor.analysis.bootlog.log_lines import decode
from vmtailor.analysis.bootlog.systemd_analyze import parse_startup_line, read_startup
from vmtailor.model.architecture import every
from vmtailor.model.boots.timeline import WarningCode

Handler = Callable[[Observed, int | None, bytes], None]

_VERSION = re.compile(rb"Linux version (\S{1,120})(.*)", re.S)
#: Beside those that architectures of ours say of themselves (model/architecture.py).
_COMPILERS = "aarch64|arm|riscv64|riscv32|powerpc64le|powerpc64|powerpc|s390x|mips\\w*|loongarch64"
_OURS = every()
_COMPILER_ARCH = re.compile(
    rf"\b({'|'.join((*(word for row in _OURS for word in row.log.compilers), _COMPILERS))})-[\w-]*linux".encode()
)
_SWITCHED = re.compile(
    rb"(?:[Ss]witched to|[Ss]witching to) (?:clocksource|high resolution mode using clocksource) (\S{1,60})"
)
_SYSTEMD_RUNS = re.compile(rb"systemd \d+.* running in (?:test )?system(?: test)? mode")
_ARCH_WORD = re.compile(rb"Detected architecture ([\w-]{1,30})")
_VIRT_WORD = re.compile(rb"Detected virtualization ([\w-]{1,30})")
_DROPPED = re.compile(rb"\*\* ?\d+ printk messages dropped")
_RUN = re.compile(rb"Run (\S{1,200}) as init process")
#: What runs first in an initial RAM disk: its /init, or our collector, which goes on as that.
INITRD_PROGRAMS = ("/init", "/bootchart-vt")
LOGIN = re.compile(rb"^[\w.() -]{0,80}login: ?$")

#: Whose kernels print "Command line:" without the word "Kernel".
_BARE = next((row.name for row in _OURS if row.log.bare_command_line), None)


def _version(observed: Observed, at_us: int | None, message: bytes) -> None:
    match = _VERSION.match(message)
    if not match:
        return
    observed.version = decode(match[1], 120)
    observed.first_line_seen = True
    observed.mark("kernel-first-line", at_us, "'Linux version' line")
    compiler = _COMPILER_ARCH.search(match[2])
    if compiler and observed.arch is None:
        observed.arch = architecture(compiler[1].decode())


def _booting(observed: Observed, at_us: int | None, message: bytes) -> None:
    if message.startswith(b"Booting Linux on physical CPU"):
        observed.first_line_seen = True
        observed.mark("kernel-first-line", at_us, "'Booting Linux' line")
        if b"[0x" in message:
            observed.arch = "arm64"


def _command_line(observed: Observed, at_us: int | None, message: bytes) -> None:
    before, found, words = message.partition(b"ommand line: ")
    if found and len(before) < 9:
        if before == b"C" and observed.arch is None:
            observed.arch = _BARE
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


def _systemd(observed: Observed, at_us: int | None, message: bytes) -> None:
    text = message.partition(b": ")[2]
    if text.startswith(b"Startup finished in "):
        line = decode(text)
        if parse_startup_line(line):
            read_startup(observed, line)
            observed.mark("finished", at_us, "systemd's 'Startup finished'")
    elif text.startswith(b"systemd ") and _SYSTEMD_RUNS.match(text):
        observed.mark("systemd", at_us, "systemd's first line", last=True)
        observed.mark("systemd-first", at_us, "systemd's first line")
    elif text.startswith(b"Running in init"):
        observed.mark("systemd-initrd", at_us, "systemd: running in the initial RAM disk")
    elif text.startswith(b"Switching root"):
        observed.mark("switch-root", at_us, "'Switching root'")
    elif text.startswith(b"Detected "):
        arch, virtual = _ARCH_WORD.match(text), _VIRT_WORD.match(text)
        if arch:
            observed.arch = architecture(decode(arch[1], 30))
        elif virtual and observed.hypervisor is None:
            observed.hypervisor = decode(virtual[1], 30)
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


def _target(observed: Observed, at_us: int | None, message: bytes) -> None:
    # systemd writes `[  OK  ] Reached target …` straight to a serial console.
    if b"Reached target" in message:
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
    b"coreboot-": _loader,
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
}

_ARCH_SIGNS = (
    ("arm64", ("CPU features: detected", "ARMv8", "arm64")),
    ("arm", ("CPU: ARMv7", "CPU: ARMv6", "CPU: PIPT", "cr=10c5387d")),
    ("riscv64", ("SBI specification", "riscv: base ISA")),
    ("s390x", ("setup: Linux is running", "sclp_")),
    ("mips", ("CPU0 revision is:",)),
    *((row.name, row.log.signs) for row in _OURS),
)


def guess_arch(observed: Observed) -> str | None:
    """Return the architecture from messages that only it prints; None when there are none."""
    for _, text in observed.messages[:400]:
        for arch, signs in _ARCH_SIGNS:
            if text.startswith(signs) or any(sign in text[:60] for sign in signs[:1]):
                return architecture(arch)
    return None
