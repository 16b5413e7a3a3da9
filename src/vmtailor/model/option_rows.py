# SPDX-License-Identifier: Apache-2.0
"""The options that several verbs share, each with one name, one short name and one type."""

from __future__ import annotations

from pathlib import Path

from vmtailor.model import option_values
from vmtailor.model.boots.series import JudgedBy, Under
from vmtailor.model.boots.workload import Clients
from vmtailor.model.machine import Accelerator, Clock
from vmtailor.model.option import Option, OptionSubject, Suggests

JSON = Option(name="--json", type=bool, help="Print one JSON document.", unkeyed="it is how a result is printed")
VERBOSE = Option(
    name="--verbose", type=bool, help="Print every table before the end.", unkeyed="it is how a result is printed"
)
OUT = Option(
    name="--out", short="-o", type=Path, help="Write the result to this folder.", unkeyed="it is where a result goes"
)
#: For verbs that write one HTML file.
PAGE_OUT = Option(
    name="--out", short="-o", type=Path, former=("--output",), help="Write the page (one HTML file) here."
)
REMOTE_CACHE = Option(
    name="--remote-cache", metavar="URL", unkeyed="it is where results are looked for",
    help="Share results with machines of the same tools there: a folder, or s3://BUCKET/FOLDER.",
)  # fmt: skip
EXERCISE = Option(
    name="--exercise", short="-x", type=Path, help="Drive and judge the container by this exercise (TOML).",
    unkeyed="the key has the exercise that it holds",
)  # fmt: skip
#: For verbs that repeat a bundle's exercise.
BUNDLE_EXERCISE = Option(
    name="--exercise", short="-x", type=Path,
    help="Use the exercise file that the bundle was fitted with, and run its host commands.",
)  # fmt: skip
TRUST_HOST_COMMANDS = Option(
    name="--trust-host-commands", type=bool,
    help="Run on this host, as you, the programs that the bundle's own exercise names. Without it they are left out.",
)  # fmt: skip
#: Options that name the monitor that starts a bundle's machine, and the place where it does.
_OF_CONTAINERS = frozenset({OptionSubject.CONTAINER, OptionSubject.FITTED})
_WHOSE_MACHINE = "leave it out: a system's machine is QEMU's"
ON = Option(
    name="--on", metavar="MONITOR", suggests=Suggests.MONITORS, subjects=_OF_CONTAINERS, hint=_WHOSE_MACHINE,
    help="Start the machine by this monitor under KVM: on this host where that works, else in the lab.",
)  # fmt: skip
IN_LAB = Option(
    name="--lab", type=bool, subjects=_OF_CONTAINERS, hint=_WHOSE_MACHINE,
    help="Start the monitor in the lab, an emulated machine in which KVM works; make lab builds it.",
)  # fmt: skip
PROGRAM = Option(
    name="--program", metavar="NAME=PATH", many=True, read=option_values.named_files, subjects=_OF_CONTAINERS,
    hint=_WHOSE_MACHINE,
    help="Use this program for a monitor in the lab, such as firecracker=PATH. Repeat it.",
)  # fmt: skip
CLIENTS = Option(
    name="--clients", type=Clients, subjects=frozenset({OptionSubject.FITTED}),
    help="Let the loads of an exercise ask from inside the guest, or from its host: in the lab on the same clock.",
)  # fmt: skip
MEMORY = Option(
    name="--memory",
    short="-m",
    read=option_values.parse_memory,
    help="Give the machine this memory, such as 64M or 1g.",
)
CPUS = Option(name="--cpus", type=int, least=1, most=64, help="Give the machine this many CPUs.")
CPU_MODEL = Option(name="--cpu-model", former=("--cpu",), help="Use this CPU model. Default: the processor's.")
ACCELERATOR = Option(
    name="--accelerator", type=Accelerator, former=("--accel",),
    help="Run the machine by kvm, or by tcg, which works everywhere. Default: kvm where it works.",
)  # fmt: skip
CLOCK = Option(
    name="--clock", type=Clock, help="Measure by wall time of the host, or by instructions, counted exactly by TCG."
)
REPEAT = Option(
    name="--repeat", short="-n", type=int, former=("--boots",), least=1, most=100,
    help="Boot each side this many times.",
)  # fmt: skip
BUDGET = Option(name="--budget", type=int, least=1, help="Let repair build at most this many kernels.")
KERNEL = Option(name="--kernel", help="Use this packaged kernel: a series (6.12), or an exact version or release.")
SOURCE = Option(
    name="--source", help="Build this kernel source instead of the packaged one: DIR or TARBALL[,SHA256].",
    unkeyed="the key has the digest of the source",
)  # fmt: skip
KEEP = Option(
    name="--keep", many=True, suggests=Suggests.KEPT, read=option_values.kept_symbols,
    help="Keep a configuration symbol: NAME or NAME=VALUE. Repeat it, or join names by commas.",
)  # fmt: skip
FOR = Option(
    name="--for", many=True, commas=True, metavar="TARGET", suggests=Suggests.TARGETS,
    help="Keep what this target of `export` needs of a kernel: NAME or NAME:VARIANT. Repeat it, or join names by "
    "commas.",
)  # fmt: skip
DROP = Option(
    name="--drop", many=True, commas=True, help="Leave a configuration symbol out. Repeat it, or join names by commas."
)
MARGIN = Option(
    name="--margin", many=True, metavar="WHAT", suggests=Suggests.MARGINS, read=option_values.margins,
    help="Keep more than was demanded: none, reachable, server or reachable+server. Default: reachable; with server "
    "too where no load was given.",
)  # fmt: skip
PARTITION = Option(
    name="--partition", type=int, least=1, most=1000, help="Use the system on this partition of the disk."
)
TRY = Option(
    name="--try", many=True, commas=True, parts=option_values.tried_parts, metavar="CHANGE",
    suggests=Suggests.CHANGES,
    help="Try these changes, and keep or show what is faster; a+b is tried as one. Repeat it, or use commas.",
)  # fmt: skip
UNDER = Option(
    name="--under", type=Under,
    help="Try changes under the boot, the exercise's load, or both. Default: what --judge is a figure of.",
)  # fmt: skip
JUDGE = Option(
    name="--judge", type=JudgedBy, metavar="FIGURE",
    help="Judge trials by ready, instructions (up to init), cpu, request-kernel or request (instructions for one), "
    "p50 to p99.9. Default: ready or request-kernel.",
)  # fmt: skip
TOP = Option(name="--top", type=int, least=1, help="Print this many rows.")
BOOT = Option(
    name="--boot", type=int, least=0, help="Take this boot of a log that holds several: 1 the first, 0 the last."
)
DRY_RUN = Option(name="--dry-run", type=bool, help="Show what would be done, and do nothing.")
#: Options of the verbs for named machines.
MACHINES = Option(
    name="NAME", many=True, suggests=Suggests.MACHINES,
    help="Take these machines: names, identifiers, or the beginnings of these.",
)  # fmt: skip
MACHINE = Option(
    name="NAME",
    suggests=Suggests.MACHINES,
    help="Take this machine: its name, its identifier, or the beginning of that.",
)
FORMAT = Option(name="--format", metavar="FORM", help="Print a table, json, or the fields of a template: '{{.ID}}'.")
NO_TRUNC = Option(name="--no-trunc", type=bool, help="Print identifiers and commands in full.")
DETACH_KEYS = Option(
    name="--detach-keys", metavar="KEYS", help="Leave the terminal at these keys, such as ctrl-x,x (ctrl-p,ctrl-q)."
)
SIG_PROXY = Option(
    name="--sig-proxy", metavar="true|false", suggests=("true", "false"), read=option_values.parse_switch,
    help="Pass signals on (true), or leave the machine at the first one (false).",
)  # fmt: skip
