# SPDX-License-Identifier: Apache-2.0
"""Two modules print: no other file of the program writes to the terminal, or knows the library that does."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fakes.source_words import trees

import vmtailor

pytestmark = pytest.mark.attack

SOURCE = Path(vmtailor.__file__).parent
#: What prints, and what may know rich.
PRINTS = ("base/output.py", "base/terminal.py")
RICH = ("base/terminal.py",)
_CALLS = {
    "print", "typer.echo", "typer.secho", "typer.style", "click.echo", "click.secho", "logging.basicConfig",
    "warnings.warn", "traceback.print_exc", "traceback.print_exception", "pprint.pprint",
}  # fmt: skip
#: What may be asked of the standard streams elsewhere: nothing that writes.
_ASKED = {"isatty", "fileno", "flush", "close", "encoding"}


def found_in(tree: ast.Module, *, prints: bool = False, rich: bool = False) -> Iterator[str]:
    """Yield what a file must not do, each with its line."""
    inner = {id(node.value): node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom) and not rich:
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            if any(name.split(".")[0] == "rich" or "rich_utils" in name for name in names):
                yield f"{node.lineno}: imports rich"
        if prints:
            continue
        if isinstance(node, ast.Call) and ast.unparse(node.func) in _CALLS:
            yield f"{node.lineno}: calls {ast.unparse(node.func)}"
        if (
            isinstance(node, ast.ImportFrom)
            and node.module == "sys"
            and {"stdout", "stderr"} & {alias.name for alias in node.names}
        ):
            yield f"{node.lineno}: takes a standard stream"
        if (
            isinstance(node, ast.Attribute)
            and ast.unparse(node) in ("sys.stdout", "sys.stderr", "sys.__stdout__", "sys.__stderr__")
            and inner.get(id(node)) not in _ASKED
        ):
            yield f"{node.lineno}: uses {ast.unparse(node)}"


@pytest.mark.lengthy
def test_nothing_else_prints() -> None:
    found = []
    for path, tree in trees().items():
        name = str(path.relative_to(SOURCE))
        # The beginning of the program sets how the streams treat what they cannot encode.
        prints = name in (*PRINTS, "cli/entry.py")
        found += [f"{name}:{one}" for one in found_in(tree, prints=prints, rich=name in RICH)]
    assert not found, found


def test_the_two_that_print_know_no_markup() -> None:
    for name in PRINTS:
        source = (SOURCE / name).read_text()
        assert "from_markup" not in source and "render_markup" not in source and "from_ansi" not in source
        assert '"markup": False, "emoji": False, "highlight": False' in source or "rich." not in source


@pytest.mark.parametrize(
    "line",
    [
        "print(name)",
        "import typer\ntyper.echo(name)",
        "import sys\nsys.stdout.write(name)",
        "import sys\nsys.stderr.buffer.write(name)",
        "import sys\nout = sys.stdout",
        "from sys import stderr",
        "from rich.console import Console",
        "import rich.markup",
        "from rich import print",
        "import logging\nlogging.basicConfig()",
    ],
)
def test_what_prints_is_found(line: str) -> None:
    assert list(found_in(ast.parse(line)))


@pytest.mark.parametrize("line", ["import sys\nsys.stdout.isatty()", "from vmtailor.base.terminal import Console"])
def test_what_only_asks_is_not(line: str) -> None:
    assert not list(found_in(ast.parse(line)))


def test_errors_that_a_library_logs_for_us_are_for_debug_alone() -> None:
    """A monitor that ends resets its control socket, which is no news for a user who interrupted it."""
    code = (
        "import logging; from vmtailor.base import output; from vmtailor.drivers.qemu import qmp\n"
        "log = logging.getLogger(qmp.__name__); log.error('before'); output.debug_log(); log.error('after')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "before" not in done.stderr and "after" in done.stderr and not done.stdout
