# SPDX-License-Identifier: Apache-2.0
"""Values of docker's options for what surrounds a container, in all of docker's forms, and what is none of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmtailor.base import notation
from vmtailor.base.errors import UserInputError
from vmtailor.model import run_values
from vmtailor.model.boots.surroundings import Limit, Tmpfs
from vmtailor.model.image import Port

#: nosuid, nodev, noexec.
USUAL_FLAGS = 2 | 4 | 8


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("64m", 64 << 20), ("64M", 64 << 20), ("64mb", 64 << 20), ("64MiB", 64 << 20), ("67108864", 64 << 20),
        ("67108864b", 64 << 20), ("1.5g", 3 << 29), ("0", None), ("1 k", 1024), ("64", 64),
    ],
)  # fmt: skip
def test_sizes_of_shared_memory_are_docker_s(text: str, size: int | None) -> None:
    assert run_values.shm_size(text) == size


def test_decimals_of_a_size() -> None:
    assert notation.parse_docker_size("0.25k") == 256
    assert notation.parse_size("1.5G") is None and notation.parse_size("1.5", decimals=True) is None
    assert notation.parse_size("1.5G", decimals=True) == 3 << 29


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("/run", Tmpfs("/run", USUAL_FLAGS)),
        ("//run/./x/", Tmpfs("/run/x", USUAL_FLAGS)),
        ("/run:", Tmpfs("/run", USUAL_FLAGS)),
        ("/run:rw,size=64m,mode=1777", Tmpfs("/run", USUAL_FLAGS, "size=64m,mode=1777")),
        ("/run:exec,suid,dev,ro", Tmpfs("/run", 1)),
        ("/run:size=50%,size=1g,uid=33,gid=33,nr_inodes=1k,nr_blocks=8", Tmpfs(
            "/run", USUAL_FLAGS, "size=1g,uid=33,gid=33,nr_inodes=1k,nr_blocks=8"
        )),
        ("/run:ro,rw,noexec,exec,defaults,noatime", Tmpfs("/run", 2 | 4 | 1 << 10)),
        ("/dev/shm:size=1m", Tmpfs("/dev/shm", USUAL_FLAGS, "size=1m")),
    ],
)  # fmt: skip
def test_a_memory_file_system(text: str, found: Tmpfs) -> None:
    assert run_values.tmpfs([text]) == (found,)


def test_memory_file_systems_are_mounted_from_the_top_and_the_last_of_a_path_counts() -> None:
    found = run_values.tmpfs(["/a/b/c", "/z:ro", "/a/b", "/z:mode=700"])
    assert [one.path for one in found] == ["/z", "/a/b", "/a/b/c"]
    assert found[0] == Tmpfs("/z", USUAL_FLAGS, "mode=700")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a:1.2.3.4", ("a", "1.2.3.4")), ("a=1.2.3.4", ("a", "1.2.3.4")), ("a:::1", ("a", "::1")),
        ("a=[2001:DB8::1]", ("a", "2001:db8::1")), ("a:[::1]", ("a", "::1")),
        ("host.docker.internal:host-gateway", ("host.docker.internal", "host-gateway")),
    ],
)  # fmt: skip
def test_a_host_that_is_added(text: str, found: tuple[str, str]) -> None:
    assert run_values.hosts([text]) == (found,)


def test_the_resolver() -> None:
    assert run_values.name_servers(["1.1.1.1", " 2001:db8::1 "]) == ("1.1.1.1", "2001:db8::1")
    assert run_values.search_domains(["example.com", ".", "a-b.c.", "x1"]) == ("example.com", ".", "a-b.c.", "x1")
    assert run_values.resolver_options(["ndots:2", "rotate"]) == ("ndots:2", "rotate")


def test_capabilities_with_and_without_their_prefix() -> None:
    assert run_values.capabilities(["net_admin", "CAP_NET_RAW", "cap_bpf", "All"]) == (
        "NET_ADMIN", "NET_RAW", "BPF", "ALL",
    )  # fmt: skip


USUAL = 0xA80425FB


@pytest.mark.parametrize(
    ("add", "drop", "left"),
    [
        ((), (), USUAL),
        (("NET_ADMIN",), (), USUAL | 1 << 12),
        ((), ("CHOWN",), USUAL & ~1),
        (("CHOWN",), ("CHOWN",), USUAL),
        ((), ("ALL",), 0),
        (("CHOWN", "NET_ADMIN"), ("ALL",), 1 | 1 << 12),
        (("ALL",), (), (1 << 41) - 1),
        (("ALL",), ("CHOWN",), (1 << 41) - 2),
        (("ALL",), ("ALL",), (1 << 41) - 1),
    ],
)
def test_the_rights_that_are_left_are_docker_s(add: tuple[str, ...], drop: tuple[str, ...], left: int) -> None:
    assert run_values.rights(add, drop) == left


def test_groups_by_name_and_number() -> None:
    assert run_values.groups(["audio", "29", "4294967294"]) == ("audio", "29", "4294967294")


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("nofile=1024", Limit(7, 1024, 1024)), ("nofile=1024:2048", Limit(7, 1024, 2048)),
        ("core=-1", Limit(4, -1, -1)), ("cpu=5:-1", Limit(0, 5, -1)), ("rttime=0", Limit(15, 0, 0)),
    ],
)  # fmt: skip
def test_a_limit(text: str, limit: Limit) -> None:
    assert run_values.limits([text]) == (limit,)


def test_the_last_limit_of_a_resource_counts() -> None:
    assert run_values.limits(["core=1", "nofile=2", "core=3"]) == (Limit(4, 3, 3), Limit(7, 2, 2))


@pytest.mark.parametrize(
    ("text", "setting"),
    [
        ("net.core.somaxconn=1024", ("net/core/somaxconn", "1024")),
        ("net/core/somaxconn=1024", ("net/core/somaxconn", "1024")),
        ("net.ipv4.conf.eth0/1.forwarding = 1", ("net/ipv4/conf/eth0.1/forwarding", "1")),
        ("net/ipv4/conf/eth0.1/forwarding=1", ("net/ipv4/conf/eth0.1/forwarding", "1")),
        ("net.ipv4.ping_group_range=0 5", ("net/ipv4/ping_group_range", "0 5")),
        ("kernel.domainname=a=b", ("kernel/domainname", "a=b")),
    ],
)
def test_a_setting_of_the_kernel(text: str, setting: tuple[str, str]) -> None:
    assert run_values.sysctls([text]) == (setting,)


@pytest.mark.parametrize(
    ("texts", "wanted"),
    [
        (["no-new-privileges"], True), (["no-new-privileges:true"], True), (["no-new-privileges=true"], True),
        (["no-new-privileges:false"], False), (["seccomp=unconfined", "apparmor:unconfined"], False),
        (["label=disable", "no-new-privileges"], True),
    ],
)  # fmt: skip
def test_security_options(texts: list[str], wanted: bool) -> None:
    assert run_values.no_new_privileges(texts) is wanted


def test_exposed_ports() -> None:
    assert run_values.exposed(["80", "90-91/udp", "5/sctp"]) == (
        Port(80), Port(90, "udp"), Port(91, "udp"), Port(5, "sctp"),
    )  # fmt: skip


def test_a_mac_address() -> None:
    assert run_values.mac_address("02:42:AC:11:00:02") == "02:42:ac:11:00:02"
    assert run_values.mac_address("02-42-ac-11-00-02") == "02:42:ac:11:00:02"


def test_networks() -> None:
    assert [run_values.network(text) for text in ("user", "bridge", "default", "none", "tap:tap0")] == [
        "user", "user", "user", "none", "tap:tap0",
    ]  # fmt: skip


def test_addresses_and_cpus() -> None:
    assert run_values.ip_address("192.0.2.7") == "192.0.2.7" and run_values.ip_address("192.0.2.7/25") == "192.0.2.7/25"
    assert run_values.host_cpus("0-2,5") == {0, 1, 2, 5}
    assert run_values.domain_name("example.com") == "example.com"
    assert run_values.working_folder("/srv") == "/srv"


Single = Callable[[str], Any]
MANY: dict[str, Callable[[list[str]], Any]] = {
    "tmpfs": run_values.tmpfs, "hosts": run_values.hosts, "servers": run_values.name_servers,
    "domains": run_values.search_domains, "options": run_values.resolver_options, "rights": run_values.capabilities,
    "groups": run_values.groups, "limits": run_values.limits, "sysctls": run_values.sysctls,
    "security": run_values.no_new_privileges, "exposed": run_values.exposed,
}  # fmt: skip
ONE: dict[str, Single] = {
    "shm": run_values.shm_size, "domain": run_values.domain_name, "folder": run_values.working_folder,
    "mac": run_values.mac_address,
    "network": run_values.network, "ip": run_values.ip_address, "cpus": run_values.host_cpus,
}  # fmt: skip


def single(read: Callable[[list[str]], Any]) -> Single:
    return lambda text: read([text])


READ: dict[str, Single] = {**ONE, **{name: single(read) for name, read in MANY.items()}}


#: Texts that are none, by the words of the refusal.
NONE: dict[tuple[str, str], tuple[str, ...]] = {
    ("shm", "not a size"): ("", "x", "-1", "1x", "1e3", "99999t"),
    ("tmpfs", "absolute path"): ("", "run", "./run", ":size=1"),
    ("tmpfs", "not a path"): ("/a/../b", "/a\nb", "/" + "a" * 5000),
    ("tmpfs", "cannot cover"): ("/", "//", "/proc", "/proc/x", "/sys/fs", "/dev", "/.vmtailor"),
    ("tmpfs", "cannot have the option"): (
        "/r:size", "/r:size=", "/r:size=1x", "/r:size=-1", "/r:mode=9", "/r:bind", "/r:mpol=default", "/r:uid=root",
        "/r:a b",
    ),
    ("hosts", "names no host"): ("", "a", ":1.2.3.4", "=1.2.3.4", "a b:1.2.3.4", "a\nb:1.2.3.4"),
    ("hosts", "--add-host takes an address"): ("a:", "a:b", "a:1.2.3", "a:1.2.3.4 b", "a:1.2.3.4\n"),
    ("servers", "--dns takes an address"): ("", "x", "1.2.3.4:53", "1.2.3.4\noptions x"),
    ("folder", "not an absolute path"): ("", ".", "srv", "~/x"),
    ("domains", "not a domain"): ("", "a b", "-a", "1.2", "a..b", "a\nb", "a" * 255),
    ("options", "not an option of the resolver"): ("", "a b", "a\nb"),
    ("rights", "not a capability"): ("", "NOPE", "CAP_", "CAP_CAP_CHOWN", "NET ADMIN"),
    ("groups", "not a group"): ("", "a:b", "a\nb", "4294967295", "a" * 65),
    ("limits", "not a known limit"): ("", "as=1", "NOFILE=1", "=1", "nofile:1"),
    ("limits", "not a limit"): (
        "nofile", "nofile=", "nofile=x", "nofile=-2", "nofile=1:2:3", "core=9223372036854775808", "core=1:", "core=١",
    ),
    ("limits", "above the hard"): ("nofile=3:2", "nofile=-1:2"),
    ("sysctls", "not a setting"): (
        "", "a", "a=", "=1", "a..b=1", "a.=1", "../../etc/x=1", "a/../b=1", "/a=1", "a b=1", "a=1\nb",
        "a" * 201 + "=1", "net/./x=1",
    ),
    ("security", "--security-opt does not take"): (
        "", "seccomp=/x.json", "label=type:x", "no-new-privileges:1", "systempaths=unconfined", "apparmor=x",
    ),
    ("exposed", "is not a port to expose"): ("", "0", "65536", "82-80", "80/x", "80:80", "a"),
    ("mac", "not the MAC address"): (
        "", "x", "02:42:ac:11:00", "03:42:ac:11:00:02", "00:00:00:00:00:00", "02:42-ac:11:00:02", "02:42:ac:11:00:02\n",
        "0242.ac11.0002",
    ),
    ("network", "network of its own"): ("host",),
    ("network", "share no networks"): ("", "mine", "container:x", "TAP:x"),
    ("network", "name of a TAP"): (
        "tap:", "tap:a b", "tap:" + "a" * 16, "tap:a/b", "tap:..", "tap:a%d", "tap:a:b", "tap:a\n",
    ),
    ("ip", "not an IPv4 address"): ("", "x", "::1", "1.2.3.4/33", "1.2.3"),
    ("cpus", "is not a list of CPUs"): ("", "x", "1-", "3-1", "0,,1", "-1"),
    ("domain", "not a domain name"): ("", "a b", "a\nb", "a" * 65),
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "text", "says"), [(kind, text, says) for (kind, says), texts in NONE.items() for text in texts]
)
def test_what_is_none_is_refused_in_one_sentence(kind: str, text: str, says: str) -> None:
    with pytest.raises(UserInputError, match=says) as error:
        READ[kind](text)
    assert error.value.hint and "\n" not in error.value.message


@pytest.mark.attack
@pytest.mark.parametrize("kind", READ)
@given(text=st.text(max_size=40) | st.from_regex(r"[a-z/:=.,0-9\-\[\]]{0,30}", fullmatch=True))
def test_any_text_is_a_value_or_an_error_for_a_person(kind: str, text: str) -> None:
    try:
        found = READ[kind](text)
    except UserInputError:
        return
    assert "\n" not in str(found) and "\0" not in str(found)
