# SPDX-License-Identifier: Apache-2.0
"""Write docs/reference/catalogue.md from the catalogue of platform, policy and margins; with --check only say
whether it is up to date."""

from __future__ import annotations

import sys
from pathlib import Path

from vmtailor.analysis.changes import symbol_catalogue
from vmtailor.analysis.changes.symbol_catalogue import CatalogueEntry, When
from vmtailor.model.architecture import every
from vmtailor.model.change import Cause
from vmtailor.model.margin import Margin

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "catalogue.md"

HEAD = """<!-- Written by tools/catalogue_reference.py from src/vmtailor/data: change that, then run `make docs`. -->
# Platform, policy and margins

This page lists the symbols that a tailored kernel has although no trace asked for them. *Platform* is what the machine
and init need, whatever the container is. *Policy* is what no trace can show: protection, and what speed needs. An entry
counts only where its condition holds; "where possible" marks entries that a compiler or a kernel version may lack.
`vmtailor explain BUNDLE SYMBOL` names the entry that kept a symbol.

Entries for one architecture only are in its file of `data/architectures`.
`src/vmtailor/analysis/changes/symbol_catalogue.py` describes the format of these files.
"""

LEFT_OUT = """## Protection of the distribution's kernel that is left out

The policy is that no effective protection is weaker than in the distribution's own kernel. The protections below have no
effect in this machine, are somebody else's task, or do not exist on the processor. `vmtailor explain BUNDLE SYMBOL` gives
the same reasons.

| architecture | symbol | why it is left out |
| --- | --- | --- |
| all | `SHUFFLE_PAGE_ALLOCATOR` | off until `page_alloc.shuffle=1` is on the command line |
| all | `KFENCE` | the distribution sets its sample interval to 0: off |
| all | `SECCOMP` | what a program asks for itself: kept when the trace shows it |
| all | `SECURITY_APPARMOR` and other security modules | do nothing without a policy loaded from user space |
| all | `STRICT_DEVMEM`, `MODULE_SIG` | there is no `/dev/mem`, and there are no modules |"""  # noqa: E501

_TABLE = """
| entry | what | when | why |
| --- | --- | --- | --- |"""

REACHABLE = f"""## The margin `reachable`

`reachable` keeps what the image's programs could ask for, which vmtailor reads from each image. For every image, it
also keeps this:
{_TABLE}"""

SERVER = f"""## The margin `server`

`fit --margin server` keeps these entries in addition to what was demanded: they are what servers and their language
runtimes usually ask for. The default keeps them, too, if the exercise shows no load. vmtailor gives up entries that the
source tree, the compiler or a dropped symbol does not allow. [Margins](../explanation/margins.md) has the cost.
{_TABLE}"""

LOOPS = """## Loops that only emulation causes

Figures on the instruction clock are given gross, and net of these functions. vmtailor makes no change for their sake.

| architecture | loop | functions | entered when | why it does not count |
| --- | --- | --- | --- | --- |
"""


def condition(when: When, if_possible: bool) -> str:
    """The condition of an entry in words; empty when it always holds."""
    words = []
    given = (("machine", when.machine), ("virtio bus", when.bus), ("root", when.root), ("kernel", when.kernel))
    for title, value in (("architecture", when.arch), *given, ("CPUs", when.cpus)):
        if value:
            words.append(f"{title} {', '.join(value) if isinstance(value, tuple) else value}")
    asked = (("network", when.network), ("terminal", when.terminal), ("writable root", when.writable))
    own = (("init of its own", when.own_init), ("partition as root", when.partitioned), ("modules", when.modules))
    for title, flag in (*asked, *own):
        if flag is not None:
            words.append(title if flag else f"no {title}")
    return ", ".join(words + (["where possible"] if if_possible else []))


def row(entry: CatalogueEntry) -> str:
    """One line of a table."""
    symbols = [f"`{name}`" if value == "y" else f"`{name}={value}`" for name, value in entry.symbols]
    what = " ".join(symbols + [f"`{word}` (command line)" for word in entry.words])
    return f"| `{entry.id}` | {what} | {condition(entry.when, entry.if_possible)} | {entry.reason} |"


def page() -> str:
    """The whole page as Markdown."""
    parts = [HEAD]
    for cause in (Cause.PLATFORM, Cause.POLICY):
        parts += [f"## {cause.value.capitalize()}\n", "| entry | what | when | why |", "| --- | --- | --- | --- |"]
        parts += [row(entry) for entry in symbol_catalogue.load().entries if entry.cause is cause]
        parts.append("")
    for margin, head in ((Margin.REACHABLE, REACHABLE), (Margin.SERVER, SERVER)):
        parts += [head, *(row(entry) for entry in symbol_catalogue.of_margin(margin).entries), ""]
    parts.append(LEFT_OUT)
    for architecture in every():
        for one in architecture.left_out:
            symbols = ", ".join(f"`{name}`" for name in one.symbols)
            parts.append(f"| {architecture.title} | {symbols} | {one.reason} |")
    parts += ["", LOOPS.rstrip("\n")]
    for architecture in every():
        for loop in architecture.loop:
            functions = " ".join(f"`{name}`" for name in loop.functions)
            parts.append(f"| {architecture.title} | {loop.name} | {functions} | {loop.condition} | {loop.reason} |")
    return "\n".join(parts) + "\n"


def main(arguments: list[str]) -> int:
    """Write the page, or check it. Returns the exit status."""
    wanted = page()
    if arguments == ["--check"]:
        if PAGE.is_file() and PAGE.read_text() == wanted:
            return 0
        print(f"{PAGE} is not what the catalogue says; run: make docs", file=sys.stderr)
        return 1
    if arguments:
        print("usage: catalogue_reference.py [--check]", file=sys.stderr)
        return 2
    PAGE.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
