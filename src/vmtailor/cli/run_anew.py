# SPDX-License-Identifier: Apache-2.0
"""`run` the long way: a supervisor with kept orders (cli/quick_start.py) that found a file changed becomes this."""

from __future__ import annotations

from vmtailor.cli import entry

if __name__ == "__main__":
    entry.main(quick=False)
