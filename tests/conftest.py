# SPDX-License-Identifier: Apache-2.0
"""What holds for every test.

Property tests try the same examples in each run, so that a commit is judged by what it changed. To look for new ones:
`pytest --hypothesis-profile=search tests/unit`.
"""

from __future__ import annotations

import signal

from hypothesis import settings

# No deadline: how long an example takes depends on what else the machine does.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("search", deadline=None, max_examples=1000)
settings.load_profile("repeatable")

# A shell without a terminal starts what it puts into the background with Ctrl-C ignored, which is inherited: tests that
# interrupt would wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)
# The same for the end of a terminal, which nohup has ignored.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
