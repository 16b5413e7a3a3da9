# SPDX-License-Identifier: Apache-2.0
"""Make the index of the kernel's messages from kernel sources: src/vmtailor/data/messages/kernel.xz.

    python tools/kernel_messages.py SOURCE [SOURCE …]

Each SOURCE is an unpacked kernel tree, the oldest first. The same trees give the same bytes. The format is described in
src/vmtailor/analysis/printk/message_index.py, which reads it."""

from __future__ import annotations

import lzma
import posixpath
import re
import sys
import tomllib
from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vmtailor.analysis.ksource import printk_calls
from vmtailor.analysis.ksource.conditions import line_conditions, without_comments
from vmtailor.analysis.ksource.expr import FALSE, TRUE, Expr, conjunction, disjunction
from vmtailor.analysis.ksource.facts import reader
from vmtailor.analysis.ksource.kbuild import linked_files
from vmtailor.analysis.ksource.kconfig import Kconfig, tristates
from vmtailor.analysis.ksource.names import sys_entries
from vmtailor.analysis.ksource.own_option import own_option
from vmtailor.analysis.printk.message_index import KIND_HIDDEN, SECTION
from vmtailor.analysis.printk.templates import ENDS, TEXT, hand_written, row_of
from vmtailor.base.notation import module_name
from vmtailor.drivers.kernel import symbol_names
from vmtailor.drivers.kernel.kconfig_shell import KconfigShell, kernel_version

OUT = Path(__file__).parents[1] / "src/vmtailor/data/messages/kernel.xz"
BY_HAND = Path(__file__).with_suffix(".toml")
ARCHES = ("x86", "arm64", "riscv", "arm", "loongarch")
FOLDERS = ("block", "certs", "crypto", "drivers", "fs", "init", "io_uring", "ipc", "kernel", "lib", "mm", "net",
           "security", "sound", "virt", *(f"arch/{arch}" for arch in ARCHES))  # fmt: skip
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+(?:"([\w./-]+\.h)"|<((?:net|linux|drm)/[\w./-]+\.h)>)', re.M)
#: Files that are included to be compiled: sources, and headers with functions.
_LOCAL = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"([\w./-]+\.[ch])"', re.M)
_MOST_INCLUDERS = 2
#: Characters from the name of a call on within which its format stands.
_NEAR_CALL = 60
#: A debugger's console is no log.
_NO_LOG = "kernel/debug/kdb/"
#: A name that stands for more options says nothing.
_MOST_MEANINGS = 6
_CORE = re.compile(
    r"core|^drivers/(?:base|iommu|of|acpi|virtio|firmware|pnp|dma-buf|devfreq|opp)/|^drivers/pci/(?:pcie/|hotplug/)?[\w-]+\.c"
    r"|gpiolib|regulator/of_|/spi\.c|clk-?(?:conf|devres)?\.c|/libata|^drivers/scsi/(?:scsi|hosts|sd|sr)[\w]*\.c|/phy(?:link|_device)?\.c"
)


class Tree:
    """One kernel tree, as far as messages ask of it."""

    def __init__(self, source: Path) -> None:
        self.source = source
        self.version = kernel_version(source)
        self.read = reader(source)
        self.files: dict[str, Expr] = {}
        self.objects: dict[str, frozenset[str]] = {}
        for arch in ARCHES:
            files, objects = linked_files(self.read, arch)
            for path, condition in files.items():
                self.files.setdefault(path, condition)
            for path, names in objects.items():
                self.objects.setdefault(path, names)
        shell = KconfigShell(source)
        self.kconfig = Kconfig(shell.env, shell)
        self.tristates = tristates(self.read, ARCHES[0]) or frozenset()
        self.folders: dict[str, set[str]] = {}
        for kconfig in source.rglob("Kconfig*"):
            relative = kconfig.relative_to(source).as_posix()
            for name in symbol_names.defined(kconfig):
                self.folders.setdefault(name, set()).add(posixpath.dirname(relative))
        self._headers: dict[str, tuple[dict[str, str], list[tuple[int, str, str, str]]]] = {}

    def header(self, path: str, depth: int = 0) -> tuple[dict[str, str], list[tuple[int, str, str, str]]]:
        """Return the macros of a header and of those beside it, and its definitions of pr_fmt."""
        if path not in self._headers:
            self._headers[path] = ({}, [])
            text = self.read(path)
            if text is not None:
                macros, formats = self.included(path, text, depth + 1) if depth < 2 else ({}, [])
                self._headers[path] = (
                    {**macros, **_strings(printk_calls.macros(text))},
                    [*formats, *printk_calls.formats(text)],
                )
        return self._headers[path]

    def included(self, path: str, text: str, depth: int = 0) -> tuple[dict[str, str], list[tuple[int, str, str, str]]]:
        macros: dict[str, str] = {}
        formats: list[tuple[int, str, str, str]] = []
        for match in _INCLUDE.finditer(text):
            if match.group(1):
                target = posixpath.normpath(posixpath.join(posixpath.dirname(path), match.group(1)))
            else:
                target = f"include/{match.group(2)}"
            more, also = self.header(target, depth)
            macros |= more
            if match.group(1):
                formats += also
        return macros, formats

    def names(self, stem: str) -> tuple[str, ...]:
        """Return what KBUILD_MODNAME may be in a file, the likeliest first."""
        return tuple(sorted(map(module_name, self.objects.get(stem, {posixpath.basename(stem)}))))[:3]


def _strings(macros: dict[str, str]) -> dict[str, str]:
    return {name: body for name, body in macros.items() if '"' in body and len(body) < 200}


Where = tuple[str, str]


@dataclass(frozen=True)
class Includer:
    """A file that is compiled: what it gives to the files that it includes."""

    condition: Expr
    known: dict[str, str]
    formats: list[tuple[int, str, str, str]]
    names: tuple[str, ...]


class Index:
    """The messages and names found so far in all trees."""

    def __init__(self) -> None:
        self.rows: dict[tuple[bytes, Where, bool], int] = {}
        self.initcalls: dict[str, dict[Where, int]] = {}
        self.drivers: dict[str, dict[Where, int]] = {}
        self.modules: dict[str, dict[Where, int]] = {}
        self.buses: dict[str, dict[Where, int]] = {}
        self.prefixes: dict[str, dict[Where, int]] = {}
        self.driver_files: set[str] = set()
        self.lent: set[str] = set()
        self.errors: list[tuple[bytes, Where, bool]] = []
        self.symbols: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {}

    def add(self, tree: Tree, mask: int) -> None:
        """Add the messages of a tree.

        A driver's name before its errors names it well enough, and they are left out. The errors of a subsystem's core,
        which has no driver, stand behind any driver's name."""
        included: dict[str, list[Includer]] = {}
        for folder in FOLDERS:
            for found in sorted((tree.source / folder).rglob("*.c")):
                path = found.relative_to(tree.source).as_posix()
                condition = tree.files.get(path.removesuffix(".c"))
                if condition is not None and condition != FALSE and not path.startswith(_NO_LOG):
                    self.compiled(tree, mask, path, condition, included)
        for path, by in sorted(included.items()):
            text = tree.read(path)
            if text is not None and len(by) <= _MOST_INCLUDERS and path.removesuffix(".c") not in tree.files:
                one = Includer(disjunction(*(i.condition for i in by)), by[0].known, by[0].formats, by[0].names)
                self.text(tree, mask, path, without_comments(text), one)
        of_drivers = {options for places in self.drivers.values() for _, options in places if options}
        for key in self.errors:
            if key[1][1] not in of_drivers:
                self.rows[key] = self.rows.get(key, 0) | mask
        self.errors = []

    def compiled(self, tree: Tree, mask: int, path: str, condition: Expr, included: dict[str, list[Includer]]) -> None:
        """Add the messages of a file that is compiled, and note what it includes."""
        text = without_comments(tree.read(path) or "")
        macros, outer = tree.included(path, text)
        names = tree.names(path.removesuffix(".c"))
        base = {"KBUILD_BASENAME": f'"{module_name(posixpath.basename(path.removesuffix(".c")))}"'}
        known = {**macros, **printk_calls.macros(text), **base}
        one = Includer(condition, known, printk_calls.formats(text) or outer, names)
        self.text(tree, mask, path, text, one)
        for name in names:
            own = "|".join(own_option(condition, TRUE, path, lambda _: frozenset()))
            _note(self.modules, name, (path, own), mask)
        for match in _LOCAL.finditer(text):
            target = posixpath.normpath(posixpath.join(posixpath.dirname(path), match.group(1)))
            included.setdefault(target, []).append(one)

    def text(self, tree: Tree, mask: int, path: str, text: str, within: Includer) -> None:
        """Add what one file's text has."""
        known = {**within.known, **printk_calls.macros(text)}
        conditions = line_conditions(text, tree.tristates)
        starts = [0, *(m.end() for m in re.finditer("\n", text))]

        def place(offset: int) -> Where | None:
            around = conditions.at(bisect_right(starts, offset))
            if conjunction(within.condition, around) == FALSE:
                return None
            symbols = own_option(within.condition, around, path, lambda name: frozenset(tree.folders.get(name, ())))
            self.options(symbols, tree)
            return path, "|".join(symbols)

        driver = path.startswith(("drivers/", "sound/")) and not _CORE.search(path)
        for one in printk_calls.messages(text, known, within.formats, within.names):
            where = place(one.offset)
            if where is None:
                continue
            if one.prefix and one.template == one.prefix + TEXT and "%pV" in text[one.offset : one.offset + _NEAR_CALL]:
                self.lent.add(one.prefix)  # a function that prints for everyone
                continue
            if one.prefix and TEXT not in printk_calls.template_of(one.prefix):
                _note(self.prefixes, one.prefix, where, mask)
            row = row_of(one.template, one.floating, one.whole)
            if row is not None:
                key = (row, where, one.begins)
                if driver and one.device_error:
                    self.errors.append(key)
                    continue
                self.rows[key] = self.rows.get(key, 0) | mask
        for found, into in (
            (printk_calls.initcalls(text), self.initcalls),
            (printk_calls.drivers(text, known), self.drivers),
            (
                ((n.partition("/")[2], at) for n, at in sys_entries(text) if n.startswith(("bus/", "class/"))),
                self.buses,
            ),
        ):
            for name, offset in found:
                if where := place(offset):
                    _note(into, name, where, mask)
                    if into is self.drivers:
                        self.driver_files.add(path)

    def by_hand(self, rows: list[dict[str, Any]], mask: int) -> None:
        """Put the messages in that no source tells. Raises ValueError for one that cannot be looked up."""
        for row in rows:
            where = (row["path"], "|".join(row.get("options", ())))
            for form in row["formats"]:
                template, floating = printk_calls.template_of(form), row.get("floating", False)
                key = hand_written(template, floating)
                for known in [one for one in self.rows if one[0].rstrip(ENDS.encode()) == key]:
                    del self.rows[known]
                self.rows[key, where, row.get("begins", False)] = mask

    def options(self, symbols: tuple[str, ...], tree: Tree) -> None:
        """Note the kinds of options, and what selects them."""
        for name in symbols:
            known = tree.kconfig.known(name)
            self.symbols[name] = (
                _kind(tree, name),
                tree.kconfig.selectors(name) if known else (),
                tree.kconfig.depends_on(name) if known else (),
            )


def _kind(tree: Tree, name: str) -> str:
    """Return t or b for a tristate or bool that can be chosen, h for one that cannot."""
    if not tree.kconfig.known(name) or not tree.kconfig.prompted(name) or not tree.kconfig.is_switch(name):
        return KIND_HIDDEN
    return "t" if name in tree.tristates else "b"


def _note(into: dict[str, dict[Where, int]], name: str, where: tuple[str, str], mask: int) -> None:
    if "\n" in name or "\t" in name:
        return
    places = into.setdefault(name, {})
    places[where] = places.get(where, 0) | mask


def _meanings(names: dict[str, dict[Where, int]]) -> dict[str, list[Where]]:
    """Return one place for each set of options of a name; a name with many is left out."""
    found: dict[str, list[Where]] = {}
    for name, places in sorted(names.items()):
        by_options: dict[str, Where] = {}
        for where in sorted(places):
            by_options.setdefault(where[1], where)
        if len(by_options) <= _MOST_MEANINGS:
            found[name] = list(by_options.values())
    return found


def _facts(index: Index, name: str) -> str:
    """Return the row of an option. Of the others it names, those count that print something."""
    kind, selectors, needs = index.symbols[name]
    return "\t".join(
        (name, kind, *(" ".join(one for one in some if one in index.symbols) for some in (selectors, needs)))
    )


def main(sources: list[str]) -> None:
    index = Index()
    versions = []
    for number, source in enumerate(sources):
        tree = Tree(Path(source))
        versions.append(tree.version)
        index.add(tree, 1 << number)
        print(tree.version, len(tree.files), len(index.rows), file=sys.stderr)
        for row in tomllib.loads(BY_HAND.read_text())["message"]:
            index.options(tuple(row.get("options", ())), tree)
    write(index, versions)


def write(index: Index, versions: list[str]) -> None:
    """Write the index, with the messages that were written by hand."""
    index.by_hand(tomllib.loads(BY_HAND.read_text())["message"], (1 << len(versions)) - 1)
    for prefix in index.lent.intersection(index.prefixes):
        del index.prefixes[prefix]
    tables = [_meanings(t) for t in (index.initcalls, index.drivers, index.modules, index.buses, index.prefixes)]
    used = {where for _, where, _ in index.rows} | {where for t in tables for places in t.values() for where in places}
    numbers = {where: number for number, where in enumerate(sorted(used))}
    messages = sorted(
        row + f"\t{numbers[where]} {mask}{'i' * begins}".encode() for (row, where, begins), mask in index.rows.items()
    )
    data = SECTION.join([
        "\n".join(versions).encode(),
        "\n".join(f"{path}\t{options}\td" if path in index.driver_files else f"{path}\t{options}"
                  for path, options in numbers).encode(),
        "\n".join(_facts(index, name) for name in sorted(index.symbols)).encode(),
        *("\n".join(f"{name}\t{' '.join(str(numbers[w]) for w in places)}" for name, places in t.items()).encode()
          for t in tables),
        b"\n".join(messages),
    ])  # fmt: skip
    OUT.parent.mkdir(exist_ok=True)
    packed = lzma.compress(data, preset=9 | lzma.PRESET_EXTREME)
    OUT.write_bytes(packed)
    print(f"{len(messages)} messages, {len(data)} bytes, packed {len(packed)}", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
