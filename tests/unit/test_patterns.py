# SPDX-License-Identifier: Apache-2.0
"""No pattern of the package takes more than twice as long for twice the text, whatever the text is."""

import dataclasses
import functools
import re
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.unit import patterns

from vmtailor.analysis.bootlog import machine_facts, milestones, silences
from vmtailor.analysis.changes import change_catalogue
from vmtailor.analysis.demands import demand_rules, strace_log
from vmtailor.analysis.explain import name_index
from vmtailor.analysis.guests import kernel_complaints
from vmtailor.analysis.ksource import security_modules
from vmtailor.analysis.systems import loaders, nftables
from vmtailor.base.bounded_patterns import bounded
from vmtailor.booting import signal_boot
from vmtailor.model import architecture
from vmtailor.model.boots.exits import exit_rows
from vmtailor.pipeline import work_files


def _rules() -> Iterator[Any]:
    rules = demand_rules.load()
    yield from (row._pattern for row in rules.calls if row.text)
    for row in (*rules.paths, *rules.arguments, *rules.harmless, *rules.untold):
        yield from getattr(row, "_patterns", ())


def _trials() -> Iterator[re.Pattern[str]]:
    for candidate in (one for whole in change_catalogue.candidates() for one in whole.single):
        signs, cost = candidate.timeline, candidate.cost
        for words in (
            signs.processes, signs.units, signs.initcalls, signs.modules,
            cost.symbols, cost.files, cost.functions, cost.initcalls,
        ):  # fmt: skip
            yield from (re.compile("|".join(words)),) if words else ()


def _machines() -> Iterator[re.Pattern[str]]:
    for row in architecture.every():
        yield re.compile(bounded("|".join((*signal_boot._WARNINGS, *row.warnings))))


#: Where patterns come from data of ours: file → the function that reads them.
DATA: dict[str, Callable[[], object]] = {
    "analysis/bootlog/machine_facts.py": machine_facts.known_facts,
    "analysis/bootlog/milestones.py": lambda: milestones._CLOCKS,
    "analysis/bootlog/silences.py": lambda: (silences.gap_kinds(), silences.stretch_kinds()),
    "analysis/changes/change_catalogue.py": change_catalogue.catalogue,
    "analysis/changes/remedy_audience.py": change_catalogue.catalogue,
    "analysis/changes/effects.py": lambda: list(_trials()),
    "analysis/cost/monitor_costs.py": lambda: [re.compile(row.pattern) for row in exit_rows("x86_64").event],
    "analysis/demands/demand_rules.py": lambda: list(_rules()),
    "analysis/explain/name_index.py": lambda: name_index._FIELDS,
    "analysis/guests/kernel_complaints.py": lambda: kernel_complaints.expected_messages(["virtio_net", "loop"]),
    "booting/signal_boot.py": lambda: list(_machines()),
    "pipeline/work_files.py": lambda: [re.compile(form) for form in work_files.PLACES.values()],
}
#: Patterns that are made when they are used, and why none of them goes back.
OTHERS = {
    "analysis/bootlog/prefixes.py": "pieces of a log's own lines, escaped, and classes with limits",
    "analysis/explain/answers.py": "one word, escaped",
    "analysis/explain/messages.py": "bounded, and asked of at most 8,000 characters that a user pastes",
    "analysis/timeline/told_ready.py": "the user's own, bounded",
    "booting/system_boot.py": "the user's own",
    "cli/boots/boot_machine.py": "the user's own",
    "drivers/distribution/debian.py": "names of packages, from lists that are signed",
    "drivers/guest/ready.py": "the user's own",
    "drivers/kernel/kconfig_shell.py": "one name, then words that exclude each other",
    "drivers/kernel/kernel_source.py": "one name, then words that exclude each other",
    "drivers/rootfs/initramfs.py": "one name, then all but a zero",
    "model/architecture.py": "checked there, used in booting/",
    "pipeline/mount_words.py": "words of a row, each with limits; the text is the user's own",
    "stages/exercise_file.py": "the user's own",
}


def within(value: object) -> Iterator[re.Pattern[Any]]:
    """Yield every pattern in a record, a table or a list."""
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, dict):
        yield from within(tuple(value.values()))
    elif isinstance(value, tuple | list):
        for one in value:
            yield from within(one)
    elif dataclasses.is_dataclass(value):
        yield from within(tuple(vars(value).values()))


@pytest.fixture(autouse=True)
def _alarm() -> Iterator[None]:
    old = signal.signal(signal.SIGPROF, patterns.stop)
    yield
    signal.signal(signal.SIGPROF, old)


@functools.cache
def everything() -> dict[tuple[re.Pattern[Any], str], str]:
    """Return (pattern, method by which it is used) → where it stands, of the whole package."""
    found: dict[tuple[re.Pattern[Any], str], str] = {}
    for site in patterns.sites():
        pattern = site.pattern()
        if pattern is not None:
            found.update({(pattern, method): f"{site.file}:{site.line}" for method in site.methods})
    for file, read in DATA.items():
        found.update({(pattern, "finditer"): file for pattern in within(read())})
    return found


def test_every_pattern_is_found() -> None:
    """A pattern that does not follow from its module's names is read from data, or named here with a reason."""
    unknown = {site.file for site in patterns.sites() if site.pattern() is None}
    assert unknown == {*DATA, *OTHERS} & unknown
    assert set(OTHERS) <= unknown, "a reason for what is there no longer"
    assert len(everything()) > 400
    assert all(list(within(read())) for read in DATA.values())


@pytest.mark.attack
def test_no_pattern_goes_back() -> None:
    """Each is asked with texts made from its own repetitions, and each text is doubled."""
    slow = {
        where: f"{method} of {pattern.pattern!r}: {given}"
        for (pattern, method), where in everything().items()
        if (given := patterns.goes_back(pattern, method)) is not None
    }
    assert not slow


@pytest.mark.parametrize(
    ("pattern", "limited"),
    [
        (r"a.*b", r"a.{0,9}b"),
        (r"\S+\.device", r"\S{1,9}\.device"),
        (r"[^]*]*?x\*+", r"[^]*]{0,9}?x\*{1,9}"),
        (r"(?:ab)*c{2,}d?", r"(?:ab)*c{2,}d?"),
        (r"\[.\]+", r"\[.\]{1,9}"),
    ],
)
def test_patterns_of_data_are_bounded(pattern: str, limited: str) -> None:
    assert bounded(pattern, 9) == limited


@pytest.mark.parametrize(
    ("pattern", "method"),
    [
        (r'^\s*set default="([^"$]*)"', "finditer"),
        (r"=\s(?:\s(E\w+))?(.*?)(?:\s<(\d+)>)?\s*\Z", "match"),
        (r"\{nlmsg_len=\d+, type=(\w+)[^}]*\}, \{family=(\w+)", "finditer"),
        (r"NEW(QDISC|TFILTER).*?nla_type=TCA_KIND", "finditer"),
        (r'"(?:\\.|[^"\\])*"', "finditer"),
        (r"struct \w+\s*(?:__\w+\s*)*=", "match"),  # exponential
        (r"\S+\.target reached", "finditer"),
        (r"a*b", "finditer"),
    ],
)
def test_a_pattern_that_goes_back_is_seen(pattern: str, method: str) -> None:
    """Shapes that were in the package once."""
    assert patterns.goes_back(re.compile(pattern, re.M), method) is not None


@pytest.mark.parametrize(
    ("pattern", "method"),
    [(r"a{1,200}b", "finditer"), (r"(?<!a)a*b", "finditer"), (r"a*b", "match"), (r'"[^"]*"', "finditer")],
)
def test_a_pattern_that_does_not_is_let_be(pattern: str, method: str) -> None:
    assert patterns.goes_back(re.compile(pattern), method) is None


def _of_call(text: str) -> object:
    return strace_log.whole_call(text, 1, 1)


@pytest.mark.attack
@pytest.mark.parametrize(
    ("read", "head", "pump"),
    [
        (_of_call, 'open("/a") = 3', " "),
        (_of_call, 'open("/a") = 3', " <1.0"),
        (_of_call, "open(", "a<"),
        (_of_call, "open(", 'a<b:["'),
        (lambda text: list(nftables.asked(text)), "", "{nlmsg_len=1, nlmsg_type=NFNL_SUBSYS_NFTABLES<<8|a, "),
        (lambda text: loaders.parse_grub(text, "grub.cfg", {}), "", " \n"),
        (lambda text: loaders.parse_grub(text, "grub.cfg", {}), 'set default="', "$a "),
        (lambda text: list(security_modules._bodies(text)), "", "DEFINE_LSM(a) = {\n"),
    ],
)
def test_readers_take_twice_as_long_for_twice_the_text(read: Callable[[str], object], head: str, pump: str) -> None:
    """Loops around a pattern can go back, too."""
    texts = [head + pump * (size // len(pump)) + "x" for size in (16000, 64000)]
    spent = [patterns.processor_s(functools.partial(read, text)) for text in texts]
    assert spent[1] < 8 * spent[0] + 0.01, spent
