# SPDX-License-Identifier: Apache-2.0
"""The entry point is PID 1: told to init, kept possible by the plan, and demanded where an init insists on it."""

from __future__ import annotations

import pytest
from tests.unit.test_demand import EVERYTHING, FACTS, RULES, call

from vmtailor.analysis.demands import demand
from vmtailor.analysis.demands.demand import Demands
from vmtailor.base.errors import UserInputError
from vmtailor.base.natives import locate
from vmtailor.drivers.guest.guest_volume import config_bytes, run_bytes
from vmtailor.drivers.host.bundle_folder import PID_ONE
from vmtailor.model.boots.workload import Run
from vmtailor.model.image import ImageConfig
from vmtailor.model.option_values import parse_pid
from vmtailor.model.syscalls import SyscallEvent


@pytest.mark.parametrize(
    ("entrypoint", "cmd", "insists"),
    [
        (("/init",), (), True),  # s6-overlay
        (("busybox", "init"), (), True),
        (("/bin/busybox",), ("init",), True),
        (("/sbin/init",), (), True),
        (("/usr/bin/tini", "--"), ("redis-server",), True),
        (("/lib/systemd/systemd",), (), True),
        ((), ("/sbin/catatonit", "-P"), True),
        (("/bin/sh", "init"), (), False),
        (("/docker-entrypoint.sh",), ("tini",), False),
        (("dumb-init",), ("app",), False),  # which is content with any number
        (("/opt/initialise",), (), False),
        ((), (), False),
    ],
)
def test_who_insists(entrypoint: tuple[str, ...], cmd: tuple[str, ...], insists: bool) -> None:
    config = ImageConfig("amd64", entrypoint=entrypoint, cmd=cmd)
    assert config.insists_on_pid_one is insists
    found = Demands(FACTS, RULES, EVERYTHING | {"PID_NS"})
    demand.of_image(config, found)
    assert any("PID_NS" in d.symbols for d in found.result()) is insists
    assert b"\0pid-one 1\0" in config_bytes(config)  # all are, where the kernel can do that


@pytest.mark.parametrize(
    ("event", "insists"),
    [
        (call("execve", '"/sbin/tini"', '["tini", "--", "app"]'), True),
        (call("execve", '"/init"', '["/init"]'), True),
        (call("execve", '"/bin/busybox"', '["busybox", "init"]'), True),
        (call("execve", '"/proc/self/exe"', '["busybox", "init"]'), True),  # a BusyBox shell's own programs
        (call("execve", '"/proc/self/exe"', '["init"]'), True),
        (call("execveat", "5", '""', '["/sbin/tini", "--"]', "NULL", "AT_EMPTY_PATH"), True),
        (call("execve", '"/proc/self/exe"', '["busybox", "sh", "init"]'), False),
        (call("execve", '"/proc/self/exe"', "[]"), False),
        (call("execve", '"/bin/sh"', '["sh", "init"]', '["init"]'), False),  # the last is its environment
        (call("execve", '"/bin/busybox"', '["busybox", "initialise"]'), False),
        (call("execve", '"/bin/busybox"', '["busybox"]'), False),
        (call("execve", '"/usr/local/bin/tini"', '["tini"]', error="ENOENT"), False),  # looked for along PATH
        (call("execve", '"/usr/bin/initdb"', '["initdb"]'), False),
        (call("access", '"/sbin/tini"', "X_OK"), False),
    ],
)
def test_an_init_that_a_wrapper_executes_is_evidence(event: SyscallEvent, insists: bool) -> None:
    found = Demands(FACTS, RULES, EVERYTHING | {"PID_NS"})
    demand.of_events([event], found)
    assert any("PID_NS" in d.symbols for d in found.result()) is insists


def test_a_run_may_say_otherwise() -> None:
    key = bytes(16)
    assert b"pid-one" not in run_bytes(Run(key=key))
    assert b"\0pid-one 0\0" in run_bytes(Run(key=key, pid_one=False))
    assert b"\0pid-one 1\0" in run_bytes(Run(key=key, pid_one=True))


def test_an_init_that_can_do_it_is_known_by_a_word() -> None:
    assert PID_ONE in locate().init.read_bytes()


def test_only_the_machines_own_namespace_can_be_named() -> None:
    assert parse_pid("host") == "host"
    with pytest.raises(UserInputError, match="--pid takes host, not 'container:x'"):
        parse_pid("container:x")
