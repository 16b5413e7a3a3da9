# SPDX-License-Identifier: Apache-2.0
"""How property tests choose their examples: the same ones in each run, so that a commit is judged by what it changed.

To look for new ones: `pytest --hypothesis-profile=search tests/unit`.
"""

from __future__ import annotations

from hypothesis import settings

# No deadline: how long an example takes depends on what else the machine does.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("search", deadline=None, max_examples=1000)
settings.load_profile("repeatable")
