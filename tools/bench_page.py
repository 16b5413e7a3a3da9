# SPDX-License-Identifier: Apache-2.0
"""What tools of benchmarks tell: how far they are; their tables, printed, kept beside what they were made of, and
written into a page of the documentation."""

from __future__ import annotations

import sys
from pathlib import Path

from vmtailor.base.files.regular_files import write_atomic


def say(text: str) -> None:
    """Tell how far it is, beside the tables."""
    print(text, file=sys.stderr, flush=True)


def publish(out: Path, page: Path | None, name: str, text: str) -> None:
    """Print tables, keep them as OUT/NAME.md, and write them into a page, between its marks of that name."""
    write_atomic(out / f"{name}.md", text.encode())
    if page is not None:
        write_atomic(page, into_page(page.read_text(), text, name).encode())
    print(text)


def into_page(page: str, tables: str, mark: str = "tables") -> str:
    """A page with its tables written again, between its two marks. Raises ValueError where they are missing."""
    before, begin, rest = page.partition(f"<!-- {mark} -->\n")
    _, end, after = rest.partition(f"<!-- end of {mark} -->\n")
    if not begin or not end:
        raise ValueError(f"the page has no marks for {mark}")
    return f"{before}{begin}\n{tables}\n{end}{after}"
