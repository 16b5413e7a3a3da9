# SPDX-License-Identifier: Apache-2.0
"""libkrun as a target: a program of C that calls it, or an image of OCI for crun's handler krun."""

from __future__ import annotations

import string
from collections.abc import Iterator, Sequence
from dataclasses import replace

from vmtailor.base.errors import UserInputError
from vmtailor.drivers.monitors import monitors
from vmtailor.drivers.monitors.monitor import StartPlace
from vmtailor.drivers.targets import crun_image, tap_device
from vmtailor.drivers.targets.target import Export, ExportFolder, ExportTarget, Guide
from vmtailor.model.machine import HOST_CPU, Accelerator, Clock

#: Characters that mean themselves in a string of C.
_PLAIN = frozenset(f"{string.ascii_letters}{string.digits} /.,:;=_+-@()[]{{}}<>*&^$#!~|'")

_PROGRAM = """\
/* Starts the machine {name} with libkrun, its console at this terminal. Start it in its folder.
 * The prototypes are those of libkrun.h, which not every libkrun comes with. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int32_t krun_set_log_level(uint32_t level);
int32_t krun_create_ctx(void);
int32_t krun_disable_implicit_init(uint32_t ctx);
int32_t krun_disable_implicit_console(uint32_t ctx);
int32_t krun_disable_implicit_vsock(uint32_t ctx);
int32_t krun_set_vm_config(uint32_t ctx, uint8_t cpus, uint32_t ram_mib);
int32_t krun_set_kernel(uint32_t ctx, const char *path, uint32_t format, const char *initrd, const char *words);
int32_t krun_add_disk(uint32_t ctx, const char *id, const char *path, bool read_only);
int32_t krun_add_net_tap(uint32_t ctx, const char *device, const uint8_t *mac, uint32_t features, uint32_t flags);
int32_t krun_add_serial_console_default(uint32_t ctx, int input, int output);
int32_t krun_split_irqchip(uint32_t ctx, bool enable);
int32_t krun_start_enter(uint32_t ctx);

static void check(const char *call, int32_t result) {{
    if (result < 0) {{
        fprintf(stderr, "%s: %s\\n", call, strerror(-result));
        exit(1);
    }}
}}

#define CALL(function, ...) check(#function, function(__VA_ARGS__))

/* The kernel's command line. */
static const char words[] =
{words};

int main(void) {{
    CALL(krun_set_log_level, 1); /* errors */
    int32_t made = krun_create_ctx();
    check("krun_create_ctx", made);
    uint32_t ctx = (uint32_t)made;
    CALL(krun_disable_implicit_init, ctx);
    CALL(krun_disable_implicit_console, ctx);
    CALL(krun_disable_implicit_vsock, ctx);
{calls}
    CALL(krun_add_serial_console_default, ctx, -1, 1); /* nothing is read */
    CALL(krun_start_enter, ctx);                       /* does not return */
    return 0;
}}
"""

_MAKEFILE = """\
# LIBKRUN=PATH: another library than the linker finds.
LIBKRUN ?= -l:libkrun.so.1
CFLAGS ?= -O2 -Wall
start: machine.c
\t$(CC) $(CFLAGS) -o $@ $< $(LIBKRUN)
"""


class LibkrunTarget(ExportTarget):
    """Writes `machine.c`, a Makefile, kernel and disks; or an image for crun."""

    def refusal(self, export: Export) -> UserInputError | None:
        """Return the error for what crun's machines cannot have."""
        refused = crun_image.refused(export) if export.variant == "crun" else None
        return self.refuse(*refused) if refused else None

    def write(self, export: Export, folder: ExportFolder) -> Guide:
        if export.variant == "crun":
            return crun_image.write(export, folder)
        folder.copy(export.kernel, export.kernel_name)
        disks = folder.disks(export)
        names = {str(export.kernel): export.kernel_name}
        machine = replace(
            export.machine, accelerator=Accelerator.KVM, clock=Clock.WALL, cpu_model=HOST_CPU, ports=(), disks=disks,
            monitor="libkrun",
        )  # fmt: skip
        monitor = monitors.of(machine)
        orders = monitor.orders(machine, StartPlace(".", names, export.wishes.tap)).argv[1:]
        folder.text("machine.c", source(export.name, orders))
        folder.text("Makefile", _MAKEFILE)
        notes = [*tap_device.notes(export), "- Ctrl-C ends it."]
        if tap := tap_device.command(export):
            return Guide(tap, "make && ./start", tuple(notes))
        return Guide("make", "./start", tuple(notes))


def source(name: str, orders: Sequence[str]) -> str:
    """Return the program that makes the calls of a command of krun-start's (native/krun-start)."""
    values = dict(zip(orders[::2], orders[1::2], strict=False))
    words = c_strings(values["words"])
    return _PROGRAM.format(name=name, words=words, calls="\n".join(f"    {line}" for line in _calls(orders)))


def _calls(orders: Sequence[str]) -> Iterator[str]:
    """Yield the statements of a machine, from the words of the command that starts it."""
    words = iter(orders)
    found = dict[str, str]()
    disks = 0
    last: list[str] = []
    for word in words:
        value = next(words)
        match word:
            case "disk" | "written":
                only = "true" if word == "disk" else "false"
                last.append(f'CALL(krun_add_disk, ctx, "{chr(ord("a") + disks)}", {_quoted(value)}, {only});')
                disks += 1
            case "tap":
                mac = ", ".join(f"0x{int(part, 16):02x}" for part in next(words).split(":"))
                last.append(f"CALL(krun_add_net_tap, ctx, {_quoted(value)}, (const uint8_t[]){{{mac}}}, 0, 0);")
            case "without":
                assert value == "pic"
                last.append("CALL(krun_split_irqchip, ctx, true); /* the kernel needs no PIC */")
            case "cpus" | "memory" | "format" | "kernel" | "words":
                found[word] = value
            case _:
                raise AssertionError(f"a word of krun-start's that no call is known for: {word}")
    yield f"CALL(krun_set_vm_config, ctx, {int(found['cpus'])}, {int(found['memory'])}); /* CPUs, MiB */"
    yield f"CALL(krun_set_kernel, ctx, {_quoted(found['kernel'])}, {int(found['format'])}, NULL, words);"
    yield from last


def c_strings(text: str) -> str:
    """Return a text as string literals of C, one for each word."""
    parts = text.split(" ")
    spaced = [*(f"{one} " for one in parts[:-1]), parts[-1]]
    return "\n".join(f"    {_quoted(one)}" for one in spaced)


def _quoted(text: str) -> str:
    """Return a literal of C. All but letters, digits and what means nothing there is written as octal numbers."""
    return '"' + "".join(c if c in _PLAIN else "".join(f"\\{b:03o}" for b in c.encode()) for c in text) + '"'
