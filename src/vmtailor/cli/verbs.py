# SPDX-License-Identifier: Apache-2.0
"""The verbs by name. A verb's code is loaded only when it is used, so that the others cost nothing."""

from __future__ import annotations

import importlib
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from vmtailor.base import output
from vmtailor.base.errors import HostError, UserInputError
from vmtailor.cli.interrupt import work_begins
from vmtailor.cli.signature import Parameter, of_verb, parameters_of

#: Options that show help.
HELP = ("-h", "--help")


@dataclass(frozen=True)
class Verb:
    """A verb: the module below `package` that has its function, and the first sentence of that function.

    `mixed`: options may stand behind arguments. `kind`: the class of its command there, where it is one of its own.
    `help_names`: the options that show its help."""

    name: str
    module: str
    help: str
    mixed: bool = True
    kind: str = ""
    help_names: tuple[str, ...] = HELP
    package: str = "vmtailor.cli"

    def function(self) -> Callable[..., Any]:
        """Load the verb's function."""
        return of_verb(self.name, getattr(self._load(), self.name))

    def parameters(self) -> tuple[Parameter, ...]:
        """Load the verb, and return its options and arguments in the order of its help."""
        return parameters_of(self.name, getattr(self._load(), self.name))

    def command_class(self) -> type[Command]:
        found: type[Command] = getattr(self._load(), self.kind) if self.kind else Command
        return found

    def _load(self) -> ModuleType:
        return importlib.import_module(f"{self.package}.{self.module}")


def wing_verbs() -> list[Verb]:
    """Return the verbs of the wings: packages beside this one that register theirs in a file `verbs.toml`."""
    files = sorted(Path(__file__).parent.parent.glob("*/verbs.toml"))
    return [
        Verb(**row, package=f"vmtailor.{file.parent.name}")
        for file in files
        for row in tomllib.loads(file.read_text("utf-8"))["verb"]
    ]


VERBS = (
    Verb(
        "fit",
        "fit",
        "Make the machine that fits an image, or a system on a disk: trace, plan, build, verify, measure, report.",
    ),
    Verb(
        "refit",
        "refit",
        "Fit a bundle again, with calls refused in runs, or on another kernel, and show how the plan changes.",
    ),
    Verb("trace", "stages", "Run the exercise on the baseline, and show its trace."),
    Verb("plan", "stages", "Choose the configuration, and show every symbol with its reason."),
    Verb("build", "stages", "Plan and build the kernel, without verifying it, and print its path."),
    Verb(
        "verify",
        "verify",
        "Verify a bundle again on this host: run its exercise, and compare with its trace.",
    ),
    Verb(
        "measure",
        "measure",
        "Measure both machines of a bundle or a work folder, the baseline and the tailored one, and print the figures.",
    ),
    Verb(
        "explain",
        "explain",
        "Say why something is in a bundle, with the place in the trace, or why it is out and what would bring it in.",
    ),
    Verb("report", "report", "Write the HTML page of a fit again, and print its tables."),
    Verb(
        "show",
        "show",
        "Show what a system with an init of its own consists of: kernels, loader, mounts, init and units.",
    ),
    Verb(
        "boot",
        "boot",
        "Boot a machine N times, from the start of QEMU to a ready signal, and show where the time goes.",
    ),
    Verb(
        "watch",
        "watch",
        "Watch a machine over time: processors, load, memory, disks and network of the machine, of each container in "
        "it, and as its host sees it.",
    ),
    Verb(
        "analyze", "analyze", "Show where the time of a boot went: phases, hot spots, and the changes that would help."
    ),
    Verb(
        "compare",
        "compare",
        "Show what changed between boots: phases and items gone, new, faster, slower, moved, or undecided.",
    ),
    Verb(
        "gate",
        "gate",
        "Check figures against budgets: exit 0 when all are kept, 1 when one is broken or its figure is missing.",
    ),
    *wing_verbs(),
    Verb("help", "help", "Print a page of the documentation, or list all pages."),
    Verb("completions", "completions", "Print the file with which a shell completes the words of vmtailor."),
    Verb("doctor", "doctor", "Check what works on this host (tools, kernels, space, KVM) and say what to install."),
    Verb(
        "cache",
        "cache",
        "Show what the cache holds, and prune it to a limit, except for files that a running vmtailor may use.",
    ),
    Verb("family", "family", "Make a family kernel, which starts any image without a fit, or show those in the cache."),
    Verb("volume", "volume", "List, make, show or remove named volumes, which `run -v NAME:PATH` mounts."),
    Verb(
        "run",
        "run",
        "Start the container of a bundle, or of an image, in its machine.",
        mixed=False,
        kind="RunCommand",
        help_names=("--help",),  # as in docker run, whose -h is the host name
    ),
    Verb("push", "push", "Send a bundle to a registry, or into an OCI layout, and print its reference by digest."),
    Verb(
        "export",
        "export",
        "Write a bundle's machine as files that start without vmtailor, with a README of two commands.",
    ),
    Verb(
        "install",
        "install",
        "Write a copy of a system's disk with a bundle's kernel and a boot entry beside the old ones.",
    ),
    Verb("ps", "ps", "List named machines: those that run, or all."),
    Verb(
        "logs",
        "logs",
        "Print what a named machine's container has printed, each stream on its own, as it was printed.",
    ),
    Verb("exec", "exec", "Run a command in a named machine, beside its container's program.", mixed=False),
    Verb("attach", "exec", "Attach standard input, output and error to a named machine's container."),
    Verb("cp", "cp", "Copy files out of a named machine that runs, or into it."),
    Verb("start", "lifecycle", "Start named machines again, as they were started first."),
    Verb(
        "stop",
        "lifecycle",
        "Stop named machines: each container gets its stop signal, and its machine ends after its time to stop.",
    ),
    Verb("restart", "lifecycle", "Stop named machines, and start them again."),
    Verb("kill", "lifecycle", "Send a signal to the containers of named machines."),
    Verb("wait", "lifecycle", "Wait until named machines have ended, and print the exit status of each container."),
    Verb("rm", "lifecycle", "Remove named machines with all that they have kept: written files, logs, state."),
    Verb("rename", "lifecycle", "Give a named machine another name."),
    Verb(
        "inspect",
        "inspect",
        "Print all that is known of named machines: one JSON array, or the fields that a template asks for.",
    ),
    Verb("stats", "stats", "Show what named machines use, once a second: all that run, or those that are named."),
    Verb(
        "generate",
        "generate",
        "Print a unit with which systemd starts a named machine, also after a restart of the host.",
    ),
)
_BY_NAME = {verb.name: verb for verb in VERBS}

#: The lines of `vmtailor --help`, by their groups: verbs that go together, and what they do. They fit in 80x24.
GROUPS: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    (
        "Fit a machine to an image or a system disk",
        (
            ("fit, refit, measure, fleet", "Make the machine that fits; measure; for many."),
            ("trace, plan, build, verify", "Take one step of a fit, and show its result."),
            ("push, export, install", "Send it; write it for others, or onto its disk."),
            ("explain, report, show", "Explain a choice; write the page; show a system."),
        ),
    ),
    (
        "Run it like a container",
        (
            ("run, exec, attach, cp", "Start it; run another command; copy files."),
            ("ps, logs, inspect, stats", "See what runs, what it prints, what it uses."),
            ("start, stop, restart", "Start, stop and restart machines with names."),
            ("kill, wait, rename, rm", "Send a signal; wait for the end; remove it."),
            ("family, volume, generate", "Have a kernel; keep data; start with the host."),
        ),
    ),
    (
        "Find where the time of a boot goes",
        (
            ("boot, analyze, watch", "Time a boot; read its logs; watch a machine."),
            ("compare, gate, bench", "Show changes; hold budgets; compare runtimes."),
        ),
    ),
    (
        "Look after this host",
        (
            ("doctor, cache", "Check the tools; show and prune the cache."),
            ("help, completions", "Read the documentation; complete words."),
        ),
    ),
)
_MORE = (
    "Options: --debug logs commands and shows tracebacks; --version; -h, --help.",
    "vmtailor VERB --help shows a verb's options; vmtailor help lists the pages.",
)


#: Greatest width of help on a wide terminal.
WIDTH: dict[str, Any] = {"max_content_width": 100}


class Verbs(TyperGroup):
    """The group of all verbs."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [verb.name for verb in VERBS]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        verb = _BY_NAME.get(cmd_name)
        return None if verb is None else command(verb)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        # The library would load every verb to read its first line, and put blank lines between all groups.
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        formatter.write_paragraph()
        width = max(len(verbs) for _, lines in GROUPS for verbs, _ in lines)
        for head, lines in GROUPS:
            formatter.write(f"{head}:\n")
            with formatter.indentation():
                formatter.write_dl([(verbs.ljust(width), says) for verbs, says in lines])
        for line in _MORE:
            formatter.write_text(line)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        # Suggestions for a name that does not exist.
        self.commands = dict.fromkeys(_BY_NAME)  # type: ignore[assignment]
        return super().resolve_command(ctx, args)


class OutputClosed(Exception):
    """The error of output that has no reader any more."""


#: Options of `run` that counted and judged boots have none of.
_MOUNTS = ("-v", "--volume", "--mount")
_COUNTED = ("boot", "verify", "measure", "fit", "refit", "trace")


class Command(TyperCommand):
    """The command of a verb."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except Exception as error:  # the library keeps its error classes to itself
            name = getattr(error, "option_name", "") if type(error).__name__ == "NoSuchOption" else ""
            if name not in _MOUNTS or self.name not in _COUNTED:
                raise
            raise UserInputError(
                f"{self.name} has no {name}: a folder of the host is served on the host's clock, so that no two boots "
                "would be alike",
                hint="vmtailor run -v mounts folders and volumes",
            ) from error

    def invoke(self, ctx: Any) -> Any:
        work_begins()
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:  # at which the library would end the program without a word
            if output.is_unread():
                raise OutputClosed from error
            raise HostError(
                "a program that vmtailor started is gone, and could not be told what to do", hint="--debug says where"
            ) from error


def named(name: str) -> Verb | None:
    """Return the verb of a name; None when there is none."""
    return _BY_NAME.get(name)


def help_of(verb: Verb) -> str:
    """Return the text that `--help` of a verb prints."""
    made = command(verb)
    context = made.context_class(made, info_name=f"vmtailor {verb.name}", **made.context_settings)
    text: str = made.get_help(context)
    return text


def command(verb: Verb) -> Any:
    """Return a verb as the library's command."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    settings = {**WIDTH, "allow_interspersed_args": verb.mixed, "help_option_names": verb.help_names}
    app.command(verb.name, cls=verb.command_class(), context_settings=settings)(verb.function())
    return get_command(app)
