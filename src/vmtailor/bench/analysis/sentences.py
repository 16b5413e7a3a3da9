# SPDX-License-Identifier: Apache-2.0
"""What suites and tests measure, in a sentence each, for who reads a report and was not there."""

from __future__ import annotations

from vmtailor.bench.analysis.bench_clock import CLOCK
from vmtailor.bench.analysis.unixbench_index import INDEX
from vmtailor.bench.model.results import SuiteName

SUITES: dict[str, str] = {
    SuiteName.STARTUP: "How long until an instance is there. Every figure begins just before the start command is "
    "executed, and ends at the boundary that it is named by; none is one minus another.",
    SuiteName.EFFICIENCY: "What one instance gets of processor, memory, disk and network.",
    SuiteName.MEMORY: "What instances cost in memory.",
    SuiteName.UNIXBENCH: "The twelve tests of the UnixBench index, each timed by wall clock.",
    SuiteName.ISOLATION: "Five instances: one misbehaves, four serve a page to ApacheBench. t1 is what that takes "
    "while the fifth idles, t2 while it misbehaves.",
}
_TESTS: dict[tuple[str, str], str] = {
    (SuiteName.STARTUP, "report"): "One start, to the instance's own report (it creates a file in a folder of ours), "
    "to its first byte of output as the runtime passes it on, and to the end of the command. Cold: the page cache was "
    "dropped before.",
    (SuiteName.STARTUP, "http"): "One start, to the first right answer over HTTP.",
    (SuiteName.STARTUP, "apart"): "Create, start and stop as commands of their own, where a runtime has them.",
    (SuiteName.STARTUP, "serial"): "Several instances, each begun when the one before has reported.",
    (SuiteName.STARTUP, "staggered"): "Several instances, begun 50 ms apart.",
    (SuiteName.STARTUP, "at-once"): "Several instances, begun all at once.",
    (SuiteName.STARTUP, "boot"): "One start, as it is for each row: of a machine, from reset until the program starts, "
    "and until it ends; of an engine within a machine that is up (its name follows the machine's), from the start "
    "command to its end.",
    (SuiteName.EFFICIENCY, "linpack"): "LINPACK: a dense system of equations by OpenBLAS's dgesv, on all processors.",
    (SuiteName.EFFICIENCY, "stream"): "STREAM's four kernels over arrays that no cache holds.",
    (SuiteName.EFFICIENCY, "disk"): "One file in records of 8 KB in the instance's writable layer. What is written is "
    "flushed within the time. Read comes after the instance asked to forget the file; reread from the page cache.",
    (SuiteName.EFFICIENCY, "tcp-send"): "TCP to a peer in a network namespace of its own.",
    (SuiteName.EFFICIENCY, "tcp-receive"): "TCP from a peer in a network namespace of its own.",
    (SuiteName.EFFICIENCY, "tcp-latency"): "Request and response over TCP with such a peer: one byte there, one byte "
    "back, and nothing else under way.",
    (SuiteName.MEMORY, "idle"): "What idle instances cost: the growth of the proportional set size of all processes, "
    "engines' helpers included; and of the host's MemAvailable, which others sway.",
    (SuiteName.MEMORY, "least"): "The least memory limit that an instance starts in.",
}  # fmt: skip
_STRESSES = {
    "cpu": "computes on all processors",
    "memory": "takes and touches memory",
    "disk": "writes to the disk",
    "full-disk": "fills a small disk of its own, again and again",
    "net-send": "sends as fast as it can",
    "net-receive": "is sent to as fast as can be",
    "fork-bomb": "begins processes that begin processes",
}


def suite_words(suite: str) -> str:
    """What a suite measures; empty for one that is not known here."""
    return SUITES.get(suite, "")


def test_words(suite: str, test: str, variant: str) -> str:
    """What a test does; empty for one that is not known here."""
    if suite == SuiteName.ISOLATION and test in _STRESSES:
        return f"The fifth instance {_STRESSES[test]}."
    if suite == SuiteName.UNIXBENCH and test in INDEX:
        counted = "; here what one unit of its work costs" if variant == CLOCK else ""
        return f"{INDEX[test].title}{counted}."
    if (suite, test, variant) == (SuiteName.EFFICIENCY, "disk", "IOzone"):
        return (
            "One file in records of 8 KB in the instance's writable layer, by IOzone. What is written is flushed "
            "within the time. Read and reread both come from the page cache, as far as that holds the file."
        )
    return _TESTS.get((suite, test), "")
