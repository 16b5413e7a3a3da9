# SPDX-License-Identifier: Apache-2.0
"""A gate's verdict as CI systems read it: annotations of GitHub Actions, and a report of JUnit."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from xml.etree import ElementTree

from vmtailor.analysis.comparison.budgets import Judged, shown
from vmtailor.base.text import plain

#: Characters that no document of XML 1.0 may hold, as itself or by number.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_TITLE = "vmtailor gate"


def told(one: Judged) -> str:
    """Return what is to be said of a budget that is not kept."""
    name = one.budget.metric
    words = one.why or f"{name} is {shown(name, one.value)}, the limit {shown(name, one.limit)}"
    return f"{words} ({one.meaning})" if one.meaning else words


def github_lines(subject: str, judged: Sequence[Judged], warnings: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yield commands of GitHub Actions: an error for each budget that is not kept, a warning for each doubt. `subject`:
    the document that was judged."""
    for one in judged:
        if not one.kept:
            yield _command("error", f"{subject}: {one.budget.text}: {told(one)}")
    for code, text in warnings:
        yield _command("warning", f"{subject}: {code}: {text}")


def _command(kind: str, text: str) -> str:
    # A line end or a percent sign of a stranger's log would begin a command of its own.
    return f"::{kind} title={_TITLE}::{plain(text).replace('%', '%25')}"


def junit(subject: str, judged: Sequence[Judged], warnings: Sequence[tuple[str, str]]) -> bytes:
    """Return a JUnit document: a suite for the document that was judged, with a case for each budget."""
    broken = sum(not one.kept for one in judged)
    counts = {"tests": str(len(judged)), "failures": str(broken), "errors": "0", "skipped": "0"}
    suites = ElementTree.Element("testsuites", {"name": _TITLE, **counts})
    suite = ElementTree.SubElement(suites, "testsuite", {"name": _xml(subject), **counts})
    for one in judged:
        case = ElementTree.SubElement(suite, "testcase", {"classname": _TITLE, "name": _xml(one.budget.text)})
        if not one.kept:
            kind = "missing" if one.why else "broken"
            failure = ElementTree.SubElement(case, "failure", {"type": kind, "message": _xml(told(one))})
            failure.text = _xml(told(one))
    if warnings:
        out = ElementTree.SubElement(suite, "system-out")
        out.text = _xml("\n".join(f"{code}: {text}" for code, text in warnings))
    ElementTree.indent(suites)
    document: bytes = ElementTree.tostring(suites, "utf-8", xml_declaration=True)
    return document + b"\n"


def _xml(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)
