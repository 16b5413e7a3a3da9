# SPDX-License-Identifier: Apache-2.0
"""Put faults into the program, one at a time, and say which of them no test notices.

The faults are mutmut's, and two kinds of our own: a display loses an element, a condition is turned round or never
holds. mutmut itself changes functions only and takes no sample, whereas tables decide much here. A fault lives in the
memory of one process, so two are tried side by side in one tree. Each runs the tests that execute its line, the
quickest first, until one fails. tools/mutants.toml says where faults go, tests/data/mutants.toml why some survive.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import hashlib
import importlib
import importlib.machinery
import json
import os
import random
import shutil
import signal
import sys
import time
import tomllib
import traceback
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import coverage
import libcst as cst
import pytest
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation.mutators import mutation_operators

REPOSITORY = Path(__file__).resolve().parents[1]
PACKAGE = REPOSITORY / "src/vmtailor"
SURVIVORS = REPOSITORY / "tests/data/mutants.toml"
#: Seconds of tests that are run against one fault, at the most.
MOST_S = 40.0
IN_PARALLEL = 2
#: A process that tries a fault ends so where it could not.
BROKEN = 70
#: Arguments and texts that nothing but the look of an output depends on, or the words of a message.
FOR_PEOPLE = {"help", "hint", "style", "border_style", "header_style", "title", "justify", "no_wrap", "metavar"}
STYLES = {"dim", "bold", "red", "green", "yellow", "cyan", "bold red", "bold green"}
#: Functions whose first argument says something to people, beside the exceptions.
SAYING = {"step"}
#: Types that an alias is made of.
GENERIC = {"dict", "list", "tuple", "set", "frozenset", "Callable", "Iterator", "Sequence", "Mapping"}
_NEVER = (cst.Annotation, cst.Decorator, cst.Import, cst.ImportFrom)


@dataclass(frozen=True)
class Mutant:
    """One fault. `index` counts the faults of its file."""

    group: str
    file: str
    function: str
    line: int
    index: int
    before: str
    after: str

    @property
    def key(self) -> str:
        """Return what names the fault for as long as its code stays the same."""
        return f"{self.file} {self.function}: {self.before} => {self.after}"


@dataclass
class Map:
    """Which tests execute each line of each file, how long each test took, and what was imported for them."""

    lines: dict[str, dict[int, list[str]]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    imports: list[str] = field(default_factory=list)


# --- the faults ---


def _fewer(node: Any) -> Iterator[Any]:
    for at in range(len(node.elements) if len(node.elements) > 1 else 0):
        left = [*node.elements[:at], *node.elements[at + 1 :]]
        if isinstance(node, cst.Tuple) and len(left) == 1:
            left = [left[0].with_changes(comma=cst.Comma())]
        yield node.with_changes(elements=left)


def _turned(node: Any) -> Iterator[Any]:
    inner = node.test.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    space = cst.SimpleWhitespace(" ")
    yield node.with_changes(test=cst.UnaryOperation(cst.Not(), inner), whitespace_before_test=space)
    yield node.with_changes(test=cst.Name("False"), whitespace_before_test=space)


OPERATORS = [
    *mutation_operators,
    *((kind, _fewer) for kind in (cst.Tuple, cst.List, cst.Set, cst.Dict)),
    *((kind, _turned) for kind in (cst.If, cst.CompIf)),
]


def mutations(module: Any) -> Iterator[tuple[str, int, Any, Any]]:
    """Yield the faults of a module: function, line, node, and what takes its place."""
    places = MetadataWrapper(module, unsafe_skip_copy=True).resolve(PositionProvider)

    def below(node: Any, function: str, line: int) -> Iterator[tuple[str, int, Any, Any]]:
        if isinstance(node, _NEVER) or (isinstance(node, cst.Expr) and isinstance(node.value, cst.BaseString)):
            return
        if _prose(node):
            return
        if isinstance(node, cst.FunctionDef | cst.ClassDef):
            function = f"{function}.{node.name.value}".lstrip(".")
        line = places[node].start.line if node in places else line
        for kind, operator in OPERATORS:
            if isinstance(node, kind):
                found = [one for one in operator(node) if not _only_for_people(node, one)]
                # One wrong word is as wrong as another.
                yield from ((function, line, node, one) for one in found[: 1 if kind is cst.BaseString else None])
        for child in node.children:
            yield from below(child, function, line)

    yield from below(module, "", 1)


def _prose(node: Any) -> bool:
    """Return whether a node is for people alone: another word, or another colour, is no fault of the program."""
    if isinstance(node, cst.Arg):
        return node.keyword is not None and node.keyword.value in FOR_PEOPLE
    if not isinstance(node, cst.BaseString):
        return False
    return not isinstance(node, cst.SimpleString) or " " in node.value or node.raw_value in STYLES


def _only_for_people(node: Any, changed: Any) -> bool:
    """Return whether a fault changes a message or a look alone: an argument, or an element, that only they have."""
    if isinstance(node, cst.Assign | cst.AnnAssign):
        value = node.value
        return isinstance(value, cst.Subscript) and isinstance(value.value, cst.Name) and value.value.value in GENERIC
    if isinstance(node, cst.Tuple) and isinstance(changed, cst.Tuple):
        gone = next(
            (one for one in node.elements if not any(one.value is left.value for left in changed.elements)), None
        )
        return gone is not None and _prose(gone.value)
    if not (isinstance(node, cst.Call) and isinstance(changed, cst.Call)):
        return False
    for at, one in enumerate(node.args):
        if any(one.value is left.value for left in changed.args):
            continue
        called = node.func.attr.value if isinstance(node.func, cst.Attribute) else getattr(node.func, "value", "")
        saying = called in SAYING or str(called).endswith(("Error", "Interrupt"))
        return _prose(one) or (saying and at == 0) or (called == "Text" and at == 1)
    return False


def mutants(group: str, path: Path) -> list[Mutant]:
    """Return every fault of a file."""
    module = cst.parse_module(path.read_text())
    file = str(path.relative_to(PACKAGE))
    return [
        Mutant(group, file, function, line, index, *_shown(module, node, changed))
        for index, (function, line, node, changed) in enumerate(mutations(module))
    ]


def _shown(module: Any, node: Any, changed: Any) -> tuple[str, str]:
    """Return both texts, each on one line, from shortly before the place where they differ."""
    before, after = (" ".join(module.code_for_node(one).split()) for one in (node, changed))
    same = next((at for at, (one, other) in enumerate(zip(before, after, strict=False)) if one != other), 0)
    begin = max(0, same - 30)
    return before[begin : begin + 90], after[begin : begin + 90]


def mutated(mutant: Mutant) -> str:
    """Return the source with the fault in it."""
    module = cst.parse_module((PACKAGE / mutant.file).read_text())
    for index, (_, _, node, changed) in enumerate(mutations(module)):
        if index == mutant.index:
            return str(module.deep_replace(node, changed).code)
    raise SystemExit(f"{mutant.key}: the source has changed")


def every(groups: dict[str, list[str]]) -> dict[str, list[Mutant]]:
    """Return all faults of each group."""
    found = {}
    for group, patterns in groups.items():
        if empty := [pattern for pattern in patterns if not any(PACKAGE.glob(pattern))]:
            raise SystemExit(f"tools/mutants.toml: no file matches {', '.join(empty)}")
        files = sorted({path for pattern in patterns for path in PACKAGE.glob(pattern) if path.name != "__init__.py"})
        found[group] = [mutant for path in files for mutant in mutants(group, path)]
    return found


def sample(population: dict[str, list[Mutant]], size: int, seed: int) -> list[Mutant]:
    """Return so many faults, of each group as many: those of the lowest digests, so that a change of the code changes
    little of the sample and two runs can be compared."""
    chosen: list[Mutant] = []
    for found in population.values():
        seen: Counter[str] = Counter()
        ranks = []
        for mutant in found:
            name = f"{seed} {mutant.key} {seen[mutant.key]}"
            seen[mutant.key] += 1
            ranks.append((hashlib.sha256(name.encode()).digest(), mutant))
        ranks.sort(key=lambda one: one[0])
        chosen += [mutant for _, mutant in ranks[: round(size / len(population))]]
    random.Random(seed).shuffle(chosen)
    return chosen


def survivors(population: dict[str, list[Mutant]], results: Path) -> list[Mutant]:
    """Return the faults that no test caught in an earlier run, as far as their code is there."""
    rows = [json.loads(line) for line in results.read_text().splitlines()]
    left = Counter(row["key"] for row in rows if row["outcome"] != "caught")
    places = {(row["key"], row["line"]) for row in rows if row["outcome"] != "caught"}
    there = [mutant for found in population.values() for mutant in found if left[mutant.key]]
    there.sort(key=lambda one: (one.key, (one.key, one.line) not in places))
    chosen = []
    for mutant in there:
        if left[mutant.key] > 0:
            left[mutant.key] -= 1
            chosen.append(mutant)
    return chosen


# --- processes that run tests ---


class _Watch:
    """A plugin of pytest: runs the tests that were chosen, in their order, and notes how long each took."""

    def __init__(self, chosen: list[str] | None, cover: Any = None) -> None:
        self.chosen, self.cover = chosen, cover
        self.seconds: dict[str, float] = {}
        self.failed: set[str] = set()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if self.chosen is not None:
            place = {name: at for at, name in enumerate(self.chosen)}
            items[:] = sorted((one for one in items if one.nodeid in place), key=lambda one: place[one.nodeid])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        begun = time.monotonic()
        if self.cover is not None:
            self.cover.switch_context(item.nodeid)
        yield
        if self.cover is not None:
            self.cover.switch_context("")
        self.seconds[item.nodeid] = time.monotonic() - begun

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed or report.skipped:
            self.failed.add(report.nodeid)


def _forked(work: Any, scratch: Path) -> int:
    """Start a process that does the work in a session of its own, and return its id. What it says goes to a file."""
    if pid := os.fork():
        return pid
    code = BROKEN
    try:
        os.setsid()
        scratch.mkdir(parents=True)
        log = os.open(scratch / "log", os.O_WRONLY | os.O_CREAT, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.environ["TMPDIR"] = str(scratch)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        code = int(work())
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    os._exit(code)


def _pytest(paths: list[str], scratch: Path, watch: _Watch) -> int:
    stops = ["-x"] if watch.cover is None else []
    options = ["-q", *stops, "-m", "not slow", "-p", "no:cacheprovider", f"--basetemp={scratch}/pytest"]
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # plugins were imported before the fork
    return int(pytest.main([*options, *paths], plugins=[watch]))


def _put_in(path: Path, source: str) -> None:
    """Have a module's source be another one, for this process."""
    get_code = importlib.machinery.SourceFileLoader.get_code

    def code(self: importlib.machinery.SourceFileLoader, name: str) -> Any:
        return compile(source, str(path), "exec") if Path(self.path) == path else get_code(self, name)

    importlib.machinery.SourceFileLoader.get_code = code  # type: ignore[method-assign,assignment]


# --- which tests execute what ---


def covered(tests: list[str], without: list[str], scratch: Path) -> Map:
    """Run all tests once, and return which of them executes each line."""
    left_out = tuple(f"{one}/" for one in without)
    files = sorted(
        str(path.relative_to(REPOSITORY))
        for one in tests
        for path in ([REPOSITORY / one] if one.endswith(".py") else (REPOSITORY / one).rglob("test_*.py"))
        if not str(path.relative_to(REPOSITORY)).startswith(left_out)
    )
    random.Random(0).shuffle(files)
    started = []
    for part in range(IN_PARALLEL):
        place = scratch / f"cover-{part}"
        shutil.rmtree(place, ignore_errors=True)
        started.append((place, _forked(lambda place=place, part=part: _cover(files[part::IN_PARALLEL], place), place)))
    found = Map()
    for place, pid in started:
        os.waitpid(pid, 0)
        if not (place / "map.json").is_file():
            raise SystemExit(f"the tests could not be run: {place}/log")
        part = json.loads((place / "map.json").read_text())
        found.seconds |= part["seconds"]
        found.imports = sorted({*found.imports, *part["imports"]})
        for file, lines in part["lines"].items():
            known = found.lines.setdefault(file, {})
            for line, names in lines.items():
                known.setdefault(int(line), []).extend(names)
        shutil.rmtree(place / "pytest", ignore_errors=True)
    return found


def _cover(files: list[str], scratch: Path) -> int:
    cover = coverage.Coverage(str(scratch / "coverage"), include=[f"{PACKAGE}/*"], config_file=False)
    cover.start()
    watch = _Watch(None, cover)
    code = _pytest(files, scratch, watch)
    cover.stop()
    data = cover.get_data()
    lines = {
        str(Path(file).relative_to(PACKAGE)): {
            line: sorted({name for name in names if name and name not in watch.failed})
            for line, names in data.contexts_by_lineno(file).items()
        }
        for file in data.measured_files()
    }
    third = sorted(
        name for name, module in list(sys.modules.items())
        if "site-packages" in (getattr(module, "__file__", None) or "")
        and not name.startswith(("__editable__", "hypothesis.", "_hypothesis"))
    )  # fmt: skip
    (scratch / "map.json").write_text(json.dumps({"lines": lines, "seconds": watch.seconds, "imports": third}))
    return code


def tests_of(mutant: Mutant, known: Map) -> list[str]:
    """Return the tests that execute its line, the quickest first. What is executed when a module is imported is for the
    tests of that module and of those that use it: first for those whose file imports it."""
    lines = known.lines.get(mutant.file, {})
    # A statement of several lines may be known by its first one.
    at = max((line for line in lines if line <= mutant.line), default=0)
    found, own = set(lines.get(at, ())), set[str]()
    if not found and at:
        own = {name for name in known.seconds if _module(mutant.file) in _named_by(name.partition("::")[0])}
        found = {name for names in lines.values() for name in names}
        for user in _users(mutant.file):
            found |= {name for names in known.lines.get(user, {}).values() for name in names}
    chosen, spent = [], 0.0
    for name in sorted(found | own, key=lambda name: (name not in own, known.seconds.get(name, 0.0))):
        spent += known.seconds.get(name, 0.0)
        if spent > MOST_S:
            break
        chosen.append(name)
    return chosen


@cache
def _named_by(file: str) -> set[str]:
    """Return the modules that a file of the repository imports, and the names that it takes from them."""
    path = REPOSITORY / file
    nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
    return {f"{node.module}.{one.name}" for node in nodes for one in node.names} | {node.module or "" for node in nodes}


def _module(file: str) -> str:
    return "vmtailor." + file.removesuffix(".py").replace("/", ".")


def _users(file: str) -> list[str]:
    """Return the files of the program that import this one."""
    users = (path for path in PACKAGE.rglob("*.py") if _module(file) in _named_by(str(path.relative_to(REPOSITORY))))
    return [str(path.relative_to(PACKAGE)) for path in users]


# --- trying them ---


def tried(mutant: Mutant, source: str, known: Map, scratch: Path) -> tuple[int, float] | None:
    """Start the tests of a fault. Returns the process and the end of its time, or nothing where no test applies."""
    chosen = tests_of(mutant, known)
    if not chosen:
        return None
    files = sorted({name.partition("::")[0] for name in chosen})

    def work() -> int:
        _put_in(PACKAGE / mutant.file, source)
        return _pytest(files, scratch, _Watch(chosen))

    pid = _forked(work, scratch)
    return pid, time.monotonic() + 60.0 + 6 * sum(known.seconds.get(name, 0.0) for name in chosen)


def require_working(chosen: list[Mutant], known: Map, scratch: Path) -> None:
    """Raise SystemExit where tests fail though nothing is changed: they would catch every fault."""
    place = scratch / "unchanged"
    shutil.rmtree(place, ignore_errors=True)
    mutant = next((one for one in chosen if tests_of(one, known)), None)
    if mutant is None:
        raise SystemExit("no test executes any of these faults: a larger sample is needed")
    begun = tried(mutant, (PACKAGE / mutant.file).read_text(), known, place)
    if begun is not None and os.waitpid(begun[0], 0)[1] != 0:
        raise SystemExit((place / "log").read_text())


def outcomes(
    chosen: list[Mutant], known: Map, scratch: Path, minutes: float, parallel: int
) -> Iterator[tuple[Mutant, str]]:
    """Yield what became of each fault: caught, survived, or that no test executes it."""
    end = time.monotonic() + minutes * 60
    waiting, running = list(reversed(chosen)), dict[int, tuple[Mutant, float, Path]]()
    number = 0
    while waiting or running:
        while waiting and len(running) < parallel and time.monotonic() < end:
            mutant, place, number = waiting.pop(), scratch / f"mutant-{number}", number + 1
            shutil.rmtree(place, ignore_errors=True)
            if (begun := tried(mutant, mutated(mutant), known, place)) is None:
                yield mutant, "not executed"
            else:
                running[begun[0]] = (mutant, begun[1], place)
        if time.monotonic() >= end:
            yield from ((mutant, "not tried") for mutant in waiting)
            waiting.clear()
        for pid, (mutant, latest, place) in list(running.items()):
            done, status = os.waitpid(pid, os.WNOHANG)
            late = time.monotonic() > latest
            if done or late:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
                if not done:
                    os.waitpid(pid, 0)
                del running[pid]
                if done and os.waitstatus_to_exitcode(status) == BROKEN:
                    raise SystemExit(f"{mutant.key}: {(place / 'log').read_text()}")
                shutil.rmtree(place, ignore_errors=True)
                yield mutant, "survived" if done and status == 0 else "caught"
        time.sleep(0.05)


def report(found: list[tuple[Mutant, str]], least: float) -> int:
    """Say how many were caught and which were not. Returns 1 where it is too few, or a survivor has no reason."""
    reasons: dict[str, str] = tomllib.loads(SURVIVORS.read_text())
    groups: dict[str, Counter[str]] = defaultdict(Counter)
    for mutant, outcome in found:
        groups[mutant.group][outcome] += 1
    for name, counts in sorted(groups.items()):
        print(f"{name:10} {counts['caught']:4} of {counts.total() - counts['not tried']:4} caught")
    judged = [(mutant, outcome) for mutant, outcome in found if outcome != "not tried"]
    left = [(mutant, outcome) for mutant, outcome in judged if outcome != "caught"]
    for mutant, outcome in sorted(left, key=lambda one: (one[0].file, one[0].line)):
        print(f"{mutant.file}:{mutant.line}: {outcome}\n    {mutant.before}\n    {mutant.after}")
        print(f"    {reasons.get(mutant.key, 'no reason given')}")
    share = 1 - len(left) / max(1, len(judged))
    without = sum(mutant.key not in reasons for mutant, _ in left)
    untried = len(found) - len(judged)
    print(f"{share:.1%} of {len(judged)} caught, {without} survivors without a reason, {untried} not tried")
    return int(share < least or without > 0)


def main() -> int:
    config = tomllib.loads((REPOSITORY / "tools/mutants.toml").read_text())
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=REPOSITORY / "build/mutants", help="folder of map and results")
    parser.add_argument("--sample", type=int, default=config["sample"])
    parser.add_argument("--seed", type=int, default=config["seed"])
    parser.add_argument("--minutes", type=float, default=config["minutes"])
    parser.add_argument("--groups", nargs="*", default=list(config["groups"]))
    parser.add_argument("--keep-map", action="store_true", help="use the map of an earlier run")
    parser.add_argument("--survivors", type=Path, help="try only the survivors of these results (results.jsonl)")
    parser.add_argument("--parallel", type=int, default=IN_PARALLEL, help="faults that are tried at a time")
    asked = parser.parse_args()
    begun = time.monotonic()
    os.chdir(REPOSITORY)
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    sys.path[:0] = [str(REPOSITORY / "src"), str(REPOSITORY), str(REPOSITORY / "tools")]
    asked.out.mkdir(parents=True, exist_ok=True)
    kept = asked.out / "map.json"
    if not (asked.keep_map and kept.is_file()):
        kept.write_text(json.dumps(asdict(covered(config["tests"], config["without"], asked.out))))
    read = json.loads(kept.read_text())
    lines = {file: {int(line): names for line, names in found.items()} for file, found in read["lines"].items()}
    known = Map(lines, read["seconds"], read["imports"])
    for name in known.imports:
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    population = every({name: config["groups"][name] for name in asked.groups})
    if asked.survivors is not None:
        chosen = survivors(population, asked.survivors)
    else:
        chosen = sample(population, asked.sample, asked.seed)
    print(f"{len(chosen)} faults, {len(known.seconds)} tests", flush=True)
    require_working(chosen, known, asked.out)
    found = []
    left = asked.minutes - (time.monotonic() - begun) / 60
    results = "results.jsonl" if asked.survivors is None else "again.jsonl"
    with (asked.out / results).open("w") as file:
        for mutant, outcome in outcomes(chosen, known, asked.out, left, asked.parallel):
            found.append((mutant, outcome))
            file.write(json.dumps({"outcome": outcome, "key": mutant.key, **asdict(mutant)}) + "\n")
            file.flush()
    return report(found, config["caught"])


if __name__ == "__main__":
    sys.exit(main())
