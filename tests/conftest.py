# SPDX-License-Identifier: Apache-2.0
"""What holds for every test.

Property tests try the same examples in each run, so that a commit is judged by what it changed. To look for new ones:
`pytest --hypothesis-profile=search tests/unit`. `make unit` tries few of them, and leaves out what is marked `lengthy`.

Two processes share the tests (`--numprocesses 2 --dist loadscope`): a file at a time, longest first, so that no long
one is left for the end; files that use one bundle, or that would take each other's traces for their own, stay together.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

# No deadline: how long an example takes depends on what else the machine does.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("search", deadline=None, max_examples=1000)
settings.register_profile("quick", derandomize=True, deadline=None, max_examples=20)
settings.load_profile("repeatable")

# A shell without a terminal starts what it puts into the background with Ctrl-C ignored, which is inherited: tests that
# interrupt would wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)
# The same for the end of a terminal, which nohup has ignored.
signal.signal(signal.SIGHUP, signal.SIG_DFL)

#: Files that stay together, by what they share: the one bundle that is fitted from nothing, the host's cgroups, the
#: program's syntax trees.
_TOGETHER = {
    "bundle": (
        "test_fit", "test_interrupted", "test_network", "test_observed", "test_run", "test_run_signals",
        "test_pushed_bundle", "test_repaired_kernel", "test_stages", "test_bundle_trials", "test_shared_cache",
    ),
    "host": ("test_bench", "test_host_cgroups", "test_private_places"),
    "source": ("test_architecture", "test_distribution", "test_house", "test_printing"),
}  # fmt: skip
_GROUPS = {file: group for group, files in _TOGETHER.items() for file in files}
#: The longest come first.
_FIRST = ("bundle", "test_system_fit", "test_other_processors", "test_attended_boot", "test_bad_systems", "host")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(
        key=lambda item: (_place(_group(item.path)), item.path.parent.name != "system", "unit" in item.path.parts)
    )


class _ByGroup(LoadScopeScheduling):  # type: ignore[misc]
    """Gives a process one group of files after the other. (`--dist loadgroup` of pytest-xdist 3.8 passes groups over
    under pytest 9.)"""

    def _split_scope(self, nodeid: str) -> str:
        return _group(Path(nodeid.partition("::")[0]))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    return _ByGroup(config, log)


def _group(file: Path) -> str:
    return _GROUPS.get(file.stem, file.stem)


def _place(group: str) -> int:
    return _FIRST.index(group) if group in _FIRST else len(_FIRST)
