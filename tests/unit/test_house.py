# SPDX-License-Identifier: Apache-2.0
"""The structure of the package, read from its syntax trees. Nothing imports in a circle, public classes and modules
have names of their own, docstrings say at once what they are about, long records are built by keyword, and the files
that the documentation names exist."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest
from tests.fakes.source_words import PACKAGE, trees

from vmtailor.base.process import require_tool, run

REPOSITORY = Path(__file__).parents[2]
#: Names that break a rule, with the reason: tables `classes`, `modules` and `endings`.
EXCEPTIONS: dict[str, dict[str, str]] = tomllib.loads((REPOSITORY / "tests/data/house.toml").read_text())
MODULES = {path: tree for path, tree in trees().items() if path.name != "__init__.py"}


def test_no_modules_import_each_other() -> None:
    """Imports within functions count, too. Raises CycleError with the circle."""
    graph = grimp.build_graph("vmtailor", cache_dir=None)
    order = TopologicalSorter({name: graph.find_modules_directly_imported_by(name) for name in graph.modules})
    assert set(order.static_order()) == graph.modules


def test_no_folders_import_each_other() -> None:
    """Of those that lie in one folder, the files beside them included. Raises CycleError with the circle."""
    graph = grimp.build_graph("vmtailor", cache_dir=None)
    for parent in sorted({name.rpartition(".")[0] for name in graph.modules if "." in name}):
        inside = [name for name in graph.modules if name.startswith(f"{parent}.")]
        order: TopologicalSorter[str] = TopologicalSorter()
        for name in inside:
            part = name.removeprefix(f"{parent}.").partition(".")[0]
            used = (other for other in graph.find_modules_directly_imported_by(name) if other.startswith(f"{parent}."))
            order.add(part, *({other.removeprefix(f"{parent}.").partition(".")[0] for other in used} - {part}))
        assert list(order.static_order())


def test_no_two_files_of_tests_have_one_name() -> None:
    """The folders of tests are no packages: pytest refuses the whole run, and a run of one folder does not tell."""
    names = Counter(path.name for path in (REPOSITORY / "tests").rglob("test_*.py"))
    assert names and not [name for name, count in names.items() if count > 1]


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/explanation/architecture.md"])
def test_where_things_go_names_what_is_there(page: str) -> None:
    named = set(
        re.findall(
            r"(?<![\w.$-])(?:[\w.-]+/)+(?:[\w-]+\.(?:py|toml|md|h)|qemu-system)?", (REPOSITORY / page).read_text()
        )
    )
    below = (PACKAGE / name for name in ("analysis", "drivers", "pipeline", "stages"))
    places = (REPOSITORY, PACKAGE, *below, (REPOSITORY / page).parent)
    named -= {one for one in named if one.startswith((".venv/", "build/"))}
    gone = {one for one in named if not any((place / one).exists() for place in places)}
    assert len(named) > 20 and not gone


#: Files of other projects, and of a processor or a distribution that the reader is to add.
NOT_OURS = {"xattr.c", "elf.h", "arch.h", "NAME.py", "NAME.toml"}


def test_nothing_that_was_made_is_kept() -> None:
    """An export or a bundle that somebody made in the checkout is no part of it."""
    if not (REPOSITORY / ".git").exists():
        pytest.skip("no checkout")
    kept = run([require_tool("git"), "-C", str(REPOSITORY), "ls-files", "-z"], timeout_s=60).stdout.decode()
    begins = {}
    for name in kept.split("\0"):
        if (path := REPOSITORY / name).is_file():
            with path.open("rb") as file:
                begins[name] = file.read(1028)
    magic = (b"\x7fELF", b"MZ", b"QFI\xfb", b"hsqs")
    made = [name for name, begin in begins.items() if begin.startswith(magic) or begin[1024:] == b"\xe2\xe1\xf5\xe0"]
    assert made == [] and len(begins) > 1000


def test_pages_name_source_files_that_are_there() -> None:
    """A decision tells of its day; the other pages tell of today."""
    ours = {
        path.name
        for folder in ("src", "tests", "native", "tools", "examples", "benchmarks")
        for path in (REPOSITORY / folder).rglob("*.*")
    }
    pages = [page for page in (REPOSITORY / "docs").rglob("*.md") if page.parent.name != "decisions"]
    named = {
        (page.name, name)
        for page in [*pages, REPOSITORY / "CONTRIBUTING.md", REPOSITORY / "README.md"]
        for name in re.findall(r"`(?:[\w.-]+/)*([\w-]+\.(?:py|c|h))`", page.read_text())
    }
    assert len(named) > 20 and not {one for one in named if one[1] not in ours | NOT_OURS}


def test_each_pattern_of_what_mutants_change_matches_a_file() -> None:
    groups: dict[str, list[str]] = tomllib.loads((REPOSITORY / "tools/mutants.toml").read_text())["groups"]
    assert groups and not [one for patterns in groups.values() for one in patterns if not any(PACKAGE.glob(one))]


def public_classes() -> Counter[str]:
    """Return how often each public name of a class is defined at the top level of a module."""
    nodes = (node for tree in MODULES.values() for node in tree.body)
    return Counter(node.name for node in nodes if isinstance(node, ast.ClassDef) and node.name[0] != "_")


def module_names() -> Counter[str]:
    """Return how often each module name stands in the package. A file of a verb may share the name of what it calls."""
    return Counter(path.stem for path in MODULES if path.parent != PACKAGE / "cli")


def activities() -> set[str]:
    """Return the names of modules that end like a verb, where a noun of the field belongs."""
    return {path.stem for path in MODULES if path.stem.endswith(("ing", "ed"))}


@pytest.mark.parametrize(
    ("table", "found"),
    [
        ("classes", {name for name, count in public_classes().items() if count > 1}),
        ("modules", {name for name, count in module_names().items() if count > 1}),
        ("endings", activities()),
    ],
)
def test_names_are_nouns_and_stand_once(table: str, found: set[str]) -> None:
    """A line of tests/data/house.toml that no longer applies fails, too: delete it."""
    excepted = EXCEPTIONS[table]
    assert all(excepted.values())
    assert {"to be renamed": sorted(found - excepted.keys()), "to be deleted": sorted(excepted.keys() - found)} == {
        "to be renamed": [],
        "to be deleted": [],
    }


#: First words after which a reader has to wait for the subject: "Return …", or a noun, says it at once.
RIDDLES = re.compile(r"(What|Where|Which|Who|Whose|Whether|How|The same|Likewise)\b")
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def test_no_docstring_begins_with_a_question_word() -> None:
    places = [(path, node) for path, tree in trees().items() for node in ast.walk(tree) if isinstance(node, DOCUMENTED)]
    found = [
        f"{path.relative_to(PACKAGE)}: {text[:60]}"
        for path, node in places
        if RIDDLES.match(text := ast.get_docstring(node) or "")
    ]
    assert len(places) > 1000 and found == []


def module_of(path: Path) -> str:
    return ".".join(("vmtailor", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")


def dataclasses() -> set[str]:
    """Return the full names of the package's dataclasses."""
    return {
        f"{module_of(path)}.{node.name}"
        for path, tree in trees().items()
        for node in tree.body
        if isinstance(node, ast.ClassDef) and any("dataclass" in ast.unparse(one) for one in node.decorator_list)
    }


def called(tree: ast.Module, module: str) -> Iterator[tuple[str, ast.Call]]:
    """Yield the calls in a module with the full name of what each calls, as far as imports tell it."""
    names = {node.name: f"{module}.{node.name}" for node in tree.body if isinstance(node, ast.ClassDef)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            names |= {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            first, _, rest = ast.unparse(node.func).partition(".")
            yield f"{names.get(first, first)}.{rest}".rstrip("."), node


@pytest.mark.lengthy
def test_records_of_more_than_four_fields_are_built_by_keyword() -> None:
    """Five values in a row say nothing of their order, and a new field in the middle moves them all."""
    known = dataclasses()
    calls = [
        (path, node) for path, tree in trees().items() for name, node in called(tree, module_of(path)) if name in known
    ]
    found = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}: {ast.unparse(node.func)}"
        for path, node in calls
        if len(node.args) > 4
    ]
    assert len(known) > 300 and len(calls) > 500 and found == []


def starts_of_machines(tree: ast.Module) -> list[str]:
    """Return the expressions of a module that start a machine: `start` or `run` of what `monitors` returns, of a name
    or an attribute that this is bound to, of a parameter or a field annotated as a Monitor, or of any attribute that is
    called `monitor`."""

    def is_monitor(node: ast.expr | None) -> bool:
        if isinstance(node, ast.Name):
            return node.id in names
        if isinstance(node, ast.Attribute) and node.attr in fields:
            return True
        return isinstance(node, ast.Call | ast.Attribute) and re.match(r"monitors\.\w+", ast.unparse(node)) is not None

    def is_annotated(node: ast.arg | ast.AnnAssign) -> bool:
        return node.annotation is not None and "Monitor" in ast.unparse(node.annotation)

    def bound(node: ast.AST) -> list[ast.expr]:
        if isinstance(node, ast.AnnAssign) and is_annotated(node):
            return [node.target]
        if isinstance(node, ast.For | ast.comprehension) and is_monitor(node.iter):
            return [node.target]
        if isinstance(node, ast.Assign | ast.NamedExpr | ast.AnnAssign) and is_monitor(node.value):
            return node.targets if isinstance(node, ast.Assign) else [node.target]
        return []

    nodes = list(ast.walk(tree))
    names = {node.arg for node in nodes if isinstance(node, ast.arg) and is_annotated(node)}
    fields = {"monitor"}
    of_classes = {id(one) for node in nodes if isinstance(node, ast.ClassDef) for one in node.body}
    before = None
    while before != (before := (len(names), len(fields))):  # a name may be bound to another one
        for node in nodes:
            for target in bound(node):
                if isinstance(target, ast.Attribute):
                    fields.add(target.attr)
                elif isinstance(target, ast.Name):
                    (fields if id(node) in of_classes else names).add(target.id)
    attributes = (node for node in nodes if isinstance(node, ast.Attribute))
    return [ast.unparse(one) for one in attributes if one.attr in ("start", "run") and is_monitor(one.value)]


def test_only_booting_starts_machines() -> None:
    """Monitors are asked for versions and figures everywhere; import-linter alone cannot tell that from a start. The
    lab is itself a machine, which is started to start another in it."""
    found = {path.relative_to(PACKAGE).as_posix(): starts_of_machines(tree) for path, tree in MODULES.items()}
    starting = {path for path, found in found.items() if found and not path.startswith("drivers/lab/")}
    assert starting and {path.partition("/")[0] for path in starting} == {"booting"}


@pytest.mark.parametrize(
    "source",
    [
        "monitors.of(machine).start(machine)",
        "monitors.named('qemu').run(machine, wants)",
        "monitor = monitors.usual()\nmonitor.start(machine)",
        "for one in monitors.every():\n    one.run(machine, wants)",
        "def boot(monitor: Monitor) -> None:\n    monitor.start(machine)",
        "class Bench:\n    def boot(self):\n        self.monitor.start(machine)",
        "class Bench:\n    used: Monitor | None\n    def boot(self):\n        self.used.run(machine, wants)",
        "class Bench:\n    def use(self, one: Monitor):\n        self.used = one\n        self.used.start(machine)",
        "class Bench:\n    def use(self):\n        self.used = monitors.usual()\n        self.used.start(machine)",
        "first = monitors.usual()\nsecond = first\nsecond.start(machine)",
        "bench.monitor.start(machine)",
    ],
)
def test_each_way_to_start_a_machine_is_seen(source: str) -> None:
    assert len(starts_of_machines(ast.parse(source))) == 1
    assert not starts_of_machines(ast.parse(source.replace(".start(", ".version(").replace(".run(", ".version(")))


@pytest.mark.parametrize(
    "source", ["process.start()", "self.thread.start()", "self.monitors.run()", "used: str\nused.start()"]
)
def test_a_start_of_something_else_is_none(source: str) -> None:
    assert not starts_of_machines(ast.parse(source))


def test_digits_are_ascii() -> None:
    """`"²".isdigit()` is true, and `int("²")` an error: base/text.is_number is asked instead."""
    asked = {"isdigit", "isdecimal", "isnumeric"}
    found = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}"
        for path, tree in MODULES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in asked
    ]
    assert [place.partition(":")[0] for place in found] == ["base/text.py"], found
