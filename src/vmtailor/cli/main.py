# SPDX-License-Identifier: Apache-2.0
"""The command line. One file per verb; this one joins them, and alone turns an error into an exit code."""

from __future__ import annotations

import errno
import logging
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.markup import escape

from vmtailor import __version__
from vmtailor.base.errors import ExitCode, HostError, VmtailorError
from vmtailor.base.process import CommandFailed
from vmtailor.cli.analyze import analyze
from vmtailor.cli.boot import boot
from vmtailor.cli.compare import compare
from vmtailor.cli.doctor import doctor
from vmtailor.cli.explain import explain
from vmtailor.cli.fit import fit
from vmtailor.cli.gate import gate
from vmtailor.cli.report import report
from vmtailor.cli.run import RunCommand, exit_code_of, run
from vmtailor.cli.stages import build, plan, trace, verify

errors = Console(stderr=True, highlight=False)

app = typer.Typer(
    name="vmtailor",
    help="From a container image to the Linux virtual machine that fits it: traced, built, proven, measured.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode="rich",
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"vmtailor {__version__}")
        raise typer.Exit


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Log every command that is run, and show tracebacks.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """From a container image to the Linux virtual machine that fits it."""
    if debug:
        logging.basicConfig(level=logging.DEBUG, format="%(relativeCreated)8.0f ms %(name)s: %(message)s")


for verb in (fit, trace, plan, build, verify, explain, report, boot, analyze, compare, gate, doctor):
    app.command()(verb)
app.command(cls=RunCommand, context_settings={"allow_interspersed_args": False})(run)


def _terminated(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def show(error: VmtailorError) -> None:
    """Print an error for a person: what happened, the evidence, the next step."""
    errors.print(f"[bold red]error:[/] {escape(error.message)}", soft_wrap=True)
    if error.details:
        for line in error.details.splitlines()[-60:]:
            errors.print(f"  [dim]│[/] {escape(line)}", soft_wrap=True)
    if error.hint:
        errors.print(f"[bold]hint:[/] {escape(error.hint)}", soft_wrap=True)


def say_interrupted() -> None:
    """Tell a person who pressed Ctrl-C that nothing is lost."""
    errors.print("[bold]interrupted:[/] what was finished is kept, and found again at the next try")


def of_host(error: OSError) -> HostError:
    """What the operating system refused, where nobody nearer to it knew better."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        where = f" in {Path(str(error.filename)).parent}" if error.filename else ""
        return HostError(
            f"no space is left{where or ' for temporary files, or for the cache'}",
            hint="free some, or set TMPDIR or XDG_CACHE_HOME elsewhere",
        )
    what = f"{error.filename}: " if error.filename else ""
    return HostError(f"{what}{error.strerror or error}", hint="run it again with --debug to see what needed it")


def _known(error: VmtailorError) -> VmtailorError:
    """A program of the host that failed, where nobody nearer to it knew why, in the right family."""
    if isinstance(error, CommandFailed):
        if "No space left on device" in error.details:
            return of_host(OSError(errno.ENOSPC, ""))
        return HostError(error.message, hint="vmtailor doctor checks the tools", details=error.details)
    return error


def _other(error: Exception, debug: bool) -> ExitCode:
    """Show what is none of our own errors; returns the exit code."""
    if hasattr(error, "format_message"):  # click's own words for wrong options
        errors.print(f"[bold red]error:[/] {escape(error.format_message())}", soft_wrap=True)
        context = getattr(error, "ctx", None)
        if context is not None:
            errors.print(f"[bold]hint:[/] {escape(context.command_path)} --help", soft_wrap=True)
        return ExitCode.USER_INPUT
    if debug:
        errors.print_exception()
    if isinstance(error, OSError):
        show(of_host(error))
        return ExitCode.HOST
    errors.print(f"[bold red]bug:[/] {escape(type(error).__name__)}: {escape(str(error))}", soft_wrap=True)
    errors.print("[bold]hint:[/] run it again with --debug, and report what it prints", soft_wrap=True)
    return ExitCode.BUG


def main() -> NoReturn:
    """The program. Exits with the codes of `ExitCode`; SIGTERM ends it as cleanly as Ctrl-C does."""
    signal.signal(signal.SIGTERM, _terminated)
    debug = "--debug" in sys.argv[1:]
    try:
        # Without its standalone mode the library turns typer.Exit into the value that is returned.
        result = app(standalone_mode=False)
        code: int = result if isinstance(result, int) else ExitCode.DONE
        if code == ExitCode.INTERRUPTED:  # so does it with Ctrl-C
            say_interrupted()
    except typer.Exit as exit_:
        sys.exit(exit_.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        say_interrupted()
        code = ExitCode.INTERRUPTED
    except VmtailorError as error:
        if debug:
            errors.print_exception()
        error = _known(error)
        show(error)
        code = error.exit_code
    except BrokenPipeError:
        sys.stderr.close()
        code = ExitCode.DONE
    except Exception as error:
        code = _other(error, debug)
    sys.exit(exit_code_of(int(code), sys.argv[1:]))
