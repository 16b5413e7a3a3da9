# SPDX-License-Identifier: Apache-2.0
"""The fit behind a run (`run --fit`). Its arguments are its folder in the cache, the image, and how that is got; its
output goes to its log."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from vmtailor.base.cache.store import Store
from vmtailor.base.errors import VmtailorError
from vmtailor.cli.entry import escape_what_lacks
from vmtailor.pipeline import fit_behind
from vmtailor.pipeline.fit_behind import FitBehind
from vmtailor.pipeline.pull_options import PullOptions


def _fit(folder: Path, reference: str, pull: PullOptions) -> None:
    """Fit, and record the end, whatever it is."""
    end = FitBehind(reference, False, fit_behind.ENDED_EARLY)
    try:
        end = fit_behind.fit_of(reference, folder / fit_behind.BUNDLE, Store(), pull)
    except VmtailorError as error:
        end = FitBehind(reference, False, error.message)
        raise
    finally:
        fit_behind.ended(folder, end)


def main() -> None:
    """Fit, and exit with the code of `fit`."""
    escape_what_lacks()
    from vmtailor.cli.main import finish

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    folder, reference, *words = sys.argv[1:]
    pull = fit_behind.of_words(words)
    finish(lambda: _fit(Path(folder), reference, pull), ("fit",))


if __name__ == "__main__":
    main()
