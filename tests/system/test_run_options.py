# SPDX-License-Identifier: Apache-2.0
"""Options of `docker run` for what surrounds a container, seen from within it: every one that the page calls the same,
and most that it says differ.

The kernel is the one that was fitted to `lighttpd`, with a shell (tests/guests/shell)."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from tests.fakes.program import argv_of, assert_clear, assert_nothing_left, run_program
from tests.system.conftest import Fitted, with_image

from vmtailor.base.files import records
from vmtailor.drivers.host import host_client
from vmtailor.drivers.host.bundle_folder import seal
from vmtailor.model.bundle import CONFIG, INIT, RECORD, Bundle

pytestmark = pytest.mark.system

SHELL = Path(__file__).parents[1] / "guests" / "shell"


@pytest.fixture(scope="module")
def shell(lighttpd: Fitted, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return with_image(lighttpd.bundle, SHELL, tmp_path_factory.mktemp("shell"))


def said(folder: Path, bundle: Path, options: tuple[str, ...], *script: str) -> list[str]:
    """The lines that a script in the container prints; it ends well, and nothing is complained of."""
    ended = run_program(folder, "run", *options, bundle, "\n".join(script))
    assert_nothing_left(ended)
    assert (ended.code, ended.stderr) == (0, ""), ended.stderr
    return ended.stdout.splitlines()


def test_a_read_only_root_and_memory_file_systems(shell: Path, tmp_path: Path) -> None:
    options = (
        "--read-only", "--tmpfs", "/run:size=64k,mode=0711", "--tmpfs", "/tmp", "--tmpfs", "/new/one:exec,uid=33",
        "--shm-size", "1.5m", "-w", "/made/here",
    )  # fmt: skip
    assert said(
        tmp_path, shell, options,
        "pwd; for place in / /etc /data /run /tmp /new/one /dev /dev/shm /made/here; do",
        'if touch $place/file 2>/dev/null; then echo "$place writable"; else echo "$place not"; fi; done',
        "stat -c '%n %a %u' /run /tmp /new/one; mount -o remount,rw / 2>/dev/null || echo stays",
        "awk '$2 == \"/run\" || $2 == \"/new/one\" {print $4}' /proc/mounts",
        "df -k /dev/shm | awk 'NR == 2 {print $2}'",
    ) == [
        "/made/here", "/ not", "/etc not", "/data writable", "/run writable", "/tmp writable", "/new/one writable",
        "/dev writable", "/dev/shm writable", "/made/here not", "/run 711 0", "/tmp 1777 0", "/new/one 1777 33",
        "stays", "rw,nosuid,nodev,noexec,relatime,size=64k,mode=711", "rw,nosuid,nodev,relatime,uid=33", "1536",
    ]  # fmt: skip


def test_names(shell: Path, tmp_path: Path) -> None:
    options = (
        "--hostname", "box", "--domainname", "corp.example", "--add-host", "a.b:192.0.2.1", "--add-host", "six=[::1]",
        "--add-host", "host.docker.internal:host-gateway", "--dns", "192.0.2.53", "--dns", "2001:db8::53",
        "--dns-search", "one.example", "--dns-search", "two.example", "--dns-option", "ndots:3", "--dns-opt", "rotate",
    )  # fmt: skip
    assert said(
        tmp_path, shell, options, "hostname; cat /proc/sys/kernel/domainname /etc/hostname /etc/hosts /etc/resolv.conf",
    ) == [
        "box", "corp.example", "box", "127.0.0.1\tlocalhost", "::1\tip6-localhost ip6-loopback", "192.0.2.1\ta.b",
        "::1\tsix", "10.0.2.2\thost.docker.internal", "10.0.2.15\tbox.corp.example box", "nameserver 192.0.2.53",
        "nameserver 2001:db8::53", "search one.example two.example", "options ndots:3 rotate",
    ]  # fmt: skip


def test_without_them_names_are_as_ever(shell: Path, tmp_path: Path) -> None:
    assert said(tmp_path, shell, ("--hostname", "box"), "cat /etc/hosts /etc/resolv.conf") == [
        "127.0.0.1\tlocalhost", "::1\tip6-localhost ip6-loopback", "10.0.2.15\tbox", "nameserver 10.0.2.3",
    ]  # fmt: skip
    only = said(tmp_path, shell, ("--dns-search", "one.example"), "cat /etc/resolv.conf")
    assert only == ["nameserver 10.0.2.3", "search one.example"]


STATUS = (
    "grep -E '^(CapInh|CapPrm|CapEff|CapBnd|CapAmb|NoNewPrivs)' /proc/self/status | awk '{print $2}' | tr '\\n' ' '"
)


@pytest.mark.parametrize(
    ("options", "status"),
    [
        (("--cap-drop", "ALL", "--cap-add", "cap_chown", "--cap-add", "NET_ADMIN"), "0 1001 1001 1001 0 0"),
        (("--cap-add", "SYS_TIME", "--cap-drop", "CAP_MKNOD", "--security-opt", "no-new-privileges"),
         "0 a20425fb a20425fb a20425fb 0 1"),
        (("-u", "www-data", "--cap-drop", "all"), "0 0 0 0 0 0"),
    ],
)  # fmt: skip
def test_rights(shell: Path, tmp_path: Path, options: tuple[str, ...], status: str) -> None:
    found = said(tmp_path, shell, options, STATUS)[0].split()
    assert " ".join(f"{int(word, 16):x}" for word in found) == status


def test_all_rights_are_what_the_kernel_has(shell: Path, tmp_path: Path) -> None:
    """And settings of the kernel stay read-only, as in docker: that takes --privileged."""
    every, last, stays = said(
        tmp_path, shell, ("--cap-add", "ALL"), "awk '/CapEff/ {print $2}' /proc/self/status",
        "cat /proc/sys/kernel/cap_last_cap; (echo x > /proc/sys/kernel/domainname) 2>/dev/null || echo stays",
    )  # fmt: skip
    assert (int(every, 16), stays) == ((1 << int(last) + 1) - 1, "stays")


def test_groups_limits_and_settings(shell: Path, tmp_path: Path) -> None:
    options = (
        "--group-add", "audio", "--group-add", "777", "--group-add", "1000", "--ulimit", "nofile=100:200",
        "--ulimit", "core=0", "--ulimit", "stack=-1", "--sysctl", "net.ipv4.ip_forward=1",
        "--sysctl", "net/core/somaxconn=77", "--oom-score-adj", "500", "--mac-address", "02:42:AC:11:00:02",
    )  # fmt: skip
    assert said(
        tmp_path, shell, options, "id -G; ulimit -Sn; ulimit -Hn; ulimit -c; ulimit -s",
        "cat /proc/sys/net/ipv4/ip_forward /proc/sys/net/core/somaxconn /proc/self/oom_score_adj",
        "cat /sys/class/net/eth0/address",
    ) == [
        "0 5 29 777", "100", "200", "0", "unlimited", "1", "77", "500", "02:42:ac:11:00:02",
    ]  # fmt: skip
    of_user = said(tmp_path, shell, ("-u", "www-data", "--group-add", "audio"), "id -G")
    assert sorted(of_user[0].split()) == ["29", "33"]


def test_what_the_guest_refuses_is_named_with_its_option(shell: Path, tmp_path: Path) -> None:
    group = run_program(tmp_path, "run", "--group-add", "nosuch", shell)
    assert (group.code, group.stdout) == (126, "") and "no such group in /etc/group to add: nosuch" in group.stderr
    limit = run_program(tmp_path, "run", "--ulimit", "nofile=99999999", shell)
    assert (limit.code, limit.stdout) == (126, "") and "setrlimit(7 99999999 99999999)" in limit.stderr
    setting = run_program(tmp_path, "run", "--sysctl", "kernel.nosuch=1", shell)
    assert_clear(setting, 125, "--sysctl: open of /proc/sys/kernel/nosuch", "change this option")


def test_no_network(shell: Path, tmp_path: Path) -> None:
    script = "ls /sys/class/net; cat /etc/hosts; [ -e /etc/resolv.conf ] || echo no resolver"
    assert said(tmp_path, shell, ("--network", "none", "--hostname", "box"), script) == [
        "lo", "127.0.0.1\tlocalhost", "::1\tip6-localhost ip6-loopback", "127.0.1.1\tbox", "no resolver",
    ]  # fmt: skip


def test_exposed_ports_are_published(shell: Path, tmp_path: Path) -> None:
    """The image's, but for those that are published by hand, and those that are named."""
    port = host_client.free_port()
    ended = run_program(tmp_path, "run", "-P", "-p", f"{port}:80", "--expose", "7000", "--expose", "80", shell)
    assert_nothing_left(ended)
    assert ended.code == 0
    said = [line.partition(" leads to ")[2] for line in ended.stderr.splitlines() if " leads to " in line]
    assert said == ["port 53/udp", "port 7000/tcp"]
    assert "port 90/sctp stays closed" in ended.stderr


def test_the_machine_runs_on_the_cpus_that_are_named(shell: Path, tmp_path: Path) -> None:
    one = max(os.sched_getaffinity(0))
    ended = run_program(tmp_path, "run", "--cpuset-cpus", str(one), shell, "true")
    assert (ended.code, ended.stderr) == (0, "")


def lacking(bundle: Path, made: Path, change: str) -> Path:
    """The bundle without something of its init, or of its kernel's configuration."""
    shutil.copytree(bundle, made)
    if change == "init":
        (made / INIT).write_bytes((made / INIT).read_bytes().replace(b"\0+tmpfs\0", b"\0-tmpfs\0"))
    else:
        config = made / CONFIG
        config.write_text(config.read_text().replace(f"CONFIG_{change}=y", f"# CONFIG_{change} is not set"))
    seal(made, replace(records.load(Bundle, made / RECORD), files=()))
    return made


def test_a_bundle_that_cannot_is_refused_before_it_starts(shell: Path, tmp_path: Path) -> None:
    old = lacking(shell, tmp_path / "old", "init")
    assert_clear(run_program(tmp_path, "run", "--tmpfs", "/run", old), 125, "could not do this", "fit the image again")
    small = lacking(shell, tmp_path / "small", "MULTIUSER")
    for option in (("--cap-drop", "ALL"), ("--group-add", "audio")):
        ended = run_program(tmp_path, "run", *option, small)
        assert_clear(ended, 125, f"{option[0]} needs MULTIUSER", "--keep MULTIUSER")
    four = lacking(shell, tmp_path / "four", "IPV6")
    ended = run_program(tmp_path, "run", "--ip6", "fd00:1::5", four)
    assert_clear(ended, 125, f"the kernel of {four} has no IPV6", "--keep IPV6")


TAP = """
set -e
mount -t sysfs none /sys
ip link set lo up
ip tuntap add dev vt0 mode tap
ip address add 192.0.2.1/24 dev vt0
ip -6 address add fd00:9::1/64 dev vt0 nodad 2>/dev/null || :
ip link set vt0 up
exec "$@"
"""


def on_tap(shell: Path, script: str, *options: str) -> list[str]:
    """The lines that a script prints in a network of its own, so that nothing of this host changes."""
    apart = ["unshare", "--mount", "--net"]
    if subprocess.run([*apart, "test", "-w", "/dev/net/tun"], capture_output=True, check=False).returncode != 0:
        pytest.skip("TAP devices are made by root")
    run = argv_of("run", "--network", "tap:vt0", *options, shell)
    done = subprocess.run(
        [*apart, "sh", "-c", TAP, "sh", *run, script], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_tap_device(shell: Path) -> None:
    script = "ip -4 -o address show eth0 | awk '{print $4}'; ip route | awk '/default/ {print $3}'; "
    script += "ping -c 1 192.0.2.1 | grep -c 'bytes from'; cat /etc/resolv.conf"
    said = on_tap(shell, script, "--dns", "192.0.2.53")
    assert said == ["192.0.2.2/24", "192.0.2.1", "1", "nameserver 192.0.2.53"]


@pytest.mark.parametrize(("options", "address"), [((), "fd00:9::2"), (("--ip6", "fd00:9::77"), "fd00:9::77")])
def test_a_tap_device_with_ipv6(shell: Path, options: tuple[str, ...], address: str) -> None:
    """The guest has the address beside the device's, or its own, and the name of the machine leads to it."""
    if not Path("/proc/net/if_inet6").exists():
        pytest.skip("this host has no IPv6")
    script = (
        "ip -6 -o address show dev eth0 scope global | awk '{print $4}'; ip -6 route | awk '/default/ {print $3}'; "
        "ping -6 -c 1 fd00:9::1 | grep -c 'bytes from'; "
        "awk '/fd00/ {print $1}' /etc/hosts"
    )
    assert on_tap(shell, script, *options) == [f"{address}/64", "fd00:9::1", "1", address]


def test_a_tap_device_that_cannot_be(shell: Path, tmp_path: Path) -> None:
    other = run_program(tmp_path, "run", "--network", "tap:vt-nowhere", shell)
    assert_clear(other, 125, "no network device 'vt-nowhere'", "ip tuntap add")
    ended = run_program(tmp_path, "run", "--network", "tap:vt0", "-p", "80", shell)
    assert_clear(ended, 125, "no port can be published with --network tap:vt0")
