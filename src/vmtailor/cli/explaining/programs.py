# SPDX-License-Identifier: Apache-2.0
"""`vmtailor explain --for PROGRAM`: what a program is known to require of a kernel, held against one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from vmtailor.analysis.explain import requirements
from vmtailor.analysis.explain.requirements import HeldAgainst
from vmtailor.base import output
from vmtailor.base.errors import UserInputError
from vmtailor.base.terminal import TerminalConsole
from vmtailor.cli.tables import requirements_view
from vmtailor.model.fit import FitRun
from vmtailor.pipeline.known_source import SourceAtHand, read_configuration, source_for

#: Reads the record of a bundle, and says in which folder it is.
Load = Callable[[Path], tuple[FitRun, Path]]


def explain_for(
    program: str, kernel: Path | None, source: str | None, json: bool, console: TerminalConsole, load_run: Load
) -> None:
    """Print what a program requires. `kernel`: a bundle, or a configuration. It only reports: what is missing is no
    failure. Raises UserInputError."""
    asked = requirements.of_program(program)
    if kernel is None:
        raise UserInputError(
            "there is no kernel to look at", hint="give a bundle, a .config, or /proc/config.gz of a running kernel"
        )
    held = (
        _of_bundle(asked, kernel, source, load_run) if _is_bundle(kernel) else _of_configuration(asked, kernel, source)
    )
    if json:
        output.document(requirements_view.document(held))
    else:
        requirements_view.show(held, console)


def _is_bundle(path: Path) -> bool:
    return path.is_dir() or path.suffix == ".json"


def _of_bundle(asked: requirements.Requirements, path: Path, source: str | None, load_run: Load) -> HeldAgainst:
    run, _ = load_run(path)
    known = _symbols(source_for(source, run.plan.kernel_version, run.plan.architecture))
    return requirements.against_run(asked, str(path), run, known)


def _of_configuration(asked: requirements.Requirements, path: Path, source: str | None) -> HeldAgainst:
    made = read_configuration(path)
    known = _symbols(source_for(source, made.version, made.architecture or None)) if made.version or source else None
    return requirements.against_configuration(asked, str(path), made.symbols, made.version, known)


def _symbols(source: SourceAtHand | None) -> requirements.Knows | None:
    """Whether a source has a symbol; None where it is not at hand."""
    if source is None or source.known.kconfig is None:
        return None
    return source.known.kconfig.known
