# SPDX-License-Identifier: Apache-2.0
"""The meaning of exit codes, for the reference and the manual pages."""

from __future__ import annotations

from vmtailor.base.errors import ExitCode

#: The meaning of each exit code, in Markdown.
EXITS = {
    ExitCode.DONE: "done",
    ExitCode.NO: "the answer is no (`verify`, `gate`)",
    ExitCode.USER_INPUT: "the input is wrong: an image, an exercise, an option",
    ExitCode.HOST: "the host lacks something: a tool, space, a free port (`vmtailor doctor` says what to do)",
    ExitCode.BUILD: "a kernel, a configuration or a file system could not be built",
    ExitCode.GUEST: "a guest failed: it crashed, hung, or its workload did",
    ExitCode.BUG: "a bug of vmtailor: run it again with `--debug`, and report what it prints",
    ExitCode.RUN: "`run` only: any of the failures above, because every other code may be the container's",
    ExitCode.INTERRUPTED: "interrupted; finished work is kept, and the next try uses it",
}

#: The exit status of `run`, in Markdown.
RUN_EXITS = """`vmtailor run` exits with the container's own status if the container ended, as `docker run` does.
It exits with 125 when vmtailor itself fails, a wrong option included, or when the machine ends without a status of the
container's (`poweroff -f` inside); with 126 when the program cannot be executed (no permission, an unknown user, a bad
working directory); with 127 when it is not found; with 137 when vmtailor ended it after its time to stop.
[`run` and `docker run`](run-and-docker-run.md) has all differences."""
