# SPDX-License-Identifier: Apache-2.0
"""The program with real descriptors: output of a guest does not go through Python's streams."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Iterator

import pytest
from tests.fakes.started import Start

from vmtailor.cli.main import main


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Iterator[Start]:
    """Starts `vmtailor ARGUMENTS` with `stdin` (bytes), and gives exit code, output and errors as text of Latin-1."""
    terminated = signal.getsignal(signal.SIGTERM)
    hung_up = signal.getsignal(signal.SIGHUP)

    def run(*arguments: object, stdin: bytes = b"") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["vmtailor", *map(str, arguments)])
        saved = os.dup(0)
        with tempfile.TemporaryFile() as file:
            file.write(stdin)
            file.seek(0)
            os.dup2(file.fileno(), 0)
            try:
                with pytest.raises(SystemExit) as end:
                    main()
            finally:
                os.dup2(saved, 0)
                os.close(saved)
        sys.stdout.flush()
        sys.stderr.flush()
        out, err = capfdbinary.readouterr()
        code = end.value.code
        assert isinstance(code, int)
        return code, out.decode("latin-1"), err.decode("latin-1")

    yield run
    signal.signal(signal.SIGTERM, terminated)
    signal.signal(signal.SIGHUP, hung_up)
