# SPDX-License-Identifier: Apache-2.0
"""The command line. One file per verb; this one joins them, and alone turns an error into an exit code."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer

from vmtailor import __version__
from vmtailor.base import output
from vmtailor.base.cache import remote
from vmtailor.base.errors import ExitCode, HostError, UserInputError, VmtailorError
from vmtailor.cli.verbs import HELP, WIDTH, OutputClosed, Verbs

app = typer.Typer(
    name="vmtailor",
    cls=Verbs,
    help="Make the Linux virtual machine that fits an image or a system disk.",
    subcommand_metavar="VERB [ARGS]...",
    invoke_without_command=True,
    context_settings={**WIDTH, "help_option_names": HELP},
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,  # brackets in a help text are brackets
)


def _version(wanted: bool) -> None:
    if wanted:
        output.say(f"vmtailor {__version__}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Log every command that is run, and show tracebacks.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Make the Linux virtual machine that fits an image or a system disk."""
    if debug:
        output.debug_log()
    if context.invoked_subcommand is None:
        output.lines(f"{context.get_help()}\n")
        raise typer.Exit(ExitCode.USER_INPUT)


def _terminated(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _show(error: VmtailorError, word: str = "error") -> None:
    from vmtailor.base import terminal
    from vmtailor.base.cache import kept_errors

    whole = None if terminal.details_fit(error) else kept_errors.keep(f"{word}: {error.message}\n{error.details}\n")
    terminal.show_error(error, word=word, whole=whole)


def _show_traceback() -> None:
    from vmtailor.base import terminal

    terminal.stderr().print_exception()


def say_interrupted() -> None:
    """Tell a person who pressed Ctrl-C that nothing is lost."""
    output.note("interrupted: finished work is kept, and the next try uses it")


def _no_space(where: str = "for temporary files, or for the cache") -> HostError:
    from vmtailor.base import disk_full

    return disk_full.no_space(where, elsewhere=disk_full.ANYWHERE)


def of_host(error: OSError) -> HostError:
    """Return an error of the operating system as a HostError with a hint."""
    from vmtailor.base import disk_full

    if disk_full.is_full(error):
        return _no_space(f"in {Path(str(error.filename)).parent}") if error.filename else _no_space()
    what = f"{error.filename}: " if error.filename else ""
    return HostError(f"{what}{error.strerror or error}", hint="run it again with --debug to see what needed it")


def _known(error: VmtailorError) -> VmtailorError:
    """Return a program of the host that failed, where nobody nearer to it knew why, in the right family."""
    from vmtailor.base.disk_full import says_full
    from vmtailor.base.process import CommandFailed

    if isinstance(error, CommandFailed):
        if says_full(error.details):
            return _no_space()
        return HostError(error.message, hint="vmtailor doctor checks the tools", details=error.details)
    return error


def _other(error: Exception, debug: bool) -> ExitCode:
    """Show what is none of our own errors; returns the exit code."""
    if hasattr(error, "format_message"):  # the library's own words for wrong options
        context: Any = getattr(error, "ctx", None)
        path = context.command_path if context is not None else "vmtailor"
        said = " ".join(error.format_message().split()).replace(": Value error, ", ": ")
        _show(UserInputError(said, hint=f"{path} --help"))
        return ExitCode.USER_INPUT
    if debug:
        _show_traceback()
    if isinstance(error, OSError):
        _show(of_host(error))
        return ExitCode.HOST
    hint = "run it again with --debug, and report what it prints"
    _show(VmtailorError(f"{type(error).__name__}: {error}", hint=hint), "bug")
    return ExitCode.BUG


def exit_code_of(code: int, arguments: Sequence[str]) -> int:
    """Return the exit code of the program with these arguments. `run`'s own errors are 125, as in container engines,
    since every other code may be the container's; so are those of `exec`, but for a machine that is not there."""
    verb = next((word for word in arguments if not word.startswith("-")), "")
    said = (ExitCode.DONE, ExitCode.INTERRUPTED, *((ExitCode.NO,) if verb == "exec" else ()))
    return ExitCode.RUN if verb in ("run", "exec") and code not in said else code


def main() -> NoReturn:
    """Parse the arguments, run the verb, and exit with the codes of `ExitCode`. SIGTERM and a closed terminal end the
    program as cleanly as Ctrl-C does."""
    signal.signal(signal.SIGTERM, _terminated)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup has it
        signal.signal(signal.SIGHUP, _terminated)
    if os.environ.get(remote.VARIABLE):
        from vmtailor.pipeline import shared_results

        shared_results.begin()
    # Without its standalone mode the library turns typer.Exit into the value that is returned.
    finish(lambda: app(standalone_mode=False, prog_name="vmtailor"), sys.argv[1:])


def finish(work: Callable[[], object], arguments: Sequence[str]) -> NoReturn:
    """Do the work of a verb with these arguments, and exit with its code, or with that of the error that it raises."""
    debug = "--debug" in sys.argv[1:]
    try:
        result = work()
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
            _show_traceback()
        error = _known(error)
        _show(error)
        code = error.exit_code
    except OutputClosed:
        # What still waits for that reader goes nowhere, and fails at no later end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.stderr.close()
        code = ExitCode.DONE
    except Exception as error:
        code = _other(error, debug)
    sys.exit(exit_code_of(int(code), arguments))
